"""The JSON network file: the content of the .npz file as nested lists.

Numbers may be JSON numbers, or strings with an exact decimal or hexadecimal float.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from bnncert.errors import FormatError
from bnncert.formats.arrays import describe_mapping, mapping_of
from bnncert.formats.description import ModelDescription


def read_json(content: bytes, source: str) -> ModelDescription:
    """Read a network from the bytes of a JSON file."""
    try:
        tree = json.loads(content.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError as error:
        raise FormatError(f"{source}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise FormatError(f"{source}:{error.lineno}: not valid JSON ({error.msg})") from error
    except RecursionError as error:
        raise FormatError(f"{source}: JSON is nested too deeply") from error
    except ValueError as error:
        # Python refuses integers of thousands of digits.
        raise FormatError(f"{source}: not valid JSON ({error})") from error
    if not isinstance(tree, dict):
        raise FormatError(f"{source}: expected a JSON object with keys W0, b0, W1, b1, ...")
    return describe_mapping(
        {key: _array(value, " ".join(key.split()), source) for key, value in tree.items()},
        source,
        "json",
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
        dense = value.toarray() if sp.issparse(value) else np.asarray(value)
        tree[key] = dense.tolist()
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tree.items())
    file.write(("{\n" + lines + "\n}\n").encode())
