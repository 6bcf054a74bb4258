"""Witness points in the format that VNN-COMP's checker replays.

Off the border of the bounds where possible, with the outputs that the model file itself computes.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.formats.vnnlib.query import Specification
from bnncert.network import Network
from bnncert.problem import from_vnnlib
from bnncert.replay import OnnxRuntime, Replayer
from bnncert.verdict import Counterexample, Result

#: How far a coordinate moves off its bound, as a share of the way to the centre.
STEPS = (2.0**-6, 2.0**-12)


def as_executed(network: Network, specification: Specification, result: Result) -> Result | None:
    """Return the result with the outputs of the model file itself, softmax and all.

    The competition runs the model on the witness and expects these numbers.  None if they do not
    satisfy the query: an exact counterexample may be lost in the rounding of a float32 execution.
    """
    found = result.counterexample
    assert found is not None
    runtime = OnnxRuntime.of(network) if "onnxruntime" in found.replayed_in else None
    found = _off_the_border(network, specification, found, runtime)
    if runtime is None:
        outputs = _softmax(found.scores) if network.output_transform == "softmax" else found.scores
        return replace(result, counterexample=replace(found, scores=outputs))
    outputs = runtime.scores(found.point)
    if not np.all(np.isfinite(outputs)) or not specification.holds(
        [Fraction(v) for v in found.point.tolist()], [Fraction(v) for v in outputs.tolist()]
    ):
        return None
    return replace(result, counterexample=replace(found, scores=outputs))


def _off_the_border(
    network: Network,
    specification: Specification,
    found: Counterexample,
    runtime: OnnxRuntime | None,
) -> Counterexample:
    """Return a counterexample strictly between all bounds that differ, or this one if none is near.

    Attacks end in corners.  A reader of the witness that rounds differently may find one outside.
    """
    for problem in from_vnnlib(network, specification):
        region = problem.region
        wide = region.hi > region.lo
        touching = wide & ((found.point <= region.lo) | (found.point >= region.hi))
        if not touching.any() or not region.contains(found.point):
            continue
        target = next(t for t in problem.targets if t.name == found.target)
        replayer = Replayer(problem, runtime, specification.holds)
        for step in STEPS:
            inner = np.where(touching, found.point + step * (region.center - found.point), 0.0)
            moved = replayer.confirm(target, np.where(touching, inner, found.point))
            if moved is not None and np.all(
                ~wide | ((moved.point > region.lo) & (moved.point < region.hi))
            ):
                return moved
    return found


def _softmax(scores: FloatArray) -> FloatArray:
    shifted = np.exp(scores - scores.max())
    return np.asarray(shifted / shifted.sum(), dtype=np.float64)
