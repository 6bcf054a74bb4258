r"""A tree of first-layer signs that proves several targets at once, without any numbers.

A leaf fixes some signs of the first layer.  The checker closes it by itself: it propagates the
signs through all layers, and where that leaves targets open it goes through all patterns of the
leaf.  A sum u = w.x over signs, some of them fixed and some open (x_i = 0), lies in

    w.x - sum over open |w_i|  <=  u  <=  w.x + sum over open |w_i|.

Its neuron is +1 where u cannot be so low that -1 is allowed, and -1 likewise.  At the end every
function of the scores has a lower bound; a target is excluded where one of its functions is
positive.  Pairs of signs that exclude each other, proved clauses and the budget of a ball (`flips`)
say which nodes and patterns do not occur.

All sums are integers of at most 2^24 (`skeleton` refuses larger ones), so float32 products and sums
are exact in any order.  Functions are sums of integers below 2^53 in float64.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, gcd

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray
from bnncert.arrays import SignArray as Signs
from bnncert.checking.container import Budget, RejectedError, Section
from bnncert.checking.flips import Flips, FlipSums
from bnncert.checking.function import Function, Objects
from bnncert.checking.geometry import Geometry
from bnncert.checking.reading import Clauses
from bnncert.checking.skeleton import MOST_REACH, Layer, Skeleton
from bnncert.checking.sparse import Integers, SparseRows
from bnncert.checking.statement import ScoreFunction

#: Patterns of one leaf, at most.
MOST_PATTERNS = 2**20

#: Weights between open neurons, and of all functions together, at most.
MOST_ENTRIES, MOST_WEIGHTS = 2**27, 2**25

#: Leaves that are propagated together, patterns that are evaluated together, and clauses that are
#: looked at together.
LEAVES, TOGETHER, CLAUSES = 1024, 8192, 1024

#: The node of a tree that is not a branch.
LEAF = -1

#: The finest unit of a function is 2^-FINEST.
FINEST = 48


class LayerLevel:
    """Neurons of one layer as functions of the variables below."""

    def __init__(self, layer: Layer, neurons: Integers, outputs: Integers) -> None:
        rows = layer.rows.matrix.take(neurons)
        #: The variables of the sums, and those that the neurons are (none for the last layer).
        self.inputs, column = np.unique(rows.columns, return_inverse=True)
        self.outputs = outputs
        if self.inputs.size * neurons.size > MOST_ENTRIES:
            raise RejectedError("a layer has too many weights for a tree of patterns")
        used = SparseRows(rows.start, column, rows.values, self.inputs.size)
        self.rows: Float32Array = used.dense().astype(np.float32)
        self.sizes = np.abs(self.rows)
        # No sum is beyond MOST_REACH, so thresholds beyond it may be moved.
        most = MOST_REACH + 2
        numbers = layer.low, layer.high, layer.plus, layer.minus
        moved = (np.clip(n[neurons], -most, most).astype(np.float32) for n in numbers)
        self.low, self.high, self.plus, self.minus = moved

    def bounds(self, states: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Return the least and the largest value of every sum."""
        below = states[:, self.inputs]
        middle, open_ = below @ self.rows.T, below == 0
        if not open_.any():
            return middle, middle
        radius = open_.astype(np.float32) @ self.sizes.T
        return middle - radius, middle + radius

    def settle(self, least: Float32Array, most: Float32Array) -> tuple[Float32Array, BoolArray]:
        """Return the sign of every neuron, 0 if open, and the nodes without a contradiction."""
        least, most = np.maximum(least, self.low), np.minimum(most, self.high)
        signs = (least > self.minus).astype(np.float32) - (most < self.plus)
        return signs, ~np.any(least > most, axis=1)


@dataclass(frozen=True, eq=False)
class Scores:
    """Lower bounds of functions in whole units: column k proves `target[k]` from `enough[k]` on."""

    weights: FloatArray
    enough: FloatArray
    target: Integers

    @staticmethod
    def of(
        skeleton: Skeleton, members: Integers, targets: Sequence[Sequence[ScoreFunction]]
    ) -> Scores:
        """Return the functions of all targets over the open neurons `members` of the last layer.

        In a network of one layer they are functions of the variables.
        """
        owner = [k for k, target in enumerate(targets) for _ in target]
        width = members.size if len(skeleton.layers) > 1 else skeleton.size
        if len(owner) * width > MOST_WEIGHTS:
            raise RejectedError("the property has too many weights for one proof of all targets")
        weights, enough = np.zeros((len(owner), width)), np.zeros(len(owner))
        last = skeleton.layers[-1]
        objectives = (objective for target in targets for objective in target)
        for k, objective in enumerate(objectives):
            function = objective.of(skeleton.network)
            fixed = int((function.weights * last.state.astype(object)).sum())
            constant = function.constant + Fraction(fixed, function.denominator)
            own = function.weights[members]
            if len(skeleton.layers) == 1:
                total = np.zeros(width, dtype=object)
                np.add.at(total, last.variable[members], own * last.sign[members])
                own = total
            weights[k], enough[k] = _in_units(function, own, constant)
        return Scores(weights, enough, np.array(owner, dtype=np.int64))

    def excluded(self, last: Float32Array, targets: int) -> BoolArray:
        """Return the targets that the last layer's signs exclude, one row for each node."""
        signs, open_ = last.astype(np.float64), (last == 0).astype(np.float64)
        least = signs @ self.weights.T - open_ @ np.abs(self.weights).T
        table = np.zeros((last.shape[0], targets), dtype=bool)
        for k, target in enumerate(self.target.tolist()):
            table[:, target] |= least[:, k] >= self.enough[k]
        return table


