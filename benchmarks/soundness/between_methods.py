"""Networks too large for brute force: answers of several methods, compared with each other.

Every lower bound has to be at most every upper bound of the same target, no method may call robust
what another one has a counterexample for, and certificates have to be accepted.  Upper bounds come
from points that are replayed exactly, so that a wrong lower bound shows where any method finds the
minimum.
"""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from tests.brute_force import TinyNetwork
from tests.random_shapes import convolution, pooling

import bnncert
from benchmarks.soundness.part import Outcome
from benchmarks.soundness.small_limits import small_limits
from bnncert import Options
from bnncert.engine.methods import REGISTRY
from bnncert.engine.verdict import Result
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.problem import robustness
from bnncert.questions.prover import solve

NUMBER = 3000

#: Methods of one case.
METHODS = (
    "attack", "auto", "bab", "elimination", "learning", "lp", "milp", "propagation", "sdp",
)  # fmt: skip

#: Seconds for one answer, and for an attack.
SECONDS, ATTACK_SECONDS = 4.0, 0.3

#: How often limits of the engines are small, and a certificate is written.
SMALL, CERTIFICATE = 0.3, 0.5

WORK = {"restarts": 16, "iterations": 10, "threads": 1}


def case(seed: int, number: int) -> Outcome:
    """Compare the answers of all methods about one question."""
    rng = np.random.default_rng([seed, number])
    shape = str(rng.choice(["convolution", "deep", "binarised"]))
    zero = str(rng.choice(["plus", "minus", "either"]))
    net = _random_network(rng, shape, zero)
    network = net.build()
    region = _random_region(rng, network.inputs)
    label = int(np.argmax(network.evaluate(region.center)))
    ties: Any = str(rng.choice(["violation", "robust"]))
    problem = robustness(network, region, label, "all", ties)
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    results: dict[str, Result] = {}
    for method in METHODS:
        if region.norm not in REGISTRY.make(method).regions.split(", "):
            continue
        try:
            results[method], objection = _answer(rng, problem, network, method)
            tally[f"{method}, {shape}, {region.norm}: {results[method].status}"] += 1
            wrong += [f"{method}: {objection}"] if objection else []
        except Exception:
            text = traceback.format_exc().strip().replace("\n", " | ")
            wrong.append(f"{method}: exception: {text}")
    wrong += _contradictions(results)
    about = f"{shape}, {region.describe()}, sign(0) {zero}, ties {ties}"
    return Outcome(len(results), dict(tally), tuple(f"{about}: {line}" for line in wrong))


def _answer(
    rng: np.random.Generator, problem: bnncert.Problem, network: bnncert.Network, method: str
) -> tuple[Result, str]:
    """Return an answer, and what the checker has against its certificate."""
    mode: Any = str(rng.choice(["feasibility", "optimum"]))
    seconds = ATTACK_SECONDS if method == "attack" else SECONDS
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module="bnncert")
        path = Path(folder) / "answer.cert"
        certificate = path if rng.random() < CERTIFICATE else None
        with small_limits(rng) if rng.random() < SMALL else nullcontext():
            options = Options(mode=mode, **WORK)  # type: ignore[arg-type]
            result = solve(
                problem, method, seconds, options, check_centre=False, certificate=certificate
            )
        if result.certificate is not None:
            try:
                check(path, network)
            except (RejectedError, UnreadableError) as error:
                return result, f"the certificate is refused: {error}"
    return result, ""


def _contradictions(results: dict[str, Result]) -> list[str]:
    """Return one line for each pair of answers that cannot both be right."""
    found = []
    for first, one in results.items():
        for second, other in results.items():
            if one.status == "robust" and other.status == "not_robust":
                found.append(f"{first} says robust, and {second} has a counterexample")
            for mine, theirs in zip(one.targets, other.targets, strict=True):
                if mine.lower > theirs.upper:
                    found.append(
                        f"{mine.name}: lower {mine.lower} of {first} above upper "
                        f"{theirs.upper} of {second}"
                    )
                if mine.status == "robust" and theirs.status == "not_robust":
                    found.append(f"{mine.name}: {first} says robust, {second} does not")
    return found


def _random_network(rng: np.random.Generator, shape: str, sign_zero: Any) -> TinyNetwork:
    if shape == "convolution":
        height = int(rng.integers(3, 8))
        image = (1, height, int(rng.integers(3, 8)))
        image, first = convolution(rng, image, outputs=int(rng.integers(1, 4)))
        weights = [first]
        biases = [np.repeat(rng.integers(-2, 3, image[0]) / 4, image[1] * image[2])]
        if min(image[1:]) > 2 and rng.random() < 0.4:
            image, matrix, bias = pooling(image)
            weights, biases = [*weights, matrix], [*biases, bias]
        for _ in range(int(rng.integers(1, 3))):
            if min(image[1:]) > 1:
                image, matrix = convolution(rng, image, outputs=int(rng.integers(1, 5)))
                weights.append(matrix)
                biases.append(np.repeat(rng.integers(-2, 3, image[0]), image[1] * image[2]))
    else:
        inputs = int(rng.integers(5, 20))
        first = np.diag(rng.choice([-1.0, 1.0], inputs))
        if shape == "deep":
            first = _ternary(rng, int(rng.integers(8, 25)), inputs)
        weights, biases = [first], [rng.integers(-2, 3, first.shape[0]) / 4]
        for _ in range(int(rng.integers(1, 5))):
            weights.append(_ternary(rng, int(rng.integers(5, 25)), weights[-1].shape[0]))
            biases.append(rng.integers(-2, 3, weights[-1].shape[0]).astype(float))
    classes = int(rng.integers(2, 6))
    last = _ternary(rng, classes, weights[-1].shape[0])
    if rng.random() < 0.2:
        last = np.rint(rng.normal(size=last.shape) * 64) / 64
    bias = rng.integers(-2, 3, classes).astype(float)
    return TinyNetwork((*weights, last), (*biases, bias), sign_zero)


def _ternary(rng: np.random.Generator, *shape: int) -> np.ndarray:
    zeros = float(rng.choice([0.05, 0.4, 0.8]))
    return rng.choice([0.0, 1.0, -1.0], shape, p=[zeros, (1 - zeros) / 2, (1 - zeros) / 2])


def _random_region(rng: np.random.Generator, inputs: int) -> bnncert.Ball:
    norm: Any = str(rng.choice(["linf", "l1", "l2"]))
    center = rng.integers(-8, 9, inputs) / 16 if rng.random() < 0.5 else rng.uniform(-1, 1, inputs)
    size = {"linf": 0.15, "l2": 0.5, "l1": 1.0}[norm]
    radius = size * float(rng.choice([0.25, 0.5, 1.0, 1.5]))
    lo, hi = (-1.0, 1.0) if rng.random() < 0.5 else (None, None)
    return bnncert.Ball(norm, center, radius, lo, hi)
