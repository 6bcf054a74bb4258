r"""The reduced problem of an objective: tables, gates and conflicting pairs.

The formulas are those of `relaxations.reduced.relaxation`.  A neuron above the first layer depends
on the layers below only through an integer u = w.x on a lattice.  Neurons of the last layer with
the same row w (or -w) become one table of values phi(u), and hidden neurons become gates: points u
of the lattice with the sign at each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.conflicts import ConflictingPairs
from bnncert.engine.presolve.literals import renumbered, variable_of
from bnncert.engine.presolve.pipeline import Presolved, row_keys
from bnncert.engine.presolve.triples import Triples
from bnncert.engine.relaxations.reduced.coupling import Coupling
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.model.layers import UNIT
from bnncert.problem import Objective

#: The largest number of entries of the rows of tables and gates, which are dense matrices.
MOST_ENTRIES = 1.5e8


def is_too_large(presolved: Presolved) -> bool:
    """Whether the relaxation of a network needs more memory than usual computers have."""
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


@dataclass(frozen=True, eq=False)
class Splits:
    """Tables that are split by a sign, see `table_splits`."""

    #: The number of each table, and the variable that splits it.
    tables: IntArray
    variables: IntArray
    #: The values of u and of the sign that occur together, and phi(u).
    points: FloatArray
    signs: FloatArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """One objective over the variables that it depends on."""

    #: The variables of the presolved network, in their order in z.
    variables: IntArray
    #: f = constant + linear.x + tables, up to +-slack.
    constant: float
    slack: float
    linear: FloatArray
    #: The last layer: lattice and phi on it.
    table: Lattice
    values: FloatArray
    #: Hidden neurons above the first layer: lattice, the sign at each point (a point where both
    #: signs are allowed occurs twice), and the variable that each determines.
    gates: Lattice
    gate_signs: FloatArray
    outputs: IntArray
    #: Literals of z's variables that exclude each other.
    pair_first: IntArray
    pair_second: IntArray
    #: Rows of three literals that exclude each other.
    triples: IntArray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    #: The input as further variables, or None.
    coupling: Coupling | None = None
    #: Inequalities of the first layer's signs that the input implies, or None.
    cuts: InputCuts | None = None
    #: The tables that are split, or None.
    splits: Splits | None = None

    @property
    def size(self) -> int:
        """The number of variables x."""
        return int(self.variables.size)

    @cached_property
    def excluded(self) -> npt.NDArray[np.bool_]:
        """The symmetric table of literals that exclude each other."""
        nothing = np.zeros(self.pair_first.size)
        return ConflictingPairs(self.pair_first, self.pair_second, nothing).matrix(self.size)

    @cached_property
    def whole(self) -> IntArray:
        """The numbers of the tables that are not split."""
        tables = np.arange(self.table.rows.shape[0])
        return tables if self.splits is None else np.setdiff1d(tables, self.splits.tables)

    @property
    def links(self) -> int:
        """The number of multipliers that link tables and gates to the moments."""
        split = 0 if self.splits is None else 2 * self.splits.tables.size
        return int(2 * self.table.rows.shape[0] + split + 4 * self.gates.rows.shape[0])


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
    """Return the reduced problem of one objective, with the triples of its variables."""
    d, state = objective.coefficients, presolved.bounds[-1].state
    linear, tables = _last_layer(presolved, d)
    needed = linear != 0
    for table in tables:
        needed[table.columns] = True
    _need_gates(presolved, needed)
    variables = np.flatnonzero(needed)
    place = np.full(needed.size, -1, dtype=np.int64)
    place[variables] = np.arange(variables.size)
    table_rows = np.zeros((len(tables), variables.size))
    for j, table in enumerate(tables):
        table_rows[j, place[table.columns]] = table.weights
    gates, signs, outputs = _gates(presolved, variables, place)
    first, second = presolved.pairs.first, presolved.pairs.second
    kept = (place[variable_of(first)] >= 0) & (place[variable_of(second)] >= 0)
    return ReducedProblem(
        variables,
        float((d * state).sum() + objective.constant),
        _rounding(objective),
        linear[variables],
        Lattice(table_rows, _pad([table.points for table in tables])),
        _pad([table.values for table in tables]),
        gates,
        signs,
        outputs,
        renumbered(first[kept], place),
        renumbered(second[kept], place),
        _used_triples((triples or Triples.none()).literals, place),
    )


def _rounding(objective: Objective) -> float:
    """Bound the difference between the reduced problem and f: the error of f and rounding."""
    d, constant = objective.coefficients, objective.constant
    size = float(np.abs(d).sum() + abs(constant))
    whole = bool(np.all(d == np.rint(d))) and constant == np.rint(constant) and size < 2**50
    return float(objective.error) + (0.0 if whole else (d.size + 4) * 2 * UNIT * size)


@dataclass(frozen=True, eq=False)
class _Table:
    """phi = values at u = points, for one row u = weights . x[columns]."""

    columns: IntArray
    weights: IntArray
    points: FloatArray
    values: FloatArray


def _last_layer(presolved: Presolved, d: FloatArray) -> tuple[FloatArray, list[_Table]]:
    """Return d.x of the unstable neurons of the last layer: a linear part, and tables."""
    layer = presolved.layers[-1]
    linear = np.zeros(presolved.owner.size)
    open_ = np.flatnonzero((layer.bounds.state == 0) & (d != 0))
    own = open_[layer.variable[open_] >= 0]
    np.add.at(linear, layer.variable[own], d[own] * layer.sign[own])
    open_ = open_[layer.variable[open_] < 0]
    if not open_.size or presolved.network.depth == 1:
        return linear, []
    thresholds, shift = presolved.network.layers[-1], layer.shift[open_]
    plus, minus = thresholds.plus_from[open_] - shift, thresholds.minus_upto[open_] - shift
    low, high = layer.bounds.lower[open_] - shift, layer.bounds.upper[open_] - shift
    return linear, _tables(layer.rows[open_], plus, minus, low, high, d[open_])


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
) -> list[_Table]:
    """Return the table of every distinct row."""
    signs = np.ones(rows.shape[0], dtype=np.int8)
    members: dict[bytes, list[int]] = {}
    for j, (key, sign) in enumerate(row_keys(rows)):
        signs[j] = sign
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
        columns, data = positive.indices[start:stop], positive.data[start:stop]
        out.append(_Table(columns, data, points, phi))
    return out


def _need_gates(presolved: Presolved, needed: Any) -> None:
    """Mark the variables that gates of needed variables depend on, from the last layer down."""
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
    return Lattice(matrix, _pad(points)), _pad(signs), np.array(outputs, dtype=np.int64)


def packed(values: FloatArray, kept: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the kept entries of every row, padded by repeating the last one."""
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
