"""Downloads of data sets."""

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
from bnncert.extras.training.datasets import REMOTE, RemoteFile, fetch, load_dataset
from tests.extras.training.image_data import (
    IDX_NAMES,
    cifar_archive,
    colours,
    digits,
    idx,
    one_line,
    write_idx,
)


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
