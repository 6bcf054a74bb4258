"""What is known about the classes of two networks."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.answer import Answer, Columns
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.questions.compare.normal_forms import LayerComparison, Rounding

Status: TypeAlias = Literal["identical", "equal", "rounding", "different", "unknown", "timeout"]

#: The scope of an answer that does not depend on a region.
ALL_INPUTS = "all inputs"

#: What decided a comparison.
How: TypeAlias = Literal[
    "normal forms", "neurons", "one class", "product", "inputs", "constants", ""
]


@dataclass(frozen=True, eq=False)
class Difference:
    """An input at which two networks, A and B, give different classes, in exact arithmetic."""

    #: The input as floats, and as rationals where the floats are only near it.
    point: FloatArray
    exact: tuple[Fraction, ...] | None
    #: The classes that A and B give.
    classes: tuple[int, int]
    #: The scores of A and of B, in floating point.
    scores: tuple[FloatArray, FloatArray]

    def __repr__(self) -> str:
        return f"Difference({self.point.size} inputs, classes {self.classes})"

    def as_counterexample(self, target: str = "") -> Counterexample:
        """Return the input as a counterexample to the claim that the classes are equal."""
        return Counterexample(self.point, self.exact, target, Fraction(0), self.scores[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the decimal numbers convert back to the same floats."""
        tree: dict[str, Any] = {
            "input": self.point.tolist(),
            "classes": list(self.classes),
            "scores": [scores.tolist() for scores in self.scores],
        }
        if self.exact is not None:
            tree["input_exact"] = [str(v) for v in self.exact]
        return tree


@dataclass(frozen=True, eq=False)
class InputsComparison:
    """The classes of given inputs."""

    #: The number of inputs.
    count: int
    #: The numbers of the inputs at which the classes differ, and the classes of A and B there.
    differing: IntArray
    first: IntArray
    second: IntArray
    #: The numbers of the inputs whose classes a network does not determine, because sign(0) may be
    #: either or an irrational number is not known well enough.
    undetermined: IntArray

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: v if isinstance(v, int) else v.tolist() for name, v in vars(self).items()}


@dataclass(frozen=True, eq=False, repr=False)
class NetworkComparison(Answer):
    """The answer whether two networks, A and B, give the same class.

    Attributes
    ----------
    status
        "identical" (the normal forms are equal), "equal" (the classes are equal, see `scope`),
        "rounding" (the classes are equal except where `rounding` says, asked with a tolerance),
        "different" (with an input or with inputs), "unknown" or "timeout".
    how
        What decided it: "normal forms"; "neurons" (the same neurons in another form); "one class"
        (both networks have the same class on the whole region); "product" (a proof about both
        networks together); "inputs" (all given inputs were evaluated); "constants" (only constants
        differ, and by little); empty without an answer.
    scope
        The inputs that the answer is about, in words.
    layers
        The normal forms, layer by layer.
    shared
        For each layer the number of different neurons that both networks use.
    difference
        An input of the region at which the classes differ.
    inputs
        The classes of given inputs, if they were compared.
    targets
        What is known about the pairs of classes, if the product was searched.
    rounding
        By how much constants differ, if the networks differ in nothing else.
    seconds, notes, certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"identical", "equal", "rounding"})

    status: Status
    how: How
    scope: str
    layers: tuple[LayerComparison, ...]
    shared: tuple[int, ...]
    seconds: float
    difference: Difference | None = None
    inputs: InputsComparison | None = None
    targets: tuple[TargetResult, ...] = ()
    rounding: Rounding | None = None
    notes: tuple[str, ...] = ()
    certificate: str | None = None

    @property
    def evidence(self) -> Difference | InputsComparison | None:
        """The input or the inputs at which the classes differ."""
        return self.difference or self.inputs

    @property
    def summary(self) -> str:
        """The answer in one line."""
        if self.status == "identical":
            return "identical: the normal forms are equal"
        if self.status == "rounding" and self.rounding is not None:
            return f"equal up to rounding: {self.rounding.text}"
        if self.status == "equal":
            place = self.scope if self.scope == ALL_INPUTS else f"every input of {self.scope}"
            return f"equal: the same class for {place}, {_REASONS[self.how]}"
        if self.status == "different" and self.inputs is not None:
            count = f"{self.inputs.differing.size} of {self.inputs.count} inputs"
            return f"different: the classes of {count}"
        if self.status == "different" and self.difference is not None:
            one, two = self.difference.classes
            place = f"an input of {self.scope}"
            return f"different: class {one} of A and {two} of B for {place}"
        open_ = [t for t in self.targets if t.status not in ("robust", "not_robust")]
        left = f", {len(open_)} of {len(self.targets)} pairs of classes open" if open_ else ""
        return f"{self.status}: no difference found on {self.scope}{left}"

    @property
    def first_difference(self) -> str:
        """The first difference of the normal forms in words; empty without one."""
        return next((layer.difference for layer in self.layers if layer.difference), "")

    def columns(self) -> Columns:
        """Compare the normal forms layer by layer."""
        rows = []
        for layer in self.layers:
            differing = "-" if layer.differing is None else str(layer.differing)
            rows.append([layer.layer, str(layer.first), str(layer.second), differing])
        heads = ["layer", "neurons of A", "of B", "differ"]
        if self.shared:
            heads.append("shared")
            # The output has no neurons that could be shared.
            shared = [*map(str, self.shared), ""]
            rows = [[*row, cell] for row, cell in zip(rows, shared, strict=True)]
        return Columns(heads, rows)

    def below(self) -> list[str]:
        """Name the first difference, which often tells what was changed."""
        return [f"first difference: {self.first_difference}"] if self.first_difference else []

    def facts(self) -> dict[str, Any]:
        """Give all layers, pairs of classes and inputs."""
        return {
            "how": self.how,
            "scope": self.scope,
            "first_difference": self.first_difference or None,
            "layers": [layer.to_dict() for layer in self.layers],
            "shared": list(self.shared),
            "difference": None if self.difference is None else self.difference.to_dict(),
            "inputs": None if self.inputs is None else self.inputs.to_dict(),
            "targets": [t.to_dict() for t in self.targets],
            "rounding": None if self.rounding is None else vars(self.rounding),
        }


_REASONS: dict[str, str] = {
    "neurons": "because the networks have the same neurons in another form",
    "one class": "because each network has one class there",
    "product": "proved for both networks together",
    "inputs": "evaluated exactly",
}
