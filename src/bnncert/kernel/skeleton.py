r"""The facts about all layers that follow from the network, the region and proved clashes.

Layer by layer each neuron is fixed, or equal to a *variable* up to sign, or a variable itself:

* fixed if one sign is impossible (first layer: exact geometry; above: the range of its sum);
* clashes, pairs of signs that exclude each other, imply more: a sign that implies its opposite is
  impossible, two that imply each other are equal;
* a neuron with one open input is that input or its negation; two neurons with the same row and
  thresholds are equal.

Literal 2v means that variable v is +1, and 2v + 1 that it is -1.  For the range of u = sum w_i x_i:
of literals that exclude each other pairwise at most one holds, so a set C of them adds at most
max_C 2 |w_i| - sum_C |w_i|  to u; the sets are found greedily.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnncert.arrays import SignArray as Signs
from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.container import RejectedError
from bnncert.kernel.geometry import Geometry, Table
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import Network

#: The largest number of variables, for which a table of all pairs is made.
MOST_VARIABLES = 8000

#: The largest sum of a layer; larger ones do not occur in networks that fit into memory.
MOST_REACH = 2**24


@dataclass(frozen=True, eq=False)
class Rows:
    """Integer rows over the variables, each also as a list padded with weight 0, heaviest first."""

    matrix: SparseRows
    columns: Integers
    values: Integers

    @staticmethod
    def of(matrix: SparseRows) -> Rows:
        """Prepare the rows of a matrix of integers."""
        columns = np.zeros((matrix.count, int(matrix.sizes.max(initial=0))), dtype=np.int64)
        values, row = np.zeros_like(columns), matrix.row
        place = np.arange(row.size) - matrix.start[row]
        columns[row, place], values[row, place] = matrix.columns, matrix.values
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        columns = np.take_along_axis(columns, order, 1)
        made = Rows(matrix, columns, np.take_along_axis(values, order, 1))
        if made.reach > MOST_REACH:
            raise RejectedError("a layer's sums are too large")
        return made

    @cached_property
    def reach(self) -> int:
        """The largest sum of |w_i| of a row."""
        return int(np.abs(self.values).sum(axis=1).max(initial=0))

    def key(self, j: int) -> tuple[bytes, int]:
        """Make bytes that equal or opposite rows share, and the sign between them."""
        row = slice(self.matrix.start[j], self.matrix.start[j + 1])
        columns, values = self.matrix.columns[row], self.matrix.values[row]
        flip = -1 if values.size and values[0] < 0 else 1
        return columns.tobytes() + (flip * values).tobytes(), flip

    def ranges(self, signs: Signs, excluded: Table) -> tuple[Integers, Integers]:
        """Bound every row, some variables having known signs (not 0)."""
        known = signs[self.columns].astype(np.int64)
        fixed = (self.values * known).sum(axis=1)
        free = np.where(known == 0, self.values, 0)
        return fixed - self._most(-free, excluded), fixed + self._most(free, excluded)

    def _most(self, values: Integers, excluded: Table) -> Integers:
        """Bound each row's sum from above."""
        size, literal = np.abs(values), 2 * self.columns + (values < 0)
        if not excluded.any():
            return np.asarray(size.sum(axis=1))
        # Literals without a clash are not in any set.
        left = (size > 0) & np.asarray(excluded.any(axis=1))[literal]
        most = np.asarray(np.where(left, 0, size).sum(axis=1))
        while (rows := np.flatnonzero(left.any(axis=1))).size:
            # One set for each row: its heaviest literal, then what clashes with all members.
            member, fits = left[rows].argmax(axis=1), left[rows]
            most[rows] += 2 * size[rows, member]
            active = np.arange(rows.size)
            while active.size:
                refuse_late()
                who = rows[active]
                left[who, member] = fits[active, member] = False
                most[who] -= size[who, member]
                fits[active] &= excluded[literal[who, member][:, None], literal[who]]
                active = active[fits[active].any(axis=1)]
                member = fits[active].argmax(axis=1)
        return most


@dataclass(eq=False)
class Layer:
    """The facts about the neurons of one layer.

    Neuron j is `state[j]` if not 0, else `sign[j]` times variable `variable[j]` (-1 in the last of
    several layers, whose neurons are not variables).  Above the first layer it depends on the open
    part u = rows.x of its sum, within [low, high]: +1 needs u >= plus, and -1 needs u <= minus.
    """

    state: Signs
    rows: Rows
    low: Integers
    high: Integers
    plus: Integers
    minus: Integers

    def __post_init__(self) -> None:
        self.variable = np.full(self.state.size, -1, dtype=np.int64)
        self.sign = np.ones(self.state.size, dtype=np.int8)


