"""A results file as the reports read it: all rows, without the evidence, and the networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bnncert.batch.rows import Evidence, NetworkRecord, Row
from bnncert.batch.store import ResultsFile
from bnncert.errors import InputError


@dataclass(frozen=True, eq=False)
class Recorded:
    """The rows of a file in the order of writing, its networks by hash, and its titles."""

    path: Path
    rows: tuple[Row, ...]
    networks: dict[str, NetworkRecord]
    #: The titles of the experiments; empty if the rows come from `bnncert run`.
    titles: tuple[str, ...] = ()

    def network(self, model_hash: str) -> NetworkRecord:
        """Return the description of a network; without one, its name is the start of its hash."""
        return self.networks.get(model_hash) or NetworkRecord(model_hash, model_hash[:12])

    def evidence(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Evidence]]:
        """Read the evidence of these rows, one after the other."""
        with ResultsFile(self.path, writable=False) as results:
            for row in rows:
                yield row, results.evidence(row)


def read_recorded(path: Path) -> Recorded:
    """Read a results file; raise InputError if it is not a known one, or contains no row."""
    with ResultsFile(path, writable=False) as results:
        rows = tuple(results.rows(evidence=False))
        if not rows:
            raise InputError(f"{path}: holds no results yet")
        networks = {record.model_hash: record for record in results.networks()}
        return Recorded(path, rows, networks, tuple(results.titles()))
