"""The questions of other verifiers, with their answers and seconds, for `benchmarks.peers`.

Sets `mnist-s-0.1`, `mnist-s-0.3`, `mnist-l-0.1`, `cifar-s-2` (EEV's own networks), `marabou` (its
network `mlp`), `mlp` and `small03` (made with EEV's trainer; `mlp-levels` and `small03-levels` on
integer inputs), `pb25`, `vnncomp`, `bundled` and
`deep`.  A set whose files are absent is left out with a message.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import bnncert
from benchmarks import deep_questions
from benchmarks.deep_questions import Question, Source
from bnncert.extras.vnncomp.category import read_instances

#: Radii of EEV's own networks, and the time limit of a question.
EEV = {"mnist-s-0.1": 0.1, "mnist-s-0.3": 0.3, "mnist-l-0.1": 0.1, "cifar-s-2": 2 / 255}
SECONDS = 10.0

#: To multiples of this the networks of EEV's trainer round their inputs.
STEPS = {"mlp": 0.1, "small03": 0.61}

#: Correctly classified images of EEV's networks, and of each bundled and deep network and radius.
IMAGES, OWN_IMAGES = 100, 10

#: Time limits of the sets without recorded times, and their radii in pixels.
PB25_SECONDS, VNNCOMP_SECONDS, OWN_SECONDS = 60.0, 20.0, 60.0
OWN_RADII = (0.25, 0.5)

#: Our words for the answers of the others.
WORDS = {"1": "robust", "0": "not_robust", "unsat": "robust", "sat": "not_robust"}


@dataclass(frozen=True)
class Peer:
    """A question that somebody else has been asked, and the seconds that it took there.

    `theirs` is None where no time is recorded; a question without an answer took its limit.
    """

    question: Question
    theirs: float | None = None


@dataclass(frozen=True)
class Place:
    """Where the files are, and how many images are asked (None: each set's own number)."""

    data: Path
    networks: Path
    images: int | None

    def own(self, seconds: float) -> Source:
        """Return the source of the questions that `benchmarks.deep` asks, too."""
        images = self.images or OWN_IMAGES
        return Source(self.data, self.networks, images, OWN_RADII, seconds, seconds)


def eev(name: str, place: Place) -> Iterator[Peer]:
    """Return the balls of one of EEV's own networks around its first correct images."""
    folder = place.data / "peers" / "eev"
    images = "cifar10_subset" if name.startswith("cifar") else "mnist"
    points, labels = unit_images(place.data, images)
    network = bnncert.load(folder / f"{name}.npz")
    rows = rows_of(folder / f"{name}.csv")
    right = network.classify(points[: len(rows)]) == labels[: len(rows)]
    correct = [row for row in rows if right[int(row["image"])]]
    for row in correct[: place.images or IMAGES]:
        i = int(row["image"])
        region = bnncert.Ball("linf", points[i], EEV[name], 0.0, 1.0)
        known = WORDS[row["robust"]]
        question = Question(name, f"image {i}", network, region, int(labels[i]), SECONDS, known)
        yield Peer(question, float(row["eev_seconds"]))


def marabou(place: Place) -> Iterator[Peer]:
    """Return Marabou's questions: the runner-up alone, and a tie is a violation."""
    folder = place.data / "peers" / "marabou"
    points, labels = unit_images(place.data, "mnist")
    network = bnncert.load(folder / "mlp.npz")
    asked: Counter[str] = Counter()
    for row in rows_of(folder / "mlp.csv"):
        i, radius = int(row["image"]), row["delta_px"]
        asked[radius] += 1
        if place.images is not None and asked[radius] > place.images:
            continue
        region = bnncert.Ball("linf", points[i], float(radius) / 255, 0.0, 1.0)
        known, name = WORDS.get(row["marabou"]), f"image {i}, {radius} px"
        question = Question("marabou", name, network, region, int(labels[i]), SECONDS, known)
        yield Peer(replace(question, rivals="runner-up"), float(row["seconds"]))


def eev_trained(name: str, place: Place, levels: bool = False) -> Iterator[Peer]:
    """Return the questions about a network of EEV's trainer: ties are no violations.

    With `levels` its inputs are the integers round(x / step).  Halves are rounded to even ones
    there, and up by the network of signs: an input half way between two levels, as 0 + 0.05 is for
    the step 0.1, differs.
    """
    folder = place.data / "peers" / "eev-trained"
    points, _ = unit_images(place.data, "mnist")
    network = bnncert.load(folder / f"{name}_{'levels' if levels else 'signs'}.npz")
    asked: Counter[str] = Counter()
    for row in rows_of(folder / "queries.csv"):
        i, radius = int(row["image"]), row["eps"]
        if row["net"] != name:
            continue
        asked[radius] += 1
        if place.images is not None and asked[radius] > place.images:
            continue
        region: bnncert.Region = bnncert.Ball("linf", points[i], float(radius), 0.0, 1.0)
        if levels:
            lo, hi = np.rint(region.lo / STEPS[name]), np.rint(region.hi / STEPS[name])
            region = bnncert.Box(lo, hi, grid=bnncert.Grid(1, 0))
        known = row["eev"] if row["eev"] != "open" else None
        form = ", levels" if levels else ""
        group, label = f"{name} {radius}{form}", int(row["label"])
        question = Question(group, f"image {i}", network, region, label, SECONDS, known)
        yield Peer(replace(question, ties="robust"), float(row["cpu_s"]))


def pb25(place: Place) -> Iterator[Peer]:
    """Return the balls of the pseudo-Boolean competition 2025, whose optima Exact has proved."""
    yield from map(Peer, deep_questions.pb25_questions(place.own(PB25_SECONDS)))


def bundled(place: Place) -> Iterator[Peer]:
    """Return balls around images for the networks of the package."""
    yield from map(Peer, deep_questions.bundled_questions(place.own(OWN_SECONDS)))


def deep(place: Place) -> Iterator[Peer]:
    """Return balls around images for trained networks with three and four hidden layers."""
    yield from map(Peer, deep_questions.trained_questions(place.own(OWN_SECONDS)))


def vnncomp(place: Place) -> Iterator[Peer]:
    """Return the queries of VNN-COMP 2023, traffic_signs_recognition."""
    file = place.data / "vnncomp2023" / "instances.csv"
    models: dict[Path, bnncert.Network] = {}
    for instance in read_instances(file)[: place.images]:
        if instance.model not in models:
            models = {instance.model: bnncert.load(instance.model)}
        network, query = models[instance.model], bnncert.read_vnnlib(instance.query)
        name = Path(instance.vnnlib).name.split(".vnnlib")[0]
        yield Peer(Question("vnncomp", name, network, query, None, VNNCOMP_SECONDS))


def unit_images(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return test images as points in [0, 1], and their labels."""
    with np.load(data / f"{name}.npz") as file:
        pixels, labels = file["x_test"], file["y_test"]
    return pixels.reshape(len(pixels), -1) / 255.0, labels.astype(np.int64)


def rows_of(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by their heads."""
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


SETS: dict[str, Callable[[Place], Iterator[Peer]]] = {
    **{name: partial(eev, name) for name in EEV},
    "marabou": marabou,
    **{name: partial(eev_trained, name) for name in STEPS},
    **{f"{name}-levels": partial(eev_trained, name, levels=True) for name in STEPS},
    "pb25": pb25,
    "vnncomp": vnncomp,
    "bundled": bundled,
    "deep": deep,
}

#: Names of several sets.
FAMILIES = {
    "eev": tuple(EEV),
    "eev-trained": ("mlp", "small03"),
    "peers": (*EEV, "marabou", "mlp", "small03"),
    "all": tuple(SETS),
}
