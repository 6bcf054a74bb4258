"""The iteration of `structured` with compiled matrices, for the small programs of a tree's nodes.

With a few dozen signs and a few hundred unknowns, most of the time of the plain form is the
overhead of its calls.  Here all tables are one list of points, the matrices come from
`structured_loop`, and LAPACK is called directly.  Both forms make the same steps, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.solvers import structured_loop as loop
from bnncert.engine.solvers.definite import InverseFactor
from bnncert.engine.solvers.structured import (
    SHIFTS,
    Iterate,
    Iteration,
    IterationPoint,
    Newton,
    StructuredSolution,
)
from bnncert.engine.solvers.structured_program import StructuredMultipliers, StructuredProgram


@dataclass(frozen=True, eq=False)
class FlatMultipliers:
    """theta_0 of every table, and all other multipliers as one vector."""

    constants: FloatArray
    unknowns: FloatArray

    def moved(self, step: FlatMultipliers, length: float) -> FlatMultipliers:
        """Return self + length * step."""
        return FlatMultipliers(
            self.constants + length * step.constants, self.unknowns + length * step.unknowns
        )


def flat_tables(program: StructuredProgram) -> tuple[Any, ...]:
    """Return all tables as one list of points, see `structured_loop`."""
    families = program.tables
    counts = [t.count for t in families]
    start = np.zeros(sum(counts) + 1, dtype=np.int64)
    np.cumsum(np.repeat([t.values.shape[1] for t in families], counts), out=start[1:])
    links = np.repeat([t.links for t in families], counts).astype(np.int64)
    most = max((t.links for t in families), default=0)
    place = np.zeros((links.size, most), dtype=np.int64)
    features = np.zeros((most, int(start[-1])))
    table = point = 0
    for tables, where in zip(families, program.link_slices, strict=True):
        own = np.arange(where.start, where.stop).reshape(tables.links, tables.count)
        place[table : table + tables.count, : tables.links] = own.T
        flat = tables.features[:, :, 1:].reshape(tables.values.size, tables.links)
        features[: tables.links, point : point + tables.values.size] = flat.T
        table, point = table + tables.count, point + tables.values.size
    values = np.concatenate([np.zeros(0), *(t.values.ravel() for t in families)])
    return start, links, place, features, values


def is_small(program: StructuredProgram) -> bool:
    """Whether the compiled form can be used, and is faster than the plain one."""
    if program.size > MOST_SIGNS or program.unknowns > MOST_UNKNOWNS:
        return False
    if program.shared > 1 or program.tips:
        return False
    # Products of two different general vectors are not compiled.
    return all(
        t.forms is not None or np.all((t.left == t.right) | _has_unit(program, t.left, t.right))
        for t in program.tables
    )


#: Above these sizes the overhead does not matter.
MOST_SIGNS, MOST_UNKNOWNS = 200, 2500


def _has_unit(program: StructuredProgram, left: Any, right: Any) -> Any:
    return np.maximum(left, right) >= program.unit_from


def _shape(program: StructuredProgram) -> tuple[Any, ...]:
    """Return the arrays that do not change, see `structured_loop`."""
    left, right, form_place = [], [], []
    forms = np.zeros((0, program.size, program.size))
    for tables, where in zip(program.tables, program.link_slices, strict=True):
        if tables.forms is None:
            left.append(tables.left.T.ravel())
            right.append(tables.right.T.ravel())
            continue
        forms, form_place = tables.forms, [np.arange(where.start, where.stop)]
        left.append(np.full(tables.count, -1))
        right.append(np.full(tables.count, -1))
    units = program.unit_from + np.arange(program.size)
    diagonal = sum(part.size for part in left)
    both = [
        np.concatenate([*left, units, program.pair_left]),
        np.concatenate([*right, units, program.pair_right]),
    ]
    signs = np.ones(both[0].size)
    # kappa and pi have a minus sign in T.
    signs[diagonal:] = -1.0
    return (
        np.ascontiguousarray(program.rows),
        program.unit_from,
        program.pair_unit.astype(np.int64),
        program.pair_sign.astype(np.float64),
        both[0].astype(np.int64),
        both[1].astype(np.int64),
        signs,
        diagonal,
        np.ascontiguousarray(forms),
        np.concatenate([np.zeros(0), *form_place]).astype(np.int64),
        *flat_tables(program),
    )


class CompiledIteration(Iteration):
    """The iteration on one list of points; see the module."""

    y: Any

    def bring_into_form(self) -> None:
        """Bring the first point into the form of one list of points."""
        self.shape = _shape(self.program)
        self.values: FloatArray = self.shape[-1]
        first = [np.zeros(0), *(theta[:, 0] for theta in self.y.theta)]
        links = [np.zeros(0), *(theta[:, 1:].T.ravel() for theta in self.y.theta)]
        unknowns = np.concatenate([*links, self.y.kappa, self.y.pi])
        self.y = FlatMultipliers(np.concatenate(first), unknowns)
        self.p = [np.concatenate([np.zeros(0), *(p.ravel() for p in self.p)])]

    def point(self) -> IterationPoint:
        """Return the current slacks and factors; raise LinAlgError if T or M is not definite."""
        constants, unknowns = self.y.constants, self.y.unknowns
        s = loop.slacks(self.shape, self.values, constants, unknowns)
        slack = self.program.base + loop.combine(self.shape, unknowns)
        return IterationPoint(slack, InverseFactor(slack), InverseFactor(self.m), [s])

    def iterate(self, at: IterationPoint) -> Iterate:
        """Return the values, the gap and the largest residual of the current point."""
        (p,), (s,) = self.p, at.s
        residual, local = loop.equations(self.shape, self.m, p)
        worst = max(float(np.abs(v).max(initial=0.0)) for v in (residual, local))
        primal = float(self.program.linear @ self.m[0]) + float(self.values @ p)
        gap = float(np.vdot(self.m, at.slack)) + float(s @ p)
        diagonal = self.shape[7]
        kappa = self.y.unknowns[diagonal : diagonal + self.program.size]
        dual = float(self.y.constants.sum() + kappa.sum())
        return Iterate(dual, primal, gap, worst)

    def newton(self, at: IterationPoint, deadline: Deadline) -> Newton:
        """Return the Newton system of a point."""
        return CompiledNewton(self, at, deadline)

    def solution(self, found: StructuredSolution) -> StructuredSolution:
        """Return the answer with one array for each family of tables."""
        flat: Any = found.multipliers
        first = np.split(flat.constants, np.cumsum([t.count for t in self.program.tables]))
        parts = zip(first, self.program.by_family(flat.unknowns), strict=False)
        theta = [np.hstack([constant[:, None], part]) for constant, part in parts]
        diagonal, size = self.shape[7], self.program.size
        kappa, pi = np.split(flat.unknowns[diagonal:], [size])
        found.multipliers = StructuredMultipliers(theta, kappa, pi)
        ends = np.cumsum([t.values.size for t in self.program.tables])
        split = zip(np.split(found.probabilities[0], ends), self.program.tables, strict=False)
        found.probabilities = [part.reshape(t.values.shape) for part, t in split]
        return found


class CompiledNewton(Newton):
    """The Newton system of a compiled iteration."""

    solver: CompiledIteration

    def __init__(self, solver: CompiledIteration, at: IterationPoint, deadline: Deadline) -> None:
        self.solver, self.at = solver, at
        self.inverse = at.factor.inverse()
        space = solver.space
        for shift in SHIFTS:
            given = solver.shape, solver.m, self.inverse, solver.p[0], at.s[0], space
            self.scale, *self.tables = loop.newton(*given)
            deadline.check()
            space.ravel()[:: space.shape[0] + 1] += shift
            # The rows of the lower part are the columns of the upper part, the order of LAPACK.
            self.factor, info = lapack.dpotrf(space.T, lower=0, clean=0, overwrite_a=1)
            if not info:
                return
        raise LinAlgError("the Newton matrix is singular")

    def multipliers(
        self, target: FloatArray, masses: list[FloatArray]
    ) -> tuple[Any, FloatArray, list[FloatArray]]:
        """Return the step of the multipliers, and the steps of T and s that follow from it."""
        shape = self.solver.shape
        right, local = loop.equations(shape, target, masses[0])
        loop.without_constants(shape, *self.tables, right, local)
        solved, _ = lapack.dpotrs(self.factor, self.scale * right, lower=0, overwrite_b=1)
        step = self.scale * solved
        constants = loop.constants(shape, *self.tables, step, local)
        moves = loop.slacks(shape, np.zeros_like(masses[0]), constants, step)
        return FlatMultipliers(constants, step), loop.combine(shape, step), [moves]
