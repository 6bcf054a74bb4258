"""The default bound: presolve, reduced semidefinite relaxation, structured solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import OutOfTimeError
from bnncert.errors import InputError
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.methods.lp import lp_lower_bounds
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.problem import Objective, Problem
from bnncert.relaxations.reduced.components import ComponentAnswer, split_bound
from bnncert.relaxations.reduced.conic import conic_program, multipliers_of
from bnncert.relaxations.reduced.coupling import couple
from bnncert.relaxations.reduced.dual_point import DualPoint
from bnncert.relaxations.reduced.lattice_cuts import add_cuts
from bnncert.relaxations.reduced.lazy_pairs import for_all_pairs, violated_pairs, with_pairs
from bnncert.relaxations.reduced.patterns import starting_moments
from bnncert.relaxations.reduced.problem import ReducedProblem, is_too_large, reduce_objective
from bnncert.relaxations.reduced.relaxation import ReducedRelaxation, relax_reduced
from bnncert.solvers.low_rank import solve_low_rank
from bnncert.solvers.registry import conic_solver
from bnncert.solvers.structured import solve_structured
from bnncert.solvers.structured_program import StructuredMultipliers, starting_point
from bnncert.verdict import TargetResult

#: A cut round is tried while the relaxation misses its goal by less than this share of its reach.
HOPEFUL = 0.05

#: The same for coupling the input, which lifts bounds by about this share.
COUPLING_HOPEFUL = 0.1

#: Relative gap at which moments are good enough to choose the weights of an ellipsoid.
ROUGH = 0.1

#: Rounds of cuts where only the sign of the answer matters.
DECIDING_ROUNDS = 2

#: Links beyond which a linear program is tried before the relaxation, to decide a sign.
WORTH_LP = 1500

#: The note for a network that is too large for the relaxation.
TOO_LARGE = "too many open neurons for the semidefinite relaxation"

#: Newton systems with more unknowns than this are left to the first-order solver.
MOST_UNKNOWNS = 9000

#: Number of conflicting pairs beyond which only violated ones are added, in so many rounds, in each
#: at most this share of the other unknowns; and the gap at which a round before the last one ends.
MANY_PAIRS, PAIR_ROUNDS, PAIR_SHARE, PAIR_GAP = 2000, 3, 0.8, 0.01

#: Variables from which it pays to look for parts that nothing ties together (convolutions).
WORTH_PARTS = 40

#: Gap, as a share of the spacing of f's values, at which solving on cannot change the bound.
LATTICE_GAP = 0.02

#: What the exact bound of a dual point may lose, as a share of that spacing.
ROUNDING_ROOM = 0.002


@dataclass(eq=False)
class ReducedBound:
    """A bound of one objective, with what is needed to explain, branch on and certify it."""

    lower: float
    proved: bool
    problem: ReducedProblem
    dual: DualPoint | None = None
    moments: FloatArray | None = None
    primal: float = np.inf
    details: dict[str, Any] = field(default_factory=dict)


def bound_problem(
    problem: ReducedProblem,
    objective: Objective,
    context: Context,
    rounds: int | None = None,
    presolved: Presolved | None = None,
) -> ReducedBound:
    """Bound one objective; with the mode "feasibility" only as far as its sign asks for.

    Where they may decide the sign, the input is coupled (if `presolved` is given and the options
    do not forbid it) and cuts are added.
    """
    options = context.options
    decide = options.mode == "feasibility"
    rounds = options.cut_rounds if rounds is None else rounds
    if rounds is None:
        rounds = DECIDING_ROUNDS if decide else 0
    bounding = _Bounding(problem, objective, context)
    best = bounding.best
    current, answer = problem, None
    if presolved is not None and options.coupling == "on":
        current, answer = bounding.coupled(current, presolved)
    answer = answer or bounding.solve(current)
    # A general solver tells no primal value.
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


class _Bounding:
    """The relaxations of one objective, one after another, and the best bound so far."""

    def __init__(self, problem: ReducedProblem, objective: Objective, context: Context) -> None:
        self.objective, self.context = objective, context
        self.best = ReducedBound(-np.inf, False, problem)
        self.stages: list[dict[str, Any]] = []
        self.decide = context.options.mode == "feasibility"

    def solve(self, problem: ReducedProblem, tolerance: float | None = None) -> _Answer:
        """Solve one relaxation, part by part where it has parts, and keep its bound if best."""
        since = self.context.deadline.elapsed()
        answers: list[_Answer] = []
        unknowns = 0

        def solve_part(part: ReducedProblem, last: bool) -> ComponentAnswer:
            nonlocal unknowns
            relaxation = relax_reduced(part)
            unknowns = max(unknowns, relaxation.program.unknowns)
            solve = _solve_lazily if _has_many_pairs(part, self.context) else _solve
            found = solve(relaxation, self.objective, self.context, last, tolerance)
            answers.append(found)
            dual = relaxation.dual_point(found.multipliers)
            return ComponentAnswer(dual, found.moments, found.primal)

        if problem.size >= WORTH_PARTS and problem.coupling is None:
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
                "tables": int(problem.table.rows.shape[0]),
                "gates": int(problem.gates.rows.shape[0]),
                "clashes": int(problem.pair_first.size),
                "unknowns": unknowns,
                "bound": _finite(lower),
                "primal": _finite(answer.primal),
                "seconds": self.context.deadline.elapsed() - since,
            }
        )
        best = self.best
        if rounded > best.lower or best.dual is None:
            best.lower = max(best.lower, rounded)
            best.problem = problem
            best.dual = dual
        best.moments, best.primal = answer.moments, answer.primal
        best.proved = self.objective.is_proved_by(best.lower)
        return answer

    def coupled(
        self, problem: ReducedProblem, presolved: Presolved
    ) -> tuple[ReducedProblem, _Answer | None]:
        """Solve the problem with its input; as it is and None where that would be too large."""
        coupling = couple(presolved, problem.variables)
        if coupling is None:
            return problem, None
        wider = replace(problem, coupling=coupling)
        name = self.context.options.solver
        size = relax_reduced(wider).program.unknowns
        if name == "low-rank" or (name in (None, "structured") and size > MOST_UNKNOWNS):
            # The first-order method is for what is too large already.
            return problem, None
        if coupling.weights.size and name in (None, "structured"):
            answer = self.solve(wider, ROUGH)
            if (self.decide and self.best.proved) or answer.inputs is None:
                return wider, answer
            weights = coupling.better_weights(answer.inputs)
            better = couple(presolved, problem.variables, weights)
            wider = wider if better is None else replace(problem, coupling=better)
        return wider, self.solve(wider)

    def details(self) -> dict[str, Any]:
        """Return the last relaxation without cuts and those with cuts, and what led to it."""
        first = self.stages[0]["tables"]
        before = sum(s["tables"] == first for s in self.stages) - 1
        rounds = self.stages[before:]
        if rounds[0]["inputs"]:
            rounds[0]["solver"] += "+y"
        found = {"rounds": rounds, "gap": _finite(self.best.primal - self.best.lower)}
        return found | ({"before": self.stages[:before]} if before else {})


def _finite(value: float) -> float | None:
    """Return what JSON can hold."""
    return float(value) if np.isfinite(value) else None


def _hopeful(problem: ReducedProblem, primal: float, share: float) -> bool:
    """Whether that share of f's reach may lift a bound of about `primal` above zero."""
    spread = problem.values.max(axis=1, initial=0.0) - problem.values.min(axis=1, initial=0.0)
    reach = float(spread.sum()) / 2 + float(np.abs(problem.linear).sum())
    return primal > -share * reach


