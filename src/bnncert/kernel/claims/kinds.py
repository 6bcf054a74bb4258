"""The kinds of claims, and the check of all of them."""

from __future__ import annotations

from bnncert.kernel.claims.claim import Claim, ClaimPart, ClaimParts, Subject
from bnncert.kernel.claims.counting import CountClaim
from bnncert.kernel.claims.equivalence import EquivalenceClaim
from bnncert.kernel.claims.explanation import ExplanationClaim
from bnncert.kernel.claims.faults import FaultsClaim
from bnncert.kernel.claims.path import PathClaim
from bnncert.kernel.claims.two_copies import TwoCopiesClaim
from bnncert.kernel.claims.union import UnionClaim
from bnncert.kernel.container import Section, UnreadableError
from bnncert.kernel.proof import PartReader
from bnncert.kernel.statement import Report, Statement, report_of

#: The claim of each kind.
CLAIMS: dict[str, type[Claim]] = {
    "count": CountClaim,
    "equivalence": EquivalenceClaim,
    "explanation": ExplanationClaim,
    "faults": FaultsClaim,
    "path": PathClaim,
    "two copies": TwoCopiesClaim,
    "union": UnionClaim,
}


def check_claim(section: Section, reader: PartReader, subject: Subject) -> Report:
    """Check a claim and its parts; return what it shows."""
    kind = section.text("kind")
    if kind not in CLAIMS:
        raise UnreadableError(f"a claim of the unknown kind {kind[:40]!r}")
    claim = CLAIMS[kind](section, subject)
    needed, proved = claim.parts(), None
    while (part := _next(needed, proved)) is not None:
        proved = reader.take(part.network, part.statement)
    reader.finish()
    shown = claim.shown()
    networks = {"network": subject.network}
    if shown.about_two and subject.other is not None:
        networks["other"] = subject.other
    return report_of(
        shown.statement,
        networks,
        shown.named,
        verdict=shown.verdict,
        targets=reader.targets,
        clauses=reader.clauses,
        leaves=reader.leaves,
        seconds=section.budget.seconds,
        assumptions=shown.assumptions,
        property={"kind": kind, "details": section.fields.get("details")},
    )


def _next(needed: ClaimParts, proved: Statement | None) -> ClaimPart | None:
    """Return the part that follows the one that has been proved; None at the end."""
    try:
        return next(needed) if proved is None else needed.send(proved)
    except StopIteration:
        return None
