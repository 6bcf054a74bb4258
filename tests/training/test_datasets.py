"""Data sets in all their forms, what is refused, and fetching from a server on loopback."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import pickle
import socket
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnncert.errors import FormatError, InputError
from bnncert.training.batch_pickle import read_batch
from bnncert.training.datasets import REMOTE, data_folder, load_dataset
from bnncert.training.fetching import RemoteFile, fetch
from bnncert.training.idx import read_idx
from bnncert.training.labelled_images import BYTES

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

Array = npt.NDArray[Any]

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array: Array) -> bytes:
    """Return an IDX file, after the format's description."""
    sizes = b"".join(struct.pack(">I", n) for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def digits() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (20, 4, 3)).astype(np.uint8),
        "train-labels-idx1-ubyte": (np.arange(20) % 10).astype(np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (10, 4, 3)).astype(np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(10)[::-1].astype(np.uint8),
    }


def write_idx(folder: Path, *, packed: bool) -> dict[str, Array]:
    arrays = digits()
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        content = idx(array)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return arrays


def colours(count: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072)).astype(np.uint8), rng.integers(0, 10, count)


def cifar_batches(kind: str) -> dict[str, bytes]:
    """Return two training batches and a test batch in CIFAR-10's binary or pickled form."""
    batches = {}
    for seed, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        images, labels = colours(4, seed)
        if kind == "bin":
            records = np.hstack([labels[:, None].astype(np.uint8), images])
            batches[f"{name}.bin"] = records.tobytes()
        else:
            tree = {b"data": images, b"labels": labels.tolist(), b"batch_label": b"one"}
            batches[name] = pickle.dumps(tree, protocol=int(kind))
    return batches


def cifar_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in cifar_batches("bin").items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{member}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def one_line(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text


# -- reading -------------------------------------------------------------------------------------


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


def test_a_folder_of_idx_files_is_read_by_its_path(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    data = load_dataset(str(tmp_path))
    assert len(data.train.labels) == 20
    assert data.scaling == BYTES


def test_bytes_enter_as_numbers_from_minus_one_to_one() -> None:
    points = BYTES.points(np.array([[0, 51, 255]], dtype=np.uint8))
    np.testing.assert_allclose(points, [[-1.0, -0.6, 1.0]], atol=1e-15)
    assert BYTES.pixel_step == pytest.approx(2 / 255)
    assert (BYTES.lo, BYTES.hi) == (-1.0, 1.0)


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


# -- what is refused -----------------------------------------------------------------------------


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
        read_idx(file)
    one_line(error, file.name, "3 bytes")


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


def test_other_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_dataset(str(tmp_path / "nothing.npz"))
    one_line(error, "nothing.npz", "mnist or cifar10")
    (tmp_path / "table.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"table\.csv"):
        load_dataset(str(tmp_path / "table.csv"))


# -- fetching ------------------------------------------------------------------------------------


class Server:
    """An HTTP server on loopback with files, and some ways of misbehaving."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                claimed = len(content) + (5 if "short" in self.path else 0)
                self.send_header("Content-Length", str(claimed))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the output of the tests clean."""

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.httpd.server_address[1]}{path}"

    def close(self) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    # A proxy of the environment must not be asked for loopback.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    yield running
    running.close()


def offer(server: Server, name: str, content: bytes) -> RemoteFile:
    server.files[f"/{name}"] = content
    digest = hashlib.sha256(content).hexdigest()
    return RemoteFile(
        name, (server.address(f"/missing/{name}"), server.address(f"/{name}")), digest
    )


def test_a_data_set_is_fetched_once_and_read(tmp_path: Path, server: Server) -> None:
    remote = {
        "mnist": [
            offer(server, f"{name}.gz", gzip.compress(idx(array)))
            for name, array in digits().items()
        ]
    }
    folder = tmp_path / "new" / "folder"
    seen: list[tuple[str, int, int | None]] = []
    data = load_dataset("mnist", folder, remote=remote, progress=lambda *a: seen.append(a))
    np.testing.assert_array_equal(data.train.images[:, 0], digits()[IDX_NAMES[0]])
    assert {name for name, done, total in seen if done == total} == {f"{n}.gz" for n in IDX_NAMES}
    # The first mirror had nothing, so each file was asked for twice; now nothing is asked for.
    assert len(server.asked) == 8
    load_dataset("mnist", folder, remote=remote)
    assert len(server.asked) == 8
    assert sorted(p.name for p in folder.iterdir()) == sorted(f"{n}.gz" for n in IDX_NAMES)
    (folder / f"{IDX_NAMES[1]}.gz").unlink()
    load_dataset("mnist", folder, remote=remote)
    assert len(server.asked) == 10


def test_cifar_is_fetched_as_an_archive(tmp_path: Path, server: Server) -> None:
    remote = {"cifar10": [offer(server, "cifar-10-binary.tar.gz", cifar_archive())]}
    # MNIST in the same folder must not be taken for it.
    write_idx(tmp_path, packed=False)
    data = load_dataset("cifar10", tmp_path, remote=remote)
    np.testing.assert_array_equal(data.test.images.reshape(4, -1), colours(4, 2)[0])


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("missing", ("HTTP status 404",)),
        ("checksum", ("wrong checksum",)),
        ("short", ("bytes arrived",)),
        ("nobody", ("no connection",)),
        ("no address", ("no connection",)),
    ],
)
def test_failures_are_one_line_and_leave_nothing(
    tmp_path: Path, server: Server, case: str, parts: tuple[str, ...]
) -> None:
    content = b"0123456789"
    server.files["/short"] = server.files["/checksum"] = content
    digest = hashlib.sha256(b"other" if case == "checksum" else content).hexdigest()
    address = server.address(f"/{case}")
    if case == "nobody":
        # Nobody listens at a port that was free a moment ago.
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
    if case == "no address":
        address = "http://no-such-host.invalid/file"
    with pytest.raises(InputError) as error:
        fetch(RemoteFile("file.gz", (address,), digest), tmp_path, patience=5)
    one_line(error, "file.gz", "--data-dir", address, *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_survives_a_failed_fetch(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.gz").write_bytes(b"old")
    with pytest.raises(InputError):
        fetch(RemoteFile("file.gz", (server.address("/none"),), "0"), tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == b"old"


def test_an_unwritable_folder_is_named(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file").write_bytes(b"")
    remote = offer(server, "x", b"abc")
    with pytest.raises(InputError) as error:
        fetch(remote, tmp_path / "file" / "below")
    one_line(error, "below", "cannot be written")
    assert server.asked == []


def test_published_checksums_are_whole() -> None:
    for files in REMOTE.values():
        for file in files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert all(a.startswith("https://") and a.endswith(file.name) for a in file.addresses)