@dataclass(eq=False)
class _Answer:
    solver: str
    status: str
    iterations: int
    multipliers: StructuredMultipliers
    moments: FloatArray | None
    primal: float
    #: Second moments of the input, if it is coupled.
    inputs: FloatArray | None = None


def _solve(
    relaxation: ReducedRelaxation,
    objective: Objective,
    context: Context,
    last: bool,
    tolerance: float | None = None,
) -> _Answer:
    """Solve one relaxation; the last one as far as it takes to know the sign or the bound of f."""
    decide = last and context.options.mode == "feasibility"
    program, name = relaxation.program, context.options.solver or "structured"
    if name not in ("structured", "low-rank"):
        solver = conic_solver(name)
        conic = solver.solve(conic_program(program), context.deadline)
        multipliers = multipliers_of(program, conic.primal)
        return _Answer(name, conic.status, conic.iterations, multipliers, None, np.inf)
    if name == "low-rank" or program.unknowns > MOST_UNKNOWNS:
        return _solve_by_first_order(relaxation, objective, context, decide)
    problem, scale = relaxation.problem, relaxation.scale
    constant = problem.constant - problem.slack
    step = float(objective.lattice[1]) if objective.lattice is not None else 0.0
    room = 1e-7 * max(1.0, abs(problem.constant))

    def settled(dual: float, primal: float) -> bool:
        """Whether nothing between both can change what the bound is rounded up to."""
        known = objective.round_up(dual * scale + constant - ROUNDING_ROOM * step)
        return known >= objective.round_up(primal * scale + constant)

    try:
        moments, probabilities = starting_moments(problem, context.options.seed, context.deadline)
    except OutOfTimeError:
        return _Answer("structured", "interrupted", 0, starting_point(program), None, np.inf)
    solution = solve_structured(
        program,
        context.deadline,
        moments=moments,
        probabilities=probabilities,
        above=(objective.enough + room - constant) / scale if decide else np.inf,
        below=(objective.enough - room - constant) / scale if decide else -np.inf,
        settled=settled if last and step else None,
        gap=LATTICE_GAP * step / scale,
        tolerance=tolerance or (1e-5 if decide else 1e-6),
    )
    signs = problem.size + 1
    return _Answer(
        "structured",
        solution.status,
        solution.iterations,
        solution.multipliers,
        solution.moments[:signs, :signs],
        solution.primal * scale + constant,
        solution.moments[signs:, signs:],
    )


