r"""Solution of one reduced relaxation, by the solver of the options or the one for its size.

Most conflicting pairs are redundant; only violated ones are added.  Without some of its equations
(1 + s x_a)(1 + t x_b) = 0 the relaxation is weaker, but its multipliers, with pi = 0 for missing
ones, still prove a bound of f.  The violation of a pair by the moments M is

    depth_e = | 1 + s M_0a + t M_0b + s t M_ab |.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods.base import Context
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.conic import conic_program, multipliers_of
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import (
    LATTICE_GAP,
    ReducedRelaxation,
    relax_reduced,
)
from bnncert.engine.solvers.low_rank import LowRankSolution, solve_low_rank
from bnncert.engine.solvers.registry import conic_solver
from bnncert.engine.solvers.structured import StructuredSolution, solve_structured
from bnncert.engine.solvers.structured_program import StructuredMultipliers, starting_point
from bnncert.problem import Objective

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
    return RelaxationAnswer(
        solver,
        found.status,
        found.iterations,
        found.multipliers,
        found.moments[:signs, :signs],
        relaxation.value(found.primal),
        found.moments[signs:, signs:],
    )
