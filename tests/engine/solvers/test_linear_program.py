"""Dual bounds: valid for any multipliers, in rationals, and tight for the optimal ones."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from bnncert.regions.linear_program import LinearProgram
from tests.strategies import few

CASES = few(25)

Array = npt.NDArray[Any]


def random_program(rng: np.random.Generator) -> tuple[LinearProgram, Array]:
    """Return a feasible program and a point that satisfies it."""
    n, m = int(rng.integers(1, 7)), int(rng.integers(0, 6))
    lower = rng.normal(size=n) - rng.uniform(0, 2, n)
    upper = lower + rng.choice([0.0, 1.0, 3.0], n)
    point = rng.uniform(lower, upper)
    matrix = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-2, 3, (m, 1))
    matrix[rng.uniform(size=(m, n)) < 0.3] = 0.0
    value = matrix @ point
    row_lower = value - rng.uniform(1e-9, 2, m)
    row_upper = value + rng.uniform(1e-9, 2, m)
    row_lower[rng.uniform(size=m) < 0.3] = -np.inf
    row_upper[rng.uniform(size=m) < 0.3] = np.inf
    program = LinearProgram(
        cost=rng.normal(size=n),
        matrix=sp.csr_array(matrix),
        row_lower=row_lower,
        row_upper=row_upper,
        lower=lower,
        upper=upper,
        integer=np.zeros(n, dtype=bool),
        offset=float(rng.normal()),
    )
    return program, point


def exact_bound(program: LinearProgram, multipliers: Array) -> Fraction:
    """Return min over the box of c.z + y.(row - A z), with the best row, in rationals."""
    total = Fraction(program.offset)
    reduced = [Fraction(c) for c in program.cost.tolist()]
    dense = program.matrix.toarray().tolist()
    for i, y in enumerate(multipliers.tolist()):
        side = program.row_lower[i] if y > 0 else program.row_upper[i]
        if y == 0 or not math.isfinite(y) or not math.isfinite(side):
            continue
        total += Fraction(y) * Fraction(float(side))
        reduced = [d - Fraction(y) * Fraction(a) for d, a in zip(reduced, dense[i], strict=True)]
    for d, lo, hi in zip(reduced, program.lower.tolist(), program.upper.tolist(), strict=True):
        total += min(d * Fraction(lo), d * Fraction(hi))
    return total


def scipy_solution(program: LinearProgram) -> tuple[float, Array]:
    """Return the optimum and the multipliers of the rows."""
    dense = program.matrix.toarray()
    above, below = np.isfinite(program.row_upper), np.isfinite(program.row_lower)
    found = linprog(
        program.cost,
        A_ub=np.vstack([dense[above], -dense[below]]),
        b_ub=np.concatenate([program.row_upper[above], -program.row_lower[below]]),
        bounds=np.column_stack([program.lower, program.upper]),
    )
    assert found.status == 0
    multipliers = np.zeros(dense.shape[0])
    multipliers[above] += found.ineqlin.marginals[: int(above.sum())]
    multipliers[below] -= found.ineqlin.marginals[int(above.sum()) :]
    return float(found.fun) + program.offset, multipliers


@CASES
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_any_multipliers_give_a_lower_bound(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    program, point = random_program(rng)
    optimum, _ = scipy_solution(program)
    value = Fraction(program.offset) + sum(
        Fraction(c) * Fraction(z)
        for c, z in zip(program.cost.tolist(), point.tolist(), strict=True)
    )
    for _ in range(5):
        y = scale * rng.normal(size=program.row_lower.size)
        y[rng.uniform(size=y.size) < 0.2] = rng.choice([0.0, np.nan, np.inf, -np.inf])
        bound = program.dual_bound(y)
        assert bound <= optimum + 1e-7 * (1 + abs(optimum))
        exact = exact_bound(program, y)
        assert exact <= value
        # Rounding is on the safe side, and small.
        assert Fraction(bound) <= exact
        reach = np.maximum(np.abs(program.lower), np.abs(program.upper))
        finite = np.where(np.isfinite(y), np.abs(y), 0.0)
        size = 1 + float((np.abs(program.cost) + abs(program.matrix).T @ finite) @ reach)
        sides = np.where(np.isfinite(program.row_lower), np.abs(program.row_lower), 0.0)
        sides += np.where(np.isfinite(program.row_upper), np.abs(program.row_upper), 0.0)
        assert exact - Fraction(bound) <= Fraction(1e-13 * (size + float(finite @ sides)) + 1e-13)


@CASES
@given(seed=st.integers(0, 10**6))
def test_optimal_multipliers_give_the_optimum(seed: int) -> None:
    program, _ = random_program(np.random.default_rng(seed))
    optimum, multipliers = scipy_solution(program)
    assert program.dual_bound(multipliers) == pytest.approx(optimum, rel=1e-7, abs=1e-7)


def test_without_rows_the_bound_is_the_cheapest_corner() -> None:
    program = LinearProgram(
        cost=np.array([1.0, -2.0, 0.0]),
        matrix=sp.csr_array((0, 3)),
        row_lower=np.zeros(0),
        row_upper=np.zeros(0),
        lower=np.array([-1.0, 0.0, 5.0]),
        upper=np.array([1.0, 3.0, 6.0]),
        integer=np.zeros(3, dtype=bool),
        offset=0.5,
    )
    bound = program.dual_bound(np.zeros(0))
    assert -6.5 - 1e-12 < bound <= -6.5


def test_multipliers_of_an_infeasible_program_prove_it() -> None:
    # x >= 1 and x <= 0 as rows, on the box [-5, 5]: the bound grows with the multipliers.
    program = LinearProgram(
        cost=np.zeros(1),
        matrix=sp.csr_array(np.array([[1.0], [1.0]])),
        row_lower=np.array([1.0, -np.inf]),
        row_upper=np.array([np.inf, 0.0]),
        lower=np.array([-5.0]),
        upper=np.array([5.0]),
        integer=np.zeros(1, dtype=bool),
    )
    assert program.dual_bound(np.array([1e3, -1e3])) == pytest.approx(1e3)
    # Multipliers of the wrong sign are dropped, not misused.
    assert -1e-300 <= program.dual_bound(np.array([-1e3, 1e3])) <= 0
