r"""Conflicting triples: signs of three neurons that exclude each other although no two of them do.

Signs (s, t, r) of (a, b, c) cannot occur together if some theta >= 0 has

    h(theta_1 s w_a + theta_2 t w_b + theta_3 r w_c) + theta_1 c_a + theta_2 c_b + theta_3 c_c < 0.

On a box with weights in {-1, 0, 1} the function is piecewise linear in theta and its kinks are at
theta proportional to (1, 1, 1) and (2, 1, 1), which are tried for all triples at once.  Because
|i x + j y + k z| is an even function on {-1, 0, 1}^3, it is a polynomial in 14 even monomials, so
that all sums over the inputs are matrix products.  For an L2 ball the norm is computed from the
Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pairs import middle_and_half_width
from bnncert.model.layers import UNIT
from bnncert.regions import Region

#: With more neurons the cubic tables take too long.
MOST_NEURONS = 120

#: The multipliers that are tried, up to a common factor.
SHAPES = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2))

_EVEN = [e for e in product(range(3), repeat=3) if sum(e) % 2 == 0]


@dataclass(frozen=True, eq=False)
class Triples:
    """Rows of three literals that cannot all hold, and the multipliers that prove it."""

    literals: IntArray
    theta: IntArray

    @staticmethod
    def none() -> Triples:
        """Return the empty set."""
        return Triples(np.zeros((0, 3), dtype=np.int64), np.zeros((0, 3), dtype=np.int64))

    @property
    def size(self) -> int:
        """The number of triples."""
        return int(self.literals.shape[0])

    def table(self, neurons: int) -> BoolArray:
        """Return the symmetric table over 2 * neurons literals."""
        table = np.zeros((2 * neurons,) * 3, dtype=bool)
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            i, j, k = (self.literals[:, m] for m in order)
            table[i, j, k] = True
        return table


def conflicting_triples(
    region: Region,
    weights: Any,
    plus_from: FloatArray,
    minus_upto: FloatArray,
    excluded: BoolArray,
    deadline: Deadline,
) -> Triples:
    """Return conflicting triples of literals; `excluded` is the table of conflicting pairs.

    Raises OutOfTimeError if the deadline passes before all are found.
    """
    count = weights.shape[0]
    used = np.unique(weights.indices)
    if not 3 <= count <= MOST_NEURONS or not used.size:
        return Triples.none()
    need = np.stack([-plus_from, minus_upto])
    dense = weights[:, used].astype(np.float64).toarray()
    if region.is_box and np.all(np.abs(weights.data) == 1):
        return _over_box(dense, need, region.lo[used], region.hi[used], excluded, deadline)
    if region.norm == "l2":
        return _over_ball(dense, need, region.middle[used], region.radius, excluded, deadline)
    return Triples.none()


def _coefficients(shape: tuple[int, int, int]) -> dict[tuple[int, ...], float]:
    """Return |i x + j y + k z| on {-1, 0, 1}^3 as a polynomial in even monomials."""
    points = list(product((-1, 0, 1), repeat=3))
    matrix = np.array(
        [[p[0] ** e[0] * p[1] ** e[1] * p[2] ** e[2] for e in _EVEN] for p in points], dtype=float
    )
    values = np.array([abs(sum(i * x for i, x in zip(shape, p, strict=True))) for p in points])
    solved = np.linalg.lstsq(matrix, values.astype(float), rcond=None)[0]
    # The coefficients are multiples of 1/4, so the identity is exact after rounding to them.
    rounded = np.round(4 * solved) / 4
    assert np.array_equal(matrix @ rounded, values)
    return {e: float(c) for e, c in zip(_EVEN, rounded, strict=True) if c}


def _moments(
    dense: FloatArray, half: FloatArray, deadline: Deadline
) -> dict[tuple[int, ...], FloatArray]:
    """Return sum_i half_i x_a^e1 x_b^e2 x_c^e3 as arrays that broadcast to (n, n, n)."""
    n = dense.shape[0]
    powers = (np.ones_like(dense), dense, np.abs(dense))
    out: dict[tuple[int, ...], FloatArray] = {}
    for e in _EVEN:
        deadline.check()
        if e.count(0) == 3:
            out[e] = np.full((1, 1, 1), half.sum())
        elif e.count(0) == 2:
            axis = next(k for k in range(3) if e[k])
            shape = [1, 1, 1]
            shape[axis] = n
            out[e] = (powers[2] @ half).reshape(shape)
        elif e.count(0) == 1:
            kept = [k for k in range(3) if e[k]]
            pair = (powers[e[kept[0]]] * half) @ powers[e[kept[1]]].T
            shape = [1, 1, 1]
            shape[kept[0]] = shape[kept[1]] = n
            out[e] = pair.reshape(shape)
        else:
            out[e] = np.empty((n, n, n))
            for a, weighted in enumerate(powers[e[0]] * half):
                deadline.check()
                out[e][a] = (weighted * powers[e[1]]) @ powers[e[2]].T
    return out


def _over_box(
    dense: FloatArray,
    need: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    excluded: BoolArray,
    deadline: Deadline,
) -> Triples:
    middle, half = middle_and_half_width(lo, hi)
    at = dense @ middle
    size = np.abs(dense) @ np.maximum(np.abs(lo), np.abs(hi))
    moments = _moments(dense, half, deadline)
    # All sums above have at most this many terms, and each is rounded at most twice.
    slack = (dense.shape[1] + 64) * UNIT * 64
    found = []
    for shape in SHAPES:
        coefficients = _coefficients(shape)
        for signs in product((1, -1), repeat=3):
            deadline.check()
            value: FloatArray = np.zeros((1, 1, 1))
            for e, c in coefficients.items():
                sign = np.prod([s for s, k in zip(signs, e, strict=True) if k == 1], initial=1)
                value = value + (c * float(sign)) * moments[e]
            value = value + _linear(shape, signs, at, size, need, slack)
            found.append(_pick(value, shape, signs, excluded))
    return _joined(found)


def _over_ball(
    dense: FloatArray,
    need: FloatArray,
    middle: FloatArray,
    radius: float,
    excluded: BoolArray,
    deadline: Deadline,
) -> Triples:
    gram = dense @ dense.T
    norm = np.sqrt(np.diag(gram))
    at = dense @ middle
    size = np.abs(dense) @ np.abs(middle) + radius * norm
    slack = (dense.shape[1] + 64) * UNIT * 64
    found = []
    for shape in SHAPES:
        i, j, k = shape
        square = np.diag(gram)
        plain = i * i * square[:, None, None] + j * j * square[None, :, None] + k * k * square
        for signs in product((1, -1), repeat=3):
            deadline.check()
            s, t, r = signs
            inside = plain + 2 * (
                (i * j * s * t) * gram[:, :, None]
                + (j * k * t * r) * gram[None, :, :]
                + (i * k * s * r) * gram[:, None, :]
            )
            # The terms may cancel, so the rounding error is relative to their sizes.
            value = radius * np.sqrt(np.maximum(inside, 0.0) + 32 * UNIT * 9 * plain)
            value = value + _linear(shape, signs, at, size, need, slack)
            found.append(_pick(value, shape, signs, excluded))
    return _joined(found)


def _linear(
    shape: tuple[int, ...],
    signs: tuple[int, ...],
    at: FloatArray,
    size: FloatArray,
    need: FloatArray,
    slack: float,
) -> FloatArray:
    """Return the part that is linear in theta, plus a bound of all rounding errors."""
    total: FloatArray = np.zeros((1, 1, 1))
    for axis, (i, s) in enumerate(zip(shape, signs, strict=True)):
        bound = need[int(s < 0)]
        part = i * (s * at + bound + slack * (size + np.abs(bound)))
        view = [1, 1, 1]
        view[axis] = part.size
        total = total + part.reshape(view)
    return total


def _pick(
    value: FloatArray, shape: tuple[int, ...], signs: tuple[int, ...], excluded: BoolArray
) -> Triples:
    a, b, c = np.nonzero(value < 0)
    ordered = (a < b) & (b < c)
    a, b, c = a[ordered], b[ordered], c[ordered]
    x, y, z = (literal(v, s) for v, s in zip((a, b, c), signs, strict=True))
    new = ~(excluded[x, y] | excluded[y, z] | excluded[x, z])
    literals = np.stack([x[new], y[new], z[new]], axis=1)
    return Triples(literals, np.tile(np.array(shape, dtype=np.int64), (literals.shape[0], 1)))


def _joined(parts: list[Triples]) -> Triples:
    literals = np.concatenate([p.literals for p in parts])
    theta = np.concatenate([p.theta for p in parts])
    kept = np.unique(literals, axis=0, return_index=True)[1]
    return Triples(literals[kept], theta[kept])
