"""Changes to a random graph after which it means something else, or nothing at all.

bnncert must refuse the file or still agree with onnxruntime: an input, attribute or operator set
that it overlooks shows here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

from tests.model.formats.random_onnx.builder import Builder
from tests.model.formats.random_onnx.graphs import newest_opset


def _node(b: Builder) -> Any:
    return b.choose(b.nodes)


def _unknown_attribute(b: Builder) -> None:
    name = b.choose(["axis", "broadcast", "keepdims", "spatial", "alpha", "unheard_of"])
    _node(b).attribute.append(helper.make_attribute(name, b.integer(0, 2)))


def _another_input(b: Builder) -> None:
    _node(b).input.append(b.choose(b.tensors).name)


def _one_input_less(b: Builder) -> None:
    node = _node(b)
    if node.input:
        del node.input[-1]


def _input_without_name(b: Builder) -> None:
    node = _node(b)
    if node.input:
        node.input[b.integer(0, len(node.input) - 1)] = ""


def _inputs_swapped(b: Builder) -> None:
    node = _node(b)
    if len(node.input) > 1:
        node.input[0], node.input[1] = node.input[1], node.input[0]


def _another_type(b: Builder) -> None:
    tensor = b.choose(b.tensors)
    array = numpy_helper.to_array(tensor)
    kind = b.choose([np.float32, np.float64, np.float16, np.int32, np.int64])
    tensor.CopyFrom(numpy_helper.from_array(array.astype(kind), tensor.name))


def _another_shape(b: Builder) -> None:
    tensor = b.choose(b.tensors)
    array = numpy_helper.to_array(tensor)
    shape = b.choose([(-1,), (1, -1), (-1, 1), (1, *array.shape), array.shape[::-1]])
    tensor.CopyFrom(numpy_helper.from_array(array.reshape(shape), tensor.name))


def _another_attribute(b: Builder) -> None:
    nodes = [node for node in b.nodes if node.attribute]
    if not nodes:
        return
    attribute = b.choose(b.choose(nodes).attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i += b.choose([-5, -2, -1, 1, 2, 5])
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        place = b.integer(0, len(attribute.ints) - 1)
        attribute.ints[place] += b.choose([-1, 1, 2, 5])
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = b.choose([-1.0, 0.0, 0.5, 3.0])


def _other_integers(b: Builder) -> None:
    lists = [tensor for tensor in b.tensors if tensor.data_type in (6, 7)]
    if not lists:
        return
    tensor = b.choose(lists)
    array = np.array(numpy_helper.to_array(tensor))
    if array.size:
        array.flat[b.integer(0, array.size - 1)] = b.choose([-9, -3, -2, -1, 0, 1, 2, 9])
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _attribute_left_out(b: Builder) -> None:
    nodes = [node for node in b.nodes if node.attribute]
    if nodes:
        del b.choose(nodes).attribute[0]


def _another_operator_set(b: Builder) -> None:
    # What stands for BipolarQuant in onnxruntime needs operator set 9.
    oldest = 9 if any(node.domain for node in b.nodes) else 7
    b.opset = b.integer(oldest, newest_opset())


def _another_output(b: Builder) -> None:
    _node(b).output.append(b.name("t"))


CHANGES: dict[str, Callable[[Builder], None]] = {
    "unknown attribute": _unknown_attribute,
    "another input": _another_input,
    "one input less": _one_input_less,
    "input without name": _input_without_name,
    "inputs swapped": _inputs_swapped,
    "another type": _another_type,
    "another shape": _another_shape,
    "another attribute": _another_attribute,
    "attribute left out": _attribute_left_out,
    "other integers": _other_integers,
    "another operator set": _another_operator_set,
    "another output": _another_output,
}


def change(b: Builder, number: int) -> str:
    """Change a graph in one way, which `number` determines, and return what was changed."""
    name = list(CHANGES)[number % len(CHANGES)]
    CHANGES[name](b)
    # Nothing is known about its numbers any more.
    b.exact = False
    return name
