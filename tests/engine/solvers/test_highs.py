"""The HiGHS adapter: statuses, changes between solves, and time limits that hold."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from bnncert.deadline import Deadline
from bnncert.regions import Polytope
from bnncert.regions.linear_program import LEAVE_SECONDS, HighsModel, LinearMaxima, LinearProgram
from tests.clock import Clock

Array = npt.NDArray[Any]


def program(
    cost: Any,
    matrix: Any,
    row_lower: Any,
    row_upper: Any,
    bounds: tuple[float, float],
    *,
    integer: bool = False,
    offset: float = 0.0,
) -> LinearProgram:
    c = np.array(cost, dtype=np.float64)
    return LinearProgram(
        cost=c,
        matrix=sp.csr_array(np.array(matrix, dtype=np.float64).reshape(len(row_lower), c.size)),
        row_lower=np.array(row_lower, dtype=np.float64),
        row_upper=np.array(row_upper, dtype=np.float64),
        lower=np.full(c.size, bounds[0]),
        upper=np.full(c.size, bounds[1]),
        integer=np.full(c.size, integer),
        offset=offset,
    )


def market_split(rng: np.random.Generator) -> LinearProgram:
    """Return a small 0-1 program that takes branch and bound very long."""
    weights = rng.integers(0, 100, (5, 40))
    half = weights.sum(axis=1) // 2
    slack = np.vstack([np.eye(5), -np.eye(5)])
    rows = np.hstack([weights, slack[:5], slack[5:]])
    base = program(
        np.concatenate([np.zeros(40), np.ones(10)]), rows, half, half, (0, 1), integer=True
    )
    upper = base.upper.copy()
    upper[40:] = 1000
    kinds = base.integer.copy()
    kinds[40:] = False
    return LinearProgram(
        base.cost, base.matrix, base.row_lower, base.row_upper, base.lower, upper, kinds
    )


def test_linear_program_is_solved() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        cost, matrix = rng.normal(size=4), rng.normal(size=(3, 4))
        right = matrix @ rng.uniform(-1, 1, 4) + rng.uniform(0, 1, 3)
        lp = program(cost, matrix, np.full(3, -np.inf), right, (-1, 1), offset=2.5)
        found = HighsModel(lp).solve(Deadline(10))
        expected = linprog(cost, A_ub=matrix, b_ub=right, bounds=(-1, 1))
        assert found.status == "optimal"
        assert found.point is not None
        assert found.multipliers is not None
        assert cost @ found.point == pytest.approx(expected.fun, abs=1e-7)
        assert lp.dual_bound(found.multipliers) == pytest.approx(expected.fun + 2.5, abs=1e-6)


def test_integer_program_is_solved_with_its_bound() -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        cost, matrix = rng.normal(size=5), rng.normal(size=(3, 5))
        right = matrix @ rng.integers(-2, 3, 5) + rng.uniform(0, 1, 3)
        ip = program(cost, matrix, np.full(3, -np.inf), right, (-2, 2), integer=True, offset=-1.0)
        found = HighsModel(ip).solve(Deadline(10))
        expected = milp(
            cost,
            constraints=LinearConstraint(matrix, ub=right),
            bounds=Bounds(-2, 2),
            integrality=np.ones(5),
        )
        assert found.status == "optimal"
        assert found.point is not None
        assert found.multipliers is None
        np.testing.assert_allclose(found.point, np.rint(found.point), atol=1e-6)
        assert cost @ found.point == pytest.approx(expected.fun, abs=1e-6)
        assert found.dual_bound == pytest.approx(expected.fun - 1.0, abs=1e-3)


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("presolve", ["on", "off"])
def test_infeasible_programs_are_detected(integer: bool, presolve: str) -> None:
    # x + y >= 3 on [0, 1]^2; and x + y <= 1, x + y >= 1.5, which presolve alone need not see.
    for matrix, lower, upper in (
        ([[1, 1]], [3], [np.inf]),
        ([[1, 1], [1, 2], [2, 1]], [-np.inf, 1.9, 1.9], [1, np.inf, np.inf]),
    ):
        lp = program([1, 1], matrix, lower, upper, (0, 1), integer=integer)
        found = HighsModel(lp, {"presolve": presolve}).solve(Deadline(10))
        assert found.status == "infeasible"
        assert found.point is None


def test_integer_infeasibility_is_detected() -> None:
    # 2 x + 2 y = 3 has real solutions only.
    lp = program([0, 0], [[2, 2]], [3], [3], (0, 1))
    assert HighsModel(lp).solve(Deadline(10)).status == "optimal"
    ip = program([0, 0], [[2, 2]], [3], [3], (0, 1), integer=True)
    assert HighsModel(ip).solve(Deadline(10)).status == "infeasible"


def test_program_without_variables_is_its_offset() -> None:
    empty = program([], [], [], [], (0, 1), offset=3.0)
    found = HighsModel(empty).solve(Deadline(10))
    assert found.status == "optimal"
    assert found.point is not None
    assert found.point.size == 0


def test_cost_and_rows_can_change_between_solves() -> None:
    model = HighsModel(program([1.0, 1.0], [[1, 1]], [0.5], [np.inf], (0, 1)))
    first = model.solve(Deadline(10))
    assert first.point is not None
    assert first.point.sum() == pytest.approx(0.5)
    model.set_cost(np.array([-1.0, -2.0]), 0.0)
    second = model.solve(Deadline(10))
    assert second.point is not None
    np.testing.assert_allclose(second.point, [1, 1])
    model.add_row(-np.inf, 1.0, [0, 1], [1.0, 1.0])
    third = model.solve(Deadline(10))
    assert third.point is not None
    np.testing.assert_allclose(third.point, [0, 1], atol=1e-9)
    model.add_row(2.0, np.inf, [0], [1.0])
    assert model.solve(Deadline(10)).status == "infeasible"


def test_basis_names_the_free_columns_and_rows() -> None:
    # min -x with x + y <= 1 (tight) and x - y >= -5 (loose) on [0, 2]^2: x = 1, y = 0.
    lp = program([-1, 0.5], [[1, 1], [1, -1]], [-np.inf, -5], [1, np.inf], (0, 2))
    model = HighsModel(lp, {"presolve": "off", "solver": "simplex"})
    assert model.solve(Deadline(10)).status == "optimal"
    assert model.basis() == ([0], [1])


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_time_limit_is_respected(seconds: float) -> None:
    model = HighsModel(market_split(np.random.default_rng(2)))
    start = time.monotonic()
    found = model.solve(Deadline(seconds))
    assert found.status == "limit"
    assert time.monotonic() - start < seconds + 1.5
    # The objective is a sum of distances, so 0 is the best that can be known so early.
    assert found.dual_bound <= 1.0


def test_each_solve_of_a_model_gets_its_own_time() -> None:
    model = HighsModel(market_split(np.random.default_rng(3)))
    spent = []
    for _ in range(2):
        start = time.monotonic()
        assert model.solve(Deadline(0.4)).status == "limit"
        spent.append(time.monotonic() - start)
    assert all(0.2 < s < 2.0 for s in spent)


def test_a_passed_deadline_is_not_solved_at_all() -> None:
    deadline = Deadline(1e-6)
    time.sleep(0.01)
    found = HighsModel(market_split(np.random.default_rng(4))).solve(deadline)
    assert (found.status, found.point) == ("limit", None)
    assert found.dual_bound == -np.inf


def test_no_deadline_is_no_limit() -> None:
    lp = program([1.0], [[1.0]], [0.25], [np.inf], (0, 1))
    found = HighsModel(lp).solve(Deadline(None))
    assert found.status == "optimal"
    assert found.point is not None
    assert found.point[0] == pytest.approx(0.25)


def test_a_solve_that_ignores_its_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Deaf:
        """HiGHS in a phase in which it hears nothing."""

        calls: ClassVar[list[str]] = []

        def getRunTime(self) -> float:  # noqa: N802
            return 0.0

        def wait(self, seconds: float) -> tuple[bool, None]:
            clock.advance(seconds)
            return False, None

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self.calls.append(name)

    model = HighsModel(program([1.0], np.zeros((0, 1)), [], [], (0.0, 1.0), integer=True))
    model._highs = Deaf()
    started = clock.now
    answer = model.solve(Deadline(2.0))
    assert (answer.status, answer.point, answer.dual_bound) == ("limit", None, -np.inf)
    assert clock.now - started < 2.0 + LEAVE_SECONDS + 0.2
    assert "cancelSolve" in Deaf.calls
    # Its thread still works on the model, which is not touched again.
    Deaf.calls.clear()
    model.add_row(0.0, 1.0, [0], [1.0])
    model.set_cost(np.zeros(1), 0.0)
    assert model.solve(Deadline(None)).status == "limit"
    assert not Deaf.calls


def test_a_model_whose_last_solve_still_runs_is_not_solved_again() -> None:
    model = HighsModel(program([1.0], [[1.0]], [1.0], [2.0], (0.0, 3.0)))
    # As after a Ctrl-C that the solver did not obey within a second.
    model._highs.is_solver_running = lambda: True
    assert model.solve(Deadline()).status == "limit"
    del model._highs.is_solver_running
    assert model.solve(Deadline()).status == "limit"


# -- maxima over polytopes, against another program for linear programs ---------------------------


def dual_value(polytope: Polytope, v: np.ndarray, y: np.ndarray) -> float:
    """Return b.y + h_box(v - A'y)."""
    rest = v - y @ polytope.matrix
    return float(polytope.right @ y + np.maximum(rest * polytope.lo, rest * polytope.hi).sum())


@pytest.mark.parametrize("seed", range(6))
def test_points_and_multipliers_meet_at_the_maximum(seed: int) -> None:
    from scipy.optimize import linprog

    generator = np.random.default_rng(seed)
    m, n = generator.integers(1, 8), generator.integers(1, 12)
    matrix = generator.integers(-3, 4, size=(m, n)).astype(float)
    polytope = Polytope(matrix, generator.uniform(0.0, 3.0, m), -np.ones(n), np.full(n, 2.0))
    maxima = LinearMaxima(polytope.matrix, polytope.right, polytope.lo, polytope.hi)
    bounds = np.column_stack([polytope.lo, polytope.hi])
    directions = generator.normal(size=(20, n))
    for v in directions:
        other = linprog(-v, A_ub=matrix, b_ub=polytope.right, bounds=bounds, method="highs-ipm")
        point, multipliers = maxima.solve(v)
        assert point is not None
        assert np.all(matrix @ point <= polytope.right + 1e-7)
        assert np.all(multipliers >= 0)
        assert v @ point == pytest.approx(-other.fun, abs=1e-6)
        assert dual_value(polytope, v, multipliers) == pytest.approx(-other.fun, abs=1e-6)
    # The support function is an upper bound, and no looser than rounding.
    support = polytope.support(directions)
    best = [dual_value(polytope, v, maxima.solve(v)[1]) for v in directions]
    assert np.all(support >= np.array(best) - 1e-9)
    assert support == pytest.approx(best, abs=1e-6)


def test_what_has_no_solution_gives_no_point_and_valid_multipliers() -> None:
    one = np.ones((1, 1))
    # x <= -1 within [0, 1].
    point, multipliers = LinearMaxima(one, -np.ones(1), np.zeros(1), np.ones(1)).solve(np.ones(1))
    assert point is None
    assert multipliers.shape == (1,) and np.all(multipliers >= 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_multipliers_that_are_no_numbers_leave_the_box(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0], [0.0, 0.0], [1.0, 1.0])
    bad = (None, np.array([wrong]))
    monkeypatch.setattr(LinearMaxima, "solve", lambda self, v: bad)
    assert polytope.support(np.ones((1, 2))) == pytest.approx([2.0])


def test_no_directions_have_no_support() -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0], [0.0, 0.0], [1.0, 1.0])
    assert polytope.support(np.zeros((0, 2))).shape == (0,)
