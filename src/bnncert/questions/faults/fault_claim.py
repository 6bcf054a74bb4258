"""The claim of a certificate about faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bnncert.kernel.container import Section
from bnncert.problem import Problem, Ties
from bnncert.proofs.statement_section import region_section
from bnncert.questions.faults.faults_answer import FaultRow


def claim_of(problem: Problem, ties: Ties, rows: Sequence[FaultRow]) -> Section:
    """Return the section `claim` for the rows of a table."""
    region = region_section(problem.region)
    details: dict[str, Any] = {
        "network": problem.network.content_hash,
        "label": problem.label,
        "rivals": [int(t.rival) for t in problem.targets if t.rival is not None],
        "ties": ties,
        "region": region.fields,
        "rows": [_row(row) for row in rows],
    }
    return Section("claim", {"kind": "faults", "details": details}, region.arrays)


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
