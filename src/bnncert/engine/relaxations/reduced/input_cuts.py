r"""Inequalities that the input implies for the first layer's signs, without input variables.

A neuron x_j with sign s_j has s_j (u_j - p_j) >= 0, u_j = w_j.y, p_j being its threshold for that
sign.  With q_j = 1 + s_j x_j, which is 0 for the other sign, and any theta >= 0, every input y of
the region satisfies

    sum_j theta_j q_j s_j (u_j - p_j) >= 0.

Around the middle c of a box with half-widths r, and with v_i = sum_j theta_j q_j s_j w_ji, this is

    sum_j theta_j q_j s_j (w_j.c - p_j) + sum_i v_i (y_i - c_i) >= 0,  v_i (y_i - c_i) <= r_i |v_i|,

and  r |v| <= m v^2 + r^2 / (4 m)  for any m > 0, with equality at |v| = r / (2 m).  What remains is

    z'Cz  =  sum_i r_i^2 / (4 m_i) + sum_j theta_j q_j s_j (w_j.c - p_j) + sum_i m_i v_i^2  >=  0,

a quadratic form of z = (1, x), linear in its moments.  For an L2 ball of radius r around c (which
contains the L1 ball) v.(y - c) <= r |v|, so one m serves all inputs, and r^2 / (4 m) counts once.

The relaxation with the input as variables (`relaxations.reduced.coupling`) has theta:
eliminating y from its T >= 0 leaves a T of (1, x) that contains one such form.  So a single
inequality is worth nearly as much as all variables y, also with theta from a rough solution.
(Coupling knows the bounds of u_j as well, which matters in very small networks only.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.regions import Region

UNIT = 2.0**-52

#: Multipliers below this share of the largest one are left out.
LEAST_SHARE = 1e-6

#: The least |v_i| that an m is made for, as a share of their mean.
LEAST_REACH = 1e-3


class InputCut(NamedTuple):
    """The numbers that define one inequality."""

    #: First-layer neurons, the sign s of each, and theta.
    neurons: IntArray
    signs: SignArray
    theta: FloatArray
    #: m of every input, or a single number for a ball.
    curvature: FloatArray


@dataclass(frozen=True, eq=False)
class InputCuts:
    """Inequalities z'Cz >= 0, and where they come from."""

    #: C of each, over z = (1, x).
    forms: FloatArray
    sources: tuple[InputCut, ...]

    @property
    def count(self) -> int:
        """The number of inequalities."""
        return int(self.forms.shape[0])

    def restricted(self, signs: SignArray, free: IntArray) -> InputCuts:
        """Return the inequalities over the free variables, the others having these signs."""
        count, size, _ = self.forms.shape
        map_ = np.zeros((size, free.size + 1))
        map_[0, 0] = 1.0
        map_[1:, 0] = signs
        map_[free + 1, 0] = 0.0
        map_[free + 1, 1 + np.arange(free.size)] = 1.0
        forms = np.einsum("ai,kab,bj->kij", map_, self.forms, map_, optimize=True)
        # Every entry has been added up in some order; |z_a z_b| = 1.
        forms[:, 0, 0] += 8 * (size + 4) * UNIT * np.abs(self.forms).reshape(count, -1).sum(axis=1)
        return InputCuts(forms, self.sources)


@dataclass(frozen=True, eq=False)
class _LiteralRows:
    """Rows s_j w_j of the cut's literals over the inputs, and s_j (w_j.c - p_j)."""

    matrix: FloatArray
    excess: FloatArray
    #: Sizes of the terms of each excess.
    size: FloatArray
    #: Half-widths of the box, or the radius of the ball.
    reach: FloatArray


def input_cut(
    presolved: Presolved,
    variables: IntArray,
    multipliers: FloatArray,
    moments: FloatArray,
) -> InputCuts | None:
    """Return the inequality that the multipliers of a coupled relaxation stand for.

    Parameters
    ----------
    variables
        The variables of the problem, as the presolved network counts them.
    multipliers
        (gates over the input, 3): b, e and g of  b v + e x + g x v.
    moments
        Those of z = (1, x), for which the inequality is made as strong as possible.
    """
    outputs = np.flatnonzero(presolved.owner_layer[variables] == 0)
    linear, _, product = multipliers.T
    # On x = s the gate's inequality has the slope -(b + s g) in v; only slopes that favour the
    # sign's own half-line count.
    both = np.maximum(0.0, [-(linear + product), linear - product]) / 2
    sign_row, chosen = np.nonzero(both > LEAST_SHARE * both.max(initial=0.0))
    theta, signs = both[sign_row, chosen], (1 - 2 * sign_row).astype(np.int8)
    if not theta.size or not np.all(np.isfinite(theta)):
        return None
    neurons, places = presolved.owner[variables[outputs[chosen]]], outputs[chosen]
    theta = theta / theta.max()
    rows = _rows(presolved, neurons, signs)
    curvature = _curvature(rows, theta, signs, places, moments)
    form = _form(rows, theta, signs, places, curvature, variables.size)
    if form is None:
        return None
    return InputCuts(form[None], (InputCut(neurons, signs, theta, curvature),))


