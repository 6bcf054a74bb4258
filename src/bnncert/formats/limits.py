"""How much a file may ask for: one budget for all readers.

A small file can unpack to more than memory holds, and a few bytes can state a shape of any size.
Every reader compares what a file asks for with these limits before it makes room for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bnncert.errors import FormatError

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class Limits:
    """The most that a file may ask for; a reader refuses what is beyond.

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
        Fields of an ONNX file, and bytes of all in it that are not numbers of tensors.
    matrix
        Entries of one matrix or constant of a model, of all its zeros where it is stored densely.
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


#: What readers use unless they are told otherwise.
DEFAULT_LIMITS = Limits()


def size_text(size: int) -> str:
    """Return a number of bytes as people read it."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def too_large(source: object, what: str, limit: int, name: str) -> FormatError:
    """Return the error for a file that asks for more bytes than the limit `name` allows."""
    return FormatError(
        f"{source}: {what} more than {size_text(limit)}, the largest that is read "
        f"(Limits.{name}, see docs/formats.md)"
    )


def too_many(source: object, found: str, limit: int, name: str) -> FormatError:
    """Return the error for a file that states more of something than the limit `name` allows."""
    return FormatError(
        f"{source}: {found}; at most {limit} are read (Limits.{name}, see docs/formats.md)"
    )
