r"""A first-order method for structured programs whose Newton matrix would not fit.

The moment matrix is M = V V' with unit rows of V (Burer and Monteiro) and every distribution is a
softmax p_j = softmax(q_j), so that diag M = 1, M >= 0 and sum p_j = 1 hold by construction.  The
links and clashes are left to an augmented Lagrangian,

    min over V, q of   l.z + sum value p + y.r + (rho / 2) |r|^2,      r = <B, V V'> - feature p,

minimised by L-BFGS.  y + rho r are multipliers theta and -pi, and with kappa_i = (C V)_i . V_i from
the stationarity of V they are a dual point: its bound is the same whoever found it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray
from bnncert.solvers.structured import Multipliers, StructuredProgram

#: Outer rounds, L-BFGS steps in each, and the growth of the penalty.
ROUNDS, STEPS, GROWTH = 25, 60, 1.6


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


class _LowRank:
    def __init__(self, program: StructuredProgram, seed: int, rank: int | None) -> None:
        self.program = program
        n = program.size
        self.rank = rank or min(n, int(np.ceil(np.sqrt(2 * n))) + 2)
        pairs = sp.csr_array(
            (
                np.concatenate([np.ones(program.pair_unit.size), program.pair_sign]),
                (
                    np.tile(np.arange(program.pair_unit.size), 2),
                    np.concatenate([np.zeros_like(program.pair_unit), program.pair_unit]),
                ),
            ),
            shape=(program.pair_unit.size, n),
        )
        vectors = sp.vstack([sp.csr_array(program.rows), sp.eye_array(n), pairs]).tocsr()
        left = [t.left[:, f] for t in program.tables for f in range(t.links)]
        right = [t.right[:, f] for t in program.tables for f in range(t.links)]
        self.left = vectors[np.concatenate([*left, program.clash_left])]
        self.right = vectors[np.concatenate([*right, program.clash_right])]
        self.left_t, self.right_t = self.left.T.tocsr(), self.right.T.tocsr()
        generator = np.random.default_rng(seed)
        self.v = generator.standard_normal((n, self.rank))
        self.q = [np.zeros(t.values.shape) for t in program.tables]
        for q, tables in zip(self.q, program.tables, strict=True):
            if tables.links and tables.count:
                q -= 0.5 * tables.features[:, :, 1] ** 2
        self.y = np.zeros(self.left.shape[0])

    def _pack(self) -> FloatArray:
        return np.concatenate([self.v.ravel(), *(q.ravel() for q in self.q)])

    def _unpack(self, x: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        n = self.program.size * self.rank
        v = x[:n].reshape(-1, self.rank)
        out = []
        for tables in self.program.tables:
            stop = n + tables.values.size
            out.append(x[n:stop].reshape(tables.values.shape))
            n = stop
        return v, out

    def state(self, x: FloatArray) -> tuple[Any, ...]:
        """Return unit rows V, their lengths, p, Z_left V, Z_right V and the residuals."""
        v, q = self._unpack(x)
        length = np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        unit = v / length
        masses = []
        for part in q:
            weight = np.exp(part - part.max(axis=1, keepdims=True, initial=-np.inf))
            masses.append(weight / weight.sum(axis=1, keepdims=True))
        a, b = self.left @ unit, self.right @ unit
        residual = np.einsum("ij,ij->i", a, b)
        start = 0
        for tables, mass in zip(self.program.tables, masses, strict=True):
            stop = start + tables.count * tables.links
            residual[start:stop] -= np.einsum("jkf,jk->fj", tables.features[:, :, 1:], mass).ravel()
            start = stop
        return unit, length, masses, a, b, residual

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
        """Return the augmented Lagrangian and its gradient."""
        unit, length, masses, a, b, residual = self.state(x)
        weight = self.y + rho * residual
        total = float(self.program.linear @ (unit @ unit[0]))
        total += float(self.y @ residual + rho / 2 * residual @ residual)
        gradient_v = 2 * self.pull(unit, a, b, weight)
        gradient_v -= np.einsum("ij,ij->i", gradient_v, unit)[:, None] * unit
        parts = [(gradient_v / length).ravel()]
        start = 0
        for tables, mass in zip(self.program.tables, masses, strict=True):
            stop = start + tables.count * tables.links
            links = weight[start:stop].reshape(tables.links, tables.count).T
            slope = tables.values - np.einsum("jkf,jf->jk", tables.features[:, :, 1:], links)
            total += float((tables.values * mass).sum())
            centred = slope - (slope * mass).sum(axis=1, keepdims=True)
            parts.append((mass * centred).ravel())
            start = stop
        return total, np.concatenate(parts)

    def multipliers(self, x: FloatArray) -> tuple[Multipliers, FloatArray, float]:
        """Return the dual point of the present state, the moments and the primal value."""
        unit, _, masses, a, b, _ = self.state(x)
        theta = []
        start = 0
        primal = float(self.program.linear @ (unit @ unit[0]))
        for tables, mass in zip(self.program.tables, masses, strict=True):
            stop = start + tables.count * tables.links
            links = self.y[start:stop].reshape(tables.links, tables.count).T
            rest = tables.values - np.einsum("jkf,jf->jk", tables.features[:, :, 1:], links)
            theta.append(np.hstack([rest.min(axis=1, initial=np.inf)[:, None], links]))
            primal += float((tables.values * mass).sum())
            start = stop
        kappa = np.einsum("ij,ij->i", self.pull(unit, a, b, self.y), unit)
        return Multipliers(theta, kappa, -self.y[start:]), unit @ unit.T, primal


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
    x = work._pack()
    rho = 1.0
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
        residual = work.state(x)[-1]
        work.y = work.y + rho * residual
        size = float(np.abs(residual).max(initial=0.0))
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
    pairs = np.zeros((program.pair_unit.size, size))
    pairs[:, 0] = 1.0
    pairs[np.arange(pairs.shape[0]), program.pair_unit] = program.pair_sign
    vectors = np.vstack([program.rows, np.eye(size), pairs])
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
