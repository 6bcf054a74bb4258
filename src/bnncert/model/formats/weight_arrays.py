"""The network files of bnncert: arrays W0, b0, W1, b1, ... with the output layer last.

A .json file has them as nested lists; a number is a JSON number, or a text with an exact decimal or
hexadecimal float.  An .npz file stores a matrix ``W{i}`` in one of three ways:

* ``W{i}``: dense, float or integer, one row per neuron;
* ``W{i}_packed`` and ``W{i}_shape``: ternary, two bits a weight in row-major order, weight k in
  bits 2(k mod 4) and up of byte k // 4, with codes 0 -> 0, 1 -> +1, 2 -> -1;
* ``W{i}_data``, ``W{i}_indices``, ``W{i}_indptr``, ``W{i}_shape``: compressed sparse rows.

A layer whose bias is irrational, because batch normalisation divides by a square root, has instead
of ``b{i}`` the steps after ``W{i} x`` in their order, ``F{i}_0_KIND``, ``F{i}_1_KIND``, ..: one
number a neuron for the kinds scale, shift and divide, and for normalise the five rows gamma, beta,
mean, variance and epsilon.

Optional: ``input_lo``, ``input_hi``, ``input_shape``, ``sign_zero`` (plus, minus or either) and
``pixel_step`` (input units per pixel level).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError
from bnncert.model.description import (
    STEP_KINDS,
    ElementwiseStep,
    ModelDescription,
    Normalise,
    Scale,
    Shift,
    SignZero,
    Stage,
    step_arrays,
)
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    Limits,
    array_names,
    open_archive,
    parse_json,
    read_member_array,
    too_many,
)
from bnncert.model.matrices import (
    CsrArrays,
    as_matrix,
    as_sparse,
    csr_matrix,
    factor_sparse,
    is_sparse,
)

#: The name of an array with the parameters of a step: layer, place and kind.
_STEP = re.compile(r"F(0|[1-9]\d*)_(0|[1-9]\d*)_(\w+)")


def array_stages(
    weights: Sequence[Any],
    biases: Sequence[FloatArray | tuple[ElementwiseStep, ...]],
    source: str,
    *,
    sign_zero: SignZero | None = None,
    structural: bool = False,
) -> tuple[Stage, ...]:
    """Make the stages of x_i = sign(W_i x_{i-1} + b_i), scores = W_{L+1} x_L + b_{L+1}.

    A layer may have steps instead of a bias.
    """
    if len(weights) < 2 or len(weights) != len(biases):
        raise FormatError(
            f"{source}: {len(weights)} weight and {len(biases)} bias arrays; expected W0, b0, "
            "W1, b1, ... with at least one hidden layer and the output layer"
        )
    stages = []
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        rows = _checked_matrix(w, f"W{i}", source)
        hidden = i + 1 < len(weights)
        # Factors of the rows stay where they are if a layer has steps, which belong to them.
        steps: tuple[ElementwiseStep, ...] = b if isinstance(b, tuple) else (Shift(b),)
        if not isinstance(b, tuple):
            if b.shape != (w.shape[0],):
                raise FormatError(
                    f"{source}: b{i} has shape {b.shape}; expected ({w.shape[0]},) to match W{i}"
                )
            if not np.all(np.isfinite(b)):
                raise FormatError(f"{source}: b{i} contains NaN or infinity")
            split = factor_sparse(rows) if hidden else None
            if split is not None:
                # One factor of every row, which leaves a ternary matrix.
                rows, factor = split
                steps = (Scale(factor), *steps) if np.any(factor != 1.0) else steps
        zero = sign_zero if hidden else None
        stages.append(Stage(rows, steps, f"W{i}", zero, structural=structural))
    return tuple(stages)


def _checked_matrix(matrix: Any, name: str, source: str) -> Any:
    """Check a weight matrix and bring it to sparse rows."""
    if matrix.ndim != 2 or 0 in matrix.shape or not _is_real(matrix):
        raise FormatError(
            f"{source}: {name} has shape {matrix.shape} and type {matrix.dtype}; expected a "
            "non-empty real matrix with one row per neuron"
        )
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize > 8:
        raise FormatError(f"{source}: {name} has type {matrix.dtype}; expected at most float64")
    stored = matrix.data if is_sparse(matrix) else matrix
    if stored.dtype.kind in "iu" and not _is_exact(stored, stored.astype(np.float64)):
        raise FormatError(f"{source}: {name} has numbers that float64 cannot hold exactly")
    # SciPy supports native byte order only, and no float16.
    small = matrix.dtype.kind == "f" and matrix.dtype.itemsize < 4
    usable = matrix.astype(np.float32 if small else matrix.dtype.newbyteorder("="), copy=False)
    rows = as_sparse(usable) if is_sparse(usable) else CsrArrays.of_dense(usable)
    if not np.all(np.isfinite(rows.data)):
        raise FormatError(f"{source}: {name} contains NaN or infinity")
    return rows


def _is_exact(array: npt.NDArray[Any], floats: FloatArray) -> bool:
    if array.dtype.kind in "iu":
        return bool(np.all(np.abs(floats) <= 2.0**53))
    return bool(np.all((floats.astype(array.dtype) == array) | np.isnan(floats)))


def _is_real(array: Any) -> bool:
    return bool(np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating))


def describe_mapping(
    content: Mapping[str, Any], source: str, kind: str, limits: Limits = DEFAULT_LIMITS
) -> ModelDescription:
    """Describe the network in a mapping with the keys of formats like .npz."""
    count = 0
    while f"W{count}" in content:
        count += 1
    if count == 0:
        raise FormatError(f"{source}: no array W0; expected keys W0, b0, W1, b1, ...")
    steps = _stated_steps(content, source)
    missing = [f"b{i}" for i in range(count) if f"b{i}" not in content and i not in steps]
    if missing:
        raise FormatError(f"{source}: array {missing[0]} is missing")
    twice = [i for i in sorted(steps) if f"b{i}" in content]
    if twice:
        raise FormatError(f"{source}: layer {twice[0]} has b{twice[0]} and steps; expected one")
    known = {f"{letter}{i}" for i in range(count) for letter in "Wb"}
    known |= {key for key in content if (match := _STEP.fullmatch(key)) and int(match[1]) < count}
    known |= {"input_lo", "input_hi", "input_shape", "sign_zero", "integer_weights", "pixel_step"}
    unknown = sorted(set(content) - known)
    if unknown:
        raise FormatError(
            f"{source}: unknown array {unknown[0]}; expected W0, b0, .., W{count - 1}"
        )
    weights = [content[f"W{i}"] for i in range(count)]
    _check_sizes(weights, source, limits)
    stages = array_stages(
        weights,
        [
            _layer_steps(content, steps[i], weights[i].shape[0], source)
            if i in steps
            else _floats(content, f"b{i}", source)
            for i in range(count)
        ],
        source,
        sign_zero=_sign_zero(content, source),
        structural="integer_weights" in content
        and bool(np.any(_floats(content, "integer_weights", source))),
    )
    return ModelDescription(
        stages=stages,
        input_shape=_input_shape(content, stages[0].weights.shape[1], source),
        input_lo=_floats(content, "input_lo", source) if "input_lo" in content else None,
        input_hi=_floats(content, "input_hi", source) if "input_hi" in content else None,
        source=source,
        kind=kind,
        pixel_step=_pixel_step(content, source),
    )


def _stated_steps(content: Mapping[str, Any], source: str) -> dict[int, list[str]]:
    """Find the layers that have steps instead of a bias, and the keys of the steps in order."""
    found: dict[int, dict[int, str]] = {}
    for key in content:
        match = _STEP.fullmatch(key)
        if match is None:
            continue
        places = found.setdefault(int(match[1]), {})
        if match[3] not in STEP_KINDS or int(match[2]) in places:
            raise FormatError(
                f"{source}: {key}: not a step of its own of a known kind ({', '.join(STEP_KINDS)})"
            )
        places[int(match[2])] = key
    for layer, places in found.items():
        if set(places) != set(range(len(places))):
            raise FormatError(
                f"{source}: the steps of layer {layer} are numbered "
                f"{', '.join(map(str, sorted(places)))}; expected 0, 1, .. without gaps"
            )
    return {layer: [places[k] for k in range(len(places))] for layer, places in found.items()}


def _layer_steps(
    content: Mapping[str, Any], keys: Sequence[str], size: int, source: str
) -> tuple[ElementwiseStep, ...]:
    """Read the steps of a layer of `size` neurons."""
    steps: list[ElementwiseStep] = []
    for key in keys:
        kind = STEP_KINDS[key.rpartition("_")[2]]
        array = _floats(content, key, source)
        shape = (5, size) if kind is Normalise else (size,)
        if array.shape != shape:
            raise FormatError(f"{source}: {key} has shape {array.shape}; expected {shape}")
        steps.append(kind(*np.atleast_2d(array)))
    return tuple(steps)


def _check_sizes(weights: Sequence[Any], source: str, limits: Limits) -> None:
    for i, matrix in enumerate(weights):
        where = f"{source}: W{i}"
        if max(matrix.shape, default=0) > limits.width:
            raise too_many(where, f"shape {matrix.shape}", limits.width, "width")
        # The output layer is converted to a dense matrix.
        sparse = is_sparse(matrix) and i + 1 < len(weights)
        entries = matrix.nnz if sparse else math.prod(matrix.shape)
        if entries > limits.matrix:
            raise too_many(where, f"{entries} entries", limits.matrix, "matrix")


def _pixel_step(content: Mapping[str, Any], source: str) -> float | None:
    if "pixel_step" not in content:
        return None
    array = _floats(content, "pixel_step", source)
    if array.size != 1 or not 0 < float(array.reshape(-1)[0]) < np.inf:
        raise FormatError(f"{source}: pixel_step is {array}; expected one number > 0")
    return float(array.reshape(-1)[0])


def _input_shape(content: Mapping[str, Any], inputs: int, source: str) -> tuple[int, ...]:
    if "input_shape" not in content:
        return (inputs,)
    numbers = _floats(content, "input_shape", source).reshape(-1)
    whole = np.all(np.isfinite(numbers)) and np.all(numbers == np.rint(numbers))
    if not whole or np.any(numbers < 1) or float(np.prod(numbers)) != inputs:
        shown = tuple(int(n) if whole else float(n) for n in numbers)
        raise FormatError(f"{source}: input_shape {shown} does not hold {inputs} inputs")
    return tuple(int(n) for n in numbers)


def _floats(content: Mapping[str, Any], name: str, source: str) -> FloatArray:
    array: npt.NDArray[Any] = content[name]
    if array.dtype != bool and not _is_real(array):
        raise FormatError(f"{source}: {name} has type {array.dtype}; expected real numbers")
    floats = array.astype(np.float64)
    if not _is_exact(array, floats):
        # Rounded numbers would describe a different network.
        raise FormatError(f"{source}: {name} has numbers that float64 cannot hold exactly")
    return floats


def _sign_zero(content: Mapping[str, Any], source: str) -> SignZero | None:
    if "sign_zero" not in content:
        return None
    array = np.asarray(content["sign_zero"])
    value = str(array.reshape(-1)[0]) if array.size == 1 else str(array)
    for known in ("plus", "minus", "either"):
        if value == known:
            return known
    raise FormatError(f"{source}: sign_zero is {value!r}; expected plus, minus or either")


def bound_array(value: object, what: str) -> FloatArray:
    """Read a side of the data box that a JSON text states: one number, or a list."""
    try:
        return np.array(value, dtype=np.float64).reshape(-1)
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(f"{what} is not a number or a list of numbers") from error


def mapping_of(description: ModelDescription) -> dict[str, Any]:
    """Name the arrays of a description as writers receive it.

    The matrices W stay sparse: each writer chooses how to store them.
    """
    content: dict[str, Any] = {}
    beyond_ternary = False
    conventions = {stage.sign_zero for stage in description.stages[:-1]}
    if len(conventions) > 1:
        raise FormatError(
            "layers with different values of sign(0) cannot be written to this format; "
            "choose one with --sign-zero"
        )
    for i, stage in enumerate(description.stages):
        content[f"W{i}"] = as_matrix(stage.weights)
        if stage.bias is None:
            for k, step in enumerate(stage.steps):
                (name,) = (name for name, kind in STEP_KINDS.items() if type(step) is kind)
                arrays = np.stack(
                    [np.broadcast_to(a, (stage.weights.shape[0],)) for a in step_arrays(step)]
                )
                content[f"F{i}_{k}_{name}"] = arrays if name == "normalise" else arrays[0]
        else:
            content[f"b{i}"] = stage.bias
        hidden_integer = 0 < i < len(description.stages) - 1
        beyond_ternary |= hidden_integer and bool(np.any(np.abs(stage.weights.data) > 1))
    if beyond_ternary:
        content["integer_weights"] = np.array(True)
    (sign_zero,) = conventions
    if sign_zero is not None:
        content["sign_zero"] = np.array(sign_zero)
    for key in ("input_lo", "input_hi"):
        if getattr(description, key) is not None:
            content[key] = getattr(description, key)
    content["input_shape"] = np.array(description.input_shape, dtype=np.int64)
    if description.pixel_step is not None:
        content["pixel_step"] = np.array(description.pixel_step)
    return content


# -- .npz files ---------------------------------------------------------------------------

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


# -- .json files --------------------------------------------------------------------------


def read_json(content: bytes, source: str, limits: Limits = DEFAULT_LIMITS) -> ModelDescription:
    """Read a network from the bytes of a JSON file."""
    tree = parse_json(content, source, hook=_without_duplicates, limits=limits)
    if not isinstance(tree, dict):
        raise FormatError(f"{source}: expected a JSON object with keys W0, b0, W1, b1, ...")
    return describe_mapping(
        {key: _json_array(value, key, source) for key, value in tree.items()},
        source,
        "json",
        limits,
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise ValueError(f"key {key!r} occurs twice")
        tree[key] = value
    return tree


def _json_array(value: Any, key: str, source: str) -> Any:
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
