"""ONNX model files.

The graph is interpreted from its input to its output.  Between two signs all operations must be
affine (or a maximum over windows); they are kept with the numbers and in the order of the file.
An operation that cannot be represented exactly raises an error that names its node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import Divide, ModelDescription, Normalise, Scale, Shift
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits
from bnncert.model.formats.onnx.constants import exact_floats, scalar, target_type
from bnncert.model.formats.onnx.folding import FOLDS, fold
from bnncert.model.formats.onnx.graph import Graph, OnnxNode, parse_graph, tensor_array
from bnncert.model.formats.onnx.linear import (
    average_pool,
    convolution,
    gemm,
    matmul,
    pad,
    reduction,
)
from bnncert.model.formats.onnx.max_pooling import max_pool
from bnncert.model.formats.onnx.operands import (
    arithmetic_value,
    constant,
    depending,
    plain,
    refuse_unbounded,
    spread,
)
from bnncert.model.formats.onnx.qonnx import CONSTANT_QUANTISERS, QUANTISERS, check_domain
from bnncert.model.formats.onnx.rounded_inputs import OPERATORS, round_off
from bnncert.model.formats.onnx.schema import check_node
from bnncert.model.formats.onnx.session import onnx_execution
from bnncert.model.formats.onnx.shapes import axis_of, new_shape, permutation, shape_of
from bnncert.model.formats.onnx.signs import bipolar_quant, choose, clip, compare, negate, sign
from bnncert.model.formats.onnx.stages import output_stage
from bnncert.model.formats.onnx.value import (
    INTEGERS,
    LARGEST_INTEGER,
    MOST_INTEGER_STEPS,
    GraphWalk,
    Operand,
    Value,
    positions,
)
from bnncert.model.formats.weight_arrays import bound_array

#: Prefix of the metadata that bnncert writes.
OWN_METADATA = "bnncert."

Handler: TypeAlias = Callable[[GraphWalk, OnnxNode, Sequence[Operand]], Value]


def read_onnx(
    content: bytes, source: str, folder: Path | None = None, limits: Limits = DEFAULT_LIMITS
) -> ModelDescription:
    """Read a network from the bytes of an ONNX file.

    Parameters
    ----------
    folder
        The folder of the file, from which tensors in other files are read; without it they are
        refused.
    limits
        The limits of these other files.
    """
    graph = parse_graph(content, source, folder, limits)
    walk = GraphWalk(opset=graph.opset, as_written=_own(graph, "form", source) == "normal")
    value = _follow(graph, walk)
    refuse_unbounded(value)
    if value.pool is not None or value.clip is not None or value.kind == "bool":
        but = "" if value.clip is None else f", but {value.clip.node} clips them"
        raise UnsupportedModelError(
            f"{source}: output {graph.output_name}: the scores must be a linear function of signs"
            + but
        )
    if _own(graph, "sign_zero", source) == "either":
        walk.stages = [
            stage if stage.sign_zero else replace(stage, sign_zero="either")
            for stage in walk.stages
        ]
    shape = graph.input_shape
    return ModelDescription(
        stages=(*walk.stages, output_stage(value)),
        input_shape=shape[1:] if len(shape) > 1 else shape,
        input_lo=_own_bound(graph, "input_lo", source),
        input_hi=_own_bound(graph, "input_hi", source),
        output_transform=value.transform,
        source=source,
        kind="onnx",
        metadata={k: v for k, v in graph.metadata.items() if not k.startswith(OWN_METADATA)},
        pixel_step=_own_pixel_step(graph, source),
        execution=onnx_execution(graph.content),
    )


def _own(graph: Graph, key: str, source: str) -> object:
    """Return an entry of the metadata that bnncert writes, or None."""
    text = graph.metadata.get(OWN_METADATA + key)
    if text is None:
        return None
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source}: metadata {OWN_METADATA}{key} is not valid JSON") from error
    return parsed


def _own_pixel_step(graph: Graph, source: str) -> float | None:
    content = _own(graph, "pixel_step", source)
    if content is None:
        return None
    if (
        isinstance(content, bool)
        or not isinstance(content, int | float)
        or not 0 < content < np.inf
    ):
        raise FormatError(f"{source}: metadata {OWN_METADATA}pixel_step is not a number > 0")
    return float(content)


def _own_bound(graph: Graph, key: str, source: str) -> FloatArray | None:
    content = _own(graph, key, source)
    return (
        None if content is None else bound_array(content, f"{source}: metadata {OWN_METADATA}{key}")
    )


def _follow(graph: Graph, walk: GraphWalk) -> Value:
    size = math.prod(graph.input_shape)
    known: dict[str, Operand] = {
        graph.input_name: Value(
            shape=graph.input_shape, index=positions(size), width=size, dtype=graph.input_type
        )
    }
    reader: dict[str, OnnxNode] = {}
    for node in graph.nodes:
        operands: list[Operand] = []
        for name in node.inputs:
            if name and name not in known:
                if name not in graph.tensors:
                    raise node.unsupported(f"it reads {name}, which is not a first output")
                known[name] = tensor_array(graph.tensors[name], graph.source)
            operands.append(known[name] if name else None)
            if isinstance(operands[-1], Value) and node.op not in ("Shape", "Size"):
                if name in reader and reader[name] is not node:
                    raise node.unsupported(
                        f"its input {name} is also read by node {reader[name].name} "
                        f"({reader[name].op}); branches and residual connections are not supported"
                    )
                reader[name] = node
        if not node.outputs or not node.outputs[0]:
            raise node.unsupported("only its first output is supported")
        known[node.outputs[0]] = _result(walk, node, operands)
    value = known.get(graph.output_name)
    if not isinstance(value, Value):
        raise UnsupportedModelError(
            f"{graph.source}: output {graph.output_name} does not depend on the input"
        )
    return value


def _result(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Operand:
    check_domain(node)
    if any(attribute.HasField("g") for attribute in node.attributes.values()):
        raise node.unsupported("control flow is not supported")
    handler = HANDLERS.get(node.op) or LEVEL_HANDLERS.get(node.op)
    if node.op in FOLDS or handler is not None:
        types = [None if operand is None else operand.dtype for operand in operands]
        check_node(node, types, walk.opset)
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        raise node.unsupported(
            "integer models with QuantizeLinear and DequantizeLinear are not supported; export the "
            "model as QONNX (brevitas.export.export_qonnx)"
        )
    with node.reading():
        if not any(isinstance(operand, Value) for operand in operands):
            constants = [o for o in operands if not isinstance(o, Value)]
            return fold(node, constants, walk.opset, CONSTANT_QUANTISERS)
        first = operands[0]
        if node.op == "Shape" and isinstance(first, Value):
            return shape_of(node, first.shape)
        if node.op == "Size" and isinstance(first, Value):
            return np.array(first.size, dtype=np.int64)
        if handler is None:
            raise node.unsupported(
                "not part of a binary network (its operators are signs, linear maps, "
                "normalisation and pooling)"
            )
        return handler(walk, node, operands)


# -- operators that only move entries -----------------------------------------------------


def _mover(operand: Operand, node: OnnxNode) -> Value:
    value = depending(operand, node)
    if value.transform == "argmax":
        raise node.unsupported("ArgMax must be the last operation of the network")
    return value


def _same(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    if node.op == "Dropout":
        ratio, training = ([*operands[1:], None, None])[:2]
        if ratio is not None:
            scalar(constant(ratio, node, "its ratio"), node, "its ratio")
        if training is not None and scalar(constant(training, node, "its mode"), node, "its mode"):
            raise node.unsupported("dropout in training mode")
    return _mover(operands[0], node)


def _cast(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    target = np.dtype(target_type(node))
    if value.kind == "bool":
        if target.name not in ("float16", "float32", "float64") and target not in INTEGERS:
            # 2 x - 1 of an unsigned 0 is not -1.
            raise node.unsupported(f"a truth value as {target}; expected a float or int32, int64")
        half = value.uniformly(0.5)
        value = replace(value, dtype=target)
        return value.then(Scale(half)).then(Shift(half))
    signs = value.is_signs and not value.steps
    exact = value.kind == "integer" or signs or target.itemsize >= value.dtype.itemsize
    if target.name not in ("float32", "float64") or not exact:
        raise node.unsupported(f"a conversion from {value.dtype} to {target} may round")
    return replace(value, dtype=target)


def _reshape(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Reshape, Flatten, Squeeze and Unsqueeze."""
    value = _mover(operands[0], node)
    what = "the new shape" if node.op == "Reshape" else "its list of axes"
    for operand in operands[1:]:
        constant(operand, node, what)
    return value.reshaped(new_shape(node, operands, value.shape, walk.opset))


