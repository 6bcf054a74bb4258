"""The stages of `auto` that try to prove one target at a time.

A stage is a :class:`ProofStage`: the method whose name the results show, the function that proves a
target, and its share of the time on a large problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bnncert.engine.methods.base import Context, Method
from bnncert.engine.methods.branch import Branching, BranchMethod
from bnncert.engine.methods.lp import LpMethod, lp_lower_bounds
from bnncert.engine.methods.milp import MilpMethod
from bnncert.engine.methods.reduced_sdp import (
    WORTH_LP,
    ReducedSdpMethod,
    are_cuts_worth_it,
    bound_problem,
)
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.presolve.triples import Triples
from bnncert.engine.relaxations.reduced.problem import (
    ReducedProblem,
    is_too_large,
    reduce_objective,
)
from bnncert.engine.search.trace import root_trace
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem, Target

#: Unknowns up to which a relaxation is faster than the shortest attack.
SMALL = 1000

#: Seconds of branching before the long attack, which are enough for many small trees.
SHORT_SECONDS = 1.5

#: Share of the time for milp before branching, for a target with several functions.
MILP_SHARE = 0.5

#: Share of the time for each relaxation on a large problem.
RELAXATION_SHARE = 0.3

#: Share of the time for each relaxation of a network with many sign layers, where it is weak.
DEEP_SHARE = 0.1

#: Solvers of mixed-integer programs, which do not solve relaxations.
INTEGER_SOLVERS = ("gurobi", "highs", "scip")


@dataclass(frozen=True, eq=False)
class ProofTask:
    """One target to prove, and the data that the stages share.

    The trees of `branching` share their learned clauses.  `waiting` is the number of unproved
    targets that share the remaining time, including this one.
    """

    problem: Problem
    presolved: Presolved
    target: Target
    context: Context
    waiting: int
    branching: Branching

    @property
    def is_too_large(self) -> bool:
        """Whether the network is too large for all stages except the linear program."""
        return is_too_large(self.presolved)

    def reduced(self) -> list[ReducedProblem]:
        """Return the reduced problem of each objective, with learned clauses of three signs."""
        # A certificate has the triples of presolve only.
        triples = Triples.none() if self.context.tracing else self._learned_triples()
        return [
            reduce_objective(self.presolved, o, triples=triples) for o in self.target.objectives
        ]

    def _learned_triples(self) -> Triples:
        variables = np.flatnonzero(self.presolved.owner_layer == 0)
        known = self.branching.learned.over(self.presolved.owner[variables], variables)
        own = [literals for literals, _ in known if literals.size == 3]
        rows = np.array(own, dtype=np.int64).reshape(-1, 3)
        # Multipliers are for certificates.
        return Triples(rows, np.zeros_like(rows))

    def within(self, seconds: float) -> ProofTask:
        """Return the task with a time limit of its own."""
        context = replace(self.context, deadline=self.context.deadline.within(seconds))
        return replace(self, context=context)

    def bounded(self, method: type[Method], since: float, lowers: list[float]) -> TargetResult:
        """Return the result for lower bounds of all objectives."""
        proved = self.target.is_proved_by(lowers)
        lower = max(lowers, default=-np.inf)
        return self.context.result(self.target, method.name, since, lower=lower, proved=proved)


@dataclass(frozen=True, eq=False)
class ProofStage:
    """One way to prove a target."""

    #: The method whose name the results show.
    method: type[Method]
    #: Returns the result for one target, or None if the stage is not meant for it.
    work: Callable[[ProofTask], TargetResult | None]
    #: The stage's share of the remaining time on a large problem, and on a network with many sign
    #: layers.
    share_if_large: float = 1.0
    share_if_deep: float = 1.0

    def share(self, *, is_large: bool, is_deep: bool) -> float:
        """Return the stage's share of the remaining time."""
        large = self.share_if_large if is_large else 1.0
        return min(large, self.share_if_deep if is_deep else 1.0)

    def prove(self, task: ProofTask) -> TargetResult | None:
        """Return the result for one target, or None if the stage is not meant for it."""
        return self.work(task)


def _linear(task: ProofTask) -> TargetResult | None:
    since = task.context.deadline.elapsed()
    if not task.is_too_large and all(r.links <= WORTH_LP for r in task.reduced()):
        return None
    bounds = task.presolved.bounds
    lowers = lp_lower_bounds(task.problem, bounds, task.target, "lattice", task.context)
    return task.bounded(LpMethod, since, lowers)


