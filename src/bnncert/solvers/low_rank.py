r"""A first-order method for structured programs whose Newton matrix would not fit.

The moment matrix is M = V V' with unit rows of V (Burer and Monteiro), so that diag M = 1 and
M >= 0 hold by construction.  The links and clashes are left to an augmented Lagrangian,

    min over V, p of   l.z + sum value p + y.r + (rho / 2) |r|^2,      r = <B, V V'> - feature p,

in which every distribution p_j is minimised on its own (accelerated projected gradient on the
simplex, all tables at once) and V by L-BFGS.  Features are centred and whitened table by table,
which changes nothing but the speed.  y + rho r are multipliers theta and -pi, and with
kappa_i = (C V)_i . V_i from the stationarity of V they are a dual point: its bound is valid
whoever found it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray
from bnncert.solvers.structured import Multipliers, StructuredProgram, Tables

#: Outer rounds, L-BFGS steps in each, steps on the simplex for each of those, and the growth of
#: the penalty.
ROUNDS, STEPS, INNER, GROWTH = 40, 40, 10, 1.5


@dataclass(eq=False)
class LowRankSolution:
    """Multipliers, moments and how the iteration went."""

    status: str
    multipliers: Multipliers
    moments: FloatArray
    primal: float
    iterations: int


class _OutOfTimeError(Exception):
    """The deadline passed inside L-BFGS."""


class _Family:
    """One family of tables in whitened features."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        plain = tables.features[:, :, 1:]
        self.centre = plain.mean(axis=1)
        moved = plain - self.centre[:, None, :]
        spread = np.einsum("jkf,jkg->jfg", moved, moved) / max(plain.shape[1], 1)
        spread += 1e-9 * np.eye(tables.links)
        self.factor = np.linalg.cholesky(spread)
        self.inverse = np.linalg.inv(self.factor)
        self.features = np.einsum("jfg,jkg->jkf", self.inverse, moved)
        self.mass: FloatArray = np.full(tables.values.shape, 1.0 / max(plain.shape[1], 1))

    def whiten(self, links: FloatArray) -> FloatArray:
        """Return measured links in whitened features."""
        return np.asarray(np.einsum("jfg,jg->jf", self.inverse, links - self.centre))

    def multipliers(self, y: FloatArray) -> FloatArray:
        """Return multipliers of the plain features."""
        return np.asarray(np.einsum("jfg,jf->jg", self.inverse, y))

    def minimise(self, wanted: FloatArray, rho: float, steps: int) -> None:
        """Move p towards the minimum of value.p + (rho / 2) |wanted - feature p|^2."""
        count, width = int(self.mass.shape[0]), int(self.mass.shape[1])
        if not count:
            return
        length = 1.0 / (rho * width)
        p, ahead, momentum = self.mass, self.mass, 1.0
        for _ in range(steps):
            miss = wanted - np.einsum("jkf,jk->jf", self.features, ahead)
            slope = self.tables.values - rho * np.einsum("jkf,jf->jk", self.features, miss)
            after = _to_simplex(ahead - length * slope)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = after + (momentum - 1) / following * (after - p)
            p, momentum = after, following
        self.mass = p


def _to_simplex(points: FloatArray) -> FloatArray:
    """Return the nearest probability vectors, row by row."""
    ordered = -np.sort(-points, axis=1)
    total = np.cumsum(ordered, axis=1) - 1.0
    ranks = np.arange(1, points.shape[1] + 1)
    last = np.count_nonzero(ordered - total / ranks > 0, axis=1)
    shift = total[np.arange(points.shape[0]), last - 1] / last
    return np.asarray(np.maximum(points - shift[:, None], 0.0))


