"""Ranges of hidden sums by elimination: open neurons of each layer, margins and time.

    python -m benchmarks.hidden_ranges [--data DIR] [--only model_64] [--radii 0.25,0.5,1]
                                       [--seconds 10]
    python -m benchmarks.hidden_ranges --networks conv.npz --images mnist [--images-dir DIR]
                                       [--count 20] [--radii 1,2,4] [--seconds 10]

The first form asks about the images of VNN-COMP's queries with an eps of 1, in boxes of the given
multiples of that query's box; an image that the network misclassifies is left out.  The second one
asks about test images that are classified correctly, in L-inf balls of the radii in pixel levels;
its numbers are means.  `margin` is the lowest bound of a margin that the states of the last layer
prove, and `left` how many rivals they leave open.  `seconds` of the option are those
of each layer's sums, and of the table processor time of the whole presolve.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from benchmarks.hidden_sums import HiddenPresolve, HiddenSums
from bnncert.arrays import FloatArray
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.presolve.pipeline import presolve
from bnncert.extras.training.datasets import load_dataset
from bnncert.extras.vnncomp.category import read_instances
from bnncert.problem import Problem, robustness
from bnncert.problem.vnnlib import from_vnnlib, read_vnnlib

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "vnncomp2023"


def measure(problem: Problem, region: bnncert.Region, seconds: float | None) -> FloatArray:
    """Return the open neurons of each layer, the margin, the classes left and the seconds."""
    started = time.process_time()
    if seconds is None:
        presolved = presolve(problem.network, region)
    else:
        sums = HiddenSums(seconds=seconds, share=1.0)
        presolved = HiddenPresolve(problem.network, region, sums).run()
    used = time.process_time() - started
    proofs = [interval_proof(target, presolved.bounds[-1]) for target in problem.targets]
    opened = [float(bounds.unstable.size) for bounds in presolved.bounds]
    left = sum(not proved for _, proved in proofs)
    return np.array([*opened, min(lower for lower, _ in proofs), left, used])


def show(name: str, radius: float, rows: dict[str, list[FloatArray]]) -> None:
    """Print the means of what was measured without and with elimination."""
    for kind, measured in rows.items():
        if measured:
            cells = [f"{value:.6g}" for value in np.mean(measured, axis=0)]
            opened, rest = " / ".join(cells[:-3]), cells[-3:]
            line = [name, f"{radius:g}", str(len(measured)), kind, opened, *rest]
            print("| " + " | ".join(line) + " |", flush=True)


def both(problem: Problem, region: bnncert.Region, seconds: float) -> dict[str, FloatArray]:
    """Return what is measured before and after."""
    return {
        "before": measure(problem, region, None),
        "after": measure(problem, region, seconds),
    }


def run_queries(arguments: argparse.Namespace, radii: list[float]) -> None:
    networks: dict[Path, Any] = {}
    for instance in read_instances(arguments.data / "instances.csv"):
        name = instance.query.name.split(".vnnlib")[0]
        if arguments.only not in name or "eps_1.0" not in name:
            continue
        if instance.model not in networks:
            networks = {instance.model: bnncert.load(instance.model)}
        problems = from_vnnlib(networks[instance.model], read_vnnlib(instance.query))
        problem = problems[0]
        middle = (problem.region.lo + problem.region.hi) / 2
        half = (problem.region.hi - problem.region.lo) / 2
        point = bnncert.Box(middle, middle)
        if measure(problem, point, None)[-2]:
            print(f"{name}: misclassified", flush=True)
            continue
        for radius in radii:
            box = bnncert.Box(middle - radius * half, middle + radius * half)
            found = both(problem, box, arguments.seconds)
            show(name, radius, {kind: [row] for kind, row in found.items()})


def run_images(arguments: argparse.Namespace, radii: list[float]) -> None:
    data = load_dataset(arguments.images, arguments.images_dir)
    points = data.scaling.points(data.test.images[: arguments.count])
    labels = data.test.labels[: arguments.count]
    for path in arguments.networks:
        network = bnncert.load(path)
        right = np.flatnonzero(network.classify(points) == labels).tolist()
        for radius in radii:
            rows: dict[str, list[FloatArray]] = {"before": [], "after": []}
            size = radius * (network.pixel_step or 1.0)
            for i in right:
                ball = bnncert.Ball("linf", points[i], size, network.input_lo, network.input_hi)
                problem = robustness(network, ball, int(labels[i]))
                for kind, row in both(problem, ball, arguments.seconds).items():
                    rows[kind].append(row)
            show(path.stem, radius, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--only", default="model_")
    parser.add_argument("--networks", type=Path, nargs="*", default=[])
    parser.add_argument("--images", default="mnist")
    parser.add_argument("--images-dir", type=Path, default=None)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--radii", default="0.25,0.5,1")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    radii = [float(text) for text in arguments.radii.split(",")]
    head = ("question", "radius", "images", "", "open neurons by layer", "margin", "left", "cpu s")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    if arguments.networks:
        run_images(arguments, radii)
    else:
        run_queries(arguments, radii)


if __name__ == "__main__":
    main()