def _solve_by_first_order(
    relaxation: ReducedRelaxation, objective: Objective, context: Context, decide: bool
) -> _Answer:
    """Solve a relaxation whose Newton systems are too large, or that the options say to."""
    problem, scale = relaxation.problem, relaxation.scale
    constant = problem.constant - problem.slack
    found = solve_low_rank(
        relaxation.program,
        context.deadline,
        seed=context.options.seed,
        above=(objective.enough - constant) / scale if decide else np.inf,
    )
    signs = problem.size + 1
    return _Answer(
        "low-rank",
        found.status,
        found.iterations,
        found.multipliers,
        found.moments[:signs, :signs],
        found.primal * scale + constant,
    )


def _has_many_pairs(problem: ReducedProblem, context: Context) -> bool:
    """Whether Newton systems with all pairs would cost far more than those without."""
    others, pairs = problem.links + problem.size, int(problem.pair_first.size)
    many = pairs > max(others, MANY_PAIRS) and others <= MOST_UNKNOWNS
    return many and context.options.solver in (None, "structured")


def _solve_lazily(
    relaxation: ReducedRelaxation,
    objective: Objective,
    context: Context,
    last: bool,
    tolerance: float | None = None,
) -> _Answer:
    """Solve with few conflicting pairs first, then with those that the moments violate."""
    problem = relaxation.problem
    kept = np.zeros(problem.pair_first.size, dtype=bool)
    most = int(PAIR_SHARE * (problem.links + problem.size))
    best, best_bound, iterations, complete = None, -np.inf, 0, False
    for left in reversed(range(PAIR_ROUNDS)):
        final = complete or left == 0
        few = relax_reduced(with_pairs(problem, kept))
        rough = tolerance if final else max(PAIR_GAP, tolerance or 0.0)
        answer = _solve(few, objective, context, last, rough)
        iterations += answer.iterations
        answer.multipliers = for_all_pairs(answer.multipliers, kept)
        bound = relaxation.dual_point(answer.multipliers).bound(problem)
        if best is None or bound > best_bound:
            best, best_bound = answer, bound
        proved = objective.is_proved_by(objective.round_up(bound))
        decided = last and context.options.mode == "feasibility" and proved
        if final or decided or answer.moments is None or context.deadline.passed():
            break
        added = violated_pairs(problem, answer.moments, kept, most)
        kept[added] = True
        complete = not added.size
    assert best is not None
    return replace(best, iterations=iterations)


@register
class ReducedSdpMethod(Method):
    """The reduced relaxation."""

    name = "sdp"
    summary = "presolve and reduced semidefinite relaxation with our own solver: the default bound"
    promises = ("bound",)
    reads = frozenset({"seed", "mode", "solver", "cut_rounds", "coupling"})
    explains = True

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Bound every target; presolve is shared."""
        if context.options.sparsity is not None:
            raise InputError(
                "method sdp has no cliques to choose; --sparsity is for sdp-tight etc."
            )
        started = context.deadline.elapsed()
        context.report("presolve", 0, len(problem.targets))
        presolved = context.record_presolved(
            presolve(problem.network, problem.region, deadline=context.deadline)
        )
        presolve_seconds = context.deadline.elapsed() - started
        results = []
        for number, target in enumerate(problem.targets):
            since = context.deadline.elapsed()
            context.report(f"{self.name}: {target.name}", number, len(problem.targets))
            if presolved.contradiction:
                note = "presolve shows that the region has no point"
                results.append(
                    context.result(target, self.name, since, lower=np.inf, proved=True, note=note)
                )
                continue
            lower, proved = interval_proof(target, presolved.bounds[-1])
            details: dict[str, Any] = {}
            too_large = not proved and is_too_large(presolved)
            note = TOO_LARGE if too_large else ""
            for objective in () if too_large else target.objectives:
                if context.deadline.passed():
                    break
                if proved and context.options.mode == "feasibility":
                    break
                problem_left = reduce_objective(presolved, objective)
                if context.options.mode == "feasibility" and problem_left.links > WORTH_LP:
                    # The LP proves most targets of a large network at a fraction of the cost.
                    lowers = lp_lower_bounds(problem, presolved.bounds, target, "lattice", context)
                    lower = max([lower, *lowers])
                    if any(
                        o.is_proved_by(b) for o, b in zip(target.objectives, lowers, strict=True)
                    ):
                        proved = True
                        break
                found = bound_problem(problem_left, objective, context, presolved=presolved)
                lower = max(lower, found.lower)
                proved = proved or found.proved
                details = details or found.details
            details = {"presolve": explain(presolved), "presolve seconds": presolve_seconds} | (
                details
            )
            results.append(
                context.result(
                    target, self.name, since, lower=lower, proved=proved, note=note, details=details
                )
            )
        return tuple(results)


def explain(presolved: Presolved) -> list[dict[str, Any]]:
    """Return what presolve did to each layer: counts by rule, and sizes before and after."""
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
