"""Clashes added one round after another: always a bound, and in the end the same one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.methods import reduced_sdp
from bnncert.engine.methods.reduced_sdp import for_all_pairs, violated_pairs, with_pairs
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.patterns import consistent_patterns
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.solvers.structured_program import StructuredMultipliers
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_relaxation import FEW
from tests.strategies import NORMS, regions, tiny_networks


def demo_region(image: int, delta: float) -> tuple[bnncert.Ball, int]:
    data = load_demo_images()
    ball = bnncert.Ball("linf", data.point(image), delta / 127.5, -1.0, 1.0)
    return ball, int(data.labels[image])


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Clashes are added lazily however few there are."""
    monkeypatch.setattr(reduced_sdp, "_has_many_pairs", lambda problem, context: True)
    return monkeypatch


@given(data=st.data(), kind=st.sampled_from([*NORMS, "l2"]))
@settings(FEW, max_examples=20)
def test_the_bound_is_below_the_minimum(data: st.DataObject, kind: str) -> None:
    net = data.draw(tiny_networks(exact_ties=kind != "l2", max_depth=4))
    region = data.draw(regions(kind))
    truth = true_margins(net, region, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduced_sdp, "_has_many_pairs", lambda problem, context: True)
        result = bnncert.bound(net.build(), region, 0, method="sdp")
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival]


@pytest.mark.parametrize("image", [1, 2])
def test_enough_rounds_end_at_the_bound_of_all_pairs(image: int, lazy: pytest.MonkeyPatch) -> None:
    region, label = demo_region(image, 0.25)
    network = load_demo_network("sparse")

    def lower() -> float:
        options = bnncert.Options(coupling="off")
        return bnncert.bound(
            network, region, label, rivals="runner-up", method="sdp", options=options
        ).lower

    lazy.setattr(reduced_sdp, "PAIR_ROUNDS", 1)
    without = lower()
    lazy.setattr(reduced_sdp, "PAIR_ROUNDS", 30)
    lazy.setattr(reduced_sdp, "VISIBLE", 1e-6)
    rounds = lower()
    lazy.undo()
    assert without < rounds == pytest.approx(lower(), abs=1e-6)


def test_a_certificate_is_accepted(tmp_path: Path, lazy: pytest.MonkeyPatch) -> None:
    region, label = demo_region(1, 0.25)
    network = load_demo_network("dense")
    path = tmp_path / "proof.bnncert"
    result = bnncert.verify(
        network, region, label, rivals="runner-up", method="sdp", certificate=path
    )
    assert result.status == "robust"
    assert check(path, network).verdict == "robust"


@pytest.fixture(scope="module")
def problem() -> ReducedProblem:
    region, label = demo_region(2, 0.25)
    network = load_demo_network("sparse")
    target = robustness(network, region, label).targets[0]
    return reduce_objective(presolve(network, region), target.objectives[0])


def test_signs_that_exclude_each_other_are_found(problem: ReducedProblem) -> None:
    count = problem.pair_first.size
    assert count > 3
    none = np.zeros(count, dtype=bool)
    # A point with both signs of clash 3 violates it by (1 + 1)(1 + 1).
    z = np.ones(problem.size + 1)
    for literal in (problem.pair_first[3], problem.pair_second[3]):
        z[literal // 2 + 1] = 1 - 2 * (literal % 2)
    found = violated_pairs(problem, np.outer(z, z), none, count)
    assert 3 in found
    first, second = problem.pair_first, problem.pair_second
    holds = (z[first // 2 + 1] == 1 - 2 * (first % 2)) & (
        z[second // 2 + 1] == 1 - 2 * (second % 2)
    )
    assert sorted(found) == np.flatnonzero(holds).tolist()
    none[3] = True
    assert 3 not in violated_pairs(problem, np.outer(z, z), none, count)
    assert violated_pairs(problem, np.outer(z, z), none, 1).size <= 1


def test_missing_pairs_have_no_multiplier(problem: ReducedProblem) -> None:
    kept = np.zeros(problem.pair_first.size, dtype=bool)
    kept[[0, 2]] = True
    few = with_pairs(problem, kept)
    assert few.pair_first.tolist() == problem.pair_first[[0, 2]].tolist()
    theta = [
        np.zeros((t.features.shape[0], t.features.shape[2]))
        for t in relax_reduced(few).program.tables
    ]
    some = StructuredMultipliers(theta, np.full(problem.size + 1, -50.0), np.array([1.0, -2.0]))
    every = for_all_pairs(some, kept)
    assert every.pi[kept].tolist() == [1.0, -2.0] and not every.pi[~kept].any()
    # The same dual point, so the same bound.
    assert relax_reduced(few).dual_point(some).bound(few) == pytest.approx(
        relax_reduced(problem).dual_point(every).bound(problem)
    )


def test_random_patterns_look_at_the_clock_for_every_variable() -> None:
    """Gates of a network with a thousand neurons take seconds."""

    class Counted(Deadline):
        checks = 0

        def check(self) -> None:
            Counted.checks += 1

    rng = np.random.default_rng(3)
    weights = [rng.choice([-1.0, 1.0], shape) for shape in ((12, 8), (12, 12), (8, 12), (2, 8))]
    biases = [np.zeros(len(w)) for w in weights]
    network = bnncert.Network.from_arrays(weights, biases, input_lo=-1, input_hi=1)
    region = bnncert.Box(np.full(8, -1.0), np.full(8, 1.0))
    objective = robustness(network, region, 0).targets[0].objectives[0]
    problem = reduce_objective(presolve(network, region), objective)
    assert problem.outputs.size >= 8
    signs = consistent_patterns(problem, rng, 20, Counted(None))
    assert Counted.checks >= problem.size
    gates = problem.gates
    for row, points, side, out in zip(
        gates.rows, gates.points, problem.gate_signs, problem.outputs, strict=True
    ):
        fits = np.abs((signs @ row)[:, None] - points) < 0.5
        has = fits & (side == signs[:, out, None])
        assert np.all(has.any(axis=1) | ~fits.any(axis=1)) and fits.any()
