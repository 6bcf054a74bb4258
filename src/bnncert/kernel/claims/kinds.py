"""The kinds of claims."""

from __future__ import annotations

from bnncert.kernel.claims.counting import check_count
from bnncert.kernel.claims.equivalence import check_equivalence
from bnncert.kernel.claims.explanation import check_explanation
from bnncert.kernel.claims.faults import check_faults
from bnncert.kernel.claims.path import check_path
from bnncert.kernel.claims.subject import ClaimCheck, Subject
from bnncert.kernel.claims.two_copies import check_two_copies
from bnncert.kernel.claims.union import check_union
from bnncert.kernel.container import Section, UnreadableError
from bnncert.kernel.parts import Parts
from bnncert.kernel.statement import Report, report_of

#: The check of each kind of claim.
CLAIMS: dict[str, ClaimCheck] = {
    "count": check_count,
    "equivalence": check_equivalence,
    "explanation": check_explanation,
    "faults": check_faults,
    "path": check_path,
    "two copies": check_two_copies,
    "union": check_union,
}


def check_claim(section: Section, parts: Parts, subject: Subject) -> Report:
    """Check a claim and its parts; return what it shows."""
    kind = section.text("kind")
    if kind not in CLAIMS:
        raise UnreadableError(f"a claim of the unknown kind {kind[:40]!r}")
    shown = CLAIMS[kind](section, parts, subject)
    parts.finish()
    networks = {"network": subject.network}
    if shown.about_two and subject.other is not None:
        networks["other"] = subject.other
    return report_of(
        shown.statement,
        networks,
        shown.named,
        verdict=shown.verdict,
        targets=parts.targets,
        clauses=parts.clauses,
        leaves=parts.leaves,
        seconds=section.budget.seconds,
        assumptions=shown.assumptions,
        property={"kind": kind, "details": section.fields.get("details")},
    )
