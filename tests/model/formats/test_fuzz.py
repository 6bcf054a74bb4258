"""Broken files of every format are refused in one line, or read; nothing else happens."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzzing.corpus import formats
from tests.fuzzing.mutations import change
from tests.fuzzing.running import read_broken

#: Broken files of each format; benchmarks/soundness has many more.
FILES = 12

NAMES = (
    *("npz", "json", "json.gz", "onnx", "onnx.gz", "h5", "keras", "safetensors", "layers.json"),
    *("npy", "points.npz", "png", "image", "data.npz", "idx", "cifar.bin", "cifar.pickle"),
    *(
        "labels.csv",
        "labels.json",
        "cifar.tar.gz",
        "vnnlib",
        "vnnlib.gz",
        "vnnlib 2.0",
        "experiment.yaml",
        "experiment.json",
    ),
    *("qonnx", "external.onnx", "keras.json"),
    *("instances.csv", "results.csv", "results.sqlite", "resumed.sqlite"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("valid")


def test_every_valid_file_is_read(folder: Path) -> None:
    known = formats(folder)
    assert set(known) == set(NAMES)
    for form in known.values():
        for content in form.files:
            path = folder / f"broken{form.suffix}"
            path.write_bytes(content)
            form.read(path)


@pytest.mark.parametrize("name", NAMES)
def test_broken_files_are_refused_in_one_line(folder: Path, name: str) -> None:
    tally = read_broken([(name, seed) for seed in range(FILES)], folder)
    assert tally.wrong == []
    assert sum(tally.counts.values()) == FILES
    assert tally.counts.get(f"{name}: refused", 0) > 0


def test_a_failing_reader_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.model.formats.weight_arrays.array_stages", None)
    tally = read_broken([("npz", seed) for seed in range(40)], folder)
    assert "not callable" in tally.wrong[0]


def test_the_same_seed_is_the_same_file(folder: Path) -> None:
    for form in formats(folder).values():
        first, second = (
            change(Random(5), form.inside, form.files[0], form.files[-1]) for _ in range(2)
        )
        assert first == second or form.inside == "sqlite"
