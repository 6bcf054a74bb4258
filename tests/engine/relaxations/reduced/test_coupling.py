"""The input as variables: valid for any multipliers, never weaker, stronger where it matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import Presolved, presolve
from bnncert.engine.relaxations.reduced import coupling as coupling_module
from bnncert.engine.relaxations.reduced.coupling import Coupling, couple
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import (
    conic_program,
    multipliers_of,
    relax_reduced,
)
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.engine.solvers.structured import solve_structured
from bnncert.engine.solvers.structured_program import StructuredMultipliers
from bnncert.problem import robustness
from tests.brute_force import TinyNetwork, true_margins
from tests.strategies import few, regions, tiny_networks

FEW = few(10)

Array = npt.NDArray[Any]

NEVER = Deadline(None)

KINDS = ("linf", "box", "l2", "l1", "polytope")


@st.composite
def real_networks(draw: st.DrawFn) -> TinyNetwork:
    """Networks with three or four real first-layer rows in the plane, open around the origin."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    depth = draw(st.integers(1, 3))
    sizes = [2, *(int(rng.integers(3, 5)) for _ in range(depth)), 2]
    weights = [rng.standard_normal((sizes[1], 2))]
    biases = [0.3 * rng.standard_normal(sizes[1])]
    for i in range(1, depth + 1):
        weights.append(rng.integers(-1, 2, (sizes[i + 1], sizes[i])).astype(np.float64))
        biases.append(rng.integers(-3, 4, sizes[i + 1]) / 2)
    return TinyNetwork(tuple(weights), tuple(biases), "plus")


def any_case(data: st.DataObject) -> tuple[TinyNetwork, bnncert.Region]:
    """Draw a network with ties, or one with real rows, on a region of any kind."""
    kind = data.draw(st.sampled_from(KINDS))
    if data.draw(st.booleans()):
        net = data.draw(tiny_networks(exact_ties=kind != "l2"))
        return net, data.draw(regions(kind))
    net = data.draw(real_networks())
    if kind == "box":
        return net, bnncert.Box([-1.0, -0.7], [0.9, 1.2])
    if kind == "polytope":
        return net, bnncert.Polytope([[1.0, 1.0], [-1.0, 2.0]], [0.9, 0.8], [-1, -1], [1, 1])
    clip = data.draw(st.sampled_from([None, 0.6]))
    low = None if clip is None else -clip
    return net, bnncert.Ball(kind, [0.1, -0.2], 0.75, low, clip)  # type: ignore[arg-type]


def ellipsoid(
    presolved: Presolved, variables: IntArray, weights: FloatArray | None = None
) -> Coupling | None:
    """Return the coupling with an ellipsoid for every box."""
    with mock.patch.object(coupling_module, "MOST_DIRECTIONS", 0):
        return couple(presolved, variables, weights)


def coupled_problems(
    net: TinyNetwork, region: bnncert.Region, seed: int = 0
) -> Iterator[tuple[ReducedProblem, ReducedProblem, Fraction]]:
    """Yield every margin's problem without and with its input, and its true minimum.

    A box comes once with a variable for every direction and once in a random ellipsoid.
    """
    rng = np.random.default_rng(seed)
    presolved = presolve(net.build(), region)
    truth = true_margins(net, region, 0)
    for target in robustness(net.build(), region, 0).targets:
        assert target.rival is not None
        problem = reduce_objective(presolved, target.objectives[0])
        found = [couple(presolved, problem.variables), ellipsoid(presolved, problem.variables)]
        if found[1] is not None and found[1].weights.size:
            weights = rng.uniform(0.1, 2.0, found[1].weights.size)
            found.append(ellipsoid(presolved, problem.variables, weights))
        for coupling in found:
            if coupling is not None:
                yield problem, replace(problem, coupling=coupling), truth[target.rival]


def solved(problem: ReducedProblem) -> tuple[float, StructuredMultipliers, float]:
    """Return the proved bound, the multipliers and the value in the units of f."""
    relaxation = relax_reduced(problem)
    moments, probabilities = starting_moments(problem)
    solution = solve_structured(
        relaxation.program, NEVER, tolerance=1e-8, moments=moments, probabilities=probabilities
    )
    value = solution.dual * relaxation.scale + problem.constant
    return relaxation.bound(solution.multipliers), solution.multipliers, value


# -- bounds ------------------------------------------------------------------------------------


@given(data=st.data())
@few(20)
def test_the_bound_is_below_the_minimum(data: st.DataObject) -> None:
    net, region = any_case(data)
    truth = true_margins(net, region, 0)
    lowest: dict[str, list[float]] = {}
    for coupling in ("off", "on", "auto"):
        options = Options(coupling=coupling)  # type: ignore[arg-type]
        result = bnncert.bound(net.build(), region, 0, method="sdp", options=options)
        for target in result.targets:
            assert target.rival is not None
            assert np.isfinite(target.lower) and target.lower <= truth[target.rival]
        lowest[coupling] = [t.lower for t in result.targets]
    for off, on, auto in zip(lowest["off"], lowest["on"], lowest["auto"], strict=True):
        assert on >= off - 1e-3 * (1 + abs(off))
        assert auto >= off


