"""What is not a binary network, or not a model at all, is refused in one line that says why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from bnncert.errors import FormatError
from bnncert.formats.onnx_reader import read_onnx
from bnncert.network import Network
from tests.formats.onnx_sketch import Sketch

EYE = np.eye(3, dtype=np.float32)
IMAGE = np.ones((2, 1, 2, 2), dtype=np.float32)


def _whole() -> Sketch:
    return Sketch("N", 3).then("MatMul", EYE).then("Add", 0.5).then("Sign").then("MatMul", EYE)


def _message(content: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        Network.from_description(read_onnx(content, "m.onnx"))
    text = str(caught.value)
    assert text.startswith("m.onnx: ")
    assert "\n" not in text
    return text


def _signed() -> Sketch:
    return Sketch("N", 3).then("MatMul", EYE).then("Sign")


def _picture() -> Sketch:
    return Sketch("N", 1, 4, 4).then("Conv", IMAGE)


NODES: dict[str, tuple[Callable[[], Sketch], str]] = {
    "relu": (lambda: _signed().then("Relu"), "n2 (Relu): not part of a binary network"),
    "quant": (
        lambda: _signed().then("Quant", 1.0, domain="qonnx.custom_ops.general"),
        "n2 (Quant): operators of domain qonnx.custom_ops.general are not supported",
    ),
    "max then linear": (
        lambda: (
            _picture().then("MaxPool", kernel_shape=[2, 2]).then("Conv", np.ones((1, 2, 1, 1), "f"))
        ),
        "n2 (Conv): a linear map of max-pooled real numbers",
    ),
    "uneven window": (
        lambda: (
            _picture()
            .then("Add", np.arange(3, dtype=np.float32))
            .then("MaxPool", kernel_shape=[2, 2])
        ),
        "n2 (MaxPool): cells of one window are scaled or shifted differently",
    ),
    "minimum of maximum": (
        lambda: (
            _picture()
            .then("MaxPool", kernel_shape=[2, 2])
            .then("Neg")
            .then("MaxPool", kernel_shape=[2, 2])
        ),
        "n3 (MaxPool): the maximum of a decreasing function of another maximum",
    ),
    "ceil_mode with pads": (
        lambda: _picture().then(
            "MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1
        ),
        "n1 (MaxPool): ceil_mode adds a partial window on axis 0",
    ),
    "three spatial axes": (
        lambda: Sketch("N", 1, 2, 2, 2).then("Conv", np.ones((1, 1, 1, 1, 1), "f")),
        "n0 (Conv): its input has shape (1, 1, 2, 2, 2)",
    ),
    "kernel too large": (
        lambda: Sketch("N", 1, 1, 1).then("Conv", IMAGE),
        "n0 (Conv): kernel (2, 2) is larger than the image (1, 1)",
    ),
    "norm before weights": (
        lambda: (
            _signed()
            .then("BatchNormalization", *[np.array([1, 2, 3], "f")] * 4)
            .then("MatMul", EYE + 1)
        ),
        "n3 (MatMul): cannot be combined exactly with what comes before it: batch normalisation",
    ),
    "product of reals": (
        lambda: (
            Sketch("N", 3)
            .then("MatMul", EYE * np.float32(0.1) + np.float32(0.3))
            .then("MatMul", EYE * np.float32(0.7) + np.float32(1e-6))
        ),
        "n1 (MatMul): cannot be combined exactly",
    ),
    "softmax inside": (
        lambda: _signed().then("Softmax").then("MatMul", EYE),
        "n3 (MatMul): softmax must be the last operation",
    ),
    "softmax over the batch": (
        lambda: _signed().then("Softmax", axis=0),
        "n2 (Softmax): axis 0 of shape (1, 3) does not hold all scores",
    ),
    "last of ties": (
        lambda: _signed().then("ArgMax", axis=1, select_last_index=1),
        "n2 (ArgMax): select_last_index",
    ),
    "clip on one side": (
        lambda: Sketch("N", 3).then("Clip", np.float32(0), np.float32(1)).then("Sign"),
        "n0 (Clip): clips to [0, 1], which changes the sign",
    ),
    "clip then add": (
        lambda: Sketch("N", 3).then("Clip", np.float32(-1), np.float32(1)).then("Add", 1.0),
        "n1 (Add): after a Clip only a sign is supported",
    ),
    "clip at the end": (
        lambda: Sketch("N", 3).then("Clip", np.float32(-1), np.float32(1)),
        "output t0: the scores must be a linear function of signs",
    ),
    "clip compared": (
        lambda: Sketch("N", 3).then("Clip", np.float32(-1), np.float32(1)).then("Greater", 0.5),
        "n1 (Greater): a clipped value is compared with something other than zero",
    ),
    "sign plus one": (
        lambda: _signed().then("Add", 1.0).then("Sign"),
        "n3 (Sign): the sign of a shifted sign is taken at exactly zero",
    ),
    "sign plus two": (
        lambda: _signed().then("Add", 2.0).then("Sign"),
        "n3 (Sign): the sign of a shifted sign is always +1",
    ),
    "different zeros": (
        lambda: _signed().then("Add", np.array([0.1, -0.1, 0.1], "f")).then("Sign"),
        "n3 (Sign): sign(0) is different for different neurons of one layer",
    ),
    "boolean output": (
        lambda: Sketch("N", 3).then("Greater", 0.0),
        "output t0: the scores must be",
    ),
    "arithmetic on truth values": (
        lambda: Sketch("N", 3).then("Greater", 0.0).then("Neg"),
        "n1 (Neg): its input X has type bool, which operator set 17 does not allow here",
    ),
    "unsigned": (
        lambda: Sketch("N", 3).then("Greater", 0.0).then("Cast", to=TensorProto.UINT8),
        "n1 (Cast): a truth value as uint8; expected a float or int32, int64",
    ),
    "large integers": (
        lambda: (
            Sketch("N", 3)
            .then("Greater", 0.0)
            .then("Cast", to=TensorProto.INT32)
            .then("Mul", np.int32(2**30))
        ),
        "n2 (Mul): arithmetic on integers that may overflow",
    ),
    "integer product": (
        lambda: (
            Sketch("N", 3)
            .then("Greater", 0.0)
            .then("Cast", to=TensorProto.INT32)
            .then("MatMul", EYE.astype(np.int32))
        ),
        "n2 (MatMul): its input has type integer; expected real",
    ),
    "kernel_shape": (
        lambda: Sketch("N", 1, 4, 4).then("Conv", IMAGE, kernel_shape=[3, 3]),
        "n0 (Conv): kernel_shape does not fit shape (2, 1, 2, 2)",
    ),
    "rounding cast": (
        lambda: Sketch("N", 3).then("Cast", to=TensorProto.INT32),
        "n0 (Cast): a conversion from float32 to int32 may round",
    ),
    "division by zero": (
        lambda: Sketch("N", 3).then("Div", np.zeros(3, "f")),
        "n0 (Div): division by zero",
    ),
    "division by a value": (
        lambda: Sketch("N", 3).then("Div", 1.0, left=True),
        "n0 (Div): divides by something that depends on the network's input",
    ),
    "NaN": (
        lambda: Sketch("N", 3).then("MatMul", EYE * np.float32(np.nan)),
        "n0 (MatMul): NaN or infinity in its weights",
    ),
    "infinite bias": (
        lambda: _signed().then("Add", np.float32(np.inf)),
        "n2 (Add): NaN or infinity in its constant",
    ),
    "repeated rows": (
        lambda: Sketch("N", 3).then("Add", np.zeros((2, 3), "f")),
        "n0 (Add): its constant of shape (2, 3) would repeat a tensor of shape (1, 3)",
    ),
    "shapes": (
        lambda: Sketch("N", 4).then("MatMul", EYE),
        "n0 (MatMul): shapes (1, 4) and (3, 3) do not fit",
    ),
    "reshape": (
        lambda: Sketch("N", 4).then("Reshape", np.array([1, 3])),
        "n0 (Reshape): cannot reshape (1, 4) to (1, 3)",
    ),
    "training": (
        lambda: _signed().then("BatchNormalization", *[np.ones(3, "f")] * 4, training_mode=1),
        "n2 (BatchNormalization): training mode",
    ),
    "negative variance": (
        lambda: _signed().then("BatchNormalization", *[-np.ones(3, "f")] * 4),
        "n2 (BatchNormalization): variance + epsilon is not positive",
    ),
    "reflected padding": (
        lambda: Sketch("N", 3).then("Pad", np.array([0, 1, 0, 1]), mode="reflect"),
        "n0 (Pad): padding mode reflect is not supported",
    ),
    "negative scale": (
        lambda: _signed().then("BipolarQuant", -1.0, domain="onnx.brevitas"),
        "n2 (BipolarQuant): its scale is not positive",
    ),
    "real hidden weights": (
        lambda: _signed().then("MatMul", EYE + 0.5).then("Sign").then("MatMul", EYE),
        "n2: neuron 0 has weight 1.5; hidden weights must be -1, 0 or 1",
    ),
    "huge constant": (
        lambda: Sketch("N", 3).then("Expand", np.array([2**40, 3])),
        "n0 (Expand): not part of a binary network",
    ),
}


@pytest.mark.parametrize("case", NODES)
def test_a_node_is_refused_by_name(case: str) -> None:
    build, expected = NODES[case]
    assert expected in _message(build().model().SerializeToString())


def _edited(edit: Callable[[ModelProto], Any]) -> bytes:
    model = _whole().model()
    edit(model)
    return bytes(model.SerializeToString())


def _set_external(model: ModelProto) -> None:
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


def _branch(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Add", ["t0", model.graph.output[0].name], ["z"]))
    model.graph.output[0].name = "z"


def _two_sided(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Mul", ["t3", "t3"], ["z"], name="square"))
    model.graph.output[0].name = "z"


def _cycle(model: ModelProto) -> None:
    model.graph.node[1].input[1] = "t3"


def _condition(model: ModelProto) -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["t3"], ["i"])],
        "inner",
        [],
        [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)],
    )
    node = helper.make_node("If", ["t3"], ["z"], name="if", then_branch=inner, else_branch=inner)
    model.graph.node.append(node)
    model.graph.output[0].name = "z"


def _shape(*sizes: int | str | None) -> Callable[[ModelProto], Any]:
    def edit(model: ModelProto) -> None:
        model.graph.input[0].CopyFrom(
            helper.make_tensor_value_info("x", TensorProto.FLOAT, list(sizes))
        )

    return edit


def _second_input(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [1]))


def _second_output(model: ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("t0", TensorProto.FLOAT, None))


def _no_input(model: ModelProto) -> None:
    del model.graph.input[:]


def _integers(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32


def _opset(version: int) -> Callable[[ModelProto], Any]:
    def edit(model: ModelProto) -> None:
        model.opset_import[0].version = version

    return edit


def _no_nodes(model: ModelProto) -> None:
    del model.graph.node[:]


def _short(model: ModelProto) -> None:
    model.graph.initializer[0].raw_data = b"1234"


def _twice(model: ModelProto) -> None:
    model.graph.node[1].output[0] = "t0"


def _nowhere(model: ModelProto) -> None:
    model.graph.node[1].input[1] = "nothing"


def _constant_output(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Neg", ["c0"], ["z"]))
    model.graph.output[0].name = "z"


def _property(key: str, value: str) -> Callable[[ModelProto], Any]:
    return lambda model: helper.set_model_props(model, {key: value})


MODELS: dict[str, tuple[Callable[[ModelProto], Any], str]] = {
    "external": (_set_external, "tensor c0 is stored in another file"),
    "branch": (_branch, "its input t0 is also read by node n1 (Add)"),
    "square": (_two_sided, "node square (Mul): its other input depends on the network's input"),
    "cycle": (_cycle, "the graph has a cycle through"),
    "if": (_condition, "node if (If): control flow is not supported"),
    "fixed batch": (_shape(7, 3), "input x: its first axis has 7 entries"),
    "open axis": (_shape("N", "M"), "input x: axis 1 has no fixed size"),
    "no shape": (
        lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
        "input x: its shape is not declared",
    ),
    "no dimensions": (_shape(), "input x: its shape is not declared"),
    "huge input": (_shape("N", 2**40), "are more than bnncert can follow"),
    "integers": (_integers, "input x: expected a tensor of floats"),
    "two inputs": (_second_input, "2 graph inputs (x, other); expected one"),
    "no inputs": (_no_input, "0 graph inputs (none); expected one"),
    "two outputs": (_second_output, "2 graph outputs (t3, t0); expected one"),
    "old": (_opset(6), "ONNX operator set 6; supported are 7 to"),
    "new": (_opset(999), "ONNX operator set 999; supported are 7 to"),
    "no opset": (lambda m: m.ClearField("opset_import"), "does not say which ONNX operator set"),
    "no nodes": (_no_nodes, "no graph in the file"),
    "short tensor": (_short, "tensor c0 is broken"),
    "defined twice": (_twice, "tensor t0 is defined twice"),
    "undefined": (_nowhere, "node n1 (Add): its input nothing is defined nowhere"),
    "no output node": (
        lambda m: setattr(m.graph.output[0], "name", "nothing"),
        "no node computes the graph output nothing",
    ),
    "constant": (_constant_output, "output z does not depend on the input"),
    "bad metadata": (_property("bnncert.input_lo", "{"), "metadata bnncert.input_lo is not valid"),
    "bad bounds": (_property("bnncert.input_lo", '"low"'), "bnncert.input_lo is not a number"),
    "NaN bounds": (_property("bnncert.input_hi", "NaN"), "an input bound is NaN or infinite"),
    "many bounds": (_property("bnncert.input_hi", "[1, 2]"), "input bounds of shape (2,)"),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_is_refused_with_the_reason(case: str) -> None:
    edit, expected = MODELS[case]
    assert expected in _message(_edited(edit))


@pytest.mark.parametrize("content", [b"", b"\x08", b"not a model at all", b"\xff" * 100])
def test_other_bytes_are_no_model(content: bytes) -> None:
    assert "ONNX" in _message(content)


def test_a_truncated_file_is_refused() -> None:
    content = _edited(lambda model: None)
    for size in range(1, len(content), 7):
        with pytest.raises(FormatError):
            Network.from_description(read_onnx(content[:size], "m.onnx"))


@given(
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4)
)
@settings(max_examples=200, deadline=None)
def test_damaged_files_never_raise_anything_else(changes: list[tuple[int, int]]) -> None:
    content = bytearray(_edited(lambda model: None))
    for place, value in changes:
        content[place % len(content)] = value
    with contextlib.suppress(FormatError):
        Network.from_description(read_onnx(bytes(content), "m.onnx"))