def _rows(presolved: Presolved, neurons: IntArray, signs: SignArray) -> _LiteralRows:
    region, layer, bounds = presolved.region, presolved.network.layers[0], presolved.bounds[0]
    matrix = layer.weights[neurons].astype(np.float64).toarray()
    # A sum is within its bounds, too, which matters where a threshold is infinite.
    plus_from = np.maximum(bounds.lower[neurons], layer.plus_from[neurons])
    minus_upto = np.minimum(bounds.upper[neurons], layer.minus_upto[neurons])
    threshold = np.where(signs > 0, plus_from, minus_upto)
    middle, reach = _extent(region)
    excess = signs * (matrix @ middle - threshold)
    size = np.abs(matrix) @ np.abs(middle) + np.abs(threshold)
    return _LiteralRows(matrix * signs[:, None], excess, size, reach)


def _extent(region: Region) -> tuple[FloatArray, FloatArray]:
    """Return the middle of a region, and the half-widths of its box or the radius of its ball."""
    if region.norm in ("l1", "l2"):
        return region.middle, np.array([region.radius])
    middle = region.lo + (region.hi - region.lo) / 2
    half = np.nextafter(np.maximum(region.hi - middle, middle - region.lo), np.inf)
    return middle, np.where(region.hi > region.lo, half, 0.0)


def _curvature(
    rows: _LiteralRows, theta: FloatArray, signs: SignArray, places: IntArray, moments: FloatArray
) -> FloatArray:
    """Return m_i = r_i / (2 sqrt(E[v_i^2])), the best for these moments."""
    mean = signs * moments[0, 1 + places]
    second = np.outer(signs, signs) * moments[np.ix_(1 + places, 1 + places)]
    square = np.outer(theta, theta) * (1 + mean[:, None] + mean + second)
    expected = np.einsum("ji,jk,ki->i", rows.matrix, square, rows.matrix, optimize=True)
    if rows.reach.size < expected.size:
        expected = expected.sum(keepdims=True)
    length = np.sqrt(np.maximum(expected, 0.0))
    length = np.maximum(length, LEAST_REACH * length.mean() + 1e-30)
    return np.asarray(rows.reach / (2 * length))


def _form(
    rows: _LiteralRows,
    theta: FloatArray,
    signs: SignArray,
    places: IntArray,
    curvature: FloatArray,
    size: int,
) -> FloatArray | None:
    """Return C, its constant large enough to make up for all rounding; None without one."""
    used = rows.reach > 0
    if np.any(curvature[used] <= 0):
        # An input that can move needs some m, also where it is tiny.
        return None
    constant = float((rows.reach[used] ** 2 / (4 * curvature[used])).sum())
    scaled = rows.matrix * theta[:, None]
    gram = (scaled * curvature) @ scaled.T
    straight = theta * rows.excess
    along = gram.sum(axis=1)
    form = np.zeros((size + 1, size + 1))
    form[0, 0] = constant + straight.sum() + along.sum()
    half = signs * (straight / 2 + along)
    first = np.zeros_like(places)
    np.add.at(form, (first, 1 + places), half)
    np.add.at(form, (1 + places, first), half)
    np.add.at(form, (1 + places[:, None], 1 + places), gram * np.outer(signs, signs))
    # |z_a z_b| = 1, so what all entries may be off together is the most that z'Cz may be off.
    total = constant + 2 * float(theta @ rows.size) + 4 * float(_reach(scaled, curvature).sum())
    form[0, 0] += (rows.matrix.shape[1] + theta.size + 64) * 8 * UNIT * total + 1e-280
    return form if np.all(np.isfinite(form)) else None


def _reach(scaled: FloatArray, curvature: FloatArray) -> FloatArray:
    """Return the most that each m_i v_i^2 / 4 can be."""
    return np.asarray(curvature * np.abs(scaled).sum(axis=0) ** 2)
