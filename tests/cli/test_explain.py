"""`bnncert explain`: the answer, its files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.model.formats.images import read_png
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.questions.explain.explain import ExplanationSearch
from tests.cli.diamond import Run, read_json


def seconds_masked(text: str) -> str:
    return text.replace(text[text.index(", in ") : text.index(" s\n")], ", in TIME")


def test_an_explanation_with_its_files(run: Run, folder: Path) -> None:
    # Class 0 needs x0 >= |x1|: both inputs are needed in the data box [-2, 2].
    done = run("explain", "net.npz", "x.npy", "--certificate", "a.cert", "--json", "a.json")
    assert done.code == 0, done.err
    lines = seconds_masked(done.out).splitlines()
    assert lines[1:4] == [
        "2 of 2 inputs suffice for class 0, and each of them is needed, in TIME s",
        "kept inputs: 0, 1",
        "other inputs: in [-2, 2]",
    ]
    checked = run("check", "a.cert", "--model", "net.npz")
    assert checked.code == 0
    assert "with all 2 inputs as in the image, the class is 0; each of the 2 is needed" in (
        checked.out
    )
    tree = json.loads(Path("a.json").read_text("utf-8"))
    assert (tree["kept"], tree["needed"], tree["open"], tree["minimal"]) == (
        [0, 1],
        [0, 1],
        [],
        True,
    )
    assert tree["certificate"] == "a.cert"
    assert tree["domain"] == "in [-2, 2]"
    for name, witness in tree["witnesses"].items():
        assert witness["changed"] == [int(name)]
        assert witness["predicted"] != 0


def test_a_radius(run: Run, folder: Path) -> None:
    done = run("explain", "net.npz", "x.npy", "--radius", "0.25")
    assert "class 0 for all values of all 2 inputs in their domain" in done.out
    done = run("explain", "net.npz", "x.npy", "--radius", "0.75", "-v")
    assert "1 of 2 inputs suffices for class 0, and it is needed" in done.out
    assert "other inputs: within 0.75 of the image and in [-2, 2]" in done.out
    assert "free inputs  of them new" in done.out


def test_quiet_prints_only_the_answer(run: Run, folder: Path) -> None:
    done = run("explain", "net.npz", "x.npy", "-q")
    assert len(done.out.splitlines()) == 1
    assert done.out.startswith("2 of 2 inputs suffice")


def test_pictures(run: Run, folder: Path) -> None:
    # Class 1 if the middle row of a 3 x 3 image is bright.
    row = np.array([[0, 0, 0, 1, 1, 1, 0, 0, 0]])
    net = bnncert.Network.from_arrays(
        [row, [[-1], [1]]], [[-2.5], [0, 0]], input_lo=0, input_hi=1, input_shape=[3, 3]
    )
    net.save("row.npz")
    np.save("row.npy", np.array([[0, 1, 0], [1, 1, 1], [0, 0, 1.0]]))
    asked = ("explain", "row.npz", "row.npy", "--grid", "1")
    assert run(*asked, "--picture", "row.png").code == 0
    read = read_png(Path("row.png").read_bytes(), Path("row.png"))
    assert read is not None
    pixels = read[0]
    side = pixels.shape[0] // 3
    small = pixels[side // 2 :: side, side // 2 :: side].astype(int)
    # The image, the kept inputs, the nearest witness, and what it changes.
    assert small.shape == (3, 12, 3)
    # Marked pixels are orange, the others grey.
    is_grey = (small[..., 0] == small[..., 1]) & (small[..., 1] == small[..., 2])
    assert is_grey[:, :6].tolist() == [[True] * 6, [True] * 3 + [False] * 3, [True] * 6]
    assert run(*asked, "--picture", "row.html").code == 0
    page = Path("row.html").read_text("utf-8")
    assert page.count("<img ") == 4
    assert "3 of 9 inputs suffice for class 1" in page
    done = run(*asked, "--picture", "-")
    # The image and the kept inputs have the same bright row.
    assert ["@@@@@@", "@@@@@@"] in [line.split() for line in done.out.splitlines()]
    assert "other inputs: in [0, 1], grid of step 1 from 0" in done.out


def bright_rows(shape: list[int]) -> bnncert.Network:
    """Class 1 if the upper left quarter of a 4 x 4 image is bright enough, in all channels."""
    channels = int(np.prod(shape)) // 16
    quarter = np.zeros((4, 4))
    quarter[:2, :2] = 1
    last = shape[-1] == channels
    row = np.stack([quarter] * channels, axis=-1 if last and len(shape) == 3 else 0).reshape(1, -1)
    return bnncert.Network.from_arrays(
        [row, [[-1], [1]]],
        [[0.5 - 4 * channels], [0, 0]],
        input_lo=0,
        input_hi=1,
        input_shape=shape,
    )


@pytest.mark.parametrize("shape", [[16], [4, 4], [1, 4, 4], [4, 4, 1], [3, 4, 4], [4, 4, 3], [48]])
def test_blocks_of_pixels(run: Run, folder: Path, shape: list[int]) -> None:
    """The upper left block alone counts, with all its channels."""
    net = bright_rows(shape)
    net.save("net.npz")
    np.save("x.npy", np.ones(net.inputs).reshape(shape))
    asked = ("explain", "net.npz", "x.npy", "--grid", "1", "--blocks", "2")
    done = run(*asked, "--json", "a.json", "--certificate", "c.bnncert", "--picture", "p.html")
    assert done.code == 0
    assert "1 of 4 blocks of 2 x 2 pixels suffices for class 1, and it is needed" in done.out
    assert "kept blocks (row,column from 0): (0,0)" in done.out
    found = read_json(folder / "a.json")
    assert (found["kept_blocks"], found["needed"], found["open"]) == ([0], [0], [])
    assert len(found["kept"]) == net.inputs // 4
    assert np.all(net.layers[0].weights.toarray()[0, found["kept"]] == 1)
    page = Path("p.html").read_text("utf-8")
    assert page.count("<img ") == 4
    assert "1 kept blocks" in page and "class 0 with block (0,0) free" in page
    checked = run("check", "c.bnncert", "--model", "net.npz")
    assert checked.code == 0
    assert "with 1 of 4 blocks of 2 x 2 pixels (inputs " in checked.out
    assert "; this block is needed" in checked.out


def test_blocks_at_the_border_are_smaller(run: Run, folder: Path) -> None:
    bright_rows([4, 4]).save("net.npz")
    np.save("x.npy", np.ones((4, 4)))
    done = run("explain", "net.npz", "x.npy", "--grid", "1", "--blocks", "3", "--picture", "p.png")
    assert "1 of 4 blocks of 3 x 3 pixels suffices for class 1" in done.out
    assert "what changed" in done.out
    read = read_png(Path("p.png").read_bytes(), Path("p.png"))
    assert read is not None
    pixels = read[0]
    side = pixels.shape[0] // 4
    small = pixels[side // 2 :: side, side // 2 :: side].astype(int)
    assert small.shape == (4, 16, 3)
    # The second picture has the block of 3 x 3 pixels in orange; the third one is a dark pixel.
    is_grey = small[..., 0] == small[..., 2]
    assert (~is_grey[:, 4:8]).sum() == 9 and not is_grey[:3, 4:7].any()
    assert (small[:, 8:12, 0] == 0).sum() >= 1


REFUSED = {
    "blocks of nothing": (("x.npy", "--blocks", "0"), "blocks is 0; expected a whole number"),
    "blocks of two numbers": (("x.npy", "--blocks", "2"), "(2,) are not an image, which has"),
    "blocks in words": (("x.npy", "--blocks", "four"), "--blocks"),
    "no image": ((), "--input is missing; give the image that is to be explained"),
    "another class": (("x.npy", "--label", "1"), "x.npy: the image does not have class 1: the"),
    "no such class": (("x.npy", "--label", "7"), "label is 7; the network has classes 0 to 2"),
    "a tie": (("tie.npy", "--label", "1"), "tie.npy: the image has no class to explain: classes"),
    "outside": (("far.npy",), "far.npy: the image is not in the data box: input 0"),
    "off the grid": (("off.npy", "--grid", "1"), "input 0 = 0.25 is not a value of the grid"),
    "negative radius": (("x.npy", "--radius", "-1"), "--radius is '-1'"),
    "no seconds": (("x.npy", "--question-timeout", "0"), "question timeout is 0.0; expected"),
    "a picture of two numbers": (("x.npy", "--picture", "p.png"), "are not an image"),
    "an unknown picture": (
        ("x.npy", "--picture", "p.gif"),
        "suffix '.gif'; expected .png or .html",
    ),
    "the network's file": (("x.npy", "--certificate", "net.npz"), "net.npz: cannot be written"),
    "a norm": (("x.npy", "--norm", "l2"), "No such option"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line(run: Run, folder: Path, name: str) -> None:
    np.save("tie.npy", np.array([0.0, -1.0]))
    np.save("far.npy", np.array([5.0, 0.0]))
    np.save("off.npy", np.array([0.25, 0.0]))
    arguments, message = REFUSED[name]
    model = "tied.npz" if name == "a tie" else "net.npz"
    done = run("explain", model, *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_network_without_a_data_box(run: Run, folder: Path) -> None:
    weights = [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]]
    bnncert.Network.from_arrays(weights, [[0, 0]] * 2).save("open.npz")
    done = run("explain", "open.npz", "x.npy")
    assert done.code == 2
    assert "the network states no data box; give a radius or a data box" in done.err
    assert run("explain", "open.npz", "x.npy", "--clip", "-1", "1").code == 0
    assert run("explain", "open.npz", "x.npy", "--radius", "2").code == 0


def test_a_single_score_is_refused(run: Run, folder: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1]]], [[0], [0]], input_lo=-1, input_hi=1)
    net.save("one.npz")
    done = run("explain", "one.npz", "x.npy")
    assert done.code == 2
    assert "the network has a single score; classification needs at least two" in done.err


def test_ctrl_c_leaves_a_sufficient_set(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(search: ExplanationSearch, order: object) -> None:
        raise KeyboardInterrupt

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(ExplanationSearch, "_grow", stop)
    monkeypatch.setattr("os._exit", leave)
    done = run("explain", "net.npz", "x.npy", "--json", "a.json", "--certificate", "a.cert")
    assert done.code == 130
    assert "inputs suffice for class 0" in done.out
    assert "interrupted after" in done.out
    assert json.loads(Path("a.json").read_text("utf-8"))["kept"] == [0, 1]
    assert run("check", "a.cert", "--model", "net.npz").code == 0
    with pytest.raises(Interrupted) as stopped:
        bnncert.explain(bnncert.load("net.npz"), [1.0, 0.0])
    assert stopped.value.answer.kept == (0, 1)


def test_the_time_limit_leaves_a_sufficient_set(run: Run, folder: Path) -> None:
    net, images = load_demo_network(), load_demo_images()
    found = bnncert.explain(net, images.point(0), timeout=0.5)
    assert found.seconds < 10
    assert found.label == 7
    assert not found.minimal
    free = ~found.mask
    region = found.domain.region(free)
    points = region.sample(np.random.default_rng(0), 50)
    assert np.all(net.classify(points) == 7)


def test_the_command_explains_the_network_and_not_the_label(run: Run, folder: Path) -> None:
    # The bundled image 8 is a 5, and the network says 6.
    done = run("explain", "demo:sparse", "demo:8", "--radius", "0.01px", "--method", "interval")
    assert "label 6 (the network's own answer)" in done.out
    assert "class 6 for all values of all 784 inputs in their domain" in done.out
    done = run("explain", "demo:sparse", "demo:8", "--radius", "0.01px", "--label", "5")
    assert done.code == 2
    assert "the image does not have class 5: the network gives it class 6" in done.err
