"""The file format of certificates: sections of compressed JSON and integer arrays.

A file is the line `bnncert certificate 1` and then sections, each

    4 bytes   length of the section unpacked, little endian
    4 bytes   length of the section as stored
    ...       zlib data: one line of JSON, then the arrays that it names, one after the other

The last section holds the SHA-256 of all bytes before it.  Sections are read one at a time and
their lengths are limited, so that no file, whatever it contains, takes more memory than its
largest section may have.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAGIC = b"bnncert certificate 1\n"

#: The longest section, the longest line of JSON in one, and the most numbers.
MOST_BYTES, MOST_JSON, MOST_NUMBERS = 2**26, 2**20, 2**23

DTYPES = ("|i1", "<i4", "<i8", "<f8")


class UnreadableError(Exception):
    """The file is not a certificate: broken, truncated, or of another version."""


class RejectedError(Exception):
    """The file is a certificate, and it does not prove what it states."""


@dataclass(eq=False)
class Section:
    """One section: its name, its JSON fields and its arrays."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return a one-dimensional array of integers."""
        array = self.arrays.get(name)
        if array is None or array.dtype.kind != "i":
            raise UnreadableError(f"section {self.name}: no list of integers {name!r}")
        return array.astype(np.int64)

    def floats(self, name: str, size: int) -> npt.NDArray[np.float64]:
        """Return an array of `size` finite floats."""
        array = self.arrays.get(name)
        if array is None or array.shape != (size,) or array.dtype.kind != "f":
            raise UnreadableError(f"section {self.name}: no {size} floats {name!r}")
        if not np.all(np.isfinite(array)):
            raise UnreadableError(f"section {self.name}: {name!r} has NaN or infinity")
        return array.astype(np.float64)

    def text(self, name: str, choices: tuple[str, ...] | None = None) -> str:
        """Return a field that is a string."""
        value = self.fields.get(name)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            raise UnreadableError(f"section {self.name}: {name!r} is {str(value)[:40]!r}")
        return value

    def number(self, name: str) -> int:
        """Return a field that is an integer >= 0."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UnreadableError(f"section {self.name}: {name!r} is {str(value)[:40]!r}")
        return value


class Writer:
    """Writes sections to a file; used as a context manager, it ends the file properly."""

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


def read_sections(path: str | os.PathLike[str]) -> Iterator[Section]:
    """Yield the sections of a file in order, the last one excepted."""
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
        if head != MAGIC:
            older = head.startswith(b"bnncert certificate")
            raise UnreadableError("another version of the format" if older else "not a certificate")
        digest = hashlib.sha256(head)
        while True:
            so_far = digest.hexdigest()
            section = _read_section(file, digest)
            if section.name == "end":
                break
            yield section
        if section.fields.get("sha256") != so_far:
            raise UnreadableError("the checksum is wrong")
        if file.read(1):
            raise UnreadableError("there is something after the end")


def _read_section(file: BinaryIO, digest: Any) -> Section:
    head = file.read(8)
    if len(head) < 8:
        raise UnreadableError("the file is truncated")
    length, stored = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
    if length > MOST_BYTES or stored > MOST_BYTES:
        raise UnreadableError(f"a section of {max(length, stored)} bytes; at most {MOST_BYTES}")
    packed = file.read(stored)
    if len(packed) < stored:
        raise UnreadableError("the file is truncated")
    digest.update(head + packed)
    engine = zlib.decompressobj()
    try:
        # Never unpacks more than was announced, whatever the data says.
        raw = engine.decompress(packed, length + 1)
    except zlib.error as error:
        raise UnreadableError("a section cannot be unpacked") from error
    if len(raw) != length or not engine.eof or engine.unused_data:
        raise UnreadableError("a section has another length than announced")
    line, found, body = raw.partition(b"\n")
    if not found or len(line) > MOST_JSON:
        raise UnreadableError("a section has no line of JSON")
    try:
        fields = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("a section has a broken line of JSON") from error
    if not isinstance(fields, dict):
        raise UnreadableError("a section has no fields")
    name, shapes = fields.pop("section", None), fields.pop("arrays", None)
    if not isinstance(name, str) or not isinstance(shapes, dict):
        raise UnreadableError("a section has no name or no arrays")
    return Section(name, fields, _read_arrays(name, shapes, body))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; one name for two values would be read differently elsewhere."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _read_arrays(name: str, shapes: dict[str, Any], body: bytes) -> dict[str, npt.NDArray[Any]]:
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