def _semidefinite(task: ProofTask) -> TargetResult | None:
    if task.is_too_large:
        return None
    return _relaxed(task, task.reduced(), task.presolved)


def _small_semidefinite(task: ProofTask) -> TargetResult | None:
    if task.is_too_large or _least_size(task) > SMALL:
        return None
    reduced = task.reduced()
    if any(r.links + r.size + r.pair_first.size > SMALL for r in reduced):
        return None
    return _relaxed(task, reduced, None)


def _least_size(task: ProofTask) -> int:
    """Return about the least number of unknowns of the relaxation, without building it."""
    presolved = task.presolved
    variables = presolved.owner_layer.size
    gates = int(np.count_nonzero(presolved.owner_layer > 0))
    if presolved.network.depth == 1:
        # The objective is linear in the variables: it has no tables.
        return variables
    unstable = presolved.bounds[-1].state == 0
    tables = [
        int(np.count_nonzero(unstable & (o.coefficients != 0))) for o in task.target.objectives
    ]
    # A table has two unknowns, but up to half of the tables may be equal to others.
    return max(tables, default=0) + 4 * gates + variables


def _relaxed(
    task: ProofTask, reduced: list[ReducedProblem], coupled: Presolved | None
) -> TargetResult:
    """Bound every objective by its semidefinite relaxation."""
    since = task.context.deadline.elapsed()
    # A solver of mixed-integer programs that the options name is not for relaxations.
    named = task.context.options.solver
    solver = None if named in INTEGER_SOLVERS else named
    options = replace(task.context.options, mode="feasibility", solver=solver, cut_rounds=0)
    decide = replace(task.context, options=options)
    lowers = []
    for k, (problem, objective) in enumerate(zip(reduced, task.target.objectives, strict=True)):
        found = bound_problem(problem, objective, decide, coupled)
        lowers.append(found.lower)
        if coupled is not None:
            kept = found.cuts if are_cuts_worth_it(problem, task.presolved) else None
            task.branching.cuts[task.target.name, k] = kept
        if task.context.tracing and found.proved and found.dual is not None:
            trace = root_trace(found.problem, found.dual, task.presolved, k)
            task.context.record_trace(task.target, trace)
    return task.bounded(ReducedSdpMethod, since, lowers)


def _branching(task: ProofTask) -> TargetResult | None:
    if task.is_too_large:
        return None
    # All targets have equal shares of the remaining time, so that no target takes it all.
    own = task.within(task.context.deadline.remaining() / task.waiting)
    return task.branching.decide(task.target, own.context)


def _short_branching(task: ProofTask) -> TargetResult | None:
    several = len(task.target.objectives) > 1
    # The verdict of milp relies on its solver, so it comes last if a certificate is wanted.
    if several and task.problem.region.norm != "l2" and not task.context.tracing:
        # One program bounds all functions at once, a relaxation only one of them.
        return _integer(task.within(MILP_SHARE * task.context.deadline.remaining()))
    share = task.context.deadline.remaining() / task.waiting
    return _branching(replace(task.within(min(share, SHORT_SECONDS)), waiting=1))


def _integer(task: ProofTask) -> TargetResult | None:
    if task.is_too_large or task.problem.region.norm == "l2":
        return None
    named = task.context.options.solver
    options = replace(task.context.options, solver="gurobi" if named == "gurobi" else None)
    own = task.within(task.context.deadline.remaining() / task.waiting)
    context = replace(own.context, options=options)
    presolved = task.presolved
    bounds, record = presolved.bounds, presolved.record
    clauses = [literals for literals, _ in task.branching.learned.known.values()]
    return MilpMethod().solve_target(task.problem, bounds, task.target, context, record, clauses)


SMALL_SDP = ProofStage(ReducedSdpMethod, _small_semidefinite)
LP = ProofStage(LpMethod, _linear, RELAXATION_SHARE, DEEP_SHARE)
SDP = ProofStage(ReducedSdpMethod, _semidefinite, RELAXATION_SHARE, DEEP_SHARE)
SHORT_BAB = ProofStage(BranchMethod, _short_branching, share_if_deep=DEEP_SHARE)
BAB = ProofStage(BranchMethod, _branching)
MILP = ProofStage(MilpMethod, _integer)
