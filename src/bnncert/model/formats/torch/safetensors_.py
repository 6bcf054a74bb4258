"""The .safetensors container: eight bytes of length, a JSON header, and raw arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.model.formats.file_content import parse_json

#: Types of numbers that bnncert can use, by the names in the header.
_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}


def read_safetensors(content: bytes, source: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file by name."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise FormatError(f"{source}: not a .safetensors file, or truncated")
    header = parse_json(content[8 : 8 + length], f"{source}: the header")
    if not isinstance(header, dict):
        raise FormatError(f"{source}: the header is not a JSON object")
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    body = memoryview(content)[8 + length :]
    arrays = {}
    used = 0
    for name, entry in entries:
        try:
            kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in _TYPES:
                raise ValueError(f"type {kind}; expected {', '.join(_TYPES)}")
            if not 0 <= begin <= end <= len(body):
                raise ValueError("its data lie outside the file")
            used += end - begin
            if used > len(body):
                # Otherwise many tensors with the same bytes could exhaust the memory.
                raise ValueError("its data overlap with those of another tensor")
            arrays[name] = np.frombuffer(body[begin:end], dtype=_TYPES[kind]).reshape(shape).copy()
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{source}: tensor {name}: malformed ({error})") from error
    return arrays
