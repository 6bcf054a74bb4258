"""Convolutional networks: `sdp` against `elimination`, and what `auto` decides.

    bnncert train --data mnist --conv 8,16 --stride 2 --hidden "" --out conv.npz
    python benchmarks/convolutions.py --networks conv.npz --data mnist [--data-dir DIR]
                                      [--images 20] [--seconds 20] [--radii 0.25,0.5,1]
                                      [--methods sdp,elimination,auto]

Each network is asked about the first test images, in L-inf balls of the radii (in pixel levels)
inside the data box.  An image that it misclassifies counts for the certified accuracy only.
`bound` is the mean, over the images, of the lowest lower bound of a margin, and `higher` counts the
images where the bound is higher than that of the first method; a method that stops at its verdict
may know more than it says.  Seconds are wall time, and `cpu` is processor time of this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bnncert
from bnncert.arrays import FloatArray
from bnncert.extras.training.datasets import load_dataset


@dataclass(frozen=True)
class Row:
    """The answer of a method about one image."""

    status: str
    bound: float
    seconds: float
    cpu: float


def ask(network: bnncert.Network, ball: bnncert.Ball, label: int, method: str, s: float) -> Row:
    """Return the answer of one method about one image."""
    wall, cpu = time.monotonic(), time.process_time()
    result = bnncert.verify(network, ball, label, method=method, timeout=s)
    seconds, used = time.monotonic() - wall, time.process_time() - cpu
    lower = min((t.lower for t in result.targets), default=np.inf)
    return Row(result.status, lower, seconds, used)


def line(name: str, radius: str, method: str, rows: Sequence[Row], first: Sequence[Row]) -> str:
    """Return the line of a method in the table."""
    statuses = [row.status for row in rows]
    proved, falsified = statuses.count("robust"), statuses.count("not_robust")
    known = [row.bound for row in rows if np.isfinite(row.bound)]
    bound = f"{np.mean(known):.1f}" if known else "-"
    higher = sum(a.bound > b.bound + 1e-6 for a, b in zip(rows, first, strict=True))
    cells = [name, radius, method, str(len(rows)), str(proved + falsified), str(proved)]
    cells += [str(falsified), bound, str(higher)]
    cells += [f"{np.mean([row.seconds for row in rows]):.2f}"]
    cells += [f"{max(row.seconds for row in rows):.2f}"]
    cells += [f"{np.mean([row.cpu for row in rows]):.2f}"]
    return "| " + " | ".join(cells) + " |"


def run_network(
    name: str, network: bnncert.Network, points: FloatArray, labels: Sequence[int], options: Options
) -> None:
    """Print the lines of one network, and its certified accuracy by each method."""
    step = network.pixel_step or 1.0
    right = network.classify(points) == np.asarray(labels)
    for radius in options.radii:
        first: list[Row] = []
        for method in options.methods:
            rows = []
            for i in np.flatnonzero(right).tolist():
                ball = bnncert.Ball(
                    "linf", points[i], radius * step, network.input_lo, network.input_hi
                )
                rows.append(ask(network, ball, int(labels[i]), method, options.seconds))
            if not rows:
                print(f"{name}: none of the images is classified correctly", flush=True)
                return
            first = first or rows
            share = sum(row.status == "robust" for row in rows) / len(labels)
            text = line(name, f"{radius:g}", method, rows, first)
            print(f"{text} {100 * share:.0f} % |", flush=True)


@dataclass(frozen=True)
class Options:
    """What all networks have in common; radii are in pixel levels."""

    radii: tuple[float, ...]
    methods: tuple[str, ...]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=Path, nargs="+", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--radii", default="0.25,0.5,1")
    parser.add_argument("--methods", default="sdp,elimination,auto")
    arguments = parser.parse_args()
    options = Options(
        tuple(float(text) for text in arguments.radii.split(",")),
        tuple(arguments.methods.split(",")),
        arguments.seconds,
    )
    data = load_dataset(arguments.data, arguments.data_dir)
    count = min(arguments.images, len(data.test.labels))
    points, labels = data.scaling.points(data.test.images[:count]), data.test.labels[:count]
    networks = {path.stem: bnncert.load(path) for path in arguments.networks}
    for name, network in networks.items():
        every = network.classify(data.scaling.points(data.test.images)) == data.test.labels
        accuracy = 100 * float(np.mean(every))
        print(f"{name}: {'-'.join(map(str, network.sizes))}, test accuracy {accuracy:.2f} %")
    head = ("network", "px", "method", "images", "decided", "proved", "falsified", "bound")
    head = (*head, "higher", "mean s", "max s", "cpu s", "certified accuracy")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for name, network in networks.items():
        run_network(name, network, points, labels.tolist(), options)


if __name__ == "__main__":
    main()
