"""Answers for each target and for a whole problem, as immutable data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.answer import Answer, Columns, lower_text, upper_text
from bnncert.engine.timing import Timing, merged_timings
from bnncert.regions.pictures import Original

Status: TypeAlias = Literal["robust", "not_robust", "unknown", "timeout"]

#: The state of an undecided target after a counterexample for another one: the counterexample
#: violates this target, too, or no method was applied to it.
Finding: TypeAlias = Literal["violated", "not_tried"]

#: The words of VNN-COMP, whose queries state the violation.
VNNCOMP_WORD: dict[str, str] = {
    "robust": "unsat",
    "not_robust": "sat",
    "unknown": "unknown",
    "timeout": "timeout",
}


def tie_text(label: int, rival: int, best: int | None, *, one_choice: bool = False) -> str:
    """Return a tie of the label and a rival in words; `best` is the network's class.

    With `one_choice` it is that of one choice of the signs at 0.
    """
    text = f"a tie: classes {min(label, rival)} and {max(label, rival)} have the same score"
    if best is not None:
        verb = "stays" if best == label else "changes to"
        text += f"; the network's argmax (lowest index) {verb} {best}"
    return f"{text}, for one choice of the signs at 0" if one_choice else text


def finite_or_none(value: float) -> float | None:
    """Return a number for JSON; infinite numbers become None."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input inside the region at which the property fails, checked in exact arithmetic.

    Attributes
    ----------
    point
        The input as floats.
    exact
        The input as rationals where the floats are only near it, else None.
    target
        The target that it reaches.
    value
        F = max_i f_i there, exactly (<= 0).
    scores
        The network's scores there, in floating point.
    replayed_in
        Which independent executions confirmed it: "exact", and "onnxruntime" where tried.
    place
        Its place in a shape of change, such as a brightness offset or the position of a patch.
    label, tied_with
        The class that the input should have, if the property is one about classes; and the
        rival of the target, if its score is exactly that of the label: a tie.
    best
        The network's class: of the classes with the highest exact score the one with the lowest
        index; None if irrational numbers leave it open.
    is_one_choice
        Whether sign(0) may be either and a sum is 0 there: target, value, scores and class are
        those of one choice of the signs, and other choices may have others.
    """

    point: FloatArray
    exact: tuple[Fraction, ...] | None
    target: str
    value: Fraction
    scores: FloatArray
    replayed_in: tuple[str, ...] = ("exact",)
    place: str = ""
    label: int | None = None
    tied_with: int | None = None
    best: int | None = None
    is_one_choice: bool = False

    @property
    def tie(self) -> bool:
        """Whether the margin is exactly 0: the label and the rival score the same."""
        return self.tied_with is not None

    @property
    def predicted(self) -> int:
        """The network's class, in floating point where `best` does not tell it."""
        return int(np.argmax(self.scores)) if self.best is None else self.best

    @property
    def class_changes(self) -> bool | None:
        """Whether the network's class is another one than the label; None if that is open."""
        return None if self.label is None or self.best is None else self.best != self.label

    @property
    def tie_text(self) -> str:
        """A tie in words, and what the network answers; empty if it is none."""
        if self.label is None or self.tied_with is None:
            return ""
        return tie_text(self.label, self.tied_with, self.best, one_choice=self.is_one_choice)

    def __repr__(self) -> str:
        replayed = " and ".join(self.replayed_in)
        inputs = f"{self.point.size} inputs"
        value = "a tie" if self.tie else f"value {float(self.value):.4g}"
        return f"Counterexample({inputs}, {self.target}, {value}, replayed: {replayed})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the decimal numbers convert back to the same floats."""
        tree: dict[str, Any] = {
            "input": self.point.tolist(),
            "target": self.target,
            "value": float(self.value),
            "value_exact": str(self.value),
            "scores": self.scores.tolist(),
            "predicted": self.predicted,
            "replayed_in": list(self.replayed_in),
        }
        if self.label is not None:
            tree |= {"tie": self.tie, "class_changes": self.class_changes}
        if self.is_one_choice:
            tree["one_choice"] = True
        if self.exact is not None:
            tree["input_exact"] = [str(v) for v in self.exact]
        if self.place:
            tree["place"] = self.place
        return tree


