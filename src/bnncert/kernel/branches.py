r"""Signs of first-layer neurons that exclude each other, proved by branching on inputs.

A branch on a value splits the grid points of the region into those with x_i <= a and those with
x_i >= b, where a and b are neighbouring values of the grid.  A branch on a change, in an L0 ball,
splits its inputs into those with x_i = c_i and those where x_i is one of the k that change.

At a leaf every input has a range [l_i, u_i] of z = x - c.  With v = sum_j theta_j s_j w_j and any
multipliers theta >= 0 and mu >= 0, an input that has the signs s_j has

    0  <=  sum_j theta_j s_j (w_j.x + b_j) + mu (B - sum_i cost_i(z_i))
       <=  sum_j theta_j s_j (w_j.c + b_j) + mu B
           + sum_i max over l_i <= z_i <= u_i of (v_i z_i - mu cost_i(z_i)).

The costs of a ball and their limit B are |z| and r for L1, and z^2 and r^2 for L2.  An input that
occurs neither in the signs nor in the tree has the cost of its nearest grid value.  In an L0 ball
mu is 0, and v.z is bounded by its maximum over the inputs that certainly change, plus the largest
maxima of the others, one for each remaining change.  If the right-hand side is below zero at all
leaves, no input of the region has the signs; zero is enough if a sign with theta_j > 0 excludes
ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import nlargest
from math import ceil

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.function import Objects, scaled
from bnncert.kernel.geometry import BITS, Geometry
from bnncert.kernel.section_reading import Clauses, read_clauses
from bnncert.kernel.space import Space
from bnncert.kernel.sparse import Integers

#: The most nodes of one section, weights of the neurons of one clause, and bits of the values at
#: which inputs are split.
MOST_NODES, MOST_WEIGHTS, MOST_BITS = 2**20, 2**20, 2000

#: Balls whose inputs cost a share of the radius.
COSTLY = ("l1", "l2")

#: A node that is not a branch; below it are the branches on a change, FIRST_CHANGE - i for input i.
LEAF, FIRST_CHANGE = -1, -2


@dataclass(frozen=True, eq=False)
class Branched:
    """Clauses whose proofs are trees, one after the other, in preorder."""

    #: The clauses, without multipliers.
    clauses: Clauses
    #: The input of a branch on a value, FIRST_CHANGE minus the input of a branch on a change, or
    #: LEAF.
    nodes: Integers
    #: For each branch on a value the number k of the grid value a = value(k).
    places: Integers
    #: For each leaf the multipliers of its clause, then mu.
    theta: Integers


def read_branched(section: Section, geometry: Geometry) -> Branched:
    """Read clauses and their trees; only their lengths are checked here."""
    clauses = read_clauses(section, geometry.size, geometry.inequalities, has_theta=False)
    nodes = section.integers("nodes")
    if nodes.size > MOST_NODES:
        raise RejectedError(f"the trees of inputs have more than {MOST_NODES} nodes")
    if np.any((clauses.sign != 1) & ((clauses.sign != -1) | (clauses.neuron < 0))):
        raise RejectedError("a clause has an impossible sign")
    return Branched(clauses, nodes, section.integers("places"), section.integers("theta"))


def refuse_unproved(found: Branched, geometry: Geometry) -> None:
    """Reject clauses whose trees do not prove them."""
    if np.any(found.theta < 0):
        raise RejectedError("a leaf has a negative multiplier")
    nodes, places = timed(found.nodes.tolist()), iter(found.places.tolist())
    theta, used = found.theta, 0
    for k in timed(range(found.clauses.count)):
        clause = found.clauses.part(k, k + 1)
        tree = _read_tree(nodes, places, geometry)
        leaves = sum(branch is None for branch in tree)
        size = leaves * (clause.neuron.size + 1)
        if used + size > theta.size:
            raise UnreadableError("section branched: too few multipliers")
        rows = theta[used : used + size].reshape(leaves, -1)
        used += size
        if not proves(tree, clause, rows, geometry):
            raise RejectedError("a leaf of a tree of inputs does not exclude its signs")
    if used != theta.size or next(nodes, None) is not None or next(places, None) is not None:
        raise UnreadableError("section branched: lists of the wrong length")


@dataclass(frozen=True)
class Branch:
    """A branch on the value of an input, at most `below` or at least `above`, or on its change."""

    input: int
    below: float = 0.0
    above: float = 0.0
    on_change: bool = False


#: A tree in preorder; None is a leaf.
InputTree = list[Branch | None]


def _read_tree(nodes: Iterator[int], places: Iterator[int], geometry: Geometry) -> InputTree:
    """Read the next complete tree."""
    tree: InputTree = []
    missing = 1
    while missing:
        node = next(nodes, None)
        if node is None:
            raise RejectedError("a tree of inputs does not cover all cases")
        tree.append(None if node == LEAF else _branch(node, places, geometry))
        missing += -1 if node == LEAF else 1
    return tree


def _branch(node: int, places: Iterator[int], geometry: Geometry) -> Branch:
    space, i = geometry.space, node if node >= 0 else FIRST_CHANGE - node
    if i >= len(space.lower):
        raise RejectedError("a branch is about an input that does not exist")
    if node < 0:
        if space.norm != "l0":
            raise RejectedError("a branch on a change in a region that is not an l0 ball")
        return Branch(i, on_change=True)
    place = next(places, None)
    if place is None or space.grid is None:
        raise RejectedError("a branch on a value without a value, or without a grid")
    below = space.grid.value(i, place)
    return Branch(i, below, space.grid.beyond(i, Fraction(below), 1, strict=True))


def proves(tree: InputTree, clause: Clauses, theta: Integers, geometry: Geometry) -> bool:
    """Whether every leaf of a tree excludes the signs of one clause, with a row of theta each."""
    ranges = Ranges([branch for branch in tree if branch is not None], clause, geometry)
    #: The branches of the current node, each with the ranges before it and whether its other side
    #: follows.
    path: list[tuple[Branch, tuple[int, int, bool], bool]] = []
    leaf = 0
    for branch in tree:
        if branch is not None:
            path.append((branch, ranges.enter(branch, upper=False), True))
            continue
        refuse_late()
        if not ranges.excludes(theta[leaf]):
            return False
        leaf += 1
        while path:
            last, before, is_due = path.pop()
            ranges.restore(last, before)
            if is_due:
                path.append((last, ranges.enter(last, upper=True), False))
                break
    return True


class Ranges:
    """The ranges of the inputs at one node, and the sums of one clause over them.

    Inputs are integers in units of 2^-shift, and z = x - c if the region is a ball around c.
    """

    def __init__(self, branches: Sequence[Branch], clause: Clauses, geometry: Geometry) -> None:
        space, self.norm = geometry.space, geometry.space.norm
        place = np.where(clause.neuron >= 0, clause.neuron, geometry.size - 1 - clause.neuron)
        parts = [part.take(place) for part in geometry.rows]
        split = np.array([branch.input for branch in branches], dtype=np.int64)
        self.inputs = np.unique(np.concatenate([parts[0].columns, split]))
        if self.inputs.size * place.size > MOST_WEIGHTS:
            raise RejectedError("a clause has too many weights for a tree of inputs")
        self.rows = np.zeros((place.size, self.inputs.size), dtype=object)
        column = np.searchsorted(self.inputs, parts[0].columns)
        for k, part in enumerate(parts):
            np.add.at(self.rows, (part.row, column), part.values.astype(object) << (BITS * k))
        ends = [(b.below, b.above) for b in branches if not b.on_change]
        whole, finest = scaled(np.array(ends, dtype=np.float64).reshape(-1))
        self.shift = max(geometry.point_shift, finest)
        if self.shift > MOST_BITS:
            raise RejectedError("the grid is too fine")
        self.ends = dict(zip(ends, (whole << (self.shift - finest)).reshape(-1, 2), strict=True))
        more = self.shift - space.shift
        zero = np.zeros(self.inputs.size, dtype=object)
        self.center = zero if self.norm is None else space.center[self.inputs] << more
        self.low = (space.lower[self.inputs] << more) - self.center
        self.high = (space.upper[self.inputs] << more) - self.center
        self.radius, self.limit = space.radius, self._limit(space) if self.norm in COSTLY else 0
        #: Whether an input of an L0 ball counts as changed.
        self.changed: BoolArray = np.zeros(self.inputs.size, dtype=bool)
        self._constants(clause, geometry)

    def _limit(self, space: Space) -> int:
        """Compute what the other inputs leave of B, in units of the costs, rounded up."""
        power = 2 if self.norm == "l2" else 1
        unit, radius = Fraction(1, 1 << self.shift), Fraction(space.radius, 1 << space.shift)
        own = set(self.inputs.tolist())
        others = sum(gap**power for i, gap in enumerate(space.gaps) if i not in own)
        return ceil((radius**power - others) / unit**power)

    def _constants(self, clause: Clauses, geometry: Geometry) -> None:
        """Find s_j (w_j.c + b_j) of every entry, and which entries need it to be positive."""
        self.rows = clause.sign.astype(object)[:, None] * self.rows
        at_center = (self.rows * self.center).sum(axis=1)
        more = self.shift - geometry.point_shift
        constants, strict = [], []
        entries = clause.neuron.tolist(), clause.sign.tolist(), at_center.tolist()
        for j, s, value in zip(*entries, strict=True):
            place = j if j >= 0 else geometry.size - 1 - j
            bias = int(geometry.bias[s][place])
            constants.append(value + s * (bias << more))
            strict.append(j >= 0 and bool(geometry.loses_ties[s][j]))
        self.constant = np.array(constants, dtype=object)
        self.strict: BoolArray = np.array(strict, dtype=bool)

    def enter(self, branch: Branch, *, upper: bool) -> tuple[int, int, bool]:
        """Narrow the ranges to one side of a branch; return the values for `restore`."""
        i = int(np.searchsorted(self.inputs, branch.input))
        before = self.low[i], self.high[i], bool(self.changed[i])
        if branch.on_change:
            # The lower side: the input does not change.
            if upper:
                self.changed[i] = True
            else:
                self.low[i], self.high[i] = max(self.low[i], 0), min(self.high[i], 0)
            return before
        below, above = self.ends[branch.below, branch.above] - self.center[i]
        if upper:
            self.low[i] = max(self.low[i], above)
        else:
            self.high[i] = min(self.high[i], below)
        return before

    def restore(self, branch: Branch, before: tuple[int, int, bool]) -> None:
        """Restore the ranges before a branch."""
        i = int(np.searchsorted(self.inputs, branch.input))
        self.low[i], self.high[i], self.changed[i] = before

    def excludes(self, theta: Integers) -> bool:
        """Whether multipliers, the last one being mu, exclude the signs in the current ranges."""
        if np.any(self.low > self.high):
            return True
        own, mu = theta[:-1].astype(object), int(theta[-1])
        if mu and self.norm in (None, "l0"):
            return False
        v, constant = (own[:, None] * self.rows).sum(axis=0), int((own * self.constant).sum())
        total = constant
        if self.norm == "l2":
            total = self._over_squares(v, constant, mu)
        elif self.norm == "l1":
            total += self._over_sizes(v, mu)
        elif self.norm == "l0":
            left = self.radius - int(np.count_nonzero(self._surely_changed()))
            if left < 0:
                return True
            total += self._with_changes(v, left)
        else:
            total += int(np.maximum(v * self.low, v * self.high).sum())
        return bool(total < 0 or (total == 0 and np.any(self.strict & (theta[:-1] > 0))))

    def _surely_changed(self) -> BoolArray:
        return np.asarray(self.changed | (self.low > 0) | (self.high < 0), dtype=bool)

    def _with_changes(self, v: Objects, left: int) -> int:
        """Maximise v.z in an L0 ball in which `left` more inputs may change."""
        most, surely = np.maximum(v * self.low, v * self.high), self._surely_changed()
        return int(most[surely].sum()) + int(sum(nlargest(left, most[~surely].tolist())))

    def _over_sizes(self, v: Objects, mu: int) -> int:
        """Compute mu B + the largest v.z - mu |z|: a concave function with a kink at 0."""
        most = np.maximum(*(v * z - mu * abs(z) for z in (self.low, self.high)))
        has_zero = (self.low <= 0) & (self.high >= 0)
        return int(np.where(has_zero, np.maximum(most, 0), most).sum()) + mu * self.limit

    def _over_squares(self, v: Objects, constant: int, mu: int) -> int:
        """Find the bound for L2 (4 mu times), whose maxima are at z = v / (2 mu) or at an end."""
        v, constant = v << self.shift, constant << self.shift
        if not mu:
            return constant + int(np.maximum(v * self.low, v * self.high).sum())
        z = np.where(
            v < 2 * mu * self.low, self.low, np.where(v > 2 * mu * self.high, self.high, 0)
        )
        inside = (v >= 2 * mu * self.low) & (v <= 2 * mu * self.high)
        most = np.where(inside, v * v, 4 * mu * (v * z - mu * z * z))
        return 4 * mu * (constant + mu * self.limit) + int(most.sum())
