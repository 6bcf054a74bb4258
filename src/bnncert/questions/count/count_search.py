"""Branch and bound over the inputs: bounds of the number of changed points that meet at the end.

A part of the region is decided if propagation shows that the class never or always changes on it;
a part with few cells is enumerated; of any other part, the group of inputs with the largest
influence on the open neurons is split.  The part with the most points comes first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.problem import Problem
from bnncert.questions.count.first_layer import GridPoints, OpenNeurons, integer_layer
from bnncert.questions.count.input_groups import (
    Cells,
    Groups,
    InputGroup,
    all_cells,
    count_ways,
    first_change_counts,
)
from bnncert.questions.count.layers_above import CHANGED, OPEN, UNCHANGED, KnownSigns, LayersAbove

#: The most cells that are enumerated at once, and the most multiplications and numbers for it.
MOST_CELLS, MOST_WORK, MOST_NUMBERS = 2**18, 2**31, 2**22

#: Parts with fewer cells are enumerated without merging groups before.
FEW_CELLS = 2**10

#: Regions with fewer points are not given to other methods first.
EASY_POINTS = 2**20

#: The search ends with this number of parts, which take about 2 GB.
MOST_NODES = 2_000_000

#: Above this number of points, groups are merged even if the rounding of values makes some of their
#: cells undecidable.
MANY_POINTS = 2**24

Report: TypeAlias = Callable[[int, int], None]

# -- the tree and its parts ---------------------------------------------------------------


class NodeKind(IntEnum):
    """What a node of the tree is, as in certificates."""

    #: A leaf of which nothing is known.
    OPEN = 0
    #: Leaves on which the class never, or always, changes, by propagation.
    UNCHANGED = 1
    CHANGED = 2
    #: A leaf whose cells are evaluated one by one.
    ENUMERATED = 3
    #: The alternatives of a group are split in two.
    SPLIT = 4
    #: First-layer neurons are dropped, and groups are merged; there is one child.
    MERGED = 5
    #: A leaf on which the class never changes, by a certificate of its own; only the root.
    PROVED = 6


@dataclass(eq=False, slots=True)
class CountNode:
    """A node of the tree: how a part of the region is split, or decided."""

    kind: NodeKind = NodeKind.OPEN
    #: Of a split: the number of the group, and how many of its alternatives the first child has.
    group: int = 0
    at: int = 0
    #: Of a merger: the first-layer neurons that stay open, and the new group of every group.
    open: IntArray | None = None
    grouping: IntArray | None = None
    children: Sequence[CountNode] = ()

    def arrays(self) -> dict[str, IntArray]:
        """Return the tree below this node for a certificate, in preorder."""
        nodes, stack = list[CountNode](), [self]
        while stack:
            nodes.append(stack.pop())
            stack.extend(reversed(nodes[-1].children))
        splits = [node for node in nodes if node.kind == NodeKind.SPLIT]
        opened = [node.open for node in nodes if node.open is not None]
        groupings = [node.grouping for node in nodes if node.grouping is not None]
        none = np.zeros(0, dtype=np.int64)
        return {
            "kinds": np.array([node.kind for node in nodes], dtype=np.int8),
            "split_items": np.array([node.group for node in splits], dtype=np.int32),
            "split_at": np.array([node.at for node in splits], dtype=np.int32),
            "open_sizes": np.array([o.size for o in opened], dtype=np.int32),
            "open": np.concatenate([none, *opened]).astype(np.int32),
            "group_sizes": np.array([g.size for g in groupings], dtype=np.int32),
            "groups": np.concatenate([none, *groupings]).astype(np.int32),
        }


#: Groups that replace those of a part: the ones before, the number of a group, and the group.
Restriction: TypeAlias = "tuple[Restriction | None, int, InputGroup]"


@dataclass(eq=False)
class CountPart:
    """A part of the region that is not decided yet, in little memory."""

    #: The open neurons, the groups with all alternatives, and those that have fewer in this part.
    neurons: OpenNeurons
    whole: Groups
    restriction: Restriction | None
    #: The number of points.
    points: int
    node: CountNode
    #: The signs of the open neurons that are known of a larger part; 0 if none is.
    signs: SignArray

    @cached_property
    def groups(self) -> Groups:
        """The groups with their alternatives in this part."""
        groups, seen = list(self.whole), set[int]()
        link = self.restriction
        while link is not None:
            link, number, group = link
            if number not in seen:
                seen.add(number)
                groups[number] = group
        return tuple(groups)

    def split(self, number: int, at: int, group: InputGroup) -> tuple[CountPart, CountPart]:
        """Split the alternatives of a group of this part; the points are not counted."""
        children = CountNode(), CountNode()
        self.node.kind, self.node.group, self.node.at = NodeKind.SPLIT, number, at
        self.node.children = children
        halves = group.without_first if at == 1 else (group.part(0, at), group.part(at, group.size))
        one, other = (
            CountPart(
                self.neurons, self.whole, (self.restriction, number, half), 0, child, self.signs
            )
            for half, child in zip(halves, children, strict=True)
        )
        return one, other

    def merged(self, *, with_values: bool) -> CountPart | None:
        """Return the part with merged groups, if that makes it much smaller."""
        neurons, groups, signs = self.neurons, self.groups, self.signs
        grouping = neurons.grouping(groups, signs, with_values=with_values)
        matters = np.any(neurons.columns[:, signs == 0] != 0, axis=1)
        sizes: dict[int, int] = {}
        for group, number, by_value in zip(groups, grouping.tolist(), matters, strict=True):
            # If values do not matter, only the number of changes does.
            own = group.size if by_value else len(group.sizes)
            sizes[number] = sizes.get(number, 1) + own - 1
        before = sum(math.log(group.size) for group in groups)
        if sum(math.log(size) for size in sizes.values()) > before - math.log(1.9):
            return None
        child = CountNode()
        left, made = neurons.merge(groups, signs, grouping)
        self.node.kind, self.node.children = NodeKind.MERGED, (child,)
        self.node.open, self.node.grouping = left.numbers, grouping
        unknown = np.zeros(left.numbers.size, dtype=np.int8)
        return CountPart(left, made, None, self.points, child, unknown)


# -- the search ---------------------------------------------------------------------------


class CountSearch:
    """The search; `changed` and `unchanged` are the points known so far."""

    def __init__(self, problem: Problem, points: GridPoints, deadline: Deadline) -> None:
        self._first = problem.network.layers[0]
        self._above = LayersAbove(problem.network, problem.targets)
        self.points, self.deadline, self.total = points, deadline, points.total
        neurons, groups, self._is_exact = integer_layer(self._first, points)
        self._sums_are_exact = self._is_exact and _has_even_steps(groups)
        self.changed = self.unchanged = 0
        self.nodes = self.leaves = 0
        self.witness: FloatArray | None = None
        self.root = CountNode()
        self._heap: list[tuple[int, int, CountPart]] = []
        self._push(CountPart(neurons, groups, None, self.total, self.root, neurons.signs))

    @property
    def upper(self) -> int:
        """The most points that can be changed."""
        return self.total - self.unchanged

    def is_easy(self) -> bool:
        """Return whether the region has few points, or propagation decides it, which is tried."""
        if self.total <= EASY_POINTS or not self._heap:
            return True
        part = self._heap[0][2]
        known, _, _ = self._propagated(part)
        if known.verdict != OPEN:
            self._close(part, known.verdict)
            self._heap.clear()
        return known.verdict != OPEN

    def close_root(self) -> None:
        """Count all points as unchanged, by a proof for the whole region."""
        self._heap.clear()
        self.root.kind, self.leaves, self.unchanged = NodeKind.PROVED, 1, self.total

    def verdict(self, point: FloatArray) -> int:
        """Return whether the class of a point changes, in exact arithmetic."""
        first = self._first.exact_signs(point)
        known = self._above.propagate(np.where(np.abs(first) == 1, first, 0).astype(np.int8))
        return known.verdict if known.verdict != OPEN else self._above.break_ties(first)

    def run(self, report: Report | None = None) -> None:
        """Search until all parts are decided, or until a limit."""
        while self._heap and self.nodes < MOST_NODES and not self.deadline.passed():
            # A part stays in the heap until it is dealt with, so that an interruption keeps it.
            part = self._heap[0][2]
            try:
                children = self._look_at(part)
            except OutOfTimeError:
                return
            heapq.heappop(self._heap)
            for child in children:
                self._push(child)
            if report is not None:
                report(self.changed, self.upper)

    def _push(self, part: CountPart) -> None:
        if part.points:
            self.nodes += 1
            heapq.heappush(self._heap, (-part.points, self.nodes, part))

    def _look_at(self, part: CountPart) -> list[CountPart]:
        """Decide a part, or return the parts that it is split into."""
        neurons, groups = part.neurons, part.groups
        known, low, high = self._propagated(part)
        if known.verdict != OPEN:
            self._close(part, known.verdict)
            return []
        cells = count_ways(groups, neurons.budget, as_one=True)
        if cells > FEW_CELLS:
            with_values = self._sums_are_exact or part.points > MANY_POINTS
            child = part.merged(with_values=with_values)
            if child is not None:
                return [child]
        if cells == 1 or (cells <= MOST_CELLS and self._is_cheap(part, known, cells)):
            self._enumerate(part, known)
            return []
        influence = self._above.influence(known)[neurons.numbers]
        share = np.where(high > low, influence / np.maximum(high - low, 1.0), 0.0)
        scores = neurons.split_scores(groups, share)
        free = [k for k, group in enumerate(groups) if group.size > 1 and group.changes[0] == 0]
        if neurons.budget is not None and free:
            order = sorted(free, key=lambda k: -scores[k])
            return self._split_by_first_change(part, order, neurons.budget)
        number = int(np.argmax(scores))
        at = neurons.split_at(groups[number], number, share, (low + high) / 2)
        halves = part.split(number, at, groups[number])
        for half in halves:
            half.points = count_ways(half.groups, neurons.budget)
        return list(halves)

    def _propagated(self, part: CountPart) -> tuple[KnownSigns, FloatArray, FloatArray]:
        """Return what propagation shows, and bounds of the sums, 0 for neurons with known signs."""
        neurons = part.neurons
        unknown = np.flatnonzero(part.signs == 0)
        bounds = np.zeros((2, neurons.numbers.size))
        bounds[:, unknown] = neurons.bounds(part.groups, unknown)
        low, high = bounds
        # Other parts have the same array.
        part.signs = part.signs.copy()
        part.signs[unknown] = neurons.settle(low[unknown], high[unknown], unknown)
        first = neurons.signs.copy()
        first[neurons.numbers] = part.signs
        return self._above.propagate(first), low, high

    def _is_cheap(self, part: CountPart, known: KnownSigns, cells: int) -> bool:
        """Whether the cells of a part can be enumerated with little time and memory."""
        moves = sum(group.size - 1 for group in part.groups)
        numbers = moves * int(np.count_nonzero(part.signs == 0))
        return cells * self._above.work(known) <= MOST_WORK and numbers <= MOST_NUMBERS

    def _split_by_first_change(
        self, part: CountPart, order: list[int], budget: int
    ) -> list[CountPart]:
        """Split a part by which group of an order is the first that changes, if one does."""
        found, left, groups = [], part.points, part.groups
        counts = first_change_counts(groups, order, budget)
        for number, points in zip(order, counts, strict=True):
            self.deadline.check()
            part, changed = part.split(number, 1, groups[number])
            changed.points = points
            found.append(changed)
            left -= points
        part.points = left
        return [*found, part]

    def _close(self, part: CountPart, verdict: int) -> None:
        """Count the points of a part on which the class always or never changes."""
        self.leaves += 1
        if verdict == CHANGED:
            part.node.kind = NodeKind.CHANGED
            self.changed += part.points
        else:
            part.node.kind = NodeKind.UNCHANGED
            self.unchanged += part.points

    # -- enumeration ----------------------------------------------------------------------

    def _enumerate(self, part: CountPart, known: KnownSigns) -> None:
        """Evaluate all cells of a part."""
        neurons, open_ = part.neurons, part.signs == 0
        plus, minus = neurons.plus[open_], neurons.minus[open_]
        folded = self._above.folded(known)
        changed = unchanged = 0
        for cells in all_cells(neurons.columns[:, open_], part.groups, neurons.budget):
            self.deadline.check()
            first = (cells.high >= plus).astype(np.float32) - (cells.low <= minus)
            verdicts = folded(first)
            for row in np.flatnonzero(verdicts == OPEN).tolist():
                self.deadline.check()
                verdicts[row] = self._decide(part, known.signs[0], cells, row)
            if self.witness is None and np.any(verdicts == CHANGED):
                self.witness = self._point(part, cells, int(np.argmax(verdicts == CHANGED)))
            changed += cells.points(verdicts == CHANGED)
            unchanged += cells.points(verdicts == UNCHANGED)
        part.node.kind = NodeKind.ENUMERATED
        self.leaves += 1
        self.changed, self.unchanged = self.changed + changed, self.unchanged + unchanged

    def _decide(self, part: CountPart, stable: SignArray, cells: Cells, row: int) -> int:
        """Return the verdict of a cell that propagation leaves open, in exact arithmetic."""
        neurons, first = part.neurons, stable.copy()
        open_ = np.flatnonzero(stable[neurons.numbers] == 0)
        low, high = cells.low[row], cells.high[row]
        if self._is_exact and np.array_equal(low, high):
            plus, minus = high >= neurons.plus[open_], low <= neurons.minus[open_]
            both = np.where(neurons.tied[open_], TIED, UNDECIDED)
            first[neurons.numbers[open_]] = np.where(plus & minus, both, np.where(plus, 1, -1))
        else:
            point = self._point(part, cells, row)
            if point is None:
                return OPEN
            first = self._first.exact_signs(point)
        return self._above.break_ties(first)

    def _point(self, part: CountPart, cells: Cells, row: int) -> FloatArray | None:
        """Return a point of a cell, unless groups are sums of several inputs."""
        found = np.zeros(len(self.points.values), dtype=np.int64)
        for group, k in zip(part.groups, cells.chosen(row).tolist(), strict=True):
            places = group.places(k)
            if places is None:
                return None
            for i, place in places:
                found[i] = place
        return self.points.at(found)


def _has_even_steps(groups: Groups) -> bool:
    """Whether equal sums of numbers of values mean equal sums of values, for one step."""
    steps: dict[float, float] = {}
    for group in groups:
        order = np.argsort(group.place)
        for gap in np.unique(np.diff(group.low[order])).tolist():
            if steps.setdefault(group.step, gap) != gap:
                return False
    return True
