"""What claims about shapes of change have in common: an image, its data box and its class."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor
from typing import Any

import numpy as np

from bnncert.arrays import SignArray
from bnncert.kernel.claims.claim import Shown, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.function import Function
from bnncert.kernel.space import data_box_words, different, read_radius, refuse_wide
from bnncert.kernel.statement import (
    SIGN_OF_ZERO,
    TIES,
    ScoreFunction,
    classification,
    read_property,
)

#: The details of every such claim.
COMMON = ("network", "verdict", "region", "label", "rivals", "ties")


class ClassifiedImage:
    """The image, its data box, the functions that have to be positive, and the shape of change.

    The region of the claim has the name of a shape, its radius, and what else is `more` fields of
    it; its arrays are those of a ball.
    """

    def __init__(
        self, section: Section, found: dict[str, Any], subject: Subject, more: tuple[str, ...] = ()
    ) -> None:
        self.network = network = subject.network
        subject.refuse_other_hash(found["network"])
        self.verdict, shape = found["verdict"], found["region"]
        if self.verdict not in ("robust", "not_robust"):
            raise UnreadableError("section claim: the verdict is neither robust nor not_robust")
        if not isinstance(shape, dict) or shape.keys() != {"region", "radius", *more}:
            raise UnreadableError("section claim: the region is not a shape of change")
        self.shape = shape
        self.radius = read_radius(shape["radius"])
        refuse_wide(np.array([self.radius, 1.0]))
        #: The property as a statement has it, and in words.
        self.property = classification(*(found[k] for k in ("label", "rivals", "ties")))
        targets, self._words, self._ties = read_property(self.property, network)
        self.functions = [_single(target).of(network) for target in targets]
        self.image = section.floats("center", network.inputs)
        self.lower, self.upper = (
            section.floats(name, network.inputs) if name in section.arrays else None
            for name in ("clip_lo", "clip_hi")
        )
        self._box = [side for side in (self.lower, self.upper) if side is not None]
        refuse_wide(np.concatenate([self.image, *self._box]))
        if (self.lower is not None and np.any(self.image < self.lower)) or (
            self.upper is not None and np.any(self.image > self.upper)
        ):
            raise RejectedError("the image lies outside the data box")

    def shown(self, inputs: str) -> Shown:
        """Return what is shown; `inputs` are those that it is about, as in "every shift"."""
        box = data_box_words(self.lower, self.upper, self.network)
        settings = ["real arithmetic", SIGN_OF_ZERO[self.network.sign_zero], TIES[self._ties]]
        start = f"for {inputs}, {box}: "
        if self.verdict == "not_robust":
            some = inputs.replace(" and every ", " or some ").replace("every ", "some ")
            start = f"{some}, {box}, violates: "
        assumptions = {
            "sign_zero": self.network.sign_zero,
            "arithmetic": "real",
            "ties": self._ties,
            "data_box": box,
            "inputs": "shown",
        }
        named = {"centre": self.image} | different({"data_box": self._box})
        words = f"{start}{self._words} ({', '.join(settings)})"
        return Shown(words, self.verdict, assumptions, named)

    def refuse_violation(self, lasts: Iterable[SignArray]) -> None:
        """Reject last-layer signs at which a function is not certainly positive."""
        for last in lasts:
            for function in self.functions:
                if weighted(function, last) < least_sum(function):
                    raise RejectedError("an image of the claim may violate the property")


def _single(target: list[ScoreFunction]) -> ScoreFunction:
    (function,) = target
    return function


def weighted(function: Function, signs: SignArray) -> int:
    """Return the weighted sum of signs, without constant and denominator."""
    return int((function.weights * signs.astype(object)).sum())


def least_sum(function: Function) -> int:
    """Return the least weighted sum at which the function is certainly positive."""
    limit = (function.doubt - function.constant) * function.denominator
    return ceil(limit) if function.tie_is_fine else floor(limit) + 1
