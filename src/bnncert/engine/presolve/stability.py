r"""Bounds of all pre-activations over the region, and the stable neurons.

Layer 1 uses the support function of the region: Lo = -h(-w), U = h(w).  In later layers the bounds
of u = <w, y> are the sum over the fixed y plus or minus the weights of the others, in integers.
A neuron is stable if one of its two signs is impossible:

    always +1  iff  Lo > (the largest u at which -1 is allowed),
    always -1  iff  U < (the smallest u at which +1 is allowed).

On a grid, sums of the first layer take few values, which tightens its thresholds.  With inputs
origin_i + step k_i, up to rounding errors, and weights that are multiples of some unit, w.x is base
+ g m for an integer m, where g is the greatest common divisor of the w_i times the step.  So w.x >=
p means w.x >= base + g ceil((p - base) / g), and w.x <= q likewise.  With E the rounding errors of
the values and of the sums here,

    w.x >= p   implies   w.x >= base + g ceil((p - base - E) / g) - E.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, Grace
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.matrices import row_blocks
from bnncert.model.network import Network
from bnncert.regions import Box, Region
from bnncert.regions.support import rounding_error, same_places

#: Weights are multiples of one over these units, if of any.
UNITS = (1, 2, 4, 8, 16)


def first_layer_thresholds(
    layer: ThresholdLayer, region: Region, neurons: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return p and q of all or some neurons: +1 needs w.x >= p, and -1 needs w.x <= q.

    On a grid, both are thresholds of the points of the region only.
    """
    plus, minus = layer.plus_from, layer.minus_upto
    if neurons is not None:
        plus, minus = plus[neurons], minus[neurons]
    values = region.values
    if values is None:
        return plus, minus
    open_ = region.lo < region.hi
    steps = np.unique(values.step[open_])
    if steps.size != 1:
        return plus, minus
    rows = (layer.weights if neurons is None else layer.weights[neurons]).astype(np.float64)
    divisor = float(steps[0]) * _divisors(rows, open_)
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi)) + np.abs(values.origin)
    size = np.asarray(abs(rows) @ reach) + np.maximum(np.abs(plus), np.abs(minus))
    error = np.asarray(abs(rows) @ np.where(open_, values.rounding, 0.0))
    error += 16 * (np.diff(rows.indptr) + 8) * ROUNDOFF * size + 1e-300
    base = np.asarray(rows @ np.where(open_, values.origin, region.lo))
    usable = (divisor > 4 * error) & (size < 2.0**40 * divisor)
    divisor = np.where(usable, divisor, 1.0)
    # Counts are rounded by less than `error`, of which half would be enough.
    first = np.ceil((plus - base - 2 * error) / divisor)
    last = np.floor((minus - base + 2 * error) / divisor)
    higher = np.maximum(plus, base + divisor * first - 2 * error)
    lower = np.minimum(minus, base + divisor * last + 2 * error)
    return np.where(usable, higher, plus), np.where(usable, lower, minus)


def _divisors(rows: Any, open_: Any) -> FloatArray:
    """Return the greatest common divisor of the weights of open inputs; 0 if there is none."""
    data = np.where(open_[rows.indices], np.abs(rows.data), 0.0)
    for unit in UNITS:
        whole = data * unit
        if np.array_equal(whole, np.rint(whole)) and float(whole.max(initial=0.0)) < 2**40:
            integers, found = whole.astype(np.int64), np.zeros(rows.shape[0], dtype=np.int64)
            filled = np.flatnonzero(np.diff(rows.indptr))
            if filled.size:
                found[filled] = np.gcd.reduceat(integers, rows.indptr[filled])
            return np.asarray(found / unit)
    return np.zeros(rows.shape[0])


#: Weights of the first layer that are bounded between two looks at the clock, and rows if the
#: region is a polytope, where each row is a linear program.
WEIGHTS_AT_ONCE, PROGRAMS_AT_ONCE = 4_000_000, 64


@dataclass(frozen=True, eq=False)
class LayerBounds:
    """Per neuron: bounds of u = <w, y> and its state (+1, -1, or 0 where both can occur)."""

    lower: FloatArray
    upper: FloatArray
    state: npt.NDArray[np.int8]

    @property
    def unstable(self) -> npt.NDArray[np.int64]:
        """The neurons that may take both signs."""
        return np.flatnonzero(self.state == 0)


