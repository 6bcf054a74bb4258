"""All patterns of one node, evaluated outright.

With numba (extra `fast`) and weights -1, 0 and +1 the patterns are packed into bits and enumerated
by a compiled loop; else they are evaluated by matrix products, many at a time.  Both give the same
answers.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.search.patterns.circuit import Circuit
from bnncert.search.patterns.flips import UNITS, FlipBudget
from bnncert.search.patterns.packed_circuit import PackedCircuit, pack

#: Violating patterns that one enumeration returns at most.
MOST_FOUND = 64

#: Patterns that one call of the compiled loop may evaluate (some 50 ms).
MOST_COMPILED = 2**17


@dataclass(frozen=True, eq=False)
class Enumerated:
    """What an enumeration found.

    Attributes
    ----------
    count
        Patterns evaluated.
    violating
        Those that reach a wanted target, at most MOST_FOUND.
    least
        For each target the least bound of F among the patterns at which it is excluded.
    complete
        Whether all patterns were evaluated.
    """

    count: int
    violating: SignArray
    least: FloatArray
    complete: bool


def is_compiled() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def pattern_counts(nodes: SignArray, most_flips: IntArray | None) -> FloatArray:
    """Return upper bounds of the numbers of patterns of nodes."""
    open_ = np.minimum(np.count_nonzero(nodes == 0, axis=1), 1000)
    if most_flips is None:
        return np.asarray(2.0**open_)
    return np.array(
        [
            float(sum(math.comb(n, k) for k in range(min(m, n) + 1))) if m < 8 else 2.0**n
            for n, m in zip(open_.tolist(), most_flips.tolist(), strict=True)
        ]
    )


class FlipEnumerator:
    """Enumerates the patterns of nodes of one circuit by the compiled loop."""

    def __init__(self, circuit: Circuit, packed: PackedCircuit, budget: FlipBudget | None) -> None:
        # Imported on use: numba is an extra, and takes a third of a second to import.
        from bnncert.search.patterns.enumeration_numba import enumerate_flips

        self._enumerate = enumerate_flips
        self._packed, self._budget, self._size = packed, budget, circuit.inputs
        level = circuit.levels[0] if circuit.levels else circuit.last
        assert level is not None
        self._inputs, self._rows = level.inputs, level.rows
        columns = np.zeros((circuit.inputs, packed.first_above.size), dtype=np.int32)
        columns[level.inputs, : level.size] = 2 * level.rows.T
        self._columns = columns

    @staticmethod
    def of(circuit: Circuit, budget: FlipBudget | None) -> FlipEnumerator | None:
        """Return the compiled enumerator, or None where numba or the form of the circuit lacks."""
        packed = pack(circuit) if is_compiled() else None
        return None if packed is None else FlipEnumerator(circuit, packed, budget)

    def run(self, node: SignArray, wanted: BoolArray, goal: FloatArray) -> Enumerated:
        """Enumerate the patterns of one node."""
        packed, budget = self._packed, self._budget
        open_ = np.flatnonzero(node == 0)
        if budget is None:
            other = np.ones(open_.size, dtype=np.int8)
            cost, left = np.zeros(open_.size, dtype=np.int64), 0
        else:
            open_ = open_[np.argsort(budget.cost[open_], kind="stable")]
            other = -budget.home[open_]
            cost = budget.cost[open_].astype(np.int64)
            left = UNITS - int(budget.spent(node[None, :])[0])
        base = node.copy()
        base[open_] = -other
        sums = np.zeros(packed.first_above.size, dtype=np.int32)
        sums[: self._rows.shape[0]] = self._rows @ base[self._inputs].astype(np.float32)
        gains = self._columns[open_] * other[:, None].astype(np.int32)
        found = np.full((MOST_FOUND, open_.size + 1), -1, dtype=np.int64)
        least = np.full(packed.targets, np.inf)
        count, violations = self._enumerate(
            sums, gains, cost, left, wanted, packed.first_above, packed.signs, packed.masks,
            packed.start, packed.width, packed.limit, packed.gate, packed.part_signs,
            packed.part_masks, packed.part, packed.scale, packed.reach, packed.constant, goal,
            packed.target, MOST_FOUND, found, least,
        )  # fmt: skip
        violating = np.repeat(base[None, :], violations, axis=0)
        for row, flips in zip(violating, found[:violations], strict=True):
            flips = flips[: int(np.argmin(flips))]
            row[open_[flips]] = other[flips]
        return Enumerated(abs(count), violating, least, count > 0)
