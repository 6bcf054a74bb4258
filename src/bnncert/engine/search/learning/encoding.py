r"""A presolved network, its targets and the region as rows and clauses of the solver.

The variables are the signs of the unstable neurons of all layers, and a *goal* for each target.  A
neuron x of a later layer may be +1 iff w.y >= p and -1 iff w.y <= q, which are two rows:

    x = +1  implies  w.y >= p,          x = -1  implies  -w.y >= -q.

With w.y = sum |w_i| (2 [l_i] - 1) over literals l_i, the first is sum |w_i| [l_i] >= (p + W) / 2
unless the head "x = -1" holds, W = sum |w_i|.  A goal implies that every objective f of its target
may be violated, a row over the last layer's signs, and one clause says that some goal holds.

The region: levels of one input (x_i >= s implies x_i >= t for t < s) and conflicting pairs are
clauses of two literals, the budget of a ball is one row, and whatever else the region excludes is
learned from patterns that no input has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import literal, sign_of, variable_of
from bnncert.engine.presolve.pairs import conflicting_pairs
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.presolve.stability import first_layer_thresholds
from bnncert.engine.search.learning.solver_state import NONE, Rows
from bnncert.engine.search.patterns.flips import UNITS, flip_budget
from bnncert.engine.search.trace import LearnedClause
from bnncert.problem import Objective, Target
from bnncert.regions import Region

#: Coefficients of a row that sum up to more are rounded.
MOST_SUM = 2**30

#: Unstable first-layer neurons, and products of their weights, up to which all pairs are tested.
MOST_PAIRED, MOST_PRODUCTS = 400, 3e7


@dataclass(frozen=True, eq=False)
class Encoding:
    """The rows and clauses of a question."""

    #: The layer and the neuron of each variable; goals follow.
    layer: IntArray
    neuron: IntArray
    goals: int
    rows: Rows
    #: Signs of first-layer neurons that exclude each other, as literals of variables and as a
    #: record for a certificate.
    excluded: list[tuple[IntArray, LearnedClause]]
    #: Whether the objectives are exact, so that all signs that satisfy the rows violate a target.
    exact: bool

    @property
    def variables(self) -> int:
        """The number of signs and goals."""
        return int(self.layer.size) + self.goals

    @property
    def inputs(self) -> int:
        """The number of first-layer variables, which come first."""
        return int(np.count_nonzero(self.layer == 0))


def encode(
    presolved: Presolved, targets: Sequence[Target], region: Region, deadline: Deadline
) -> Encoding:
    """Return the rows and clauses of a presolved network without merged neurons."""
    network, depth = presolved.network, presolved.network.depth
    layers, neurons, parts = [presolved.owner_layer], [presolved.owner], []
    size = int(presolved.owner.size)
    for number in range(1, depth):
        deadline.check()
        if number < depth - 1:
            outputs = np.flatnonzero(presolved.owner_layer == number)
            own = presolved.owner[outputs]
        else:
            own = presolved.bounds[-1].unstable[_matters(presolved, targets)]
            outputs = size + np.arange(own.size)
            layers.append(np.full(own.size, number, dtype=np.int64))
            neurons.append(own)
            size += own.size
        parts.extend(_gates(presolved, number, own, outputs))
    layer, neuron = np.concatenate(layers), np.concatenate(neurons)
    place = np.full(network.layers[-1].size, -1, dtype=np.int64)
    last = np.flatnonzero(layer == depth - 1)
    place[neuron[last]] = last
    exact = True
    for k, target in enumerate(targets):
        for objective in target.objectives:
            row, is_exact = _goal(presolved, objective, place, size + k)
            parts.append(row)
            exact = exact and is_exact
    own = presolved.owner[presolved.owner_layer == 0]
    budget = flip_budget(network.layers[0], own, region)
    excluded: list[tuple[IntArray, LearnedClause]] = []
    if budget is not None:
        # A coarser unit, and no cost far above the budget, so that the sum is small enough.
        unit = max(1, -(-2 * own.size * UNITS // MOST_SUM))
        cost = np.minimum(budget.cost.astype(np.int64), UNITS + unit) // unit
        home = literal(np.arange(own.size), budget.home)
        parts.append(_row(NONE, home, cost, int(cost.sum()) - UNITS // unit))
    else:
        excluded = _pairs(presolved, region, own, deadline)
    return Encoding(layer, neuron, len(targets), _joined(parts), excluded, exact)


def _matters(presolved: Presolved, targets: Sequence[Target]) -> BoolArray:
    """Return which unstable neurons of the last layer an objective reads."""
    used = np.zeros(presolved.network.layers[-1].size, dtype=bool)
    for target in targets:
        for objective in target.objectives:
            used |= objective.coefficients != 0
    return np.asarray(used[presolved.bounds[-1].unstable])


def _row(head: int, literals: IntArray, sizes: IntArray, limit: int) -> Rows:
    """Return one row without coefficients 0, or none if it always holds."""
    kept = (sizes > 0) & (limit > 0)
    start = np.array([0, np.count_nonzero(kept)] if limit > 0 else [0], dtype=np.int64)
    heads, limits = (np.full(start.size - 1, value, dtype=np.int64) for value in (head, limit))
    return heads, start, literals[kept], sizes[kept], limits


def _joined(parts: list[Rows]) -> Rows:
    """Return the rows of all parts, one after the other."""
    counts = [np.diff(part[1]) for part in parts]
    none = np.zeros(0, dtype=np.int64)
    heads, literals, sizes, limits = (
        np.concatenate([none, *(part[k] for part in parts)]) for k in (0, 2, 3, 4)
    )
    start = np.concatenate([[0], np.cumsum(np.concatenate([none, *counts]))])
    return heads, start, literals, sizes, limits


def _gates(presolved: Presolved, number: int, neurons: IntArray, outputs: IntArray) -> list[Rows]:
    """Return the two rows of every neuron of a later layer."""
    layer, made = presolved.network.layers[number], presolved.layers[number]
    rows, shift = made.rows[neurons], made.shift[neurons]
    start, weight = rows.indptr.astype(np.int64), rows.data.astype(np.int64)
    sums = np.zeros(neurons.size, dtype=np.int64)
    owner = np.repeat(np.arange(neurons.size), np.diff(start))
    np.add.at(sums, owner, np.abs(weight))
    found = []
    for sign, bound in ((1, layer.plus_from), (-1, -layer.minus_upto)):
        least = bound[neurons].astype(np.int64) - sign * shift.astype(np.int64)
        limit = -((-least - sums) // 2)
        needed = limit > 0
        kept, counts = needed[owner], np.diff(start)[needed]
        literals = literal(rows.indices[kept].astype(np.int64), sign * weight[kept])
        begin = np.concatenate([[0], np.cumsum(counts)])
        heads = literal(outputs[needed], -sign)
        found.append((heads, begin, literals, np.abs(weight[kept]), limit[needed]))
    return found


def _goal(
    presolved: Presolved, objective: Objective, place: IntArray, goal: int
) -> tuple[Rows, bool]:
    """Return the row "the goal implies that f may be violated", and whether it is exact.

    f = c.x + c0 may be violated iff c.x + c0 - error <= 0 (< 0 if ties are fine).
    """
    state = presolved.bounds[-1].state.astype(np.int64)
    used = np.flatnonzero((place >= 0) & (objective.coefficients != 0))
    rest = np.array(objective.coefficients)
    rest[used] = 0.0
    fixed = np.flatnonzero(rest)
    constant = Fraction(objective.constant) + objective.remainder - objective.exact_error
    numbers, unit = _integers(rest[fixed])
    signed = sum(n * s for n, s in zip(numbers, state[fixed].tolist(), strict=True))
    constant += Fraction(signed, unit)
    numbers, scale = _integers(objective.coefficients[used])
    total = sum(map(abs, numbers))
    exact = total < MOST_SUM
    factor = Fraction(scale) if exact else Fraction(MOST_SUM * scale, 2 * total)
    units = numbers if exact else [round(n * factor / scale) for n in numbers]
    whole = np.array(units, dtype=np.int64)
    # Rounding changes the sum by at most half a unit for each coefficient.
    lost = Fraction(0) if exact else Fraction(used.size, 2)
    most = -constant * factor + lost
    limit = math.floor(most)
    if objective.tie_is_fine and exact and limit == most:
        limit -= 1
    # -c.x >= -limit over literals: sum |c| [l] >= (sum |c| - limit) / 2.
    sizes = np.abs(whole)
    least = min(-((limit - int(sizes.sum())) // 2), int(sizes.sum()) + 1)
    row = _row(2 * goal + 1, literal(place[used], -whole), sizes, least)
    return row, exact and not objective.exact_error


def _integers(values: FloatArray) -> tuple[list[int], int]:
    """Return integers and their common denominator, a power of two: exactly the given floats."""
    ratios = [value.as_integer_ratio() for value in values.tolist()]
    unit = max((denominator for _, denominator in ratios), default=1)
    return [numerator * (unit // denominator) for numerator, denominator in ratios], unit


def _pairs(
    presolved: Presolved, region: Region, neurons: IntArray, deadline: Deadline
) -> list[tuple[IntArray, LearnedClause]]:
    """Return pairs of first-layer signs that exclude each other."""
    layer = presolved.network.layers[0]
    rows = layer.weights[neurons].astype(np.float64)
    counts = np.diff(rows.indptr)
    if np.unique(rows.indices).size == rows.indices.size and region.is_box:
        return []
    if np.all(counts == 1):
        return _levels(presolved, region, neurons, rows.indices.astype(np.int64), rows.data)
    if neurons.size > MOST_PAIRED or neurons.size**2 * counts.mean() > MOST_PRODUCTS:
        return []
    plus, minus = first_layer_thresholds(layer, region, neurons)
    pairs = conflicting_pairs(region, layer.weights[neurons], plus, minus, deadline)
    found: list[tuple[IntArray, LearnedClause]] = []
    for a, b, theta in zip(pairs.first, pairs.second, pairs.theta, strict=True):
        both = np.array([a, b], dtype=np.int64)
        proof = np.array([theta, 1 - theta]) if np.isfinite(theta) else None
        found.append((both, (neurons[variable_of(both)], sign_of(both), proof)))
    return found


def _levels(
    presolved: Presolved, region: Region, neurons: IntArray, inputs: IntArray, weights: FloatArray
) -> list[tuple[IntArray, LearnedClause]]:
    """Return the levels of each input, in order: what is above one is above those below."""
    plus, minus = first_layer_thresholds(presolved.network.layers[0], region, neurons)
    # w x >= p for +1, w x <= q for -1: an interval of x in which both signs may occur.
    low = np.where(weights > 0, plus, -minus) / np.abs(weights)
    high = np.where(weights > 0, minus, -plus) / np.abs(weights)
    up = np.where(weights > 0, 1, -1)
    order = np.lexsort((low, inputs))
    found = []
    for a, b in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
        # Division is exact only for powers of two; other weights leave a margin.
        gap = 1e-12 * (abs(low[b]) + abs(high[a]))
        if inputs[a] == inputs[b] and low[b] - high[a] > gap:
            both = np.array([a, b])
            signs = np.array([-up[a], up[b]], dtype=np.int8)
            theta = 1.0 / np.abs(weights[both])
            found.append((literal(both, signs), (neurons[both], signs, theta)))
    return found
