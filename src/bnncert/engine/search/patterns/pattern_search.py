r"""Search over sign patterns of the first layer, by propagation of many nodes at once.

A node fixes some signs.  Interval propagation through all layers closes it for every target whose
objective is positive in the whole node; a node that stays open is split on one more sign, depth
first, thousands of nodes at a time.  If few patterns are left in a node, all of them are evaluated.
For a pattern that reaches a target, a feasibility check follows: a point with this pattern is a
counterexample, and signs that exclude each other become a clause for the rest of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.clauses import ClauseSet
from bnncert.engine.search.patterns.cells import MOST_OPEN, CellEnumerator
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.enumeration import (
    MOST_PLAIN,
    Enumerated,
    FlipEnumerator,
    FlipRules,
    completions,
    enumerate_node,
    pattern_counts,
)
from bnncert.engine.search.patterns.flips import BudgetedSums, FlipBudget, fits_level
from bnncert.engine.search.patterns.interval_propagation import (
    Propagated,
    evaluate,
    imply,
    influence,
    pair_scores,
    propagate,
)
from bnncert.engine.search.patterns.open_nodes import NodeBatch, OpenNodes, TreeRecord
from bnncert.engine.timing import Pulse

SearchStatus: TypeAlias = Literal["proved", "violated", "open", "interrupted"]

#: Nodes that are propagated together, and patterns that are evaluated together.
BATCH, PATTERNS = 2048, 8192

#: A node with at most this many open signs is enumerated.
ENUMERATED_SIGNS = 6

#: Open signs, or sets of flips that keep the pairs, up to which all patterns of a node take less
#: time than feasibility checks that would exclude some of them.
FEW_SIGNS, MOST_SETS = 12, 2**12


@dataclass(frozen=True, eq=False)
class Realisation:
    """The result of the feasibility check of a pattern.

    `found` ends the search, `conflict` are literals that exclude each other, and `late` means that
    the deadline passed before there was an answer.
    """

    found: bool = False
    conflict: IntArray | None = None
    late: bool = False


#: Searches for an input with a pattern of first-layer signs that reaches one of the targets.
Realise: TypeAlias = Callable[[SignArray, BoolArray], Realisation]


@dataclass(eq=False)
class SearchOutcome:
    """The result of a search."""

    status: SearchStatus
    #: For each target the least lower bound of F over the nodes in which it is excluded.
    lower: FloatArray
    #: Which targets are excluded on the whole region.
    closed: BoolArray
    #: Nodes propagated and patterns evaluated.
    nodes: int = 0
    patterns: int = 0
    conflicts: list[IntArray] = field(default_factory=list)

    @staticmethod
    def start(targets: int) -> SearchOutcome:
        """Return the outcome of a search that has not begun."""
        return SearchOutcome("interrupted", np.full(targets, np.inf), np.zeros(targets, dtype=bool))


class PatternSearch:
    """One search; `run` may be called again to continue after the deadline of the first call.

    Parameters
    ----------
    excluded
        Symmetric table of conflicting pairs of first-layer literals.
    budget
        The costs of flips, if the region is such a budget.
    realise
        Searches for an input that has a pattern.
    home
        A possible pattern, such as that of the centre; other patterns are flips of it.
    cells
        Enumerates the patterns that a box has.
    compiled
        Whether the compiled enumeration may be used.
    recording
        Whether the tree is recorded for a certificate.
    """

    def __init__(
        self,
        circuit: Circuit,
        excluded: BoolArray,
        budget: FlipBudget | None,
        realise: Realise,
        *,
        home: SignArray | None = None,
        cells: CellEnumerator | None = None,
        compiled: bool = True,
        recording: bool = False,
    ) -> None:
        self.record = TreeRecord() if recording else None
        self.circuit, self.budget, self.realise = circuit, budget, realise
        self._excluded = excluded.astype(np.float32)
        self._home = np.ones(circuit.inputs, dtype=np.int8) if home is None else home
        # Over disjoint inputs the budget implies the conflicting pairs.
        self._pairs = budget is None and bool(excluded.any())
        self._clauses = ClauseSet()
        self._sums: BudgetedSums | None = None
        levels = circuit.all_levels
        if budget is not None and levels and fits_level(circuit, levels[0]):
            self._sums = BudgetedSums(budget, levels[0])
        self._enumerator = FlipEnumerator.of(circuit, budget, self._home) if compiled else None
        self._cell_enumerator = cells
        # The enumerators once they are compiled.
        self._compiled: FlipEnumerator | None = None
        self._cells: CellEnumerator | None = None
        root = np.zeros((1, circuit.inputs), dtype=np.int8)
        numbers = np.zeros(1 if recording else 0, dtype=np.int64)
        targets = np.ones((1, circuit.objectives.targets), dtype=bool)
        #: The nodes that are not closed yet.
        self.open = OpenNodes(NodeBatch(root, targets, numbers))
        # Patterns whose feasibility check was interrupted by the deadline.
        self._unsought: list[NodeBatch] = []
        # Nodes that are propagated together.
        self._size = BATCH
        #: Reports the closed share of the tree, if somebody wants to know it.
        self.pulse: Pulse | None = None
        #: Whether the feasibility check of some pattern had no answer.
        self.undecided = False
        #: The deadline of the enumeration of a node; the end of a time slice does not interrupt it.
        self.limit = Deadline(None)
        #: A lower bound of objective k above goal[k] excludes its target in a node.
        self.goal = circuit.objectives.enough.copy()
        self.outcome = SearchOutcome.start(circuit.objectives.targets)

    @property
    def most_patterns(self) -> int:
        """The number of patterns up to which a node is enumerated, once the loop is compiled."""
        return MOST_PLAIN if self._enumerator is None else self._enumerator.most

    @property
    def _most(self) -> int:
        return MOST_PLAIN if self._compiled is None else self._compiled.most

    def learn(self, literals: IntArray) -> None:
        """Add a clause: literals that cannot all hold."""
        self.outcome.conflicts.append(literals)
        if literals.size == 2:
            first, second = literals.tolist()
            self._excluded[first, second] = self._excluded[second, first] = 1
            self._pairs = True
        else:
            self._clauses.add(literals)

    def run(self, deadline: Deadline) -> SearchOutcome:
        """Search until all nodes are closed, a counterexample is found, or the deadline passes."""
        self.limit = deadline
        return self.conclude(self.advance(deadline))

    def advance(self, deadline: Deadline) -> bool:
        """Search until no node waits or the deadline passes; True if a counterexample is found."""
        while self._unsought and not deadline.passed():
            if self._look_for(self._possible(self._unsought.pop())):
                return True
        while self.open and not deadline.passed():
            if self.pulse is not None:
                self.pulse.beat(self.open.share)
            batch, before = self.open.pop(self._size), self.outcome.nodes
            if self._step(batch, deadline):
                return True
            # Nodes that there was no time for are propagated again, so the next batch is smaller.
            done = self.outcome.nodes - before
            whole = done == len(batch)
            self._size = min(BATCH, 2 * self._size) if whole else max(1, done)
        return False

    def conclude(self, found: bool) -> SearchOutcome:
        """Set the outcome's status from the nodes that are open here and elsewhere."""
        outcome = self.outcome
        if found:
            outcome.status = "violated"
        elif self._unsought or not self.open.is_empty:
            outcome.status = "interrupted"
        else:
            outcome.status = "open" if self.undecided else "proved"
        if outcome.status == "proved":
            outcome.closed[:] = True
        return outcome

    @property
    def is_late(self) -> bool:
        """Whether the deadline passed during a feasibility check."""
        return bool(self._unsought)

    def restart(self, nodes: NodeBatch) -> None:
        """Continue with the subtrees below other nodes; known clauses and goals are kept."""
        self.open, self._unsought = OpenNodes(nodes), []
        self.undecided = False
        if self.record is not None:
            self.record = TreeRecord(len(nodes))
        self.outcome = SearchOutcome.start(self.circuit.objectives.targets)

    def _step(self, batch: NodeBatch, deadline: Deadline) -> bool:
        """Propagate a batch, and enumerate or split the open nodes; True ends the search."""
        self.outcome.nodes += len(batch)
        nodes, alive = batch.nodes, np.ones(len(batch), dtype=bool)
        if self._pairs:
            nodes, alive = imply(self._excluded, nodes)
        if len(self._clauses):
            alive &= ~self._clauses.broken_by(nodes)
        left = None
        if self.budget is not None:
            nodes, left = self.budget.restrict(nodes)
            alive &= left >= 0
        batch = NodeBatch(nodes, batch.targets, batch.numbers).take(alive)
        left = None if left is None else left[alive]
        if not len(batch):
            return False
        sums = None
        if self._sums is not None and left is not None:
            sums = self._sums.sums(batch.nodes, left)
        made = propagate(self.circuit, batch.nodes, sums)
        batch, kept = self._close(batch, made)
        if not len(batch):
            return False
        flips = None
        if self.budget is not None and left is not None:
            flips = self.budget.most_flips(batch.nodes, left[kept])
        self._take_compiled(batch)
        few = pattern_counts(batch.nodes, flips) <= self._most
        if self._compiled is None:
            tiny = np.count_nonzero(batch.nodes == 0, axis=1) <= ENUMERATED_SIGNS
            if tiny.any() and self._enumerate(batch.take(tiny)):
                return True
            batch, kept, few = batch.take(~tiny), kept[~tiny], few[~tiny]
        left_open: BoolArray = np.ones(len(batch), dtype=bool)
        late: BoolArray = np.zeros(len(batch), dtype=bool)
        for k in range(len(batch)):
            # At least one node is processed, so that every call makes progress.
            if k and deadline.passed():
                late[k:] = True
                break
            parts = self._patterns(batch, k, made, int(kept[k]), bool(few[k]))
            if parts is None:
                continue
            end = self._go_through(parts, batch, k)
            if end == "found":
                return True
            left_open[k] = end != "closed"
        # Nodes that there was no time for stay open unchanged.
        self.open.push(batch.take(late))
        self.outcome.nodes -= int(np.count_nonzero(late))
        split = left_open & ~late
        if split.any():
            self._split(batch.take(split), made, kept[split])
        return False

    def _take_compiled(self, batch: NodeBatch) -> None:
        """Use the enumerators that are compiled by now, as far as nodes need them."""
        if self._enumerator is not None and self._enumerator.is_ready(self.limit):
            self._compiled = self._enumerator
        cells, open_ = self._cell_enumerator, np.count_nonzero(batch.nodes == 0, axis=1)
        if cells is not None and open_.max(initial=0) > FEW_SIGNS and cells.is_ready(self.limit):
            self._cells = cells

    def _patterns(
        self, batch: NodeBatch, k: int, propagated: Propagated, row: int, few: bool
    ) -> Iterable[Enumerated] | None:
        """Return the enumeration of node k, part by part, or None if it has too many patterns."""
        node, wanted = batch.nodes[k], batch.targets[k]
        open_, most = int(np.count_nonzero(node == 0)), self._most
        if self._cells is not None:
            few, most = open_ <= FEW_SIGNS, MOST_SETS
            if not few and open_ <= MOST_OPEN:
                return (self._cells.run(node, wanted, self.goal),)
        rules, sets = None, None
        if self._pairs and self.budget is None:
            # Pairs of signs often leave few of the patterns.
            rules = FlipRules.of(self._excluded, node, self._home)
            sets = None if rules is None else rules.sets(most)
            few |= sets is not None
        if not few:
            # A node that the region does not have needs no pattern.
            return () if self._cells is not None and self._cells.excludes(node) else None
        if self._compiled is not None:
            return self._compiled.run(node, wanted, self.goal, rules)
        signs = None
        if rules is not None and sets is not None:
            signs = rules.signs(sets, self._home)
        states, last = propagated.states[row], propagated.last[row]
        return enumerate_node(self.circuit, self.budget, states, last, wanted, self.goal, signs)

    def _go_through(
        self, parts: Iterable[Enumerated], batch: NodeBatch, k: int
    ) -> Literal["closed", "open", "found"]:
        """Go through the parts of an enumeration, and check the patterns that reach a target."""
        for made in parts:
            self.outcome.patterns += made.count
            self._note(made.least)
            if made.violating.shape[0]:
                targets = np.repeat(batch.targets[k][None, :], made.violating.shape[0], axis=0)
                if self._evaluate(NodeBatch(made.violating, targets)):
                    return "found"
            # A node that takes too long is split, so that the next call makes progress.
            if not made.complete or (self.limit.passed() and not made.last):
                return "open"
        return "closed"

    def _close(self, batch: NodeBatch, made: Propagated) -> tuple[NodeBatch, IntArray]:
        """Record what the bounds exclude; return the open nodes and their places in the batch."""
        open_ = self.circuit.objectives.open_targets(made.lower, self.goal) & batch.targets
        open_[~made.possible] = False
        closed = batch.targets & ~open_ & made.possible[:, None]
        bounds = np.where(closed, self.circuit.objectives.target_bounds(made.lower), np.inf)
        self._note(bounds.min(axis=0, initial=np.inf))
        kept = np.flatnonzero(open_.any(axis=1))
        return replace(batch.take(kept), targets=open_[kept]), kept

    def _note(self, least: FloatArray) -> None:
        np.minimum(self.outcome.lower, least, out=self.outcome.lower)

    def _split(self, batch: NodeBatch, made: Propagated, kept: IntArray) -> None:
        part = Propagated(made.states[kept], made.last[kept], made.lower[kept], made.possible[kept])
        score = influence(self.circuit, part, batch.targets)
        if self.budget is not None:
            score = score / (1 + self.budget.cost / np.maximum(self.budget.cost.max(), 1))
        if self._pairs:
            score = (0.5 + score / np.maximum(score.max(axis=1, keepdims=True), 1e-30)) * (
                pair_scores(self._excluded, batch.nodes)
            )
        score = np.where(batch.nodes == 0, score + np.float32(1e-20), -1)
        chosen = np.argmax(score, axis=1)
        if self._cells is not None:
            chosen = self._cells.hardest(batch.nodes)
        rows = np.arange(len(batch))
        numbers = {1: batch.numbers, -1: batch.numbers}
        if self.record is not None:
            numbers[1], numbers[-1] = self.record.split(batch.numbers, chosen)
        for sign in (-1, 1):
            child = batch.nodes.copy()
            child[rows, chosen] = sign
            self.open.push(NodeBatch(child, batch.targets, numbers[sign]))

    def _enumerate(self, batch: NodeBatch) -> bool:
        """Evaluate every pattern of nodes with few open signs; True ends the search."""
        open_ = np.count_nonzero(batch.nodes == 0, axis=1)
        for count in np.unique(open_).tolist():
            part = batch.take(open_ == count)
            size = max(1, PATTERNS >> count)
            for start in range(0, len(part), size):
                chunk = part.take(slice(start, start + size))
                if self._evaluate(_completions(chunk, count)):
                    return True
        return False

    def _evaluate(self, batch: NodeBatch) -> bool:
        """Evaluate patterns and check those that reach a target; True ends the search."""
        self.outcome.patterns += len(batch)
        batch = self._possible(batch)
        if not len(batch):
            return False
        made = evaluate(self.circuit, batch.nodes)
        batch, kept = self._close(batch, made)
        if not len(batch):
            return False
        lowest = np.where(
            batch.targets[:, self.circuit.objectives.target], made.lower[kept], np.inf
        )
        batch = batch.take(np.argsort(lowest.min(axis=1, initial=np.inf), kind="stable"))
        return self._look_for(batch)

    def _possible(self, batch: NodeBatch) -> NodeBatch:
        """Drop patterns that pairs, clauses or the budget exclude."""
        alive = np.ones(len(batch), dtype=bool)
        if self._pairs:
            alive = imply(self._excluded, batch.nodes)[1]
        if len(self._clauses):
            alive &= ~self._clauses.broken_by(batch.nodes)
        if self.budget is not None:
            alive &= self.budget.restrict(batch.nodes)[1] >= 0
        return batch.take(alive)

    def _look_for(self, batch: NodeBatch) -> bool:
        """Check violating patterns in order, and learn from conflicts; True ends the search."""
        while len(batch):
            made = self.realise(batch.nodes[0], batch.targets[0])
            if made.found:
                return True
            if made.conflict is not None:
                self.learn(made.conflict)
                batch = self._possible(batch.take(slice(1, None)))
                continue
            if made.late:
                self._unsought.append(batch)
                return False
            # In a search for the minimum, a point may have lowered the goal.
            before = len(batch)
            batch, _ = self._close(batch, evaluate(self.circuit, batch.nodes))
            if len(batch) == before:
                self.undecided = True
                batch = batch.take(slice(1, None))
        return False


def _completions(batch: NodeBatch, count: int) -> NodeBatch:
    """Return all patterns of nodes with exactly `count` open signs."""
    if not count:
        return batch
    signs = completions(count)
    total = signs.shape[0]
    places = np.nonzero(batch.nodes == 0)[1].reshape(len(batch), count)
    patterns = np.repeat(batch.nodes, total, axis=0)
    rows = np.arange(patterns.shape[0])
    patterns[rows[:, None], np.repeat(places, total, axis=0)] = np.tile(signs, (len(batch), 1))
    return NodeBatch(patterns, np.repeat(batch.targets, total, axis=0))
