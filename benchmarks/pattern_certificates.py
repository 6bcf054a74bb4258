"""Certificates of searches over sign patterns: size, and times of solving, writing and checking.

    python -m benchmarks.pattern_certificates [--signs 18] [--width 64] [--layers 3] [--nodes]

A random network with a diagonal first layer on a box in which `--signs` inputs can change their
sign.  The function of the scores is such that its least value is just positive, so that the whole
tree is needed.  With `--nodes` nothing is enumerated before the last sign: the tree has the most
nodes.  The compiled search and the one in numpy are timed, in processor time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context, Options
from bnncert.engine.methods.propagation import PropagationMethod
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns import enumeration
from bnncert.engine.search.patterns import pattern_search as search
from bnncert.engine.search.trace import SearchRecord
from bnncert.kernel import check
from bnncert.problem import Problem, Target, score_objective
from bnncert.proofs.writing import write_proof


def question(signs: int, width: int, layers: int, seed: int) -> Problem:
    """Return a robust question with so many open first-layer signs."""
    rng = np.random.default_rng(seed)
    sizes = [signs, *[width] * layers, 2]
    weights = [np.eye(signs)]
    weights += [rng.choice([-1, 1], (b, a)) for a, b in pairwise(sizes)]
    biases = [np.zeros(signs), *(np.full(width, 0.5) for _ in range(layers)), np.zeros(2)]
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Box(np.full(signs, -1.0), np.full(signs, 1.0))
    # Of all patterns the least margin, by evaluation of all or many of them.
    least = np.inf
    count = 1 << signs
    for start in range(0, count, 1 << 14):
        number = np.arange(start, min(start + (1 << 14), count))
        points = np.where((number[:, None] >> np.arange(signs)) & 1, 0.5, -0.5)
        scores = network.evaluate(points)
        least = min(least, float((scores[:, 0] - scores[:, 1]).min()))
    constant = Fraction(int(2 - least))
    objective = score_objective(
        network, {0: Fraction(1), 1: Fraction(-1)}, constant, tie_is_fine=False, name="margin"
    )
    return Problem(network, region, (Target("margin", (objective,)),))


def run(problem: Problem, path: Path, *, compiled: bool, nodes: bool) -> dict[str, float]:
    """Solve, write and check; return figures."""
    record = SearchRecord()
    context = Context(Options(), Deadline(None), Replayer(problem, None), record=record)
    # One node for each pattern: nothing is enumerated.
    signs = 0 if nodes else search.ENUMERATED_SIGNS
    most = 1 if nodes else enumeration.MOST_COMPILED
    with (
        mock.patch.object(search, "ENUMERATED_SIGNS", signs),
        mock.patch.object(search, "MOST_PLAIN", 0 if nodes else search.MOST_PLAIN),
        mock.patch.object(enumeration, "MOST_COMPILED", most),
        mock.patch.object(enumeration, "pack", enumeration.pack if compiled else lambda _: None),
    ):
        started = time.process_time()
        (result,) = PropagationMethod().run(problem, context)
        solving = time.process_time() - started
    assert result.status == "robust", result
    started = time.process_time()
    write_proof(path, problem, problem.network, record=record)
    writing = time.process_time() - started
    started = time.process_time()
    check(path, problem.network)
    checking = time.process_time() - started
    return {
        "nodes": record.patterns[0].record.size,
        "patterns": result.details["patterns"],
        "bytes": path.stat().st_size,
        "solve": solving,
        "write": writing,
        "check": checking,
    }


def main() -> None:
    """Print one row for the search in numpy and one for the compiled one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signs", type=int, default=18)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", action="store_true")
    arguments = parser.parse_args()
    problem = question(arguments.signs, arguments.width, arguments.layers, arguments.seed)
    head = ("search", "nodes", "patterns", "bytes", "bits/node", "solve", "write", "check", "ratio")
    print(" ".join(f"{name:>10}" for name in head))
    with tempfile.TemporaryDirectory() as folder:
        for compiled in (False, True):
            made = run(problem, Path(folder) / "one.cert", compiled=compiled, nodes=arguments.nodes)
            bits = 8 * made["bytes"] / made["nodes"]
            figures = [f"{made[k]:10.0f}" for k in ("nodes", "patterns", "bytes")]
            figures += [f"{bits:10.1f}"]
            figures += [f"{made[k]:10.2f}" for k in ("solve", "write", "check")]
            figures += [f"{made['check'] / made['solve']:10.2f}"]
            print(f"{'compiled' if compiled else 'numpy':>10}", *figures)


if __name__ == "__main__":
    main()
