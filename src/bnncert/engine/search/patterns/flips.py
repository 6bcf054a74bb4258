r"""Balls as budgets: the cost of changing the sign of a first-layer neuron.

In an L0, L1 or L2 ball around c, first-layer neurons that read disjoint inputs share the radius as
a budget.  Let g_j = |w_j.c + b_j| be the distance of neuron j from its threshold at c.  Changing
its sign costs at least

    L1:  g_j / max_i |w_ji|  of the radius r,          L2:  g_j^2 / |w_j|_2^2  of r^2,
    L0:  the number of changes, largest first, that reach the threshold, of at most k changes,

and for disjoint inputs these costs add up.  On a grid, a neuron that reads one input needs the
first grid value with the other sign.  A pattern is possible only if the sum of the costs of its
flips is within the budget, and a sum in the next layer changes by at most the effect of the
cheapest flips.

Costs are rounded down to multiples of 2^-20 of the budget: their sums are exact in float32, and
rounding can only allow more patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bnncert.arrays import Float32Array, FloatArray, IntArray, SignArray
from bnncert.engine.search.patterns.circuit import Circuit, Level
from bnncert.engine.search.patterns.interval_propagation import Sums
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.regions import Region

#: The budget in units of cost.
UNITS = 2**20

#: The largest number of classes of costs; the cost of a class is that of its cheapest flip.
MOST_CLASSES = 10

#: Relative margin for the rounding errors of a computed cost.
ROOM = 1e-9


@dataclass(frozen=True, eq=False)
class FlipBudget:
    """The costs of flips; the budget is `UNITS`."""

    #: The sign of each first-layer variable at the centre.
    home: SignArray
    #: The integer cost of the other sign.
    cost: Float32Array

    @cached_property
    def classes(self) -> list[tuple[float, IntArray]]:
        """Groups of variables with their least cost, cheapest first."""
        values = np.unique(self.cost)
        if values.size > MOST_CLASSES:
            places = np.linspace(0, values.size, MOST_CLASSES, endpoint=False).astype(np.int64)
            values = values[places]
        group = np.searchsorted(values, self.cost, side="right") - 1
        return [(float(v), np.flatnonzero(group == k)) for k, v in enumerate(values)]

    def spent(self, nodes: SignArray) -> Float32Array:
        """Return the cost of the flips that each node has made."""
        return np.asarray((nodes == -self.home).astype(np.float32) @ self.cost)

    def restrict(self, nodes: SignArray) -> tuple[SignArray, Float32Array]:
        """Fix the signs whose flip exceeds the budget; also return the rest of the budget."""
        left = UNITS - self.spent(nodes)
        beyond = (nodes == 0) & (self.cost > left[:, None])
        return np.where(beyond, self.home, nodes), left

    def most_flips(self, nodes: SignArray, left: Float32Array) -> IntArray:
        """Return an upper bound of the number of further flips in each node."""
        count = np.zeros(nodes.shape[0], dtype=np.float32)
        rest = left.copy()
        for cost, members in self.classes:
            open_ = np.count_nonzero(nodes[:, members] == 0, axis=1).astype(np.float32)
            taken = open_ if cost == 0 else np.minimum(open_, np.floor(rest / cost))
            count += taken
            rest -= taken * np.float32(cost)
        return count.astype(np.int64)


class BudgetedSums:
    """Bounds of the sums of one level that respect the budget."""

    def __init__(self, budget: FlipBudget, level: Level) -> None:
        self.budget, self.level = budget, level
        home = budget.home[level.inputs].astype(np.float32)
        #: The change of each sum by a flip of each variable.
        self._gains = np.asarray(-2 * home * level.rows, dtype=np.float32)
        place = np.full(budget.home.size, -1, dtype=np.int64)
        place[level.inputs] = np.arange(level.inputs.size)
        #: For each class of costs: its variables, and which of them raise or lower each sum.
        self._classes: list[tuple[float, IntArray, Float32Array, Float32Array]] = []
        for cost, members in budget.classes:
            members = members[place[members] >= 0]
            gains = self._gains[:, place[members]]
            up, down = (gains > 0).astype(np.float32), (gains < 0).astype(np.float32)
            self._classes.append((cost, members, up.T.copy(), down.T.copy()))

    def sums(self, nodes: SignArray, left: Float32Array) -> Sums:
        """Return bounds of the sums, given nodes and the rest of their budget."""
        made = (nodes == -self.budget.home)[:, self.level.inputs].astype(np.float32)
        home = self.level.rows @ self.budget.home[self.level.inputs].astype(np.float32)
        base = made @ self._gains.T + home
        open_ = (nodes == 0).astype(np.float32)
        largest = np.abs(self._gains).max(axis=1, initial=0.0)
        shape = base.shape
        up, down = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        rest_up = np.repeat(left[:, None], shape[1], axis=1)
        rest_down = rest_up.copy()
        for cost, members, raises, lowers in self._classes:
            free = open_[:, members]
            for helps, total, rest in ((raises, up, rest_up), (lowers, down, rest_down)):
                count = free @ helps
                if cost:
                    np.minimum(count, np.floor(rest / np.float32(cost)), out=count)
                    rest -= count * np.float32(cost)
                total += count
        below = open_[:, self.level.inputs]
        # For weights of different sizes, the effect of all helpful flips is another bound.
        if not self._uniform:
            np.minimum(up * largest, below @ np.maximum(self._gains, 0).T, out=up)
            np.minimum(down * largest, below @ np.maximum(-self._gains, 0).T, out=down)
            return Sums(base - down, base + up)
        return Sums(base - down * largest, base + up * largest)

    @cached_property
    def _uniform(self) -> bool:
        """Whether all non-zero weights of a row have the same size."""
        sizes = self.level.sizes
        return bool(np.all((sizes == 0) | (sizes == sizes.max(axis=1, keepdims=True, initial=0))))


def flip_budget(layer: ThresholdLayer, neurons: IntArray, region: Region) -> FlipBudget | None:
    """Return the budget of an L0, L1 or L2 ball over neurons with disjoint inputs, else None."""
    if region.norm not in ("l0", "l1", "l2") or not neurons.size:
        return None
    rows = layer.weights[neurons].astype(np.float64)
    if np.unique(rows.indices).size != rows.indices.size:
        return None
    if region.norm == "l0":
        home, gap = _gaps(layer, neurons, region.middle)
        share = _changes(rows, home, gap, region) / max(region.radius, 1)
    elif region.radius <= 0:
        return None
    else:
        home, gap = _gaps(layer, neurons, region.middle)
        share = _shares(layer, neurons, region, home, gap)
    cost = np.floor(np.minimum(share * (1 - ROOM), 2.0) * UNITS)
    return FlipBudget(home, cost.astype(np.float32))


def _changes(rows: Any, home: SignArray, gap: FloatArray, region: Region) -> FloatArray:
    """Return how many inputs have to change for the other sign; inf if no change is enough.

    The inputs that move a neuron most towards its threshold change first.
    """
    count = np.zeros(gap.size)
    for j in np.flatnonzero(gap > 0).tolist():
        inputs = rows.indices[rows.indptr[j] : rows.indptr[j + 1]]
        push = -home[j] * rows.data[rows.indptr[j] : rows.indptr[j + 1]]
        up, down = (side[inputs] - region.middle[inputs] for side in (region.hi, region.lo))
        gains = np.sort(np.maximum(push * up, push * down))[::-1]
        reached = np.flatnonzero(np.cumsum(gains) * (1 + ROOM) >= gap[j])
        count[j] = reached[0] + 1 if reached.size else np.inf
    return count


def _shares(
    layer: ThresholdLayer, neurons: IntArray, region: Region, home: SignArray, gap: FloatArray
) -> FloatArray:
    """Return lower bounds of the shares of the budget that flips cost, in an L1 or L2 ball."""
    rows = layer.weights[neurons].astype(np.float64)
    counts = np.diff(rows.indptr)
    owner = np.repeat(np.arange(neurons.size), counts)
    if region.norm == "l1":
        largest = np.zeros(neurons.size)
        np.maximum.at(largest, owner, np.abs(rows.data))
        distance = gap / np.maximum(largest, 1e-300)
    else:
        square = np.zeros(neurons.size)
        np.add.at(square, owner, rows.data**2)
        distance = gap / np.sqrt(np.maximum(square, 1e-300))
    if region.values is not None:
        distance = np.maximum(distance, _distances_on_grid(layer, neurons, region, home, distance))
    return np.asarray((distance / region.radius) ** (1 if region.norm == "l1" else 2))


def _gaps(
    layer: ThresholdLayer, neurons: IntArray, center: FloatArray
) -> tuple[SignArray, FloatArray]:
    """Return the sign of each neuron at the centre and a lower bound of its distance to flip."""
    assert layer.bias_lo is not None and layer.bias_hi is not None
    rows = layer.weights[neurons].astype(np.float64)
    value = np.asarray(rows @ center)
    low, high = value + layer.bias_lo[neurons], value + layer.bias_hi[neurons]
    size = np.asarray(abs(rows) @ np.abs(center)) + np.abs(layer.bias_hi[neurons])
    error = 2 * (np.diff(rows.indptr) + 4) * ROUNDOFF * size + 1e-300
    home = np.where(low + high >= 0, 1, -1).astype(np.int8)
    gap = np.where(home > 0, low, -high) - error
    return home, np.maximum(gap, 0.0)


def _distances_on_grid(
    layer: ThresholdLayer, neurons: IntArray, region: Region, home: SignArray, distance: FloatArray
) -> FloatArray:
    """Return the distance of the first grid value with the other sign, for neurons of one input.

    It is infinity if there is no such value, and 0 for other neurons; `distance` is a lower bound.
    """
    values, rows = region.values, layer.weights[neurons].astype(np.float64)
    assert values is not None
    alone = np.flatnonzero(np.diff(rows.indptr) == 1)
    chosen, start = neurons[alone], rows.indptr[alone]
    columns = rows.indices[start]
    # The direction in which the input has to change.
    way = -home[alone] * np.sign(rows.data[start])
    point = np.array(region.middle)
    # Rounded towards the centre.
    point[columns] += way * distance[alone] * (1 - ROOM)
    up = np.zeros(region.size, dtype=bool)
    up[columns] = way > 0
    places = np.where(up, values.first_from(point), values.last_until(point))
    for _ in range(2):
        point[columns] = values.at(places)[columns]
        same = layer.exact_signs(point)[chosen] == home[alone]
        places[columns] += np.where(same, way, 0)
    found = values.at(places)[columns]
    inside = (region.lo[columns] <= found) & (found <= region.hi[columns])
    away = np.where(inside, np.abs(found - region.middle[columns]), np.inf)
    made = np.zeros(neurons.size)
    # If the centre itself may have the other sign, the bound is 0.
    made[alone] = np.where(distance[alone] > 0, away, 0.0)
    return made


def fits_level(circuit: Circuit, level: Level) -> bool:
    """Whether all inputs of a level are first-layer variables: then the budget bounds its sums."""
    return bool(np.all(level.inputs < circuit.inputs))
