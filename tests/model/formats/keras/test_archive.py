"""The containers of Keras: groups of layers, damaged and truncated files."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.keras.archive import group_names
from bnncert.model.loading import load
from tests.data.make_larq_fixtures import FOLDER, inputs

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")
from tests.model.formats.keras.h5_files import dense, refusal  # noqa: E402


def test_groups_are_numbered_by_class() -> None:
    kinds = ["QuantDense", "BatchNormalization", "QuantDense", "QuantConv2D", "QuantDense"]
    assert group_names(kinds) == [
        "quant_dense",
        "batch_normalization",
        "quant_dense_1",
        "quant_conv2d",
        "quant_dense_2",
    ]


def test_weights_in_another_file_are_not_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones((2, 2), dtype=np.float32)
    link = h5py.ExternalLink(str(tmp_path / "other.h5"), "/secret")
    message = refusal(tmp_path, [dense(2, link, name="d")])
    assert "layer d (QuantDense): its weights cannot be read" in message
    assert "link to another place" in message


def write_keras(path: Path, **members: bytes | None) -> Path:
    content = zipfile.ZipFile(io.BytesIO(gzip.decompress(PLAIN.read_bytes())))
    with zipfile.ZipFile(path, "w") as archive:
        for name in content.namelist():
            data = members.get(name.split(".")[0], content.read(name))
            if data is not None:
                archive.writestr(name, data)
    return path


PLAIN = FOLDER / "larq_plain.keras.gz"


def weights_file(change: Any) -> bytes:
    archive = zipfile.ZipFile(io.BytesIO(gzip.decompress(PLAIN.read_bytes())))
    buffer = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(buffer, "r+") as file:
        change(file)
    return buffer.getvalue()


def _rename(file: Any) -> None:
    file["layers/conv2d/vars"].attrs["name"] = "other"


def _drop(file: Any) -> None:
    del file["layers/conv2d"]


def _lose(file: Any) -> None:
    del file["layers/batch_normalization/vars/0"]


def _swap(file: Any) -> None:
    del file["layers/conv2d/vars/0"]
    file["layers/conv2d/vars"].create_group("0")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_rename, "layer first (Conv2D): group conv2d holds the weights of layer other"),
        (_drop, "layer first (Conv2D): its weights (group conv2d) are missing"),
        (_lose, "layer norm (BatchNormalization): 3 arrays; expected gamma, beta, moving_mean"),
        (_swap, "layer first (Conv2D): its kernel is missing"),
    ],
)
def test_weights_of_an_archive_that_do_not_fit(change: Any, expected: str, tmp_path: Path) -> None:
    path = write_keras(tmp_path / "net.keras", model=weights_file(change))
    with pytest.raises(FormatError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {expected}")


def _damaged(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / ("net.keras" if "keras" in kind else "net.h5")
    if kind == "text as h5":
        path.write_text("this is not a model")
    elif kind == "truncated h5":
        content = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
        path.write_bytes(content[: len(content) // 2])
    elif kind == "truncated keras":
        content = gzip.decompress(PLAIN.read_bytes())
        path.write_bytes(content[: len(content) // 2])
    elif kind == "keras without config":
        write_keras(path, config=None)
    elif kind == "keras with broken weights":
        write_keras(path, model=b"\x89HDF\r\n\x1a\n broken")
    elif kind == "keras with broken config":
        write_keras(path, config=b"{")
    elif kind == "keras with a list":
        write_keras(path, config=b"[]")
    elif kind == "weights only h5":
        with h5py.File(path, "w") as file:
            file.create_group("dense")
    return path


DAMAGE = {
    "text as h5": "not a readable HDF5 file",
    "truncated h5": "not a readable HDF5 file",
    "truncated keras": "not a readable .keras file",
    "keras without config": "config.json is missing in the archive",
    "keras with broken weights": "not a readable HDF5 file",
    "keras with broken config": "configuration:1: not valid JSON",
    "keras with a list": "configuration is not a JSON object",
    "weights only h5": "no attribute model_config",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    path = _damaged(tmp_path, kind)
    with pytest.raises(FormatError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert DAMAGE[kind] in str(caught.value)
    assert str(caught.value).isprintable()


def test_every_truncation_is_one_clear_error(tmp_path: Path) -> None:
    content = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
    path = tmp_path / "net.h5"
    for length in range(1, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError) as caught:
            load(path)
        assert str(caught.value).isprintable()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"larq_dense.*bnncert\[larq\]"):
        load(FOLDER / "larq_dense.h5.gz")


def test_the_scores_do_not_depend_on_the_container(tmp_path: Path) -> None:
    plain = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
    # The content decides, whatever the file is called.
    (tmp_path / "model").write_bytes(plain)
    first = load(tmp_path / "model")
    assert first.content_hash == load(FOLDER / "larq_dense.h5.gz").content_hash
    points: npt.NDArray[np.float32] = inputs((16,))[:10]
    np.testing.assert_array_equal(
        first.evaluate(points), load(FOLDER / "larq_dense.h5.gz").evaluate(points)
    )


@pytest.mark.parametrize("error", [OverflowError, SystemError, ZeroDivisionError, MemoryError])
def test_whatever_h5py_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*arguments: Any) -> None:
        raise error("in the\nlibrary")

    path = tmp_path / "model.h5"
    path.write_bytes(gzip.decompress((FOLDER / "larq_functional.h5.gz").read_bytes()))
    for place in ("h5py.Dataset.__getitem__", "h5py.AttributeManager.get", "h5py.File.__init__"):
        with monkeypatch.context() as patched:
            patched.setattr(place, fail)
            with pytest.raises(FormatError, match=r"model\.h5: .*in the") as caught:
                load(path)
            assert "\n" not in str(caught.value)
