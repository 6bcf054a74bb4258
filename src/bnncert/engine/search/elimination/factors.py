r"""The presolved network as a sum of functions of few variables.

    f = constant + sum_p g_p(x_{S_p}),

where x are the variables of presolve and g_p sums the last-layer neurons whose unstable inputs are
S_p.  The signs of these neurons for all 2^|S_p| patterns do not depend on the objective, so they
are computed once; g_p of an objective is a product with its weights.  A hidden neuron above the
first layer is a variable of its own, tied to its inputs by a table of 0 and +infinity.

Objectives have integer weights:  f = constant + unit * (k.x) +- slack with integers k.  If the
values of f lie on a lattice, unit is half its step and the slack is the error of the objective;
otherwise weights are rounded to multiples of a very small unit, and the rounding error is part of
the slack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.search.elimination.buckets import Model, Table, float_type, sign_patterns
from bnncert.model.rationals import float_below
from bnncert.problem import Objective

#: The sum of weights that are not multiples of one number is about this many units.
UNITS = 2**44


class IntegerObjective(NamedTuple):
    """An objective over the last layer's signs, in multiples of `unit`."""

    objective: Objective
    weights: IntArray
    unit: Fraction
    slack: Fraction

    def lower(self, minimum: float) -> float:
        """Return the lower bound of f for a lower bound of k.x."""
        if not np.isfinite(minimum):
            return minimum
        constant = Fraction(self.objective.constant) + self.objective.remainder
        bound = constant + self.unit * int(minimum) - self.slack
        return self.objective.round_up(float_below(bound))

    def value(self, signs: SignArray) -> Fraction:
        """Return f at signs of the last layer, up to the slack."""
        constant = Fraction(self.objective.constant) + self.objective.remainder
        return constant + self.unit * int(self.weights @ signs.astype(np.int64))


def integer_objective(objective: Objective) -> IntegerObjective:
    """Return an objective with integer weights."""
    d = objective.coefficients
    # Fractions are slow, and weights have few different values: each is converted once.
    values, place, count = np.unique(d, return_inverse=True, return_counts=True)
    lattice = objective.lattice
    if lattice is not None:
        unit = lattice[1] / 2 or Fraction(1)
    else:
        # A power of two: dividing by it is exact.
        reach = float(np.abs(d).sum())
        unit = Fraction(2) ** (math.frexp(reach)[1] - UNITS.bit_length() + 1)
    weights = [round(Fraction(v) / unit) for v in values.tolist()]
    left = [abs(Fraction(v) - k * unit) for v, k in zip(values.tolist(), weights, strict=True)]
    rounding = sum((e * n for e, n in zip(left, count.tolist(), strict=True)), Fraction(0))
    whole = np.array(weights, dtype=np.int64)[place.reshape(-1)]
    return IntegerObjective(objective, whole, unit, objective.exact_error + rounding)


def weight_matrix(objectives: Sequence[IntegerObjective], neurons: IntArray) -> FloatArray:
    """Return the weights of some neurons, one column for each objective."""
    if not objectives:
        return np.zeros((neurons.size, 0))
    return np.stack([o.weights[neurons] for o in objectives], axis=1).astype(np.float64)


#: A neuron with more inputs has no table: in the last layer it takes the worse sign for each
#: objective, and in the layers below it may have any sign.
MOST_INPUTS = 16

#: Entries of the signs of all groups together, one byte each.
MOST_ENTRIES = 2**26

#: Entries of sums that are computed at once.
BLOCK = 2**22


@dataclass(frozen=True, eq=False)
class FactorGroup:
    """Last-layer neurons with the same input variables.

    `signs` has a row for each pattern of the variables and a column for each neuron: 0 where the
    neuron may have either sign.
    """

    variables: tuple[int, ...]
    neurons: IntArray
    signs: npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Gate:
    """A hidden neuron above the first layer: which patterns of its inputs and itself occur.

    The neuron itself is the last of the variables.
    """

    variables: tuple[int, ...]
    possible: npt.NDArray[np.bool_]

    def table(self) -> Table:
        """Return 0 for the patterns that occur and +infinity for the others."""
        values = np.where(self.possible, 0.0, np.inf).astype(np.float32)
        return Table(self.variables, values.reshape((*(2,) * len(self.variables), 1)), 0)


