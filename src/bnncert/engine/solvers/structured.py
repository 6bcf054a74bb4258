r"""A primal-dual interior-point method for the programs of `structured_program`.

The iteration (HKM direction, Mehrotra's corrector, applied twice if that makes the step longer)
keeps the dual feasible from its first point, so that every iterate is a bound.  theta_j0 is
eliminated for each table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.processes import blas_threads
from bnncert.engine.solvers.definite import Arrow, ArrowFactor, InverseFactor
from bnncert.engine.solvers.product_matrices import ProductMatrices
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    starting_point,
)

StructuredStatus: TypeAlias = Literal[
    "optimal", "above", "below", "stalled", "limit", "interrupted"
]

#: The power of (gap after the affine step / gap before) in the centring parameter.
CENTRING = 3

#: The primal value is used if the residuals of M and p are smaller.
NEARLY_FEASIBLE = 1e-5

#: A second correction is used if the sum of both step lengths increases by more than this.
LONGER = 0.02

#: The assumed operations per second of the first step (one core), and the seconds by which a step
#: may exceed the deadline: a step that is expected to take longer does not start, and one that
#: turns out to take longer is given up.
FLOPS, LATE_SECONDS = 2e10, 0.1


#: A step that leaves the cone is shortened to this share, so many times.
SHORTER, SHORTER_STEPS = 0.8, 5


#: The shifts of the diagonal of the Newton matrix that are tried, relative to its entries.
SHIFTS = (1e-13, 1e-11, 1e-9, 1e-7)


class Iterate(NamedTuple):
    """One line of the history of the solver."""

    dual: float
    primal: float
    gap: float
    infeasibility: float


@dataclass(frozen=True, eq=False)
class _Goal:
    """The stopping criteria, see :func:`solve_structured`."""

    above: float
    below: float
    gap: float
    tolerance: float
    settled: Callable[[float, float], bool] | None

    def reached(self, now: Iterate) -> StructuredStatus | None:
        """Return the status if the iteration ends here, else None."""
        if now.dual > self.above:
            return "above"
        if now.infeasibility < NEARLY_FEASIBLE and now.primal < self.below:
            return "below"
        if now.gap < max(self.gap, self.tolerance * (1 + abs(now.dual))):
            return "optimal"
        if self.settled is not None and now.infeasibility < 10 * NEARLY_FEASIBLE:
            highest = max(now.primal, now.dual + now.gap)
            return "optimal" if self.settled(now.dual, highest) else None
        return None


@dataclass(eq=False)
class StructuredSolution:
    """Multipliers, moments and the course of the iteration."""

    status: StructuredStatus
    multipliers: StructuredMultipliers
    moments: FloatArray
    probabilities: list[FloatArray]
    dual: float
    primal: float
    history: list[Iterate] = field(default_factory=list)

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return max(0, len(self.history) - 1)


def _ratio(value: FloatArray, step: FloatArray) -> float:
    least = float((step / value).min(initial=0.0))
    return np.inf if least >= 0 else -1.0 / least


def solve_structured(
    program: StructuredProgram,
    deadline: Deadline,
    *,
    above: float = np.inf,
    below: float = -np.inf,
    gap: float = 0.0,
    tolerance: float = 1e-6,
    iterations: int = 60,
    start: StructuredMultipliers | None = None,
    moments: FloatArray | None = None,
    probabilities: list[FloatArray] | None = None,
    settled: Callable[[float, float], bool] | None = None,
    kind: type[Iteration] | None = None,
    second: bool = True,
) -> StructuredSolution:
    """Solve until the dual exceeds `above`, the primal falls below `below`, or the gap closes.

    The gap is closed at `gap`, at `tolerance` relative to the value, and if `settled(dual, primal)`
    is true, which means that values between both are equivalent.  The primal value is less certain
    for `settled` than for `below`; if it is wrong, the bound is weaker but valid.  `kind` is
    the form of the iteration; all of them make the same steps, each with a second correction if
    `second` is true.
    """
    iteration = (kind or Iteration)(program, start, moments, probabilities)
    iteration.second = second
    goal = _Goal(above, below, gap, tolerance, settled)
    with blas_threads(program.unknowns):
        return iteration.run(deadline, goal, iterations)


class Iteration:
    """The point of the iteration, and its steps."""

    #: Whether steps have a second correction.
    second = True

    def __init__(
        self,
        program: StructuredProgram,
        start: StructuredMultipliers | None,
        moments: FloatArray | None,
        probabilities: list[FloatArray] | None,
    ) -> None:
        self.program = program
        self.y = start or starting_point(program)
        self.m = np.eye(program.size) if moments is None else moments.copy()
        # With M = I every form u has mean 0 and variance 1: p starts from a normal density.
        self.p = [] if probabilities is None else [p.copy() for p in probabilities]
        for tables in program.tables if probabilities is None else ():
            bell = np.full(tables.values.shape, 1e-3)
            if tables.links:
                bell += np.exp(-0.5 * tables.features[:, :, 1] ** 2)
            self.p.append(bell / bell.sum(axis=1, keepdims=True))
        #: The memory of the factor of the Newton matrix.
        self.space = np.empty((program.unknowns, program.unknowns))
        #: The number of all complementary pairs.
        self.degree = program.size + sum(t.values.size for t in program.tables)
        self.bring_into_form()

    def bring_into_form(self) -> None:
        """Bring the first point into the form on which the steps work."""

    @cached_property
    def geometry(self) -> ProductMatrices:
        """The matrices of the program."""
        return ProductMatrices(self.program)

    def split(self, unknowns: FloatArray, first: list[FloatArray]) -> StructuredMultipliers:
        """Return the multipliers of given unknowns and constants theta_0."""
        g = self.geometry
        unknowns = g.expand(unknowns)
        parts = zip(first, self.program.by_family(unknowns), strict=True)
        theta = [np.hstack([constant[:, None], part]) for constant, part in parts]
        return StructuredMultipliers(theta, unknowns[g.diagonal], unknowns[g.pair])

    def run(self, deadline: Deadline, goal: _Goal, iterations: int) -> StructuredSolution:
        """Iterate until a stopping criterion holds or a limit is reached."""
        history: list[Iterate] = []
        best, best_y = -np.inf, self.y
        status: StructuredStatus = "limit"
        # The time of the first step is an estimate; later steps take as long as the last one.
        step_seconds = self.program.unknowns**3 / 3 / FLOPS
        late = deadline.extended(LATE_SECONDS)
        try:
            at = self.point()
        except scipy.linalg.LinAlgError:
            iterations, status = -1, "stalled"
        for count in range(iterations + 1):
            now = self.iterate(at)
            history.append(now)
            if now.dual > best:
                best, best_y = now.dual, self.y
            ending = goal.reached(now)
            if ending is not None:
                status = ending
                break
            if deadline.passed() or deadline.remaining() < step_seconds - LATE_SECONDS:
                status = "interrupted"
                break
            if count == iterations:
                break
            step_began = deadline.elapsed()
            try:
                at = self._step(at, now.gap / self.degree, late)
            except OutOfTimeError:
                status = "interrupted"
                break
            except (scipy.linalg.LinAlgError, FloatingPointError):
                status = "stalled"
                break
            step_seconds = deadline.elapsed() - step_began
        primal = history[-1].primal if history else np.inf
        found = StructuredSolution(status, best_y, self.m, self.p, best, primal, history)
        return self.solution(found)

    def solution(self, found: StructuredSolution) -> StructuredSolution:
        """Return the answer in the form that callers know."""
        return found

    def newton(self, at: IterationPoint, deadline: Deadline) -> Newton:
        """Return the Newton system of a point."""
        return Newton(self, at, deadline)

    def point(self) -> IterationPoint:
        """Return the current slacks and factors; raise LinAlgError if T or M is not definite."""
        families = zip(self.program.tables, self.y.theta, strict=True)
        s = [t.values - np.einsum("jkf,jf->jk", t.features, theta) for t, theta in families]
        slack = self.program.base + self.geometry.combine(self.y.signed())
        return IterationPoint(slack, ArrowFactor(slack, self.program.tips), ArrowFactor(self.m), s)

    def iterate(self, at: IterationPoint) -> Iterate:
        """Return the values, the gap and the largest residual of the current point."""
        residual, local = self.equations(self.m, self.p)
        worst = max(float(np.abs(v).max(initial=0.0)) for v in (residual, *local))
        primal = float(self.program.linear @ self.m[0])
        primal += sum(
            float((t.values * p).sum()) for t, p in zip(self.program.tables, self.p, strict=True)
        )
        gap = float((self.m * at.slack).sum())
        gap += sum(float((a * b).sum()) for a, b in zip(at.s, self.p, strict=True))
        dual = float(sum(y[:, 0].sum() for y in self.y.theta) + self.y.kappa.sum())
        return Iterate(dual, primal, gap, worst)

    def equations(self, m: FloatArray, p: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """Return b - A(M, p) for the unknowns, and for theta_0 of every table."""
        g = self.geometry
        values = g.measure(m) * g.signs
        local = []
        for tables, mass, links in zip(
            self.program.tables, p, self.program.link_slices, strict=True
        ):
            sums = np.einsum("jkf,jk->fj", tables.features, mass)
            values[links] -= sums[1:].ravel()
            local.append(1.0 - sums[0])
        values[g.diagonal] += 1.0
        return g.collapse(values), local

    def _step(self, at: IterationPoint, mu: float, deadline: Deadline) -> IterationPoint:
        """Make one predictor-corrector step and return the point that it leads to.

        The point of the iteration changes at the very end only, so that a step may be given up.
        """
        newton = self.newton(at, deadline)
        zeros = [np.zeros_like(v) for v in self.p]
        found = newton.direction(np.zeros_like(self.m), zeros)
        primal, dual = min(1.0, 0.98 * found.primal), min(1.0, 0.98 * found.dual)
        after = float(((self.m + primal * found.dm) * (at.slack + dual * found.change)).sum())
        for a, b, c, d in zip(self.p, found.dp, at.s, found.moves, strict=True):
            after += float(((a + primal * b) * (c + dual * d)).sum())
        ratio = max(after / self.degree / mu, 0.0)
        sigma = min(0.9, max(1e-4, ratio**CENTRING if ratio < 1 else 0.9))
        deadline.check()
        found = newton.corrected(found, sigma * mu)
        deadline.check()
        # A second correction is cheap compared with a large Newton matrix, and may save a step.
        again = newton.corrected(found, sigma * mu) if self.second else found
        if again.reach > found.reach + LONGER:
            found = again
        reach = 0.95 if sigma > 0.1 else 0.98
        primal, dual = min(1.0, reach * found.primal), min(1.0, reach * found.dual)
        if not (np.isfinite(primal) and np.isfinite(dual)) or max(primal, dual) < 1e-6:
            raise scipy.linalg.LinAlgError("no step")
        return self._moved(found, primal, dual)

    def _moved(self, found: Direction, primal: float, dual: float) -> IterationPoint:
        """Go so far in a direction, or less if rounding or an estimate made that too far."""
        m, p, y = self.m, self.p, self.y
        for _ in range(SHORTER_STEPS):
            self.m = m + primal * found.dm
            self.m = (self.m + self.m.T) / 2
            self.p = [a + primal * b for a, b in zip(p, found.dp, strict=True)]
            self.y = y.moved(found.dy, dual)
            try:
                return self.point()
            except scipy.linalg.LinAlgError:
                primal, dual = SHORTER * primal, SHORTER * dual
        self.m, self.p, self.y = m, p, y
        raise scipy.linalg.LinAlgError("no step")


@dataclass(frozen=True, eq=False)
class IterationPoint:
    """T and its Cholesky factor, the factor of M, and the slacks s of all tables."""

    slack: FloatArray
    factor: ArrowFactor | InverseFactor
    moment_factor: ArrowFactor | InverseFactor
    s: list[FloatArray]


@dataclass(frozen=True, eq=False)
class Direction:
    """Steps of the multipliers, of T and s, of M and p, and their largest lengths."""

    dy: StructuredMultipliers
    change: FloatArray
    moves: list[FloatArray]
    dm: FloatArray
    dp: list[FloatArray]
    primal: float
    dual: float

    @property
    def reach(self) -> float:
        """The sum of both step lengths, each at most 1."""
        return min(self.primal, 1.0) + min(self.dual, 1.0)


class Newton:
    """The Newton system at one point, factorised once and solved for several right-hand sides."""

    def __init__(self, solver: Iteration, at: IterationPoint, deadline: Deadline) -> None:
        self.solver, self.at = solver, at
        program = solver.program
        self.inverse = at.factor.inverse()
        h = solver.geometry.schur(solver.m, self.inverse, deadline)
        self.eliminate: list[tuple[FloatArray, FloatArray]] = []
        for tables, mass, gap, links in zip(
            program.tables, solver.p, at.s, program.link_slices, strict=True
        ):
            weight = mass / gap
            inner = np.einsum("jkf,jk,jkg->jfg", tables.features, weight, tables.features)
            head, cross = inner[:, 0, 0], inner[:, 0, 1:]
            rest = inner[:, 1:, 1:] - cross[:, :, None] * cross[:, None, :] / head[:, None, None]
            place = np.arange(links.start, links.stop).reshape(tables.links, tables.count)
            for f in range(tables.links):
                for e in range(f + 1):
                    h[place[f], place[e]] += rest[:, f, e]
            self.eliminate.append((head, cross))
        self.scale = 1.0 / np.sqrt(np.maximum(np.diag(h), 1e-300))
        deadline.check()
        self.solved = _factorise(h, self.scale, solver.space)

    def multipliers(
        self, target: FloatArray, masses: list[FloatArray]
    ) -> tuple[StructuredMultipliers, FloatArray, list[FloatArray]]:
        """Return the step of the multipliers, and the steps of T and s that follow from it."""
        solver = self.solver
        program = solver.program
        right, first = solver.equations(target, masses)
        for links, (head, cross), value in zip(
            program.link_slices, self.eliminate, first, strict=True
        ):
            right[links] -= (cross * (value / head)[:, None]).T.ravel()
        step = self.scale * self.solved(self.scale * right)
        parts = zip(program.by_family(step), self.eliminate, first, strict=True)
        constants = [
            (value - (cross * part).sum(axis=1)) / head for part, (head, cross), value in parts
        ]
        dy = solver.split(step, constants)
        change = solver.geometry.combine(dy.signed())
        moves = [
            -np.einsum("jkf,jf->jk", t.features, d)
            for t, d in zip(program.tables, dy.theta, strict=True)
        ]
        return dy, change, moves

    def direction(self, target: FloatArray, masses: list[FloatArray]) -> Direction:
        """Return the direction to given targets of M T and p s, in units of T and s."""
        solver, at = self.solver, self.at
        dy, change, moves = self.multipliers(target, masses)
        product = self._between(solver.m, change)
        dm = target - solver.m - (product + product.T) / 2
        dp = [
            new - old - old / gap * move
            for new, old, gap, move in zip(masses, solver.p, at.s, moves, strict=True)
        ]
        dual = min(
            at.factor.longest(change),
            min((_ratio(a, b) for a, b in zip(at.s, moves, strict=True)), default=np.inf),
        )
        primal = min(
            at.moment_factor.longest(dm),
            min((_ratio(a, b) for a, b in zip(solver.p, dp, strict=True)), default=np.inf),
        )
        return Direction(dy, change, moves, dm, dp, primal, dual)

    def _between(self, moments: FloatArray, change: FloatArray) -> FloatArray:
        """Return moments @ change @ T^-1."""
        tips = self.solver.program.tips
        if not tips:
            return np.asarray(moments @ change @ self.inverse)
        assert isinstance(self.at.factor, ArrowFactor)
        return self.at.factor.divide(Arrow(change, tips).after(moments))

    def corrected(self, last: Direction, centre: float) -> Direction:
        """Return the direction to the centre, corrected by the products of the last steps."""
        product = self._between(last.dm, last.change)
        target = centre * self.inverse - (product + product.T) / 2
        steps = zip(last.dp, self.at.s, last.moves, strict=True)
        return self.direction(target, [(centre - b * d) / c for b, c, d in steps])


def _factorise(
    h: FloatArray, scale: FloatArray, space: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Return a solver with diag(scale) H diag(scale), plus the smallest shift that is needed.

    Only the lower part of H is used.  The factor is in `space`.
    """
    for shift in SHIFTS:
        np.multiply(h, scale[:, None], out=space)
        space *= scale
        space[np.diag_indices(scale.size)] += shift
        try:
            # The rows of the lower part are the columns of the upper part, the order of LAPACK.
            factor = scipy.linalg.cho_factor(
                space.T, lower=False, overwrite_a=True, check_finite=False
            )
        except scipy.linalg.LinAlgError:
            continue
        return lambda right: np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
    raise scipy.linalg.LinAlgError("the Newton matrix is singular")
