r"""A primal-dual interior-point method for one moment matrix and many small local tables.

The program is, over pseudo-moments M of z = (1, x) and a distribution p_j for every table j,

    min   l.z + sum_j sum_k value_jk p_jk
    s.t.  M >= 0, diag M = 1,   p_j >= 0, sum_k p_jk = 1,
          sum_k feature_jkf p_jk = <link_jf, M>            for every feature f >= 1 of table j,
          <pair_e, M> = 0                                  for every clash e,

where every link and every pair is a product of two linear forms in z, sym(a, b) = (ab' + ba')/2.
The last entries of the diagonal may share one equation, sum M_ii = their number, and one kappa.
Its dual has free multipliers theta_jf, kappa and pi:

    max   sum_j theta_j0 + sum_i kappa_i
    s.t.  s_jk = value_jk - sum_f theta_jf feature_jkf >= 0,
          T = sym(e_0, l) + sum theta_jf link_jf - diag(kappa) - sum pi_e pair_e >= 0.

The iteration (HKM direction, Mehrotra's corrector) keeps the dual feasible from its first point, so
every iterate is a bound.  theta_j0 is eliminated table by table.  As all matrices are products of
two vectors out of one list Z, the Newton matrix is made of Hadamard products of Z M Z' and
Z T^-1 Z'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg as sl

from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray, IntArray
from bnncert.solvers.threads import blas_threads

StructuredStatus: TypeAlias = Literal[
    "optimal", "above", "below", "stalled", "limit", "interrupted"
]
Index: TypeAlias = Any

#: How far T starts from the boundary of its cone.
MARGIN = 5.0


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables that all have the same features.

    Attributes
    ----------
    values
        (tables, points); rows are padded by repeating a point.
    features
        (tables, points, F); feature 0 is the constant 1.
    left, right
        (tables, F - 1): the two vectors of Z whose product is the link of each other feature.
    """

    values: FloatArray
    features: FloatArray
    left: IntArray
    right: IntArray

    @property
    def count(self) -> int:
        """The number of tables."""
        return int(self.values.shape[0])

    @property
    def links(self) -> int:
        """The number of features besides the constant."""
        return int(self.left.shape[1])


@dataclass(frozen=True, eq=False)
class StructuredProgram:
    """A program as above.

    `rows` are the general vectors of Z, followed by the unit vectors and by the pair vectors
    e_0 + sign e_i given by `pair_unit` and `pair_sign`.  The last `shared` entries of the diagonal
    have one multiplier together.
    """

    linear: FloatArray
    rows: FloatArray
    tables: tuple[Tables, ...]
    pair_unit: IntArray
    pair_sign: FloatArray
    clash_left: IntArray
    clash_right: IntArray
    shared: int = 0

    @property
    def size(self) -> int:
        """The size of the moment matrix."""
        return int(self.linear.size)

    @property
    def unknowns(self) -> int:
        """The size of the Newton system."""
        links = sum(t.count * t.links for t in self.tables)
        return int(links + self.size - max(self.shared - 1, 0) + self.clash_left.size)

    @cached_property
    def vectors(self) -> FloatArray:
        """The list Z: rows, unit vectors and pair vectors."""
        pairs = np.zeros((self.pair_unit.size, self.size))
        pairs[:, 0] = 1.0
        pairs[np.arange(pairs.shape[0]), self.pair_unit] = self.pair_sign
        return np.vstack([self.rows, np.eye(self.size), pairs])

    @property
    def unit_from(self) -> int:
        """Where the unit vectors begin in Z."""
        return int(self.rows.shape[0])

    @property
    def pair_from(self) -> int:
        """Where the pair vectors begin in Z."""
        return self.unit_from + self.size


@dataclass(eq=False)
class Multipliers:
    """A dual point; entries of the diagonal that share a multiplier repeat it in `kappa`."""

    theta: list[FloatArray]
    kappa: FloatArray
    pi: FloatArray

    def moved(self, step: Multipliers, length: float) -> Multipliers:
        """Return the point a step further."""
        return Multipliers(
            [a + length * b for a, b in zip(self.theta, step.theta, strict=True)],
            self.kappa + length * step.kappa,
            self.pi + length * step.pi,
        )


@dataclass(eq=False)
class Iterate:
    """One line of the solver's history."""

    dual: float
    primal: float
    mu: float
    infeasibility: float
    seconds: float


@dataclass(eq=False)
class StructuredSolution:
    """Multipliers, moments and how the iteration went."""

    status: StructuredStatus
    multipliers: Multipliers
    moments: FloatArray
    probabilities: list[FloatArray]
    dual: float
    primal: float
    history: list[Iterate] = field(default_factory=list)

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return max(0, len(self.history) - 1)


