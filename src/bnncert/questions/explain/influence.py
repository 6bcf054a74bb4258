r"""The order in which inputs are freed: those of least influence first.

A first-layer neuron j with sum u_j and threshold at distance d_j from it flips if the free inputs
can move the sum by d_j in the adverse direction.  Input i moves it by at most

    a_ji = s_j w_ji (c_i - l_i)  if s_j w_ji > 0,     -s_j w_ji (h_i - c_i)  otherwise,

with the sign s_j at the image c and the domain [l_i, h_i].  A flip of neuron j lowers the margin
over an adversarial class by about e_j, found by a smooth approximation of the later layers.  The
next input is the one with the least sum over j of e_j g_j a_ji, where g_j decreases with the
distance that is left of d_j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.model.network import Network
from bnncert.problem import Target
from bnncert.questions.explain.domain import Domain

#: Rounds in which the weights of neurons are computed; each chooses an equal share of the inputs.
MOST_ROUNDS = 200

#: Neurons with an effect of 0 count as this share of the average.
LEAST_EFFECT = 0.05


def least_influence_first(
    network: Network, domain: Domain, targets: tuple[Target, ...], deadline: Deadline
) -> IntArray:
    """Return all inputs, those of least influence first; after the deadline, roughly so."""
    first = network.layers[0]
    distance = _distance(first, domain.image)
    sign = np.where(distance >= 0, 1.0, -1.0)
    effect = _effects(network, sign, targets)
    region = domain.everything
    down, up = domain.image - region.lo, region.hi - domain.image
    adverse = sp.diags_array(sign) @ first.weights.astype(np.float64)
    falling, rising = sp.csr_array(adverse.maximum(0).T), sp.csr_array((-adverse).maximum(0).T)
    left = np.abs(distance)
    reach = falling.T @ down + rising.T @ up
    scale = max(min(float(np.median(left)) / 4, float(reach.mean()) / 10), 1e-30)
    chosen: list[IntArray] = []
    waiting = np.ones(domain.size, dtype=np.bool_)
    count = -(-domain.size // MOST_ROUNDS)
    while np.any(waiting):
        weight = effect * np.exp(np.where(left > 0, -left, left / 4) / scale)
        cost = down * (falling @ weight) + up * (rising @ weight)
        cost[~waiting] = np.inf
        left_over = int(waiting.sum())
        size = left_over if deadline.passed() else min(count, left_over)
        best = np.argsort(cost, kind="stable")[:size]
        chosen.append(best)
        waiting[best] = False
        left -= falling[best].T @ down[best] + rising[best].T @ up[best]
    return np.concatenate(chosen)


def _distance(layer: Any, below: FloatArray) -> FloatArray:
    """Return the distances of a layer's sums from their thresholds."""
    sums = np.asarray(layer.weights.astype(np.float64) @ below)
    return sums - np.asarray(layer.threshold(np.float64), dtype=np.float64)


def _effects(network: Network, sign: FloatArray, targets: tuple[Target, ...]) -> FloatArray:
    """Return about how far a flip of each first-layer neuron lowers a margin, relative to it.

    A later neuron is taken as the sign of its sum plus normal noise of deviation sqrt(n) / 2 for n
    weights, which many flips make: its derivative is the density of the noise.
    """
    densities = []
    below = sign
    for layer in network.layers[1:]:
        distance = _distance(layer, below)
        spread = np.maximum(np.sqrt(layer.norm) / 2, 1.0)
        densities.append(np.exp(-((distance / spread) ** 2) / 2) * 0.8 / spread)
        below = np.where(distance >= 0, 1.0, -1.0)
    slopes = np.array([t.objectives[0].coefficients for t in targets], dtype=np.float64)
    margins = np.array([float(t.values(below[None, :])[0]) for t in targets])
    for layer, density in zip(network.layers[:0:-1], densities[::-1], strict=True):
        slopes = np.asarray((layer.weights.T.astype(np.float64) @ (slopes * density).T).T)
    drops = 2 * np.maximum(slopes * sign, 0.0) / np.maximum(margins, 1e-9)[:, None]
    effect = drops.max(axis=0)
    return np.asarray(effect + LEAST_EFFECT * max(float(effect.mean()), 1e-30))