@given(data=st.data(), seed=st.integers(0, 10**6))
@FEW
def test_coupling_never_lowers_the_value(data: st.DataObject, seed: int) -> None:
    net, region = any_case(data)
    for plain, coupled, minimum in coupled_problems(net, region, seed):
        _, _, before = solved(plain)
        lower, _, after = solved(coupled)
        assert lower <= minimum
        assert after >= before - 1e-4 * (1 + abs(before))
        # The certified bound is what the solver promised, up to its accuracy.
        assert lower >= after - 1e-4 * (1 + abs(after))


@given(data=st.data(), exponent=st.integers(-6, 3), seed=st.integers(0, 10**6))
@FEW
def test_wrong_multipliers_never_give_a_wrong_bound(
    data: st.DataObject, exponent: int, seed: int
) -> None:
    net, region = any_case(data)
    rng = np.random.default_rng(seed)

    def change(array: Array, special: float | None) -> Array:
        moved = array + 10.0**exponent * rng.standard_normal(array.shape)
        if special is not None and moved.size:
            moved.ravel()[rng.integers(moved.size)] = special
        return np.asarray(moved)

    for _, coupled, minimum in coupled_problems(net, region, seed):
        _, multipliers, _ = solved(coupled)
        for special in (None, None, np.nan, np.inf):
            wrong = StructuredMultipliers(
                [change(t, special) for t in multipliers.theta],
                change(multipliers.kappa, special),
                change(multipliers.pi, special),
            )
            lower = relax_reduced(coupled).bound(wrong)
            assert lower <= minimum
            assert special is None or lower == -np.inf


@given(data=st.data(), iterations=st.integers(0, 4))
@FEW
def test_a_solver_stopped_early_gives_a_bound(data: st.DataObject, iterations: int) -> None:
    net, region = any_case(data)
    for _, coupled, minimum in coupled_problems(net, region):
        relaxation = relax_reduced(coupled)
        solution = solve_structured(relaxation.program, NEVER, iterations=iterations)
        lower = relaxation.bound(solution.multipliers)
        assert np.isfinite(lower) and lower <= minimum


@given(data=st.data(), seed=st.integers(0, 10**6))
@FEW
def test_clarabel_finds_the_same_value(data: st.DataObject, seed: int) -> None:
    net, region = any_case(data)
    for _, coupled, minimum in coupled_problems(net, region, seed):
        relaxation = relax_reduced(coupled)
        conic = conic_program(relaxation.program)
        assert conic.cost.size == relaxation.program.unknowns + sum(
            t.count for t in relaxation.program.tables
        )
        answer = ClarabelSolver().solve(conic, NEVER)
        assert answer.status in ("solved", "inaccurate")
        theirs = -float(conic.cost @ answer.primal) * relaxation.scale + coupled.constant
        _, _, ours = solved(coupled)
        assert ours == pytest.approx(theirs, abs=1e-4 * (1 + abs(theirs)))
        lower = relaxation.bound(multipliers_of(relaxation.program, answer.primal))
        assert theirs - 1e-4 * (1 + abs(theirs)) <= lower <= minimum


# -- strength ----------------------------------------------------------------------------------

#: The rows add up to 0, so u_1 + u_2 + u_3 = 0: no two clash, but not all three are above 0.1.
STAR = TinyNetwork(
    (np.array([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]), np.array([[-1.0] * 3, [0.0] * 3])),
    (np.full(3, -0.1), np.array([2.75, 0.0])),
    "plus",
)

PLANE = {
    "box": bnncert.Box([-1, -1], [1, 1]),
    "linf": bnncert.Ball("linf", [0, 0], 1.0),
    "l2": bnncert.Ball("l2", [0, 0], 1.0),
    "l1": bnncert.Ball("l1", [0, 0], 1.0),
}


@pytest.mark.parametrize("kind", PLANE)
def test_three_signs_that_exclude_each_other_are_seen(kind: str) -> None:
    region = PLANE[kind]
    assert true_margins(STAR, region, 0)[1] == Fraction(7, 4)
    values = []
    for plain, coupled, _ in coupled_problems(STAR, region):
        assert plain.pair_first.size == 0
        assert solved(plain)[2] == pytest.approx(-0.25, abs=1e-4)
        values.append(solved(coupled)[2])
    assert min(values) > 0
    lower = {
        c: bnncert.bound(STAR.build(), region, 0, options=Options(coupling=c)).targets[0].lower  # type: ignore[arg-type]
        for c in ("off", "on", "auto")
    }
    # f takes the values 2.75 - s with s in {-3, -1, 1, 3}: any gain rounds up to the next one.
    assert lower == {"off": -0.25, "on": 1.75, "auto": 1.75}


