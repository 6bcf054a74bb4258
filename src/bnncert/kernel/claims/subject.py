"""What a claim is about, what it shows, and how its fields are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from bnncert.arrays import FloatArray
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.parts import Parts
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


#: Checks a claim with its parts; it raises RejectedError or UnreadableError.
ClaimCheck: TypeAlias = Callable[[Section, Parts, Subject], Shown]


def details(section: Section, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the field `details`, which has exactly the fields with these names."""
    found = section.fields.get("details")
    if not isinstance(found, dict) or found.keys() != set(names):
        raise UnreadableError(f"section claim: details are not {', '.join(names)}")
    return found
