"""The reduced relaxation: valid, as strong as it says, and safe with any multipliers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import Presolved, presolve
from bnncert.engine.relaxations.reduced.lattice_cuts import add_cuts
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import (
    ReducedRelaxation,
    conic_program,
    multipliers_of,
    relax_reduced,
)
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, unpack
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.engine.solvers.structured import solve_structured
from bnncert.engine.solvers.structured_program import StructuredMultipliers
from bnncert.problem import Objective, robustness
from tests.brute_force import TinyNetwork, true_margins
from tests.engine.presolve.test_pipeline import reachable_patterns
from tests.strategies import NORMS, few, regions, tiny_networks

FEW = few(20)

Array = npt.NDArray[Any]

NEVER = Deadline(None)


@st.composite
def open_networks(
    draw: st.DrawFn, *, min_depth: int = 2, max_depth: int = 4, sign_zeros: Any = None
) -> TinyNetwork:
    """Networks whose first layer can have any pattern on the box [-1, 1]^n.

    Rows of the last layer repeat up to sign, so that tables have several members.
    """
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    depth = draw(st.integers(min_depth, max_depth))
    inputs = int(rng.integers(2, 5))
    sizes = [inputs, inputs, *(int(rng.integers(2, 6)) for _ in range(depth - 1)), 2]
    weights = [np.eye(inputs)]
    biases = [np.zeros(inputs)]
    for i in range(1, depth + 1):
        w = rng.integers(-1, 2, (sizes[i + 1], sizes[i]))
        if i == depth - 1:
            copies = w[rng.integers(0, 2, w.shape[0])] * rng.choice([-1, 1], (w.shape[0], 1))
            w = np.where(rng.random((w.shape[0], 1)) < 0.5, copies, w)
        weights.append(w.astype(np.float64))
        biases.append(rng.integers(-3, 4, sizes[i + 1]) / 2)
    zeros = sign_zeros or ["plus", "minus", "either"]
    return TinyNetwork(tuple(weights), tuple(biases), draw(st.sampled_from(zeros)))


def cube(net: TinyNetwork) -> bnncert.Region:
    n = net.weights[0].shape[1]
    return bnncert.Box(-np.ones(n), np.ones(n))


def objectives(net: TinyNetwork, region: bnncert.Region) -> Iterator[tuple[Objective, int]]:
    """Yield the margin of class 0 over every rival."""
    for target in robustness(net.build(), region, 0).targets:
        assert target.rival is not None
        yield target.objectives[0], target.rival


def reduced_problems(
    net: TinyNetwork, region: bnncert.Region
) -> Iterator[tuple[ReducedProblem, Fraction]]:
    """Yield the reduced problem of every margin, and its true minimum."""
    presolved = presolve(net.build(), region)
    truth = true_margins(net, region, 0)
    for objective, rival in objectives(net, region):
        yield reduce_objective(presolved, objective), truth[rival]


def any_case(data: st.DataObject) -> tuple[TinyNetwork, bnncert.Region]:
    """Draw a network with common ties on any polyhedral region, or a deep one on a cube."""
    if data.draw(st.booleans()):
        net = data.draw(open_networks())
        return net, cube(net)
    return data.draw(tiny_networks(max_depth=4)), data.draw(
        regions(data.draw(st.sampled_from(NORMS)))
    )


def solved_value(problem: ReducedProblem) -> tuple[ReducedRelaxation, StructuredMultipliers, float]:
    """Return the relaxation, its multipliers and its value in the units of f."""
    relaxation = relax_reduced(problem)
    solution = solve_structured(relaxation.program, NEVER, tolerance=1e-8)
    value = solution.dual * relaxation.scale + problem.constant
    return relaxation, solution.multipliers, value


# -- bounds ------------------------------------------------------------------------------------


@given(data=st.data(), kind=st.sampled_from([*NORMS, "l2"]))
@few(20)
def test_the_bound_is_below_the_minimum(data: st.DataObject, kind: str) -> None:
    net = data.draw(tiny_networks(exact_ties=kind != "l2", max_depth=4))
    region = data.draw(regions(kind))
    truth = true_margins(net, region, 0)
    for rounds in (None, 2):
        options = Options(cut_rounds=rounds)
        result = bnncert.bound(net.build(), region, 0, method="sdp", options=options)
        for target in result.targets:
            assert target.rival is not None
            assert np.isfinite(target.lower)
            assert target.lower <= truth[target.rival] <= target.upper


@given(net=open_networks(min_depth=1))
@FEW
def test_the_bound_is_below_the_minimum_of_open_networks(net: TinyNetwork) -> None:
    region = cube(net)
    truth = true_margins(net, region, 0)
    lowest = []
    for rounds in (0, 2):
        options = Options(cut_rounds=rounds)
        result = bnncert.bound(net.build(), region, 0, method="sdp", options=options)
        (target,) = result.targets
        assert np.isfinite(target.lower)
        assert target.lower <= truth[1]
        lowest.append(target.lower)
    assert lowest[1] >= lowest[0]
    interval = bnncert.bound(net.build(), region, 0, method="interval").targets[0].lower
    assert lowest[0] >= interval


@given(data=st.data())
@FEW
def test_clarabel_finds_the_same_value(data: st.DataObject) -> None:
    net, region = any_case(data)
    for problem, minimum in reduced_problems(net, region):
        relaxation = relax_reduced(problem)
        program = relaxation.program
        ours = solve_structured(program, NEVER)
        theirs = ClarabelSolver().solve(conic_program(program), NEVER)
        assert theirs.status in ("solved", "inaccurate")
        value = -float(conic_program(program).cost @ theirs.primal)
        assert abs(ours.dual - value) <= 1e-3 * (1 + abs(value))
        for multipliers in (ours.multipliers, multipliers_of(program, theirs.primal)):
            lower = relaxation.bound(multipliers)
            assert lower <= minimum
            # The certified bound is what the solvers promised, up to their accuracy.
            promised = value * relaxation.scale + problem.constant
            assert lower >= promised - 1e-3 * relaxation.scale * (1 + abs(value))


# -- strength ----------------------------------------------------------------------------------


class Explicit:
    """A small program over moments of z = (1, x_1, .., x_n) and further unknowns, for Clarabel."""

    def __init__(self, size: int, more: int) -> None:
        self.size = size
        i, j = np.tril_indices(size)
        self.place = np.full((size, size), -1)
        off = np.flatnonzero(i != j)
        self.place[i[off], j[off]] = self.place[j[off], i[off]] = np.arange(off.size)
        self.more = off.size
        self.columns = off.size + more
        self.rows: list[Array] = []
        self.right: list[float] = []

    def moment(self, i: int, j: int) -> tuple[Array, float]:
        """Return M_ij as a row and a constant: the diagonal is 1."""
        row = np.zeros(self.columns)
        if i == j:
            return row, 1.0
        row[self.place[i, j]] = 1.0
        return row, 0.0

    def product(self, a: Array, b: Array) -> tuple[Array, float]:
        """Return E[(a.z)(b.z)]."""
        row, constant = np.zeros(self.columns), 0.0
        for i, j in product(np.flatnonzero(a).tolist(), np.flatnonzero(b).tolist()):
            part, one = self.moment(i, j)
            row += a[i] * b[j] * part
            constant += a[i] * b[j] * one
        return row, constant

    def at_least_zero(self, row: Array, constant: float) -> None:
        self.rows.append(-row)
        self.right.append(constant)

    def zero(self, row: Array, constant: float) -> None:
        self.at_least_zero(row, constant)
        self.at_least_zero(-row, -constant)

    def minimum(self, cost: Array) -> float:
        i, j = np.tril_indices(self.size)
        block = np.zeros((i.size, self.columns))
        for k, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
            if a != b:
                block[k, self.place[a, b]] = -np.sqrt(2.0)
        matrix = np.vstack([*self.rows, block]) if self.rows else block
        right = np.concatenate([self.right, (i == j).astype(np.float64)])
        program = ConicProgram(cost, sp.csr_array(matrix), right, len(self.rows), (self.size,))
        answer = ClarabelSolver().solve(program, NEVER)
        assert answer.status in ("solved", "inaccurate"), answer.status
        assert residual(program, answer) < 1e-5
        return float(cost @ answer.primal)


def residual(program: ConicProgram, answer: ConicSolution) -> float:
    """Return by how much a solution misses the cone or the equations of the dual."""
    slack = program.right - program.matrix @ answer.primal
    worst = float(np.maximum(-slack[: program.nonnegative], 0.0).max(initial=0.0))
    for n, rows in zip(program.blocks, program.block_rows(), strict=True):
        worst = max(worst, -float(np.linalg.eigvalsh(unpack(slack[rows], n))[0]))
    missing = np.abs(program.matrix.T @ answer.dual + program.cost)
    return max(worst, float(missing.max(initial=0.0)))


def last_neurons(net: TinyNetwork) -> tuple[float, list[tuple[Array, int, int, int, float]]]:
    """Return the fixed part of f and (w, reach, p, q, d) of the open neurons of layer 2.

    x = +1 needs u >= p and x = -1 needs u <= q; both from the raw data.
    """
    d = net.weights[2][0] - net.weights[2][1]
    constant = float(net.biases[2][0] - net.biases[2][1])
    out = []
    for w, b, c in zip(net.weights[1], net.biases[1], d, strict=True):
        reach = int(np.abs(w).sum())
        lattice = range(-reach, reach + 1, 2)
        zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[net.sign_zero]
        plus = [u for u in lattice if u + b > 0 or (u + b == 0 and 1 in zero)]
        minus = [u for u in lattice if u + b < 0 or (u + b == 0 and -1 in zero)]
        if not plus or not minus:
            constant += float(c if plus else -c)
        elif c:
            out.append((w, reach, min(plus), max(minus), float(c)))
    return constant, out


def unreduced_value(net: TinyNetwork) -> float:
    """Moments of (1, x_1, x_2) with the four inequalities of every neuron of layer 2."""
    constant, neurons = last_neurons(net)
    n = net.weights[0].shape[0]
    program = Explicit(1 + n + len(neurons), 0)
    cost = np.zeros(program.columns)
    for k, (w, reach, p, q, d) in enumerate(neurons):
        one, u, x = np.zeros((3, program.size))
        one[0], x[1 + n + k] = 1.0, 1.0
        u[1 : 1 + n] = w
        program.at_least_zero(*program.product(one + x, u - p * one))
        program.at_least_zero(*program.product(one - x, q * one - u))
        program.at_least_zero(*program.product(one + x, reach * one - u))
        program.at_least_zero(*program.product(one - x, reach * one + u))
        cost += d * program.moment(0, 1 + n + k)[0]
    return constant + (program.minimum(cost) if neurons else 0.0)


def explicit_table_value(net: TinyNetwork) -> float:
    """Moments of (1, x_1) and a distribution on the lattice for every row of layer 2 up to sign."""
    constant, neurons = last_neurons(net)
    n = net.weights[0].shape[0]
    groups: dict[tuple[float, ...], tuple[Array, Array]] = {}
    for w, reach, p, q, d in neurons:
        flip = -1 if tuple(w) < tuple(-w) else 1
        points = np.arange(-reach, reach + 1, 2)
        u = flip * points
        phi = np.where(u >= p, np.where(u <= q, -abs(d), d), -d)
        old = groups.get(tuple(flip * w), (points, np.zeros(points.size)))
        groups[tuple(flip * w)] = (points, old[1] + phi)
    program = Explicit(1 + n, sum(points.size for points, _ in groups.values()))
    cost = np.zeros(program.columns)
    start = program.more
    one = np.zeros(1 + n)
    one[0] = 1.0
    for w, (points, phi) in groups.items():
        mass = slice(start, start + points.size)
        start = mass.stop
        cost[mass] = phi
        row = np.zeros(1 + n)
        row[1:] = w
        for power, (moment, shift) in enumerate(
            (program.product(one, one), program.product(one, row), program.product(row, row))
        ):
            equation = -moment
            equation[mass] += points.astype(np.float64) ** power
            program.zero(equation, -shift)
        for k in range(mass.start, mass.stop):
            unit = np.zeros(program.columns)
            unit[k] = 1.0
            program.at_least_zero(unit, 0.0)
    return constant + (program.minimum(cost) if groups else 0.0)


@given(net=open_networks(max_depth=2))
@few(20)
def test_tables_eliminate_the_last_layer_exactly(net: TinyNetwork) -> None:
    """They are at least as strong as the program with that layer."""
    ((problem, minimum),) = reduced_problems(net, cube(net))
    assert problem.pair_first.size == 0
    _, _, value = solved_value(problem)
    unreduced, explicit = unreduced_value(net), explicit_table_value(net)
    assert value >= unreduced - 1e-4 * (1 + abs(unreduced))
    assert value <= minimum + Fraction(1e-4) * (1 + abs(minimum))
    assert abs(value - explicit) <= 1e-4 * (1 + abs(explicit))


def test_tables_are_stronger_where_equal_neurons_cancel() -> None:
    """x_1 - x_2 of two equal neurons is 0, which the moments of both do not know."""
    net = TinyNetwork(
        (np.eye(3), np.ones((2, 3)), np.array([[-1.0, 1.0], [0.0, 0.0]])),
        (np.zeros(3), np.array([2.0, 2.0]), np.array([0.5, 0.0])),
        "plus",
    )
    ((problem, minimum),) = reduced_problems(net, cube(net))
    _, _, value = solved_value(problem)
    assert minimum == Fraction(1, 2)
    assert value == pytest.approx(0.5, abs=1e-5)
    assert value > unreduced_value(net) + 1.0


# -- any multipliers ---------------------------------------------------------------------------


def disturbed(
    multipliers: StructuredMultipliers,
    rng: np.random.Generator,
    scale: float,
    special: float | None,
) -> StructuredMultipliers:
    def change(array: Array) -> Array:
        moved = array + scale * rng.standard_normal(array.shape)
        if special is not None and moved.size:
            moved.ravel()[rng.integers(moved.size)] = special
        return np.asarray(moved)

    return StructuredMultipliers(
        [change(t) for t in multipliers.theta], change(multipliers.kappa), change(multipliers.pi)
    )


@given(
    data=st.data(),
    exponent=st.integers(-6, 3),
    special=st.sampled_from([None, None, None, np.nan, np.inf, -np.inf]),
    seed=st.integers(0, 10**6),
)
@few(20)
def test_wrong_multipliers_never_give_a_wrong_bound(
    data: st.DataObject, exponent: int, special: float | None, seed: int
) -> None:
    net, region = any_case(data)
    rng = np.random.default_rng(seed)
    for problem, minimum in reduced_problems(net, region):
        relaxation, multipliers, _ = solved_value(problem)
        for _ in range(3):
            wrong = disturbed(multipliers, rng, 10.0**exponent, special)
            lower = relaxation.bound(wrong)
            assert lower <= minimum
            if special is not None:
                assert lower == -np.inf


@given(data=st.data(), size=st.sampled_from([1e100, 1e200, 1e307]), seed=st.integers(0, 10**6))
@FEW
def test_multipliers_that_overflow_prove_nothing(
    data: st.DataObject, size: float, seed: int
) -> None:
    net, region = any_case(data)
    rng = np.random.default_rng(seed)
    for problem, minimum in reduced_problems(net, region):
        relaxation, multipliers, _ = solved_value(problem)
        wrong = disturbed(multipliers, rng, 0.0, None)
        parts = [p for p in (*wrong.theta, wrong.kappa, wrong.pi) if p.size]
        part = parts[rng.integers(len(parts))]
        part += size * rng.choice([-9, 9], part.shape)
        with np.errstate(all="ignore"):
            assert relaxation.bound(wrong) <= minimum


def test_pair_multipliers_that_overflow_prove_nothing() -> None:
    # x_0 = sign(x - 1), x_1 = sign(x), x_2 = sign(x + 1): each implies the next.
    net = TinyNetwork(
        (np.ones((3, 1)), np.array([[1.0, -1.0, 1.0], [0.0, 0.0, 0.0]])),
        (np.array([-1.0, 0.0, 1.0]), np.zeros(2)),
        "plus",
    )
    ((problem, minimum),) = reduced_problems(net, bnncert.Box([-2], [2]))
    assert problem.pair_first.size == 3
    relaxation = relax_reduced(problem)
    nothing = solve_structured(relaxation.program, NEVER).multipliers
    wrong = StructuredMultipliers(
        nothing.theta, np.zeros_like(nothing.kappa), np.full(3, 1.5e308 / relaxation.scale)
    )
    with np.errstate(all="ignore"):
        assert relaxation.bound(wrong) <= minimum


@given(data=st.data(), iterations=st.sampled_from([0, 1, 2]))
@FEW
def test_a_solver_stopped_early_gives_a_bound(data: st.DataObject, iterations: int) -> None:
    net, region = any_case(data)
    for problem, minimum in reduced_problems(net, region):
        relaxation = relax_reduced(problem)
        solution = solve_structured(relaxation.program, NEVER, iterations=iterations)
        lower = relaxation.bound(solution.multipliers)
        assert np.isfinite(lower)
        assert lower <= minimum
        # Dual feasible multipliers prove their value.
        value = solution.dual * relaxation.scale + problem.constant
        assert lower >= value - 1e-6 * relaxation.scale * (1 + abs(solution.dual)) - problem.slack


# -- cuts --------------------------------------------------------------------------------------


def at_patterns(presolved: Presolved, problem: ReducedProblem, patterns: list[Any]) -> Array:
    """Return the values of the problem's variables, a row for each pattern."""
    columns = [
        [p[presolved.owner_layer[v]][presolved.owner[v]] for p in patterns]
        for v in problem.variables.tolist()
    ]
    return np.array(columns, dtype=np.float64).reshape(problem.size, len(patterns)).T