def test_verify_couples_where_the_sign_is_open() -> None:
    for coupling, status in (("off", "unknown"), ("on", "robust"), ("auto", "robust")):
        options = Options(coupling=coupling, cut_rounds=0)  # type: ignore[arg-type]
        result = bnncert.verify(STAR.build(), PLANE["l2"], 0, method="sdp", options=options)
        assert result.status == status
        stages = result.targets[0].details["rounds"]
        assert bool(stages[-1]["inputs"]) == (coupling != "off")
        assert ("before" in result.targets[0].details) == (coupling == "auto")


def test_auto_leaves_a_decided_sign_alone() -> None:
    bias = (STAR.biases[0], np.array([3.5, 0.0]))
    net = TinyNetwork(STAR.weights, bias, "plus")
    (target,) = bnncert.bound(net.build(), PLANE["l2"], 0).targets
    assert target.lower == 0.5
    assert [s["inputs"] for s in target.details["rounds"]] == [0]


def star_coupling(region: bnncert.Region, net: TinyNetwork = STAR) -> Coupling:
    presolved = presolve(net.build(), region)
    made = couple(presolved, np.arange(net.weights[0].shape[0]))
    assert made is not None
    return made


def test_the_best_ellipsoid_is_as_strong_as_the_box() -> None:
    """Weights that follow the moments come close to a multiplier for every input."""
    rng = np.random.default_rng(3)
    net = TinyNetwork(
        (rng.standard_normal((6, 12)), np.array([[-1.0, 1, 1, -1, -1, 1], [0.0] * 6])),
        (np.zeros(6), np.zeros(2)),
        "plus",
    )
    region = bnncert.Box(-rng.uniform(0.1, 2, 12), rng.uniform(0.1, 2, 12))
    presolved = presolve(net.build(), region)
    (target,) = robustness(net.build(), region, 0).targets
    problem = reduce_objective(presolved, target.objectives[0])
    exact = couple(presolved, problem.variables)
    assert exact is not None and not exact.is_ball and exact.size == 12
    _, _, goal = solved(replace(problem, coupling=exact))
    weights, values = None, []
    for _ in range(4):
        coupling = ellipsoid(presolved, problem.variables, weights)
        assert coupling is not None and coupling.is_ball and coupling.size == 6
        coupled = replace(problem, coupling=coupling)
        relaxation = relax_reduced(coupled)
        solution = solve_structured(relaxation.program, NEVER)
        values.append(solution.dual * relaxation.scale + problem.constant)
        weights = coupling.better_weights(solution.moments[7:, 7:])
    assert max(values) <= goal + 1e-4
    assert values[-1] >= goal - 0.1 * (goal - values[0]) - 1e-3


# -- geometry ----------------------------------------------------------------------------------


def test_parallel_columns_are_one_variable() -> None:
    net = TinyNetwork(
        (np.array([[1.0, -1, 0, 2, 1], [1.0, -1, 0, -2, 0]]), np.ones((2, 2))),
        (np.zeros(2), np.zeros(2)),
        "plus",
    )
    made = star_coupling(bnncert.Box([-1, -2, -1, -1, 5], [1, 2, 1, 1, 5]), net)
    # Columns 0 and 1 are opposite, 2 is empty and 4 cannot move: two directions are left.
    assert made.size == 2 and not made.is_ball and made.reach == 2.0
    np.testing.assert_allclose(np.sort(np.abs(made.rows), axis=1), [[2, 3], [2, 3]])
    assert star_coupling(bnncert.Box([0] * 5, [1] * 5), net).points.shape == (2, 4)


@pytest.mark.parametrize("kind", PLANE)
@pytest.mark.parametrize("most", [0, 9])
def test_points_of_the_region_lie_on_the_segments(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupling_module, "MOST_DIRECTIONS", most)
    region = PLANE[kind]
    made = star_coupling(region)
    layer = STAR.build().layers[0]
    points = region.sample(np.random.default_rng(0), 200)
    u = points @ layer.weights.toarray().T
    # Some y with R y = u exists within the bound of its squares.
    y = np.linalg.lstsq(made.rows, u.T, rcond=None)[0]
    np.testing.assert_allclose(made.rows @ y, u.T, atol=1e-12)
    squares = (y**2).sum(axis=0) / made.reach if made.is_ball else y**2
    assert squares.max() <= 1 + 1e-9
    plus = u + layer.bias >= 0
    low = np.where(plus, made.points[:, 2], made.points[:, 0])
    high = np.where(plus, made.points[:, 3], made.points[:, 1])
    assert np.all((low - 1e-12 <= u) & (u <= high + 1e-12))


def test_nothing_is_coupled_without_an_open_neuron() -> None:
    presolved = presolve(STAR.build(), PLANE["l2"])
    assert couple(presolved, np.zeros(0, dtype=np.int64)) is None
    tiny = TinyNetwork(
        (1e-80 * STAR.weights[0], STAR.weights[1]), (1e-80 * STAR.biases[0], STAR.biases[1]), "plus"
    )
    assert couple(presolve(tiny.build(), PLANE["box"]), np.arange(3)) is None
    (target,) = bnncert.bound(tiny.build(), PLANE["l2"], 0).targets
    assert target.lower == -0.25
