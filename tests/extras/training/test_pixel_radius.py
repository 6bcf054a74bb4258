"""Radii in pixels: the step that a network file records, and what the commands make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.cli.command_question import radius_option
from bnncert.cli.program import main
from bnncert.errors import FormatError, InputError
from bnncert.model.loading import load_demo_network

STEP = 0.125


def network(step: float | None = STEP) -> bnncert.Network:
    """Return two scores that compare x0 with x1 through four thresholds."""
    return bnncert.Network.from_arrays(
        [np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]), np.array([[1, -1, 0, 0], [0, 0, 1, -1]])],
        [np.full(4, -0.25), np.zeros(2)],
        sign_zero="plus",
        input_lo=-1.0,
        input_hi=1.0,
        pixel_step=step,
    )


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr("sys.argv", ["bnncert", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize("suffix", [".npz", ".json", ".onnx"])
def test_the_step_is_kept_by_every_format(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"net{suffix}"
    network().save(file)
    assert bnncert.load(file).pixel_step == STEP
    network(None).save(file)
    assert bnncert.load(file).pixel_step is None


def test_the_step_is_no_part_of_the_function() -> None:
    hashes = {network(step).content_hash for step in (None, STEP, 0.5)}
    assert len(hashes) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [0.1, 0.2]])
def test_a_bad_step_in_a_file_is_refused(tmp_path: Path, bad: object) -> None:
    network(None).save(tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "bad.npz", **arrays, pixel_step=np.array(bad))
    with pytest.raises(FormatError, match=r"bad\.npz: pixel_step is"):
        bnncert.load(tmp_path / "bad.npz")


def test_bundled_networks_know_their_pixels() -> None:
    net = load_demo_network()
    assert net.pixel_step == 2 / 255
    assert net.content_hash == replace(net, pixel_step=None).content_hash


@pytest.mark.parametrize(
    ("text", "radius"),
    [("0.5", 0.5), ("1e-3", 1e-3), ("0", 0.0), ("1px", STEP), ("2.5px", 0.3125), ("4 px", 0.5)],
)
def test_reading_radii(text: str, radius: float) -> None:
    assert radius_option(text, network())[0] == radius


@pytest.mark.parametrize("text", ["", "px", "1pt", "-1", "-1px", "nan", "inf", "infpx", "1,2"])
def test_what_is_no_radius(text: str) -> None:
    with pytest.raises(InputError, match="--radius is") as error:
        radius_option(text, network())
    assert "\n" not in str(error.value)


def test_pixels_need_a_recorded_step() -> None:
    with pytest.raises(InputError, match="pixel_step"):
        radius_option("1px", network(None))
    assert radius_option("1", network(None))[0] == 1.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    network().save("net.npz")
    network(None).save("bare.npz")
    np.savez("points.npz", images=np.array([[0.5, -0.5]]), labels=np.array([0]))
    return tmp_path


@pytest.mark.parametrize("command", ["verify", "bound"])
def test_the_commands_take_pixels(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = ("--input", "points.npz:images", "--index", "0", "--label", "0")
    for radius in ("1px", "0.125"):
        end = run(
            monkeypatch, command, "net.npz", *point, "--radius", radius, "--json", f"{radius}.json"
        )
        assert end == 0
    trees = [json.loads((folder / f"{radius}.json").read_text()) for radius in ("1px", "0.125")]
    assert trees[0]["region"] == trees[1]["region"]
    assert trees[0]["region"]["radius"] == STEP
    capsys.readouterr()
    assert run(monkeypatch, command, "bare.npz", *point, "--radius", "1px") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "bare.npz" in error and "pixel_step" in error


def test_verdicts_in_pixels_follow_the_network(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Both points must cross 0.25 from 0.5 for the scores to tie: two steps, and not before.
    point = ("--input", "points.npz:images", "--index", "0", "--label", "0")
    for code, radius, answer in ((0, "1px", "robust in"), (1, "3px", "not robust in")):
        assert run(monkeypatch, "verify", "net.npz", *point, "--radius", radius) == code
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith(answer)


def test_run_takes_pixels(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--data", "points.npz", "--out", "r.sqlite")
    assert run(monkeypatch, "run", "net.npz", *common, "--radius", "1px,0.25") == 0
    assert "2 instances in r.sqlite" in capsys.readouterr().out
    # The same radii in input units are the same instances.
    assert run(monkeypatch, "run", "net.npz", *common, "--radius", "0.125,2px") == 0
    assert "2 of 2 instances are in r.sqlite already" in capsys.readouterr().out
    assert run(monkeypatch, "run", "bare.npz", *common, "--radius", "1px") == 2
    assert "pixel_step" in capsys.readouterr().err
    assert run(monkeypatch, "run", "net.npz", *common, "--radius", "1px,") == 2
    assert "--radius" in capsys.readouterr().err
