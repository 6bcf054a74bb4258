"""What a claim is: the specification that a question and the checker share.

A claim says which statements have to be proved, and what follows from them.  It is the first
section of a composite certificate: its `kind`, its `details`, and its arrays.  The region of a
claim has its fields in `details["region"]` and its arrays among those of the claim, as an ordinary
statement has them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bnncert.arrays import FloatArray
from bnncert.kernel.container import REGION_ARRAYS, RejectedError, Section, UnreadableError
from bnncert.kernel.space import REGION_FIELDS, Space, has_input, read_space
from bnncert.kernel.statement import SIGN_OF_ZERO, TIES, Statement
from bnncert.model.network import Network


@dataclass(frozen=True, eq=False)
class Subject:
    """The networks that the caller names."""

    network: Network
    other: Network | None = None

    def refuse_other_hash(self, stated: Any) -> None:
        """Reject a claim that names another network than the caller."""
        if stated != self.network.content_hash:
            raise RejectedError("it is about another network")


@dataclass(frozen=True, eq=False)
class ClaimPart:
    """What one ordinary certificate has to prove.

    Attributes
    ----------
    network
        The network that it is about: that of the claim, or one that is derived from it.
    region
        A section that states only the region.
    goal
        The property.
    verdict
        "robust", or "not_robust" for a counterexample.
    """

    network: Network
    region: Section
    goal: dict[str, Any]
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
    """What an accepted claim shows.

    Attributes
    ----------
    statement
        The claim in words.
    verdict
        The verdict in one word, such as "explanation".
    assumptions
        Those of :class:`bnncert.kernel.statement.Report`.
    named
        The numbers by which the inputs are named, as in `bnncert.kernel.space.Space`.
    about_two
        Whether the claim is about both networks.
    """

    statement: str
    verdict: str
    assumptions: dict[str, str]
    named: dict[str, FloatArray]
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
    """The region of a claim.

    Attributes
    ----------
    section
        A section `statement` that states only the region.
    space, place, box
        The region in exact numbers and in words, and its data box in words.
    inputs
        Whether it is "shown" to have an input, or "not shown".
    """

    section: Section
    space: Space
    place: str
    box: str
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
