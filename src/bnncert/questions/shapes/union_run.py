"""Robustness on a finite union of boxes: it holds if it holds on every box.

The boxes of a patch or of shifts have most inputs in common.  They are ordered by how near to a
violation a few of their points come, so that a counterexample is found early.  With the method
`auto` a box is first split into parts that intervals decide (`engine.search.box_splitting`);
what this leaves open is answered as a question of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.strict_search import STAGE as STRICT
from bnncert.engine.methods.strict_search import time_for_strict
from bnncert.engine.methods.sweep import evaluate_points
from bnncert.engine.replay import Replayer
from bnncert.engine.search.box_splitting import BoxSplitter
from bnncert.engine.timing import Account, StageWork
from bnncert.engine.verdict import Counterexample, Result, Status, TargetResult, overall_status
from bnncert.model.rationals import float_above, float_below
from bnncert.questions.prover import Effort, Prover
from bnncert.questions.shapes.union_question import BoxAnswer, UnionQuestion
from bnncert.regions import Box
from bnncert.regions.pictures import Original

#: Boxes that one box is split into at first, and in a second attempt.
FEW_NODES, MANY_NODES = 4_000, 1_000_000

#: Free inputs up to which the second attempt is worth its time.
FEW_INPUTS = 6

#: Seconds of an attack on a box that splitting does not prove, and its shortest time for a proof.
ATTACK_SECONDS, LEAST_SECONDS = 0.3, 0.5

#: Boxes that are attacked at once if splitting does not prove them: the most likely violations.
FIRST_ATTACKS = 20

#: Points of each box from which the order follows, besides its two extreme corners.
RANDOM_CORNERS = 4

#: The names of the stages in tables.
STAGE, POINTS = "splitting", "points"


@dataclass(eq=False)
class UnionRun:
    """Answers the boxes one after the other, and combines what is known."""

    question: UnionQuestion
    deadline: Deadline
    #: The folder for the certificates of boxes; None if no certificate is asked for.
    folder: Path | None = None
    #: The answers for all targets, by box; the stages that decided; the certificates.
    known: dict[int, list[BoxAnswer]] = field(default_factory=dict)
    #: The boxes that splitting proved, which the checker can prove again.
    split: set[int] = field(default_factory=set)
    stages: dict[str, None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    certificates: dict[int, Path] = field(default_factory=dict)
    example: Counterexample | None = None
    #: The box of the counterexample.
    found_in: int | None = None
    #: The target of a tie that a strict counterexample has replaced.
    tied: str | None = None
    notes: dict[str, None] = field(default_factory=dict)
    trusted: dict[str, None] = field(default_factory=dict)

    def run(self) -> None:
        """Answer as many boxes as the time allows; a counterexample ends the work."""
        open_: list[int] = []
        for number in self._order():
            if self.example is not None:
                return
            if self._split(number, FEW_NODES):
                continue
            if number and len(open_) < FIRST_ATTACKS and not self.deadline.passed():
                self._attack(number)
            open_.append(number)
        # The time that is left is divided among the open boxes, twice what an equal share would be.
        while open_ and self.example is None and not self.deadline.passed():
            left = []
            for place, number in enumerate(open_):
                if self.example is not None or self.deadline.passed():
                    return
                share = 2 * self.deadline.remaining() / (len(open_) - place)
                if not self._decide(number, max(LEAST_SECONDS, share)):
                    left.append(number)
            if len(left) == len(open_):
                return
            open_ = left

    def prefer_strict(self) -> None:
        """After a tie, look for a strict counterexample for some time, as for a single region."""
        tie, at_image = self.example, self.found_in == 0
        if tie is None or not tie.tie or (at_image and tie.class_changes is not False):
            return
        started, strict = time.monotonic(), replace(self.question, ties="robust")
        other = UnionRun(strict, time_for_strict(self.deadline))
        other.run()
        if other.example is not None:
            self.example, self.found_in = other.example, other.found_in
            self.stages, self.tied = {STRICT: None}, tie.target
        self._spend(STRICT, started)

    def _order(self) -> Iterator[int]:
        """Yield the image itself, and the boxes by the smallest margin of some of their points."""
        yield 0
        if self.example is not None:
            return
        self._evaluate()
        if self.example is not None:
            return
        count = self.question.union.count
        open_ = [k for k in range(1, count + 1) if k not in self.known]
        margins = np.full(count, np.inf)
        started = time.monotonic()
        generator = np.random.default_rng(0)
        for number in open_:
            if self.deadline.passed():
                break
            self.question.report("looking for the positions near a violation", number)
            margins[number - 1] = self._margin(number, generator)
            if margins[number - 1] <= 0:
                self._spend("attack", started)
                yield number
                if self.example is not None:
                    return
                started = time.monotonic()
        self._spend("attack", started)
        for number in sorted(open_, key=lambda k: float(margins[k - 1])):
            if not (margins[number - 1] <= 0):
                yield number

    def _evaluate(self) -> None:
        """Evaluate boxes that are single points in exact arithmetic, until one is violated."""
        question, union = self.question, self.question.union
        if question.method != "auto" or question.arithmetic != "real" or union.has_free_inputs:
            return
        if not self._may_split:
            return
        started, numbers = time.monotonic(), range(1, union.count + 1)
        problem = question.problem(union.real_box(0))
        points = (union.bounds(number)[0] for number in numbers)
        for number, judged in zip(numbers, evaluate_points(problem, points), strict=True):
            question.report(self.text(number), len(self.known))
            if any(swept.is_violated for swept in judged):
                self._confirm(number, union.bounds(number)[0][None, :])
            is_open = np.any(np.abs(judged[0].cell.signs) != 1)
            if all(s.is_violated is False for s in judged) and not (self.folder and is_open):
                self.known[number] = [
                    BoxAnswer("robust", _below(s.lower), _above(s.upper)) for s in judged
                ]
                self.split.add(number)
                self.stages[POINTS] = None
            if self.example is not None or self.deadline.passed():
                break
        self._spend(POINTS, started)

    def _margin(self, number: int, generator: np.random.Generator) -> float:
        """Return the smallest margin in floats of a few points of a box; confirm a violation."""
        question = self.question
        lo, hi = question.union.bounds(number)
        points = np.stack([lo, hi])
        if np.any(lo < hi):
            random = generator.random((RANDOM_CORNERS, lo.size)) < 0.5
            points = np.concatenate([points, np.where(random, lo, hi)])
        scores = question.network.evaluate(points)
        margins = scores[:, [question.label]] - scores[:, list(question.rivals)]
        if margins.min() <= 0:
            self._confirm(number, points[np.argsort(margins.min(axis=1))])
        return float(margins.min())

    def _confirm(self, number: int, points: FloatArray) -> bool:
        """Take the first of these points that is a counterexample in exact arithmetic."""
        question = self.question
        problem = question.problem(question.union.part(number))
        only_float32 = question.arithmetic == "float32"
        replayer = Replayer(problem, question.runtime, only_float32=only_float32)
        for point in points[:4]:
            for target in problem.targets:
                found = replayer.confirm(target, point)
                if found is not None:
                    self._take_example(number, found, "attack")
                    return True
        return False

    def _take_example(self, number: int, found: Counterexample, stage: str) -> None:
        place = self.question.union.place_text(number) if number else "the image itself"
        self.example, self.found_in = replace(found, place=place), number
        self.stages = {"centre" if number == 0 else stage: None}

    def _split(self, number: int, most_nodes: int) -> bool:
        """Prove a box by splitting; False if it is still open."""
        question = self.question
        self.question.report(self.text(number), len(self.known))
        if number == 0:
            return self._decide(number, self.deadline.remaining())
        if question.method != "auto" or not self._may_split or self.deadline.passed():
            return False
        started = time.monotonic()
        # The grid is left out: what holds for all values of the box holds on the grid.
        splitter = BoxSplitter(question.problem(question.union.real_box(number)))
        if not splitter.is_suited:
            return False
        answer = splitter.run(most_nodes, self.deadline)
        self._spend(STAGE, started)
        if answer.is_proved:
            self.known[number] = [BoxAnswer("robust", lower=0.0)] * len(question.rivals)
            self.stages[STAGE] = None
            self.split.add(number)
            return True
        return answer.candidates is not None and self._confirm(number, answer.candidates)

    def _decide(self, number: int, seconds: float) -> bool:
        """Answer the question about one box; False if it is still open."""
        question = self.question
        box = question.union.part(number)
        free = int(np.count_nonzero(box.lo < box.hi))
        if number and free <= FEW_INPUTS and self._split(number, MANY_NODES):
            return True
        limit = min(self.deadline.remaining(), seconds)
        return self._solve(number, box, question.method, limit).status in ("robust", "not_robust")

    def _attack(self, number: int) -> None:
        """Look for a counterexample in one box for a short time."""
        box = self.question.union.part(number)
        if self.question.method == "auto" and np.any(box.lo < box.hi):
            self._solve(number, box, "attack", min(self.deadline.remaining(), ATTACK_SECONDS))

    def _solve(self, number: int, box: Box, method: str, limit: float) -> Result:
        """Answer the question about one box by a method, with a certificate if one is asked for."""
        question = self.question
        if self.folder is None or method == "attack":
            return self._learn(number, self._ask(number, box, method, limit))
        # A certificate is about all values of the box, not only about those of a grid.  So it can
        # prove the box, but what it does not prove has to be asked about the grid alone.
        file, hull = self.folder / f"{number}.bnncert", question.union.real_box(number)
        share = limit if box.values is None else limit / 2
        result = self._ask(number, hull, method, share, file)
        if result.trusted is not None:
            self.trusted[result.trusted] = None
        if box.values is not None and result.status != "robust":
            result = self._ask(number, box, method, share)
        return self._learn(number, result)

    def _ask(
        self,
        number: int,
        box: Box,
        method: str,
        limit: float,
        file: Path | None = None,
    ) -> Result:
        """Run a method on one box."""
        question = self.question

        def tell(text: str, done: int, total: int) -> None:
            question.report(f"{self.text(number)}: {text}", len(self.known))

        timeout = None if math.isinf(limit) else max(limit, 1e-3)
        effort = Effort(method, timeout, question.options, tell, file, question.sign_zero)
        prover = Prover(effort, [question.network], question.arithmetic)
        result = prover.decide(question.problem(box), whole=True, stated=question.network)
        for stage, seconds in result.account.stages.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        return result

    def _learn(self, number: int, result: Result) -> Result:
        """Keep the answer for a box."""
        self.notes.update(dict.fromkeys(result.notes))
        self.known[number] = [BoxAnswer(t.status, t.lower, t.upper) for t in result.targets]
        if result.counterexample is not None:
            self._take_example(number, result.counterexample, result.deciding_stage)
        elif result.status == "robust":
            self.stages.update(dict.fromkeys(result.deciding_stage.split(", ")))
            self.trusted.update({t.trusted: None for t in result.targets if t.trusted})
            if result.certificate is not None:
                self.certificates[number] = Path(result.certificate)
        return result

    def text(self, number: int) -> str:
        """Return a box in words."""
        return self.question.union.place_text(number) if number else "the image itself"

    def _spend(self, stage: str, started: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started

    def robust(self) -> int:
        """Return the number of boxes, besides the image itself, that are proved robust."""
        return sum(
            number > 0 and all(a.status == "robust" for a in answers)
            for number, answers in self.known.items()
        )

    @property
    def _may_split(self) -> bool:
        """Whether a proof by splitting is of use: the checker repeats it in integers only."""
        first = self.question.network.layers[0].rows.data
        return self.folder is None or np.issubdtype(first.dtype, np.integer)

    def uncertified(self) -> list[int]:
        """Return the boxes of a robust verdict that have no proof for the checker."""
        return [k for k in self.known if k not in self.split and k not in self.certificates]

    def result(self) -> Result:
        """Return what is known about the union."""
        question, union = self.question, self.question.union
        total = self.deadline.elapsed()
        targets = tuple(self._target(k, rival) for k, rival in enumerate(question.rivals))
        status = overall_status([t.status for t in targets])
        notes = [*question.network.notes, *self.notes]
        if status not in ("robust", "not_robust"):
            notes.append(f"robust at {self.robust()} of {union.count} {union.unit}")
        work = tuple(StageWork(stage, None, seconds) for stage, seconds in self.seconds.items())
        return Result(
            status=status,
            targets=targets,
            seconds=total,
            method=question.method,
            counterexample=self.example,
            label=question.label,
            notes=tuple(dict.fromkeys(notes)),
            original=self._original(),
            account=Account(work).completed(total),
        )

    def _target(self, k: int, rival: int) -> TargetResult:
        """Combine the answers of all boxes about one adversarial class."""
        name, union = f"class {rival}", self.question.union
        answers = [answers[k] for answers in self.known.values()]
        robust = sum(a.status == "robust" for a in answers)
        details = {union.unit: union.count, "robust": self.robust()}
        found = self.example if self.example and self.example.target == name else None
        is_complete = robust == union.count + 1
        status: Status = "robust" if is_complete else "unknown"
        if found is not None:
            status = "not_robust"
        elif not is_complete and self.deadline.passed():
            status = "timeout"
        upper = min((a.upper for a in answers), default=math.inf)
        if found is not None:
            upper = min(upper, float(found.value))
        is_other = self.example is not None and found is None and not is_complete
        return TargetResult(
            name,
            status,
            min(a.lower for a in answers) if is_complete else -math.inf,
            upper,
            stage=", ".join(self.stages) if status in ("robust", "not_robust") else "",
            rival=rival,
            counterexample=found,
            details=details,
            finding=("violated" if name == self.tied else "not_tried") if is_other else None,
            at_centre=found is not None and self.found_in == 0,
            trusted=", ".join(self.trusted) or None,
        )

    def _original(self) -> Original | None:
        network, union = self.question.network, self.question.union
        lo, hi = network.input_lo, network.input_hi
        if lo is None or hi is None:
            lo, hi = union.clip_lo, union.clip_hi
        if lo is None or hi is None:
            return None
        return Original(union.middle, network.input_shape, lo, hi)


def _below(value: Fraction | float) -> float:
    return value if isinstance(value, float) else float_below(value)


def _above(value: Fraction | float) -> float:
    return value if isinstance(value, float) else float_above(value)
