"""Answers of every method about tiny networks, compared with those of brute force.

One case is a network, a region and a value of sign(0), of which brute force finds all reachable
scores in rationals; several answers are compared with them.  The networks are dense ones, deep
ones, such that binarise their inputs, and unrolled convolutions; half of the answers are given with
limits of the engines that are so small that a tiny network reaches them.  Wrong is a status that
brute force contradicts, a bound on the wrong side of the minimum, a counterexample that does not
replay with the oracle's own arithmetic, a certificate that the checker refuses, an exception, and a
warning about numbers that overflow.
"""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from tests.brute_force import faults
from tests.random_questions import KINDS, Ask, random_ask, random_options
from tests.random_shapes import SHAPES, ShapedQuestion, random_shaped_question, with_grid

import bnncert
from benchmarks.soundness.part import Outcome
from benchmarks.soundness.small_limits import OF_CHECKER, small_limits
from bnncert import Options
from bnncert.engine.methods import REGISTRY
from bnncert.engine.verdict import Result
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.problem.problem import float32_network
from bnncert.questions.prover import solve

NUMBER = 50_000

#: Answers of one case, which share the work of brute force.
ANSWERS = 10

#: How often a method is drawn, relative to 1 for those that are not named.
SHARES = {
    "auto": 4.0,
    "bab": 3.0,
    "elimination": 5.0,
    "learning": 5.0,
    "milp": 3.0,
    "minp": 1.0,
    "propagation": 5.0,
    "sdp": 2.0,
    "sdp-standard": 0.4,
    "sdp-tight-plain": 0.4,
    "sdp-tight": 0.4,
    "sdp-tight-pairwise": 0.4,
    "sdp-order2": 0.1,
}

#: Second-order moments of more inputs and neurons than this take seconds.
MOST_FOR_ORDER_2 = 9

#: Methods that decide whatever the time allows.
COMPLETE = ("auto", "bab", "elimination", "learning", "milp", "minp", "propagation")

#: Seconds in which they must do so, and limits that are met in the middle of the work.
ENOUGH, SHORT = 60.0, (1e-4, 1e-3, 3e-3, 0.01, 0.03)

#: How often limits of the engines are small, a search gets two processes (which take a second to
#: start), signs are those of float32, and a certificate is written; and how often the inputs of a
#: case are those on a grid.
SMALL, TWO_PROCESSES, FLOAT32, CERTIFICATE, GRID = 0.5, 0.1, 0.1, 0.3, 0.15


@dataclass(frozen=True, eq=False)
class Question:
    """What the answers of one case have in common."""

    shaped: ShapedQuestion
    network: bnncert.Network
    shape: str
    kind: str


@dataclass(frozen=True, eq=False)
class Way:
    """How one answer is found."""

    method: str
    options: Options
    limit: float | None
    arithmetic: Any
    small: bool
    check_centre: bool


def case(seed: int, number: int) -> Outcome:
    """Compare several answers about one random network and region."""
    rng = np.random.default_rng([seed, number])
    kind, shape = str(rng.choice(KINDS)), str(rng.choice(SHAPES))
    zero = str(rng.choice(["plus", "minus", "either"]))
    shaped = random_shaped_question(rng, shape, kind, zero)
    if rng.random() < GRID:
        shaped = with_grid(rng, shaped)
    network, region = shaped.net.build(), shaped.on_grid or shaped.region
    kind = region.norm if isinstance(region, bnncert.Ball) else type(region).__name__.lower()
    kind = "l0" if isinstance(region, bnncert.L0Ball) else kind
    question = Question(shaped, network, shape, kind)
    scores = shaped.scores()
    tally: Counter[str] = Counter()
    wrong = []
    for _ in range(ANSWERS):
        way = _random_way(rng, question)
        executed = network if way.arithmetic == "real" else float32_network(network, region)
        ask = random_ask(rng, executed, region)
        try:
            result, objection = _answer(rng, question, ask, way)
            found = faults(shaped.net, shaped.region, scores, ask.targets, result)
            found += _off_grid(shaped, result)
            found += [objection] if objection else []
            word = _word(ask, way, result)
            if result.certificate is not None:
                tally[f"certificates, {way.method}, {shape}: {result.status}"] += 1
        except Exception:
            found = ["exception: " + traceback.format_exc().strip().replace("\n", " | ")]
            word = "exception"
        where = kind if shaped.on_grid is None else f"{kind} on a grid"
        tally[f"{way.method}, {where}, {shape}: {word}"] += 1
        tally["of these: " + ("a failure exists" if ask.is_violated(scores) else "robust")] += 1
        wrong += [_described(question, ask, way, line) for line in found]
    return Outcome(ANSWERS, dict(tally), tuple(wrong))


