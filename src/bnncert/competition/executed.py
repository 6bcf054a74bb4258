"""Witnesses with the outputs that the model file itself computes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.formats.description import FloatArray
from bnncert.formats.vnnlib import Specification
from bnncert.network import Network
from bnncert.replay import OnnxRuntime
from bnncert.verdict import Result


def as_executed(network: Network, specification: Specification, result: Result) -> Result | None:
    """Return the result with the outputs of the model file itself, softmax and all.

    The competition runs the model on the witness and expects these numbers.  None if they do not
    satisfy the query: an exact counterexample may be lost in the rounding of a float32 execution.
    """
    found = result.counterexample
    assert found is not None
    runtime = OnnxRuntime.of(network) if "onnxruntime" in found.replayed_in else None
    if runtime is None:
        outputs = _softmax(found.scores) if network.output_transform == "softmax" else found.scores
        return replace(result, counterexample=replace(found, scores=outputs))
    outputs = runtime.scores(found.point)
    if not np.all(np.isfinite(outputs)) or not specification.holds(
        [Fraction(v) for v in found.point.tolist()], [Fraction(v) for v in outputs.tolist()]
    ):
        return None
    return replace(result, counterexample=replace(found, scores=outputs))


def _softmax(scores: FloatArray) -> FloatArray:
    shifted = np.exp(scores - scores.max())
    return np.asarray(shifted / shifted.sum(), dtype=np.float64)
