"""Answers of every method about tiny networks, compared with those of brute force.

One case is a network, a region and a value of sign(0), of which brute force finds all reachable
scores in rationals; several answers are compared with them.  Wrong is a status that brute force
contradicts, a bound on the wrong side of the minimum, a counterexample that does not replay with
the oracle's own arithmetic, an exception, and a warning about numbers that overflow.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np
from tests.brute_force import TinyNetwork, faults, reachable_last_layers, scores_of
from tests.random_questions import (
    KINDS,
    Ask,
    random_ask,
    random_network,
    random_options,
    random_region,
)

import bnncert
from benchmarks.soundness.part import Outcome
from bnncert import REGISTRY, Options

NUMBER = 50_000

#: Answers of one case, which share the work of brute force.
ANSWERS = 10

#: How often a method is drawn, relative to 1 for those that are not named.
SHARES = {
    "auto": 4.0,
    "bab": 3.0,
    "milp": 3.0,
    "minp": 1.5,
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
COMPLETE = ("auto", "bab", "milp", "minp")

#: Seconds in which they must do so, and limits that are met in the middle of the work.
ENOUGH, SHORT = 60.0, (1e-4, 1e-3, 3e-3, 0.01, 0.03)


@dataclass(frozen=True, eq=False)
class Question:
    """What the answers of one case have in common."""

    net: TinyNetwork
    network: bnncert.Network
    region: bnncert.Region
    kind: str


def case(seed: int, number: int) -> Outcome:
    """Compare several answers about one random network and region."""
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(KINDS))
    inputs = int(rng.choice([1, 2, 3], p=[0.1, 0.65, 0.25]))
    net = random_network(rng, inputs, str(rng.choice(["plus", "minus", "either"])))
    question = Question(net, net.build(), random_region(rng, kind, inputs), kind)
    scores = scores_of(net, reachable_last_layers(net, question.region))
    tally: Counter[str] = Counter()
    wrong = []
    for _ in range(ANSWERS):
        ask = random_ask(rng, question.network, question.region)
        method = _random_method(rng, question)
        options = random_options(rng, method)
        limit = _random_limit(rng, method)
        centre = bool(rng.random() < 0.5)
        try:
            with warnings.catch_warnings():
                # As in the test suite: numbers that are no numbers must not arise.
                warnings.filterwarnings("error", category=RuntimeWarning, module="bnncert")
                result = bnncert.solve(
                    [ask.problem], method, limit, options, None, check_centre=centre
                )
            found = faults(net, question.region, scores, ask.targets, result)
            word = _word(ask, method, options, limit, result)
        except Exception:
            found = ["exception: " + traceback.format_exc().strip().replace("\n", " | ")]
            word = "exception"
        tally[f"{method}, {kind}: {word}"] += 1
        tally["of these: " + ("a failure exists" if ask.is_violated(scores) else "robust")] += 1
        wrong += [_described(question, ask, method, options, limit, line) for line in found]
    return Outcome(ANSWERS, dict(tally), tuple(wrong))


def _random_method(rng: np.random.Generator, question: Question) -> str:
    """Draw a method that takes the region; one that is registered later joins by itself."""
    size = sum(w.shape[1] for w in question.net.weights)
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


def _word(
    ask: Ask, method: str, options: Options, limit: float | None, result: bnncert.Result
) -> str:
    """Return the status as it is counted: an undecided answer of a complete method stands out."""
    if result.status in ("robust", "not_robust"):
        return result.status
    if limit in SHORT:
        return f"{result.status}, short limit"
    # Of conditions that fail only together bab bounds one after another.
    several = max(len(target) for target in ask.targets) > 1
    if method in COMPLETE and options.form == "lattice" and not (method == "bab" and several):
        return f"{result.status}, complete method"
    return result.status


def _described(
    question: Question, ask: Ask, method: str, options: Options, limit: float | None, line: str
) -> str:
    """Return one line that says all about an answer: the seed and the number repeat it."""
    net = question.net
    return (
        f"{method}, {options.mode}, form {options.form}, limit {limit}, sign(0) {net.sign_zero}, "
        f"{question.region.describe()}, {ask.text}: {line}"
    )
