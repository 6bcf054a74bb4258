"""The structured solver: every iterate is a bound, and it stops when it is told to."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.deadline import Deadline
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import conic_program, relax_reduced
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.engine.solvers.structured import solve_structured
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    starting_point,
)
from tests.strategies import few

FEW = few(20)

Array = npt.NDArray[Any]

NEVER = Deadline(None)


def make(
    linear: Any, rows: Any = (), values: Any = (), conflicts: Any = (), gates: Any = ()
) -> ReducedProblem:
    """Return a problem over signs: tables phi(w.x), gates x_out = sign(w.x - p), and clashes.

    `values` maps the lattice -|w|, .., |w| to phi; gates are (w, p, out).
    """
    l = np.array(linear, dtype=np.float64)  # noqa: E741
    n = l.size

    def reach(row: Any) -> int:
        return int(np.abs(row).sum())

    def padded(lists: list[Array]) -> Array:
        width = max((v.size for v in lists), default=1)
        return np.array([np.pad(v, (0, width - v.size), mode="edge") for v in lists]).reshape(
            len(lists), width
        )

    points = [np.arange(-reach(w), reach(w) + 1, 2.0) for w in rows]
    gate_points = [np.arange(-reach(w), reach(w) + 1, 2.0) for w, _, _ in gates]
    signs = [np.where(u >= p, 1.0, -1.0) for u, (_, p, _) in zip(gate_points, gates, strict=True)]
    pairs = np.array(conflicts, dtype=np.int64).reshape(len(conflicts), 2)
    return ReducedProblem(
        variables=np.arange(n),
        constant=0.0,
        slack=0.0,
        linear=l,
        table=Lattice(
            np.array(rows, dtype=np.float64).reshape(len(rows), n),
            padded(points),
        ),
        values=padded([np.array(v, dtype=np.float64) for v in values]),
        gates=Lattice(
            np.array([w for w, _, _ in gates], dtype=np.float64).reshape(len(gates), n),
            padded(gate_points),
        ),
        gate_signs=padded(signs),
        outputs=np.array([out for _, _, out in gates], dtype=np.int64),
        pair_first=pairs[:, 0],
        pair_second=pairs[:, 1],
    )


def true_minimum(problem: ReducedProblem) -> float:
    """Return the minimum over all signs that respect gates and clashes (inf if none do)."""
    best = np.inf
    for signs in product((1.0, -1.0), repeat=problem.size):
        x = np.array(signs)

        def holds(literal: int, x: Array = x) -> bool:
            return bool(x[literal // 2] == 1 - 2 * (literal % 2))

        pairs = zip(problem.pair_first.tolist(), problem.pair_second.tolist(), strict=True)
        if any(holds(a) and holds(b) for a, b in pairs):
            continue
        gates = zip(
            problem.gates.rows @ x,
            problem.gates.points,
            problem.gate_signs,
            problem.outputs.tolist(),
            strict=True,
        )
        if any(s[int(np.argmax(p == u))] != x[out] for u, p, s, out in gates):
            continue
        value = float(problem.linear @ x)
        for u, p, v in zip(
            problem.table.rows @ x, problem.table.points, problem.values, strict=True
        ):
            value += float(v[int(np.argmax(p == u))])
        best = min(best, value)
    return best


@st.composite
def problems(draw: st.DrawFn) -> ReducedProblem:
    """Random problems of up to five signs, satisfiable or not."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 5))
    linear = rng.integers(-2, 3, n)
    rows = [r for r in rng.integers(-1, 2, (draw(st.integers(0, 4)), n)) if np.any(r)]
    values = [rng.integers(-3, 4, int(np.abs(r).sum()) + 1) for r in rows]
    gates = []
    if n > 2 and draw(st.booleans()):
        w = rng.integers(-1, 2, n)
        w[-1] = 0
        gates = [(w, int(rng.integers(-1, 2)), n - 1)] if np.any(w) else []
    conflicts = [
        (2 * a + rng.integers(2), 2 * b + rng.integers(2))
        for a, b in (
            rng.choice(n, 2, replace=False) for _ in range(draw(st.integers(0, 4))) if n > 1
        )
    ]
    return make(linear, rows, values, conflicts, gates)


def optimum(program: StructuredProgram) -> float:
    """Return the value that Clarabel finds."""
    conic = conic_program(program)
    answer = ClarabelSolver().solve(conic, NEVER)
    assert answer.status in ("solved", "inaccurate")
    return -float(conic.cost @ answer.primal)


