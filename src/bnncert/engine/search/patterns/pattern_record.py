"""The tree of a search over sign patterns, with a few bytes for each node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray

#: A node that was not split.
LEAF = -1

Numbers = npt.NDArray[np.int32]


class TreeRecord:
    """The split nodes and the variables on which they are split; the roots come first."""

    def __init__(self, roots: int = 1) -> None:
        self._splits: list[tuple[Numbers, Numbers, int]] = []
        self.size = roots

    def split(self, nodes: IntArray, variables: IntArray) -> tuple[IntArray, IntArray]:
        """Record splits of nodes; return the numbers of their children with +1 and with -1."""
        first, count = self.size, nodes.size
        self._splits.append((nodes.astype(np.int32), variables.astype(np.int32), first))
        self.size += 2 * count
        return np.arange(first, first + count), np.arange(first + count, first + 2 * count)

    def graft(self, nodes: IntArray, other: TreeRecord) -> IntArray:
        """Add the trees of another record, whose roots are leaves here.

        Returns the number here of every node of the other record.
        """
        shift = self.size - nodes.size
        numbers = np.concatenate([nodes, np.arange(nodes.size, other.size) + shift])
        for split, variables, first in other._splits:
            self._splits.append((numbers[split].astype(np.int32), variables, first + shift))
        self.size += other.size - nodes.size
        return np.asarray(numbers, dtype=np.int64)

    def preorder(self) -> Numbers:
        """Return the variable of every node in preorder, LEAF for a leaf; +1 comes before -1."""
        below = np.ones(self.size, dtype=np.int32)
        # Children have larger numbers than their parents, and those of one split are distinct.
        for nodes, _, first in reversed(self._splits):
            plus = np.arange(first, first + nodes.size)
            below[nodes] = 1 + below[plus] + below[plus + nodes.size]
        place = np.zeros(self.size, dtype=np.int32)
        order = np.full(self.size, LEAF, dtype=np.int32)
        for nodes, variables, first in self._splits:
            plus = np.arange(first, first + nodes.size)
            place[plus] = place[nodes] + 1
            place[plus + nodes.size] = place[plus] + below[plus]
            order[place[nodes]] = variables
        return order
