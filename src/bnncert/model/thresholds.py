r"""Exact thresholds of sign neurons.

A neuron is x = sign(F(u)) with u = <w, y> and F a chain of scalings, shifts, divisions and batch
normalisations, so F(u) = a u + c with real a, c.  Writing t for the root of F,

    a > 0:  x = +1  iff  u >= t,          a < 0:  x = +1  iff  -u >= -t,

and a = 0 is a constant neuron.  For layers whose inputs are signs, u is a point of the lattice
{-nv, -nv+2, ..., nv} with nv = sum |w|, so that t can be replaced by the smallest lattice point
p >= t.  It is found in rational interval arithmetic, whose precision is increased until p is
certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.errors import UnsupportedModelError
from bnncert.model.description import Divide, ElementwiseStep, Normalise, Scale, Shift, step_arrays
from bnncert.model.rationals import Interval, square_root

#: Bits of the square-root enclosure, tried in turn before a threshold is reported as undecided.
PRECISIONS = (80, 320, 1280, 5120)

#: The rounding error of a float32 execution of the chain, relative to its largest term.
FLOAT32_ROUNDING = 8 * 2.0**-24


class _Link(NamedTuple):
    """One step of one neuron: v -> gain (v - mean) / sqrt(square) + shift."""

    gain: Fraction = Fraction(1)
    shift: Fraction = Fraction(0)
    mean: Fraction = Fraction(0)
    square: Fraction = Fraction(1)


#: The steps of one neuron in order.
_Chain: TypeAlias = list[_Link]


@dataclass(frozen=True, eq=False)
class LatticeThresholds:
    """Thresholds of neurons with integer pre-activations, one entry for each neuron."""

    #: The sign of a; 0 for a constant neuron.
    direction: npt.NDArray[np.int8]
    #: The smallest lattice point p with F(p) >= 0.
    on_from: IntArray
    #: Whether F(p) = 0.
    tie: npt.NDArray[np.bool_]
    #: A float bias that describes the same neuron.
    bias: FloatArray
    #: Whether a float32 execution may decide the neuron differently.
    ambiguous: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RealThresholds:
    """Per neuron: sign of a, and floats with  bias_lo <= -t * sign(a) <= bias_hi."""

    direction: npt.NDArray[np.int8]
    bias_lo: FloatArray
    bias_hi: FloatArray


@dataclass(frozen=True, eq=False)
class AffineCoefficients:
    """Per row: enclosures of a and c in F(u) = a u + c, and the group of identical chains."""

    gain: tuple[Interval, ...]
    offset: tuple[Interval, ...]
    group: IntArray


def _unique_chains(
    steps: Sequence[ElementwiseStep], extra: Sequence[FloatArray], count: int
) -> tuple[FloatArray, IntArray]:
    """Find the different chains, and the number of the chain of each neuron.

    A convolution has one chain per channel, so there are few of them.
    """
    columns = [array for step in steps for array in step_arrays(step)] + list(extra)
    if not columns:
        return np.zeros((1, 0)), np.zeros(count, dtype=np.int64)
    table = np.column_stack([np.broadcast_to(column, (count,)) for column in columns])
    # Rows are compared by their bytes, which is faster than sorting; + 0.0 turns -0.0 into 0.0.
    rows = np.ascontiguousarray(table.astype(np.float64) + 0.0)
    # The neurons of a channel are mostly neighbours: one comparison finds where a run begins.
    starts = np.concatenate(([0], np.flatnonzero(np.any(rows[1:] != rows[:-1], axis=1)) + 1))
    numbers: dict[bytes, int] = {}
    of_run = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows[starts]])
    _, first = np.unique(of_run, return_index=True)
    return rows[starts[first]], np.repeat(of_run, np.diff(starts, append=count))


def _chain_of(steps: Sequence[ElementwiseStep], row: FloatArray) -> _Chain:
    """Make the chain of one neuron, whose parameters in the order of the steps are `row`."""
    numbers = iter(Fraction(float(v)) for v in row)
    chain: _Chain = []
    for step in steps:
        if isinstance(step, Scale):
            chain.append(_Link(gain=next(numbers)))
        elif isinstance(step, Shift):
            chain.append(_Link(shift=next(numbers)))
        elif isinstance(step, Divide):
            chain.append(_Link(gain=1 / next(numbers)))
        else:
            gamma, beta, mean, variance, epsilon = islice(numbers, 5)
            chain.append(_Link(gamma, beta, mean, variance + epsilon))
    return chain


def _direction(chain: _Chain) -> int:
    return math.prod((link.gain > 0) - (link.gain < 0) for link in chain)


def _forward(chain: _Chain, bits: int) -> tuple[Interval, Interval]:
    """Enclose a and c with F(u) = a u + c."""
    gain, offset = Interval.exactly(1), Interval.exactly(0)
    for link in chain:
        factor, deviation = Interval.exactly(link.gain), square_root(link.square, bits)
        gain = gain * factor / deviation
        centred = (offset - Interval.exactly(link.mean)) * factor
        offset = Interval.exactly(link.shift)
        # An exact zero must stay exact, or a tie at the mean could not be decided.
        if centred != Interval.exactly(0):
            offset = offset + centred / deviation
    return gain, offset


def _root(chain: _Chain, bits: int) -> Interval:
    """Enclose the root t of F by inverting the steps from the last to the first."""
    value = Interval.exactly(0)
    for link in reversed(chain):
        value = value - Interval.exactly(link.shift)
        if value != Interval.exactly(0):
            value = value * square_root(link.square, bits) / Interval.exactly(link.gain)
        value = value + Interval.exactly(link.mean)
    return value


def _magnitude(chain: _Chain) -> float:
    """Estimate the largest terms of a float execution, in units of u."""
    value = 0.0
    for link in reversed(chain):
        gain, shift, mean, square = map(float, link)
        value = abs(mean) + (value + abs(shift)) * math.sqrt(square) / abs(gain)
    return value


def check_steps(steps: Sequence[ElementwiseStep], where: str) -> None:
    """Raise for parameters that are not finite, a division by 0 or a negative variance."""
    for step in steps:
        for array in step_arrays(step):
            if not np.all(np.isfinite(array)):
                raise UnsupportedModelError(f"{where}: a parameter is NaN or infinite")
        if isinstance(step, Divide) and np.any(step.divisor == 0):
            raise UnsupportedModelError(f"{where}: division by zero")
        if isinstance(step, Normalise) and np.any(step.variance + step.epsilon <= 0):
            raise UnsupportedModelError(
                f"{where}: batch normalisation with variance + epsilon <= 0"
            )


def lattice_thresholds(
    steps: Sequence[ElementwiseStep], norm: IntArray, where: str
) -> LatticeThresholds:
    """Decide p for every neuron of a layer with integer pre-activations.

    `steps` is the chain F, one array per parameter, and `norm` is nv = sum |w| per neuron.
    """
    count = norm.shape[0]
    check_steps(steps, where)
    unique, inverse = _unique_chains(steps, [norm.astype(np.float64)], count)
    size = unique.shape[0]
    direction = np.zeros(size, dtype=np.int8)
    on_from = np.zeros(size, dtype=np.int64)
    tie = np.zeros(size, dtype=bool)
    bias = np.zeros(size)
    ambiguous = np.zeros(size, dtype=bool)
    # A single shift is exact where the difference is small, so it causes no ambiguity at a tie.
    rounds = any(not isinstance(step, Shift) for step in steps)
    for k in range(size):
        chain = _chain_of(steps, unique[k, :-1])
        nv = int(unique[k, -1])
        direction[k] = _direction(chain)
        if direction[k] == 0:
            value, tie_here = _constant_sign(chain, where)
            # F is constant: the caller sets the row to zero, u = 0 is the only lattice point, and
            # the neuron is on (p = 0), off (p = 2) or tied (p = 0 with F(p) = 0).
            on_from[k] = 0 if value >= 0 else 2
            tie[k] = tie_here
            bias[k] = float(value)
            continue
        p, is_tie, t = _lattice_point(chain, int(direction[k]), nv, where)
        near = [abs(t - point) for point in (p, p - 2) if -nv <= point <= nv]
        if near and (rounds or not is_tie):
            doubt = FLOAT32_ROUNDING * (_magnitude(chain) + nv)
            ambiguous[k] = float(min(near)) <= doubt
        p = min(max(p, -nv), nv + 2)
        on_from[k] = p
        tie[k] = is_tie and t == p <= nv
        # All thresholds in (p - 2, p] describe one neuron; that of the file is kept if it fits.
        bias[k] = min(
            float(min(max(-t, Fraction(-p)), Fraction(2 - p))), math.nextafter(2.0 - p, -math.inf)
        )
    return LatticeThresholds(
        direction[inverse], on_from[inverse], tie[inverse], bias[inverse], ambiguous[inverse]
    )


def _constant_sign(chain: _Chain, where: str) -> tuple[int, bool]:
    for bits in PRECISIONS:
        _, offset = _forward(chain, bits)
        if offset.lo > 0:
            return 1, False
        if offset.hi < 0:
            return -1, False
        if offset.is_exact:
            return 0, True
    raise UnsupportedModelError(f"{where}: cannot decide the sign of a constant neuron")


def _lattice_point(
    chain: _Chain, direction: int, nv: int, where: str
) -> tuple[int, bool, Fraction]:
    """Decide p, whether p = t, and a rational inside the enclosure of t, signed by direction."""
    for bits in PRECISIONS:
        root = _root(chain, bits)
        t = root if direction > 0 else -root
        # p = nv - 2 floor((nv - t) / 2)
        below = math.floor((nv - t.hi) / 2)
        above = math.floor((nv - t.lo) / 2)
        if below == above:
            p = nv - 2 * above
            return p, t.is_exact and t.lo == p, t.lo
    raise UnsupportedModelError(
        f"{where}: a batch-norm threshold cannot be distinguished from a lattice point"
    )


def real_thresholds(steps: Sequence[ElementwiseStep], count: int, where: str) -> RealThresholds:
    """Enclose the threshold of every neuron of a layer with real inputs in floats."""
    check_steps(steps, where)
    unique, inverse = _unique_chains(steps, [], count)
    size = unique.shape[0]
    direction = np.zeros(size, dtype=np.int8)
    lo = np.zeros(size)
    hi = np.zeros(size)
    for k in range(size):
        chain = _chain_of(steps, unique[k])
        direction[k] = _direction(chain)
        if direction[k] == 0:
            value, _ = _constant_sign(chain, where)
            # With the row set to zero, bias +-1 (or an exact 0) is the same constant neuron.
            lo[k] = hi[k] = float(value)
            continue
        root = _root(chain, PRECISIONS[0])
        bias = -root if direction[k] > 0 else root
        lo[k], hi[k] = bias.floats()
        if not (math.isfinite(lo[k]) and math.isfinite(hi[k])):
            raise UnsupportedModelError(f"{where}: a threshold is outside the range of floats")
    return RealThresholds(direction[inverse], lo[inverse], hi[inverse])


def affine_coefficients(
    steps: Sequence[ElementwiseStep], count: int, where: str
) -> AffineCoefficients:
    """Enclose a and c of F(u) = a u + c for every output row."""
    check_steps(steps, where)
    unique, inverse = _unique_chains(steps, [], count)
    pairs = [_forward(_chain_of(steps, row), PRECISIONS[0]) for row in unique]
    return AffineCoefficients(
        tuple(pairs[k][0] for k in inverse), tuple(pairs[k][1] for k in inverse), inverse
    )
