"""Archives and the limits of all files."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import textwrap
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnncert import Limits, read_vnnlib
from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import read_npz_images
from bnncert.model.formats.atomic import replacing
from bnncert.model.formats.file_content import open_archive, parse_json, read_bytes, read_member
from bnncert.model.formats.inputs import read_array
from bnncert.model.formats.layer_chain import FileLayer
from bnncert.model.formats.torch.traced_operators import tensor_array
from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.results.config_file import read_document
from tests.in_process import Capture, command_line


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def _with(path: Path, members: dict[str, bytes], again: str, content: bytes) -> Path:
    """Write an archive, with one more member at its end."""
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of the name that comes twice
        for name, part in (*members.items(), (again, content)):
            archive.writestr(name, part)
    return path


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    net = Network.from_arrays([[[1.0, -1.0]], [[1.0], [-1.0]]], [[0.5], [0.0, 0.0]])
    net.save(tmp_path / "net.npz")
    return tmp_path / "net.npz"


@pytest.mark.parametrize("again", ["b0.npy", "b0"])
def test_a_network_with_two_arrays_of_one_name_is_refused(
    network: Path, again: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    members = _members(network)
    assert "b0.npy" in members and load(network).layers[0].size == 1
    # NumPy shows both b0 and b0.npy as b0, so that the other bias would count for some readers.
    twice = _with(network.with_name("twice.npz"), members, again, _npy([-5.0]))
    with pytest.raises(FormatError) as caught:
        load(twice)
    assert str(caught.value) == (
        f"{twice}: the archive has two members of the name 'b0'; write it again"
    )
    answer = command_line(monkeypatch, capsys)("info", twice)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert str(caught.value) in answer.err


@pytest.mark.parametrize("read", [lambda path: read_array(f"{path}:x"), read_npz_images])
def test_images_with_two_arrays_of_one_name_are_refused(
    tmp_path: Path, read: Callable[[Path], Any]
) -> None:
    parts = {"x.npy": _npy(np.zeros((4, 2))), "y.npy": _npy([0, 1, 0, 1])}
    twice = _with(tmp_path / "images.npz", parts, "y.npy", _npy([1, 0, 1, 0]))
    with pytest.raises(FormatError, match=r"images\.npz: the archive has two members .* 'y'"):
        read(twice)


def test_a_checkpoint_with_two_members_of_one_name_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(1, 2)}, tmp_path / "net.pt")
    members = _members(tmp_path / "net.pt")
    name = next(name for name in members if "/data/" in name)
    twice = _with(tmp_path / "net.pt", members, name, b"\0" * len(members[name]))
    (tmp_path / "net.layers.json").write_text("{}")
    with pytest.raises(FormatError, match=r"net\.pt: the archive has two members"):
        load(twice)


def test_a_keras_file_with_two_members_of_one_name_is_refused(tmp_path: Path) -> None:
    parts = {"config.json": b"{}", "model.weights.h5": b""}
    twice = _with(tmp_path / "net.keras", parts, "model.weights.h5", b"")
    with pytest.raises(FormatError, match=r"net\.keras: .* 'model\.weights\.h5'"):
        load(twice)


def test_a_training_state_with_two_members_of_one_name_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from bnncert.extras.training.fitting import TrainingState, load_checkpoint, save_checkpoint

    path, state = tmp_path / "state.pt", TrainingState({"w": torch.ones(2)}, {})
    save_checkpoint(path, state, {"seed": 1})
    assert load_checkpoint(path, {"seed": 1}) is not None
    members = _members(path)
    name = next(name for name in members if "/data/" in name)
    _with(path, members, name, b"\0" * len(members[name]))
    with pytest.raises(FormatError, match=r"state\.pt: not a checkpoint of a training"):
        load_checkpoint(path, {"seed": 1})


GIB = 2**30

#: Address space of the process that reads the bombs; it needs about 0.6 GiB for its libraries.
MEMORY = 2 * GIB


def npy_header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def zeros(count: int, start: bytes = b"", end: bytes = b"", fill: bytes = b"\0") -> bytes:
    """Return `start`, many equal bytes and `end` as a raw deflate stream."""

    def piece(data: bytes, mode: int) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(mode)

    # After a full flush nothing refers back, so the same piece can be repeated.
    block = piece(fill * (2**20 // len(fill)), zlib.Z_FULL_FLUSH)
    first = piece(start, zlib.Z_FULL_FLUSH)
    return first + block * (count // 2**20) + piece(end, zlib.Z_FINISH)


def gz(count: int, start: bytes = b"", end: bytes = b"", fill: bytes = b"\0") -> bytes:
    """Return a gzip file of many equal bytes; beyond 1 GiB its checksum is never reached."""
    size = (len(start) + count + len(end)) % 2**32
    check = zlib.crc32(start)
    for _ in range(count // 2**20 if count < GIB else 0):
        check = zlib.crc32(fill * (2**20 // len(fill)), check)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    tail = struct.pack("<II", zlib.crc32(end, check), size)
    return head + zeros(count, start, end, fill) + tail


def zip_of(name: str, deflated: bytes, size: int, others: dict[str, bytes]) -> bytes:
    """Return an archive with one member of which only the deflated bytes exist."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for other, data in others.items():
            archive.writestr(other, data)
        archive.writestr(name, deflated)
        info = archive.getinfo(name)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, size
    return content.getvalue()


