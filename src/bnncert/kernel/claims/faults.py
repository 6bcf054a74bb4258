"""The claim that faults of weights and thresholds are tolerated, or change the class.

Each row of the claim is about one scope.  For its certified number of faults the checker derives
the questions of :mod:`bnncert.kernel.rules.fault_questions` from the network, and every question
has to be answered by a part, once; the last layers at one point are computed here.  For
faults that change the class the part is a counterexample to the network with these faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, StatedRegion, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.rules.fault_questions import FaultQuestion, FaultScope, FaultSetting
from bnncert.kernel.rules.weight_flips import Fault, FaultError, refuse_shared_weights, with_faults
from bnncert.kernel.space import Space
from bnncert.kernel.statement import classification, read_property
from bnncert.model.network import Network

FIELDS = ("network", "label", "rivals", "ties", "region", "rows")
ROW = {"kind", "place", "layer", "certified", "proof", "faults"}


class FaultsClaim:
    """The claim about faults; all rows have the region, the class and its rivals in common."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found, self._network = subject.details(section, FIELDS), subject.network
        self._label, self._rivals, self._ties = (found[k] for k in ("label", "rivals", "ties"))
        self._property = classification(self._label, self._rivals, self._ties)
        read_property(self._property, self._network)
        try:
            refuse_shared_weights(self._network)
        except FaultError as error:
            raise RejectedError(str(error)) from error
        #: The inputs that count.
        self.region = StatedRegion.read(section, self._network)
        box = box_around(self.region.space)
        #: What all rows have in common.
        self.setting = FaultSetting(self._network, self._label, self._rivals, *box)
        #: The questions that parts have answered.
        self._proved = set[tuple[str, int | None]]()
        self._rows, self._words = found["rows"], list[str]()

    def part(self, question: FaultQuestion) -> ClaimPart:
        """Return the part that answers a question: on the region, or for few flips in all."""
        region = self.region.section
        if question.flips is not None:
            region = _few_flips(question.network.inputs, question.flips)
        return ClaimPart(question.network, region, self._property)

    def parts(self) -> ClaimParts:
        """Yield the parts of all rows, each once."""
        if not isinstance(self._rows, list) or not self._rows:
            raise UnreadableError("section claim: there are no rows")
        seen = set[FaultScope]()
        for row in self._rows:
            if not isinstance(row, dict) or row.keys() != ROW:
                raise UnreadableError("section claim: a row has other fields than it should")
            scope = FaultScope(row["kind"], row["place"], row["layer"])
            try:
                scope.refuse_missing(self._network)
                if scope in seen:
                    raise RejectedError("two rows are about the same faults")
                yield from self._row_parts(scope, row)
            except FaultError as error:
                raise RejectedError(f"a row is not proved: {error}") from error
            seen.add(scope)

    def shown(self) -> Shown:
        """Tell all rows in one sentence, since the claim is that all of them hold."""
        classes = f"class {self._label} against {', '.join(map(str, self._rivals))}"
        words = f"for every input in {self.region.place}, {classes}: {'; '.join(self._words)}"
        return self.region.shown(words, "faults", self._network, self._ties)

    def _row_parts(self, scope: FaultScope, row: dict[str, Any]) -> ClaimParts:
        """Yield the parts that one row needs, and tell it in words."""
        count, size, told = row["certified"], scope.size(self._network), []
        if count is not None:
            if type(count) is not int or not 0 <= count <= size:
                raise RejectedError("a certified number of faults is not possible")
            yield from self._tolerated_parts(scope, count, row["proof"])
            told.append(_tolerated(count, size))
        if row["faults"] is not None:
            faults = _faults(row["faults"])
            _refuse_outside(scope, faults)
            faulty, region = with_faults(self._network, faults), self.region.section
            yield ClaimPart(faulty, region, self._property, "not_robust")
            told.append(_not_tolerated(len(faults)))
        if not told:
            raise RejectedError("a row claims nothing")
        self._words.append(f"{_words(scope, self._network)}: {', '.join(told)}")

    def _tolerated_parts(self, scope: FaultScope, count: int, proof: Any) -> ClaimParts:
        if proof == "computed":
            if proof not in self.setting.proofs(scope):
                raise RejectedError("a row that needs a proof has none")
            if not self.setting.is_computed(scope, count, self._ties):
                raise RejectedError("faults of the last layers may change the class")
            return
        for question in self.setting.questions(scope, count, proof):
            key = (question.network.content_hash, question.flips)
            if key not in self._proved:
                yield self.part(question)
                self._proved.add(key)


def _few_flips(size: int, flips: int) -> Section:
    """Return the region of numbers of flips that are few in all."""
    zero, one = np.zeros(size), np.ones(size)
    fields = {"region": "l1", "radius": str(flips), "grid": "float32"}
    arrays = {"center": zero, "clip_lo": zero, "clip_hi": max(flips, 1) * one}
    return Section("statement", fields, arrays | {"grid_step": one, "grid_origin": zero})


def box_around(space: Space) -> tuple[FloatArray, FloatArray]:
    """Return floats around the region, which are exact where its bounds are floats."""
    lower, upper = space.rationals(space.lower), space.rationals(space.upper)
    low = np.array([float(v) for v in lower])
    high = np.array([float(v) for v in upper])
    below = [Fraction(a) > b for a, b in zip(low.tolist(), lower, strict=True)]
    above = [Fraction(a) < b for a, b in zip(high.tolist(), upper, strict=True)]
    low[below], high[above] = np.nextafter(low[below], -np.inf), np.nextafter(high[above], np.inf)
    return low, high


def _faults(value: Any) -> list[Fault]:
    if not isinstance(value, list):
        raise UnreadableError("section claim: faults are not a list")
    faults = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 4:
            raise UnreadableError("section claim: a fault does not have four numbers")
        layer, neuron, place, sign = entry
        if not all(type(v) is int for v in (layer, neuron, sign)) or type(place) not in (
            int,
            type(None),
        ):
            raise UnreadableError("section claim: a fault is not made of integers")
        faults.append(Fault(layer, neuron, place, sign))
    return faults


def _refuse_outside(scope: FaultScope, faults: Sequence[Fault]) -> None:
    """Reject faults that do not belong to the scope."""
    for fault in faults:
        is_weight = fault.input is not None
        if is_weight != (scope.kind == "weights") or (fault.sign != 0) == is_weight:
            raise RejectedError("a fault is of another kind than its row")
        if scope.layer is not None and fault.layer != scope.layer:
            raise RejectedError("a fault is in another layer than its row")
    if scope.place == "neuron" and len({fault.neuron for fault in faults}) > 1:
        raise RejectedError("faults of several neurons are in a row about one neuron")


def _tolerated(count: int, size: int) -> str:
    if not count:
        return "the class holds without any"
    some = f"all {size}" if count == size else f"any {count}"
    return f"{some} {'is' if count == 1 else 'are'} tolerated"


def _not_tolerated(count: int) -> str:
    if not count:
        return "the class differs without any"
    return f"some {count} {'is' if count == 1 else 'are'} not tolerated"


def _words(scope: FaultScope, network: Network) -> str:
    """Return the faults of a scope in words."""
    kind = "flipped weights" if scope.kind == "weights" else "stuck thresholds"
    if scope.layer is None:
        return f"{kind} anywhere"
    where = "the output" if scope.layer == network.depth else f"layer {scope.layer + 1}"
    one = "one score of " if scope.layer == network.depth else "one neuron of "
    return f"{kind} in {one if scope.place == 'neuron' else ''}{where}"
