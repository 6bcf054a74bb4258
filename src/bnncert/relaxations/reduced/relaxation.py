r"""The reduced relaxation: the last layer as tables, the input as conflicting pairs.

Let z = (1, x) hold the variables of all layers but the last.  A neuron meets the layers below only
through the integer u = w.x, which runs over a lattice Lo, Lo + 2, .., U.  Two exact eliminations:

* *last layer*: neurons with the same row w (or -w) are one table  phi(u) = sum d_j sign_j(u), and
  any quadratic  a + b u + c u^2 <= phi(u) on the lattice may take its place in f.  In the primal
  this is a distribution over the lattice with mean w.E[x] and second moment w'E[xx']w: the
  strongest that can be said of the neuron from these two moments, hence at least the 3 x 3 block
  with the paper's four inequalities at integer thresholds.
* *hidden layers above the first*: x_j = sign_j(u) gives the valid inequalities
  a + b u + c u^2 + e x_j + g x_j u <= 0 on the lattice.

The *input* appears only through pairs of signs that exclude each other, (1 + s x_a)(1 + t x_b) = 0.
What is left is one quadratic form in z, bounded by  T >= 0  and diag(zz') = 1:

    f >= sum a_j + sum kappa_i     if   T = Q - diag(kappa) - sum pi_e (1 + s x_a)(1 + t x_b) >= 0

Any b, c, e, g, kappa and pi give a bound: a_j is the minimum over the lattice, and a negative
eigenvalue of T costs (1 + n) times its size.

A table with phi = 0 is a valid inequality by itself: with u = s x_a + t x_b it is the product
(1 + s x_a)(1 + t x_b) >= 0, with three terms the triangle inequalities.

With a coupling z = (1, x, y) has the input as well, first-layer variables are gates over v = R.y,
a + b v + e x_j + g x_j v <= 0, and sum kappa_i also runs over y, whose squares are at most 1 (for a
ball: their sum is bounded, so the least kappa counts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.literals import sign_of, variable_of
from bnncert.relaxations.reduced.coupling import Coupling
from bnncert.relaxations.reduced.dual_point import DualPoint
from bnncert.relaxations.reduced.problem import ReducedProblem
from bnncert.solvers.structured_program import StructuredMultipliers, StructuredProgram, Tables


@dataclass(frozen=True, eq=False)
class ReducedRelaxation:
    """A reduced problem as a structured program, scaled, and how to read its multipliers."""

    problem: ReducedProblem
    program: StructuredProgram
    scale: float
    table_norm: FloatArray
    gate_norm: FloatArray
    input_norm: FloatArray

    def bound(self, multipliers: StructuredMultipliers) -> float:
        """Return the lower bound of f that these multipliers prove, rounding included."""
        dual = self.dual_point(multipliers)
        return dual.bound(self.problem)

    def dual_point(self, multipliers: StructuredMultipliers) -> DualPoint:
        """Return the multipliers in the units of the problem."""
        tables = multipliers.theta[0] * self.scale
        gates = multipliers.theta[1] * self.scale
        n, g, h = self.table_norm, self.gate_norm, self.input_norm
        inputs = multipliers.theta[2] * self.scale if h.size else np.zeros((0, 4))
        return DualPoint(
            table_linear=tables[:, 1] / n,
            table_square=tables[:, 2] / n**2,
            gate_linear=gates[:, 1] / g,
            gate_square=gates[:, 2] / g**2,
            gate_sign=gates[:, 3].copy(),
            gate_product=gates[:, 4] / g,
            diagonal=multipliers.kappa * self.scale,
            pair=multipliers.pi * self.scale,
            input_linear=inputs[:, 1] / h,
            input_sign=inputs[:, 2].copy(),
            input_product=inputs[:, 3] / h,
        )


def relax_reduced(problem: ReducedProblem) -> ReducedRelaxation:
    """Return the structured program of a reduced problem."""
    n = problem.size
    coupling = problem.coupling
    table_norm = _norms(problem.table.rows)
    gate_norm = _norms(problem.gates.rows)
    tables, gates = problem.table.rows.shape[0], problem.gates.rows.shape[0]
    more = 0 if coupling is None else coupling.size
    inputs = 0 if coupling is None else coupling.rows.shape[0]
    unit = tables + gates + inputs
    rows = np.zeros((unit, n + 1 + more))
    rows[:tables, 1 : n + 1] = problem.table.rows / table_norm[:, None]
    rows[tables : tables + gates, 1 : n + 1] = problem.gates.rows / gate_norm[:, None]
    spread = problem.values.max(axis=1, initial=-np.inf) - problem.values.min(
        axis=1, initial=np.inf
    )
    sizes = np.concatenate([spread[spread > 0], np.abs(problem.linear)])
    scale = float(sizes.mean()) if sizes.size and sizes.mean() > 0 else 1.0
    u = problem.table.points / table_norm[:, None]
    one = np.ones_like(u)
    zero_unit = np.full(tables, unit)
    own = np.arange(tables)
    last = Tables(
        problem.values / scale,
        np.stack([one, u, u * u], axis=2),
        np.stack([zero_unit, own], axis=1).reshape(tables, 2),
        np.stack([own, own], axis=1).reshape(tables, 2),
    )
    v = problem.gates.points / gate_norm[:, None]
    x = problem.gate_signs
    mine = tables + np.arange(gates)
    zero_unit = np.full(gates, unit)
    out = unit + 1 + problem.outputs
    hidden = Tables(
        np.zeros_like(v),
        np.stack([np.ones_like(v), v, v * v, x, x * v], axis=2),
        np.stack([zero_unit, mine, zero_unit, out], axis=1).reshape(gates, 4),
        np.stack([mine, mine, out, mine], axis=1).reshape(gates, 4),
    )
    families = [last, hidden]
    input_norm = np.zeros(0)
    if coupling is not None:
        input_norm = np.sqrt((coupling.rows**2).sum(axis=1))
        rows[tables + gates :, n + 1 :] = coupling.rows / input_norm[:, None]
        families.append(_input_tables(coupling, input_norm, tables + gates, unit))
    literals = np.unique(np.concatenate([problem.pair_first, problem.pair_second]))
    start = unit + n + 1 + more

    def where(index: IntArray) -> IntArray:
        return np.asarray(start + np.searchsorted(literals, index), dtype=np.int64)

    linear = np.concatenate([[0.0], problem.linear / scale, np.zeros(more)])
    program = StructuredProgram(
        linear=linear,
        rows=rows,
        tables=tuple(families),
        pair_unit=variable_of(literals) + 1,
        pair_sign=sign_of(literals).astype(np.float64),
        pair_left=where(problem.pair_first),
        pair_right=where(problem.pair_second),
        shared=more if coupling is not None and coupling.is_ball else 0,
    )
    return ReducedRelaxation(problem, program, scale, table_norm, gate_norm, input_norm)


def _input_tables(coupling: Coupling, norm: FloatArray, first: int, unit: int) -> Tables:
    """Return the gates over the input: v, x and x v at the four ends; their rows from `first`."""
    v = coupling.points / norm[:, None]
    x = np.broadcast_to(coupling.SIGNS, v.shape)
    own = first + np.arange(norm.size)
    one = np.full(norm.size, unit)
    out = unit + 1 + coupling.outputs
    return Tables(
        np.zeros_like(v),
        np.stack([np.ones_like(v), v, x, x * v], axis=2),
        np.stack([one, one, out], axis=1),
        np.stack([own, out, own], axis=1),
    )


def _norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(1.0, np.sqrt((rows**2).sum(axis=1))))
