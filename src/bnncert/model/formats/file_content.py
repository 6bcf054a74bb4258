"""The bytes of a file, plain or gzipped, read within the limits.

Only regular files are read: a pipe may never end, and a device has no end.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from bnncert.errors import FormatError
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits, too_large, too_many

_GZIP_MAGIC = b"\x1f\x8b"

#: The largest expansion of one byte of a gzip file.
MOST_EXPANSION = 1032

#: Bytes that are unpacked at a time.
_BLOCK = 2**20


def check_regular(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> int:
    """Return the size of a file; raise if it is not a regular file or is too large."""
    shown = os.fspath(path)
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise FormatError(f"{shown}: no such file") from error
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
    """Return the content of a file, decompressed if it is gzipped.

    Parameters
    ----------
    most, name
        A limit that is lower than `limits.file`, and its name in :class:`Limits`.
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
    """Return a text file in UTF-8; `most` is its limit and `name` the name in :class:`Limits`."""
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
    """Return the tree of a JSON document in UTF-8, whose size is estimated before it is parsed.

    Parameters
    ----------
    hook
        As `object_pairs_hook` of :func:`json.loads`; what it raises as ValueError is reported.
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
