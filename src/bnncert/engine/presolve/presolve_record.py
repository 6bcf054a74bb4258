"""The steps of presolve, rule by rule, so that a bound can be traced back to the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray

Rule: TypeAlias = Literal[
    "stable",  # one sign is impossible by the bounds of u = w.y
    "clash",  # a conflicting pair over the region; its witness is a Farkas multiplier
    "triple",  # three conflicting signs; the witness are Farkas multipliers
    "fixed",  # a sign that conflicting pairs exclude
    "equal",  # x_a = sign x_b by conflicting pairs both ways
    "range",  # tighter bounds of u from conflicting pairs
    "literal",  # a neuron with one unstable input is that input, or its negation
    "same",  # a neuron with the row and the threshold of another
]


@dataclass(frozen=True, eq=False)
class PresolveStep:
    """One rule applied to many neurons of one layer.

    `signs` are those of the neurons, `other` and `other_signs` are the second neuron of a pair (for
    "literal" in layer `other_layers`), and `witness` holds the numbers that prove each fact.
    """

    rule: Rule
    layer: int
    neurons: IntArray
    signs: npt.NDArray[np.int8]
    other: IntArray | None = None
    other_signs: npt.NDArray[np.int8] | None = None
    other_layers: IntArray | None = None
    witness: FloatArray | None = None

    @property
    def count(self) -> int:
        """The number of facts."""
        return int(self.neurons.size)


@dataclass(eq=False)
class PresolveRecord:
    """The steps in the order in which they were taken."""

    steps: list[PresolveStep] = field(default_factory=list)

    def add(
        self,
        rule: Rule,
        layer: int,
        neurons: IntArray,
        signs: npt.NDArray[np.int8],
        **facts: npt.NDArray[Any],
    ) -> None:
        """Record a :class:`PresolveStep`, unless it is empty; `facts` are its other fields."""
        if neurons.size:
            self.steps.append(PresolveStep(rule, layer, neurons, signs, **facts))

    def counts(self) -> dict[tuple[int, str], int]:
        """Return the number of facts by layer and rule."""
        totals: dict[tuple[int, str], int] = {}
        for step in self.steps:
            key = (step.layer, step.rule)
            totals[key] = totals.get(key, 0) + step.count
        return totals
