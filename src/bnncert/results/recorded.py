"""A results file as the reports read it: all rows without the evidence, and the networks.

Answers of other kinds are there as well; a file may have nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bnncert.errors import InputError
from bnncert.results.other_answers import Kind, OtherAnswer
from bnncert.results.rows import Evidence, InputRecord, NetworkRecord, Row
from bnncert.results.store import ResultsFile


@dataclass(frozen=True, eq=False)
class Recorded:
    """The rows of a file in the order of writing, its networks by hash, and its titles."""

    path: Path
    rows: tuple[Row, ...]
    networks: dict[str, NetworkRecord]
    #: The titles of the experiments; empty if the rows come from `bnncert run`.
    titles: tuple[str, ...] = ()
    #: Explanations, weight faults and counts, in the order of writing.
    others: tuple[OtherAnswer, ...] = ()

    @property
    def model_hashes(self) -> list[str]:
        """The networks of all rows and answers, in the order of their first one."""
        asked = (row.key.model_hash for row in self.rows)
        return list(dict.fromkeys([*asked, *(other.model_hash for other in self.others)]))

    @property
    def count(self) -> int:
        """The number of answers of all kinds."""
        return len(self.rows) + len(self.others)

    def of_kind(self, kind: Kind) -> list[OtherAnswer]:
        """Return the answers of one other kind, in the order of writing."""
        return [other for other in self.others if other.kind == kind]

    def network(self, model_hash: str) -> NetworkRecord:
        """Return the description of a network; without one, its name is the start of its hash."""
        return self.networks.get(model_hash) or NetworkRecord(model_hash, model_hash[:12])

    def evidence(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Evidence]]:
        """Read the evidence of these rows, one after the other."""
        with ResultsFile(self.path, writable=False) as results:
            for row in rows:
                yield row, results.evidence(row)

    def inputs(self, hashes: Iterable[str]) -> dict[str, InputRecord]:
        """Read the inputs of these hashes, as far as the file has them."""
        with ResultsFile(self.path, writable=False) as results:
            found = {name: results.find_input(name) for name in hashes}
        return {name: record for name, record in found.items() if record is not None}


def read_recorded(path: Path) -> Recorded:
    """Read a results file; raise InputError if it is not a known one, or contains no answer."""
    with ResultsFile(path, writable=False) as results:
        rows = tuple(results.rows(evidence=False))
        others = tuple(results.other_answers())
        if not rows and not others:
            raise InputError(f"{path}: holds no results yet")
        networks = {record.model_hash: record for record in results.networks()}
        return Recorded(path, rows, networks, tuple(results.titles()), others)
