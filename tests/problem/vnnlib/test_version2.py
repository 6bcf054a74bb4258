"""The VNN-LIB 2.0 reader: against the 1.0 reader, against brute force, and every error."""

from __future__ import annotations

import gzip
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.errors import FormatError, InputError, MissingExtraError
from bnncert.problem import from_vnnlib
from bnncert.problem.vnnlib import parse_vnnlib, read_vnnlib, version2
from bnncert.problem.vnnlib.query import Specification
from tests.brute_force import TinyNetwork, true_margins
from tests.in_process import Capture, command_line
from tests.strategies import regions, tiny_networks

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("vnnlib") is None, reason="needs the extra 'vnnlib'"
)
pytestmark = needs_package

VERSION = "(vnnlib-version <2.0>)\n"


def network(
    inputs: str = "X Real [2]", outputs: str = "Y Real [2]", *, before: str = "", hidden: str = ""
) -> str:
    """Three lines: the network with its equivalence, the input, what is hidden and the output."""
    return (
        f"(declare-network f {before}\n(declare-input {inputs})\n"
        f"{hidden}(declare-output {outputs}))\n"
    )


def query(*asserts: str, inputs: str = "X Real [2]", outputs: str = "Y Real [2]") -> Specification:
    text = VERSION + network(inputs, outputs) + "\n".join(f"(assert {a})" for a in asserts)
    return parse_vnnlib(text)


def decimal(value: Fraction) -> str:
    """Write a fraction whose denominator divides a power of ten, without exponent."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    whole = str(abs(int(value * 10**digits))).rjust(digits + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{whole[: len(whole) - digits]}.{whole[len(whole) - digits :] or '0'}"


def fractions(*values: int | str) -> tuple[Fraction, ...]:
    return tuple(Fraction(v) for v in values)


# --- the same query in both versions --------------------------------------------------------

SHAPES = {1: ((), (1,), (1, 1)), 2: ((2,), (1, 2), (2, 1)), 4: ((4,), (2, 2), (1, 4, 1))}

tenths = st.integers(-30, 30).map(lambda k: Fraction(k, 10))


def _terms(letter: str) -> st.SearchStrategy[object]:
    """Terms over inputs or over outputs: constants, (letter, i) and (operation, *terms)."""
    leaf = tenths | st.tuples(st.just(letter), st.integers(0, 3))
    return st.recursive(
        leaf,
        lambda inner: (
            st.tuples(st.just("+"), inner, inner)
            | st.tuples(st.just("-"), inner, inner)
            | st.tuples(st.just("-"), inner)
            | st.tuples(st.just("*"), tenths, inner)
        ),
        max_leaves=4,
    )


comparisons = st.one_of(
    *(
        st.tuples(st.sampled_from(["<=", "<", ">=", ">", "==", "!="]), _terms(v), _terms(v))
        for v in "XY"
    )
)
formulas = st.recursive(
    comparisons, lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner), max_leaves=4
)


def written(tree: object, name: Callable[[str, int], str], version: int) -> str:
    if isinstance(tree, Fraction):
        return decimal(tree)
    assert isinstance(tree, tuple)
    head = tree[0]
    if head in ("X", "Y"):
        return name(head, tree[1])
    parts = " ".join(written(part, name, version) for part in tree[1:])
    if version == 1 and head == "!=":
        return f"(not (= {parts}))"
    return f"({'=' if version == 1 and head == '==' else head} {parts})"


def element(name: str, shape: Sequence[int], flat: int) -> str:
    """Name the element at a flat position, by numpy's row-major order."""
    place = np.unravel_index(flat, shape) if shape else ()
    return f"{name}[{','.join(str(int(i)) for i in place)}]" if shape else name


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_both_versions_of_a_query_are_the_same(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 2, 4]))
    shapes = {v: data.draw(st.sampled_from(SHAPES[count])) for v in "XY"}
    names = {"X": "an_input", "Y": "scores"}
    trees = data.draw(st.lists(formulas, min_size=1, max_size=3))
    box = [("and", ("<=", ("X", i), Fraction(2)), (">=", ("X", i), Fraction(-2))) for i in range(4)]

    def old_name(letter: str, index: int) -> str:
        return f"{letter}_{index % count}"

    def new_name(letter: str, index: int) -> str:
        return element(names[letter], shapes[letter], index % count)

    old = "".join(f"(declare-const {v}_{i} Real)\n" for v in "XY" for i in range(count))
    kind = data.draw(st.sampled_from(["Real", "real", "float32", "float64"]))
    tensors = [f"{names[v]} {kind} [{','.join(map(str, shapes[v]))}]" for v in "XY"]
    new = VERSION + network(*tensors)
    old += "".join(f"(assert {written(t, old_name, 1)})\n" for t in [*box, *trees])
    new += "".join(f"(assert {written(t, new_name, 2)})\n" for t in [*box, *trees])
    first, second = parse_vnnlib(old), parse_vnnlib(new)

    assert (first.input_count, first.output_count) == (second.input_count, second.output_count)

    def without_lines(spec: Specification) -> list[object]:
        return [
            replace(
                d,
                input_constraints=tuple(replace(c, line=0) for c in d.input_constraints),
                output_constraints=tuple(replace(c, line=0) for c in d.output_constraints),
            )
            for d in spec.disjuncts
        ]

    assert without_lines(first) == without_lines(second)
    numbers = st.lists(
        st.fractions(-3, 3, max_denominator=10), min_size=2 * count, max_size=2 * count
    )
    for _ in range(3):
        point = data.draw(numbers)
        x, y = point[:count], point[count:]
        assert first.holds(x, y) is second.holds(x, y)


