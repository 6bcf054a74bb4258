"""The quantisers of Larq."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bnncert.model.formats.keras.quantizers import quantised
from bnncert.model.formats.layer_chain import FileLayer
from tests.data.make_larq_fixtures import FOLDER

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