def is_dual_feasible(program: StructuredProgram, y: StructuredMultipliers) -> bool:
    """Check every slack and T >= 0, in the conic form of the same program."""
    conic = conic_program(program)
    flat = np.concatenate([*(t.ravel() for t in y.theta), y.kappa, y.pi])
    slack = conic.right - conic.matrix @ flat
    size = program.size
    form = np.zeros((size, size))
    lower = np.tril_indices(size)
    form[lower] = slack[conic.nonnegative :] / np.where(lower[0] == lower[1], 1.0, np.sqrt(2.0))
    form = form + form.T - np.diag(np.diag(form))
    least = min(float(slack[: conic.nonnegative].min(initial=0.0)), np.linalg.eigvalsh(form)[0])
    return bool(least >= -1e-9 * (1 + np.abs(flat).max(initial=0.0)))


# -- iterates ----------------------------------------------------------------------------------


@given(problem=problems())
@few(25)
def test_every_iterate_is_below_the_optimum_which_is_found(problem: ReducedProblem) -> None:
    relaxation = relax_reduced(problem)
    program = relaxation.program
    minimum = true_minimum(problem)
    assert is_dual_feasible(program, starting_point(program))
    solution = solve_structured(program, NEVER)
    assert len(solution.history) == solution.iterations + 1
    for line in solution.history:
        value = line.dual * relaxation.scale
        assert value <= minimum + 1e-6 * (1 + abs(value))
        assert line.gap > 0
    assert solution.dual == max(line.dual for line in solution.history)
    assert is_dual_feasible(program, solution.multipliers)
    assert relaxation.bound(solution.multipliers) <= minimum
    if minimum < np.inf:
        value = optimum(program)
        assert abs(solution.dual - value) <= 1e-4 * (1 + abs(value))
        assert all(line.dual <= value + 1e-5 * (1 + abs(value)) for line in solution.history)


@given(problem=problems(), limit=st.integers(0, 6))
@FEW
def test_the_iteration_limit_holds(problem: ReducedProblem, limit: int) -> None:
    relaxation = relax_reduced(problem)
    solution = solve_structured(relaxation.program, NEVER, iterations=limit)
    assert solution.iterations <= limit
    if solution.iterations < limit:
        assert solution.status in ("optimal", "stalled")
    assert is_dual_feasible(relaxation.program, solution.multipliers)
    lower = relaxation.bound(solution.multipliers)
    assert np.isfinite(lower) and lower <= true_minimum(problem)


# -- stopping ----------------------------------------------------------------------------------


def hard_problem(n: int, seed: int = 0) -> ReducedProblem:
    rng = np.random.default_rng(seed)
    rows = rng.choice([-1, 1], (2 * n, n))
    values = [np.cumsum(rng.integers(-2, 3, n + 1)) for _ in range(2 * n)]
    return make(rng.integers(-2, 3, n), rows, values)


def test_it_stops_above() -> None:
    program = relax_reduced(hard_problem(6)).program
    whole = solve_structured(program, NEVER)
    assert whole.status == "optimal"
    above = whole.dual - 1.0
    solution = solve_structured(program, NEVER, above=above)
    assert solution.status == "above"
    assert solution.dual > above and solution.iterations < whole.iterations
    assert all(line.dual <= above for line in solution.history[:-1])
    never = solve_structured(program, NEVER, above=whole.dual + 1.0)
    assert never.status == "optimal"


def test_it_stops_below() -> None:
    program = relax_reduced(hard_problem(6)).program
    whole = solve_structured(program, NEVER)
    below = whole.primal + 1.0
    solution = solve_structured(program, NEVER, below=below)
    assert solution.status == "below"
    assert solution.primal < below and solution.iterations < whole.iterations
    assert solution.history[-1].infeasibility < 1e-5
    # A pseudo-moment that misses the equations decides nothing: the optimum is indeed lower.
    assert whole.dual < below
    assert solve_structured(program, NEVER, below=whole.dual - 1.0).status == "optimal"


@given(seed=st.integers(0, 10**6), shift=st.sampled_from([-2.0, -0.1, 0.1, 2.0]))
@few(15)
def test_above_and_below_decide_what_the_optimum_decides(seed: int, shift: float) -> None:
    program = relax_reduced(hard_problem(4, seed)).program
    whole = solve_structured(program, NEVER)
    goal = whole.dual + shift
    solution = solve_structured(program, NEVER, above=goal, below=goal)
    assert solution.status == ("above" if shift < 0 else "below")


