"""Proofs of tolerated faults: the questions of :mod:`bnncert.kernel.rules.fault_questions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bnncert.deadline import Deadline
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Counterexample, Result, Status
from bnncert.kernel.rules.fault_questions import (
    FaultProof,
    FaultQuestion,
    FaultScope,
    FaultSetting,
)
from bnncert.kernel.rules.weight_flips import FaultError
from bnncert.problem import Problem, Ties
from bnncert.questions.verify import verify
from bnncert.regions import Ball, Region


def flip_ball(inputs: int, flips: int) -> Ball:
    """Return the numbers of flips of all neurons whose sum is at most `flips`."""
    return Ball("l1", np.zeros(inputs), flips, 0, max(flips, 1), grid=1)


@dataclass(eq=False)
class FaultProver:
    """Asks the questions of scopes; every question is asked once.

    Attributes
    ----------
    problem
        The question without faults.
    ties, method, options, progress
        Those of :func:`bnncert.verify`.
    folder
        Where the certificates of proved questions are kept; None without certificates.
    """

    problem: Problem
    setting: FaultSetting
    ties: Ties
    method: str
    options: Options | None = None
    progress: Progress | None = None
    folder: Path | None = None
    #: The certificates of proved questions, and the longest time for open ones.
    proved: dict[tuple[str, int | None], Path | None] = field(default_factory=dict)
    open: dict[tuple[str, int | None], float] = field(default_factory=dict)

    def without_faults(self, deadline: Deadline) -> tuple[Status, Counterexample | None]:
        """Return the answer to the question without faults, and its counterexample."""
        question = FaultQuestion(self.setting.network)
        result = self._ask(question, deadline.remaining())
        return result.status, result.counterexample

    def is_tolerated(
        self, scope: FaultScope, count: int, proof: FaultProof, deadline: Deadline, slice_: float
    ) -> bool:
        """Whether `count` faults of a scope are proved to be tolerated in the time."""
        if proof == "computed":
            return self._is_computed(scope, count)
        try:
            questions = self.setting.questions(scope, count, proof)
            return all(self._is_robust(question, deadline, slice_) for question in questions)
        except FaultError:
            # The faults can be divided among the layers in too many ways.
            return False

    def parts(self, scope: FaultScope, count: int, proof: FaultProof) -> list[Path]:
        """Return the certificates of the questions that a proved count needs."""
        if proof == "computed":
            return []
        found = (self.proved[key_of(q)] for q in self.setting.questions(scope, count, proof))
        return [path for path in found if path is not None]

    def _is_computed(self, scope: FaultScope, count: int) -> bool:
        at = self.setting.at_point
        assert at is not None
        losses = self.setting.losses(scope, count)
        for target in self.problem.targets:
            assert target.rival is not None
            (objective,) = target.objectives
            value = objective.exactly(at.signs[-1]) - losses[target.rival] - objective.exact_error
            if value < 0 or (value == 0 and not objective.tie_is_fine):
                return False
        return True

    def _is_robust(self, question: FaultQuestion, deadline: Deadline, slice_: float) -> bool:
        key = key_of(question)
        if key in self.proved:
            return True
        limit = deadline.within(slice_).remaining()
        if limit <= 0 or self.open.get(key, 0.0) >= limit:
            return False
        return self._ask(question, limit).status == "robust"

    def _ask(self, question: FaultQuestion, seconds: float) -> Result:
        """Verify a question and remember its certificate, or how long it has been open."""
        key = key_of(question)
        path = None if self.folder is None else self.folder / f"{len(self.proved)}.bnncert"
        result = verify(
            question.network,
            self._region(question),
            self.setting.label,
            targets=tuple(self.setting.rivals),
            ties=self.ties,
            method=self.method,
            timeout=None if seconds == np.inf else max(seconds, 1e-3),
            options=self.options,
            progress=self.progress,
            certificate=path,
            strict=False,
        )
        if result.status == "robust" and (path is None or result.certificate is not None):
            self.proved[key] = path
        elif result.status == "robust":
            result = replace(result, status="unknown")
        if result.status != "robust":
            self.open[key] = np.inf if result.status == "not_robust" else seconds
        return result

    def _region(self, question: FaultQuestion) -> Region:
        if question.flips is None:
            return self.problem.region
        return flip_ball(question.network.inputs, question.flips)


def key_of(question: FaultQuestion) -> tuple[str, int | None]:
    """Return what identifies a question: its network and its number of flips."""
    return question.network.content_hash, question.flips


def largest(holds: Callable[[int], bool], lower: int, upper: int, start: int | None = None) -> int:
    """Return the largest count below `upper` that is found to hold, `lower` being known to hold.

    Steps are doubled until one fails, and then halved; `start` is tried first.
    """
    step, failed = 1, upper
    if start is not None and lower < start < upper:
        lower, failed = (start, failed) if holds(start) else (lower, start)
    while failed > lower + 1:
        count = min(lower + step, failed - 1)
        if holds(count):
            lower, step = count, 2 * step
        else:
            failed = count
            break
    while failed > lower + 1:
        middle = (lower + failed) // 2
        lower, failed = (middle, failed) if holds(middle) else (lower, middle)
    return lower