def _in_units(function: Function, weights: Objects, constant: Fraction) -> tuple[FloatArray, int]:
    """Return whole weights, and from which value of their sum on the function is positive."""
    sizes, step = sum(map(abs, weights.tolist())), gcd(*weights.tolist()) or 1
    if sizes // step < 2**51:
        whole, lost, unit = weights // step, 0, Fraction(step, function.denominator)
    else:
        shift = min(FINEST, 51 - (sizes // function.denominator + 1).bit_length())
        if shift < 0:
            raise RejectedError("the weights of the property are too large")
        exact, unit = weights << shift, Fraction(1, 1 << shift)
        whole = exact // function.denominator
        # What the floor left out costs at most one unit for each weight.
        lost = int(np.count_nonzero(whole * function.denominator != exact))
    values = range(-(2**53), 2**53)

    def is_enough(value: int) -> bool:
        return function.is_positive_from(constant + (value - lost) * unit)

    return whole.astype(np.float64), values.start + bisect_left(values, True, key=is_enough)


class Patterns:
    """All that the leaves of a tree need: the network from the first layer's variables on."""

    def __init__(
        self,
        skeleton: Skeleton,
        geometry: Geometry,
        clauses: Clauses,
        targets: Sequence[Sequence[ScoreFunction]],
        budget: Budget | None = None,
    ) -> None:
        self.skeleton, self.targets = skeleton, len(targets)
        self.budget = Budget() if budget is None else budget
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
        self.clauses: list[SparseRows] = []
        self.learn(clauses)

    def learn(self, clauses: Clauses) -> None:
        """Add proved clauses."""
        table = self.skeleton.literal_table(clauses)
        pairs = table.take(np.flatnonzero(table.sizes == 2)).columns.reshape(-1, 2)
        self.excluded[pairs[:, 0], pairs[:, 1]] = self.excluded[pairs[:, 1], pairs[:, 0]] = 1
        longer = np.flatnonzero(table.sizes != 2)
        parts = (longer[k : k + CLAUSES] for k in range(0, longer.size, CLAUSES))
        self.clauses += [table.take(part) for part in parts]

    # -- one batch of nodes -----------------------------------------------------------------

    def implied(self, nodes: Signs) -> tuple[Signs, BoolArray]:
        """Return the nodes with what budget and pairs imply, and which of them may occur."""
        nodes, before = self.flips.restricted(nodes), nodes[:0]
        possible = self.flips.left(nodes) >= 0
        while self.excluded.any() and not np.array_equal(nodes, before):
            before, holds = nodes, _literals(nodes)
            # Counts below 2^24 are exact.
            false = holds.astype(np.float32) @ self.excluded > 0.5
            possible &= ~np.any((false & holds) | (false & false[:, _opposite(nodes)]), axis=1)
            forced = false[:, 1::2].astype(np.int8) - false[:, 0::2]
            nodes = self.flips.restricted(np.where(nodes == 0, forced, nodes))
            possible &= self.flips.left(nodes) >= 0
        return nodes, possible

    def broken(self, nodes: Signs) -> BoolArray:
        """Return which nodes have all signs of some clause."""
        holds = _literals(nodes).astype(np.float32)
        found = np.zeros(nodes.shape[0], dtype=bool)
        for part in self.clauses:
            # The clauses are about the first layer's variables, which come first; counts are exact.
            members = part.dense()[:, : 2 * self.inputs].astype(np.float32)
            found |= np.any(holds @ members.T == part.sizes, axis=1)
        return found

    def reached(self, nodes: Signs) -> BoolArray:
        """Return the targets that propagation does not exclude, one row for each node."""
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
        """Return what propagation leaves: nodes, the targets open in each, and which leaves."""
        nodes, possible = self.implied(leaves)
        possible &= not self.skeleton.empty
        index = np.flatnonzero(possible)
        targets = self.reached(nodes[index])
        kept = np.flatnonzero(targets.any(axis=1))
        kept = kept[~self.broken(nodes[index[kept]])]
        return nodes[index[kept]], targets[kept], index[kept]

    def countable(self, nodes: Signs) -> BoolArray:
        """Return which nodes have at most MOST_PATTERNS patterns, by the number of flips."""
        open_, flips = np.count_nonzero(nodes == 0, axis=1), self.flips.most(nodes)
        pairs = zip(open_.tolist(), flips.tolist(), strict=True)
        return np.array([_few(*pair) for pair in pairs], dtype=bool)

    def counterexample(self, nodes: Signs, targets: BoolArray) -> Signs | None:
        """Return a pattern of the nodes that reaches one of their targets, or None.

        The first pattern of a node has no more flips.  Every other one has a first flip, before
        which all signs are those of the centre; the patterns with this one are a node again.
        """
        stack, place = [(nodes, targets)], np.arange(self.inputs)
        while stack:
            self.budget.refuse_late()
            nodes, targets = stack.pop()
            children = np.cumsum(np.count_nonzero(nodes == 0, axis=1))
            count = max(1, int(np.searchsorted(children, TOGETHER)))
            stack += [(nodes[count:], targets[count:])] if count < nodes.shape[0] else []
            nodes, targets = nodes[:count], targets[:count]
            complete = np.where(nodes == 0, self.flips.home, nodes)
            wrong = complete[np.any(self.reached(complete) & targets, axis=1)]
            wrong = wrong[self.implied(wrong)[1] & ~self.broken(wrong)]
            if wrong.shape[0]:
                return np.asarray(wrong[0])
            who, flip = np.nonzero(nodes == 0)
            if who.size:
                child = nodes[who]
                earlier = (child == 0) & (place < flip[:, None])
                child = np.where(earlier, self.flips.home, child)
                child[np.arange(who.size), flip] = -self.flips.home[flip]
                child, possible = self.implied(child)
                stack.append((child[possible], targets[who[possible]]))
        return None

    def refuse_reached(self, leaves: Signs) -> None:
        """Refuse leaves that have too many patterns, or one that reaches a target."""
        nodes, targets, _ = self.propagated(leaves)
        if not self.countable(nodes).all():
            raise RejectedError(f"a leaf has more than {MOST_PATTERNS} patterns")
        if self.counterexample(nodes, targets) is not None:
            raise RejectedError("a leaf has a pattern that reaches a target")


@lru_cache(maxsize=10_000)
def _few(open_: int, flips: int) -> bool:
    """Whether so many signs have at most MOST_PATTERNS patterns with so many flips."""
    total = 0
    for k in range(min(open_, flips) + 1):
        total += comb(open_, k)
        if total > MOST_PATTERNS:
            return False
    return True


def _literals(nodes: Signs) -> BoolArray:
    """Return one column for each literal: where it holds."""
    return np.stack([nodes > 0, nodes < 0], axis=2).reshape(nodes.shape[0], 2 * nodes.shape[1])


def _opposite(nodes: Signs) -> Integers:
    return np.arange(2 * nodes.shape[1]) ^ 1


class PatternTree:
    """Goes through a tree in preorder; a batch of its leaves is closed together."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns, self.leaves = patterns, 0
        #: Clauses that the tree brings: they all come in front of it.
        self.learned: list[Clauses] = []
        #: The signs of the present node, the variables of its branches, and whether it is the last.
        self.path: Signs = np.zeros(patterns.inputs, dtype=np.int8)
        self.branches: list[int] = []
        self.complete = False
        self._waiting: list[Signs] = []

    def take(self, section: Section) -> None:
        """Read the nodes of one section: a variable, first with the sign +1, or -1 for a leaf."""
        path, branches = self.path, self.branches
        for variable in section.budget.timed(section.integers("variables").tolist()):
            if self.complete:
                raise RejectedError("a tree goes on after its end")
            if variable >= 0:
                if variable >= path.size or path[variable]:
                    raise RejectedError("a node splits what is not open")
                path[variable] = 1
                branches.append(variable)
                continue
            if variable != LEAF:
                raise RejectedError("a tree of patterns has a node of an unknown kind")
            self._waiting.append(path.copy())
            if len(self._waiting) == LEAVES:
                self._close()
            # On to the other sign of the last branch whose other sign is still to come.
            while branches and path[branches[-1]] < 0:
                path[branches.pop()] = 0
            if branches:
                path[branches[-1]] = -1
            self.complete = not branches

    def finish(self) -> None:
        """Close what is left; refuse a tree that is not complete."""
        if not self.complete:
            raise RejectedError("a tree does not cover all cases")
        self._close()

    def _close(self) -> None:
        if not self._waiting:
            return
        self.leaves += len(self._waiting)
        self.patterns.refuse_reached(np.array(self._waiting))
        self._waiting = []