def test_a_wide_gap_is_reached_sooner() -> None:
    program = relax_reduced(hard_problem(6)).program
    fine, rough = solve_structured(program, NEVER), solve_structured(program, NEVER, gap=0.5)
    assert rough.status == "optimal"
    assert rough.iterations < fine.iterations
    assert fine.dual - 0.6 <= rough.dual <= fine.dual + 1e-5


@given(seed=st.integers(0, 10**6))
@few(15)
def test_it_stops_where_nothing_between_both_values_matters(seed: int) -> None:
    program = relax_reduced(hard_problem(4, seed)).program
    whole = solve_structured(program, NEVER)

    def settled(dual: float, primal: float) -> bool:
        return bool(np.ceil(dual - 1e-3) >= np.ceil(primal))

    solution = solve_structured(program, NEVER, settled=settled)
    assert solution.status == "optimal"
    assert solution.iterations <= whole.iterations
    # Rounded up, the bound is what the optimum is.
    assert np.ceil(solution.dual) == np.ceil(whole.dual - 1e-5)


def test_a_deadline_that_has_passed_stops_it_at_its_first_point() -> None:
    problem = hard_problem(6)
    relaxation = relax_reduced(problem)
    solution = solve_structured(relaxation.program, Deadline(1e-9))
    assert solution.status == "interrupted" and solution.iterations == 0
    lower = relaxation.bound(solution.multipliers)
    assert np.isfinite(lower) and lower <= true_minimum(problem)


def test_the_clock_is_looked_at_in_every_iteration() -> None:
    class Clock:
        """Passes after three looks."""

        looks = 0

        def elapsed(self) -> float:
            return 0.0

        def passed(self) -> bool:
            self.looks += 1
            return self.looks > 3

        def remaining(self) -> float:
            return 1.0

        def extended(self, seconds: float) -> Deadline:
            return NEVER

    program = relax_reduced(hard_problem(6)).program
    solution = solve_structured(program, Clock())  # type: ignore[arg-type]
    assert solution.status == "interrupted" and solution.iterations == 3


def test_a_step_that_would_end_too_late_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    program = relax_reduced(hard_problem(6)).program
    monkeypatch.setattr("bnncert.engine.solvers.structured.FLOPS", 1e-3)
    solution = solve_structured(program, Deadline(60.0))
    assert solution.status == "interrupted" and solution.iterations == 0
    assert is_dual_feasible(program, solution.multipliers)


# -- warm start --------------------------------------------------------------------------------


