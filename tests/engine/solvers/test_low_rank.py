"""The first-order solver: any bound it gives is valid, and it comes close to the exact one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import ReducedRelaxation, relax_reduced
from bnncert.engine.solvers.low_rank import solve_low_rank
from bnncert.engine.solvers.structured import solve_structured
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import Target, robustness
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_components import window_rows
from tests.strategies import NORMS, few, regions, tiny_networks

#: How far the bound may stay below the optimum, as a share of what the tables can vary by.
CLOSE = 0.01


@given(data=st.data())
@few(15)
def test_its_bounds_never_exceed_the_minimum(data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    built = net.build()
    truth = true_margins(net, region, 0)
    result = bnncert.bound(built, region, 0, options=Options(solver="low-rank"), timeout=0.5)
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival]


def demo_relaxation(
    index: int = 0, delta: float = 0.25, network: str = "sparse"
) -> ReducedRelaxation:
    model, data = load_demo_network(network), load_demo_images()
    region = bnncert.Ball("linf", data.point(index), delta / 127.5, -1.0, 1.0)
    target = robustness(model, region, int(data.labels[index]), "runner-up").targets[0]
    return relax_reduced(reduce_objective(presolve(model, region), target.objectives[0]))


def random_relaxation(seed: int, sizes: list[int], radius: float) -> ReducedRelaxation:
    """Return the relaxation of a random network; beyond radius 1 it hardly has clashes."""
    rng = np.random.default_rng(seed)
    shapes = [(b, a) for a, b in pairwise(sizes)]
    weights = [rng.choice([-1.0, 0.0, 1.0], p=[0.3, 0.4, 0.3], size=s) for s in shapes]
    biases = [rng.uniform(-1, 1, sizes[1]), *(np.rint(rng.uniform(-2, 2, n)) for n in sizes[2:])]
    network = bnncert.Network.from_arrays(weights, biases)
    point = rng.uniform(-1, 1, sizes[0])
    region = bnncert.Ball("linf", point, radius, -1.0, 1.0)
    label = int(np.argmax(network.evaluate(point)))
    target = robustness(network, region, label, "runner-up").targets[0]
    return relax_reduced(reduce_objective(presolve(network, region), target.objectives[0]))


def spread(problem: ReducedProblem) -> float:
    """Return how far f can be apart if every table is on its own."""
    tables = problem.values.max(axis=1) - problem.values.min(axis=1)
    return float(tables.sum() + 2 * np.abs(problem.linear).sum())


def check(relaxation: ReducedRelaxation, seconds: float) -> None:
    exact = relaxation.bound(solve_structured(relaxation.program, Deadline(None)).multipliers)
    found = solve_low_rank(relaxation.program, Deadline(seconds))
    bound = relaxation.bound(found.multipliers)
    assert bound <= exact + 1e-4 * (1 + abs(exact))
    assert bound >= exact - CLOSE * spread(relaxation.problem)
    np.testing.assert_allclose(np.diag(found.moments), 1.0)


def test_it_comes_close_on_tables_with_pairs() -> None:
    relaxation = random_relaxation(0, [20, 15, 12, 2], 0.2)
    assert relaxation.problem.pair_first.size
    check(relaxation, 20)


def test_it_comes_close_without_pairs() -> None:
    relaxation = random_relaxation(0, [30, 12, 20, 2], 2.0)
    assert not relaxation.problem.pair_first.size
    check(relaxation, 20)


def test_it_comes_close_with_gates() -> None:
    relaxation = random_relaxation(0, [20, 12, 10, 10, 2], 0.1)
    assert relaxation.problem.outputs.size
    check(relaxation, 20)


@pytest.mark.parametrize(("index", "delta", "network"), [(0, 0.25, "sparse"), (2, 0.25, "dense")])
def test_it_comes_close_on_demo_images(index: int, delta: float, network: str) -> None:
    check(demo_relaxation(index, delta, network), 20)


def test_it_stops_at_its_goal_and_at_the_time_limit() -> None:
    relaxation = demo_relaxation()
    goal = -relaxation.problem.constant / relaxation.scale
    early = solve_low_rank(relaxation.program, Deadline(20), above=goal)
    assert early.status == "above"
    assert relaxation.bound(early.multipliers) > 0
    deadline = Deadline(0.2)
    late = solve_low_rank(relaxation.program, deadline)
    assert late.status == "interrupted"
    assert deadline.elapsed() < 2.0
    # The interior-point optimum, 203.96, is the most that any multipliers can prove.
    assert relaxation.bound(late.multipliers) < 204.0


def wide_target(length: int, channels: int) -> tuple[bnncert.Network, bnncert.Region, Target]:
    """Return two convolutions with more than a thousand open neurons between them."""
    rng = np.random.default_rng(0)
    weights = [
        window_rows(length, channels, 1, 3, rng),
        window_rows(length - 2, channels, channels, 3, rng),
        rng.choice([-1.0, 1.0], size=(2, channels * (length - 4))),
    ]
    biases = [rng.uniform(-0.5, 0.5, channels * (length - 2)), np.zeros(channels * (length - 4))]
    network = bnncert.Network.from_arrays(weights, [*biases, np.zeros(2)])
    point = rng.uniform(-1, 1, length)
    region = bnncert.Ball("linf", point, 0.3, -1.0, 1.0)
    label = int(np.argmax(network.evaluate(point)))
    return network, region, robustness(network, region, label, "runner-up").targets[0]


def test_a_thousand_variables_beat_the_other_bounds() -> None:
    network, region, target = wide_target(300, 6)
    presolved = presolve(network, region)
    relaxation = relax_reduced(reduce_objective(presolved, target.objectives[0]))
    assert relaxation.program.size > 1000
    # Three rounds, not seconds: the answer does not depend on the machine.
    found = solve_low_rank(relaxation.program, Deadline(None), rounds=3)
    bound = relaxation.bound(found.multipliers)
    interval = interval_proof(target, presolved.bounds[-1])[0]
    label = 1 - (target.rival or 0)
    linear = bnncert.bound(network, region, label, rivals="runner-up", method="lp").lower
    # Every point of the region is worth at least the bound.
    rng = np.random.default_rng(1)
    points = rng.uniform(region.lo, region.hi, size=(200, network.inputs))
    least = float(target.values(network.last_signs(points).astype(np.float64)).min())
    assert max(interval, linear) + 0.02 * spread(relaxation.problem) < bound <= least
