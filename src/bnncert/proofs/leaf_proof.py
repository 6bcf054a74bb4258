"""Integer multipliers that prove one leaf: those of a search, or found by the reduced relaxation.

The relaxation is built from the facts of the *checker* at the leaf, so that the checker derives the
same bound later.  So are the inequalities of a search, which become integers here.

A search numbers the variables, tables and gates of its reduced problem, the checker those of its
own skeleton.  A variable x_v of the search is s_v x_w of the checker; rows are equal after that
substitution, up to a sign that b u + c u^2 + e x + g x u takes into account.  Multipliers without a
counterpart are left out: they are only a proposal, and the checker's bound decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import (
    both_literals,
    literal,
    renumbered,
    sign_of,
    variable_of,
)
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem, packed, widen
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search.restrict import Restriction, with_interior
from bnncert.engine.search.trace import Trace
from bnncert.engine.search.warm_start import (
    NodeMultipliers,
    Numbering,
    carried,
    split_node,
    splits_of,
)
from bnncert.engine.solvers.structured import solve_structured
from bnncert.kernel.container import RejectedError
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.input_cuts import (
    FINEST_UNIT,
    MOST_CURVATURE,
    THETA_BITS,
    CutNumbers,
    ProvedCut,
    derive_cuts,
)
from bnncert.kernel.leaves import Goal, SumValues, View
from bnncert.kernel.section_reading import FINEST, MOST, Clauses, Multipliers
from bnncert.kernel.skeleton import Skeleton

#: Bits of the largest number of a leaf, tried in turn until rounding does not break the proof.
BITS = (30, 40)

#: Iterations of the relaxation's solver.
ITERATIONS = 60

#: Slack (in the solver's units) of multipliers that a search has recorded.
CARRIED_MARGIN = 1e-9


class LeafProblem:
    """The reduced problem of one node, and the numbers of its tables and gates in the goal."""

    def __init__(
        self, goal: Goal, view: View, phi: FloatArray, splits: IntArray | None = None
    ) -> None:
        self.goal, self.view = goal, view
        free = view.free
        self.free = free
        signs = view.signs.astype(np.int64)
        low = np.where(view.tables.possible, phi, np.inf).min(axis=1, initial=np.inf)
        high = np.where(view.tables.possible, phi, -np.inf).max(axis=1, initial=-np.inf)
        self.tables: IntArray = np.flatnonzero(low < high)
        constant = float(goal.constant) + float(low[low == high].sum())
        linear = np.array([float(v) for v in goal.linear])
        constant += float(linear @ signs) if signs.size else 0.0
        rows, points, self.table_shift = self._part(view.tables, self.tables)
        values = packed(phi[self.tables], view.tables.possible[self.tables])
        self.gates: IntArray = np.zeros(0, dtype=np.int64)
        gate_rows, gate_points = np.zeros((0, free.size)), np.zeros((0, 1))
        gate_signs, outputs = np.zeros((0, 1)), np.zeros(0, dtype=np.int64)
        self.gate_shift = np.zeros(0)
        self.idle: IntArray = np.zeros(0, dtype=np.int64)
        self.idle_shift = np.zeros(0)
        if goal.gate_variable.size:
            own = signs[goal.gate_variable]
            self.gates = np.flatnonzero(own == 0)
            gate_rows, _, self.gate_shift = self._part(view.gates, self.gates)
            gate_points, gate_signs = self._branches()
            place = np.full(signs.size, -1, dtype=np.int64)
            place[free] = np.arange(free.size)
            outputs = place[goal.gate_variable[self.gates]]
            # A gate whose output is fixed still bounds its sum.
            depends = np.any(view.gates.weights[:, free], axis=1)
            self.idle = np.flatnonzero((own != 0) & depends)
            idle_rows, _, self.idle_shift = self._part(view.gates, self.idle)
            idle_points = self._idle_points()
            width = max(points.shape[1], idle_points.shape[1])
            rows = np.vstack([rows, idle_rows])
            points = np.vstack([widen(points, width), widen(idle_points, width)])
            values = np.vstack([widen(values, width), np.zeros((self.idle.size, width))])
        literals = both_literals(free)
        pairs = with_interior(view.excluded[np.ix_(literals, literals)])
        first, second = np.nonzero(np.triu(pairs, 1))
        distinct = variable_of(first) != variable_of(second)
        self.problem = ReducedProblem(
            variables=free,
            constant=constant,
            slack=0.0,
            linear=linear[free],
            table=Lattice(rows, points),
            values=values,
            gates=Lattice(gate_rows, gate_points),
            gate_signs=gate_signs,
            outputs=outputs,
            pair_first=first[distinct].astype(np.int64),
            pair_second=second[distinct].astype(np.int64),
            cuts=self._cuts(),
        )
        if splits is not None:
            self.problem = split_node(self._restriction(goal.values.shape[0]), splits).problem

    def _restriction(self, tables: int) -> Restriction:
        """Return the problem as a node of the goal, idle gates being numbered after its tables."""
        number = np.append(self.tables, tables + self.idle)
        shift = np.append(self.table_shift, self.idle_shift)
        signs, gates, gate_shift = self.view.signs, self.gates, self.gate_shift
        return Restriction(self.problem, self.free, signs, number, shift, gates, gate_shift)

    def _cuts(self) -> InputCuts | None:
        """Return the inequalities of first-layer signs that the checker knows."""
        forms = np.zeros((len(self.goal.cuts), self.free.size + 1, self.free.size + 1))
        for form, whole in zip(forms, self.goal.cuts, strict=True):
            cut = whole.at(self.view.signs, self.free)
            one = 1 << cut.shift
            form[0, 0] = cut.constant / one
            form[0, 1:] = form[1:, 0] = cut.linear / (2 * one)
            form[1:, 1:] = cut.square / one
        return InputCuts(forms, ()) if self.goal.cuts else None

    def _part(self, sums: SumValues, chosen: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return rows over the free variables, points of the free part, and the fixed part."""
        matrix = sums.weights[chosen]
        shift = np.asarray(matrix @ self.view.signs.astype(np.int64), dtype=np.float64)
        rows = matrix[:, self.free].astype(np.float64)
        points = packed(sums.points[chosen].astype(np.float64), sums.possible[chosen])
        return rows, points - shift[:, None], shift

    def _branches(self) -> tuple[FloatArray, FloatArray]:
        """Return the values of each open gate's sum (free part), once for each sign."""
        goal, sums, chosen = self.goal, self.view.gates, self.gates
        points, possible = sums.points[chosen], sums.possible[chosen]
        on = possible & (points >= goal.gate_plus[chosen][:, None])
        off = possible & (points <= goal.gate_minus[chosen][:, None])
        both = np.hstack([points, points]).astype(np.float64) - self.gate_shift[:, None]
        sign = np.hstack([-np.ones(points.shape), np.ones(points.shape)])
        kept = np.hstack([off, on])
        return packed(both, kept), packed(sign, kept)

    def _idle_points(self) -> FloatArray:
        goal, sums, chosen = self.goal, self.view.gates, self.idle
        own = self.view.signs[goal.gate_variable[chosen]]
        points = sums.points[chosen]
        fits = np.where(
            own[:, None] > 0,
            points >= goal.gate_plus[chosen][:, None],
            points <= goal.gate_minus[chosen][:, None],
        )
        shown = packed(points.astype(np.float64), sums.possible[chosen] & fits)
        return shown - self.idle_shift[:, None]

    def solve(
        self, deadline: Deadline, least: float, enough: float
    ) -> tuple[Multipliers | None, FloatArray | None]:
        """Return multipliers with a bound above `least`, if possible `enough`, and the moments."""
        problem = self.problem
        if not problem.size:
            return None, None
        relaxation = relax_reduced(problem)
        moments, probabilities = starting_moments(problem, deadline=deadline)
        solution = solve_structured(
            relaxation.program,
            deadline,
            above=(enough - problem.constant) / relaxation.scale,
            below=(least - problem.constant) / relaxation.scale,
            tolerance=1e-6,
            iterations=ITERATIONS,
            moments=moments,
            probabilities=probabilities,
        )
        dual = relaxation.dual_point(solution.multipliers)
        return self._accepted(dual, least), solution.moments

    def carried(
        self, kept: NodeMultipliers, numbering: Numbering, least: float
    ) -> Multipliers | None:
        """Return multipliers with a bound above `least` from those that a search found, or None."""
        if not self.problem.size:
            return None
        relaxation = relax_reduced(self.problem)
        left = self._restriction(numbering.tables)
        found = carried(kept, numbering, left, relaxation, CARRIED_MARGIN)
        return None if found is None else self._accepted(relaxation.dual_point(found), least)

    def _accepted(self, dual: DualPoint, least: float) -> Multipliers | None:
        """Return the multipliers as integers whose bound the checker accepts, or None."""
        if dual.bound(self.problem) > least:
            for bits in BITS:
                found = self.integers(dual, bits)
                if found is not None and self._holds(found):
                    return found
        return None

    def _holds(self, numbers: Multipliers) -> bool:
        try:
            bound = self.goal.bound(self.view, numbers)
        except RejectedError:
            return False
        return self.goal.function.is_positive_from(bound)

    def integers(self, c: DualPoint, bits: int) -> Multipliers | None:
        """Round to integers, and repair the diagonal so that the matrix is definite."""
        count = self.tables.size
        # From the free part of each sum to the whole; idle gates come after the tables.
        moved = c.tables_over(np.append(self.table_shift, self.idle_shift))
        table = moved[:count]
        gate = np.zeros((self.gates.size + self.idle.size, 4))
        gate[: self.gates.size] = c.gates_over(self.gate_shift)
        gate[self.gates.size :, :2] = moved[count:]
        splits = splits_of(self._restriction(self.goal.values.shape[0]))
        own = np.searchsorted(self.tables, splits[0])
        split = c.splits_over(self.table_shift[own])
        parts = (table, gate, c.diagonal, c.pair, c.cut, split)
        if not all(np.all(np.isfinite(p)) for p in parts):
            return None
        largest = max(float(np.abs(p).max(initial=0.0)) for p in parts)
        reach = float(max(1, self.goal.tables.rows.reach, self.goal.gates.rows.reach))
        numbers = sum(p.size for p in parts) + 4
        room = min(float(2**bits), MOST / (4 * reach**2 * numbers)) / max(largest, 1e-6)
        unit = int(np.clip(np.floor(np.log2(room)), 0, FINEST))
        order = np.argsort(np.concatenate([self.gates, self.idle]), kind="stable")
        gate_keys = self.goal.gate_variable[np.concatenate([self.gates, self.idle])[order]]
        first, second = self.problem.pair_first, self.problem.pair_second
        result = Multipliers(
            unit,
            self.tables,
            _rounded(table, unit),
            gate_keys,
            _rounded(gate[order], unit),
            _rounded(c.diagonal, unit),
            renumbered(first, self.free),
            renumbered(second, self.free),
            _rounded(c.pair, unit),
            splits[0],
            splits[1],
            _rounded(split, unit),
            _rounded(c.cut, unit),
        )
        return self._repaired(result)

    def _repaired(self, m: Multipliers) -> Multipliers | None:
        """Move the diagonal by the smallest eigenvalue and a margin for rounding."""
        try:
            _, linear = self.goal.constants(self.view, m)
            constant, linear, form = self.goal.assemble(self.view, m, linear)
        except RejectedError:
            return None
        # The fixed parts of the sums are moved to the first entry of the diagonal.
        diagonal = m.diagonal.copy()
        diagonal[0] += constant + int(m.clash_values.sum())
        if self.problem.cuts is not None:
            # The constants of inequalities are no part of them.
            diagonal[0] += int(np.rint(m.cut_values @ self.problem.cuts.forms[:, 0, 0]))
        matrix = form.astype(np.float64)
        matrix[0, 0] += 2.0 * constant
        matrix[0, 1:] += linear
        matrix[1:, 0] += linear
        place = np.arange(matrix.shape[0])
        matrix[place, place] -= 2.0 * diagonal
        least = float(np.linalg.eigvalsh(matrix)[0])
        size = float(np.abs(matrix).sum(axis=1).max())
        # The verified factorisation needs about n u times the trace.
        margin = 16.0 * place.size * 2.0**-53 * (float(np.trace(np.abs(matrix))) + size) + 2.0
        move = int(np.floor((least - margin) / 2.0))
        return replace(m, diagonal=diagonal + move)


