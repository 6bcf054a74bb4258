"""Written models run in onnxruntime and read back as the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert.errors import InputError
from bnncert.model.description import ModelDescription, Scale, Shift, Stage
from bnncert.model.formats.model_files import write_description
from bnncert.model.formats.onnx import writer as onnx_writer
from bnncert.model.loading import load
from bnncert.model.network import Network
from tests.model.formats.onnx_sketch import Sketch, normalisation, pixels, run, signs, ternary


def _random(seed: int, real: bool, sign_zero: str | None = "plus") -> Network:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(6, 4)) if real else ternary(rng, 6, 4)
    bias = rng.normal(size=6) if real else rng.integers(-2, 3, size=6)
    scores = rng.normal(size=(3, 5)) if real else ternary(rng, 3, 5)
    return Network.from_arrays(
        [first, ternary(rng, 5, 6), scores],
        [bias, rng.integers(-3, 4, size=5), rng.integers(-3, 4, size=3)],
        sign_zero=sign_zero,  # type: ignore[arg-type]
        input_lo=np.full(4, -8.0),
        input_hi=rng.uniform(8, 9, size=4),
        input_shape=(2, 2),
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    real=st.booleans(),
    sign_zero=st.sampled_from(["plus", "minus", "either"]),
)
@settings(max_examples=15, deadline=None)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, seed: int, real: bool, sign_zero: str
) -> None:
    network = _random(seed, real, sign_zero)
    path = tmp_path_factory.mktemp("written") / "net.onnx"
    network.save(path)
    again = load(path)
    assert again.content_hash == network.content_hash
    assert again.input_shape == (2, 2)
    assert again.sign_zero == sign_zero
    assert again.input_lo is not None
    assert again.input_hi is not None
    np.testing.assert_array_equal(again.input_lo, network.input_lo)
    np.testing.assert_array_equal(again.input_hi, network.input_hi)
    if sign_zero != "either":
        points = pixels(np.random.default_rng(seed), 50, 2, 2)
        model = onnx.load(path)
        onnx.checker.check_model(model)
        scores = run(model, points, batched=True)
        np.testing.assert_allclose(scores, network.evaluate(points), rtol=1e-12, atol=1e-12)


def test_numbers_that_need_float64_get_it(tmp_path: Path) -> None:
    for real, kind in ((True, onnx.TensorProto.DOUBLE), (False, onnx.TensorProto.FLOAT)):
        path = tmp_path / f"{real}.onnx"
        _random(1, real).save(path)
        model = onnx.load(path)
        assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        assert model.graph.output[0].type.tensor_type.elem_type == kind
        assert {tensor.data_type for tensor in model.graph.initializer} == {kind}


def test_uniform_bounds_are_one_number(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    _random(1, True).save(path)
    properties = {item.key: item.value for item in onnx.load(path).metadata_props}
    assert properties["bnncert.input_lo"] == "-8.0"
    assert properties["bnncert.input_hi"].count(",") == 3


@pytest.mark.parametrize("seed", range(5))
def test_an_imported_convolution_is_written_as_matrices(tmp_path: Path, seed: int) -> None:
    """Pooling makes integer weights, ORs and constant neurons: all survive."""
    rng = np.random.default_rng(seed)
    sketch = Sketch("N", 1, 6, 6).then("Conv", ternary(rng, 3, 1, 3, 3), pads=[1, 1, 1, 1])
    sketch.then("Add", 0.5).then("MaxPool", kernel_shape=[2, 2]).then("Sign")
    norm = normalisation(rng, 3)
    norm[0][0], norm[1][0] = 0.0, 0.05
    sketch.then("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    sketch.then("Conv", signs(rng, 3, 3, 2, 2)).then("BatchNormalization", *norm).then("Sign")
    sketch.then("Flatten").then("MatMul", signs(rng, 48, 3))
    network = sketch.network()
    for suffix in ("onnx", "npz"):
        path = tmp_path / f"net.{suffix}"
        network.with_sign_zero("plus").save(path)
        assert load(path).content_hash == network.content_hash
    points = pixels(rng, 20, 1, 6, 6)
    written = run(onnx.load(tmp_path / "net.onnx"), points, batched=True)
    np.testing.assert_array_equal(written, network.evaluate(points))
    np.testing.assert_array_equal(written, sketch.run(points))


def _description(rows: int, columns: int) -> ModelDescription:
    return ModelDescription(
        stages=(
            Stage(sp.csr_array((rows, columns)), (Shift(np.zeros(rows)),), "conv7", "plus"),
            Stage(sp.csr_array((2, rows)), (Shift(np.zeros(2)),), "scores"),
        ),
        input_shape=(columns,),
    )


def test_a_large_sparse_layer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with pytest.raises(InputError, match="layer conv7 is a 20000 x 30000 matrix, 2288 MiB"):
        write_description(_description(20000, 30000), path)
    assert not path.exists()


def test_many_layers_are_refused_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_writer, "LARGEST_MODEL", 100)
    with pytest.raises(InputError, match="do not fit an ONNX file"):
        write_description(_description(20, 30), tmp_path / "net.onnx")


def test_other_steps_are_kept(tmp_path: Path) -> None:
    first = Shift(np.array([0.1, 0.2])), Scale(np.array([2.0, -3.0]))
    weights = sp.csr_array(np.eye(2))
    stages = Stage(weights, first, "first"), Stage(weights, (Scale(np.array([0.1, 0.3])),), "last")
    network = Network.from_description(ModelDescription(stages=stages, input_shape=(2,)))
    network.save(tmp_path / "net.onnx")
    again = load(tmp_path / "net.onnx")
    assert again.evaluate_exactly([1, -1]) == network.evaluate_exactly([1, -1])
    assert again.content_hash == network.content_hash


@pytest.mark.parametrize("transform", ["softmax", "argmax"])
def test_the_end_of_the_network_is_kept(tmp_path: Path, transform: str) -> None:
    network = _random(3, False)
    plain = network.describe()
    described = ModelDescription(
        stages=plain.stages,
        input_shape=plain.input_shape,
        output_transform=transform,  # type: ignore[arg-type]
        metadata={"author": "someone\nelse"},
    )
    path = tmp_path / "net.onnx"
    write_description(described, path)
    again = load(path)
    assert again.output_transform == transform
    assert again.metadata == {"author": "someone\nelse"}
    points = pixels(np.random.default_rng(3), 20, 2, 2)
    result = run(onnx.load(path), points, batched=True)
    classes = result if transform == "argmax" else result.argmax(axis=1)
    scores = network.evaluate(points)
    assert np.array_equal(scores[np.arange(20), classes], scores.max(axis=1))
