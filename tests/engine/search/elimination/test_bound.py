"""Elimination of random tables and clauses against all patterns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.search.elimination import bound as orders
from bnncert.engine.search.elimination.bound import (
    MOST_AT_ONCE,
    EliminationLimits,
    columns,
    components,
    min_fill_order,
    minimise,
    neighbourhoods,
    prepare,
)
from bnncert.engine.search.elimination.buckets import (
    EXACT32,
    InexactTableError,
    Model,
    Table,
    float_type,
    make_plan,
)
from tests.strategies import few

FOREVER = Deadline(None)
ROOMY = EliminationLimits()


def random_model(rng: np.random.Generator, scale: int = 8) -> Model:
    """Return tables over at most 8 variables, some of them with infinite entries."""
    variables, objectives = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    tables = [Table((), rng.integers(-scale, scale, objectives).astype(float), 0)]
    for _ in range(int(rng.integers(1, 7))):
        count = int(rng.integers(1, min(variables, 4) + 1))
        scope = tuple(rng.permutation(variables)[:count].tolist())
        width = 1 if rng.random() < 0.2 else objectives
        values = rng.integers(-scale, scale + 1, (*(2,) * count, width))
        table = values.astype(float_type(scale))
        if width == 1:
            table[rng.random(table.shape) < 0.2] = np.inf
        tables.append(Table(scope, table, scale))
    used = sorted({v for table in tables for v in table.scope})
    clauses = []
    for _ in range(int(rng.integers(0, 6))):
        own = rng.permutation(used)[: int(rng.integers(1, 4))]
        clauses.append(np.asarray(2 * own + rng.integers(0, 2, own.size), dtype=np.int64))
    return Model(tuple(tables), tuple(clauses), objectives)


def value(model: Model, signs: dict[int, int]) -> np.ndarray:
    """Return the sum of all tables at a pattern, one clause at a time."""
    for clause in model.clauses:
        if all(signs[int(c) // 2] == (-1 if c % 2 else 1) for c in clause):
            return np.full(model.objectives, np.inf)
    total = np.zeros(model.objectives)
    for table in model.tables:
        total = total + table.values[tuple(int(signs[v] < 0) for v in table.scope)]
    return total


def brute_force(model: Model) -> np.ndarray:
    used = sorted({v for table in model.tables for v in table.scope})
    patterns = product((1, -1), repeat=len(used))
    values = [value(model, dict(zip(used, p, strict=True))) for p in patterns]
    return np.asarray(np.min(values, axis=0))


@given(seed=st.integers(0, 2**32), scale=st.sampled_from([8, 8, 2**20, 2**30]))
@few(20)
def test_the_minimum_is_that_of_all_patterns(seed: int, scale: int) -> None:
    model = random_model(np.random.default_rng(seed), scale)
    scopes = model.scopes()
    count = len(model.tables)
    prepared = prepare(scopes[:count], scopes[count:], model.objectives, ROOMY, FOREVER)
    assert prepared.plan.is_exact
    truth = brute_force(model)
    # With little memory the objectives come one by one.
    for limits in (ROOMY, EliminationLimits(memory=1e-12)):
        made = minimise(model, prepared.plan, limits, FOREVER)
        assert np.array_equal(made.values, truth)
        for k in np.flatnonzero(np.isfinite(truth)).tolist():
            signs = dict(zip(made.variables.tolist(), made.patterns[k].tolist(), strict=True))
            assert value(model, signs)[k] == truth[k]
    backwards = np.arange(model.objectives)[::-1]
    made = minimise(columns(model, backwards), prepared.plan, ROOMY, FOREVER)
    assert np.array_equal(made.values, truth[backwards])


def test_mini_buckets_are_lower_bounds() -> None:
    rng = np.random.default_rng(0)
    split, exact = 0, 0
    for _ in range(75):
        model = random_model(rng)
        scopes, count, truth = model.scopes(), len(model.tables), brute_force(model)
        order = sorted({v for scope in scopes for v in scope})
        for limit in (1, 2, 3):
            plan = make_plan(scopes[:count], scopes[count:], order, limit)
            made = minimise(model, plan, ROOMY, FOREVER)
            assert np.all(made.values <= truth)
            finite = made.values[np.isfinite(made.values)]
            assert np.array_equal(finite, np.rint(finite))
            split += not plan.is_exact
            exact += not plan.is_exact and np.array_equal(made.values, truth)
    assert split > 50
    # Moving costs between mini-buckets closes the gap in many cases.
    assert exact > split / 4


def random_scopes(count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(1)
    return [tuple(rng.choice(60, 3, replace=False).tolist()) for _ in range(count)]


def test_the_limits_choose_the_width() -> None:
    scopes, ample = random_scopes(70), EliminationLimits(memory=1e9, seconds=1e9)
    exact = prepare(scopes, [], 1, ample, FOREVER).plan
    assert exact.is_exact and exact.width > 12
    for limits in (EliminationLimits(memory=1e-4), EliminationLimits(seconds=0.01)):
        plan = prepare(scopes, [], 1, limits, FOREVER).plan
        assert limits.allow(plan, 1)
        assert not plan.is_exact and 2 <= plan.width < exact.width
    with pytest.raises(OutOfTimeError):
        prepare(scopes, [], 1, EliminationLimits(), Deadline(1e-9))


def test_no_message_is_so_large_that_a_deadline_is_missed() -> None:
    scopes, ample = random_scopes(110), EliminationLimits(memory=1e9, seconds=1e9)
    plan = prepare(scopes, [], 40, ample, FOREVER).plan
    assert not plan.is_exact
    assert 2**plan.width * ample.together(plan) <= MOST_AT_ONCE


def test_sums_that_floats_cannot_hold_are_refused() -> None:
    assert float_type(EXACT32 - 1) is np.float32
    assert float_type(EXACT32) is np.float64
    with pytest.raises(InexactTableError):
        float_type(2**53)


# -- orders of elimination: complete, of small width, and by component ----------------------------


def width_of(scopes: Sequence[tuple[int, ...]]) -> int:
    order = min_fill_order(neighbourhoods(scopes), FOREVER)
    return make_plan(scopes, [], order).width


def test_the_width_of_known_graphs() -> None:
    path = [(i, i + 1) for i in range(9)]
    assert width_of(path) == 1
    assert width_of([*path, (0, 9)]) == 2
    assert width_of([(i, j) for i, j in combinations(range(6), 2)]) == 5
    grid = [(5 * i + j, 5 * i + j + 1) for i in range(5) for j in range(4)]
    grid += [(5 * i + j, 5 * i + 5 + j) for i in range(4) for j in range(5)]
    assert width_of(grid) == 5


@pytest.mark.parametrize("most_filled", [0, 3, 40])
def test_an_order_has_every_variable_once(
    monkeypatch: pytest.MonkeyPatch, most_filled: int
) -> None:
    monkeypatch.setattr(orders, "MOST_FILLED", most_filled)
    rng = np.random.default_rng(most_filled)
    for _ in range(20):
        scopes = [tuple(rng.choice(15, 3, replace=False).tolist()) for _ in range(12)]
        near = neighbourhoods(scopes)
        assert sorted(min_fill_order(near, FOREVER)) == sorted(near)
        assert sorted(v for part in components(near) for v in part) == sorted(near)


def test_components_are_those_that_scopes_connect() -> None:
    near = neighbourhoods([(0, 1, 2), (2, 3), (7,), (5, 9)])
    assert components(near) == [[7], [5, 9], [0, 1, 2, 3]]


def test_an_order_ends_at_the_deadline() -> None:
    near = neighbourhoods([(i, i + 1) for i in range(50)])
    with pytest.raises(OutOfTimeError):
        min_fill_order(near, Deadline(1e-9))
