r"""Sums of grid values take few values, so that thresholds of first-layer neurons move inwards.

An input of a grid has the values origin_i + step_i k_i + e_i with integers k_i and rounding errors
|e_i| <= error_i, or a single value.  So with the greatest common divisor g of the w_i step_i, a sum
w.x is base + g m + e for an integer m, and |e| <= E = sum_i |w_i| error_i.  The sign +1 needs
w.x + b >= 0, so that

    m  >=  M = ceil((-b - base - E) / g)     and     w.x  >=  base + g M - E,

and -1 likewise.  Where that is more than w.x >= -b, it replaces b in clauses about grid points.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd

from bnncert.kernel.budget import timed
from bnncert.kernel.function import Objects, common_shift
from bnncert.kernel.grid_values import StatedGrid
from bnncert.kernel.space import Space
from bnncert.kernel.sparse import SparseRows

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
        """Return the lattice of a region's inputs, or None if they are not on a grid."""
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
    """Return the bias with which a sign of a neuron is possible, or None if it is the same.

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
    """Return how far the values of an input between bounds are from the formula, at most."""
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
    """Return the greatest common divisor of w_i step_i of every row; 0 if all are 0."""
    products = (abs(weights) * step[rows.columns]).tolist()
    return [gcd(*products[a:b]) for a, b in timed(pairwise(rows.start.tolist()))]
