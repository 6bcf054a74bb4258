"""Parts of the region that a search has not decided yet, in little memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bnncert.arrays import SignArray
from bnncert.questions.count.count_tree import Kind, Record
from bnncert.questions.count.counted_space import ItemFrame, Items
from bnncert.questions.count.input_groups import Item, count_ways

#: Items that replace those of a frame: the ones before, the number of an item, and the item.
Restriction: TypeAlias = "tuple[Restriction | None, int, Item]"


@dataclass(eq=False)
class CountPart:
    """A part of the region: some alternatives of all items of a frame.

    Attributes
    ----------
    frame, whole
        The frame, and its items with all their alternatives.
    restriction
        The items that have fewer alternatives in this part.
    points
        The number of points.
    record
        The node of the tree.
    signs
        The signs of the open neurons of the frame that are known of a larger part; 0 if none is.
    """

    frame: ItemFrame
    whole: Items
    restriction: Restriction | None
    points: int
    record: Record
    signs: SignArray

    @cached_property
    def items(self) -> Items:
        """The items with their alternatives in this part."""
        items, seen = list(self.whole), set[int]()
        link = self.restriction
        while link is not None:
            link, number, item = link
            if number not in seen:
                seen.add(number)
                items[number] = item
        return tuple(items)

    def split(self, number: int, at: int, item: Item) -> tuple[CountPart, CountPart]:
        """Split the alternatives of an item of this part; the points are not counted."""
        first, second = Record(), Record()
        self.record.children = [first, second]
        self.record.item, self.record.at, self.record.kind = number, at, Kind.SPLIT
        halves = item.without_first if at == 1 else (item.part(0, at), item.part(at, item.size))
        one, other = (
            CountPart(
                self.frame, self.whole, (self.restriction, number, half), 0, child, self.signs
            )
            for half, child in zip(halves, (first, second), strict=True)
        )
        return one, other

    def count(self) -> CountPart:
        """Count the points, and return the part."""
        self.points = count_ways(self.items, self.frame.budget)
        return self
