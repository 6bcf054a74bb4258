"""The .npz network file: W0, b0, W1, b1, ... with the output layer last.

A matrix ``W{i}`` is stored in one of three ways:

* ``W{i}``: dense, float or integer, one row per neuron;
* ``W{i}_packed`` and ``W{i}_shape``: ternary, two bits a weight in row-major order, weight k in
  bits 2(k mod 4) and up of byte k // 4, with codes 0 -> 0, 1 -> +1, 2 -> -1;
* ``W{i}_data``, ``W{i}_indices``, ``W{i}_indptr``, ``W{i}_shape``: compressed sparse rows.

Optional: ``input_lo``, ``input_hi``, ``input_shape``, ``sign_zero`` (plus, minus or either) and
``pixel_step`` (input units per pixel level).
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.model.description import ModelDescription
from bnncert.model.formats.archive import array_names, open_archive, read_member_array
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits, too_many
from bnncert.model.formats.weight_arrays import describe_mapping, mapping_of
from bnncert.model.matrices import csr_matrix, is_sparse

#: The largest share of non-zeros of a matrix that is stored as sparse.
SPARSE_BELOW = 0.05


def pack_ternary(weights: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Pack a ternary matrix, two bits a weight."""
    flat = weights.reshape(-1)
    codes = np.zeros(-(-flat.size // 4) * 4, dtype=np.uint8)
    codes[: flat.size][flat == 1] = 1
    codes[: flat.size][flat == -1] = 2
    quads = codes.reshape(-1, 4)
    packed = quads[:, 0] | quads[:, 1] << 2 | quads[:, 2] << 4 | quads[:, 3] << 6
    return packed.astype(np.uint8)


def unpack_ternary(packed: npt.NDArray[np.uint8], shape: tuple[int, int]) -> npt.NDArray[np.int8]:
    """Undo :func:`pack_ternary`."""
    count = shape[0] * shape[1]
    codes = (packed[:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
    flat = codes.reshape(-1)[:count]
    if packed.size != -(-count // 4) or np.any(flat == 3):
        raise ValueError("not a packed ternary matrix of that shape")
    values = np.array([0, 1, -1], dtype=np.int8)
    return np.asarray(values[flat].reshape(shape), dtype=np.int8)


def read_npz(content: bytes, source: str, limits: Limits = DEFAULT_LIMITS) -> ModelDescription:
    """Read a network from the bytes of an .npz file."""
    with open_archive(content, source, ".npz", limits) as archive:
        arrays: dict[str, Any] = {
            name: read_member_array(archive, name, f"{source}: {name!r}")
            for name in array_names(archive)
        }
    return describe_mapping(_unpack(arrays, source, limits), source, "npz", limits)


def _unpack(arrays: dict[str, Any], source: str, limits: Limits) -> dict[str, Any]:
    content = dict(arrays)
    for key in arrays:
        name, _, kind = key.partition("_")
        if not name.startswith("W") or kind not in ("packed", "data"):
            continue
        if name in content:
            raise FormatError(f"{source}: {name} is stored twice, as {name} and as {key}")
        try:
            dims = content.pop(f"{name}_shape")
            if not np.issubdtype(dims.dtype, np.integer) or dims.shape != (2,) or dims.min() < 1:
                raise ValueError(f"shape {dims}")
            shape = (int(dims[0]), int(dims[1]))
            if max(shape) > limits.width:
                raise too_many(f"{source}: {name}", f"shape {shape}", limits.width, "width")
            if kind == "packed":
                if shape[0] * shape[1] > limits.matrix:
                    raise too_many(f"{source}: {name}", f"shape {shape}", limits.matrix, "matrix")
                packed = content.pop(key)
                if packed.dtype != np.uint8 or packed.ndim != 1:
                    raise ValueError(f"type {packed.dtype}, shape {packed.shape}")
                content[name] = unpack_ternary(packed, shape)
            else:
                parts = [content.pop(f"{name}_{part}") for part in ("data", "indices", "indptr")]
                if not all(np.issubdtype(part.dtype, np.integer) for part in parts[1:]):
                    raise ValueError("indices are not integers")
                matrix = csr_matrix(parts[0], parts[1], parts[2], shape)
                matrix.check_format(full_check=True)
                content[name] = matrix
        except FormatError:
            raise
        except (KeyError, ValueError) as error:
            raise FormatError(f"{source}: {key}: not a valid stored matrix ({error})") from error
    return content


def write_npz(description: ModelDescription, file: BinaryIO) -> None:
    """Write a network in normal form; ternary matrices are packed, sparse ones stay sparse."""
    stored: dict[str, Any] = {}
    for key, value in mapping_of(description).items():
        if not is_sparse(value):
            stored[key] = value
            continue
        cells = value.shape[0] * value.shape[1]
        if value.nnz <= SPARSE_BELOW * cells and cells > 10_000:
            stored[f"{key}_data"] = value.data
            stored[f"{key}_indices"] = value.indices
            stored[f"{key}_indptr"] = value.indptr
        elif np.all(np.abs(value.data) == 1):
            stored[f"{key}_packed"] = pack_ternary(value.toarray())
        else:
            stored[key] = value.toarray()
            continue
        stored[f"{key}_shape"] = np.array(value.shape, dtype=np.int64)
    np.savez_compressed(file, **stored)
