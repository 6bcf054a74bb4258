"""Zip archives and the arrays in them, read within limits."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import BnncertError, FormatError, reason
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits, too_large, too_many

ZIP_MAGIC = b"PK\x03\x04"

#: The first bytes of every entry in the directory of an archive.
_ENTRY_MAGIC = b"PK\x01\x02"

_NPY_MAGIC = b"\x93NUMPY"
_BLOCK = 2**20


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
    """Return a member of an archive, of at most the size that the directory states."""
    content = io.BytesIO()
    # Block by block, because zipfile compares the sizes only after each call.
    with archive.open(name) as stream:
        while block := stream.read(_BLOCK):
            content.write(block)
    return content.getvalue()


def array_names(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays in an .npz archive, as NumPy shows them."""
    return [name.removesuffix(".npy") for name in archive.namelist()]


def read_member_array(archive: zipfile.ZipFile, name: str, where: object) -> npt.NDArray[Any]:
    """Return an array of an .npz archive."""
    member = name if name in archive.namelist() else f"{name}.npy"
    with archive.open(member) as stream:
        if stream.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise FormatError(f"{where}: not an array")
    with archive.open(member) as stream:
        return _array(stream)


def read_npy(content: bytes, where: object) -> npt.NDArray[Any]:
    """Return the array in an .npy file."""
    try:
        return _array(io.BytesIO(content))
    except BnncertError:
        raise
    except Exception as error:  # NumPy raises many types on broken headers
        raise FormatError(f"{where}: not a readable .npy file ({reason(error)})") from error


def _array(stream: Any) -> npt.NDArray[Any]:
    # NumPy allocates the size that the header states.  If the file has fewer data, it raises an
    # exception, and the unused pages of the allocation were never touched.
    array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.itemsize == 0 and array.size:
        # The header can state any number of such values without any data.
        raise ValueError(f"values of type {array.dtype}, which take no space")
    return array
