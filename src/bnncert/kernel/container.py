"""The file format of certificates: sections of compressed JSON and integer arrays.

A file is the line `bnncert certificate 3` and then sections, each

    4 bytes   length of the section unpacked, little endian
    4 bytes   length of the section as stored
    ...       zlib data: one line of JSON, then the arrays that it names, one after the other

The last section contains the SHA-256 of all bytes before it.  Sections are read one at a time,
their lengths are limited, and a `Budget` limits the whole file: the memory of a check is bounded by
that of the largest section and of the clauses, which are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

MAGIC = b"bnncert certificate 3\n"

#: The longest section, the longest line of JSON in one, and the most numbers.
MOST_BYTES, MOST_JSON, MOST_NUMBERS = 2**26, 2**20, 2**23

#: Limits of a whole file: bytes of all sections unpacked, and entries of all clashes and clauses,
#: which are kept until the end.
MOST_UNPACKED, MOST_LITERALS = 2**32, 2**22

#: Sections with arrays that are not read yet: a claim, and what is looked at ahead.
MOST_UNREAD = 4

#: Characters of a number that is written as p/q.
MOST_DIGITS = 4000

DTYPES = ("|i1", "<i4", "<i8", "<f8")

#: The arrays of clauses, and those of leaves: which of the five counts of a leaf is theirs, and how
#: many numbers each entry has.
CLAUSE_ARRAYS = ("sizes_of_clauses", "neurons", "signs", "theta")
LEAF_ARRAYS = (
    ("tables", 0, 1),
    ("table_values", 0, 2),
    ("gates", 1, 1),
    ("gate_values", 1, 4),
    ("diagonal", 2, 1),
    ("clash_first", 3, 1),
    ("clash_second", 3, 1),
    ("clash_values", 3, 1),
    ("split_tables", 4, 1),
    ("split_variables", 4, 1),
    ("split_values", 4, 2),
)

#: The arrays of a region.
REGION_ARRAYS = (
    *("center", "clip_lo", "clip_hi", "lo", "hi", "matrix", "right", "inside"),
    *("grid_step", "grid_origin"),
)

#: The arrays of claims of all kinds.
CLAIM_ARRAYS: tuple[str, ...] = (
    *REGION_ARRAYS,
    # Explanations.
    *("kept", "needed", "targets", "starts", "changed", "values"),
    # Contrast.
    "pivot",
    # Counts.
    *("kinds", "split_items", "split_at", "open_sizes", "open", "group_sizes", "groups"),
    "witness",
)

#: The fields and the arrays that a section can have.
CONTENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "statement": (
        (
            *("verdict", "network", "sizes", "sign_zero", "arithmetic", "property"),
            *("region", "radius", "within", "inequalities", "grid"),
        ),
        REGION_ARRAYS,
    ),
    "claim": (("kind", "details"), CLAIM_ARRAYS),
    "clashes": (("layer",), CLAUSE_ARRAYS),
    "clauses": (("layer",), CLAUSE_ARRAYS),
    "branched": ((), (*CLAUSE_ARRAYS, "nodes", "places")),
    "target": (("number", "objective"), ()),
    "cuts": ((), (*CLAUSE_ARRAYS, "unit", "sizes", "curvature")),
    "nodes": (
        (),
        (
            *("kind", "since", *CLAUSE_ARRAYS, "unit", "sizes"),
            *(name for name, _, _ in LEAF_ARRAYS),
            "cut_values",
        ),
    ),
    "patterns": (("targets",), ()),
    "tree": ((), ("variables",)),
    "elimination": (("targets",), ()),
    "buckets": ((), ("sizes", "scopes")),
    "refutation": (("targets",), ()),
    "lemmas": ((), ("sizes", "literals")),
    "point": (("target", "exact"), ("point",)),
    "end": (("sha256",), ()),
}

T = TypeVar("T")
AnyPath: TypeAlias = str | os.PathLike[str]


class UnreadableError(Exception):
    """The file is not a certificate: broken, truncated, or of another version."""


class RejectedError(Exception):
    """The file is a certificate that does not prove its statement."""


class Budget:
    """The remaining bytes, literals and time for the check of one file."""

    def __init__(self, timeout: float | None = None) -> None:
        self.unpacked, self.literals = MOST_UNPACKED, MOST_LITERALS
        self.timeout = timeout
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the check began."""
        return time.monotonic() - self.started

    def unpack(self, count: int) -> None:
        """Count bytes that are about to be unpacked."""
        self.unpacked -= count
        if self.unpacked < 0:
            raise RejectedError(f"its sections unpack to more than {MOST_UNPACKED} bytes")

    def keep(self, count: int) -> None:
        """Count literals of clauses, which are kept."""
        self.literals -= count
        if self.literals < 0:
            raise RejectedError(f"its clauses have more than {MOST_LITERALS} literals")

    def timed(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; reject the file when the time limit is exceeded."""
        for item in items:
            self.refuse_late()
            yield item

    def refuse_late(self) -> None:
        """Reject a file whose check takes too long."""
        if self.timeout is not None and self.seconds > self.timeout:
            raise RejectedError(f"the check did not end within {self.timeout:g} s")


@dataclass(eq=False)
class Section:
    """One section: its name, its JSON fields and its arrays."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    #: The budget of the file.
    budget: Budget = field(default_factory=Budget)
    #: The arrays that have been read, see :class:`WatchedSections`.
    read: set[str] = field(default_factory=set)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Read a list of integers."""
        array = self.arrays.get(name)
        if array is None or array.dtype.kind != "i":
            raise UnreadableError(f"section {self.name}: no list of integers {name!r}")
        self.read.add(name)
        return array.astype(np.int64)

    def floats(self, name: str, size: int) -> npt.NDArray[np.float64]:
        """Read a list of `size` finite floats."""
        array = self.arrays.get(name)
        if array is None or array.shape != (size,) or array.dtype.kind != "f":
            raise UnreadableError(f"section {self.name}: no {size} floats {name!r}")
        self.read.add(name)
        if not np.all(np.isfinite(array)):
            raise UnreadableError(f"section {self.name}: {name!r} has NaN or infinity")
        return array.astype(np.float64)

    def text(self, name: str, choices: tuple[str, ...] | None = None) -> str:
        """Read a field that is a string, one of `choices` if they are given."""
        value = self.fields.get(name)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            raise UnreadableError(f"section {self.name}: {name!r} is {str(value)[:40]!r}")
        return value

    def numbers(self, name: str) -> list[int]:
        """Read a field that is a list of integers >= 0, at least one, each once."""
        value = self.fields.get(name)
        known = isinstance(value, list) and all(type(k) is int and k >= 0 for k in value)
        if not known or not value or len(set(value)) < len(value):
            raise UnreadableError(f"section {self.name}: {name!r} is {str(value)[:40]!r}")
        return list(value)

    def details(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Read the field `details` of a claim, which has exactly the fields with these names."""
        found = self.fields.get("details")
        if not isinstance(found, dict) or found.keys() != set(names):
            raise UnreadableError(f"section claim: details are not {', '.join(names)}")
        return found

    def number(self, name: str) -> int:
        """Read a field that is an integer >= 0."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UnreadableError(f"section {self.name}: {name!r} is {str(value)[:40]!r}")
        return value


class Writer:
    """Writes sections to a file; `end` writes the last one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0
        self._put(MAGIC)

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def add(self, section: Section) -> None:
        """Append a section."""
        arrays = {k: np.ascontiguousarray(v) for k, v in section.arrays.items()}
        shapes = {k: [v.dtype.str, list(v.shape)] for k, v in arrays.items()}
        line = json.dumps({"section": section.name, "arrays": shapes, **section.fields})
        raw = line.encode() + b"\n" + b"".join(v.tobytes() for v in arrays.values())
        packed = zlib.compress(raw, 6)
        self._put(len(raw).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed)

    def end(self) -> None:
        """Write the last section."""
        self.add(Section("end", {"sha256": self._digest.hexdigest()}))


def read_sections(path: AnyPath, budget: Budget | None = None) -> Iterator[Section]:
    """Yield the sections of a file in order, except the last one."""
    budget = Budget() if budget is None else budget
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
        if head != MAGIC:
            older = head.startswith(b"bnncert certificate")
            raise UnreadableError("another version of the format" if older else "not a certificate")
        digest = hashlib.sha256(head)
        while True:
            so_far = digest.hexdigest()
            section = _read_section(file, digest, budget)
            if section.name == "end":
                break
            yield section
        if section.fields.get("sha256") != so_far:
            raise UnreadableError("the checksum is wrong")
        if file.read(1):
            raise UnreadableError("there is something after the end")


class WatchedSections:
    """The sections of a file, of which every array has to be read.

    A number that nothing depends on could be mistaken for a part of the statement or of its proof.
    """

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = sections
        #: The name of each section, its arrays, and those that have been read.
        self._given: list[tuple[str, set[str], set[str]]] = []

    def __iter__(self) -> Iterator[Section]:
        for section in self._sections:
            self._given = [given for given in self._given if given[1] - given[2]]
            if len(self._given) > MOST_UNREAD:
                self.refuse_unread()
            self._given.append((section.name, set(section.arrays), section.read))
            yield section

    def refuse_unread(self) -> None:
        """Refuse an array that the check has not read."""
        for name, arrays, read in self._given:
            if more := arrays - read:
                raise UnreadableError(f"section {name}: {min(more)!r} does not belong there")


def _read_section(file: BinaryIO, digest: Any, budget: Budget) -> Section:
    head = file.read(8)
    if len(head) < 8:
        raise UnreadableError("the file is truncated")
    length, stored = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
    if length > MOST_BYTES or stored > MOST_BYTES:
        raise UnreadableError(f"a section of {max(length, stored)} bytes; at most {MOST_BYTES}")
    budget.unpack(length)
    packed = file.read(stored)
    if len(packed) < stored:
        raise UnreadableError("the file is truncated")
    digest.update(head)
    digest.update(packed)
    engine = zlib.decompressobj()
    try:
        # At most one byte more than was announced is unpacked.
        raw = engine.decompress(packed, length + 1)
    except zlib.error as error:
        raise UnreadableError("a section cannot be unpacked") from error
    if len(raw) != length or not engine.eof or engine.unused_data:
        raise UnreadableError("a section has another length than announced")
    end = raw.find(b"\n", 0, MOST_JSON + 1)
    if end < 0:
        raise UnreadableError("a section has no line of JSON")
    try:
        fields = json.loads(raw[:end], object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("a section has a broken line of JSON") from error
    if not isinstance(fields, dict):
        raise UnreadableError("a section has no fields")
    name, shapes = fields.pop("section", None), fields.pop("arrays", None)
    if not isinstance(name, str) or not isinstance(shapes, dict):
        raise UnreadableError("a section has no name or no arrays")
    if name not in CONTENTS:
        raise UnreadableError(f"section {name[:40]!r} is unknown or out of place")
    for found, known in zip((fields, shapes), CONTENTS[name], strict=True):
        if more := found.keys() - known:
            raise UnreadableError(f"section {name}: {min(more)[:40]!r} does not belong there")
    return Section(name, fields, _read_arrays(name, shapes, memoryview(raw)[end + 1 :]), budget)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with repeated names, which other readers interpret differently."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _read_arrays(
    name: str, shapes: dict[str, Any], body: memoryview
) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    start = numbers = 0
    for key, entry in shapes.items():
        try:
            kind, shape = entry
            (count,) = shape
            if kind not in DTYPES or type(count) is not int or count < 0:
                raise ValueError
        except (TypeError, ValueError) as error:
            raise UnreadableError(f"section {name}: array {key!r} has no proper type") from error
        numbers += count
        if numbers > MOST_NUMBERS:
            raise UnreadableError(f"section {name}: more than {MOST_NUMBERS} numbers")
        stop = start + count * np.dtype(kind).itemsize
        if stop > len(body):
            raise UnreadableError(f"section {name}: array {key!r} is longer than its section")
        arrays[key] = np.frombuffer(body, dtype=kind, count=count, offset=start)
        start = stop
    if start != len(body):
        raise UnreadableError(f"section {name}: bytes that belong to no array")
    return arrays


def exactly(text: Any) -> Fraction:
    """Read a rational number p or p/q."""
    if isinstance(text, str) and len(text) <= MOST_DIGITS:
        match = re.fullmatch(r"(-?[0-9]+)(?:/([0-9]+))?", text)
        if match and (bottom := int(match[2] or "1")):
            return Fraction(int(match[1]), bottom)
    raise UnreadableError("a number is not written as p/q")
