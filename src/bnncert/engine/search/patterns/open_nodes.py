"""The nodes of a search over sign patterns.

They are handled in batches.  The open ones are a stack from which others can take subtrees, and a
record of the tree has a few bytes for each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, IntArray, SignArray


@dataclass(frozen=True, eq=False)
class NodeBatch:
    """Nodes and the targets that are still open in each.

    A node is a row of signs of the first-layer variables, 0 for a sign that is not fixed.
    `numbers` are the numbers of the nodes in the record of the tree; the array is empty without a
    record, and for patterns.
    """

    nodes: SignArray
    targets: BoolArray
    numbers: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.nodes.shape[0])

    def take(self, chosen: IntArray | BoolArray | slice) -> NodeBatch:
        """Return some of the nodes."""
        numbers = self.numbers[chosen] if self.numbers.size else self.numbers
        return NodeBatch(self.nodes[chosen], self.targets[chosen], numbers)

    @staticmethod
    def joined(parts: Sequence[NodeBatch]) -> NodeBatch:
        """Return the nodes of several batches (at least one) in order."""
        return NodeBatch(
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.targets for part in parts]),
            np.concatenate([part.numbers for part in parts]),
        )


class OpenNodes:
    """Batches of nodes, the last one first; nodes that are searched elsewhere count as open."""

    def __init__(self, *batches: NodeBatch) -> None:
        self._stack = [batch for batch in batches if len(batch)]
        self._away = 0
        # The share of the tree below the nodes that are searched elsewhere.
        self._away_share = 0.0
        #: Above this size nodes are given away deepest first, which needs little memory.
        self.most_bytes = np.inf

    def __len__(self) -> int:
        """Return the number of nodes that wait here."""
        return sum(map(len, self._stack))

    def __bool__(self) -> bool:
        """Whether a node waits here."""
        return bool(self._stack)

    @property
    def is_empty(self) -> bool:
        """Whether no node is open, neither here nor elsewhere."""
        return not self._stack and not self._away

    def push(self, batch: NodeBatch, *, oldest: bool = False) -> None:
        """Add nodes that are searched next, or last if they are `oldest`."""
        if len(batch):
            self._stack.insert(0 if oldest else len(self._stack), batch)

    def pop(self, most: int, *, oldest: bool = False) -> NodeBatch:
        """Remove the nodes that are searched next, or the oldest ones; there has to be one."""
        taken, count = [], 0
        while self._stack and count < most:
            taken.append(self._stack.pop(0 if oldest else -1))
            count += len(taken[-1])
        joined = NodeBatch.joined(taken)
        self.push(joined.take(slice(most, None)), oldest=oldest)
        return joined.take(slice(most))

    def pop_all(self) -> NodeBatch:
        """Remove all nodes that wait here, the oldest first; there has to be one."""
        stack, self._stack = self._stack, []
        return NodeBatch.joined(stack)

    @property
    def is_crowded(self) -> bool:
        """Whether the nodes that wait here take too much memory."""
        return sum(b.nodes.nbytes + b.targets.nbytes for b in self._stack) > self.most_bytes

    def hand_out(self, most: int) -> NodeBatch:
        """Remove nodes to be searched elsewhere; they are open until `take_back`.

        The oldest nodes are taken, which have the largest subtrees; there has to be one.
        """
        given = self.pop(most, oldest=not self.is_crowded)
        self._away += len(given)
        self._away_share += _share(given)
        return given

    def take_back(self, given: NodeBatch, rest: NodeBatch) -> None:
        """End a search elsewhere; `rest` are the open nodes of the subtrees below `given`."""
        self._away -= len(given)
        self._away_share -= _share(given)
        self.push(rest, oldest=not self.is_crowded)

    def share(self) -> float:
        """Return the share of the whole tree below the open nodes; a split halves the share."""
        return self._away_share + sum(map(_share, self._stack))

    def drop_targets(self, proved: BoolArray) -> None:
        """Remove targets that are proved elsewhere from all nodes that wait here."""
        stack, self._stack = self._stack, []
        for batch in stack:
            left = replace(batch, targets=batch.targets & ~proved)
            self.push(left.take(np.flatnonzero(left.targets.any(axis=1))))


def _share(batch: NodeBatch) -> float:
    return float(np.sum(2.0 ** -np.count_nonzero(batch.nodes, axis=1)))


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
