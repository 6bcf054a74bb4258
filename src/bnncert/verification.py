"""The two questions of the public API: `verify` (is it so?) and `bound` (by how much?)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from bnncert.deadline import Deadline
from bnncert.errors import InputError
from bnncert.formats.description import SignZero
from bnncert.formats.vnnlib import Specification
from bnncert.methods import REGISTRY, Context, Options, Progress
from bnncert.network import Network
from bnncert.problem import Problem, Targets, Ties, from_vnnlib, robustness
from bnncert.regions import Region
from bnncert.replay import OnnxRuntime, Replayer
from bnncert.verdict import Result, TargetResult, merge, overall_status


def verify(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
    ties: Ties = "violation",
    method: str = "auto",
    timeout: float | None = None,
    sign_zero: SignZero | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Result:
    """Decide whether every point of a region is classified as `label`.

    Parameters
    ----------
    targets
        "all" rival classes, the "runner-up" only, or one class.
    ties
        Whether an equal score counts as a "violation" or is still "robust".
    method
        A name from ``bnncert methods``.
    timeout
        Seconds for the whole question.
    sign_zero
        Overrides what the model says about sign(0): "plus", "minus" or "either".
    """
    network = network if sign_zero is None else network.with_sign_zero(sign_zero)
    problem = robustness(network, region, label, targets, ties)
    return solve([problem], method, timeout, options, progress, check_centre=True)


def verify_specification(
    network: Network,
    specification: Specification,
    *,
    method: str = "auto",
    timeout: float | None = None,
    sign_zero: SignZero | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Result:
    """Decide a VNN-LIB query, which states the violation: "robust" is unsat, "not_robust" sat."""
    network = network if sign_zero is None else network.with_sign_zero(sign_zero)
    problems = from_vnnlib(network, specification)
    return solve(
        problems,
        method,
        timeout,
        options,
        progress,
        check_centre=True,
        specification=specification,
    )


def bound(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
    method: str = "sdp",
    timeout: float | None = None,
    sign_zero: SignZero | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Result:
    """Return lower and upper bounds of the margin over each target, by one method."""
    network = network if sign_zero is None else network.with_sign_zero(sign_zero)
    options = replace(options or Options(), mode="optimum")
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
) -> Result:
    """Run a method on each problem of a query and combine the answers."""
    engine = REGISTRY.make(method)
    deadline = Deadline(timeout)
    chosen = options or Options()
    if chosen.seed < 0:
        raise InputError(f"seed is {chosen.seed}; expected an integer >= 0")
    started = time.monotonic()
    if not problems:
        return Result("robust", (), 0.0, method, notes=("the input region is empty",))
    runtime = OnnxRuntime.of(problems[0].network)
    results: list[Result] = []
    for problem in problems:
        accept = None if specification is None else specification.holds
        replayer = Replayer(problem, runtime, accept)
        context = Context(chosen, deadline, replayer, progress)
        found = _at_centre(problem, context) if check_centre else None
        answers = found if found is not None else engine.run(problem, context)
        notes = list(problem.network.notes)
        if replayer.rejected and not any(a.counterexample for a in answers):
            notes.append(
                f"{replayer.rejected} candidate counterexample(s) did not replay and were dropped"
            )
        results.append(
            Result(
                status=overall_status([a.status for a in answers]),
                targets=tuple(answers),
                seconds=time.monotonic() - started,
                method=method,
                counterexample=next(
                    (a.counterexample for a in answers if a.counterexample is not None), None
                ),
                label=problem.label,
                notes=tuple(notes),
            )
        )
        if results[-1].status == "not_robust":
            break
    return replace(merge(results), seconds=time.monotonic() - started)


def _at_centre(problem: Problem, context: Context) -> tuple[TargetResult, ...] | None:
    """Return the answer if the region's centre violates the property already."""
    scores_known = context.replayer.value(problem.targets, problem.region.center)
    if scores_known is None:
        return None
    for k, target in enumerate(problem.targets):
        if scores_known[k] <= 0:
            found = context.confirm_at(target, problem.region.center)
            if found is not None:
                return tuple(
                    context.result(
                        t,
                        "centre",
                        0.0,
                        upper=float(scores_known[j]),
                        counterexample=found if j == k else None,
                    )
                    for j, t in enumerate(problem.targets)
                )
    return None
