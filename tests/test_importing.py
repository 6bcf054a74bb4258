"""The code blocks of docs/importing.md, run in the order of the page."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bnncert
from bnncert.cli.program import app
from tests.data.make_larq_fixtures import FOLDER, inputs
from tests.in_process import CODE

pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("h5py", reason="needs the extra 'larq'")

PAGE = Path(__file__).resolve().parent.parent / "docs" / "importing.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = {"net.h5": "larq_dense.h5.gz", "brevitas.onnx": "brevitas_dense.onnx.gz"}
    for name, source in stored.items():
        Path(name).write_bytes(gzip.decompress((FOLDER / source).read_bytes()))
    np.save("inputs.npy", inputs((16,)))
    rng = np.random.default_rng(0)
    small = [rng.choice([-1.0, 1.0], size=shape) for shape in ((4, 16), (3, 4))]
    bnncert.Network.from_arrays(small, [np.zeros(4), np.zeros(3)]).save("net.onnx")
    names: dict[str, Any] = {}
    printed = []
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), names)
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            if program == "cp":
                shutil.copy(*arguments)
                continue
            assert program == "bnncert"
            result = CliRunner().invoke(app, arguments)
            answered = CODE.values() if arguments[0] == "verify" else (0,)
            assert result.exit_code in answered, (line, result.output)
            printed.append(result.output)
    assert len(printed) == 4
    # The verdicts of the two verify commands are there, and the converted network is the same.
    assert re.search(r"^(robust|not robust) in ", printed[0], re.MULTILINE)
    assert re.search(r"^(robust|not robust) in ", printed[2], re.MULTILINE)
    assert bnncert.load("net.npz").content_hash == names["same"].content_hash


@pytest.mark.parametrize("exporter", ["current", "dynamo=False"])
def test_the_recipe_of_pytorch_is_read(
    exporter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exporter == "current":
        pytest.importorskip("onnxscript", reason="the exporter of PyTorch needs it")
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    recipe = re.search(r"^torch\.onnx\.export\(.*\)$", page, re.MULTILINE)
    assert recipe is not None
    line = recipe[0] if exporter == "current" else recipe[0][:-1] + ", dynamo=False)"
    # The model of the page that the recipe exports, and its points.
    blocks = [text for language, text in BLOCK.findall(page) if "class BinaryLinear" in text]
    before = next(text for language, text in BLOCK.findall(page) if "class Sign(" in text)
    names: dict[str, Any] = {}
    for text in (before, *blocks, line):
        exec(compile(text, str(PAGE), "exec"), names)
    assert Path("net.onnx.data").exists() == (exporter == "current")
    network = bnncert.load("net.onnx")
    points = names["points"].numpy()
    np.testing.assert_array_equal(network.classify(points), names["net"].classify(points))
