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
from onnx import TensorProto, helper, numpy_helper

from bnncert.arrays import FloatArray
from bnncert.description.model import ModelDescription, Shift, Stage
from bnncert.errors import InputError

#: A layer with a larger dense matrix (in bytes) is not written.
LARGEST_MATRIX = 256 * 2**20

#: Protobuf cannot hold more than 2 GiB; the difference is for everything except matrices.
LARGEST_MODEL = 2**31 - 2**24

#: These versions are supported by all runtimes in use.
OPSET, IR_VERSION = 15, 8

#: Added to the result of Sign: it moves 0 to one side and keeps the signs of +1 and -1.
NUDGE = {"plus": 0.1, "minus": -0.1}


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
    model = _model(description, biases, kind)
    file.write(model.SerializeToString())


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


def _model(description: ModelDescription, biases: list[FloatArray], kind: Any) -> Any:
    nodes: list[Any] = []
    tensors: list[Any] = []

    def tensor(name: str, array: npt.NDArray[Any]) -> str:
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype=kind), name))
        return name

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    current = "input"
    if kind is np.float64:
        current = node("Cast", [current], "widened", to=element)
    current = node("Flatten", [current], "flat", axis=1)
    last = len(description.stages) - 1
    for number, (stage, bias) in enumerate(zip(description.stages, biases, strict=True)):
        dense = stage.weights.toarray().T
        current = node("MatMul", [current, tensor(f"W{number}", dense)], f"product{number}")
        end = "scores" if number == last else f"sum{number}"
        current = node("Add", [current, tensor(f"b{number}", bias)], end)
        if number == last:
            break
        current = node("Sign", [current], f"sign{number}")
        if stage.sign_zero in NUDGE:
            nudge = tensor(f"nudge{number}", np.array(NUDGE[stage.sign_zero]))
            current = node("Add", [current, nudge], f"nudged{number}")
            current = node("Sign", [current], f"settled{number}")
    if description.output_transform == "softmax":
        current = node("Softmax", [current], "probabilities", axis=1)
    elif description.output_transform == "argmax":
        current = node("ArgMax", [current], "class", axis=1, keepdims=0)
        element = TensorProto.INT64
    classes = description.stages[-1].weights.shape[0]
    shape = ["N"] if description.output_transform == "argmax" else ["N", classes]
    graph = helper.make_graph(
        nodes,
        "binary network",
        [
            helper.make_tensor_value_info(
                "input", TensorProto.FLOAT, ["N", *description.input_shape]
            )
        ],
        [helper.make_tensor_value_info(current, element, shape)],
        tensors,
    )
    model = helper.make_model(
        graph,
        producer_name="bnncert",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(model, _properties(description))
    return model


def _properties(description: ModelDescription) -> dict[str, str]:
    properties = dict(description.metadata)
    properties["bnncert.form"] = json.dumps("normal")
    for key, bound in (("input_lo", description.input_lo), ("input_hi", description.input_hi)):
        if bound is not None:
            numbers = np.asarray(bound, dtype=np.float64).reshape(-1).tolist()
            uniform = len(set(numbers)) == 1
            properties[f"bnncert.{key}"] = json.dumps(numbers[0] if uniform else numbers)
    if description.pixel_step is not None:
        properties["bnncert.pixel_step"] = json.dumps(description.pixel_step)
    if any(stage.sign_zero == "either" for stage in description.stages):
        properties["bnncert.sign_zero"] = json.dumps("either")
    return properties
