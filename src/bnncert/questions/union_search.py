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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.method_run import STAGE as STRICT
from bnncert.engine.method_run import original_of, time_for_strict
from bnncert.engine.methods.sweep import evaluate_points
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.search.box_splitting import BoxSplitter
from bnncert.engine.timing import StageWork, Timing
from bnncert.engine.verdict import Counterexample, Result, Status, TargetResult, overall_status
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Problem, Rivals, Ties, robustness
from bnncert.problem.problem import Arithmetic, float32_network
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.regions import Box, ImageUnion

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

#: The names of the stages in tables, and of the part that shows a counterexample.
STAGE, POINTS, POINT = "splitting", "points", "point"


@dataclass(frozen=True, eq=False)
class UnionQuestion:
    """The question whether all images of a union of boxes have a class."""

    network: Network
    union: ImageUnion
    label: int
    rivals: Rivals = "all"
    ties: Ties = "violation"
    arithmetic: Arithmetic = "real"

    @cached_property
    def rival_classes(self) -> tuple[int, ...]:
        """The rivals of the class; the runner-up is that of the image itself."""
        place = self.union.real_box(0)
        image = robustness(self.network, place, self.label, self.rivals, self.ties)
        return tuple(t.rival for t in image.targets if t.rival is not None)

    def problem(self, box: Box) -> Problem:
        """Ask about one box, against the rivals of the whole union."""
        network = self.network
        if self.arithmetic == "float32":
            network = float32_network(network, box)
        return robustness(network, box, self.label, self.rival_classes, self.ties)

    @cached_property
    def runtime(self) -> OnnxRuntime | None:
        """The model file, executed by onnxruntime, if there is one."""
        return OnnxRuntime.of(self.network)

    def text(self, number: int) -> str:
        """Name a box by its place in the image, for progress, notes and counterexamples."""
        return self.union.place_text(number) if number else "the image itself"


class _BoxAnswer(NamedTuple):
    """What is known about one target on one box."""

    status: Status
    lower: float = -math.inf
    upper: float = math.inf


