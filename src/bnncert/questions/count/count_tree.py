"""The tree of a count: how the region is split, and how every part is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from bnncert.arrays import IntArray


class Kind(IntEnum):
    """What a node of the tree is."""

    #: A leaf of which nothing is known.
    OPEN = 0
    #: Leaves on which the class never, or always, changes, by propagation.
    UNCHANGED = 1
    CHANGED = 2
    #: A leaf whose cells are evaluated one by one.
    ENUMERATED = 3
    #: The alternatives of an item are split in two.
    SPLIT = 4
    #: First-layer neurons are dropped, and items are merged; there is one child.
    MERGED = 5
    #: A leaf on which the class never changes, by a certificate of its own; only the root.
    PROVED = 6


@dataclass(eq=False, slots=True)
class Record:
    """A node of the tree."""

    kind: Kind = Kind.OPEN
    #: Of a split: the item, and the number of alternatives of the first child.
    item: int = 0
    at: int = 0
    #: Of a merger: the first-layer neurons that stay open, and the group of every item.
    open: IntArray | None = None
    group: IntArray | None = None
    children: Sequence[Record] = ()

    def preorder(self) -> Iterator[Record]:
        """Yield this node and all nodes below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))
