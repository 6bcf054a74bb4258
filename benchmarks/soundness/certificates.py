"""Certificates with changes: whatever is accepted is true by brute force.

A case is a random question about a tiny network, the certificate of its answer, which has to be
accepted, and MUTANTS changed copies.  A copy that is accepted has to state something true, to be
about something, and to name its assumptions; a copy that is not must be refused with a reason.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from tests.kernel.claims import Judge, pack, unpack
from tests.kernel.mutations import Sections, mutant
from tests.kernel.pattern_trees import random_deep_question
from tests.kernel.random_claims import Question, random_question
from tests.random_questions import random_ask
from tests.random_shapes import SHAPES, random_shaped_question

from benchmarks.soundness.part import Outcome
from benchmarks.soundness.small_limits import OF_CHECKER, small_limits
from bnncert.deadline import Deadline
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.problem.problem import float32_network
from bnncert.proofs.writing import CertificateError, write_counterexample, write_proof
from bnncert.questions.prover import solve
from bnncert.regions import EmptyRegionError

NUMBER = 20_000

#: Changed copies of each certificate, and seconds of processor time that checking one may take.
MUTANTS, SECONDS = 60, 10.0

#: Share of questions about deep networks, decided by a search over sign patterns, and of those
#: about deep and convolutional ones that any complete method decides, with limits of the engines
#: that are often small.
PATTERNS, SHAPED = 0.25, 0.35

METHODS = ("auto", "bab", "elimination", "propagation")


def _certificate(path: Path, rng: np.random.Generator) -> tuple[Question, Sections] | None:
    """Return a question and the certificate of its answer, if there is one."""
    try:
        question, draw = random_question(rng), rng.random()
        if draw < PATTERNS:
            question = random_deep_question(rng, question.kind)
            return _of_method(path, question, "propagation")
        if draw < PATTERNS + SHAPED:
            question = _shaped_question(rng, question.kind)
            with small_limits(rng) if rng.random() < 0.5 else nullcontext():
                return _of_method(path, question, str(rng.choice(METHODS)))
        problem, arithmetic = question.problem, question.arithmetic
        result = solve([problem], "auto", 20, arithmetic=arithmetic)  # type: ignore[arg-type]
        network = question.network
        if result.status == "robust":
            write_proof(path, problem, network, arithmetic=arithmetic, deadline=Deadline(20))
        elif result.counterexample is not None:
            found = result.counterexample
            write_counterexample(path, problem, network, found, arithmetic=arithmetic)
        else:
            return None
    except (CertificateError, EmptyRegionError):
        # Of several functions each may be needed somewhere; a polytope may miss its box.
        return None
    return question, unpack(path)


def _of_method(path: Path, question: Question, method: str) -> tuple[Question, Sections] | None:
    """Return a question and the certificate of a method's answer."""
    arithmetic: Any = question.arithmetic
    result = solve(
        question.problem,
        method,
        20,
        arithmetic=arithmetic,
        stated=question.network,
        certificate=path,
    )
    return None if result.certificate is None else (question, unpack(path))


def _shaped_question(rng: np.random.Generator, kind: str) -> Question:
    """Return a question about a deep or a convolutional network with few inputs."""
    while True:
        shape, zero = str(rng.choice(SHAPES)), str(rng.choice(["plus", "minus", "either"]))
        shaped = random_shaped_question(rng, shape, kind, zero)
        # The oracle finds all patterns again for every changed region.
        if shaped.region.size == shaped.free.size <= (2 if kind == "l2" else 3):
            break
    network, region = shaped.net.build(), shaped.region
    arithmetic = "float32" if rng.random() < 0.15 else "real"
    executed = network if arithmetic == "real" else float32_network(network, region)
    problem = random_ask(rng, executed, region).problem
    return Question(shaped.net, network, problem, arithmetic, kind)


def case(seed: int, number: int) -> Outcome:
    """Write one certificate, change it many times, and judge what is accepted."""
    rng = np.random.default_rng([seed, number])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.cert"
        made = _certificate(path, rng)
        other = None
        while made is not None and other is None:
            other = _certificate(path, rng)
        if made is None or other is None:
            return Outcome(0, {"without a certificate": 1})
        return _judge(path, rng, *made, other[1])


def _judge(
    path: Path, rng: np.random.Generator, question: Question, valid: Sections, other: Sections
) -> Outcome:
    judge, tally, wrong, slowest = Judge(question.tiny), Counter[str](), [], 0.0
    for k in range(MUTANTS + 1):
        sections = valid if k == 0 else mutant(rng, valid, (valid, other))
        pack(path, sections)
        zero = None if k == 0 or rng.integers(4) else str(rng.choice(["plus", "minus", "either"]))
        started, reason = time.process_time(), None
        try:
            with small_limits(rng, OF_CHECKER):
                report = check(path, question.network, sign_zero=zero)  # type: ignore[arg-type]
        except (RejectedError, UnreadableError) as error:
            tally["refused"] += 1
            reason = "the certificate itself was refused" if k == 0 else None
            if not str(error) or not str(error).isprintable() or len(str(error)) > 300:
                reason = f"a reason that is not one line: {str(error)[:200]!r}"
        else:
            tally["accepted"] += 1
            reason = judge.objection(report, sections[0], zero)
        seconds = time.process_time() - started
        slowest = max(slowest, seconds)
        if reason is None and seconds > SECONDS:
            reason = f"the check took {seconds:.1f} s"
        if reason is not None:
            wrong.append(f"mutant {k}: {reason}")
    fields = valid[0].fields
    kind = fields["region"] + (" on a grid" if "grid" in fields else "")
    tally[f"{fields['verdict']}, {kind}, {question.arithmetic}"] += MUTANTS
    return Outcome(MUTANTS, dict(tally), tuple(wrong), {"seconds of a check": slowest})
