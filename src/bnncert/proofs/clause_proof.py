"""Integer multipliers for clauses that the checker's geometry accepts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.search.trace import LearnedClause
from bnncert.kernel.container import RejectedError
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.section_reading import Clauses, joined
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: Bits of the largest multiplier, which are tried in turn until rounding does not break the proof.
BITS = (16, 30, 44, 60)


def many(neurons: IntArray, signs: npt.NDArray[Any], theta: IntArray) -> Clauses:
    """Return clauses of one length, one for each row."""
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


def prove_many(
    geometry: Geometry, learned: Sequence[LearnedClause]
) -> tuple[Clauses, list[LearnedClause]]:
    """Return clauses with integer multipliers that the checker accepts, and those left.

    Many clauses are tried together, which takes a small part of the time.
    """
    parts = []
    for bits in BITS[:2]:
        left = [one for one in learned if isinstance(one[2], np.ndarray) and one[2].any()]
        if not left:
            break
        made = joined([_rounded(n, s, np.asarray(t), bits) for n, s, t in left])
        good = geometry.proved(made)
        parts.append(kept(made, good))
        proved = {id(one) for one, holds in zip(left, good.tolist(), strict=True) if holds}
        learned = [one for one in learned if id(one) not in proved]
    return joined(parts), list(learned)


def _rounded(neurons: IntArray, signs: npt.NDArray[Any], theta: FloatArray, bits: int) -> Clauses:
    """Return one clause with multipliers of so many bits."""
    whole = np.rint(theta * (2.0**bits / theta.max())).astype(np.int64)
    return many(neurons[None], signs[None], whole[None])


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
    if found is None and region.inequalities[1].size:
        # Multipliers y of the region's inequalities: the dual of max v.x over the polytope.
        floats = np.array([float(t) for t in theta])
        direction = np.asarray(layer.weights[neurons].astype(np.float64).T @ (floats * signs))
        y = region.multipliers(direction[None])[0]
        rows = np.flatnonzero(y)
        if rows.size:
            found = _first_accepted(
                geometry,
                np.concatenate([neurons, -1 - rows]),
                np.concatenate([signs, np.ones(rows.size, dtype=np.int8)]),
                np.concatenate([floats, y[rows]]),
            )
    return found


def _first_accepted(
    geometry: Geometry,
    neurons: IntArray,
    signs: npt.NDArray[Any],
    theta: FloatArray | Sequence[Fraction],
) -> Clauses | None:
    for whole in integer_versions(theta):
        candidate = many(neurons[None], signs[None], np.array([whole], dtype=np.int64))
        try:
            if bool(geometry.proved(candidate).all()):
                return candidate
        except RejectedError:
            continue
    return None


def integer_versions(theta: FloatArray | Sequence[Fraction]) -> list[list[int]]:
    """Return integers in nearly the same proportion, with the exact one first if it is small."""
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