def test_row_major_order() -> None:
    names = [f"x[{i},{j}]" for i in range(2) for j in range(3)]
    asserts = [f"(and (>= {n} {k}.0) (<= {n} {k}.5))" for k, n in enumerate(names)]
    spec = query(
        *asserts, "(<= y[1,0] y[0,1])", inputs="x float32 [2,3]", outputs="y float32 [2,2]"
    )
    (only,) = spec.disjuncts
    assert only.lower == fractions(0, 1, 2, 3, 4, 5)
    assert only.upper == fractions("1/2", "3/2", "5/2", "7/2", "9/2", "11/2")
    (constraint,) = only.output_constraints
    # y[1,0] - y[0,1] <= 0 with flat positions 2 and 1, on the last of 4 + 7 lines.
    assert constraint.outputs == ((1, Fraction(-1)), (2, Fraction(1)))
    assert constraint.line == 11
    assert (spec.input_count, spec.output_count) == (6, 4)


def test_scalar_and_not_equal() -> None:
    spec = query(
        "(and (>= x -1.0) (<= x 1.0) (!= x 0.0))", inputs="x float32 []", outputs="y float32 []"
    )
    assert [(d.lower, d.upper) for d in spec.disjuncts] == [
        (fractions(-1), fractions(0)),
        (fractions(0), fractions(1)),
    ]
    assert [spec.holds([Fraction(k, 2)], fractions(0)) for k in (-3, -2, 0, 1, 3)] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_numbers_are_exact() -> None:
    long = "0.1000000000000000055511151231257827021181583404541015624"
    spec = query(f"(<= X {long})", "(>= X -0.3)", inputs="X float32 []")
    assert spec.disjuncts[0].upper == (Fraction(long),)
    assert spec.disjuncts[0].upper[0] < Fraction(0.1)
    assert spec.disjuncts[0].lower == fractions("-3/10")


def test_onnx_names_are_skipped() -> None:
    tensors = 'X float32 [1] "a ; ( \n [ é"', 'Y float32 [1]"out"'
    spec = query(
        "(<= X[0] 1.0)", "(>= X[0] 0.0)", "(>= Y[0] 0.5)", inputs=tensors[0], outputs=tensors[1]
    )
    (only,) = spec.disjuncts
    assert (only.lower, only.upper) == (fractions(0), fractions(1))
    # Two lines before, the declaration with a line break in the name, and two assertions.
    assert only.output_constraints[0].line == 8


@pytest.mark.parametrize("compressed", [False, True])
def test_files(tmp_path: Path, compressed: bool) -> None:
    text = (
        "; a comment: (vnnlib-version <1.0>) é\n\n"
        + VERSION
        + network("X float32 [1]")
        + "(assert (<= X[0] 1.0)) (assert (>= X[0] 0.0))"
    ).encode()
    path = tmp_path / ("q.vnnlib.gz" if compressed else "q.vnnlib")
    path.write_bytes(gzip.compress(text) if compressed else text)
    spec = read_vnnlib(path)
    assert spec.path == str(path)
    assert spec.disjuncts[0].upper == fractions(1)


# --- Euclidean balls ------------------------------------------------------------------------


def squares(centre: Sequence[Fraction]) -> str:
    parts = [f"(- X[{i}] {decimal(c)})" for i, c in enumerate(centre)]
    return "(+ " + " ".join(f"(* {p} {p})" for p in parts) + ")"


def expanded(centre: Sequence[Fraction]) -> str:
    parts = [
        f"(* X[{i}] X[{i}]) (- (* {decimal(2 * c)} X[{i}])) {decimal(c * c)}"
        for i, c in enumerate(centre)
    ]
    return "(+ " + " ".join(parts) + ")"


def ball_formula(centre: Sequence[Fraction], squared_radius: Fraction, form: str) -> str:
    """Write the same ball in one of several arrangements."""
    r = decimal(squared_radius)
    if form == "squares":
        return f"(<= {squares(centre)} {r})"
    if form == "expanded":
        return f"(>= {r} {expanded(centre)})"
    if form == "strict":
        return f"(< {squares(centre)} {r})"
    if form == "scaled":
        return f"(<= (* 2.5 {expanded(centre)}) (* {r} 2.5))"
    # Negated, all on one side, with a product that cancels.
    return f"(>= (- {r} {squares(centre)} (* X[0] X[1])) (* -1.0 X[1] X[0]))"


FORMS = ("squares", "expanded", "strict", "scaled", "one-sided")


