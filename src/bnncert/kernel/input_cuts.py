r"""Quadratic inequalities of first-layer signs that the region implies, in exact arithmetic.

Sign s of neuron j needs s (w_j.y + b_j) >= 0, and q_j = 1 + s x_j is 0 if x_j = -s.  If
theta >= 0,

    sum_j theta_j q_j s_j (w_j.y + b_j) >= 0     for all y in the region.

With the middle c and half-widths r of the box, v_i = sum_j theta_j q_j s_j w_ji, and any m_i > 0,

    v_i (y_i - c_i)  <=  r_i |v_i|  <=  m_i v_i^2 + r_i^2 / (4 m_i),

so that  p(x) = sum_i r_i^2 / (4 m_i) + sum_j theta_j q_j s_j (w_j.c + b_j) + sum_i m_i v_i^2 >= 0.
For an L1 or L2 ball of radius r around c, v.(y - c) <= r |v| <= m |v|^2 + r^2 / (4 m) with one m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import SignArray as Signs
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.function import Objects
from bnncert.kernel.geometry import BITS, Geometry, dot
from bnncert.kernel.section_reading import Clauses, read_clauses
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.sparse import Integers, SparseRows

#: theta is in units of 2^-THETA_BITS, and m in a unit of the file, not finer than 2^-FINEST_UNIT.
THETA_BITS, FINEST_UNIT = 16, 300

#: The sum of all m is below this, so that sums of products with two digits fit 64 bits.
MOST_CURVATURE = 2**22

#: Inequalities of one target, and of one of them weights of its rows and products of two signs, at
#: most; all of them together have at most twice as many products.
MOST_CUTS, MOST_WEIGHTS, MOST_PRODUCTS = 64, 2**26, 2**22


@dataclass(frozen=True, eq=False)
class CutNumbers:
    """What a file states of the inequalities of one target."""

    #: Entries: neuron, sign and theta, as in a clause.
    literals: Clauses
    #: The unit of m, 2^-unit, and m of every input (or a single m for a ball) for each.
    units: list[int]
    curvatures: list[Integers]


@dataclass(frozen=True, eq=False)
class ProvedCut:
    """constant + linear.x + x'square x >= 0 in units of 2^-shift, for signs x of some variables."""

    constant: int
    linear: Objects
    square: Objects
    shift: int
    variables: Integers

    def at(self, signs: Signs, free: Integers) -> ProvedCut:
        """Restrict the inequality to free variables, x_i^2 = 1 counted as constants."""
        known = signs[self.variables].astype(object)
        along = self.square @ known
        mine = np.flatnonzero(np.isin(self.variables, free))
        place = np.searchsorted(free, self.variables[mine])
        linear, square = np.zeros(free.size, object), np.zeros((free.size, free.size), object)
        linear[place] = (self.linear + 2 * along)[mine]
        square[np.ix_(place, place)] = self.square[np.ix_(mine, mine)]
        constant = self.constant + int(((self.linear + along) * known).sum())
        constant += int(np.diag(square).sum())
        np.fill_diagonal(square, 0)
        return ProvedCut(constant, linear, square, self.shift, free)


def read_cuts(section: Section, geometry: Geometry) -> CutNumbers:
    """Read the inequalities of one target."""
    literals = read_clauses(section, geometry.size, 0)
    units, sizes = section.integers("unit"), section.integers("sizes")
    values = section.integers("curvature")
    if units.size != literals.count or sizes.size != units.size or units.size > MOST_CUTS:
        raise UnreadableError("section cuts: lists of different lengths, or too many inequalities")
    if np.any((sizes < 1) | (sizes > values.size)) or int(sizes.sum()) != values.size:
        raise UnreadableError("section cuts: sizes do not add up")
    return CutNumbers(literals, units.tolist(), np.split(values, np.cumsum(sizes)[:-1]))


def derive_cuts(numbers: CutNumbers, geometry: Geometry, skeleton: Skeleton) -> list[ProvedCut]:
    """Derive the inequalities that the numbers stand for, all of which hold."""
    literals = numbers.literals
    if np.any(literals.theta < 0) or np.any(np.abs(literals.sign) != 1):
        raise RejectedError("an inequality has a negative multiplier or an impossible sign")
    squares = np.diff(literals.start) ** 2
    if squares.max(initial=0) > MOST_PRODUCTS or squares.sum() > 2 * MOST_PRODUCTS:
        raise RejectedError("the inequalities have too many products of signs")
    parts = (literals.part(k, k + 1) for k in timed(range(literals.count)))
    given = zip(parts, numbers.units, numbers.curvatures, strict=True)
    return [_derive(*one, geometry, skeleton) for one in given]


