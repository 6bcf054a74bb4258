"""The content of files, read within limits: bytes, text, JSON, zip archives and arrays.

A small file can unpack to more than the memory holds, and a few bytes can state a shape of any
size.  Every reader compares the sizes in a file with the limits before it allocates memory.  Only
regular files are read: a pipe may never end, and a device has no end.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bnncert.errors import BnncertError, FormatError, MissingFileError, reason

if TYPE_CHECKING:
    import numpy.typing as npt

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
    """Write a number of bytes with a unit."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def too_large(source: object, what: str, limit: int, name: str) -> FormatError:
    """Make the error for a file that needs more bytes than the limit `name` allows."""
    return FormatError(
        f"{source}: {what} more than {size_text(limit)}, the largest that is read "
        f"(Limits.{name}, see docs/formats.md)"
    )


def too_many(source: object, found: str, limit: int, name: str) -> FormatError:
    """Make the error for a file that states more of something than the limit `name` allows."""
    return FormatError(
        f"{source}: {found}; at most {limit} are read (Limits.{name}, see docs/formats.md)"
    )


# -- bytes, text and JSON -----------------------------------------------------------------

_GZIP_MAGIC = b"\x1f\x8b"

#: The largest expansion of one byte of a gzip file.
MOST_EXPANSION = 1032

#: Bytes that are unpacked at a time.
_BLOCK = 2**20


