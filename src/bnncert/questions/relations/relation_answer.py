"""What is known about a relation between two copies of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.answer import Answer, Columns, lower_text, upper_text
from bnncert.engine.verdict import PartAnswer, finite_bounds, finite_or_none

RelationStatus: TypeAlias = Literal["holds", "fails", "unknown", "timeout"]

#: Parts of a question that a table lists.
MOST_ROWS = 20

#: The largest number of values that are written out in words.
MOST_WORDS = 4

#: Numbers of a pair that are printed if both inputs have them; images have thousands.
MOST_SHARED = 40


@dataclass(frozen=True)
class Change:
    """A feature that changes, or a group of features of which exactly one is 1."""

    #: The numbers of the inputs that change.
    features: tuple[int, ...]
    #: The value changes by multiples of this step; None for any change, or if there are values.
    step: float | None = None
    #: The values that the features can take, one tuple for each state; empty if there is a step or
    #: if the change is any one.
    values: tuple[tuple[float, ...], ...] = ()

    @property
    def kind(self) -> Literal["values", "step", "any"]:
        """How the second input arises from the first one."""
        return "values" if self.values else "any" if self.step is None else "step"

    def words(self, names: Sequence[str]) -> str:
        """Write few values out, and of many their number and both ends."""
        if len(self.features) > 1:
            return f"which of {', '.join(names[f] for f in self.features)} is 1"
        name = names[self.features[0]]
        if self.step is not None:
            return f"{name} (steps of {self.step:.9g})"
        if not self.values:
            return f"{name} (real values)"
        shown = [f"{v[0]:.9g}" for v in self.values]
        if len(shown) > MOST_WORDS:
            return f"{name} ({len(shown)} values from {shown[0]} to {shown[-1]})"
        return f"{name} (values {', '.join(shown)})"

    def exactly(self) -> dict[str, Any]:
        """Write the numbers as rationals, so that a claim rounds nothing."""
        return {
            "features": list(self.features),
            "step": None if self.step is None else str(Fraction(self.step)),
            "values": [[str(Fraction(v)) for v in state] for state in self.values],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "features": list(self.features),
            "kind": self.kind,
            "step": self.step,
            "values": [list(v) for v in self.values],
        }


@dataclass(frozen=True, eq=False)
class InputPair:
    """Two inputs that differ only in what may change, and violate the relation."""

    #: The inputs as floats.
    first: FloatArray
    second: FloatArray
    #: Both as rationals if the floats are only near them, else None.
    exact: tuple[tuple[Fraction, ...], tuple[Fraction, ...]] | None
    #: The classes of both; of equal scores the first counts.
    classes: tuple[int, int]
    #: The scores of both, in floating point.
    scores: tuple[FloatArray, FloatArray]
    #: The numbers of the inputs that differ.
    changed: tuple[int, ...]
    #: Which executions confirmed it: "exact", and "onnxruntime" if the model is an ONNX file.
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


@dataclass(frozen=True)
class PartResult(PartAnswer):
    """The answer for a change and a part of the region.

    The bounds are those of the margin by which the relation holds: it holds if it cannot be
    negative, or, for relations between classes, not 0 either.
    """

    #: "holds", "fails", "unknown" or "timeout".
    status: RelationStatus

    def bound_texts(self) -> tuple[str, str]:
        """Return the bounds, rounded outwards; "-" for unknown ones."""
        return (
            lower_text(self.lower) if math.isfinite(self.lower) else "-",
            upper_text(self.upper) if math.isfinite(self.upper) else "-",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (infinite bounds become None)."""
        return {**vars(self), **finite_bounds(self)}


@dataclass(frozen=True, eq=False, repr=False)
class RelationResult(Answer):
    """The answer whether a network is monotone or fair; ``print`` shows its parts.

    Attributes
    ----------
    status
        "holds", "fails" (with a pair of inputs), "unknown" or "timeout".
    statement, negation
        The property in words, and what is true if it fails.
    changes
        What changes between the two inputs.
    names
        The names of the network's inputs.
    parts
        The answers for the parts of the question; those after a failure are not asked.
    count
        The number of all parts.
    pair
        Two inputs that violate the property, if it fails.
    seconds, notes, certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"holds"})

    status: RelationStatus
    statement: str
    negation: str
    changes: tuple[Change, ...]
    names: tuple[str, ...]
    parts: tuple[PartResult, ...]
    count: int
    seconds: float
    pair: InputPair | None = None
    notes: tuple[str, ...] = ()
    certificate: str | None = None

    @property
    def evidence(self) -> InputPair | None:
        """The two inputs that violate the property."""
        return self.pair

    @property
    def summary(self) -> str:
        """The answer in one line."""
        if self.status == "holds":
            return f"holds: {self.statement}"
        if self.status == "fails":
            return f"fails: {self.negation}"
        done = sum(part.status == "holds" for part in self.parts)
        parts = f"; {done} of {self.count} parts proved" if self.count > 1 else ""
        return f"{self.status}: undecided whether {self.statement}{parts}"

    @property
    def lower(self) -> float:
        """The smallest lower bound over all parts."""
        complete = len(self.parts) == self.count
        return min((p.lower for p in self.parts), default=-math.inf) if complete else -math.inf

    @property
    def upper(self) -> float:
        """The smallest upper bound over all parts."""
        return min((p.upper for p in self.parts), default=math.inf)

    def columns(self) -> Columns:
        """List the first parts, each with its bounds."""
        rows = [
            [p.name, p.status, p.stage, *p.bound_texts(), f"{p.seconds:.2f}"]
            for p in self.parts[:MOST_ROWS]
        ]
        heads = ["part", "answer", "decided by", "lower bound", "upper bound", "seconds"]
        return Columns(heads, rows, left=3)

    def below(self) -> list[str]:
        """Return the pair of inputs, and how many parts the table leaves out."""
        below = list(self.pair_lines())
        if len(self.parts) > MOST_ROWS:
            below.insert(0, f"and {len(self.parts) - MOST_ROWS} further parts")
        return below

    def pair_lines(self, most: int = MOST_SHARED) -> Sequence[str]:
        """Return the two inputs in words, one line each, with so many of the equal numbers."""
        pair = self.pair
        if pair is None:
            return ()
        shared = [
            f"{name} {value:.9g}"
            for i, (name, value) in enumerate(zip(self.names, pair.first.tolist(), strict=True))
            if i not in pair.changed
        ]
        lines = []
        for point, label, scores in zip(
            (pair.first, pair.second), pair.classes, pair.scores, strict=True
        ):
            own = ", ".join(f"{self.names[i]} {point[i]:.9g}" for i in pair.changed)
            shown = ", ".join(f"{s:.6g}" for s in np.atleast_1d(scores).tolist())
            lines.append(f"{own}: class {label} (scores {shown})")
        if len(shared) > most:
            left = len(shared) - most
            shared = [*shared[:most], f"and {left} more (all of them with -v or --json)"]
        return (*lines, f"and in both: {', '.join(shared)}")

    def facts(self) -> dict[str, Any]:
        """Give all parts, also those that the table leaves out."""
        return {
            "statement": self.statement,
            "changes": [change.to_dict() for change in self.changes],
            "names": list(self.names),
            "lower": finite_or_none(self.lower),
            "parts": [part.to_dict() for part in self.parts],
            "count": self.count,
            "pair": None if self.pair is None else self.pair.to_dict(),
        }
