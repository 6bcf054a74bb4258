"""Complete answers by branch and bound on the reduced relaxation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.engine import STEP, LearnedClauses, OpenQuestion, TargetEngine
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.methods.lp import lp_lower_bounds
from bnncert.engine.methods.reduced_sdp import (
    TOO_LARGE,
    WORTH_LP,
    ReducedSdpMethod,
    are_cuts_worth_it,
    bound_problem,
    find_input_cuts,
)
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.problem import is_too_large, reduce_objective
from bnncert.engine.search.parallel import TreeTask, search_together
from bnncert.engine.search.trace import root_trace, trace_of
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


#: How many times longer than estimated a relaxation may take.
PATIENCE = 4.0


class TreesEngine(TargetEngine):
    """The reduced relaxation of every target, then a tree for each that it leaves open."""

    method = BranchMethod
    _branching: Branching | None = None

    def __init__(self, question: OpenQuestion) -> None:
        super().__init__(question)
        #: The targets whose relaxation has been solved, and the inequalities of the input found.
        self._relaxed = set[str]()
        self._cuts: dict[tuple[str, int], InputCuts | None] = {}
        #: The seconds after which a relaxation is interrupted.
        self._patience = PATIENCE * question.relaxation_seconds

    def first_slice(self) -> float:
        """Presolve and one relaxation."""
        return STEP + self.question.presolve_seconds + self.question.relaxation_seconds

    def pending(self) -> list[Target]:
        """Return the targets to relax, or all to branch on if there is none."""
        targets = self.question.open
        return [t for t in targets if t.name not in self._relaxed] or list(targets)

    def limit(self, target: Target, equal: Deadline) -> Deadline:
        """Return a later limit for a relaxation: if it is interrupted it has to begin again."""
        if target.name in self._relaxed:
            return equal
        return self.context.deadline.within(max(equal.remaining(), self._patience))

    def work(self, end: Deadline) -> bool:
        """Work on every open target; relaxations are followed by trees."""
        relaxes = any(t.name not in self._relaxed for t in self.question.open)
        goes_on = super().work(end)
        return goes_on or (relaxes and not self.question.is_over)

    def decide(self, target: Target, presolved: Presolved, context: Context) -> TargetResult | None:
        """Relax a target, or continue its tree."""
        if target.name not in self._relaxed:
            return self._relax(target, presolved, context)
        if is_too_large(presolved):
            return None
        if self._branching is None:
            trees, learned = max(1, len(self.question.open)), self.question.learned
            given = (presolved, self.question.problem, self.method.name, learned, trees)
            self._branching = Branching(*given, self._cuts)
        return self._branching.decide(target, context)

    def _relax(self, target: Target, presolved: Presolved, context: Context) -> TargetResult:
        """Bound every objective; for a large problem a linear program comes first."""
        since = context.deadline.elapsed()
        lowers = self._linear(target, presolved, context)
        if not target.is_proved_by(lowers) and not is_too_large(presolved):
            lowers += self._semidefinite(target, presolved, context)
        proved = target.is_proved_by(lowers[-len(target.objectives) :])
        proved = proved or target.is_proved_by(lowers[: len(target.objectives)])
        if proved or not context.deadline.passed():
            self._relaxed.add(target.name)
        else:
            self._patience *= 2
        lower = max(lowers, default=-np.inf)
        return context.result(target, ReducedSdpMethod.name, since, lower=lower, proved=proved)

    def _linear(self, target: Target, presolved: Presolved, context: Context) -> list[float]:
        if self.question.unknowns <= WORTH_LP and not is_too_large(presolved):
            return [-np.inf] * len(target.objectives)
        problem = self.question.problem
        return lp_lower_bounds(problem, presolved.bounds, target, "lattice", context)

    def _semidefinite(self, target: Target, presolved: Presolved, context: Context) -> list[float]:
        # A solver of mixed-integer programs that the options name is not for relaxations.
        named, lowers = context.options.solver, []
        solver = None if named in ("gurobi", "highs", "scip") else named
        options = replace(context.options, mode="feasibility", solver=solver, cut_rounds=0)
        for k, objective in enumerate(target.objectives):
            reduced = reduce_objective(presolved, objective)
            found = bound_problem(reduced, objective, replace(context, options=options), presolved)
            lowers.append(found.lower)
            kept = found.cuts if are_cuts_worth_it(reduced, presolved) else None
            self._cuts[target.name, k] = kept
            if context.tracing and found.proved and found.dual is not None:
                trace = root_trace(found.problem, found.dual, presolved, k)
                context.record_trace(target, trace)
        return lowers
