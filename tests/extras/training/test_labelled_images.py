"""The files of labelled images: IDX, .npz, folders of pictures, and CIFAR-10, also pickled."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.datasets import load_dataset
from bnncert.extras.training.datasets import test_images_for_run as images_for_run
from bnncert.extras.training.labelled_images import BYTES, read_batch
from bnncert.model.formats.inputs import read_array
from bnncert.results.labelled_points import read_data
from tests.extras.training.image_data import (
    IDX_NAMES,
    Array,
    cifar_batches,
    colours,
    idx,
    one_line,
    write_idx,
)


def test_a_folder_of_idx_files_is_read_by_its_path(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    data = load_dataset(str(tmp_path))
    assert len(data.train.labels) == 20
    assert data.scaling == BYTES


@pytest.mark.parametrize(
    ("name", "change", "parts"),
    [
        (IDX_NAMES[0], lambda c: c[:-1], ("239 bytes", "240")),
        (IDX_NAMES[0], lambda c: c[:7], ("not an IDX file",)),
        (IDX_NAMES[0], lambda c: b"\0\0\x0d\x03" + c[4:], ("not an IDX file",)),
        (IDX_NAMES[1], lambda c: c + b"x", ("21 bytes", "20")),
        (IDX_NAMES[1], lambda c: c[:8] + b"\x0a" + c[9:], ("training label 0 is 10",)),
        (IDX_NAMES[3], lambda c: idx(np.zeros(9)), ("10 for 9 labels",)),
        (IDX_NAMES[2], lambda c: idx(np.zeros((10, 5, 5))), ("(1, 4, 3)", "(5, 5)")),
        (IDX_NAMES[2], lambda c: idx(np.zeros((0, 4, 3))), ("there are none",)),
    ],
)
def test_bad_idx_files(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], parts: tuple[str, ...]
) -> None:
    write_idx(tmp_path, packed=False)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(change(content))
    with pytest.raises(FormatError) as error:
        load_dataset(str(tmp_path))
    one_line(error, str(tmp_path), *(part.replace("(1, 4, 3)", "(4, 3)") for part in parts))


def test_truncated_gzip_and_missing_idx_file(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    file = tmp_path / f"{IDX_NAMES[0]}.gz"
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    with pytest.raises(FormatError, match="gzip") as error:
        load_dataset(str(tmp_path))
    one_line(error, file.name)
    file.unlink()
    with pytest.raises(FormatError, match="missing") as error:
        load_dataset(str(tmp_path))
    one_line(error, IDX_NAMES[0])


def test_a_header_that_claims_too_much_is_no_reason_to_allocate(tmp_path: Path) -> None:
    file = tmp_path / IDX_NAMES[0]
    file.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"abc")
    with pytest.raises(FormatError) as error:
        read_array(str(file))
    one_line(error, file.name, "3 bytes")


@pytest.mark.parametrize("packed", [False, True])
def test_the_test_images_of_a_folder_are_data_of_run_with_their_labels(
    packed: bool, tmp_path: Path
) -> None:
    arrays = write_idx(tmp_path, packed=packed)
    named = images_for_run(str(tmp_path))
    data = read_data(named)
    np.testing.assert_array_equal(data.array, arrays[IDX_NAMES[2]])
    np.testing.assert_array_equal(data.labels, arrays[IDX_NAMES[3]])
    assert data.labels_where == named.replace("images-idx3", "labels-idx1")
    assert read_data(named, "own").labels is None
    Path(data.labels_where).unlink()
    assert read_data(named).labels is None


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


@pytest.mark.parametrize("parts", [False, True])
def test_folders_of_pictures(tmp_path: Path, parts: bool) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra 'images'")
    for part in ("train", "test") if parts else ("",):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            (folder / "notes.txt").write_text("not a picture")
            for number in range(6):
                pixels = np.full((4, 5, 3), 40 * label + number, dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{number}.png")
    data = load_dataset(str(tmp_path))
    assert data.input_shape == (3, 4, 5)
    assert data.classes == 2
    assert len(data.train.labels) == (12 if parts else 10)
    assert len(data.test.labels) == (12 if parts else 2)
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.images[:, 0, 0, 0] // 40, split.labels)


def test_bad_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra 'images'")
    with pytest.raises(FormatError, match="no subfolders"):
        load_dataset(str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(FormatError, match="no images"):
        load_dataset(str(tmp_path))
    for number, size in enumerate([(4, 4), (4, 4), (4, 5)]):
        image.new("L", size).save(tmp_path / "a" / f"{number}.png")
    with pytest.raises(FormatError) as error:
        load_dataset(str(tmp_path))
    one_line(error, "2.png", "(5, 4)", "(4, 4)")
    (tmp_path / "a" / "2.png").write_bytes(b"no picture")
    with pytest.raises(FormatError, match=r"2\.png"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize("kind", ["bin", "2", "3", "4", "5"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar_in_its_forms(tmp_path: Path, kind: str, packed: bool) -> None:
    batches = cifar_batches(kind)
    folder = "cifar-10-batches-bin" if kind == "bin" else "cifar-10-batches-py"
    if packed:
        name = "cifar-10-binary.tar.gz" if kind == "bin" else "cifar-10-python.tar.gz"
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            for member, content in {**batches, "readme.html": b"<p>"}.items():
                info = tarfile.TarInfo(f"{folder}/{member}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    else:
        (tmp_path / folder).mkdir()
        for member, content in batches.items():
            (tmp_path / folder / member).write_bytes(content)
    data = load_dataset("cifar10", tmp_path, remote={"cifar10": ()})
    wanted = [colours(4, seed) for seed in range(3)]
    assert data.input_shape == (3, 32, 32)
    np.testing.assert_array_equal(
        data.train.images.reshape(8, -1), np.vstack([wanted[0][0], wanted[1][0]])
    )
    np.testing.assert_array_equal(data.train.labels, np.hstack([wanted[0][1], wanted[1][1]]))
    np.testing.assert_array_equal(data.test.labels, wanted[2][1])


def test_bad_cifar_files(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in cifar_batches("bin").items():
        (folder / name).write_bytes(content)
    (folder / "data_batch_2.bin").write_bytes(b"\x01" * 3072)
    with pytest.raises(FormatError, match="3073") as error:
        load_dataset(str(folder))
    one_line(error, "data_batch_2.bin")
    (folder / "data_batch_2.bin").write_bytes(b"\x0b" * 3073)
    with pytest.raises(FormatError, match="is 11; expected 0 to 9"):
        load_dataset(str(folder))
    (folder / "test_batch.bin").unlink()
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(FormatError, match="test_batch is missing"):
        load_dataset(str(folder))
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "data_batch_1.bin")
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="truncated or broken gzip file") as error:
        load_dataset(str(archive))
    one_line(error, archive.name)


#: A batch as Python 2 wrote it: protocol 2, str for everything, numpy under its old name.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
    b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01K\x04\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
    b"q\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04\x01\x02\xfe\xfftb"
    b"U\x06labelsq\x08]q\tK\x07au."
)


def test_a_batch_as_python_2_wrote_it() -> None:
    images, labels = read_batch(PYTHON_2, "b")
    np.testing.assert_array_equal(images, [[1, 2, 254, 255]])
    np.testing.assert_array_equal(labels, [7])


class Mischief:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_no_function_of_a_pickle_is_called(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"
    for mischief in (
        Mischief(os.mkdir, str(trace)),
        Mischief(eval, f"__import__('os').mkdir({str(trace)!r})"),
        Mischief(np.load, str(trace)),
        Mischief(getattr, "text", "upper"),
    ):
        tree = {b"data": mischief, b"labels": [1]}
        with pytest.raises(FormatError) as error:
            read_batch(pickle.dumps(tree, protocol=protocol), "batch")
        one_line(error, "batch", "the pickle uses")
        assert not trace.exists()


@pytest.mark.parametrize(
    "tree",
    [
        [1, 2],
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.float32), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": ["a"]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [[1], [2, 3]]},
        {b"data": b"abc", b"labels": [1]},
    ],
)
def test_a_pickle_of_something_else_is_refused(tree: Any) -> None:
    with pytest.raises(FormatError) as error:
        read_batch(pickle.dumps(tree), "batch")
    one_line(error, "batch", "CIFAR-10 batch")


def test_every_truncation_of_a_pickle_is_refused() -> None:
    content = pickle.dumps({b"data": np.zeros((1, 40), np.uint8), b"labels": [1]}, protocol=2)
    for length in range(len(content)):
        with pytest.raises(FormatError):
            read_batch(content[:length], "batch")
