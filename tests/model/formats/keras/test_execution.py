"""Keras files are compared with Keras where it is installed."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError
from tests.data.make_larq_fixtures import FOLDER

pytest.importorskip("h5py", reason="needs the extra 'larq'")


def installed(monkeypatch: pytest.MonkeyPatch, keras: Any) -> None:
    """Let `keras` be the only package of its kind that can be found."""
    found = importlib.util.find_spec
    hidden = ("keras", "larq", "qkeras")

    def find_spec(name: str) -> Any:
        return (keras if name == "keras" else None) if name in hidden else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setitem(sys.modules, "keras", keras)


def stand_in(predict: Any, loaded: list[str]) -> Any:
    """Return a package that loads every file as a model with these predictions."""

    def load_model(path: Path, compile: bool) -> Any:
        assert path.exists() and not compile
        loaded.append(path.suffix)
        return SimpleNamespace(predict=lambda batch, verbose: predict(batch))

    return SimpleNamespace(models=SimpleNamespace(load_model=load_model))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "net.h5"
    path.write_bytes(gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes()))
    return path


def test_without_keras_there_is_a_note(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    assert bnncert.load(plain).notes == ("not compared with Keras, which is not installed",)


def test_predictions_are_compared(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    network = bnncert.load(plain)
    loaded: list[str] = []

    def softmax(batch: Any) -> Any:
        assert batch.shape[1:] == (16,) and batch.dtype == np.float32
        scores = network.evaluate(batch)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    installed(monkeypatch, stand_in(softmax, loaded))
    assert bnncert.load(plain).notes == ()
    assert loaded == [".h5"]
    installed(monkeypatch, stand_in(lambda batch: softmax(batch)[:, ::-1], loaded))
    with pytest.raises(InputError, match=r"net\.h5: was read as another network than Keras exec"):
        bnncert.load(plain)


def test_a_model_that_keras_refuses_is_mentioned(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(batch: Any) -> Any:
        raise TypeError("unknown layer QuantDense")

    installed(monkeypatch, stand_in(refuse, []))
    expected = ("not compared with Keras, which does not execute this model",)
    assert bnncert.load(plain).notes == expected
