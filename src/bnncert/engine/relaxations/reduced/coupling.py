r"""The input as variables of the reduced relaxation.

Conflicting pairs are *two* first-layer signs that exclude each other.  Three half-spaces may
exclude each other although no two of them do, which only a relaxation with the input represents.
With real variables y for the input, z = (1, x, y), every first-layer variable becomes a gate over a
real sum,

    x_j = sign(u_j + b_j),      u_j = offset_j + v_j,      v_j = R_j.y.

(v, x) lies on one of two segments, v in [p_0, p_1] with x = -1 and v in [p_2, p_3] with x = +1, so
an inequality  a + b v + e x + g x v <= 0  holds if it holds at their four ends.  The relaxation
bounds the squares of y:

* *box*, t_i = (x0_i - m_i) / h_i in [-1, 1]: y = t, and every E[y_i^2] <= 1.  Inputs whose columns
  are equal or opposite are one t (a sum of parallel segments is a segment).
* *box with many t*: it lies in every ellipsoid  sum d_i t_i^2 <= sum d_i,  d >= 0.  Of an ellipsoid
  only the projection to the space of the gates is needed, so y has at most as many entries as there
  are gates: y = G s with s_i = sqrt(d_i) t_i, and sum E[y_i^2] <= their number.  The multiplier of
  each t_i is then d_i times one number.  The best d are proportional to d_i sqrt(E[t_i^2]); if
  E[t_i^2] = 1 for all i, the ellipsoid is as strong as the box.
* *L2 ball*: the same with s = x0 - c.  An L1 ball lies in the L2 ball of the same radius.

R is rounded.  With y defined by the formulas above in real numbers, v_j differs from u_j - offset_j
by at most eps_j, and the segments are extended by eps_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.model.layers import UNIT
from bnncert.regions import Region

#: With more directions than this many for each gate, a box is represented by an ellipsoid.
MOST_DIRECTIONS = 2

#: The least weight of an ellipsoid, as a share of the mean weight.
LEAST_WEIGHT = 0.01

#: There is no coupling if rows are outside these sizes: their products may overflow or underflow.
SMALLEST, LARGEST = 1e-60, 1e60


@dataclass(frozen=True, eq=False)
class Coupling:
    """First-layer variables as gates over real sums."""

    #: R: one row for each gate over the variables y.
    rows: FloatArray
    #: p_0 <= p_1 (x = -1) and p_2 <= p_3 (x = +1) for each gate.
    points: FloatArray
    #: The variable, as z of the problem counts them, that each gate determines.
    outputs: IntArray
    #: Whether the sum of all y_i^2 is bounded, or every y_i^2 by 1.
    is_ball: bool
    #: A bound of sum y_i^2.
    reach: float
    #: For an ellipsoid: d, and G' scaled such that s = G' y for what the gates read; else empty.
    weights: FloatArray
    basis: FloatArray

    #: The sign at each of the four points.
    SIGNS: ClassVar[tuple[float, ...]] = (-1.0, -1.0, 1.0, 1.0)

    @property
    def size(self) -> int:
        """The number of variables y."""
        return int(self.rows.shape[1])

    def better_weights(self, moments: FloatArray) -> FloatArray | None:
        """Return d_i sqrt(E[t_i^2]) for the second moments of y; None without an ellipsoid."""
        if not self.weights.size:
            return None
        square = np.einsum("ik,kl,il->i", self.basis, moments, self.basis)
        found = np.sqrt(self.weights * np.maximum(square, 0.0))
        found += LEAST_WEIGHT * found.mean()
        return found if np.all(np.isfinite(found)) and np.all(found > 0) else None


@dataclass(frozen=True, eq=False)
class _Input:
    """R, the middle, the error of R.y at each gate, and the bounds of the squares."""

    rows: FloatArray
    middle: FloatArray
    miss: FloatArray
    is_ball: bool
    reach: float
    weights: FloatArray
    basis: FloatArray


def couple(
    presolved: Presolved, variables: IntArray, weights: FloatArray | None = None
) -> Coupling | None:
    """Return the coupling of the first-layer ones of these variables, or None if there is none.

    `weights` are those of an ellipsoid, from :meth:`Coupling.better_weights`.
    """
    outputs = np.flatnonzero(presolved.owner_layer[variables] == 0)
    if not outputs.size:
        return None
    region, layer, bounds = presolved.region, presolved.network.layers[0], presolved.bounds[0]
    neurons = presolved.owner[variables[outputs]]
    sparse = layer.weights[neurons].astype(np.float64)
    used = np.unique(sparse.indices)
    matrix = sparse[:, used].toarray()
    if region.norm in ("l1", "l2"):
        made = _ball(matrix, region, used)
    else:
        made = _box(matrix, region, used, weights, MOST_DIRECTIONS * outputs.size)
    if made is None:
        return None
    size = np.abs(made.rows).max(axis=1, initial=0.0)
    if not np.all((size > SMALLEST) & (size < LARGEST)):
        return None
    low, high = bounds.lower[neurons], bounds.upper[neurons]
    minus_upto = np.minimum(high, layer.minus_upto[neurons])
    plus_from = np.maximum(low, layer.plus_from[neurons])
    offset = matrix @ made.middle
    magnitude = np.abs(matrix) @ np.abs(made.middle)
    ends = np.abs(low) + np.abs(high) + np.abs(minus_upto) + np.abs(plus_from)
    eps = made.miss + UNIT * ((used.size + 16) * magnitude + 8 * ends) + 1e-290
    points = np.stack([low, minus_upto, plus_from, high], axis=1) - offset[:, None]
    points += np.stack([-eps, eps, -eps, eps], axis=1)
    if not np.all(np.isfinite(points)) or np.any(points[:, ::2] > points[:, 1::2]):
        return None
    return Coupling(made.rows, points, outputs, made.is_ball, made.reach, made.weights, made.basis)


NOTHING = np.zeros(0)


def _box(
    matrix: FloatArray, region: Region, used: IntArray, weights: FloatArray | None, most: int
) -> _Input | None:
    lo, hi = region.lo[used], region.hi[used]
    middle = lo + (hi - lo) / 2
    half = np.nextafter(np.maximum(hi - middle, middle - lo), np.inf)
    wide = np.flatnonzero(hi > lo)
    columns = matrix[:, wide].T
    # A column and its negative are one direction: the first entry that is not 0 decides the sign.
    first = np.argmax(columns != 0, axis=1)
    sign = np.sign(columns[np.arange(wide.size), first])
    directions, member = np.unique(columns * sign[:, None] + 0.0, axis=0, return_inverse=True)
    count = directions.shape[0]
    if not count:
        return None
    width = np.zeros(count)
    np.add.at(width, member.reshape(-1), half[wide])
    width *= 1 + 2 * (wide.size + 2) * UNIT
    rows = np.ascontiguousarray(directions.T * width)
    miss = 2 * UNIT * np.abs(rows).sum(axis=1)
    if count <= most:
        return _Input(rows, middle, miss, False, float(count), NOTHING, np.zeros((0, count)))
    # The default weight of a direction is its mean effect on the gates.
    d = np.sqrt((rows**2).mean(axis=0)) if weights is None else weights
    radius = float(np.sqrt(d.sum())) * (1 + (count + 8) * UNIT)
    scaled = rows / np.sqrt(d)
    made = _rotated(scaled, radius)
    if made is None:
        return None
    turned, more, reach, basis = made
    miss += more + 8 * UNIT * radius * np.sqrt((scaled**2).sum(axis=1))
    return _Input(turned, middle, miss, True, reach, d, basis)


def _ball(matrix: FloatArray, region: Region, used: IntArray) -> _Input | None:
    made = _rotated(matrix, region.radius)
    if made is None:
        return None
    rows, miss, reach, _ = made
    middle = region.middle[used]
    return _Input(rows, middle, miss, True, reach, NOTHING, np.zeros((0, rows.shape[1])))


def _rotated(
    matrix: FloatArray, radius: float
) -> tuple[FloatArray, FloatArray, float, FloatArray] | None:
    r"""Return R, a bound of |R.y - W.s| for |s| <= r, a bound of |y|^2, and G'.

    The k rows of Q are nearly an orthonormal basis of the rows of W, and y = sqrt(k) Q s / r.  With
    A = W Q' as computed and R = r A / sqrt(k),  R y = A Q s.  For any Q its error is at most
    r |A Q - W| plus the rounding of R, and |y|^2 <= k |Q Q'|.
    """
    length = np.sqrt((matrix**2).sum(axis=1))
    if not radius > 0 or not np.all((length > SMALLEST) & (length < LARGEST)):
        return None
    q, triangle, _ = scipy.linalg.qr((matrix / length[:, None]).T, mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.abs(np.diag(triangle)) > 1e-9))
    q = np.ascontiguousarray(q[:, :rank].T)
    a = matrix @ q.T
    rows = a * (radius / np.sqrt(rank))
    terms = matrix.shape[1] + rank + 8
    gram = np.abs(q @ q.T) + terms * UNIT * (np.abs(q) @ np.abs(q).T)
    reach = rank * float(gram.sum(axis=1).max()) * (1 + 8 * terms * UNIT)
    doubt = np.abs(a @ q - matrix) + terms * UNIT * (np.abs(a) @ np.abs(q) + np.abs(matrix))
    miss = radius * np.sqrt((doubt**2).sum(axis=1)) * (1 + terms * UNIT)
    miss += 8 * UNIT * np.sqrt((rows**2).sum(axis=1) * reach)
    return rows, miss, reach, q.T * (radius / np.sqrt(rank))
