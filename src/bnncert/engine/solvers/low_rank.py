r"""A first-order method for structured programs whose Newton matrix needs too much memory.

The moment matrix is M = V V' with unit rows of V (Burer and Monteiro), so that diag M = 1 and
M >= 0 hold by construction.  The links and pairs are constraints of an augmented Lagrangian,

    min over V, p of   l.z + sum value p - mu sum log p + y.r + (rho / 2) |r|^2,

    r = <B, V V'> - feature p,

which is minimised over every distribution p_j by Newton's method (all tables at once) and over V by
L-BFGS.  With the barrier, the minimum over p is a smooth function of V; mu decreases from round to
round.  Features are centred and whitened for each table, which only affects the speed.  y + rho r
are the multipliers theta and -pi.  Together with kappa_i = (C V)_i . V_i, from the stationarity of
V, they are a dual point, whose bound is valid for any multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    Tables,
)

#: The outer rounds, the L-BFGS steps of the first round, the increase of their number from round to
#: round, their largest number, and the Newton steps on the tables in each of them.
ROUNDS, STEPS, MORE_STEPS, MOST_STEPS, NEWTON = 40, 30, 10, 100, 12

#: The first penalty, its growth if the residual is not halved, and its largest value.
RHO, GROWTH, MOST_RHO = 0.3, 1.5, 10.0

#: The first barrier parameter, its factor from round to round, and its least value.
MU, SHRINK, LEAST_MU = 1e-2, 0.5, 1e-6

#: The iteration stops after this many rounds with a smaller relative gain.
PATIENCE, VISIBLE = 6, 1e-5

#: Larger ranks are not worth their time.
MOST_RANK = 64

#: The least relative variance of the features of a table.  Some features are constant on the
#: lattice, and without it they would dominate all others after whitening.
FLOOR = 0.1


@dataclass(eq=False)
class LowRankSolution:
    """Multipliers, moments and the course of the iteration."""

    status: str
    multipliers: StructuredMultipliers
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
        size = np.einsum("jff->j", spread)[:, None, None] / tables.links
        spread += (FLOOR * size + 1e-9) * np.eye(tables.links)
        self.factor = np.linalg.cholesky(spread)
        self.inverse = np.linalg.inv(self.factor)
        self.features = np.einsum("jfg,jkg->jkf", self.inverse, moved)
        one = np.ones((*tables.values.shape, 1))
        # The last feature is the constant 1; its multiplier is the level of the table.
        self.features = np.concatenate([self.features, one], axis=2)
        self.mass: FloatArray = np.full(tables.values.shape, 1.0 / max(plain.shape[1], 1))
        self.y = np.zeros((tables.count, tables.links + 1))
        self.y[:, -1] = tables.values.min(axis=1, initial=np.inf) - 1.0
        self.slack: FloatArray = tables.values - self.y[:, -1:]

    def whiten(self, links: FloatArray) -> FloatArray:
        """Return the values of links in whitened features."""
        return np.asarray(np.einsum("jfg,jg->jf", self.inverse, links - self.centre))

    def multipliers(self, y: FloatArray) -> FloatArray:
        """Return multipliers of the plain features."""
        return np.asarray(np.einsum("jfg,jf->jg", self.inverse, y))

    def envelope(self, wanted: FloatArray, rho: float, mu: float) -> tuple[float, FloatArray]:
        """Return the minimum over p, and rho (wanted - feature p), its gradient in `wanted`.

        With slacks s the conditions are  s = value - feature.y - level,  p s = mu,  sum p = 1 and
        feature p + y / rho = wanted.  Newton's method starts from the last solution.
        """
        if not self.mass.size:
            return 0.0, np.zeros_like(wanted)
        links = self.tables.links
        ridge = np.append(np.full(links, 1.0 / rho), 0.0) + 1e-14
        corner = np.arange(links + 1)
        for _ in range(NEWTON):
            p, s = self.mass, self.slack
            gap = self.tables.values - np.einsum("jkf,jf->jk", self.features, self.y) - s
            equal = -np.einsum("jkf,jk->jf", self.features, p)
            equal[:, :links] += wanted - self.y[:, :links] / rho
            equal[:, links] += 1.0
            wrong = max(float(np.abs(equal).max()), float(np.abs(gap).max()))
            if wrong < 1e-8 and float(np.abs(p * s - mu).max()) < 1e-3 * mu:
                break
            ratio = p / s
            weighted = (self.features * ratio[:, :, None]).transpose(0, 2, 1)
            inner = np.matmul(weighted, self.features)
            inner[:, corner, corner] += ridge
            # Substitution of ds = gap - feature.dy and dp = mu / s - p - ratio ds.
            plain = mu / s - p
            right = equal - np.einsum("jkf,jk->jf", self.features, plain - ratio * gap)
            dy = np.linalg.solve(inner, right[:, :, None])[:, :, 0]
            ds = gap - np.einsum("jkf,jf->jk", self.features, dy)
            dp = plain - ratio * ds
            worst = np.maximum((-dp / p).max(axis=1), (-ds / s).max(axis=1))
            step = np.minimum(1.0, 0.95 / np.maximum(worst, 1e-9))[:, None]
            self.mass, self.slack, self.y = p + step * dp, s + step * ds, self.y + step * dy
        rest = wanted - np.einsum("jkf,jk->jf", self.features[:, :, :links], self.mass)
        total = float((self.tables.values * self.mass).sum() + rho / 2 * (rest * rest).sum())
        total -= mu * float(np.log(self.mass).sum())
        return total, rho * rest


class _LowRank:
    def __init__(self, program: StructuredProgram, seed: int) -> None:
        self.program = program
        n = program.size
        # Some optimum has a rank r with r (r + 1) / 2 at most the number of equations.
        enough = int(np.ceil(np.sqrt(2 * program.unknowns)))
        self.rank = min(n, max(int(np.ceil(np.sqrt(2 * n))) + 2, min(enough, MOST_RANK)))
        vectors = sp.csr_array(program.vectors)
        left = [t.left[:, f] for t in program.tables for f in range(t.links)]
        right = [t.right[:, f] for t in program.tables for f in range(t.links)]
        self.left = vectors[np.concatenate([*left, program.pair_left])]
        self.right = vectors[np.concatenate([*right, program.pair_right])]
        self.left_t, self.right_t = self.left.T.tocsr(), self.right.T.tocsr()
        self.families = [_Family(t) for t in program.tables]
        self.y = [np.zeros((t.count, t.links)) for t in program.tables]
        self.pi = np.zeros(program.pair_left.size)
        generator = np.random.default_rng(seed)
        self.v = generator.standard_normal((n, self.rank))

    def _links(self, measured: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Split <B, V V'> into links by family and pairs."""
        return self.program.by_family(measured), measured[measured.size - self.pi.size :]

    def _unit_rows(self, x: FloatArray) -> FloatArray:
        v = x.reshape(-1, self.rank)
        return np.asarray(v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12))

    def _flat(self, parts: list[FloatArray], pairs: FloatArray) -> FloatArray:
        return np.concatenate([*(p.T.ravel() for p in parts), pairs])

    def pull(
        self, unit: FloatArray, a: FloatArray, b: FloatArray, weight: FloatArray
    ) -> FloatArray:
        """Return C V with C = sym(e_0, l) + sum weight B."""
        linear = self.program.linear
        out = (self.left_t @ (weight[:, None] * b) + self.right_t @ (weight[:, None] * a)) / 2
        out += np.outer(linear, unit[0]) / 2
        out[0] += (linear @ unit) / 2
        return np.asarray(out)

    def value(self, x: FloatArray, rho: float, mu: float) -> tuple[float, FloatArray]:
        """Return the augmented Lagrangian, minimised over p, and its gradient in V."""
        v = x.reshape(-1, self.rank)
        length = np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        unit = v / length
        a, b = self.left @ unit, self.right @ unit
        links, pairs = self._links(np.einsum("ij,ij->i", a, b))
        total = float(self.program.linear @ (unit @ unit[0]))
        weights = []
        for family, y, measured in zip(self.families, self.y, links, strict=True):
            part, slope = family.envelope(family.whiten(measured) + y / rho, rho, mu)
            total += part - float((y * y).sum()) / (2 * rho)
            weights.append(family.multipliers(slope))
        total += float(self.pi @ pairs + rho / 2 * pairs @ pairs)
        weight = self._flat(weights, self.pi + rho * pairs)
        gradient = 2 * self.pull(unit, a, b, weight)
        gradient -= np.einsum("ij,ij->i", gradient, unit)[:, None] * unit
        return total, (gradient / length).ravel()

    def update(self, x: FloatArray, rho: float, mu: float) -> float:
        """Update the multipliers, and return the largest residual."""
        unit = self._unit_rows(x)
        measured = np.einsum("ij,ij->i", self.left @ unit, self.right @ unit)
        links, pairs = self._links(measured)
        worst = float(np.abs(pairs).max(initial=0.0))
        for k, (family, link) in enumerate(zip(self.families, links, strict=True)):
            slope = family.envelope(family.whiten(link) + self.y[k] / rho, rho, mu)[1]
            worst = max(worst, float(np.abs(slope - self.y[k]).max(initial=0.0)) / rho)
            self.y[k] = slope
        self.pi = self.pi + rho * pairs
        return worst

    def multipliers(self, x: FloatArray) -> tuple[StructuredMultipliers, FloatArray, float]:
        """Return the current dual point, the moments and the primal value."""
        unit = self._unit_rows(x)
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
        return StructuredMultipliers(theta, kappa, -self.pi), unit @ unit.T, primal


