r"""Exact answers by mixed-integer programs whose solutions are replayed exactly: milp and minp.

An incumbent is only a proposal.  A point with its first-layer signs is replayed exactly, or the
signs are shown to exclude each other and forbidden by a clause before the next solve.
Infeasibility, and a lower bound of f, are taken from the solver.

`milp` has a linear model (HiGHS).  `minp` (SCIP) has the same one; for an L2 ball its inputs are
the projection of the ball to the space of the first-layer weights, with the constraint |v|_2^2 <=
1.  The unstable neurons depend only on W (x - m).  If the columns of Q are an orthonormal basis of
the rows of W,

    W (x - m) = r W Q v,      v = Q' (x - m) / r,      |v|_2 <= 1,

and every such v belongs to a point of the ball: there is one variable for each unstable neuron
instead of one for each input.  The data box is not represented by v, only by the bounds Lo and U of
the neurons; clauses exclude the signs that the box makes impossible.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import IntArray, SignArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.engine import TargetEngine
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved, PresolveRecord
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableProblem, reduce_target
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.feasibility import SignPattern
from bnncert.engine.relaxations.linear import LinearModel, linear_model
from bnncert.engine.relaxations.reduced.problem import is_too_large
from bnncert.engine.solvers.integer_back_ends import GurobiModel, ScipModel
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.errors import InputError
from bnncert.problem import Problem, Target
from bnncert.regions import Region
from bnncert.regions.linear_program import HighsModel, InputBlock, LinearSolution, input_block

#: The error of a solver's bound, relative to the size of f.
BOUND_TOLERANCE = 1e-6


class Solver(Protocol):
    """A mixed-integer program inside a solver, to be solved, extended and solved again."""

    def solve(self, deadline: Any, /) -> LinearSolution:
        """Solve within the remaining time."""

    def add_row(self, lower: float, upper: float, columns: Any, values: Any, /) -> None:
        """Add one linear constraint."""


class ExactMethod(Method):
    """Decides every target by a mixed-integer program; subclasses choose the solver."""

    promises = ("bound", "exact", "counterexample")
    reads = frozenset({"seed", "mode", "form", "solver", "threads"})
    #: The solver that runs if the options name none.
    own_solver: ClassVar[str]

    def inputs(self, reduced: UnstableProblem, region: Region) -> InputBlock:
        """Describe the inputs of a model."""
        return input_block(region, reduced.layers[0].inputs)

    @abstractmethod
    def solver(self, model: LinearModel, region: Region, context: Context) -> Solver:
        """Build a model in the solver; raise OutOfTimeError if the deadline passes."""

    def check_region(self, region: Region) -> None:
        """Raise InputError if the solver cannot express the region."""

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide every target in turn."""
        lattice = context.options.form == "lattice"
        if lattice:
            presolved = context.presolve(problem)
            bounds, record = presolved.bounds, presolved.record
        else:
            # The paper's form is used as published, without conflicting pairs.
            bounds, record = context.intervals(problem), PresolveRecord()
        return tuple(
            self.solve_target(problem, bounds, target, context, record)
            for target in context.in_turn(problem, self.name)
        )

    def solve_target(
        self,
        problem: Problem,
        bounds: tuple[LayerBounds, ...],
        target: Target,
        context: Context,
        record: PresolveRecord | None = None,
        clauses: Sequence[IntArray] = (),
    ) -> TargetResult:
        """Decide one target; the conflicting pairs of presolve and `clauses` become constraints.

        `clauses` are literals of first-layer neurons that no input has together.
        """
        since = context.deadline.elapsed()
        lower, proved = interval_proof(target, bounds[-1])
        optimise = context.options.mode == "optimum" and len(target.objectives) == 1
        if proved and not optimise:
            return context.result(target, "interval", since, lower=lower, proved=True)
        self.check_region(problem.region)
        if context.deadline.passed():
            return context.result(target, self.name, since, lower=lower)
        reduced = reduce_target(problem.network, bounds, target)
        block, form = self.inputs(reduced, problem.region), context.options.form
        try:
            model = linear_model(reduced, block, form, integer=True, deadline=context.deadline)
            model = _with_objective(model, target, optimise)
            solver = self.solver(model, problem.region, context)
        except OutOfTimeError:
            return context.result(target, self.name, since, lower=lower)
        if record is not None:
            _add_pairs(solver, model, record, context.deadline)
        _add_clauses(solver, model, clauses, context.deadline)
        trusted = context.options.solver or self.own_solver
        search = _IncumbentSearch(
            self.name, solver, problem, target, model, context, lower, optimise, trusted
        )
        return search.run(since)


def _add_pairs(
    solver: Solver, model: LinearModel, record: PresolveRecord, deadline: Deadline
) -> None:
    """Forbid the conflicting pairs of first-layer signs.

    The model is also correct without them, so this may stop at any pair when the deadline passes.
    """
    index = model.problem.layers[0].index
    for step in record.steps:
        if step.rule != "clash" or step.layer != 0:
            continue
        assert step.other is not None and step.other_signs is not None
        kept = np.flatnonzero(np.isin(step.neurons, index) & np.isin(step.other, index))
        first = np.searchsorted(index, step.neurons[kept])
        second = np.searchsorted(index, step.other[kept])
        signs, others = step.signs[kept], step.other_signs[kept]
        for a, b, s, t in zip(first, second, signs, others, strict=True):
            if deadline.passed():
                return
            _exclude(solver, model, np.array([a, b]), np.array([s, t]))


