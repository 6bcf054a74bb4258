"""Keras files: whole models, pairs of files, branches, and what Keras executes."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import BnncertError, InputError
from bnncert.model.loading import load
from bnncert.model.network import Network
from tests.data.make_larq_fixtures import FOLDER, inputs
from tests.in_process import Capture, command_line
from tests.model.formats.keras.h5_files import changed, h5py, read, refusal, sound, write_h5

#: From the definitions in make_larq_fixtures.py; a pooling layer is a layer of its own, and what
#: overlapping windows share (images: 11 x 11 cells in 4 x 4 windows) counts for each of them.
SIZES = {
    "dense.h5": (16, 8, 8, 8, 3),
    "images.keras": (8 * 8, 11 * 11 * 4, 4 * 4 * 4, 2 * 2 * 6, 2 * 2 * 12, 3),
    "padded.h5": (8 * 8, 8 * 8 * 6, 4 * 4 * 6, 4 * 4 * 8, 2 * 2 * 8, 3),
    "functional.h5": (48, 6 * 4 * 4, 3 * 4 * 4, 2 * 3 * 4, 2 * 3 * 5, 3),
    "plain.keras": (8 * 8, 6 * 6 * 4, 4 * 4 * 4, 3),
}


@pytest.mark.parametrize("name", SIZES)
def test_scores_are_those_of_tensorflow(name: str) -> None:
    network = load(FOLDER / f"larq_{name}.gz")
    with np.load(FOLDER / "larq_scores.npz") as stored:
        expected = stored[name]
    scores = network.evaluate(inputs(network.input_shape))
    assert network.sizes == SIZES[name]
    assert all(layer.sign_zero == "plus" for layer in network.layers)
    # The models tell the inputs apart, so that agreement means something.
    assert len(np.unique(expected, axis=0)) > 20
    assert set(expected.argmax(axis=1)) == {0, 1, 2}
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=4e-6)


def test_softmax_is_noted() -> None:
    assert load(FOLDER / "larq_dense.h5.gz").output_transform == "softmax"
    assert load(FOLDER / "larq_plain.keras.gz").output_transform == "scores"


@pytest.mark.parametrize("size", [1, 50])
def test_convolutions_keep_their_fast_form(size: int) -> None:
    network = load(FOLDER / "larq_images.keras.gz")
    described = [layer for layer in network.layers if layer.convolution is not None]
    assert len(described) == 3
    rng = np.random.default_rng(size)
    for layer in described:
        signs = rng.choice([-1.0, 1.0], size=(size, layer.inputs)).astype(np.float32)
        np.testing.assert_array_equal(
            layer.operator(np.float32).forward(signs), (layer.weights @ signs.T).T
        )


def test_a_small_model_by_hand(tmp_path: Path) -> None:
    network = read(tmp_path, sound())
    assert network.depth == 1
    # x1 + x2 and -x1 + x2; the second kernel is ((1, -1), (0, 1)).
    points = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-2.0, -1.0], [0.25, 0.5]])
    signs = np.array([[1, -1], [1, 1], [1, 1], [-1, 1], [1, 1]])
    np.testing.assert_array_equal(network.last_signs(points), signs)
    expected = np.stack([signs[:, 0], signs[:, 1] - signs[:, 0]], axis=1)
    np.testing.assert_array_equal(network.evaluate(points), expected)
    # (1, -1) gives exactly zero: +1 in Larq.
    assert network.layers[0].sign_zero == "plus"
    exact = network.evaluate_exactly(np.array([1.0, -1.0]))
    assert exact == [Fraction(1), Fraction(-2)]


def test_the_command_line_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path = write_h5(tmp_path / "net.h5", changed(0, activation="relu"))
    done = command_line(monkeypatch, capsys, "info")(path)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert f"{path}: layer first (QuantDense): its activation is relu" in line


def graph(*edges: tuple[str, Any], outputs: Any = (("c", 0, 0),)) -> dict[str, Any]:
    """Return a Functional model of activations, each with its inbound nodes."""
    layers = [
        {
            "class_name": "InputLayer" if name == "in" else "Activation",
            "name": name,
            "config": {"name": name, "activation": "linear", "batch_input_shape": [None, 2]},
            "inbound_nodes": nodes,
        }
        for name, nodes in edges
    ]
    body = {"layers": layers, "input_layers": [["in", 0, 0]], "output_layers": outputs}
    return {"class_name": "Functional", "config": body}


def after(*names: str, **options: Any) -> Any:
    return [[[name, 0, 0, options] for name in names]]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"class_name": "MyModel", "config": {}}, "the model is of class MyModel"),
        ({"class_name": "Sequential", "config": {"layers": []}}, "lists no layers"),
        ({"class_name": "Sequential", "config": {"layers": [7]}}, "layer 0 of the configuration"),
        (
            {"class_name": "Sequential", "config": [{"class_name": "Flatten", "config": {}}]},
            "does not state the shape of the input",
        ),
        (
            {
                "class_name": "Sequential",
                "config": [{"class_name": "Mine>Dense", "config": {"name": "d"}}],
            },
            "layer d (Dense): its class is Mine>Dense",
        ),
        (
            graph(("in", []), ("a", after("in")), ("b", after("in")), ("c", after("b"))),
            "layer in feeds layer a as well; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", after("a", "in"))),
            "layer c (Activation): it has 2 inputs; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", [*after("a"), *after("a")])),
            "layer c (Activation): it is applied more than once",
        ),
        (
            graph(("in", []), ("c", after("in", training=True))),
            "layer c (Activation): it is always in training mode",
        ),
        (graph(("in", []), ("a", after("x"))), "it reads from x, which is not a layer"),
        (graph(("in", []), ("a", []), ("c", after("in"))), "2 layers without input"),
        (graph(("in", []), ("a", after("in")), outputs=[["in", 0, 0]]), "are not a chain"),
        (graph(("in", []), ("a", 7)), "layer a (Activation): malformed"),
    ],
)
def test_refused_models(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, [], config=config)


def test_input_sizes_must_be_fixed(tmp_path: Path) -> None:
    assert "only the batch axis may vary" in refusal(tmp_path, sound(), shape=(None,))


pytest.importorskip("h5py", reason="needs the extra 'larq'")


def installed(monkeypatch: pytest.MonkeyPatch, keras: Any) -> None:
    """Let `keras` be the only package of its kind that can be found."""
    found = importlib.util.find_spec
    hidden = ("keras", "larq", "qkeras")

    def find_spec(name: str) -> Any:
        return (keras if name == "keras" else None) if name in hidden else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setitem(sys.modules, "keras", keras)


def stand_in(predict: Any, loaded: list[str]) -> Any:
    """Return a package that loads every file as a model with these predictions."""

    def load_model(path: Path, compile: bool) -> Any:
        assert path.exists() and not compile
        loaded.append(path.suffix)
        return SimpleNamespace(predict=lambda batch, verbose: predict(batch))

    return SimpleNamespace(models=SimpleNamespace(load_model=load_model))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "net.h5"
    path.write_bytes(gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes()))
    return path


def test_without_keras_there_is_a_note(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    assert bnncert.load(plain).notes == ("not compared with Keras, which is not installed",)


def test_predictions_are_compared(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    network = bnncert.load(plain)
    loaded: list[str] = []

    def softmax(batch: Any) -> Any:
        assert batch.shape[1:] == (16,) and batch.dtype == np.float32
        scores = network.evaluate(batch)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    installed(monkeypatch, stand_in(softmax, loaded))
    assert bnncert.load(plain).notes == ()
    assert loaded == [".h5"]
    installed(monkeypatch, stand_in(lambda batch: softmax(batch)[:, ::-1], loaded))
    with pytest.raises(InputError, match=r"net\.h5: was read as another network than Keras exec"):
        bnncert.load(plain)


def test_a_model_that_keras_refuses_is_mentioned(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(batch: Any) -> Any:
        raise TypeError("unknown layer QuantDense")

    installed(monkeypatch, stand_in(refuse, []))
    expected = ("not compared with Keras, which does not execute this model",)
    assert bnncert.load(plain).notes == expected


#: The neurons of each layer: one for each step of an activation with several levels.
PAIR_SIZES = {
    "qkeras_dense": (16, 8, 2 * 8, 7 * 8, 3),
    "qkeras_images": (64, 3 * 6 * 6 * 4, 3 * 3 * 3 * 4, 2 * 2 * 6, 3),
    "keras3_tanh": (16, 2 * 8, 8, 3),
}


def _unpacked(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the two files of a model and return them: the layers and the weights."""
    ending = ".weights.h5" if name.startswith("keras3") else "_weights.h5"
    pair = folder / f"{name}.json", folder / f"{name}{ending}"
    for path in pair:
        path.write_bytes(gzip.decompress((FOLDER / f"{path.name}.gz").read_bytes()))
    return pair