def solve_low_rank(
    program: StructuredProgram,
    deadline: Deadline,
    *,
    seed: int = 0,
    above: float = np.inf,
    rounds: int = ROUNDS,
) -> LowRankSolution:
    """Improve the multipliers until the deadline, the last round, or a dual value > `above`."""
    from scipy.optimize import minimize  # slow to import, and rarely needed

    work = _LowRank(program, seed)
    x = work.v.ravel()
    rho, mu = RHO, MU
    best = -np.inf
    answer = work.multipliers(x)
    status, count, waited, before = "limit", 0, 0, np.inf

    def evaluate(point: FloatArray) -> tuple[float, FloatArray]:
        if deadline.passed():
            raise _OutOfTimeError
        return work.value(point, rho, mu)

    for number in range(rounds):
        steps = min(STEPS + MORE_STEPS * number, MOST_STEPS)
        try:
            found = minimize(evaluate, x, jac=True, method="L-BFGS-B", options={"maxiter": steps})
        except _OutOfTimeError:
            status = "interrupted"
            break
        x = np.asarray(found.x)
        count += int(found.nit)
        size = work.update(x, rho, mu)
        candidate = work.multipliers(x)
        dual = _dual_value(program, candidate[0])
        waited = 0 if dual > best + VISIBLE * (1 + abs(dual)) else waited + 1
        if dual > best:
            best, answer = dual, candidate
        if best > above:
            status = "above"
            break
        if size < 1e-6 or (waited >= PATIENCE and mu <= LEAST_MU):
            status = "optimal" if size < 1e-6 else "stalled"
            break
        mu = max(mu * SHRINK, LEAST_MU)
        if size > 0.5 * before:
            rho = min(rho * GROWTH, MOST_RHO)
        before = size
    multipliers, moments, primal = answer
    return LowRankSolution(status, multipliers, moments, primal, count)


def _dual_value(program: StructuredProgram, y: StructuredMultipliers) -> float:
    """Return the bound of a dual point; a negative eigenvalue of T counts `size` times."""
    size, form = program.size, program.base.copy()
    vectors = program.vectors
    for tables, theta in zip(program.tables, y.theta, strict=True):
        for f in range(tables.links):
            a, b = vectors[tables.left[:, f]], vectors[tables.right[:, f]]
            part = (a * theta[:, f + 1 : f + 2]).T @ b
            form += (part + part.T) / 2
    part = (vectors[program.pair_left] * y.pi[:, None]).T @ vectors[program.pair_right]
    form -= (part + part.T) / 2
    form[np.diag_indices(size)] -= y.kappa
    least = min(0.0, float(np.linalg.eigvalsh(form)[0]))
    return float(sum(t[:, 0].sum() for t in y.theta) + y.kappa.sum() + size * least)
