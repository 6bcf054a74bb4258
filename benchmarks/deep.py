"""Deep networks: what is decided, how soon, and whether proved optima agree.

    python benchmarks/deep.py [--parts pb25,trained,flips,width,bundled,speed] [--data DIR]
                              [--networks DIR] [--images 10] [--seconds 60] [--processes 0]
                              [--method auto] [--before SRC] [--exact SECONDS] [--only TEXT]

Parts:

* `pb25`: three images, L1, L2 and L-inf balls just inside the smallest perturbation that changes
  the class, and at it, as somebody else has proved it.  DIR/pb25 has the networks and images.
* `trained`: networks with 3 and 4 hidden layers and real inputs, balls of 0.25, 0.5 and 1 pixel.
* `flips`: binarised inputs of which 1, 2 or 3 flip.
* `width`: 784-1024-1024-1024-10, binarised inputs of which 1 or 2 flip; random weights unless the
  folder of networks has a trained one.
* `bundled`: the two networks that come with the package, 0.25, 0.5 and 1 pixel.
* `speed`: nodes and patterns per second of processor time, by engine.

Networks are trained on first use (extra `train`) into the folder that `--networks` names; DIR also
has mnist.npz.  A part whose data are absent is left out with a message.  `--before` runs the parts
`trained` and `bundled` with the package of another checkout, too; SRC is its folder `src`.
`--exact` gives the questions of `pb25` to the pseudo-Boolean solver Exact (package `exact`), with
that limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import bnncert

try:
    from bnncert.bundled import load_demo_images, load_demo_network
except ImportError:
    # `--before` may name a version in which this module had another name.
    from bnncert.demo import load_demo_images, load_demo_network

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import pb25, pseudo_boolean

DECIDED = ("robust", "not_robust")

#: Hidden layers of the trained networks, and the share of their zero weights and the epochs.
REAL, BINARISED, WIDE = ((300,) * 3, (200,) * 4), (300,) * 3, (1024,) * 3
ZEROS, EPOCHS = 0.3, 8

#: Half of what one pixel level is in input units, for data in [-1, 1].
PIXEL = 2 / 255


@dataclass(frozen=True)
class Question:
    """One network and region, and the answer if it is known."""

    group: str
    name: str
    network: bnncert.Network
    region: bnncert.Region
    label: int
    known: str | None = None


@dataclass(frozen=True)
class Answer:
    """What one run said about a question."""

    group: str
    name: str
    status: str
    seconds: float
    processor: float
    stage: str
    nodes: int
    patterns: int
    known: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether the answer contradicts the known one."""
        return self.known is not None and self.status in DECIDED and self.status != self.known


def ask(question: Question, arguments: argparse.Namespace) -> Answer:
    """Verify one question."""
    started, processor = time.monotonic(), time.process_time()
    result = bnncert.verify(
        question.network,
        question.region,
        question.label,
        method=arguments.method,
        timeout=arguments.seconds,
        options=bnncert.Options(processes=arguments.processes),
    )
    seconds = time.monotonic() - started
    # Targets of one search share its counts.
    counts = [t.details for t in result.targets]
    return Answer(
        question.group,
        question.name,
        result.status,
        seconds,
        time.process_time() - processor,
        "+".join(sorted({t.stage for t in result.targets if t.status in DECIDED})),
        max((int(c.get("nodes", 0)) for c in counts), default=0),
        max((int(c.get("patterns", 0)) for c in counts), default=0),
        question.known,
    )


# -- questions -------------------------------------------------------------------------------------


def pb25_questions(arguments: argparse.Namespace) -> Iterator[Question]:
    folder = arguments.data / "pb25"
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
                yield Question("pb25", name, network, region, label, known)


def trained(arguments: argparse.Namespace, hidden: tuple[int, ...], binarised: bool) -> Path | None:
    """Return the file of a trained network, after training it on first use."""
    kind = "binarised" if binarised else "real"
    path: Path = arguments.networks / f"{kind}-{'-'.join(map(str, hidden))}.npz"
    if not path.exists():
        arguments.networks.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bnncert", "train", "--data", "mnist"]
        command += ["--data-dir", str(arguments.data), "--hidden", ",".join(map(str, hidden))]
        command += ["--zeros", str(ZEROS), "--epochs", str(EPOCHS), "--out", str(path)]
        command += ["--binarise-input"] if binarised else []
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            print(f"{path.name} is left out: it does not exist and could not be trained")
            return None
    return path


def images(arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray] | None:
    """Return test images as points in [-1, 1], and their labels."""
    file = arguments.data / "mnist.npz"
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
    right = np.flatnonzero(
        network.classify(points[: 10 * count + 100]) == labels[: 10 * count + 100]
    )
    for i in right[:count].tolist():
        yield i, points[i], int(labels[i])


