r"""Matrices that are symmetric products of two vectors of one list Z, B_k = sym(a, b).

The Newton matrix tr(B_k M B_l T^-1) consists of Hadamard products of Z M Z' and Z T^-1 Z'.

They also give the value that multipliers of a structured program prove, rounding included.  For all
theta, kappa and pi, and for every z whose squares are the diagonal of M, the value of the program
is at least

    sum_j min_k (value_jk - sum_{f >= 1} theta_jf feature_jkf) + sum_i kappa_i
        + min(0, least eigenvalue of T) |z|^2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import NO_DEADLINE, Deadline
from bnncert.engine.solvers.structured_program import StructuredMultipliers, StructuredProgram
from bnncert.model.layers import UNIT

Index: TypeAlias = Any

#: The number of rows of the Newton matrix that are computed together.
ROWS_AT_ONCE = 128


#: Share of entries that are not 0 below which products with the vectors skip the others.
SPARSE_SHARE = 0.05


class ProductMatrices:
    """The matrices of a program: of links, of the diagonal and of pairs, in this order."""

    def __init__(self, program: StructuredProgram) -> None:
        self.program = program
        size = program.size
        self.slices: list[tuple[Index, Index, int, int]] = []
        start = 0
        self.forms = np.zeros((0, size, size))
        self.form = slice(0, 0)
        for tables in program.tables:
            if tables.forms is not None:
                self.forms, self.form = tables.forms, slice(start, start + tables.count)
                start += tables.count
                continue
            for f in range(tables.links):
                stop = start + tables.count
                left = right = _compact(tables.left[:, f])
                if not np.array_equal(tables.left[:, f], tables.right[:, f]):
                    right = _compact(tables.right[:, f])
                if tables.count:
                    self.slices.append((left, right, start, stop))
                start = stop
        self.links = start
        units = slice(program.unit_from, program.unit_from + size)
        self.diagonal = slice(start, start + size)
        self.slices.append((units, units, start, start + size))
        start += size
        self.pair = slice(start, start + program.pair_left.size)
        if program.pair_left.size:
            self.slices.append((program.pair_left, program.pair_right, start, self.pair.stop))
        # There is one entry for each matrix; those of the shared diagonal are one unknown.
        self.entries = self.pair.stop
        self.group = slice(self.diagonal.stop - program.shared, self.diagonal.stop)
        self.unknowns = program.unknowns
        self.signs = np.ones(self.entries)
        # kappa and pi have a minus sign in T.
        self.signs[self.links :] = -1.0
        self.vectors = program.vectors

    @cached_property
    def _rows(self) -> Any:
        """The general vectors; those of bounding boxes have few entries."""
        rows = self.program.rows
        few = np.count_nonzero(rows) < SPARSE_SHARE * rows.size
        return sp.csr_array(rows) if few else rows

    @cached_property
    def _space(self) -> FloatArray:
        """Memory that all Newton matrices use: its allocation costs as much as the computation."""
        return np.zeros((self.entries, self.entries))

    def collapse(self, entries: FloatArray) -> FloatArray:
        """Return one entry for each unknown: the shared entries (of axis 0) are added up."""
        start, stop = self.group.start, self.group.stop
        if stop - start < 2:
            return entries
        total = entries[self.group].sum(axis=0, keepdims=True)
        return np.concatenate([entries[:start], total, entries[stop:]])

    def expand(self, unknowns: FloatArray) -> FloatArray:
        """Return the multiplier of every matrix."""
        start, count = self.group.start, self.program.shared
        if count < 2:
            return unknowns
        return np.insert(unknowns, start, np.full(count - 1, unknowns[start]))

    def gram(self, matrix: FloatArray) -> FloatArray:
        """Return Z matrix Z'."""
        program = self.program
        rows = np.asarray(self._rows @ matrix)
        top = np.block([[(self._rows @ rows.T).T, rows], [rows.T, matrix]])
        if not program.pair_unit.size:
            return np.asarray(top)
        zero = program.unit_from
        unit = zero + program.pair_unit
        sign = program.pair_sign
        wide = np.hstack([top, top[:, zero : zero + 1] + sign * top[:, unit]])
        low = wide[zero : zero + 1] + sign[:, None] * wide[unit]
        return np.vstack([wide, low])

    def schur(
        self, moments: FloatArray, inverse: FloatArray, deadline: Deadline = NO_DEADLINE
    ) -> FloatArray:
        """Return H_kl = tr(B_k M B_l T^-1) for k >= l; the next call overwrites it.

        Raise OutOfTimeError if the deadline passes before it is complete.
        """
        gm = self.gram(moments)
        deadline.check()
        gt = self.gram(inverse)
        full = self._space
        for n, (p, q, start, stop) in enumerate(self.slices):
            # Few rows at a time, so that all factors of a block fit into the cache.
            for low in range(0, stop - start, ROWS_AT_ONCE):
                deadline.check()
                high = min(low + ROWS_AT_ONCE, stop - start)
                some = _part(p, low, high)
                mp, tp = gm[some], gt[some]
                mq, tq = mp, tp
                if p is not q:
                    others = _part(q, low, high)
                    mq, tq = gm[others], gt[others]
                for r, s, begin, end in self.slices[: n + 1]:
                    if begin == start != self.diagonal.start:
                        # The part of its own block above the diagonal is not needed, except where
                        # entries of the shared diagonal are added up.
                        last = _part(r, 0, high)
                        r, s, end = last, last if r is s else _part(s, 0, high), start + high
                    block = _products(mp, tp, mq, tq, r, s)
                    if self.signs[start] * self.signs[begin] < 0:
                        np.negative(block, out=block)
                    full[start + low : start + high, begin:end] = block
        self._add_forms(full, moments, inverse)
        if self.unknowns < self.entries:
            full = np.ascontiguousarray(self.collapse(self.collapse(full).T).T)
        return full

    def _add_forms(self, full: FloatArray, moments: FloatArray, inverse: FloatArray) -> None:
        """Fill the rows and columns of the general matrices."""
        for k, form in enumerate(self.forms):
            product = moments @ form @ inverse
            row = self.measure((product + product.T) / 2) * self.signs
            place = self.form.start + k
            full[place, :place] = row[:place]
            full[place:, place] = row[place:]

    def combine(self, weights: FloatArray) -> FloatArray:
        """Return sum_k weights_k B_k (without signs) as a matrix."""
        total = np.tensordot(weights[self.form], self.forms, 1)
        for left, right, start, stop in self.slices:
            part = weights[start:stop]
            a, b = self._units(left), self._units(right)
            if a is not None and b is not None:
                # A unit vector that all matrices share is listed once.
                np.add.at(total, tuple(np.broadcast_to(i, part.shape) for i in (a, b)), part)
            elif a is not None or b is not None:
                unit, rows = (a, right) if a is not None else (b, left)
                assert unit is not None
                if unit.size == 1:
                    total[unit[0]] += part @ self.vectors[rows]
                elif np.unique(unit).size == unit.size:
                    # Much faster than np.add.at, and right only without repetitions.
                    total[unit] += part[:, None] * self.vectors[rows]
                else:
                    np.add.at(total, unit, part[:, None] * self.vectors[rows])
            else:
                total += (self.vectors[left] * part[:, None]).T @ self.vectors[right]
        return np.asarray((total + total.T) / 2)

    def measure(self, matrix: FloatArray) -> FloatArray:
        """Return <B_k, matrix> (without signs) for all matrices."""
        values = np.empty(self.entries)
        values[self.form] = np.tensordot(self.forms, matrix, 2)
        for left, right, start, stop in self.slices:
            a, b = self._units(left), self._units(right)
            if a is not None and b is not None:
                values[start:stop] = matrix[a, b]
            elif a is not None or b is not None:
                unit, rows = (a, right) if a is not None else (b, left)
                assert unit is not None
                if unit.size == 1:
                    values[start:stop] = self.vectors[rows] @ matrix[unit[0]]
                else:
                    values[start:stop] = np.einsum("ij,ij->i", matrix[unit], self.vectors[rows])
            else:
                image = self.vectors[left] @ matrix
                values[start:stop] = np.einsum("ij,ij->i", image, self.vectors[right])
        return values

    def _units(self, index: Index) -> IntArray | None:
        """Return the entries of z that a list of unit vectors names; None for other vectors."""
        first, size = self.program.unit_from, self.program.size
        if isinstance(index, slice):
            index = np.arange(index.start, index.stop)
        inside = index.size and index.min() >= first and index.max() < first + size
        return np.asarray(index - first) if inside else None


