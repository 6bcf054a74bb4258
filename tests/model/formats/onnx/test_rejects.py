"""What is not a binary network, or not a model at all, is refused in one line that says why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bnncert.errors import FormatError
from bnncert.model.formats.onnx.reader import read_onnx
from bnncert.model.network import Network
from tests.in_process import Capture, command_line
from tests.model.formats.onnx_sketch import Sketch

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


def _row() -> Sketch:
    return Sketch("N", 3)


def _truths() -> Sketch:
    return _row().then("Greater", 0.0)


def _signed() -> Sketch:
    return _row().then("MatMul", EYE).then("Sign")


def _picture() -> Sketch:
    return Sketch("N", 1, 4, 4).then("Conv", IMAGE)


NODES: dict[str, Sketch] = {
    "the scores must be a linear function of signs, but n2 (Relu) clips them": (
        _signed().then("Relu")
    ),
    "n2 (Trunc): operators of domain qonnx.custom_ops.general are not supported": (
        _signed().then("Trunc", 1.0, domain="qonnx.custom_ops.general")
    ),
    "n2 (Conv): a linear map of max-pooled real numbers": (
        _picture().then("MaxPool", kernel_shape=[2, 2]).then("Conv", np.ones((1, 2, 1, 1), "f"))
    ),
    "n2 (MaxPool): cells of one window are scaled or shifted differently": (
        _picture().then("Add", np.arange(3, dtype=np.float32)).then("MaxPool", kernel_shape=[2, 2])
    ),
    "n3 (MaxPool): the maximum of a decreasing function of another maximum": (
        _picture()
        .then("MaxPool", kernel_shape=[2, 2])
        .then("Neg")
        .then("MaxPool", kernel_shape=[2, 2])
    ),
    "n1 (MaxPool): ceil_mode adds a partial window on axis 0": (
        _picture().then(
            "MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1
        )
    ),
    "n0 (Conv): its input has shape (1, 1, 2, 2, 2)": (
        Sketch("N", 1, 2, 2, 2).then("Conv", np.ones((1, 1, 1, 1, 1), "f"))
    ),
    "n0 (Conv): kernel (2, 2) is larger than the image (1, 1)": (
        Sketch("N", 1, 1, 1).then("Conv", IMAGE)
    ),
    "n3 (MatMul): cannot be combined exactly with the operations before it: batch": (
        _signed()
        .then("BatchNormalization", *[np.array([1, 2, 3], "f")] * 4)
        .then("MatMul", EYE + 1)
    ),
    "n1 (MatMul): cannot be combined exactly": (
        _row()
        .then("MatMul", EYE * np.float32(0.1) + np.float32(0.3))
        .then("MatMul", EYE * np.float32(0.7) + np.float32(1e-06))
    ),
    "n3 (MatMul): softmax must be the last operation": (
        _signed().then("Softmax").then("MatMul", EYE)
    ),
    "n2 (Softmax): axis 0 of shape (1, 3) does not hold all scores": (
        _signed().then("Softmax", axis=0)
    ),
    "n2 (ArgMax): select_last_index": _signed().then("ArgMax", axis=1, select_last_index=1),
    "n1 (Sign): n0 (Clip) clips to [0, 1], which changes the sign": (
        _row().then("Clip", np.float32(0), np.float32(1)).then("Sign")
    ),
    "n2 (Sign): n0 (Clip) clips to [-1, 1], which changes the sign": (
        _row().then("Clip", np.float32(-1), np.float32(1)).then("Add", 1.0).then("Sign")
    ),
    "output t0: the scores must be a linear function of signs": (
        _row().then("Clip", np.float32(-1), np.float32(1))
    ),
    "n1 (Greater): n0 (Clip) clips to [-1, 1], which changes the sign": (
        _row().then("Clip", np.float32(-1), np.float32(1)).then("Greater", 1.5)
    ),
    "n3 (Sign): the sign of a shifted sign is taken at exactly zero": (
        _signed().then("Add", 1.0).then("Sign")
    ),
    "n3 (Sign): the sign of a shifted sign is always +1": _signed().then("Add", 2.0).then("Sign"),
    "n3 (Sign): sign(0) is different for different neurons of one layer": (
        _signed().then("Add", np.array([0.1, -0.1, 0.1], "f")).then("Sign")
    ),
    "output t0: the scores must be": _truths(),
    "n1 (Neg): its input X has type bool, which operator set 17 does not allow here": (
        _truths().then("Neg")
    ),
    "n1 (Cast): a truth value as uint8; expected a float or int32, int64": (
        _truths().then("Cast", to=TensorProto.UINT8)
    ),
    "n2 (Mul): arithmetic on integers that may overflow": (
        _truths().then("Cast", to=TensorProto.INT32).then("Mul", np.int32(2**30))
    ),
    "n2 (MatMul): its input has type integer; expected real": (
        _truths().then("Cast", to=TensorProto.INT32).then("MatMul", EYE.astype(np.int32))
    ),
    "n0 (Conv): kernel_shape does not fit shape (2, 1, 2, 2)": (
        Sketch("N", 1, 4, 4).then("Conv", IMAGE, kernel_shape=[3, 3])
    ),
    "n0 (Cast): a conversion from float32 to int32 may round": (
        _row().then("Cast", to=TensorProto.INT32)
    ),
    "n0 (Div): division by zero": _row().then("Div", np.zeros(3, "f")),
    "n0 (Div): divides by something that depends on the network's input": (
        _row().then("Div", 1.0, left=True)
    ),
    "n0 (MatMul): NaN or infinity in its weights": _row().then("MatMul", EYE * np.float32(np.nan)),
    "n2 (Add): NaN or infinity in its constant": _signed().then("Add", np.float32(np.inf)),
    "n0 (Add): its constant of shape (2, 3) would repeat a tensor of shape (1, 3)": (
        _row().then("Add", np.zeros((2, 3), "f"))
    ),
    "n0 (MatMul): shapes (1, 4) and (3, 3) do not fit": Sketch("N", 4).then("MatMul", EYE),
    "n0 (Reshape): cannot reshape (1, 4) to (1, 3)": (
        Sketch("N", 4).then("Reshape", np.array([1, 3]))
    ),
    "n2 (BatchNormalization): training mode": (
        _signed().then("BatchNormalization", *[np.ones(3, "f")] * 4, training_mode=1)
    ),
    "n2 (BatchNormalization): variance + epsilon is not positive": (
        _signed().then("BatchNormalization", *[-np.ones(3, "f")] * 4)
    ),
    "n0 (Pad): padding mode reflect is not supported": (
        _row().then("Pad", np.array([0, 1, 0, 1]), mode="reflect")
    ),
    "n2 (BipolarQuant): its scale is not positive": (
        _signed().then("BipolarQuant", -1.0, domain="onnx.brevitas")
    ),
    "n2: neuron 0 has weight 1.5; hidden weights must be -1, 0 or 1": (
        _signed().then("MatMul", EYE + 0.5).then("Sign").then("MatMul", EYE)
    ),
    "n2 (MatMul): attribute alpha is not known in operator set 17": (
        _signed().then("MatMul", EYE, alpha=2.0)
    ),
    "n2 (BatchNormalization): attribute spatial is not known in operator set 17": (
        _signed().then("BatchNormalization", *[np.ones(3, "f")] * 4, spatial=1)
    ),
    "n0 (Sign): operator set 8 has no such operator": Sketch("N", 3, opset=8).then("Sign"),
    "n0 (Flatten): attribute axis is not of type INT": _row().then("Flatten", axis=1.0),
    "n0 (Cast): attribute to is missing": _row().then("Cast"),
    "n2 (Gemm): attribute transB is 2; expected 0 or 1": _signed().then("Gemm", EYE, transB=2),
    "n2 (Add): 3 inputs; expected 2 in operator set 17": _signed().then("Add", 1.0, 2.0),
    "n3 (Add): 1 inputs; expected 2": _signed().then("Gemm", EYE).then("Add"),
    "n2 (Add): its input B is missing": _signed().then("Add", None),
    "n2 (MatMul): its inputs have types float32 and float64": _signed().then("MatMul", np.eye(3)),
    "n2 (Softmax): axis 3 of a tensor with 2 axes": _signed().then("Softmax", axis=3),
    "n0 (Squeeze): axis -2; operator set 7 has no negative axes here": (
        Sketch("N", 1, 3, opset=7).then("Squeeze", axes=[-2])
    ),
    "n0 (Flatten): axis -1; operator set 9 has no negative axes here": (
        Sketch("N", 3, opset=9).then("Flatten", axis=-1)
    ),
    "n2 (ReduceSum): axis 4 of a tensor with 2 axes": _signed().then("ReduceSum", np.array([4])),
    "n2 (Unsqueeze): an axis occurs twice in (1, 1)": _signed().then("Unsqueeze", np.array([1, 1])),
    "n2 (Squeeze): its list of axes is empty": _signed().then("Squeeze", np.zeros(0, np.int64)),
    "n2 (Reshape): the new shape has type int64 and shape (1, 2); expected a list of integers": (
        _signed().then("Reshape", np.array([[1, 3]]))
    ),
    "n2 (Transpose): (0, -1) is not an order of 2 axes": _signed().then("Transpose", perm=[0, -1]),
    "n0 (Clip): a bound has shape (3,); expected a single number": (
        _row().then("Clip", np.array([-1, 1, 2], "f")).then("Sign")
    ),
    "n2 (Div): a division of integers": (
        _truths().then("Where", np.int64(3), np.int64(1)).then("Div", np.int64(2))
    ),
    "n5 (Div): a division of integers": (
        _truths()
        .then("Cast", to=TensorProto.INT32)
        .then("Mul", np.int32(4))
        .then("Sub", np.int32(2))
        .then("Sign")
        .then("Div", np.int32(2))
    ),
    "n2 (Gemm): its bias of shape (1, 1, 3) does not fit (1, 3)": (
        _signed().then("Gemm", EYE, np.zeros((1, 1, 3), "f"))
    ),
    "n2 (Gemm): a weight tensor of shape (1, 3, 3); expected two axes": (
        _signed().then("Gemm", EYE.reshape(1, 3, 3))
    ),
    "n2 (GlobalAveragePool): its input has shape (1, 3); expected (1, C, ...)": (
        _signed().then("GlobalAveragePool")
    ),
    "n0 (Conv): auto_pad VALID together with pads or ceil_mode": (
        Sketch("N", 1, 4, 4).then("Conv", IMAGE, auto_pad="VALID", pads=[1, 1, 1, 1])
    ),
    "n1 (Cast): a conversion from float64 to float32 may round": (
        _row().then("Cast", to=TensorProto.DOUBLE).then("Cast", to=TensorProto.FLOAT)
    ),
    "n2 (MatMul): float16 rounds": (
        _truths().then("Cast", to=TensorProto.FLOAT16).then("MatMul", EYE.astype(np.float16))
    ),
    "n0 (Expand): not part of a binary network": _row().then("Expand", np.array([2**40, 3])),
}


@pytest.mark.parametrize("expected", NODES)
def test_a_node_is_refused_by_name(expected: str) -> None:
    assert expected in _message(NODES[expected].model().SerializeToString())


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


def _second_opset(model: ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("ai.onnx", 9))


def _second_constant(model: ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _second_attribute(model: ModelProto) -> None:
    model.graph.node[0].attribute.extend([helper.make_attribute("k", n) for n in (1, 2)])


def _function(model: ModelProto) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(
        helper.make_function("", "Sign", ["a"], ["b"], body, list(model.opset_import))
    )


def _training(model: ModelProto) -> None:
    """Batch normalisation with the outputs that only training has."""
    ones = numpy_helper.from_array(np.ones(3, np.float32), "ones")
    model.graph.initializer.append(ones)
    node = helper.make_node(
        "BatchNormalization", ["t3", *["ones"] * 4], ["z", "mean", "variance"], name="norm"
    )
    model.graph.node.append(node)
    model.graph.output[0].name = "z"


def _folded(op: str, *arrays: Any, **attributes: Any) -> Callable[[ModelProto], Any]:
    """Return an edit that adds the result of an operator on constants to the scores."""

    def edit(model: ModelProto) -> None:
        names = [f"k{number}" for number in range(len(arrays))]
        for name, array in zip(names, arrays, strict=True):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        model.graph.node.append(helper.make_node(op, names, ["k"], name="fold", **attributes))
        model.graph.node.append(helper.make_node("Add", ["t3", "k"], ["z"]))
        model.graph.output[0].name = "z"

    return edit


MODELS: dict[str, Callable[[ModelProto], Any]] = {
    "tensor c0 is stored in another file": _set_external,
    "its input t0 is also read by node n1 (Add)": _branch,
    "node square (Mul): its other input depends on the network's input": _two_sided,
    "the graph has a cycle through": _cycle,
    "node if (If): control flow is not supported": _condition,
    "input x: its first axis has 7 entries": _shape(7, 3),
    "input x: axis 1 has no fixed size": _shape("N", "M"),
    "input x: its shape is not declared": (
        lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")
    ),
    "m.onnx: input x: its shape is not declared": _shape(),
    "are more than bnncert supports": _shape("N", 2**40),
    "input x: expected a tensor of floats": _integers,
    "2 graph inputs (x, other); expected one": _second_input,
    "0 graph inputs (none); expected one": _no_input,
    "2 graph outputs (t3, t0); expected one": _second_output,
    "ONNX operator set 6; supported are 7 to": _opset(6),
    "ONNX operator set 999; supported are 7 to": _opset(999),
    "the file names several ONNX operator sets (9, 17)": _second_opset,
    "two constants of the graph have the same name": _second_constant,
    "n0 (MatMul): an attribute is given twice": _second_attribute,
    "n2 (Sign): the file defines this operator itself": _function,
    "node norm (BatchNormalization): training mode": _training,
    "node fold (Add): its inputs have types float32 and float64": (
        _folded("Add", np.ones(3, "f"), np.ones(3))
    ),
    "node fold (Mul): a result does not fit int32": (
        _folded("Mul", np.full(3, 2**30, np.int32), np.full(3, 2, np.int32))
    ),
    "node fold (Div): an integer is divided by zero": (
        _folded("Div", np.ones(3, np.int64), np.zeros(3, np.int64))
    ),
    "node fold (Sqrt): its result has an entry that is not a number": (
        _folded("Sqrt", -np.ones(3, "f"))
    ),
    "node fold (Cast): an entry does not fit uint8": (
        _folded("Cast", np.full(3, 300, "f"), to=TensorProto.UINT8)
    ),
    "node fold (Cast): a conversion to element type BFLOAT16": (
        _folded("Cast", np.ones(3, "f"), to=TensorProto.BFLOAT16)
    ),
    "node fold (Slice): starts, ends, axes and steps do not fit each other": (
        _folded("Slice", np.ones(3, "f"), *(np.array([n]) for n in (0, 3, 0, 0)))
    ),
    "node fold (Concat): attribute axis is missing": _folded("Concat", np.ones(3, "f")),
    "node fold (ConstantOfShape): its value has shape (2,); expected a single number": (
        _folded("ConstantOfShape", np.array([3]), value=numpy_helper.from_array(np.ones(2, "f")))
    ),
    "does not state its ONNX operator set": lambda m: m.ClearField("opset_import"),
    "no graph in the file": _no_nodes,
    "tensor c0 is broken": _short,
    "tensor t0 is defined twice": _twice,
    "node n1 (Add): its input nothing is defined nowhere": _nowhere,
    "no node computes the graph output nothing": (
        lambda m: setattr(m.graph.output[0], "name", "nothing")
    ),
    "output z does not depend on the input": _constant_output,
    "metadata bnncert.input_lo is not valid": _property("bnncert.input_lo", "{"),
    "bnncert.input_lo is not a number": _property("bnncert.input_lo", '"low"'),
    "an input bound is NaN or infinite": _property("bnncert.input_hi", "NaN"),
    "input bounds of shape (2,)": _property("bnncert.input_hi", "[1, 2]"),
}


@pytest.mark.parametrize("expected", MODELS)
def test_a_model_is_refused_with_the_reason(expected: str) -> None:
    assert expected in _message(_edited(MODELS[expected]))


NAMES: dict[str, tuple[bytes, bytes, str]] = {
    "node": (b"n1", b"\xff1", "the name of node number 1 is not UTF-8"),
    "operator": (b"Sign", b"S\xffgn", "the name of node number 2 is not UTF-8"),
    "tensor": (b"t1", b"\xc31", "the name of an output of node number 1 is not UTF-8"),
    "constant": (b"c0", b"\xff0", "the name of a constant is not UTF-8"),
    "input": (b"x", b"\xff", "the name of a graph input is not UTF-8"),
    "output": (b"t3", b"\xff3", "the name of a graph output is not UTF-8"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_is_not_utf8_is_refused_in_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    old, new, expected = NAMES[case]
    content = _edited(lambda model: None).replace(old, new)
    assert expected in _message(content)
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    answer = command_line(monkeypatch, capsys, "info")(path)
    assert answer.code == 2
    assert answer.err.count("\n") == 1 and expected in answer.err


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
@settings(max_examples=35, deadline=None)
def test_damaged_files_never_raise_anything_else(changes: list[tuple[int, int]]) -> None:
    content = bytearray(_edited(lambda model: None))
    for place, value in changes:
        content[place % len(content)] = value
    with contextlib.suppress(FormatError):
        Network.from_description(read_onnx(bytes(content), "m.onnx"))
