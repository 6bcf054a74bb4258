"""Leaves and multipliers of a search in the numbering of the checker.

The search numbers the variables, tables and gates of its reduced problem, the checker those of its
own skeleton.  A variable x_v of the search is s_v x_w of the checker; rows are equal after that
substitution, up to a sign that b u + c u^2 + e x + g x u takes into account.  Multipliers without a
counterpart are left out: they are only a proposal, and the checker's bound decides.
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.literals import literal, sign_of, variable_of
from bnncert.engine.search.trace import Trace
from bnncert.engine.search.warm_start import NodeMultipliers, Numbering
from bnncert.kernel.leaves import Goal
from bnncert.kernel.skeleton import Skeleton


class Translation:
    """Translates from the reduced problem of a trace to the goal of the checker."""

    def __init__(self, trace: Trace, goal: Goal) -> None:
        problem = trace.problem
        self._place, self._sign = _variables(trace, goal.skeleton)
        self._numbering = Numbering.of(problem)
        #: The numbering of the checker's goal.
        self.numbering = Numbering(
            goal.tables.weights.shape[0], goal.gate_variable, goal.skeleton.size
        )
        known = {key: (k, flip) for k, (key, flip) in enumerate(_keys(goal.tables.weights))}
        #: The number of each table in the goal (or -1) and the sign between their sums.
        self._tables, self._table_flip = _matched(
            [known.get(key) for key, _ in self._row_keys(problem.table.rows)],
            [flip for _, flip in self._row_keys(problem.table.rows)],
        )
        gates = {int(v): k for k, v in enumerate(goal.gate_variable.tolist())}
        number = [gates.get(int(self._place[v])) for v in problem.outputs.tolist()]
        keys = _keys(goal.gates.weights)
        rows = self._row_keys(problem.gates.rows)
        found = [
            (k, keys[k][1]) if k is not None and keys[k][0] == key else None
            for k, (key, _) in zip(number, rows, strict=True)
        ]
        self._gates, self._gate_flip = _matched(found, [flip for _, flip in rows])

    def signs(self, signs: SignArray) -> SignArray:
        """Return the signs of a leaf for the variables of the checker."""
        out = np.zeros(self.numbering.size, dtype=np.int8)
        own = np.flatnonzero((self._place >= 0) & (signs != 0))
        out[self._place[own]] = signs[own] * self._sign[own]
        return out

    def multipliers(self, found: NodeMultipliers) -> NodeMultipliers:
        """Return the multipliers of a leaf for the tables, gates and variables of the checker."""
        count = self.numbering.tables
        tables = np.zeros((count + self.numbering.outputs.size, 2))
        gates = np.zeros((self.numbering.outputs.size, 4))
        own = np.flatnonzero(self._tables >= 0)
        turned = self._table_flip[own, None] ** np.array([1, 2])
        tables[self._tables[own]] = found.tables[own] * turned
        live = np.flatnonzero(self._gates >= 0)
        flip, number = self._gate_flip[live, None], self._gates[live]
        idle = found.tables[self._numbering.tables + live]
        tables[count + number] = idle * np.hstack([flip, flip**2])
        output = self._sign[self._numbering.outputs[live], None]
        gates[number] = found.gates[live] * np.hstack([flip, flip**2, output, output * flip])
        kappa = np.zeros(self.numbering.size)
        placed = np.flatnonzero(self._place >= 0)
        kappa[self._place[placed]] = found.kappa[placed]
        keys, values = self._pairs(found)
        return NodeMultipliers(tables, gates, kappa, keys, values, found.cuts)

    def _pairs(self, found: NodeMultipliers) -> tuple[IntArray, FloatArray]:
        """Return the keys of conflicting pairs, sorted, and their multipliers."""
        chosen = np.flatnonzero(found.pairs)
        pairs = np.stack(np.divmod(found.pair_keys[chosen], 2 * self._numbering.size))
        variable = variable_of(pairs)
        placed = np.flatnonzero((self._place[variable] >= 0).all(axis=0))
        variable, chosen = variable[:, placed], chosen[placed]
        signs = sign_of(pairs[:, placed]) * self._sign[variable]
        moved = np.sort(literal(self._place[variable], signs), axis=0)
        keys = moved[0] * 2 * self.numbering.size + moved[1]
        order = np.argsort(keys)
        return keys[order], found.pairs[chosen[order]]

    def _row_keys(self, rows: FloatArray) -> list[tuple[bytes, int]]:
        """Return the keys of rows over the variables of the checker."""
        moved = np.zeros((self.numbering.size, rows.shape[0]), dtype=np.int64)
        placed = np.flatnonzero(self._place >= 0)
        whole = np.rint(rows[:, placed] * self._sign[placed]).astype(np.int64)
        np.add.at(moved, self._place[placed], whole.T)
        keys = _keys(moved.T)
        # A row over a variable that the checker has fixed is a different sum.
        complete = ~np.any(rows[:, self._place < 0], axis=1)
        return [key if fits else (b"", 1) for key, fits in zip(keys, complete, strict=True)]


def _variables(trace: Trace, skeleton: Skeleton) -> tuple[IntArray, SignArray]:
    """Return the checker's variable of each variable (or -1), and the sign between them."""
    place = np.full(trace.layer.size, -1, dtype=np.int64)
    sign = np.ones(trace.layer.size, dtype=np.int8)
    for number in np.unique(trace.layer).tolist():
        own, layer = np.flatnonzero(trace.layer == number), skeleton.layers[number]
        neuron = trace.neuron[own]
        place[own] = np.where(layer.state[neuron] == 0, layer.variable[neuron], -1)
        sign[own] = layer.sign[neuron]
    return place, sign


def _keys(rows: IntArray) -> list[tuple[bytes, int]]:
    """Return a key of each row that is the same for its negative, and the sign between both."""
    if not rows.shape[1]:
        # The checker may have fixed every variable.
        return [(b"", 1)] * rows.shape[0]
    first = np.argmax(rows != 0, axis=1)
    flip = [-1 if row[k] < 0 else 1 for row, k in zip(rows, first.tolist(), strict=True)]
    return [((f * row).tobytes(), f) for row, f in zip(rows, flip, strict=True)]


def _matched(found: list[tuple[int, int] | None], flips: list[int]) -> tuple[IntArray, FloatArray]:
    """Return the numbers that were found (or -1), and the product of both signs."""
    numbers = [-1 if f is None else f[0] for f in found]
    signs = [1 if f is None else f[1] * own for f, own in zip(found, flips, strict=True)]
    return np.array(numbers, dtype=np.int64), np.array(signs, dtype=np.float64)