@given(data=st.data(), seed=st.integers(0, 10**6))
@FEW
def test_cuts_hold_at_every_reachable_pattern(data: st.DataObject, seed: int) -> None:
    """Whatever moments ask for them."""
    net, region = any_case(data)
    rng = np.random.default_rng(seed)
    presolved = presolve(net.build(), region)
    patterns = list(reachable_patterns(net, region))
    for objective, _ in objectives(net, region):
        problem = reduce_objective(presolved, objective)
        x = at_patterns(presolved, problem, patterns)
        moments = rng.uniform(-1.5, 1.5, (problem.size + 1, problem.size + 1))
        moments += moments.T
        old = problem.table.rows.shape[0]
        most = int(rng.integers(1, 40))
        cut, added = add_cuts(problem, moments, most)
        assert added == cut.table.rows.shape[0] - old <= most
        assert np.all(cut.values[old:] == 0)
        np.testing.assert_array_equal(cut.table.rows[:old], problem.table.rows)
        for row, points in zip(cut.table.rows, cut.table.points, strict=True):
            assert set((x @ row).tolist()) <= set(points.tolist())
            assert np.all(np.diff(points) >= 0)


@given(net=open_networks())
@FEW
def test_cuts_never_lower_the_bound(net: TinyNetwork) -> None:
    ((problem, minimum),) = reduced_problems(net, cube(net))
    relaxation = relax_reduced(problem)
    solution = solve_structured(relaxation.program, NEVER, tolerance=1e-8)
    before = relaxation.bound(solution.multipliers)
    for _ in range(2):
        problem, added = add_cuts(problem, solution.moments, 3 * problem.size)
        if not added:
            break
        relaxation = relax_reduced(problem)
        solution = solve_structured(relaxation.program, NEVER, tolerance=1e-8)
        after = relaxation.bound(solution.multipliers)
        assert after >= before - 1e-4 * (1 + abs(before))
        assert after <= minimum
        before = max(before, after)


