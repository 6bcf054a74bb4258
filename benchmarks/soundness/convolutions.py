"""Small convolutional networks as ONNX models, compared with brute force on the file's nodes.

Strides, padding, pooling, batch normalisation, both layouts, one to three sign layers; see
`tests.tiny_convolutions`.  Each case is one model and a region in which few pixels are free, and
several answers about it.
"""

from __future__ import annotations

import traceback
from collections import Counter

import numpy as np
from tests.test_convolutions import check_answer, kind_of
from tests.tiny_convolutions import random_question

import bnncert
from benchmarks.soundness.part import Outcome
from benchmarks.soundness.small_limits import small_limits
from bnncert import Options
from bnncert.engine.methods import REGISTRY

NUMBER = 10_000

#: Answers of one case, which share the work of brute force.
ANSWERS = 6

#: Methods that are drawn; the relaxations of the paper take seconds for these.
METHODS = ("auto", "bab", "elimination", "propagation", "milp", "lp", "sdp", "interval", "attack")

#: Seconds for one answer, and little work for what has no end of its own.
SECONDS = {"attack": 0.05}
WORK = {"restarts": 4, "iterations": 3, "threads": 1}


def case(seed: int, number: int) -> Outcome:
    """Compare several answers about one random model."""
    rng = np.random.default_rng([seed, number])
    wanted = str(rng.choice(["linf", "l1", "box", "polytope", "l2"]))
    question = random_question(int(rng.integers(2**31)), wanted)
    kind = kind_of(question.region)
    tally: Counter[str] = Counter()
    wrong = []
    for _ in range(ANSWERS):
        method = str(rng.choice([m for m in METHODS if kind in REGISTRY.make(m).regions]))
        options = Options(mode=str(rng.choice(["feasibility", "optimum"])), **WORK)  # type: ignore[arg-type]
        try:
            with small_limits(rng):
                result = bnncert.verify(
                    question.network,
                    question.region,
                    question.label,
                    method=method,
                    options=options,
                    timeout=SECONDS.get(method, 20),
                )
            word = result.status
            check_answer(question, result)
        except Exception:
            word = "wrong"
            text = traceback.format_exc().strip().replace("\n", " | ")
            wrong.append(f"{method}, {kind}, {options.mode}: {text}")
        tally[f"{method}, {kind}: {word}"] += 1
    return Outcome(ANSWERS, dict(tally), tuple(wrong))