def box_formulas(lo: Sequence[Fraction], hi: Sequence[Fraction]) -> list[str]:
    return [
        f"(and (>= X[{i}] {decimal(a)}) (<= X[{i}] {decimal(b)}))"
        for i, (a, b) in enumerate(zip(lo, hi, strict=True))
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_arrangement_is_the_same_ball(form: str) -> None:
    centre, squared = fractions("0.1", "-0.7"), Fraction("0.3")
    (only,) = query(ball_formula(centre, squared, form)).disjuncts
    assert only.ball is not None
    assert (only.ball.centre, only.ball.squared_radius) == (centre, squared)
    # Bounds come from the ball: below c - r, above c + r, and not by much.
    for low, c, high in zip(only.lower, centre, only.upper, strict=True):
        assert (c - low) ** 2 >= squared <= (high - c) ** 2
        assert (c - low - Fraction(1, 10**15)) ** 2 < squared


def test_products_are_checked_exactly() -> None:
    # 0.3^2 + 0.4^2 = 0.5^2, which floats miss.
    point, zero = fractions("0.3", "0.4"), fractions(0, 0)
    centre = fractions(0, 0)
    assert query(ball_formula(centre, Fraction("0.25"), "squares")).holds(point, zero)
    assert query(ball_formula(centre, Fraction("0.25"), "one-sided")).holds(point, zero)
    assert not query(ball_formula(centre, Fraction("0.25"), "strict")).holds(point, zero)
    less = Fraction("0.2499999999999999999999999")
    assert not query(ball_formula(centre, less, "squares")).holds(point, zero)


def test_balls_that_are_empty_or_everything() -> None:
    centre = fractions(1, 2)
    box = box_formulas(fractions(0, 0), fractions(3, 3))
    assert query(*box, ball_formula(centre, Fraction("-0.1"), "squares")).disjuncts == ()
    assert query(*box, ball_formula(centre, Fraction(0), "strict")).disjuncts == ()
    (point,) = query(*box, ball_formula(centre, Fraction(0), "squares")).disjuncts
    assert point.ball is not None and point.ball.squared_radius == 0
    # Outside a ball of negative squared radius, or of radius 0 not strictly, is everywhere.
    (everywhere,) = query(*box, f"(>= {squares(centre)} -0.1)").disjuncts
    assert everywhere.ball is None and everywhere.upper == fractions(3, 3)
    # Equality with zero is the centre alone.
    (single,) = query(f"(== {squares(centre)} 0.0)").disjuncts
    assert single.lower == single.upper == centre


def test_ball_and_box_that_only_touch() -> None:
    box = box_formulas(fractions(1, 1), fractions(3, 3))
    centre = fractions(0, 1)
    assert len(query(*box, ball_formula(centre, Fraction(1), "squares")).disjuncts) == 1
    assert query(*box, ball_formula(centre, Fraction(1), "strict")).disjuncts == ()
    assert query(*box, ball_formula(centre, Fraction("0.99"), "squares")).disjuncts == ()
    # The bound that is missing would come from a ball that lies below the other bound.
    below = ball_formula(centre, Fraction(1), "squares")
    assert query("(>= X[0] 1.5)", below).disjuncts == ()


def test_fixed_inputs_may_be_missing_from_the_ball() -> None:
    spec = query("(== X[1] 0.1)", "(<= (* X[0] X[0]) 2.0)")
    (only,) = spec.disjuncts
    assert only.ball is not None and only.ball.centre == fractions(0, "0.1")
    region = from_vnnlib(small_network(), spec)[0].region
    for k in range(-14, 15):
        assert region.contains([Fraction(k, 10), Fraction("0.1")])


def small_network() -> bnncert.Network:
    weights = (np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.0], [-1.0, 1.0]]))
    return TinyNetwork(weights, (np.zeros(2), np.zeros(2)), "plus").build()


def unit_vector(s: Fraction) -> tuple[Fraction, Fraction]:
    """Rational points of the circle, by stereographic projection."""
    return (1 - s * s) / (1 + s * s), 2 * s / (1 + s * s)


