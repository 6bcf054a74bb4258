"""The VNN-LIB 1.0 reader: exact numbers, normal form against the text, and every error."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert.errors import FormatError, InputError
from bnncert.model.formats.file_content import Limits
from bnncert.problem import vnnlib
from bnncert.problem.vnnlib import disjunctive_form, parse_vnnlib, read_vnnlib
from bnncert.problem.vnnlib.query import Disjunct, LinearConstraint, Specification

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
EXAMPLES = SHARED / "vnncomp2023" / "vnnlib"


def declarations(inputs: int, outputs: int) -> str:
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += [f"(declare-const Y_{j} Real)" for j in range(outputs)]
    return "\n".join(lines) + "\n"


def box(inputs: int, low: int = -10, high: int = 10) -> str:
    return "".join(
        f"(assert (>= X_{i} {low}))\n(assert (<= X_{i} {high}))\n" for i in range(inputs)
    )


def query(*asserts: str, inputs: int = 1, outputs: int = 2, bounds: bool = True) -> Specification:
    text = declarations(inputs, outputs) + (box(inputs) if bounds else "")
    return parse_vnnlib(text + "\n".join(f"(assert {a})" for a in asserts))


def fractions(*values: int | str) -> tuple[Fraction, ...]:
    return tuple(Fraction(v) for v in values)


def satisfies(c: LinearConstraint, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    value = c.constant
    value += sum((a * x[i] for i, a in c.inputs), Fraction(0))
    value += sum((a * y[j] for j, a in c.outputs), Fraction(0))
    return value < 0 if c.strict else value <= 0


def inside(d: Disjunct, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    return all(low <= v <= high for low, v, high in zip(d.lower, x, d.upper, strict=True)) and all(
        satisfies(c, x, y) for c in d.input_constraints + d.output_constraints
    )


# --- what a well-formed file means ----------------------------------------------------------


def test_box_and_output_disjunction() -> None:
    spec = parse_vnnlib(
        "; a comment (with parentheses\n(set-logic QF_LRA) (set-info :source |two\nlines; (|)\n"
        '(set-info :note "a ) in quotes") (set-option (nested (deeply)) true)\n'
        + declarations(2, 3)
        + box(2, 0, 1)
        + "(assert (or (and (>= Y_0 Y_2)) (and (>= Y_1 Y_2) (< Y_0 0.5)))) ; end\n"
        "(check-sat)(get-model)(exit)"
    )
    assert (spec.input_count, spec.output_count, spec.path) == (2, 3, "<string>")
    one, two = spec.disjuncts
    assert one.lower == fractions(0, 0)
    assert one.upper == fractions(1, 1)
    assert one.lower is two.lower
    assert one.upper is two.upper
    assert one.output_constraints == (
        LinearConstraint((), ((0, Fraction(-1)), (2, Fraction(1))), Fraction(0), False, 14),
    )
    assert [c.strict for c in two.output_constraints] == [False, True]
    assert two.output_constraints[1].constant == Fraction(-1, 2)
    assert one.input_constraints == ()


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("3", "3"),
        ("-3", "-3"),
        ("+3", "3"),
        ("0.1", "1/10"),
        (".5", "1/2"),
        ("5.", "5"),
        ("-1.25e-2", "-1/80"),
        ("1E+2", "100"),
        ("(/ 1 3)", "1/3"),
        ("(/ 8 2 2)", "2"),
        ("(- 2)", "-2"),
        ("(- (/ 1 3))", "-1/3"),
        ("(- 1 2 3)", "-4"),
        ("(+ 1 2 3)", "6"),
        ("(* 2 (+ 1 0.5))", "3"),
        ("0.1000000000000000055511151231257827021181583404541015625", str(Fraction(0.1))),
    ],
)
def test_numbers_are_exact(number: str, value: str) -> None:
    spec = query(f"(<= X_0 {number})", "(>= X_0 -10)", bounds=False)
    assert spec.disjuncts[0].upper == fractions(value)


@pytest.mark.parametrize(
    ("assertion", "low", "high"),
    [
        ("(= X_0 2)", 2, 2),
        ("(<= (* 2 X_0) 3)", -10, "3/2"),
        ("(<= (* X_0 -2) 3)", "-3/2", 10),
        ("(<= (/ X_0 2) 3)", -10, 6),
        ("(>= 4 (- X_0))", -4, 10),
        ("(<= -1 X_0 1)", -1, 1),
        ("(> 3 X_0 1)", 1, 3),
        ("(not (<= X_0 1))", 1, 10),
        ("(not (or (> X_0 1) (< X_0 0)))", 0, 1),
        ("(not (not (<= X_0 1)))", -10, 1),
        ("(<= (+ X_0 X_0 1) (- X_0 1))", -10, -2),
        ("(<= (+ X_0 (* 0 X_1)) 1)", -10, 1),
    ],
)
def test_single_input_comparisons_become_bounds(
    assertion: str, low: int | str, high: int | str
) -> None:
    (only,) = query(assertion, inputs=2).disjuncts
    assert (only.lower[0], only.upper[0]) == fractions(low, high)
    assert only.input_constraints == ()


def test_tightest_bound_wins_in_any_order() -> None:
    (only,) = query("(<= X_0 3)", "(<= X_0 5)", "(>= X_0 -7)", "(>= X_0 -9)").disjuncts
    assert (only.lower, only.upper) == (fractions(-7), fractions(3))


def test_input_polytope_and_merged_coefficients() -> None:
    (only,) = query("(< (+ X_2 (* 3 X_0) (- X_1 X_1)) (- 1 X_0))", inputs=3).disjuncts
    (constraint,) = only.input_constraints
    assert constraint.inputs == ((0, Fraction(4)), (2, Fraction(1)))
    assert constraint.outputs == ()
    assert constraint.constant == -1
    assert constraint.strict


def test_equality_and_its_negation() -> None:
    (only,) = query("(= Y_0 Y_1)").disjuncts
    assert [c.outputs[0][1] for c in only.output_constraints] == [1, -1]
    negated = query("(not (= Y_0 Y_1))")
    assert [d.output_constraints[0].strict for d in negated.disjuncts] == [True, True]
    assert not negated.holds([Fraction(0)], fractions(1, 1))
    assert negated.holds([Fraction(0)], fractions(1, 2))
    chain = query("(not (<= 0 Y_0 1))")
    assert len(chain.disjuncts) == 2
    assert [chain.holds([Fraction(0)], fractions(v, 0)) for v in (-1, 0, 1, 2)] == [
        True,
        False,
        False,
        True,
    ]


def test_disjunction_of_boxes_with_their_own_outputs() -> None:
    spec = query(
        "(or (and (<= X_0 0) (>= X_0 -1) (<= Y_0 0)) (and (>= X_0 1) (<= X_0 2) (>= Y_0 0)))",
        "(>= X_1 0)",
        "(<= X_1 1)",
        "(or (<= Y_1 0) (>= Y_1 1))",
        inputs=2,
        bounds=False,
    )
    left, right = fractions(-1, 0), fractions(1, 2)
    assert [(d.lower[0], d.upper[0]) for d in spec.disjuncts] == [left, left, right, right]
    assert [len(d.output_constraints) for d in spec.disjuncts] == [2] * 4
    assert spec.disjuncts[0].lower is spec.disjuncts[1].lower
    assert spec.disjuncts[2].upper is spec.disjuncts[3].upper


def test_choices_on_several_inputs_multiply() -> None:
    spec = query("(or (<= X_0 1) (<= X_0 2))", "(or (<= X_1 3) (<= X_1 4))", inputs=2)
    assert [d.upper for d in spec.disjuncts] == [fractions(a, b) for a in (1, 2) for b in (3, 4)]


def test_untouched_side_of_a_box_is_shared() -> None:
    one, two = query("(or (<= X_0 1) (<= X_0 2))").disjuncts
    assert one.lower is two.lower
    assert (one.upper, two.upper) == (fractions(1), fractions(2))


def test_empty_boxes_are_dropped() -> None:
    spec = query("(or (>= X_0 11) (<= Y_0 0) (and (>= X_0 2) (<= X_0 1)))")
    assert len(spec.disjuncts) == 1
    assert query("(>= X_0 11)").disjuncts == ()
    assert query("(<= 1 0)").disjuncts == ()
    assert query("(< X_0 X_0)").disjuncts == ()
    assert query("(or (<= 0 0) (<= Y_0 0))").disjuncts[0].output_constraints == ()


def test_strict_bounds_are_closed_in_the_box_and_strict_in_holds() -> None:
    spec = query("(< X_0 1)", "(<= Y_0 0)")
    assert spec.disjuncts[0].upper == fractions(1)
    assert not spec.holds(fractions(1), fractions(0, 0))
    assert spec.holds(fractions("0.999"), fractions(0, 0))


def test_no_output_constraint_is_allowed() -> None:
    (only,) = query().disjuncts
    assert only.output_constraints == ()


def test_declarations_in_any_order() -> None:
    text = "(declare-const Y_0 Real)(declare-const X_1 Real)(declare-const X_0 Real)"
    spec = parse_vnnlib(text + box(2))
    assert (spec.input_count, spec.output_count) == (2, 1)


RANGE = (("<=", "100"), (">=", "-100"))

_BOUNDS = st.lists(
    st.tuples(
        st.sampled_from(["<=", ">="]),
        st.integers(0, 2),
        st.sampled_from(["0", "-1.5", "2.25", "0.1", "7", "1e1"]),
    ),
    max_size=8,
)


@given(bounds=_BOUNDS, x=st.lists(st.sampled_from([-2.0, -1.5, 0.0, 0.1, 2.25, 7.0]), min_size=3))
def test_bounds_mean_the_same_in_any_spelling(
    bounds: list[tuple[str, int, str]], x: list[float]
) -> None:
    """One space between words is read by one expression, anything else token by token."""
    declared = [f"(declare-const {name} Real)" for name in ("X_0", "X_1", "X_2", "Y_0")]
    wide = [f"(assert ({side} X_{i} {end}))" for i in range(3) for side, end in RANGE]
    plain = "\n".join([*declared, *wide, *(f"(assert ({r} X_{i} {v}))" for r, i, v in bounds)])
    spaced = plain.replace(" ", "  ")
    quick, slow = parse_vnnlib(plain), parse_vnnlib(spaced)
    assert quick.disjuncts == slow.disjuncts
    assert len(quick.program) < len(slow.program)
    assert quick.holds(x[:3], [0.0]) == slow.holds(x[:3], [0.0])


@pytest.mark.parametrize(
    "text",
    [
        "(assert (<= X_0 1))",
        "(declare-const X_0 Real)\n(and (assert (<= X_0 1)))",
        "(declare-const X_0 Real)\n(assert (and (declare-const X_1 Real)))",
        "(declare-const X_0 Real)\n(assert (or (assert (<= X_0 1))))",
        "(declare-const X_0 Real)\n\n(declare-const X_0 Real)",
        "(declare-const X_01 Real)",
    ],
)
def test_errors_are_the_same_in_any_spelling(text: str) -> None:
    messages = []
    for spelling in (text, text.replace(" ", "  ")):
        with pytest.raises(FormatError) as caught:
            parse_vnnlib(spelling)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_holds_checks_lengths_and_takes_floats_exactly() -> None:
    spec = query("(<= X_0 0.1)")
    with pytest.raises(InputError, match="found 2 values for X, expected 1"):
        spec.holds(fractions(0, 0), fractions(0, 0))
    with pytest.raises(InputError, match="found 1 values for Y, expected 2"):
        spec.holds(fractions(0), fractions(0))
    # The double 0.1 lies above one tenth.
    assert not spec.holds([0.1], [0, 0])  # type: ignore[list-item]


# --- normal form against the text -----------------------------------------------------------

INPUTS, OUTPUTS = 3, 3
Tree = tuple[Any, ...]

constants = st.builds(Fraction, st.integers(-6, 6), st.sampled_from([1, 2, 3]))


def terms(letter: str) -> st.SearchStrategy[Tree]:
    leaf = st.one_of(
        st.tuples(st.just(letter), st.integers(0, INPUTS - 1)), st.tuples(st.just("c"), constants)
    )

    def extend(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        constant = st.tuples(st.just("c"), constants)
        nonzero = st.tuples(st.just("c"), constants.filter(bool))
        return st.one_of(
            st.tuples(st.sampled_from("+-"), several),
            st.tuples(st.just("*"), st.tuples(constant, inner)),
            st.tuples(st.just("*"), st.tuples(inner, constant)),
            st.tuples(st.just("/"), st.tuples(inner, nonzero)),
        )

    return st.recursive(leaf, extend, max_leaves=4)


def comparisons(letter: str) -> st.SearchStrategy[Tree]:
    operands = st.lists(terms(letter), min_size=2, max_size=3).map(tuple)
    return st.tuples(st.sampled_from(["<=", ">=", "<", ">", "="]), operands)


def connectives(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), several),
        st.tuples(st.just("not"), st.tuples(inner)),
    )


formulas = st.recursive(st.one_of(comparisons("X"), comparisons("Y")), connectives, max_leaves=8)
input_points = st.lists(st.integers(-7, 7), min_size=INPUTS, max_size=INPUTS)
output_points = st.lists(constants, min_size=OUTPUTS, max_size=OUTPUTS)


def written(tree: Tree) -> str:
    head, rest = tree
    if head in ("X", "Y"):
        return f"{head}_{rest}"
    if head == "c":
        sign = f"(- {abs(rest.numerator)})" if rest < 0 else str(rest.numerator)
        return sign if rest.denominator == 1 else f"(/ {sign} {rest.denominator})"
    return f"({head} {' '.join(map(written, rest))})"


def value(tree: Tree, point: dict[str, list[Fraction]]) -> Any:
    """Evaluate by recursion over the generated tree, without the reader."""
    head, rest = tree
    if head in ("X", "Y"):
        return point[head][rest]
    if head == "c":
        return rest
    v = [value(part, point) for part in rest]
    pairs = list(pairwise(v))
    if head == "and":
        return all(v)
    if head == "or":
        return any(v)
    if head == "not":
        return not v[0]
    if head == "<=":
        return all(a <= b for a, b in pairs)
    if head == ">=":
        return all(a >= b for a, b in pairs)
    if head == "<":
        return all(a < b for a, b in pairs)
    if head == ">":
        return all(a > b for a, b in pairs)
    if head == "=":
        return all(a == b for a, b in pairs)
    if head == "+":
        return sum(v)
    if head == "-":
        return v[0] - sum(v[1:]) if len(v) > 1 else -v[0]
    return v[0] * v[1] if head == "*" else v[0] / v[1]


@settings(max_examples=35, deadline=None)
@given(
    trees=st.lists(formulas, min_size=1, max_size=2),
    points=st.lists(st.tuples(input_points, output_points), min_size=1, max_size=6),
)
def test_normal_form_agrees_with_the_text(
    trees: list[Tree], points: list[tuple[list[int], list[Fraction]]]
) -> None:
    spec = query(*map(written, trees), inputs=INPUTS, outputs=OUTPUTS)
    for whole, y in points:
        # Off the boundary of every bound on one input, where the box is closed by design: the
        # offset has a prime in its denominator that no generated constant can produce.
        x = [v + Fraction(1, 2**61 - 1) for v in whole]
        expected = all(value(tree, {"X": x, "Y": y}) for tree in trees)
        assert spec.holds(x, y) is expected
        assert any(inside(d, x, y) for d in spec.disjuncts) is expected


@settings(max_examples=30, deadline=None)
@given(tree=formulas, x=input_points, y=output_points)
def test_normal_form_contains_every_witness(tree: Tree, x: list[int], y: list[Fraction]) -> None:
    spec = query(written(tree), inputs=INPUTS, outputs=OUTPUTS)
    point = fractions(*x)
    assert spec.holds(point, y) is value(tree, {"X": list(point), "Y": y})
    if spec.holds(point, y):
        assert any(inside(d, point, y) for d in spec.disjuncts)


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet='()<>=+-*/XY_01.e;|" \nandorst', max_size=60))
def test_garbage_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormatError, match=r"\A<string>:\d+: found [^\n]+, expected [^\n]+\Z"):
        parse_vnnlib(text)
    with pytest.raises(FormatError, match=r"\A<string>:\d+: found [^\n]+\Z"):
        parse_vnnlib(declarations(1, 1) + "(assert (" + text)


# --- errors ---------------------------------------------------------------------------------

HEAD = declarations(2, 1)  # lines 1 to 3


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "an empty file"),
        (" \n\t\n", 1, "an empty file"),
        ("; only a comment\n", 2, "no declared input"),
        ("(declare-const X_0 Real)", 1, "no declared output"),
        ("(declare-const Y_0 Real)", 1, "no declared input"),
        (HEAD + "(vnnlib-version <2.0>)", 4, "VNN-LIB 2.0, expected (vnnlib-version"),
        ("(declare-network f (declare-input X float32 [1]))", 1, "as first command"),
        (HEAD + "(push 1)", 4, "unknown command 'push'"),
        (HEAD + "word", 4, "'word' outside a command"),
        (HEAD + "()", 4, "'()', expected a command"),
        (HEAD + "((assert))", 4, "'(', expected a command"),
        (HEAD + "\n)", 5, "')' without an open parenthesis"),
        (HEAD + "\n(assert (<= X_0 1)\n", 5, "the end of the file inside"),
        (HEAD + "(assert (<= X_0 1)\n(assert (<= X_1 1)))", 5, "operator 'assert' below"),
        (HEAD + '(set-info "open)', 4, 'an opening " without'),
        (HEAD + "(set-info |open)", 4, "an opening | without"),
        (HEAD + "(declare-const X_0 Real)", 4, "a second declaration of X_0, expected only"),
        (HEAD + "(declare-const X_3 Real)", 4, "X_3 declared, but not X_2"),
        (HEAD + "(declare-const Y_2 Real)", 4, "Y_2 declared, but not Y_1"),
        (HEAD + "(declare-const X_2 Int)", 4, "'declare-const X_2 Int'"),
        (HEAD + "(declare-const X_2)", 4, "'declare-const X_2'"),
        (HEAD + "(declare-const X_2 (Real))", 4, "'(' in a declaration"),
        (HEAD + "(declare-const Z_0 Real)", 4, "variable 'Z_0'"),
        (HEAD + "(declare-const X_02 Real)", 4, "variable 'X_02'"),
        (HEAD + "(declare-const X_9999999999 Real)", 4, "variable 'X_9999999999'"),
        (HEAD + "\n\n(assert (<= X_7 1))", 6, "undeclared variable 'X_7'"),
        (HEAD + "(assert (<= foo 1))", 4, "unknown symbol 'foo'"),
        (HEAD + "(assert (<= X_0 1.2.3))", 4, "unknown symbol '1.2.3'"),
        (HEAD + "(assert (<= X_0 nan))", 4, "unknown symbol 'nan'"),
        (HEAD + "(assert (<= X_0 ٣))", 4, "unknown symbol"),
        (HEAD + "(assert (<= X_0 1e999999999))", 4, "number '1e999999999'"),
        (HEAD + "(assert (<= X_0 1e-99999999999999))", 4, "number '1e-99999999999999'"),
        (HEAD + f"(assert (<= X_0 {'9' * 9000}))", 4, "number '999"),
        (HEAD + "(assert)", 4, "assert with 0 formulas"),
        (HEAD + "(assert (<= X_0 1) (<= X_1 1))", 4, "assert with 2 formulas"),
        (HEAD + "(assert X_0)", 4, "'X_0' below 'assert'"),
        (HEAD + "(assert (and X_0))", 4, "'X_0' below 'and'"),
        (HEAD + "(assert ())", 4, "'()', expected an operator"),
        (HEAD + "(assert ((<= X_0 1)))", 4, "'(', expected an operator"),
        (HEAD + "(assert (and))", 4, "'and' with 0 operands"),
        (HEAD + "(assert (not (<= X_0 1) (<= X_1 1)))", 4, "'not' with 2 operands"),
        (HEAD + "(assert (=> (<= X_0 1) (<= X_1 1)))", 4, "operator '=>' below 'assert'"),
        (HEAD + "(assert (+ X_0 1))", 4, "operator '+' below 'assert'"),
        (HEAD + "(assert (<= X_0 (and 1)))", 4, "operator 'and' below '<='"),
        (HEAD + "(assert (<= X_0))", 4, "'<=' with 1 operands"),
        (HEAD + "(assert (<= X_0 (+)))", 4, "'+' with 0 operands"),
        (HEAD + "(assert (<= X_0 (/ 1)))", 4, "'/' with 1 operands"),
        (HEAD + "(assert (<= X_0 (/ 1 0)))", 4, "a division by zero"),
        (HEAD + "(assert (<= X_0 (/ 1 X_1)))", 4, "a division by a variable"),
        (HEAD + "(assert\n(<= (* X_0 X_1) 1))", 5, "a product of two variables"),
        (HEAD + "(assert (or\n(<= X_0 1)\n(<= X_0 Y_0)))", 6, "a mixture is unsupported"),
        (HEAD + box(1), 2, "input X_1 without lower bound in disjunct 1"),
        (HEAD + box(1) + "(assert (>= X_1 0))", 2, "input X_1 without upper bound"),
        (
            HEAD + box(1) + "(assert (>= X_1 0))(assert (or (<= X_1 1) (<= Y_0 1)))",
            2,
            "input X_1 without upper bound in disjunct 2",
        ),
    ],
)
def test_error_names_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_vnnlib(text, "some.vnnlib")
    shown = str(caught.value)
    assert shown.startswith(f"some.vnnlib:{line}: found "), shown
    assert message in shown
    assert ", expected " in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "(assert " + "(and " * 100_000,
        "(assert " + "(not " * 100_000 + "(<= X_0 1)" + ")" * 100_001,
        "(assert (<= X_0 " + "(- " * 100_000 + "1" + ")" * 100_002,
        "(set-info " + "(" * 100_000 + ")" * 100_001,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match=r"nested parentheses|expected a command"):
        parse_vnnlib(HEAD + text)


def test_nesting_below_the_limit_is_read() -> None:
    depth = 900
    formula = "(not (and " * (depth // 2) + "(<= Y_0 (+ 1 0))" + "))" * (depth // 2)
    spec = query(formula)
    assert spec.disjuncts[0].output_constraints[0].strict is False
    assert spec.holds(fractions(0), fractions(1, 0))
    alternating = "(and (<= Y_0 1) (or (<= Y_1 1) " * 200 + "(<= Y_0 1)" + "))" * 200
    assert len(query(alternating).disjuncts) == 201


def test_normal_form_explosion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = "(or (<= Y_0 1) (>= Y_1 1))"
    assert len(query(*[choice] * 10).disjuncts) == 1024
    with pytest.raises(FormatError, match=r"131072 disjuncts .* expected at most 100000"):
        query(*[choice] * 40)
    monkeypatch.setattr(disjunctive_form, "MAX_DISJUNCTS", 1000)
    with pytest.raises(FormatError, match="expected at most 1000"):
        query(f"(and {' '.join([choice] * 40)})")
    with pytest.raises(FormatError, match="expected at most 1000"):
        query(f"(or {'(<= Y_0 1) ' * 1001})")


def test_memory_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choice = "(or (<= X_0 1) (>= X_0 1))"
    monkeypatch.setattr(disjunctive_form, "MAX_PRODUCT_SIZE", 20)
    with pytest.raises(FormatError, match="disjunctive normal form is too large"):
        query(*[choice] * 4)
    monkeypatch.undo()
    monkeypatch.setattr(disjunctive_form, "MAX_BOX_ENTRIES", 10)
    with pytest.raises(FormatError, match="different boxes over 1 inputs"):
        query(*[choice] * 4)
    monkeypatch.undo()
    monkeypatch.setattr(vnnlib, "DEFAULT_LIMITS", Limits(query=10))
    file = tmp_path / "bomb.vnnlib.gz"
    file.write_bytes(gzip.compress(b";" * 11, mtime=0))
    with pytest.raises(FormatError, match="unpacks to more than 10 bytes"):
        read_vnnlib(file)


# --- files ----------------------------------------------------------------------------------

SMALL = (declarations(1, 1) + box(1) + "(assert (<= Y_0 0))\n").encode()


@pytest.mark.parametrize("name", ["a.vnnlib", "a.vnnlib.gz", "no-extension"])
@pytest.mark.parametrize("packed", [False, True])
def test_compression_is_told_by_content(tmp_path: Path, name: str, packed: bool) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(SMALL, mtime=0) if packed else SMALL)
    spec = read_vnnlib(file)
    assert spec.path == str(file)
    assert read_vnnlib(str(file)) == spec
    assert len(spec.disjuncts) == 1


def test_windows_text_is_read(tmp_path: Path) -> None:
    file = tmp_path / "windows.vnnlib"
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.replace(b"\n", b"\r\n"))
    assert read_vnnlib(file).disjuncts[0].output_constraints[0].line == 5


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"", 1, "an empty file"),
        (gzip.compress(b"", mtime=0), 1, "an empty file"),
        (SMALL + b"; \xff\xfe\n", 6, "byte 0xff, which is not UTF-8"),
        (gzip.compress(b"\n\xe9t\xe9", mtime=0), 2, "byte 0xe9, which is not UTF-8"),
        (b"\x00\x01\x02", 1, r"'\x00\x01\x02' outside a command"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, line: int, message: str) -> None:
    file = tmp_path / "broken.vnnlib"
    file.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        read_vnnlib(file)
    assert str(caught.value).startswith(f"{file}:{line}: found ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(SMALL, mtime=0)[:-12],
        gzip.compress(SMALL, mtime=0)[:5],
        gzip.compress(SMALL, mtime=0)[:2],
        b"\x1f\x8b\x07" + bytes(30),
        gzip.compress(SMALL, mtime=0)[:-8] + bytes(8),
        gzip.compress(SMALL, mtime=0)[:10] + b"\xff" * 40,
    ],
)
def test_broken_gzip(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "broken.vnnlib"
    file.write_bytes(data)
    with pytest.raises(FormatError, match="truncated or broken gzip file") as caught:
        read_vnnlib(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"absent: no such file"):
        read_vnnlib(tmp_path / "absent")
    with pytest.raises(FormatError, match="is a directory"):
        read_vnnlib(tmp_path)
    with pytest.raises(FormatError, match="cannot be read"):
        read_vnnlib("a\0b")


def test_large_file_is_fast_and_shares_its_box() -> None:
    inputs, outputs = 64 * 64 * 3, 43
    body = "".join(
        f"(assert (<= X_{i} {i % 256}.125))\n(assert (>= X_{i} {i % 256}.062))\n"
        for i in range(inputs)
    )
    wrong = " ".join(f"(and (>= Y_{j} Y_42))" for j in range(outputs - 1))
    text = declarations(inputs, outputs) + body + f"(assert (or {wrong}))"
    start = time.process_time()
    spec = parse_vnnlib(text)
    # Several times what it takes: this is here to catch quadratic work, not slow machines.
    assert time.process_time() - start < 6
    assert len(spec.disjuncts) == 42
    first = spec.disjuncts[0]
    assert all(d.lower is first.lower and d.upper is first.upper for d in spec.disjuncts)
    assert spec.holds(first.lower, [Fraction(0)] * outputs)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason=f"no VNN-COMP examples in {EXAMPLES}")
@pytest.mark.parametrize(
    "pattern", ["model_30_*_eps_1.*", "model_48_*_eps_1.*", "model_64_*_eps_1.*"]
)
def test_vnncomp_examples(pattern: str) -> None:
    # The files of one model and image differ only in epsilon: one each keeps the test short.
    files = sorted(EXAMPLES.glob(pattern))
    assert files
    for file in files:
        match = re.fullmatch(r"model_(\d+)_idx_\d+_eps_([0-9.]+)\.vnnlib\.gz", file.name)
        assert match is not None
        spec = read_vnnlib(file)
        assert spec.input_count == 3 * int(match[1]) ** 2
        assert spec.output_count == 43
        assert len(spec.disjuncts) == 42
        first = spec.disjuncts[0]
        assert all(d.lower is first.lower and d.upper is first.upper for d in spec.disjuncts)
        widths = {high - low for low, high in zip(first.lower, first.upper, strict=True)}
        assert max(widths) == 2 * Fraction(match[2])
        (target,) = {
            index
            for d in spec.disjuncts
            for index, coefficient in d.output_constraints[0].outputs
            if coefficient > 0
        }
        best = [Fraction(int(j == target)) for j in range(43)]
        assert not spec.holds(first.lower, best)
        assert spec.holds(first.upper, [Fraction(0)] * 43)
        outside = [first.lower[0] - 1, *first.lower[1:]]
        assert not spec.holds(outside, [Fraction(0)] * 43)
