"""Pixels need no step in the network's file, and numbers that look wrong get one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bnncert.model.formats import images
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.results.store import ResultsFile
from tests.cli.diamond import assert_one_line, read_json
from tests.in_process import Outcome, command_line

Run = Callable[..., Outcome]

PIXELS = load_demo_images().pixels[0].reshape(-1)

FAST = ("--method", "interval")


@pytest.fixture(scope="module")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a network that states a box and no pixel step."""
    path = tmp_path_factory.mktemp("networks") / "net.npz"
    replace(load_demo_network("sparse"), pixel_step=None).save(path)
    return path


@pytest.fixture
def run(
    network_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    """Return the command line in a folder with that network and an image."""
    monkeypatch.chdir(tmp_path)
    Path("net.npz").symlink_to(network_file)
    np.save("bytes.npy", PIXELS)
    np.save("floats.npy", PIXELS.astype(np.float32))
    np.save("shares.npy", PIXELS / 255)
    np.save("inputs.npy", PIXELS / 127.5 - 1)
    return command_line(monkeypatch, capfd)


@pytest.mark.parametrize("how", [("bytes.npy",), ("floats.npy", "--scale", "-1", "1"), ("a.png",)])
def test_pixels_of_a_known_box_have_a_step(run: Run, how: tuple[str, ...]) -> None:
    Image.fromarray(PIXELS.reshape(28, 28)).save("a.png")
    question = (*how, "--radius", "0.25px", "--json", "a.json")
    answer = run("verify", "net.npz", *question, *FAST)
    assert (answer.code, answer.err) == (0, "")
    assert "radius 0.25 px" in answer.out and "note:" not in answer.out
    assert read_json(Path("a.json"))["region"]["radius"] == 0.25 * (2 / 255)
    # The demo states its step, and the answer is the same.
    stated = run("verify", "demo:sparse", "demo:0", "--radius", "0.25px", *FAST, "--json", "b.json")
    assert stated.code == 0
    trees = [read_json(Path(name)) for name in ("a.json", "b.json")]
    assert trees[0]["region"] == trees[1]["region"] and trees[0]["lower"] == trees[1]["lower"]


def test_other_commands_take_pixels_too(run: Run) -> None:
    assert run("radius", "net.npz", "bytes.npy", "--max", "0.25px", *FAST).code == 0
    batch = ("--data", "bytes.npy", "--radius", "0.25px", *FAST, "--out", "r.sqlite")
    assert run("run", "net.npz", *batch).code == 0
    with ResultsFile("r.sqlite") as results:
        assert results.networks()[0].pixel_step == 2 / 255
    Path("plan.yaml").write_text(
        "networks: [{name: a, file: net.npz}]\n"
        "parts: [{data: {file: bytes.npy}, radii: 0.25px, methods: interval}]\n"
    )
    assert run("experiment", "plan.yaml", "--out", "e.sqlite").code == 0


def test_a_step_that_is_not_known_names_the_option(run: Run) -> None:
    refused = run("verify", "net.npz", "inputs.npy", "--radius", "1px")
    assert_one_line(refused, "net.npz", "pixel_step", "8-bit", "--scale LO HI")
    replace(load_demo_network("sparse"), input_lo=None, input_hi=None).save(Path("open.npz"))
    refused = run("verify", "open.npz", "bytes.npy", "--radius", "0.1")
    assert_one_line(refused, "bytes.npy", "--scale LO HI")


def test_pixels_in_floats_name_the_option(run: Run) -> None:
    message = "holds float32 numbers from 0 to 255, and the network's data box is [-1, 1]"
    for command in ("verify", "bound", "explain"):
        refused = run(command, "net.npz", "floats.npy", "--radius", "0.1")
        assert_one_line(refused, "floats.npy", message, "give --scale -1 1")
    batch = ("--data", "floats.npy", "--radius", "0.1", "--out", "r.sqlite")
    assert_one_line(run("run", "net.npz", *batch), "floats.npy", message)
    both = run("compare", "net.npz", "demo:sparse", "--data", "floats.npy")
    assert_one_line(both, "floats.npy", message)
    np.save("blurred.npy", PIXELS / 1.001)
    assert_one_line(run("verify", "net.npz", "blurred.npy", "--radius", "1"), "round them")
    # A clip takes the place of the box.
    wide = ("--clip", "0", "255", "--radius", "0.1", *FAST)
    assert "holds float32" not in run("verify", "net.npz", "floats.npy", *wide).err


def test_black_and_white_floats_are_no_pixels(run: Run) -> None:
    np.save("binary.npy", (PIXELS > 127).astype(np.float64))
    asked = ("--radius", "0.1", "--scale", "-1", "1")
    assert_one_line(run("verify", "net.npz", "binary.npy", *asked), "leave out --scale")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("shares.npy --radius 0.001", "from 0 to 1, and the network's data box is [-1, 1]; if"),
        ("bytes.npy --radius 1", "--radius 1 is 127.5 px; a radius in pixels is --radius 1px"),
        ("inputs.npy --radius 0.001", ""),
        ("bytes.npy --radius 0.01", ""),
        ("bytes.npy --radius 1px", ""),
    ],
)
def test_what_looks_wrong_gets_one_line(run: Run, words: str, said: str) -> None:
    for command in ("verify", "faults"):
        answer = run(command, "net.npz", *words.split(), *FAST, "--timeout", "0.3")
        notes = [line for line in answer.out.splitlines() if line.startswith("note: ")]
        assert len(notes) == bool(said), notes
        assert said in "".join(notes)


def test_radii_of_a_run_get_the_line_too(run: Run) -> None:
    batch = ("--data", "bytes.npy", "--radius", "0.25px,1", *FAST, "--out", "r.sqlite")
    assert "note: --radius 1 is 127.5 px" in run("run", "net.npz", *batch).out


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
@pytest.mark.parametrize("has_pillow", [True, False])
def test_a_picture_in_the_alpha_channel_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, has_pillow: bool
) -> None:
    pixels = np.zeros((28, 28, len(mode)), dtype=np.uint8)
    pixels[..., -1] = PIXELS.reshape(28, 28)
    path = tmp_path / "a.png"
    Image.fromarray(pixels, mode).save(path)
    if not has_pillow:
        monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"a\.png: all pixels have one colour.*alpha channel"):
        assert not images.read_image(path).pixels.any()