class Skeleton:
    """The facts about a network on a region, given proved clashes for each layer."""

    def __init__(self, network: Network, geometry: Geometry, clashes: dict[int, Clauses]) -> None:
        self.network = network
        self.layers: list[Layer] = []
        #: Layer and neuron of every variable.
        self.owner: list[tuple[int, int]] = []
        self.excluded: Table = np.zeros((0, 0), dtype=bool)
        #: Whether the region has no input.
        self.empty = False
        state, found = geometry.states(), clashes.get(0)
        if found is not None and not geometry.proved(found).all():
            raise RejectedError("a clash of first-layer neurons is not proved")
        no = np.zeros(0, dtype=np.int64)
        rows = Rows.of(SparseRows.of_entries(no, no, no, (0, 0)))
        self._add(0, Layer(state, rows, no, no, no, no), np.flatnonzero(state == 0), found)
        for number in range(1, network.depth):
            self._later(number, network.layers[number], clashes.get(number))

    @property
    def size(self) -> int:
        """The number of variables."""
        return len(self.owner)

    def literal_table(self, clauses: Clauses) -> SparseRows:
        """Write proved clauses of first-layer neurons as rows over the literals of variables."""
        first, real = self.layers[0], clauses.neuron >= 0
        owner, j, s = clauses.owner[real], clauses.neuron[real], clauses.sign[real]
        state = first.state[j]
        # A member that always holds is left out; a clause with one that never holds is dropped.
        open_ = state == 0
        literal = 2 * first.variable[j] + (first.sign[j] * s < 0)
        where, shape = (owner[open_], literal[open_]), (clauses.count, 2 * self.size)
        table = SparseRows.of_entries(*where, np.ones(where[0].size, dtype=np.int64), shape)
        # A member may occur twice.
        table = table.with_values(np.ones_like(table.values))
        useful = np.ones(clauses.count, dtype=bool)
        useful[owner[state == -s]] = False
        # A clause with two opposite members, which are neighbours, is also dropped.
        row, variable = table.row, table.columns // 2
        opposite = (np.diff(variable) == 0) & (np.diff(row) == 0)
        useful[row[1:][opposite]] = False
        return table.take(np.flatnonzero(useful))

    def _later(self, number: int, source: ThresholdLayer, clashes: Clauses | None) -> None:
        below = self.layers[-1]
        weights = SparseRows.of_weights(source.rows)
        # Open neurons are variables or their negations.
        open_ = np.flatnonzero(below.state[weights.columns] == 0)
        j, shape = weights.columns[open_], (weights.count, self.size)
        values = weights.values[open_] * below.sign[j]
        matrix = SparseRows.of_entries(weights.row[open_], below.variable[j], values, shape)
        rows = Rows.of(matrix)
        low, high = rows.ranges(np.zeros(self.size, dtype=np.int8), self.excluded)
        shift = weights.times(below.state)
        plus, minus = source.plus_from - shift, source.minus_upto - shift
        # Every value allows at least one sign, so if one is impossible, the neuron has the other.
        state = np.where(high < plus, -1, np.where(low > minus, 1, 0)).astype(np.int8)
        layer = Layer(state, rows, low, high, plus, minus)
        if number == self.network.depth - 1:
            self.layers.append(layer)
            return
        free = np.flatnonzero(state == 0)
        # A lone open input w x with  -|w| < plus  and  |w| > minus  is copied, up to sign.
        weight, column = rows.values[:, :1].sum(axis=1), rows.columns[:, :1].sum(axis=1)
        lone = (matrix.sizes == 1) & (-np.abs(weight) < plus) & (np.abs(weight) > minus)
        single, rest = free[lone[free]], free[~lone[free]]
        leader, flip = self._leaders(layer, rest)
        if clashes is not None and not all(self._proved(layer, p) for p in timed(clashes.parts())):
            raise RejectedError(f"a clash of neurons in layer {number + 1} is not proved")
        self._add(number, layer, rest[leader == rest], clashes)
        layer.variable[single] = column[single]
        layer.sign[single] = np.sign(weight[single])
        layer.variable[rest] = layer.variable[leader]
        layer.sign[rest] = layer.sign[leader] * flip
        layer.state[rest] = layer.state[leader] * flip

    @staticmethod
    def _leaders(layer: Layer, rest: Integers) -> tuple[Integers, Signs]:
        """Find the first neuron with the same (or opposite) row and thresholds, and the sign."""
        leader, sign = rest.copy(), np.ones(rest.size, dtype=np.int8)
        seen: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        for k, j in enumerate(timed(rest.tolist())):
            plus, minus = int(layer.plus[j]), int(layer.minus[j])
            # If a tie allows both signs, equal neurons may have different ones.
            if plus > minus:
                key, flip = layer.rows.key(j)
                # sign(u >= plus) = -sign(-u > -plus): the roles of the thresholds swap.
                limits = (plus, minus) if flip > 0 else (-minus, -plus)
                leader[k], other = seen.setdefault((key, *limits), (j, flip))
                sign[k] = flip * other
        return leader, sign

    @staticmethod
    def _proved(layer: Layer, clauses: Clauses) -> bool:
        """Whether clashes of later neurons follow from |x| <= 1 in every variable."""
        j, s, theta, owner = clauses.neuron, clauses.sign, clauses.theta, clauses.owner
        sizes = np.diff(clauses.start)
        # Two multipliers below 2^30 times sums below 2^25: everything fits 64 bits.
        if np.any(sizes > 2) or np.any((theta < 0) | (theta > 2**30)) or np.any(np.abs(s) != 1):
            return False
        # +1 needs u - plus >= 0, and -1 needs minus - u >= 0.
        need = theta * np.where(s > 0, -layer.plus[j], layer.minus[j])
        chosen = SparseRows.of_entries(owner, j, theta * s, (clauses.count, layer.state.size))
        reach = np.abs(chosen.product(layer.rows.matrix)).sum(axis=1)
        return bool(np.all(reach + np.add.reduceat(need, clauses.start[:-1]) < 0))

    def _add(self, number: int, layer: Layer, open_: Integers, clashes: Clauses | None) -> None:
        """Close the clashes among open neurons transitively, and number the variables."""
        self.layers.append(layer)
        if self.size + open_.size > MOST_VARIABLES:
            raise RejectedError(f"more than {MOST_VARIABLES} open neurons")
        literals = np.arange(2 * open_.size)
        implies = np.eye(literals.size, dtype=bool)
        if clashes is not None:
            place = np.full(layer.state.size, -1, dtype=np.int64)
            place[open_] = np.arange(open_.size)
            first, second = (2 * place[e // 2] + e % 2 for e in _pairs(clashes))
            # A clash with a fixed neuron gives no implication between open ones.
            kept = (first >= 0) & (second >= 0)
            first, second = first[kept], second[kept]
            implies[first, second ^ 1] = implies[second, first ^ 1] = True
            implies = _closure(implies)
        # A literal that its opposite implies is true, and so is all that it implies.
        true = implies[implies[literals ^ 1, literals]].any(axis=0)
        self.empty = self.empty or bool(np.any(true[0::2] & true[1::2]))
        settled = true[0::2].astype(np.int8) - true[1::2].astype(np.int8)
        layer.state[open_] = settled
        # The first literal of each class of equal ones leads it; it is positive for the leader.
        lead = (implies & implies.T)[0::2].argmax(axis=1) if open_.size else open_
        free = np.flatnonzero(settled == 0)
        leads = free[lead[free] == 2 * free]
        numbers = np.zeros(open_.size, dtype=np.int64)
        numbers[leads] = self.size + np.arange(leads.size)
        layer.variable[open_[free]] = numbers[lead[free] // 2]
        layer.sign[open_[free]] = 1 - 2 * (lead[free] % 2)
        self.owner += [(number, int(open_[k])) for k in leads]
        mine = np.stack([2 * leads, 2 * leads + 1], axis=1).ravel()
        pairs, one = implies[np.ix_(mine, mine ^ 1)], np.arange(mine.size)
        # That a literal and its opposite exclude each other is always true.
        pairs[one, one ^ 1] = pairs[one, one] = False
        old = self.excluded.shape[0]
        self.excluded = np.pad(self.excluded, (0, mine.size))
        self.excluded[old:, old:] = pairs


def _pairs(clauses: Clauses) -> tuple[Integers, Integers]:
    """Find the two literals 2j + (sign < 0) of every clash, equal if it has only one."""
    real = clauses.neuron >= 0
    literal = (2 * clauses.neuron + (clauses.sign < 0))[real]
    count = np.bincount(clauses.owner[real], minlength=clauses.count)
    if np.any((count < 1) | (count > 2)):
        raise RejectedError("a clash does not have one or two neurons")
    last = np.cumsum(count) - 1
    return literal[last - count + 1], literal[last]


def _closure(implies: Table) -> Table:
    """Close implications transitively."""
    blocks = [slice(k, k + 1024) for k in range(0, implies.shape[0], 1024)]
    while True:
        more = np.zeros_like(implies)
        # In blocks: the table in floats would take four times its memory.
        for rows in blocks:
            left = implies[rows].astype(np.float32)
            for columns in timed(blocks):
                # Counts below 2^24 are exact in float32.
                more[rows, columns] = left @ implies[:, columns].astype(np.float32) > 0.5
        if np.array_equal(more, implies):
            return implies
        implies = more
