"""The demonstration and the bundled networks."""

from __future__ import annotations

import io
import re
from importlib.resources import files

import numpy as np
import pytest
from rich.console import Console

import bnncert
from bnncert import InputError
from bnncert.cli import demo
from bnncert.cli.consoles import PlainConsole
from bnncert.cli.demo import run_demo
from bnncert.model.loading import DemoData, load_demo_images, load_demo_network


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for a counterexample only where there surely is one."""
    monkeypatch.setattr(demo, "ATTACK_DELTAS", (16.0,))


def recorded(count: int, delta: float, which: str, **console: object) -> str:
    stream = io.StringIO()
    shown = PlainConsole.__new__(PlainConsole)
    Console.__init__(shown, file=stream, width=140, **console)  # type: ignore[arg-type]
    run_demo(
        shown,
        count=count,
        delta=delta,
        timeout=5.0,
        which=which,  # type: ignore[arg-type]
    )
    return stream.getvalue()


# --- data ------------------------------------------------------------------------------------


def test_the_readme_of_the_data_names_the_networks_that_are_there() -> None:
    text = files("bnncert.data").joinpath("README.md").read_text()
    for which in ("sparse", "dense", "certified"):
        assert f"`{load_demo_network(which).content_hash[:8]}...`" in text


@pytest.mark.parametrize(("which", "low", "high"), [("sparse", 0.335, 0.345), ("dense", 0.0, 0.2)])
def test_the_bundled_networks_are_ternary_and_accurate(which: str, low: float, high: float) -> None:
    network = load_demo_network(which)  # type: ignore[arg-type]
    assert network.sizes == (784, 500, 500, 10)
    assert low <= network.zero_fraction <= high
    for layer in network.layers:
        assert set(np.unique(layer.weights.toarray())) == {-1, 0, 1}
    data = load_demo_images()
    points = np.stack([data.point(i) for i in range(100)])
    right = int(np.sum(network.classify(points) == data.labels))
    assert right >= 96


def test_the_certified_network_is_small_and_proved_where_the_others_fall() -> None:
    file = files("bnncert.data").joinpath("mnist_certified.npz")
    assert len(file.read_bytes()) <= 300_000
    network, data = load_demo_network("certified"), load_demo_images()
    points = np.stack([data.point(i) for i in range(100)])
    assert np.sum(network.classify(points) == data.labels) >= 96
    rows = (network, "robust", 100, 90), (load_demo_network(), "not_robust", 20, 20)
    for asked, status, count, least in rows:
        balls = [bnncert.Ball("linf", point, 25 / 127.5, -1.0, 1.0) for point in points[:count]]
        found = [
            bnncert.verify(asked, ball, int(label)).status
            for ball, label in zip(balls, data.labels[:count], strict=True)
        ]
        assert found.count(status) >= least


def test_the_bundled_images_are_bytes_scaled_to_the_data_box() -> None:
    data = load_demo_images()
    assert data.pixels.shape == (100, 784)
    assert data.pixels.dtype == np.uint8
    # The first ten labels of the MNIST test set.
    assert data.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    point = data.point(0)
    assert (point.min(), point.max()) == (-1.0, pytest.approx(data.pixels[0].max() / 127.5 - 1))
    network = load_demo_network()
    assert network.input_lo is not None and network.input_hi is not None
    assert np.all(network.input_lo == -1) and np.all(network.input_hi == 1)


# --- the show --------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_the_demo_verifies_an_image_and_draws_a_counterexample() -> None:
    lines = recorded(1, 0.25, "sparse").splitlines()
    assert lines[0].startswith("MNIST network 784-500-500-10, 34 % zero weights")
    assert "radius 0.25 px" in lines[0]
    (row,) = [line.split() for line in lines if re.match(r" +0 +7 ", line)]
    assert row[:3] == ["0", "7", "robust"]
    assert row[3] == ">="
    assert float(row[4]) > 0
    words = r"1 robust, 0 not robust, 0 misclassified, 0 undecided of 1 in \d"
    assert any(re.match(words, line) for line in lines)
    (sentence,) = [line for line in lines if line.startswith("Image 0 is robust above")]
    wrong = re.search(r"radius 16 px .* classified as (\d) \(margin (-[\d.]+)", sentence)
    assert wrong is not None
    assert int(wrong[1]) != 7
    title = lines.index(next(line for line in lines if line.startswith("image 0: 7")))
    assert f"counterexample: {wrong[1]}" in lines[title]
    picture = [line for line in lines[title + 1 :] if line]
    assert len(picture) == 29
    certified = r"The network demo:certified .* image 0 as 7 in the whole ball of radius 25 px"
    assert re.match(certified, picture.pop())
    # Two pictures of 28 pixels, two characters each, and ink in both.
    assert all(len(line) >= 2 * 56 + 4 for line in picture)
    assert any("@" in line[:56] or "%" in line[:56] for line in picture)
    assert any("@" in line[60:] or "%" in line[60:] for line in picture)


@pytest.mark.usefixtures("quick")
def test_the_demo_draws_in_colour_on_a_terminal() -> None:
    text = recorded(1, 0.25, "sparse", force_terminal=True, color_system="truecolor")
    # Two rows of pixels to a line of text: 14 lines, each with 2 x 28 half blocks.
    rows = [line for line in text.splitlines() if "▀" in line]
    assert len(rows) == 14
    assert {line.count("▀") for line in rows} == {56}


def test_a_misclassified_image_is_called_so() -> None:
    # Image 8 is the first that the sparse network gets wrong; zero radius keeps it quick.
    data = load_demo_images()
    wrong = int(load_demo_network().classify(data.point(8))[0])
    assert wrong != data.labels[8]
    data = DemoData(data.pixels[8:9], data.labels[8:9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bnncert.model.loading.load_demo_images", lambda: data)
        text = recorded(1, 0.0, "sparse")
    assert "misclassified" in text
    assert "0 robust, 0 not robust, 1 misclassified, 0 undecided of 1" in text
    assert "robust above" not in text


@pytest.mark.parametrize(
    ("count", "delta", "mentioned"),
    [(0, 0.25, "--count is 0"), (101, 0.25, "--count is 101"), (1, -1.0, "--radius is -1")],
)
def test_the_demo_refuses_what_it_cannot_do(count: int, delta: float, mentioned: str) -> None:
    with pytest.raises(InputError, match=mentioned):
        recorded(count, delta, "sparse")
