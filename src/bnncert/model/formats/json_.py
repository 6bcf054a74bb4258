"""The JSON network file: the content of the .npz file as nested lists.

Numbers may be JSON numbers, or strings with an exact decimal or hexadecimal float.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np

from bnncert.errors import FormatError
from bnncert.model.description import ModelDescription
from bnncert.model.formats.file_content import parse_json
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits
from bnncert.model.formats.weight_arrays import describe_mapping, mapping_of
from bnncert.model.matrices import is_sparse


def read_json(content: bytes, source: str, limits: Limits = DEFAULT_LIMITS) -> ModelDescription:
    """Read a network from the bytes of a JSON file."""
    tree = parse_json(content, source, hook=_without_duplicates, limits=limits)
    if not isinstance(tree, dict):
        raise FormatError(f"{source}: expected a JSON object with keys W0, b0, W1, b1, ...")
    return describe_mapping(
        {key: _array(value, key, source) for key, value in tree.items()}, source, "json", limits
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise ValueError(f"key {key!r} occurs twice")
        tree[key] = value
    return tree


def _array(value: Any, key: str, source: str) -> Any:
    if key == "sign_zero":
        return np.array(str(value))
    try:
        array = np.array(_numbers(value))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{source}: {key}: not a rectangular array of numbers") from error
    if array.dtype == object:
        raise FormatError(f"{source}: {key}: not a rectangular array of numbers")
    return array.astype(np.float64) if array.dtype == bool else array


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, str):
        return float.fromhex(value) if "0x" in value else float(value)
    return value


def write_json(description: ModelDescription, file: BinaryIO) -> None:
    """Write a network in normal form; every float is printed with all its digits."""
    tree: dict[str, Any] = {}
    for key, value in mapping_of(description).items():
        dense = value.toarray() if is_sparse(value) else np.asarray(value)
        tree[key] = dense.tolist()
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tree.items())
    file.write(("{\n" + lines + "\n}\n").encode())
