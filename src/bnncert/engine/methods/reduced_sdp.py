r"""The default bound: presolve, reduced semidefinite relaxation, structured solver.

A relaxation is solved by the solver of the options or the one for its size.  Most conflicting pairs
are redundant; only violated ones are added.  Without some of its equations (1 + s x_a)(1 + t x_b) =
0 the relaxation is weaker, but its multipliers, with pi = 0 for missing ones, still prove a bound
of f.  The violation of a pair by the moments M is

    depth_e = | 1 + s M_0a + t M_0b + s t M_ab |.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.methods.lp import lp_lower_bounds
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.components import ComponentAnswer, split_bound
from bnncert.engine.relaxations.reduced.coupling import couple
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts, input_cut
from bnncert.engine.relaxations.reduced.lattice_cuts import add_cuts
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import (
    ReducedProblem,
    is_too_large,
    reduce_objective,
)
from bnncert.engine.relaxations.reduced.relaxation import (
    LATTICE_GAP,
    ReducedRelaxation,
    conic_program,
    multipliers_of,
    relax_reduced,
)
from bnncert.engine.relaxations.reduced.table_splits import choose_splits, split
from bnncert.engine.solvers.conic_back_ends import conic_solver
from bnncert.engine.solvers.low_rank import LowRankSolution, solve_low_rank
from bnncert.engine.solvers.structured import StructuredSolution, solve_structured
from bnncert.engine.solvers.structured_program import StructuredMultipliers, starting_point
from bnncert.engine.verdict import TargetResult, finite_or_none
from bnncert.errors import InputError
from bnncert.problem import Objective, Problem, Target

#: Smaller violations are ignored.
VISIBLE = 0.02


def with_pairs(problem: ReducedProblem, kept: npt.NDArray[np.bool_]) -> ReducedProblem:
    """Return the problem with some of its conflicting pairs."""
    first, second = problem.pair_first[kept], problem.pair_second[kept]
    return replace(problem, pair_first=first, pair_second=second)


def for_all_pairs(
    multipliers: StructuredMultipliers, kept: npt.NDArray[np.bool_]
) -> StructuredMultipliers:
    """Return the multipliers with pi = 0 for the pairs that are not kept."""
    pi = np.zeros(kept.size)
    pi[kept] = multipliers.pi
    return replace(multipliers, pi=pi)


def violated_pairs(
    problem: ReducedProblem, moments: FloatArray, kept: npt.NDArray[np.bool_], most: int
) -> IntArray:
    """Return the most violated of the pairs that are not kept yet, in this order."""
    first, second = problem.pair_first, problem.pair_second
    s, t = sign_of(first), sign_of(second)
    a, b = variable_of(first) + 1, variable_of(second) + 1
    depth = np.abs(1 + s * moments[0, a] + t * moments[0, b] + s * t * moments[a, b])
    depth[kept] = 0.0
    order = np.argsort(-depth, kind="stable")[:most]
    return np.asarray(order[depth[order] > VISIBLE], dtype=np.int64)


#: The largest number of unknowns of a Newton system; above it the first-order solver is used.
MOST_UNKNOWNS = 9000

#: Number of conflicting pairs above which only violated ones are added, the number of rounds, the
#: most pairs of a round as a share of the other unknowns, and the gap at which a round ends.
MANY_PAIRS, PAIR_ROUNDS, PAIR_SHARE, PAIR_GAP = 2000, 3, 0.8, 0.01

#: The loss of rounding a dual point to an exact bound, as a share of the spacing of f's values.
ROUNDING_ROOM = 0.002


@dataclass(eq=False)
class RelaxationAnswer:
    """The result of a solver for one relaxation; `primal` is in the units of f."""

    solver: str
    status: str
    iterations: int
    multipliers: StructuredMultipliers
    moments: FloatArray | None = None
    primal: float = np.inf
    #: Second moments of the input, if it is coupled.
    inputs: FloatArray | None = None
    #: The distributions of the tables that are not split.
    probabilities: FloatArray | None = None


def solve_relaxation(
    relaxation: ReducedRelaxation,
    objective: Objective,
    context: Context,
    last: bool,
    tolerance: float | None = None,
) -> RelaxationAnswer:
    """Solve one relaxation; the last one until the sign or the rounded bound of f is known."""
    problem, decide = relaxation.problem, last and context.options.mode == "feasibility"
    if not _has_many_pairs(problem, context):
        return _solve(relaxation, objective, context, last, tolerance)
    # The first round has no conflicting pairs; later rounds add those that the moments violate.
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
        decided = decide and objective.is_proved_by(objective.round_up(bound))
        if final or decided or answer.moments is None or context.deadline.passed():
            break
        added = violated_pairs(problem, answer.moments, kept, most)
        kept[added] = True
        complete = not added.size
    assert best is not None
    return replace(best, iterations=iterations)


def _has_many_pairs(problem: ReducedProblem, context: Context) -> bool:
    """Whether Newton systems with all pairs take far more time than those without."""
    others, pairs = problem.links + problem.size, int(problem.pair_first.size)
    many = pairs > max(others, MANY_PAIRS) and others <= MOST_UNKNOWNS
    return many and context.options.solver in (None, "structured")


def _solve(
    relaxation: ReducedRelaxation,
    objective: Objective,
    context: Context,
    last: bool,
    tolerance: float | None,
) -> RelaxationAnswer:
    """Solve one relaxation with all of its pairs."""
    decide = last and context.options.mode == "feasibility"
    program, name = relaxation.program, context.options.solver or "structured"
    if name not in ("structured", "low-rank"):
        conic = conic_solver(name).solve(conic_program(program), context.deadline)
        multipliers = multipliers_of(program, conic.primal)
        return RelaxationAnswer(name, conic.status, conic.iterations, multipliers)
    if name == "low-rank" or program.unknowns > MOST_UNKNOWNS:
        above = relaxation.goal(objective.enough) if decide else np.inf
        seed = context.options.seed
        rough = solve_low_rank(program, context.deadline, seed=seed, above=above)
        return _answer("low-rank", relaxation, rough)
    problem = relaxation.problem
    step = float(objective.lattice[1]) if objective.lattice is not None else 0.0
    room = 1e-7 * max(1.0, abs(problem.constant))

    def settled(dual: float, primal: float) -> bool:
        """Whether all values between both bounds round up to the same value of f."""
        known = objective.round_up(relaxation.value(dual) - ROUNDING_ROOM * step)
        return known >= objective.round_up(relaxation.value(primal))

    try:
        moments, probabilities = starting_moments(problem, context.options.seed, context.deadline)
    except OutOfTimeError:
        return RelaxationAnswer("structured", "interrupted", 0, starting_point(program))
    solution = solve_structured(
        program,
        context.deadline,
        moments=moments,
        probabilities=probabilities,
        above=relaxation.goal(objective.enough + room) if decide else np.inf,
        below=relaxation.goal(objective.enough - room) if decide else -np.inf,
        settled=settled if last and step else None,
        gap=LATTICE_GAP * step / relaxation.scale,
        tolerance=tolerance or (1e-5 if decide else 1e-6),
    )
    return _answer("structured", relaxation, solution)


def _answer(
    solver: str, relaxation: ReducedRelaxation, found: StructuredSolution | LowRankSolution
) -> RelaxationAnswer:
    signs = relaxation.problem.size + 1
    given = found.probabilities[0] if isinstance(found, StructuredSolution) else None
    return RelaxationAnswer(
        solver,
        found.status,
        found.iterations,
        found.multipliers,
        found.moments[:signs, :signs],
        relaxation.value(found.primal),
        found.moments[signs:, signs:],
        given,
    )


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
    for number in range(rounds):
        if (decide and best.proved) or context.deadline.passed():
            break
        if answer.moments is None or (decide and not _hopeful(problem, answer.primal, HOPEFUL)):
            break
        added = 0
        if not number and presolved is not None and answer.probabilities is not None:
            given = answer.moments, answer.probabilities
            among = presolved.owner_layer[problem.variables] == 0
            tables, variables = choose_splits(current, *given, among)
            current, added = split(current, tables, variables), tables.size
        if not added:
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

        is_apart = problem.coupling is None and problem.cuts is None and problem.splits is None
        if problem.size >= WORTH_PARTS and is_apart:
            apart = split_bound(problem, solve_part)
            lower, dual, parts = apart.lower, apart.dual, apart.parts
            answer = replace(answers[-1], moments=apart.moments, primal=apart.primal)
            answer.probabilities = answer.probabilities if parts == 1 else None
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
                "split tables": 0 if problem.splits is None else problem.splits.tables.size,
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
        plain = (s["tables"] == first and not s["split tables"] for s in self.stages)
        before = sum(plain) - 1
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
