"""`bnncert train` from the command line, and the commands of docs/training.md."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError, MissingExtraError
from tests.extras.training.tiny import CLASSES, SIDE, blobs, write_blobs
from tests.in_process import CODE, Outcome, command_line, without_progress

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--hidden", "20,12", "--epochs", "3", "--batch", "50")


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Return what runs the command line in a folder with tiny data."""
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "tiny.npz")

    return command_line(monkeypatch, capsys)


BAD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hidden": (("--hidden", "20,x"), ("--hidden", "20,x")),
    "no hidden": (("--hidden", ""), ("--hidden", "hidden layer")),
    "empty layer": (("--hidden", "20,0"), ("--hidden", "layer of 0")),
    "vast layer": (("--hidden", "100000000"), ("--hidden", "layer of 100000000", "at most")),
    "vast weights": (("--hidden", "500000,500000"), ("--hidden", "250000000000 weights")),
    "vast first layer": (("--hidden", "4000000,1"), ("--hidden", "first layer of 4000000")),
    "vast convolutions": (("--conv", "4000,4000"), ("--conv", "144000000 weights")),
    "conv": (("--conv", "a"), ("--conv",)),
    "zeros": (("--zeros", "1"), ("--zeros", "[0, 1)")),
    "zeros negative": (("--zeros", "-0.1"), ("--zeros",)),
    "epochs": (("--epochs", "0"), ("--epochs",)),
    "batch": (("--batch", "1"), ("--batch",)),
    "rate": (("--lr", "nan"), ("--lr",)),
    "seed": (("--seed", "-1"), ("--seed",)),
    "patience": (("--patience", "0"), ("--patience",)),
    "robust": (("--robust", "-1"), ("--robust",)),
    "delta": (("--robust", "1", "--radius", "inf"), ("--radius is inf",)),
    "suffix": (("--out", "net.txt"), ("net.txt", ".npz")),
    "no folder": (("--out", "no/net.npz"), ("no/net.npz", "No such directory")),
    "stride": (("--conv", "2", "--stride", "4"), ("--stride", "1..3")),
    "stride of nothing": (("--stride", "2"), ("--stride", "--conv")),
    "conv as JSON": (("--conv", "2", "--out", "net.json"), ("net.json", ".npz")),
    "checkpoint folder": (("--checkpoint", "no/state"), ("no/state",)),
    "certify nothing": (("--certify", "0"), ("--certify is 0", "above 0", "25px")),
    "certify everything": (("--certify", "1.5"), ("--certify is 1.5", "150 %", "less than half")),
    "certify all pixels": (("--certify", "200px"), ("--certify is 200px", "78.43 %")),
    "certify a word": (("--certify", "much"), ("--certify is much", "0.1")),
    "certify and penalties": (("--certify", "0.1", "--robust", "1"), ("robust", "--certify")),
    "no data": (("--data", "nothing.npz"), ("nothing.npz", "no such file")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_one_line(command: Callable[..., Outcome], case: str) -> None:
    arguments, parts = BAD[case]
    # The last of a repeated option counts.
    outcome = command("train", "--data", "tiny.npz", "--out", "net.npz", *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err
    assert sorted(p.name for p in Path().iterdir()) == ["tiny.npz"]


def test_without_pytorch_it_says_what_to_install(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a)
    )
    outcome = command("train", "--data", "tiny.npz", "--out", "net.npz")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "bnncert[train]" in outcome.err
    with pytest.raises(MissingExtraError, match=r"training needs PyTorch: pip install"):
        bnncert.train("tiny.npz", out="net.npz")


def test_other_commands_do_not_import_pytorch() -> None:
    code = (
        "import sys\n"
        "from bnncert.cli.catalogue import ENTRIES\n"
        "functions = [entry.function for entry in ENTRIES]\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_mnist_that_is_nowhere_is_one_line(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")

    def offline(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setenv("BNNCERT_DATA", "data")
    outcome = command("train", "--data", "mnist", "--out", "net.npz")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "train-images-idx3-ubyte.gz" in outcome.err
    assert "Network is unreachable" in outcome.err and "BNNCERT_DATA" in outcome.err


def test_a_network_is_written_and_verified(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    outcome = command("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz", "--zeros", "0.5")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == [f"epoch {n}/3" for n in (1, 2, 3)]
    for word in ("loss", "accuracy", "zeros 50.0 %"):
        assert word in lines[0]
    network = bnncert.load("net.npz")
    assert network.sizes == (SIDE * SIDE, 20, 12, CLASSES)
    assert network.zero_fraction == pytest.approx(0.5, abs=0.01)
    assert network.content_hash in lines[-1]
    test = blobs(100, 2)
    found = network.classify(test.images.reshape(100, -1) / 127.5 - 1)
    right = np.mean(found == test.labels)
    assert f"test accuracy {100 * right:.2f} %; file and trained model agree on all 100" in lines[3]
    assert sorted(p.name for p in Path().iterdir()) == ["net.npz", "tiny.npz"]
    index = int(np.flatnonzero(found == test.labels)[0])
    point = ("--input", "tiny.npz:x_test", "--index", str(index))
    verified = command("verify", "net.npz", *point, "--radius", "0px")
    assert verified.code == 0
    assert verified.out.splitlines()[-1].startswith("robust")


def test_the_function_does_what_the_command_does(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    assert (
        command("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz", "--lr", "0.01").code == 0
    )
    seen: list[Any] = []
    trained = bnncert.train(
        "tiny.npz",
        out="same.npz",
        hidden=[20, 12],
        epochs=3,
        batch=50,
        lr=0.01,
        progress=seen.append,
    )
    assert trained.network.content_hash == bnncert.load("net.npz").content_hash
    assert trained.network.content_hash == bnncert.load("same.npz").content_hash
    test = blobs(100, 2)
    found = trained.network.classify(test.images.reshape(100, -1) / 127.5 - 1)
    assert (trained.accuracy, trained.compared) == (np.mean(found == test.labels), 100)
    assert trained.epochs == tuple(now for now in seen if now.finished)
    assert [now.epoch for now in trained.epochs] == [1, 2, 3]
    assert sorted(p.name for p in Path().iterdir()) == ["net.npz", "same.npz", "tiny.npz"]
    with pytest.raises(InputError, match=r"same\.npz: exists already"):
        bnncert.train("tiny.npz", out="same.npz")


def test_binary_weights_and_other_formats(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    hashes = set()
    for suffix in ("npz", "json", "onnx"):
        file = f"net.{suffix}"
        outcome = command(
            "train", "--data", "tiny.npz", *SMALL, "--zeros", "0", "--epochs", "1", "--out", file
        )
        assert outcome.code == 0
        network = bnncert.load(file)
        assert network.zero_fraction == 0.0
        assert network.pixel_step == 2 / 255
        hashes.add(network.content_hash)
    assert len(hashes) == 1


def test_a_convolutional_network(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    outcome = command("train", "--data", "tiny.npz", *SMALL, "--conv", "3,4", "--out", "net.npz")
    assert outcome.code == 0
    assert "agree on all 100 test images" in outcome.out
    network = bnncert.load("net.npz")
    # Each convolution keeps the size, each pooling halves it.
    assert network.sizes == (64, 3 * 64, 3 * 16, 4 * 16, 4 * 4, 20, 12, CLASSES)
    point = ("--input", "tiny.npz:x_test", "--index", "1", "--radius", "0.1px")
    assert command("verify", "net.npz", *point, "--timeout", "20").code in CODE.values()


def test_a_strided_network_as_onnx(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    common = ("train", "--data", "tiny.npz", "--conv", "3,4", "--stride", "2", "--hidden", "")
    assert command(*common, "--epochs", "1", "--out", "net.onnx").code == 0
    assert command("info", "net.onnx").out.splitlines()[0] == "net.onnx (onnx)"
    network = bnncert.load("net.onnx")
    # A stride halves the image: no layers are there for pooling.
    assert network.sizes == (64, 3 * 16, 4 * 4, CLASSES)
    assert network.layers[0].convolution is not None
    assert network.pixel_step == 2 / 255
    point = ("--input", "tiny.npz:x_test", "--index", "1", "--radius", "0.1px")
    assert command("verify", "net.onnx", *point, "--timeout", "20").code in CODE.values()


def test_a_network_with_binarised_input(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    common = ("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz", "--checkpoint", "state")
    sizes = {"hidden": (20, 12), "epochs": 3, "batch": 50, "checkpoint": "state"}
    bnncert.train("tiny.npz", out="net.npz", binarise_input=True, **sizes)  # type: ignore[arg-type]
    network = bnncert.load("net.npz")
    assert network.sizes == (64, 64, 20, 12, CLASSES)
    point = ("--input", "tiny.npz:x_test", "--index", "1", "--norm", "l1", "--radius", "10px")
    assert command("verify", "net.npz", *point, "--timeout", "20").code in CODE.values()
    other = command(*common, "--force")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "binarise_input True, not False" in other.err


def test_the_limit_counts_training_images(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    common = ("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz", "--force", "--count")
    assert command(*common, "60").code == 0
    outcome = command(*common, "301")
    assert outcome.code == 2
    assert "--count is 301; there are 300 training images" in outcome.err


def test_a_named_checkpoint_stays_and_is_used(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    common = ("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz", "--checkpoint", "state")
    assert command(*common).code == 0
    first = bnncert.load("net.npz").content_hash
    Path("net.npz").unlink()
    again = command(*common)
    assert again.code == 0
    assert "epoch" not in again.out
    assert bnncert.load("net.npz").content_hash == first
    other = command(*common, "--force", "--zeros", "0.1")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "state" in other.err and "zeros 0.34, not 0.1" in other.err


def test_a_disagreement_ends_with_code_2(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from bnncert.extras.training import export

    right = export._fold

    def wrong(layer: Any) -> Any:
        weights, bias = right(layer)
        return -weights, bias

    monkeypatch.setattr(export, "_fold", wrong)
    outcome = command("train", "--data", "tiny.npz", *SMALL, "--out", "net.npz")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "net.npz: not written" in outcome.err
    # The training itself is not lost.
    assert sorted(p.name for p in Path().iterdir()) == ["net.npz.checkpoint", "tiny.npz"]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
def test_ctrl_c_keeps_the_checkpoint_and_the_command_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    write_blobs(tmp_path / "tiny.npz")
    # A shell may have started the tests with SIGINT ignored, and children inherit that.
    start = (
        "import signal\nfrom bnncert.cli.program import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nmain()"
    )
    arguments = [sys.executable, "-c", start, "train", "--data", "tiny.npz", "--out", "net.npz"]
    arguments += ["--hidden", "20", "--epochs", "100000", "--batch", "50"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = time.monotonic() + 120
        while not (tmp_path / "net.npz.checkpoint").exists() and time.monotonic() < limit:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert without_progress(err) == "bnncert: interrupted\n"
    assert "the same command continues from there" in out.splitlines()[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.npz.checkpoint", "tiny.npz"]


# -- the documentation -----------------------------------------------------------------------------


def masked(text: str) -> list[str]:
    """Return lines with every number and hash replaced, and white space evened out."""
    return [
        re.sub(r"\b[0-9a-f]{64}\b|\d+(\.\d+)?(e-?\d+)?", "#", " ".join(line.split()))
        for line in text.splitlines()
    ]


def shown_commands() -> list[tuple[list[str], list[str]]]:
    """Return the commands of the tutorial's first part, and what is shown under each."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    block = text.split("```console\n", 1)[1].split("```", 1)[0].replace("\\\n", " ")
    found: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:]), []))
        else:
            found[-1][1].append(line)
    return found


def test_the_tutorial_runs_as_shown(command: Callable[..., Outcome]) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    Path("src").symlink_to(ROOT / "src")
    commands = shown_commands()
    assert [words[1] for words, _ in commands] == ["train", "info", "verify", "run"]
    for words, shown in commands:
        assert words[0] == "bnncert"
        outcome = command(*words[1:])
        assert outcome.code == 0, outcome.err
        printed = masked(outcome.out)
        # Verdicts may differ with the machine that trained; what they are about may not.
        if words[1] == "train":
            assert printed == masked("\n".join(shown))
        else:
            assert printed[0] == masked(shown[0])[0]
            assert len(printed) >= len(shown)
