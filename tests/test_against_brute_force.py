"""Every method against the brute-force oracle, on tiny networks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from tests.brute_force import TinyNetwork, true_margins
from tests.strategies import NORMS, regions, tiny_networks

FEW = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def check_counterexample(
    net: TinyNetwork, region: bnncert.Region, label: int, result: bnncert.Result
) -> None:
    """Replay a counterexample with the oracle's own arithmetic."""
    found = result.counterexample
    assert found is not None
    exact = (
        [Fraction(v) for v in found.point.tolist()] if found.exact is None else list(found.exact)
    )
    assert region.contains(exact)
    single = bnncert.Box([float(v) for v in exact], [float(v) for v in exact])
    if [Fraction(v) for v in single.lo.tolist()] == exact:
        margins = true_margins(net, single, label)
        assert min(margins.values()) <= 0


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@FEW
def test_exact_and_bounding_methods_agree_with_brute_force(kind: str, data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(kind))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    truth = true_margins(net, region, label)
    for method, form in (
        ("interval", "lattice"),
        ("lp", "lattice"),
        ("sdp", "lattice"),
        ("milp", "lattice"),
        ("milp", "soft"),
    ):
        options = Options(form=form)  # type: ignore[arg-type]
        result = bnncert.bound(built, region, label, method=method, options=options)
        for target in result.targets:
            assert target.rival is not None
            minimum = truth[target.rival]
            assert target.lower <= minimum
            assert target.upper >= minimum
            # The Soft form lets both signs pass at a tie inside the network, which is right
            # only when sign(0) may be either; elsewhere it is a bound.
            if method == "milp" and (form == "lattice" or net.sign_zero == "either"):
                assert target.lower == target.upper == minimum


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@FEW
def test_verdicts_agree_with_brute_force(kind: str, data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(kind))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    ties = data.draw(st.sampled_from(["violation", "robust"]))
    truth = true_margins(net, region, label)
    holds = all(m >= 0 if ties == "robust" else m > 0 for m in truth.values())
    expected = "robust" if holds else "not_robust"
    options = Options(restarts=8, iterations=5, samples=50)
    for method in ("milp", "auto"):
        result = bnncert.verify(built, region, label, method=method, ties=ties, options=options)
        assert result.status == expected, method
        if expected == "not_robust" and ties == "violation":
            check_counterexample(net, region, label, result)
    for method in ("interval", "lp", "sdp", "sample", "attack"):
        result = bnncert.verify(
            built, region, label, method=method, ties=ties, options=options, timeout=0.02
        )
        assert result.status in (expected, "unknown", "timeout"), method
        for target in result.targets:
            assert target.rival is not None
            assert target.lower <= truth[target.rival] <= target.upper


@given(data=st.data())
@FEW
def test_bounds_hold_on_the_disc(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(exact_ties=False))
    region = data.draw(regions("l2"))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    truth = true_margins(net, region, label)
    options = Options(restarts=8, iterations=5, samples=50)
    for method in ("interval", "lp", "sdp", "sample", "attack", "auto"):
        result = bnncert.verify(built, region, label, method=method, options=options, timeout=0.05)
        for target in result.targets:
            assert target.rival is not None
            assert target.lower <= truth[target.rival] <= target.upper, method
        if result.status == "robust":
            assert min(truth.values()) > 0, method
        if result.status == "not_robust":
            check_counterexample(net, region, label, result)


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_three_inputs_agree_with_brute_force(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(inputs=3, max_depth=2))
    region = data.draw(regions(data.draw(st.sampled_from(["linf", "box"])), inputs=3))
    built = net.build()
    truth = true_margins(net, region, 0)
    result = bnncert.bound(built, region, 0, method="milp")
    for target in result.targets:
        assert target.rival is not None
        assert target.lower == target.upper == truth[target.rival]


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
