r"""The open nodes of a tree: lowest bound first, or deepest first when memory is short.

Deepest first completes one subtree before the next one, so that from then on the number of open
nodes grows by at most the depth of the tree.  No node is dropped.

The moments of a node are the primal start of its children.  The moments of the parent, restricted
to the variables that are still free, are averaged with those of independent uniform signs, which
are away from the boundary.  The sum of each table starts from a normal density with the mean and
the variance that these moments give it.  The start need not be feasible: the solver needs fewer
iterations from it than from the moments of random patterns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.relaxations.reduced.patterns import cut_start
from bnncert.engine.search.restrict import Restriction
from bnncert.engine.search.warm_start import NodeMultipliers, NodeParts

#: The share of the parent in the start.
SHARE = 0.8

#: The least density at a point of a lattice, relative to the largest.
LEAST_DENSITY = 1e-2


@dataclass(frozen=True, eq=False)
class ParentMoments:
    """Moments of (1, x), x being the variables `free` of the whole problem."""

    free: IntArray
    moments: FloatArray

    @property
    def bytes(self) -> int:
        """The approximate memory."""
        return int(self.free.nbytes + self.moments.nbytes)

    def start(self, left: Restriction) -> tuple[FloatArray, list[FloatArray]] | None:
        """Return moments and distributions for a child; None if it has gates."""
        problem = left.problem
        if problem.gates.rows.shape[0] or not np.all(np.isin(left.free, self.free)):
            return None
        own = np.append(0, 1 + np.searchsorted(self.free, left.free))
        moments = SHARE * self.moments[np.ix_(own, own)] + (1 - SHARE) * np.eye(own.size)
        rows, points = problem.table.rows, problem.table.points
        mean = rows @ moments[0, 1:]
        square = np.einsum("ji,ik,jk->j", rows, moments[1:, 1:], rows, optimize=True)
        width = np.sqrt(np.maximum(1.0, square - mean**2))
        start = [_normal(points, mean, width), np.zeros_like(problem.gates.points)]
        splits = problem.splits
        if splits is not None:
            start[0] = start[0][problem.whole]
            # Where the sign is what u and its own mean make likely.
            own, side = splits.tables, moments[0, 1 + splits.variables]
            likely = (1 + splits.signs * side[:, None]) / 2
            share = _normal(splits.points, mean[own], width[own]) * likely
            start.append(share / share.sum(axis=1, keepdims=True))
        if problem.cuts is not None:
            start.append(cut_start(problem.cuts, moments))
        return moments, start


def _normal(points: FloatArray, mean: FloatArray, width: FloatArray) -> FloatArray:
    """Return densities on points, with a mean and a width for each row."""
    bell = np.exp(-0.5 * ((points - mean[:, None]) / width[:, None]) ** 2) + LEAST_DENSITY
    return np.asarray(bell / bell.sum(axis=1, keepdims=True))


#: Approximate bytes of a node besides its signs.
OVERHEAD = 400


@dataclass(frozen=True, eq=False)
class OpenNode:
    """The signs that the splits above fixed, and a lower bound of f for all inputs with them.

    `start` are the multipliers of the parent, from which the solver may start.
    """

    signs: SignArray
    bound: float
    number: int = 0
    start: NodeMultipliers | None = None
    #: The parts that the relaxation of this node leaves out, and those that it splits.
    parts: NodeParts | None = None
    #: The moments of the parent.
    moments: ParentMoments | None = None

    def bare(self) -> OpenNode:
        """Return the node without what it inherits from its parent."""
        return OpenNode(self.signs, self.bound, self.number)

    @property
    def depth(self) -> int:
        """The number of fixed signs."""
        return int(np.count_nonzero(self.signs))

    @property
    def bytes(self) -> int:
        """The approximate memory of the node."""
        parts = (self.start, self.parts, self.moments)
        return int(self.signs.nbytes) + OVERHEAD + sum(p.bytes for p in parts if p is not None)


class Frontier:
    """The open nodes of a tree, within a memory limit in bytes."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.bytes = 0
        self.deepest_first = False
        self._heap: list[tuple[tuple[float, ...], int, OpenNode]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: OpenNode) -> None:
        """Add a node; without its multipliers if memory is short."""
        if self.deepest_first or self.bytes + node.bytes > self.limit / 2:
            node = node.bare()
        heapq.heappush(self._heap, (self._key(node), node.number, node))
        self.bytes += node.bytes

    def pop(self, others: int = 0) -> OpenNode:
        """Remove and return a node; `others` are the bytes that the search uses elsewhere."""
        self._choose_order(others)
        node = heapq.heappop(self._heap)[2]
        self.bytes -= node.bytes
        return node

    def take(self) -> list[OpenNode]:
        """Remove and return all nodes, lowest bound first."""
        nodes = sorted((entry[2] for entry in self._heap), key=lambda n: (n.bound, n.number))
        self._heap, self.bytes = [], 0
        return nodes

    def least(self) -> float:
        """Return the lowest bound."""
        return min((node.bound for _, _, node in self._heap), default=np.inf)

    def share(self) -> float:
        """Return the share of the whole tree below these nodes; a split halves the share."""
        return float(sum(2.0**-node.depth for _, _, node in self._heap))

    def _key(self, node: OpenNode) -> tuple[float, ...]:
        return (-node.depth, node.bound) if self.deepest_first else (node.bound,)

    def _choose_order(self, others: int) -> None:
        if self.bytes + others > self.limit and not self.deepest_first:
            bare = [node.bare() for _, _, node in self._heap]
            self._heap = [(self._key(node), node.number, node) for node in bare]
            self.bytes = sum(node.bytes for _, _, node in self._heap)
        used = self.bytes + others
        # The order changes back at half the limit, so that it does not change with every node.
        wanted = used > (self.limit / 2 if self.deepest_first else self.limit)
        if wanted != self.deepest_first:
            self.deepest_first = wanted
            self._heap = [(self._key(n), n.number, n) for _, _, n in self._heap]
            heapq.heapify(self._heap)
