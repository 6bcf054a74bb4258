"""The mixed-integer nonlinear program against the brute-force oracle, and its limits."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.feasibility import Feasibility
from bnncert.errors import InputError, MissingExtraError
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.regions.linear_program import input_block
from tests.brute_force import TinyNetwork, TinyQuestion, check_counterexample
from tests.strategies import NORMS, few, questions, regions, tiny_networks

needs_scip = pytest.mark.skipif(
    importlib.util.find_spec("pyscipopt") is None,
    reason="pyscipopt is not installed: pip install 'bnncert[scip]'",
)


def check_soft_form(question: TinyQuestion) -> None:
    """The Soft form lets both signs pass near a tie: it may know less, but nothing wrong."""
    soft = Options(form="soft")
    result = question.verify("minp", options=soft)
    assert result.status in (question.expected(), "unknown")
    for target, minimum in question.targets(question.bound("minp", options=soft)):
        assert target.lower - 1e-9 <= minimum <= target.upper + 1e-9


@needs_scip
@pytest.mark.parametrize("kind", [*NORMS, "l2"])
@given(data=st.data())
@few(20)
def test_the_soft_form_never_contradicts_brute_force(kind: str, data: st.DataObject) -> None:
    check_soft_form(data.draw(questions(kind, exact_ties=kind != "l2")))


@needs_scip
@given(data=st.data())
@few(20)
def test_ties_on_the_disc_are_never_decided_wrongly(data: st.DataObject) -> None:
    # A threshold that touches the circle has no float point on it: "unknown" is allowed there.
    net = data.draw(tiny_networks())
    region = data.draw(regions("l2"))
    built = net.build()
    result = bnncert.verify(built, region, 0, method="minp")
    if result.status == "robust":
        samples = region.sample(np.random.default_rng(0), 200)
        inside = [p for p in samples if region.contains(p)]
        scores = [built.evaluate(p) for p in inside]
        assert all(s[0] >= s.max() for s in scores)
    if result.status == "not_robust":
        check_counterexample(net, region, 0, result)


@needs_scip
def test_few_neurons_over_many_inputs_give_the_answer_of_the_full_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The centre sits in a corner of the data box, which the short model knows only by its clauses.
    generator = np.random.default_rng(5)
    clauses = []

    def counting(*arguments: Any) -> Feasibility:
        found = exact_feasibility(*arguments)
        clauses.extend([] if found.conflict is None else [found.conflict])
        return found

    monkeypatch.setattr("bnncert.engine.methods.integer_programs.exact_feasibility", counting)
    # Presolve would find most of the clauses first.
    monkeypatch.setattr(
        "bnncert.engine.methods.integer_programs._add_pairs", lambda *arguments: None
    )
    for _ in range(25):
        weights = [generator.integers(-1, 2, s).astype(float) for s in ((4, 7), (4, 4), (2, 4))]
        biases = [generator.normal(size=4), generator.normal(size=4), generator.normal(size=2)]
        network = bnncert.Network.from_arrays(weights, biases)
        region = bnncert.Ball("l2", np.zeros(7), 1.0, np.full(7, -0.1), np.full(7, 1.0))
        short = bnncert.bound(network, region, 0, method="minp").targets[0]
        with monkeypatch.context() as patch:
            patch.setattr(
                "bnncert.engine.methods.integer_programs.ball_block",
                lambda r, layer: input_block(r, layer.inputs),
            )
            full = bnncert.bound(network, region, 0, method="minp").targets[0]
        assert short.lower == pytest.approx(full.lower, abs=1e-9)
        assert short.upper == pytest.approx(full.upper, abs=1e-9)
        assert short.lower == pytest.approx(short.upper, abs=1e-9)
        assert short.status == full.status
    assert clauses


def disc_network(threshold: float) -> bnncert.Network:
    """Class 0 wins unless x_0 + x_1 >= threshold."""
    return TinyNetwork(
        (np.array([[1.0, 1.0]]), np.array([[-1.0], [1.0]])),
        (np.array([-threshold]), np.array([0.0, 0.0])),
        "plus",
    ).build()


@needs_scip
@pytest.mark.parametrize(
    ("threshold", "clip", "status"),
    [
        # The unit disc reaches x_0 + x_1 = sqrt 2, and 1/2 + sqrt(3/4) = 1.36602.. if x_0 <= 1/2.
        (1.4142, None, "not_robust"),
        (1.4143, None, "robust"),
        (1.41421356, None, "not_robust"),
        (1.41421357, None, "robust"),
        (1.366, 0.5, "not_robust"),
        (1.3661, 0.5, "robust"),
    ],
)
def test_the_curve_of_the_disc_decides(threshold: float, clip: float | None, status: str) -> None:
    high = None if clip is None else np.array([clip, 1.0])
    region = bnncert.Ball("l2", [0.0, 0.0], 1.0, None, high)
    result = bnncert.verify(disc_network(threshold), region, 0, method="minp")
    assert result.status == status


@needs_scip
def test_the_first_images_are_decided_beyond_what_intervals_can_do() -> None:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("l2", data.point(1), 15 / 255, -1.0, 1.0)
    result = bnncert.verify(
        network, region, int(data.labels[1]), rivals="runner-up", method="minp", timeout=120
    )
    assert result.status == "robust"
    assert result.targets[0].stage == "minp"


@needs_scip
def test_the_time_limit_holds() -> None:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("l2", data.point(2), 30 / 255, -1.0, 1.0)
    result = bnncert.verify(
        network, region, int(data.labels[2]), rivals="runner-up", method="minp", timeout=1
    )
    assert result.status == "timeout"
    assert result.seconds < 5


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pyscipopt.*bnncert\[scip\]"):
        bnncert.verify(disc_network(0.5), bnncert.Ball("l2", [0, 0], 1.0), 0, method="minp")


def test_milp_points_to_minp_for_the_disc() -> None:
    with pytest.raises(InputError, match=r"L2 ball is not polyhedral.*minp"):
        bnncert.verify(disc_network(0.5), bnncert.Ball("l2", [0, 0], 1.0), 0, method="milp")


@pytest.mark.parametrize("size", [1e16, 1e25, 1e30, 1e38])
@pytest.mark.parametrize("layer", [0, 2])
def test_numbers_beyond_the_infinity_of_scip_are_not_decided_wrongly(
    size: float, layer: int
) -> None:
    rng = np.random.default_rng(3)
    sizes = (4, 6, 5, 3)
    weights = [rng.integers(-1, 2, (b, a)).astype(float) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=b) for b in sizes[1:]]
    weights[layer] *= size
    biases[layer] *= size
    network = bnncert.Network.from_arrays(weights, biases)
    point = rng.normal(size=4)
    label = int(network.classify(point)[0])
    for norm in ("linf", "l2"):
        region = bnncert.Ball(norm, point, 0.5)
        found = bnncert.verify(network, region, label, method="minp", timeout=5)
        expected = bnncert.verify(network, region, label, method="bab", timeout=5)
        assert found.status in ("unknown", expected.status)