def trained_questions(arguments: argparse.Namespace) -> Iterator[Question]:
    data = images(arguments)
    for hidden in REAL if data is not None else ():
        path = trained(arguments, hidden, False)
        if path is None or data is None:
            continue
        network = bnncert.load(path)
        for delta in arguments.deltas:
            for i, point, label in correct(network, *data, arguments.images):
                region = bnncert.Ball("linf", point, delta * PIXEL, -1.0, 1.0)
                yield Question(f"{path.stem} {delta} px", f"image {i}", network, region, label)


def flip_questions(
    group: str, network: bnncert.Network, points: np.ndarray, labels: np.ndarray,
    arguments: argparse.Namespace, budgets: Iterable[int],
) -> Iterator[Question]:  # fmt: skip
    """Return balls in which so many of the binarised inputs may flip.

    Around a point with coordinates -1 and +1 every flip costs 1 of the L1 radius.
    """
    signs = np.where(points >= 0, 1.0, -1.0)
    for flips in budgets:
        for i, point, label in correct(network, signs, labels, arguments.images):
            region = bnncert.Ball("l1", point, flips + 0.5, -1.0, 1.0)
            yield Question(f"{group} {flips} flips", f"image {i}", network, region, label)


def flips_questions(arguments: argparse.Namespace) -> Iterator[Question]:
    data = images(arguments)
    path = None if data is None else trained(arguments, BINARISED, True)
    if data is not None and path is not None:
        yield from flip_questions(path.stem, bnncert.load(path), *data, arguments, (1, 2, 3))


def width_questions(arguments: argparse.Namespace) -> Iterator[Question]:
    data = images(arguments)
    path = arguments.networks / f"binarised-{'-'.join(map(str, WIDE))}.npz"
    if data is not None and path.exists():
        yield from flip_questions(path.stem, bnncert.load(path), *data, arguments, (1, 2))
    network = random_network(WIDE)
    points = np.random.default_rng(1).choice([-1.0, 1.0], (100 * arguments.images, 784))
    scores = np.sort(network.evaluate(points), axis=1)
    # With random weights most points are close to another class: take those with the best margins.
    points = points[np.argsort(scores[:, -2] - scores[:, -1])[: arguments.images]]
    labels = network.classify(points)
    yield from flip_questions("random-1024-1024-1024", network, points, labels, arguments, (1, 2))


def random_network(hidden: tuple[int, ...]) -> bnncert.Network:
    """Return a network with binarised inputs and random weights -1 and +1."""
    rng = np.random.default_rng(0)
    sizes = (784, *hidden, 10)
    weights = [np.eye(784)]
    weights += [rng.choice([-1.0, 1.0], (above, below)) for below, above in pairwise(sizes)]
    biases = [np.zeros(784), *(np.full(size, 0.5) for size in hidden), rng.uniform(-1, 1, 10)]
    return bnncert.Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)


def bundled_questions(arguments: argparse.Namespace) -> Iterator[Question]:
    data = load_demo_images()
    points = np.array([data.point(i) for i in range(len(data.labels))])
    for name in ("sparse", "dense"):
        network = load_demo_network(name)
        for delta in arguments.deltas:
            for i, point, label in correct(network, points, data.labels, arguments.images):
                region = bnncert.Ball("linf", point, delta * PIXEL, -1.0, 1.0)
                yield Question(f"{name} {delta} px", f"image {i}", network, region, label)


PARTS = {
    "pb25": pb25_questions,
    "trained": trained_questions,
    "flips": flips_questions,
    "width": width_questions,
    "bundled": bundled_questions,
}

#: Parts that another checkout answers, too.
COMPARED = ("trained", "bundled")


# -- runs ------------------------------------------------------------------------------------------


def answers_of(part: str, arguments: argparse.Namespace) -> Iterator[Answer]:
    """Answer the questions of one part, one line each."""
    for question in PARTS[part](arguments):
        if arguments.only not in f"{question.group} {question.name}":
            continue
        answer = ask(question, arguments)
        yield answer
        if arguments.exact and part == "pb25":
            yield exact_answer(question, arguments.exact)


def exact_answer(question: Question, seconds: float) -> Answer:
    """Give the same question to Exact, in a process of its own."""
    constraints = pseudo_boolean.encode(question.network, question.region, question.label)
    started = time.monotonic()
    status = pseudo_boolean.solve_apart(constraints, seconds)
    taken = time.monotonic() - started
    return Answer(
        "pb25 by Exact", question.name, status, taken, taken, "exact", 0, 0, question.known
    )


def warm_up(arguments: argparse.Namespace) -> None:
    """Answer a question of two neurons, and throw the answer away."""
    network = bnncert.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    region = bnncert.Ball("linf", np.array([0.5, -0.5]), 0.1)
    ask(Question("", "", network, region, 0), arguments)


