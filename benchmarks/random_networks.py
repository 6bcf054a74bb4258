"""The paper's random L-inf instances: bounds and times of lp, sdp-standard and sdp-tight.

    python benchmarks/random_networks.py 300,100,100 [--sparsity S] [--seconds 600]
                                         [--solver clarabel] [--methods lp,sdp-tight]

Every weight is -1 or +1 (S of them per row, all by default), biases are uniform in [-1, 1] times
the row's size (`--bias`), so that every neuron of the first layer is open, the inputs fill
[-1, 1]^n, and f is a sum of +-1 times the last layer.  The paper's numbers for the same sizes are
printed beside ours; its instances are not public, so only the ratio of the bounds compares.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import numpy as np

import bnncert
from bnncert.problem import robustness
from bnncert.questions.prover import solve

#: Sizes and sparsity: tau_tighter, tau^1 (QCQP), tau_LP, and the paper's seconds for the first two.
PAPER: dict[tuple[str, int | None], tuple[float, float, float, float, float]] = {
    ("300,100,100", None): (-24.71, -78.64, -78.83, 413.51, 427.28),
    ("500,100,100", None): (-27.17, -78.58, -77.89, 795.41, 721.81),
    ("300,100,100,100", None): (-19.49, -77.06, -76.81, 739.21, 992.66),
    ("1000,100,100,100,100,100", None): (-32.54, -83.93, -82.84, 2225.89, 2866.54),
    ("500,100,100", 10): (-80.84, -94.59, -98.16, 12.53, 14.90),
    ("1000,100,100", 10): (-81.13, -94.72, -98.18, 13.44, 12.55),
    ("1000,100,100,100", 10): (-72.79, -92.98, -97.78, 69.70, 77.63),
}


def random_problem(
    sizes: list[int], sparsity: int | None, seed: int, bias: float = 1.0
) -> bnncert.Problem:
    """Return a random network on [-1, 1]^n with an affine objective."""
    generator = np.random.default_rng(seed)
    weights, biases = [], []
    for below, above in pairwise(sizes):
        row = generator.choice([-1.0, 1.0], size=(above, below))
        if sparsity is not None and sparsity < below:
            keep = np.zeros_like(row)
            for j in range(above):
                keep[j, generator.choice(below, sparsity, replace=False)] = 1.0
            row *= keep
        nonzero = np.abs(row).sum(axis=1)
        weights.append(row)
        biases.append(generator.uniform(-bias, bias, above) * nonzero)
    # Two scores whose difference is the objective.
    weights.append(np.vstack([generator.choice([-1.0, 1.0], sizes[-1]), np.zeros(sizes[-1])]))
    biases.append(np.zeros(2))
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Box(-np.ones(sizes[0]), np.ones(sizes[0]))
    return robustness(network, region, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="?", default="300,100,100")
    parser.add_argument("--sparsity", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bias", type=float, default=1.0)
    parser.add_argument("--solver", default=None)
    parser.add_argument("--methods", default="lp,sdp,sdp-standard,sdp-tight")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.sizes.split(",")]
    problem = random_problem(sizes, arguments.sparsity, arguments.seed, arguments.bias)
    for method in arguments.methods.split(","):
        started = time.monotonic()
        result = solve(
            [problem],
            method,
            arguments.seconds,
            bnncert.Options(mode="optimum", solver=arguments.solver),
            None,
            check_centre=False,
        )
        elapsed = time.monotonic() - started
        note = result.targets[0].note
        print(f"{method:14s} {result.lower:10.2f}  {elapsed:8.2f} s  {note}", flush=True)
    paper = PAPER.get((arguments.sizes, arguments.sparsity))
    if paper is not None:
        print(
            f"the paper (26 cores): tau_tighter {paper[0]} in {paper[3]} s, tau^1 {paper[1]} in "
            f"{paper[4]} s, tau_LP {paper[2]}"
        )


if __name__ == "__main__":
    main()