def _rounded(values: FloatArray, unit: int) -> IntArray:
    return np.asarray(np.rint(np.ldexp(values, unit)), dtype=np.int64)


# -- the leaves of a search ---------------------------------------------------------------------


class Translation:
    """Translates from the reduced problem of a trace to the goal of the checker."""

    def __init__(self, trace: Trace, goal: Goal) -> None:
        problem = trace.problem
        #: The squares of the inequalities, which the checker counts as constants: x_a^2 = 1.
        self._squares = np.zeros((0, problem.size))
        if problem.cuts is not None:
            self._squares = np.diagonal(problem.cuts.forms, axis1=1, axis2=2)[:, 1:]
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
        squares = found.cuts @ self._squares if found.cuts.size else np.zeros(self._place.size)
        kappa[self._place[placed]] = (found.kappa + squares)[placed]
        keys, values = self._pairs(found)
        splits, by = self._splits(found)
        return NodeMultipliers(tables, gates, kappa, keys, values, found.cuts, splits, by)

    def _splits(self, found: NodeMultipliers) -> tuple[IntArray, FloatArray]:
        """Return the splits of tables and variables that the checker has, and their e and g."""
        table, variable = found.splits
        placed = (self._tables[table] >= 0) & (self._place[variable] >= 0)
        table, variable = table[placed], variable[placed]
        sign = self._sign[variable]
        by = found.split_values[placed] * np.stack([sign, sign * self._table_flip[table]], axis=1)
        return np.stack([self._tables[table], self._place[variable]]), by

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


