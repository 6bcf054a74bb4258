"""The open nodes of a search over sign patterns: a stack from which others can take subtrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.engine.search.patterns.batch import NodeBatch


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
