"""Inputs of a region at which few faults are likely to change the class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.rules.fault_questions import FaultSetting
from bnncert.problem import Problem

#: Adversarial classes for which a point is made.
MOST_RIVALS = 2


def attack_points(problem: Problem, setting: FaultSetting) -> Iterator[FloatArray]:
    """Yield the centre of the region, and points towards adversarial classes.

    Such a point is the one farthest in the direction -g, g being the product of all weight
    matrices and the margin's coefficients: the gradient of the margin if the signs were linear.
    """
    network, region = problem.network, problem.region
    centre = _settled(problem, region.center)
    if centre is not None:
        yield centre
    if np.array_equal(region.lo, region.hi):
        return
    values = [t.values(network.last_signs(region.center[None, :]))[0] for t in problem.targets]
    for number in np.argsort(values)[:MOST_RIVALS].tolist():
        slope = problem.targets[number].objectives[0].coefficients
        for layer in reversed(network.layers):
            slope = np.asarray(slope @ layer.weights.astype(np.float64))
        width = float((region.hi - region.lo).max())
        far = region.project((region.center - width * np.sign(slope))[None, :])[0]
        point = _settled(problem, far)
        if point is not None:
            yield point


def _settled(problem: Problem, point: FloatArray) -> FloatArray | None:
    """Return a point of the region next to a point: float32 numbers if possible."""
    region = problem.region
    for kind in (np.float32, np.float64):
        found = region.settle(point, kind)
        if found is not None:
            return found
    return None
