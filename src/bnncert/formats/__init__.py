"""Readers and writers of model files, one module for each format.

A file's format is decided by its content (gzip, zip, HDF5, JSON or protobuf), and only then by
suffix.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bnncert.atomic import replacing
from bnncert.errors import FormatError, InputError
from bnncert.formats.description import ModelDescription
from bnncert.formats.json_ import read_json, write_json
from bnncert.formats.npz import read_npz, write_npz

__all__ = ["read_bytes", "read_description", "write_description"]

#: Largest model file after decompression; beyond it a file is taken for a decompression bomb.
LARGEST_FILE = 4 * 2**30

_ZIP_MAGIC = b"PK\x03\x04"
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"

#: How checkpoints begin that torch wrote before it used zip archives.
_OLD_CHECKPOINT_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


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


def read_description(path: Path, layers: Path | None = None) -> ModelDescription:
    """Read a model file of any supported format.

    `layers` describes the layers of a PyTorch checkpoint; by default, for ``net.pt`` it is
    ``net.layers.json`` in the same place.
    """
    content = read_bytes(path)
    source = str(path)
    if not content:
        raise FormatError(f"{source}: the file is empty")
    family = _family(content, path.suffix)
    if family == "checkpoint":
        return _read_checkpoint(content, path, layers)
    if layers is not None:
        raise FormatError(f"{source}: not a PyTorch checkpoint; only these need a file of layers")
    # Imported on use: onnx takes half a second to import and .npz users do not need it.
    if family == "keras":
        from bnncert.formats.keras_reader import read_keras

        return read_keras(content, source)
    if content.startswith(_ZIP_MAGIC):
        return read_npz(content, source)
    if content[:64].lstrip()[:1] in (b"{", b"["):
        return read_json(content, source)
    if path.suffix in (".npz", ".json"):
        raise FormatError(f"{source}: the content is not {path.suffix}")
    from bnncert.formats.onnx_reader import read_onnx

    return read_onnx(content, source)


def _family(content: bytes, suffix: str) -> Literal["keras", "checkpoint"] | None:
    """Tell the files of Keras and PyTorch from the others."""
    if content.startswith(_ZIP_MAGIC):
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = archive.namelist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            # The reader that the suffix names says what is wrong.
            members = []
        if any(name.endswith("/data.pkl") for name in members):
            return "checkpoint"
        if "config.json" in members and "model.weights.h5" in members:
            return "keras"
    if content.startswith(_OLD_CHECKPOINT_MAGIC) or suffix in (".pt", ".pth", ".safetensors"):
        return "checkpoint"
    if content.startswith(_HDF5_MAGIC) or suffix in (".h5", ".hdf5", ".keras"):
        return "keras"
    return None


def _read_checkpoint(content: bytes, path: Path, layers: Path | None) -> ModelDescription:
    from bnncert.formats.torch_checkpoint import read_checkpoint

    beside = path.with_suffix(".layers.json")
    if layers is None and not beside.exists():
        raise FormatError(
            f"{path}: a PyTorch checkpoint has weights only; describe its layers in {beside.name} "
            "beside it, or in the file that --layers names"
        )
    described = beside if layers is None else layers
    return read_checkpoint(content, str(path), read_bytes(described), str(described))


def write_description(
    description: ModelDescription, path: Path, check: Callable[[Path], None] | None = None
) -> None:
    """Write a model in the format that the suffix names.

    `check` gets the path of a complete file that is about to take the place of `path`; if it
    raises an exception, nothing is written.
    """
    if path.suffix not in (".npz", ".json", ".onnx"):
        raise InputError(f"{path}: cannot write {path.suffix!r}; use .npz, .json or .onnx")
    with replacing(path) as file:
        if path.suffix == ".npz":
            write_npz(description, file)
        elif path.suffix == ".json":
            write_json(description, file)
        else:
            from bnncert.formats.onnx_writer import write_onnx

            write_onnx(description, file, path)
        if check is not None:
            file.flush()
            check(Path(file.name))
