r"""Enumeration of the sign patterns that a box has, without most of those that it does not have.

Conflicting pairs leave many patterns that no input has: at a radius of one pixel 98 % of them.  The
compiled loop (`cells_loop`) asks at nearly every step whether the signs decided so far
occur together, by a check that continues the one of the step before and takes microseconds.

The rows of the check are first-layer neurons over a box.  With the middle c and the half widths h
of a box that contains the region, an input is x = c + h d with |d_i| <= 1, and sign s of neuron j
needs  s (w_j.c + b_j) + s a_j.d >= 0,  a_ji = w_ji h_i. Farkas multipliers theta >= 0 prove that no
input has some signs together if

    F(theta) = sum_i |sum_j theta_j s_j a_ji| + sum_j theta_j s_j (w_j.c + b_j)  <  0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.circuit import (
    Circuit,
    PackedCircuit,
    PackedFlips,
    pack,
    pack_rows,
)
from bnncert.engine.search.patterns.enumeration import CELLS, MOST_FOUND, Enumerated, flipped
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: Relative rounding error of one float64 operation, with room for the order of summation.
UNIT = 2.0**-52


class CheckedRows(NamedTuple):
    """The rows of a feasibility check in the form that compiled functions take."""

    #: As in BoxRows.
    rows: FloatArray
    need: FloatArray
    #: The lengths of the rows, and the rows with length 1.
    lengths: FloatArray
    directions: Float32Array
    #: The values at the centre in the units of `directions`.
    distances: FloatArray


@dataclass(frozen=True, eq=False)
class BoxRows:
    """The rows of some neurons over a box."""

    #: One row a_j for each neuron, over the inputs that some neuron reads.
    rows: FloatArray
    #: Upper bounds of s (w_j.c + b_j), first for s = +1 and then for s = -1.  What rounding takes
    #: from F, anywhere, is included, so that F < 0 in floating point is a proof.
    need: FloatArray

    @staticmethod
    def of(layer: ThresholdLayer, neurons: IntArray, region: Region) -> BoxRows:
        """Return the rows of neurons of the first layer."""
        weights = layer.weights[neurons].astype(np.float64)
        used = np.unique(weights.indices)
        dense = weights[:, used].toarray()
        lo, hi = region.lo[used], region.hi[used]
        middle = lo + (hi - lo) / 2
        half = np.maximum(hi - middle, middle - lo) * (1 + 2 * UNIT)
        bias_lo, bias_hi = (side[neurons] for side in layer.enclosure)
        at = dense @ middle
        reach = np.maximum(np.abs(lo), np.abs(hi)) + half
        size = np.abs(dense) @ reach + np.maximum(np.abs(bias_lo), np.abs(bias_hi))
        # No sum has more terms than inputs and neurons together, each rounded a few times.
        slack = 8 * (used.size + neurons.size + 8) * UNIT * size
        return BoxRows(dense * half, np.stack([at + bias_hi, -at - bias_lo]) + slack)

    @cached_property
    def checked(self) -> CheckedRows:
        """The rows as the check takes them; a row of zeros has the length 1."""
        lengths = np.sqrt(np.sum(self.rows**2, axis=1))
        lengths = np.where(lengths > 0, lengths, 1.0)
        directions = np.ascontiguousarray(self.rows / lengths[:, None], dtype=np.float32)
        distances = np.asarray((self.need[0] - self.need[1]) / 2 / lengths)
        return CheckedRows(self.rows, self.need, lengths, directions, distances)

    @cached_property
    def order(self) -> IntArray:
        """The neurons, those first whose sign is the hardest to change.

        A pattern has few of these changes, so that a tree which decides them first has few nodes
        near its root, and what excludes each other is found there.
        """
        reach = np.abs(self.rows).sum(axis=1)
        with np.errstate(over="ignore"):
            distance = np.abs(self.need[0] - self.need[1]) / np.maximum(reach, 1e-300)
        return np.argsort(-distance, kind="stable")


#: First-layer variables up to which the check is used.
MOST_NEURONS = 256

#: Open signs up to which a node is enumerated in one call, a second at most.
MOST_OPEN = 18

#: Signs that are decided without a feasibility check: their patterns take less time than checks.
UNCHECKED = 5

#: Sweeps of one check inside the tree.  Whole nodes and violating patterns get four times as many.
SWEEPS = 8

#: Proofs that one call returns at most.
MOST_PROOFS = 4096

#: Takes variables, signs of them that do not occur together, and Farkas multipliers that prove it.
Learn: TypeAlias = Callable[[IntArray, SignArray, FloatArray], None]


class CellEnumerator:
    """Enumerates the patterns of nodes of one circuit that a box has.

    Parameters
    ----------
    excluded
        Symmetric table of first-layer literals that exclude each other.
    home
        Signs from which patterns are counted.
    learn
        Takes the conflicts that are found, if they are wanted for a certificate.
    """

    def __init__(
        self,
        packed: PackedCircuit,
        rows: BoxRows,
        excluded: BoolArray,
        home: SignArray,
        learn: Learn | None,
    ) -> None:
        self._packed, self._rows = packed, rows
        self._home, self._learn = home, learn
        # Words of the literals that each literal excludes.
        self._clash = pack_rows(excluded.astype(np.int8))[1]
        self._rank = np.argsort(rows.order)
        most = MOST_PROOFS if learn is not None else 0
        self._proofs = np.zeros((most, packed.circuit.inputs))
        self._known: set[bytes] = set()

    @staticmethod
    def of(
        circuit: Circuit,
        layer: ThresholdLayer,
        region: Region,
        excluded: BoolArray,
        home: SignArray | None,
        learn: Learn | None = None,
    ) -> CellEnumerator | None:
        """Return the enumerator, or None where it does not apply or would find nothing."""
        if not region.is_box or home is None or circuit.inputs > MOST_NEURONS:
            return None
        columns = layer.weights[circuit.neurons].indices
        packed = pack(circuit)
        # Neurons that read disjoint inputs have all patterns.
        if packed is None or np.unique(columns).size == columns.size:
            return None
        rows = BoxRows.of(layer, circuit.neurons, region)
        return CellEnumerator(packed, rows, excluded, home, learn)

    def is_ready(self, limit: Deadline) -> bool:
        """Whether the loop is compiled; the first question begins to compile it."""
        return CELLS.is_ready(self._enumerate_one, limit)

    def _enumerate_one(self) -> None:
        """Call both compiled functions for a node in which every sign is fixed."""
        objectives = self._packed.circuit.objectives
        goal = np.full(objectives.constant.size, -np.inf)
        self.excludes(self._home)
        self.run(self._home, np.zeros(objectives.targets, dtype=bool), goal)

    def hardest(self, nodes: SignArray) -> IntArray:
        """Return the open sign of each node that is the hardest to change."""
        return np.asarray(np.argmin(np.where(nodes == 0, self._rank, nodes.shape[1]), axis=1))

    def excludes(self, node: SignArray) -> bool:
        """Whether the signs of a node are proved not to occur together."""
        from bnncert.engine.search.patterns.cells_loop import exclude_node

        fixed = self._rows.order[node[self._rows.order] != 0]
        counts = np.zeros(3, dtype=np.int64)
        found = exclude_node(
            self._rows.checked,
            fixed,
            node[fixed].astype(np.int64),
            4 * SWEEPS,
            (self._proofs, counts),
        )
        self._keep(int(counts[2]))
        return bool(found)

    def run(self, node: SignArray, wanted: BoolArray, goal: FloatArray) -> Enumerated:
        """Evaluate the patterns of a node that the box has."""
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.search.patterns.cells_loop import enumerate_cells

        packed, order = self._packed, self._rows.order
        open_ = order[node[order] == 0]
        chain = np.concatenate([order[node[order] != 0], open_])
        base = node.copy()
        base[open_] = self._home[open_]
        found = np.full((MOST_FOUND, open_.size + 1), -1, dtype=np.int64)
        least = np.full(wanted.size, np.inf)
        free, no_words = np.zeros(open_.size, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        flips = PackedFlips(packed.flip_gains(open_, self._home), free, no_words, no_words)
        counts = np.zeros(3, dtype=np.int64)
        complete = enumerate_cells(
            self._rows.checked,
            self._clash,
            chain,
            base[chain].astype(np.int64),
            chain.size - open_.size,
            UNCHECKED,
            SWEEPS,
            packed.room(base),
            flips,
            packed.levels,
            packed.objectives,
            (wanted, goal, least),
            found,
            (self._proofs, counts),
        )
        self._keep(int(counts[2]))
        violating = flipped(base, open_, found[: counts[1]])
        return Enumerated(int(counts[0]), violating, least, bool(complete), last=True)

    def _keep(self, count: int) -> None:
        """Hand on the conflicts that are new."""
        for signed in self._proofs[:count]:
            variables = np.flatnonzero(signed)
            signs = np.sign(signed[variables]).astype(np.int8)
            key = variables.tobytes() + signs.tobytes()
            if self._learn is not None and key not in self._known:
                self._known.add(key)
                self._learn(variables, signs, np.abs(signed[variables]))
        self._proofs[:count] = 0.0
