"""Elimination as an attack on local networks.

For the minimising patterns of all adversarial classes, and for patterns of perturbed costs, linear
programs find points that have the pattern as nearly as possible.  These are often counterexamples
that gradients do not find, even if no input has the pattern itself.
"""

from __future__ import annotations

from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.elimination import EliminationMethod, local_plan, start_engine
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem

#: Share of the remaining time, and the most seconds.
SHARE, SECONDS = 0.4, 20.0

#: Share of that time for learning clauses, before costs are perturbed.
LEARNING_SHARE = 0.4


def attack_locally(problem: Problem, context: Context) -> dict[str, TargetResult]:
    """Return the result for each target, if the network is local and there is time."""
    deadline = context.deadline.within(min(SECONDS, SHARE * context.deadline.remaining()))
    if problem.network.depth != 2:
        return {}
    try:
        presolved = context.presolve(problem, deadline)
    except OutOfTimeError:
        return {}
    if local_plan(presolved, len(problem.targets), deadline) is None:
        return {}
    since = context.deadline.elapsed()
    first = deadline.within(LEARNING_SHARE * deadline.remaining())
    engine = start_engine(presolved, problem, problem.targets, context.deciding(), first)
    if engine is None:
        return {}
    if engine.found is None:
        # Without a time limit the attack ends after a few rounds.
        engine.sample(deadline, rounds=None if context.deadline.seconds is not None else 1)
    name = EliminationMethod.name
    return {t.name: engine.result(t, name, since, float("-inf")) for t in problem.targets}