@pytest.mark.parametrize("name", PAIR_SIZES)
def test_scores_are_those_of_keras(name: str, tmp_path: Path) -> None:
    layers, weights = _unpacked(name, tmp_path)
    network = load(layers)
    assert network.sizes == PAIR_SIZES[name]
    with np.load(FOLDER / f"{name.partition('_')[0]}_scores.npz") as stored:
        expected = stored[name]
    assert len(set(expected.argmax(axis=1))) > 1
    scores = network.evaluate(inputs(network.input_shape))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
    # The file of weights finds its layers, too, and both may be named.
    assert load(weights).content_hash == network.content_hash
    assert load(weights, layers).content_hash == network.content_hash


def _pair(folder: Path) -> tuple[Path, Path]:
    """Write a whole model and its layers once more."""
    whole = write_h5(folder / "net.h5", sound())
    with h5py.File(whole, "r") as file:
        (folder / "net.json").write_text(file.attrs["model_config"])
    return folder / "net.json", whole


def test_a_whole_model_may_be_the_file_of_weights(tmp_path: Path) -> None:
    layers, whole = _pair(tmp_path)
    assert load(layers).content_hash == load(whole).content_hash


def _refused(path: Path, *further: Any) -> str:
    with pytest.raises(BnncertError) as caught:
        load(path, *further)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_layers_without_weights_name_the_files_that_would_do(tmp_path: Path) -> None:
    layers, whole = _pair(tmp_path)
    whole.unlink()
    message = _refused(layers)
    assert f"{layers}: the layers of a Keras model without weights" in message
    assert "net.weights.h5, net_weights.h5 or net.h5 beside it" in message


