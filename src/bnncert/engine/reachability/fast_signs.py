r"""Fast feasibility checks in floating point, with checked answers.

Maximising the smallest margin is a linear program (a cone program for the L2 ball).  The answer of
the solver is not trusted: the caller evaluates the signs at a point in exact arithmetic, and the
Farkas multipliers of a conflict are checked here, rounding errors included.

The *elastic* linear program finds a point of the region that is as near as possible to having
wanted first-layer signs.  It has a slack e_j with a price p_j for every neuron j:

    min sum_j p_j e_j   s.t.   s_j (w_j.x + b_j) / |w_j|_2 + e_j >= margin,   e >= 0,   x in B.

If the pattern occurs with this margin, all slacks are zero.  Otherwise neurons with a low price
have slacks, and the multipliers are often Farkas multipliers of several conflicts at once.  The
program is built once: another pattern only changes the bounds of its rows.

These multipliers prove several conflicts at once, because neurons without common inputs are
independent.  Each connected set of neurons is solved again on its own as long as it contains
conflicts, which then have few neurons.

A check without a solver takes the nearest point that has wanted signs.  A ball of radius r around c
(an L2 ball or a box, with the data box) has a point with given signs if the nearest one to c is
inside.  That is a least-squares problem whose dual has one multiplier for each sign, and a compiled
loop solves it in a fraction of a millisecond.  If the dual value exceeds r^2 / 2, no point has
these signs: for every x = c + r t of the region

    v.t  <=  max over the box of (v.t - |t|^2 / 2) + |t|^2 / 2,       v = sum theta_j s_j a_j,

so the multipliers theta are Farkas multipliers of a conflict.  They are checked like those of any
solver, rounding errors included.  What a few sweeps leave undecided is left to a solver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import cone_guide
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.engine.reachability.searched_signs import MOST_SHRUNK
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region
from bnncert.regions.linear_program import HighsModel, InputBlock, LinearProgram, input_block


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """(w_j.x + b_j) / length_j = matrix_j.v + constant_j for the variables v of the region."""

    block: InputBlock
    matrix: Any
    constant: FloatArray
    length: FloatArray

    @classmethod
    def of(cls, layer: ThresholdLayer, neurons: IntArray, region: Region) -> ScaledRows:
        """Return the rows of some neurons; a length is |w_j|_2 times the size of the region."""
        rows = layer.weights[neurons].astype(np.float64)
        block = input_block(region, np.unique(rows.indices).astype(np.int64))
        part = rows[:, block.index]
        norm = np.sqrt(np.asarray((part * part).sum(axis=1)).reshape(-1))
        scale = float(np.abs(block.spread.data).max(initial=0.0)) or 1.0
        # A neuron without weights has the sign of its bias: any positive scale is valid.
        length = np.where(norm > 0, norm, 1.0) * scale
        scaled = sp.diags_array(1.0 / length) @ part
        constant = scaled @ block.base + layer.bias[neurons] / length
        return cls(block, sp.csr_array(scaled @ block.spread), constant, length)

    def program(
        self, matrix: Any, more: Any, row_lower: FloatArray, cost: FloatArray, bounds: FloatArray
    ) -> HighsModel:
        """Return  min cost.e  s.t.  matrix v + more e >= row_lower,  bounds[0] <= e <= bounds[1].

        The variables v are those of the region; `matrix` is that of the rows or a multiple of it.
        """
        block, (count, extra) = self.block, more.shape
        right = block.right.size
        nothing = sp.csr_array((right, extra))
        program = LinearProgram(
            cost=np.concatenate([np.zeros(block.size), cost]),
            matrix=sp.vstack([sp.hstack([matrix, more]), sp.hstack([block.rows, nothing])]).tocsr(),
            row_lower=np.concatenate([row_lower, np.full(right, -np.inf)]),
            row_upper=np.concatenate([np.full(count, np.inf), block.right]),
            lower=np.concatenate([block.lower, bounds[0]]),
            upper=np.concatenate([block.upper, bounds[1]]),
            integer=np.zeros(block.size + extra, dtype=bool),
        )
        return HighsModel(program, {"threads": 1})

    def point(self, values: FloatArray, region: Region) -> FloatArray:
        """Return the input for values of the variables; other inputs are those of the centre."""
        point = np.array(region.center)
        point[self.block.index] = self.block.base + self.block.spread @ values
        return point


def fast_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Look for a point of the region with the pattern, or for a conflict, in floating point."""
    if region.norm == "l2":
        if region.radius == 0:
            return Feasibility()
        guide = cone_guide(pattern, region, deadline)
    else:
        guide = MarginProgram(pattern, region).solve(deadline)
    if guide is None:
        return Feasibility()
    point, multipliers = guide
    return find_conflict(pattern, multipliers, region) or Feasibility(point=point)


