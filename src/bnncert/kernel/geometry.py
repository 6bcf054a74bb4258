r"""Proofs in exact arithmetic that signs of first-layer neurons exclude each other.

Sign s of neuron j needs s (w_j.x + b_j) >= 0.  If theta >= 0 and

    max over the region of  sum_j theta_j s_j (w_j.x + b_j)  <  0,

the signs s_j cannot all occur; equality suffices if one of them with theta_j > 0 excludes ties.
An inequality a.x <= b of the region is a term b - a.x >= 0 with a multiplier of its own.

The maximum of v.x over a box is taken coordinate by coordinate.  Over a ball around c inside a box,
for any g with 0 <= g_k <= |v_k| and rest h = |v| - g,

    v.x  <=  v.c + r ||g|| + sum_k h_k (room from c_k to the box's side in the direction of v_k)

with ||g|| the 2-norm for L2 and the largest entry for L1.  Any g is valid, so it is searched for in
floating point.  Over an L0 ball, v.x <= v.c + the k largest |v_k| (room in the direction of v_k),
which is the maximum itself if inputs are real numbers.

On a grid sums take few values, so that thresholds of neurons move inwards.  An input has the values
origin_i + step_i k_i + e_i with integers k_i and rounding errors |e_i| <= error_i, or a single
value.  So with the greatest common divisor g of the w_i step_i, a sum w.x is base + g m + e for an
integer m, and |e| <= E = sum_i |w_i| error_i.  The sign +1 needs w.x + b >= 0, so that

    m  >=  M = ceil((-b - base - E) / g)     and     w.x  >=  base + g M - E,

and -1 likewise.  Where that is more than w.x >= -b, it replaces b in clauses about grid points.

Numbers from files are floats, integers over powers of two, so all sums here are sums of integers;
each integer is split into digits of 20 bits, whose products and sums stay within 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import nlargest
from itertools import pairwise
from math import gcd
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Objects, common_shift, scaled
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.space import Space, StatedGrid
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.model.layers import ThresholdLayer

Table = npt.NDArray[np.bool_]

#: Bits of a digit.
BITS = 20

#: The most entries of a clause, inputs of a network, and digits of a weight: with n entries a sum
#: stays below n 2^42, and with n inputs below n 2^40.
MOST_ENTRIES, MOST_INPUTS, MOST_DIGITS = 2**16, 2**22, 40

#: Numbers that are worked on at once.
CHUNK = 2**19

#: g is searched for with this many bits more than v has.
SHARE_BITS = 30

#: The error of a float32 dot product of n terms is at most k/(2^24 - k), k = n + 3, of the sum of
#: its terms' sizes (weights and bias rounded, n products, n sums), in any order, if no value
#: exceeds 2^126, plus less than 2^-140 k (1 + max(|x|, |w|)) through underflow.
FLOAT32_UNIT, FLOAT32_MOST, FLOAT32_TINY = 2**24, 2**126, Fraction(1, 2**140)


def digits(numbers: npt.NDArray[Any]) -> list[Integers]:
    """Split numbers into digits with their sign: numbers = sum_k digits[k] 2^(20 k)."""
    top = max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))
    if top < 2**BITS:
        return [numbers.astype(np.int64, copy=False)]
    size, sign = np.abs(numbers), np.where(numbers < 0, -1, 1)
    places = range(0, top.bit_length(), BITS)
    return [sign * ((size >> k) & (2**BITS - 1)).astype(np.int64) for k in places]


def dot(rows: Sequence[SparseRows | Integers], vector: list[Integers]) -> Objects:
    """Multiply a matrix and a vector, both in digits."""
    total: Any = 0
    for i, row in enumerate(rows):
        for k, part in enumerate(timed(vector)):
            product = row.times(part) if isinstance(row, SparseRows) else row @ part
            total = total + (product.astype(object) << (BITS * (i + k)))
    return np.asarray(total)


class Geometry:
    """The first layer over a region; everything is an integer over a power of two."""

    def __init__(self, layer: ThresholdLayer, space: Space, *, float32: bool = False) -> None:
        self.space, self.size, self.sign_zero = space, layer.size, layer.sign_zero
        self.inequalities = int(space.right.size)
        rows = SparseRows.of_weights(layer.rows)
        if self.inequalities:
            rows = SparseRows.stacked([rows, SparseRows.of_dense(-space.matrix)])
        values, self.weight_shift = rows.values, 0
        if values.dtype.kind == "f":
            values, self.weight_shift = scaled(values)
        parts = digits(values)
        if len(parts) > MOST_DIGITS or rows.width >= MOST_INPUTS:
            raise RejectedError("the first layer's weights are too fine, or too many")
        self.rows = [rows.with_values(part) for part in parts]
        #: The same for |w|: the digits of a number have its sign.
        self.sizes = [rows.with_values(np.abs(part)) for part in parts]
        biases = np.stack(layer.enclosure)
        whole, finest = scaled(np.hstack([biases, [space.right] * 2]))
        if float32:
            error, more = common_shift(self._float32_errors(np.abs(biases).max(axis=0), values))
            whole = whole << max(0, more - finest)
            finest = max(finest, more)
            whole[:, : self.size] += np.array([[-1], [1]]) * (error << (finest - more))
        # Sums w.x + b in units of 2^-(weight_shift + point_shift).
        self.point_shift = max(space.shift, finest - self.weight_shift)
        self.low, self.high = whole << (self.weight_shift + self.point_shift - finest)
        #: Whether sign +1 (-1) of a neuron needs more than w.x + b >= 0 (<= 0).
        certain = (self.low == self.high)[: self.size]
        self.strict = {1: certain & (self.sign_zero == "minus")}
        self.strict[-1] = certain & (self.sign_zero == "plus")
        #: The bound of the enclosed bias that makes each sign easier, moved inwards on a grid, and
        #: whether the sign needs more than zero with it.
        self.bias = {1: self.high.copy(), -1: self.low.copy()}
        self.loses_ties = {s: strict.copy() for s, strict in self.strict.items()}
        lattice = InputLattice.of(space, self.point_shift)
        if lattice is not None:
            self._move_thresholds(lattice, rows, values.astype(object))
        self.easier = {s: digits(bias) for s, bias in self.bias.items()}
        more = self.point_shift - space.shift
        lower, upper, center = (p << more for p in (space.lower, space.upper, space.center))
        #: Of the box: the widths, and in digits twice the middle and the widths.
        self.widths: Objects = upper - lower
        self.middle, self.width = digits(lower + upper), digits(self.widths)
        #: The radius of an L1 or L2 ball.
        self.center, self.radius = digits(center), space.radius << more
        #: Room from the centre of a ball downwards and upwards.
        self.room = np.zeros((2, 0), dtype=object)
        if space.norm is not None:
            self.room = np.array([center - lower, upper - center])
        self.float_room = (self.room / (1 << self.point_shift)).astype(np.float64)

    def _move_thresholds(self, lattice: InputLattice, rows: SparseRows, weights: Objects) -> None:
        """Move the biases of both signs to what sums of grid values can reach."""
        base, error = dot(self.rows, digits(lattice.origin)), dot(self.sizes, digits(lattice.error))
        more, common = lattice.shift - self.point_shift, divisors(rows, weights, lattice.step)
        for j, divisor in enumerate(timed(common)):
            for sign in (1, -1):
                strict = bool(j < self.size and self.strict[sign][j])
                bias = int(self.bias[sign][j])
                found = moved(
                    bias << more, int(base[j]), divisor, int(error[j]), sign=sign, strict=strict
                )
                # Rounded to the unit of the biases, towards the old one.
                found = None if found is None else -sign * ((-sign * found) >> more)
                if found is not None and found != bias:
                    self.bias[sign][j] = found
                    if j < self.size:
                        self.loses_ties[sign][j] = False

    def _float32_errors(self, biases: FloatArray, weights: npt.NDArray[Any]) -> list[Fraction]:
        """Bound the error of a float32 evaluation of each w.x + b."""
        reach, shift = np.maximum(abs(self.space.lower), abs(self.space.upper)), self.space.shift
        sums = dot(self.sizes, digits(reach))
        weight = Fraction(int(abs(weights).max(initial=0)), 1 << self.weight_shift)
        largest = max(Fraction(int(reach.max(initial=0)), 1 << shift), weight)
        terms, errors = self.rows[0].sizes.tolist(), []
        for j, bias in enumerate(timed(biases.tolist())):
            size = Fraction(sums[j], 1 << (shift + self.weight_shift)) + Fraction(bias)
            k = terms[j] + 3
            if max(size, largest) >= FLOAT32_MOST or k >= FLOAT32_UNIT // 2:
                raise RejectedError("a value is outside the range of float32")
            error = size * k / (FLOAT32_UNIT - k) + k * FLOAT32_TINY * (1 + largest)
            # Rounded up to a multiple of 2^-200.
            errors.append(Fraction(-((-error.numerator << 200) // error.denominator), 1 << 200))
        return errors

    def states(self) -> SignArray:
        """Decide the sign of every neuron that has only one; the others are 0."""
        # Over the box 2 (w.x + b) lies within w.middle -+ |w|.width, plus twice the bias.
        middle, reach = dot(self.rows, self.middle), dot(self.sizes, self.width)
        most, least = middle + reach + 2 * self.bias[1], middle - reach + 2 * self.bias[-1]
        state = np.zeros(self.size, dtype=np.int8)
        state[_below(most[: self.size], self.loses_ties[1])] = -1
        state[_below(-least[: self.size], self.loses_ties[-1])] = 1
        if self.space.norm is not None:
            open_ = np.flatnonzero(state == 0)
            one = np.ones(open_.size, dtype=np.int64)
            for sign in (1, -1):
                alone = Clauses(np.arange(open_.size + 1), open_, sign * one, one)
                state[open_[self.proved(alone)]] = -sign
        return state

    def proved(self, clauses: Clauses) -> Table:
        """Decide which clauses hold."""
        real, sign = clauses.neuron >= 0, clauses.sign
        if np.any(clauses.theta < 0) or np.any((sign != 1) & ((sign != -1) | ~real)):
            raise RejectedError("a clause has a negative multiplier or an impossible sign")
        if np.any(np.diff(clauses.start) > MOST_ENTRIES):
            raise RejectedError("a clause is too long")
        step = 1 + CHUNK // (1 + self.rows[0].width)
        first = range(0, clauses.count, step)
        parts = [self._prove(clauses.part(k, min(k + step, clauses.count))) for k in timed(first)]
        return np.concatenate([np.zeros(0, dtype=bool), *parts])

    def _prove(self, clauses: Clauses) -> Table:
        constant, v = self._sums(clauses)
        strict = np.zeros(clauses.count, dtype=bool)
        for sign in (1, -1):
            mine = (clauses.sign == sign) & (clauses.theta > 0) & (clauses.neuron >= 0)
            mine[mine] = self.loses_ties[sign][clauses.neuron[mine]]
            strict[clauses.owner[mine]] = True
        # Twice the maximum over the box; every digit of |v| is one of v times the sign of v.
        side = np.where(v[-1] < 0, -1, 1)
        box = dot(v, self.middle) + dot([side * part for part in v], self.width)
        done = _below(box + 2 * constant, strict)
        if self.space.norm is not None:
            value = dot(v, self.center) + constant
            # The centre itself is in the ball.
            for k in timed(np.flatnonzero(~done & (value <= 0)).tolist()):
                entries = sum(part[k].astype(object) << (BITS * i) for i, part in enumerate(v))
                done[k] = self._over_ball(entries, value[k], strict[k])
        return np.asarray(done)

    def _sums(self, clauses: Clauses) -> tuple[Objects, list[Integers]]:
        """Compute sum_j theta_j s_j b_j and v = sum_j theta_j s_j w_j of every clause.

        The digits of v are not negative, except the last.
        """
        place = np.where(clauses.neuron >= 0, clauses.neuron, self.size - 1 - clauses.neuron)
        owner, theta, shape = clauses.owner, digits(clauses.theta), (clauses.count, self.low.size)
        constant = np.zeros(clauses.count, dtype=object)
        v: list[Any] = [0] * (len(theta) + len(self.rows) - 1)
        for sign, bias in self.easier.items():
            mine = np.flatnonzero(clauses.sign == sign)
            where = owner[mine], place[mine]
            chosen = [SparseRows.of_entries(*where, sign * t[mine], shape) for t in theta]
            constant += dot(chosen, bias)
            for i, part in enumerate(chosen):
                for k, row in enumerate(timed(self.rows)):
                    v[i + k] = v[i + k] + part.product(row)
        for k in range(len(v) - 1):
            v[k + 1] += v[k] >> BITS
        while np.abs(v[-1]).max(initial=0) >= 2**BITS:
            v.append(v[-1] >> BITS)
        v[:-1] = [part & (2**BITS - 1) for part in v[:-1]]
        return constant, v

    def _over_ball(self, v: Objects, value: int, strict: bool) -> bool:
        """Whether value + max of v.z over ball and box (z = x - c) is below zero."""
        columns = np.flatnonzero(v)
        size, side = np.abs(v[columns]), ((v[columns] > 0).astype(np.int64), columns)
        if self.space.norm == "l0":
            gains = nlargest(self.space.radius, (size * self.room[side]).tolist())
            return bool(_below(value + sum(gains), strict))
        if self._fits(size, value, strict):
            return True
        if columns.size == 1:
            # Along one axis the ball is an interval, and the box is already inside it.
            return False
        size, value = size << SHARE_BITS, value << SHARE_BITS
        share = self._share(size, self.float_room[side])
        return self._fits(share, value + ((size - share) * self.room[side]).sum(), strict)

    def _fits(self, share: Any, value: int, strict: bool) -> bool:
        """Whether value + r ||g|| is below zero, g being the ball's share of each |v_k|."""
        g = share.tolist()
        if self.space.norm == "l1":
            return bool(_below(value + self.radius * max(g, default=0), strict))
        # Both sides are squared.
        square = self.radius**2 * sum(map(mul, g, g))
        return value <= 0 and bool(_below(square - value**2, strict))

    def _share(self, size: Any, room: npt.NDArray[np.float64]) -> Any:
        """Find nearly the best share: min(|v_k|, m) for L1 and min(|v_k|, m room_k) for L2."""
        v, ball = size.astype(np.float64), self.space.norm == "l2"
        radius = self.radius / (1 << self.point_shift)
        low, high = 0.0, float(v.max(initial=0.0))
        if ball:
            high = float(np.sqrt((v * v).sum())) / max(radius, 1e-200)
        for _ in range(60):
            m = (low + high) / 2
            if ball:
                too_far = float((np.minimum(v, m * room) ** 2).sum()) > (m * radius) ** 2
            else:
                too_far = float(room[v > m].sum()) > radius
            low, high = (m, high) if too_far else (low, m)
        if ball:
            whole = np.array([int(g) for g in np.fmin(v, high * room)], dtype=object)
            return np.minimum(whole, size)
        # The best m is one of the sizes.
        return np.minimum(size, max(np.where(v <= high, size, 0), default=0))