@dataclass(frozen=True, eq=False)
class Factors:
    """What all objectives share."""

    #: The signs of last-layer neurons that are stable, 0 for the others.
    fixed: IntArray
    #: Functions of few variables.
    groups: tuple[FactorGroup, ...]
    gates: tuple[Gate, ...]
    #: Last-layer neurons that are a variable, or its negation.
    equal: IntArray
    equal_to: IntArray
    equal_sign: IntArray
    #: Last-layer neurons that read too many variables for a table.
    loose: IntArray
    #: Conflicting pairs of literals.
    pairs: tuple[IntArray, ...]

    def model(
        self, objectives: Sequence[IntegerObjective], clauses: Sequence[IntArray] = ()
    ) -> Model:
        """Return the tables of some objectives, whose minimum over all patterns is that of k.x.

        Conflicting pairs and further clauses are included if all of their variables are in use.
        """
        constant = self.fixed @ weight_matrix(objectives, np.arange(self.fixed.size))
        constant = constant - np.abs(weight_matrix(objectives, self.loose)).sum(axis=0)
        tables = [Table((), constant.astype(np.float64), 0)]
        tables += self._linear_tables(objectives)
        for group in self.groups:
            weights = weight_matrix(objectives, group.neurons)
            tables.append(_table(group.variables, group.signs, weights))
        tables += [gate.table() for gate in self.gates]
        used = {v for table in tables for v in table.scope}
        kept = [c for c in (*self.pairs, *clauses) if used.issuperset(variable_of(c).tolist())]
        return Model(tuple(tables), tuple(kept), len(objectives))

    def _linear_tables(self, objectives: Sequence[IntegerObjective]) -> list[Table]:
        weights = weight_matrix(objectives, self.equal) * self.equal_sign[:, None]
        return [
            linear_table(v, weights[self.equal_to == v].sum(axis=0))
            for v in np.unique(self.equal_to).tolist()
        ]


def linear_table(variable: int, weights: FloatArray) -> Table:
    """Return weights * x_v, with one weight for each objective."""
    reach = int(np.abs(weights).max(initial=0))
    values = np.stack([weights, -weights]).astype(float_type(reach))
    return Table((variable,), values, reach)


def _table(variables: tuple[int, ...], signs: npt.NDArray[np.int8], weights: FloatArray) -> Table:
    """Return the weighted sum of neurons; one that may have either sign takes the worse one."""
    size = np.abs(weights)
    reach = int(size.sum(axis=0).max(initial=0))
    kind = float_type(reach)
    values = signs.astype(kind) @ weights.astype(kind)
    either = signs == 0
    if either.any():
        values -= either.astype(kind) @ size.astype(kind)
    return Table(variables, values.reshape((*(2,) * len(variables), weights.shape[1])), reach)


def last_layer_sizes(presolved: Presolved) -> IntArray:
    """Return how many variables each unstable neuron of the last layer reads."""
    rows = presolved.layers[-1].rows[presolved.bounds[-1].unstable]
    return np.asarray(np.diff(rows.indptr), dtype=np.int64)


def last_layer_scopes(presolved: Presolved) -> list[tuple[int, ...]]:
    """Return the scopes of the last layer's tables without computing any table."""
    rows = presolved.layers[-1].rows[presolved.bounds[-1].unstable]
    fits = np.flatnonzero(np.diff(rows.indptr) <= MOST_INPUTS).tolist()
    scopes = {tuple(rows.indices[rows.indptr[j] : rows.indptr[j + 1]].tolist()) for j in fits}
    return sorted(scopes)


