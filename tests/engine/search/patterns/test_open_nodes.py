"""Open nodes: searched depth first here, handed out from the top of the tree."""

from __future__ import annotations

import numpy as np

from bnncert.engine.search.patterns.open_nodes import LEAF, NodeBatch, OpenNodes, TreeRecord


def batch(*numbers: int) -> NodeBatch:
    size = len(numbers)
    return NodeBatch(
        np.zeros((size, 3), dtype=np.int8), np.ones((size, 2), dtype=bool), np.array(numbers)
    )


def test_the_newest_are_searched_and_the_oldest_handed_out() -> None:
    nodes = OpenNodes(batch(0, 1, 2))
    nodes.push(batch(3, 4))
    assert nodes.hand_out(2).numbers.tolist() == [0, 1]
    assert len(nodes) == 3
    assert nodes.pop(2).numbers.tolist() == [3, 4]
    assert nodes.pop(2).numbers.tolist() == [2]
    assert not nodes


def test_many_nodes_are_handed_out_deepest_first() -> None:
    nodes = OpenNodes(batch(0, 1))
    nodes.push(batch(2, 3))
    nodes.most_bytes = 2 * (3 + 2)
    assert nodes.is_crowded
    given = nodes.hand_out(1)
    assert given.numbers.tolist() == [2]
    nodes.take_back(given, batch(4, 5))
    assert nodes.pop(1).numbers.tolist() == [4]
    # With few nodes, what others leave is handed out again before what is searched here.
    given = nodes.pop_all()
    assert given.numbers.tolist() == [0, 1, 3, 5]
    nodes.take_back(given.take(slice(0)), given.take(slice(1)))
    assert not nodes.is_crowded


def test_nodes_that_are_searched_elsewhere_are_open_until_they_are_back() -> None:
    nodes = OpenNodes(batch(0, 1, 2))
    first, second = nodes.hand_out(2), nodes.hand_out(2)
    assert not nodes and not nodes.is_empty
    nodes.take_back(first, first.take(slice(0)))
    assert not nodes.is_empty
    nodes.take_back(second, second)
    assert nodes.pop(5).numbers.tolist() == [2]
    assert nodes.is_empty


# -- the record of a tree: in preorder, and put together from parts -------------------------------


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
