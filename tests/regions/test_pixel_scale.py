"""Pixels and the inputs they become: nothing is assumed about a network that does not say it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Ball, Network, OutsideDataBoxWarning
from bnncert.errors import InputError
from bnncert.regions.radii import PixelScale
from bnncert.results.store import ResultsFile
from tests.cli.diamond import DIAMOND, Run, read_json, write_network
from tests.cli.test_question import one_line
from tests.in_process import CODE, command_line

#: Pixels (255, 0) are the point (1, 0) at scale 0 to 1, (1, -1) at -1 to 1.
PIXELS = np.array([255, 0], dtype=np.uint8)

ASKING = {
    "verify": ("verify", "net.npz", "--input", "pixels.npy", "--radius", "0.1"),
    "bound": ("bound", "net.npz", "--input", "pixels.npy", "--radius", "0.1"),
    "radius": ("radius", "net.npz", "--input", "pixels.npy", "--max", "0.1"),
    "run": ("run", "net.npz", "--data", "pixels.npy", "--radius", "0.1", "--out", "r.sqlite"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    # No data box, as most ONNX files.
    write_network(tmp_path / "net.npz", DIAMOND)
    np.save("pixels.npy", PIXELS)
    np.save("whole.npy", PIXELS.astype(np.int64))
    np.save("floats.npy", PIXELS / 255)
    return command_line(monkeypatch, capfd)


# --- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ASKING)
def test_pixels_for_a_network_without_a_box_are_refused(run: Run, command: str) -> None:
    for extra in ((), ("--clip", "0", "1")):
        message = one_line(run(*ASKING[command], *extra))
        assert "pixels.npy: holds pixels (uint8)" in message
        for option in ("--scale LO HI", "--scale 0 1", "--normalise MEAN STD"):
            assert option in message
    assert not Path("r.sqlite").exists()


@pytest.mark.parametrize("command", ["verify", "bound"])
@pytest.mark.parametrize(
    ("options", "centre", "box"),
    [
        (("--scale", "0", "1"), [1.0, 0.0], (0.0, 1.0)),
        (("--scale", "-1", "1"), [1.0, -1.0], (-1.0, 1.0)),
        (("--scale", "0", "255"), [255.0, 0.0], (0.0, 255.0)),
        (("--normalise", "0.25", "0.5"), [1.5, -0.5], (-0.5, 1.5)),
    ],
)
def test_the_scale_gives_centre_and_data_box(
    run: Run, command: str, options: tuple[str, ...], centre: list[float], box: tuple[float, float]
) -> None:
    for source in ("pixels.npy", "whole.npy"):
        question = (*ASKING[command][:3], source, *ASKING[command][4:])
        assert run(*question, *options, "--label", "0", "--json", "a.json").code in CODE.values()
        region = read_json(Path("a.json"))["region"]
        assert region["center"] == centre
        assert (set(region["clip_lo"]), set(region["clip_hi"])) == ({box[0]}, {box[1]})


def test_a_radius_in_pixels_follows_the_scale(run: Run) -> None:
    question = (
        "verify",
        "net.npz",
        "--input",
        "pixels.npy",
        "--radius",
        "51px",
        "--json",
        "a.json",
    )
    assert run(*question, "--scale", "0", "1").code in CODE.values()
    assert read_json(Path("a.json"))["region"]["radius"] == 51 * (1 / 255)
    assert run(*question, "--normalise", "0.5", "0.25").code in CODE.values()
    assert read_json(Path("a.json"))["region"]["radius"] == 51 * (4 / 255)


def test_the_answer_is_the_one_at_the_right_scale(run: Run) -> None:
    # From (1, 0) the border of class 0 is 1/2 away, from (255, 0) it is 127.5.
    question = ("verify", "net.npz", "--input", "pixels.npy", "--radius", "0.6")
    assert "not robust in" in run(*question, "--scale", "0", "1").out
    assert "\nrobust in" in run(*question, "--scale", "0", "255").out


def test_a_search_for_the_radius_takes_the_scale(run: Run) -> None:
    outcome = run("radius", "net.npz", "--input", "pixels.npy", "--scale", "0", "1")
    assert outcome.code == 0
    certified = float(outcome.out.splitlines()[2].split()[0])
    assert 0.49 < certified <= 0.5


def test_a_campaign_records_the_scale(run: Run) -> None:
    ask = ("run", "net.npz", "--data", "pixels.npy", "--out", "r.sqlite", "--radius", "10px")
    assert run(*ask, "--scale", "0", "1").code == 0
    with ResultsFile("r.sqlite") as results:
        (row,), (network,), (point,) = results.rows(), results.networks(), results.inputs()
    assert (row.key.clip, row.key.radius) == ("0.0,1.0", 10 * (1 / 255))
    assert (network.input_lo, network.input_hi, network.pixel_step) == (0.0, 1.0, 1 / 255)
    assert point.point.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scale", "1", "0"), "scale is 1 0; expected"),
        (("--scale", "0", "inf"), "scale is 0 inf; expected"),
        (("--normalise", "0.5", "0"), "std is 0; expected"),
        (("--normalise", "a", "1"), "--normalise has 'a'"),
        (("--normalise", "nan", "1"), "mean is nan; expected"),
        (("--normalise", "1,2", "1"), "2 channels"),
        (("--normalise", "1,2", "1,2,3"), "mean has 2 and std 3 values"),
        (("--normalise", "0", "1", "--scale", "0", "1"), "give one"),
    ],
)
def test_a_bad_scale_is_one_line(
    run: Run, command: str, options: tuple[str, ...], message: str
) -> None:
    assert message in one_line(run(*ASKING[command], *options))


def test_a_scale_is_for_pixels_only(run: Run) -> None:
    question = ("verify", "net.npz", "--radius", "0.1", "--scale", "0", "1", "--input")
    assert "floats.npy: holds float64 numbers" in one_line(run(*question, "floats.npy"))
    np.save("large.npy", np.array([256, 0]))
    assert "large.npy: holds numbers from 0 to 256" in one_line(run(*question, "large.npy"))


def test_a_scale_takes_the_place_of_the_data_box(run: Run) -> None:
    write_network(Path("net.npz"), DIAMOND, input_lo=-1.0, input_hi=1.0)
    for options, centre in (((), [1.0, -1.0]), (("--scale", "0", "1"), [1.0, 0.0])):
        question = (*ASKING["verify"], *options, "--json", "a.json")
        assert run(*question).code in CODE.values()
        assert read_json(Path("a.json"))["region"]["center"] == centre


def test_a_query_has_no_scale(run: Run) -> None:
    message = one_line(run("verify", "net.npz", "a.vnnlib", "--scale", "0", "1"))
    assert "--scale describes a ball" in message


CONFIG = "networks: [{name: a, file: net.npz}]\ndata: pixels.npy\nradii: 10px\nmethods: interval\n"


@pytest.mark.parametrize(
    ("lines", "clip"), [("scale: [0, 1]\n", "0.0,1.0"), ("mean: 0.5\nstd: 0.5\n", "-1.0,1.0")]
)
def test_an_experiment_has_the_scale_in_its_file(run: Run, lines: str, clip: str) -> None:
    Path("a.yaml").write_text(CONFIG + lines)
    assert run("experiment", "a.yaml", "--out", "r.sqlite", "--processes", "0").code == 0
    with ResultsFile("r.sqlite") as results:
        (row,), (network,) = results.rows(), results.networks()
    assert row.key.clip == clip
    assert row.key.radius == 10 * network.pixel_step


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "a.yaml:3: radius is 10 px"),
        ("scale: [1, 0]\n", "a.yaml:5: scale is 1 0"),
        ("scale: 1\n", "a.yaml:5: scale is not a list"),
        ("mean: 0.5\n", "a.yaml:5: mean; expected scale, or mean and std"),
        ("mean: [0.5, 0.5]\nstd: 0.5\n", "a.yaml:2: mean and std are for 2 channels"),
    ],
)
def test_a_bad_scale_in_a_configuration_names_its_line(run: Run, lines: str, message: str) -> None:
    Path("a.yaml").write_text(CONFIG + lines)
    assert message in one_line(run("experiment", "a.yaml", "--dry-run"))


# --- the scale itself ------------------------------------------------------------------------


def shaped(shape: tuple[int, ...]) -> Network:
    """Return a network with inputs of this shape."""
    network = Network.from_arrays(
        [np.ones((2, int(np.prod(shape)))), np.ones((2, 2))], [np.zeros(2), np.zeros(2)]
    )
    return replace(network, input_shape=shape)


@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 4, 3)])
def test_channels_have_their_own_normalisation(shape: tuple[int, ...]) -> None:
    mean, std = [0.5, 0.25, 0.0], [0.25, 0.5, 1.0]
    network = PixelScale.normalised(mean, std).on(shaped(shape))
    assert network.input_lo is not None and network.input_hi is not None
    axis = shape.index(3)
    rest = tuple(k for k in range(3) if k != axis)
    for box, pixel in ((network.input_lo, 0.0), (network.input_hi, 1.0)):
        by_channel = box.reshape(shape)
        assert by_channel.min(axis=rest).tolist() == by_channel.max(axis=rest).tolist()
        expected = [(pixel - m) / s for m, s in zip(mean, std, strict=True)]
        assert by_channel.max(axis=rest).tolist() == expected
    # The steps differ: a radius in pixels means nothing.
    assert network.pixel_step is None
    even = PixelScale.normalised(mean, [0.5]).on(shaped(shape))
    assert even.pixel_step == 2 / 255


def test_channels_need_a_place_in_the_shape() -> None:
    with pytest.raises(InputError, match=r"3 channels, but <arrays> has inputs of shape \(12,\)"):
        PixelScale.normalised([0.0, 0.0, 0.1], [1.0]).on(shaped((12,)))


def test_the_scale_leaves_the_network_the_same() -> None:
    network = shaped((12,))
    scaled = PixelScale.between(0, 1).on(network)
    assert scaled.content_hash == network.content_hash
    assert network.input_lo is None


# --- a centre outside the data box -----------------------------------------------------------


def asked(function: Any, centre: list[float], radius: float = 0.1, **clip: float) -> Any:
    network = replace(DIAMOND.build(), input_lo=np.zeros(2), input_hi=np.ones(2))
    return function(network, Ball("linf", centre, radius, **clip), 0, method="interval")


@pytest.mark.parametrize("function", [bnncert.verify, bnncert.bound])
def test_a_centre_outside_the_data_box_is_warned_about(function: Any) -> None:
    with pytest.warns(
        OutsideDataBoxWarning, match=r"1 of 2 inputs.*input 0 = 255.*\[0, 1\]"
    ) as got:
        asked(function, [255.0, 0.0])
    # The warning points at the caller.
    assert got[0].filename == __file__


@pytest.mark.parametrize("function", [bnncert.verify, bnncert.bound])
def test_a_centre_in_the_data_box_is_not(function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(function, [1.0, 0.0])
        # Not for rounding, and not for a ball that leaves the box.
        asked(function, [1.0 + 1e-12, -1e-12], 0.5)


def test_the_command_line_shows_the_warning_as_one_line(run: Run, tmp_path: Path) -> None:
    write_network(tmp_path / "net.npz", DIAMOND, input_lo=0.0, input_hi=1.0)
    np.save("far.npy", np.array([2.0, 0.0]))
    question = ("verify", "net.npz", "--input", "far.npy", "--radius", "1.5")
    done = subprocess.run(
        [sys.executable, "-m", "bnncert", *question], capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("bnncert: warning: the ball's centre lies outside")
