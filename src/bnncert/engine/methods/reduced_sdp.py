"""The default bound: presolve, reduced semidefinite relaxation, structured solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.methods.lp import lp_lower_bounds
from bnncert.engine.methods.solve_relaxation import (
    MOST_UNKNOWNS,
    RelaxationAnswer,
    solve_relaxation,
)
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.components import ComponentAnswer, split_bound
from bnncert.engine.relaxations.reduced.coupling import couple
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts, input_cut
from bnncert.engine.relaxations.reduced.lattice_cuts import add_cuts
from bnncert.engine.relaxations.reduced.problem import (
    ReducedProblem,
    is_too_large,
    reduce_objective,
)
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.verdict import TargetResult, finite_or_none
from bnncert.errors import InputError
from bnncert.problem import Objective, Problem, Target

#: Cuts are tried if the relaxation is below its goal by less than this share of its reach.
HOPEFUL = 0.05

#: The same for coupling the input, which raises bounds by about this share.
COUPLING_HOPEFUL = 0.3

#: Relative gap at which a coupled relaxation is good enough to choose the weights of an ellipsoid
#: and to make an inequality of it, and the unknowns up to which it is solved to the end.
ROUGH, SMALL = 0.5, 400

#: A search uses an inequality of the input if at least this many first-layer signs are open; with
#: fewer, conflicting pairs are nearly sufficient.  For L1 and L2 balls a share of them is enough.
WORTH_CUTS, BALL_SHARE = 45, 2 / 3

#: Rounds of cuts in the mode "feasibility".
DECIDING_ROUNDS = 2

#: With more links, a linear program is tried before the relaxation, to decide a sign.
WORTH_LP = 1500

#: The note for a network that is too large for the relaxation.
TOO_LARGE = "too many open neurons for the semidefinite relaxation"

#: Variables from which on the problem is split into independent parts (convolutions).
WORTH_PARTS = 40


@dataclass(eq=False)
class ReducedBound:
    """A bound of one objective, with the data to explain, branch on and certify it."""

    lower: float
    proved: bool
    problem: ReducedProblem
    dual: DualPoint | None = None
    primal: float = np.inf
    details: dict[str, Any] = field(default_factory=dict)
    #: What coupling has found, also where it does not improve the bound.
    cuts: InputCuts | None = None


def bound_problem(
    problem: ReducedProblem, objective: Objective, context: Context, presolved: Presolved | None
) -> ReducedBound:
    """Bound one objective; with the mode "feasibility" only until its sign is known.

    If that may decide the sign, the input is coupled (if `presolved` is given and the options do
    not forbid it) and cuts are added.
    """
    options = context.options
    decide = options.mode == "feasibility"
    rounds = options.cut_rounds
    if rounds is None:
        rounds = DECIDING_ROUNDS if decide else 0
    bounding = _Bounding(problem, objective, context)
    best = bounding.best
    current, answer = problem, None
    if presolved is not None and options.coupling == "on":
        current, answer = bounding.coupled(current, presolved)
    answer = answer or bounding.solve(current)
    # General solvers return no primal value.
    value = answer.primal if np.isfinite(answer.primal) else best.lower
    worth = not best.proved and _hopeful(problem, value, COUPLING_HOPEFUL)
    worth = worth and options.coupling == "auto" and not context.deadline.passed()
    if presolved is not None and worth:
        current, coupled = bounding.coupled(current, presolved)
        answer = coupled or answer
    for _ in range(rounds):
        if (decide and best.proved) or context.deadline.passed():
            break
        if answer.moments is None or (decide and not _hopeful(problem, answer.primal, HOPEFUL)):
            break
        current, added = add_cuts(current, answer.moments, 3 * problem.size)
        if not added:
            break
        answer = bounding.solve(current)
    best.details = bounding.details()
    return best


def are_cuts_worth_it(problem: ReducedProblem, presolved: Presolved) -> bool:
    """Whether enough first-layer signs are open for a search with inequalities of the input."""
    region = presolved.region
    share = BALL_SHARE if region.norm in ("l1", "l2") else 1.0
    signs = int(np.count_nonzero(presolved.owner_layer[problem.variables] == 0))
    return signs >= share * WORTH_CUTS


def find_input_cuts(
    problem: ReducedProblem, objective: Objective, context: Context, presolved: Presolved
) -> InputCuts | None:
    """Return inequalities that the input implies for a search, or None."""
    wanted = context.options.coupling != "off" and are_cuts_worth_it(problem, presolved)
    if not wanted or context.deadline.passed():
        return None
    bounding = _Bounding(problem, objective, context)
    bounding.coupled(problem, presolved, only_cut=True)
    return bounding.best.cuts


class _Bounding:
    """The relaxations of one objective, one after another, and the best bound so far."""

    def __init__(self, problem: ReducedProblem, objective: Objective, context: Context) -> None:
        self.objective, self.context = objective, context
        self.best = ReducedBound(-np.inf, False, problem)
        self.stages: list[dict[str, Any]] = []
        self.decide = context.options.mode == "feasibility"
        #: The multipliers of the last relaxation.
        self.dual: DualPoint | None = None

    def solve(self, problem: ReducedProblem, tolerance: float | None = None) -> RelaxationAnswer:
        """Solve one relaxation, part by part if it has several, and keep the best bound."""
        since = self.context.deadline.elapsed()
        answers: list[RelaxationAnswer] = []
        unknowns = 0

        def solve_part(part: ReducedProblem, last: bool) -> ComponentAnswer:
            nonlocal unknowns
            relaxation = relax_reduced(part)
            unknowns = max(unknowns, relaxation.program.unknowns)
            found = solve_relaxation(relaxation, self.objective, self.context, last, tolerance)
            answers.append(found)
            dual = relaxation.dual_point(found.multipliers)
            return ComponentAnswer(dual, found.moments, found.primal)

        is_apart = problem.coupling is None and problem.cuts is None
        if problem.size >= WORTH_PARTS and is_apart:
            split = split_bound(problem, solve_part)
            lower, dual, parts = split.lower, split.dual, split.parts
            answer = replace(answers[-1], moments=split.moments, primal=split.primal)
            answer.iterations = sum(a.iterations for a in answers)
        else:
            dual = solve_part(problem, True).dual
            lower, answer, parts = dual.bound(problem), answers[-1], 1
        rounded = self.objective.round_up(lower)
        self.stages.append(
            {
                "solver": answer.solver,
                "status": answer.status,
                "iterations": answer.iterations,
                "parts": parts,
                "variables": problem.size,
                "inputs": 0 if problem.coupling is None else problem.coupling.size,
                "input cuts": 0 if problem.cuts is None else problem.cuts.count,
                "tables": int(problem.table.rows.shape[0]),
                "gates": int(problem.gates.rows.shape[0]),
                "clashes": int(problem.pair_first.size),
                "unknowns": unknowns,
                "bound": finite_or_none(lower),
                "primal": finite_or_none(answer.primal),
                "seconds": self.context.deadline.elapsed() - since,
            }
        )
        best, self.dual = self.best, dual
        # A certificate has no place for the input's variables; the inequality made of them has one.
        counts = problem.coupling is None or not self.context.tracing
        if counts and (rounded > best.lower or best.dual is None):
            best.lower = max(best.lower, rounded)
            best.problem = problem
            best.dual = dual
        best.primal = answer.primal
        best.proved = self.objective.is_proved_by(best.lower)
        return answer

    def coupled(
        self, problem: ReducedProblem, presolved: Presolved, *, only_cut: bool = False
    ) -> tuple[ReducedProblem, RelaxationAnswer | None]:
        """Solve the problem with its input; return it unchanged and None if that is too large.

        With `only_cut`, only the inequality is computed and not its bound.
        """
        coupling = couple(presolved, problem.variables)
        if coupling is None:
            return problem, None
        wider = replace(problem, coupling=coupling, cuts=None)
        name = self.context.options.solver
        size = relax_reduced(wider).program.unknowns
        if name == "low-rank" or (name in (None, "structured") and size > MOST_UNKNOWNS):
            # Problems for the first-order method are too large without inputs already.
            return problem, None
        rough = ROUGH if size > SMALL else None
        answer = self.solve(wider, rough)
        if answer.moments is None or answer.inputs is None or self.dual is None:
            # A general solver tells no moments: its answer is the coupled bound itself.
            return wider, answer
        if self.decide and self.best.proved:
            return wider, answer
        if coupling.weights.size and not self.decide and not only_cut:
            weights = coupling.better_weights(answer.inputs)
            better = couple(presolved, problem.variables, weights)
            if better is not None:
                answer = self.solve(replace(wider, coupling=better), rough)
        assert answer.moments is not None
        cuts = input_cut(presolved, problem.variables, self.dual.input, answer.moments)
        if cuts is None:
            return problem, answer
        self.best.cuts = cuts
        closer = replace(problem, cuts=cuts)
        if only_cut or (self.decide and not _hopeful(problem, answer.primal, HOPEFUL)):
            return closer, answer
        return closer, self.solve(closer)

    def details(self) -> dict[str, Any]:
        """Return the last relaxation without cuts, those with cuts, and the ones before."""
        first = self.stages[0]["tables"]
        before = sum(s["tables"] == first for s in self.stages) - 1
        rounds = self.stages[before:]
        if rounds[0]["inputs"] or rounds[0]["input cuts"]:
            rounds[0]["solver"] += "+y"
        found = {"rounds": rounds, "gap": finite_or_none(self.best.primal - self.best.lower)}
        return found | ({"before": self.stages[:before]} if before else {})


def _hopeful(problem: ReducedProblem, primal: float, share: float) -> bool:
    """Whether an increase by `share` of f's reach makes a bound of about `primal` positive."""
    spread = problem.values.max(axis=1, initial=0.0) - problem.values.min(axis=1, initial=0.0)
    reach = float(spread.sum()) / 2 + float(np.abs(problem.linear).sum())
    return primal > -share * reach