def build_factors(presolved: Presolved, deadline: Deadline) -> Factors:
    """Return the functions of few variables that a presolved network consists of.

    Raises OutOfTimeError if the deadline passes.
    """
    layer = presolved.layers[-1]
    state = layer.bounds.state
    unstable = np.flatnonzero(state == 0)
    equal = unstable[layer.variable[unstable] >= 0]
    rest = unstable[layer.variable[unstable] < 0]
    groups, loose = _groups(presolved, rest, deadline)
    used = {v for group in groups for v in group.variables}
    used.update(layer.variable[equal].tolist())
    gates = _gates(presolved, used)
    pairs = np.stack([presolved.pairs.first, presolved.pairs.second], axis=1)
    used.update(v for gate in gates for v in gate.variables)
    places = np.array(sorted(used), dtype=np.int64)
    kept = np.isin(variable_of(pairs), places).all(axis=1)
    return Factors(
        fixed=state.astype(np.int64),
        groups=groups,
        gates=gates,
        equal=equal,
        equal_to=layer.variable[equal],
        equal_sign=layer.sign[equal].astype(np.int64),
        loose=loose,
        pairs=tuple(pairs[kept]),
    )


def _groups(
    presolved: Presolved, neurons: IntArray, deadline: Deadline
) -> tuple[tuple[FactorGroup, ...], IntArray]:
    """Group last-layer neurons by their variables; also return the neurons without a table."""
    if not neurons.size:
        return (), neurons
    layer, thresholds = presolved.layers[-1], presolved.network.layers[-1]
    rows = layer.rows[neurons]
    plus = (thresholds.plus_from - layer.shift)[neurons]
    minus = (thresholds.minus_upto - layer.shift)[neurons]
    sets: dict[tuple[int, ...], list[int]] = {}
    loose, entries = [], 0
    for j in range(neurons.size):
        scope = tuple(rows.indices[rows.indptr[j] : rows.indptr[j + 1]].tolist())
        entries += 2 ** min(len(scope), 62)
        if len(scope) > MOST_INPUTS or entries > MOST_ENTRIES:
            entries -= 2 ** min(len(scope), 62)
            loose.append(j)
        else:
            sets.setdefault(scope, []).append(j)
    groups = []
    for scope, own in sets.items():
        part = np.stack([rows.data[rows.indptr[j] : rows.indptr[j + 1]] for j in own])
        patterns = sign_patterns(len(scope)).astype(np.float64)
        signs = np.empty((patterns.shape[0], len(own)), dtype=np.int8)
        width = max(1, BLOCK // patterns.shape[0])
        for start in range(0, len(own), width):
            deadline.check()
            block = slice(start, start + width)
            sums = patterns @ part[block].T.astype(np.float64)
            may_be_plus, may_be_minus = sums >= plus[own[block]], sums <= minus[own[block]]
            signs[:, block] = may_be_plus.astype(np.int8) - may_be_minus
        groups.append(FactorGroup(scope, neurons[own], signs))
    return tuple(groups), neurons[loose]


def _gates(presolved: Presolved, used: set[int]) -> tuple[Gate, ...]:
    """Return the gates of used variables, without those that read too many for a table."""
    gates = []
    waiting = sorted(v for v in used if presolved.owner_layer[v] > 0)
    seen = set(waiting)
    while waiting:
        gate = gate_of(presolved, waiting.pop(), MOST_INPUTS)
        if gate is None:
            continue
        gates.append(gate)
        for u in gate.variables[:-1]:
            if presolved.owner_layer[u] > 0 and u not in seen:
                seen.add(u)
                waiting.append(u)
    return tuple(gates)


def gate_of(presolved: Presolved, v: int, most: int) -> Gate | None:
    """Return the gate of a variable above the first layer; None if it reads more than `most`."""
    number, neuron = int(presolved.owner_layer[v]), int(presolved.owner[v])
    layer, thresholds = presolved.layers[number], presolved.network.layers[number]
    own = slice(layer.rows.indptr[neuron], layer.rows.indptr[neuron + 1])
    scope = tuple(layer.rows.indices[own].tolist())
    if len(scope) > most:
        return None
    sums = sign_patterns(len(scope)).astype(np.float64) @ layer.rows.data[own].astype(np.float64)
    shift = layer.shift[neuron]
    possible = np.stack(
        [
            sums >= thresholds.plus_from[neuron] - shift,
            sums <= thresholds.minus_upto[neuron] - shift,
        ],
        axis=1,
    )
    return Gate((*scope, v), possible)