def check_regular(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> int:
    """Find the size of a file; raise if it is not a regular file or is too large."""
    shown = os.fspath(path)
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise MissingFileError(f"{shown}: no such file") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(f"{shown}: cannot be read ({reason})") from error
    if stat.S_ISDIR(found.st_mode):
        raise FormatError(f"{shown}: is a directory, expected a file")
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{shown}: is not a regular file (a device, a pipe or a socket)")
    if found.st_size > limits.file:
        raise too_large(shown, "has", limits.file, "file")
    return found.st_size


def read_bytes(
    path: str | os.PathLike[str],
    limits: Limits = DEFAULT_LIMITS,
    *,
    most: int | None = None,
    name: str = "file",
) -> bytes:
    """Read the content of a file, decompressed if it is gzipped.

    `most` is a limit that is lower than `limits.file`, and `name` its name in :class:`Limits`.
    """
    size = check_regular(path, limits)
    most = limits.file if most is None else most
    try:
        with Path(path).open("rb") as file:
            if file.read(2) == _GZIP_MAGIC:
                return _unpacked(file, path, most, name)
            file.seek(0)
            # Python allocates as many bytes as it is asked to read.
            content = file.read(min(size, most) + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{os.fspath(path)}: truncated or broken gzip file ({error})") from error
    except OSError as error:
        raise FormatError(
            f"{os.fspath(path)}: cannot be read ({error.strerror or error})"
        ) from error
    if len(content) > most:
        raise too_large(os.fspath(path), "has", most, name)
    if len(content) > size:
        raise FormatError(f"{os.fspath(path)}: grew while it was read; try again")
    return content


def _unpacked(file: BinaryIO, path: str | os.PathLike[str], most: int, name: str) -> bytes:
    """Unpack block by block, and raise at the limit."""
    end = file.seek(-min(4, file.seek(0, os.SEEK_END)), os.SEEK_END)
    # The last four bytes state the size of the last part, so a file that is too large is found
    # without unpacking it.  If the size is impossible for this many bytes, the file is truncated.
    stated = int.from_bytes(file.read(4), "little")
    if most < stated <= MOST_EXPANSION * end:
        raise too_large(os.fspath(path), "is truncated, or unpacks to", most, name)
    file.seek(0)
    content = io.BytesIO()
    with gzip.open(file) as stream:
        while block := stream.read(_BLOCK):
            content.write(block)
            if content.tell() > most:
                raise too_large(os.fspath(path), "unpacks to", most, name)
    # getvalue makes no copy here, because nothing else refers to the buffer.
    return content.getvalue()


def read_text(path: str | os.PathLike[str], most: int, name: str) -> str:
    """Read a text file in UTF-8; `most` is its limit and `name` the name in :class:`Limits`."""
    content = read_bytes(path, most=most, name=name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{os.fspath(path)}:{line}: not UTF-8 text") from error


def parse_json(
    content: bytes | str,
    source: str,
    *,
    hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Any:
    """Parse a JSON document in UTF-8, whose size is estimated before.

    `hook` is the `object_pairs_hook` of :func:`json.loads`; its ValueErrors are reported.
    """
    if isinstance(content, str):
        # Unpaired surrogates represent bytes that are not UTF-8.
        content = content.encode("utf-8", "surrogatepass")
    if len(content) * (1 if content.isascii() else 4) > limits.text:
        raise too_large(source, "JSON text takes", limits.text, "text")
    # A list or an object takes about twice the memory of a number.
    values = content.count(b",") + 2 * (content.count(b"[") + content.count(b"{"))
    if values > limits.values:
        raise too_many(source, f"JSON with about {values} values", limits.values, "values")
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=hook)
    except UnicodeDecodeError as error:
        raise FormatError(f"{source}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise FormatError(f"{source}:{error.lineno}: not valid JSON ({error.msg})") from error
    except RecursionError as error:
        raise FormatError(f"{source}: JSON is nested too deeply") from error
    except ValueError as error:
        # Python refuses integers of thousands of digits.
        raise FormatError(f"{source}: not valid JSON ({error})") from error


# -- archives and arrays ------------------------------------------------------------------

ZIP_MAGIC = b"PK\x03\x04"

#: The first bytes of every entry in the directory of an archive.
_ENTRY_MAGIC = b"PK\x01\x02"

_NPY_MAGIC = b"\x93NUMPY"


@contextmanager
def open_archive(
    content: bytes, source: object, kind: str, limits: Limits = DEFAULT_LIMITS
) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose members have different names and together are within the limits.

    Exceptions of `zipfile` and NumPy, also those inside the block, become a FormatError.
    """
    if content.count(_ENTRY_MAGIC) > limits.members:
        raise too_many(source, "an archive of too many members", limits.members, "members")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(max(0, info.file_size) for info in archive.infolist()) > limits.file:
                raise too_large(source, "unpacks to", limits.file, "file")
            _refuse_twins(archive, source)
            yield archive
    except BnncertError:
        raise
    except MemoryError as error:
        raise FormatError(f"{source}: not enough memory to read it ({reason(error)})") from error
    except Exception as error:  # zipfile and NumPy raise many types on broken archives
        raise FormatError(f"{source}: not a readable {kind} file ({reason(error)})") from error


def _refuse_twins(archive: zipfile.ZipFile, source: object) -> None:
    """Raise if two members have one name: readers disagree about which of them counts."""
    seen: set[str] = set()
    for name in array_names(archive):
        if name in seen:
            raise FormatError(
                f"{source}: the archive has two members of the name {name!r}; write it again"
            )
        seen.add(name)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a member of an archive, of at most the size that the directory states."""
    content = io.BytesIO()
    # Block by block, because zipfile compares the sizes only after each call.
    with archive.open(name) as stream:
        while block := stream.read(_BLOCK):
            content.write(block)
    return content.getvalue()


def array_names(archive: zipfile.ZipFile) -> list[str]:
    """List the names of the arrays in an .npz archive, as NumPy shows them."""
    return [name.removesuffix(".npy") for name in archive.namelist()]


def read_member_array(archive: zipfile.ZipFile, name: str, where: object) -> npt.NDArray[Any]:
    """Read an array of an .npz archive; nothing in it is executed."""
    member = name if name in archive.namelist() else f"{name}.npy"
    with archive.open(member) as stream:
        if stream.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise FormatError(f"{where}: not an array")
    with archive.open(member) as stream:
        return _array(stream)


def read_npy(content: bytes, where: object) -> npt.NDArray[Any]:
    """Read the array in an .npy file; nothing in it is executed."""
    try:
        return _array(io.BytesIO(content))
    except BnncertError:
        raise
    except Exception as error:  # NumPy raises many types on broken headers
        raise FormatError(f"{where}: not a readable .npy file ({reason(error)})") from error


def _array(stream: Any) -> npt.NDArray[Any]:
    import numpy as np  # on use: the defaults of a project are read without it

    # NumPy allocates the size that the header states.  If the file has fewer data, it raises an
    # exception, and the unused pages of the allocation were never touched.
    array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.itemsize == 0 and array.size:
        # The header can state any number of such values without any data.
        raise ValueError(f"values of type {array.dtype}, which take no space")
    return array
