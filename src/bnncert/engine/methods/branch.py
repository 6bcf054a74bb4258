"""Complete answers by branch and bound on the reduced relaxation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.methods.reduced_sdp import TOO_LARGE, find_input_cuts
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.problem import is_too_large, reduce_objective
from bnncert.engine.search.learned_clauses import LearnedClauses
from bnncert.engine.search.parallel import TreeTask, search_together
from bnncert.engine.search.trace import trace_of
from bnncert.engine.search.tree import Outcome, Tree, TreeOptions
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.model.rationals import float_above
from bnncert.problem import Objective, Problem, Target


@dataclass(frozen=True, eq=False)
class _TreeSearch:
    """The tree of one objective, and the counterexample that it found."""

    task: TreeTask
    tree: Tree
    found: list[Counterexample]


@dataclass(eq=False)
class Branching:
    """Decides the targets of one region by branching; the trees share their learned clauses.

    A search that the deadline interrupts is continued by the next call with the same target.
    `sharing` is the number of trees that share the memory.
    """

    presolved: Presolved
    problem: Problem
    name: str
    learned: LearnedClauses = field(default_factory=LearnedClauses)
    sharing: int = 1
    #: The inequalities that the input implies, by target and objective; None where there are none.
    cuts: dict[tuple[str, int], InputCuts | None] = field(default_factory=dict)
    _unfinished: dict[tuple[str, int], _TreeSearch] = field(default_factory=dict)

    def decide(self, target: Target, context: Context, lower: float = -np.inf) -> TargetResult:
        """Decide one target; the objectives of a conjunction are tried in turn.

        With the mode "optimum" the search continues to the minimum of f.  `lower` is a known lower
        bound.
        """
        since = context.deadline.elapsed()
        # Every f_i is a lower bound of F = max f_i; its minimum is that of F if it is the only one.
        minimum = context.options.mode == "optimum" and len(target.objectives) == 1
        details: dict[str, Any] = {}
        note = ""
        for number, objective in enumerate(target.objectives):
            outcome, found = self._search(target, number, context, minimum)
            details = {"nodes": outcome.nodes, "relaxations": outcome.relaxations}
            if outcome.exhausted:
                note = "out of memory"
            if minimum:
                lower = _raised(lower, objective, outcome.lower)
                return self._minimum(target, context, outcome, since, lower, details, note)
            if outcome.status == "proved":
                lower = max(lower, objective.least_good_value)
                note = f"{outcome.nodes} nodes"
            # If no input reaches any leaf, the bound of the tree is infinite.
            if found is None and np.isfinite(outcome.lower):
                lower = _raised(lower, objective, outcome.lower)
            if found is not None or outcome.status == "proved":
                return context.result(
                    target,
                    self.name,
                    since,
                    lower=lower,
                    counterexample=found,
                    proved=found is None,
                    note="" if found is not None else note,
                    details=details,
                )
        return context.result(target, self.name, since, lower=lower, note=note, details=details)

    def _search(
        self, target: Target, number: int, context: Context, minimum: bool
    ) -> tuple[Outcome, Counterexample | None]:
        """Search the tree of one objective; return its outcome and a counterexample, if any."""
        work = self._unfinished.pop((target.name, number), None)
        work = work or self._work(target, number, context, minimum)
        tree, found = work.tree, work.found
        self.learned.add_to(tree)
        tree.pulse = context.pulse(f"{self.name}: {target.name}")
        outcome = search_together(tree, work.task, context.deadline, context.options.processes)
        self.learned.add_from(tree)
        if context.tracing and not minimum and outcome.status == "proved":
            context.record_trace(target, trace_of(tree, self.presolved, number))
        # A tree that was begun without the triples is not continued, but begun again with them.
        if outcome.status == "interrupted" and self.presolved.knows_triples:
            self._unfinished[target.name, number] = work
        return outcome, found[0] if found else None

    def _work(self, target: Target, number: int, context: Context, minimum: bool) -> _TreeSearch:
        """Return a tree that consists of its root."""
        found: list[Counterexample] = []

        def confirm(point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
            counterexample = context.replayer.confirm(target, point, exact)
            if counterexample is not None:
                found.append(counterexample)
            return counterexample is not None

        objective, presolved = target.objectives[number], self.presolved
        triples = presolved.triples_within(context.deadline)
        reduced = reduce_objective(presolved, objective, triples=triples)
        memory = context.options.memory / self.sharing
        kept = TreeOptions(context.options.seed, keep_leaves=context.tracing, memory=memory)
        task = TreeTask(presolved, self.problem, target, objective, reduced, minimum, kept)
        key = target.name, number
        if key not in self.cuts:
            # The inequality is worth its price only where the root is not enough.
            root = replace(task, options=replace(kept, max_nodes=1)).tree(confirm)
            if root.search(context.deadline).status == "interrupted":
                self.cuts[key] = find_input_cuts(reduced, objective, context, presolved)
        task = replace(task, reduced=replace(reduced, cuts=self.cuts.get(key)))
        tree = task.tree(confirm)
        if minimum:
            tree.offer(self.problem.region.center, None)
        return _TreeSearch(task, tree, found)

    def _minimum(
        self,
        target: Target,
        context: Context,
        outcome: Outcome,
        since: float,
        lower: float,
        details: dict[str, Any],
        note: str,
    ) -> TargetResult:
        """Return the result of a search for the minimum: both bounds, and the lowest point."""
        found: Counterexample | None = None
        if outcome.point is not None:
            if outcome.exact is not None:
                details["lowest at"] = [str(v) for v in outcome.exact]
            else:
                inside = self.problem.region.settle(outcome.point)
                details["lowest at"] = None if inside is None else inside.tolist()
            found = context.replayer.confirm(target, outcome.point, outcome.exact)
        upper = outcome.upper
        if found is not None:
            upper = min(upper, float_above(found.value))
        return context.result(
            target,
            self.name,
            since,
            lower=lower,
            upper=upper,
            counterexample=found,
            proved=found is None and target.objectives[0].is_proved_by(lower),
            note=note,
            details=details,
        )


def _raised(lower: float, objective: Objective, bound: float) -> float:
    """Return a lower bound raised by another bound of f, rounded up to a value of f."""
    return lower if np.isnan(bound) else max(lower, objective.round_up(bound))


@register
class BranchMethod(Method):
    """Branch and bound."""

    name = "bab"
    summary = "branch and bound on neurons with the sdp bound: complete answers"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset({"seed", "mode", "processes", "memory", "coupling"})

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide every target in turn; presolve is shared."""
        presolved = context.record_presolved(context.presolve(problem))
        branching = Branching(presolved, problem, self.name)
        targets = context.in_turn(problem, self.name)
        return tuple(self._decide(branching, target, context) for target in targets)

    def _decide(self, branching: Branching, target: Target, context: Context) -> TargetResult:
        since, presolved = context.deadline.elapsed(), branching.presolved
        if presolved.contradiction:
            return context.result(target, self.name, since, lower=np.inf, proved=True)
        lower, proved = interval_proof(target, presolved.bounds[-1])
        decided = proved and context.options.mode == "feasibility"
        if decided or context.deadline.passed():
            return context.result(target, self.name, since, lower=lower, proved=proved)
        if is_too_large(presolved):
            return context.result(target, self.name, since, lower=lower, note=TOO_LARGE)
        return branching.decide(target, context, lower)
