r"""A tree of first-layer signs that proves several targets at once, without any numbers.

A leaf fixes some signs of the first layer.  The checker closes it by itself: it propagates the
signs through all layers, and if targets stay open, it evaluates all patterns of the leaf.  A sum
u = w.x over signs, some of them fixed and some open (x_i = 0), satisfies

    w.x - sum over open |w_i|  <=  u  <=  w.x + sum over open |w_i|.

Its neuron is +1 if -1 is allowed for no u of this interval, and -1 likewise.  This gives a lower
bound of every function of the scores; a target is excluded if one of its functions is positive.
Pairs of signs that exclude each other, proved clauses and the budget of a ball (`flips`) exclude
nodes and patterns that do not occur.

All patterns of a leaf are evaluated by products, or by a compiled loop (`flip_loop`) if numba is
installed and there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import comb

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.arrays import SignArray as Signs
from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.container import RejectedError, Section
from bnncert.kernel.flips import FlipClauses, FlipOrder, Flips, FlipSets, FlipSums, consistent
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.levels import LayerLevel, Scores
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction

#: The largest number of patterns of one leaf.
MOST_PATTERNS = 2**20

#: Leaves that are propagated together, patterns that are evaluated together and their signs, and
#: clauses that are tested together.
LEAVES, TOGETHER, NUMBERS, CLAUSES = 1024, 8192, 2**23, 1024

#: Nodes with at least `LOOP` patterns use the compiled loop if they have `LOOP_TOGETHER` in total.
LOOP, LOOP_TOGETHER = 2**9, 2**16

#: The node of a tree that is not a branch.
LEAF = -1


class Patterns:
    """The network as a function of the first layer's variables, for the leaves of a tree."""

    def __init__(
        self,
        skeleton: Skeleton,
        geometry: Geometry,
        clauses: Clauses,
        targets: Sequence[Sequence[ScoreFunction]],
    ) -> None:
        self.skeleton, self.targets = skeleton, len(targets)
        owners = np.array(skeleton.owner, dtype=np.int64).reshape(-1, 2)
        self.inputs = int(np.count_nonzero(owners[:, 0] == 0))
        depth = len(skeleton.layers)
        self.levels: list[LayerLevel] = []
        for number in range(1, depth - 1):
            own = np.flatnonzero(owners[:, 0] == number)
            self.levels.append(LayerLevel(skeleton.layers[number], owners[own, 1], own))
        members = np.flatnonzero(skeleton.layers[-1].state == 0)
        if depth > 1:
            self.levels.append(LayerLevel(skeleton.layers[-1], members, members[:0]))
        self.scores = Scores.of(skeleton, members, targets)
        self.flips = Flips.of(geometry, owners[: self.inputs, 1])
        self.flip_sums: FlipSums | None = None
        if depth > 1 and self.flips.cost.any():
            self.flip_sums = FlipSums(self.flips, self.levels[0].inputs, self.levels[0].rows)
        #: Pairs of literals that exclude each other, without those that the budget excludes.
        mine = slice(2 * self.inputs)
        self.excluded = (skeleton.excluded[mine, mine] & ~self.flips.implied()).astype(np.float32)
        #: Longer clauses, in parts and together.
        self.clauses: list[SparseRows] = []
        self.clause_table = SparseRows.of_dense(np.zeros((0, 2 * skeleton.size), dtype=np.int64))
        self.learn(clauses)

    def learn(self, clauses: Clauses) -> None:
        """Add proved clauses."""
        table = self.skeleton.literal_table(clauses)
        pairs = table.take(np.flatnonzero(table.sizes == 2)).columns.reshape(-1, 2)
        self.excluded[pairs[:, 0], pairs[:, 1]] = self.excluded[pairs[:, 1], pairs[:, 0]] = 1
        longer = np.flatnonzero(table.sizes != 2)
        parts = (longer[k : k + CLAUSES] for k in range(0, longer.size, CLAUSES))
        self.clauses += [table.take(part) for part in parts]
        self.clause_table = SparseRows.stacked([self.clause_table, table.take(longer)])

    # -- one batch of nodes -----------------------------------------------------------------

    def implied(self, nodes: Signs) -> tuple[Signs, BoolArray]:
        """Add the signs that budget and pairs imply to nodes, and decide which nodes may occur."""
        nodes, before = self.flips.restricted(nodes), nodes[:0]
        possible = self.flips.left(nodes) >= 0
        while self.excluded.any() and not np.array_equal(nodes, before):
            refuse_late()
            before, holds = nodes, _literals(nodes)
            # Counts below 2^24 are exact.
            false = holds.astype(np.float32) @ self.excluded > 0.5
            possible &= ~np.any((false & holds) | (false & false[:, _opposite(nodes)]), axis=1)
            forced = false[:, 1::2].astype(np.int8) - false[:, 0::2]
            nodes = self.flips.restricted(np.where(nodes == 0, forced, nodes))
            possible &= self.flips.left(nodes) >= 0
        return nodes, possible

    def broken(self, nodes: Signs) -> BoolArray:
        """Decide which nodes have all signs of some clause."""
        holds = _literals(nodes).astype(np.float32)
        found = np.zeros(nodes.shape[0], dtype=bool)
        for part in timed(self.clauses):
            # The clauses are about the first layer's variables, which come first; counts are exact.
            members = part.dense()[:, : 2 * self.inputs].astype(np.float32)
            found |= np.any(holds @ members.T == part.sizes, axis=1)
        return found

    def reached(self, nodes: Signs) -> BoolArray:
        """Decide which targets propagation does not exclude, one row for each node."""
        states = np.zeros((nodes.shape[0], self.skeleton.size), dtype=np.float32)
        states[:, : self.inputs] = nodes
        possible, last = np.ones(nodes.shape[0], dtype=bool), states
        for number, level in enumerate(self.levels):
            if number == 0 and self.flip_sums is not None and not nodes.all():
                bounds = self.flip_sums.bounds(nodes)
            else:
                bounds = level.bounds(states)
            last, fine = level.settle(*bounds)
            possible &= fine
            if level.outputs.size:
                states[:, level.outputs] = last
        return ~self.scores.excluded(last, self.targets) & possible[:, None]

    # -- leaves -------------------------------------------------------------------------------

    def propagated(self, leaves: Signs) -> tuple[Signs, BoolArray, Integers]:
        """Find the nodes that propagation leaves open, their open targets, and their leaves."""
        nodes, possible = self.implied(leaves)
        possible &= not self.skeleton.empty
        index = np.flatnonzero(possible)
        targets = self.reached(nodes[index])
        kept = np.flatnonzero(targets.any(axis=1))
        kept = kept[~self.broken(nodes[index[kept]])]
        return nodes[index[kept]], targets[kept], index[kept]

    def counts(self, nodes: Signs) -> Integers:
        """Bound the numbers of patterns from above, up to MOST_PATTERNS + 1."""
        open_, flips = np.count_nonzero(nodes == 0, axis=1), self.flips.most(nodes)
        pairs = zip(open_.tolist(), flips.tolist(), strict=True)
        return np.array([_count(*pair) for pair in pairs], dtype=np.int64)

    def countable(self, nodes: Signs) -> BoolArray:
        """Decide which nodes have at most MOST_PATTERNS patterns, by the number of flips."""
        return self.counts(nodes) <= MOST_PATTERNS

    def counterexample(self, nodes: Signs, targets: BoolArray) -> Signs | None:
        """Find a pattern of the nodes that reaches one of their targets, or None."""
        counts = self.counts(nodes)
        large = counts >= LOOP
        if counts[large].sum() < LOOP_TOGETHER or self.flip_sets is None:
            return self._counterexample(nodes, targets)
        for k in timed(np.flatnonzero(large).tolist()):
            found = self._counterexample_of_one(nodes[k], targets[k])
            if found is not None:
                return found
        return self._counterexample(nodes[~large], targets[~large])

    @cached_property
    def flip_sets(self) -> FlipSets | None:
        """The form for the compiled loop, or None if it cannot be used."""
        return FlipSets.of(self.inputs, self.skeleton.size, self.levels, self.scores)

    def _counterexample_of_one(self, node: Signs, targets: BoolArray) -> Signs | None:
        """Do the same for one node by the compiled loop, whose results are evaluated again."""
        assert self.flip_sets is not None
        base = np.where(node == 0, self.flips.home, node)
        if not self.flips.cost.any():
            base = consistent(node, base, self.excluded)
        left = float(self.flips.left(node[None, :])[0])
        rules = FlipOrder.of(node, base, self.flips.cost, left, self.excluded)
        clauses = FlipClauses.of(self.clause_table, node, base, rules)
        for patterns in self.flip_sets.reaching(base, rules, clauses, targets):
            refuse_late()
            found = self._first_occurring(patterns, np.tile(targets, (patterns.shape[0], 1)))
            if found is not None:
                return found
        return None

    def _first_occurring(self, patterns: Signs, targets: BoolArray) -> Signs | None:
        """Find the first pattern that reaches a target of its row and is not excluded."""
        wrong = patterns[np.any(self.reached(patterns) & targets, axis=1)]
        wrong = wrong[self.implied(wrong)[1] & ~self.broken(wrong)]
        return np.asarray(wrong[0]) if wrong.shape[0] else None

    def _counterexample(self, nodes: Signs, targets: BoolArray) -> Signs | None:
        """Do the same for many nodes together, by products.

        The first pattern of a node has no further flips.  Every other pattern has a first flip,
        before which all signs are those of the centre; the patterns with this flip are a node.
        """
        stack, place = [(nodes, targets)], np.arange(self.inputs)
        together = max(1, min(TOGETHER, NUMBERS // max(1, self.inputs)))
        while stack:
            refuse_late()
            nodes, targets = stack.pop()
            children = np.cumsum(np.count_nonzero(nodes == 0, axis=1))
            count = max(1, int(np.searchsorted(children, together)))
            stack += [(nodes[count:], targets[count:])] if count < nodes.shape[0] else []
            nodes, targets = nodes[:count], targets[:count]
            complete = np.where(nodes == 0, self.flips.home, nodes)
            found = self._first_occurring(complete, targets)
            if found is not None:
                return found
            every, flips = np.nonzero(nodes == 0)
            for k in timed(range(0, every.size, together)):
                who, flip = every[k : k + together], flips[k : k + together]
                child = nodes[who]
                earlier = (child == 0) & (place < flip[:, None])
                child = np.where(earlier, self.flips.home, child)
                child[np.arange(who.size), flip] = -self.flips.home[flip]
                child, possible = self.implied(child)
                stack.append((child[possible], targets[who[possible]]))
        return None

    def refuse_reached(self, leaves: Signs) -> None:
        """Reject leaves that have too many patterns, or one that reaches a target."""
        nodes, targets, _ = self.propagated(leaves)
        if not self.countable(nodes).all():
            raise RejectedError(f"a leaf has more than {MOST_PATTERNS} patterns")
        if self.counterexample(nodes, targets) is not None:
            raise RejectedError("a leaf has a pattern that reaches a target")


@lru_cache(maxsize=10_000)
def _count(open_: int, flips: int) -> int:
    """Count the patterns with at most `flips` flips, up to MOST_PATTERNS + 1."""
    total = 0
    for k in range(min(open_, flips) + 1):
        total += comb(open_, k)
        if total > MOST_PATTERNS:
            return MOST_PATTERNS + 1
    return total


def _literals(nodes: Signs) -> BoolArray:
    """Make one column for each literal: where it holds."""
    return np.stack([nodes > 0, nodes < 0], axis=2).reshape(nodes.shape[0], 2 * nodes.shape[1])


def _opposite(nodes: Signs) -> Integers:
    return np.arange(2 * nodes.shape[1]) ^ 1


class PatternTree:
    """Goes through a tree in preorder; a batch of its leaves is closed together."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns, self.leaves = patterns, 0
        #: Such a tree has no clauses of its own: they all come before it.
        self.learned: list[Clauses] = []
        #: The signs of the current node, the variables of its branches, and whether it is the last.
        self.path: Signs = np.zeros(patterns.inputs, dtype=np.int8)
        self.branches: list[int] = []
        self.complete = False
        self._waiting: list[Signs] = []

    def take(self, section: Section) -> None:
        """Read the nodes of one section: a variable, first with the sign +1, or -1 for a leaf."""
        path, branches = self.path, self.branches
        for variable in timed(section.integers("variables").tolist()):
            if self.complete:
                raise RejectedError("a tree continues after its end")
            if variable >= 0:
                if variable >= path.size or path[variable]:
                    raise RejectedError("a node splits a variable that is not open")
                path[variable] = 1
                branches.append(variable)
                continue
            if variable != LEAF:
                raise RejectedError("a tree of patterns has a node of an unknown kind")
            self._waiting.append(path.copy())
            if len(self._waiting) == LEAVES:
                self._close()
            # Continue with the other sign of the last branch that has not had both.
            while branches and path[branches[-1]] < 0:
                path[branches.pop()] = 0
            if branches:
                path[branches[-1]] = -1
            self.complete = not branches

    def finish(self) -> None:
        """Close the remaining leaves; reject a tree that is not complete."""
        if not self.complete:
            raise RejectedError("a tree does not cover all cases")
        self._close()

    def _close(self) -> None:
        if not self._waiting:
            return
        self.leaves += len(self._waiting)
        self.patterns.refuse_reached(np.array(self._waiting))
        self._waiting = []
