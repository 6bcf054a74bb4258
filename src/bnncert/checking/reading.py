"""From sections to plain data: what a certificate says.  Nothing is believed here.

With `container`, this is the format; what follows from the data is the other files' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.checking.container import RejectedError, Section, UnreadableError
from bnncert.checking.function import Function
from bnncert.network import Network

Integers = npt.NDArray[np.int64]

#: The finest unit of a leaf's numbers is 2^-FINEST.
FINEST = 48


@dataclass(frozen=True, eq=False)
class Space:
    """The region: a box, optionally a ball inside it and inequalities matrix.x <= right."""

    lower: list[Fraction]
    upper: list[Fraction]
    norm: str | None
    center: list[Fraction]
    radius: Fraction
    matrix: npt.NDArray[np.float64]
    right: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clauses:
    """Clause k says that entries start[k]:start[k+1] cannot all hold.

    Entry: neuron number and sign with multiplier theta; a neuron of -1 - i is inequality i of the
    region, which always holds.
    """

    start: Integers
    neuron: Integers
    sign: Integers
    theta: Integers

    @property
    def count(self) -> int:
        """The number of clauses."""
        return int(self.start.size - 1)

    @property
    def owner(self) -> Integers:
        """The clause of every entry."""
        return np.repeat(np.arange(self.count), np.diff(self.start))

    def part(self, first: int, last: int) -> Clauses:
        """Return clauses first, .., last - 1."""
        a, b = int(self.start[first]), int(self.start[last])
        start = self.start[first : last + 1] - a
        return Clauses(start, self.neuron[a:b], self.sign[a:b], self.theta[a:b])


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The numbers of one leaf, in units of 2^-shift."""

    shift: int
    tables: Integers
    table_values: Integers
    gates: Integers
    gate_values: Integers
    diagonal: Integers
    clash_first: Integers
    clash_second: Integers
    clash_values: Integers

    @staticmethod
    def none() -> Multipliers:
        """Return the multipliers of a bound by ranges alone."""
        z, two, four = np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 4), np.int64)
        return Multipliers(FINEST, z, two, z, four, z, z, z, z)


#: The arrays of leaves: which of the four counts of a leaf they follow, and numbers for each.
LEAF_ARRAYS = (
    ("tables", 0, 1),
    ("table_values", 0, 2),
    ("gates", 1, 1),
    ("gate_values", 1, 4),
    ("diagonal", 2, 1),
    ("clash_first", 3, 1),
    ("clash_second", 3, 1),
    ("clash_values", 3, 1),
)


@dataclass(frozen=True, eq=False)
class Statement:
    """The first section: what the certificate claims.

    The property holds where in every target some function is positive.
    """

    verdict: str
    space: Space
    float32: bool
    targets: list[list[Function]]
    text: str

    @staticmethod
    def read(section: Section, network: Network) -> tuple[Statement, Network]:
        """Read the claim and return it with the network as it means it."""
        if section.name != "statement":
            raise UnreadableError("the file does not begin with a statement")
        verdict = section.text("verdict", ("robust", "not_robust"))
        if section.fields.get("sign_zero") is not None:
            choice = section.text("sign_zero", ("plus", "minus", "either"))
            network = network.with_sign_zero(choice)  # type: ignore[arg-type]
        if section.text("network") != network.content_hash:
            raise RejectedError("it is about another network")
        arithmetic = section.text("arithmetic", ("real", "float32"))
        space, place = _space(section, network.inputs)
        targets, words = _property(section.fields.get("property"), network)
        text = f"for every input in {place}: {words} ({arithmetic} arithmetic)"
        if verdict == "not_robust":
            text = f"some input in {place} violates: {words} ({arithmetic} arithmetic)"
        return Statement(verdict, space, arithmetic == "float32", targets, text), network


def _space(section: Section, size: int) -> tuple[Space, str]:
    """Return the region, exactly, and its description."""

    def rationals(name: str) -> list[Fraction]:
        return [Fraction(v) for v in section.floats(name, size).tolist()]

    kind = section.text("region", ("box", "linf", "l2", "l1", "polytope"))
    norm, center, radius = None, [], Fraction(0)
    matrix, right = np.zeros((0, size)), np.zeros(0)
    if kind in ("box", "polytope"):
        lower, upper = rationals("lo"), rationals("hi")
        words = f"a box in {size} dimensions"
        if kind == "polytope":
            right = section.floats("right", section.number("inequalities"))
            matrix = section.floats("matrix", right.size * size).reshape(right.size, size)
            words = f"a polytope of {right.size} inequalities in {words}"
    else:
        center, radius = rationals("center"), exactly(section.fields.get("radius"))
        if radius < 0 or radius.denominator & (radius.denominator - 1):
            raise UnreadableError("the radius is negative or no binary fraction")
        words = f"the {kind} ball of radius {float(radius):.9g}"
        lower, upper = [c - radius for c in center], [c + radius for c in center]
        if "clip_lo" in section.arrays:
            lower = list(map(max, lower, rationals("clip_lo")))
        if "clip_hi" in section.arrays:
            upper = list(map(min, upper, rationals("clip_hi")))
        words += " inside the data box" if {"clip_lo", "clip_hi"} & section.arrays.keys() else ""
        if kind != "linf":
            norm = kind
            if any(not a <= c <= b for a, c, b in zip(lower, center, upper, strict=True)):
                raise RejectedError("the centre of the ball lies outside the data box")
    if any(a > b for a, b in zip(lower, upper, strict=True)):
        raise RejectedError("the region is empty")
    return Space(lower, upper, norm, center, radius, matrix, right), words


