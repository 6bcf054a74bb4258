"""The ordinary certificates in a file, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.counterexample import check_point
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.proof import check_trees
from bnncert.kernel.statement import Statement
from bnncert.model.network import Network

#: Fields and arrays of a statement that `Statement.read` compares with the network, or that are
#: only evidence.
COMPARED, EVIDENCE = {"network", "sizes", "sign_zero"}, {"inside"}


class PartReader:
    """Reads and checks the parts of a file; each begins with a section `statement`.

    Attributes
    ----------
    targets, clauses, leaves
        The sizes of all proofs that have been checked.
    """

    def __init__(self, sections: Iterator[Section]) -> None:
        self._sections = sections
        #: The first section of the part that follows, if it has been read.
        self._first: Section | None = None
        self.targets = self.clauses = self.leaves = 0

    def take(self, network: Network, needed: Section | None = None) -> Statement:
        """Check the next part, which has to be about this network; return what it proves.

        With `needed`, a section `statement`, the part has to state exactly the same verdict,
        arithmetic, region and property.
        """
        sections = self._part()
        first = next(sections, Section("end"))
        statement = Statement.read(first, network)
        if needed is not None:
            _refuse_other_statement(first, needed)
        geometry = Geometry(network.layers[0], statement.space, float32=statement.float32)
        if statement.verdict == "not_robust":
            statement = check_point(sections, statement, network, geometry)
        else:
            clauses, leaves = check_trees(sections, statement, network, geometry)
            self.clauses += clauses
            self.leaves += leaves
        self.targets += len(statement.targets)
        return statement

    def finish(self) -> None:
        """Refuse a file with more parts than were taken."""
        more = self._first or next(self._sections, None)
        if more is not None:
            raise UnreadableError(f"section {more.name!r} is unknown or out of place")

    def _part(self) -> Iterator[Section]:
        """Yield the sections up to the next statement, which is kept."""
        first, self._first = self._first or next(self._sections, None), None
        if first is None:
            return
        yield first
        for section in self._sections:
            if section.name == "statement":
                self._first = section
                return
            yield section


def _refuse_other_statement(stated: Section, needed: Section) -> None:
    """Reject a part with another verdict, arithmetic, region or property than is needed."""
    fields, wanted = (
        {k: v for k, v in s.fields.items() if k not in COMPARED} for s in (stated, needed)
    )
    arrays, vectors = (
        {k: v for k, v in s.arrays.items() if k not in EVIDENCE} for s in (stated, needed)
    )
    same = fields == wanted and arrays.keys() == vectors.keys()
    if not same or not all(np.array_equal(arrays[k], vectors[k]) for k in arrays):
        raise RejectedError("a part proves another statement than the claim needs")
