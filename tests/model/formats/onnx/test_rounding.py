"""Rounded inputs and activations: graphs like those of EEV, against rationals and onnxruntime.

The networks of Jia and Rinard (Efficient exact verification of binarized neural networks) round
their inputs, ``round(x / step) * step``, and compute ternary weights in the graph.
"""

from __future__ import annotations

import itertools
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from onnx import ModelProto, TensorProto, helper, numpy_helper

import bnncert
from bnncert.errors import BnncertError
from bnncert.kernel import check
from bnncert.model.formats.onnx.writer import clipped_graph
from bnncert.model.network import Network
from tests.in_process import Capture, command_line
from tests.model.formats.onnx.rational_graphs import evaluate, rounded
from tests.model.formats.onnx_sketch import Sketch, network_of, refusal, run, ternary

MODES = {"Round": "HALF_EVEN", "Floor": "FLOOR", "Ceil": "CEIL"}

#: The step of the paper, whose multiples are not floats.
STEP = np.float32(0.61)

Numbers = npt.NDArray[Any]


def _clipped(model: ModelProto, low: float, high: float) -> Network:
    """Return the network of a graph whose inputs are clipped first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save_model(model, path)
        return network_of(onnx.load_model_from_string(clipped_graph(path, low, high)))


def _near(step: float, low: float, high: float, halves: bool = True) -> Numbers:
    """Return the steps of round(x / step) as float32, and their neighbours on both sides."""
    ticks = np.arange(np.floor(low / step) - 1, np.ceil(high / step) + 2)
    found = ((ticks + 0.5 * halves) * np.float64(step)).astype(np.float32)
    sides = [np.nextafter(found, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.clip(np.concatenate([found, *sides]), low, high).astype(np.float32)


def _agree(network: Network, model: ModelProto, points: Numbers, exact: bool = True) -> None:
    """Compare with rationals, and with onnxruntime, which rounds the sums of scores."""
    expected = run(model, points)
    gain = 1.0 if network.output.gain_is_one else float(network.output.gain)
    np.testing.assert_allclose(gain * network.evaluate(points), expected, rtol=2e-5, atol=2e-5)
    for point in points[:: max(1, len(points) // 12)] if exact else ():
        found = network.evaluate_exactly(point.reshape(-1))
        assert found is not None
        if network.output.gain_is_one:
            assert found == evaluate(model, point)


# -- one rounded number -------------------------------------------------------------------


@pytest.mark.parametrize("op", MODES)
@pytest.mark.parametrize("step", [0.5, -0.5, 2.0])
@pytest.mark.parametrize("where", ["before", "after", "inputs"])
def test_every_level_and_tie(op: str, step: float, where: str) -> None:
    sketch = Sketch(1, 1)
    if where == "before":
        sketch.then("Clip", np.float32(-1.25), np.float32(1.5))
    sketch.then("Div", step).then(op)
    if where == "after":
        sketch.then("Clip", np.float32(-2), np.float32(3))
    sketch.then("Mul", step).then("MatMul", np.array([[1.0, 2.0]], dtype=np.float32))
    model = sketch.model()
    network = _clipped(model, -1.25, 1.5) if where == "inputs" else network_of(model)
    levels, exact = set(), list[tuple[float, list[float]]]()
    for eighths in range(-32, 33):
        for beside in (-(2.0**-20), 0.0, 2.0**-20):
            x = Fraction(eighths, 8) + Fraction(beside)
            inside = x if where == "after" else min(max(x, Fraction(-5, 4)), Fraction(3, 2))
            level = rounded(inside / Fraction(step), MODES[op])
            if where == "after":
                level = min(max(level, -2), 3)
            found = network.evaluate_exactly([float(x)])
            assert found == [level * Fraction(step), 2 * level * Fraction(step)]
            # The quotients are exact in float32.
            if where != "inputs" or inside == x:
                exact.append((float(x), [float(v) for v in found]))
            levels.add(level)
    executed = run(model, np.array([[x] for x, _ in exact]))
    np.testing.assert_array_equal(executed, [scores for _, scores in exact])
    assert len(levels) > 1 and levels == set(range(min(levels), max(levels) + 1))


def test_ties_are_rounded_to_even() -> None:
    sketch = Sketch(1, 1).then("Clip", np.float32(-3), np.float32(3)).then("Round")
    network = sketch.then("MatMul", np.array([[1.0, 0.0]], dtype=np.float32)).network()
    ties = {-2.5: -2, -1.5: -2, -0.5: 0, 0.5: 0, 1.5: 2, 2.5: 2}
    assert {x: network.evaluate_exactly([x])[0] for x in ties} == ties  # type: ignore[index]


def test_each_channel_may_have_its_own_step() -> None:
    sketch = Sketch(1, 2, 1, 2).then("Clip", np.float32(-1), np.float32(1))
    sketch.then("Div", np.array([0.5, -0.25], np.float32).reshape(2, 1, 1)).then("Round")
    sketch.then("Transpose", perm=[0, 2, 3, 1]).then("Flatten")
    model = sketch.then("MatMul", np.arange(8, dtype=np.float32).reshape(4, 2)).model()
    points = np.random.default_rng(0).integers(-12, 13, (60, 2, 1, 2)).astype(np.float32) / 8
    _agree(network_of(model), model, points)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_arithmetic_around_a_clip_and_a_rounding(data: Any, seed: int) -> None:
    """Random chains of constants between Clip, rounding and signs, in rationals."""
    rng = np.random.default_rng(seed)
    number = st.sampled_from([1.0, -1.0, 0.5, 2.0, -0.25, 0.61, 3.0])
    sketch = Sketch(1, 3)

    def arithmetic() -> None:
        for _ in range(data.draw(st.integers(0, 2))):
            op = data.draw(st.sampled_from(["Add", "Sub", "Mul", "Div", "Neg"]))
            sketch.then(op, *([] if op == "Neg" else [data.draw(number)]))

    arithmetic()
    order = data.draw(st.sampled_from(["clip first", "clip after", "sign", "quantiser"]))
    low, high = data.draw(st.sampled_from([(-1.0, 1.0), (0.0, 2.0), (-3.0, 1.0)]))
    if order != "clip after":
        sketch.then("Clip", np.float32(low), np.float32(high))
        arithmetic()
    op = data.draw(st.sampled_from(sorted(MODES)))
    if order in ("clip first", "clip after"):
        sketch.then(op)
    if order == "clip after":
        sketch.then("Clip", np.float32(low), np.float32(high))
    if order == "sign":
        sketch.then("BipolarQuant", 1.0, domain="onnx.brevitas")
    if order == "quantiser":
        sketch.then(*("Quant", 0.5, 0.0, 3.0), domain="onnx.brevitas", signed=1, narrow=0)
    sketch.then("MatMul", ternary(rng, 3, 2)).then("Add", data.draw(number))
    sketch.then("BipolarQuant", 1.0, domain="onnx.brevitas")
    model = sketch.then("MatMul", ternary(rng, 2, 3)).model()
    try:
        network = network_of(model)
    except BnncertError as error:
        # Some of the chains are constant, or cut a sign off.
        if not any(
            words in str(error)
            for words in ("which changes the sign", "its result is constant", "does not depend")
        ):
            raise
        return
    for point in [*(rng.integers(-32, 33, (20, 3)) / 8), *rng.normal(size=(4, 3))]:
        assert network.evaluate_exactly(point) == evaluate(model, point)


def test_a_relu_and_an_upper_bound_after_the_rounding_limit_it_together() -> None:
    sketch = Sketch(1, 2).then("Relu").then("Round").then("Clip", None, np.float32(2))
    model = sketch.then("MatMul", np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)).model()
    points = np.array(list(itertools.product(np.arange(-6, 15) / 4, repeat=2)), np.float32)
    _agree(network_of(model), model, points, exact=False)


# -- rounded integers ---------------------------------------------------------------------


@pytest.mark.parametrize("op", MODES)
def test_an_integer_is_its_own_rounded_value(op: str) -> None:
    rng = np.random.default_rng(3)
    weights = ternary(rng, 4, 3), ternary(rng, 3, 2)

    def sketch(*rounding: str) -> Sketch:
        made = Sketch(1, 4).then("BipolarQuant", 1.0, domain="onnx.brevitas")
        made.then("MatMul", weights[0]).then("Mul", 3.0).then("Sub", 2.0)
        for kind in rounding:
            made.then(kind)
        made.then("BipolarQuant", 1.0, domain="onnx.brevitas").then("MatMul", weights[1])
        return made.then(op) if rounding else made

    assert sketch(op).network().content_hash == sketch().network().content_hash


def test_half_the_sum_of_an_even_number_of_signs_is_an_integer() -> None:
    signs = Sketch(1, 2).then("BipolarQuant", 1.0, domain="onnx.brevitas")
    signs.then("MatMul", np.array([[1, 1], [1, -1]], np.float32)).then("Mul", 0.5).then("Round")
    network = signs.network()
    assert network.evaluate_exactly([1.0, -1.0]) == [0, 1]
    # With three signs it is not one: 3/2, 1/2, ...
    odd = Sketch(1, 3).then("BipolarQuant", 1.0, domain="onnx.brevitas")
    odd.then("MatMul", np.ones((3, 2), np.float32)).then("Mul", 0.5).then("Round")
    with pytest.raises(BnncertError, match=r"\(Round\): it rounds values without bounds"):
        odd.network()


# -- what is refused ----------------------------------------------------------------------

ONES = np.ones((2, 2), np.float32)
WITHOUT_BOUNDS = (
    "it rounds values without bounds, which are not always integers; clip them before or after it "
    "(torch.clamp), or, if they are the network's inputs, with bnncert convert MODEL.onnx "
    "CLIPPED.onnx --clip LOW HIGH"
)
REFUSED = {
    f"node n1 (Round): {WITHOUT_BOUNDS}": (
        Sketch(1, 2).then("Div", 0.5).then("Round").then("Mul", 0.5).then("MatMul", ONES)
    ),
    "node n1 (Round): it rounds values without bounds": (
        Sketch(1, 2).then("Relu").then("Round").then("MatMul", ONES)
    ),
    "node n0 (Round): it rounds values without bounds": Sketch(1, 2).then("Round"),
    "onnx: node n0 (Round): it rounds values without bounds": (
        Sketch(1, 2).then("Round").then("Sign")
    ),
    "node n0 (Round): its result is constant, or is clipped to something other than integers": (
        Sketch(1, 2).then("Round").then("Clip", np.float32(0), np.float32(1.5))
    ),
    "node n1 (Round): its result is constant, or is clipped to something other than integers": (
        Sketch(1, 2).then("Clip", np.float32(0), np.float32(0.5)).then("Round")
    ),
    "levels are too many neurons": (
        Sketch(1, 2).then("Clip", np.float32(-1e30), np.float32(1e30)).then("Round")
    ),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_refused_says_why(expected: str) -> None:
    assert expected in refusal(REFUSED[expected])


# -- operators on constants ---------------------------------------------------------------

#: How far onnxruntime may be from the rounded exact value, in units of the last place.
LAST_PLACES = {"Tanh": 4, "Sigmoid": 32, "Exp": 4, "Log": 4, "ReduceL2": 4, "ReduceL1": 4} | {
    "ReduceProd": 8
}
UNARY = ("Relu", "LeakyRelu", "Round", "Floor", "Ceil", "Tanh", "Sigmoid", "HardSigmoid", "Abs")
REDUCED = ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")


@pytest.mark.parametrize("op", [*UNARY, "Exp", "Log", *REDUCED])
def test_an_operator_on_constants_is_that_of_onnxruntime(op: str) -> None:
    rng = np.random.default_rng(5)
    # Halves are ties of Round.
    numbers = np.concatenate([rng.normal(size=40) * 2, np.arange(-8, 8) / 2]).astype(np.float32)
    if op == "Log":
        numbers = np.abs(numbers) + np.float32(0.1)
    table = numbers.reshape(1, -1) if op not in REDUCED else numbers.reshape(4, -1)
    settings_ = {"axes": [0], "keepdims": 1} if op in REDUCED else {}
    node = helper.make_node(op, ["w"], ["v"], name="folded", **settings_)
    tensors = [numpy_helper.from_array(table, "w")]
    executed = helper.make_graph(
        [node], "g", [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)], tensors
    )
    session = onnxruntime.InferenceSession(_model(executed).SerializeToString())
    expected = session.run(None, {})[0].reshape(-1)
    signs = helper.make_node("BipolarQuant", ["x", "one"], ["s"], domain="onnx.brevitas")
    tensors.append(numpy_helper.from_array(np.float32(1), "one"))
    product = helper.make_node("MatMul", ["s", "v"], ["y"])
    graph = helper.make_graph(
        [node, signs, product],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    folded = np.asarray(network_of(_model(graph)).output.weights)[:, 0].astype(np.float32)
    np.testing.assert_array_max_ulp(folded, expected, LAST_PLACES.get(op, 0))


def _model(graph: Any) -> ModelProto:
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


# -- whole networks -----------------------------------------------------------------------


def _weights(sketch: Sketch, latent: Numbers, kind: str) -> str:
    """Add nodes that compute ternary weights from latent ones; return their name."""
    kept, sketch.current = sketch.current, sketch.constant(latent.astype(np.float32))
    start = sketch.current
    if kind == "round":
        sketch.then("Clip", np.float32(-1), np.float32(1)).then("Round")
    else:
        # sign(W) * sign(relu(|W| - 0.3))
        sketch.then("Abs").then("Sub", 0.3).then("Relu").then("Sign")
        mask, sketch.current = sketch.current, start
        sketch.then("Sign")
        product = f"t{len(sketch.nodes)}"
        sketch.nodes.append(helper.make_node("Mul", [sketch.current, mask], [product]))
        sketch.current = product
    name, sketch.current = sketch.current, kept
    return name


def _apply(sketch: Sketch, op: str, weights: str, **attributes: Any) -> Sketch:
    result = f"t{len(sketch.nodes)}"
    sketch.nodes.append(helper.make_node(op, [sketch.current, weights], [result], **attributes))
    sketch.current = result
    return sketch


def _normalise(sketch: Sketch, rng: np.random.Generator, channels: int) -> Sketch:
    """Add batch normalisation with rational deviations and thresholds that no sum hits."""
    gamma = rng.choice([1.0, -1.0, 0.5], channels)
    mean = rng.integers(-2, 3, channels) + 0.31
    arrays = (gamma, rng.normal(size=channels), mean, rng.choice([1.0, 4.0, 0.25], channels))
    sketch.then("BatchNormalization", *(a.astype(np.float32) for a in arrays), epsilon=0.0)
    return sketch


def _activation(sketch: Sketch) -> Sketch:
    return sketch.then("Sign")


def eev_mlp(seed: int, kind: str, inputs: int = 3, step: np.float32 = STEP) -> ModelProto:
    rng = np.random.default_rng(seed)
    sketch = Sketch(1, inputs).then("Div", step).then("Round").then("Mul", step)
    for before, after in ((inputs, 5), (5, 4)):
        _apply(sketch, "MatMul", _weights(sketch, rng.normal(size=(before, after)), kind))
        _activation(_normalise(sketch, rng, after))
    _apply(sketch, "MatMul", _weights(sketch, rng.normal(size=(4, 3)), kind))
    return _normalise(sketch, rng, 3).model()


def eev_convolution(seed: int, kind: str) -> ModelProto:
    rng = np.random.default_rng(seed)
    sketch = Sketch(1, 1, 4, 4).then("Div", STEP).then("Round").then("Mul", STEP)
    kernel = _weights(sketch, rng.normal(size=(2, 1, 2, 2)), kind)
    _apply(sketch, "Conv", kernel)
    _activation(_normalise(sketch, rng, 2))
    _apply(sketch, "Conv", _weights(sketch, rng.normal(size=(2, 2, 2, 2)), kind))
    _activation(_normalise(sketch, rng, 2)).then("Flatten")
    return _apply(sketch, "MatMul", _weights(sketch, rng.normal(size=(8, 3)), kind)).model()


@pytest.mark.parametrize("kind", ["relu", "round"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [eev_mlp, eev_convolution])
def test_networks_like_those_of_eev(make: Any, seed: int, kind: str) -> None:
    model = make(seed, kind)
    with pytest.raises(BnncertError, match="it rounds values without bounds"):
        network_of(model)
    network = _clipped(model, 0.0, 1.0)
    # For x in [0, 1], x / 0.61 is rounded to 0, 1 or 2: two steps.
    assert network.layers[0].size == 2 * network.inputs
    assert (float(network.input_lo.min()), float(network.input_hi.max())) == (0, 1)  # type: ignore[union-attr]
    rng = np.random.default_rng(seed)
    shape = network.input_shape
    points = rng.random((100, *shape)).astype(np.float32)
    edges = rng.choice(_near(float(STEP), 0, 1), (100, *shape)).astype(np.float32)
    _agree(network, model, np.concatenate([points, edges]))


def _levels(low: float, high: float) -> list[int]:
    """Return the values of round(x / step) for x in [low, high], in rationals."""
    step = Fraction(float(STEP))
    first, last = (rounded(Fraction(float(v)) / step, "HALF_EVEN") for v in (low, high))
    return list(range(first, last + 1))


def test_verdicts_and_certificates_are_those_of_all_combinations_of_levels(tmp_path: Path) -> None:
    found: dict[str, int] = {}
    proof = tmp_path / "proof.bnncert"
    for seed in range(8):
        model = eev_mlp(seed, "relu")
        network = _clipped(model, 0.0, 1.0)
        rng = np.random.default_rng(seed)
        for radius in (0.1, 0.4, 0.8):
            centre = rng.random(3).astype(np.float32).astype(np.float64)
            ball = bnncert.Ball("linf", centre, radius, 0, 1)
            cells = itertools.product(*map(_levels, ball.lo, ball.hi))
            # Any input of a level will do: the level times the step, inside [0, 1] or not.
            inputs = np.array(list(cells)) * np.float64(STEP)
            scores = run(model, inputs)
            label = int(run(model, centre[None])[0].argmax())
            others = np.delete(scores, label, axis=1)
            expected = "robust" if np.all(scores[:, [label]] > others) else "not_robust"
            result = bnncert.verify(network, ball, label, certificate=proof)
            assert result.status == expected == check(proof, network).verdict
            found[expected] = found.get(expected, 0) + 1
            if result.counterexample is not None:
                assert run(model, result.counterexample.point[None])[0].argmax() != label
    assert min(found.values()) >= 3 and len(found) == 2


def test_convert_adds_a_clip_of_the_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    source, target = tmp_path / "eev.onnx", tmp_path / "clipped.onnx"
    model = eev_mlp(1, "relu")
    onnx.save_model(model, source)
    call = command_line(monkeypatch, capsys)
    refused = call("info", source)
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "--clip LOW HIGH" in refused.err
    # 0.1 is no float32: the Clip is to the next one below, so that all of the data box is kept.
    answer = call("convert", source, target, "--clip", "0.1", "1")
    network = bnncert.load(target)
    assert (answer.code, answer.out) == (0, f"{target}: {network.content_hash}\n")
    assert network.input_lo is not None and float(network.input_lo.min()) == 0.1
    clipped = onnx.load(target)
    low = next(t for t in clipped.graph.initializer if t.name == clipped.graph.node[0].input[1])
    assert numpy_helper.to_array(low) <= 0.1 < np.nextafter(np.float32(0.1), np.float32(1))
    points = (np.random.default_rng(0).normal(size=(50, 3)) * 2).astype(np.float32)
    _agree(network, clipped, points)
    inside = np.clip(points, 0.11, 1)
    np.testing.assert_array_equal(run(clipped, inside), run(model, inside))
    # The graph without a rounding, and targets that are no graphs.
    onnx.save_model(Sketch(1, 2).then("MatMul", ONES).then("Sign").model(), source)
    for arguments, words in (
        ((source, target, "--clip", "1", "0"), "--clip is 1 0; expected LOW < HIGH"),
        ((source, tmp_path / "b.npz", "--clip", "0", "1"), "name a target .onnx"),
        ((source, target, "--clip", "0", "1"), "eev.onnx: node n0 (MatMul): after clip"),
    ):
        answer = call("convert", *arguments)
        assert answer.code == 2 and words in answer.err and answer.err.count("\n") == 1
    assert bnncert.load(target).content_hash == network.content_hash


@pytest.mark.parametrize("opset", [9, 17])
def test_a_clip_of_the_inputs_in_old_and_new_operator_sets(opset: int, tmp_path: Path) -> None:
    sketch = Sketch(1, 2, opset=opset).then("Sub", 0.25).then("Sign").then("MatMul", ONES)
    network = _clipped(sketch.model(), -1.0, 1.0)
    assert network.evaluate_exactly([0.5, 0.0]) == [0, 0]


# -- exports of PyTorch -------------------------------------------------------------------


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("kind", ["dense", "images"])
def test_exports_of_pytorch(tmp_path: Path, exporter: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    if exporter == "dynamo":
        pytest.importorskip("onnxscript")
    model = _torch_network(torch, kind)
    shape = (6,) if kind == "dense" else (1, 6, 6)
    path = tmp_path / "eev.onnx"
    options = {"dynamo": True} if exporter == "dynamo" else {"do_constant_folding": False}
    torch.onnx.export(model, torch.zeros(1, *shape), str(path), **{"dynamo": False, **options})
    clipped = path.with_name("clipped.onnx")
    clipped.write_bytes(clipped_graph(path, 0, 1))
    network = bnncert.load(clipped)
    rng = np.random.default_rng(1)
    edges = rng.choice(_near(float(STEP), 0, 1), (80, *shape))
    points = np.concatenate([rng.random((80, *shape)), edges]).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(points)).numpy()
    gain = 1.0 if network.output.gain_is_one else float(network.output.gain)
    np.testing.assert_allclose(gain * network.evaluate(points), expected, rtol=1e-4, atol=1e-4)
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name
    executed = np.concatenate([session.run(None, {name: p[None]})[0] for p in points])
    np.testing.assert_allclose(executed, expected, rtol=1e-4, atol=1e-4)


def _torch_network(torch: Any, kind: str) -> Any:
    """Return a network as a user writes it: weights sign(W) * sign(relu(|W| - t))."""
    nn = torch.nn

    def ternary_weights(weight: Any) -> Any:
        return torch.sign(weight) * torch.sign(torch.relu(weight.abs() - 0.3))

    class Rounded(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.round(x / 0.61) * 0.61

    class Signs(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return (x >= 0).to(x.dtype) * 2 - 1

    class TernaryDense(nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return nn.functional.linear(x, ternary_weights(self.weight))

    class TernaryConvolution(nn.Conv2d):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            weight = ternary_weights(self.weight)
            return nn.functional.conv2d(x, weight, None, self.stride, self.padding)

    torch.manual_seed(0)
    if kind == "dense":
        first = [TernaryDense(6, 8, bias=False), nn.BatchNorm1d(8), Signs()]
    else:
        first = [
            *(TernaryConvolution(1, 3, 3, 2, 1, bias=False), nn.BatchNorm2d(3), Signs()),
            *(TernaryConvolution(3, 2, 2, bias=False), nn.BatchNorm2d(2), Signs(), nn.Flatten()),
        ]
    layers = [Rounded(), *first, TernaryDense(8, 3, bias=False), nn.BatchNorm1d(3)]
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.normal_(layer.weight, 0, 0.6)
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (layer.running_mean, layer.weight.data, layer.bias.data):
                tensor.normal_()
            layer.running_var.uniform_(0.5, 2.0)
    return nn.Sequential(*layers).eval()
