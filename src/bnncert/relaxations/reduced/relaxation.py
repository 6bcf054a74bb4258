r"""The reduced relaxation: the last layer as tables, the input as clashes.

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

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.conflicts import ConflictingPairs
from bnncert.presolve.literals import renumbered, sign_of, variable_of
from bnncert.presolve.merging import row_keys
from bnncert.presolve.pipeline import Presolved
from bnncert.presolve.triples import Triples
from bnncert.problem import Objective
from bnncert.relaxations.reduced.coupling import Coupling
from bnncert.solvers.structured_program import StructuredMultipliers, StructuredProgram, Tables

UNIT = 2.0**-52

#: Entries of the rows of tables and gates, at most: they are kept as dense matrices.
MOST_ENTRIES = 1.5e8


def is_too_large(presolved: Presolved) -> bool:
    """Whether the relaxation of a network would not fit the memory of a usual computer."""
    variables = presolved.owner.size
    gates = int(np.count_nonzero(presolved.owner_layer > 0))
    last = int(presolved.bounds[-1].unstable.size) if presolved.network.depth > 1 else 0
    return float(variables) * (gates + last) > MOST_ENTRIES


@dataclass(frozen=True, eq=False)
class Lattice:
    """Rows over the variables, and the integers that each can take.

    `points` is padded by repeating the last point of a row.
    """

    rows: FloatArray
    points: FloatArray
    sizes: IntArray


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """What is left of one objective.

    Attributes
    ----------
    variables
        Numbers of the presolved network's variables that z holds, in order.
    constant, slack
        f = constant + linear.x + tables, up to +-slack.
    table, values
        The last layer: lattice and phi on it.
    gates, gate_signs, outputs
        Hidden neurons above the first layer: lattice, the sign at each point (a point where both
        signs are allowed occurs twice), and the variable that each determines.
    clash_first, clash_second
        Literals of z's variables that exclude each other.
    triples
        Rows of three literals that exclude each other.
    coupling
        The input as further variables, or None.
    """

    variables: IntArray
    constant: float
    slack: float
    linear: FloatArray
    table: Lattice
    values: FloatArray
    gates: Lattice
    gate_signs: FloatArray
    outputs: IntArray
    pair_first: IntArray
    pair_second: IntArray
    triples: IntArray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    coupling: Coupling | None = None

    @property
    def size(self) -> int:
        """The number of variables x."""
        return int(self.variables.size)

    @cached_property
    def excluded(self) -> npt.NDArray[np.bool_]:
        """The symmetric table of literals that exclude each other."""
        nothing = np.zeros(self.pair_first.size)
        return ConflictingPairs(self.pair_first, self.pair_second, nothing).matrix(self.size)

    @property
    def links(self) -> int:
        """The number of multipliers that tie tables and gates to the moments."""
        return int(2 * self.table.rows.shape[0] + 4 * self.gates.rows.shape[0])


def _lattice(rows: Any, lower: FloatArray, upper: FloatArray) -> list[FloatArray]:
    """Return the integers with the right remainder between the bounds, for every row."""
    points = []
    for j in range(rows.shape[0]):
        data = rows.data[rows.indptr[j] : rows.indptr[j + 1]]
        reach = int(np.abs(data).sum())
        step = 2 * gcd(*(int(v) for v in data.tolist())) if data.size else 2
        low = reach - step * ((reach - int(np.ceil(lower[j]))) // step)
        high = -reach + step * ((reach + int(np.floor(upper[j]))) // step)
        points.append(np.arange(low, high + 1, step, dtype=np.float64))
    return points


def _pad(lists: list[FloatArray]) -> FloatArray:
    width = max((v.size for v in lists), default=1)
    out = np.zeros((len(lists), width))
    for j, v in enumerate(lists):
        out[j, : v.size] = v
        out[j, v.size :] = v[-1]
    return out


def reduce_objective(
    presolved: Presolved, objective: Objective, *, triples: Triples | None = None
) -> ReducedProblem:
    """Return the reduced problem of one objective, with those of the triples that concern it."""
    network = presolved.network
    last = network.depth - 1
    layer = presolved.layers[last]
    d = objective.coefficients
    state = layer.bounds.state
    fixed = d * state
    constant = float(fixed.sum() + objective.constant)
    total = int(presolved.owner.size)
    linear = np.zeros(total)
    size = float(np.abs(d).sum() + abs(objective.constant))
    whole = bool(np.all(d == np.rint(d))) and objective.constant == np.rint(objective.constant)
    whole = whole and size < 2**50
    slack = float(objective.error) + (0.0 if whole else (d.size + 4) * 2 * UNIT * size)
    open_ = np.flatnonzero((state == 0) & (d != 0))
    own = open_[layer.variable[open_] >= 0]
    np.add.at(linear, layer.variable[own], d[own] * layer.sign[own])
    open_ = open_[layer.variable[open_] < 0]
    rows = layer.rows[open_] if last else layer.rows
    groups: list[tuple[Any, FloatArray, FloatArray]] = []
    if last and open_.size:
        thresholds = network.layers[last]
        plus = (thresholds.plus_from - layer.shift)[open_]
        minus = (thresholds.minus_upto - layer.shift)[open_]
        low = (layer.bounds.lower - layer.shift)[open_]
        high = (layer.bounds.upper - layer.shift)[open_]
        groups = _tables(rows, plus, minus, low, high, d[open_])
    needed = np.zeros(total, dtype=bool)
    needed[np.flatnonzero(linear)] = True
    for row, _, _ in groups:
        needed[row[0]] = True
    _need_gates(presolved, needed)
    variables = np.flatnonzero(needed)
    place = np.full(total, -1, dtype=np.int64)
    place[variables] = np.arange(variables.size)
    table_rows = np.zeros((len(groups), variables.size))
    for j, (row, _, _) in enumerate(groups):
        table_rows[j, place[row[0]]] = row[1]
    points = _pad([g[1] for g in groups])
    values = _pad([g[2] for g in groups])
    sizes = np.array([g[1].size for g in groups], dtype=np.int64)
    gates, signs, outputs = _gates(presolved, variables, place)
    first, second = presolved.pairs.first, presolved.pairs.second
    kept = (place[variable_of(first)] >= 0) & (place[variable_of(second)] >= 0)
    return ReducedProblem(
        variables,
        constant,
        slack,
        linear[variables],
        Lattice(table_rows, points, sizes),
        values,
        gates,
        signs,
        outputs,
        renumbered(first[kept], place),
        renumbered(second[kept], place),
        _used_triples((triples or Triples.none()).literals, place),
    )


def _used_triples(triples: IntArray, place: IntArray) -> IntArray:
    """Return the triples whose variables are all in use, by their new numbers."""
    kept = (place[variable_of(triples)] >= 0).all(axis=1)
    return renumbered(triples[kept], place)


def _tables(
    rows: Any,
    plus: FloatArray,
    minus: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    weights: FloatArray,
) -> list[tuple[Any, FloatArray, FloatArray]]:
    """Return (columns and weights, points, phi) for every distinct row."""
    keys, signs = row_keys(rows)
    members: dict[bytes, list[int]] = {}
    for j, key in enumerate(keys):
        members.setdefault(key, []).append(j)
    leads = np.array([m[0] for m in members.values()], dtype=np.int64)
    low = np.array(
        [max(float(lower[j] if signs[j] > 0 else -upper[j]) for j in m) for m in members.values()]
    )
    high = np.array(
        [min(float(upper[j] if signs[j] > 0 else -lower[j]) for j in m) for m in members.values()]
    )
    positive = rows[leads].multiply(signs[leads][:, None]).tocsr().astype(np.int64)
    lattice = _lattice(positive, low, high)
    out = []
    for k, m in enumerate(members.values()):
        points = lattice[k]
        phi = np.zeros(points.size)
        for j in m:
            u = points * signs[j]
            may_plus, may_minus = u >= plus[j], u <= minus[j]
            up, down = weights[j], -weights[j]
            phi += np.where(may_plus & may_minus, min(up, down), np.where(may_plus, up, down))
        start, stop = positive.indptr[k], positive.indptr[k + 1]
        out.append(((positive.indices[start:stop], positive.data[start:stop]), points, phi))
    return out


def _need_gates(presolved: Presolved, needed: Any) -> None:
    """Mark the variables that the gates of needed variables read, downwards."""
    for number in range(presolved.network.depth - 1, 0, -1):
        own = np.flatnonzero(needed & (presolved.owner_layer == number))
        if own.size:
            rows = presolved.layers[number].rows[presolved.owner[own]]
            needed[np.unique(rows.indices)] = True


def _gates(
    presolved: Presolved, variables: IntArray, place: IntArray
) -> tuple[Lattice, FloatArray, IntArray]:
    rows, points, signs, outputs = [], [], [], []
    for number in range(1, presolved.network.depth):
        own = variables[presolved.owner_layer[variables] == number]
        if not own.size:
            continue
        layer = presolved.layers[number]
        neurons = presolved.owner[own]
        thresholds = presolved.network.layers[number]
        shift = layer.shift[neurons]
        plus = thresholds.plus_from[neurons] - shift
        minus = thresholds.minus_upto[neurons] - shift
        part = layer.rows[neurons]
        lattice = _lattice(
            part, layer.bounds.lower[neurons] - shift, layer.bounds.upper[neurons] - shift
        )
        for j in range(neurons.size):
            u = lattice[j]
            dense = np.zeros(variables.size)
            start, stop = part.indptr[j], part.indptr[j + 1]
            dense[place[part.indices[start:stop]]] = part.data[start:stop]
            rows.append(dense)
            on, off = u[u >= plus[j]], u[u <= minus[j]]
            points.append(np.concatenate([off, on]))
            signs.append(np.concatenate([-np.ones(off.size), np.ones(on.size)]))
            outputs.append(int(place[own[j]]))
    matrix = np.array(rows).reshape(len(rows), variables.size)
    sizes = np.array([p.size for p in points], dtype=np.int64)
    return (
        Lattice(matrix, _pad(points), sizes),
        _pad(signs),
        np.array(outputs, dtype=np.int64),
    )


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


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Multipliers that prove a bound: see the formula at the top of this file.

    The diagonal is that of (1, x, y); `input_*` are empty without a coupling.
    """

    table_linear: FloatArray
    table_square: FloatArray
    gate_linear: FloatArray
    gate_square: FloatArray
    gate_sign: FloatArray
    gate_product: FloatArray
    diagonal: FloatArray
    pair: FloatArray
    input_linear: FloatArray = field(default_factory=lambda: np.zeros(0))
    input_sign: FloatArray = field(default_factory=lambda: np.zeros(0))
    input_product: FloatArray = field(default_factory=lambda: np.zeros(0))

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

        add(problem.table.rows, self.table_linear, self.table_square)
        add(problem.gates.rows, self.gate_linear, self.gate_square)
        add_first(x, problem.linear, np.abs(problem.linear))
        add_outputs(x, problem.gates.rows, problem.outputs, self.gate_sign, self.gate_product)
        coupling = problem.coupling
        if coupling is not None:
            rows, linear = coupling.rows, self.input_linear
            add_first(y, linear @ rows, np.abs(linear) @ np.abs(rows))
            add_outputs(y, rows, coupling.outputs, self.input_sign, self.input_product)
            # Products of very small numbers have no relative error bound.
            size += 1e-270
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
        terms += int(problem.pair_first.size) + int(self.input_linear.size)
        return form, 2 * terms * UNIT * size

    def constants(self, problem: ReducedProblem) -> FloatArray:
        """Return the minimum over its points for every table and gate, rounded down."""
        u, phi = problem.table.points, problem.values
        b, c = self.table_linear[:, None], self.table_square[:, None]
        rest = phi - b * u - c * u * u
        size = np.abs(phi) + np.abs(b * u) + np.abs(c * u * u)
        table = (rest - 16 * UNIT * size).min(axis=1, initial=np.inf)
        v, x = problem.gates.points, problem.gate_signs
        hidden = (
            self.gate_linear[:, None] * v,
            self.gate_square[:, None] * v * v,
            self.gate_sign[:, None] * x,
            self.gate_product[:, None] * v * x,
        )
        found = [table, _least(hidden)]
        if problem.coupling is not None:
            v = problem.coupling.points
            x = np.broadcast_to(problem.coupling.SIGNS, v.shape)
            inputs = (
                self.input_linear[:, None] * v,
                self.input_sign[:, None] * x,
                self.input_product[:, None] * v * x,
            )
            # These products may underflow, which has no relative error bound.
            found.append(_least(inputs) - 1e-290)
        return np.concatenate(found)

    def squares(self, problem: ReducedProblem) -> FloatArray:
        """Return the least that kappa_i z_i^2 can be, or its sum for a ball, rounded down."""
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
        numbers = (
            self.table_linear,
            self.table_square,
            self.gate_linear,
            self.gate_square,
            self.gate_sign,
            self.gate_product,
            self.diagonal,
            self.pair,
            self.input_linear,
            self.input_sign,
            self.input_product,
        )
        if not all(np.all(np.isfinite(v)) for v in numbers):
            return -np.inf
        with np.errstate(all="ignore"):
            return self._bound(problem)

    def _bound(self, problem: ReducedProblem) -> float:
        form, doubt = self.form(problem)
        n = self.diagonal.size
        if not (np.all(np.isfinite(form)) and np.all(np.isfinite(doubt))):
            return -np.inf
        # |eigenvalue error| <= the largest row sum of the entries' errors, and LAPACK's own.
        error = float(doubt.sum(axis=1).max(initial=0.0))
        norm = float(np.abs(form).sum(axis=1).max(initial=0.0))
        least = float(np.linalg.eigvalsh(form)[0]) - error - 8 * n * UNIT * norm
        parts = np.concatenate([self.constants(problem), self.squares(problem)])
        total = problem.constant + float(parts.sum())
        rounding = (parts.size + 8) * UNIT * (float(np.abs(parts).sum()) + abs(problem.constant))
        # |z|^2 is at most this.
        trace = problem.size + 1 + (0.0 if problem.coupling is None else problem.coupling.reach)
        value = total + trace * min(0.0, least) * (1 + 8 * UNIT) - rounding - problem.slack
        # Numbers beyond the floats prove nothing.
        return value if np.isfinite(least) and np.isfinite(value) else -np.inf


def _least(parts: tuple[FloatArray, ...]) -> FloatArray:
    """Return the minimum of -sum parts over the points of every gate, rounded down."""
    total = np.sum(parts, axis=0)
    size = np.sum(np.abs(parts), axis=0)
    return np.asarray((-total - 16 * UNIT * size).min(axis=1, initial=np.inf))


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


def packed(values: FloatArray, kept: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the kept entries of every row, moved to the front and the last one repeated."""
    order = np.argsort(~kept, axis=1, kind="stable")
    moved = np.take_along_axis(values, order, axis=1)
    count = kept.sum(axis=1)
    width = max(1, int(count.max(initial=0)))
    index = np.minimum(np.arange(width)[None, :], np.maximum(count, 1)[:, None] - 1)
    return np.take_along_axis(moved, index, axis=1)


def widen(array: FloatArray, width: int) -> FloatArray:
    """Return rows padded to a width by repeating their last entry."""
    missing = width - array.shape[1]
    return np.pad(array, ((0, 0), (0, missing)), mode="edge") if missing > 0 else array


def _norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(1.0, np.sqrt((rows**2).sum(axis=1))))