@register
class ReducedSdpMethod(Method):
    """The reduced relaxation."""

    name = "sdp"
    summary = "presolve and reduced semidefinite relaxation with our own solver: the default bound"
    promises = ("bound",)
    reads = frozenset({"seed", "mode", "solver", "cut_rounds", "coupling"})

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Bound every target; presolve is shared."""
        if context.options.sparsity is not None:
            raise InputError(
                "method sdp has no cliques to choose; --sparsity is for sdp-tight etc."
            )
        started = context.deadline.elapsed()
        presolved = context.record_presolved(context.presolve(problem))
        shared = {
            "presolve": explain(presolved),
            "presolve seconds": context.deadline.elapsed() - started,
        }
        results = []
        for target in context.in_turn(problem, self.name):
            since = context.deadline.elapsed()
            if presolved.contradiction:
                lower, proved, details = np.inf, True, dict[str, Any]()
                note = "presolve shows that the region has no point"
            else:
                lower, proved, details = _bound_target(problem, presolved, target, context)
                note = TOO_LARGE if is_too_large(presolved) and not proved else ""
                details = shared | details
            results.append(
                context.result(
                    target, self.name, since, lower=lower, proved=proved, note=note, details=details
                )
            )
        return tuple(results)


def _bound_target(
    problem: Problem, presolved: Presolved, target: Target, context: Context
) -> tuple[float, bool, dict[str, Any]]:
    """Return a lower bound of one target, whether it is proved, and details."""
    lower, proved = interval_proof(target, presolved.bounds[-1])
    details: dict[str, Any] = {}
    if not proved and is_too_large(presolved):
        return lower, proved, details
    decide = context.options.mode == "feasibility"
    for objective in target.objectives:
        if context.deadline.passed() or (proved and decide):
            break
        reduced = reduce_objective(presolved, objective)
        if decide and reduced.links > WORTH_LP:
            # The LP proves most targets of a large network in a fraction of the time.
            lowers = lp_lower_bounds(problem, presolved.bounds, target, "lattice", context)
            lower = max([lower, *lowers])
            if target.is_proved_by(lowers):
                return lower, True, details
        found = bound_problem(reduced, objective, context, presolved)
        lower = max(lower, found.lower)
        proved = proved or found.proved
        details = details or found.details
    return lower, proved, details


def explain(presolved: Presolved) -> list[dict[str, Any]]:
    """Return the effect of presolve on each layer: counts by rule, and sizes."""
    counts = presolved.record.counts()
    lines = []
    for number, layer in enumerate(presolved.layers):
        owned = int(np.count_nonzero(presolved.owner_layer == number))
        last = number == presolved.network.depth - 1 and number > 0
        lines.append(
            {
                "layer": number + 1,
                "neurons": int(layer.bounds.state.size),
                "open": int(layer.bounds.unstable.size),
                "variables": None if last else owned,
                "rules": {rule: n for (where, rule), n in counts.items() if where == number},
            }
        )
    return lines