class _Geometry:
    """Everything of a program that no iteration changes."""

    def __init__(self, program: StructuredProgram) -> None:
        self.program = program
        size = program.size
        self.slices: list[tuple[Index, Index, int, int]] = []
        start = 0
        for tables in program.tables:
            for f in range(tables.links):
                stop = start + tables.count
                left = right = _compact(tables.left[:, f])
                if not np.array_equal(tables.left[:, f], tables.right[:, f]):
                    right = _compact(tables.right[:, f])
                self.slices.append((left, right, start, stop))
                start = stop
        self.links = start
        units = slice(program.unit_from, program.unit_from + size)
        self.diagonal = slice(start, start + size)
        self.slices.append((units, units, start, start + size))
        start += size
        self.clash = slice(start, start + program.clash_left.size)
        if program.clash_left.size:
            self.slices.append((program.clash_left, program.clash_right, start, self.clash.stop))
        # One entry for each matrix; those of the shared diagonal are one unknown.
        self.entries = self.clash.stop
        self.group = slice(self.diagonal.stop - program.shared, self.diagonal.stop)
        self.unknowns = program.unknowns
        self.signs = np.ones(self.entries)
        # kappa and pi enter T with a minus sign.
        self.signs[self.links :] = -1.0
        self.vectors = program.vectors

    def collapse(self, entries: FloatArray) -> FloatArray:
        """Return what unknowns see of their matrices: the shared entries (of axis 0) added up."""
        start, stop = self.group.start, self.group.stop
        if stop - start < 2:
            return entries
        total = entries[self.group].sum(axis=0, keepdims=True)
        return np.concatenate([entries[:start], total, entries[stop:]])

    def expand(self, unknowns: FloatArray) -> FloatArray:
        """Return the multiplier of every matrix."""
        start, count = self.group.start, self.program.shared
        if count < 2:
            return unknowns
        return np.insert(unknowns, start, np.full(count - 1, unknowns[start]))

    def gram(self, matrix: FloatArray) -> FloatArray:
        """Return Z matrix Z'."""
        program = self.program
        rows = program.rows @ matrix
        top = np.block([[rows @ program.rows.T, rows], [rows.T, matrix]])
        if not program.pair_unit.size:
            return np.asarray(top)
        zero = program.unit_from
        unit = zero + program.pair_unit
        sign = program.pair_sign
        wide = np.hstack([top, top[:, zero : zero + 1] + sign * top[:, unit]])
        low = wide[zero : zero + 1] + sign[:, None] * wide[unit]
        return np.vstack([wide, low])

    def schur(self, moments: FloatArray, inverse: FloatArray) -> FloatArray:
        """Return H_kl = tr(B_k M B_l T^-1), of which only k >= l (by blocks) is filled in."""
        gm, gt = self.gram(moments), self.gram(inverse)
        full = np.zeros((self.entries, self.entries))
        for n, (p, q, start, stop) in enumerate(self.slices):
            # Rows first: what follows then only picks columns.
            mp, tp = gm[p], gt[p]
            mq, tq = (mp, tp) if p is q else (gm[q], gt[q])
            for r, s, begin, end in self.slices[: n + 1]:
                if p is q and r is s:
                    block = _columns(mp, r) * _columns(tp, r)
                elif p is q:
                    block = _columns(mp, r) * _columns(tp, s)
                    block += _columns(mp, s) * _columns(tp, r)
                    block *= 0.5
                elif r is s:
                    block = _columns(mp, r) * _columns(tq, r)
                    block += _columns(mq, r) * _columns(tp, r)
                    block *= 0.5
                else:
                    mqr, tpr = _columns(mq, r), _columns(tp, r)
                    mqs, tps = _columns(mq, s), _columns(tp, s)
                    mpr, tqr = _columns(mp, r), _columns(tq, r)
                    mps, tqs = _columns(mp, s), _columns(tq, s)
                    block = mqr * tps
                    block = block + mqs * tpr
                    block = block + mpr * tqs
                    block = block + mps * tqr
                    block *= 0.25
                if self.signs[start] * self.signs[begin] < 0:
                    np.negative(block, out=block)
                full[start:stop, begin:end] = block
        if self.unknowns < self.entries:
            full = np.ascontiguousarray(self.collapse(self.collapse(full).T).T)
        return full

    def combine(self, weights: FloatArray) -> FloatArray:
        """Return sum_k weights_k B_k (without signs) as a matrix."""
        size = self.program.size
        total = np.zeros((size, size))
        for left, right, start, stop in self.slices:
            part = weights[start:stop, None]
            if left is right and isinstance(left, slice) and left.start == self.program.unit_from:
                total[np.diag_indices(size)] += weights[start:stop]
            else:
                a, b = self.vectors[left], self.vectors[right]
                if a.shape[0] == 1:
                    total += np.outer(a[0], part[:, 0] @ b)
                else:
                    total += (a * part).T @ b
        return np.asarray((total + total.T) / 2)

    def measure(self, matrix: FloatArray) -> FloatArray:
        """Return <B_k, matrix> (without signs) for all matrices."""
        values = np.empty(self.entries)
        for left, right, start, stop in self.slices:
            if left is right and isinstance(left, slice) and left.start == self.program.unit_from:
                values[start:stop] = np.diag(matrix)
                continue
            a, b = self.vectors[left], self.vectors[right]
            if a.shape[0] == 1:
                values[start:stop] = b @ (matrix @ a[0])
            else:
                values[start:stop] = np.einsum("ij,ij->i", a @ matrix, b)
        return values