def _below(value: Any, strict: Any) -> Any:
    return (value < 0) | (strict & (value == 0))


# -- thresholds on grids ----------------------------------------------------------------------

#: Bits in which float32 and float64 numbers are exact, with some to spare.
EXACT_BITS = {True: 22, False: 50}


@dataclass(frozen=True, eq=False)
class InputLattice:
    """origin_i, step_i (0 for an input with one value) and error_i, in units of 2^-shift."""

    origin: Objects
    step: Objects
    error: Objects
    shift: int

    @staticmethod
    def of(space: Space, least_shift: int) -> InputLattice | None:
        """Find the lattice of a region's inputs, or None if they are not on a grid."""
        if space.grid is None:
            return None
        lower, upper = space.rationals(space.lower), space.rationals(space.upper)
        origins, steps, errors = [], [], []
        for i, (low, high) in enumerate(timed(zip(lower, upper, strict=True))):
            one = low == high
            origins.append(low if one else Fraction(space.grid.origin[i]))
            steps.append(Fraction(0) if one else Fraction(space.grid.step[i]))
            errors.append(Fraction(0) if one else _error(space.grid, i, low, high))
        whole, shift = common_shift([*origins, *steps, *errors, Fraction(1, 1 << least_shift)])
        origin, step, error = whole[:-1].reshape(3, -1)
        return InputLattice(origin, step, error, shift)


