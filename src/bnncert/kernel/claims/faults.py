"""The claim that faults of weights and thresholds are tolerated, or change the class.

Each row of the claim is about one scope.  For its certified number of faults the checker derives
the questions of :mod:`bnncert.kernel.rules.fault_questions` from the network, and every question
has to be answered by a part, once; the last layers at one point are computed here.  For
faults that change the class the part is a counterexample to the network with these faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.claims.subject import Shown, Subject, details
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.function import Function
from bnncert.kernel.parts import Parts
from bnncert.kernel.rules.fault_questions import FaultQuestion, FaultScope, FaultSetting
from bnncert.kernel.rules.weight_flips import (
    Fault,
    FaultError,
    refuse_shared_weights,
    with_faults,
)
from bnncert.kernel.space import REGION_FIELDS, Space, has_input, read_space
from bnncert.kernel.statement import SIGN_OF_ZERO, TIES
from bnncert.model.network import Network

FIELDS = ("network", "label", "rivals", "ties", "region", "rows")
ROW = {"kind", "place", "layer", "certified", "proof", "faults"}


def check_faults(section: Section, parts: Parts, subject: Subject) -> Shown:
    """Check all rows of a claim about faults."""
    found, network = details(section, FIELDS), subject.network
    subject.refuse_other_hash(found["network"])
    claim = _FaultClaim(section, found, network)
    if not isinstance(found["rows"], list) or not found["rows"]:
        raise UnreadableError("section claim: there are no rows")
    words, seen = [], set[FaultScope]()
    for row in found["rows"]:
        if not isinstance(row, dict) or row.keys() != ROW:
            raise UnreadableError("section claim: a row has other fields than it should")
        scope = FaultScope(row["kind"], row["place"], row["layer"])
        try:
            scope.refuse_missing(network)
            if scope in seen:
                raise RejectedError("two rows are about the same faults")
            words.append(claim.check_row(scope, row, parts))
        except FaultError as error:
            raise RejectedError(f"a row is not proved: {error}") from error
        seen.add(scope)
    named = ["real arithmetic", SIGN_OF_ZERO[network.sign_zero], TIES[claim.ties]]
    if claim.inputs != "shown":
        named.append("not shown: that the region has an input")
    return Shown(
        f"for every input in {claim.place}, class {claim.label} against "
        f"{', '.join(map(str, claim.rivals))}: {'; '.join(words)} "
        f"({', '.join(named)})",
        "faults",
        {
            "sign_zero": network.sign_zero,
            "arithmetic": "real",
            "ties": claim.ties,
            "data_box": claim.box,
            "inputs": claim.inputs,
        },
        claim.named,
    )


class _FaultClaim:
    """What all rows have in common, and the questions that parts have answered."""

    def __init__(self, section: Section, found: dict[str, Any], network: Network) -> None:
        self.network = network
        self.label, self.rivals, self.ties = found["label"], found["rivals"], found["ties"]
        if not isinstance(found["region"], dict) or not isinstance(self.rivals, list):
            raise UnreadableError("section claim: no region, or no list of classes")
        if self.ties not in TIES:
            raise UnreadableError("section claim: ties is neither violation nor robust")
        classes = (self.label, *self.rivals)
        if not all(type(k) is int and 0 <= k < network.classes for k in classes):
            raise RejectedError("the claim names a class that the network does not have")
        if not self.rivals or len(set(classes)) < len(classes):
            raise RejectedError("there are no rivals, or one is the label itself or occurs twice")
        try:
            refuse_shared_weights(network)
        except FaultError as error:
            raise RejectedError(str(error)) from error
        if found["region"].keys() - {"region", *REGION_FIELDS}:
            raise UnreadableError("section claim: the region has more fields than it can have")
        self.region = replace(section, name="statement", fields=found["region"])
        space, self.place, self.box = read_space(self.region, network)
        self.named = space.named
        self.inputs = "shown" if has_input(self.region, space, False) else "not shown"
        self.setting = FaultSetting(network, self.label, self.rivals, *box_around(space))
        self.proved = set[tuple[str, int | None]]()

    def check_row(self, scope: FaultScope, row: dict[str, Any], parts: Parts) -> str:
        """Check one row with the parts that it needs; return it in words."""
        count, size = row["certified"], scope.size(self.network)
        told = []
        if count is not None:
            if type(count) is not int or not 0 <= count <= size:
                raise RejectedError("a certified number of faults is not possible")
            self._check_tolerated(scope, count, row["proof"], parts)
            told.append(_tolerated(count, size))
        if row["faults"] is not None:
            faults = _faults(row["faults"])
            _refuse_outside(scope, faults)
            faulty = with_faults(self.network, faults)
            parts.take(faulty, self._statement(self.region, "not_robust"))
            told.append(_not_tolerated(len(faults)))
        if not told:
            raise RejectedError("a row claims nothing")
        return f"{_words(scope, self.network)}: {', '.join(told)}"

    def _check_tolerated(self, scope: FaultScope, count: int, proof: Any, parts: Parts) -> None:
        if proof == "computed":
            if proof not in self.setting.proofs(scope):
                raise RejectedError("a row that needs a proof has none")
            self._compute(scope, count)
            return
        for question in self.setting.questions(scope, count, proof):
            key = (question.network.content_hash, question.flips)
            if key in self.proved:
                continue
            parts.take(question.network, self._statement(self._region_of(question), "robust"))
            self.proved.add(key)

    def _compute(self, scope: FaultScope, count: int) -> None:
        """Reject a row whose faults of the last layers lower a margin too far."""
        at = self.setting.at_point
        assert at is not None
        for rival, loss in self.setting.losses(scope, count).items():
            function = self._margin(rival)
            weighted = (function.weights * at.signs[-1].astype(object)).sum()
            value = function.constant + Fraction(weighted, function.denominator) - loss
            if value < function.doubt or (value == function.doubt and not function.tie_is_fine):
                raise RejectedError("faults of the last layers may change the class")

    def _margin(self, rival: int) -> Function:
        scores = {self.label: Fraction(1), rival: Fraction(-1)}
        return Function.of(self.network, scores, Fraction(0), self.ties == "robust")

    def _statement(self, region: Section, verdict: str) -> Section:
        """Return the statement that a part has to make."""
        property_ = {
            "kind": "classification",
            "label": self.label,
            "rivals": self.rivals,
            "ties": self.ties,
        }
        fields = {"verdict": verdict, "arithmetic": "real", "property": property_}
        return Section("statement", region.fields | fields, region.arrays)

    def _region_of(self, question: FaultQuestion) -> Section:
        """Return the inputs of a question: the region, or few flips in all."""
        if question.flips is None:
            return self.region
        size, flips = question.network.inputs, question.flips
        zero, one = np.zeros(size), np.ones(size)
        fields = {"region": "l1", "radius": str(flips), "grid": "float32"}
        arrays = {"center": zero, "clip_lo": zero, "clip_hi": max(flips, 1) * one}
        grid = {"grid_step": one, "grid_origin": zero}
        return Section("statement", fields, arrays | grid)


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