class UnionSearch(Search[Result]):
    """Answers the boxes one after the other, and combines what is known."""

    def __init__(self, question: UnionQuestion, effort: Effort, *, strict: bool = False) -> None:
        if effort.certificate is not None and question.arithmetic == "float32":
            raise InputError(
                "a certificate of a union of boxes is about real arithmetic, not float32"
            )
        self._strict = strict
        self._question, self._union, self._effort = question, question.union, effort
        told = None if effort.progress is None else self._tell_part
        own = replace(effort, progress=told)
        self.prover = Prover(own, [question.network], question.arithmetic)
        self._deadline = self.prover.deadline
        #: The answers for all targets, by box.
        self._known: dict[int, list[_BoxAnswer]] = {}
        #: The boxes that splitting proved, which the checker can prove again, and those with parts.
        self._split: set[int] = set()
        self._parts: set[int] = set()
        self._stages: dict[str, None] = {}
        self._seconds: dict[str, float] = {}
        self._notes: dict[str, None] = {}
        self._trusted: dict[str, None] = {}
        #: The counterexample and its box, and the target of a tie that it has replaced.
        self._example: Counterexample | None = None
        self._found_in = self._asked = 0
        self._tied: str | None = None

    def run(self) -> None:
        """Answer as many boxes as the time allows, and perhaps replace a tie."""
        self.decide_boxes()
        if self._strict:
            self.prefer_strict()

    def decide_boxes(self) -> None:
        """Answer as many boxes as the time allows; a counterexample ends the work."""
        open_: list[int] = []
        for number in self._order():
            if self._example is not None:
                return
            if self._is_split(number, FEW_NODES):
                continue
            if number and len(open_) < FIRST_ATTACKS and not self._deadline.passed():
                self._attack(number)
            open_.append(number)
        # The time that is left is divided among the open boxes, twice what an equal share would be.
        while open_ and self._example is None and not self._deadline.passed():
            left = []
            for place, number in enumerate(open_):
                if self._example is not None or self._deadline.passed():
                    return
                share = 2 * self._deadline.remaining() / (len(open_) - place)
                if not self._decide(number, max(LEAST_SECONDS, share)):
                    left.append(number)
            if len(left) == len(open_):
                return
            open_ = left

    def prefer_strict(self) -> None:
        """After a tie, look for a strict counterexample for some time, as for a single region."""
        tie, at_image = self._example, self._found_in == 0
        if tie is None or not tie.tie or (at_image and tie.class_changes is not False):
            return
        started, seconds = time.monotonic(), time_for_strict(self._deadline).remaining()
        effort = replace(self._effort, timeout=max(seconds, 1e-3), certificate=None)
        other = UnionSearch(replace(self._question, ties="robust"), effort)
        other.decide_boxes()
        if other._example is not None:
            self._example, self._found_in = other._example, other._found_in
            self._stages, self._tied = {STRICT: None}, tie.target
        self._spend(STRICT, started)

    def _order(self) -> Iterator[int]:
        """Yield the image itself, and the boxes by the smallest margin of some of their points."""
        yield 0
        if self._example is not None:
            return
        self._evaluate()
        if self._example is not None:
            return
        count = self._union.count
        open_ = [k for k in range(1, count + 1) if k not in self._known]
        margins = np.full(count, np.inf)
        started = time.monotonic()
        generator = np.random.default_rng(0)
        for number in open_:
            if self._deadline.passed():
                break
            self._tell("looking for the positions near a violation", number)
            margins[number - 1] = self._margin(number, generator)
            if margins[number - 1] <= 0:
                self._spend("attack", started)
                yield number
                if self._example is not None:
                    return
                started = time.monotonic()
        self._spend("attack", started)
        for number in sorted(open_, key=lambda k: float(margins[k - 1])):
            if not (margins[number - 1] <= 0):
                yield number

    def _evaluate(self) -> None:
        """Evaluate boxes that are single points in exact arithmetic, until one is violated."""
        question, union = self._question, self._union
        is_real = question.arithmetic == "real"
        if not (is_real and self._may_split) or union.has_free_inputs:
            return
        started, numbers = time.monotonic(), range(1, union.count + 1)
        points = (union.bounds(number)[0] for number in numbers)
        found = evaluate_points(question.problem(union.real_box(0)), points)
        for number, judged in zip(numbers, found, strict=True):
            self._tell(question.text(number), len(self._known))
            if any(swept.is_violated for swept in judged):
                self._confirm(number, union.bounds(number)[0][None, :])
            is_open = np.any(np.abs(judged[0].cell.signs) != 1)
            is_checked = not (self.prover.wants_certificate and is_open)
            if is_checked and all(s.is_violated is False for s in judged):
                self._known[number] = [
                    _BoxAnswer("robust", _below(s.lower), _above(s.upper)) for s in judged
                ]
                self._split.add(number)
                self._stages[POINTS] = None
            if self._example is not None or self._deadline.passed():
                break
        self._spend(POINTS, started)

    def _margin(self, number: int, generator: np.random.Generator) -> float:
        """Return the smallest margin in floats of a few points of a box; confirm a violation."""
        question = self._question
        lo, hi = self._union.bounds(number)
        points = np.stack([lo, hi])
        if np.any(lo < hi):
            random = generator.random((RANDOM_CORNERS, lo.size)) < 0.5
            points = np.concatenate([points, np.where(random, lo, hi)])
        scores = question.network.evaluate(points)
        margins = scores[:, [question.label]] - scores[:, list(question.rival_classes)]
        if margins.min() <= 0:
            self._confirm(number, points[np.argsort(margins.min(axis=1))])
        return float(margins.min())

    def _confirm(self, number: int, points: FloatArray) -> bool:
        """Take the first of these points that is a counterexample in exact arithmetic."""
        question = self._question
        problem = question.problem(self._union.part(number))
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
        self._example = replace(found, place=self._question.text(number))
        self._found_in = number
        self._stages = {"centre" if number == 0 else stage: None}

    @property
    def _may_split(self) -> bool:
        """Whether a proof by splitting is of use: the checker repeats it in integers only."""
        first = self._question.network.layers[0].rows.data
        is_checked = not self.prover.wants_certificate or np.issubdtype(first.dtype, np.integer)
        return self._effort.method == "auto" and is_checked

    def _is_split(self, number: int, most_nodes: int) -> bool:
        """Prove a box by splitting; False if it is still open."""
        question = self._question
        self._tell(question.text(number), len(self._known))
        if number == 0:
            return self._decide(number, self._deadline.remaining())
        if not self._may_split or self._deadline.passed():
            return False
        started = time.monotonic()
        # The grid is left out: what holds for all values of the box holds on the grid.
        splitter = BoxSplitter(question.problem(self._union.real_box(number)))
        if not splitter.is_suited:
            return False
        answer = splitter.run(most_nodes, self._deadline)
        self._spend(STAGE, started)
        if answer.is_proved:
            self._known[number] = [_BoxAnswer("robust", lower=0.0)] * len(question.rival_classes)
            self._stages[STAGE] = None
            self._split.add(number)
            return True
        return answer.candidates is not None and self._confirm(number, answer.candidates)

    def _decide(self, number: int, seconds: float) -> bool:
        """Answer the question about one box; False if it is still open."""
        box = self._union.part(number)
        free = int(np.count_nonzero(box.lo < box.hi))
        if number and free <= FEW_INPUTS and self._is_split(number, MANY_NODES):
            return True
        limit = min(self._deadline.remaining(), seconds)
        if not self.prover.wants_certificate:
            return self._learn(number, self._ask(number, box, limit))
        # A certificate is about all values of the box, not only about those of a grid.  So it can
        # prove the box, but what it does not prove has to be asked about the grid alone.
        share = limit if box.values is None else limit / 2
        result = self._ask(number, self._union.real_box(number), share, name=str(number))
        if result.trusted is not None:
            self._trusted[result.trusted] = None
        if box.values is not None and result.status != "robust":
            result = self._ask(number, box, share)
        return self._learn(number, result)

    def _attack(self, number: int) -> None:
        """Look for a counterexample in one box for a short time."""
        box = self._union.part(number)
        if self._effort.method == "auto" and np.any(box.lo < box.hi):
            self._learn(number, self._ask(number, box, ATTACK_SECONDS, method="attack"))

    def _ask(
        self, number: int, box: Box, limit: float, *, method: str | None = None, name: str = ""
    ) -> Result:
        """Run a method on one box, with a certificate if it has a name."""
        question, self._asked = self._question, number
        result = self.prover.decide(
            question.problem(box), limit, name=name, stated=question.network, method=method
        )
        for stage, seconds in result.timing.stages.items():
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
        return result

    def _learn(self, number: int, result: Result) -> bool:
        """Keep the answer for a box; return whether it is decided."""
        self._notes.update(dict.fromkeys(result.notes))
        self._known[number] = [_BoxAnswer(t.status, t.lower, t.upper) for t in result.targets]
        if result.counterexample is not None:
            self._take_example(number, result.counterexample, result.deciding_stage)
        elif result.status == "robust":
            self._stages.update(dict.fromkeys(result.deciding_stage.split(", ")))
            self._trusted.update({t.trusted: None for t in result.targets if t.trusted})
            if result.certificate is not None:
                self._parts.add(number)
        return result.status in ("robust", "not_robust")

    def _tell(self, text: str, done: int) -> None:
        """Report the progress by position."""
        if self._effort.progress is not None:
            self._effort.progress(text, done, self._union.count + 1)

    def _tell_part(self, text: str, done: int, total: int) -> None:
        """Report the progress of a method on one box."""
        self._tell(f"{self._question.text(self._asked)}: {text}", len(self._known))

    def _spend(self, stage: str, started: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.monotonic() - started

    # -- the answer ---------------------------------------------------------------------------

    def certified(self, result: Result) -> Result:
        """Return a result with its certificate, or with a note why there is none."""
        # Imported on use, because most verifications do not write a certificate.
        from bnncert.proofs.claims import shape_claim
        from bnncert.proofs.writing import CertificateError, write_counterexample

        question, union, prover = self._question, self._union, self.prover
        found, sign_zero = result.counterexample, prover.effort.sign_zero
        problem = question.problem(union.real_box(self._found_in))
        try:
            if not union.has_certificate:
                raise CertificateError("no certificate: brightness in steps of a grid has none")
            if found is not None:
                file = prover.file(POINT)
                write_counterexample(file, problem, question.network, found, sign_zero=sign_zero)
                more = {"place": self._found_in, "parts": []}
                claim = shape_claim("union", problem, question.network, union, found, more)
                return replace(result, certificate=prover.finish(claim, [POINT]))
            if result.status != "robust":
                return result
            missing = [k for k in self._known if k not in self._split and k not in self._parts]
            if missing:
                first = f"first {question.text(missing[0])}"
                text = f"{len(missing)} of {union.count} {union.unit}, {first}"
                raise CertificateError(f"no certificate for {text}")
        except CertificateError as error:
            trusted = ", ".join(self._trusted) or "bnncert"
            return replace(result, notes=(*result.notes, str(error)), trusted=trusted)
        parts = sorted(self._parts)
        more = {"place": None, "parts": parts}
        claim = shape_claim("union", problem, question.network, union, None, more)
        return replace(result, certificate=prover.finish(claim, map(str, parts)))

    def answer(self) -> Result:
        """Combine all boxes: a rival is excluded on each of them, or one counterexample decides."""
        question, union = self._question, self._union
        total = self._deadline.elapsed()
        targets = tuple(self._target(k, rival) for k, rival in enumerate(question.rival_classes))
        status = overall_status([t.status for t in targets])
        notes = [*question.network.notes, *self._notes]
        if status not in ("robust", "not_robust"):
            notes.append(f"robust at {self._robust()} of {union.count} {union.unit}")
        work = tuple(StageWork(stage, None, seconds) for stage, seconds in self._seconds.items())
        return Result(
            status=status,
            targets=targets,
            seconds=total,
            method=self._effort.method,
            counterexample=self._example,
            label=question.label,
            notes=tuple(dict.fromkeys(notes)),
            original=original_of(question.network, union),
            timing=Timing(work).completed(total),
        )

    def _robust(self) -> int:
        """Return the number of boxes, besides the image itself, that are proved robust."""
        return sum(
            number > 0 and all(a.status == "robust" for a in answers)
            for number, answers in self._known.items()
        )

    def _target(self, k: int, rival: int) -> TargetResult:
        """Combine the answers of all boxes about one rival."""
        name, union = f"class {rival}", self._union
        answers = [answers[k] for answers in self._known.values()]
        found = self._example if self._example and self._example.target == name else None
        is_complete = sum(a.status == "robust" for a in answers) == union.count + 1
        status: Status = "robust" if is_complete else "unknown"
        upper = min((a.upper for a in answers), default=math.inf)
        if found is not None:
            status, upper = "not_robust", min(upper, float(found.value))
        elif not is_complete and self._deadline.passed():
            status = "timeout"
        is_other = self._example is not None and found is None and not is_complete
        return TargetResult(
            name,
            status,
            min(a.lower for a in answers) if is_complete else -math.inf,
            upper,
            stage=", ".join(self._stages) if status in ("robust", "not_robust") else "",
            rival=rival,
            counterexample=found,
            details={union.unit: union.count, "robust": self._robust()},
            finding=("violated" if name == self._tied else "not_tried") if is_other else None,
            at_centre=found is not None and self._found_in == 0,
            trusted=", ".join(self._trusted) or None,
        )


def _below(value: Fraction | float) -> float:
    return value if isinstance(value, float) else float_below(value)


def _above(value: Fraction | float) -> float:
    return value if isinstance(value, float) else float_above(value)