def moved(bias: int, base: int, divisor: int, error: int, *, sign: int, strict: bool) -> int | None:
    """Find the bias with which a sign of a neuron is possible, or None if it is the same.

    All numbers are in one unit.  If `strict`, the sign needs more than w.x + b = 0; of the bias
    that is returned zero is enough.
    """
    if not divisor:
        return None
    # With the sign -1 everything is mirrored.
    bias, base = sign * bias, sign * base
    need = -bias - base - error
    m = need // divisor + 1 if strict and not error else -(-need // divisor)
    least = base + divisor * m - error
    return -sign * least if least > -bias else None


def _error(grid: StatedGrid, i: int, low: Fraction, high: Fraction) -> Fraction:
    """Bound how far the values of an input between bounds are from the formula."""
    origin, step = Fraction(grid.origin[i]), Fraction(grid.step[i])
    reach = abs(origin) + max(abs(low), abs(high)) + 2 * step
    unit = max(origin.denominator, step.denominator)
    # A product, a sum and a conversion, each with twice its rounding error.
    rounding = reach * (Fraction(1, 2**22 if grid.single else 2**49)) + Fraction(1, 2**148)
    if reach * unit < 2 ** EXACT_BITS[grid.single]:
        # All numbers are multiples of 1 / unit that the floating-point numbers have.
        rounding = Fraction(0)
    own = (abs(Fraction(x) - origin - step * k) for k, x in grid.own_values(i).items())
    return max([rounding, *own])


def divisors(rows: SparseRows, weights: Objects, step: Objects) -> list[int]:
    """Find the greatest common divisor of w_i step_i of every row; 0 if all are 0."""
    products = (abs(weights) * step[rows.columns]).tolist()
    return [gcd(*products[a:b]) for a, b in timed(pairwise(rows.start.tolist()))]
