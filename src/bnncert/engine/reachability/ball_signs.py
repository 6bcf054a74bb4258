r"""Feasibility check for an L2 ball and its data box.

Maximising the smallest margin t is a second-order cone program,

    max t   s.t.   s_j (w_j.x + b_j) >= t |w_j|_2,   |x - c|_2 <= r,   lo <= x <= hi,

whose floating-point solution is checked in exact arithmetic.  The pattern is

* feasible, if the signs at the solution (moved exactly inside) are the wanted ones;
* infeasible, if the multipliers are Farkas multipliers of a conflict, rounding errors included.

The remaining case is a tie, t = 0.  If the sphere is not active there, a box inside the ball may
show that the pattern is feasible, or a box around the ball that it is not, both in rationals.
"""

from __future__ import annotations

from fractions import Fraction

import clarabel
import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.engine.reachability.polyhedron import polyhedral_feasibility
from bnncert.engine.reachability.searched_signs import grid_feasibility, l0_feasibility
from bnncert.engine.solvers.conic_back_ends import run_clarabel
from bnncert.regions import Box, Region

#: Division by a smaller radius may overflow.
SMALLEST_RADIUS = 1e-250


def exact_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Decide whether a pattern occurs in a region of any kind, in exact arithmetic."""
    if deadline.passed():
        # To build a program of rationals takes longer than many slices of time.
        return Feasibility()
    if region.values is not None:
        found = grid_feasibility(pattern, region, None, deadline)
        if found.is_decided:
            return found
        real = _real_feasibility(pattern, region, deadline)
        if real.point is None:
            return real
        return grid_feasibility(pattern, region, real.point, deadline)
    return _real_feasibility(pattern, region, deadline)


def _real_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Decide whether a pattern occurs at real points of the region."""
    if region.norm == "l0":
        found = l0_feasibility(pattern, region, deadline)
        if found.is_decided:
            return found
        hull = polyhedral_feasibility(pattern, region, deadline)
        # A point of the convex hull may change more inputs: only a conflict counts.
        return Feasibility(conflict=hull.conflict, multipliers=hull.multipliers)
    if region.norm == "l2":
        return ball_feasibility(pattern, region, deadline)
    return polyhedral_feasibility(pattern, region, deadline)


def ball_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Decide whether a pattern occurs in an L2 ball, where that is possible."""
    if region.radius == 0:
        return polyhedral_feasibility(pattern, Box(region.lo, region.hi), deadline)
    guide = cone_guide(pattern, region, deadline)
    if guide is None:
        return Feasibility()
    point, multipliers = guide
    inside = region.settle(point)
    if inside is not None and pattern.holds_at(inside):
        return Feasibility.at([Fraction(v) for v in inside.tolist()])
    conflict = find_conflict(pattern, multipliers, region)
    if conflict is not None:
        return conflict
    inner = _box_inside(region, point)
    if inner is not None:
        found = polyhedral_feasibility(pattern, inner, deadline)
        if found.point is not None:
            return found
    outer = polyhedral_feasibility(pattern, Box(region.lo, region.hi), deadline)
    # A point of the outer box may lie outside the ball: only a conflict counts.
    return Feasibility(conflict=outer.conflict, multipliers=outer.multipliers)


def cone_guide(
    pattern: SignPattern, region: Region, deadline: Deadline
) -> tuple[FloatArray, FloatArray] | None:
    """Return the point of largest margin and its multipliers, or None if the deadline has passed.

    In v = (x - c) / r the margins are s_j (w_j.v + beta_j) / |w_j| with beta = (w.c + b) / r, so
    that all numbers are near 1.  For a ball of radius 0, or nearly, the result is the centre with
    multipliers of zero, which do not prove a conflict.
    """
    layer, neurons, signs = pattern.layer, pattern.neurons, pattern.signs
    if region.radius < SMALLEST_RADIUS:
        return np.array(region.center), np.zeros(neurons.size)
    rows = layer.weights[neurons].astype(np.float64)
    length = np.sqrt(np.asarray((rows * rows).sum(axis=1)).reshape(-1))
    # A neuron without weights has the sign of its bias: any positive scale is valid.
    length = np.where(length > 0, length, 1.0)
    center, radius = region.middle, region.radius
    beta = (np.asarray(rows @ center) + pattern.guiding_bias(region)) / radius
    used = np.unique(rows.indices)
    margins = sp.diags_array(signs / length) @ rows[:, used]
    up = (region.hi[used] - center[used]) / radius
    down = (center[used] - region.lo[used]) / radius
    eye = sp.identity(used.size, format="csr")
    # A side of the bounding box is a constraint of its own only if the data box moves it inwards.
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
    if deadline.passed():
        return None
    linear = right.size - 1 - used.size
    cones = [clarabel.NonnegativeConeT(linear), clarabel.SecondOrderConeT(1 + used.size)]
    cost = np.append(np.zeros(used.size), -1.0)
    answer = run_clarabel(cost, sp.vstack(blocks), right, cones, deadline)
    point = np.array(region.center)
    point[used] += radius * np.array(answer.x)[:-1]
    multipliers = np.maximum(np.array(answer.z)[: neurons.size], 0.0) / length
    if not (np.all(np.isfinite(point)) and np.all(np.isfinite(multipliers))):
        return None
    return point, multipliers


def _box_inside(region: Region, point: FloatArray) -> Box | None:
    """Return a box around the point that lies inside ball and data box, or None."""
    room = region.radius - float(np.linalg.norm(point - region.middle))
    if room <= 0:
        return None
    low, high = region.inner_bounds()
    # The sides are uneven: the point lies on a tie, and so would the corners of an even box.
    side = room / np.sqrt(region.size)
    lo, hi = np.maximum(point - 0.9 * side, low), np.minimum(point + 0.7 * side, high)
    # The box lies in the ball if its farthest corner does.
    upper_is_farther = hi - region.middle >= region.middle - lo
    corner = np.where(upper_is_farther, hi, lo)
    if np.any(lo > hi) or not region.contains(corner):
        return None
    return Box(lo, hi)
