"""Two inputs that violate a relation, evaluated exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.replay import OnnxRuntime
from bnncert.engine.verdict import Counterexample
from bnncert.kernel.rules.relation_products import Relation, paired_signs, violation
from bnncert.model.network import Network
from bnncert.questions.relations.relation_parts import PairPart


@dataclass(frozen=True, eq=False)
class InputPair:
    """Two inputs that differ only in what may change, and violate the relation.

    Attributes
    ----------
    first, second
        The inputs as floats.
    exact
        Both as rationals if the floats are only near them, else None.
    classes
        The classes of both; of equal scores the first counts.
    scores
        The scores of both, in floating point.
    changed
        The numbers of the inputs that differ.
    replayed_in
        Which executions confirmed it: "exact", and "onnxruntime" if the model is an ONNX file.
    """

    first: FloatArray
    second: FloatArray
    exact: tuple[tuple[Fraction, ...], tuple[Fraction, ...]] | None
    classes: tuple[int, int]
    scores: tuple[FloatArray, FloatArray]
    changed: tuple[int, ...]
    replayed_in: tuple[str, ...] = ("exact",)

    def __repr__(self) -> str:
        one, two = self.classes
        return f"InputPair(classes {one} and {two}, inputs {self.changed} differ)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the decimal numbers convert back to the same floats."""
        tree: dict[str, Any] = {
            "first": self.first.tolist(),
            "second": self.second.tolist(),
            "classes": list(self.classes),
            "scores": [s.tolist() for s in self.scores],
            "changed": list(self.changed),
            "replayed_in": list(self.replayed_in),
        }
        if self.exact is not None:
            tree["exact"] = [[str(v) for v in point] for point in self.exact]
        return tree


def replayed_pair(
    network: Network, part: PairPart, found: Counterexample, relation: Relation
) -> InputPair | None:
    """Return the two inputs of a counterexample, or None if the network itself denies it."""
    point: Sequence[Any] = found.point.tolist() if found.exact is None else found.exact
    exact = part.pair(point)
    first, second = (np.array([float(v) for v in x]) for x in exact)
    floats = all(
        Fraction(v) == w
        for x, y in zip((first, second), exact, strict=True)
        for v, w in zip(x.tolist(), y, strict=True)
    )
    wrong = violation(network, relation, paired_signs(network, *exact))
    if wrong is None:
        return None
    one, two = (network.output.gain * np.array([float(v) for v in s]) for s in wrong.scores)
    return InputPair(
        first,
        second,
        None if floats else exact,
        wrong.classes,
        (one, two),
        tuple(np.flatnonzero(first != second).tolist()),
        ("exact", *_executed(network, relation, (first, second))),
    )


def _executed(
    network: Network, relation: Relation, points: tuple[FloatArray, FloatArray]
) -> tuple[str, ...]:
    """Return ("onnxruntime",) if that program confirms the pair."""
    runtime = OnnxRuntime.of(network)
    if runtime is None:
        return ()
    scores = [runtime.scores(x) for x in points]
    if relation.score is not None:
        gap = float(scores[0][relation.score] - scores[1][relation.score])
        return ("onnxruntime",) if (-gap if relation.falling else gap) > 0 else ()
    classes = [int(np.argmax(s)) for s in scores]
    return ("onnxruntime",) if relation.is_violated_by(*classes) else ()
