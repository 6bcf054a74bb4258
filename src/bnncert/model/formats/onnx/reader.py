"""ONNX model files.

The graph is interpreted from its input to its output.  Between two signs all operations must be
affine (or a maximum over windows); they are kept with the numbers and in the order of the file.
An operation that cannot be represented exactly raises an error that names its node.

The package `onnx` contains the specification of each operator in each version of the operator
set.  A node that violates it, or that has an attribute which this version does not define, raises
an error: ignoring an unknown attribute would change the network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import ModelDescription
from bnncert.model.formats.file_content import DEFAULT_LIMITS, Limits
from bnncert.model.formats.onnx import onnx_execution
from bnncert.model.formats.onnx.folding import FOLDS, fold
from bnncert.model.formats.onnx.graph import Graph, OnnxNode, parse_graph, tensor_array
from bnncert.model.formats.onnx.operators import HANDLERS, LEVEL_HANDLERS
from bnncert.model.formats.onnx.quantisers import check_domain
from bnncert.model.formats.onnx.shapes import shape_of
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Value,
    output_stage,
    positions,
    refuse_unbounded,
)
from bnncert.model.formats.weight_arrays import bound_array

# -- the specification of operators -------------------------------------------------------

ElementType: TypeAlias = "np.dtype[Any]"

#: Element types of tensors that are read, as the specification writes them.
TYPE_NAMES: dict[str, str] = {
    "bool": "tensor(bool)",
    "float16": "tensor(float16)",
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    **{
        f"{sign}int{bits}": f"tensor({sign}int{bits})"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}

#: Attributes that are 0 or 1; runtimes interpret other numbers differently.
FLAGS = frozenset(
    {
        *("allowzero", "ceil_mode", "count_include_pad", "keepdims", "noop_with_empty_axes"),
        *("saturate", "select_last_index", "spatial", "storage_order", "training_mode"),
        *("transA", "transB"),
    }
)

_QUANT = {"signed": "INT", "narrow": "INT", "rounding_mode": "STRING"}

#: The operators of QONNX, which the package `onnx` does not define: the number of their inputs,
#: their attributes and types, and those among them that must be given.
QONNX_OPERATORS: dict[str, tuple[int, dict[str, str], tuple[str, ...]]] = {
    "BipolarQuant": (2, {}, ()),
    **dict.fromkeys(("Quant", "IntQuant"), (4, _QUANT, ("signed", "narrow"))),
    "MultiThreshold": (
        2,
        {"out_dtype": "STRING", "out_scale": "FLOAT", "out_bias": "FLOAT", "data_layout": "STRING"},
        (),
    ),
}


def check_node(node: OnnxNode, types: Sequence[ElementType | None]) -> None:
    """Raise if the specification in this operator set does not allow a node.

    `types` are the element types of its inputs; None for an input that is left out.
    """
    if node.op in QONNX_OPERATORS:
        _check_quantiser(node, types)
        return
    try:
        schema = onnx.defs.get_schema(node.op, max_inclusive_version=node.opset)
    except onnx.defs.SchemaError as error:
        raise node.unsupported(f"operator set {node.opset} has no such operator") from error
    if schema.deprecated:
        raise node.unsupported(f"operator set {node.opset} has no such operator any more")
    _check_attributes(node, schema)
    _check_inputs(node, schema, types)
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise node.broken(
            f"{len(node.outputs)} outputs; expected {_range(schema.min_output, schema.max_output)}"
        )


def _check_quantiser(node: OnnxNode, types: Sequence[ElementType | None]) -> None:
    count, attributes, required = QONNX_OPERATORS[node.op]
    if len(types) != count or None in types:
        raise node.unsupported(f"{len(types)} inputs; expected {count}")
    if types[0] != types[1] or any(kind is not None and kind.kind != "f" for kind in types):
        raise node.unsupported(f"its inputs have types {types[0]} and {types[1]}; expected floats")
    for name, attribute in node.attributes.items():
        if name not in attributes:
            raise node.unsupported(f"attribute {name} is not known")
        if attribute.type != onnx.AttributeProto.AttributeType.Value(attributes[name]):
            raise node.broken(f"attribute {name} is not of type {attributes[name]}")
    for name in required:
        if name not in node.attributes:
            raise node.broken(f"attribute {name} is missing")


def _check_attributes(node: OnnxNode, schema: Any) -> None:
    for name, attribute in node.attributes.items():
        if name not in schema.attributes:
            raise node.unsupported(
                f"attribute {name} is not known in operator set {node.opset} (version "
                f"{schema.since_version} of the operator)"
            )
        if attribute.ref_attr_name:
            raise node.unsupported(f"attribute {name} refers to an attribute of a function")
        expected = schema.attributes[name].type.value
        if attribute.type != expected:
            kind = onnx.AttributeProto.AttributeType.Name(expected)
            raise node.broken(f"attribute {name} is not of type {kind}")
        if name in FLAGS and attribute.i not in (0, 1):
            raise node.unsupported(f"attribute {name} is {attribute.i}; expected 0 or 1")
    for name, entry in schema.attributes.items():
        if entry.required and name not in node.attributes:
            raise node.broken(f"attribute {name} is missing")


def _check_inputs(node: OnnxNode, schema: Any, types: Sequence[ElementType | None]) -> None:
    if not schema.min_input <= len(types) <= schema.max_input:
        raise node.broken(
            f"{len(types)} inputs; expected "
            f"{_range(schema.min_input, schema.max_input)} in operator set {node.opset}"
        )
    bound: dict[str, ElementType] = {}
    for number, kind in enumerate(types):
        # A variadic input is the last one of the list and describes all that follow.
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if kind is None:
            if formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
                raise node.broken(f"its input {formal.name} is missing")
            continue
        if TYPE_NAMES.get(kind.name) not in formal.types:
            raise node.unsupported(
                f"its input {formal.name} has type {kind}, which operator set {node.opset} does "
                "not allow here, or which is not supported"
            )
        first = bound.setdefault(formal.type_str, kind)
        if first != kind:
            raise node.broken(f"its inputs have types {first} and {kind}")


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    # A variadic operator has the largest 32-bit integer here.
    return f"{least} to {most}" if most < 2**31 - 1 else f"{least} or more"


# -- reading a graph ----------------------------------------------------------------------

#: Prefix of the metadata that bnncert writes.
OWN_METADATA = "bnncert."


def read_onnx(
    content: bytes, source: str, folder: Path | None = None, limits: Limits = DEFAULT_LIMITS
) -> ModelDescription:
    """Read a network from the bytes of an ONNX file.

    Tensors in other files are read from `folder`, within `limits`; without it they are refused.
    """
    graph = parse_graph(content, source, folder, limits)
    walk = GraphWalk(as_written=_own(graph, "form", source) == "normal")
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
    """Read an entry of the metadata that bnncert writes, or None."""
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
        check_node(node, types)
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        raise node.unsupported(
            "integer models with QuantizeLinear and DequantizeLinear are not supported; export the "
            "model as QONNX (brevitas.export.export_qonnx)"
        )
    with node.reading():
        if not any(isinstance(operand, Value) for operand in operands):
            constants = [o for o in operands if not isinstance(o, Value)]
            return fold(node, constants)
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
