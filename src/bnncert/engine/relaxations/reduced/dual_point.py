r"""Dual points of the reduced relaxation, and the bound that each of them proves.

The formulas are those of :mod:`bnncert.engine.relaxations.reduced.relaxation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.model.layers import UNIT


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Multipliers that prove a bound."""

    #: (tables, 2): b and c of the quadratic  b u + c u^2.
    table: FloatArray
    #: (gates, 4): b, c, e and g of  b u + c u^2 + e x + g x u.
    gate: FloatArray
    #: kappa for the diagonal of (1, x, y).
    diagonal: FloatArray
    #: pi of each conflicting pair.
    pair: FloatArray
    #: (gates over the input, 3): b, e and g of  b v + e x + g x v; empty without a coupling.
    input: FloatArray = field(default_factory=lambda: np.zeros((0, 3)))
    #: The multiplier >= 0 of each cut z'Cz >= 0.
    cut: FloatArray = field(default_factory=lambda: np.zeros(0))
    #: (splits, 2): e and g of  b u + c u^2 + e x + g x u.
    split: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))

    def tables_over(self, shift: FloatArray) -> FloatArray:
        """Return b and c with u - shift in place of u, without the constants that this adds."""
        linear, square = self.table.T
        return np.stack([linear - 2 * square * shift, square], axis=1)

    def splits_over(self, shift: FloatArray) -> FloatArray:
        """Return e and g of splits with u - shift in place of u."""
        return np.stack([self.split[:, 0] - self.split[:, 1] * shift, self.split[:, 1]], axis=1)

    def gates_over(self, shift: FloatArray) -> FloatArray:
        """Return b, c, e and g of gates with u - shift in place of u, without the constants."""
        linear, square, sign, product = self.gate.T
        moved = [linear - 2 * square * shift, square, sign - product * shift, product]
        return np.stack(moved, axis=1)

    def form(self, problem: ReducedProblem) -> tuple[FloatArray, FloatArray]:
        """Return T in floating point, and a bound of the rounding error of each entry."""
        n = problem.size
        total = self.diagonal.size
        form = np.zeros((total, total))
        size = np.zeros((total, total))
        x, y = slice(1, n + 1), slice(n + 1, total)

        def add_first(where: slice, part: FloatArray, reach: FloatArray) -> None:
            form[0, where] += part / 2
            form[where, 0] += part / 2
            size[0, where] += reach / 2
            size[where, 0] += reach / 2

        def add(rows: FloatArray, linear: FloatArray, square: FloatArray) -> None:
            form[x, x] += (rows.T * square) @ rows
            size[x, x] += (np.abs(rows).T * np.abs(square)) @ np.abs(rows)
            add_first(x, linear @ rows, np.abs(linear) @ np.abs(rows))

        def add_outputs(
            where: slice, rows: FloatArray, outputs: IntArray, sign: FloatArray, times: FloatArray
        ) -> None:
            for j, out in enumerate(outputs.tolist()):
                row = np.zeros(total)
                row[0] = sign[j]
                row[where] = times[j] * rows[j]
                form[out + 1] += row / 2
                form[:, out + 1] += row / 2
                size[out + 1] += np.abs(row) / 2
                size[:, out + 1] += np.abs(row) / 2

        add(problem.table.rows, *self.table.T)
        add(problem.gates.rows, *self.gate.T[:2])
        add_first(x, problem.linear, np.abs(problem.linear))
        add_outputs(x, problem.gates.rows, problem.outputs, *self.gate.T[2:])
        splits, coupling = problem.splits, problem.coupling
        if splits is not None:
            add_outputs(x, problem.table.rows[splits.tables], splits.variables, *self.split.T)
        if coupling is not None:
            rows, (linear, sign, product) = coupling.rows, self.input.T
            add_first(y, linear @ rows, np.abs(linear) @ np.abs(rows))
            add_outputs(y, rows, coupling.outputs, sign, product)
            # Products of very small numbers have no relative error bound.
            size += 1e-270
        if problem.cuts is not None:
            form[: n + 1, : n + 1] -= np.tensordot(self.cut, problem.cuts.forms, 1)
            size[: n + 1, : n + 1] += np.tensordot(np.abs(self.cut), np.abs(problem.cuts.forms), 1)
        diagonal = np.arange(total)
        form[diagonal, diagonal] -= self.diagonal
        size[diagonal, diagonal] += np.abs(self.diagonal)
        a, b = variable_of(problem.pair_first) + 1, variable_of(problem.pair_second) + 1
        s, t = sign_of(problem.pair_first), sign_of(problem.pair_second)
        zero = np.zeros_like(a)
        form[0, 0] -= self.pair.sum()
        size[0, 0] += np.abs(self.pair).sum()
        for first, second, sign in ((zero, a, s), (zero, b, t), (a, b, s * t)):
            np.add.at(form, (first, second), -self.pair * sign / 2)
            np.add.at(form, (second, first), -self.pair * sign / 2)
            np.add.at(size, (first, second), np.abs(self.pair) / 2)
            np.add.at(size, (second, first), np.abs(self.pair) / 2)
        terms = problem.table.rows.shape[0] + problem.gates.rows.shape[0] + 16
        terms += int(problem.pair_first.size) + int(self.input.shape[0]) + int(self.cut.size)
        terms += int(self.split.shape[0])
        return form, 2 * terms * UNIT * size

    def constants(self, problem: ReducedProblem) -> FloatArray:
        """Return for every table and gate the minimum over its points, rounded down."""
        u, phi = problem.table.points, problem.values
        b, c = self.table.T[:, :, None]
        rest = phi - b * u - c * u * u
        size = np.abs(phi) + np.abs(b * u) + np.abs(c * u * u)
        table = (rest - 16 * UNIT * size).min(axis=1, initial=np.inf)
        if problem.splits is not None:
            own, u, x = problem.splits.tables, problem.splits.points, problem.splits.signs
            b, c, e, g = np.hstack([self.table[own], self.split]).T[:, :, None]
            table[own] = _least((-problem.splits.values, b * u, c * u * u, e * x, g * u * x))
        v, x = problem.gates.points, problem.gate_signs
        b, c, e, g = self.gate.T[:, :, None]
        found = [table, _least((b * v, c * v * v, e * x, g * v * x))]
        if problem.coupling is not None:
            v = problem.coupling.points
            x = np.broadcast_to(problem.coupling.SIGNS, v.shape)
            b, e, g = self.input.T[:, :, None]
            # These products may underflow, which has no relative error bound.
            found.append(_least((b * v, e * x, g * v * x)) - 1e-290)
        return np.concatenate(found)

    def squares(self, problem: ReducedProblem) -> FloatArray:
        """Return the minimum of kappa_i z_i^2, or of its sum for a ball, rounded down."""
        fixed, free = self.diagonal[: problem.size + 1], self.diagonal[problem.size + 1 :]
        coupling = problem.coupling
        if coupling is None:
            return fixed
        below = np.minimum(free, 0.0)
        if coupling.is_ball:
            below = np.array([below.min() * coupling.reach * (1 + 4 * UNIT)])
        return np.concatenate([fixed, below])

    def bound(self, problem: ReducedProblem) -> float:
        """Return the lower bound of f that these multipliers prove, rounding included."""
        if not all(np.all(np.isfinite(v)) for v in vars(self).values()) or np.any(self.cut < 0):
            return -np.inf
        with np.errstate(all="ignore"):
            return self._bound(problem)

    def _bound(self, problem: ReducedProblem) -> float:
        form, doubt = self.form(problem)
        n = self.diagonal.size
        if not (np.all(np.isfinite(form)) and np.all(np.isfinite(doubt))):
            return -np.inf
        # The error of an eigenvalue is at most the largest row sum of the errors, plus LAPACK's.
        error = float(doubt.sum(axis=1).max(initial=0.0))
        norm = float(np.abs(form).sum(axis=1).max(initial=0.0))
        least = float(np.linalg.eigvalsh(form)[0]) - error - 8 * n * UNIT * norm
        parts = np.concatenate([self.constants(problem), self.squares(problem)])
        total = problem.constant + float(parts.sum())
        rounding = (parts.size + 8) * UNIT * (float(np.abs(parts).sum()) + abs(problem.constant))
        # A bound of |z|^2.
        trace = problem.size + 1 + (0.0 if problem.coupling is None else problem.coupling.reach)
        value = total + trace * min(0.0, least) * (1 + 8 * UNIT) - rounding - problem.slack
        # Numbers outside the range of floats do not prove a bound.
        return value if np.isfinite(least) and np.isfinite(value) else -np.inf


def _least(parts: tuple[FloatArray, ...]) -> FloatArray:
    """Return the minimum of -sum parts over the points of every gate, rounded down."""
    total = np.sum(parts, axis=0)
    size = np.sum(np.abs(parts), axis=0)
    return np.asarray((-total - 16 * UNIT * size).min(axis=1, initial=np.inf))
