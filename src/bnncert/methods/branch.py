"""Complete answers by branch and bound on the reduced relaxation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.formats.description import FloatArray
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.problem import Problem, Target
from bnncert.relaxations.reduced import reduce_objective
from bnncert.search.parallel import Task, search_together
from bnncert.search.tree import Tree
from bnncert.verdict import Counterexample, TargetResult


def branch_target(
    presolved: Presolved,
    question: Problem,
    target: Target,
    context: Context,
    name: str,
    lower: float,
) -> TargetResult:
    """Decide one target by branching; objectives of a conjunction are tried in turn."""
    since = context.deadline.elapsed()
    found: list[Counterexample] = []

    def confirm(point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
        counterexample = context.replayer.confirm(target, point, exact)
        if counterexample is not None:
            found.append(counterexample)
        return counterexample is not None

    details: dict[str, Any] = {}
    for objective in target.objectives:
        problem = reduce_objective(presolved, objective, with_triples=True)
        tree = Tree(presolved, problem, objective, confirm, seed=context.options.seed)
        task = Task(presolved, problem, objective, question, target, context.options.seed)
        outcome = search_together(
            tree,
            task,
            context.deadline,
            context.options.processes,
            lambda point: confirm(point, None),
        )
        details = {"nodes": outcome.nodes, "relaxations": outcome.relaxations}
        if found:
            return context.result(
                target, name, since, lower=lower, counterexample=found[0], details=details
            )
        if outcome.status == "proved":
            # Where no input reaches any leaf, f is still at least its least good value.
            least = objective.round_up(float(np.nextafter(0.0, 1.0)))
            least = least if least > 1e-300 else 0.0
            bound = objective.round_up(outcome.lower) if np.isfinite(outcome.lower) else least
            lower = max(lower, bound, least if not objective.tie_is_fine else 0.0)
            note = f"{outcome.nodes} nodes"
            return context.result(
                target, name, since, lower=lower, proved=True, note=note, details=details
            )
        if np.isfinite(outcome.lower):
            lower = max(lower, objective.round_up(outcome.lower))
    return context.result(target, name, since, lower=lower, details=details)


@register
class BranchMethod(Method):
    """Branch and bound."""

    name = "bab"
    summary = "branch and bound on neurons with the sdp bound: complete answers"
    promises = ("bound", "exact", "counterexample")

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide every target in turn; presolve is shared."""
        presolved = presolve(problem.network, problem.region)
        results = []
        for number, target in enumerate(problem.targets):
            since = context.deadline.elapsed()
            context.report(f"{self.name}: {target.name}", number, len(problem.targets))
            if presolved.contradiction:
                results.append(context.result(target, self.name, since, lower=np.inf, proved=True))
                continue
            lower, proved = interval_proof(target, presolved.bounds[-1])
            if proved or context.deadline.passed():
                results.append(context.result(target, self.name, since, lower=lower, proved=proved))
                continue
            results.append(branch_target(presolved, problem, target, context, self.name, lower))
        return tuple(results)