def safetensors_bomb() -> bytes:
    body = bytes(2**20)
    header = {
        f"fc{i}.weight": {"dtype": "F32", "shape": [512, 512], "data_offsets": [0, len(body)]}
        for i in range(4000)
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def png_bomb() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 6, 0, 0, 0)
    data = zlib.compress(bytes(2**20), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def h5_bomb(width: int) -> bytes:
    """Return a model whose layers have large arrays that are never written."""
    h5py = pytest.importorskip("h5py")
    content = io.BytesIO()
    kind = "Dense"
    layers = [
        {"class_name": "InputLayer", "config": {"name": "in", "batch_input_shape": [None, width]}}
    ]
    with h5py.File(content, "w") as file:
        for number in range(10):
            name = f"dense_{number}"
            options = {"name": name, "units": width, "use_bias": False, "activation": "linear"}
            layers.append({"class_name": kind, "config": options})
            group = file.create_group(f"model_weights/{name}")
            group.attrs["weight_names"] = [f"{name}/kernel:0".encode()]
            group.create_dataset(
                f"{name}/kernel:0", (width, width), "f4", chunks=(64, 64), compression="gzip"
            )
        model = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}
        file.attrs["model_config"] = json.dumps(model)
    return content.getvalue()


def protobuf(number: int, data: bytes) -> bytes:
    """Return a field of bytes as protobuf stores it."""

    def varint(value: int) -> bytes:
        low = bytes([value & 127 | (128 if value > 127 else 0)])
        return low + varint(value >> 7) if value > 127 else low

    return varint(number << 3 | 2) + varint(len(data)) + data