def finite_bounds(answer: Any) -> dict[str, float | None]:
    """Return the bounds of an answer as plain data, infinite ones as None."""
    return {"lower": finite_or_none(answer.lower), "upper": finite_or_none(answer.upper)}


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """The answer for a part of a question: its name, bounds, the time, and the deciding stage."""

    name: str
    status: Any
    lower: float = -math.inf
    upper: float = math.inf
    seconds: float = 0.0
    stage: str = ""


@dataclass(frozen=True, eq=False)
class TargetResult(PartAnswer):
    """The answer for one target, with bounds lower <= min F <= upper.

    Attributes
    ----------
    name, rival
        The target, and the rival if it is about one.
    status
        "robust" (it cannot be reached), "not_robust", "unknown" or "timeout".
    lower, upper
        The bounds; infinite if nothing is known.
    seconds, stage
        The time for this target, and the stage that decided it.
    counterexample
        The counterexample that reaches it, if there is one.
    note, details
        A remark, and statistics and settings of the method (plain data).
    finding
        "violated" or "not_tried", if another target decided the question.
    at_centre
        Whether the counterexample is the centre of the region.
    trusted
        The solver that a proof relies on; None if bnncert derives the bound itself.
    tried
        Whether a method was applied to this target, besides bounds and points for all targets.
    """

    status: Status
    rival: int | None = None
    counterexample: Counterexample | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    finding: Finding | None = None
    at_centre: bool = False
    trusted: str | None = None
    tried: bool = True

    def __repr__(self) -> str:
        status = (self.finding or self.status).replace("_", " ")
        stage = f" by {self.stage}" if self.stage else ""
        lower = lower_text(self.lower) if math.isfinite(self.lower) else str(self.lower)
        upper = upper_text(self.upper) if math.isfinite(self.upper) else str(self.upper)
        bounds = f"bounds {lower} and {upper}"
        return f"TargetResult({self.name} {status}{stage}, {bounds}, {self.seconds:.2f} s)"

    @property
    def is_misclassified(self) -> bool:
        """Whether the centre is the counterexample, and not by a tie that keeps the label."""
        found = self.counterexample
        return self.at_centre and (found is None or found.class_changes is not False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (infinite bounds become None)."""
        return {
            "target": self.name,
            **{name: getattr(self, name) for name in ("rival", "status", "finding")},
            **finite_bounds(self),
            **{name: getattr(self, name) for name in ("seconds", "stage", "note", "details")},
        }


@dataclass(frozen=True, eq=False, repr=False)
class Result(Answer):
    """The answer to a problem; ``print`` and notebooks show one row for each target.

    Attributes
    ----------
    status
        "robust", "not_robust", "unknown" or "timeout".
    targets
        The answers for the targets.
    seconds, method
        The time for the whole question, and the method.
    counterexample
        The input at which the property fails, if one was found.
    label
        The class that all inputs should have, if the property is one about classes.
    notes
        Remarks for the user, one line each.
    certificate
        The file of the certificate, if one was requested and could be written.
    trusted
        If a requested certificate could not be written, the solvers that the verdict relies on, or
        "bnncert".
    original
        The centre of a ball as a picture, which notebooks show beside the counterexample.
    timing
        The stages with their times and bounds, and the open neurons per layer.
    """

    HOLDS = frozenset({"robust"})

    status: Status
    targets: tuple[TargetResult, ...]
    seconds: float
    method: str
    counterexample: Counterexample | None = None
    label: int | None = None
    notes: tuple[str, ...] = ()
    certificate: str | None = None
    trusted: str | None = None
    original: Original | None = None
    timing: Timing = field(default_factory=Timing)

    def _repr_html_(self) -> str:
        if self.original is None:
            return super()._repr_html_()
        found = self.counterexample
        point = None if found is None else found.point
        answer = "" if found is None else f"counterexample: {found.predicted}"
        if found is not None and found.tie:
            answer += f" (a tie of {found.label} and {found.tied_with})"
        captions = (f"input: {self.label}", answer)
        return super()._repr_html_() + self.original.html(point, captions)

    @property
    def summary(self) -> str:
        """The answer and its method."""
        word = "misclassified" if self.is_misclassified else self.status.replace("_", " ")
        return f"{word} by {self.method}"

    @property
    def evidence(self) -> Counterexample | None:
        """The counterexample."""
        return self.counterexample

    @property
    def no_certificate(self) -> str:
        """Why a requested certificate could not be written: the last note."""
        return "" if self.trusted is None or not self.notes else self.notes[-1]

    def columns(self) -> Columns:
        """Return the answer and its bounds for each target."""
        rows = [
            [
                t.name,
                (t.finding or t.status).replace("_", " "),
                t.stage if t.status in ("robust", "not_robust") else t.note,
                *(lower_text(t.lower, 6), upper_text(t.upper, 6)),
                f"{t.seconds:.2f}",
            ]
            for t in self.targets
        ]
        heads = ["target", "answer", "decided by", "lower bound", "upper bound", "seconds"]
        return Columns(heads, rows, left=3)

    def below(self) -> list[str]:
        """Return the time of work for all targets."""
        return [f"shared: {self.shared_text()}"] if self.timing.shared else []

    @property
    def lower(self) -> float:
        """The smallest lower bound over all targets."""
        return min((t.lower for t in self.targets), default=math.inf)

    @property
    def upper(self) -> float:
        """The smallest upper bound over all targets."""
        return min((t.upper for t in self.targets), default=math.inf)

    def shared_text(self) -> str:
        """Return the seconds of work for all targets, as in "presolve 0.31 s, other 0.02 s".

        Together with the seconds of the targets they are the seconds of the result.
        """
        return ", ".join(f"{stage} {s:.2f} s" for stage, s in self.timing.shared.items())

    @property
    def deciding_stage(self) -> str:
        """The stage or stages that decided the targets; empty without a verdict."""
        if self.status == "not_robust":
            decided = deciding_target(self.targets)
            return "" if decided is None else decided.stage
        if self.status == "robust":
            return ", ".join(dict.fromkeys(t.stage for t in self.targets))
        return ""

    @property
    def is_misclassified(self) -> bool:
        """Whether the centre of the region is not classified as the label."""
        return self.label is not None and any(t.is_misclassified for t in self.targets)

    @property
    def is_at_centre(self) -> bool:
        """Whether the counterexample is the centre of the region."""
        decided = deciding_target(self.targets)
        return self.label is not None and decided is not None and decided.at_centre

    @property
    def vnncomp_word(self) -> str:
        """sat, unsat, unknown or timeout."""
        return VNNCOMP_WORD[self.status]

    def facts(self) -> dict[str, Any]:
        """Return the bounds for each target, the counterexample and the division of the time."""
        return {
            "misclassified": self.is_misclassified,
            "vnncomp": self.vnncomp_word,
            "method": self.method,
            "label": self.label,
            **finite_bounds(self),
            "targets": [t.to_dict() for t in self.targets],
            "counterexample": self.counterexample and self.counterexample.to_dict(),
            "trusted": self.trusted,
            "account": self.timing.to_dict(),
        }


def best_of(before: TargetResult, after: TargetResult) -> TargetResult:
    """Combine two answers for one target: a verdict, and the better bounds."""
    decided = before.status in ("robust", "not_robust")
    return replace(
        before if decided else after,
        lower=max(before.lower, after.lower),
        upper=min(before.upper, after.upper),
        seconds=before.seconds + after.seconds,
        tried=before.tried or after.tried,
    )


def deciding_target(answers: Sequence[TargetResult]) -> TargetResult | None:
    """Return the first answer with a counterexample, a strict one before a tie."""
    found = ((a.counterexample.tie, a) for a in answers if a.counterexample is not None)
    return min(found, key=lambda pair: pair[0], default=(False, None))[1]


def overall_status(statuses: Sequence[Status]) -> Status:
    """Combine the answers of all targets: the property holds if it holds for all of them."""
    if "not_robust" in statuses:
        return "not_robust"
    if all(s == "robust" for s in statuses):
        return "robust"
    return "timeout" if "timeout" in statuses else "unknown"


def merge(results: Sequence[Result]) -> Result:
    """Combine the answers for several regions of one query."""
    if len(results) == 1:
        return results[0]
    found = next((r.counterexample for r in results if r.counterexample is not None), None)
    return Result(
        status=overall_status([r.status for r in results]),
        targets=tuple(t for r in results for t in r.targets),
        seconds=sum(r.seconds for r in results),
        method=results[0].method if results else "",
        counterexample=found,
        notes=tuple(dict.fromkeys(note for r in results for note in r.notes)),
        timing=merged_timings([r.timing for r in results]),
    )
