"""Rules for sets of flips against all patterns, and enumeration by them."""

from __future__ import annotations

import time
from itertools import product
from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.circuit import pack
from bnncert.engine.search.patterns.enumeration import (
    Compilation,
    FlipEnumerator,
    FlipRules,
    enumerate_node,
)
from bnncert.engine.search.patterns.interval_propagation import imply, literal_table, propagate
from tests.engine.search.patterns.test_search import circuit_of, deep_network


def random_table(rng: np.random.Generator, size: int, home: np.ndarray, pairs: int) -> np.ndarray:
    """Return a symmetric table of literals that exclude each other and allow `home`."""
    table = np.zeros((2 * size, 2 * size), dtype=np.float32)
    own = 2 * np.arange(size) + (home < 0)
    for a, b in rng.integers(0, 2 * size, (pairs, 2)).tolist():
        if a >> 1 != b >> 1 and not {a, b} <= set(own.tolist()):
            table[a, b] = table[b, a] = 1
    return table


def possible_patterns(table: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Return the patterns of a node that no pair excludes."""
    patterns = np.array(list(product((-1, 1), repeat=node.size)), dtype=np.int8)
    patterns = patterns[np.all((node == 0) | (patterns == node), axis=1)]
    holds = literal_table(patterns)
    return patterns[np.einsum("ka,ab,kb->k", holds, table, holds) == 0]


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(0, 12))
def test_the_sets_that_keep_the_rules_are_the_patterns_that_no_pair_excludes(
    seed: int, size: int, pairs: int
) -> None:
    rng = np.random.default_rng(seed)
    home = rng.choice([-1, 1], size).astype(np.int8)
    table = random_table(rng, size, home, pairs)
    start = rng.choice([0, 0, 1], size).astype(np.int8) * home
    nodes, alive = imply(table, start[None, :])
    assert alive[0]
    rules = FlipRules.of(table, nodes[0], home)
    assert rules is not None
    sets = rules.sets(10**6)
    assert sets is not None
    patterns = np.repeat(nodes, sets.size, axis=0)
    patterns[:, nodes[0] == 0] = rules.signs(sets, home)
    found = {pattern.tobytes() for pattern in patterns}
    # Every set once, and none is missing; flips that need each other may leave a few too many.
    assert len(found) == sets.size
    expected = {pattern.tobytes() for pattern in possible_patterns(table, nodes[0])}
    assert expected <= found
    assert sets.size == 1 or rules.sets(sets.size - 1) is None


def test_flips_that_need_each_other_stay_together_or_apart() -> None:
    table = np.zeros((4, 4), dtype=np.float32)
    # From (+1, +1): x_0 = -1 excludes x_1 = +1 and the other way round.
    for a, b in ((1, 2), (0, 3)):
        table[a, b] = table[b, a] = 1
    rules = FlipRules.of(table, np.zeros(2, dtype=np.int8), np.ones(2, dtype=np.int8))
    assert rules is not None
    sets = rules.sets(10)
    assert sets is not None
    patterns = {tuple(row) for row in rules.signs(sets, np.ones(2, dtype=np.int8)).tolist()}
    assert {(1, 1), (-1, -1)} <= patterns <= {(1, 1), (-1, -1), (-1, 1), (1, -1)}


def test_more_than_a_word_of_open_signs_has_no_rules() -> None:
    node, home = np.zeros(65, dtype=np.int8), np.ones(65, dtype=np.int8)
    assert FlipRules.of(np.zeros((130, 130), dtype=np.float32), node, home) is None


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
def test_enumeration_by_rules_finds_what_the_evaluation_of_these_patterns_finds(
    compiled: bool,
) -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for depth in (2, 3) * 8:
        net = deep_network(rng, 8, (8, *(20,) * (depth - 1)), diagonal=True, zeros=0.3)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 8), 2.5)
        circuit, _, _ = circuit_of(net, ball, int(net.classify(ball.center)[0]))
        if circuit.inputs < 3 or pack(circuit) is None:
            continue
        home = rng.choice([-1, 1], circuit.inputs).astype(np.int8)
        table = random_table(rng, circuit.inputs, home, 6)
        node = np.zeros(circuit.inputs, dtype=np.int8)
        rules = FlipRules.of(table, node, home)
        assert rules is not None
        sets = rules.sets(10**6)
        assert sets is not None
        signs = rules.signs(sets, home)
        wanted, goal = (
            np.ones(circuit.objectives.targets, dtype=bool),
            np.full(circuit.objectives.constant.size, -2.0),
        )
        made = propagate(circuit, node[None, :])
        if compiled:
            enumerator = FlipEnumerator.of(circuit, None, home)
            assert enumerator is not None
            parts = list(enumerator.run(node, wanted, goal, rules))
        else:
            parts = list(
                enumerate_node(circuit, None, made.states[0], made.last[0], wanted, goal, signs)
            )
        exact = propagate(circuit, signs)
        violating = {p.tobytes() for p in signs[np.any(exact.lower <= goal, axis=1)]}
        found = {p.tobytes() for part in parts for p in part.violating}
        if all(part.complete for part in parts):
            assert sum(part.count for part in parts) == len(signs)
            assert found == violating
            compared += 1
        else:
            assert found <= violating
    assert compared > 5


# -- the compiled enumeration is prepared beside the search ---------------------------------------


def test_a_slow_compiler_is_not_waited_for() -> None:
    slow, released = Compilation(), Event()
    begun = time.monotonic()
    assert not slow.is_ready(lambda: released.wait(60) and None, Deadline(0.2))
    assert not slow.is_ready(lambda: None, Deadline(0.2))
    assert time.monotonic() - begun < 10
    released.set()
    assert slow.wait(10)
    assert slow.is_ready(lambda: None, Deadline(0.2))


def test_what_is_loaded_at_once_is_used_at_once() -> None:
    assert Compilation().is_ready(lambda: None, Deadline(None))


def test_a_compiler_that_fails_is_not_used() -> None:
    failing = Compilation()

    def fail() -> None:
        raise RuntimeError("no compiler")

    assert not failing.is_ready(fail, Deadline(0.1))
    assert not failing.is_ready(fail, Deadline(0.1))


def test_the_time_limit_holds_while_the_loop_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Compilation):
        def is_ready(self, call: object, limit: Deadline) -> bool:
            return False

    monkeypatch.setattr("bnncert.engine.search.patterns.enumeration.ENUMERATION", Endless())
    rng = np.random.default_rng(5)
    net = deep_network(rng, 14, (14, 12, 12), diagonal=True)
    center = rng.uniform(-0.3, 0.3, 14)
    label = int(net.classify(center)[0])
    ball = bnncert.Ball("linf", center, 0.5)
    waiting = bnncert.verify(net, ball, label, method="propagation", timeout=20)
    monkeypatch.undo()
    compiled = bnncert.verify(net, ball, label, method="propagation", timeout=20)
    assert waiting.status == compiled.status != "timeout"
