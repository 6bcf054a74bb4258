"""The search for a strict counterexample after a tie.

At a tie a rival has exactly the score of the label.  That violates the property
(unless ties count as robust), but the network's argmax takes the lowest index, and this may be the
label.  A point with F < 0 has another class in any case.  So before a tie is reported, such a point
is looked for: at the tie itself, where a third class may score more or the signs at 0 may be chosen
otherwise; near the tie; then by the method that found the tie.  If that proves F >= 0, there is
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Method
from bnncert.engine.timing import Journal
from bnncert.engine.verdict import Counterexample, TargetResult, deciding_target
from bnncert.problem import Problem, Target
from bnncert.regions import Cover

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
