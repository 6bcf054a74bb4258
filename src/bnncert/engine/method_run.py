"""The run of a method on the problems of one question.

A strict counterexample is searched for after a tie.  There a rival has exactly the score of the
label. That violates the property (unless ties count as robust), but the network's argmax takes the
lowest index, and this may be the label. A point with F < 0 has another class in any case.  So
before a tie is reported, such a point is looked for: at the tie itself, where a third class may
score more or the signs at 0 may be chosen otherwise; near the tie; then by the method that found
the tie.  If that proves F >= 0, there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import Context, Method, Options, Progress
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.timing import Journal, Timing
from bnncert.engine.verdict import (
    Counterexample,
    Finding,
    Result,
    TargetResult,
    deciding_target,
    merge,
    overall_status,
)
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.problem import Problem, Target
from bnncert.regions import Cover, InputSet
from bnncert.regions.pictures import Original

if TYPE_CHECKING:
    from bnncert.engine.search.trace import SearchRecord

#: The name of the search among the stages.
STAGE = "strict"

#: The share of the remaining time for the search.  It takes no longer than the search for the tie,
#: or these seconds if that was faster, so that it at most doubles the time of long questions.
SHARE, SECONDS = 0.25, 1.0

#: The share of this time for points near the tie.
NEAR_SHARE = 0.5


def time_for_strict(deadline: Deadline) -> Deadline:
    """Return the deadline of a search that begins now."""
    return deadline.within(min(SHARE * deadline.remaining(), max(SECONDS, deadline.elapsed())))


def prefer_strict(
    engine: Method, problem: Problem, context: Context, answers: Sequence[TargetResult]
) -> Sequence[TargetResult]:
    """Return the answers with a strict counterexample beside a tie, if the search finds one.

    If it shows that a target has none, the target's lower bound is at least 0.  A centre that ties
    and has another class than the label is reported as it is.
    """
    decided = deciding_target(answers)
    tie = None if decided is None else decided.counterexample
    if decided is None or tie is None or not tie.tie or decided.is_misclassified:
        return answers
    # F >= 0 is known of the others.
    open_ = {a.name for a in answers if a.status != "robust" and a.lower < 0}
    if not open_ or context.deadline.passed():
        return answers
    strict = replace(
        problem, targets=tuple(t.strictly() for t in problem.targets if t.name in open_)
    )
    since = context.deadline.elapsed()
    limited = replace(
        context.deciding(),
        deadline=time_for_strict(context.deadline),
        replayer=context.replayer.about(strict),
        # What is recorded is about another property than that of the question.
        record=None,
        so_far={},
        journal=Journal(),
    )
    found: Sequence[TargetResult] = ()
    with suppress(OutOfTimeError):
        found = _search(engine, strict, limited, tie)
    after = {answer.name: answer for answer in found}
    if all(answer.counterexample is None for answer in found):
        context.spend(STAGE, since)
    return [
        _combined(target, answer, after.get(target.name), context, since)
        for target, answer in zip(problem.targets, answers, strict=True)
    ]


def _search(
    engine: Method, strict: Problem, context: Context, tie: Counterexample
) -> Sequence[TargetResult]:
    """Return what is known about F < 0."""
    if not isinstance(strict.inputs, Cover):
        for target in strict.targets:
            found = context.replayer.confirm(target, tie.point, tie.exact)
            if found is not None:
                return (context.result(target, STAGE, 0.0, counterexample=found),)
        from bnncert.engine.methods.attack import Attack  # imported on use: ties are rare

        near = Attack(strict, context, near=tie.point)
        near.run(context.deadline.within(NEAR_SHARE * context.deadline.remaining()), 1)
        for target, found in zip(strict.targets, near.found, strict=True):
            if found is not None:
                return (context.result(target, STAGE, 0.0, counterexample=found),)
    return engine.run(strict, context)


def _combined(
    target: Target, tied: TargetResult, after: TargetResult | None, context: Context, since: float
) -> TargetResult:
    """Return the answer for a target with what the search showed about it."""
    if after is None:
        return tied
    lower, upper = tied.lower, min(tied.upper, after.upper)
    if after.trusted is None:
        lower = max(lower, after.lower, 0.0 if after.status == "robust" else lower)
    if after.counterexample is None:
        return replace(tied, lower=lower, upper=upper)
    made = context.result(target, STAGE, since, upper=upper, counterexample=after.counterexample)
    return replace(made, lower=lower, details=tied.details)


class MethodRun(NamedTuple):
    """The answer of a method, and what a certificate needs of the run on the last problem."""

    result: Result
    problem: Problem
    context: Context


def run_method(
    engine: Method,
    problems: Sequence[Problem],
    timeout: float | None,
    options: Options,
    progress: Progress | None = None,
    *,
    check_centre: bool = True,
    strict: bool = False,
    accept: Callable[[list[Fraction], list[Fraction]], bool] | None = None,
    only_float32: bool = False,
    tracing: bool = False,
) -> MethodRun:
    """Run a method on each problem of a question and combine the answers.

    A counterexample to one problem ends the search.  Raises Interrupted on Ctrl-C, with what is
    known by then.

    Parameters
    ----------
    engine, options, progress
        The method with its settings, which have been checked, and what its progress is told to.
    problems
        At least one problem.
    timeout
        Seconds for all of them; None sets no limit.
    check_centre
        Whether the centre of each region is evaluated before the method runs.
    strict
        Whether a strict counterexample is looked for after a tie.
    accept
        Whether inputs and scores are a counterexample of the query that the problems come from.
    only_float32
        Whether counterexamples are points of float32 numbers.
    tracing
        Whether the method records what a certificate needs.
    """
    deadline, started = Deadline(timeout), time.monotonic()
    for problem in problems:
        _refuse_cover(engine, problem)
    runtime = OnnxRuntime.of(problems[0].network)
    results: list[Result] = []
    for problem in problems:
        replayer = Replayer(problem, runtime, accept, only_float32=only_float32)
        record = _new_record() if tracing else None
        context = Context(options, deadline, replayer, progress, record)
        found = _at_centre(problem, context) if check_centre else None
        try:
            answers = found if found is not None else engine.run(problem, context)
            if strict:
                answers = tuple(prefer_strict(engine, problem, context, answers))
        except KeyboardInterrupt as stop:
            known = [context.so_far.get(t.name) or _untouched(t) for t in problem.targets]
            results.append(_result(problem, context, known, engine.name))
            raise Interrupted(_timed(merge(results), started)) from stop
        except OutOfTimeError:
            answers = _at_the_limit(problem, context)
        results.append(_result(problem, context, answers, engine.name))
        if results[-1].status == "not_robust":
            break
    return MethodRun(_timed(merge(results), started), problem, context)


def _new_record() -> SearchRecord:
    """Return an empty record; its module, with all searches, is imported on use."""
    from bnncert.engine.search.trace import SearchRecord

    return SearchRecord()


def _refuse_cover(engine: Method, problem: Problem) -> None:
    """Raise if the inputs are a union, or a path of images and the method is not for them."""
    inputs = problem.inputs
    if not isinstance(inputs, Cover):
        return
    is_path = inputs.kind == "path"
    if not is_path or inputs.norm not in engine.regions.split(", "):
        better = "auto" if is_path else "verify"
        raise InputError(f"method {engine.name} is not for {inputs.norm}; use {better}")


def _timed(result: Result, started: float) -> Result:
    """Return a result with its total time, which the timing divides completely."""
    total = time.monotonic() - started
    return replace(result, seconds=total, timing=result.timing.completed(total))


def _at_the_limit(problem: Problem, context: Context) -> tuple[TargetResult, ...]:
    """Return the results of a method that has run out of time, at least interval bounds."""
    bounds = context.known_bounds(problem)
    answers = []
    for target in problem.targets:
        lower, proved = interval_proof(target, bounds[-1])
        since = context.deadline.elapsed()
        context.result(target, "interval", since, lower=lower, proved=proved, tried=False)
        known = context.so_far[target.name]
        if known.status == "unknown":
            known = replace(known, status="timeout")
        answers.append(known)
    return tuple(answers)


def _untouched(target: Target) -> TargetResult:
    return TargetResult(target.name, "unknown", rival=target.rival, tried=False)


def _result(
    problem: Problem, context: Context, answers: Sequence[TargetResult], method: str
) -> Result:
    """Return the answer to one problem."""
    remarks = _rejected(context.replayer)
    timing = replace(context.journal.timing(), remarks=tuple(remarks))
    told = _after_counterexample(problem, context, tuple(answers))
    told = tuple(_timed_target(t, timing) for t in told)
    decided = deciding_target(told)
    notes = [*problem.network.notes, *problem.inputs.notes]
    status = overall_status([a.status for a in told])
    if status not in ("robust", "not_robust"):
        notes += remarks
    return Result(
        status=status,
        targets=told,
        seconds=context.deadline.elapsed(),
        method=method,
        counterexample=None if decided is None else decided.counterexample,
        label=problem.label,
        original=None if problem.label is None else original_of(problem.network, problem.inputs),
        notes=tuple(notes),
        timing=timing,
    )


def original_of(network: Network, inputs: InputSet) -> Original | None:
    """Return the centre of a ball or shape for pictures, if the range of the inputs is known."""
    if inputs.norm is None:
        return None
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = inputs.clip_lo, inputs.clip_hi
    if lo is None or hi is None:
        return None
    return Original(inputs.middle, network.input_shape, lo, hi)


def _timed_target(answer: TargetResult, timing: Timing) -> TargetResult:
    """Return an answer with its own part of the time; if it is open, also with open neurons."""
    own, details = timing.seconds_of(answer.name), dict(answer.details)
    if "seconds" in details:
        details["seconds"] = {**own, **timing.shared}
    if answer.status in ("unknown", "timeout") and timing.layers:
        details["open neurons"] = timing.layer_trees()
    return replace(answer, seconds=sum(own.values()), details=details)


def _rejected(replayer: Replayer) -> list[str]:
    """Return what became of candidates that are no counterexamples."""
    between = (
        "point(s) between those of the grid have another class, but not the grid points next to "
        "them"
    )
    counts = {
        "candidate counterexample(s) did not replay": replayer.rejected,
        between: replayer.rejected_off_grid,
    }
    return [f"{count} {text}" for text, count in counts.items() if count]


def _after_counterexample(
    problem: Problem, context: Context, answers: tuple[TargetResult, ...]
) -> tuple[TargetResult, ...]:
    """Apply a counterexample for one target to the undecided ones."""
    decided = deciding_target(answers)
    if decided is None or decided.counterexample is None:
        return answers
    reached = context.replayer.reached(problem.targets, decided.counterexample)
    told = []
    for answer, (violated, value) in zip(answers, reached, strict=True):
        if answer.status in ("robust", "not_robust"):
            told.append(answer)
            continue
        upper = min(answer.upper, value)
        finding: Finding | None = None
        # An upper bound below 0 is the value at another point of the region.
        if violated or upper < 0:
            finding = "violated"
        elif not answer.tried:
            finding = "not_tried"
        told.append(replace(answer, upper=upper, finding=finding))
    return tuple(told)


def _at_centre(problem: Problem, context: Context) -> tuple[TargetResult, ...] | None:
    """Return the answer if the centre of the region violates the property."""
    if context.replayer.clearly_misses(problem.targets, problem.inputs.center):
        return None
    values = context.replayer.value(problem.targets, problem.inputs.center)
    if values is None:
        return None
    # The lowest value comes first: it belongs to the network's class, and a tie comes last.
    for k in np.argsort(values, kind="stable").tolist():
        target = problem.targets[k]
        if context.deadline.passed():
            return None
        if values[k] <= min(0.0, target.largest_violation):
            found = context.replayer.confirm(target, problem.inputs.center)
            if found is not None:
                results = [
                    context.result(
                        t,
                        "centre",
                        0.0,
                        upper=float(values[j]),
                        counterexample=found if j == k else None,
                        tried=False,
                    )
                    for j, t in enumerate(problem.targets)
                ]
                results[k] = replace(results[k], at_centre=True)
                return tuple(results)
    return None
