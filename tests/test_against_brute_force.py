"""Every method against the brute-force oracle, on tiny networks."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import cycle, product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.engine.methods import REGISTRY
from bnncert.problem import Target, Ties, robustness
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork, TinyQuestion, is_inside, reachable_first_layers
from tests.brute_force import check_counterexample as check_counterexample
from tests.every_mode import COMPLETE, MODES, agree_in_every_mode, answer
from tests.strategies import NORMS, drawn, few, questions

METHODS = [m.name for m in REGISTRY.all() if m.available()]

#: Examples of methods with a search of their own, and of one that is slow; the others have MANY.
MANY, EXAMPLES = 18, {"bab": 24, "minp": 24, "sdp-order2": 8}


@cache
def asked(kinds: tuple[str, ...], exact_ties: bool = True) -> list[TinyQuestion]:
    """Return questions that all methods are asked: what is true of each is found once."""
    strategy = st.sampled_from(kinds).flatmap(lambda k: questions(k, exact_ties=exact_ties))
    return drawn(strategy, 2 * max(EXAMPLES.values()))


def kinds_of(method: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the kinds of regions that a method takes."""
    regions = REGISTRY.make(method).regions.split(", ")
    return tuple(kind for kind in kinds if kind in regions)


@pytest.mark.parametrize("method", METHODS)
def test_bounds_and_statuses_agree_with_brute_force(method: str) -> None:
    """lower <= minimum <= upper, for both rules about ties and both modes."""
    promises = REGISTRY.make(method).promises
    statuses: Counter[str] = Counter()
    for question in asked(kinds_of(method, NORMS))[: EXAMPLES.get(method, MANY)]:
        statuses.update(agree_in_every_mode(question, method))
    if "bound" in promises:
        assert statuses["robust"] > sum(statuses.values()) / 8
    if "counterexample" in promises or method == "sample":
        assert statuses["not_robust"] > sum(statuses.values()) / 8


