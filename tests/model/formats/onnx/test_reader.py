"""Imported networks agree with onnxruntime on random models and inputs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from bnncert.model.description import Divide, Normalise, Scale, Shift
from bnncert.model.formats.onnx.reader import read_onnx
from bnncert.model.network import Network
from tests.model.formats.onnx_sketch import (
    Sketch,
    agree,
    network_of,
    normalisation,
    pixels,
    signs,
    ternary,
)

SEED = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=15, deadline=None)


def _idiom(sketch: Sketch, name: str) -> Sketch:
    """Binarise in one of the ways in which exporters write it."""
    one = np.float32(1)
    if name == "nudge plus":
        return sketch.then("Sign").then("Add", 0.1).then("Sign")
    if name == "nudge minus":
        return sketch.then("Sign").then("Sub", 0.1).then("Sign")
    if name == "nudge negated":
        return sketch.then("Sign").then("Neg").then("Add", 0.1).then("Sign")
    if name == "clip":
        sketch.then("Clip", -one, one).then("Sign")
        return sketch.then("Add", 0.1).then("Sign")
    if name == "clip compared":
        return sketch.then("Clip", -one, one).then("GreaterOrEqual", 0.0).then("Where", 1.0, -1.0)
    if name == "sign compared":
        return sketch.then("Sign").then("GreaterOrEqual", 0.0).then("Where", 1.0, -1.0)
    if name == "sign above":
        return sketch.then("Sign").then("Greater", 0.0).then("Where", 1.0, -1.0)
    if name == "constant left":
        return sketch.then("LessOrEqual", 0.0, left=True).then("Where", 1.0, -1.0)
    if name == "not less":
        return sketch.then("Less", 0.0).then("Not").then("Where", 1.0, -1.0)
    if name == "swapped":
        return sketch.then("Less", 0.0).then("Where", -1.0, 1.0)
    if name == "threshold":
        return sketch.then("Greater", 2.0).then("Where", 1.0, -1.0)
    if name == "reversed":
        return sketch.then("Greater", 1.0, left=True).then("Where", 1.0, -1.0)
    if name == "zero one":
        return sketch.then("GreaterOrEqual", 0.0).then("Where", 1.0, 0.0)
    if name == "uneven":
        return sketch.then("LessOrEqual", -1.0).then("Where", -2.0, 3.0)
    if name == "cast":
        sketch.then("Greater", 0.0).then("Cast", to=TensorProto.FLOAT)
        return sketch.then("Mul", 2.0).then("Sub", 1.0)
    if name == "integers":
        sketch.then("GreaterOrEqual", 0.0).then("Cast", to=TensorProto.INT64)
        sketch.then("Mul", np.int64(2)).then("Sub", np.int64(1))
        return sketch.then("Cast", to=TensorProto.FLOAT)
    raise AssertionError(name)


IDIOMS = (
    "nudge plus", "nudge minus", "nudge negated", "clip", "clip compared", "sign compared",
    "sign above", "constant left", "not less", "swapped", "threshold", "reversed", "zero one",
    "uneven", "cast", "integers",
)  # fmt: skip


@pytest.mark.parametrize("idiom", IDIOMS)
@given(seed=SEED)
@settings(max_examples=8, deadline=None)
def test_every_idiom_of_sign_agrees_also_at_zero(idiom: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = Sketch("N", 4).then("MatMul", ternary(rng, 4, 6))
    _idiom(sketch.then("Add", rng.integers(-2, 3, size=6).astype(np.float32)), idiom)
    sketch.then("MatMul", ternary(rng, 6, 5))
    _idiom(sketch.then("Add", rng.integers(-2, 3, size=5).astype(np.float32)), idiom)
    sketch.then("MatMul", rng.normal(size=(5, 3)).astype(np.float32))
    network = agree(sketch, pixels(rng, 60, 4))
    assert all(layer.fixed_sign_zero for layer in network.layers)


@given(
    seed=SEED,
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.one_of(
        st.tuples(*[st.integers(0, 2)] * 4), st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"])
    ),
    groups=st.sampled_from([1, 2]),
    channels_last=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_convolutions_agree(
    seed: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...] | str,
    groups: int,
    channels_last: bool,
) -> None:
    rng = np.random.default_rng(seed)
    if isinstance(pads, str) and pads != "VALID":
        dilations = (1, 1)
    attributes: dict[str, Any] = {
        "strides": strides,
        "dilations": dilations,
        "group": groups,
        **({"auto_pad": pads} if isinstance(pads, str) else {"pads": pads}),
    }
    sketch = Sketch("N", *((7, 6, 2) if channels_last else (2, 7, 6)))
    if channels_last:
        sketch.then("Transpose", perm=[0, 3, 1, 2])
    sketch.then("Conv", rng.normal(size=(4, 2 // groups, *kernel)).astype("f"), **attributes)
    sketch.then("BatchNormalization", *normalisation(rng, 4)).then("Sign")
    if channels_last:
        sketch.then("Transpose", perm=[0, 2, 3, 1]).then("Transpose", perm=[0, 3, 1, 2])
    magnitude = rng.uniform(0.5, 2, size=(4, 1, 1, 1)).astype(np.float32)
    sketch.then(
        "Conv",
        magnitude * ternary(rng, 4, 4 // groups, 2, 1),
        (rng.integers(-3, 4, size=4) + 0.1).astype(np.float32),
        pads=[1, 0, 0, 1],
        group=groups,
    )
    if channels_last:
        sketch.then("Transpose", perm=[0, 2, 3, 1])
    _idiom(sketch, "nudge plus").then("Flatten")
    size = sketch.run(np.zeros((1, *sketch.shape[1:]))).shape[1]
    sketch.then("MatMul", signs(rng, size, 3))
    points = pixels(rng, 4, *sketch.shape[1:])
    network = agree(sketch, points)
    for layer in network.layers:
        assert layer.convolution is not None
        _check_operator(network, layer, rng)


def _check_operator(network: Network, layer: Any, rng: np.random.Generator) -> None:
    operator = layer.operator(np.float64)
    dense = layer.weights.toarray().astype(np.float64)
    forth, back = rng.normal(size=(3, layer.inputs)), rng.normal(size=(3, layer.size))
    np.testing.assert_allclose(operator.forward(forth), forth @ dense.T, atol=1e-9)
    np.testing.assert_allclose(operator.backward(back), back @ dense, atol=1e-9)


@given(
    seed=SEED,
    place=st.sampled_from(["norm after", "norm before", "bias before", "signs", "twice", "global"]),
    gamma=st.sampled_from(["positive", "negative", "mixed"]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.sampled_from([(0, 0, 0, 0), (1, 0, 1, 1), "SAME_UPPER", "SAME_LOWER", "ceil"]),
    dilation=st.integers(1, 2),
)
@settings(max_examples=20, deadline=None)
def test_max_pooling_agrees(
    seed: int,
    place: str,
    gamma: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, ...] | str,
    dilation: int,
) -> None:
    rng = np.random.default_rng(seed)
    pool: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if pads == "ceil":
        pool.update(ceil_mode=1, strides=np.minimum(strides, kernel).tolist())
    elif isinstance(pads, str):
        # onnxruntime refuses the negative padding that a stride beyond the kernel would mean.
        pool.update(auto_pad=pads, strides=np.minimum(strides, kernel).tolist())
    else:
        pool["dilations"] = (dilation, dilation)
        pool["kernel_shape"] = kernel = (max(kernel[0], 2), max(kernel[1], 2))
        pool["pads"] = pads
    norm = normalisation(rng, 3, gamma)
    sketch = Sketch("N", 2, 6, 7).then("Conv", ternary(rng, 3, 2, 2, 2))
    if place == "norm before":
        sketch.then("BatchNormalization", *norm).then("MaxPool", **pool).then("Sign")
    elif place == "bias before":
        sketch.then("Mul", norm[0].reshape(3, 1, 1)).then("Add", norm[2].reshape(3, 1, 1))
        sketch.then("MaxPool", **pool).then("Transpose", perm=[0, 2, 3, 1]).then("Sign")
        sketch.then("Transpose", perm=[0, 3, 1, 2])
    elif place == "norm after":
        sketch.then("MaxPool", **pool).then("BatchNormalization", *norm)
        _idiom(sketch, "nudge plus")
    elif place == "signs":
        sketch.then("BatchNormalization", *norm)
        _idiom(sketch, "uneven").then("Neg").then("MaxPool", **pool)
    elif place == "twice":
        sketch.then("MaxPool", **pool).then("Add", 0.25)
        sketch.then("MaxPool", kernel_shape=[1, 2], pads=[0, 1, 0, 1])
        sketch.then("BatchNormalization", *norm).then("Sign")
    else:
        sketch.then("GlobalMaxPool").then("BatchNormalization", *norm).then("Sign")
    sketch.then("Conv", signs(rng, 4, 3, 1, 1)).then("Add", 0.5).then("Sign").then("Flatten")
    points = pixels(rng, 4, 2, 6, 7)
    size = sketch.run(points[:1]).shape[1]
    agree(sketch.then("MatMul", signs(rng, size, 3)), points)


@given(
    seed=SEED,
    include=st.booleans(),
    pads=st.sampled_from([(0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1)]),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    order=st.sampled_from(["before", "after", "middle", "global", "mean", "sum"]),
)
@settings(max_examples=15, deadline=None)
def test_averages_agree(
    seed: int, include: bool, pads: tuple[int, ...], strides: tuple[int, int], order: str
) -> None:
    rng = np.random.default_rng(seed)
    pool = {
        "kernel_shape": (2, 3),
        "pads": pads,
        "strides": strides,
        "count_include_pad": int(include),
    }
    magnitude = rng.uniform(0.5, 2, size=(3, 1, 1, 1)).astype(np.float32)
    sketch = Sketch("N", 2, 6, 7)
    if order == "before":
        sketch.then("AveragePool", **pool)
    sketch.then("Conv", magnitude * ternary(rng, 3, 2, 2, 2))
    if order == "after":
        sketch.then("BatchNormalization", *normalisation(rng, 3)).then("AveragePool", **pool)
    sketch.then("Add", np.float32(0.0371)).then("Sign")
    if order == "middle":
        sketch.then("AveragePool", **pool)
    sketch.then("Conv", signs(rng, 2, 3, 2, 1))
    if order == "global":
        sketch.then("GlobalAveragePool")
    elif order == "mean":
        sketch.then("ReduceMean", axes=[3], keepdims=0)
    elif order == "sum":
        sketch.then("ReduceSum", np.array([2, -1]))
    sketch.then("Sub", np.float32(0.0371)).then("Sign").then("Flatten")
    points = pixels(rng, 4, 2, 6, 7)
    size = sketch.run(points[:1]).shape[1]
    agree(sketch.then("MatMul", signs(rng, size, 3)), points)


@given(
    seed=SEED, style=st.sampled_from(["divide", "multiply", "uniform", "padded", "padded signs"])
)
@FEW
def test_input_normalisation_and_padding_agree(seed: int, style: str) -> None:
    rng = np.random.default_rng(seed)
    mean = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1)
    sketch = Sketch(1, 3, 5, 4)
    if style == "divide":
        sketch.then("Sub", mean).then("Div", deviation)
    elif style == "multiply":
        sketch.then("Mul", 1 / deviation).then("Sub", mean / deviation)
    elif style == "uniform":
        sketch.then("Div", 255.0).then("Mul", 2.0).then("Sub", 1.0)
    else:
        grow = np.array([0, 0, 1, 1, 0, 0, 1, 0])
        sketch.then("Pad", grow, np.float32(2)) if style == "padded" else sketch.then(
            "Add", 0.5
        ).then("Sign").then("Pad", grow, np.float32(1))
    sketch.then("Conv", signs(rng, 4, 3, 2, 2), pads=[0, 1, 1, 0])
    sketch.then("Add", np.float32(0.3173)).then("Sign").then("Flatten")
    size = sketch.run(np.zeros((1, 3, 5, 4))).shape[1]
    agree(sketch.then("MatMul", signs(rng, size, 3)), pixels(rng, 10, 3, 5, 4))


@given(seed=SEED)
@FEW
def test_two_matrices_without_a_sign_between_them_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = Sketch("N", 4).then("MatMul", ternary(rng, 4, 6)).then("Add", 0.5).then("Sign")
    sketch.then("MatMul", np.float32(0.3) * signs(rng, 6, 5)).then("Add", 0.5)
    sketch.then("MatMul", np.float32(0.7) * signs(rng, 5, 4)).then("Add", 0.25).then("Sign")
    agree(sketch.then("MatMul", signs(rng, 4, 3)), pixels(rng, 20, 4))


def test_an_exported_graph_folds_its_constants() -> None:
    """The batch size, and 1/sqrt(variance) computed in the graph, as torch.onnx writes them."""
    rng = np.random.default_rng(3)
    sketch = Sketch(1, 1, 4, 4)
    w = sketch.constant(np.float32(0.2) * signs(rng, 5, 16))
    zero, minus, variance = (
        sketch.constant(array)
        for array in (np.int64(0), np.array([-1]), rng.uniform(1, 2, 5).astype(np.float32))
    )
    half, out = sketch.constant(np.float32(0.5)), sketch.constant(ternary(rng, 5, 3))
    weights = sketch.constant(rng.normal(size=5).astype(np.float32))
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", zero], "batch", {"axis": 0}),
        ("Unsqueeze", ["batch"], "batch1", {"axes": [0]}),
        ("Concat", ["batch1", minus], "target", {"axis": 0}),
        ("Reshape", ["x", "target"], "flat", {}),
        ("Transpose", [w], "wt", {"perm": [1, 0]}),
        ("MatMul", ["flat", "wt"], "u", {}),
        ("Pow", [variance, half], "deviation", {}),
        ("Div", ["u", "deviation"], "n", {}),
        ("Mul", ["n", weights], "s", {}),
        ("Sub", ["s", half], "z", {}),
        ("Sign", ["z"], "y", {}),
        ("Dropout", ["y"], "d", {}),
        ("MatMul", ["d", out], "scores", {}),
        ("Softmax", ["scores"], "p", {"axis": 1}),
    ]
    sketch.nodes = [helper.make_node(op, i, [o], name=o, **a) for op, i, o, a in nodes]
    sketch.opset, sketch.current = 9, "scores"
    points = pixels(rng, 40, 1, 4, 4)
    agree(sketch, points)
    sketch.current = "p"
    network = sketch.network()
    assert network.output_transform == "softmax"
    assert np.array_equal(network.classify(points), sketch.run(points).argmax(axis=1))


def test_a_torch_style_export_agrees() -> None:
    rng = np.random.default_rng(4)
    sketch = Sketch("batch", 1, 4, 4).then("Flatten")
    first, last = rng.normal(size=(8, 16)).astype("f"), rng.normal(size=(3, 6)).astype("f")
    sketch.then("Gemm", first, rng.normal(size=8).astype("f"), transB=1)
    sketch.then("BatchNormalization", *normalisation(rng, 8))
    sketch.then("GreaterOrEqual", 0.0).then("Where", 1.0, -1.0)
    sketch.then("Gemm", signs(rng, 6, 8), transB=1)
    sketch.then("BatchNormalization", *normalisation(rng, 6)).then("Sign")
    sketch.then("Gemm", last, rng.normal(size=3).astype("f"), transB=1)
    network = agree(sketch, pixels(rng, 50, 1, 4, 4))
    assert [layer.fixed_sign_zero for layer in network.layers] == [True, False]


def test_bipolar_quant_is_plus_at_zero_and_times_its_scale() -> None:
    rng = np.random.default_rng(5)
    latent = rng.normal(size=(4, 6)).astype(np.float32)

    def build(quantised: bool) -> Sketch:
        sketch = Sketch("N", 4)
        if not quantised:
            sketch.then("MatMul", np.float32(0.5) * np.where(latent >= 0, 1, -1).astype("f"))
            sketch.then("GreaterOrEqual", 0.0).then("Where", 0.25, -0.25)
            return sketch.then("MatMul", np.eye(6, 2, dtype=np.float32))
        names = [sketch.constant(array) for array in (latent, np.float32(0.5), np.float32(0.25))]
        sketch.nodes = [
            helper.make_node("BipolarQuant", names[:2], ["w"], domain="onnx.brevitas"),
            helper.make_node("MatMul", ["x", "w"], ["u"]),
            helper.make_node("BipolarQuant", ["u", names[2]], ["y"], domain="finn.custom_op"),
        ]
        sketch.current = "y"
        return sketch.then("MatMul", np.eye(6, 2, dtype=np.float32))

    points = pixels(rng, 50, 4)
    network = build(True).network()
    assert network.layers[0].sign_zero == "plus"
    np.testing.assert_array_equal(network.evaluate(points), build(False).run(points))


def test_the_numbers_of_the_file_are_kept() -> None:
    rng = np.random.default_rng(6)
    scale, bias, mean, variance = normalisation(rng, 4)
    sketch = Sketch("N", 3).then("MatMul", np.float32(0.1) * signs(rng, 3, 4))
    sketch.then("BatchNormalization", scale, bias, mean, variance, epsilon=1e-3).then("Sign")
    real = rng.normal(size=(4, 2))
    sketch.then("MatMul", real.astype(np.float32)).then("Div", 3.0)
    first, last = read_onnx(sketch.model().SerializeToString(), "m").stages
    factor, normalise = first.steps
    assert isinstance(factor, Scale)
    assert np.all(factor.factor == np.float64(np.float32(0.1)))
    assert isinstance(normalise, Normalise)
    assert np.array_equal(normalise.variance, variance.astype(np.float64))
    assert np.all(normalise.epsilon == np.float64(np.float32(1e-3)))
    assert first.weights.dtype == np.int8
    assert first.sign_zero is None
    assert np.array_equal(last.weights.toarray(), real.astype(np.float32).astype(np.float64).T)
    (divide,) = last.steps
    assert isinstance(divide, Divide)
    assert np.all(divide.divisor == 3.0)


def test_a_shift_before_weights_is_not_rounded() -> None:
    weights = np.array([[1.0, 1e-9], [2.0, 0.1]], dtype=np.float32)
    shift = np.array([1e8, 1e-7], dtype=np.float32)
    sketch = Sketch("N", 2).then("Add", shift).then("MatMul", weights.T).then("Sign")
    sketch.then("MatMul", np.eye(2, dtype=np.float32))
    steps = read_onnx(sketch.model().SerializeToString(), "m").stages[0].steps
    assert len(steps) > 1
    for row in range(2):
        exact = sum(
            Fraction(float(w)) * Fraction(float(a))
            for w, a in zip(weights[row], shift, strict=True)
        )
        total = Fraction(0)
        for step in steps:
            assert isinstance(step, Shift)
            total += Fraction(float(step.offset[row]))
        assert total == exact


def test_zero_in_a_window_is_settled_by_the_sign_after_the_pooling() -> None:
    for nudge, expected in ((0.1, "plus"), (-0.1, "minus")):
        sketch = Sketch("N", 1, 1, 2).then("Conv", np.ones((1, 1, 1, 1), "f")).then("Sign")
        sketch.then("MaxPool", kernel_shape=[1, 2]).then("Add", nudge).then("Sign").then("Flatten")
        sketch.then("MatMul", np.array([[1.0, -1.0]], dtype=np.float32))
        points = np.array([[0, 0], [0, -1], [-1, -1], [1, 0]]).reshape(4, 1, 1, 2)
        network = agree(sketch, points)
        assert network.layers[0].sign_zero == expected


def test_argmax_and_double_and_unsorted_nodes() -> None:
    sketch = Sketch("N", 3).then("Cast", to=TensorProto.DOUBLE)
    sketch.then("MatMul", np.array([[1.0], [0.1], [-1.0]])).then("Sign")
    sketch.then("MatMul", np.array([[0.1, 0.2]])).then("ArgMax", axis=1)
    sketch.kind = TensorProto.INT64
    network = sketch.network()
    assert network.output_transform == "argmax"
    assert np.array_equal(network.output.weights, np.array([[0.1], [0.2]]))
    model = sketch.model()
    backwards = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(backwards)
    assert network_of(model).content_hash == network.content_hash


def test_initializers_may_be_listed_as_inputs() -> None:
    sketch = Sketch("N", 2).then("MatMul", np.eye(2, dtype=np.float32)).then("Sign")
    model = sketch.then("MatMul", np.eye(2, dtype=np.float32)).model()
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.FLOAT, [2, 2]))
    assert network_of(model).sizes == (2, 2, 2)


def test_an_input_without_a_batch_axis() -> None:
    sketch = Sketch(3).then("MatMul", np.eye(3, 2, dtype=np.float32)).then("Sign")
    network = sketch.then("MatMul", np.eye(2, dtype=np.float32)).network()
    assert network.input_shape == (3,)
    assert network.evaluate(np.array([1.0, -2.0, 0.5])).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_extremes_of_any_number_of_constants(op: str, count: int) -> None:
    rng = np.random.default_rng(count)
    sketch = Sketch("N", 4).then("MatMul", signs(rng, 4, 6))
    # The last of the constants decides, and the others do not.
    side = 1 if op == "Max" else -1
    parts = [side * np.full(6, k - 1, np.float32) for k in range(count)]
    sketch.nodes.append(helper.make_node(op, [sketch.constant(p) for p in parts], ["limit"]))
    sketch.nodes.append(helper.make_node("GreaterOrEqual", [sketch.current, "limit"], ["over"]))
    sketch.current = "over"
    sketch.then("Cast", to=TensorProto.FLOAT).then("MatMul", signs(rng, 6, 2))
    agree(sketch, pixels(rng, 100, 4))


def test_weights_with_more_axes_give_a_result_with_more_axes() -> None:
    rng = np.random.default_rng(1)
    sketch = Sketch("N", 4).then("MatMul", signs(rng, 1, 1, 4, 3)).then("Add", 0.5).then("Sign")
    sketch.then("Transpose", perm=[3, 1, 2, 0]).then("Reshape", np.array([1, 3]))
    agree(sketch.then("MatMul", signs(rng, 3, 2)), pixels(rng, 50, 4))
