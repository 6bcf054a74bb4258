"""Data sets by name and by path, and their download."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import InputError
from bnncert.extras.training.datasets import REMOTE, RemoteFile, data_folder, fetch, load_dataset
from bnncert.extras.training.labelled_images import BYTES
from tests.extras.training.image_data import (
    IDX_NAMES,
    cifar_archive,
    cifar_batches,
    colours,
    digits,
    idx,
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
    one_line(error, "file.gz", "BNNCERT_DATA", address, *parts)
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