class MarginProgram:
    """Maximise t with s_j (w_j.x + b_j) >= t |w_j|_2 over the region, for parts of a pattern.

    The program is built once; another part of the pattern only changes the bounds of its rows.
    """

    def __init__(self, pattern: SignPattern, region: Region) -> None:
        self._pattern, self._region = pattern, region
        self._rows = rows = ScaledRows.of(pattern.layer, pattern.neurons, region)
        signed = sp.diags_array(pattern.signs.astype(np.float64)) @ rows.matrix
        moved = pattern.guiding_bias(region) - pattern.layer.bias[pattern.neurons]
        self._lower = -pattern.signs * (rows.constant + moved / rows.length)
        big = 4.0 * rows.block.size + 4.0
        self._program = rows.program(
            signed,
            sp.csr_array(-np.ones((pattern.neurons.size, 1))),
            self._lower,
            np.array([-1.0]),
            np.array([[-big], [big]]),
        )

    def solve(
        self, deadline: Deadline, places: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return the point of largest margin and the multipliers of the pattern, or of a part.

        The result is None if the deadline has passed.
        """
        count = self._pattern.neurons.size
        kept = np.arange(count) if places is None else places
        if places is not None:
            lower = np.full(count, -np.inf)
            lower[kept] = self._lower[kept]
            self._program.set_row_bounds(lower, np.full(count, np.inf))
        answer = self._program.solve(deadline)
        if answer.point is None or answer.multipliers is None:
            return None
        multipliers = np.maximum(answer.multipliers[:count], 0.0) / self._rows.length
        return self._rows.point(answer.point[:-1], self._region), multipliers[kept]


#: The wanted distance from the threshold, as a share of the largest half-width of the region: far
#: above the errors of a solver, and so small that it excludes few points.
MARGIN = 1e-4


@dataclass(frozen=True, eq=False)
class ElasticPoint:
    """A point inside the region, and a multiplier >= 0 for each neuron."""

    point: FloatArray
    multipliers: FloatArray


class ElasticProgram:
    """The elastic program of some neurons of the first layer.

    An L2 ball is represented by the box around it, and points are projected back.
    """

    def __init__(self, layer: ThresholdLayer, neurons: IntArray, region: Region) -> None:
        self.neurons, self._region = neurons, region
        self._rows = rows = ScaledRows.of(layer, neurons, region)
        count = neurons.size
        eye = sp.identity(count, format="csr")
        bounds = np.outer([0.0, np.inf], np.ones(2 * count))
        self._program = rows.program(
            rows.matrix, sp.hstack([eye, -eye]), np.full(count, -np.inf), np.ones(2 * count), bounds
        )

    def solve(
        self, signs: SignArray, prices: FloatArray | None, deadline: Deadline
    ) -> ElasticPoint | None:
        """Return the best point for a pattern, or None if the deadline has passed.

        Parameters
        ----------
        prices
            The cost of a unit of slack of each neuron; None for 1.
        """
        count, block = self.neurons.size, self._rows.block
        wanted = signs > 0
        self._program.set_row_bounds(
            np.where(wanted, MARGIN - self._rows.constant, -np.inf),
            np.where(wanted, np.inf, -MARGIN - self._rows.constant),
        )
        price = np.ones(count) if prices is None else prices / max(prices.max(initial=0.0), 1e-300)
        self._program.set_cost(np.concatenate([np.zeros(block.size), price, price]), 0.0)
        answer = self._program.solve(deadline)
        if answer.point is None or answer.multipliers is None:
            return None
        point = self._rows.point(answer.point[: block.size], self._region)
        multipliers = np.maximum(signs * answer.multipliers[:count], 0.0) / self._rows.length
        return ElasticPoint(self._region.project(point[None, :])[0], multipliers)


def disjoint_conflicts(
    pattern: SignPattern, multipliers: FloatArray, region: Region, deadline: Deadline
) -> Iterator[Feasibility]:
    """Yield conflicts without common neurons, each with multipliers that prove it."""
    used = np.flatnonzero(multipliers > 1e-9 * multipliers.max(initial=0.0))
    for part in _connected(pattern, used):
        connected = _ConnectedPart(pattern.part(part), region)
        left = np.arange(part.size)
        while left.size and not deadline.passed():
            found = connected.conflict(left, deadline)
            if found is None:
                break
            small = connected.shrunk(found, deadline)
            assert small.conflict is not None
            yield _moved(small, part)
            left = np.setdiff1d(left, small.conflict)


class _ConnectedPart:
    """The conflicts of a part of a pattern; its linear program is built once."""

    def __init__(self, pattern: SignPattern, region: Region) -> None:
        self._pattern, self._region = pattern, region
        self._program = None if region.norm == "l2" else MarginProgram(pattern, region)

    def conflict(self, places: IntArray, deadline: Deadline) -> Feasibility | None:
        """Return a conflict among some neurons, or None if none is found."""
        part = self._pattern.part(places)
        found: Feasibility | None
        if self._program is None:
            found = fast_feasibility(part, self._region, deadline)
        else:
            guide = self._program.solve(deadline, places)
            found = None if guide is None else find_conflict(part, guide[1], self._region)
        return None if found is None or found.conflict is None else _moved(found, places)

    def shrunk(self, found: Feasibility, deadline: Deadline) -> Feasibility:
        """Leave out neurons one at a time, if the others still conflict."""
        assert found.conflict is not None
        kept: IntArray = found.conflict
        if kept.size > MOST_SHRUNK:
            return found
        for place in found.conflict.tolist():
            if kept.size <= 2 or place not in kept or deadline.passed():
                continue
            smaller = self.conflict(kept[kept != place], deadline)
            if smaller is not None and smaller.conflict is not None:
                found, kept = smaller, smaller.conflict
        return found


def _moved(found: Feasibility, places: IntArray) -> Feasibility:
    """Return a conflict of a part of the pattern with its places in the whole pattern."""
    assert found.conflict is not None
    return Feasibility(conflict=places[found.conflict], multipliers=found.multipliers)


def _connected(pattern: SignPattern, used: IntArray) -> Iterator[IntArray]:
    """Yield the sets of neurons that are connected by common inputs."""
    if not used.size:
        return
    rows = sp.csr_array(pattern.layer.weights[pattern.neurons[used]] != 0).astype(np.int64)
    count, label = connected_components(rows @ rows.T, directed=False)
    for k in range(count):
        yield used[label == k]


#: The wanted distance from every threshold, relative to the size of the region: far above rounding
#: errors, and so small that it excludes few points.
NEAREST_MARGIN = 1e-3

#: Sweeps over all signs; most patterns need fewer than ten.
SWEEPS = 60

#: The largest number of weights: they are a dense matrix.
MOST_WEIGHTS = 4_000_000


class NearestPoints(NamedTuple):
    """Some neurons of the first layer over a region, in coordinates x = middle + radius t."""

    region: Region
    middle: FloatArray
    radius: float
    #: The largest |t| of the region.
    reach: float
    #: Rows of length 1, their constants, and the lengths in the units of x.
    rows: FloatArray
    constants: FloatArray
    lengths: FloatArray

    @staticmethod
    def of(layer: ThresholdLayer, neurons: IntArray, region: Region) -> NearestPoints | None:
        """Return the neurons in these coordinates; None for other regions, or too many weights."""
        is_ball = region.norm == "l2"
        if region.values is not None or region.norm not in (None, "linf", "l2"):
            return None
        if region.inequalities[1].size or neurons.size * region.size > MOST_WEIGHTS:
            return None
        middle = np.array(region.middle) if is_ball else region.lo + (region.hi - region.lo) / 2
        radius = region.radius if is_ball else float((region.hi - region.lo).max(initial=0.0)) / 2
        if not 1e-100 < radius < 1e100:
            return None
        rows = layer.weights[neurons].astype(np.float64).toarray()
        norm = np.sqrt((rows * rows).sum(axis=1))
        # A neuron without weights has the sign of its bias: any positive scale is valid.
        lengths = np.where(norm > 0, norm, 1.0) * radius
        constants = (rows @ middle + layer.bias[neurons]) / lengths
        rows *= (radius / lengths)[:, None]
        reach = 1.0 if is_ball else float(np.sqrt(region.size))
        return NearestPoints(region, middle, radius, reach, rows, constants, lengths)

    def find(self, places: IntArray, pattern: SignPattern) -> Feasibility | None:
        """Return a point with the pattern of some neurons, or a conflict; None if undecided."""
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.reachability.nearest_loop import nearest

        signs = pattern.signs.astype(np.float64)
        low = (self.region.lo - self.middle) / self.radius
        high = (self.region.hi - self.middle) / self.radius
        theta = np.zeros(places.size)
        rows, constants = self.rows[places] * signs[:, None], self.constants[places] * signs
        point, found = nearest(
            rows, constants, low, high, NEAREST_MARGIN, self.reach, SWEEPS, theta
        )
        if found > 0:
            return Feasibility(point=self.middle + self.radius * point)
        if found < 0 and np.all(np.isfinite(theta)):
            return find_conflict(pattern, theta / self.lengths[places], self.region)
        return None
