r"""The first layer over grid points, in integers, and its neurons that are open on a part.

Values x_i and weights w_ni are scaled by powers of two to integers X_i and W_ni whose sums are
smaller than 2^52, so that floating-point sums of them are exact in any order.  Neuron n can be +1
only if sum_i W_ni X_i >= plus_n, and -1 only if it is <= minus_n.  If the numbers have too many
bits, X_i is enclosed by two integers, and the thresholds are moved apart by the largest error of
the rounded weights.

Sums over a part of the region lie between bounds that are attained coordinate by coordinate.  With
at most k changes, of which the groups need at least m, no more than k - m groups leave the
alternatives with the fewest changes: the k - m largest gains are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray, last_place
from bnncert.errors import InputError
from bnncert.model.layers import ThresholdLayer
from bnncert.questions.count.input_groups import Groups, InputGroup, merged
from bnncert.regions import Region

#: Sums of integers stay below 2^MOST_SUM_BITS.
MOST_SUM_BITS = 52

#: The most weights, also zeros, of a first layer: each of a few dense copies takes 0.5 GB.
MOST_WEIGHTS = 2**26

#: Bits of weights that are rounded, at least.
LEAST_WEIGHT_BITS = 24

#: Bits of all numbers of ways of a group, at most, and in L0 balls steps of their computation.
MOST_WAYS_BITS, MOST_STEPS = 2**24, 2**20


#: The largest number of values of an input, times the number of inputs.
MOST_VALUES = 2**22


@dataclass(frozen=True, eq=False)
class GridPoints:
    """The points of a region on a grid.

    The points of a box, or of an L-inf ball, are all combinations of the values first_i..last_i of
    each input.  The points of an L0 ball are those with at most k inputs away from the centre.
    """

    #: For each input the values that it can have, ascending, and the step of its grid.
    values: tuple[FloatArray, ...]
    steps: FloatArray
    #: In an L0 ball, for each input the number of the centre's value among them.
    home: IntArray | None = None
    #: The number of inputs that may differ from the centre; None if all may.
    changes: int | None = None

    @staticmethod
    def of(region: Region) -> GridPoints:
        """Return the points of a region; raise InputError if they cannot be counted."""
        if not region.is_box and region.norm != "l0":
            raise InputError(
                "counting takes a box, an linf ball or an l0 ball; the region is another"
            )
        grid = region.values
        if grid is None:
            raise InputError(
                "the region has no grid, so it has infinitely many points; state a grid"
            )
        first, last = grid.first_from(region.lo), grid.last_until(region.hi)
        if region.norm is not None:
            # The box around a ball is rounded outwards, at most past one value.
            first = first + _is_outside(region, grid.at(first))
            last = last - _is_outside(region, grid.at(last))
        widest = int((last - first).max(initial=0)) + 1
        if widest * region.size > MOST_VALUES:
            raise InputError(
                f"an input has {widest} values on the grid; with {region.size} inputs, counting "
                f"takes at most {MOST_VALUES // region.size}"
            )
        table = grid.at(first + np.arange(widest)[:, None])
        sizes = (last - first).astype(np.int64) + 1
        values = tuple(table[: sizes[i], i].copy() for i in range(region.size))
        if region.norm != "l0":
            return GridPoints(values, grid.step)
        places = (np.searchsorted(v, c) for v, c in zip(values, region.middle, strict=True))
        home = np.array([int(place) for place in places])
        return GridPoints(values, grid.step, home, int(region.radius))

    @property
    def total(self) -> int:
        """The number of points: a product, or the sum of the first terms of a polynomial.

        With m_i values of input i that differ from the centre's, at most k changes have
        e_0(m) + .. + e_k(m) points, with the elementary symmetric polynomials e_j.
        """
        if self.changes is None:
            return math.prod(values.size for values in self.values)
        counts = [1] + [0] * self.changes
        for values in self.values:
            _with_input(counts, values.size - 1)
        return sum(counts)

    def at(self, places: IntArray) -> FloatArray:
        """Return the point with these numbers of values."""
        return np.array([v[k] for v, k in zip(self.values, places.tolist(), strict=True)])

    def random_places(self, generator: np.random.Generator, count: int) -> IntArray:
        """Return the places of uniform random points, one in each row.

        In an L0 ball, the inputs are decided one after the other: with j changes left of which the
        inputs from i on have e_0(i) + .. + e_j(i) possible combinations, input i changes with the
        share of these combinations in which it does.
        """
        sizes = np.array([v.size for v in self.values])
        drawn = generator.random((count, sizes.size))
        places: IntArray = np.floor(drawn * sizes).astype(np.int64)
        if self.changes is None:
            return np.asarray(np.minimum(places, sizes - 1))
        assert self.home is not None
        shares = _change_shares((sizes - 1).tolist(), self.changes)
        left = np.full(count, self.changes)
        drawn = generator.random((count, sizes.size))
        for i, home in enumerate(self.home.tolist()):
            is_changed = drawn[:, i] < shares[i, left]
            left = left - is_changed
            others = np.floor(generator.random(count) * (sizes[i] - 1)).astype(np.int64)
            others = np.minimum(others, max(0, sizes[i] - 2))
            places[:, i] = np.where(is_changed, others + (others >= home), home)
        return places


def _is_outside(ball: Region, points: FloatArray) -> IntArray:
    """Return 1 for values that are outside of a ball in exact arithmetic, else 0."""
    pairs = zip(points.tolist(), ball.middle.tolist(), strict=True)
    radius = Fraction(ball.reach)
    return np.array([int(abs(Fraction(x) - Fraction(c)) > radius) for x, c in pairs])


def _with_input(counts: list[int], others: int) -> None:
    """Add an input with some other values to the numbers of points with j = 0, 1, .. changes."""
    for j in range(len(counts) - 1, 0, -1):
        counts[j] += others * counts[j - 1]


def _change_shares(others: list[int], most: int) -> FloatArray:
    """Return for each input and number of changes left the probability that the input changes."""
    shares = np.zeros((len(others), most + 1))
    counts = [1] + [0] * most
    for i in range(len(others) - 1, -1, -1):
        sums = np.cumsum(np.array(counts, dtype=object)).tolist()
        for left in range(1, most + 1):
            changed = others[i] * sums[left - 1]
            # Integers of any size are divided with correct rounding.
            shares[i, left] = changed / (changed + sums[left])
        _with_input(counts, others[i])
    return shares


@dataclass(frozen=True, eq=False)
class OpenNeurons:
    """The open first-layer neurons, and the weights of groups of inputs on them, in integers.

    All parts of the region that a search makes between two mergers differ only in the alternatives
    of the groups.
    """

    #: The numbers of the open neurons, and the signs of all first-layer neurons, 0 if open.
    numbers: IntArray
    signs: SignArray
    #: The weights, one row for each group and one column for each open neuron.
    columns: FloatArray
    #: The least sum at which each open neuron may be +1, and the largest at which it may be -1.
    plus: FloatArray
    minus: FloatArray
    #: The neurons for which a sum from `plus` to `minus` is a tie at which both signs are allowed;
    #: for the others the sign is not decided there.
    tied: BoolArray
    #: The number of inputs that may change; None if all may.
    budget: int | None

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray]:
        """The positive and the negative weights, one row for each open neuron."""
        rows = np.ascontiguousarray(self.columns.T)
        return np.maximum(rows, 0.0), np.minimum(rows, 0.0)

    def bounds(self, groups: Groups, neurons: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest sum of some open neurons over a part of the region."""
        up, down = self._parts
        if neurons.size < self.numbers.size:
            up, down = up[neurons], down[neurons]
        least = np.array([group.least for group in groups])
        most = np.array([group.most for group in groups])
        if self.budget is None:
            return up @ least + down @ most, up @ most + down @ least
        near_low, near_high = np.array([group.near for group in groups]).T
        low, high = up @ near_low + down @ near_high, up @ near_high + down @ near_low
        left = self.budget - sum(group.fewest for group in groups)
        free = np.flatnonzero((most > near_high) | (least < near_low))
        if left > 0 and free.size:
            up, down = up[:, free], down[:, free]
            above, below = (most - near_high)[free], (near_low - least)[free]
            low -= _largest(up * below - down * above, left)
            high += _largest(up * above - down * below, left)
        return low, high

    def settle(self, low: FloatArray, high: FloatArray, neurons: IntArray) -> SignArray:
        """Return the signs of some open neurons for bounds of their sums, 0 if both can be."""
        can_plus, can_minus = high >= self.plus[neurons], low <= self.minus[neurons]
        return (can_plus.astype(np.int8) - can_minus).astype(np.int8)

    # -- splits ---------------------------------------------------------------------------

    def split_scores(self, groups: Groups, share: FloatArray) -> FloatArray:
        """Return how much a split of each group helps.

        `share` is the influence of each neuron, relative to the range of its sum.
        """
        width = np.array([g.most - g.least if g.size > 1 else 0.0 for g in groups])
        scores: FloatArray = (np.abs(self.columns) @ share) * width
        return scores if scores.any() else np.array([g.size - 1.0 for g in groups])

    def split_at(
        self, group: InputGroup, number: int, share: FloatArray, middle: FloatArray
    ) -> int:
        """Return how many alternatives of a group the first part of a split gets.

        `middle` has the middles of the sums of all neurons.
        """
        column = self.columns[number]
        neuron = int(np.argmax(np.abs(column) * share)) if column.size else 0
        weight = column[neuron] if column.size else 0.0
        if weight:
            # Where the neuron changes its sign if all other groups have their middle values.
            others = middle[neuron] - weight * (group.least + group.most) / 2
            threshold = (self.plus + self.minus)[neuron] / 2
            middles = (group.low + group.high) / 2
            at = int(np.searchsorted(middles, (threshold - others) / weight))
            if 0 < at < group.size:
                return at
        ways, so_far, at = group.all_ways, 0, 0
        total = sum(ways)
        while 2 * so_far < total:
            so_far += ways[at]
            at += 1
        return min(at, group.size - 1)

    # -- mergers --------------------------------------------------------------------------

    def grouping(self, groups: Groups, signs: SignArray, *, with_values: bool) -> IntArray:
        """Return for each group the number of its new one when the neurons with signs are dropped.

        Groups with equal columns up to sign become one; without `with_values` only those whose
        values do not matter.  New groups are numbered by their first members.
        """
        rest = self.columns[:, signs == 0]
        lead = np.zeros(len(groups))
        if rest.shape[1]:
            lead = np.sign(rest[np.arange(len(groups)), (rest != 0).argmax(axis=1)])
        turned = rest * lead[:, None] + 0.0
        seen: dict[bytes, int] = {}
        costs: dict[int, tuple[int, float, int]] = {}
        numbers = []
        for i, group in enumerate(groups):
            key = b"" if lead[i] == 0 else b"group %d" % i
            if with_values and lead[i] != 0:
                key = turned[i].tobytes() + np.float64(group.step).tobytes()
            number = seen.setdefault(key, len(costs))
            cost = self._cost(costs.get(number, (1, 0.0, 0)), group)
            if lead[i] != 0 and (cost[0] * cost[1] > MOST_WAYS_BITS or cost[2] > MOST_STEPS):
                # The sums have too many values: a new group begins.
                number = seen[key] = len(costs)
                cost = self._cost((1, 0.0, 0), group)
            costs[number] = cost
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)

    def _cost(self, cost: tuple[int, float, int], group: InputGroup) -> tuple[int, float, int]:
        """Return the values, bits and steps of a new group after one more is merged into it."""
        size, bits, steps = cost
        ways = sum(w for _, w in group.counts)
        more = 0 if self.budget is None else size * group.size * (self.budget + 1)
        return size + group.size - 1, bits + math.log2(ways), steps + more

    def merge(
        self, groups: Groups, signs: SignArray, grouping: IntArray
    ) -> tuple[OpenNeurons, Groups]:
        """Return the neurons without those that have signs, and the new groups."""
        kept = signs == 0
        rest = self.columns[:, kept]
        members: list[list[int]] = [[] for _ in range(int(grouping.max(initial=-1)) + 1)]
        for i, number in enumerate(grouping.tolist()):
            members[number].append(i)
        made = []
        for own in members:
            # The factor is 0 if the values do not matter.
            lead = rest[own[0]]
            same = [np.array_equal(lead, rest[i]) for i in own]
            factors = [(1 if equal else -1) if lead.any() else 0 for equal in same]
            chosen = [groups[i] for i in own]
            made.append(chosen[0] if factors == [1] else merged(chosen, factors, self.budget))
        all_signs = self.signs.copy()
        all_signs[self.numbers] = signs
        return OpenNeurons(
            self.numbers[kept],
            all_signs,
            rest[[own[0] for own in members]].reshape(len(members), rest.shape[1]),
            self.plus[kept],
            self.minus[kept],
            self.tied[kept],
            self.budget,
        ), tuple(made)