def _compact(index: IntArray) -> Index:
    """Return a slice for consecutive or equal indices, so that numpy does not copy."""
    if index.size and np.all(index == index[0]):
        return slice(int(index[0]), int(index[0]) + 1)
    if index.size and np.all(np.diff(index) == 1):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def _part(index: Index, low: int, high: int) -> Index:
    """Return the indices low..high; a slice of length one is used for all of them."""
    if not isinstance(index, slice):
        return index[low:high]
    if index.stop - index.start == 1:
        return index
    return slice(index.start + low, index.start + high)


def _products(
    mp: FloatArray, tp: FloatArray, mq: FloatArray, tq: FloatArray, r: Index, s: Index
) -> FloatArray:
    """Return tr(sym(p, q) M sym(r, s) T^-1), given rows p and q of Z M Z' and of Z T^-1 Z'.

    If p is q, or r is s, the four terms are two pairs of equal terms.
    """
    if mp is mq and r is s:
        return _columns(mp, r) * _columns(tp, r)
    if mp is mq:
        block = _columns(mp, r) * _columns(tp, s)
        block += _columns(mp, s) * _columns(tp, r)
        return block * 0.5
    if r is s:
        block = _columns(mp, r) * _columns(tq, r)
        block += _columns(mq, r) * _columns(tp, r)
        return block * 0.5
    # Not in place: if r is a single vector, the first product is narrower than the sum.
    block = _columns(mq, r) * _columns(tp, s)
    block = block + _columns(mq, s) * _columns(tp, r)
    block = block + _columns(mp, r) * _columns(tq, s)
    block = block + _columns(mp, s) * _columns(tq, r)
    return np.asarray(block * 0.25)