def _compact(index: IntArray) -> Index:
    """Return a slice for consecutive or equal indices, so that numpy makes no copy."""
    if index.size and np.all(index == index[0]):
        return slice(int(index[0]), int(index[0]) + 1)
    if index.size and np.all(np.diff(index) == 1):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def _columns(matrix: FloatArray, columns: Index) -> FloatArray:
    if isinstance(columns, slice):
        return np.asarray(matrix[:, columns])
    return np.asarray(matrix.take(columns, axis=1))


def _longest(factor: FloatArray, step: FloatArray) -> float:
    """Return the largest a with L L' + a step >= 0."""
    half = sl.solve_triangular(factor, step, lower=True, check_finite=False)
    whole = sl.solve_triangular(factor, half.T, lower=True, check_finite=False)
    least = float(sl.eigvalsh((whole + whole.T) / 2, subset_by_index=[0, 0], check_finite=False)[0])
    return np.inf if least >= -1e-13 else -1.0 / least


def _ratio(value: FloatArray, step: FloatArray) -> float:
    least = float((step / value).min(initial=0.0))
    return np.inf if least >= 0 else -1.0 / least


def starting_point(program: StructuredProgram) -> Multipliers:
    """Return multipliers that are strictly feasible for every program."""
    theta = []
    for tables in program.tables:
        start = np.zeros((tables.count, tables.links + 1))
        start[:, 0] = tables.values.min(axis=1) - 1.0
        theta.append(start)
    # T is diagonally dominant by a margin that balances it with the slacks of the tables.
    reach = np.abs(program.linear) / 2
    kappa = -(MARGIN + reach)
    kappa[0] = -(MARGIN + float(reach.sum()))
    if program.shared:
        kappa[-program.shared :] = kappa[-program.shared :].min()
    return Multipliers(theta, kappa, np.zeros(program.clash_left.size))


def solve_structured(
    program: StructuredProgram,
    deadline: Deadline,
    *,
    above: float = np.inf,
    below: float = -np.inf,
    gap: float = 0.0,
    tolerance: float = 1e-6,
    iterations: int = 60,
    start: Multipliers | None = None,
    moments: FloatArray | None = None,
    probabilities: list[FloatArray] | None = None,
) -> StructuredSolution:
    """Solve until the dual exceeds `above`, the primal falls below `below`, or the gap closes.

    The gap counts as closed at `gap`, or at `tolerance` relative to the value.
    """
    iteration = _Iteration(program, start, moments, probabilities)
    with blas_threads(iteration.geometry.unknowns):
        return iteration.run(deadline, above, below, gap, tolerance, iterations)