def root_below(value: Fraction) -> Fraction:
    """Return a rational just below the square root (the root itself of many squares)."""
    return Fraction(math.isqrt(value.numerator * 10**80 // value.denominator), 10**40)


hundredths = st.integers(-150, 150).map(lambda k: Fraction(k, 100))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_point_of_the_formula_is_outside_the_region(data: st.DataObject) -> None:
    centre = [data.draw(hundredths), data.draw(hundredths)]
    squared = Fraction(data.draw(st.integers(0, 30000)), 10000)
    lo = [data.draw(hundredths), data.draw(hundredths)]
    hi = [a + Fraction(data.draw(st.integers(0, 200)), 100) for a in lo]
    boxed = data.draw(st.booleans())
    form = data.draw(st.sampled_from(["squares", "expanded", "scaled", "one-sided"]))
    box = box_formulas(lo, hi) if boxed else []
    spec = query(*box, ball_formula(centre, squared, form))
    problems = from_vnnlib(small_network(), spec)
    radius = root_below(squared)
    for s, reach in product(
        [Fraction(-7, 2), Fraction(0), Fraction(1, 3), Fraction(1), Fraction(9, 4)],
        [Fraction(1), 1 - Fraction(1, 10**18), Fraction(1, 2)],
    ):
        way = unit_vector(s)
        point = [c + radius * reach * u for c, u in zip(centre, way, strict=True)]
        inside = [min(max(v, a), b) for v, a, b in zip(point, lo, hi, strict=True)]
        for x in (point, inside):
            # All of the query is about inputs: any output will do.
            if spec.holds(x, fractions(0, 0)):
                assert any(p.region.contains(x) for p in problems)
    if not boxed:
        assert spec.holds(point, fractions(0, 0))
        (problem,) = problems
        region = problem.region
        assert isinstance(region, bnncert.Ball) and region.norm == "l2"
        # ... and the region is no larger than rounding makes it.
        assert Fraction(region.radius) <= radius * (1 + Fraction(1, 10**14)) + Fraction(1, 10**14)


def violation(label: int, classes: int) -> str:
    parts = [f"(>= Y[{k}] Y[{label}])" for k in range(classes) if k != label]
    return f"(or {' '.join(parts)})" if len(parts) > 1 else parts[0]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_balls_agree_with_regions_and_brute_force(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(exact_ties=False))
    ball = data.draw(regions("l2"))
    assert isinstance(ball, bnncert.Ball)
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    form = data.draw(st.sampled_from(["squares", "expanded", "scaled", "one-sided"]))
    centre = [Fraction(v) for v in ball.middle.tolist()]
    box = [] if ball.clip_lo is None else box_formulas(*([Fraction(s, 2)] * 2 for s in (-3, 3)))
    spec = query(
        *box,
        ball_formula(centre, Fraction(ball.radius) ** 2, form),
        violation(label, built.classes),
        outputs=f"Y Real [{built.classes}]",
    )
    (problem,) = from_vnnlib(built, spec)
    assert isinstance(problem.region, bnncert.Ball)
    # Quarters are floats and so are their roots: nothing has to be rounded.
    assert problem.region.middle.tolist() == ball.middle.tolist()
    assert problem.region.radius == ball.radius
    result = bnncert.verify(built, spec)
    assert result.status == bnncert.verify(built, ball, label).status
    truth = min(true_margins(net, ball, label).values())
    assert result.status == ("robust" if truth > 0 else "not_robust")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_rounded_balls_against_brute_force(data: st.DataObject) -> None:
    """Centres that are no floats and radii that are irrational, between two balls of floats."""
    net = data.draw(tiny_networks(exact_ties=False))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    centre = [data.draw(hundredths), data.draw(hundredths)]
    squared = Fraction(data.draw(st.integers(1, 300)), 100)
    spec = query(
        ball_formula(centre, squared, data.draw(st.sampled_from(FORMS))),
        violation(label, built.classes),
        outputs=f"Y Real [{built.classes}]",
    )
    status = bnncert.verify(built, spec).status
    middle, radius = [float(c) for c in centre], math.sqrt(squared)
    smaller = bnncert.Ball("l2", middle, radius * (1 - 1e-9))
    larger = bnncert.Ball("l2", middle, radius * (1 + 1e-9))
    lowest = [min(true_margins(net, b, label).values()) for b in (smaller, larger)]
    if lowest[0] <= 0:
        assert status == "not_robust"
    if lowest[1] > 0:
        assert status == "robust"


DIAMOND = TinyNetwork(
    (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]])),
    (np.zeros(2), np.array([1.0, 0.0, 0.5])),
    "plus",
)


@pytest.mark.parametrize(
    ("squared", "allowed"),
    [("0.49", {"robust"}), ("0.51", {"not_robust"}), ("0.5", {"robust", "unknown"})],
)
def test_distance_to_the_border(squared: str, allowed: set[str]) -> None:
    # Class 0 wins where x0 >= |x1|, at distance 1/sqrt(2) from (1, 0): with 0.5 the ball touches
    # the border, where class 0 still wins, and the region of floats reaches beyond it.
    spec = query(
        ball_formula(fractions(1, 0), Fraction(squared), "squares"),
        violation(0, 3),
        outputs="Y Real [3]",
    )
    assert bnncert.verify(DIAMOND.build(), spec, timeout=100).status in allowed


@pytest.mark.parametrize(
    ("squared", "allowed"),
    [
        ("1.2", {"robust"}),
        ("1.9", {"robust", "unknown"}),
        ("2.1", {"not_robust", "unknown"}),
        ("3.5", {"not_robust"}),
    ],
)
def test_centre_outside_the_box(squared: str, allowed: set[str]) -> None:
    # In this box the border x1 = -x0 is nearest to (2, 0) at (1, -1), at squared distance 2; the
    # region may reach further than the query, but nothing wrong may come of it.
    spec = query(
        *box_formulas(fractions("0.5", -1), fractions(1, "0.9")),
        ball_formula(fractions(2, 0), Fraction(squared), "squares"),
        violation(0, 3),
        outputs="Y Real [3]",
    )
    assert bnncert.verify(DIAMOND.build(), spec, timeout=100).status in allowed


def test_disjuncts_share_a_region() -> None:
    spec = query(
        ball_formula(fractions(1, 0), Fraction("0.3"), "squares"),
        violation(0, 3),
        outputs="Y Real [3]",
    )
    (problem,) = from_vnnlib(DIAMOND.build(), spec)
    assert len(spec.disjuncts) == len(problem.targets) == 2
    two = query(
        f"(or {ball_formula(fractions(1, 0), Fraction('0.3'), 'squares')} "
        f"{ball_formula(fractions(5, 0), Fraction('0.4'), 'squares')})",
        violation(0, 3),
        outputs="Y Real [3]",
    )
    problems = from_vnnlib(DIAMOND.build(), two)
    assert [len(p.targets) for p in problems] == [2, 2]
    assert [p.region.center.tolist() for p in problems] == [[1, 0], [5, 0]]


