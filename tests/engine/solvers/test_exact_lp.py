"""Exact linear programs against the enumeration of all vertices in rationals."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from bnncert.deadline import Deadline
from bnncert.engine.reachability.polyhedron import Bound, ExactOptimum, ExactProgram, solve_exactly

Plane = tuple[list[Fraction], Fraction]


def planes(program: ExactProgram) -> Iterator[Plane]:
    n = len(program.cost)
    for j in range(n):
        unit = [Fraction(int(k == j)) for k in range(n)]
        yield unit, program.lower[j]
        yield unit, program.upper[j]
    for row, lo, hi in zip(program.rows, program.row_lower, program.row_upper, strict=True):
        dense = [row.get(k, Fraction(0)) for k in range(n)]
        for side in (lo, hi):
            if side is not None:
                yield dense, side


def solve(system: tuple[Plane, ...]) -> list[Fraction] | None:
    """Gauss-Jordan elimination; None if the planes do not meet in one point."""
    rows = [[*a, b] for a, b in system]
    n = len(rows)
    for k in range(n):
        pivot = next((r for r in range(k, n) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for r in range(n):
            if r != k and rows[r][k]:
                rows[r] = [v - rows[r][k] * w for v, w in zip(rows[r], rows[k], strict=True)]
    return [row[-1] for row in rows]


def is_feasible(program: ExactProgram, z: list[Fraction]) -> bool:
    if not all(a <= v <= b for a, v, b in zip(program.lower, z, program.upper, strict=True)):
        return False
    for row, lo, hi in zip(program.rows, program.row_lower, program.row_upper, strict=True):
        value = sum((c * z[j] for j, c in row.items()), Fraction(0))
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            return False
    return True


def cost_of(program: ExactProgram, z: list[Fraction]) -> Fraction:
    return sum((c * v for c, v in zip(program.cost, z, strict=True)), Fraction(0))


def enumerated_optimum(program: ExactProgram) -> Fraction | None:
    """Return the optimum over all vertices, or None if there is no feasible one."""
    best: Fraction | None = None
    for system in combinations(set_of(planes(program)), len(program.cost)):
        z = solve(system)
        if z is not None and is_feasible(program, z):
            value = cost_of(program, z)
            best = value if best is None else min(best, value)
    return best


def set_of(found: Iterator[Plane]) -> list[Plane]:
    unique = {(tuple(a), b): (a, b) for a, b in found if any(a)}
    return list(unique.values())


def random_program(rng: np.random.Generator, kind: str) -> ExactProgram:
    n, m = int(rng.integers(1, 4)), int(rng.integers(0, 4))
    if kind == "degenerate":
        # Few small integers: many vertices with too many planes, many optima.
        def number() -> Fraction:
            return Fraction(int(rng.integers(-1, 2)))
    elif kind == "rational":

        def number() -> Fraction:
            return Fraction(int(rng.integers(-7, 8)), int(rng.integers(1, 8)))
    else:

        def number() -> Fraction:
            return Fraction(float(rng.normal()))

    lower = [number() - 1 for _ in range(n)]
    upper = [a + abs(number()) for a in lower]
    rows, row_lower, row_upper = [], [], []
    for _ in range(m):
        row = {j: number() for j in range(n)}
        rows.append({j: c for j, c in row.items() if c})
        side, shape = number(), int(rng.integers(0, 4))
        low: Bound = None if shape == 0 else side
        high: Bound = None if shape == 1 else side if shape == 2 else side + abs(number())
        row_lower.append(low)
        row_upper.append(high)
    return ExactProgram([number() for _ in range(n)], rows, row_lower, row_upper, lower, upper)


def assert_proved(program: ExactProgram, optimum: ExactOptimum) -> None:
    """Check that the multipliers bound the program from below by its value."""
    bound = Fraction(0)
    reduced = list(program.cost)
    for i, y in enumerate(optimum.multipliers):
        if y:
            side = program.row_lower[i] if y > 0 else program.row_upper[i]
            assert side is not None
            bound += y * side
            for j, c in program.rows[i].items():
                reduced[j] -= y * c
    for d, lo, hi in zip(reduced, program.lower, program.upper, strict=True):
        bound += min(d * lo, d * hi)
    assert bound == optimum.value


@pytest.mark.parametrize("kind", ["degenerate", "rational", "float"])
def test_optimum_is_that_of_the_best_vertex(kind: str) -> None:
    rng = np.random.default_rng(11)
    solvable = solved = 0
    for _ in range(250):
        program = random_program(rng, kind)
        expected = enumerated_optimum(program)
        found = solve_exactly(program, Deadline(10))
        if expected is None:
            assert found is None
            continue
        solvable += 1
        if found is not None:
            solved += 1
            assert found.value == expected
            point = list(found.point)
            assert is_feasible(program, point)
            assert cost_of(program, point) == expected
            assert_proved(program, found)
    assert solvable > 100
    assert solved >= 0.95 * solvable


def test_differences_far_below_float_precision_are_kept() -> None:
    # 3 x >= 1 + 10^-40 on [0, 1].
    tiny, one = Fraction(1, 10**40), Fraction(1)
    program = ExactProgram(
        cost=[one],
        rows=[{0: 3 * one}],
        row_lower=[one + tiny],
        row_upper=[None],
        lower=[Fraction(0)],
        upper=[one],
    )
    found = solve_exactly(program, Deadline(10))
    assert found is not None
    assert found.value == (1 + tiny) / 3
    assert found.multipliers == (Fraction(1, 3),)


def test_infeasible_by_less_than_a_float_tolerance_is_not_called_optimal() -> None:
    one = Fraction(1)
    program = ExactProgram(
        cost=[one],
        rows=[{0: one}],
        row_lower=[one + Fraction(1, 10**12)],
        row_upper=[None],
        lower=[Fraction(0)],
        upper=[one],
    )
    assert solve_exactly(program, Deadline(10)) is None


def test_a_program_without_rows_ends_in_a_corner() -> None:
    program = ExactProgram(
        cost=[Fraction(1, 3), Fraction(-1, 7), Fraction(0)],
        rows=[],
        row_lower=[],
        row_upper=[],
        lower=[Fraction(-1, 3)] * 3,
        upper=[Fraction(1, 7)] * 3,
    )
    found = solve_exactly(program, Deadline(10))
    assert found is not None
    assert found.value == Fraction(-1, 9) - Fraction(1, 49)


def test_a_passed_deadline_leaves_the_program_open() -> None:
    program = ExactProgram([Fraction(1)], [], [], [], [Fraction(0)], [Fraction(1)])
    assert solve_exactly(program, Deadline(1e-9)) is None
