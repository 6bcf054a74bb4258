"""Labelled images in .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.datasets import load_dataset
from tests.extras.training.image_data import Array, one_line


@pytest.mark.parametrize(
    ("shape", "input_shape"),
    [
        ((784,), (1, 28, 28)),
        ((3072,), (3, 32, 32)),
        ((50,), (50,)),
        ((6, 5), (1, 6, 5)),
        ((3, 6, 5), (3, 6, 5)),
        ((6, 5, 3), (3, 6, 5)),
    ],
)
def test_npz_images_of_several_shapes(
    tmp_path: Path, shape: tuple[int, ...], input_shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (12, *shape)).astype(np.uint8)
    y = np.arange(12) % 3
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    data = load_dataset(str(tmp_path / "d.npz"))
    assert data.input_shape == input_shape
    assert data.classes == 3
    assert data.train.images.shape == (12, *input_shape)
    # Channels that were last are first now; the values are the same.
    image = data.train.images[5]
    wanted = x[5].transpose(2, 0, 1) if shape == (6, 5, 3) else x[5].reshape(input_shape)
    np.testing.assert_array_equal(image, wanted)


def test_npz_floats_enter_as_they_are(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 24).reshape(12, 2)
    y = np.arange(12) % 2
    file = tmp_path / "d.npz"
    np.savez(file, images=x, labels=y, input_lo=0.0, input_hi=1.0, pixel_step=0.25)
    data = load_dataset(str(file))
    assert (data.scaling.lo, data.scaling.hi, data.scaling.pixel_step) == (0.0, 1.0, 0.25)
    # Every sixth of each class of six: one of each is for testing.
    assert len(data.test.labels) == 2
    assert sorted(data.test.labels) == [0, 1]
    together = np.vstack([data.scaling.points(s.images) for s in (data.train, data.test)])
    np.testing.assert_array_equal(together[np.argsort(together[:, 0])], x)
    np.savez(file, images=x, labels=y)
    bare = load_dataset(str(file)).scaling
    assert (bare.lo, bare.hi, bare.pixel_step) == (None, None, None)


def good() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (8, 4, 4)).astype(np.uint8)
    y = np.arange(8) % 2
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}


def empty_images() -> Array:
    return np.zeros((0, 4, 4), np.uint8)


BAD_NPZ: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "label too large": ({"y_test": np.full(8, 2)}, ("test label 0 is 2", "0 to 1")),
    "negative label": ({"y_train": -(np.arange(8) % 2)}, ("training label 1 is -1",)),
    "huge label": ({"y_train": np.arange(8) * 10**9}, ("training label 1 is 1000000000",)),
    "fractional label": ({"y_train": np.arange(8) / 2}, ("y_train", "whole numbers")),
    "labels as text": ({"y_train": np.array(["a"] * 8)}, ("y_train", "whole numbers")),
    "one-hot labels": ({"y_train": np.eye(8, dtype=int)}, ("y_train", "(8, 8)")),
    "one class": ({"y_train": np.zeros(8, int), "y_test": np.zeros(8, int)}, ("one class",)),
    "fewer labels": ({"y_train": np.arange(7) % 2}, ("training images", "8 for 7 labels")),
    "fewer test labels": ({"y_test": np.arange(3) % 2}, ("test images", "8 for 3 labels")),
    "other test shape": ({"x_test": np.zeros((8, 4, 5), np.uint8)}, ("(4, 4)", "(4, 5)")),
    "other test type": ({"x_test": np.zeros((8, 4, 4))}, ("uint8", "float64")),
    "no images": ({"x_train": empty_images(), "y_train": np.zeros(0, int)}, ("there are none",)),
    "no test images": ({"x_test": empty_images(), "y_test": np.zeros(0, int)}, ("test images",)),
    "flat images": ({"x_train": np.zeros(8, np.uint8)}, ("x_train", "(8,)")),
    "integers": ({"x_train": np.zeros((8, 4, 4), np.int64)}, ("x_train", "int64", "uint8")),
    "NaN": (
        {"x_train": np.full((8, 4), np.nan), "x_test": np.zeros((8, 4))},
        ("training images", "NaN"),
    ),
    "wrong input_shape": ({"input_shape": np.array([5, 5])}, ("input_shape (5, 5)", "16")),
    "zero input_shape": ({"input_shape": np.array([0, 5])}, ("input_shape",)),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_arrays_give_one_line_that_names_the_file(tmp_path: Path, case: str) -> None:
    change, parts = BAD_NPZ[case]
    file = tmp_path / "bad.npz"
    np.savez(file, **{**good(), **change})
    with pytest.raises(FormatError) as error:
        load_dataset(str(file))
    one_line(error, "bad.npz", *parts)


@pytest.mark.parametrize("missing", ["y_train", "x_train", "y_test"])
def test_missing_arrays(tmp_path: Path, missing: str) -> None:
    arrays = good()
    del arrays[missing]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FormatError) as error:
        load_dataset(str(tmp_path / "bad.npz"))
    one_line(error, "bad.npz", missing)


def test_truncated_and_foreign_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", **good())
    content = (tmp_path / "whole.npz").read_bytes()
    file = tmp_path / "bad.npz"
    for broken in (b"", b"text", content[: len(content) // 2], content[:-10]):
        file.write_bytes(broken)
        with pytest.raises(FormatError) as error:
            load_dataset(str(file))
        one_line(error, "bad.npz")
    np.savez(file, x_train=np.array([{}], dtype=object), y_train=np.zeros(1))
    with pytest.raises(FormatError, match=r"bad\.npz"):
        load_dataset(str(file))