def _add_clauses(
    solver: Solver, model: LinearModel, clauses: Sequence[IntArray], deadline: Deadline
) -> None:
    """Forbid the clauses that other methods have learned, until the deadline passes."""
    index = model.problem.layers[0].index
    for clause in clauses:
        neurons = variable_of(clause)
        if deadline.passed():
            return
        if np.isin(neurons, index).all():
            _exclude(solver, model, np.searchsorted(index, neurons), sign_of(clause))


def _exclude(solver: Solver, model: LinearModel, places: IntArray, signs: SignArray) -> None:
    """Add the clause that not all of some unstable first-layer neurons have these signs."""
    # The literals are z (sign +1) or 1 - z (sign -1): sum over +1 of (1 - z) + over -1 of z >= 1.
    columns = model.offsets[0] + places
    solver.add_row(1.0 - float(np.sum(signs > 0)), np.inf, columns, -signs.astype(np.float64))


def _with_objective(model: LinearModel, target: Target, optimise: bool) -> LinearModel:
    """Add f as the objective, or f_i <= (largest violating value) as rows."""
    program = model.program
    columns = program.cost.size
    if optimise:
        part, offset = model.objective_row(model.problem.objectives[0])
        cost = np.zeros(columns)
        cost[model.last_layer()] = part
        return replace(model, program=replace(program, cost=cost, offset=offset))
    rows, limits = [], []
    for reduced, objective in zip(model.problem.objectives, target.objectives, strict=True):
        part, offset = model.objective_row(reduced)
        row = np.zeros(columns)
        row[model.last_layer()] = part
        rows.append(row)
        limits.append(objective.largest_violation() - offset + reduced.slack)
    if not rows:
        return model
    matrix = sp.csr_array(sp.vstack([program.matrix, sp.csr_array(np.array(rows))]))
    return replace(
        model,
        program=replace(
            program,
            matrix=matrix,
            row_lower=np.concatenate([program.row_lower, np.full(len(rows), -np.inf)]),
            row_upper=np.concatenate([program.row_upper, limits]),
        ),
    )


@dataclass(eq=False)
class _IncumbentSearch:
    """Solve, replay the incumbent, and exclude it if no input has its pattern."""

    _name: str
    _solver: Solver
    _problem: Problem
    _target: Target
    _model: LinearModel
    _context: Context
    _lower: float
    _optimise: bool
    _trusted: str
    _upper: float = np.inf

    def run(self, since: float) -> TargetResult:
        """Return the result for the target."""
        found: Counterexample | None = None
        while True:
            solution = self._solver.solve(self._context.deadline)
            if solution.status == "infeasible":
                if self._optimise:
                    return self._finish(since, note="the solver found the model infeasible")
                return self._finish(since, proved=True)
            if self._optimise:
                self._raise_lower(solution.dual_bound)
            if solution.point is None:
                return self._finish(since, note="" if solution.status == "limit" else "no solution")
            point, exact, conflict = self._realise(solution.point)
            found = self._context.replayer.confirm(self._target, point, exact)
            if found is not None and not self._optimise:
                return self._finish(since, found)
            if conflict is not None:
                # The pattern cannot occur (a tie, or the Soft margin): forbid its conflict.
                signs = self._model.first_layer_signs(solution.point)[conflict]
                _exclude(self._solver, self._model, conflict, signs)
                continue
            if self._optimise:
                return self._finish_optimum(since, found, point, exact)
            return self._finish(since, note="the counterexample exists only in floating point")

    def _raise_lower(self, dual_bound: float) -> None:
        if not np.isfinite(dual_bound):
            return
        objective = self._target.objectives[0]
        size = 1.0 + float(np.abs(objective.coefficients).sum())
        slack = self._model.problem.objectives[0].slack
        bound = objective.round_up(dual_bound - BOUND_TOLERANCE * size - slack)
        self._lower = max(self._lower, bound)

    def _realise(
        self, solution: np.ndarray
    ) -> tuple[np.ndarray, tuple[Fraction, ...] | None, IntArray | None]:
        """Return an input for the incumbent's first-layer pattern, or its conflict."""
        point = self._model.point(solution, self._problem.region)
        first = self._model.problem.layers[0]
        wanted = self._model.first_layer_signs(solution)
        pattern = SignPattern(self._problem.network.layers[0], first.index, wanted)
        inside = self._problem.region.settle(point)
        if inside is not None and pattern.holds_at(inside):
            return inside, None, None
        found = exact_feasibility(pattern, self._problem.region, self._context.deadline)
        if found.point is not None:
            return found.point, found.exact_point, None
        return point, None, found.conflict

    def _finish(
        self,
        since: float,
        found: Counterexample | None = None,
        *,
        proved: bool = False,
        note: str = "",
    ) -> TargetResult:
        if proved and len(self._target.objectives) == 1:
            self._lower = max(self._lower, self._target.objectives[0].least_good_value)
        return self._context.result(
            self._target,
            self._name,
            since,
            lower=self._lower,
            upper=self._upper,
            counterexample=found,
            proved=proved,
            note=note,
            trusted=self._trusted,
        )

    def _finish_optimum(
        self,
        since: float,
        found: Counterexample | None,
        point: np.ndarray,
        exact: tuple[Fraction, ...] | None,
    ) -> TargetResult:
        place = np.array([float(v) for v in exact]) if exact is not None else point
        values = self._context.replayer.value((self._target,), place)
        self._upper = np.inf if values is None else values[0]
        if self._lower > self._upper:
            # An exact point refutes the solver, so its bound is discarded.
            self._lower = -np.inf
            return self._finish(since, found, note="an exact point refutes the solver's bound")
        proved = self._target.objectives[0].is_proved_by(self._lower)
        return self._finish(since, found, proved=proved and found is None)


