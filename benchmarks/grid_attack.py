"""What the attack finds in small balls on grids, with its walk and without it.

    python -m benchmarks.grid_attack [--data DIR] [--parts random,pb25,pixels] [--cases 40]
        [--first-seed 10000] [--seconds 6] [--images 20]

* `random`: networks 20-16-12-3 with counterexamples among less than 1 % of the grid points of a
  ball, which are all evaluated.  How many the attack misses in its five rounds, and how long it
  takes.
* `pb25`: the attack at the proved optima of DIR/pb25, and one step above them.
* `pixels`: how many of the first images of the bundled networks the attack falsifies on integer
  pixels and on real inputs, at 1 and 2 px (L-inf, where it does not walk).

Seconds of questions with a limit are wall time; `cpu` is processor time.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import bnncert
from benchmarks import pb25
from bnncert.model.loading import load_demo_images, load_demo_network

INPUTS = 20
CENTRE = np.full(INPUTS, 8.0)
BOX = (0.0, 16.0)

#: The switch of the walk.
SWITCH = "bnncert.engine.methods.attack.has_few_points"


def network(seed: int) -> bnncert.Network:
    """Return a random network with thresholds near the centre."""
    rng = np.random.default_rng(seed)
    sizes = (INPUTS, 16, 12, 3)
    first = rng.choice([-1, 0, 1], size=(sizes[1], INPUTS), p=[0.4, 0.2, 0.4])
    weights = [first]
    for a, b in itertools.pairwise(sizes[1:]):
        weights.append(rng.choice([-1, 0, 1], size=(b, a), p=[0.33, 0.34, 0.33]))
    biases = [-(first @ CENTRE) + rng.integers(-5, 6, size=sizes[1]) + 0.5]
    biases += [rng.integers(-2, 3, size=sizes[2]) + 0.5, np.array([0.0, 0.25, 0.5])]
    return bnncert.Network.from_arrays(weights, biases, input_lo=BOX[0], input_hi=BOX[1])


def changes(norm: str) -> Iterator[np.ndarray]:
    """Yield all changes within L1 3, L2 sqrt(3), or of two inputs by at most 2 (L0)."""
    most = 2 if norm == "l0" else 3
    sizes = {"l0": (-2, -1, 1, 2), "l1": (-3, -2, -1, 1, 2, 3), "l2": (-1, 1)}[norm]
    for count in range(most + 1):
        for places in itertools.combinations(range(INPUTS), count):
            for values in itertools.product(sizes, repeat=count):
                if norm != "l1" or sum(map(abs, values)) <= 3:
                    change = np.zeros(INPUTS)
                    change[list(places)] = values
                    yield change


def ball(
    norm: str, centre: np.ndarray, count: int, box: tuple[float, float], within: float | None = None
) -> bnncert.Ball | bnncert.L0Ball:
    """Return the ball of a whole-number distance, squared for L2, on a grid of step 1."""
    grid = bnncert.Grid(1.0)
    if norm == "l0":
        return bnncert.L0Ball(centre, count, *box, within=within, grid=grid)
    return bnncert.Ball(norm, centre, count**0.5 if norm == "l2" else count, *box, grid)  # type: ignore[arg-type]


def attacked(
    net: bnncert.Network,
    region: bnncert.Region,
    label: int,
    walk: bool,
    seconds: float | None = None,
) -> tuple[bool, float]:
    """Return whether the attack finds a counterexample, and its processor time."""
    started = time.process_time()
    if walk:
        found = bnncert.verify(net, region, label, method="attack", timeout=seconds)
    else:
        with mock.patch(SWITCH, return_value=False):
            found = bnncert.verify(net, region, label, method="attack", timeout=seconds)
    return found.status == "not_robust", time.process_time() - started


def random_networks(arguments: argparse.Namespace) -> None:
    """Compare the attack with all grid points."""
    for norm, count in (("l1", 3), ("l2", 3), ("l0", 2)):
        points = np.array(list(changes(norm))) + CENTRE
        region = ball(norm, CENTRE, count, BOX, 2.0)
        missed, cpu, asked = {True: 0, False: 0}, {True: 0.0, False: 0.0}, 0
        seeds = itertools.count(arguments.first_seed)
        while asked < arguments.cases:
            net = network(next(seeds))
            label = int(net.classify(CENTRE)[0])
            scores = net.evaluate(points)
            violated = np.delete(scores, label, axis=1).max(axis=1) >= scores[:, label]
            if violated[0] or not 0 < violated.mean() < 0.01:
                continue
            asked += 1
            for walk in (False, True):
                found, taken = attacked(net, region, label, walk)
                missed[walk] += not found
                cpu[walk] += taken
        texts = [
            f"{name}: missed {missed[walk]}, {1000 * cpu[walk] / asked:.0f} ms"
            for name, walk in (("without the walk", False), ("with it", True))
        ]
        print(f"{norm} {count}, {len(points)} points, {asked} networks; {'; '.join(texts)}")


def proved_optima(arguments: argparse.Namespace) -> None:
    """Attack at the proved optima, and one step above them."""
    folder = arguments.data / "pb25"
    if not folder.is_dir():
        print(f"pb25 is left out: {folder} does not exist")
        return
    totals: dict[tuple[bool, int], int] = {}
    asked = 0
    for case in pb25.CASES:
        net = pb25.integer_network(folder, case.network)
        pixels = pb25.pixels_of(folder, case).astype(np.float64)
        for norm in ("l0", "l1", "l2"):
            asked += 1
            for walk, above in itertools.product((False, True), (0, 1)):
                region = ball(norm, pixels, case.optimum(norm) + above, (0.0, 255.0))
                found, _ = attacked(net, region, case.label, walk, arguments.seconds)
                totals[walk, above] = totals.get((walk, above), 0) + found
    for name, walk in (("without the walk", False), ("with it", True)):
        print(f"{name}: {totals[walk, 0]} of {asked} at the optimum, {totals[walk, 1]} above it")


def whole_pixels(arguments: argparse.Namespace) -> None:
    """Count the images that the attack falsifies on L-inf balls."""
    images = load_demo_images()
    for kind in ("sparse", "dense"):
        net = load_demo_network(kind)  # type: ignore[arg-type]
        points = [images.point(k).astype(np.float32) for k in range(arguments.images)]
        for pixels in (1, 2):
            counts = []
            for grid in (None, bnncert.Grid(1 / 127.5, -1.0)):
                regions = (
                    bnncert.Ball("linf", point, pixels / 127.5, -1.0, 1.0, grid) for point in points
                )
                counts.append(
                    sum(
                        attacked(net, region, int(label), True, arguments.seconds)[0]
                        for region, label in zip(regions, images.labels, strict=False)
                        if int(net.classify(region.middle)[0]) == label
                    )
                )
            print(f"{kind}, {pixels} px: {counts[0]} on real inputs, {counts[1]} on pixels")


PARTS = {"random": random_networks, "pb25": proved_optima, "pixels": whole_pixels}


def main() -> None:
    """Print the lines of each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--parts", default="random,pb25,pixels")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--images", type=int, default=20)
    arguments = parser.parse_args()
    for part in arguments.parts.split(","):
        print(part, flush=True)
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