def first_layer(
    layer: ThresholdLayer, region: Region, deadline: Deadline | None = None
) -> LayerBounds:
    """Return the bounds of the first layer from the support function of the region.

    After the deadline, the rest of a large layer is bounded over the box around the region.
    """
    if region.is_box:
        lower, upper = _over_box(layer, region)
    else:
        lower, upper = _supports(layer.weights, region, deadline or Deadline(None))
    state = np.zeros(layer.size, dtype=np.int8)
    # Float comparisons are exact, and u + b >= 0 is u >= -b, so there is no rounding here.
    plus_from, minus_upto = first_layer_thresholds(layer, region)
    on = lower >= minus_upto if layer.sign_zero == "plus" else lower > minus_upto
    off = upper <= plus_from if layer.sign_zero == "minus" else upper < plus_from
    state[on] = 1
    state[off] = -1
    return LayerBounds(lower, upper, state)


def _supports(weights: Any, region: Region, deadline: Deadline) -> tuple[FloatArray, FloatArray]:
    """Return -h(-w) and h(w) of every row, in blocks of rows."""
    at_once = WEIGHTS_AT_ONCE
    if region.inequalities[1].size:
        at_once = PROGRAMS_AT_ONCE * weights.shape[1]
    lower, upper, around = [], [], region
    for start, stop in row_blocks(weights.indptr, at_once):
        if start and deadline.passed():
            around = Box(region.lo, region.hi)
        rows = weights[start:stop]
        upper.append(around.support(rows))
        lower.append(-around.support(-rows.astype(np.float64)))
    return np.concatenate(lower), np.concatenate(upper)


def _over_box(layer: ThresholdLayer, region: Region) -> tuple[FloatArray, FloatArray]:
    """Return W m -+ |W| r for the middle m and the radii r of a box, with the rounding errors."""
    middle = region.lo + (region.hi - region.lo) / 2
    radius = np.maximum(region.hi - middle, middle - region.lo)
    radius = np.where(radius > 0, np.nextafter(radius, np.inf), 0.0)
    value = layer.operator(np.float64).forward(middle[None, :])[0]
    size = np.maximum(np.abs(region.lo), np.abs(region.hi))
    reach, magnitude = layer.magnitudes(np.float64).forward(np.stack([radius, size]))
    # |m| + r is `size` up to rounding, so that this is the error of both sums together.
    error = rounding_error(layer.rows, magnitude)
    return value - reach - error, value + reach + error


def _later_layer(layer: ThresholdLayer, below: LayerBounds) -> LayerBounds:
    if layer.has_small_sums:
        fixed, reach = (
            operator.forward(signs[None, :].astype(np.float32))[0].astype(np.float64)
            for operator, signs in (
                (layer.operator(np.float32), below.state),
                (layer.magnitudes(np.float32), below.state == 0),
            )
        )
    else:
        weights = layer.weights
        size = same_places(weights, np.abs(weights.data, dtype=np.int64))
        fixed = np.asarray(weights @ below.state.astype(np.int64), dtype=np.float64)
        reach = np.asarray(size @ (below.state == 0).astype(np.int64), dtype=np.float64)
    return settle_states(layer, fixed - reach, fixed + reach)


def settle_states(layer: ThresholdLayer, lower: FloatArray, upper: FloatArray) -> LayerBounds:
    """Return the states of the neurons of a later layer, given bounds of u."""
    state = np.zeros(layer.size, dtype=np.int8)
    state[lower > layer.minus_upto] = 1
    state[upper < layer.plus_from] = -1
    return LayerBounds(lower, upper, state)


def stability(
    network: Network, region: Region, deadline: Deadline | None = None
) -> tuple[LayerBounds, ...]:
    """Return the bounds and states of every layer.

    After the deadline large layers are not evaluated: -nv <= u <= nv, and all their signs are open.
    """
    grace = Grace(deadline or Deadline(None))
    bounds: list[LayerBounds] = []
    for layer in network.layers:
        if not bounds:
            bounds.append(first_layer(layer, region, deadline))
        elif grace.allows(layer.rows.indices.size):
            bounds.append(_later_layer(layer, bounds[-1]))
        else:
            bounds.append(settle_states(layer, -layer.norm, layer.norm))
    return tuple(bounds)
