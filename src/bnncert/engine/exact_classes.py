r"""Many inputs in exact arithmetic: their classes, and the signs of the last layer.

First-layer sums are computed in float64.  If the weights are integers and all inputs are multiples
of one power of two u with max sum |w_i x_i| < 2^53 u, these sums are exact; else a sum within its
rounding error of the threshold is computed again in rationals.  Sums above the first layer are
small integers, and the scores are compared with their rounding errors in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray, last_place
from bnncert.deadline import Deadline
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.network import BATCH_FLOATS, MOST_TIE_CHOICES, Network

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


def exact_classes(network: Network, points: npt.ArrayLike) -> IntArray:
    """Return the class of each point: the first with the highest score.

    sign(0) is +1 where it may be either.  Where irrational numbers leave a sign or a class open, it
    is that of :meth:`Network.classify`.
    """
    batch, _ = network.flatten(points)
    parts = [np.zeros(0, dtype=np.int64)]
    for part in in_chunks(network, batch):
        signs, sure = certain_signs(network, part, plus_at_ties=True)
        found, decided = _first_best(network, signs)
        for row in np.flatnonzero(~(sure & decided)).tolist():
            # The first pattern has +1 at all ties.
            pattern = next(network.exact_patterns(part[row]), None)
            only = None if pattern is None else network.output.exact_class(pattern[-1])
            found[row] = network.classify(part[row])[0] if only is None else only
        parts.append(found)
    return np.concatenate(parts)


def in_chunks(network: Network, points: FloatArray) -> Iterator[FloatArray]:
    """Yield rows of points, as many at once as the memory of a batch allows."""
    chunk = chunk_size(network)
    return (points[start : start + chunk] for start in range(0, len(points), chunk))


def chunk_size(network: Network) -> int:
    """Return the number of points that are evaluated at once."""
    widest = network.inputs
    for layer in network.layers:
        kernel = None if layer.convolution is None else layer.convolution.kernel
        # The columns of a convolution hold each input once for each place in the kernel.
        copies = 1 if kernel is None else max(1, kernel[0].size // max(1, kernel.shape[0]))
        widest = max(widest, layer.size * copies)
    return max(1, BATCH_FLOATS // (8 * widest))


def exact_type(layer: ThresholdLayer) -> type[np.floating[Any]]:
    """Return the type of floats in which the sums of a layer above the first are exact."""
    return np.float32 if float(layer.norm.max(initial=0.0)) < 2**24 else np.float64


def _classes(network: Network, points: FloatArray, deadline: Deadline) -> IntArray:
    signs, sure = certain_signs(network, points)
    found, decided = _first_best(network, signs) if sure.any() else (np.zeros(sure.size), sure)
    classes = np.asarray(found, dtype=np.int64)
    for row in np.flatnonzero(~(sure & decided)).tolist():
        deadline.check()
        classes[row] = exact_class(network, points[row])
    return classes


def certain_signs(
    network: Network, points: FloatArray, unit: int | None = None, plus_at_ties: bool = False
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return the last layer's signs of all rows, and for which rows they are certain.

    All points are multiples of 2^unit; without it, the largest such power is found.  At a tie, a
    sign that may be either is not certain, or it is +1 with `plus_at_ties`.
    """
    signs, sure = _first_signs(network.layers[0], points, unit, plus_at_ties)
    for layer in network.layers[1:]:
        if float(layer.norm.max(initial=0.0)) >= 2**53:
            sure[:] = False
        kind = exact_type(layer)
        sums = layer.operator(kind).forward(signs.astype(kind, copy=False))
        if layer.sign_zero == "either" and layer.tie is not None and not plus_at_ties:
            sure &= ~np.any((sums == layer.on_from) & layer.tie, axis=1)
        signs = np.where(sums >= layer.threshold(kind), np.float32(1), np.float32(-1))
    return signs, sure


def _first_signs(
    layer: ThresholdLayer, points: FloatArray, unit: int | None, plus_at_ties: bool
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
        settled = plus_at_ties or layer.sign_zero != "either"
        sure = (sums > -low) | (sums < -high) | ((low == high) & settled)
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
