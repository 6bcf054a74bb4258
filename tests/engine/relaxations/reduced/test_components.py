"""Connected components of a reduced problem: their bounds add up to that of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.components import (
    Component,
    ComponentAnswer,
    components,
    join,
    labels,
    split_bound,
)
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.patterns import consistent_patterns, starting_moments
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.solvers.structured import solve_structured
from bnncert.problem import robustness
from tests.brute_force import TinyNetwork, true_margins
from tests.engine.relaxations.reduced.test_relaxation import cube, objectives, open_networks
from tests.strategies import few

FEW = few(15)

Array = npt.NDArray[Any]

NEVER = Deadline(None)


def window_rows(length: int, channels: int, inputs: int, width: int, rng: Any) -> Array:
    """Return a 1-D convolution without padding as a matrix."""
    kernel = rng.choice([-1.0, 1.0], size=(channels, inputs, width))
    out = length - width + 1
    rows = np.zeros((channels, out, inputs, length))
    for o in range(out):
        rows[:, o, :, o : o + width] = kernel
    return rows.reshape(channels * out, inputs * length)


def window_problem(
    length: int, radius: float, *, channels: int = 4, depth: int = 2, seed: int = 1
) -> ReducedProblem:
    """Return what is left of a 1-D convolutional network on an L-inf ball."""
    rng = np.random.default_rng(seed)
    weights, biases = [], []
    size, inputs = length, 1
    for number in range(depth):
        weights.append(window_rows(size, channels, inputs, 3, rng))
        size, inputs = size - 2, channels
        loose = rng.uniform(-0.5, 0.5, channels * size)
        even = np.repeat(rng.integers(-1, 2, channels), size).astype(np.float64)
        biases.append(even if number else loose)
    weights.append(rng.choice([-1.0, 1.0], size=(2, channels * size)))
    biases.append(np.zeros(2))
    network = bnncert.Network.from_arrays(weights, biases)
    point = rng.uniform(-1, 1, length)
    region = bnncert.Ball("linf", point, radius, -1.0, 1.0)
    label = int(np.argmax(network.evaluate(point)))
    target = robustness(network, region, label, "runner-up").targets[0]
    presolved = presolve(network, region)
    return reduce_objective(presolved, target.objectives[0], triples=presolved.triples)


def solve(problem: ReducedProblem, last: bool) -> ComponentAnswer:
    relaxation = relax_reduced(problem)
    moments, probabilities = starting_moments(problem)
    found = solve_structured(
        relaxation.program, NEVER, moments=moments, probabilities=probabilities
    )
    primal = found.primal * relaxation.scale + problem.constant - problem.slack
    return ComponentAnswer(relaxation.dual_point(found.multipliers), found.moments, primal)


def value(problem: ReducedProblem, signs: Array) -> Array:
    """Return f at rows of sign vectors that lie on every lattice."""
    total = problem.constant + signs @ problem.linear
    for row, points, phi in zip(
        problem.table.rows, problem.table.points, problem.values, strict=True
    ):
        u = signs @ row
        total = total + phi[np.argmin(np.abs(u[:, None] - points), axis=1)]
    return np.asarray(total)


def random_dual_point(problem: ReducedProblem, rng: Any) -> DualPoint:
    tables, gates = problem.table.rows.shape[0], problem.gates.rows.shape[0]
    table, gate = rng.normal(size=(tables, 2)), rng.normal(size=(gates, 4))
    diagonal, pair = rng.normal(size=problem.size + 1), rng.normal(size=problem.pair_first.size)
    return DualPoint(table, gate, diagonal, pair)


def check_partition(problem: ReducedProblem, parts: list[Component]) -> None:
    for name, count in (
        ("variables", problem.size),
        ("tables", problem.table.rows.shape[0]),
        ("gates", problem.gates.rows.shape[0]),
        ("pairs", problem.pair_first.size),
    ):
        held = np.concatenate([getattr(p, name) for p in parts])
        np.testing.assert_array_equal(np.sort(held), np.arange(count))
    sizes = [p.variables.size for p in parts]
    assert sizes == sorted(sizes)


CASES = [(30, 0.05, 2), (30, 0.1, 2), (40, 0.1, 2), (24, 0.05, 3), (40, 0.05, 3)]


@pytest.mark.parametrize(("length", "radius", "depth"), CASES)
def test_the_parts_hold_everything_once_and_add_up(length: int, radius: float, depth: int) -> None:
    problem = window_problem(length, radius, depth=depth)
    parts = components(problem)
    assert len(parts) > 1
    check_partition(problem, parts)
    signs = consistent_patterns(problem, np.random.default_rng(0), 50).astype(np.float64)
    total = sum(value(p.problem, signs[:, p.variables]) for p in parts)
    np.testing.assert_allclose(total, value(problem, signs), atol=1e-9)
    assert sum(p.problem.constant for p in parts) == problem.constant
    assert sum(p.problem.slack for p in parts) == problem.slack
    for part in parts:
        assert part.problem.size == 0 or np.unique(labels(part.problem)).size == 1
        np.testing.assert_array_equal(part.problem.variables, problem.variables[part.variables])


@pytest.mark.parametrize(("length", "radius", "depth"), CASES)
def test_the_bound_of_the_whole_is_the_sum(length: int, radius: float, depth: int) -> None:
    problem = window_problem(length, radius, depth=depth)
    whole = solve(problem, True)
    found = split_bound(problem, solve)
    assert found.parts > 1
    exact = whole.dual.bound(problem)
    assert found.lower == pytest.approx(exact, abs=1e-2)
    assert found.primal == pytest.approx(whole.primal, abs=1e-2)
    assert found.moments is not None
    np.testing.assert_allclose(np.diag(found.moments), 1.0, atol=1e-4)
    assert np.linalg.eigvalsh(found.moments)[0] > -1e-6


def test_any_certificates_join_without_loss() -> None:
    problem = window_problem(30, 0.1)
    parts = components(problem)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        duals = [random_dual_point(p.problem, rng) for p in parts]
        total = sum(d.bound(p.problem) for p, d in zip(parts, duals, strict=True))
        joined = join(problem, parts, duals).bound(problem)
        assert joined == pytest.approx(total, abs=1e-6 * abs(total))


@given(data=st.data())
@FEW
def test_split_bounds_never_exceed_the_minimum(data: st.DataObject) -> None:
    """Two networks side by side, so that there are at least two parts."""
    one = data.draw(open_networks(max_depth=3, sign_zeros=["plus"]))
    weights, biases = [], []
    for number, (w, b) in enumerate(zip(one.weights, one.biases, strict=True)):
        last = number == len(one.weights) - 1
        weights.append(np.hstack([w, w]) if last else np.kron(np.eye(2), w))
        biases.append(b if last else np.concatenate([b, b]))
    net = TinyNetwork(tuple(weights), tuple(biases), one.sign_zero)
    region = cube(net)
    doubled = TinyNetwork(one.weights, one.biases, one.sign_zero)
    # f of the pair is f + f - bias: its minimum is twice that of one, without the bias.
    bias = one.biases[-1]
    truth = true_margins(doubled, cube(one), 0)
    presolved = presolve(net.build(), region)
    for objective, rival in objectives(net, region):
        problem = reduce_objective(presolved, objective)
        found = split_bound(problem, solve)
        least = 2 * float(truth[rival]) - float(bias[0] - bias[rival])
        assert found.lower <= least + 1e-9
        whole = solve(problem, True).dual.bound(problem)
        assert found.lower == pytest.approx(whole, abs=1e-3)


def test_a_dense_problem_is_one_part() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.choice([-1.0, 1.0], size=s) for s in ((9, 6), (8, 9), (2, 8))]
    biases = [np.zeros(9), np.zeros(8), np.zeros(2)]
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Box(-np.ones(6), np.ones(6))
    target = robustness(network, region, 0, 1).targets[0]
    problem = reduce_objective(presolve(network, region), target.objectives[0])
    assert [p.problem for p in components(problem)] == [problem]


def test_an_empty_problem_is_one_part() -> None:
    problem = window_problem(8, 0.0)
    assert problem.size == 0
    parts = components(problem)
    assert len(parts) == 1
    assert split_bound(problem, solve).lower == pytest.approx(problem.constant)
