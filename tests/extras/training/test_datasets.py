"""Data sets by name and by path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import InputError
from bnncert.extras.training.datasets import RemoteFile, data_folder, load_dataset
from bnncert.extras.training.labelled_images import BYTES
from tests.extras.training.image_data import (
    cifar_archive,
    cifar_batches,
    colours,
    one_line,
    write_idx,
)

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw"])
def test_mnist_is_found_in_a_data_folder(tmp_path: Path, packed: bool, place: str) -> None:
    arrays = write_idx(tmp_path / place, packed=packed)
    data = load_dataset("mnist", tmp_path, remote={"mnist": ()})
    assert data.input_shape == (1, 4, 3)
    assert data.classes == 10
    assert data.train.images.dtype == np.uint8
    np.testing.assert_array_equal(data.train.images[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.test.images[:, 0], arrays["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.test.labels, np.arange(10)[::-1])


@pytest.mark.parametrize("form", ["bin", "archive"])
def test_both_data_sets_may_lie_in_one_folder(tmp_path: Path, form: str) -> None:
    write_idx(tmp_path, packed=True)
    if form == "bin":
        for member, content in cifar_batches("bin").items():
            (tmp_path / member).write_bytes(content)
    else:
        (tmp_path / "cifar-10-binary.tar.gz").write_bytes(cifar_archive())
    remote: dict[str, list[RemoteFile]] = {"mnist": [], "cifar10": []}
    assert load_dataset("mnist", tmp_path, remote=remote).input_shape == (1, 4, 3)
    cifar = load_dataset("cifar10", tmp_path, remote=remote)
    np.testing.assert_array_equal(cifar.test.images.reshape(4, -1), colours(4, 2)[0])


def test_bytes_enter_as_numbers_from_minus_one_to_one() -> None:
    points = BYTES.points(np.array([[0, 51, 255]], dtype=np.uint8))
    np.testing.assert_allclose(points, [[-1.0, -0.6, 1.0]], atol=1e-15)
    assert BYTES.pixel_step == pytest.approx(2 / 255)
    assert (BYTES.lo, BYTES.hi) == (-1.0, 1.0)


def test_the_shared_files_are_what_they_should_be() -> None:
    if not (DATA / "mnist.npz").exists() or not (DATA / "cifar10_subset.npz").exists():
        pytest.skip("mnist.npz and cifar10_subset.npz are not in the shared data")
    mnist = load_dataset("mnist", DATA, remote={"mnist": ()})
    assert mnist.train.images.shape == (60000, 1, 28, 28)
    # Facts about MNIST: it begins with 5, 0, 4, 1, 9, and has 5923 zeros to train on.
    assert mnist.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert int(np.sum(mnist.train.labels == 0)) == 5923
    assert mnist.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    cifar = load_dataset(str(DATA / "cifar10_subset.npz"))
    assert cifar.train.images.shape == (5085, 3, 32, 32)
    # CIFAR-10 begins with a frog and two trucks.
    assert cifar.train.labels[:3].tolist() == [6, 9, 9]


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNNCERT_DATA", str(tmp_path / "here"))
    assert data_folder() == tmp_path / "here"
    assert data_folder(tmp_path) == tmp_path
    monkeypatch.delenv("BNNCERT_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "bnncert"


def test_other_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_dataset(str(tmp_path / "nothing.npz"))
    one_line(error, "nothing.npz", "mnist or cifar10")
    (tmp_path / "table.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"table\.csv"):
        load_dataset(str(tmp_path / "table.csv"))