def _off_grid(shaped: ShapedQuestion, result: Result) -> list[str]:
    """Return what is wrong if a counterexample is not on the grid."""
    point = result.counterexample
    if shaped.on_grid is None or point is None:
        return []
    exact = point.exact or tuple(map(Fraction, point.point.tolist()))
    return [] if exact in shaped.points else [f"the counterexample {exact} is not on the grid"]


def _answer(rng: np.random.Generator, question: Question, ask: Ask, way: Way) -> tuple[Result, str]:
    """Return an answer, and what the checker has against its certificate."""
    limits = small_limits(rng) if way.small else nullcontext()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # As in the test suite: numbers that are no numbers must not arise.
        warnings.filterwarnings("error", category=RuntimeWarning, module="bnncert")
        path = Path(folder) / "answer.cert"
        certificate = path if rng.random() < CERTIFICATE else None
        with limits:
            result = solve(
                [ask.problem],
                way.method,
                way.limit,
                way.options,
                None,
                check_centre=way.check_centre,
                arithmetic=way.arithmetic,
                stated=question.network,
                certificate=certificate,
            )
        if result.certificate is not None:
            try:
                with small_limits(rng, OF_CHECKER):
                    report = check(path, question.network)
            except (RejectedError, UnreadableError) as error:
                return result, f"the certificate is refused: {error}"
            if report.verdict != result.status:
                return result, f"the certificate says {report.verdict}, not {result.status}"
    return result, ""


def _random_way(rng: np.random.Generator, question: Question) -> Way:
    method = _random_method(rng, question)
    options = random_options(rng, method)
    if method in ("bab", "propagation") and rng.random() < TWO_PROCESSES:
        options = replace(options, processes=2)
    return Way(
        method,
        options,
        _random_limit(rng, method),
        "float32" if rng.random() < FLOAT32 else "real",
        bool(rng.random() < SMALL),
        bool(rng.random() < 0.5),
    )


def _random_method(rng: np.random.Generator, question: Question) -> str:
    """Draw a method that takes the region; one that is registered later joins by itself."""
    size = sum(w.shape[1] for w in question.shaped.net.weights)
    names = [
        m.name
        for m in REGISTRY.all()
        if m.available()
        and question.kind in m.regions.split(", ")
        and (m.name != "sdp-order2" or size <= MOST_FOR_ORDER_2)
    ]
    shares = np.array([SHARES.get(name, 1.0) for name in names])
    return str(rng.choice(names, p=shares / shares.sum()))


def _random_limit(rng: np.random.Generator, method: str) -> float | None:
    """Draw a time limit; in seven of ten cases one that does not matter."""
    if rng.random() < 0.3:
        return float(rng.choice(SHORT))
    return ENOUGH if method in COMPLETE else None


def _word(ask: Ask, way: Way, result: Result) -> str:
    """Return the status as it is counted: an undecided answer of a complete method stands out."""
    if result.status in ("robust", "not_robust"):
        return result.status
    if way.limit in SHORT:
        return f"{result.status}, short limit"
    # Of conditions that fail only together bab and elimination bound one after another.  Signs of
    # float32 may be undetermined, bounds on a grid are those of real inputs, and small limits leave
    # bounds that are not exact.
    several = max(len(target) for target in ask.targets) > 1
    incomplete = several and way.method in ("bab", "elimination")
    incomplete |= way.small and way.method == "elimination"
    incomplete |= ask.problem.region.grid is not None
    incomplete |= way.arithmetic == "float32" or way.options.form != "lattice"
    if way.method in COMPLETE and not incomplete:
        return f"{result.status}, complete method"
    return result.status


def _described(question: Question, ask: Ask, way: Way, line: str) -> str:
    """Return one line that says all about an answer: the seed and the number repeat it."""
    options = way.options
    return (
        f"{way.method}, {question.shape}, {options.mode}, form {options.form}, "
        f"processes {options.processes}, limit {way.limit}, {way.arithmetic}, "
        f"small limits {way.small}, sign(0) {question.shaped.net.sign_zero}, "
        f"{ask.problem.region.describe()}, {ask.text}: {line}"
    )
