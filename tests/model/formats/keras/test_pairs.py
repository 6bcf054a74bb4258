"""Layers as JSON with weights beside them: files of QKeras and Keras 3, and broken pairs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import BnncertError
from bnncert.model.loading import load
from bnncert.model.network import Network
from tests.data.make_larq_fixtures import FOLDER, inputs
from tests.model.formats.keras.h5_files import h5py, sound, write_h5

#: The neurons of each layer: one for each step of an activation with several levels.
SIZES = {
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


@pytest.mark.parametrize("name", SIZES)
def test_scores_are_those_of_keras(name: str, tmp_path: Path) -> None:
    layers, weights = _unpacked(name, tmp_path)
    network = load(layers)
    assert network.sizes == SIZES[name]
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
