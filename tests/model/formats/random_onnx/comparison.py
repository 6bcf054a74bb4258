"""One graph in bnncert and in onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime

from bnncert.errors import BnncertError
from tests.model.formats.onnx_sketch import network_of, pixels
from tests.model.formats.random_onnx.builder import Builder

#: Points at which each graph is evaluated.
POINTS = 12

#: Where a graph rounds, points with a value nearer to its threshold than this are left out.
MARGIN = 1e-3

#: How onnxruntime says that it cannot run what the specification allows: no code for an element
#: type, a Squeeze whose optional list of axes is an empty name, and, in the last version for Python
#: 3.10, a reduction over axes of length 1.
NOT_IMPLEMENTED = ("NOT_IMPLEMENTED", "Axes input is null", "ValidateNoTransposeReduce")


@dataclass(frozen=True)
class Comparison:
    """What came of a graph.

    "refused" by bnncert; "no runtime" if onnxruntime does not implement it; "undecided" if every
    point has an undefined or a doubtful sign; "wrong" with the reason in `text`.
    """

    outcome: Literal["agrees", "refused", "no runtime", "undecided", "wrong"]
    text: str = ""
    points: int = 0


def compare(b: Builder) -> Comparison:
    """Read a graph, and compare its scores with those of onnxruntime at random points."""
    try:
        network = network_of(b.model())
    except BnncertError as error:
        text = str(error)
        one_line = text.isprintable() and text.startswith("model.onnx: ")
        return Comparison("refused" if one_line else "wrong", text)
    except Exception as error:
        return Comparison("wrong", f"{type(error).__name__}: {error}")
    try:
        session = _session(b)
    except Exception as error:
        return _failed(error)
    compared = 0
    for point in pixels(b.rng, POINTS, *b.input_shape[1:]):
        try:
            expected, *seen = session.run(None, {"x": point[None]})
        except Exception as error:
            return _failed(error)
        if _doubtful(b, seen):
            continue
        scores = network.evaluate(point)
        if b.end == "ArgMax" and not b.exact and _is_tie(scores):
            continue
        compared += 1
        found = _answer(scores, b.end)
        if not _equal(found, np.reshape(expected, -1), b):
            return Comparison("wrong", f"{found} instead of {np.reshape(expected, -1)}")
    return Comparison("agrees" if compared else "undecided", points=compared)


def _failed(error: Exception) -> Comparison:
    """Return the outcome for a graph that bnncert reads and onnxruntime does not run."""
    text = str(error).splitlines()[0]
    missing = any(words in text for words in NOT_IMPLEMENTED)
    return Comparison("no runtime" if missing else "wrong", f"onnxruntime refuses: {text}")


def _session(b: Builder) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = b.model(twin=True, outputs=_observed(b))
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def _observed(b: Builder) -> list[str]:
    """Return the tensors that decide whether a point says anything."""
    return [*b.bare, *(name for pair in b.watched for name in pair if name is not None)]


def _doubtful(b: Builder, seen: list[npt.NDArray[Any]]) -> bool:
    if any(np.any(signs == 0) for signs in seen[: len(b.bare)]):
        return True
    if b.exact:
        return False
    rest = iter(seen[len(b.bare) :])
    for _, other in b.watched:
        value = next(rest)
        threshold = next(rest) if other is not None else 0.0
        if np.any(np.abs(value - threshold) < MARGIN):
            return True
    return False


def _is_tie(scores: npt.NDArray[np.float64]) -> bool:
    """Whether rounding decides which score is the largest."""
    return int(np.count_nonzero(scores > scores.max() - MARGIN)) > 1


def _answer(scores: npt.NDArray[np.float64], end: str) -> npt.NDArray[Any]:
    if end == "scores":
        return scores
    if end == "ArgMax":
        return np.array([np.argmax(scores)])
    shifted = scores - scores.max()
    logarithms: npt.NDArray[Any] = shifted - np.log(np.exp(shifted).sum())
    return logarithms if end == "LogSoftmax" else np.exp(logarithms)


def _equal(found: npt.NDArray[Any], expected: npt.NDArray[Any], b: Builder) -> bool:
    if found.shape != expected.shape:
        return False
    if b.exact and b.end in ("scores", "ArgMax"):
        return bool(np.array_equal(found, expected))
    return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-4))
