"""Objectives against enumeration of all sign vectors, and queries against what their text says."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.errors import InputError
from bnncert.model.description import ModelDescription, Normalise, Shift, Stage
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Objective, Problem, Target, from_vnnlib, robustness, score_objective
from bnncert.problem.vnnlib import parse_vnnlib
from bnncert.problem.vnnlib.query import Specification
from bnncert.regions import Ball, Box, Polytope
from tests.strategies import few

CASES = few(25)

Array = npt.NDArray[Any]


def sign_vectors(count: int) -> list[Array]:
    return [np.array(signs, dtype=np.int8) for signs in product((1, -1), repeat=count)]


def values_of(objective: Objective) -> list[Fraction]:
    """Return f at every sign vector, in rationals."""
    c = [Fraction(v) for v in objective.coefficients.tolist()]
    return [
        sum((p * int(s) for p, s in zip(c, signs, strict=True)), Fraction(objective.constant))
        for signs in sign_vectors(len(c))
    ]


# --- objectives ------------------------------------------------------------------------------

coefficients = st.one_of(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=6),
    st.lists(st.sampled_from([0.0, 0.75, -1.5, 2.25]), min_size=1, max_size=6),
    st.lists(st.sampled_from([0.0, 0.1, -0.3, 1 / 3]), min_size=1, max_size=5),
    st.lists(st.sampled_from([2.0**30, -(2.0**29), 0.0]), min_size=1, max_size=4),
)
constants = st.sampled_from([0.0, 1.0, -2.0, 0.5, 0.1, -1 / 3, 2.0**31 + 1])
errors = st.sampled_from([0.0, 0.0, 1e-3, 0.3])


@st.composite
def objectives(draw: st.DrawFn) -> Objective:
    return Objective(
        np.array(draw(coefficients)), draw(constants), draw(errors), draw(st.booleans())
    )


@few(50)
@given(objective=objectives())
def test_values_violations_and_their_limits_are_those_of_rationals(objective: Objective) -> None:
    error, least = Fraction(objective.error), objective.least_good_value
    largest = Fraction(objective.largest_violation())
    assert least >= 0
    for signs, value in zip(
        sign_vectors(objective.coefficients.size), values_of(objective), strict=True
    ):
        assert objective.exactly(signs) == value
        # A violation is decided exactly or not at all.
        if objective.tie_is_fine:
            possible = {value - error < 0, value + error < 0}
        else:
            possible = {value - error <= 0, value + error <= 0}
        violated, met = objective.is_violated(signs), objective.is_clearly_met(signs)
        assert violated is (possible.pop() if len(possible) == 1 else None)
        if met:
            assert value > error and violated is False
        # Only rounding errors lie between both.
        assert met == (value > error + 10**-9) or abs(value - error) < 10**-9
        assert violated is False or value <= largest
        if objective.lattice is not None and not error:
            assert violated is (value <= largest)
        # f lies within the error of the value, and is fine where it is not violated.
        if value + error > 0:
            assert max(Fraction(0), value - error) >= Fraction(least)
        if objective.tie_is_fine and value == 0:
            assert least == 0


@CASES
@given(objective=objectives())
def test_values_lie_on_the_lattice_and_no_coarser_one(objective: Objective) -> None:
    found = objective.lattice
    values = sorted(set(values_of(objective)))
    if found is None:
        # Only numbers such as 0.1, whose common unit is tiny, have no useful lattice.
        assert any(Fraction(v).denominator > 2**20 for v in objective.coefficients.tolist())
        return
    offset, step = found
    if step == 0:
        assert values == [offset]
        return
    assert all((v - offset) % step == 0 for v in values)
    gaps = [b - a for a, b in pairwise(values)]

    def common(a: Fraction, b: Fraction) -> Fraction:
        while b:
            a, b = b, a % b
        return a

    assert reduce(common, gaps) == step


@CASES
@given(objective=objectives(), lower=st.one_of(st.floats(-20, 20), st.integers(-9, 9).map(float)))
def test_rounding_up_skips_no_value(objective: Objective, lower: float) -> None:
    rounded = objective.round_up(lower)
    assert rounded >= lower
    error = Fraction(objective.error)
    for value in values_of(objective):
        # f is within error of the value; if it can be at least lower, it is at least rounded.
        if value + error >= Fraction(lower):
            assert max(Fraction(lower), value - error) >= Fraction(rounded)
    if objective.lattice is not None and not error:
        above = [v for v in values_of(objective) if v >= Fraction(lower)]
        offset, step = objective.lattice
        if above and step:
            # The next point of the lattice, and not one before it.
            assert Fraction(math.nextafter(rounded, math.inf)) > Fraction(lower)
            shifted = (Fraction(lower) - offset) / step
            assert float_below(offset + math.ceil(shifted) * step) <= rounded


def test_rounding_up_reaches_the_next_value() -> None:
    # 2 x + 2 y + 1 is -3, 1 or 5 (the lattice has step 4).
    objective = Objective(np.array([2.0, 2.0]), 1.0)
    assert [objective.round_up(v) for v in (-9.0, -3.0, -2.9, 0.0, 1.0, 1.1)] == [
        -7,
        -3,
        1,
        1,
        1,
        5,
    ]
    assert objective.round_up(-math.inf) == -math.inf
    assert not objective.is_proved_by(-2.9)
    assert objective.is_proved_by(objective.round_up(-2.9))


def test_rounding_up_a_constant_objective_is_its_value() -> None:
    objective = Objective(np.zeros(3), 0.5, error=0.125)
    assert objective.round_up(-100.0) == 0.375
    assert objective.round_up(0.4) == 0.4


@CASES
@given(objective=objectives())
def test_bounds_above_enough_prove_and_much_lower_ones_do_not(objective: Objective) -> None:
    enough = objective.enough
    assert enough <= 0
    for lower in (math.nextafter(enough, math.inf), enough + 0.01, enough + 3.0):
        assert objective.is_proved_by(objective.round_up(lower))
    if objective.lattice is not None and objective.lattice[1]:
        step = objective.lattice[1]
        lower = float_below(Fraction(enough) - step / 10 - 2 * Fraction(objective.error))
        assert not objective.is_proved_by(objective.round_up(lower))


def test_the_least_good_value_is_zero_only_where_a_tie_is_fine() -> None:
    # -4, 0 or 4.
    assert Objective(np.array([2.0, 2.0]), 0.0).least_good_value == 4.0
    assert Objective(np.array([2.0, 2.0]), 0.0, tie_is_fine=True).least_good_value == 0.0
    # -3, 1 or 5.
    assert Objective(np.array([2.0, 2.0]), 1.0, tie_is_fine=True).least_good_value == 1.0
    # No lattice: anything above 0.
    assert Objective(np.array([0.1, 1 / 3]), 0.0).least_good_value == 0.0


def test_enough_is_just_above_the_last_value_that_proves_nothing() -> None:
    # -3, 1 or 5.
    assert Objective(np.array([2.0, 2.0]), 1.0).enough == pytest.approx(-2.8)
    # -4, 0 or 4: a tie proves where ties are fine.
    assert Objective(np.array([2.0, 2.0]), 0.0).enough == 0.0
    assert Objective(np.array([2.0, 2.0]), 0.0, tie_is_fine=True).enough == pytest.approx(-3.8)
    # -3 or more, but only to within a large error.
    assert Objective(np.array([2.0, 2.0]), 1.0, error=1.5).enough == 0.0


@pytest.mark.parametrize(
    ("tie_is_fine", "expected"), [(False, [False, True]), (True, [True, True])]
)
def test_bound_proves_strictly_unless_ties_are_fine(
    tie_is_fine: bool, expected: list[bool]
) -> None:
    objective = Objective(np.ones(1), 0.0, tie_is_fine=tie_is_fine)
    assert [objective.is_proved_by(v) for v in (0.0, 5e-324)] == expected
    assert not objective.is_proved_by(-5e-324)


@pytest.mark.parametrize("tie_is_fine", [True, False])
@pytest.mark.parametrize("constant", [-1.0, 0.0, 1.0])
def test_a_constant_objective_is_a_violation_or_not(constant: float, tie_is_fine: bool) -> None:
    objective = Objective(np.zeros(2), constant, tie_is_fine=tie_is_fine)
    violated = constant < 0 or (constant == 0 and not tie_is_fine)
    assert objective.is_violated(np.ones(2)) is violated
    assert (constant <= objective.largest_violation()) is violated


# --- targets ---------------------------------------------------------------------------------


@CASES
@given(parts=st.lists(st.lists(st.integers(-2, 2), min_size=4, max_size=4), max_size=3))
def test_target_is_the_largest_of_its_objectives(parts: list[list[int]]) -> None:
    target = Target(
        "t", tuple(Objective(np.array(p[:3], dtype=np.float64), float(p[3])) for p in parts)
    )
    vectors = sign_vectors(3)
    floats = target.values(np.array(vectors, dtype=np.float64))
    for signs, value in zip(vectors, floats, strict=True):
        each = [sum(a * int(s) for a, s in zip(p, signs, strict=False)) + p[3] for p in parts]
        assert target.is_violated(signs) is all(v <= 0 for v in each)
        if each:
            assert value == max(each) == target.exactly(signs)
        else:
            assert value < 0
            assert target.exactly(signs) < 0


def test_an_undecided_objective_leaves_the_target_open_unless_another_holds() -> None:
    undecided = Objective(np.zeros(1), 0.0, error=1.0)
    held, violated = Objective(np.zeros(1), 1.0), Objective(np.zeros(1), -1.0)
    one = np.ones(1)
    assert Target("t", (undecided, violated)).is_violated(one) is None
    assert Target("t", (undecided, held)).is_violated(one) is False
    assert Target("t", (violated, violated)).is_violated(one) is True


# --- objectives over scores ------------------------------------------------------------------


def network(weights: Array, bias: Array) -> Network:
    """Return a network whose hidden layer is the sign of its inputs."""
    n = weights.shape[1]
    return Network.from_arrays([np.eye(n), weights], [np.zeros(n), bias])


non_dyadic = st.fractions(min_value=-3, max_value=3, max_denominator=9)


@CASES
@given(
    seed=st.integers(0, 10**6),
    factors=st.dictionaries(st.integers(0, 2), non_dyadic, min_size=1, max_size=3),
    constant=non_dyadic,
    whole=st.booleans(),
)
def test_score_objective_is_within_its_error_of_the_truth(
    seed: int, factors: dict[int, Fraction], constant: Fraction, whole: bool
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-3, 4, (3, 4)).astype(np.float64)
    bias = rng.integers(-3, 4, 3).astype(np.float64)
    if not whole:
        weights, bias = weights + rng.normal(size=(3, 4)), bias * 0.1
    objective = score_objective(network(weights, bias), factors, constant)
    assert objective.error <= 1e-13
    for signs in sign_vectors(4):
        truth = constant
        for j, c in factors.items():
            score = sum(
                Fraction(w) * int(s) for w, s in zip(weights[j].tolist(), signs, strict=True)
            )
            truth += c * (score + Fraction(float(bias[j])))
        assert abs(objective.exactly(signs) - truth) <= Fraction(objective.error)


def test_score_objective_of_integers_is_exact() -> None:
    net = network(np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([0.5, 0.25]))
    objective = score_objective(net, {0: Fraction(1), 1: Fraction(-1)}, tie_is_fine=True, name="m")
    assert objective.coefficients.tolist() == [-2.0, 3.0]
    assert (objective.constant, objective.error) == (0.25, 0.0)
    assert (objective.tie_is_fine, objective.name) == (True, "m")


@pytest.mark.parametrize("constant", [Fraction(1, 3), Fraction(1, 10**400), Fraction(-1, 10**400)])
def test_an_objective_without_scores_is_within_its_error_of_the_constant(
    constant: Fraction,
) -> None:
    net = network(np.array([[1.0, 2.0], [3.0, -1.0]]), np.zeros(2))
    objective = score_objective(net, {}, constant)
    assert abs(objective.exactly(np.ones(2)) - constant) <= Fraction(objective.error)
    assert objective.is_violated(np.ones(2)) in (None, constant <= 0)


def test_scores_that_do_not_exist_are_refused() -> None:
    net = network(np.eye(2), np.zeros(2))
    for j in (-1, 2):
        with pytest.raises(InputError, match=f"score {j} does not exist; the network has 2"):
            score_objective(net, {j: Fraction(1)})


def normalised_scores(gamma: Sequence[float], variance: Sequence[float]) -> Network:
    """Return gamma_j (w_j x) / sqrt(variance_j) over x in {-1, 1}^2, w = (1, 1), (1, -1), .."""
    count = len(gamma)
    weights = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[:count]
    norm = Normalise(
        np.array(gamma), np.zeros(count), np.zeros(count), np.array(variance), np.zeros(count)
    )
    hidden = Stage(as_sparse(np.eye(2)), (Shift(np.zeros(2)),), "hidden")
    output = Stage(as_sparse(weights), (norm,), "output")
    return Network.from_description(ModelDescription((hidden, output), (2,)))


def test_scores_with_an_irrational_scale_are_only_compared_with_each_other() -> None:
    net = normalised_scores([1.0, 1.0], [2.0, 2.0])
    objective = score_objective(net, {0: Fraction(1), 1: Fraction(-1)})
    assert (objective.coefficients.tolist(), objective.error) == ([0.0, 2.0], 0.0)
    with pytest.raises(InputError, match="irrational scale"):
        score_objective(net, {0: Fraction(1)}, Fraction(1))


# 1 / sqrt(1 - 2^-53) is above 1, but 1.0 is the nearest float.
ALMOST_ONE = 1 - 2.0**-53


def test_a_scale_that_only_rounds_to_one_is_not_taken_for_one() -> None:
    net = normalised_scores([1.0, 1.0], [ALMOST_ONE] * 2)
    # The first score is above 2 at (1, 1): "score - 2" is not zero there.
    try:
        objective = score_objective(net, {0: Fraction(1)}, Fraction(-2))
    except InputError:
        return
    assert objective.is_violated(np.array([1, 1])) is not True


def test_rounded_scales_of_equal_rows_keep_their_error_against_a_constant() -> None:
    # Rows 0 and 1 share a scale that rounds to 1, row 2 has another one.
    net = normalised_scores([1.0, 1.0, 1.0], [ALMOST_ONE, ALMOST_ONE, 2.0])
    objective = score_objective(net, {0: Fraction(1), 1: Fraction(-1)}, Fraction(-2))
    # At (1, 1) the difference is 2 / sqrt(1 - 2^-53) > 2.
    assert objective.is_violated(np.array([1, 1])) is not True


# --- classification --------------------------------------------------------------------------

SCORES = np.array([[2.0, 1.0], [1.0, 1.0], [-1.0, 2.0], [2.0, -1.0]])


def test_all_rivals_are_targets_by_default() -> None:
    net = network(SCORES, np.zeros(4))
    problem = robustness(net, Box([-1, -1], [1, 1]), 1)
    assert problem.label == 1
    assert [t.rival for t in problem.targets] == [0, 2, 3]
    for target in problem.targets:
        assert target.rival is not None
        (objective,) = target.objectives
        np.testing.assert_array_equal(objective.coefficients, SCORES[1] - SCORES[target.rival])
        assert objective.tie_is_fine is False
        assert str(target.rival) in target.name


def test_runner_up_is_the_strongest_rival_at_the_centre() -> None:
    net = network(SCORES, np.zeros(4))
    for label, center, expected in ((0, [0.5, 0.5], 1), (0, [0.5, -0.5], 3), (1, [-0.5, 0.5], 2)):
        problem = robustness(net, Ball("l2", center, 0.1), label, "runner-up")
        assert [t.rival for t in problem.targets] == [expected]


def test_one_class_can_be_the_target() -> None:
    net = network(SCORES, np.zeros(4))
    for k in (2, np.int64(2)):
        problem = robustness(net, Box([-1, -1], [1, 1]), np.int64(0), k, "robust")  # type: ignore[arg-type]
        (target,) = problem.targets
        assert (target.rival, problem.label) == (2, 0)
        assert target.objectives[0].tie_is_fine is True


@pytest.mark.parametrize(
    ("label", "rivals", "reason"),
    [
        (4, "all", "label is 4; the network has classes 0 to 3"),
        (-1, "all", "label is -1"),
        (1.0, "all", "label is 1.0"),
        (0, 0, "rival 0 is the label itself"),
        (0, 4, "rival is 4; the network has classes 0 to 3"),
        (0, (1, 4), "rival is 4; the network has classes 0 to 3"),
        (0, (1, 0), "rival 0 is the label itself"),
        (0, (2, 1, 2), "rivals name class 2 twice"),
        (0, (1, "all"), "expected all, runner-up or classes from 0 to 3"),
        (0, -1, "rival is -1"),
        (0, "second", "rival is 'second'"),
    ],
)
def test_unusable_labels_and_rivals_are_refused(label: Any, rivals: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        robustness(network(SCORES, np.zeros(4)), Box([-1, -1], [1, 1]), label, rivals)


def test_unknown_treatment_of_ties_is_refused() -> None:
    with pytest.raises(InputError, match="ties"):
        robustness(network(SCORES, np.zeros(4)), Box([-1, -1], [1, 1]), 0, "all", "fine")  # type: ignore[arg-type]


def test_a_single_score_is_not_a_classifier() -> None:
    with pytest.raises(InputError, match="at least two"):
        robustness(network(SCORES[:1], np.zeros(1)), Box([-1, -1], [1, 1]), 0)


def test_region_and_network_must_agree_on_the_inputs() -> None:
    with pytest.raises(InputError, match="the region has 3 inputs, the network 2"):
        robustness(network(SCORES, np.zeros(4)), Box([-1] * 3, [1] * 3), 0)


# --- VNN-LIB ---------------------------------------------------------------------------------

DECLARATIONS = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1", "Y_2"))
BOX = "(assert (and (>= X_0 -1) (<= X_0 1) (>= X_1 -1) (<= X_1 1)))"


def query(*assertions: str, box: str = BOX) -> Specification:
    return parse_vnnlib(
        DECLARATIONS + box + "".join(f"(assert {a})" for a in assertions), "q.vnnlib"
    )


def three_scores() -> Network:
    # Ties between scores, and with constants, happen often.
    return network(np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 0.5]]), np.array([0.0, 0.5, 0.25]))


def violated_at(problems: Sequence[Problem], point: Sequence[Fraction]) -> bool:
    signs = np.array([1 if v >= 0 else -1 for v in point])
    for problem in problems:
        if problem.region.contains(list(point)):
            answers = [target.is_violated(signs) for target in problem.targets]
            assert None not in answers
            if any(answers):
                return True
    return False


@pytest.mark.parametrize(
    "assertions",
    [
        ("(>= Y_1 Y_0)",),
        ("(> Y_1 Y_0)",),
        ("(or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0)))",),
        ("(>= Y_1 Y_0)", "(>= Y_2 Y_0)"),
        ("(<= Y_0 0.25)",),
        ("(< Y_2 0.75)", "(> Y_1 -0.5)"),
        ("(= Y_0 2)",),
        ("(>= (+ Y_0 (* 2 Y_1)) (- Y_2 0.25))",),
        (
            "(or (and (<= X_0 0) (>= Y_1 Y_0)) (and (>= X_0 0.25) (<= X_1 0) (>= Y_2 Y_0)))",
            "(<= Y_2 1)",
        ),
        (
            "(or (and (>= X_0 -0.5) (<= X_0 0.5) (or (>= Y_1 Y_0) (>= Y_2 0.75)))"
            " (and (>= X_0 -0.25) (<= X_0 0.25) (>= X_1 -0.25) (<= Y_0 0)))",
        ),
        ("(<= (+ X_0 X_1) 0.5)", "(>= Y_0 Y_1)"),
        ("(or (<= (+ X_0 X_1) -0.5) (>= (- X_0 (* 2 X_1)) 1))", "(or (>= Y_0 Y_1) (<= Y_2 0))"),
        ("(>= Y_1 (+ Y_1 0))",),
        ("(>= X_0 0.5)",),
    ],
)
def test_problems_mean_what_the_query_says(assertions: tuple[str, ...]) -> None:
    net, specification = three_scores(), query(*assertions)
    problems = from_vnnlib(net, specification)
    seen = set()
    grid = [Fraction(k, 8) for k in range(-9, 10)]
    for point in product(grid, grid):
        scores = net.evaluate_exactly(list(point))
        assert scores is not None
        expected = specification.holds(point, scores)
        seen.add(expected)
        assert violated_at(problems, point) is expected
    assert True in seen


def test_equal_boxes_share_one_problem_and_keep_their_disjuncts() -> None:
    net = three_scores()
    specification = query("(or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0)))")
    (problem,) = from_vnnlib(net, specification)
    assert isinstance(problem.region, Box)
    assert [t.rival for t in problem.targets] == [1, 2]
    assert problem.label is None


def test_decimal_bounds_are_rounded_outwards() -> None:
    box = "(assert (and (>= X_0 0.1) (<= X_0 0.3) (>= X_1 -0.3) (<= X_1 -0.1)))"
    (problem,) = from_vnnlib(three_scores(), query("(>= Y_1 Y_0)", box=box))
    tenth, three = Fraction(1, 10), Fraction(3, 10)
    assert problem.region.lo.tolist() == [float_below(tenth), float_below(-three)]
    assert problem.region.hi.tolist() == [float_above(three), float_above(-tenth)]
    corners = product((tenth, three), (-tenth, -three))
    assert all(problem.region.contains(list(c)) for c in corners)


def test_polytopes_are_rounded_outwards() -> None:
    (problem,) = from_vnnlib(
        three_scores(), query("(<= (+ (* 0.1 X_0) (* 0.3 X_1)) 0.2)", "(>= Y_1 Y_0)")
    )
    assert isinstance(problem.region, Polytope)
    for k in range(-20, 21):
        x = Fraction(k, 20)
        y = (Fraction(2, 10) - x / 10) / Fraction(3, 10)
        if abs(y) <= 1:
            assert problem.region.contains([x, y])
            assert not problem.region.contains([x, y + Fraction(1, 10**12)])


@pytest.mark.parametrize("far", ["-2.5", "-1000"])
def test_disjuncts_without_inputs_are_left_out(far: str) -> None:
    specification = query(
        f"(or (and (<= (+ X_0 X_1) {far}) (>= Y_1 Y_0)) (and (>= (+ X_0 X_1) 0) (>= Y_2 Y_0)))"
    )
    (problem,) = from_vnnlib(three_scores(), specification)
    assert [t.rival for t in problem.targets] == [2]


def test_a_query_that_nothing_satisfies_has_no_problems() -> None:
    assert from_vnnlib(three_scores(), query("(<= X_0 -2)", "(>= Y_1 Y_0)")) == ()


@pytest.mark.parametrize("allowed", ["(>= Y_1 Y_0)", "(> (* 2 Y_1) (* 2 Y_0))", "(= Y_0 Y_2)"])
def test_softmax_outputs_can_be_compared(allowed: str) -> None:
    plain = three_scores()
    (problem,) = from_vnnlib(replace(plain, output_transform="softmax"), query(allowed))
    (expected,) = from_vnnlib(plain, query(allowed))
    for signs in sign_vectors(2):
        assert [t.is_violated(signs) for t in problem.targets] == [
            t.is_violated(signs) for t in expected.targets
        ]


@pytest.mark.parametrize(
    "refused",
    ["(>= Y_0 0.5)", "(>= Y_1 (+ Y_0 0.1))", "(>= (* 2 Y_1) Y_0)", "(>= (+ Y_0 Y_1) Y_2)"],
)
def test_softmax_outputs_cannot_be_measured(refused: str) -> None:
    net = replace(three_scores(), output_transform="softmax")
    with pytest.raises(InputError, match=r"q\.vnnlib:1: the network ends in Softmax"):
        from_vnnlib(net, query(refused))


def test_queries_that_do_not_fit_the_network_are_refused() -> None:
    net = three_scores()
    with pytest.raises(InputError, match=r"q\.vnnlib: the network ends in ArgMax"):
        from_vnnlib(replace(net, output_transform="argmax"), query("(>= Y_1 Y_0)"))
    wide = Network.from_arrays([np.eye(3), np.ones((3, 3))], [np.zeros(3), np.zeros(3)])
    with pytest.raises(InputError, match=r"q\.vnnlib: declares 2 inputs, the network has 3"):
        from_vnnlib(wide, query("(>= Y_1 Y_0)"))
    with pytest.raises(InputError, match=r"q\.vnnlib: declares 3 outputs, the network has 4"):
        from_vnnlib(network(SCORES, np.zeros(4)), query("(>= Y_1 Y_0)"))


def test_constants_against_an_irrational_scale_are_refused_with_their_line() -> None:
    net = normalised_scores([1.0] * 3, [2.0] * 3)
    with pytest.raises(InputError, match=r"q\.vnnlib:1: .*irrational"):
        from_vnnlib(net, query("(<= Y_0 0.5)"))
    (problem,) = from_vnnlib(net, query("(<= Y_0 Y_1)"))
    assert problem.targets[0].is_violated(np.array([1, -1])) is True


def test_questions_about_a_network_share_their_targets_and_do_not_keep_it() -> None:
    weights = [[[1, 1], [1, -1]], [[1, 1], [-1, -1], [1, -1]]]
    net = Network.from_arrays(weights, [[0, 0], [0, 0, 0]])
    ball = Ball("linf", [0.5, 0], 0.2)
    one, other = robustness(net, ball, 0), robustness(net, ball, 0, rivals=2)
    assert one.targets[1] is other.targets[0]
    strict = robustness(net, ball, 0, ties="robust")
    assert [t.objectives[0].tie_is_fine for t in strict.targets] == [True, True]
    assert [t.objectives[0].tie_is_fine for t in one.targets] == [False, False]
    assert robustness(net, ball, 1).targets[0].objectives[0].coefficients.tolist() == [-2, -2]
    known = weakref.ref(net.output)
    del net, one, other, strict
    gc.collect()
    assert known() is None
