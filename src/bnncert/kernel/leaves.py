r"""One node of a proof: the implications of its signs, and a lower bound of f from multipliers.

Tables: last-layer neurons with the same row (or its negative) are one function phi(u) of u = w.x.
Gates: a hidden neuron x above the first layer is a function of its sum u.  For any numbers b, c
(and e, g for gates), with the minimum over the values that u (and x) can have,

    phi(u) >= a + b u + c u^2,       a = min (phi(u) - b u - c u^2)
    0      >= a + b u + c u^2 + e x + g x u,   a = min -(b u + c u^2 + e x + g x u)

and likewise for a table that is split by a variable x, over the u and x that occur together,

    phi(u) >= a + b u + c u^2 + e x + g x u,   a = min (phi(u) - b u - c u^2 - e x - g x u);

for signs that exclude each other  0 = pi (1 + s x_a)(1 + t x_b),  and for inequalities p(x) >= 0 of
first-layer signs (`input_cuts`)  0 >= -l p(x), l >= 0.  Adding all of them up,

    f >= sum a + sum kappa + z'Tz  >=  sum a + sum kappa       if T is positive semidefinite,

where z = (1, free x), z_i^2 = 1 and T is what remains after kappa_i z_i^2 is taken out.  All
numbers are integers over one power of two, so the identity holds by construction and a is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import numpy as np

from bnncert.arrays import SignArray as Signs
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Function
from bnncert.kernel.geometry import Table
from bnncert.kernel.input_cuts import ProvedCut
from bnncert.kernel.section_reading import FINEST, MOST, Clauses, Multipliers
from bnncert.kernel.skeleton import Rows, Skeleton
from bnncert.kernel.sparse import Integers, SparseRows


@dataclass(frozen=True, eq=False)
class SumValues:
    """Sums u = weights.x with the values (`points`, padded) that each can have (`possible`)."""

    weights: Integers
    rows: Rows
    points: Integers
    possible: Table

    @staticmethod
    def of(weights: Integers, low: Integers, high: Integers) -> SumValues:
        """List the values between bounds that each row's lattice has."""
        reach = np.abs(weights).sum(axis=1)
        step = 2 * np.maximum(np.gcd.reduce(weights, axis=1, initial=0), 1)
        # The lattice is -reach, -reach + step, .., reach.
        start = -reach + np.maximum(0, -((reach + low) // -step)) * step
        size = (np.minimum(reach, high) - start) // step + 1
        place = np.arange(size.max(initial=1))
        possible = place < size[:, None]
        points = np.where(possible, start[:, None] + step[:, None] * place, 0)
        return SumValues(weights, Rows.of(SparseRows.of_dense(weights)), points, possible)

    def narrowed(self, signs: Signs, excluded: Table) -> SumValues:
        """Narrow the sums to the values that known signs and excluded pairs leave."""
        low, high = self.rows.ranges(signs, excluded)
        within = (self.points >= low[:, None]) & (self.points <= high[:, None])
        return replace(self, possible=self.possible & within)


@dataclass(frozen=True, eq=False)
class View:
    """The facts of one node: signs, pairs that exclude each other, and values of all sums."""

    signs: Signs
    excluded: Table
    tables: SumValues
    gates: SumValues

    @property
    def free(self) -> Integers:
        """The variables without a sign."""
        return np.flatnonzero(self.signs == 0)


class Goal:
    """One function f on a skeleton, with the clauses that every node may use."""

    def __init__(self, skeleton: Skeleton, function: Function, clauses: Clauses) -> None:
        self.skeleton, self.function = skeleton, function
        # f = constant + linear.x / denominator + sum of phi(u) over the tables.
        last, weights = skeleton.layers[-1], function.weights
        moves = np.flatnonzero((last.state == 0) & (last.variable >= 0))
        fixed = int((weights * last.state.astype(object)).sum())
        self.constant = function.constant + Fraction(fixed, function.denominator)
        self.linear = np.zeros(skeleton.size, dtype=object)
        np.add.at(self.linear, last.variable[moves], weights[moves] * last.sign[moves])
        self._make_tables(np.flatnonzero((last.state == 0) & (last.variable < 0) & (weights != 0)))
        self._make_gates()
        self.clauses = skeleton.literal_table(clauses)
        #: Inequalities of first-layer signs that every node may use.
        self.cuts: list[ProvedCut] = []

    def _make_tables(self, members: Integers) -> None:
        last, function = self.skeleton.layers[-1], self.function
        keys = [last.rows.key(j) for j in members.tolist()]
        number: dict[bytes, int] = {}
        table = np.array([number.setdefault(key, len(number)) for key, _ in keys], dtype=np.int64)
        turn = np.array([flip for _, flip in keys], dtype=np.int64)
        _, lead = np.unique(table, return_index=True)
        j, flip = members[lead], turn[lead]
        weights = np.zeros((j.size, self.skeleton.size), dtype=np.int64)
        weights[:, : last.rows.matrix.width] = flip[:, None] * last.rows.matrix.take(j).dense()
        low, high = flip * last.low[j], flip * last.high[j]
        self.tables = SumValues.of(weights, np.minimum(low, high), np.maximum(low, high))
        # phi in units of 2^-self.unit, rounded down if the weights are finer than that.
        reach = int(np.abs(function.weights).sum()) // function.denominator + 1
        if reach >= 2**58:
            raise RejectedError("the weights of the property are too large")
        self.unit = min(FINEST, 59 - reach.bit_length())
        weight = function.weights[members] << self.unit
        up = (weight // function.denominator).astype(np.int64)[:, None]
        down = (-weight // function.denominator).astype(np.int64)[:, None]
        u = turn[:, None] * self.tables.points[table]
        plus, minus = u >= last.plus[members][:, None], u <= last.minus[members][:, None]
        phi = np.where(plus & minus, np.minimum(up, down), np.where(plus, up, down))
        self.values = np.zeros_like(self.tables.points)
        np.add.at(self.values, table, phi)

    def _make_gates(self) -> None:
        """Prepare the sums of all variables above the first layer, with their thresholds."""
        owners = [(v, n, j) for v, (n, j) in enumerate(self.skeleton.owner) if n > 0]
        weights = np.zeros((len(owners), self.skeleton.size), dtype=np.int64)
        numbers = np.zeros((5, len(owners)), dtype=np.int64)
        for k, (v, n, j) in enumerate(owners):
            one = self.skeleton.layers[n]
            weights[k, : one.rows.matrix.width] = one.rows.matrix.take(np.array([j])).dense()
            numbers[:, k] = v, one.low[j], one.high[j], one.plus[j], one.minus[j]
        self.gate_variable, low, high, self.gate_plus, self.gate_minus = numbers
        self.gates = SumValues.of(weights, low, high)

    def learn(self, clauses: Clauses) -> None:
        """Add proved clauses of first-layer neurons, as literals of variables."""
        table = self.skeleton.literal_table(clauses)
        self.clauses = SparseRows.stacked([self.clauses, table])

    # -- one node -------------------------------------------------------------------------

    def view(self, path: Signs) -> View | None:
        """Derive the facts that the signs of a path imply, or None if they cannot all occur."""
        signs, before, excluded = path.copy(), None, self.skeleton.excluded
        while before is None or not np.array_equal(signs, before):
            before = signs
            true = np.stack([signs > 0, signs < 0], axis=1).ravel()
            false = np.stack([signs < 0, signs > 0], axis=1).ravel() | excluded[true].any(axis=0)
            hold, dead = self.clauses.times(true), self.clauses.times(false)
            left = np.where(dead > 0, -1, self.clauses.sizes - hold)
            # The last literal of a clause cannot hold, and of the last two not both can.
            false[self._rest(left == 1, true)] = True
            pairs = self._rest(left == 2, true).reshape(-1, 2)
            if np.any(left == 0) or np.any(false[0::2] & false[1::2]):
                return None
            signs = false[1::2].astype(np.int8) - false[0::2].astype(np.int8)
            if not self._settle_gates(signs):
                return None
        excluded = excluded.copy()
        excluded[pairs[:, 0], pairs[:, 1]] = excluded[pairs[:, 1], pairs[:, 0]] = True
        tables, gates = (s.narrowed(signs, excluded) for s in (self.tables, self.gates))
        if not (tables.possible.any(axis=1).all() and gates.possible.any(axis=1).all()):
            return None
        return View(signs, excluded, tables, gates)

    def _rest(self, chosen: Table, true: Table) -> Integers:
        """List the literals of the chosen clauses that do not hold yet, clause by clause."""
        literals = self.clauses.take(np.flatnonzero(chosen)).columns
        return np.asarray(literals[~true[literals]])

    def _cases(self, gates: SumValues, signs: Signs) -> tuple[Table, Table]:
        """Decide at which values of its sum each gate can be +1, and -1."""
        own = signs[self.gate_variable][:, None]
        on = gates.possible & (own >= 0) & (gates.points >= self.gate_plus[:, None])
        return on, gates.possible & (own <= 0) & (gates.points <= self.gate_minus[:, None])

    def _settle_gates(self, signs: Signs) -> bool:
        """Fix the outputs of gates whose sums allow only one sign; False for a contradiction."""
        nothing = np.zeros((0, 0), dtype=bool)
        on, off = (c.any(axis=1) for c in self._cases(self.gates.narrowed(signs, nothing), signs))
        signs[self.gate_variable] = on.astype(np.int8) - off.astype(np.int8)
        return bool(np.all(on | off))

    # -- one leaf -------------------------------------------------------------------------

    def bound(self, view: View, m: Multipliers) -> Fraction:
        """Compute the lower bound of f at a node that the multipliers prove."""
        parts = (m.table_values, m.gate_values, m.diagonal, m.clash_values, m.split_values)
        if not any(part.size for part in parts):
            # A bound by ranges alone has no numbers of its own: the unit of phi is fine enough.
            m = replace(m, shift=min(m.shift, self.unit))
        total, linear = self.constants(view, m)
        constant, linear, form = self.assemble(view, m, linear)
        if m.diagonal.size:
            place = np.arange(form.shape[0])
            form[place, place] -= 2 * m.diagonal
            form[0, 0] += 2 * constant
            form[0, 1:] += linear
            form[1:, 0] += linear
            if not is_definite(form):
                raise RejectedError("a matrix is not positive definite")
            total += sum(m.diagonal.tolist())
        else:
            # Without squares: the minimum of a linear function of signs is that of every term.
            if form.any() or np.any(m.clash_values < 0):
                raise RejectedError("a leaf with squares has no diagonal")
            total += constant - sum(map(abs, linear.tolist()))
        return Fraction(total, 1 << m.shift)

    def constants(self, view: View, m: Multipliers) -> tuple[int, Integers]:
        """Compute the constants of f, tables and gates in units, and f's own linear part."""
        self._check_numbers(m)
        one = 1 << m.shift
        fixed = int((self.linear * view.signs.astype(object)).sum())
        total = floor((self.constant + Fraction(fixed, self.function.denominator)) * one)
        exact = self.linear[view.free] * one
        whole = exact // self.function.denominator
        linear = np.array([_small(d) for d in whole.tolist()], dtype=np.int64)
        # |x| = 1: the rounding of each coefficient costs at most one unit.
        total -= int(np.count_nonzero(whole * self.function.denominator != exact))
        points, numbers = view.tables.points, np.zeros((self.values.shape[0], 2), dtype=np.int64)
        numbers[m.tables] = m.table_values
        rest = self._phi(m.shift) - numbers[:, :1] * points - numbers[:, 1:] * points * points
        least = _least(rest, view.tables.possible)
        for table, value in zip(m.split_tables.tolist(), self._split(view, m, rest), strict=True):
            least[table] = value
        total += sum(least)
        place = np.searchsorted(self.gate_variable, m.gates)
        points = view.gates.points[place]
        b, c, e, g = (m.gate_values[:, k : k + 1] for k in range(4))
        even, odd = -(b * points + c * points * points), -(e + g * points)
        on, off = (case[place] for case in self._cases(view.gates, view.signs))
        total += sum(map(min, _least(even + odd, on), _least(even - odd, off)))
        # The coefficients of an inequality are rounded, and every monomial is +1 or -1.
        free = view.free.size
        total -= int(np.count_nonzero(m.cut_values)) * (1 + free + free * (free - 1) // 2)
        return total, linear

    def _split(self, view: View, m: Multipliers, rest: Integers) -> list[int]:
        """Compute the minimum over u and x of every table that is split."""
        tables, variables, (e, g) = m.split_tables, m.split_variables, m.split_values.T[:, :, None]
        weights, points = view.tables.weights[tables], view.tables.points[tables]
        sides = []
        for sign in (1, -1):
            # Of two literals that exclude each other, x makes the other one false.
            false = view.excluded[2 * variables + (sign < 0)]
            signs = false[:, 1::2].astype(np.int64) - false[:, 0::2]
            signs[np.arange(variables.size), variables] = sign
            signs = np.where(view.signs != 0, view.signs, signs)
            middle = (weights * signs).sum(axis=1)[:, None]
            reach = (np.abs(weights) * (signs == 0)).sum(axis=1)[:, None]
            within = view.tables.possible[tables] & (np.abs(points - middle) <= reach)
            sides.append(_least(rest[tables] - sign * (e + g * points), within))
        return list(map(min, *sides))

    def _check_numbers(self, m: Multipliers) -> None:
        """Raise if a table or gate does not exist, or if sums could exceed 64-bit integers."""
        if not 0 <= m.shift <= FINEST:
            raise RejectedError("a leaf has an impossible unit")
        tables = np.arange(self.values.shape[0])
        given = (m.tables, tables), (m.gates, self.gate_variable), (m.split_tables, tables)
        for names, known in given:
            # Not np.unique, which imports the masked arrays of NumPy.
            named = set(names.tolist())
            if len(named) != names.size or not named.issubset(known.tolist()):
                raise RejectedError("a leaf names a table or gate that does not exist, or twice")
        if np.any((m.split_variables < 0) | (m.split_variables >= self.skeleton.size)):
            raise RejectedError("a leaf splits a table by a variable that does not exist")
        reach = max(1, self.tables.rows.reach, self.gates.rows.reach)
        parts = [m.table_values, m.gate_values, m.diagonal, m.clash_values, m.cut_values]
        parts.append(m.split_values)
        largest = max(max(-int(p.min(initial=0)), int(p.max(initial=0))) for p in parts)
        _small(largest * reach * reach * (sum(p.size for p in parts) + 4))

    def _phi(self, shift: int) -> Integers:
        """Take phi at all points in units of 2^-shift, rounded down."""
        if shift <= self.unit:
            return self.values >> (self.unit - shift)
        _small(int(np.abs(self.values).max(initial=0)) << (shift - self.unit))
        return self.values << (shift - self.unit)

    def assemble(
        self, view: View, m: Multipliers, linear: Integers
    ) -> tuple[int, Integers, Integers]:
        """Add up f, tables, gates and clashes: constant, linear part, squares of 2 T.

        Without a diagonal a clash with pi >= 0 is the linear inequality s x_a + t x_b <= 0.
        """
        free, signs = view.free, view.signs.astype(np.int64)
        n = free.size
        if m.diagonal.size not in (0, n + 1):
            raise RejectedError("a leaf has the wrong number of diagonal entries")
        constant, linear, form = 0, linear.copy(), np.zeros((n + 1, n + 1), dtype=np.int64)
        place = np.full(signs.size, -1, dtype=np.int64)
        place[free] = np.arange(n)
        gates = np.searchsorted(self.gate_variable, m.gates)
        tables = self.tables, m.tables, m.table_values
        for sums, index, numbers in (tables, (self.gates, gates, m.gate_values)):
            # u = shift + rows.x, so b u + c u^2 has a constant, a linear and a square part.
            b, c = numbers[:, 0], numbers[:, 1]
            shift, rows = sums.weights[index] @ signs, sums.weights[index][:, free]
            constant += int((b * shift + c * shift * shift).sum())
            linear += (b + 2 * c * shift) @ rows
            form[1:, 1:] += (2 * c * rows.T) @ rows
        # e x + g x u of gates and split tables, x being known or not.
        for sums, index, variables, numbers in (
            (self.gates, gates, m.gates, m.gate_values[:, 2:]),
            (self.tables, m.split_tables, m.split_variables, m.split_values),
        ):
            (e, g), own = numbers.T, signs[variables]
            shift, rows = sums.weights[index] @ signs, sums.weights[index][:, free]
            product, single = g[:, None] * rows, e + g * shift
            constant += int((own * single).sum())
            linear += own @ product
            at = place[variables[own == 0]]
            np.add.at(linear, at, single[own == 0])
            both = np.zeros((n, n), dtype=np.int64)
            np.add.at(both, at, product[own == 0])
            form[1:, 1:] += both + both.T
        first, second, pi = m.clash_first, m.clash_second, m.clash_values
        if np.any((np.minimum(first, second) < 0) | (np.maximum(first, second) >= 2 * signs.size)):
            raise RejectedError("a leaf names a clash that does not exist")
        a, b = place[first // 2], place[second // 2]
        if not view.excluded[first, second].all() or np.any(np.minimum(a, b) < 0):
            raise RejectedError("a leaf uses a clash that is not known")
        s, t = 1 - 2 * (first % 2), 1 - 2 * (second % 2)
        sign = -1 if m.diagonal.size else 1
        np.add.at(linear, a, sign * pi * s)
        np.add.at(linear, b, sign * pi * t)
        if m.diagonal.size:
            constant -= int(pi.sum())
            np.add.at(form, (a + 1, b + 1), -pi * s * t)
            np.add.at(form, (b + 1, a + 1), -pi * s * t)
        return self._take_cuts(view, m, constant, linear, form)

    def _take_cuts(
        self, view: View, m: Multipliers, constant: int, linear: Integers, form: Integers
    ) -> tuple[int, Integers, Integers]:
        """Subtract the inequalities p(x) >= 0, each times its multiplier, rounded down."""
        if m.cut_values.size not in (0, len(self.cuts)) or np.any(m.cut_values < 0):
            raise RejectedError("a leaf has an impossible multiplier of an inequality")
        size = 0
        for number, value in enumerate(m.cut_values.tolist()):
            if not value:
                continue
            if not m.diagonal.size:
                raise RejectedError("a leaf with squares has no diagonal")
            cut = self.cuts[number].at(view.signs, view.free)
            # p has 2 S_ab x_a x_b for a < b, the entries (a, b) and (b, a) of twice T.
            lower, pairs = value * cut.linear >> cut.shift, 2 * value * cut.square >> cut.shift
            whole = value * cut.constant >> cut.shift
            size += abs(whole) + int(np.abs(lower).sum()) + int(np.abs(pairs).sum())
            _small(4 * size)
            constant -= whole
            linear = linear - lower.astype(np.int64)
            form[1:, 1:] -= pairs.astype(np.int64)
        return constant, linear, form


def is_definite(form: Integers) -> bool:
    r"""Whether a symmetric integer matrix A is positive definite.

    With any c > 0 and any matrix L, A = c I + L L' + R is positive definite if ||R|| < c.  L is a
    Cholesky factor of A - c I in floating point; it is not trusted, R is computed and its rounding
    errors are bounded: with u = 2^-53, the error of a float sum of n products in L L' is at most
    n u / (1 - n u) |L| |L|', in any order, whose norm is at most the sum of all squares in L.
    """
    n, unit = form.shape[0], 2.0**-53
    matrix = form.astype(np.float64)
    size = float(np.abs(matrix).sum(axis=1).max())
    slack = 4 * (n + 4) * unit * (abs(float(np.trace(matrix))) + size)
    shifted = matrix - slack * np.eye(n)
    try:
        factor = np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    rest = float(np.abs(shifted - factor @ factor.T).sum(axis=1).max())
    squares = float((factor * factor).sum())
    # Integers above 2^53, the shift and R itself are rounded: at most 4 u (size + slack).
    error = 1.1 * (n + 2) * unit * squares + 8 * unit * (size + slack)
    return bool(1.1 * rest + error < slack)


def _small(value: int) -> int:
    if abs(value) >= MOST:
        raise RejectedError("the numbers of a leaf are too large")
    return value


def _least(values: Integers, possible: Table) -> list[int]:
    """Minimise each row over its possible values."""
    most = np.iinfo(np.int64).max
    return list(np.where(possible, values, most).min(axis=1, initial=most).tolist())