def test_a_triangle_inequality_is_found() -> None:
    """With all correlations -1/2 three signs would disagree pairwise: one cut forbids it."""
    net = TinyNetwork(
        (np.eye(3), np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1]]), np.array([[1.0] * 3, [0] * 3])),
        (np.zeros(3), np.zeros(3), np.zeros(2)),
        "plus",
    )
    ((problem, _),) = reduced_problems(net, cube(net))
    moments = np.full((4, 4), -0.5)
    moments[0] = moments[:, 0] = 0.0
    np.fill_diagonal(moments, 1.0)
    cut, added = add_cuts(problem, moments, 1)
    assert added == 1
    assert np.abs(cut.table.rows[-1]).tolist() == [1.0, 1.0, 1.0]


# -- tables ------------------------------------------------------------------------------------


@given(data=st.data())
@few(20)
def test_tables_and_gates_describe_every_reachable_pattern(data: st.DataObject) -> None:
    net, region = any_case(data)
    presolved = presolve(net.build(), region)
    patterns = list(reachable_patterns(net, region))
    for objective, _ in objectives(net, region):
        problem = reduce_objective(presolved, objective)
        x = at_patterns(presolved, problem, patterns)
        total = problem.constant + x @ problem.linear
        table = problem.table
        for row, points, values in zip(table.rows, table.points, problem.values, strict=True):
            assert np.all(np.diff(points) >= 0)
            assert np.all(np.diff(values)[np.diff(points) == 0] == 0)
            phi = dict(zip(points.tolist(), values.tolist(), strict=True))
            total = total + np.array([phi[u] for u in (x @ row).tolist()])
        for value, pattern in zip(total.tolist(), patterns, strict=True):
            f = objective.exactly(np.array(pattern[-1], dtype=np.int8))
            slack = Fraction(problem.slack)
            assert Fraction(value) <= f + slack
            if net.sign_zero != "either":
                assert Fraction(value) >= f - slack
        for j, out in enumerate(problem.outputs.tolist()):
            points, signs = problem.gates.points[j], problem.gate_signs[j]
            listed = set(zip(points.tolist(), signs.tolist(), strict=True))
            u = x @ problem.gates.rows[j]
            assert set(zip(u.tolist(), x[:, out].tolist(), strict=True)) <= listed
        first, second = problem.pair_first, problem.pair_second
        left = x[:, first // 2] == 1 - 2 * (first % 2)
        assert not np.any(left & (x[:, second // 2] == 1 - 2 * (second % 2)))


@given(net=open_networks(max_depth=2, sign_zeros=["plus", "minus"]))
@FEW
def test_rows_up_to_sign_are_one_table(net: TinyNetwork) -> None:
    presolved = presolve(net.build(), cube(net))
    for objective, _ in objectives(net, cube(net)):
        problem = reduce_objective(presolved, objective)
        rows = [tuple(row) for row in problem.table.rows.tolist()]
        flipped = [tuple(-v for v in row) for row in rows]
        assert len({*rows, *flipped}) == 2 * len(rows)
        wanted = net.weights[1][np.flatnonzero(objective.coefficients)]
        open_ = np.flatnonzero(presolved.layers[-1].bounds.state[objective.coefficients != 0] == 0)
        keys = {max(tuple(w), tuple(-w)) for w in wanted[open_][:, presolved.owner]}
        assume(len(problem.variables) == net.weights[0].shape[0])
        assert {max(r, f) for r, f in zip(rows, flipped, strict=True)} == keys


def test_opposite_neurons_cancel() -> None:
    # sign(u) and sign(-u - 1) of an odd u are opposite: with equal weights f is constant.
    net = TinyNetwork(
        (np.eye(3), np.array([[1.0, 1, 1], [-1, -1, -1]]), np.array([[1.0, 1.0], [0.0, 0.0]])),
        (np.zeros(3), np.array([0.0, 0.0]), np.array([0.5, 0.0])),
        "plus",
    )
    ((problem, minimum),) = reduced_problems(net, cube(net))
    assert minimum == Fraction(1, 2)
    assert problem.table.rows.shape[0] == 1
    assert problem.values.tolist() == [[0.0] * 4]
    assert bnncert.bound(net.build(), cube(net), 0, method="sdp").targets[0].lower == 0.5