def _largest(gains: FloatArray, count: int) -> FloatArray:
    """Return the sum of the `count` largest numbers of every row."""
    if count == 1:
        return np.asarray(gains.max(axis=1, initial=0.0))
    if count >= gains.shape[1]:
        return np.asarray(gains.sum(axis=1))
    cut = gains.shape[1] - count
    return np.asarray(np.partition(gains, cut, axis=1)[:, cut:].sum(axis=1))


# -- the layer in integers ----------------------------------------------------------------


def integer_layer(layer: ThresholdLayer, points: GridPoints) -> tuple[OpenNeurons, Groups, bool]:
    """Return all neurons of a first layer, one group for each input, and whether both are exact.

    Raises InputError if the layer is too large.
    """
    inputs = len(points.values)
    if layer.size * inputs > MOST_WEIGHTS:
        raise InputError(
            f"the first layer has {layer.size} neurons and {inputs} inputs; with so many "
            f"inputs, counting takes at most {MOST_WEIGHTS // inputs} neurons"
        )
    weights = np.asarray(layer.weights.toarray(), dtype=np.float64)
    reach = np.array([max(1e-300, float(np.abs(v).max())) for v in points.values])
    # 2 more than the sums, so that their rounding does not matter.
    room = MOST_SUM_BITS - 2 - math.frexp(float((np.abs(weights) @ reach).max(initial=1e-300)))[1]
    x_bits, w_bits = (max(0, -last_place(v)) for v in (np.concatenate(points.values), weights))
    is_exact = x_bits + w_bits <= room
    if not is_exact:
        w_bits = min(w_bits, max(LEAST_WEIGHT_BITS, room - x_bits))
        x_bits = room - w_bits
    scaled = np.ldexp(weights, w_bits)
    # How much the rounding of the weights can change each sum, rounded up.
    error = np.abs(scaled - np.rint(scaled)) @ np.ldexp(reach, x_bits)
    error = np.where(error > 0, np.ceil(error * (1 + 1e-9)) + 1, 0.0)
    plus, minus, tied = _thresholds(layer, x_bits + w_bits)
    neurons = OpenNeurons(
        np.arange(layer.size),
        np.zeros(layer.size, dtype=np.int8),
        np.rint(scaled).T,
        plus - error,
        minus + error,
        tied & is_exact,
        points.changes,
    )
    return neurons, _single_groups(points, x_bits), is_exact


