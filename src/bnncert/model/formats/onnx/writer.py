"""Networks in normal form as ONNX files that any runtime can execute.

Each layer is MatMul and Add; a sign is ``Sign -> Add(+-0.1) -> Sign``, which is never zero, or a
single ``Sign`` where sign(0) may be either.  Metadata state what the graph cannot express: the
input bounds, and that the weights are in normal form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.description import ModelDescription, Shift, Stage
from bnncert.model.formats.onnx.drafting import ModelDraft, data_properties

#: A layer with a larger dense matrix (in bytes) is not written.
LARGEST_MATRIX = 256 * 2**20

#: Protobuf cannot hold more than 2 GiB; the difference is for everything except matrices.
LARGEST_MODEL = 2**31 - 2**24


def write_onnx(description: ModelDescription, file: BinaryIO, path: Path) -> None:
    """Write a network whose stages are all W x + b; messages name `path`.

    The graph computes in float32 if all weights and biases are float32 numbers, else in float64;
    numbers are not rounded.
    """
    biases = [_bias(stage, path) for stage in description.stages]
    parts = [stage.weights.data for stage in description.stages] + biases
    kind: type[np.float32] | type[np.float64] = (
        np.float32 if all(_fits_float32(part) for part in parts) else np.float64
    )
    _check_sizes(description, np.dtype(kind).itemsize, path)
    file.write(_model(description, biases, kind))


def _bias(stage: Stage, path: Path) -> FloatArray:
    if len(stage.steps) != 1 or not isinstance(stage.steps[0], Shift) or stage.pool is not None:
        raise InputError(f"{path}: layer {stage.name} is not in normal form and cannot be written")
    return stage.steps[0].offset


def _fits_float32(numbers: npt.NDArray[Any]) -> bool:
    wide = numbers.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return bool(np.all(wide.astype(np.float32).astype(np.float64) == wide))


def _check_sizes(description: ModelDescription, width: int, path: Path) -> None:
    total = 0
    for stage in description.stages:
        rows, columns = stage.weights.shape
        size = rows * columns * width
        total += size
        if size > LARGEST_MATRIX:
            raise InputError(
                f"{path}: layer {stage.name} is a {rows} x {columns} matrix, {size >> 20} MiB as "
                f"ONNX stores it; at most {LARGEST_MATRIX >> 20} MiB are written (use .npz)"
            )
    if total > LARGEST_MODEL:
        raise InputError(f"{path}: {total >> 20} MiB of weights do not fit an ONNX file (use .npz)")


def _model(description: ModelDescription, biases: list[FloatArray], kind: Any) -> bytes:
    draft = ModelDraft(kind)
    element = draft.element
    current = "input"
    if kind is np.float64:
        current = draft.node("Cast", [current], "widened", to=element)
    current = draft.node("Flatten", [current], "flat", axis=1)
    last = len(description.stages) - 1
    for number, (stage, bias) in enumerate(zip(description.stages, biases, strict=True)):
        dense = draft.tensor(f"W{number}", stage.weights.toarray().T)
        current = draft.node("MatMul", [current, dense], f"product{number}")
        end = "scores" if number == last else f"sum{number}"
        current = draft.node("Add", [current, draft.tensor(f"b{number}", bias)], end)
        if number < last:
            current = draft.signs(current, number, stage.sign_zero)
    shape = [description.stages[-1].weights.shape[0]]
    if description.output_transform == "softmax":
        current = draft.node("Softmax", [current], "probabilities", axis=1)
    elif description.output_transform == "argmax":
        current = draft.node("ArgMax", [current], "class", axis=1, keepdims=0)
        element, shape = TensorProto.INT64, []
    return draft.model(description.input_shape, current, element, shape, _properties(description))


def _properties(description: ModelDescription) -> dict[str, str]:
    properties = {
        **description.metadata,
        "bnncert.form": json.dumps("normal"),
        **data_properties(description.input_lo, description.input_hi, description.pixel_step),
    }
    if any(stage.sign_zero == "either" for stage in description.stages):
        properties["bnncert.sign_zero"] = json.dumps("either")
    return properties
