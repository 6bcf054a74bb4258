"""Enumeration of all patterns of one node.

A loop compiled by numba enumerates the patterns, each from the one before.  Matrix products
evaluate those of circuits that the loop does not take, and of all circuits until it is compiled.
Both give the same answers.

The first call of a compiled function takes seconds on a machine that has not compiled it yet, and
cannot be interrupted.  It is therefore made in a thread: the search evaluates patterns by NumPy
until the function is ready, and keeps its time limit.  Later processes load the function from
numba's cache on disk in a fraction of a second.

Conflicting pairs are rules for sets of flips: relative to the pattern of the centre, a pattern is a
set of flips.  A conflicting pair of two flipped signs means that these flips exclude each other
(they clash); a conflicting pair of a flipped and an unflipped sign means that the first flip needs
the second one.  At most 64 open signs are handled, so that a set is one word of bits.

For matrix products, the circuit is first narrowed to the open gates of the node, so that the
products are small: a gate that propagation fixes in a node is fixed in all of its patterns.
Without these gates the circuit often has a tenth of the size, and evaluating a pattern takes a
tenth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import literal
from bnncert.engine.search.patterns.circuit import (
    WORD,
    Circuit,
    Level,
    PackedCircuit,
    PackedFlips,
    Words,
    pack,
)
from bnncert.engine.search.patterns.flips import UNITS, BudgetedSums, FlipBudget, fits_level
from bnncert.engine.search.patterns.interval_propagation import evaluate, propagate

#: Seconds for which a search waits once: enough to load the function from disk.
PATIENCE = 1.5


class Compilation:
    """A call that compiles what it uses, made once in a thread of its own."""

    def __init__(self) -> None:
        self._lock, self._ready = Lock(), Event()
        self._thread: Thread | None = None

    def is_ready(
        self, call: Callable[[], None], limit: Deadline, patience: float = PATIENCE
    ) -> bool:
        """Return whether the call has returned; the first question makes it and waits for it."""
        with self._lock:
            is_first = self._thread is None
            if self._thread is None:
                # A daemon thread ends with the process, which does not wait for the compiler.
                self._thread = Thread(target=self._run, args=(call,), daemon=True)
                self._thread.start()
        if is_first:
            self._ready.wait(max(0.0, min(patience, limit.remaining() / 2)))
        return self._ready.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a call that has been made; return whether the function is ready."""
        return self._thread is not None and self._ready.wait(seconds)

    def _run(self, call: Callable[[], None]) -> None:
        # If the compiler fails, for example without a folder for its cache, NumPy is used.
        with suppress(Exception):
            call()
            self._ready.set()


#: The compiled enumerations of this process: of sets of flips, and of the patterns that a box has.
ENUMERATION, CELLS = Compilation(), Compilation()


@dataclass(frozen=True, eq=False)
class FlipRules:
    """The flips that each flip excludes and needs, as bits."""

    #: The open variables, each after those that it needs.
    order: IntArray
    #: For each of them, in this order, the flips that it excludes, and earlier ones that it needs.
    clash: Words
    need: Words

    @staticmethod
    def of(excluded: Float32Array, node: SignArray, home: SignArray) -> FlipRules | None:
        """Return the rules for the open signs of a node, or None if there are more than 64."""
        open_ = np.flatnonzero(node == 0)
        if open_.size > WORD:
            return None
        own, flip = literal(open_, home[open_]), literal(open_, -home[open_])
        clash = excluded[np.ix_(flip, flip)] > 0
        need = excluded[np.ix_(flip, own)] > 0
        np.fill_diagonal(need, True)
        while True:
            closed = need.astype(np.float32) @ need.astype(np.float32) > 0
            if np.array_equal(closed, need):
                break
            need = closed
        # After the closure, sorting by the number of needs puts every flip after those it needs.
        # Of flips that need each other only the later one keeps its need: this allows more sets,
        # and none of them twice.
        order = np.argsort(np.count_nonzero(need, axis=1), kind="stable")
        need = np.tril(need[np.ix_(order, order)], -1)
        return FlipRules(open_[order], _words(clash[np.ix_(order, order)]), _words(need))

    def sets(self, most: int) -> Words | None:
        """Return all sets that satisfy the rules, as bits; None if there are more than `most`."""
        members, blocked = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
        for k in range(self.order.size):
            bit = np.uint64(1) << np.uint64(k)
            fits = ((blocked & bit) == 0) & ((self.need[k] & ~members) == 0)
            members = np.concatenate([members, members[fits] | bit])
            if members.size > most:
                return None
            blocked = np.concatenate([blocked, blocked[fits] | self.clash[k]])
        return members

    def signs(self, sets: Words, home: SignArray) -> SignArray:
        """Return the signs of the open variables, in their own order, for every set of flips."""
        places = np.arange(self.order.size, dtype=np.uint64)
        flipped = (sets[:, None] >> places) & np.uint64(1) > 0
        own = home[self.order]
        mine = np.where(flipped, -own, own)
        return np.asarray(mine[:, np.argsort(self.order)], dtype=np.int8)


