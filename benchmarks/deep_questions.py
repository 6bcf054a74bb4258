"""The questions of `benchmarks.deep`, part by part.

Networks are trained on first use with `bnncert train` (extra `train`) and kept in a folder.  A part
whose data are absent is left out with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import bnncert
from benchmarks import pb25

try:
    from bnncert.model.loading import load_demo_images, load_demo_network
except ImportError:
    # `--before` may name a version in which this module had another name.
    from bnncert.demo import load_demo_images, load_demo_network

#: Hidden layers of the trained networks with real and with binarised inputs.
REAL: tuple[tuple[int, ...], ...] = ((300,) * 3, (500,) * 3, (200,) * 4)
BINARISED, WIDE = (300,) * 3, (1024,) * 3

#: Share of zero weights, and epochs, of the training.
ZEROS, EPOCHS = 0.3, 8

#: One pixel level in input units, for data in [-1, 1].
PIXEL = 2 / 255

#: Radius in pixels from which on questions have the limit for large radii.
LARGE_RADIUS = 1.0


@dataclass(frozen=True)
class Source:
    """Where the data are, and how many questions are asked.

    Attributes
    ----------
    data
        The folder with mnist.npz and pb25.
    networks
        The folder of trained networks.
    images
        Images for each network and radius.
    deltas
        Radii of L-inf balls, in pixels.
    seconds, seconds_large
        Time limit of a question, and of one whose radius is large.
    """

    data: Path
    networks: Path
    images: int
    deltas: tuple[float, ...]
    seconds: float
    seconds_large: float

    def limit(self, delta: float) -> float:
        """Return the time limit for a radius in pixels."""
        return self.seconds if delta < LARGE_RADIUS else self.seconds_large


@dataclass(frozen=True)
class Question:
    """One network and region, and the answer if it is known."""

    group: str
    name: str
    network: bnncert.Network
    region: bnncert.Region | bnncert.Specification
    label: int | None
    seconds: float
    known: str | None = None
    rivals: str = "all"
    ties: str = "violation"


def pb25_questions(source: Source) -> Iterator[Question]:
    """Return balls just inside and at the smallest perturbation that changes the class."""
    folder = source.data / "pb25"
    if not folder.is_dir():
        print(f"pb25 is left out: {folder} does not exist")
        return
    for case in pb25.CASES:
        network, label = pb25.network(folder, case)
        for norm, optimum in zip(("l1", "l2", "linf"), case.optima, strict=True):
            for place, known in (("inside", "robust"), ("at", "not_robust")):
                size = optimum - 0.5 if place == "inside" else float(optimum)
                if norm == "l2":
                    # Squared norms of integer points are integers: no rounding decides.
                    size = (optimum + (0.5 if place == "at" else -0.5)) ** 0.5
                region = bnncert.Ball(norm, np.zeros(pb25.PIXELS), size, 0.0, 255.0)
                name = f"{case.network} {case.image} {norm} {place}"
                yield Question("pb25", name, network, region, label, source.seconds, known)


def trained(source: Source, hidden: tuple[int, ...], binarised: bool) -> Path | None:
    """Return the file of a trained network, after training it on first use."""
    kind = "binarised" if binarised else "real"
    path = source.networks / f"{kind}-{'-'.join(map(str, hidden))}.npz"
    if not path.exists():
        source.networks.mkdir(parents=True, exist_ok=True)
        try:
            bnncert.train(
                "mnist",
                out=path,
                data_dir=source.data,
                hidden=hidden,
                zeros=ZEROS,
                epochs=EPOCHS,
                binarise_input=binarised,
            )
        except bnncert.BnncertError as error:
            print(f"{path.name} is left out: it could not be trained ({error})")
            return None
    return path


def test_images(source: Source) -> tuple[np.ndarray, np.ndarray] | None:
    """Return test images as points in [-1, 1], and their labels."""
    file = source.data / "mnist.npz"
    if not file.exists():
        print(f"images are left out: {file} does not exist")
        return None
    with np.load(file) as data:
        pixels, labels = data["x_test"], data["y_test"]
    return pixels.reshape(len(pixels), -1) / 127.5 - 1.0, labels.astype(np.int64)


def correct(
    network: bnncert.Network, points: np.ndarray, labels: np.ndarray, count: int
) -> Iterator[tuple[int, np.ndarray, int]]:
    """Return the first images that the network classifies correctly."""
    some = slice(10 * count + 100)
    right = np.flatnonzero(network.classify(points[some]) == labels[some])
    for i in right[:count].tolist():
        yield i, points[i], int(labels[i])


def pixel_balls(
    name: str, network: bnncert.Network, points: np.ndarray, labels: np.ndarray, source: Source
) -> Iterator[Question]:
    """Return L-inf balls of some pixels around images."""
    for delta in source.deltas:
        for i, point, label in correct(network, points, labels, source.images):
            region = bnncert.Ball("linf", point, delta * PIXEL, -1.0, 1.0)
            group = f"{name} {delta:g} px"
            yield Question(group, f"image {i}", network, region, label, source.limit(delta))


def trained_questions(source: Source) -> Iterator[Question]:
    """Return balls around images for networks with real inputs and three or four hidden layers."""
    data = test_images(source)
    for hidden in REAL if data is not None else ():
        path = trained(source, hidden, False)
        if path is not None and data is not None:
            yield from pixel_balls(path.stem, bnncert.load(path), *data, source)


def bundled_questions(source: Source) -> Iterator[Question]:
    """Return balls around images for the two networks of the package."""
    data = load_demo_images()
    points = np.array([data.point(i) for i in range(len(data.labels))])
    for name in ("sparse", "dense"):
        yield from pixel_balls(name, load_demo_network(name), points, data.labels, source)


def flip_balls(
    name: str, network: bnncert.Network, points: np.ndarray, labels: np.ndarray, source: Source,
    budgets: Iterable[int],
) -> Iterator[Question]:  # fmt: skip
    """Return balls in which so many of the binarised inputs may flip.

    Around a point with coordinates -1 and +1 every flip costs 1 of the L1 radius.
    """
    signs = np.where(points >= 0, 1.0, -1.0)
    for flips in budgets:
        group = f"{name} {flips} flip{'s' if flips > 1 else ''}"
        for i, point, label in correct(network, signs, labels, source.images):
            region = bnncert.Ball("l1", point, flips + 0.5, -1.0, 1.0)
            yield Question(group, f"image {i}", network, region, label, source.seconds)


def flips_questions(source: Source) -> Iterator[Question]:
    """Return 1, 2 and 3 flips of binarised inputs."""
    data = test_images(source)
    path = None if data is None else trained(source, BINARISED, True)
    if data is not None and path is not None:
        yield from flip_balls(path.stem, bnncert.load(path), *data, source, (1, 2, 3))


def width_questions(source: Source) -> Iterator[Question]:
    """Return 1 and 2 flips for a wide network: random unless the folder has a trained one."""
    data = test_images(source)
    path = source.networks / f"binarised-{'-'.join(map(str, WIDE))}.npz"
    if data is not None and path.exists():
        yield from flip_balls(path.stem, bnncert.load(path), *data, source, (1, 2))
        return
    network = random_network(WIDE)
    points = np.random.default_rng(1).choice([-1.0, 1.0], (100 * source.images, 784))
    scores = np.sort(network.evaluate(points), axis=1)
    # With random weights most points are close to another class: take those with the best margins.
    points = points[np.argsort(scores[:, -2] - scores[:, -1])[: source.images]]
    labels = network.classify(points)
    yield from flip_balls("random-1024-1024-1024", network, points, labels, source, (1, 2))


def random_network(hidden: tuple[int, ...], inputs: int = 784) -> bnncert.Network:
    """Return a network with binarised inputs and random weights -1 and +1."""
    rng = np.random.default_rng(0)
    sizes = (inputs, *hidden, 10)
    weights = [np.eye(inputs)]
    weights += [rng.choice([-1.0, 1.0], (above, below)) for below, above in pairwise(sizes)]
    biases = [np.zeros(inputs), *(np.full(size, 0.5) for size in hidden), rng.uniform(-1, 1, 10)]
    return bnncert.Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)


PARTS: dict[str, Callable[[Source], Iterator[Question]]] = {
    "pb25": pb25_questions,
    "trained": trained_questions,
    "flips": flips_questions,
    "width": width_questions,
    "bundled": bundled_questions,
}
