"""Integer multipliers for clauses, tried out with the checker's own geometry."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.checking.container import RejectedError
from bnncert.checking.geometry import Geometry
from bnncert.checking.reading import Clauses
from bnncert.network.layers import ThresholdLayer
from bnncert.regions import Polytope, Region

#: Bits of the largest multiplier: so many first, and more where rounding spoils the proof.
BITS = (16, 30, 44, 60)


def clause(neurons: IntArray, signs: npt.NDArray[Any], theta: Sequence[int]) -> Clauses:
    """Return one clause."""
    return Clauses(
        np.array([0, neurons.size], dtype=np.int64),
        neurons.astype(np.int64),
        signs.astype(np.int64),
        np.array(theta, dtype=np.int64),
    )


def many(neurons: IntArray, signs: npt.NDArray[Any], theta: IntArray) -> Clauses:
    """Return clauses of one length, a row each."""
    count, length = neurons.shape
    return Clauses(
        length * np.arange(count + 1, dtype=np.int64),
        neurons.astype(np.int64).ravel(),
        signs.astype(np.int64).ravel(),
        theta.astype(np.int64).ravel(),
    )


def kept(clauses: Clauses, chosen: npt.NDArray[np.bool_]) -> Clauses:
    """Return the chosen clauses."""
    sizes = np.diff(clauses.start)
    entries = np.repeat(chosen, sizes)
    return Clauses(
        np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64),
        clauses.neuron[entries],
        clauses.sign[entries],
        clauses.theta[entries],
    )


def prove_clause(
    geometry: Geometry,
    layer: ThresholdLayer,
    region: Region,
    neurons: IntArray,
    signs: npt.NDArray[Any],
    theta: FloatArray | Sequence[Fraction],
) -> Clauses | None:
    """Return the clause with integer multipliers that the checker accepts, or None."""
    found = _first_accepted(geometry, neurons, signs, theta)
    if found is None and isinstance(region, Polytope):
        y = _inequalities(layer, region, neurons, signs, np.array([float(t) for t in theta]))
        if y is not None:
            rows = np.flatnonzero(y)
            found = _first_accepted(
                geometry,
                np.concatenate([neurons, -1 - rows]),
                np.concatenate([signs, np.ones(rows.size, dtype=np.int8)]),
                np.concatenate([np.array([float(t) for t in theta]), y[rows]]),
            )
    return found


def _inequalities(
    layer: ThresholdLayer,
    region: Polytope,
    neurons: IntArray,
    signs: npt.NDArray[Any],
    theta: FloatArray,
) -> FloatArray | None:
    """Return multipliers of the region's inequalities: the dual of max v.x over the polytope."""
    direction = np.asarray(layer.weights[neurons].astype(np.float64).T @ (theta * signs))
    y = region.multipliers(direction[None])[0]
    return y if np.any(y) else None


def _first_accepted(
    geometry: Geometry,
    neurons: IntArray,
    signs: npt.NDArray[Any],
    theta: FloatArray | Sequence[Fraction],
) -> Clauses | None:
    for whole in _integer_versions(theta):
        candidate = clause(neurons, signs, whole)
        try:
            if bool(geometry.proved(candidate).all()):
                return candidate
        except RejectedError:
            continue
    return None


def _integer_versions(theta: FloatArray | Sequence[Fraction]) -> list[list[int]]:
    values = [Fraction(t) for t in theta]
    largest = max(values, default=Fraction(0))
    if largest <= 0:
        return []
    versions = []
    common = lcm(*(v.denominator for v in values))
    exact = [int(v * common) for v in values]
    if common.bit_length() < 200 and max(exact) < 2**62:
        versions.append(exact)
    return versions + [[round(v / largest * 2**bits) for v in values] for bits in BITS]