#: Seconds of a first look at a mixed-integer program.
PROGRAM = 0.2


@register
class MilpMethod(ExactMethod):
    """The network as a mixed-integer program."""

    name = "milp"
    summary = "exact mixed-integer program (HiGHS), in lattice form or the paper's Soft form"
    regions = "linf, l1, l0, box, polytope"
    own_solver = "highs"

    def check_region(self, region: Region) -> None:
        """Raise InputError for the L2 ball."""
        if region.norm == "l2":
            raise InputError(
                "the L2 ball is not polyhedral, so milp cannot encode it; use minp, interval, lp, "
                "sample or attack for the L2 norm"
            )

    def solver(self, model: LinearModel, region: Region, context: Context) -> Solver:
        """Build a model in HiGHS, or in Gurobi if the options name it."""
        options = context.options
        if options.solver == "gurobi":
            return GurobiModel(model.program, threads=options.threads, seed=options.seed)
        if options.solver not in (None, "highs"):
            raise InputError(f"method milp has no solver {options.solver!r}; use highs or gurobi")
        return HighsModel(
            model.program,
            {
                "threads": options.threads,
                "random_seed": options.seed % 2**31,
                "mip_rel_gap": 0.0,
                "mip_abs_gap": 1e-6,
            },
        )


class ProgramEngine(TargetEngine):
    """The mixed-integer program, which begins again in each slice."""

    method = MilpMethod
    trusts_solver = True

    def first_slice(self) -> float:
        """Presolve and a first look at each program."""
        if self.question.problem.region.norm == "l2":
            return np.inf
        return PROGRAM * len(self.question.open) + self.question.presolve_seconds

    def decide(self, target: Target, presolved: Presolved, context: Context) -> TargetResult | None:
        """Solve the program of a target, with all clauses that were learned."""
        if is_too_large(presolved):
            return None
        named = context.options.solver
        options = replace(context.options, solver="gurobi" if named == "gurobi" else None)
        clauses = [literals for literals, _ in self.question.learned.known.values()]
        return MilpMethod().solve_target(
            *(self.question.problem, presolved.bounds, target, replace(context, options=options)),
            *(presolved.record, clauses),
        )


def ball_block(region: Region, layer: UnstableLayer) -> InputBlock:
    """Describe an L2 ball by few variables v; the solver adds the constraint |v|_2 <= 1."""
    used = layer.inputs
    if layer.size >= used.size:
        # v = (x - m) / r has as few variables and represents the data box, too.
        return input_block(region, used)
    basis = np.linalg.qr(layer.weights.toarray().astype(np.float64).T)[0]
    ones = np.ones(layer.size)
    spread = sp.csr_array(region.radius * basis)
    nothing = sp.csr_array((0, layer.size))
    return InputBlock(used, region.middle[used], spread, -ones, ones, nothing, np.zeros(0))


@register
class MinpMethod(ExactMethod):
    """The network as a mixed-integer program with a quadratic constraint."""

    name = "minp"
    summary = "exact mixed-integer nonlinear program (SCIP), in lattice form or Soft form"
    extra = "scip"
    package = "pyscipopt"
    own_solver = "scip"

    def inputs(self, reduced: UnstableProblem, region: Region) -> InputBlock:
        """Describe the inputs of a model."""
        if region.norm == "l2":
            return ball_block(region, reduced.layers[0])
        return super().inputs(reduced, region)

    def solver(self, model: LinearModel, region: Region, context: Context) -> Solver:
        """Build a model in SCIP, or in Gurobi if the options name it."""
        options = context.options
        ball = model.inputs.size if region.norm == "l2" else 0
        if options.solver == "gurobi":
            return GurobiModel(model.program, ball=ball, threads=options.threads, seed=options.seed)
        if options.solver not in (None, "scip"):
            raise InputError(f"method minp has no solver {options.solver!r}; use scip or gurobi")
        start = model.offsets[0]
        return ScipModel(
            model.program,
            ball=ball,
            # The signs of the first layer imply all later ones.
            branch_first=range(start, start + model.problem.layers[0].size),
            seed=options.seed,
            deadline=context.deadline,
        )