def _thresholds(layer: ThresholdLayer, bits: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return from which integer on +1, and up to which one -1 is possible, and where both are."""
    plus, minus, tied = [], [], []
    unit, most = Fraction(2) ** bits, 2**MOST_SUM_BITS
    for low, high in zip(*(b.tolist() for b in layer.enclosure), strict=True):
        # The bias is between low and high: +1 needs a sum >= -high, -1 a sum <= -low.
        first, last = math.ceil(-Fraction(high) * unit), math.floor(-Fraction(low) * unit)
        is_certain = low == high
        if is_certain and layer.sign_zero == "plus":
            last = first - 1
        elif is_certain and layer.sign_zero == "minus":
            first = last + 1
        # Beyond all sums the size of a threshold does not matter.
        plus.append(float(max(-most, min(most, first))))
        minus.append(float(max(-most, min(most, last))))
        tied.append(is_certain)
    return np.array(plus), np.array(minus), np.array(tied, dtype=bool)


def _single_groups(points: GridPoints, bits: int) -> Groups:
    """Return one group for each input, with values in units of 2^-bits."""
    groups = []
    for i, values in enumerate(points.values):
        scaled = np.ldexp(values, bits)
        place, changes = np.arange(values.size), np.zeros(values.size, dtype=np.int64)
        if points.home is not None:
            # The alternative without changes comes first.
            home = int(points.home[i])
            place = np.concatenate([[home], np.delete(place, home)])
            changes = (place != home).astype(np.int64)
        low, high = np.floor(scaled)[place], np.ceil(scaled)[place]
        groups.append(InputGroup(place, low, high, changes, None, float(points.steps[i]), i))
    return tuple(groups)