def bombs() -> dict[str, bytes]:
    many = 6 * GIB
    array = npy_header("(805306368,)")
    small = {"b0.npy": npy_header("(1,)") + bytes(8)}
    deflated = zeros(64 * 2**20, array)
    layers = {"input_shape": [512], "layers": [{"type": "linear", "weights": "fc0"}]}
    ones = np.full(2**20, 0x55, np.uint8)
    packed = io.BytesIO()
    np.savez_compressed(
        packed, W0_packed=ones, W0_shape=np.array([2**20, 2**20]), W1=np.ones((2, 2)), b0=0, b1=0
    )
    empty = io.BytesIO()
    np.savez_compressed(
        empty,
        **{"W0": np.ones((2, 2)), "b0": np.zeros(2), "b1": np.zeros(2)},
        **{"W1_data": np.zeros(0), "W1_indices": np.zeros(0, int), "W1_shape": [2**22 - 1] * 2},
        W1_indptr=np.zeros(2**22, int),
    )
    return {
        "member.npz": zip_of("W0.npy", deflated, many, small),
        "packed.npz": packed.getvalue(),
        "dense_output.npz": empty.getvalue(),
        "points.npz": zip_of("x.npy", deflated, many, {}),
        "header.npy": npy_header("(1000000000000,)"),
        "lists.json.gz": gz(64 * 2**20, b'{"W0": [', b"[]]}", fill=b"[], "),
        "numbers.json.gz": gz(80 * 2**20, b'{"W0": [', b"0]}", fill=b"0,"),
        "text.json.gz": gz(160 * 2**20, '{"W0": "\U0001f600'.encode(), b'"}', fill=b"a"),
        "large.json.gz": gz(3 * GIB, b'{"W0": [', b"0]}", fill=b"0,"),
        "model.onnx.gz": gz(3 * GIB),
        "nodes.onnx.gz": gzip.compress(protobuf(7, b"\x0a\0" * 2**23), 1),
        "names.onnx.gz": gzip.compress(protobuf(7, protobuf(1, protobuf(3, bytes(2**25)))), 1),
        "integers.onnx.gz": gzip.compress(protobuf(7, protobuf(5, protobuf(7, bytes(2**27)))), 1),
        "query.vnnlib.gz": gz(2**27, fill=b"(assert "),
        "model.keras": zip_of("model.weights.h5", deflated, many, {"config.json": b"{}"}),
        "model.h5": h5_bomb(8193),
        "shared.safetensors": safetensors_bomb(),
        "shared.layers.json": json.dumps(layers).encode(),
        "image.png": png_bomb(),
        "experiment.json": b"[" + b"{}," * 2**20 + b"{}]",
        "experiment.yaml": b"- {}\n" * 2**20,
        "results.csv": b"a,b\n" * (2**24 + 1),
    }


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Read every bomb in one process with limited memory; return what it said about each."""
    folder = tmp_path_factory.mktemp("bombs")
    for name, content in bombs().items():
        (folder / name).write_bytes(content)
    code = f"""
        import json, resource, sys, time
        from pathlib import Path
        import h5py, onnx, yaml, PIL.Image
        from bnncert import BnncertError, load, read_vnnlib
        from bnncert.extras.vnncomp.category import read_instances
        from bnncert.results.config_file import read_document
        from bnncert.model.formats.inputs import read_array
        resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
        for path in sorted(Path(sys.argv[1]).iterdir()):
            read = load
            if ".vnnlib" in path.name:
                read = read_vnnlib
            elif path.name.startswith("experiment"):
                read = read_document
            elif path.suffix == ".csv":
                read = read_instances
            elif path.suffix in (".npy", ".png") or path.name == "points.npz":
                read = lambda path: read_array(str(path))
            started = time.process_time()
            try:
                read(path)
                said = "was read"
            except BnncertError as error:
                said = str(error)
            except BaseException as error:
                said = "TRACEBACK " + repr(error)
            print(json.dumps([path.name, said, time.process_time() - started]), flush=True)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    return {name: rest for name, *rest in map(json.loads, run.stdout.splitlines())}


SAID = {
    "member.npz": "unpacks to more than 2 GiB",
    "packed.npz": "W0: shape (1048576, 1048576); at most 67108864 are read",
    "dense_output.npz": "W1: 17592177655809 entries; at most 67108864 are read",
    "points.npz": "unpacks to more than 2 GiB",
    "header.npy": "not a readable .npy file",
    "lists.json.gz": "values; at most 33554432 are read",
    "numbers.json.gz": "values; at most 33554432 are read",
    "text.json.gz": "JSON text takes more than 512 MiB",
    "large.json.gz": "unpacks to more than 2 GiB",
    "model.onnx.gz": "unpacks to more than 2 GiB",
    "nodes.onnx.gz": "too many fields; at most 524288 are read",
    "names.onnx.gz": "has names and descriptions of more than 16 MiB",
    "integers.onnx.gz": "holds integers in more than 64 MiB",
    "query.vnnlib.gz": "unpacks to more than 64 MiB",
    "model.keras": "unpacks to more than 2 GiB",
    "model.h5": "has shape (8193, 8193); at most 67108864 are read",
    "shared.safetensors": "overlap",
    "image.png": "12000 x 12000 pixels; at most 16777216 are read",
    "experiment.json": "has more than 256 KiB",
    "experiment.yaml": "has more than 256 KiB",
    "results.csv": "has more than 64 MiB",
}