def _words(table: BoolArray) -> Words:
    """Return the rows of a table as words of bits."""
    bits = np.uint64(1) << np.arange(table.shape[1], dtype=np.uint64)
    return np.asarray(np.where(table, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64))


#: The largest number of violating patterns that one enumeration returns.
MOST_FOUND = 64

#: Patterns up to which the compiled loop enumerates a node.
MOST_COMPILED = 2**20

#: Weights that one call of the compiled loop may read (about 0.1 s), and a node (about 2 s).
CALL_WEIGHTS, NODE_WEIGHTS = 2**35, 2**40


@dataclass(frozen=True, eq=False)
class Enumerated:
    """The result of one part of an enumeration."""

    #: Patterns evaluated.
    count: int
    #: Those that reach a wanted target, at most MOST_FOUND.
    violating: SignArray
    #: For each target the least bound of F among the patterns at which it is excluded.
    least: FloatArray
    #: Whether all patterns of the part were evaluated.
    complete: bool
    #: Whether no part follows.
    last: bool


def pattern_counts(nodes: SignArray, most_flips: IntArray | None) -> FloatArray:
    """Return upper bounds of the numbers of patterns of nodes."""
    open_ = np.minimum(np.count_nonzero(nodes == 0, axis=1), 1000)
    if most_flips is None:
        return np.asarray(2.0**open_)
    return np.array(
        [
            float(sum(math.comb(n, k) for k in range(min(m, n) + 1))) if m < 8 else 2.0**n
            for n, m in zip(open_.tolist(), most_flips.tolist(), strict=True)
        ]
    )


