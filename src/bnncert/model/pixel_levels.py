r"""The same network for pixels as integers: the first layer has integer thresholds, too.

Pixels k = 0..255 enter a network as x = lo + s k with s = (hi - lo) / 255.  A neuron with integer
weights is then +1 iff

    s w.k >= -b - lo.w,   that is   w.k >= p   with the smallest integer p >= t = (-b - lo.w) / s,

and no pixel is between p and t.  Programs round x; a neuron whose t is an integer up to these
errors has no threshold that is the same for all of them, and is refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.errors import InputError
from bnncert.model.network import Network

#: The last pixel level.
LAST = 255

#: The rounding error of a pixel's input, in units of the last place of float64.
PIXEL_ERROR = 4


def on_pixels(network: Network) -> Network:
    """Make the network that takes pixels 0..255 and gives the same scores at all of them.

    Raises InputError if the network states no data box, if its inputs have different pixel steps,
    if its first layer has other weights than integers, or if a threshold is a pixel level up to
    rounding.
    """
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        raise InputError(
            f"{network.source}: the file does not state which inputs pixels 0 and 255 are; give "
            "--scale LO HI"
        )
    sides = set(zip(lo.tolist(), hi.tolist(), strict=True))
    steps = {(Fraction(high) - Fraction(low)) / LAST for low, high in sides}
    if len(steps) > 1 or min(steps) <= 0:
        raise InputError(
            f"{network.source}: one pixel level is not the same for all inputs; integer thresholds "
            "need --scale LO HI"
        )
    first, *others = network.layers
    if np.any(first.rows.data != np.rint(first.rows.data)):
        place = int(np.flatnonzero(first.rows.data != np.rint(first.rows.data))[0])
        neuron = int(np.searchsorted(first.rows.indptr, place, side="right")) - 1
        raise InputError(
            f"{network.source}: {first.name}: neuron {neuron} has the weight "
            f"{float(first.rows.data[place]):.9g}; integer thresholds need integer weights "
            "(convert without --grid keeps the layer as it is)"
        )
    (step,) = steps
    whole = step.denominator == 1 and bool(np.all(lo == np.rint(lo)))
    reach = float(np.max(np.maximum(np.abs(lo), np.abs(hi)) + (hi - lo)))
    error = Fraction(0) if whole else PIXEL_ERROR * Fraction(float(np.spacing(reach)))
    bias = np.zeros(first.size)
    for j in range(first.size):
        row = slice(first.rows.indptr[j], first.rows.indptr[j + 1])
        weights, low = first.rows.data[row].astype(np.int64), lo[first.rows.indices[row]]
        black = sum(
            (Fraction(v) * int(weights[low == v].sum()) for v in np.unique(low).tolist()),
            Fraction(0),
        )
        doubt = error * int(np.abs(weights).sum())
        # The enclosure of -b - lo.w, with the errors of the inputs.
        ends = [-Fraction(float(side[j])) - black for side in first.enclosure[::-1]]
        bias[j] = _pixel_bias((ends[0] - doubt) / step, (ends[1] + doubt) / step)
    undecided = np.flatnonzero(np.isnan(bias))
    if undecided.size:
        raise InputError(
            f"{network.source}: {first.name}: the threshold of neuron {undecided[0]} is a pixel "
            "level up to the rounding of its inputs; no integer is the same for all programs "
            "(convert without --grid keeps the layer as it is)"
        )
    layer = replace(first, bias=bias, bias_lo=bias, bias_hi=bias, described=None)
    size = network.inputs
    return replace(
        network,
        layers=(layer, *others),
        input_lo=np.zeros(size),
        input_hi=np.full(size, float(LAST)),
        pixel_step=1.0,
    )


def _pixel_bias(least: Fraction, most: Fraction) -> float:
    """Find the bias of a neuron for pixels: -p at a tie, else half way between p - 1 and p.

    The threshold t is between `least` and `most`; if a pixel level is there, too, the bias is NaN.
    """
    level = math.ceil(most)
    if least == most == level:
        return float(-level)
    return 0.5 - level if level - 1 < least else math.nan