@pytest.mark.parametrize("method", METHODS)
def test_bounds_and_statuses_hold_where_time_runs_out(method: str) -> None:
    statuses: Counter[str] = Counter()
    # The first questions that are drawn are the smallest.
    chosen = asked(kinds_of(method, (*NORMS, "l2")))[-(EXAMPLES.get(method, MANY) // 2) :]
    # A limit that has passed may leave time for a first step, which falsifies many questions.
    for question, later in zip(chosen, cycle([1e-3, 0.01])):
        for limit, ties, mode in product((1e-9, later), get_args(Ties), MODES):
            statuses[answer(question, method, ties, mode, limit).status] += 1
    # The first step of auto's attack is made whatever the limit, and falsifies most of these.
    if method != "auto":
        assert statuses["timeout"] > 0


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@few(15)
def test_the_soft_form_is_exact_where_ties_may_go_either_way(
    kind: str, data: st.DataObject
) -> None:
    question = data.draw(questions(kind))
    result = question.bound("milp", options=Options(form="soft"))
    question.check(result)
    # The Soft form lets both signs pass at a tie inside the network, which is right
    # only when sign(0) may be either; elsewhere it is a bound.
    if question.net.sign_zero == "either":
        for target, minimum in question.targets(result):
            assert target.lower == target.upper == minimum


@pytest.mark.parametrize("method", [m for m in METHODS if "l2" in REGISTRY.make(m).regions])
def test_bounds_and_statuses_hold_on_the_disc(method: str) -> None:
    statuses: Counter[str] = Counter()
    count = EXAMPLES.get(method, MANY) // 4
    for exact_ties, question in (
        (kind, question) for kind in (True, False) for question in asked(("l2",), kind)[-count:]
    ):
        for ties, mode in product(get_args(Ties), MODES):
            result = answer(question, method, ties, mode)
            statuses[result.status] += 1
            if method in COMPLETE and not exact_ties:
                assert result.status == question.expected(ties), (ties, mode)
            if method == "minp" and not exact_ties and mode == "optimum":
                for target, minimum in question.targets(result):
                    assert target.lower == pytest.approx(float(minimum), abs=1e-9)
                    assert target.upper == pytest.approx(float(minimum), abs=1e-9)
    if method in COMPLETE:
        # A pattern that the disc only touches may stay open.
        decided = statuses["robust"] + statuses["not_robust"]
        assert decided > 0.9 * sum(statuses.values())


@pytest.mark.parametrize("method", ["milp", "minp", "bab"])
def test_a_tie_that_is_fine_is_not_below_the_lower_bound(method: str) -> None:
    """The margin is 0 or 2; ties count as robust, so that its minimum is 0 and nothing fails."""
    net = TinyNetwork(
        (np.array([[1.0]]), np.array([[1.0], [0.0]])), (np.zeros(1), np.array([1.0, 0.0])), "plus"
    )
    question = TinyQuestion(net, bnncert.Box([-1.0], [1.0]), 0)
    assert question.truth == {1: 0}
    for mode in MODES:
        result = answer(question, method, "robust", mode)
        assert result.status == "robust"
        assert result.lower == 0.0


@given(data=st.data())
@few(30)
def test_three_inputs_agree_with_brute_force(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["linf", "box"]))
    question = data.draw(questions(kind, inputs=3, max_depth=2))
    result = question.bound("milp")
    for target, minimum in question.targets(result):
        assert target.lower == target.upper == minimum


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_the_oracle_knows_where_a_plane_touches_a_ball(inputs: int) -> None:
    """The plane w.x = |w| r meets the ball around 0 in one point, where sign(0) decides."""
    row = np.array([[3.0], [3.0, 4.0], [2.0, 3.0, 6.0]][inputs - 1], ndmin=2)
    length = math.isqrt(int((row**2).sum()))
    ball = bnncert.Ball("l2", np.zeros(inputs), 2.0)
    for bias, zero, expected in (
        (-2.0 * length, "plus", {(1,), (-1,)}),
        (-2.0 * length, "either", {(1,), (-1,)}),
        (-2.0 * length, "minus", {(-1,)}),
        (-2.0 * length - 1e-9, "plus", {(-1,)}),
        (2.0 * length, "plus", {(1,)}),
        (2.0 * length, "minus", {(1,), (-1,)}),
        (2.0 * length - 1e-9, "plus", {(1,), (-1,)}),
    ):
        net = TinyNetwork((row, np.ones((2, 1))), (np.array([bias]), np.zeros(2)), zero)
        assert set(reachable_first_layers(net, ball)) == expected, (bias, zero)
    point = [Fraction(2 * int(w), length) for w in row[0]]
    assert is_inside(ball, point)
    assert not is_inside(ball, [v * Fraction(1001, 1000) for v in point])


def test_the_toy_network_of_the_paper() -> None:
    # Example 2.1: the minimum of 2 x_{2,2} - 1 over the ball is -3, attained at the centre.
    net = TinyNetwork(
        (
            np.array([[-1, 1, 1], [-1, -1, 1]]),
            np.array([[-1, -1], [-1, 1]]),
            np.array([[-1, 1], [-1, -1]]),
        ),
        (np.array([1.5, 2.0]), np.array([1.0, -0.5]), np.array([-2.0, -1.0])),
        "plus",
    ).build()
    center = np.array([0.0, 0.5, 0.0])
    assert net.evaluate(center).tolist() == [-2.0, 1.0]
    region = bnncert.Ball("linf", center, 0.2)
    objective = bnncert.Objective(np.array([0.0, 2.0]), -1.0)
    problem = bnncert.Problem(net, region, (Target("f", (objective,)),))
    options = Options(mode="optimum")
    result = solve([problem], "milp", None, options, None, check_centre=False)
    assert result.lower == result.upper == -3.0
    lp = solve([problem], "lp", None, options, None, check_centre=False)
    assert lp.lower <= -3.0 and math.isfinite(lp.lower)


def array(*rows: object) -> np.ndarray:
    return np.array(rows, dtype=float)


def test_a_failed_solve_of_highs_says_nothing_about_the_minimum() -> None:
    """HiGHS 1.15 ends this program with an error unless its presolve is off."""
    weights = (
        array([-1, 0, 1], [0, 0, 1], [0, -1, 1]),
        array([0, 1, 0], [0, 0, -1], [0, -1, 0]),
        array([-1, -1, 0], [0, 1, -1]),
        array([-1, 0], [-1, -1]),
        array([1, -1], [0, 1], [-1, -1], [0, -1]),
    )
    biases = (array(0, 0.5, 0), array(1, 0, -1), array(2, 1), array(0, 3), array(-2, -2, -3, 3))
    net = TinyNetwork(weights, biases, "either").build()
    region = bnncert.Ball("linf", [1.25, 0.0, 0.25], 1.75, -1.5, 1.25)
    problem = robustness(net, region, 0, 3, "robust")
    options = Options(mode="optimum", threads=1)
    (target,) = solve([problem], "milp", 60.0, options, None, check_centre=False).targets
    assert (target.status, target.lower, target.upper) == ("not_robust", -6.0, -6.0)


def test_the_soft_form_keeps_ties_in_scip() -> None:
    """The minimum 1 is at a tie of the second layer, where either sign is allowed."""
    weights = (
        array([1, 1, -1], [1, 1, 1]),
        array([1, 1], [-1, -1], [-1, -1], [1, 1]),
        array([1, 1, 0, 1], [-1, 0, 1, -1], [1, -1, -1, 1]),
        array([-1, 1, -1], [-1, 0, -1], [1, 1, 1]),
    )
    biases = (array(1, 1.5), array(-1, 1, 1, -2), array(-0.04, 1.15, -0.14), array(-1, 2, -2))
    net = TinyNetwork(weights, biases, "either").build()
    region = bnncert.Box([0.013, -0.87, 1.26], [0.73, 0.096, 2.23])
    problem = robustness(net, region, 1, 2, "robust")
    options = Options(mode="optimum", form="soft")
    (target,) = solve([problem], "minp", 60.0, options, None, check_centre=False).targets
    assert (target.status, target.lower, target.upper) == ("robust", 1.0, 1.0)
