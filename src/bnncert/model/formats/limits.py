"""Limits on the sizes that a file may state, for all readers.

A small file can unpack to more than the memory holds, and a few bytes can state a shape of any
size.  Every reader compares the sizes in a file with these limits before it allocates memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from bnncert.errors import FormatError

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class Limits:
    """The largest sizes that a reader accepts.

    Attributes
    ----------
    file
        Bytes of a file after decompression, of all members of an archive together, and of all
        arrays of one file together.
    text
        Bytes of a JSON document; text that is not ASCII counts four times, as in memory.
    values
        Numbers, texts, lists and objects in a JSON document.
    query
        Bytes of a VNN-LIB query after decompression.
    configuration
        Bytes of a configuration of experiments (YAML or JSON).
    table
        Bytes of a CSV file.
    members
        Members of an archive.
    fields, structure
        Fields of an ONNX file, and its bytes apart from the numbers of tensors.
    matrix
        Entries of one matrix or constant of a model; zeros are counted if it is stored densely.
    width
        Inputs of a network, or neurons of one layer.
    pixels
        Pixels of one image.
    rows
        Rows of a results file.
    """

    file: int = 2 * 2**30
    text: int = 512 * 2**20
    values: int = 2**25
    query: int = 64 * 2**20
    configuration: int = 256 * 2**10
    table: int = 64 * 2**20
    members: int = 10_000
    fields: int = 2**19
    structure: int = 16 * 2**20
    matrix: int = 2**26
    width: int = 2**22
    pixels: int = 2**24
    rows: int = 1_000_000


#: The limits that readers use by default.
DEFAULT_LIMITS = Limits()


def size_text(size: int) -> str:
    """Return a number of bytes as text with a unit."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def too_large(source: object, what: str, limit: int, name: str) -> FormatError:
    """Return the error for a file that needs more bytes than the limit `name` allows."""
    return FormatError(
        f"{source}: {what} more than {size_text(limit)}, the largest that is read "
        f"(Limits.{name}, see docs/formats.md)"
    )


def too_many(source: object, found: str, limit: int, name: str) -> FormatError:
    """Return the error for a file that states more of something than the limit `name` allows."""
    return FormatError(
        f"{source}: {found}; at most {limit} are read (Limits.{name}, see docs/formats.md)"
    )
