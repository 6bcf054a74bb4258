"""The exact classes of many points at once.

The sums of all layers are products with matrices of floats.  A sum of the first layer, or a score,
that is nearer to its threshold, or to the best score, than its rounding error is decided in
rational arithmetic, for that point alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray
from bnncert.model.layers import ROUNDOFF, TIED, UNDECIDED, ThresholdLayer
from bnncert.model.network import BATCH_FLOATS, Network


def exact_classes(network: Network, points: npt.ArrayLike) -> IntArray:
    """Return the class of each point: the first with the highest score.

    sign(0) is +1 where it may be either.  Where irrational numbers leave a sign or a class open, it
    is that of :meth:`Network.classify`.
    """
    batch, _ = network.flatten(points)
    classes = [_best(network, last_signs(network, part)) for part in in_chunks(network, batch)]
    return np.concatenate(classes)


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


def last_signs(network: Network, points: FloatArray) -> Float32Array:
    """Return the signs of the last layer at each point, with the first layer decided exactly."""
    signs = _first_signs(network, points)
    for layer in network.layers[1:]:
        kind = exact_type(layer)
        value = layer.operator(kind).forward(signs.astype(kind, copy=False))
        signs = _signs(value >= layer.threshold(kind))
    return signs


def exact_type(layer: ThresholdLayer) -> type[np.floating[Any]]:
    """Return the type of floats in which the sums of a layer above the first are exact."""
    return np.float32 if float(layer.norm.max(initial=0.0)) < 2**24 else np.float64


def _signs(positive: BoolArray) -> Float32Array:
    return np.asarray(np.where(positive, 1, -1), dtype=np.float32)


def _first_signs(network: Network, points: FloatArray) -> Float32Array:
    layer = network.layers[0]
    value = layer.operator(np.float64).forward(points)
    low, high = layer.enclosure
    largest = np.abs(points).max(axis=1, initial=0.0)[:, None]
    # The error of a float sum, in any order of its terms.
    terms = np.diff(layer.rows.indptr) + 3
    error = 1.01 * terms * ROUNDOFF * (layer.norm * largest + np.abs(high)) + 1e-300
    signs = _signs(value >= layer.threshold(np.float64))
    for k in np.flatnonzero(np.any((value + low <= error) & (value + high >= -error), axis=1)):
        exact = layer.exact_signs(points[k])
        exact = np.where(exact == TIED, 1, exact)
        signs[k] = np.where(exact == UNDECIDED, signs[k], exact)
    return signs


def _best(network: Network, signs: npt.NDArray[Any]) -> IntArray:
    output = network.output
    scores = signs.astype(np.float64) @ output.weights.T + output.bias
    best = np.argmax(scores, axis=1)
    reach = np.abs(output.weights).sum(axis=1) + np.abs(output.bias)
    doubt = output.error + 2 * (signs.shape[1] + 2) * ROUNDOFF * reach
    rows = np.arange(best.size)
    behind = scores[rows, best][:, None] - scores
    close = behind <= doubt + doubt[best][:, None]
    close[rows, best] = False
    for k in np.flatnonzero(np.any(close, axis=1)):
        exact = output.exact_class(signs[k])
        best[k] = best[k] if exact is None else exact
    return np.asarray(best, dtype=np.int64)