def test_several_files_of_weights_are_refused(tmp_path: Path) -> None:
    layers, whole = _pair(tmp_path)
    (tmp_path / "net_weights.h5").write_bytes(whole.read_bytes())
    assert "several files may have its weights (net_weights.h5, net.h5)" in _refused(layers)


def test_weights_alone_ask_for_the_layers(tmp_path: Path) -> None:
    layers, weights = _unpacked("qkeras_dense", tmp_path)
    layers.unlink()
    assert "not weights alone (or the layers as JSON beside it" in _refused(weights)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    layers, weights = _unpacked("qkeras_dense", tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, images = _unpacked("qkeras_images", other)
    weights.write_bytes(images.read_bytes())
    message = _refused(layers)
    assert str(layers) in message
    assert "layer q_dense" in message


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"{}"])
def test_broken_weights_are_refused(content: bytes, tmp_path: Path) -> None:
    layers, weights = _unpacked("keras3_tanh", tmp_path)
    weights.write_bytes(content)
    assert _refused(layers).startswith(f"{weights}: not a readable HDF5 file")


def test_a_whole_archive_is_not_a_file_of_weights(tmp_path: Path) -> None:
    layers, weights = _unpacked("keras3_tanh", tmp_path)
    weights.write_bytes(gzip.decompress((FOLDER / "larq_plain.keras.gz").read_bytes()))
    assert "a whole model; it needs no file of layers" in _refused(layers)


def test_a_missing_group_of_keras_3_is_named(tmp_path: Path) -> None:
    layers, weights = _unpacked("keras3_tanh", tmp_path)
    with h5py.File(weights, "r+") as file:
        del file["layers/dense_1"]
    assert "layer dense_1 (Dense): its weights (group dense_1) are missing" in _refused(layers)


def test_a_network_of_this_project_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    network = Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2)] * 2)
    network.save(path)
    assert load(path).content_hash == network.content_hash
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, "backend": "x"}))
    assert "backend" in _refused(path)
