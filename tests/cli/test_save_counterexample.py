"""`verify --save-counterexample`: pictures and points that other programs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bnncert
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.report.picture import CounterexampleFile
from tests.cli.diamond import Run, assert_one_line, read_json

FALSE = ("net.npz", "--input", "x.npy", "--label", "0", "--radius", "0.75")


def test_a_saved_point_is_the_counterexample(folder: Path, run: Run) -> None:
    answer = run("verify", *FALSE, "--save-counterexample", "c.npy", "--json", "out.json")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.splitlines()[-1] == "counterexample: c.npy (2 numbers)"
    point = np.load(folder / "c.npy")
    assert point.tolist() == read_json(folder / "out.json")["counterexample"]["input"]
    # It can be asked about again.
    again = ("--input", "c.npy", "--label", "0", "--radius", "0", "--json", "again.json")
    assert run("verify", "net.npz", *again).code == 1
    assert read_json(folder / "again.json")["misclassified"]


def test_without_a_counterexample_nothing_is_written(folder: Path, run: Run) -> None:
    arguments = (*FALSE[:-1], "0.25", "--save-counterexample", "c.npy")
    answer = run("verify", *arguments)
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "c.npy is not written: there is no counterexample"
    assert not (folder / "c.npy").exists()


def test_the_counterexample_of_a_query_is_a_point(folder: Path, run: Run) -> None:
    box = "(assert (>= X_0 -1))(assert (<= X_0 1))(assert (>= X_1 -1))(assert (<= X_1 1))"
    declared = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1", "Y_2"))
    (folder / "q.vnnlib").write_text(f"{declared}{box}(assert (<= Y_0 Y_1))")
    query = ("net.npz", "q.vnnlib", "--save-counterexample")
    assert run("verify", *query, "c.npy").code == 1
    scores = bnncert.load(folder / "net.npz").evaluate(np.load(folder / "c.npy")[None])[0]
    assert scores[0] <= scores[1]
    assert_one_line(run("verify", *query, "c.png"), "c.png", "which a query does not state")


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("c.jpg", ("c.jpg", "'.jpg'", "expected .png (picture) or .npy (point)")),
        ("c", ("c: suffix ''",)),
        ("c.png", ("c.png", "shape (2,) are not an image")),
        ("no/c.npy", ("no/c.npy", "cannot be written")),
        ("x.npy", ("x.npy", "this command reads it")),
    ],
)
def test_bad_names_are_refused_before_the_work(
    folder: Path, run: Run, name: str, mentioned: tuple[str, ...]
) -> None:
    answer = run("verify", *FALSE, "--save-counterexample", name)
    assert_one_line(answer, *mentioned)
    assert answer.out == ""


def square_network(folder: Path, **box: float) -> np.ndarray:
    """Write a network that reads 4 x 4 pixels and answers 1 iff the sum is above 40 levels."""
    network = bnncert.Network.from_arrays(
        [np.ones((1, 16)), np.array([[-1], [1]])], [np.array([-39.5]), np.zeros(2)], **box
    )
    network.save(folder / "square.npz")
    pixels = np.arange(16, dtype=np.float64) % 4
    np.save(folder / "pixels.npy", pixels)
    return pixels


def test_a_picture_shows_original_counterexample_and_difference(folder: Path, run: Run) -> None:
    pixels = square_network(folder, input_lo=0.0, input_hi=255.0)
    question = ("square.npz", "--input", "pixels.npy", "--radius", "3")
    answer = run("verify", *question, "--save-counterexample", "c.png", "--json", "out.json")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.splitlines()[-1].startswith(
        "counterexample: c.png (original, counterexample, difference; its pixels are "
    )
    with Image.open(folder / "c.png") as image:
        assert (image.mode, image.size) == ("L", (12, 4))
        shown = np.asarray(image)
    point = np.array(read_json(folder / "out.json")["counterexample"]["input"])
    assert shown[:, :4].ravel().tolist() == pixels.tolist()
    assert shown[:, 4:8].ravel().tolist() == np.rint(point).tolist()
    change = point - pixels
    # The largest change has the full range; no change is a middle grey.
    assert np.array_equal(
        shown[:, 8:].ravel(), np.rint(128 + 127 * change / np.abs(change).max()).astype(int)
    )


def test_a_picture_needs_a_data_box(folder: Path, run: Run) -> None:
    square_network(folder)
    question = ("square.npz", "--input", "pixels.npy", "--radius", "3")
    line = ("c.png", "a picture needs the range of the inputs", "--clip")
    assert_one_line(run("verify", *question, "--save-counterexample", "c.png"), *line)
    scaled = (*question, "--clip", "0", "255", "--save-counterexample", "c.png")
    assert run("verify", *scaled).code == 1
    assert (folder / "c.png").exists()


def test_whole_pixels_of_a_scaled_network_are_the_pixels_of_the_picture() -> None:
    original = load_demo_images().point(0)
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, 784)
    # As the network gets them: float32 values between the ends of the data box.
    point = (-1 + 2 * levels / 255.0).astype(np.float32).astype(np.float64)
    file = CounterexampleFile(
        Path("c.png"), (1, 28, 28), original, np.full(784, -1.0), np.full(784, 1.0)
    )
    pixels, exact = file.picture(point)
    assert exact
    assert pixels.shape == (28, 84)
    assert np.array_equal(pixels[:, 28:56].ravel(), levels)
    assert not file.picture(point + 1e-3)[1]


def test_colours_have_their_own_scales() -> None:
    # Channels first, as normalised with a mean and a deviation of each channel.
    lo = np.repeat([-1.0, -2.0, 0.0], 4)
    hi = np.repeat([1.0, 3.0, 255.0], 4)
    levels = np.arange(12)
    point = lo + (hi - lo) * levels / 255
    file = CounterexampleFile(Path("c.png"), (3, 2, 2), lo, lo, hi)
    pixels, exact = file.picture(point)
    assert exact
    assert pixels.shape == (2, 6, 3)
    assert not pixels[:, :2].any()
    assert np.array_equal(np.moveaxis(pixels[:, 2:4], -1, 0).ravel(), levels)


def test_the_model_misclassifies_the_pixels_of_the_picture_in_onnxruntime(
    folder: Path, run: Run
) -> None:
    """The picture is all that another program needs: 8-bit pixels and the scale of the model."""
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra 'replay'")
    pytest.importorskip("onnx", reason="needs the package onnx")
    load_demo_network("sparse").save(folder / "model.onnx")
    images, index = load_demo_images(), 38
    np.save(folder / "image.npy", images.pixels[index])
    label = int(images.labels[index])
    question = ("model.onnx", "--input", "image.npy", "--label", str(label), "--radius", "1px")
    answer = run("verify", *question, "--grid", "1px", "--save-counterexample", "c.png")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.splitlines()[-1].endswith("its pixels are exact)")
    with Image.open(folder / "c.png") as picture:
        assert (picture.mode, picture.size) == ("L", (84, 28))
        shown = np.asarray(picture)
    assert shown.dtype == np.uint8
    original, found = shown[:, :28], shown[:, 28:56]
    assert np.array_equal(original.ravel(), images.pixels[index].ravel())
    assert np.abs(original.astype(int) - found.astype(int)).max() == 1
    session = runtime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    (entry,) = session.get_inputs()
    dtype = np.float64 if "double" in entry.type else np.float32
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in entry.shape]

    def classify(pixels: np.ndarray) -> int:
        values = (-1 + pixels.astype(np.float64) / 127.5).astype(np.float32).astype(dtype)
        return int(np.argmax(session.run(None, {entry.name: values.reshape(shape)})[0]))

    assert classify(original) == label
    assert classify(found) != label


@pytest.mark.parametrize("shape", [(60,), (3, 4, 5), (4, 5, 3)], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_an_image_file_keeps_its_shape_and_colours(
    folder: Path, run: Run, shape: tuple[int, ...], mode: str
) -> None:
    """Class 0 wins if the sum of all inputs is not below a limit, which one pixel step crosses."""
    pixels = np.random.default_rng(2).integers(60, 200, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save("image.png")
    if mode == "L":
        pixels = np.repeat(np.asarray(Image.open("image.png"))[..., None], 3, axis=2)
    weights = [np.ones((1, 60)), np.array([[1.0], [-1.0]])]
    biases = [np.array([10.5 - pixels.sum()]), np.zeros(2)]
    arrays = {f"W{k}": w for k, w in enumerate(weights)}
    arrays |= {f"b{k}": b for k, b in enumerate(biases)}
    box = {"input_lo": np.array(0.0), "input_hi": np.array(255.0), "pixel_step": np.array(1.0)}
    np.savez(folder / "rgb.npz", **arrays, **box, input_shape=np.array(shape))
    answer = run(
        *("verify", "rgb.npz", "image.png", "--radius", "2px", "--grid", "1px"),
        *("--save-counterexample", "c.png"),
    )
    assert (answer.code, answer.err) == (1, "")
    assert "its pixels are exact" in answer.out.splitlines()[-1]
    picture = np.asarray(Image.open("c.png"))
    assert picture.shape == (4, 15, 3)
    original, found, change = np.split(picture, 3, axis=1)
    np.testing.assert_array_equal(original, pixels)
    moved = found.astype(int) - pixels.astype(int)
    assert -120 <= moved.sum() <= -11 and np.abs(moved).max() <= 2
    # The difference is amplified: its largest change has the full range around a middle grey.
    wanted = np.clip(np.rint(128 + 127 * moved / np.abs(moved).max()), 0, 255)
    np.testing.assert_array_equal(change, wanted)


def test_a_grey_image_that_is_not_square(folder: Path, run: Run) -> None:
    pixels = np.full((2, 7), 100, dtype=np.uint8)
    Image.fromarray(pixels).save("image.png")
    layers = {"W0": np.ones((1, 14)), "b0": np.array([-1399.5])}
    layers |= {"W1": np.array([[1.0], [-1.0]]), "b1": np.zeros(2)}
    np.savez(folder / "flat.npz", **layers, input_lo=np.array(0.0), input_hi=np.array(255.0))
    asked = ("verify", "flat.npz", "image.png", "--radius", "1", "--grid", "1")
    assert run(*asked, "--save-counterexample", "c.png").code == 1
    picture = np.asarray(Image.open("c.png"))
    assert picture.shape == (2, 21)
    np.testing.assert_array_equal(picture[:, :7], pixels)
