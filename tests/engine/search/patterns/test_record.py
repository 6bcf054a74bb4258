"""The record of a tree: in preorder, and put together from parts."""

from __future__ import annotations

import numpy as np

from bnncert.engine.search.patterns.open_nodes import LEAF, TreeRecord


def test_a_tree_that_was_searched_in_parts_is_that_of_one_search() -> None:
    whole = TreeRecord()
    plus, minus = whole.split(np.array([0]), np.array([5]))
    deeper, _ = whole.split(np.concatenate([plus, minus]), np.array([6, 7]))
    whole.split(deeper[1:], np.array([8]))

    home = TreeRecord()
    plus, minus = home.split(np.array([0]), np.array([5]))
    # Another process splits both children, and leaves a node open that is split here.
    away = TreeRecord(roots=2)
    open_, _ = away.split(np.array([0, 1]), np.array([6, 7]))
    numbers = home.graft(np.concatenate([plus, minus]), away)
    home.split(numbers[open_[1:]], np.array([8]))

    assert whole.preorder().tolist() == [5, 6, LEAF, LEAF, 7, 8, LEAF, LEAF, LEAF]
    assert home.preorder().tolist() == whole.preorder().tolist()
    assert home.size == whole.size


def test_parts_arrive_in_any_order() -> None:
    home = TreeRecord()
    plus, minus = home.split(np.array([0]), np.array([1]))
    parts = []
    for variable in (2, 3):
        part = TreeRecord(roots=1)
        part.split(np.array([0]), np.array([variable]))
        parts.append(part)
    home.graft(minus, parts[1])
    home.graft(plus, parts[0])
    assert home.preorder().tolist() == [1, 2, LEAF, LEAF, 3, LEAF, LEAF]
