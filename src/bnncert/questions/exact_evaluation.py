r"""Many inputs in exact arithmetic: their classes, and the signs of the last layer.

First-layer sums are computed in float64.  If the weights are integers and all inputs are multiples
of one power of two u with max sum |w_i x_i| < 2^53 u, these sums are exact; else a sum within its
rounding error of the threshold is computed again in rationals.  Sums above the first layer are
small integers, and the scores are compared with their rounding errors in the same way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray, last_place
from bnncert.deadline import Deadline
from bnncert.engine.exact_classes import in_chunks
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.network import MOST_TIE_CHOICES, Network

#: The class of an input whose signs or scores the network does not determine: sign(0) may be
#: either, or an irrational number is not known well enough.
UNDETERMINED = -1


def exact_class(network: Network, point: npt.NDArray[Any] | tuple[Fraction, ...]) -> int:
    """Return the class of one input, in rational arithmetic, or UNDETERMINED."""
    lasts = [pattern[-1] for pattern in network.exact_patterns(point)]
    found = {network.output.exact_class(signs) for signs in lasts}
    # With as many patterns as this, some ways to decide ties may be missing.
    complete = len(lasts) < MOST_TIE_CHOICES
    only = found.pop() if len(found) == 1 and complete else None
    return UNDETERMINED if only is None else only


def determined_classes(network: Network, points: FloatArray, deadline: Deadline) -> IntArray:
    """Return the class of every row of `points`, or UNDETERMINED.

    Raises OutOfTimeError if the deadline passes.
    """
    parts = [np.zeros(0, dtype=np.int64)]
    for part in in_chunks(network, points):
        deadline.check()
        parts.append(_classes(network, part, deadline))
    return np.concatenate(parts)


def _classes(network: Network, points: FloatArray, deadline: Deadline) -> IntArray:
    signs, sure = certain_signs(network, points)
    found, decided = _first_best(network, signs) if sure.any() else (np.zeros(sure.size), sure)
    classes = np.asarray(found, dtype=np.int64)
    for row in np.flatnonzero(~(sure & decided)).tolist():
        deadline.check()
        classes[row] = exact_class(network, points[row])
    return classes


def certain_signs(
    network: Network, points: FloatArray, unit: int | None = None
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return the last layer's signs of all rows, and for which rows they are certain.

    All points are multiples of 2^unit; without it, the largest such power is found.
    """
    signs, sure = _first_signs(network.layers[0], points, unit)
    for layer in network.layers[1:]:
        if float(layer.norm.max(initial=0.0)) >= 2**24:
            sure[:] = False
            break
        sums = layer.operator(np.float32).forward(signs)
        if layer.sign_zero == "either" and layer.tie is not None:
            sure &= ~np.any((sums == layer.on_from) & layer.tie, axis=1)
        plus = sums >= layer.threshold(np.float32)
        signs = np.where(plus, np.float32(1), np.float32(-1))
    return signs, sure


def _first_signs(
    layer: ThresholdLayer, points: FloatArray, unit: int | None
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return the signs of a first layer, and for which rows all of them are certain."""
    sums = layer.operator(np.float64).forward(points)
    low, high = layer.enclosure
    largest = np.abs(points).max(axis=1, initial=0.0)
    whole = np.issubdtype(layer.rows.dtype, np.integer)
    place = last_place(points) if unit is None else unit
    exact_below = np.ldexp(1.0, 53 + place) if whole else 0.0
    if float(layer.norm.max(initial=0.0)) * largest.max() < exact_below:
        # Every partial sum is a multiple of the unit below 2^53 of it, so no sum is rounded.
        plus = sums > -high if layer.sign_zero == "minus" else sums >= -high
        sure = (sums > -low) | (sums < -high) | ((low == high) & (layer.sign_zero != "either"))
        return np.where(plus, np.float32(1), np.float32(-1)), np.all(sure, axis=1)
    terms = np.diff(layer.rows.indptr) + 2
    reach = np.outer(largest, layer.norm) + np.maximum(np.abs(low), np.abs(high))
    error = 1.01 * terms * ROUNDOFF * reach + 1e-300
    plus, minus = sums + low > error, sums + high < -error
    return np.where(plus, np.float32(1), np.float32(-1)), np.all(plus | minus, axis=1)


def _first_best(network: Network, signs: npt.NDArray[Any]) -> tuple[IntArray, BoolArray]:
    """Return the first class with the highest score, and where it is certain."""
    output = network.output
    scores = signs.astype(np.float64) @ output.weights.T + output.bias
    best = np.argmax(scores, axis=1)
    arrays = (output.weights, output.bias)
    size = np.abs(output.weights).sum(axis=1) + np.abs(output.bias)
    exact = all(np.all(a == np.rint(a)) for a in arrays) and not np.any(output.error > 0)
    if exact and float(size.max()) < 2.0**52:
        return best, np.ones(best.size, dtype=bool)
    error = 1.01 * (signs.shape[1] + 2) * ROUNDOFF * size + output.error + 1e-300
    rows = np.arange(best.size)
    gaps = scores[rows, best][:, None] - scores - (error[best][:, None] + error)
    gaps[rows, best] = np.inf
    return best, np.all(gaps > 0, axis=1)