def _columns(matrix: FloatArray, columns: Index) -> FloatArray:
    if isinstance(columns, slice):
        return np.asarray(matrix[:, columns])
    return np.asarray(matrix.take(columns, axis=1))


def dual_bound(program: StructuredProgram, multipliers: StructuredMultipliers) -> float:
    """Return a lower bound of the value of the program; -inf for numbers that are not finite."""
    weights = multipliers.signed()
    if not np.all(np.isfinite(weights)):
        return -np.inf
    with np.errstate(all="ignore"):
        parts = np.concatenate([_constants(program, multipliers), multipliers.kappa])
        least = _least_eigenvalue(program, weights)
        rounding = (parts.size + 8) * UNIT * float(np.abs(parts).sum())
        # |z|^2 is the number of its entries.
        value = float(parts.sum()) + program.size * min(0.0, least) * (1 + 8 * UNIT) - rounding
    return value if np.isfinite(least) and np.isfinite(value) else -np.inf


def _constants(program: StructuredProgram, multipliers: StructuredMultipliers) -> FloatArray:
    """Return for every table the minimum over its points, rounded down."""
    found = []
    for tables, theta in zip(program.tables, multipliers.theta, strict=True):
        factors, features = theta[:, None, 1:], tables.features[:, :, 1:]
        rest = tables.values - (factors * features).sum(axis=2)
        size = np.abs(tables.values) + np.abs(factors * features).sum(axis=2)
        rest -= 4 * (tables.links + 4) * UNIT * size + 1e-290
        found.append(rest.min(axis=1, initial=np.inf))
    return np.concatenate([np.zeros(0), *found])


def _least_eigenvalue(program: StructuredProgram, weights: FloatArray) -> float:
    """Return a lower bound of the least eigenvalue of T in exact arithmetic."""
    form = program.base + ProductMatrices(program).combine(weights)
    sizes = replace(
        program,
        linear=np.abs(program.linear),
        rows=np.abs(program.rows),
        pair_sign=np.abs(program.pair_sign),
    )
    size = sizes.base + ProductMatrices(sizes).combine(np.abs(weights))
    if not (np.all(np.isfinite(form)) and np.all(np.isfinite(size))):
        return -np.inf
    # The error of an eigenvalue is at most the largest row sum of the errors, plus LAPACK's.
    error = 2 * (weights.size + 16) * UNIT * float(size.sum(axis=1).max()) + 1e-270
    norm = float(np.abs(form).sum(axis=1).max())
    return float(np.linalg.eigvalsh(form)[0]) - error - 8 * program.size * UNIT * norm