class _Iteration:
    def __init__(
        self,
        program: StructuredProgram,
        start: Multipliers | None,
        moments: FloatArray | None,
        probabilities: list[FloatArray] | None,
    ) -> None:
        self.program = program
        self.geometry = _Geometry(program)
        self.y = start or starting_point(program)
        self.m = np.eye(program.size) if moments is None else moments.copy()
        # With M = I every form u has mean 0 and variance 1 in its own units: start from a bell.
        self.p = [] if probabilities is None else [p.copy() for p in probabilities]
        for tables in program.tables if probabilities is None else ():
            bell = np.full(tables.values.shape, 1e-3)
            if tables.links:
                bell += np.exp(-0.5 * tables.features[:, :, 1] ** 2)
            self.p.append(bell / bell.sum(axis=1, keepdims=True))
        self.base = np.zeros((program.size, program.size))
        self.base[0, :] += program.linear / 2
        self.base[:, 0] += program.linear / 2

    @staticmethod
    def _slack(tables: Tables, theta: FloatArray) -> FloatArray:
        return np.asarray(tables.values - np.einsum("jkf,jf->jk", tables.features, theta))

    def _signed(self, y: Multipliers) -> FloatArray:
        """Return the multipliers of all matrices, in their order."""
        parts = [t[:, 1:].T.ravel() for t in y.theta]
        return np.concatenate([*parts, -y.kappa, -y.pi])

    def _split(self, unknowns: FloatArray, first: list[FloatArray]) -> Multipliers:
        theta = []
        start = 0
        unknowns = self.geometry.expand(unknowns)
        for tables, constant in zip(self.program.tables, first, strict=True):
            stop = start + tables.count * tables.links
            part = unknowns[start:stop].reshape(tables.links, tables.count).T
            theta.append(np.hstack([constant[:, None], part]))
            start = stop
        g = self.geometry
        return Multipliers(theta, unknowns[g.diagonal], unknowns[g.clash])

    def run(
        self,
        deadline: Deadline,
        above: float,
        below: float,
        close: float,
        tolerance: float,
        iterations: int,
    ) -> StructuredSolution:
        program, g = self.program, self.geometry
        history: list[Iterate] = []
        best, best_y = -np.inf, self.y
        status: StructuredStatus = "limit"
        began = deadline.elapsed()
        degree = program.size + sum(t.values.size for t in program.tables)
        primal = np.inf
        for count in range(iterations + 1):
            s = [self._slack(t, y) for t, y in zip(program.tables, self.y.theta, strict=True)]
            slack = self.base + g.combine(self._signed(self.y))
            try:
                factor = sl.cholesky(slack, lower=True, check_finite=False)
                moment_factor = sl.cholesky(self.m, lower=True, check_finite=False)
            except sl.LinAlgError:
                status = "stalled"
                break
            dual = float(sum(y[:, 0].sum() for y in self.y.theta) + self.y.kappa.sum())
            if dual > best:
                best, best_y = dual, self.y
            residual, local = self._equations(self.m, self.p)
            worst = max(
                float(np.abs(residual).max(initial=0.0)),
                max((float(np.abs(v).max(initial=0.0)) for v in local), default=0.0),
            )
            primal = float(program.linear @ self.m[0]) + sum(
                float((t.values * p).sum()) for t, p in zip(program.tables, self.p, strict=True)
            )
            gap = float((self.m * slack).sum())
            gap += sum(float((a * b).sum()) for a, b in zip(s, self.p, strict=True))
            mu = gap / degree
            history.append(Iterate(dual, primal, mu, worst, deadline.elapsed() - began))
            if dual > above:
                status = "above"
                break
            if worst < 1e-5 and primal < below:
                status = "below"
                break
            if gap < max(close, tolerance * (1 + abs(dual))):
                status = "optimal"
                break
            if deadline.passed():
                status = "interrupted"
                break
            if count == iterations:
                break
            try:
                self._step(factor, moment_factor, slack, s, mu, degree)
            except (sl.LinAlgError, FloatingPointError):
                status = "stalled"
                break
        return StructuredSolution(status, best_y, self.m, self.p, best, primal, history)

    def _equations(self, m: FloatArray, p: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """Return b - A(M, p) for the unknowns, and for theta_0 of every table."""
        g = self.geometry
        values = g.measure(m) * g.signs
        start = 0
        local = []
        for tables, mass in zip(self.program.tables, p, strict=True):
            sums = np.einsum("jkf,jk->fj", tables.features, mass)
            stop = start + tables.count * tables.links
            values[start:stop] -= sums[1:].ravel()
            local.append(1.0 - sums[0])
            start = stop
        values[g.diagonal] += 1.0
        return g.collapse(values), local

    def _step(
        self,
        factor: FloatArray,
        moment_factor: FloatArray,
        slack: FloatArray,
        s: list[FloatArray],
        mu: float,
        degree: int,
    ) -> None:
        program, g = self.program, self.geometry
        inverse = sl.cho_solve((factor, True), np.eye(program.size), check_finite=False)
        inverse = (inverse + inverse.T) / 2
        h = g.schur(self.m, inverse)
        eliminate: list[tuple[FloatArray, FloatArray]] = []
        start = 0
        for tables, mass, gap in zip(program.tables, self.p, s, strict=True):
            weight = mass / gap
            inner = np.einsum("jkf,jk,jkg->jfg", tables.features, weight, tables.features)
            head, cross = inner[:, 0, 0], inner[:, 0, 1:]
            rest = inner[:, 1:, 1:] - cross[:, :, None] * cross[:, None, :] / head[:, None, None]
            place = start + np.arange(tables.links)[:, None] * tables.count
            place = place + np.arange(tables.count)[None, :]
            for f in range(tables.links):
                for e in range(f + 1):
                    h[place[f], place[e]] += rest[:, f, e]
            eliminate.append((head, cross))
            start += tables.count * tables.links
        scale = 1.0 / np.sqrt(np.maximum(np.diag(h), 1e-300))
        h *= scale[:, None]
        h *= scale[None, :]
        solved = _factorise(h)

        def newton(
            target: FloatArray, masses: list[FloatArray]
        ) -> tuple[Multipliers, FloatArray, list[FloatArray]]:
            """Solve for the step of the multipliers, and return what it does to T and s."""
            right, first = self._equations(target, masses)
            start = 0
            for tables, (head, cross), value in zip(program.tables, eliminate, first, strict=True):
                stop = start + tables.count * tables.links
                right[start:stop] -= (cross * (value / head)[:, None]).T.ravel()
                start = stop
            step = scale * solved(scale * right)
            start = 0
            constants = []
            for tables, (head, cross), value in zip(program.tables, eliminate, first, strict=True):
                stop = start + tables.count * tables.links
                part = step[start:stop].reshape(tables.links, tables.count).T
                constants.append((value - (cross * part).sum(axis=1)) / head)
                start = stop
            dy = self._split(step, constants)
            change = g.combine(self._signed(dy))
            moves = [
                -np.einsum("jkf,jf->jk", t.features, d)
                for t, d in zip(program.tables, dy.theta, strict=True)
            ]
            return dy, change, moves

        def directions(
            target: FloatArray, masses: list[FloatArray]
        ) -> tuple[
            Multipliers, FloatArray, list[FloatArray], FloatArray, list[FloatArray], float, float
        ]:
            dy, change, moves = newton(target, masses)
            product = self.m @ change @ inverse
            dm = target - self.m - (product + product.T) / 2
            dp = [
                new - old - old / gap * move
                for new, old, gap, move in zip(masses, self.p, s, moves, strict=True)
            ]
            dual = min(
                _longest(factor, change),
                min((_ratio(a, b) for a, b in zip(s, moves, strict=True)), default=np.inf),
            )
            primal = min(
                _longest(moment_factor, dm),
                min((_ratio(a, b) for a, b in zip(self.p, dp, strict=True)), default=np.inf),
            )
            return dy, change, moves, dm, dp, primal, dual

        zeros = [np.zeros_like(v) for v in self.p]
        nothing = np.zeros_like(self.m)
        dy, change, moves, dm, dp, primal, dual = directions(nothing, zeros)
        primal, dual = min(1.0, 0.98 * primal), min(1.0, 0.98 * dual)
        after = float(((self.m + primal * dm) * (slack + dual * change)).sum())
        for a, b, c, d in zip(self.p, dp, s, moves, strict=True):
            after += float(((a + primal * b) * (c + dual * d)).sum())
        ratio = max(after / degree / mu, 0.0)
        sigma = min(0.9, max(1e-4, ratio**2 if ratio < 1 else 0.9))
        product = dm @ change @ inverse
        target = sigma * mu * inverse - (product + product.T) / 2
        masses = [(sigma * mu - b * d) / c for b, c, d in zip(dp, s, moves, strict=True)]
        dy, change, moves, dm, dp, primal, dual = directions(target, masses)
        reach = 0.95 if sigma > 0.1 else 0.98
        primal, dual = min(1.0, reach * primal), min(1.0, reach * dual)
        if not (np.isfinite(primal) and np.isfinite(dual)) or max(primal, dual) < 1e-6:
            raise sl.LinAlgError("no step")
        self.m = self.m + primal * dm
        self.m = (self.m + self.m.T) / 2
        self.p = [a + primal * b for a, b in zip(self.p, dp, strict=True)]
        self.y = self.y.moved(dy, dual)


def _factorise(h: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a solver with H, given by its lower part, made definite by as little as it takes."""
    diagonal = np.diag_indices(h.shape[0])
    plain = h[diagonal].copy()
    for shift in (1e-13, 1e-11, 1e-9, 1e-7):
        h[diagonal] = plain + shift
        try:
            # The lower part by rows is the upper part by columns, which LAPACK takes as it is.
            factor = sl.cho_factor(h.T, lower=False, check_finite=False)
        except sl.LinAlgError:
            continue
        return lambda right: np.asarray(sl.cho_solve(factor, right, check_finite=False))
    raise sl.LinAlgError("the Newton matrix is singular")
