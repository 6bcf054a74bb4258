"""The bytes of an ONNX file before they are interpreted: their size, and tensors in other files.

A parsed message of two bytes takes hundreds of bytes, so the parser itself can exhaust the memory.
:func:`check_size` counts the fields before; the numbers of tensors are skipped, because they take
about as much memory as in the file.

``torch.onnx.export`` writes the weights to ``model.onnx.data`` beside ``model.onnx``.  Such a
location is a path relative to the folder of the model; it must not lead out of that folder, neither
by its components nor by symbolic links: otherwise a model from elsewhere could read any file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import onnx

from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    Limits,
    check_regular,
    read_bytes,
    too_large,
    too_many,
)

#: Element types of constants: bool, integers, float16, float32 and float64.
PLAIN_TYPES = frozenset(
    int(onnx.TensorProto.DataType.Value(name))
    for name in (
        *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT16", "FLOAT", "DOUBLE"),
    )
)


# -- the size of a file in memory ---------------------------------------------------------


@dataclass(frozen=True)
class _Message:
    """The fields of a message, by number, that are messages or numbers of tensors."""

    inside: Mapping[int, _Message] = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()
    #: Numbers of variable length: one byte may become eight bytes.
    packed: frozenset[int] = frozenset()


# The field numbers of onnx.proto.
_TENSOR = _Message(numbers=frozenset({4, 9, 10}), packed=frozenset({5, 7, 11}))
_ATTRIBUTE = _Message({5: _TENSOR, 10: _TENSOR}, numbers=frozenset({7}), packed=frozenset({8}))
_NODE = _Message({5: _ATTRIBUTE})
_GRAPH = _Message({1: _NODE, 5: _TENSOR})
_MODEL = _Message({7: _GRAPH})


def check_size(content: bytes, source: str) -> None:
    """Raise for a file whose parsed form would take far more memory than the file."""
    limits = DEFAULT_LIMITS
    fields = opaque = packed = 0
    stack = [(_MODEL, 0, len(content))]
    while stack:
        message, at, end = stack.pop()
        while at < end:
            fields += 1
            if fields > limits.fields:
                raise too_many(source, "an ONNX file of too many fields", limits.fields, "fields")
            tag, at = _varint(content, at, end, source)
            number, kind = tag >> 3, tag & 7
            if kind != 2:
                at = _skipped(content, at, end, kind, source)
                continue
            size, at = _varint(content, at, end, source)
            if at + size > end:
                raise broken(source)
            if number in message.inside:
                stack.append((message.inside[number], at, at + size))
            elif number in message.packed:
                packed += size
            elif number not in message.numbers:
                opaque += size
            at += size
        if packed > limits.matrix:
            raise too_large(source, "holds integers in", limits.matrix, "matrix")
        if opaque > limits.structure:
            raise too_large(source, "has names and descriptions of", limits.structure, "structure")


def broken(source: str) -> FormatError:
    """Make the error of a file that is no ONNX; another suffix may be that of another file."""
    why = "broken or truncated"
    if not source.endswith((".onnx", ".onnx.gz")):
        why = "networks are .onnx, .npz, .json, .pt, .safetensors, .keras or .h5"
    return FormatError(f"{source}: not a readable ONNX file; {why}")


def _varint(content: bytes, at: int, end: int, source: str) -> tuple[int, int]:
    """Read a number of variable length, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise broken(source)


def _skipped(content: bytes, at: int, end: int, kind: int, source: str) -> int:
    if kind == 0:
        return _varint(content, at, end, source)[1]
    width = {1: 8, 5: 4}.get(kind)
    if width is None or at + width > end:
        raise broken(source)
    return at + width


# -- tensors in other files ---------------------------------------------------------------

#: The entries that say where the bytes of a tensor are; runtimes ignore all others.
_ENTRIES = ("location", "offset", "length")


def read_in_one_piece(path: Path) -> bytes:
    """Read an ONNX file with the tensors that it keeps in other files, for runtimes."""
    content = read_bytes(path)
    model = onnx.ModelProto()
    model.ParseFromString(content)
    if not embed_external_data(model, path.parent, str(path), DEFAULT_LIMITS):
        return content
    return bytes(model.SerializeToString())


def embed_external_data(model: Any, folder: Path, source: str, limits: Limits) -> bool:
    """Read the tensors in other files of the model's folder; return whether there are any.

    Their total size is at most `limits.file`.
    """
    # Two tensors may share bytes, so the files alone do not bound the memory.
    left = limits.file
    found = False
    for tensor in _tensors(model.graph):
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        # Tensors of other types raise an error where they are used.
        if not is_external or tensor.data_type not in PLAIN_TYPES:
            continue
        found = True
        content = _content(tensor, folder, source, limits, left)
        left -= len(content)
        tensor.raw_data = content
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return found


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the constants of a graph, also those in attributes of its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _content(tensor: Any, folder: Path, source: str, limits: Limits, left: int) -> bytes:
    """Read the bytes of one tensor, of which at most `left` may be read."""
    place = f"{source}: tensor {tensor.name}"
    stated: dict[str, str] = {}
    for entry in tensor.external_data:
        if not isinstance(entry.key, str) or not isinstance(entry.value, str):
            raise FormatError(f"{place}: an entry of its external data is not UTF-8")
        if entry.key in _ENTRIES and entry.key in stated:
            raise FormatError(f"{place}: two entries {entry.key} of its external data")
        stated[entry.key] = entry.value
    path = _inside(stated.get("location", ""), folder, place)
    size = check_regular(path, limits)
    begin = _count(stated.get("offset", "0"), "offset", place)
    needed = _needed(tensor, place)
    length = _count(stated.get("length", str(needed)), "length", place)
    if length != needed:
        raise FormatError(
            f"{place}: {length} bytes of external data; its shape and type need {needed}"
        )
    if begin + length > size:
        raise FormatError(
            f"{place}: needs the bytes {begin} to {begin + length} of {path}, which has {size}; "
            "the file is truncated or belongs to another model"
        )
    if length > left:
        raise too_large(source, "has external data of", limits.file, "file")
    try:
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(length)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) != length:
        raise FormatError(f"{path}: became shorter while it was read; try again")
    return content


def _inside(location: str, folder: Path, place: str) -> Path:
    """Find the path of a location; raise if it is not in the folder."""
    forms = (PurePosixPath(location), PureWindowsPath(location))
    if not location or "\0" in location:
        raise FormatError(f"{place}: its external data have no location")
    if any(form.is_absolute() or form.drive or ".." in form.parts for form in forms):
        raise UnsupportedModelError(
            f"{place}: its external data are in {location!r}; only files in the folder of the "
            "model are read"
        )
    path = folder / location
    try:
        resolved, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from error
    if not resolved.is_relative_to(root):
        raise UnsupportedModelError(
            f"{place}: its external data are in {location!r}, a link that leads out of the folder "
            "of the model; copy the file into the folder"
        )
    if not path.exists():
        raise FormatError(
            f"{path}: no such file; it has the weights of {place.partition(': tensor ')[0]}, keep "
            "both files in one folder"
        )
    return path


def _count(text: str, what: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{place}: {what} {text!r} of its external data is not a number of bytes")
    return int(text)


def _needed(tensor: Any, place: str) -> int:
    """Count the bytes that the shape and the type of a tensor take."""
    if any(n < 0 for n in tensor.dims):
        raise FormatError(f"{place}: its shape has a negative size")
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims)) * int(item)