def _derive(
    literals: Clauses, unit: int, curvature: Integers, geometry: Geometry, skeleton: Skeleton
) -> ProvedCut:
    """Derive one inequality: first in q, then in the variables."""
    neurons, signs, theta = literals.neuron, literals.sign, literals.theta
    inputs = geometry.rows[0].width
    is_ball = curvature.size == 1 and geometry.space.norm in ("l1", "l2")
    if not 0 <= unit <= FINEST_UNIT or not (is_ball or curvature.size == inputs):
        raise RejectedError("an inequality has an impossible unit or the wrong number of inputs")
    if np.any(curvature < 0) or int(curvature.astype(object).sum()) >= MOST_CURVATURE:
        raise RejectedError("an inequality has a number that is too large, or negative")
    if neurons.size * inputs > MOST_WEIGHTS:
        raise RejectedError("an inequality has too many weights")
    rows = [part.take(neurons) for part in geometry.rows]
    weight, point = geometry.weight_shift, geometry.point_shift
    # The units of theta q s (w.c + b), where twice the middle of a box is known, and of m v^2.
    first, second = THETA_BITS + weight + point + 1, 2 * THETA_BITS + unit + 2 * weight
    shift = max(first, second)
    bias = np.where(signs > 0, geometry.high[neurons], geometry.low[neurons])
    at_middle = 2 * dot(rows, geometry.center) if is_ball else dot(rows, geometry.middle)
    signed = theta.astype(object) * signs
    straight = signed * (at_middle + 2 * bias) << (shift - first)
    # The single m of a ball would count once for each input in the limit of the sums.
    each, common = (np.ones(inputs, np.int64), int(curvature[0])) if is_ball else (curvature, 1)
    gram = common * _products(rows, each)
    for factor in timed((signed[:, None], signed, 1 << (shift - second))):
        # In place: such a matrix has millions of integers.
        gram *= factor
    # r^2 / (4 m), or (width / 2)^2 / (4 m), rounded up.
    size = np.array([2 * geometry.radius], dtype=object) if is_ball else geometry.widths
    needed = shift + unit - 2 * point - 4
    total = sum(map(lambda w, m: _quotient(w, m, needed), size.tolist(), curvature.tolist()))
    return _over_variables(total, straight, gram, literals, skeleton, shift)


def _products(rows: list[SparseRows], curvature: Integers) -> Objects:
    """Sum up m_i w_ji w_ki over i for all rows; |digits| < 2^20 and sum m < 2^22, so < 2^62."""
    dense = [part.dense() for part in rows]
    total = np.zeros((rows[0].count, rows[0].count), dtype=object)
    for i, left in enumerate(dense):
        scaled = left * curvature
        for k, right in enumerate(timed(dense)):
            total += (scaled @ right.T).astype(object) << (BITS * (i + k))
    return total


def _quotient(width: int, m: int, shift: int) -> int:
    """Divide width^2 2^shift by m, and round up."""
    if width == 0:
        return 0
    if m == 0:
        raise RejectedError("an inequality leaves out an input that can move")
    square = width * width
    return -(-(square << shift) // m) if shift >= 0 else -(-square // (m << -shift))


def _over_variables(
    total: int, straight: Objects, gram: Objects, literals: Clauses, skeleton: Skeleton, shift: int
) -> ProvedCut:
    """Substitute q_j = 1 + s x_j: a known sign, or that of a variable."""
    layer, neurons = skeleton.layers[0], literals.neuron
    state = layer.state[neurons].astype(object)
    fixed, open_ = 1 + literals.sign * state, np.flatnonzero(state == 0)
    moves = (literals.sign * layer.sign[neurons].astype(object))[open_]
    used, place = np.unique(layer.variable[neurons[open_]], return_inverse=True)
    along = gram @ fixed
    linear, square = np.zeros(used.size, dtype=object), np.zeros((used.size,) * 2, dtype=object)
    np.add.at(linear, place, moves * (straight + 2 * along)[open_])
    inner = np.outer(moves, moves) * gram[np.ix_(open_, open_)]
    np.add.at(square, (place[:, None], place), inner)
    constant = total + int(straight @ fixed) + int(fixed @ along)
    return ProvedCut(constant, linear, square, shift, used)
