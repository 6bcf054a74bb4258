"""What a search for an explanation has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.engine.answer import Answer, Columns
from bnncert.engine.verdict import Counterexample, Status
from bnncert.questions.explain.domain import Domain


@dataclass(frozen=True)
class ExplanationStep:
    """One verification: `free` inputs were free, `added` of them for the first time."""

    free: int
    added: int
    status: Status
    method: str
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Answer):
    """Inputs that suffice for the class: with them as in the image, no other input can change it.

    ``print`` and notebooks show one row for each verification of the search.

    Attributes
    ----------
    label
        The class that is explained.
    domain
        The image, and the values that inputs take if they are not kept (`domain.text`).
    kept
        The inputs of the explanation, in ascending order.
    witnesses
        For each input that is shown to be needed, a counterexample that differs from the image only
        in this input and in inputs that are not kept.
    steps
        The verifications, in the order in which they were made.
    seconds
        The time of the whole search.
    out_of_time
        Whether the time limit ended the search.
    certificate
        The file of the certificate, if it was requested and written.
    no_certificate
        Why there is no certificate.
    """

    HOLDS = frozenset({"minimal"})
    lower = upper = None
    notes = ()

    label: int
    domain: Domain
    kept: tuple[int, ...]
    witnesses: Mapping[int, Counterexample]
    steps: tuple[ExplanationStep, ...]
    seconds: float
    out_of_time: bool = False
    certificate: str | None = None
    no_certificate: str = ""

    @property
    def status(self) -> Literal["minimal", "sufficient"]:
        """Whether each kept input is shown to be needed, or only that they suffice."""
        return "minimal" if self.minimal else "sufficient"

    @property
    def evidence(self) -> Mapping[int, Counterexample]:
        """The witnesses."""
        return self.witnesses

    @property
    def inputs(self) -> int:
        """The number of inputs of the network."""
        return self.domain.size

    @property
    def open(self) -> tuple[int, ...]:
        """The kept inputs that are not shown to be needed."""
        return tuple(i for i in self.kept if i not in self.witnesses)

    @property
    def minimal(self) -> bool:
        """Whether each kept input is shown to be needed: no subset of `kept` suffices."""
        return not self.open

    @cached_property
    def mask(self) -> BoolArray:
        """For each input whether it is kept."""
        kept = np.zeros(self.inputs, dtype=np.bool_)
        kept[list(self.kept)] = True
        return kept

    @property
    def summary(self) -> str:
        """The answer in a few words."""
        kept, needed = len(self.kept), len(self.witnesses)
        verb = "suffices" if kept == 1 else "suffice"
        text = f"{kept} of {self.inputs} inputs {verb} for class {self.label}"
        if not kept:
            return f"class {self.label} for all values of all {self.inputs} inputs in their domain"
        if self.minimal:
            return f"{text}, and {'it' if kept == 1 else 'each of them'} is needed"
        return f"{text}; {needed} of them {'is' if needed == 1 else 'are'} shown to be needed"

    def columns(self) -> Columns:
        """Return the verifications of the search."""
        rows = [
            [str(s.free), str(s.added), s.status.replace("_", " "), s.method, f"{s.seconds:.2f}"]
            for s in self.steps
        ]
        heads = ["free inputs", "of them new", "answer", "decided by", "seconds"]
        return Columns(heads, rows, left=0)

    def below(self) -> list[str]:
        """Return the values that the other inputs take."""
        return [f"other inputs: {self.domain.text}"]

    def facts(self) -> dict[str, Any]:
        """Return plain data; witnesses contain only the inputs that differ."""
        return {
            "label": self.label,
            "inputs": self.inputs,
            "domain": self.domain.text,
            "kept": list(self.kept),
            "needed": sorted(self.witnesses),
            "open": list(self.open),
            "minimal": self.minimal,
            "out_of_time": self.out_of_time,
            "calls": len(self.steps),
            "steps": [vars(step) for step in self.steps],
            "witnesses": {str(i): self._changes(i) for i in sorted(self.witnesses)},
        }

    def _changes(self, needed: int) -> dict[str, Any]:
        """Return where a witness differs from the image, and its class."""
        found = self.witnesses[needed]
        changed = np.flatnonzero(found.point != self.domain.image)
        tree: dict[str, Any] = {
            "changed": changed.tolist(),
            "values": found.point[changed].tolist(),
            "target": found.target,
            "predicted": found.predicted,
        }
        if found.exact is not None:
            tree["values_exact"] = [str(found.exact[i]) for i in changed]
        return tree
