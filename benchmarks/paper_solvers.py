"""The value of the paper's sdp-tight and its time, by the structured solver, Clarabel and SCS.

    python -m benchmarks.paper_solvers [--seconds 120] [--solvers structured,clarabel,scs]

Ten instances: random networks with dense and sparse rows, two and three layers, on the whole box,
and images of the bundled networks in small L-inf and L2 balls (runner-up class).  The structured
solver takes one dense moment matrix in reduced form, the others the paper's cliques.  Seconds are
of processor time of the solver's process and its threads; a bound is what the dual point proves.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import bnncert
from benchmarks.beside_paper import table
from benchmarks.random_networks import random_problem
from bnncert.deadline import Deadline
from bnncert.engine.methods.sdp_moments import SdpTight
from bnncert.engine.presolve.reduction import reduce_target
from bnncert.engine.presolve.stability import stability
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import Problem, robustness

#: Sizes and entries per row (None: all) of the random networks.
RANDOM: tuple[tuple[list[int], int | None], ...] = (
    ([20, 10, 10], None),
    ([40, 15, 15], None),
    ([20, 10, 10, 10], None),
    ([100, 20, 20], 3),
    ([200, 30, 30], 2),
)

#: Network, image, norm, delta of the bundled ones.
BUNDLED = (
    ("sparse", 1, "linf", 0.1),
    ("sparse", 4, "linf", 0.1),
    ("sparse", 0, "linf", 0.25),
    ("dense", 0, "linf", 0.25),
    ("sparse", 1, "l2", 5.0),
)
PIXELS = {"linf": 127.5, "l2": 255.0}


def instances() -> Iterator[tuple[str, Problem]]:
    """Yield the names and problems of all instances."""
    for sizes, entries in RANDOM:
        kind = "dense" if entries is None else f"s{entries}"
        yield "-".join(map(str, sizes)) + f" {kind}", random_problem(sizes, entries, 0)
    images = load_demo_images()
    for name, image, norm, delta in BUNDLED:
        network, point = load_demo_network(name), images.point(image)
        ball = bnncert.Ball(norm, point, delta / PIXELS[norm], -1.0, 1.0)  # type: ignore[arg-type]
        label = int(network.classify(point)[0])
        problem = robustness(network, ball, label, rivals="runner-up")
        yield f"{name} {image}, {norm} {delta:g}", problem


def spent() -> float:
    """Return the processor time of this process and of those that it has started and ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--solvers", default="structured,clarabel,scs")
    parser.add_argument("--only", default="", help="Only instances whose names contain this.")
    arguments = parser.parse_args()
    solvers, rows = arguments.solvers.split(","), []
    for name, problem in instances():
        if arguments.only not in name:
            continue
        cells = [name]
        bounds = stability(problem.network, problem.region)
        reduced = reduce_target(problem.network, bounds, problem.targets[0])
        for solver in solvers:
            before, started = spent(), time.monotonic()
            deadline = Deadline(arguments.seconds)
            value, note = SdpTight().bound(
                reduced, problem.region, 0, bnncert.Options(solver=solver), deadline
            )
            wall = time.monotonic() - started
            cells.append(f"{value:.5f}, {spent() - before:.2f} s" + (f" ({note})" if note else ""))
            print(f"{name}: {solver} {cells[-1]}, {wall:.1f} s on the clock", flush=True)
        rows.append(cells)
    print("\n" + table(["instance", *solvers], rows))


if __name__ == "__main__":
    main()