def test_values_beyond_every_region() -> None:
    spec = query(ball_formula(fractions(10**200, 0), Fraction(1), "squares"))
    with pytest.raises(InputError, match=r"\A<string>: [^\n]*at most 1e\+100"):
        from_vnnlib(small_network(), spec)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    (w0, w1), (b0, b1) = DIAMOND.weights, DIAMOND.biases
    np.savez(tmp_path / "net.npz", W0=w0, b0=b0, W1=w1, b1=b1)
    text = VERSION + network("X float32 [1,2]", "Y float32 [3]")
    terms = "(* (- X[0,0] 1.0) (- X[0,0] 1.0)) (* X[0,1] X[0,1])"
    for name, squared in (("near", "0.49"), ("far", "0.51")):
        asserts = f"(assert (<= (+ {terms}) {squared}))\n(assert {violation(0, 3)})\n"
        (tmp_path / f"{name}.vnnlib").write_text(text + asserts)
    (tmp_path / "bad.vnnlib").write_text(text + "(assert (<= (* Y[0] Y[0]) 1.0))\n")
    run = command_line(monkeypatch, capsys, "verify", "net.npz")
    near, far, bad = (run(f"{name}.vnnlib") for name in ("near", "far", "bad"))
    assert (near.code, far.code, bad.code) == (0, 1, 2), near.err + far.err
    assert re.search(r"^unsat\b", near.out, re.MULTILINE)
    assert re.search(r"^sat\b", far.out, re.MULTILINE)
    assert "bad.vnnlib:5: found a product with output Y[0]" in bad.err.replace("\n", " ")


# --- integer inputs -------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_integer_inputs_against_all_integers(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(exact_ties=False))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    name = data.draw(st.sampled_from(["int8", "int64", "uint8"]))
    low = [data.draw(st.integers(0 if name == "uint8" else -4, 2)) for _ in range(2)]
    high = [a + data.draw(st.integers(0, 4)) for a in low]
    sides = [f"(>= X[{i}] {a})" for i, a in enumerate(low)]
    sides += [f"(<= X[{i}] {b})" for i, b in enumerate(high)]
    is_ordered = data.draw(st.booleans())
    if is_ordered:
        sides.append("(<= X[0] X[1])")
    spec = query(
        *sides,
        violation(label, built.classes),
        inputs=f"X {name} [2]",
        outputs=f"Y Real [{built.classes}]",
    )
    result = bnncert.verify(built, spec, timeout=30)
    points = [
        [Fraction(v) for v in p]
        for p in product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
        if p[0] <= p[1] or not is_ordered
    ]
    is_violated = any(
        spec.holds(point, built.output.exactly(pattern[-1]))
        for point in points
        for pattern in built.exact_patterns(tuple(point))
    )
    assert result.status == ("not_robust" if is_violated else "robust")
    if result.counterexample is not None:
        assert result.counterexample.point.tolist() in points


def test_integers_and_reals_may_differ() -> None:
    # Class 1 wins for x between 0.25 and 0.75.
    net = bnncert.Network.from_arrays(
        [[[1], [-1]], [[0, 0], [1, 1]]], [[-0.25, 0.75], [0.0, -1.0]], input_shape=(1,)
    )
    for name, sides, status in (
        ("Real", ("(>= X[0] 0.0)", "(<= X[0] 1.0)"), "not_robust"),
        ("int32", ("(>= X[0] 0)", "(<= X[0] 1)"), "robust"),
    ):
        spec = query(*sides, "(>= Y[1] Y[0])", inputs=f"X {name} [1]")
        assert bnncert.verify(net, spec).status == status


