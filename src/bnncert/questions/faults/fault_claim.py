"""The claim of a certificate about faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bnncert.kernel.container import Section
from bnncert.problem import Problem, Ties
from bnncert.proofs.claims import claim_section, class_details
from bnncert.questions.faults.faults_answer import FaultRow


def claim_of(problem: Problem, ties: Ties, rows: Sequence[FaultRow]) -> Section:
    """Return the section `claim` for the rows of a table."""
    details = class_details(problem, problem.network, ties)
    details["rows"] = [_row(row) for row in rows]
    return claim_section("faults", problem.region, details)


def _row(row: FaultRow) -> dict[str, Any]:
    """Return a row for JSON; `faults` is null if no faults are known that change the class."""
    faults = [[f.layer, f.neuron, f.input, f.sign] for f in row.faults]
    return {
        "kind": row.scope.kind,
        "place": row.scope.place,
        "layer": row.scope.layer,
        "certified": row.certified,
        "proof": row.proof,
        "faults": None if row.falsified is None else faults,
    }
