"""Instances that interval bounds or a few gradient steps decide, answered many at once.

Most instances of a campaign with a small radius are proved by intervals.  These bounds are products
with matrices, which many instances share, and so are gradients.  Rows of proofs are the ones that
`answer` gives for each; a counterexample may be another one.  All other instances stay open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from typing import TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.batches import (
    BatchAttack,
    BatchBounds,
    BatchIntervals,
    CandidateMethod,
    interval_proofs,
)
from bnncert.engine.exact_classes import chunk_size
from bnncert.engine.method_run import run_method
from bnncert.engine.methods import Context
from bnncert.engine.presolve.pipeline import plain_presolve
from bnncert.engine.presolve.stability import stability
from bnncert.engine.replay import Replayer
from bnncert.engine.search.trace import SearchRecord
from bnncert.engine.timing import LayerCount, StageWork, Timing
from bnncert.engine.verdict import Result, TargetResult
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.problem import Problem, Rivals, robustness
from bnncert.questions.verify import warn_outside
from bnncert.regions import Box, InputSet
from bnncert.results.instance import Instance, InstanceAnswer, Settings, answered

#: The most instances of a batch, which Ctrl-C loses.
MOST = 256

#: The stage that decides, and the methods that begin with it.
STAGE, METHODS = "interval", ("interval", "auto")

#: The norms of small balls.  Around an L0 ball is the whole data box, which fixes few signs, and
#: other shapes of change are several regions, or none.
NORMS = ("linf", "l2", "l1")

#: The instances of a batch with their answers; None for those that stay open.
Batch: TypeAlias = list[tuple[Instance, InstanceAnswer | None]]


def in_batches(networks: Mapping[str, Network], instances: Iterable[Instance]) -> Iterator[Batch]:
    """Yield the instances in their order, in batches with the answers that intervals give."""
    for (content, settings), group in groupby(instances, lambda i: (i.key.model_hash, i.settings)):
        together = _Together(networks[content], settings)
        most = min(MOST, chunk_size(together.network))
        while part := list(islice(group, most)):
            if together.is_usual and most > 1:
                yield together.answers(part)
            else:
                yield [(instance, None) for instance in part]


@dataclass(eq=False)
class _Together:
    """The instances of one network and kind."""

    network: Network
    settings: Settings
    is_usual: bool = field(init=False)

    def __post_init__(self) -> None:
        s = self.settings
        self.is_usual = (
            (s.question, s.arithmetic) == ("verify", "real")
            and s.norm in NORMS
            and s.method in METHODS
            and self.network.classes > 1
        )

    @cached_property
    def _intervals(self) -> BatchIntervals:
        return BatchIntervals(self.network)

    @cached_property
    def _attack(self) -> BatchAttack:
        return BatchAttack(self.network)

    def answers(self, instances: Sequence[Instance]) -> Batch:
        """Return the instances with answers where intervals prove them."""
        started = time.monotonic()
        problems = [self._problem(i, i.ball, self.settings.rivals) for i in instances]
        boxes = [problem.region for problem in problems]
        bounds = self._intervals.bounds(boxes)
        lowers, proved = interval_proofs(problems, bounds, self.settings.ties)
        if self.settings.rivals != "all":
            # The centre has to have the label, and no other class the same score.
            points = [Box(b.center, b.center) for b in boxes]
            whole = [self._problem(i, p, "all") for i, p in zip(instances, points, strict=True)]
            exact = self._intervals.bounds(points)
            proved &= interval_proofs(whole, exact, self.settings.ties)[1]
        share = (time.monotonic() - started) / len(instances)
        if share > (self.settings.timeout or math.inf):
            # Such a network has no time for work that may have to be done again.
            self.is_usual = False
        answers: dict[int, InstanceAnswer] = {}
        for k in np.flatnonzero(proved).tolist():
            warn_outside(self.network, boxes[k])
            result = self._result(problems[k], lowers[k], bounds.open_signs(k), share)
            answers[k] = self._answered(instances[k], problems[k], result)
        if self.settings.method != STAGE and self.settings.norm == "linf" and self.is_usual:
            rows = np.flatnonzero(~proved & ~bounds.doubtful)
            answers |= self._violated(instances, problems, bounds, rows)
        return [(instance, answers.get(k)) for k, instance in enumerate(instances)]

    def _violated(
        self,
        instances: Sequence[Instance],
        problems: Sequence[Problem],
        bounds: BatchBounds,
        rows: IntArray,
    ) -> dict[int, InstanceAnswer]:
        """Return the answers where a few steps of the attack find a counterexample."""
        if not rows.size or self.settings.rivals != "all":
            return {}
        answers: dict[int, InstanceAnswer] = {}
        options, limit = self.settings.options(1), self.settings.timeout
        for k, point in self._attack.candidates(problems, bounds, rows).items():
            run = run_method(CandidateMethod(point), [problems[k]], limit, options)
            found = run.result.counterexample
            # After a tie at the centre, the method looks for a strict counterexample.
            if found is not None and not found.tie:
                warn_outside(self.network, problems[k].inputs)
                answers[k] = self._answered(instances[k], problems[k], run.result)
        return answers

    def _problem(self, instance: Instance, region: InputSet, rivals: Rivals) -> Problem:
        return robustness(self.network, region, instance.label, rivals, self.settings.ties)

    def _answered(self, instance: Instance, problem: Problem, result: Result) -> InstanceAnswer:
        """Return the row of a result, and its certificate if one is wanted."""
        if instance.certificate is None:
            return answered(instance, result)
        # Imported on use, because most verifications do not write a certificate.
        from bnncert.proofs.claims import write_verdict

        record = SearchRecord()
        if self.settings.method != STAGE:
            # As `auto` records it; the method `interval` leaves presolve to the certificate.
            bounds = stability(self.network, problem.region)
            record.presolved = plain_presolve(self.network, problem.region, bounds)
        limit = Deadline(self.settings.timeout)
        context = Context(self.settings.options(1), limit, Replayer(problem), record=record)
        with folder_for(instance.certificate) as folder:
            file = folder / "certificate.bnncert"
            found = write_verdict(file, problem, self.network, result, context)
            content = None if found.certificate is None else file.read_bytes()
        seconds = result.seconds + limit.elapsed()
        return answered(instance, replace(found, certificate=None, seconds=seconds), content)

    def _result(
        self, problem: Problem, lowers: FloatArray, open_: list[int], seconds: float
    ) -> Result:
        """Return the answer as the method gives it."""
        targets = problem.targets
        own, method = seconds / len(targets), self.settings.method
        work = tuple(
            StageWork(STAGE, target.name, own, lower=lower, decided=True)
            for target, lower in zip(targets, lowers.tolist(), strict=True)
        )
        layers = zip(self.network.layers, open_, strict=True)
        counts = tuple(LayerCount(layer.size, count) for layer, count in layers)
        # Only `auto` divides the time of a target among stages.
        details = {} if method == STAGE else {"seconds": {STAGE: own}}
        return Result(
            status="robust",
            targets=tuple(
                TargetResult(
                    name=target.name,
                    status="robust",
                    lower=done.lower,
                    seconds=own,
                    stage=STAGE,
                    rival=target.rival,
                    details=dict(details),
                    tried=False,
                )
                for target, done in zip(targets, work, strict=True)
            ),
            seconds=seconds,
            method=method,
            label=problem.label,
            notes=(*self.network.notes, *problem.inputs.notes),
            timing=Timing(work, counts).completed(seconds),
        )
