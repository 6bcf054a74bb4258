"""Zip archives in which two members have one name, in every format that is a zip archive."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import read_npz_images
from bnncert.model.formats.inputs import read_array
from bnncert.model.loading import load
from bnncert.model.network import Network
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
    from bnncert.extras.training.fitting import (
        TrainingState,
        load_checkpoint,
        save_checkpoint,
    )

    path, state = tmp_path / "state.pt", TrainingState({"w": torch.ones(2)}, {})
    save_checkpoint(path, state, {"seed": 1})
    assert load_checkpoint(path, {"seed": 1}) is not None
    members = _members(path)
    name = next(name for name in members if "/data/" in name)
    _with(path, members, name, b"\0" * len(members[name]))
    with pytest.raises(FormatError, match=r"state\.pt: not a checkpoint of a training"):
        load_checkpoint(path, {"seed": 1})
