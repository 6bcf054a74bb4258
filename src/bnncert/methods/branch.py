"""Complete answers by branch and bound on the reduced relaxation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.description.rationals import float_above
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.methods.reduced_sdp import TOO_LARGE
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.problem import Problem, Target
from bnncert.relaxations.reduced.relaxation import is_too_large, reduce_objective
from bnncert.search.incumbent import exact_values
from bnncert.search.lessons import Lessons
from bnncert.search.parallel import Task, search_together
from bnncert.search.trace import trace_of
from bnncert.search.tree import Outcome, Tree
from bnncert.verdict import Counterexample, TargetResult


def branch_target(
    presolved: Presolved,
    question: Problem,
    target: Target,
    context: Context,
    name: str,
    lower: float,
    lessons: Lessons | None = None,
) -> TargetResult:
    """Decide one target by branching; objectives of a conjunction are tried in turn.

    With the mode "optimum" the search goes on to the minimum of f.  `lessons` are what trees of the
    same region have learned, and take what these learn.
    """
    since = context.deadline.elapsed()
    options = context.options
    lessons = Lessons() if lessons is None else lessons
    found: list[Counterexample] = []

    def confirm(point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
        counterexample = context.replayer.confirm(target, point, exact)
        if counterexample is not None:
            found.append(counterexample)
        return counterexample is not None

    # Of a conjunction every f_i bounds F = max f_i from below; only alone does its minimum matter.
    minimum = options.mode == "optimum" and len(target.objectives) == 1
    details: dict[str, Any] = {}
    note = ""
    for number, objective in enumerate(target.objectives):
        triples = presolved.triples_within(context.deadline)
        problem = reduce_objective(presolved, objective, triples=triples)
        evaluate = exact_values(question, target) if minimum else None
        tree = Tree(
            presolved,
            problem,
            objective,
            confirm,
            evaluate=evaluate,
            seed=options.seed,
            keep_leaves=context.tracing,
            memory=options.memory,
        )
        lessons.teach(tree)
        if minimum:
            tree.offer(question.region.center, None)
        task = Task(
            presolved,
            problem,
            objective,
            question,
            target,
            options.seed,
            minimum=minimum,
            keep_leaves=context.tracing,
            memory=options.memory,
        )
        outcome = search_together(tree, task, context.deadline, options.processes)
        lessons.gather(tree)
        details = {"nodes": outcome.nodes, "relaxations": outcome.relaxations}
        if outcome.exhausted:
            note = "out of memory"
        if minimum:
            return _minimum(question, target, context, outcome, name, since, lower, details, note)
        if found:
            return context.result(
                target, name, since, lower=lower, counterexample=found[0], details=details
            )
        if outcome.status == "proved":
            if context.tracing:
                context.traces[target.name] = trace_of(tree, presolved, number)
            lower = max(lower, objective.least_good_value)
            # Where no input reaches any leaf, the bound of the tree is infinite.
            if np.isfinite(outcome.lower):
                lower = max(lower, objective.round_up(outcome.lower))
            note = f"{outcome.nodes} nodes"
            return context.result(
                target, name, since, lower=lower, proved=True, note=note, details=details
            )
        if np.isfinite(outcome.lower):
            lower = max(lower, objective.round_up(outcome.lower))
    return context.result(target, name, since, lower=lower, note=note, details=details)


def _minimum(
    question: Problem,
    target: Target,
    context: Context,
    outcome: Outcome,
    name: str,
    since: float,
    lower: float,
    details: dict[str, Any],
    note: str,
) -> TargetResult:
    """Return the answer of a search for the minimum: both bounds, and where the upper one is."""
    (objective,) = target.objectives
    if not np.isnan(outcome.lower):
        lower = max(lower, objective.round_up(outcome.lower))
    found: Counterexample | None = None
    if outcome.point is not None:
        if outcome.exact is not None:
            details["lowest at"] = [str(v) for v in outcome.exact]
        else:
            inside = question.region.settle(outcome.point)
            details["lowest at"] = None if inside is None else inside.tolist()
        found = context.replayer.confirm(target, outcome.point, outcome.exact)
    upper = outcome.upper
    if found is not None:
        upper = min(upper, float_above(found.value))
    return context.result(
        target,
        name,
        since,
        lower=lower,
        upper=upper,
        counterexample=found,
        proved=found is None and objective.is_proved_by(lower),
        note=note,
        details=details,
    )


@register
class BranchMethod(Method):
    """Branch and bound."""

    name = "bab"
    summary = "branch and bound on neurons with the sdp bound: complete answers"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset({"seed", "mode", "processes", "memory"})

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide every target in turn; presolve is shared."""
        presolved = presolve(problem.network, problem.region, deadline=context.deadline)
        lessons = Lessons()
        results = []
        for number, target in enumerate(problem.targets):
            since = context.deadline.elapsed()
            context.report(f"{self.name}: {target.name}", number, len(problem.targets))
            if presolved.contradiction:
                results.append(context.result(target, self.name, since, lower=np.inf, proved=True))
                continue
            lower, proved = interval_proof(target, presolved.bounds[-1])
            decided = proved and context.options.mode == "feasibility"
            if decided or context.deadline.passed():
                results.append(context.result(target, self.name, since, lower=lower, proved=proved))
                continue
            if is_too_large(presolved):
                results.append(
                    context.result(target, self.name, since, lower=lower, note=TOO_LARGE)
                )
                continue
            results.append(
                branch_target(presolved, problem, target, context, self.name, lower, lessons)
            )
        return tuple(results)
