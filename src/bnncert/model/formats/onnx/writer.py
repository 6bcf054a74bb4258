"""ONNX files that bnncert writes, which any runtime can execute.

Each layer of a network in normal form is MatMul and Add; a sign is ``Sign -> Add(+-0.1) -> Sign``,
which is never zero, or a single ``Sign`` where sign(0) may be either.  Metadata state what the
graph cannot express: the input bounds, and that the weights are in normal form.

A graph that rounds its input, ``round(x / step) * step``, has infinitely many levels.  Inputs of a
data box [low, high] take finitely many of them, and for these inputs the graph with a Clip of its
input before all other nodes is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from bnncert.errors import InputError
from bnncert.model.description import (
    Divide,
    ElementwiseStep,
    ModelDescription,
    Normalise,
    Scale,
    Shift,
    step_arrays,
)
from bnncert.model.formats.file_content import read_bytes
from bnncert.model.formats.onnx.graph import parse_graph, read_in_one_piece

#: These versions are supported by all runtimes in use.
OPSET, IR_VERSION = 15, 8

#: Added to the result of Sign: it moves 0 to one side and keeps the signs of +1 and -1.
NUDGE = {"plus": 0.1, "minus": -0.1}


class ModelDraft:
    """Nodes and tensors of a model that is being written; floats have type `kind`."""

    def __init__(self, kind: type[np.float32] | type[np.float64]) -> None:
        self._kind = kind
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []

    @property
    def element(self) -> int:
        """The ONNX type of the floats."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self._kind)))

    def tensor(self, name: str, array: npt.NDArray[Any]) -> str:
        """Add a constant and return its name."""
        stored = np.ascontiguousarray(array, dtype=self._kind)
        self._tensors.append(numpy_helper.from_array(stored, name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node and return its output, after which it is named."""
        self._nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def step(self, step: ElementwiseStep, current: str, name: str, output: str) -> str:
        """Add the node of an elementwise step."""
        if isinstance(step, Normalise):
            # In the order of ONNX: scale, bias, mean and variance.
            arrays = (step.gamma, step.beta, step.mean, step.variance)
            tensors = [self.tensor(f"{name}_{k}", array) for k, array in enumerate(arrays)]
            epsilon = float(step.epsilon[0])
            return self.node("BatchNormalization", [current, *tensors], output, epsilon=epsilon)
        op = {Scale: "Mul", Shift: "Add", Divide: "Div"}[type(step)]
        return self.node(op, [current, self.tensor(name, step_arrays(step)[0])], output)

    def signs(self, current: str, number: int, sign_zero: str | None) -> str:
        """Add ``Sign -> Add(+-0.1) -> Sign``, or one Sign where sign(0) may be either."""
        current = self.node("Sign", [current], f"sign{number}")
        if sign_zero in NUDGE:
            nudge = self.tensor(f"nudge{number}", np.array(NUDGE[sign_zero]))
            current = self.node("Add", [current, nudge], f"nudged{number}")
            current = self.node("Sign", [current], f"settled{number}")
        return current

    def model(
        self,
        input_shape: Sequence[int],
        output: str,
        element: int,
        output_shape: Sequence[int],
        properties: Mapping[str, str],
    ) -> bytes:
        """Write the file of a model with the input `input`; shapes are without the batch axis."""
        shape = ["N", *input_shape]
        graph = helper.make_graph(
            self._nodes,
            "binary network",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, element, ["N", *output_shape])],
            self._tensors,
        )
        model = helper.make_model(
            graph,
            producer_name="bnncert",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(properties))
        return bytes(model.SerializeToString())


def data_properties(
    input_lo: npt.NDArray[Any] | float | None,
    input_hi: npt.NDArray[Any] | float | None,
    pixel_step: float | None,
) -> dict[str, str]:
    """State the data box and the input units of a pixel level as metadata."""
    properties = {}
    for key, bound in (("input_lo", input_lo), ("input_hi", input_hi)):
        if bound is not None:
            numbers = np.asarray(bound, dtype=np.float64).reshape(-1).tolist()
            uniform = len(set(numbers)) == 1
            properties[f"bnncert.{key}"] = json.dumps(numbers[0] if uniform else numbers)
    if pixel_step is not None:
        properties["bnncert.pixel_step"] = json.dumps(pixel_step)
    return properties


# -- networks in normal form --------------------------------------------------------------

#: A layer with a larger dense matrix (in bytes) is not written.
LARGEST_MATRIX = 256 * 2**20

#: Protobuf cannot hold more than 2 GiB; the difference is for everything except matrices.
LARGEST_MODEL = 2**31 - 2**24


def write_onnx(description: ModelDescription, file: BinaryIO, path: Path) -> None:
    """Write a network whose stages have no pooling; messages name `path`.

    The graph computes in float32 if all weights and biases are float32 numbers, else in float64;
    numbers are not rounded.
    """
    _check_steps(description, path)
    parts = [stage.weights.data for stage in description.stages]
    parts += [a for stage in description.stages for step in stage.steps for a in step_arrays(step)]
    kind: type[np.float32] | type[np.float64] = (
        np.float32 if all(_fits_float32(part) for part in parts) else np.float64
    )
    _check_sizes(description, np.dtype(kind).itemsize, path)
    file.write(_model(description, kind))


def _check_steps(description: ModelDescription, path: Path) -> None:
    """Refuse batch normalisation whose epsilon is not the float32 number that ONNX has for it."""
    for stage in description.stages:
        for step in stage.steps:
            if isinstance(step, Normalise) and not (
                _fits_float32(step.epsilon) and np.all(step.epsilon == step.epsilon[0])
            ):
                raise InputError(
                    f"{path}: the epsilon of the batch normalisation of {stage.name}, "
                    f"{float(step.epsilon[0])!r}, is not the same float32 number for all neurons, "
                    "as ONNX needs it; write .json or .npz"
                )


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


def _model(description: ModelDescription, kind: Any) -> bytes:
    draft = ModelDraft(kind)
    element = draft.element
    current = "input"
    if kind is np.float64:
        current = draft.node("Cast", [current], "widened", to=element)
    current = draft.node("Flatten", [current], "flat", axis=1)
    last = len(description.stages) - 1
    for number, stage in enumerate(description.stages):
        dense = draft.tensor(f"W{number}", stage.weights.toarray().T)
        current = draft.node("MatMul", [current, dense], f"product{number}")
        for place, step in enumerate(stage.steps, start=1):
            name = f"b{number}" if stage.bias is not None else f"F{number}_{place - 1}"
            end = f"step{number}_{place}" if place < len(stage.steps) else f"sum{number}"
            end = "scores" if number == last and place == len(stage.steps) else end
            current = draft.step(step, current, name, end)
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


# -- graphs with clipped inputs -----------------------------------------------------------

#: The name of the added node, which messages show.
NAME = "clip_inputs"


def clipped_graph(source: Path, low: float, high: float) -> bytes:
    """Clip the inputs of the graph in a file to [low, high], which becomes its data box, too."""
    if not -np.inf < low < high < np.inf:
        raise InputError(f"--clip is {low:g} {high:g}; expected LOW < HIGH")
    graph = parse_graph(read_bytes(source), str(source), source.parent)
    model = onnx.ModelProto()
    model.ParseFromString(read_in_one_piece(source))
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in model.graph.initializer}
    names = [_free(f"{NAME}_{part}", taken) for part in ("output", "low", "high")]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == graph.input_name:
                node.input[place] = names[0]
    bounds = [_outwards(graph.input_type, bound, end) for bound, end in ((low, -1), (high, 1))]
    if graph.opset < 11:
        settings = dict(zip(("min", "max"), map(float, bounds), strict=True))
        clip = helper.make_node("Clip", [graph.input_name], names[:1], name=NAME, **settings)
    else:
        clip = helper.make_node("Clip", [graph.input_name, *names[1:]], names[:1], name=NAME)
        for name, bound in zip(names[1:], bounds, strict=True):
            model.graph.initializer.append(numpy_helper.from_array(bound, name))
    model.graph.node.insert(0, clip)
    helper.set_model_props(model, {**graph.metadata, **data_properties(low, high, None)})
    return bytes(model.SerializeToString())


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _outwards(kind: np.dtype[Any], bound: float, end: int) -> Any:
    """Round to the nearest number of a type that is not inside the range."""
    near = np.array(bound, dtype=kind)
    is_inside = float(near) * end < bound * end
    return np.array(np.nextafter(near, kind.type(end * np.inf))) if is_inside else near