def answers_before(part: str, arguments: argparse.Namespace) -> Iterator[Answer]:
    """Answer the questions of one part with the package of another checkout."""
    command = [sys.executable, __file__, "--parts", part, "--lines"]
    for name in ("data", "networks", "images", "seconds", "processes", "method", "only"):
        command += [f"--{name}", str(getattr(arguments, name))]
    command += ["--deltas", ",".join(map(str, arguments.deltas))]
    environment = {**os.environ, "PYTHONPATH": str(arguments.before)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield Answer(**json.loads(line))
    if process.returncode:
        print(f"{part} could not be run with {arguments.before}")


def show(answer: Answer, version: str, lines: bool) -> None:
    if lines:
        print(json.dumps(asdict(answer)), flush=True)
        return
    text = f"  {version}{answer.group:30s} {answer.name:24s} {answer.status:10s}"
    text += f" {answer.seconds:7.2f} s  {answer.stage:22s} {answer.nodes} nodes"
    text += f" {answer.patterns} patterns{'  WRONG' if answer.wrong else ''}"
    print(text, flush=True)


def table(rows: list[tuple[str, Answer]]) -> str:
    """Return one line for each group of questions and version."""
    head = f"{'questions':38s} {'asked':>5s} {'decided':>7s} {'robust':>6s} {'not':>4s} "
    text = [head + f"{'wrong':>5s} {'geometric mean s':>16s} {'slowest s':>9s}"]
    for key in dict.fromkeys((version, answer.group) for version, answer in rows):
        mine = [answer for version, answer in rows if (version, answer.group) == key]
        robust = sum(a.status == "robust" for a in mine)
        broken = sum(a.status == "not_robust" for a in mine)
        seconds = np.array([max(a.seconds, 1e-3) for a in mine])
        text.append(
            f"{' '.join(key).strip():38s} {len(mine):5d} {robust + broken:7d} {robust:6d} "
            f"{broken:4d} {sum(a.wrong for a in mine):5d} "
            f"{np.exp(np.log(seconds).mean()):16.3f} {seconds.max():9.2f}"
        )
    return "\n".join(text)


# -- speed -----------------------------------------------------------------------------------------


def speed(arguments: argparse.Namespace) -> str:
    """Return nodes and patterns per second of processor time, by engine."""
    from unittest import mock

    from bnncert.search.patterns import enumeration

    questions = [q for q in pb25_questions(arguments) if q.name == "mnist 7 l1 inside"]
    questions += [*width_questions(arguments)][arguments.images : arguments.images + 1]
    engines = ["numpy", "numba"] if enumeration.is_compiled() else ["numpy"]
    text = [f"{'question':34s} {'engine':6s} {'nodes/s':>10s} {'patterns/s':>12s} answer"]
    for question in questions:
        for engine in engines:
            limited = argparse.Namespace(**{**vars(arguments), "method": "propagation"})
            limited.processes = 1
            with mock.patch.object(enumeration, "is_compiled", lambda e=engine: e == "numba"):
                answer = ask(question, limited)
            name = f"{question.group} {question.name}"
            text.append(
                f"{name:34s} {engine:6s} {answer.nodes / answer.processor:10.0f} "
                f"{answer.patterns / answer.processor:12.0f} {answer.status} "
                f"in {answer.processor:.1f} s of processor time"
            )
    if len(engines) == 1:
        text.append("numba is not installed (extra fast)")
    return "\n".join(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join((*PARTS, "speed")))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--networks", type=Path, default=Path("trained"))
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--deltas", default="0.25,0.5,1.0")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--exact", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--only", default="", help="Only questions whose names contain this.")
    parser.add_argument("--lines", action="store_true", help="Only one JSON line for each answer.")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    arguments.deltas = [float(delta) for delta in arguments.deltas.split(",")]
    for part in arguments.parts:
        if part not in (*PARTS, "speed"):
            parser.error(f"no part {part}; expected some of {', '.join((*PARTS, 'speed'))}")
    return arguments


def main() -> int:
    """Run the parts; 1 if an answer contradicts a proved optimum."""
    arguments = parse()
    if arguments.exact and not pseudo_boolean.is_installed():
        print("Exact is left out: pip install exact")
        arguments.exact = 0.0
    # Modules are imported on use: the first question shall not pay for it.
    warm_up(arguments)
    rows: list[tuple[str, Answer]] = []
    for part in arguments.parts:
        if part == "speed":
            continue
        runs = [("", answers_of(part, arguments))]
        if arguments.before is not None and part in COMPARED:
            runs.insert(0, ("before:", answers_before(part, arguments)))
        for version, answers in runs:
            for answer in answers:
                rows.append((version, answer))
                show(answer, version, arguments.lines)
    if not arguments.lines:
        print(table(rows))
        if "speed" in arguments.parts:
            print(speed(arguments))
    return int(any(answer.wrong for _, answer in rows))


if __name__ == "__main__":
    sys.exit(main())
