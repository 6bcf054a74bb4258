"""How many images `auto` falsifies beside `attack` alone, with the same time limit.

    python -m benchmarks.falsified [--network FILE] [--images FILE:KEY] [--count 20] [--seconds 5]
        [--radii 2,4,6] [--methods auto,attack]

Radii are in pixels, labels are what the network answers, and all rivals are attacked.  `auto`
spends a third of its time on the attack (less while that is stalled), so it should not fall behind
`attack` with a third of the limit; the last line of a radius counts the images that `attack`
falsified in that time and `auto` did not.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import bnncert
from bnncert.model.formats.inputs import pick_point, read_array

DATA = Path(bnncert.__file__).parent / "data"


@dataclass(frozen=True)
class Answer:
    """What one method said about one image."""

    status: str
    seconds: float


def ask(
    network: bnncert.Network, point: object, pixels: float, method: str, limit: float
) -> Answer:
    """Verify one image."""
    assert network.pixel_step is not None
    region = bnncert.Ball(
        "linf",
        point,  # type: ignore[arg-type]
        pixels * network.pixel_step,
        network.input_lo,
        network.input_hi,
    )
    label = int(network.classify(region.center)[0])
    started = time.monotonic()
    result = bnncert.verify(network, region, label, method=method, timeout=limit)
    return Answer(result.status, time.monotonic() - started)


def main() -> None:
    """Print one line for each radius and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default=str(DATA / "mnist_sparse.npz"))
    parser.add_argument("--images", default=str(DATA / "mnist_test_100.npz") + ":images")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--radii", default="2,4,6")
    parser.add_argument("--methods", default="auto,attack")
    arguments = parser.parse_args()
    network = bnncert.load(arguments.network)
    images = read_array(arguments.images)
    box = None
    if network.input_lo is not None and network.input_hi is not None:
        box = (network.input_lo, network.input_hi)
    methods = arguments.methods.split(",")
    print(f"{Path(arguments.network).name}, {arguments.count} images, {arguments.seconds:g} s each")
    print(f"{'radius':>6}  {'method':8} {'falsified':>9} {'robust':>6} {'open':>4} {'seconds':>8}")
    for text in arguments.radii.split(","):
        answers: dict[str, list[Answer]] = {method: [] for method in methods}
        for index in range(arguments.count):
            point = pick_point(images, index, network.input_shape, box, arguments.images)
            for method in methods:
                answers[method].append(ask(network, point, float(text), method, arguments.seconds))
        for method in methods:
            print(_line(text, method, answers[method]), flush=True)
        if {"auto", "attack"} <= answers.keys():
            quick = [
                a.status == "not_robust" and a.seconds <= arguments.seconds / 3
                for a in answers["attack"]
            ]
            missed = [
                k for k, a in enumerate(answers["auto"]) if quick[k] and a.status != "not_robust"
            ]
            print(
                f"        attack in a third of the time: {sum(quick)} falsified; of these auto "
                f"missed {len(missed)} {missed or ''}"
            )


def _line(radius: str, method: str, answers: list[Answer]) -> str:
    falsified = sum(a.status == "not_robust" for a in answers)
    robust = sum(a.status == "robust" for a in answers)
    seconds = sum(a.seconds for a in answers)
    open_ = len(answers) - falsified - robust
    return f"{radius + ' px':>6}  {method:8} {falsified:9} {robust:6} {open_:4} {seconds:8.1f}"


if __name__ == "__main__":
    main()