def _transpose(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    return value.transposed(permutation(node, len(value.shape)))


# -- elementwise arithmetic ---------------------------------------------------------------


def _arithmetic(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    left, right = operands[0], operands[1]
    value = arithmetic_value(left if isinstance(left, Value) else right, node, ("real", "integer"))
    other = constant(right if isinstance(left, Value) else left, node, "its other input")
    shape, numbers = spread(value, other, node)
    value = value.reshaped(shape)
    reverse = not isinstance(left, Value)
    if value.kind == "integer" and (
        len(value.steps) > MOST_INTEGER_STEPS or np.any(np.abs(numbers) > LARGEST_INTEGER)
    ):
        raise node.unsupported("arithmetic on integers that may overflow")
    if node.op == "Mul":
        return value.then(Scale(numbers))
    if node.op == "Add":
        return value.then(Shift(numbers))
    if node.op == "Sub" and reverse:
        return value.then(Scale(value.uniformly(-1.0))).then(Shift(numbers))
    if node.op == "Sub":
        return value.then(Shift(-numbers))
    if reverse:
        raise node.unsupported("divides by something that depends on the network's input")
    if value.kind == "integer":
        raise node.unsupported("a division of integers")
    if np.any(numbers == 0):
        raise node.unsupported("division by zero")
    return value.then(Divide(numbers))


def _negative(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = arithmetic_value(operands[0], node)
    return value.then(Scale(value.uniformly(-1.0)))


def _batch_normalisation(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = plain(operands[0], node)
    if len(operands) != 5:
        raise FormatError(f"{node.place}: {len(operands)} inputs; expected 5")
    # Before operator set 14, several outputs mean training mode.
    if node.integer("training_mode", 0) or any(node.outputs[1:]):
        raise node.unsupported("training mode (more outputs than one)")
    if node.integer("spatial", 1) != 1:
        raise node.unsupported("statistics for single positions")
    if len(value.shape) < 2:
        raise node.unsupported(f"its input has shape {value.shape}; expected (1, C, ...)")
    channels = value.shape[1]
    arrays = []
    for operand, what in zip(operands[1:], ("scale", "bias", "mean", "variance"), strict=True):
        array = exact_floats(constant(operand, node, f"its {what}"), node, f"its {what}")
        if array.shape != (channels,):
            raise FormatError(
                f"{node.place}: {what} of shape {array.shape} for {channels} channels"
            )
        wide = array.reshape(1, channels, *(1,) * (len(value.shape) - 2))
        arrays.append(np.broadcast_to(wide, value.shape).reshape(-1).copy())
    gamma, beta, mean, variance = arrays
    epsilon = value.uniformly(node.number("epsilon", 1e-5))
    if np.any(variance + epsilon <= 0):
        raise node.unsupported("variance + epsilon is not positive")
    return value.then(Normalise(gamma, beta, mean, variance, epsilon))


# -- the end of a network -----------------------------------------------------------------


def _softmax(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = plain(operands[0], node)
    rank = len(value.shape)
    axis = axis_of(node, node.integer("axis", 1 if walk.opset < 13 else -1), rank)
    # Before opset 13 softmax runs over all axes from `axis` on.
    over = value.shape[axis:] if walk.opset < 13 else value.shape[axis : axis + 1]
    if math.prod(over) != value.size:
        raise node.unsupported(f"axis {axis} of shape {value.shape} does not hold all scores")
    return replace(value, transform="softmax")


def _argmax(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    # Softmax keeps the order of the scores.
    value = plain(replace(value, transform="scores"), node)
    axis = axis_of(node, node.integer("axis", 0), len(value.shape))
    if value.shape[axis] != value.size:
        raise node.unsupported(f"axis {axis} of shape {value.shape} does not hold all scores")
    if node.integer("select_last_index", 0):
        raise node.unsupported("select_last_index decides ties for the last class")
    return replace(value, transform="argmax")


#: The operators that are supported on values that depend on the input.
HANDLERS: dict[str, Handler] = {
    "Identity": _same,
    "Dropout": _same,
    "Cast": _cast,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "Neg": _negative,
    "BatchNormalization": _batch_normalisation,
    "MatMul": matmul,
    "Gemm": gemm,
    "Conv": convolution,
    "AveragePool": average_pool,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), reduction),
    "Pad": pad,
    "MaxPool": max_pool,
    "GlobalMaxPool": max_pool,
    "Sign": sign,
    "BipolarQuant": bipolar_quant,
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), compare),
    "Not": negate,
    "Where": choose,
    "Clip": clip,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "ArgMax": _argmax,
}

#: Further ones: activations with several levels, and what comes before them.
LEVEL_HANDLERS: dict[str, Handler] = {
    "Relu": clip,
    **dict.fromkeys(OPERATORS, round_off),
    **QUANTISERS,
}