@given(problem=problems(), before=st.integers(1, 5))
@FEW
def test_it_goes_on_from_given_multipliers(problem: ReducedProblem, before: int) -> None:
    relaxation = relax_reduced(problem)
    program = relaxation.program
    first = solve_structured(program, NEVER, iterations=before)
    kept = StructuredMultipliers(
        [t.copy() for t in first.multipliers.theta],
        first.multipliers.kappa.copy(),
        first.multipliers.pi.copy(),
    )
    again = solve_structured(program, NEVER, start=first.multipliers)
    # Never worse than where it began, and what it began from is untouched.
    assert again.dual >= first.dual - 1e-9 * (1 + abs(first.dual))
    for a, b in zip(kept.theta, first.multipliers.theta, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(kept.kappa, first.multipliers.kappa)
    assert is_dual_feasible(program, again.multipliers)
    assert relaxation.bound(again.multipliers) <= true_minimum(problem)


def test_it_goes_on_from_given_moments_to_the_same_optimum() -> None:
    program = relax_reduced(hard_problem(5)).program
    whole = solve_structured(program, NEVER)
    part = solve_structured(program, NEVER, iterations=4)
    moments = part.moments.copy()
    again = solve_structured(program, NEVER, start=part.multipliers, moments=part.moments)
    assert again.dual == pytest.approx(whole.dual, abs=1e-4 * (1 + abs(whole.dual)))
    np.testing.assert_array_equal(moments, part.moments)


def test_an_infeasible_start_is_no_bound() -> None:
    problem = hard_problem(4)
    relaxation = relax_reduced(problem)
    start = starting_point(relaxation.program)
    start.kappa = start.kappa + 1e3
    solution = solve_structured(relaxation.program, NEVER, start=start)
    assert solution.status == "stalled" and solution.dual == -np.inf
    assert relaxation.bound(solution.multipliers) <= true_minimum(problem)


# -- degenerate programs -----------------------------------------------------------------------

CHAIN = [(0, 3), (1, 2), (2, 5), (3, 4)]  # x_0 = x_1 = x_2

DEGENERATE = {
    "nothing at all": make([]),
    "one variable": make([2.0]),
    "one variable without weight": make([0.0]),
    "no tables": make([1.0, -1.0, 2.0]),
    "no tables, one clash": make([1.0, 1.0], conflicts=[(1, 3)]),
    "one table of one sign": make([0.0], [[1]], [[3.0, -1.0]]),
    "a constant table": make([0.0, 1.0], [[1, 1]], [[2.0, 2.0, 2.0]]),
    "a table without entries": make([1.0], [[0]], [[5.0]]),
    "the same table twice": make([0.0] * 3, [[1, 1, 1]] * 2, [[1.0, 0, 0, -1.0]] * 2),
    "huge values": make([1e6, -1e6], [[1, 1]], [[1e6, -1e6, 3e5]]),
    "tiny values": make([1e-9, -1e-9], [[1, 1]], [[1e-9, 0.0, -1e-9]]),
    "a chain of equal signs": make([1.0, -3.0, 1.0], conflicts=CHAIN),
    "a chain with a table": make([1.0, 0, 0], [[1, 1, 1]], [[0.0, -5.0, -5.0, 1.0]], CHAIN),
    "a sign that is fixed": make([1.0, 2.0], conflicts=[(1, 2), (1, 3)]),
    "the same clash twice": make([1.0, 1.0], conflicts=[(1, 3), (1, 3), (3, 1)]),
    "no sign is left": make([1.0, 1.0], conflicts=[(0, 2), (0, 3), (1, 2), (1, 3)]),
    "a gate of one sign": make([0.0, 1.0], gates=[([1, 0], 0, 1)]),
    "a gate that is always on": make([1.0, 1.0], gates=[([1, 0], -1, 1)]),
    "a chain of gates": make([1.0, 1, -2], gates=[([1, 0, 0], 0, 1), ([0, 1, 0], 0, 2)]),
    "gates and clashes": make([1.0, 1, 1], gates=[([1, 1, 0], 0, 2)], conflicts=[(0, 2), (1, 3)]),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_programs_are_solved(name: str) -> None:
    problem = DEGENERATE[name]
    relaxation = relax_reduced(problem)
    minimum = true_minimum(problem)
    for limit in (0, 1, 5, 60):
        solution = solve_structured(relaxation.program, NEVER, iterations=limit)
        lower = relaxation.bound(solution.multipliers)
        assert np.isfinite(lower) and lower <= minimum
    # All of these relaxations are tight.
    if np.isfinite(minimum):
        size = max(relaxation.scale, abs(minimum))
        assert lower == pytest.approx(minimum, abs=1e-3 * size)


# -- a shared multiplier -----------------------------------------------------------------------


@pytest.mark.parametrize("shared", [0, 1, 2, 3])
def test_a_shared_diagonal_bounds_a_sum_of_squares(shared: int) -> None:
    """min l.y with y_i^2 <= 1 each, but sum y_i^2 <= k for the last k of them."""
    linear = np.array([0.0, 2.0, 3.0, 4.0])
    nothing = np.zeros(0, dtype=np.int64)
    program = StructuredProgram(
        linear, np.zeros((0, 4)), (), nothing, np.zeros(0), nothing, nothing, shared
    )
    single, last = linear[: 4 - shared], linear[4 - shared :]
    wanted = -float(np.abs(single).sum() + np.sqrt(shared) * np.linalg.norm(last))
    solution = solve_structured(program, NEVER, tolerance=1e-9)
    assert solution.status == "optimal"
    assert program.unknowns == 4 - max(shared - 1, 0)
    assert solution.dual == pytest.approx(wanted, abs=1e-6)
    assert optimum(program) == pytest.approx(wanted, abs=1e-5)
    assert np.unique(solution.multipliers.kappa[4 - shared :]).size == min(shared, 1)
    assert float(solution.moments.trace()) == pytest.approx(4.0, abs=1e-6)


def test_a_step_that_takes_longer_than_expected_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline passes in the first step: the point before it is returned, with its bound."""
    program = relax_reduced(make([1.0, 1.0, -1.0], [[1, 1, 1]], [[0.0, 1.0, 2.0, 3.0]])).program
    clock = iter(range(1000))
    deadline = Deadline(6.0, 0.0)
    monkeypatch.setattr("bnncert.deadline.time.monotonic", lambda: float(next(clock)))
    found = solve_structured(program, deadline)
    assert found.status == "interrupted"
    assert found.iterations == 0
    assert next(clock) < 12
    start = starting_point(program)
    for a, b in zip(found.multipliers.theta, start.theta, strict=True):
        np.testing.assert_array_equal(a, b)
