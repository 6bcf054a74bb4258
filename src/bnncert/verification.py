"""The public API: `verify` decides a property, `bound` bounds its margin."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bnncert.atomic import file_identity
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.description.model import SignZero
from bnncert.errors import InputError, OutsideDataBoxWarning
from bnncert.float32 import Arithmetic, float32_network
from bnncert.formats.vnnlib.query import Specification
from bnncert.methods import REGISTRY, Context, Options, Progress
from bnncert.methods.interval import interval_proof
from bnncert.network import Network
from bnncert.presolve.stability import stability
from bnncert.problem import Problem, Target, Targets, Ties, from_vnnlib, robustness
from bnncert.regions import Ball, Region
from bnncert.replay import OnnxRuntime, Replayer
from bnncert.search.trace import SearchRecord
from bnncert.verdict import (
    Finding,
    Result,
    TargetResult,
    VerificationInterrupt,
    merge,
    overall_status,
)

#: Called with an answer before a certificate is written.
Announce: TypeAlias = Callable[[Result], None]


def verify(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    arithmetic: Arithmetic = "real",
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
    announce: Announce | None = None,
) -> Result:
    """Decide whether every point of a region is classified as `label`.

    Parameters
    ----------
    targets
        "all" adversarial classes, the "runner-up" only (the one with the highest score at the
        centre of the region, as in the paper), or one class.
    ties
        Whether an equal score of an adversarial class is a "violation" or "robust".
    sign_zero
        Replaces the sign(0) of the model: "plus", "minus" or "either".
    arithmetic
        "real" or "float32"; with "float32" the verdict holds for every float32 execution.
    method
        A name from ``bnncert methods``.
    timeout
        Seconds for the whole question.
    certificate
        The file for a certificate of the verdict, which ``bnncert check`` accepts.
    announce
        Called with the answer before the certificate is written, which takes time and can fail.
    """
    network = network.with_sign_zero(sign_zero)
    _warn_outside(network, region)
    executed = _executed(network, region, arithmetic)
    problem = robustness(executed, region, label, targets, ties)
    wanted = None
    if certificate is not None:
        wanted = Wanted(Path(certificate), network, arithmetic, sign_zero)
    return solve(
        [problem],
        method,
        timeout,
        options,
        progress,
        arithmetic=arithmetic,
        wanted=wanted,
        announce=announce,
    )


def verify_specification(
    network: Network,
    specification: Specification,
    *,
    sign_zero: SignZero | None = None,
    arithmetic: Arithmetic = "real",
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
    announce: Announce | None = None,
) -> Result:
    """Decide a VNN-LIB query, which states the violation: "robust" is unsat, "not_robust" sat."""
    network = network.with_sign_zero(sign_zero)
    problems = tuple(
        replace(p, network=_executed(network, p.region, arithmetic))
        for p in from_vnnlib(network, specification)
    )
    wanted = None
    if certificate is not None:
        if len(problems) != 1:
            raise InputError(
                f"{specification.path}: a certificate is about one input region, the query has "
                f"{len(problems)}"
            )
        wanted = Wanted(Path(certificate), network, arithmetic, sign_zero)
    return solve(
        problems,
        method,
        timeout,
        options,
        progress,
        check_centre=True,
        specification=specification,
        arithmetic=arithmetic,
        wanted=wanted,
        announce=announce,
    )


def bound(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
    sign_zero: SignZero | None = None,
    method: str = "sdp",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Result:
    """Return lower and upper bounds of the margin over each target, by one method."""
    network = network.with_sign_zero(sign_zero)
    options = replace(options or Options(), mode="optimum")
    _warn_outside(network, region)
    problem = robustness(network, region, label, targets)
    return solve([problem], method, timeout, options, progress, check_centre=False)


def solve(
    problems: Sequence[Problem],
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    *,
    check_centre: bool = True,
    specification: Specification | None = None,
    arithmetic: Arithmetic = "real",
    wanted: Wanted | None = None,
    announce: Announce | None = None,
) -> Result:
    """Run a method on each problem of a query and combine the answers.

    A certificate can be `wanted` if there is one problem; `announce` is called before it is
    written.  Ctrl-C raises a :class:`VerificationInterrupt` with the result so far.
    """
    engine = REGISTRY.make(method)
    deadline = Deadline(timeout)
    chosen = options or Options()
    chosen.check()
    started = time.monotonic()
    tell = announce or (lambda result: None)
    if not problems:
        empty = Result("robust", (), 0.0, method, notes=("the input region is empty",))
        tell(empty)
        return empty
    runtime = OnnxRuntime.of(problems[0].network)
    accept = None if specification is None else specification.holds
    results: list[Result] = []
    for problem in problems:
        replayer = Replayer(problem, runtime, accept, only_float32=arithmetic == "float32")
        record = None if wanted is None else SearchRecord()
        context = Context(chosen, deadline, replayer, progress, record)
        found = _at_centre(problem, context) if check_centre else None
        try:
            answers = found if found is not None else engine.run(problem, context)
        except KeyboardInterrupt as stop:
            known = [context.so_far.get(t.name) or _untouched(t) for t in problem.targets]
            results.append(_result(problem, context, known, method))
            partial = replace(merge(results), seconds=time.monotonic() - started)
            raise VerificationInterrupt(partial) from stop
        except OutOfTimeError:
            answers = _at_the_limit(problem, context)
        results.append(_result(problem, context, answers, method))
        if results[-1].status == "not_robust":
            break
    result = replace(merge(results), seconds=time.monotonic() - started)
    tell(result)
    if wanted is not None:
        result = wanted.write(problem, result, context)
        result = replace(result, seconds=time.monotonic() - started)
    return result


def _at_the_limit(problem: Problem, context: Context) -> tuple[TargetResult, ...]:
    """Return the results of a method that has run out of time, at least interval bounds."""
    bounds = stability(problem.network, problem.region)
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
    told = _after_counterexample(problem, context, tuple(answers))
    found = next((a.counterexample for a in told if a.counterexample is not None), None)
    notes = [*problem.network.notes, *problem.region.notes]
    status = overall_status([a.status for a in told])
    if status not in ("robust", "not_robust"):
        notes += _rejected(context.replayer)
    return Result(
        status=status,
        targets=told,
        seconds=context.deadline.elapsed(),
        method=method,
        counterexample=found,
        label=problem.label,
        notes=tuple(notes),
    )


def _rejected(replayer: Replayer) -> list[str]:
    """Return what became of candidates that are no counterexamples."""
    notes = []
    if replayer.rejected:
        notes.append(f"{replayer.rejected} candidate counterexample(s) did not replay")
    if replayer.rejected_off_grid:
        notes.append(
            f"{replayer.rejected_off_grid} point(s) between those of the grid have another class, "
            "but not the grid points next to them"
        )
    return notes


@dataclass(frozen=True, eq=False)
class Wanted:
    """A requested certificate: its file and its subject."""

    path: Path
    network: Network
    arithmetic: Arithmetic
    sign_zero: SignZero | None

    def __post_init__(self) -> None:
        # This is checked before the verification, which may take long.
        source = self.network.source
        if os.path.isfile(source) and file_identity(source) == file_identity(self.path):
            raise InputError(f"{self.path}: cannot be written (the network was read from it)")

    def write(self, problem: Problem, result: Result, context: Context) -> Result:
        """Write the certificate of a verdict; if that fails, name the trusted solvers."""
        # Imported on use, because most verifications do not write a certificate.
        from bnncert.certificate.writing import CertificateError, write_counterexample, write_proof

        try:
            if result.status == "robust":
                write_proof(
                    self.path,
                    problem,
                    self.network,
                    arithmetic=self.arithmetic,
                    sign_zero=self.sign_zero,
                    record=context.record,
                    deadline=context.deadline,
                    progress=context.progress,
                )
            elif result.counterexample is not None:
                write_counterexample(
                    self.path,
                    problem,
                    self.network,
                    result.counterexample,
                    arithmetic=self.arithmetic,
                    sign_zero=self.sign_zero,
                )
            else:
                return result
        except (CertificateError, OutOfTimeError) as error:
            trusted = None
            if result.status == "robust":
                solvers = dict.fromkeys(t.trusted for t in result.targets if t.trusted is not None)
                trusted = ", ".join(solvers) or "bnncert"
            return replace(result, notes=(*result.notes, str(error)), trusted=trusted)
        return replace(result, certificate=str(self.path))


#: The distance of a centre outside the data box that may be due to rounding, relative to the box.
ROUNDING = 1e-6


def _warn_outside(network: Network, region: Region) -> None:
    """Warn if the centre of a ball lies outside the data box, most often due to a wrong scale."""
    lo, hi = network.input_lo, network.input_hi
    if not isinstance(region, Ball) or lo is None or hi is None or lo.size != region.size:
        return
    room = ROUNDING * (hi - lo)
    outside = np.flatnonzero((region.middle < lo - room) | (region.middle > hi + room))
    if outside.size:
        i = int(outside[0])
        warnings.warn(
            f"the ball's centre lies outside the network's data box: {outside.size} of "
            f"{region.size} inputs, the first is input {i} = {region.middle[i]:.9g} with the box "
            f"[{lo[i]:.9g}, {hi[i]:.9g}]; are the inputs scaled as the network expects?",
            OutsideDataBoxWarning,
            stacklevel=3,
        )


def _executed(network: Network, region: Region, arithmetic: Arithmetic) -> Network:
    """Return the network with the chosen arithmetic."""
    if arithmetic not in ("real", "float32"):
        raise InputError(f"arithmetic is {arithmetic!r}; expected real or float32")
    return network if arithmetic == "real" else float32_network(network, region)


def _after_counterexample(
    problem: Problem, context: Context, answers: tuple[TargetResult, ...]
) -> tuple[TargetResult, ...]:
    """Apply a counterexample for one target to the undecided ones."""
    found = next((a.counterexample for a in answers if a.counterexample is not None), None)
    if found is None:
        return answers
    reached = context.replayer.reached(problem.targets, found)
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
    values = context.replayer.value(problem.targets, problem.region.center)
    if values is None:
        return None
    for k, target in enumerate(problem.targets):
        if values[k] <= 0:
            found = context.replayer.confirm(target, problem.region.center)
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
