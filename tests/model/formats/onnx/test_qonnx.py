"""Quantised activations of QONNX and FINN, against an evaluation of the graph in rationals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from bnncert.errors import BnncertError
from bnncert.model.formats.onnx.quantisers import QONNX_DOMAINS, ROUNDINGS
from bnncert.model.network import Network
from tests.model.formats.onnx.rational_graphs import bounds, evaluate, rounded
from tests.model.formats.onnx_sketch import Sketch, network_of, refusal, signs, ternary

QONNX = QONNX_DOMAINS[0]

#: Scales; the inputs below are multiples of 1/8, so that many sums are exactly thresholds.
SCALES = (1.0, 0.5, 0.25, 2.0, 0.3, 0.1)

Pick = Callable[[Any], Any]


def _activation(sketch: Sketch, pick: Pick, channels: int) -> Sketch:
    """Add an activation with levels, with what may come before it."""
    before = pick(st.sampled_from(["", "", "Relu", "Clip"]))
    if before == "Relu":
        sketch.then("Relu")
    elif before == "Clip":
        low, high = pick(st.sampled_from([(-1.0, 1.0), (0.0, 6.0), (-0.5, 0.25), (-3.0, 0.5)]))
        sketch.then("Clip", np.float32(low), np.float32(high))
    if pick(st.booleans()):
        return _quant(sketch, pick, channels)
    count = pick(st.integers(1, 4))
    rows = pick(st.sampled_from([1, channels]))
    table = np.array(
        pick(st.lists(st.integers(-16, 16), min_size=rows * count, max_size=rows * count)),
        dtype=np.float32,
    )
    return sketch.then(
        "MultiThreshold",
        table.reshape(rows, count) / 4,
        domain="finn.custom_op.general",
        out_dtype="INT8",
        out_scale=pick(st.sampled_from([1.0, 2.0, -1.0])),
        out_bias=pick(st.sampled_from([0.0, -1.0, 0.5])),
    )


def _quant(sketch: Sketch, pick: Pick, channels: int) -> Sketch:
    bits = pick(st.integers(1, 3))
    signed = pick(st.booleans())
    # Unsigned and narrow with one bit is the constant 0.
    narrow = pick(st.booleans()) and (signed or bits > 1)
    scale = np.array(pick(st.sampled_from(SCALES)), dtype=np.float32)
    zero = np.array(pick(st.sampled_from([0, 0, 1, -1])), dtype=np.float32)
    return sketch.then(
        pick(st.sampled_from(["Quant", "IntQuant"])),
        *(scale, zero, np.array(bits, dtype=np.float32)),
        domain=pick(st.sampled_from(QONNX_DOMAINS)),
        **{"signed": int(signed), "narrow": int(narrow)},
        rounding_mode=pick(st.sampled_from(sorted(ROUNDINGS))),
    )


def _normalised(sketch: Sketch, pick: Pick, channels: int) -> Sketch:
    """Add batch normalisation whose deviations are rational."""

    def some(values: list[float]) -> npt.NDArray[np.float32]:
        listed = st.lists(st.sampled_from(values), min_size=channels, max_size=channels)
        return np.array(pick(listed), dtype=np.float32)

    gamma = some([1.0, -1.0, 0.5, 2.0])
    beta, mean = some([0.0, 0.5, -0.25]), some([0.0, 1.0, -0.5])
    return sketch.then("BatchNormalization", gamma, beta, mean, some([1.0, 4.0, 0.25]), epsilon=0.0)


def _dense(pick: Pick, rng: np.random.Generator) -> Sketch:
    sketch = Sketch(1, 4)
    if pick(st.booleans()):
        _activation(sketch, pick, 4)
    width = 4
    for _ in range(pick(st.integers(1, 2))):
        after = pick(st.integers(2, 3))
        sketch.then(
            "MatMul", ternary(rng, width, after) * np.float32(pick(st.sampled_from(SCALES)))
        )
        if pick(st.booleans()):
            _normalised(sketch, pick, after)
        _activation(sketch, pick, after)
        width = after
    return sketch.then("MatMul", rng.integers(-3, 4, (width, 3)).astype(np.float32))


def _images(pick: Pick, rng: np.random.Generator) -> Sketch:
    sketch = Sketch(1, 1, 5, 5).then("Conv", ternary(rng, 2, 1, 2, 2))
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    order = pick(st.sampled_from(["", "before", "after", "average"]))
    if order == "before":
        sketch.then("MaxPool", **pool)
    _normalised(sketch, pick, 2)
    _activation(sketch, pick, 2)
    if order == "after":
        sketch.then("MaxPool", **pool)
    elif order == "average":
        sketch.then("AveragePool", **pool)
    if pick(st.booleans()):
        _activation(sketch.then("Conv", ternary(rng, 2, 2, 2, 2)), pick, 2)
    sketch.then("Transpose", perm=[0, 2, 3, 1]).then("Flatten")
    return sketch.then("MatMul", ternary(rng, int(_outputs(sketch)), 3))


def _outputs(sketch: Sketch) -> int:
    """Return the number of values so far, from the evaluation of one point."""
    return len(evaluate(sketch.model(), np.zeros(sketch.shape)))


def _compare(sketch: Sketch, points: npt.NDArray[Any]) -> None:
    model = sketch.model()
    try:
        network = network_of(model)
    except BnncertError as error:
        # A quantiser behind a Clip may be constant.
        if "does not depend on its input" not in str(error):
            raise
        return
    for point in points:
        found = network.evaluate_exactly(point)
        assert found is not None
        expected = evaluate(model, point)
        if network.output.gain_is_one:
            assert found == expected
        else:
            gain = Fraction(network.output.gain)
            np.testing.assert_allclose(
                [float(gain * f) for f in found], [float(e) for e in expected], rtol=1e-12
            )


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_a_dense_network_computes_what_the_graph_says(data: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = _dense(data.draw, rng)
    # Multiples of 1/8 are thresholds often; others are not.
    _compare(sketch, np.concatenate([rng.integers(-16, 17, (12, 4)) / 8, rng.normal(size=(4, 4))]))


@settings(max_examples=12, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_a_network_on_images_computes_what_the_graph_says(data: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = _images(data.draw, rng)
    _compare(sketch, rng.integers(-8, 9, (4, 1, 5, 5)) / 4)


@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
@pytest.mark.parametrize(("signed", "narrow"), [(1, 1), (1, 0), (0, 0), (0, 1)])
def test_every_level_and_tie_of_a_rounding_mode(mode: str, signed: int, narrow: int) -> None:
    sketch = Sketch(1, 1).then(
        *("Quant", 0.5, 0.0, 3.0),
        domain=QONNX,
        **{"signed": signed, "narrow": narrow},
        rounding_mode=mode,
    )
    network = sketch.then("MatMul", np.array([[1.0, 2.0]], dtype=np.float32)).network()
    low, high = bounds(3, bool(signed), bool(narrow))
    levels = set()
    # The quotients are k/4 and just beside; ties are at k and at k + 1/2.
    for quarters in range(-24, 41):
        for beside in (-(2.0**-30), 0.0, 2.0**-30):
            point = quarters / 8 + beside
            found = network.evaluate_exactly([point])
            level = rounded(min(max(Fraction(point) * 2, Fraction(low)), Fraction(high)), mode)
            assert found == [Fraction(level, 2), Fraction(level)]
            levels.add(level)
    assert levels == set(range(low, high + 1))
    # On constants, in float32.
    weights = np.arange(-24, 41, dtype=np.float32).reshape(1, -1) / 8
    expected = [
        rounded(min(max(Fraction(float(w)) * 2, Fraction(low)), Fraction(high)), mode)
        for w in weights[0]
    ]
    folded = _folded_quant(weights, mode, signed, narrow)
    np.testing.assert_array_equal(folded.output.weights[:, 0], np.array(expected) / 2)


def _folded_quant(weights: npt.NDArray[Any], mode: str, signed: int, narrow: int) -> Network:
    """Return sign(x) times quantised weights."""
    sketch = Sketch(1, 1).then("BipolarQuant", 1.0, domain=QONNX)
    names = [sketch.constant(c) for c in (weights, 0.5, 0.0, 3.0)]
    kept, sketch.current = sketch.current, names[0]
    sketch.then(
        *("Quant", 0.5, 0.0, 3.0),
        domain=QONNX,
        **{"signed": signed, "narrow": narrow},
        rounding_mode=mode,
    )
    quantised, sketch.current = sketch.current, kept
    sketch.then("MatMul")
    sketch.nodes[-1].input.append(quantised)
    return sketch.network()


def _tfc(weight_bits: int, act_bits: int, rng: np.random.Generator) -> Sketch:
    """Return a graph of the shape of TFC_1W2A and TFC_2W2A (784-64-64-64-10, here 12-6-6-4)."""

    def activation(sketch: Sketch) -> Sketch:
        return sketch.then("Quant", 1.0, 0.0, float(act_bits), domain=QONNX, signed=1, narrow=1)

    sketch = Sketch(1, 1, 3, 4).then("Flatten").then("Mul", 2.0).then("Sub", 1.0)
    activation(sketch)
    sizes = (12, 6, 6, 4)
    for before, after in pairwise(sizes):
        weights = signs(rng, before, after) if weight_bits == 1 else ternary(rng, before, after)
        sketch.then("MatMul", weights)
        if after != sizes[-1]:
            gamma, beta, mean = (rng.normal(size=after).astype(np.float32) for _ in range(3))
            variance = np.square(rng.integers(1, 9, after) / 4).astype(np.float32)
            sketch.then("BatchNormalization", gamma, beta, mean, variance, epsilon=0.0)
            activation(sketch)
    return sketch.then("Add", -0.25).then("Div", 1.5)


@pytest.mark.parametrize(
    ("weight_bits", "neurons"), [(1, (12, 24, 12, 12, 4)), (2, (12, 24, 12, 12, 4))]
)
def test_the_shape_of_finns_two_bit_networks(weight_bits: int, neurons: tuple[int, ...]) -> None:
    rng = np.random.default_rng(weight_bits)
    sketch = _tfc(weight_bits, 2, rng)
    network = sketch.network()
    # Every neuron with three values is two signs, and hidden weights stay ternary.
    assert network.sizes == neurons
    assert all(np.abs(layer.rows.data).max() == 1 for layer in network.layers)
    points = np.concatenate([rng.integers(0, 5, (40, 12)) / 4, rng.uniform(size=(20, 12))])
    classes = set()
    for point in points:
        found, expected = network.evaluate_exactly(point), evaluate(sketch.model(), point)
        assert found is not None
        assert np.argsort(found).tolist() == np.argsort(expected).tolist()
        assert int(np.argmax(expected)) == network.classify(point)[0]
        classes.add(int(np.argmax(expected)))
    assert len(classes) > 1


def _with(op: str, *constants: Any, **attributes: Any) -> Sketch:
    sketch = Sketch(1, 2).then("MatMul", np.ones((2, 2), dtype=np.float32))
    sketch.then(op, *constants, domain=attributes.pop("domain", QONNX), **attributes)
    return sketch.then("MatMul", np.ones((2, 2), dtype=np.float32))


_SIGNED: dict[str, Any] = {"signed": 1, "narrow": 1}
REFUSED: dict[str, Sketch] = {
    "9 bits; supported are 1 to 8": _with("Quant", 1.0, 0.0, 9.0, **_SIGNED),
    "2.5 bits": _with("Quant", 1.0, 0.0, 2.5, **_SIGNED),
    "its scale is not positive": _with("Quant", -1.0, 0.0, 2.0, **_SIGNED),
    "rounding_mode DPU; supported are": (
        _with("Quant", 1.0, 0.0, 2.0, rounding_mode="DPU", **_SIGNED)
    ),
    "attribute depth is not known": _with("Quant", 1.0, 0.0, 2.0, depth=1, **_SIGNED),
    "attribute narrow is missing": _with("Quant", 1.0, 0.0, 2.0, signed=1),
    "signed is not of type INT": _with("Quant", 1.0, 0.0, 2.0, signed=1.0, narrow=1),
    "3 inputs; expected 4": _with("Quant", 1.0, 0.0, **_SIGNED),
    "its result does not depend on its input": _with("Quant", 1.0, 0.0, 1.0, signed=0, narrow=1),
    "thresholds of shape (3, 1) for 2 channels": (
        _with("MultiThreshold", np.zeros((3, 1), np.float32), out_dtype="UINT2")
    ),
    "4096 values with 1026 levels are too many neurons": (
        Sketch(1, 4096).then("MultiThreshold", np.zeros((1, 1025), np.float32), domain=QONNX)
    ),
    "layout 'NWC'; expected": (
        _with("MultiThreshold", np.zeros((1, 1), np.float32), data_layout="NWC")
    ),
    "operators of domain com.example are not supported; export the model with the operators": (
        _with("Quant", 1.0, 0.0, 2.0, domain="com.example", **_SIGNED)
    ),
    "operators of domain onnx.brevitas are not supported; this operator of QONNX or FINN": (
        _with("FloatQuant", 1.0, domain="onnx.brevitas")
    ),
    "give FINN's model before its conversion to hardware layers": (
        _with("MVAU_hls", 1.0, domain="finn.custom_op.fpgadataflow.hls")
    ),
    "n1 (QuantizeLinear): integer models with QuantizeLinear and DequantizeLinear are not": (
        _with("QuantizeLinear", 1.0, np.array(0, dtype=np.int8), domain="")
    ),
    "n1 (MatMul): after n0 (Relu) only a sign or a quantiser is supported": (
        Sketch(1, 2).then("Relu").then("MatMul", np.ones((2, 2), dtype=np.float32))
    ),
    "n1 (Sign): n0 (Relu) clips to [0, inf], which changes the sign": (
        Sketch(1, 2).then("Relu").then("Sign")
    ),
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_refused_says_why(expected: str) -> None:
    assert expected in refusal(REFUSED[expected])
