r"""Networks as float32 hardware runs them.

A deployed network computes w.x + b of its first layer in float32, in an unknown order.  With n
weights and u = 2^-24 the result differs from the true value by at most

    gamma (sum |w_i| |x_i| + |b|),      gamma = k u / (1 - k u),  k = n + 3

(n products, n sums, and the rounding of weights and bias to float32), for any order of the sums,
with or without fused operations.  If each bias is widened by this error over the region, every sign
of such an execution is possible in the widened network, so that a proof for the widened network
holds for all executions.  Above the first layer, sums of less than 2^24 units are exact in float32.

The inputs are assumed to be float32 numbers inside the region.  Batch normalisation is assumed to
be folded: w.x + b >= 0 in the first layer, and integer thresholds above it, which float32 compares
exactly.  Scores are assumed to be exact, even if their weights are not small integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.regions import InputSet

Arithmetic: TypeAlias = Literal["real", "float32"]

UNIT = 2.0**-24

#: A factor that covers the rounding errors of this computation.
SAFETY = 1.0 + 2.0**-20


def float32_network(network: Network, region: InputSet) -> Network:
    """Widen the biases so that the possible first-layer signs include those of all executions."""
    layer = network.layers[0]
    bias_lo, bias_hi = layer.enclosure
    terms = np.diff(layer.weights.indptr) + 3.0
    if float(terms.max(initial=0.0)) >= 2**22:
        raise InputError("a neuron has too many inputs for a bound of the float32 rounding error")
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
    size = np.asarray(abs(layer.weights).astype(np.float64) @ reach)
    size = size + np.maximum(np.abs(bias_lo), np.abs(bias_hi))
    error = SAFETY * terms * UNIT / (1 - terms * UNIT) * size + 1e-35
    widened = replace(
        layer,
        bias_lo=np.nextafter(bias_lo - error, -np.inf),
        bias_hi=np.nextafter(bias_hi + error, np.inf),
    )
    return replace(network, layers=(widened, *network.layers[1:]))
