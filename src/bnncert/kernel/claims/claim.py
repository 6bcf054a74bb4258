"""What a claim is: the specification that a question and the checker share.

A claim says which statements have to be proved, and what follows from them.  It is the first
section of a composite certificate: its `kind`, its `details`, and its arrays.  The region of a
claim has its fields in `details["region"]` and its arrays among those of the claim, as an ordinary
statement has them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.container import REGION_ARRAYS, RejectedError, Section, UnreadableError
from bnncert.kernel.space import (
    REGION_FIELDS,
    Space,
    data_box_words,
    different,
    has_input,
    read_radius,
    read_space,
    refuse_wide,
)
from bnncert.kernel.statement import SIGN_OF_ZERO, TIES, Statement, classification, read_property
from bnncert.model.network import Network


@dataclass(frozen=True, eq=False)
class Subject:
    """The networks that the caller names."""

    network: Network
    other: Network | None = None

    def details(self, section: Section, names: tuple[str, ...]) -> dict[str, Any]:
        """Read the details of a claim, which has to name the network of the caller."""
        found = section.details(names)
        if found["network"] != self.network.content_hash:
            raise RejectedError("it is about another network")
        return found


@dataclass(frozen=True, eq=False)
class ClaimPart:
    """What one ordinary certificate has to prove."""

    #: The network that it is about: that of the claim, or one that is derived from it.
    network: Network
    #: A section that states only the region.
    region: Section
    #: The property.
    goal: dict[str, Any]
    #: "robust", or "not_robust" for a counterexample.
    verdict: str = "robust"

    @property
    def statement(self) -> Section:
        """The section `statement` of the certificate, without what names the network."""
        fields = {"verdict": self.verdict, "arithmetic": "real", "property": self.goal}
        return Section("statement", self.region.fields | fields, self.region.arrays)


#: Yields the parts of a claim, and gets the statement of each after it has been checked.
ClaimParts: TypeAlias = Generator[ClaimPart, Statement, None]


@dataclass(frozen=True)
class Shown:
    """What an accepted claim shows."""

    #: The claim in words.
    statement: str
    #: The verdict in one word, such as "explanation".
    verdict: str
    #: Those of :class:`bnncert.kernel.statement.Report`.
    assumptions: dict[str, str]
    #: The numbers by which the inputs are named, as in `bnncert.kernel.space.Space`.
    named: dict[str, FloatArray]
    #: Whether the claim is about both networks.
    about_two: bool = False


class Claim(Protocol):
    """A claim of one kind; it raises RejectedError or UnreadableError if it does not hold."""

    def __init__(self, section: Section, subject: Subject) -> None:
        """Read the claim, and refuse one that is not about the subject."""

    def parts(self) -> ClaimParts:
        """Yield what has to be proved; what needs no part is computed here, and has to hold."""

    def shown(self) -> Shown:
        """Say what follows once all parts are proved, and on what it relies."""


# -- what claims have in common ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StatedRegion:
    """The region of a claim."""

    #: A section `statement` that states only the region.
    section: Section
    #: The region in exact numbers and in words, and its data box in words.
    space: Space
    place: str
    box: str
    #: Whether it is "shown" to have an input, or "not shown".
    inputs: str

    @staticmethod
    def read(section: Section, network: Network) -> StatedRegion:
        """Read the region of a claim."""
        fields = section.fields["details"]["region"]
        if not isinstance(fields, dict) or not fields.keys() <= {"region", *REGION_FIELDS}:
            raise UnreadableError("section claim: the region is not one")
        arrays = {k: v for k, v in section.arrays.items() if k in REGION_ARRAYS}
        stated = Section("statement", fields, arrays, section.budget, section.read)
        space, place, box = read_space(stated, network)
        inputs = "shown" if has_input(stated, space, False) else "not shown"
        return StatedRegion(stated, space, place, box, inputs)

    def shown(self, words: str, verdict: str, network: Network, ties: str) -> Shown:
        """Return what is shown about classes or scores of one network on the region."""
        settings = ["real arithmetic", SIGN_OF_ZERO[network.sign_zero], TIES[ties]]
        if self.inputs != "shown":
            settings.append("not shown: that the region has an input")
        assumptions = {
            "sign_zero": network.sign_zero,
            "arithmetic": "real",
            "ties": ties,
            "data_box": self.box,
            "inputs": self.inputs,
        }
        return Shown(f"{words} ({', '.join(settings)})", verdict, assumptions, self.space.named)


#: The details of a claim about shapes of change.
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
        self.functions = [target[0].of(network) for target in targets]
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
                if not function.is_positive(function.at(last)):
                    raise RejectedError("an image of the claim may violate the property")