# -- inequalities of first-layer signs ---------------------------------------------------------

#: The part of the largest sum of m that is used.
SHARE = 0.9


def stated_cuts(
    cuts: InputCuts, geometry: Geometry, skeleton: Skeleton
) -> tuple[CutNumbers, list[ProvedCut]] | None:
    """Return the inequalities as a file states them and as the checker derives them, or None."""
    sizes, neurons, signs, thetas, units, curvatures = [], [], [], [], [], []
    for cut in cuts.sources:
        theta = np.rint(np.ldexp(cut.theta, THETA_BITS)).astype(np.int64)
        kept = theta > 0
        total = float(cut.curvature.sum())
        if not kept.any() or not (np.isfinite(total) and total > 0):
            return None
        moves = np.count_nonzero(cut.curvature)
        unit = int(np.floor(np.log2((SHARE * MOST_CURVATURE - moves) / total)))
        if not 0 <= unit <= FINEST_UNIT:
            return None
        scaled = np.rint(np.ldexp(cut.curvature, unit)).astype(np.int64)
        sizes.append(int(kept.sum()))
        neurons.append(cut.neurons[kept])
        signs.append(cut.signs[kept].astype(np.int64))
        thetas.append(theta[kept])
        units.append(unit)
        # An input that can move needs some m.
        curvatures.append(np.where(cut.curvature > 0, np.maximum(scaled, 1), 0))
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    literals = Clauses(start, *(np.concatenate(part) for part in (neurons, signs, thetas)))
    numbers = CutNumbers(literals, units, curvatures)
    try:
        return numbers, derive_cuts(numbers, geometry, skeleton)
    except RejectedError:
        return None
