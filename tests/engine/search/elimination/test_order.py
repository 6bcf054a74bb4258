"""Orders of elimination: complete, of small width, and by component."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.search.elimination import bound as orders
from bnncert.engine.search.elimination.bound import components, min_fill_order, neighbourhoods
from bnncert.engine.search.elimination.elimination_plan import make_plan

FOREVER = Deadline(None)


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