def test_an_onnx_model_of_floats_does_not_take_integers(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    network = bnncert.load(Path(__file__).parents[3] / "docs" / "examples" / "wedge.json")
    network.save(tmp_path / "wedge.onnx")
    asked = ("(>= X[0] 1)", "(<= X[0] 2)", "(>= X[1] 0)", "(<= X[1] 1)", "(<= Y[0] Y[1])")
    spec = query(*asked, inputs="X uint8 [2]", outputs="Y Real [3]")
    with pytest.raises(InputError, match="inputs of type uint8, but those of the ONNX model are"):
        bnncert.verify(bnncert.load(tmp_path / "wedge.onnx"), spec)


# --- element types --------------------------------------------------------------------------


def _small_floats(exponent_bits: int, fraction_bits: int, bias: int) -> list[Fraction]:
    """List what every bit pattern stands for, by the usual reading of exponent and fraction."""
    found = []
    for e in range(2**exponent_bits):
        for m in range(2**fraction_bits):
            part = Fraction(m, 2**fraction_bits)
            size = (1 + part) * Fraction(2) ** (e - bias) if e else part * Fraction(2) ** (1 - bias)
            found += [size, -size]
    return found


def _members(name: str) -> list[Fraction]:
    if name == "float16":
        values = np.arange(2**16, dtype=np.uint16).view(np.float16)
        return [Fraction(v) for v in values[np.isfinite(values)].tolist()]
    if name == "bfloat16":
        upper_half = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
        single = upper_half.view(np.float32)
        return [Fraction(v) for v in single[np.isfinite(single)].tolist()]
    # Where a type has no infinity, its largest exponent is an ordinary one but for the NaN.
    kinds = {
        "float8e4m3fn": (4, 3, 7, 448),
        "float8e4m3fnuz": (4, 3, 8, 240),
        "float8e5m2": (5, 2, 15, 57344),
        "float8e5m2fnuz": (5, 2, 16, 57344),
        "float4e2m1": (2, 1, 1, 6),
    }
    *bits, largest = kinds[name]
    return [v for v in _small_floats(*bits) if abs(v) <= largest]


@pytest.mark.parametrize(
    "name",
    [
        "float16",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "float4e2m1",
    ],
)
def test_narrow_types_accept_only_their_own_numbers(name: str) -> None:
    spec = query("(<= X 1.0)", "(>= X -1.0)", inputs=f"X {name} []")
    assert spec.number_format is not None
    members = sorted(set(_members(name)))
    between = [(a + b) / 2 for a, b in pairwise(members)]
    # All of the small types, every seventh number of the large ones, and the ends of each.
    some = slice(None, None, 7 if len(members) > 1000 else 1)
    assert all(map(spec.number_format.contains, [*members[some], members[0], members[-1]]))
    between = between[some]
    assert not any(map(spec.number_format.contains, between))
    assert not spec.number_format.contains(2 * members[-1])
    assert not spec.number_format.contains(members[0] * 2)
    assert spec.holds(fractions("0.5"), fractions(0, 0))
    assert not spec.holds(fractions("1/3"), fractions(0, 0))


@pytest.mark.parametrize("name", ["Real", "real", "float32", "float64"])
def test_wide_types_take_any_number(name: str) -> None:
    spec = query("(<= X 1.0)", "(>= X -1.0)", inputs=f"X {name} []")
    assert spec.holds(fractions("1/3"), fractions(0, 0))


# --- several networks -----------------------------------------------------------------------


def test_elements_of_a_second_network_come_after_those_of_the_first() -> None:
    text = VERSION + network("X real [1,2]", "Y real [2]")
    text += network("Z real [1,2]", "W real [2]", before="(isomorphic-to f)").replace(
        " f (", " g ("
    )
    spec = parse_vnnlib(
        text + "(assert (>= X[0,0] 0.0)) (assert (<= X[0,0] 1.0)) (assert (== X[0,1] 2.0))"
        "(assert (== Z[0,0] X[0,0])) (assert (== (+ Z[0,1] X[0,1] Z[0,0]) 3.0))"
        "(assert (> Y[1] W[0]))"
    )
    assert (spec.input_count, spec.output_count) == (4, 4)
    assert [(n.name, n.equal_to, n.isomorphic_to) for n in spec.networks] == [
        ("f", None, None),
        ("g", None, "f"),
    ]
    assert (spec.networks[1].input.name, spec.networks[1].input.shape) == ("Z", (1, 2))
    (disjunct,) = spec.disjuncts
    # The bounds of Z follow from the equations.
    assert disjunct.lower == fractions(0, 2, 0, 0)
    assert disjunct.upper == fractions(1, 2, 1, 1)
    (output,) = disjunct.output_constraints
    assert output.outputs == ((1, Fraction(-1)), (2, Fraction(1)))
    assert spec.holds(fractions("0.5", 2, "0.5", "0.5"), fractions(0, 2, 1, 0))
    assert not spec.holds(fractions("0.5", 2, "0.25", "0.75"), fractions(0, 2, 1, 0))


def test_bounds_that_exclude_each_other_through_an_equation() -> None:
    spec = query("(>= X[0] 2.0)", "(<= X[0] 3.0)", "(== X[1] (* 2.0 X[0]))", "(<= X[1] 1.0)")
    assert spec.disjuncts == ()


def test_one_network_is_not_enough_for_a_query_about_two() -> None:
    text = (
        VERSION + network() + network("Z Real [2]", "W Real [2]").replace("network f", "network g")
    )
    spec = parse_vnnlib(text + "(assert (<= 2.0 1.0))", "q.vnnlib")
    words = "verify q.vnnlib --network f=FILE --network g=FILE"
    with pytest.raises(InputError, match=re.escape(words)):
        from_vnnlib(DIAMOND.build(), spec)


# --- errors ---------------------------------------------------------------------------------

HEAD = VERSION + network("X float32 [2,2]", "Y float32 [2]")  # lines 1 to 4
BOX = " ".join(
    f"(assert (<= X[{i},{j}] 1.0)) (assert (>= X[{i},{j}] 0.0))"
    for i, j in product(range(2), repeat=2)
)
GOOD = HEAD + BOX + "\n"  # lines 1 to 5
OTHER = network("A float32 [1]", "B float32 [1]").replace("network f", "network g")
X00 = "(* X[0,0] X[0,0])"
ALL = "(* X[0,0] X[0,0]) (* X[0,1] X[0,1]) (* X[1,0] X[1,0]) (* X[1,1] X[1,1])"

REFUSED = {
    "nothing but the version": (VERSION, 1, "the end of the file"),
    "no assertion": (HEAD, 4, "the end of the file"),
    "no network": (VERSION + "(assert (<= 1.0 2.0))", 2, "'(assert'"),
    "a later version": ("\n" + VERSION.replace("2.0", "2.1"), 2, "version <2.1>, expected <2.0>"),
    "version 3": (VERSION.replace("2.0", "3.0"), 1, "version <3.0>"),
    "no number as version": ("(vnnlib-version two)", 1, "'two'"),
    "no bounds of a second network": (HEAD + OTHER + BOX, 6, "A[0] without lower bound"),
    "types of two networks": (
        HEAD + OTHER.replace("A float32", "A float16") + BOX,
        6,
        "inputs of types float32 and float16",
    ),
    "two inputs of a second network": (
        HEAD
        + OTHER.replace("A float32 [1])", "A float32 [1])\n(declare-input C float32 [1])")
        + BOX,
        7,
        "a second declare-input",
    ),
    "an equal network": (HEAD + OTHER.replace("network g", "network g (equal-to f)") + BOX, 5, ""),
    "an isomorphic network": (
        HEAD + OTHER.replace("network g", "network g (isomorphic-to f)") + BOX,
        5,
        "",
    ),
    "equal to itself": (
        VERSION + network(before="(equal-to f)") + "(assert (<= 1 2))",
        2,
        "quival",
    ),
    "a hidden tensor": (
        VERSION + network(hidden='(declare-hidden Z Real [3] "z")\n') + "(assert (<= X[0] 1.0))",
        4,
        "declare-hidden, expected networks with one input and one output",
    ),
    "two inputs": (
        VERSION + network("X Real [2])\n(declare-input W Real [2]") + "(assert (<= X[0] 1.0))",
        4,
        "a second declare-input",
    ),
    "two outputs": (
        VERSION + network(outputs="Y Real [2])\n(declare-output W Real []") + "(assert (<= W 1.0))",
        5,
        "a second declare-output",
    ),
    "a name twice": (VERSION + network("Y Real [2]") + "(assert (<= Y[0] 1.0))", 4, "Duplicate"),
    "integer outputs": (
        VERSION + network("X int8 [2]", "Y int8 [2]") + "(assert (<= X[0] 1))",
        4,
        "element type 'int8', expected one of Real, float32",
    ),
    "a sum of integers": (
        VERSION + network("X uint8 [2]") + "(assert (<= (+ X[0] X[1]) 300))",
        5,
        "arithmetic with inputs of type uint8, expected comparisons of single inputs",
    ),
    "an unknown type": (
        VERSION + network("X float99 [2]") + "(assert (<= X[0] 1.0))",
        3,
        "element type 'float99'",
    ),
    "an empty shape": (VERSION + network("X Real [0]") + "(assert (<= Y[0] 1.0))", 3, "dimension"),
    "a negative shape": (VERSION + network("X Real [-3]"), 3, "'[-3]', expected whole numbers"),
    "a broken shape": (VERSION + network("X Real [2.5]"), 3, "'[2.5]', expected whole numbers"),
    "a huge shape": (VERSION + network("X Real [1000000000000]"), 3, "'[1000000000000]'"),
    "a huge product": (
        VERSION + network("X Real [90000,90000,90000]") + "(assert (<= Y[0] 1.0))",
        3,
        "X with 729000000000000 elements",
    ),
    "a huge output": (
        VERSION + network(outputs="Y Real [90000,90000]") + "(assert (<= Y[0,0] 1.0))",
        4,
        "Y with 8100000000 elements",
    ),
    "an index too large": (GOOD + "(assert (<= X[0,2] 1.0))", 6, "out of bounds"),
    "an index too few": (GOOD + "(assert (<= X[0] 1.0))", 6, "indices"),
    "a negative index": (GOOD + "(assert (<= X[-1,0] 1.0))", 6, "'[-1,0]', expected whole"),
    "a broken index": (GOOD + "(assert (<= X[0,0.5] 1.0))", 6, "'[0,0.5]', expected whole"),
    "an undeclared name": (GOOD + "\n(assert (<= Z[0] 1.0))", 7, "Undeclared variable 'Z'"),
    "a name of version 1": (GOOD + "(assert (<= X_0 1.0))", 6, "Undeclared variable 'X_0'"),
    "not": (GOOD + "(assert (not (<= X[0,0] 1.0)))", 6, "'not'"),
    "one equals sign": (GOOD + "(assert (= X[0,0] 1.0))", 6, "'='"),
    "a division": (GOOD + "(assert (<= (/ X[0,0] 2.0) 1.0))", 6, "'/'"),
    "an exponent": (GOOD + "(assert (<= X[0,0] 1.0e5))", 6, "'e5'"),
    "an integer for a float": (GOOD + "(assert (<= X[0,0] 1))", 6, "Type mismatch"),
    "a large integer": (GOOD + f"(assert (<= X[0,0] {'9' * 30}))", 6, "number '999"),
    "a large number": (GOOD + f"(assert (<= X[0,0] {'9' * 400}.0))", 6, "number '999"),
    "a small number": (GOOD + f"(assert (<= X[0,0] 0.{'0' * 400}1))", 6, "number '0.000"),
    "a long number": (GOOD + f"(assert (<= X[0,0] 0.{'1' * 3000}))", 6, "number '0.111"),
    "a truncated file": (GOOD[:-3], 5, "the end of the file"),
    "a file cut in an index": (GOOD[: GOOD.rindex(",") + 1], 5, "'[1,'"),
    "a parenthesis too many": (GOOD + ")", 6, "')'"),
    "an open string": (GOOD + '"abc', 6, 'an opening " without its end'),
    "a NUL byte": (GOOD + "\0(assert (<= X[0,0] 0.5))", 6, "a NUL byte"),
    "a NUL byte in a comment": (GOOD + "; \0\n(assert (<= X[0,0] 0.5))", 6, "a NUL byte"),
    "a control character": (GOOD + "\x01", 6, "'\\x01'"),
    "a letter beyond ASCII": (GOOD + "\n é", 7, "character 'é'"),
    "nested sums": (GOOD + f"(assert (<= {'(+ ' * 10**5}", 6, "more than 1000 nested"),
    "nested formulas": (GOOD + f"(assert {'(and ' * 10**6}", 6, "more than 1000 nested"),
    "a mixture": (GOOD + "(assert (<= X[0,0] Y[0]))", 6, "input X[0,0] with output Y[0]"),
    "no lower bound": (HEAD + "(assert (<= X[0,0] 1.0))", 3, "X[0,0] without lower bound"),
    "a product of inputs": (GOOD + "(assert (<= (* X[0,0] X[0,1]) 1.0))", 6, "X[0,0] and X[0,1]"),
    "a squared output": (GOOD + "(assert (<= (* Y[1] Y[1]) 1.0))", 6, "product with output Y[1]"),
    "a mixed product": (GOOD + "(assert (<= (* X[0,0] Y[1]) 1.0))", 6, "product with output Y[1]"),
    "a cube": (GOOD + "(assert (<= (* X[0,0] X[0,0] X[0,0]) 1.0))", 6, "product of three"),
    "an ellipsoid": (GOOD + f"(assert (<= (+ {X00} {ALL}) 1.0))", 6, "different factors"),
    "a hyperboloid": (GOOD + f"(assert (<= (- (+ {ALL}) (* 2.0 {X00})) 1.0))", 6, "different"),
    "a paraboloid": (GOOD + f"(assert (<= (+ {X00} X[0,1]) 1.0))", 6, "X[0,1] without its square"),
    "squares and an output": (GOOD + f"(assert (<= (+ {X00} Y[0]) 1.0))", 6, "Y[0] without"),
    "outside a ball": (GOOD + f"(assert (> (+ {ALL}) 1.0))", 6, "the outside of a Euclidean ball"),
    "a sphere": (GOOD + f"(assert (== (+ {ALL}) 1.0))", 6, "the outside of a Euclidean ball"),
    "a cylinder": (GOOD + f"(assert (<= {X00} 1.0))", 6, "over some inputs, but not X[0,1]"),
    "two balls": (
        GOOD + f"(assert (<= (+ {ALL}) 1.0))\n(assert (<= (+ {ALL}) 2.0))",
        7,
        "a second Euclidean ball next to that of line 6",
    ),
    "a ball and a polytope": (
        GOOD + f"(assert (<= (+ {ALL}) 1.0))\n(assert (<= (+ X[0,0] X[0,1]) 0.5))",
        7,
        "a linear constraint over several inputs next to a Euclidean ball",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_line(what: str, tmp_path: Path) -> None:
    text, line, message = REFUSED[what]
    path = tmp_path / "q.vnnlib"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_vnnlib(path)
    shown = str(caught.value)
    assert shown.startswith(f"{path}:{line}: ")
    assert message in shown
    assert "\n" not in shown and len(shown) < len(str(path)) + 300


def test_good_is_good() -> None:
    # What the refusals above start from.
    assert len(parse_vnnlib(GOOD).disjuncts) == 1


def test_nesting_within_the_limit() -> None:
    deep = f"(<= {'(+ ' * 900}X[0]{')' * 900} 1.0)"
    wide = f"{'(or ' * 900}(>= Y[0] 0.0){')' * 900}"
    spec = query(deep, wide, "(>= X[0] 0.0)", inputs="X Real [1]")
    assert spec.disjuncts[0].upper == fractions(1)
    assert spec.holds(fractions(1), fractions(0, 0))
    assert not spec.holds(fractions("1.01"), fractions(0, 0))


@settings(max_examples=35, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_binary_garbage(data: bytes, inside: bool) -> None:
    text = data.decode("latin-1")
    with pytest.raises(FormatError, match=r"\A<string>:\d+: [^\n]+\Z"):
        parse_vnnlib(GOOD + "(assert (" + text if inside else VERSION + text)


@settings(max_examples=35, deadline=None)
@given(st.integers(0, len(GOOD) - 3))
def test_truncation_anywhere(length: int) -> None:
    # A cut between two assertions leaves a whole query, whose box is no longer complete.
    with pytest.raises(FormatError, match=r"\A<string>:\d+: [^\n]+\Z"):
        parse_vnnlib(GOOD[:length])


def test_garbage_and_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "q.vnnlib.gz"
    path.write_bytes(gzip.compress(GOOD.encode())[:-9])
    with pytest.raises(FormatError, match="truncated or broken gzip"):
        read_vnnlib(path)
    path.write_bytes(GOOD.encode() + b"\xff\xfe")
    with pytest.raises(FormatError, match=r"q\.vnnlib\.gz:6: found byte 0xff"):
        read_vnnlib(path)


def test_sums_whose_product_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version2, "MAX_PRODUCT_SIZE", 3)
    with pytest.raises(FormatError, match="products of sums that are too large"):
        parse_vnnlib(GOOD + "(assert (<= (* (+ X[0,0] X[0,1]) (+ X[0,0] X[0,1])) 1.0))")


def test_missing_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "q.vnnlib"
    path.write_text(GOOD)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(MissingExtraError, match=r"q\.vnnlib: .*pip install 'bnncert\[vnnlib\]'"):
        read_vnnlib(path)
    # Version 1.0 does without it.
    old = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= 0 X_0 1))"
    assert parse_vnnlib(old).disjuncts[0].upper == fractions(1)


def test_package_of_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vnnlib", SimpleNamespace(__spec__=object()))
    with pytest.raises(MissingExtraError, match=r"vnnlib 1\.0 or later"):
        parse_vnnlib(GOOD)