class _LowRank:
    def __init__(self, program: StructuredProgram, seed: int, rank: int | None) -> None:
        self.program = program
        n = program.size
        self.rank = rank or min(n, int(np.ceil(np.sqrt(2 * n))) + 2)
        vectors = sp.csr_array(program.vectors)
        left = [t.left[:, f] for t in program.tables for f in range(t.links)]
        right = [t.right[:, f] for t in program.tables for f in range(t.links)]
        self.left = vectors[np.concatenate([*left, program.clash_left])]
        self.right = vectors[np.concatenate([*right, program.clash_right])]
        self.left_t, self.right_t = self.left.T.tocsr(), self.right.T.tocsr()
        self.families = [_Family(t) for t in program.tables]
        self.y = [np.zeros((t.count, t.links)) for t in program.tables]
        self.pi = np.zeros(program.clash_left.size)
        generator = np.random.default_rng(seed)
        self.v = generator.standard_normal((n, self.rank))

    def _links(self, measured: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Split <B, V V'> into links by family and clashes."""
        start = 0
        out = []
        for tables in self.program.tables:
            stop = start + tables.count * tables.links
            out.append(measured[start:stop].reshape(tables.links, tables.count).T)
            start = stop
        return out, measured[start:]

    def _flat(self, parts: list[FloatArray], clashes: FloatArray) -> FloatArray:
        return np.concatenate([*(p.T.ravel() for p in parts), clashes])

    def pull(
        self, unit: FloatArray, a: FloatArray, b: FloatArray, weight: FloatArray
    ) -> FloatArray:
        """Return C V with C = sym(e_0, l) + sum weight B."""
        linear = self.program.linear
        out = (self.left_t @ (weight[:, None] * b) + self.right_t @ (weight[:, None] * a)) / 2
        out += np.outer(linear, unit[0]) / 2
        out[0] += (linear @ unit) / 2
        return np.asarray(out)

    def value(self, x: FloatArray, rho: float) -> tuple[float, FloatArray]:
        """Return the augmented Lagrangian, minimised over p, and its gradient in V."""
        v = x.reshape(-1, self.rank)
        length = np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        unit = v / length
        a, b = self.left @ unit, self.right @ unit
        links, clashes = self._links(np.einsum("ij,ij->i", a, b))
        total = float(self.program.linear @ (unit @ unit[0]))
        weights = []
        for family, y, measured in zip(self.families, self.y, links, strict=True):
            white = family.whiten(measured)
            family.minimise(white + y / rho, rho, INNER)
            rest = white - np.einsum("jkf,jk->jf", family.features, family.mass)
            total += float((family.tables.values * family.mass).sum())
            total += float((y * rest).sum() + rho / 2 * (rest * rest).sum())
            weights.append(family.multipliers(y + rho * rest))
        total += float(self.pi @ clashes + rho / 2 * clashes @ clashes)
        weight = self._flat(weights, self.pi + rho * clashes)
        gradient = 2 * self.pull(unit, a, b, weight)
        gradient -= np.einsum("ij,ij->i", gradient, unit)[:, None] * unit
        return total, (gradient / length).ravel()

    def update(self, x: FloatArray, rho: float) -> float:
        """Move the multipliers, and return the largest residual."""
        v = x.reshape(-1, self.rank)
        unit = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        measured = np.einsum("ij,ij->i", self.left @ unit, self.right @ unit)
        links, clashes = self._links(measured)
        worst = float(np.abs(clashes).max(initial=0.0))
        for k, (family, link) in enumerate(zip(self.families, links, strict=True)):
            white = family.whiten(link)
            family.minimise(white + self.y[k] / rho, rho, 20 * INNER)
            rest = white - np.einsum("jkf,jk->jf", family.features, family.mass)
            self.y[k] = self.y[k] + rho * rest
            worst = max(worst, float(np.abs(rest).max(initial=0.0)))
        self.pi = self.pi + rho * clashes
        return worst

    def multipliers(self, x: FloatArray) -> tuple[Multipliers, FloatArray, float]:
        """Return the dual point of the present state, the moments and the primal value."""
        v = x.reshape(-1, self.rank)
        unit = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        a, b = self.left @ unit, self.right @ unit
        primal = float(self.program.linear @ (unit @ unit[0]))
        theta, weights = [], []
        for family, y in zip(self.families, self.y, strict=True):
            links = family.multipliers(y)
            tables = family.tables
            rest = tables.values - np.einsum("jkf,jf->jk", tables.features[:, :, 1:], links)
            theta.append(np.hstack([rest.min(axis=1, initial=np.inf)[:, None], links]))
            primal += float((tables.values * family.mass).sum())
            weights.append(links)
        weight = self._flat(weights, self.pi)
        kappa = np.einsum("ij,ij->i", self.pull(unit, a, b, weight), unit)
        return Multipliers(theta, kappa, -self.pi), unit @ unit.T, primal


def solve_low_rank(
    program: StructuredProgram,
    deadline: Deadline,
    *,
    seed: int = 0,
    rank: int | None = None,
    above: float = np.inf,
    rounds: int = ROUNDS,
) -> LowRankSolution:
    """Improve the multipliers until time or rounds run out, or the dual exceeds `above`."""
    work = _LowRank(program, seed, rank)
    x = work.v.ravel()
    rho = 0.1
    best = -np.inf
    answer = work.multipliers(x)
    status, count, before = "limit", 0, np.inf

    def evaluate(point: FloatArray) -> tuple[float, FloatArray]:
        if deadline.passed():
            raise _OutOfTimeError
        return work.value(point, rho)

    for _ in range(rounds):
        try:
            found = minimize(evaluate, x, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
        except _OutOfTimeError:
            status = "interrupted"
            break
        x = np.asarray(found.x)
        count += int(found.nit)
        size = work.update(x, rho)
        candidate = work.multipliers(x)
        dual = _dual_value(program, candidate[0])
        if dual > best:
            best, answer = dual, candidate
        if best > above:
            status = "above"
            break
        if size < 1e-6:
            status = "optimal"
            break
        if size > 0.5 * before:
            rho *= GROWTH
        before = size
    multipliers, moments, primal = answer
    return LowRankSolution(status, multipliers, moments, primal, count)


def _dual_value(program: StructuredProgram, y: Multipliers) -> float:
    """Return the bound of a dual point whose T may be indefinite: diag M = 1."""
    size = program.size
    form = np.zeros((size, size))
    form[0, :] += program.linear / 2
    form[:, 0] += program.linear / 2
    vectors = program.vectors
    for tables, theta in zip(program.tables, y.theta, strict=True):
        for f in range(tables.links):
            a, b = vectors[tables.left[:, f]], vectors[tables.right[:, f]]
            part = (a * theta[:, f + 1 : f + 2]).T @ b
            form += (part + part.T) / 2
    part = (vectors[program.clash_left] * y.pi[:, None]).T @ vectors[program.clash_right]
    form -= (part + part.T) / 2
    form[np.diag_indices(size)] -= y.kappa
    least = min(0.0, float(np.linalg.eigvalsh(form)[0]))
    return float(sum(t[:, 0].sum() for t in y.theta) + y.kappa.sum() + size * least)
