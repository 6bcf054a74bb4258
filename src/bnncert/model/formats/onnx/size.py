"""The size of an ONNX file in memory, estimated from its bytes before it is parsed.

A parsed message of two bytes takes hundreds of bytes, so the parser itself can exhaust the memory.
This module counts the fields; the numbers of tensors are skipped, because they take about as much
memory as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bnncert.errors import FormatError
from bnncert.model.formats.limits import DEFAULT_LIMITS, too_large, too_many


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
                raise _broken(source)
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


def _broken(source: str) -> FormatError:
    return FormatError(f"{source}: not a readable ONNX file (broken or truncated)")


def _varint(content: bytes, at: int, end: int, source: str) -> tuple[int, int]:
    """Return a number of variable length and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _broken(source)


def _skipped(content: bytes, at: int, end: int, kind: int, source: str) -> int:
    """Return the place after a single number."""
    if kind == 0:
        return _varint(content, at, end, source)[1]
    width = {1: 8, 5: 4}.get(kind)
    if width is None or at + width > end:
        raise _broken(source)
    return at + width