def _property(value: Any, network: Network) -> tuple[list[list[Function]], str]:
    """Return the functions of all targets; one of each target's must be positive throughout."""
    if not isinstance(value, dict):
        raise UnreadableError("section statement: no property")
    one = Fraction(1)
    if value.get("kind") == "classification":
        label: Any = value.get("label")
        rivals, ties = value.get("rivals"), value.get("ties")
        if not isinstance(rivals, list) or not all(type(k) is int for k in (label, *rivals)):
            raise UnreadableError("section statement: label and rivals are no classes")
        if ties not in ("violation", "robust") or len({label, *rivals}) != 1 + len(rivals):
            raise UnreadableError("section statement: a property that makes no sense")
        fine = ties == "robust"
        functions = [
            [Function.of(network, {label: one, k: -one}, Fraction(0), fine)] for k in rivals
        ]
        names = "all other classes" if len(rivals) == network.classes - 1 else str(rivals)[1:-1]
        more = "at least as much as" if fine else "more than"
        return functions, f"class {label} scores {more} {names}"
    if value.get("kind") != "targets" or not isinstance(value.get("targets"), list):
        raise UnreadableError("section statement: a property of an unknown kind")
    targets = []
    for entry in value["targets"]:
        if not isinstance(entry, list):
            raise UnreadableError("section statement: a target is no list")
        targets.append([_objective(o, network) for o in entry])
    return targets, f"none of {len(targets)} conditions on the scores holds"


def _objective(value: Any, network: Network) -> Function:
    if not isinstance(value, dict) or not isinstance(value.get("scores"), dict):
        raise UnreadableError("section statement: an objective without scores")
    fine = value.get("tie_is_fine")
    if not isinstance(fine, bool):
        raise UnreadableError("section statement: an objective without tie_is_fine")
    names = {str(k): k for k in range(network.classes)}
    if not value["scores"].keys() <= names.keys():
        raise RejectedError("the property names a score that the network does not have")
    scores = {names[k]: exactly(c) for k, c in value["scores"].items()}
    return Function.of(network, scores, exactly(value.get("constant")), fine)


def exactly(text: Any) -> Fraction:
    """Read a rational number p or p/q."""
    if isinstance(text, str) and len(text) <= 4000:
        match = re.fullmatch(r"(-?[0-9]+)(?:/([0-9]+))?", text)
        if match and (bottom := int(match[2] or "1")):
            return Fraction(int(match[1]), bottom)
    raise UnreadableError("a number is not written as p/q")


def read_clauses(section: Section, neurons: int, inequalities: int) -> Clauses:
    """Read clauses over neurons of one layer and the region's inequalities."""
    sizes, neuron = section.integers("sizes_of_clauses"), section.integers("neurons")
    sign, theta = section.integers("signs"), section.integers("theta")
    if np.any((sizes < 1) | (sizes > neuron.size)) or int(sizes.sum()) != neuron.size:
        raise UnreadableError(f"section {section.name}: sizes do not add up")
    if sign.size != neuron.size or theta.size != neuron.size:
        raise UnreadableError(f"section {section.name}: lists of different lengths")
    if np.any((neuron >= neurons) | (neuron < -inequalities)):
        raise RejectedError("a clause names a neuron that does not exist")
    return Clauses(np.concatenate([[0], np.cumsum(sizes)]), neuron, sign, theta)


def joined(parts: list[Clauses]) -> Clauses:
    """Return several lists of clauses as one."""
    nothing = np.zeros(0, dtype=np.int64)
    sizes = np.concatenate([nothing, *(np.diff(p.start) for p in parts)])
    return Clauses(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([nothing, *(p.neuron for p in parts)]),
        np.concatenate([nothing, *(p.sign for p in parts)]),
        np.concatenate([nothing, *(p.theta for p in parts)]),
    )


def read_leaves(section: Section) -> Iterator[Multipliers]:
    """Yield the numbers of the leaves of a section."""
    unit, sizes = section.integers("unit"), section.integers("sizes")
    arrays = {name: section.integers(name) for name, _, _ in LEAF_ARRAYS}
    most = max(array.size for array in arrays.values())
    if sizes.size != 4 * unit.size or np.any((sizes < 0) | (sizes > most)):
        raise UnreadableError("section nodes: sizes do not add up")
    counts = sizes.reshape(-1, 4)
    total = counts.sum(axis=0)
    if any(arrays[name].size != width * total[k] for name, k, width in LEAF_ARRAYS):
        raise UnreadableError("section nodes: lists of the wrong length")
    start = np.zeros(4, dtype=np.int64)
    for shift, count in zip(unit.tolist(), counts, strict=True):
        part: dict[str, Integers] = {}
        for name, k, width in LEAF_ARRAYS:
            values = arrays[name][width * start[k] : width * (start[k] + count[k])]
            part[name] = values.reshape(-1, width) if width > 1 else values
        start += count
        yield Multipliers(shift, **part)
