"""The quantisers of Larq and QKeras."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bnncert.model.formats.keras.quantizers import (
    quantised,
    quantised_array,
    quantiser_of,
    step_function,
)
from bnncert.model.formats.layer_chain import FileLayer
from tests.data.make_larq_fixtures import FOLDER
from tests.model.formats.keras.h5_files import Layers, dense, read, refusal
from tests.model.formats.onnx.rational_graphs import rounded

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")


@pytest.mark.parametrize("threshold", ["0.0", "0.05", "0.1", "0.2", "1.0"])
def test_ternary_quantiser_on_its_edges(threshold: str) -> None:
    with np.load(FOLDER / "larq_edges.npz") as stored:
        weights, expected = stored["weights"], stored[threshold]
    entry = {"class_name": "SteTern", "config": {"threshold_value": float(threshold)}}
    assert np.any(np.abs(weights) == np.float32(threshold))
    np.testing.assert_array_equal(quantised(weights, entry, LAYER, "quantizer"), expected)


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("ste_sign", "ste_sign"),
        ("ste_sign", {"class_name": "Larq>SteSign", "config": {"clip_value": 1.0}}),
        ("ste_sign", {"class_name": "function", "config": "approx_sign", "module": "builtins"}),
        ("mean", {"class_name": "SteTern", "config": {"ternary_weight_networks": True}}),
        ("0.05", "ste_tern"),
    ],
)
def test_other_quantisers_on_the_same_weights(key: str, entry: Any) -> None:
    with np.load(FOLDER / "larq_edges.npz") as stored:
        weights, expected = stored["weights"], stored[key]
    np.testing.assert_array_equal(quantised(weights, entry, LAYER, "quantizer"), expected)


def test_quantised_kernels_stay_what_they_are() -> None:
    # A model that was saved in quantized_scope(True) has -1, 0, 1 already.
    kernel = np.array([[-1, 0, 1, 1, -1, 1]], dtype=np.float32)
    for mean in (False, True):
        entry = {"class_name": "SteTern", "config": {"ternary_weight_networks": mean}}
        np.testing.assert_array_equal(quantised(kernel, entry, LAYER, "quantizer"), kernel)


LAYER = FileLayer("net.h5", "dense", "QuantDense")


def _exact(number: float) -> Fraction:
    return Fraction(float(np.float32(number)))


def _activation(name: str, options: dict[str, Any], x: Fraction) -> Fraction:
    """Return what QKeras computes, from its definitions."""
    alpha = options.get("alpha")
    scale = Fraction(1) if alpha is None else _exact(alpha)
    if name == "binary":
        sign = 1 if x >= 0 else -1
        return scale * (Fraction(sign + 1, 2) if options.get("use_01") else sign)
    if name == "ternary":
        cut = options.get("threshold")
        cut = _exact(0.33 if cut is None else cut)
        return scale * ((x > 0) - (x < 0)) if abs(x) >= cut else Fraction(0)
    bits, integer = options["bits"], Fraction(2) ** options["integer"]
    if name == "quantized_relu":
        m = 2**bits
        return integer * min(
            max(Fraction(rounded(x * m / integer, "ROUND"), m), Fraction(0)), 1 - Fraction(1, m)
        )
    keep = int(options["keep_negative"])
    m = 2 ** (bits - keep)
    if bits == keep:
        return scale * (1 if x >= 0 else -1)
    whole = min(max(rounded(x * m / integer, "ROUND"), keep * (-m + options["symmetric"])), m - 1)
    return scale * integer * Fraction(whole, m)


@st.composite
def _quantisers(draw: Any) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(["binary", "ternary", "quantized_bits", "quantized_relu"]))
    alpha = draw(st.sampled_from([None, 1, 1.0, 0.5, 0.3]))
    if name == "binary":
        return name, {"use_01": draw(st.booleans()), "alpha": alpha}
    if name == "ternary":
        return name, {"alpha": alpha, "threshold": draw(st.sampled_from([None, 0.5, 0.25, 0.1]))}
    grid = {"bits": draw(st.integers(1, 5)), "integer": draw(st.integers(-1, 2))}
    if name == "quantized_relu":
        return name, grid
    keep = draw(st.booleans())
    return name, {
        **grid,
        "symmetric": draw(st.integers(0, 1)),
        "keep_negative": keep,
        "alpha": alpha,
    }


@settings(max_examples=20, deadline=None)
@given(_quantisers(), st.booleans())
def test_an_activation_is_its_definition(case: tuple[str, dict[str, Any]], is_text: bool) -> None:
    name, options = case
    # One bit that is symmetric, with the sign, has no levels but the sign.
    entry: Any = {"class_name": name, "config": options}
    if is_text:
        entry = f"{name}({','.join(f'{key}={value!r}' for key, value in options.items())})"
    steps = step_function(entry, LAYER, "activation")
    assert steps is not None
    assert list(steps.thresholds) == sorted(steps.thresholds)
    points = {
        Fraction(t) + d
        for t in steps.thresholds
        for d in (0, Fraction(1, 2**40), -Fraction(1, 2**40))
    }
    points |= {Fraction(k, 16) for k in range(-40, 41)}
    for x in points:
        reached = sum(
            x > Fraction(t) if strict else x >= Fraction(t)
            for t, strict in zip(steps.thresholds, steps.strict, strict=True)
        )
        found = Fraction(steps.step) * (Fraction(steps.low) + reached)
        assert found == _activation(name, options, x)


@settings(max_examples=20, deadline=None)
@given(_quantisers(), st.integers(0, 2**32 - 1))
def test_a_kernel_is_quantised_as_an_activation_is(
    case: tuple[str, dict[str, Any]], seed: int
) -> None:
    name, options = case
    options = {**options, "alpha": 1.0}
    rng = np.random.default_rng(seed)
    kernel = np.concatenate([rng.normal(size=20), rng.integers(-16, 17, 20) / 16]).astype(
        np.float32
    )
    if name == "quantized_relu":
        name, options = "ternary", {"alpha": 1.0}
    quantiser = quantiser_of({"class_name": name, "config": options}, LAYER, "kernel_quantizer")
    assert quantiser is not None
    found = quantised_array(kernel.reshape(8, 5), quantiser, is_kernel=True).reshape(-1)
    expected = [float(_activation(name, options, Fraction(float(w)))) for w in kernel]
    np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_ternary_tanh_goes_down_at_its_thresholds() -> None:
    steps = step_function("ternary_tanh", LAYER, "activation")
    assert steps is not None
    assert (steps.thresholds, steps.strict, steps.low) == ((-0.5, 0.5), (True, True), -1.0)


def test_powers_of_two_of_the_channels() -> None:
    quantiser = quantiser_of({"class_name": "binary", "config": {"alpha": "auto_po2"}}, LAYER, "k")
    assert quantiser is not None
    kernel = np.array([[0.5, -0.1, 3.0], [-0.6, 0.15, 4.0]], dtype=np.float32)
    found = quantised_array(kernel, quantiser, is_kernel=True)
    np.testing.assert_array_equal(found, [[0.5, -0.125, 4.0], [-0.5, 0.125, 4.0]])


def _network(kernel_quantizer: Any, activation: Any = "binary") -> Layers:
    _, config, arrays = dense(2, [[0.5, -0.5], [0.2, 0.6]], name="first")
    first = ("QDense", {**config, "kernel_quantizer": kernel_quantizer}, arrays)
    middle = ("QActivation", {"activation": activation, "name": "act"}, {})
    return [first, middle, dense(2, [[0.5, -0.5], [1.0, 0.25]], name="last")]


def test_a_small_network_at_its_ties(tmp_path: Path) -> None:
    network = read(tmp_path, _network("binary(alpha=1)", "ternary(threshold=0.5)"))
    assert network.sizes == (2, 4, 2)
    for x in ([0.25, 0.25], [-0.25, -0.25], [0.5, 0.0], [0.0, 0.5], [0.1, 0.2]):
        # Channel 0 is x0 + x1, channel 1 is x1 - x0.
        sums = (Fraction(x[0]) + Fraction(x[1]), Fraction(x[1]) - Fraction(x[0]))
        levels = [_activation("ternary", {"threshold": 0.5}, u) for u in sums]
        expected = [
            Fraction(1, 2) * levels[0] + levels[1],
            -Fraction(1, 2) * levels[0] + Fraction(1, 4) * levels[1],
        ]
        assert network.evaluate_exactly(x) == expected


@pytest.mark.parametrize(
    ("kernel", "activation", "expected"),
    [
        (
            "stochastic_ternary",
            "binary",
            "first (QDense): its kernel_quantizer is stochastic_ternary",
        ),
        (
            "binary(alpha='auto')",
            "binary",
            "kernel_quantizer binary: alpha 'auto' scales by float32",
        ),
        ("ternary", "binary", "kernel_quantizer ternary: alpha 'auto_po2' scales by float32 means"),
        ("quantized_po2(4)", "binary", "its kernel_quantizer is quantized_po2(4); supported are"),
        ("quantized_relu(2)", "binary", "quantized_relu: alpha 'auto_po2'"),
        ("binary(alpha=-1)", "binary", "alpha -1; expected a positive number"),
        ("binary(alpha=open)", "binary", "is not a name with numbers"),
        (
            "binary(alpha=1)",
            "quantized_tanh(4)",
            "act (QActivation): its activation is quantized_tanh(4)",
        ),
        ("binary(alpha=1)", "quantized_relu(9)", "quantized_relu: 9 bits"),
        (
            "binary(alpha=1)",
            "quantized_relu(2,0,1)",
            "quantized_relu: use_sigmoid 1 is not supported",
        ),
        ("binary(alpha=1)", "quantized_relu(2,0,0,0.25)", "negative_slope 0.25 is not supported"),
        ("binary(alpha=1)", "quantized_bits(4,qnoise_factor=0.5)", "qnoise_factor 0.5 is not"),
        ("binary(alpha=1)", "ternary(alpha='auto')", "ternary: alpha 'auto'; expected a number"),
        ("binary(alpha=1)", "ternary(depth=2)", "ternary: option depth is not known"),
        ("binary(alpha=1)", "relu", "its activation is relu; a binary network has signs"),
    ],
)
def test_refused_quantisers(kernel: str, activation: str, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, _network(kernel, activation))


def test_a_bias_whose_scale_depends_on_the_version_is_refused(tmp_path: Path) -> None:
    layers = _network("binary(alpha=1)")
    kind, config, arrays = layers[0]
    config = {**config, "use_bias": True, "bias_quantizer": "binary(alpha='auto_po2')"}
    arrays = {**arrays, "bias": np.array([0.3, 2.0], dtype=np.float32)}
    message = refusal(tmp_path, [(kind, config, arrays), *layers[1:]])
    assert "bias_quantizer binary: alpha 'auto_po2' of a bias differs between versions" in message


def test_a_mask_of_a_kernel_is_refused(tmp_path: Path) -> None:
    layers = _network("binary(alpha=1)")
    kind, config, arrays = layers[0]
    masked = (kind, {**config, "mask": [[1, 0], [1, 1]]}, arrays)
    assert "first (QDense): a mask of its kernel" in refusal(tmp_path, [masked, *layers[1:]])


def test_layers_of_qkeras_that_are_not_read(tmp_path: Path) -> None:
    layers = [("QBatchNormalization", {"name": "norm"}, {}), *_network("binary(alpha=1)")]
    assert "norm (QBatchNormalization): this kind of layer" in refusal(tmp_path, layers)