class FlipEnumerator:
    """Enumerates the patterns of nodes of one circuit by the compiled loop."""

    def __init__(self, packed: PackedCircuit, budget: FlipBudget | None, home: SignArray) -> None:
        self._packed, self._budget = packed, budget
        self._home = home if budget is None else budget.home
        weights = max(1, packed.levels.columns.size // 2 + packed.gains.size)
        self._call = max(64, CALL_WEIGHTS // weights)
        #: Patterns up to which a node is enumerated.
        self.most = min(MOST_COMPILED, max(1024, NODE_WEIGHTS // weights))

    @staticmethod
    def of(circuit: Circuit, budget: FlipBudget | None, home: SignArray) -> FlipEnumerator | None:
        """Return the compiled enumerator, or None for a circuit without a packed form."""
        packed = pack(circuit)
        return None if packed is None else FlipEnumerator(packed, budget, home)

    def is_ready(self, limit: Deadline) -> bool:
        """Whether the loop is compiled; the first question begins to compile it."""
        return ENUMERATION.is_ready(self._enumerate_one, limit)

    def _enumerate_one(self) -> None:
        """Enumerate a node in which every sign is fixed."""
        objectives = self._packed.circuit.objectives
        goal = np.full(objectives.constant.size, -np.inf)
        list(self.run(self._home, np.zeros(objectives.targets, dtype=bool), goal))

    def run(
        self, node: SignArray, wanted: BoolArray, goal: FloatArray, rules: FlipRules | None = None
    ) -> Iterator[Enumerated]:
        """Enumerate the patterns of one node that keep the rules, in parts that take little time.

        A part that is not complete is the last one.
        """
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.search.patterns.enumeration_loop import enumerate_flips

        packed, budget = self._packed, self._budget
        open_ = np.flatnonzero(node == 0)
        cost, left = np.zeros(open_.size, dtype=np.int64), 0
        clash = need = np.zeros(0, dtype=np.uint64)
        if budget is not None:
            open_ = open_[np.argsort(budget.cost[open_], kind="stable")]
            cost = budget.cost[open_].astype(np.int64)
            left = UNITS - int(budget.spent(node[None, :])[0])
        elif rules is not None:
            open_, clash, need = rules.order, rules.clash, rules.need
        base = node.copy()
        base[open_] = self._home[open_]
        found = np.full((MOST_FOUND, open_.size + 1), -1, dtype=np.int64)
        least = np.full(wanted.size, np.inf)
        room = packed.room(base)
        flips = PackedFlips(packed.flip_gains(open_, self._home), cost, clash, need)
        for first, last in self._calls(cost, left):
            count, violations = enumerate_flips(
                room, flips, left, first, last, packed.levels, packed.objectives, wanted, goal,
                found, least,
            )  # fmt: skip
            violating = flipped(base, open_, found[:violations])
            yield Enumerated(abs(count), violating, least, count >= 0, last == open_.size)
            if count < 0:
                return

    def _calls(self, cost: IntArray, left: int) -> list[tuple[int, int]]:
        """Divide the first flips of sets into calls that each take little time."""
        size = cost.size
        # Estimates of the numbers of sets that begin with each flip.
        if cost.any():
            most = min(size, 8, int(left // max(1, int(cost.min()))))
            counts = [sum(math.comb(size - k - 1, m) for m in range(most)) for k in range(size)]
        else:
            counts = [2 ** (size - k - 1) for k in range(size)]
        calls, first, total = [], 0, 0
        for k, count in enumerate(counts):
            if total and total + count > self._call:
                calls.append((first, k))
                first, total = k, 0
            total += count
        return [*calls, (first, size)]


def flipped(base: SignArray, open_: IntArray, found: IntArray) -> SignArray:
    """Return the patterns of sets of flips; each set ends with -1."""
    patterns = np.repeat(base[None, :], found.shape[0], axis=0)
    for row, flips in zip(patterns, found, strict=True):
        row[open_[flips[: int(np.argmin(flips))]]] *= -1
    return patterns


def narrowed(
    circuit: Circuit, states: Float32Array, last: Float32Array, *, inputs: bool
) -> Circuit:
    """Return the circuit without the gates that are fixed.

    `states` and `last` are those of all variables and of the last level's gates in the node, -1, 0
    or +1.  With `inputs`, fixed first-layer variables are also removed.
    """
    if circuit.last is None:
        return circuit
    removed = states != 0
    if not inputs:
        removed[: circuit.inputs] = False
    place = np.cumsum(~removed) - 1
    levels = [
        _narrowed_level(level, states, removed, place, states[level.outputs] == 0)
        for level in circuit.levels
    ]
    open_, objectives = last == 0, circuit.objectives
    fixed = objectives.coefficients[:, ~open_] @ last[~open_].astype(np.float64)
    return replace(
        circuit,
        neurons=circuit.neurons[~removed[: circuit.inputs]],
        size=int(np.count_nonzero(~removed)),
        levels=tuple(level for level in levels if level.size),
        last=_narrowed_level(circuit.last, states, removed, place, open_),
        objectives=replace(
            objectives,
            coefficients=objectives.coefficients[:, open_],
            constant=objectives.constant + fixed,
        ),
    )


def _narrowed_level(
    level: Level, states: Float32Array, removed: np.ndarray, place: IntArray, open_: np.ndarray
) -> Level:
    gone = removed[level.inputs]
    rows = level.rows[open_]
    fixed = rows[:, gone] @ states[level.inputs[gone]]
    outputs = level.outputs[open_] if level.outputs.size else level.outputs
    return Level(
        inputs=place[level.inputs[~gone]],
        rows=np.ascontiguousarray(rows[:, ~gone]),
        plus_from=level.plus_from[open_] - fixed,
        minus_upto=level.minus_upto[open_] - fixed,
        lower=level.lower[open_] - fixed,
        upper=level.upper[open_] - fixed,
        outputs=place[outputs],
    )


def without_stable_gates(circuit: Circuit, budget: FlipBudget | None) -> Circuit:
    """Return the circuit without the gates that the budget fixes in the whole region."""
    levels = circuit.all_levels
    if budget is None or not levels or not fits_level(circuit, levels[0]):
        return circuit
    root, left = budget.restrict(np.zeros((1, circuit.inputs), dtype=np.int8))
    made = propagate(circuit, root, BudgetedSums(budget, levels[0]).sums(root, left))
    if not made.possible[0]:
        return circuit
    return narrowed(circuit, made.states[0], made.last[0], inputs=False)


#: Patterns up to which a node is enumerated, and patterns that are evaluated together.
MOST_PLAIN, CHUNK = 2**13, 2**12


def enumerate_node(
    circuit: Circuit,
    budget: FlipBudget | None,
    states: Float32Array,
    last: Float32Array,
    wanted: BoolArray,
    goal: FloatArray,
    signs: SignArray | None = None,
) -> Iterator[Enumerated]:
    """Evaluate all patterns of a node, in parts that take little time.

    `states` and `last` are the result of propagation for the node: its variables and the last
    level's gates.  `signs` are the patterns of the open variables (default: all in the budget).
    """
    node = states[: circuit.inputs].astype(np.int8)
    open_ = np.flatnonzero(node == 0)
    small = narrowed(circuit, states, last, inputs=True)
    if signs is None:
        signs = completions(open_.size) if budget is None else within_budget(budget, node, open_)
    # A network with one sign layer has nothing to remove.
    whole = small.inputs == circuit.inputs and open_.size < circuit.inputs
    for start in range(0, signs.shape[0], CHUNK):
        chunk = signs[start : start + CHUNK]
        made = evaluate(small, _filled(node, open_, chunk) if whole else chunk)
        reached = small.objectives.open_targets(made.lower, goal) & wanted & made.possible[:, None]
        closed = wanted & ~reached & made.possible[:, None]
        bounds = np.where(closed, small.objectives.target_bounds(made.lower), np.inf)
        violating = _filled(node, open_, chunk[reached.any(axis=1)])
        least = bounds.min(axis=0, initial=np.inf)
        ends = start + CHUNK >= signs.shape[0]
        yield Enumerated(chunk.shape[0], violating, least, complete=True, last=ends)


def _filled(node: SignArray, open_: IntArray, signs: SignArray) -> SignArray:
    """Return whole patterns, given the signs that the node leaves open."""
    patterns = np.repeat(node[None, :], signs.shape[0], axis=0)
    patterns[:, open_] = signs
    return patterns


def completions(count: int) -> SignArray:
    """Return all patterns of `count` signs, one in each row."""
    bits = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    return (1 - 2 * bits).astype(np.int8)


def within_budget(budget: FlipBudget, node: SignArray, open_: IntArray) -> SignArray:
    """Return the signs of the open variables for every set of flips that fits the budget."""
    order = np.argsort(budget.cost[open_], kind="stable")
    cost = budget.cost[open_][order]
    start = budget.home[open_][None, :]
    sets, parts = start, [start]
    left = UNITS - budget.spent(node[None, :])
    following: IntArray = np.zeros(1, dtype=np.int64)
    while sets.size:
        # Flips are added in ascending order of cost, so that every set is made once.
        fitting = np.searchsorted(cost, left, side="right")
        counts = np.maximum(fitting - following, 0)
        parent = np.repeat(np.arange(sets.shape[0]), counts)
        first = np.repeat(following - (np.cumsum(counts) - counts), counts)
        flip = first + np.arange(parent.size)
        sets = sets[parent]
        sets[np.arange(parent.size), order[flip]] *= -1
        left = left[parent] - cost[flip]
        following = flip + 1
        parts.append(sets)
    return np.concatenate(parts)
