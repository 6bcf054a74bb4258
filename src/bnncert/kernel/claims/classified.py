"""What claims about shapes of change have in common: an image, its data box and its class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.claims.subject import Shown, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.function import Function
from bnncert.kernel.space import data_box_words, different, read_radius, refuse_wide
from bnncert.kernel.statement import SIGN_OF_ZERO, TIES, ScoreFunction, read_property
from bnncert.model.network import Network

#: The details of every such claim.
COMMON = ("network", "verdict", "norm", "radius", "label", "rivals", "ties")


@dataclass(frozen=True, eq=False)
class ClassifiedImage:
    """The image, its data box, and the functions that have to be positive."""

    image: FloatArray
    lower: FloatArray | None
    upper: FloatArray | None
    functions: list[Function]
    #: The property as a statement has it, and in words.
    property: dict[str, Any]
    words: str
    verdict: str
    assumptions: dict[str, str]

    @staticmethod
    def read(section: Section, found: dict[str, Any], subject: Subject) -> ClassifiedImage:
        """Read the common numbers of a claim."""
        network = subject.network
        subject.refuse_other_hash(found["network"])
        if found["verdict"] not in ("robust", "not_robust"):
            raise UnreadableError("section claim: the verdict is neither robust nor not_robust")
        stated = {"kind": "classification"} | {k: found[k] for k in ("label", "rivals", "ties")}
        targets, words, ties = read_property(stated, network)
        image = section.floats("image", network.inputs)
        lower, upper = (
            section.floats(name, network.inputs) if name in section.arrays else None
            for name in ("clip_lo", "clip_hi")
        )
        refuse_wide(np.concatenate([v for v in (image, lower, upper) if v is not None]))
        if (lower is not None and np.any(image < lower)) or (
            upper is not None and np.any(image > upper)
        ):
            raise RejectedError("the image lies outside the data box")
        return ClassifiedImage(
            image,
            lower,
            upper,
            [_single(target).of(network) for target in targets],
            stated,
            words,
            found["verdict"],
            {
                "sign_zero": network.sign_zero,
                "arithmetic": "real",
                "ties": ties,
                "data_box": data_box_words(lower, upper, network),
                "inputs": "shown",
            },
        )

    def shown(self, inputs: str, network: Network) -> Shown:
        """Return what is shown; `inputs` are those that it is about, as in "every shift"."""
        settings = ["real arithmetic", SIGN_OF_ZERO[network.sign_zero], TIES[self.property["ties"]]]
        start = f"for {inputs}, {self.assumptions['data_box']}: "
        if self.verdict == "not_robust":
            some = inputs.replace(" and every ", " or some ").replace("every ", "some ")
            start = f"{some}, {self.assumptions['data_box']}, violates: "
        words = f"{start}{self.words} ({', '.join(settings)})"
        box = [side for side in (self.lower, self.upper) if side is not None]
        named = {"centre": self.image} | different({"data_box": box})
        return Shown(words, self.verdict, self.assumptions, named)

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


def stated_radius(value: Any) -> float:
    """Return the radius, which is a float >= 0 in every claim."""
    radius = read_radius(value)
    refuse_wide(np.array([radius, 1.0]))
    return radius


def exact_list(numbers: npt.NDArray[np.float64]) -> list[Fraction]:
    """Return floats as rationals."""
    return [Fraction(v) for v in numbers.tolist()]
