"""Branch and bound over the inputs: bounds of the number of changed points that meet at the end.

A part of the region is decided if propagation shows that the class never or always changes on it;
a part with few cells is enumerated; of any other part, the item with the largest influence on the
open neurons is split.  The part with the most points comes first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.questions.count.count_cells import Cells, all_cells
from bnncert.questions.count.count_part import CountPart
from bnncert.questions.count.count_ties import TieBreaking
from bnncert.questions.count.count_tree import Kind, Record
from bnncert.questions.count.counted_space import ItemFrame, Items
from bnncert.questions.count.first_layer import IntegerFirstLayer
from bnncert.questions.count.grid_points import GridPoints
from bnncert.questions.count.group_splitting import SplitChoice
from bnncert.questions.count.input_groups import count_ways, first_change_counts, single_items
from bnncert.questions.count.upper_layers import CHANGED, OPEN, UNCHANGED, KnownSigns, LayersAbove

#: The most cells that are enumerated at once, and the most multiplications and numbers for it.
MOST_CELLS, MOST_WORK, MOST_NUMBERS = 2**18, 2**31, 2**22

#: Parts with fewer cells are enumerated without merging items before.
FEW_CELLS = 2**10

#: Regions with fewer points are not given to other methods first.
EASY_POINTS = 2**20

#: The search ends with this number of parts, which take about 2 GB.
MOST_NODES = 2_000_000

#: Above this number of points, items are merged even if the rounding of values makes some of their
#: cells undecidable.
MANY_POINTS = 2**24

Report = Callable[[int, int], None]


class CountSearch:
    """The search; `changed` and `unchanged` are the points known so far."""

    def __init__(self, problem: Problem, points: GridPoints, deadline: Deadline) -> None:
        network = problem.network
        self.network: Network = network
        self.points, self.deadline = points, deadline
        self.circuit = LayersAbove(network, problem.targets)
        self._break_ties = TieBreaking(network, problem.targets)
        self.layer = IntegerFirstLayer.of(network.layers[0], points)
        neurons = network.layers[0].size
        frame = ItemFrame(
            np.arange(neurons),
            np.zeros(neurons, dtype=np.int8),
            self.layer.columns,
            self.layer.plus,
            self.layer.minus,
            self.layer.tied,
            points.changes,
        )
        items = single_items(points, self.layer)
        self.total = points.total
        self.changed = self.unchanged = 0
        self.nodes = self.leaves = 0
        self.witness: FloatArray | None = None
        self.root = Record()
        self._sums_are_exact = self.layer.is_exact and _has_even_steps(items)
        self._heap: list[tuple[int, int, CountPart]] = []
        self._push(CountPart(frame, items, None, self.total, self.root, frame.signs))

    @property
    def upper(self) -> int:
        """The most points that can be changed."""
        return self.total - self.unchanged

    @property
    def is_finished(self) -> bool:
        """Whether no part is left to look at."""
        return not self._heap

    def is_easy(self) -> bool:
        """Return whether the region has few points, or propagation decides it, which is tried."""
        if self.total <= EASY_POINTS or self.is_finished:
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
        self.root.kind, self.leaves, self.unchanged = Kind.PROVED, 1, self.total

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
        frame, items = part.frame, part.items
        known, low, high = self._propagated(part)
        if known.verdict != OPEN:
            self._close(part, known.verdict)
            return []
        cells = count_ways(items, frame.budget, as_one=True)
        if cells > FEW_CELLS:
            child = self._merged(part)
            if child is not None:
                return [child]
        if cells == 1 or (cells <= MOST_CELLS and self._is_cheap(part, known, cells)):
            self._enumerate(part, known)
            return []
        choice = SplitChoice(frame, items, self.circuit.influence(known)[frame.open], low, high)
        order = choice.unchanged_items()
        if order:
            return self._split_by_first_change(part, order)
        item, at = choice.best()
        return [child.count() for child in part.split(item, at, items[item])]

    def _propagated(self, part: CountPart) -> tuple[KnownSigns, FloatArray, FloatArray]:
        """Return what propagation shows, and bounds of the sums, 0 for neurons with known signs."""
        frame = part.frame
        neurons = np.flatnonzero(part.signs == 0)
        bounds = np.zeros((2, frame.open.size))
        bounds[:, neurons] = frame.bounds(part.items, neurons)
        low, high = bounds
        # Other parts have the same array.
        part.signs = part.signs.copy()
        part.signs[neurons] = frame.settle(low[neurons], high[neurons], neurons)
        first = frame.signs.copy()
        first[frame.open] = part.signs
        return self.circuit.propagate(first), low, high

    def _is_cheap(self, part: CountPart, known: KnownSigns, cells: int) -> bool:
        """Whether the cells of a part can be enumerated with little time and memory."""
        moves = sum(item.size - 1 for item in part.items)
        numbers = moves * int(np.count_nonzero(part.signs == 0))
        return cells * self.circuit.work(known) <= MOST_WORK and numbers <= MOST_NUMBERS

    def _split_by_first_change(self, part: CountPart, order: list[int]) -> list[CountPart]:
        """Split a part by which item of an order is the first that changes, if one does."""
        assert part.frame.budget is not None
        found, left, items = [], part.points, part.items
        counts = first_change_counts(items, order, part.frame.budget)
        for item, points in zip(order, counts, strict=True):
            self.deadline.check()
            part, changed = part.split(item, 1, items[item])
            changed.points = points
            found.append(changed)
            left -= points
        part.points = left
        return [*found, part]

    def _close(self, part: CountPart, verdict: int) -> None:
        """Count the points of a part on which the class always or never changes."""
        self.leaves += 1
        if verdict == CHANGED:
            part.record.kind = Kind.CHANGED
            self.changed += part.points
        else:
            part.record.kind = Kind.UNCHANGED
            self.unchanged += part.points

    def _merged(self, part: CountPart) -> CountPart | None:
        """Return the part with merged items, if that makes it much smaller."""
        frame, items, signs = part.frame, part.items, part.signs
        with_values = self._sums_are_exact or part.points > MANY_POINTS
        group = frame.groups(items, signs, with_values=with_values)
        matters = np.any(frame.columns[:, signs == 0] != 0, axis=1)
        sizes: dict[int, int] = {}
        for i, (g, by_value) in enumerate(zip(group.tolist(), matters.tolist(), strict=True)):
            # If values do not matter, only the number of changes does.
            own = items[i].size if by_value else len(items[i].sizes)
            sizes[g] = sizes.get(g, 1) + own - 1
        before = sum(math.log(item.size) for item in items)
        if sum(math.log(size) for size in sizes.values()) > before - math.log(1.9):
            return None
        record = Record()
        new_frame, new_items = frame.merge(items, signs, group)
        part.record.open, part.record.group = new_frame.open, group
        part.record.children, part.record.kind = [record], Kind.MERGED
        signs = np.zeros(new_frame.open.size, dtype=np.int8)
        return CountPart(new_frame, new_items, None, part.points, record, signs)

    # -- enumeration ----------------------------------------------------------------------

    def _enumerate(self, part: CountPart, known: KnownSigns) -> None:
        """Evaluate all cells of a part."""
        frame = part.frame
        open_ = part.signs == 0
        plus, minus = frame.plus[open_], frame.minus[open_]
        folded = self.circuit.folded(known)
        changed = unchanged = 0
        for cells in all_cells(frame.columns[:, open_], part.items, frame.budget):
            self.deadline.check()
            first = (cells.high >= plus).astype(np.float32) - (cells.low <= minus)
            verdicts = folded.verdicts(first)
            for row in np.flatnonzero(verdicts == OPEN).tolist():
                self.deadline.check()
                verdicts[row] = self._decide(part, known.signs[0], cells, row)
            if self.witness is None and np.any(verdicts == CHANGED):
                self.witness = self._point(part, cells, int(np.argmax(verdicts == CHANGED)))
            changed += _total(cells, verdicts == CHANGED)
            unchanged += _total(cells, verdicts == UNCHANGED)
        part.record.kind = Kind.ENUMERATED
        self.leaves += 1
        self.changed, self.unchanged = self.changed + changed, self.unchanged + unchanged

    def _decide(self, part: CountPart, stable: SignArray, cells: Cells, row: int) -> int:
        """Return the class of a cell that propagation leaves open, in exact arithmetic."""
        frame, first = part.frame, stable.copy()
        open_ = np.flatnonzero(stable[frame.open] == 0)
        low, high = cells.low[row], cells.high[row]
        if self.layer.is_exact and np.array_equal(low, high):
            plus, minus = high >= frame.plus[open_], low <= frame.minus[open_]
            both = np.where(frame.tied[open_], TIED, UNDECIDED)
            first[frame.open[open_]] = np.where(plus & minus, both, np.where(plus, 1, -1))
        else:
            point = self._point(part, cells, row)
            if point is None:
                return OPEN
            first = self.network.layers[0].exact_signs(point)
        return self._break_ties(first)

    def _point(self, part: CountPart, cells: Cells, row: int) -> FloatArray | None:
        """Return a point of a cell, unless items are sums of several inputs."""
        point = np.zeros(len(self.points.values))
        for item, k in zip(part.items, cells.chosen(row).tolist(), strict=True):
            places = item.places(k)
            if places is None:
                return None
            for i, place in places:
                point[i] = self.points.values[i][place]
        return point


def _total(cells: Cells, chosen: SignArray) -> int:
    """Return the number of points of some cells."""
    if cells.ways is None:
        return int(np.count_nonzero(chosen))
    return sum(cells.ways[chosen].tolist())


def _has_even_steps(items: Items) -> bool:
    """Whether equal sums of numbers of values mean equal sums of values, for one step."""
    steps: dict[float, float] = {}
    for item in items:
        order = np.argsort(item.place)
        for gap in np.unique(np.diff(item.low[order])).tolist():
            if steps.setdefault(item.step, gap) != gap:
                return False
    return True
