"""Checks of one node against the ONNX operator specification, before it is interpreted.

The package `onnx` contains the specification of each operator in each version of the operator
set.  A node that violates it, or that has an attribute which this version does not define, raises
an error: ignoring an unknown attribute would change the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from bnncert.errors import FormatError
from bnncert.model.formats.onnx.graph import OnnxNode

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


def check_node(node: OnnxNode, types: Sequence[ElementType | None], opset: int) -> None:
    """Raise if the specification in this operator set does not allow a node.

    Parameters
    ----------
    types
        The element type of each input; None for an input that is left out.
    """
    if node.op in QONNX_OPERATORS:
        _check_quantiser(node, types)
        return
    try:
        schema = onnx.defs.get_schema(node.op, max_inclusive_version=opset)
    except onnx.defs.SchemaError as error:
        raise node.unsupported(f"operator set {opset} has no such operator") from error
    if schema.deprecated:
        raise node.unsupported(f"operator set {opset} has no such operator any more")
    _check_attributes(node, schema, opset)
    _check_inputs(node, schema, types, opset)
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise FormatError(
            f"{node.place}: {len(node.outputs)} outputs; expected "
            f"{_range(schema.min_output, schema.max_output)}"
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
            raise FormatError(f"{node.place}: attribute {name} is not of type {attributes[name]}")
    for name in required:
        if name not in node.attributes:
            raise FormatError(f"{node.place}: attribute {name} is missing")


def _check_attributes(node: OnnxNode, schema: Any, opset: int) -> None:
    for name, attribute in node.attributes.items():
        if name not in schema.attributes:
            raise node.unsupported(
                f"attribute {name} is not known in operator set {opset} (version "
                f"{schema.since_version} of the operator)"
            )
        if attribute.ref_attr_name:
            raise node.unsupported(f"attribute {name} refers to an attribute of a function")
        expected = schema.attributes[name].type.value
        if attribute.type != expected:
            kind = onnx.AttributeProto.AttributeType.Name(expected)
            raise FormatError(f"{node.place}: attribute {name} is not of type {kind}")
        if name in FLAGS and attribute.i not in (0, 1):
            raise node.unsupported(f"attribute {name} is {attribute.i}; expected 0 or 1")
    for name, entry in schema.attributes.items():
        if entry.required and name not in node.attributes:
            raise FormatError(f"{node.place}: attribute {name} is missing")


def _check_inputs(
    node: OnnxNode, schema: Any, types: Sequence[ElementType | None], opset: int
) -> None:
    if not schema.min_input <= len(types) <= schema.max_input:
        raise FormatError(
            f"{node.place}: {len(types)} inputs; expected "
            f"{_range(schema.min_input, schema.max_input)} in operator set {opset}"
        )
    bound: dict[str, ElementType] = {}
    for number, kind in enumerate(types):
        # A variadic input is the last one of the list and describes all that follow.
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if kind is None:
            if formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
                raise FormatError(f"{node.place}: its input {formal.name} is missing")
            continue
        if TYPE_NAMES.get(kind.name) not in formal.types:
            raise node.unsupported(
                f"its input {formal.name} has type {kind}, which operator set {opset} does not "
                "allow here, or which is not supported"
            )
        first = bound.setdefault(formal.type_str, kind)
        if first != kind:
            raise FormatError(f"{node.place}: its inputs have types {first} and {kind}")


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    # A variadic operator has the largest 32-bit integer here.
    return f"{least} to {most}" if most < 2**31 - 1 else f"{least} or more"
