r"""Which sign patterns of the first layer are reachable inside an L2 ball and its data box.

Maximising the smallest margin t is a second-order cone program,

    max t   s.t.   s_j (w_j.x + b_j) >= t |w_j|_2,   |x - c|_2 <= r,   lo <= x <= hi,

whose floating-point answer is a guide and never the decision:

* reachable, if the signs at the point found (moved exactly inside) are the wanted ones;
* not reachable, if its multipliers theta >= 0 give h_B(sum theta_j s_j w_j) + sum theta_j s_j b_j
  < 0 with the support function h_B and every rounding error added on top: the sum of the left-hand
  sides s_j (w_j.x + b_j) is then negative on all of B.

What remains is a tie, t = 0.  Where the sphere has no part in it, a box inside the ball shows that
the pattern is reachable or a box around the ball that it is not, both in rationals.
"""

from __future__ import annotations

from fractions import Fraction

import clarabel
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.network.layers import ThresholdLayer
from bnncert.reachability.polyhedron import Leaf, check_pattern
from bnncert.regions import Ball, Box, Region

#: Multipliers below these shares of the largest are dropped, as long as the proof holds: the fewer
#: neurons conflict, the more patterns their clause excludes.
SHARES = (1e-3, 1e-6, 0.0)

#: Division by a smaller radius may overflow.
SMALLEST_RADIUS = 1e-250


def decide_pattern(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    region: Region,
    deadline: Deadline,
) -> Leaf:
    """Decide whether `neurons` can have `signs` at one point of a region of any kind."""
    if isinstance(region, Ball) and region.norm == "l2":
        return check_ball_pattern(layer, neurons, signs, region, deadline)
    return check_pattern(layer, neurons, signs, region, deadline)


def check_ball_pattern(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    region: Ball,
    deadline: Deadline,
) -> Leaf:
    """Decide whether `neurons` can have `signs` at one point of an L2 ball, where possible."""
    if region.radius == 0:
        return check_pattern(layer, neurons, signs, Box(region.lo, region.hi), deadline)
    guide = cone_guide(layer, neurons, signs, region, deadline)
    if guide is None:
        return Leaf()
    point, multipliers = guide
    inside = region.settle(point)
    if inside is not None and np.array_equal(layer.exact_signs(inside)[neurons], signs):
        return Leaf(point=tuple(Fraction(v) for v in inside.tolist()))
    for share in SHARES:
        used = np.flatnonzero(multipliers > share * multipliers.max(initial=0.0))
        if cannot_meet(layer, neurons[used], signs[used], multipliers[used], region):
            theta = tuple(Fraction(m) for m in multipliers[used].tolist())
            return Leaf(conflict=tuple(int(j) for j in neurons[used]), theta=theta)
    inner = _box_inside(region, point)
    if inner is not None:
        leaf = check_pattern(layer, neurons, signs, inner, deadline)
        if leaf.point is not None:
            return leaf
    outer = check_pattern(layer, neurons, signs, Box(region.lo, region.hi), deadline)
    return Leaf(conflict=outer.conflict, theta=outer.theta)


def cannot_meet(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    multipliers: FloatArray,
    region: Region,
) -> bool:
    """Whether h_B(sum theta_j s_j w_j) + sum theta_j s_j b_j < 0, with rounding errors on top."""
    assert layer.bias_lo is not None and layer.bias_hi is not None
    rows = layer.weights[neurons].astype(np.float64)
    # Of an enclosed bias, the side that makes the wanted sign easier.
    bias = np.where(signs > 0, layer.bias_hi[neurons], layer.bias_lo[neurons])
    signed = multipliers * signs
    direction = np.asarray(rows.T @ signed)
    value = float(region.support(direction[None, :])[0] + signed @ bias)
    # Every rounded operation loses at most 2^-53 of a number that these magnitudes bound.
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
    magnitude = float(multipliers @ (abs(rows) @ reach + np.abs(bias)))
    # Products of tiny numbers may underflow instead, by far less than 1e-290.
    return value + 2.0**-51 * (neurons.size + 4) * magnitude < -1e-290


def cone_guide(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    region: Ball,
    deadline: Deadline,
) -> tuple[FloatArray, FloatArray] | None:
    """Return the point of largest margin and the multipliers theta, or None without time.

    In v = (x - c) / r the margins are s_j (w_j.v + beta_j) / |w_j| with beta = (w.c + b) / r, so
    that every number is of size 1.  Of a ball that is a point, or almost, the centre is returned
    with multipliers of zero, which prove nothing.
    """
    if region.radius < SMALLEST_RADIUS:
        return np.array(region.center), np.zeros(neurons.size)
    rows = layer.weights[neurons].astype(np.float64)
    length = np.sqrt(np.asarray((rows * rows).sum(axis=1)).reshape(-1))
    # A neuron without weights has the sign of its bias: any positive scale does.
    length = np.where(length > 0, length, 1.0)
    center, radius = region.middle, region.radius
    beta = (np.asarray(rows @ center) + layer.bias[neurons]) / radius
    used = np.unique(rows.indices)
    margins = sp.diags_array(signs / length) @ rows[:, used]
    up = (region.hi[used] - center[used]) / radius
    down = (center[used] - region.lo[used]) / radius
    eye = sp.identity(used.size, format="csr")
    # Only the sides that the data box moves inwards bind besides the ball.
    blocks = [
        sp.hstack([-margins, np.ones((neurons.size, 1))]),
        sp.hstack([eye[up < 1.0], sp.csr_array((int(np.sum(up < 1.0)), 1))]),
        sp.hstack([-eye[down < 1.0], sp.csr_array((int(np.sum(down < 1.0)), 1))]),
        sp.csr_array((1, used.size + 1)),
        sp.hstack([-eye, sp.csr_array((used.size, 1))]),
    ]
    right = np.concatenate(
        [signs * beta / length, up[up < 1.0], down[down < 1.0], [1.0], np.zeros(used.size)]
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    left = deadline.remaining()
    if left <= 0:
        return None
    if np.isfinite(left):
        settings.time_limit = left
    linear = right.size - 1 - used.size
    answer = clarabel.DefaultSolver(
        sp.csc_matrix((used.size + 1, used.size + 1)),
        np.concatenate([np.zeros(used.size), [-1.0]]),
        sp.csc_matrix(sp.vstack(blocks)),
        right,
        [clarabel.NonnegativeConeT(linear), clarabel.SecondOrderConeT(1 + used.size)],
        settings,
    ).solve()
    point = np.array(region.center)
    point[used] += radius * np.array(answer.x)[:-1]
    multipliers = np.maximum(np.array(answer.z)[: neurons.size], 0.0) / length
    if not (np.all(np.isfinite(point)) and np.all(np.isfinite(multipliers))):
        return None
    return point, multipliers


def _box_inside(region: Ball, point: FloatArray) -> Box | None:
    """Return a box around the point that lies inside ball and data box, or None."""
    room = region.radius - float(np.linalg.norm(point - region.middle))
    if room <= 0:
        return None
    low, high = region.inner_bounds()
    # Uneven sides: the point lies on a tie, and corners around it would too, up to rounding.
    side = room / np.sqrt(region.size)
    lo, hi = np.maximum(point - 0.9 * side, low), np.minimum(point + 0.7 * side, high)
    # The farthest corner decides for the whole box.
    upper_is_farther = hi - region.middle >= region.middle - lo
    corner = np.where(upper_is_farther, hi, lo)
    if np.any(lo > hi) or not region.contains(corner):
        return None
    return Box(lo, hi)
