"""Readers and writers of model files, one module for each format.

A file's format is decided by its content (gzip, zip, JSON or protobuf), and only then by suffix.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from bnncert.errors import FormatError, InputError
from bnncert.formats.description import ModelDescription
from bnncert.formats.json_ import read_json, write_json
from bnncert.formats.npz import read_npz, write_npz

__all__ = ["read_bytes", "read_description", "write_description"]

#: Largest model file after decompression; beyond it a file is taken for a decompression bomb.
LARGEST_FILE = 4 * 2**30


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzipped."""
    try:
        with path.open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            if magic != b"\x1f\x8b":
                return file.read()
            with gzip.open(file) as unpacked:
                content = unpacked.read(LARGEST_FILE + 1)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise FormatError(f"{path}: is a directory, expected a file") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path}: truncated or broken gzip file ({error})") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) > LARGEST_FILE:
        raise FormatError(f"{path}: unpacks to more than {LARGEST_FILE >> 30} GiB")
    return content


def read_description(path: Path) -> ModelDescription:
    """Read a model file of any supported format."""
    content = read_bytes(path)
    source = str(path)
    if not content:
        raise FormatError(f"{source}: the file is empty")
    if content[:4] == b"PK\x03\x04":
        return read_npz(content, source)
    if content[:64].lstrip()[:1] in (b"{", b"["):
        return read_json(content, source)
    if path.suffix in (".npz", ".json"):
        raise FormatError(f"{source}: the content is not {path.suffix}")
    # Imported on use: onnx takes half a second to import and .npz users do not need it.
    from bnncert.formats.onnx_reader import read_onnx

    return read_onnx(content, source)


def write_description(description: ModelDescription, path: Path) -> None:
    """Write a model in the format that the suffix names."""
    try:
        if path.suffix == ".npz":
            write_npz(description, path)
        elif path.suffix == ".json":
            write_json(description, path)
        elif path.suffix == ".onnx":
            from bnncert.formats.onnx_writer import write_onnx

            write_onnx(description, path)
        else:
            raise InputError(f"{path}: cannot write {path.suffix!r}; use .npz, .json or .onnx")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
