"""Every method against the brute-force oracle, on tiny networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from tests.brute_force import TinyNetwork
from tests.brute_force import check_counterexample as check_counterexample
from tests.strategies import NORMS, questions

FEW = settings(
    max_examples=90, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@FEW
def test_exact_and_bounding_methods_agree_with_brute_force(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    for method, form in (
        ("interval", "lattice"),
        ("lp", "lattice"),
        ("sdp", "lattice"),
        ("milp", "lattice"),
        ("milp", "soft"),
    ):
        result = question.bound(method, options=Options(form=form))  # type: ignore[arg-type]
        question.check_bounds(result)
        # The Soft form lets both signs pass at a tie inside the network, which is right
        # only when sign(0) may be either; elsewhere it is a bound.
        if method == "milp" and (form == "lattice" or question.net.sign_zero == "either"):
            for target, minimum in question.targets(result):
                assert target.lower == target.upper == minimum


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@FEW
def test_verdicts_agree_with_brute_force(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    ties = data.draw(st.sampled_from(["violation", "robust"]))
    expected = question.expected(ties)
    options = Options(restarts=8, iterations=5, samples=50)
    for method in ("milp", "auto"):
        result = question.verify(method, ties=ties, options=options)
        assert result.status == expected, method
        question.check_counterexample(result)
    for method in ("interval", "lp", "sdp", "sample", "attack"):
        result = question.verify(method, ties=ties, options=options, timeout=0.02)
        assert result.status in (expected, "unknown", "timeout"), method
        question.check_bounds(result)


@given(data=st.data())
@FEW
def test_bounds_hold_on_the_disc(data: st.DataObject) -> None:
    question = data.draw(questions("l2", exact_ties=False))
    options = Options(restarts=8, iterations=5, samples=50)
    for method in ("interval", "lp", "sdp", "sample", "attack", "auto"):
        result = question.verify(method, options=options, timeout=0.05)
        question.check_bounds(result)
        if result.status == "robust":
            assert question.expected() == "robust", method
        question.check_counterexample(result)


@given(data=st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_three_inputs_agree_with_brute_force(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["linf", "box"]))
    question = data.draw(questions(kind, inputs=3, max_depth=2))
    result = question.bound("milp")
    for target, minimum in question.targets(result):
        assert target.lower == target.upper == minimum


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
    problem = bnncert.Problem(net, region, (bnncert.Target("f", (objective,)),))
    options = Options(mode="optimum")
    result = bnncert.solve([problem], "milp", None, options, None, check_centre=False)
    assert result.lower == result.upper == -3.0
    lp = bnncert.solve([problem], "lp", None, options, None, check_centre=False)
    assert lp.lower <= -3.0 and math.isfinite(lp.lower)
