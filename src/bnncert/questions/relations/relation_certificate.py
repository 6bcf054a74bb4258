"""Certificates about two copies of a network: the claim, and one part for each small change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from bnncert.engine.verdict import Counterexample
from bnncert.kernel.container import Section
from bnncert.kernel.rules.relation_products import violation_name
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.proofs.claims import claim_section, write_claim
from bnncert.proofs.request import CertificateRequest
from bnncert.proofs.writing import write_counterexample
from bnncert.questions.relations.changes import Change, PairQuestion
from bnncert.questions.relations.relation_parts import PairPart


@dataclass(frozen=True, eq=False)
class RelationWriter:
    """Writes the certificate of a relation; its parts are kept in a temporary folder."""

    path: Path
    network: Network
    folder: Path

    @staticmethod
    @contextmanager
    def into(
        path: str | os.PathLike[str] | None, network: Network
    ) -> Iterator[RelationWriter | None]:
        """Return the writer, or None without a path."""
        if path is None:
            yield None
            return
        # This refuses the file of the network itself.
        request = CertificateRequest(Path(path), network)
        with folder_for(path) as folder:
            yield RelationWriter(request.path, network, folder)

    def part(self, number: int, part: PairPart) -> CertificateRequest:
        """Return what makes a verification write the certificate of a part."""
        return CertificateRequest(self._file(number), part.problem.network)

    def _file(self, number: int) -> Path:
        return self.folder / str(number)

    def write(self, question: PairQuestion, count: int) -> str:
        """Write the claim that the relation holds, with the parts of all changes."""
        files = [self._file(number) for number in range(count)]
        write_claim(self.path, _claim(question, None), files)
        return str(self.path)

    def write_failure(
        self,
        question: PairQuestion,
        number: int,
        part: PairPart,
        found: Counterexample,
        classes: tuple[int, int],
    ) -> str:
        """Write the claim that a part fails for two inputs of these classes."""
        names = [target.name for target in part.problem.targets]
        chosen = 0
        if question.relation.score is None:
            chosen = names.index(violation_name(*classes))
        problem = replace(part.problem, targets=(part.problem.targets[chosen],))
        point = replace(found, target=names[chosen])
        write_counterexample(self._file(number), problem, problem.network, point)
        write_claim(self.path, _claim(question, [number, chosen]), [self._file(number)])
        return str(self.path)


def _claim(question: PairQuestion, failure: list[int] | None) -> Section:
    """Return the claim; `failure` is the number of a part and of the way in which it fails."""
    details = {
        "network": question.network.content_hash,
        "relation": vars(question.relation).copy(),
        "changes": [_change(change) for change in question.changes],
        "one_hot": [list(group) for group in question.one_hot],
        "failure": failure,
    }
    return claim_section("two copies", question.box, details)


def _change(change: Change) -> dict[str, Any]:
    """Return a change with exact numbers."""
    return {
        "features": list(change.features),
        "step": None if change.step is None else str(Fraction(change.step)),
        "values": [[str(Fraction(v)) for v in state] for state in change.values],
    }
