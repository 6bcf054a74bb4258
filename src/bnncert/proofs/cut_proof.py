"""The inequalities of a search as integers, and as the checker derives them."""

from __future__ import annotations

import numpy as np

from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.kernel.container import RejectedError
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.input_cuts import (
    FINEST_UNIT,
    MOST_CURVATURE,
    THETA_BITS,
    CutNumbers,
    ProvedCut,
    derive_cuts,
)
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.skeleton import Skeleton

#: The part of the largest sum of m that is used.
SHARE = 0.9


def stated_cuts(
    cuts: InputCuts, geometry: Geometry, skeleton: Skeleton
) -> tuple[CutNumbers, list[ProvedCut]] | None:
    """Return the inequalities as a file states them and as the checker derives them, or None."""
    sizes, neurons, signs, thetas, units, curvatures = [], [], [], [], [], []
    for cut in cuts.sources:
        theta = np.rint(np.ldexp(cut.theta, THETA_BITS)).astype(np.int64)
        kept = theta > 0
        total = float(cut.curvature.sum())
        if not kept.any() or not (np.isfinite(total) and total > 0):
            return None
        moves = np.count_nonzero(cut.curvature)
        unit = int(np.floor(np.log2((SHARE * MOST_CURVATURE - moves) / total)))
        if not 0 <= unit <= FINEST_UNIT:
            return None
        scaled = np.rint(np.ldexp(cut.curvature, unit)).astype(np.int64)
        sizes.append(int(kept.sum()))
        neurons.append(cut.neurons[kept])
        signs.append(cut.signs[kept].astype(np.int64))
        thetas.append(theta[kept])
        units.append(unit)
        # An input that can move needs some m.
        curvatures.append(np.where(cut.curvature > 0, np.maximum(scaled, 1), 0))
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    literals = Clauses(start, *(np.concatenate(part) for part in (neurons, signs, thetas)))
    numbers = CutNumbers(literals, units, curvatures)
    try:
        return numbers, derive_cuts(numbers, geometry, skeleton)
    except RejectedError:
        return None
