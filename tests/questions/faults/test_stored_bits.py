"""A flipped weight of the normal form is a flipped bit of the file, or the question is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import bnncert
from bnncert.kernel.rules.weight_flips import Fault, with_faults
from bnncert.questions.faults.faults_answer import FaultsResult
from tests.model.formats.onnx_sketch import Sketch, normalisation, signs

RNG = np.random.default_rng(5)
FIRST, SECOND, OUTPUT = signs(RNG, 3, 4), signs(RNG, 4, 3), signs(RNG, 3, 2)
NORM = normalisation(RNG, 4, "negative")
WINDOW = np.array([[[1, -1]], [[1, 1]]], np.float32)
LAST = np.array([[1, -1]] * 4, np.float32)


def model(first: np.ndarray, second: np.ndarray, output: np.ndarray) -> Sketch:
    """Scaled inputs, and batch normalisation with negative scales."""
    sketch = Sketch(1, 3).then("Mul", [0.5, 2.0, -1.0]).then("MatMul", first)
    sketch = sketch.then("BatchNormalization", *NORM).then("Sign").then("Mul", 0.5)
    return (
        sketch.then("MatMul", second)
        .then("Add", [0.25, -0.25, 0.25])
        .then("Sign")
        .then("MatMul", output)
    )


def test_a_flipped_bit_is_a_flipped_weight() -> None:
    network = model(FIRST, SECOND, OUTPUT).network()
    points = RNG.uniform(-2, 2, (40, 3))
    for layer in range(3):
        for i, j in np.ndindex(*(FIRST, SECOND, OUTPUT)[layer].shape):
            stored = [FIRST.copy(), SECOND.copy(), OUTPUT.copy()]
            stored[layer][i, j] *= -1
            faulty = with_faults(network, [Fault(layer, j, i)])
            wanted = model(*stored).network().evaluate(points)
            assert np.array_equal(faulty.evaluate(points), wanted)


def ask(sketch: Sketch, layers: list[int] | None = None) -> FaultsResult:
    network = sketch.network()
    image = np.full(network.inputs, 0.75)
    label = int(network.classify(image)[0])
    ball = bnncert.Ball("linf", image, 0)
    return bnncert.faults(network, ball, label, layers=layers, timeout=10)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Sketch(1, 1, 3).then("Conv", WINDOW).then("Sign").then("Flatten"),
        lambda: Sketch(1, 2, 3).then("MatMul", FIRST[:, :2]).then("Sign").then("Flatten"),
        lambda: Sketch(1, 3).then("MatMul", FIRST).then("MatMul", np.eye(4, dtype=np.float32))
        .then("Sign"),
    ],
    ids=["a convolution of one axis", "a layer at two positions", "two layers without a sign"],
)  # fmt: skip
def test_shared_bits_are_refused(made: Callable[[], Sketch]) -> None:
    with pytest.raises(bnncert.InputError, match=r"layer 1 .* shares its weights"):
        ask(made().then("MatMul", LAST))


def test_scores_of_shared_bits_are_refused() -> None:
    kernel = np.array([1, -1], np.float32).reshape(2, 1, 1)
    signed = Sketch(1, 3).then("MatMul", FIRST).then("Sign").then("Reshape", np.array([1, 1, 4]))
    with pytest.raises(bnncert.InputError, match=r"layer 2 .* shares its weights"):
        ask(signed.then("Conv", kernel).then("GlobalAveragePool").then("Flatten"))


def test_bits_that_are_also_in_a_threshold_are_refused() -> None:
    """w (x - 1/2) has the threshold w/2, and signals 0 and 1 are half of a sign plus 1/2."""
    shifted = Sketch(1, 3).then("Sub", 0.5).then("MatMul", FIRST).then("Sign").then("MatMul", LAST)
    binary = Sketch(1, 3).then("MatMul", FIRST).then("Sign").then("Add", 1.0).then("MatMul", LAST)
    for sketch, layer in ((shifted, 1), (binary, 2)):
        for layers in (None, [layer]):
            with pytest.raises(bnncert.InputError, match=rf"layer {layer} .* shifts its inputs"):
                ask(sketch, layers)
        assert ask(sketch, [3 - layer]).rows