@pytest.mark.parametrize("name", SAID)
def test_bombs_are_refused_within_little_memory(outcome: dict[str, list[str]], name: str) -> None:
    said, seconds = outcome[name]
    assert SAID[name] in said
    assert f"{name}: " in said
    assert "\n" not in said
    assert float(seconds) < 5


def test_many_arrays_of_one_file_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(h5_bomb(128))
    with pytest.raises(FormatError, match="holds arrays of more than 256 KiB"):
        load(path, limits=Limits(file=2**18))


def test_a_member_that_is_larger_than_it_states_is_not_unpacked() -> None:
    content = zip_of("a", zeros(2**30), 10, {})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        pytest.raises(FormatError, match="not a readable zip file"),
        open_archive(content, "a.zip", "zip") as archive,
    ):
        read_member(archive, "a")
    # In kilobytes; at once it would be a gigabyte.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_an_archive_of_many_members_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(6):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(FormatError, match=r"too many members; at most 5 .*Limits\.members"):
        load(path, limits=Limits(members=5))


def test_limits_can_be_lifted(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez(path, W0=np.ones((3, 4)), b0=np.zeros(3), W1=np.ones((2, 3)), b1=np.zeros(2))
    for name, low in (("file", 100), ("matrix", 11), ("width", 3), ("members", 3)):
        with pytest.raises(FormatError, match=rf"net\.npz.*Limits\.{name}, see docs"):
            load(path, limits=Limits(**{name: low}))
    assert load(path, limits=Limits(file=10**5, matrix=12, width=4)).sizes == (4, 3, 2)


def test_json_that_is_nested_or_not_text() -> None:
    for content, words in (
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "not UTF-8"),
        (b"[1,", ":1: not valid JSON"),
        (b"1" * 10_000, "not valid JSON"),
        ("[1, \ud800]", "not"),
    ):
        with pytest.raises(FormatError, match=words):
            parse_json(content, "a.json")


def test_tensors_with_strides_of_zero_are_refused() -> None:
    class Tensor:
        def detach(self) -> Tensor:
            return self

        cpu = detach

        def numpy(self) -> npt.NDArray[np.float32]:
            return np.broadcast_to(np.float32(1), (10**6, 10**6))

    with pytest.raises(FormatError, match="1000000000000 entries; at most"):
        tensor_array(Tensor(), FileLayer("a.pt", "fc", "linear"), "weight")


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "socket"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npz"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.close()
    expected = "is a directory" if kind == "folder" else "is not a regular file"
    for read in (load, read_bytes, lambda path: read_array(str(path)), read_vnnlib, read_document):
        with pytest.raises(FormatError, match=f"^{path}: {expected}"):
            read(path)  # type: ignore[operator]


def test_values_that_take_no_space_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy_header("(1000000000000,)", "|S0"))
    with pytest.raises(FormatError, match="take no space"):
        read_array(str(path))


def test_a_missing_file_is_also_the_error_that_python_has_for_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nofile: no such file$") as caught:
        load(tmp_path / "nofile")
    assert isinstance(caught.value, FormatError)
    # A block that writes one file and reads another names the right one.
    out = tmp_path / "out.json"
    with pytest.raises(FormatError, match=r"nofile: no such file$"), replacing(out):
        load(tmp_path / "nofile")
    assert list(tmp_path.iterdir()) == []
