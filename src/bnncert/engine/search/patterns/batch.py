"""Batches of nodes of a search over sign patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

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
