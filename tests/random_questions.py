"""Random tiny questions in large numbers: networks, regions, failures, and ways to ask.

Weights are -1, 0 or 1.  Most numbers lie on a coarse grid, so that sums meet thresholds, scores
are equal, and thresholds touch the boundary of the region; some are arbitrary floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

import bnncert
from bnncert import Options
from bnncert.problem import Target, robustness, score_objective
from tests.brute_force import TinyCondition, TinyNetwork, TinyTarget, is_reached, rival_target

KINDS = ("linf", "l2", "l1", "box", "polytope")


def random_network(rng: np.random.Generator, inputs: int, sign_zero: Any) -> TinyNetwork:
    """Return a network with 1 to 4 layers of 1 to 5 neurons and 2 to 4 classes."""
    depth = int(rng.choice([1, 2, 3, 4], p=[0.3, 0.35, 0.25, 0.1]))
    most = 6 if inputs < 3 else 5
    sizes = [inputs, *rng.integers(1, most, depth).tolist(), int(rng.integers(2, 5))]
    zeros = float(rng.choice([0.1, 0.35, 0.6]))
    share = [zeros, (1 - zeros) / 2, (1 - zeros) / 2]
    weights, biases = [], []
    for number in range(depth + 1):
        shape = (sizes[number + 1], sizes[number])
        weights.append(rng.choice([0.0, 1.0, -1.0], shape, p=share))
        biases.append(_numbers(rng, shape[0], 0.5 if number == 0 else 1.0))
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)


def _numbers(rng: np.random.Generator, count: int, step: float) -> np.ndarray:
    """Return numbers on a grid, in two of ten cases arbitrary ones."""
    if rng.random() < 0.2:
        return rng.normal(0.0, 1.0, count)
    return np.asarray(rng.integers(-3, 4, count) * step)


def random_region(rng: np.random.Generator, kind: str, inputs: int) -> bnncert.Region:
    """Return a region of one kind, on a grid of quarters or anywhere."""
    center = rng.integers(-6, 7, inputs) / 4
    radius = float(rng.integers(0, 9)) / 4
    if rng.random() < 0.2:
        center, radius = center + rng.normal(0, 0.1, inputs), abs(float(rng.normal(0, 1)))
    if kind in ("linf", "l1", "l2"):
        lo, hi = (-1.5, 1.25) if rng.random() < 0.5 else (None, None)
        if lo is not None and (kind != "linf" or rng.random() < 0.8):
            center = np.clip(center, lo, hi)
        try:
            return bnncert.Ball(kind, center, radius, lo, hi)  # type: ignore[arg-type]
        except bnncert.InputError:
            # A ball around a centre outside the data box may miss it.
            return bnncert.Ball(kind, center, radius)  # type: ignore[arg-type]
    if kind == "box":
        return bnncert.Box(center - radius, center + rng.integers(0, 9, inputs) / 4)
    rows = int(rng.integers(1, 4))
    matrix = rng.integers(-2, 3, (rows, inputs)).astype(float)
    # The centre satisfies every inequality, so the polytope is not empty.
    right = np.array([_right_side(row, center, rng) for row in matrix])
    return bnncert.Polytope(matrix, right, center - radius, center + radius)


def _right_side(row: np.ndarray, center: np.ndarray, rng: np.random.Generator) -> float:
    exact = sum((Fraction(a) * Fraction(x) for a, x in zip(row, center, strict=True)), Fraction(0))
    value = float(exact) + float(rng.integers(0, 5)) / 2
    return value if Fraction(value) >= exact else float(np.nextafter(value, np.inf))


@dataclass(frozen=True, eq=False)
class Ask:
    """One problem in the package's terms, and the same failures in those of the oracle."""

    problem: bnncert.Problem
    targets: tuple[TinyTarget, ...]
    text: str

    def is_violated(self, scores: list[list[Fraction]]) -> bool:
        """Whether any target is reached; `scores` are all that the region has."""
        return any(is_reached(target, s) for target in self.targets for s in scores)


def random_ask(rng: np.random.Generator, network: bnncert.Network, region: bnncert.Region) -> Ask:
    """Ask for a label, or now and then for conditions on scores that must not hold together."""
    ties: Literal["violation", "robust"] = "robust" if rng.random() < 0.5 else "violation"
    if rng.random() < 0.15:
        return _conjunctions(rng, network, region)
    label = int(rng.integers(network.classes))
    if rng.random() < 0.6:
        # The answer at the centre makes the most robust questions.
        label = int(np.argmax(network.evaluate(region.center)))
    others = [k for k in range(network.classes) if k != label]
    choice: Any = rng.choice(["all", "runner-up", "single"], p=[0.6, 0.2, 0.2])
    wanted: Any = int(rng.choice(others)) if choice == "single" else str(choice)
    problem = robustness(network, region, label, wanted, ties)
    rivals = [target.rival for target in problem.targets]
    assert len(rivals) == (len(others) if choice == "all" else 1)
    targets = tuple(rival_target(label, k, ties) for k in rivals if k is not None)
    return Ask(problem, targets, f"label {label}, targets {wanted}, ties {ties}")


def _conjunctions(
    rng: np.random.Generator, network: bnncert.Network, region: bnncert.Region
) -> Ask:
    """Return one or two targets of one to three conditions, some of them strict."""
    targets = []
    for _ in range(int(rng.integers(1, 3))):
        conditions = []
        for _ in range(int(rng.integers(1, 4))):
            size = int(rng.integers(1, min(network.classes, 2) + 1))
            chosen = rng.choice(network.classes, size, replace=False)
            factors = rng.choice([-2, -1, 1, 2], size)
            conditions.append(
                TinyCondition(
                    tuple((int(j), Fraction(int(c))) for j, c in zip(chosen, factors, strict=True)),
                    Fraction(int(rng.integers(-6, 7)), 2),
                    bool(rng.random() < 0.5),
                )
            )
        targets.append(tuple(conditions))
    made = tuple(
        Target(
            f"target {number}",
            tuple(
                score_objective(network, dict(c.weights), c.constant, tie_is_fine=c.strict)
                for c in conditions
            ),
        )
        for number, conditions in enumerate(targets)
    )
    return Ask(bnncert.Problem(network, region, made), tuple(targets), f"conditions {targets}")


def random_options(rng: np.random.Generator, method: str) -> Options:
    """Return options that the method reads; work that has no end otherwise is kept short."""
    chosen: dict[str, Any] = {
        "mode": str(rng.choice(["feasibility", "optimum"])),
        "seed": int(rng.integers(5)),
        "samples": 40,
        "restarts": 6,
        "iterations": 4,
        "threads": 1,
    }
    if method in ("milp", "minp"):
        chosen["form"] = str(rng.choice(["lattice", "soft"], p=[0.7, 0.3]))
    elif method == "sdp":
        solvers = [None, "low-rank", "clarabel", "scs"]
        chosen["solver"] = solvers[int(rng.choice(4, p=[0.85, 0.05, 0.05, 0.05]))]
        chosen["coupling"] = str(rng.choice(["auto", "on", "off"]))
        chosen["cut_rounds"] = [None, 0, 2][int(rng.integers(3))]
    elif method.startswith("sdp-") and rng.random() < 0.3:
        chosen["sparsity"] = str(rng.choice(["layered", "pairwise", "chordal", "dense"]))
    return Options(**chosen)
