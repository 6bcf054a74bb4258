"""Exact products of weights with other weights, scales and shifts.

A linear map that follows elementwise steps is rewritten as the same map followed by steps:

    W(f z) = f (W z)  where f is the same for all inputs of a row, else  (W diag f) z
    W(z + a) = W z + W a
    W(g (z - m) / s + b) = g (W z - W m) / s + W b

All results are exact: a shift that is not a float64 becomes several shifts with that sum, and an
InexactError is raised for results that cannot be represented in floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import Divide, ElementwiseStep, Normalise, Scale, Shift, step_arrays
from bnncert.model.matrices import csr_matrix, with_data

#: Bits of the pieces into which numbers are split for dot products in 64-bit integers.
PIECE_BITS = 20

#: A row with more entries than this could overflow such a dot product.
LONGEST_ROW = 2**22

#: Integers up to here are exact in float64.
EXACT_BELOW = 2.0**53

#: Magnitudes within which a float64 product has no underflow or overflow in its error term.
SMALLEST_FACTOR, LARGEST_FACTOR = 2.0**-400, 2.0**400

#: Different divisors of one row that are brought to a common denominator.
MOST_DIVISORS = 16


class InexactError(ArithmeticError):
    """A result cannot be written in float64 without rounding."""


def row_values(matrix: Any, values: FloatArray) -> FloatArray | None:
    """Find, for each row, the value that all its columns share; None if some row has two.

    The value of a row without entries is 1.
    """
    count = matrix.shape[0]
    if values.size and bool(np.all(values == values[0])):
        return np.full(count, values[0])
    gathered = values[matrix.indices]
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    shared = np.ones(count)
    shared[filled] = gathered[matrix.indptr[filled]]
    return shared if bool(np.all(gathered == np.repeat(shared, lengths))) else None


def _check_range(*factors: FloatArray) -> None:
    for factor in factors:
        size = np.abs(factor[factor != 0])
        if size.size and (size.min() < SMALLEST_FACTOR or size.max() > LARGEST_FACTOR):
            raise InexactError("a number is too large or too small for exact arithmetic")


def multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply elementwise; raise InexactError if a product would be rounded."""
    _check_range(left, right)
    product: FloatArray = left * right
    if np.any(_product_error(left, right, product)):
        raise InexactError("a product of two weights or scales does not fit a float64")
    return product


def divide(left: FloatArray, right: FloatArray) -> FloatArray:
    """Divide elementwise; raise InexactError if a quotient would be rounded."""
    _check_range(left, right)
    quotient: FloatArray = left / right
    if np.any(multiply(quotient, right) != left):
        raise InexactError("a quotient does not fit a float64")
    return quotient


def add(left: FloatArray, right: FloatArray) -> FloatArray:
    """Add elementwise; raise InexactError if a sum would be rounded."""
    total: FloatArray = left + right
    back = total - left
    if np.any((left - (total - back)) + (right - back)):
        raise InexactError("a sum does not fit a float64")
    return total


def _product_error(left: FloatArray, right: FloatArray, product: FloatArray) -> FloatArray:
    """Compute left * right - product without rounding (Dekker)."""

    def halves(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        wide = x * 134217729.0
        high = wide - (wide - x)
        return high, x - high

    (a, b), (c, d) = halves(left), halves(right)
    error: FloatArray = ((a * c - product) + a * d + b * c) + b * d
    return error


def _pieces(values: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """Yield integers m and exponents e with values = sum m 2^e and |m| < 2^PIECE_BITS."""
    if values.dtype.kind in "iu" and (
        values.dtype.itemsize == 1 or bool(np.all(np.abs(values) < 2**PIECE_BITS))
    ):
        yield values, 0
        return
    rest = values.astype(np.float64)
    while True:
        top = float(np.abs(rest).max(initial=0.0))
        if top == 0.0:
            return
        exponent = math.frexp(top)[1] - PIECE_BITS
        piece = np.trunc(np.ldexp(rest, -exponent))
        yield piece.astype(np.int64), exponent
        rest = rest - np.ldexp(piece, exponent)


def dot_rows(matrix: Any, vector: FloatArray) -> list[FloatArray]:
    """Compute ``matrix @ vector`` as float arrays with this exact sum (none if it is zero)."""
    if int(np.diff(matrix.indptr).max(initial=0)) > LONGEST_ROW:
        raise InexactError(f"a row with more than {LONGEST_ROW} weights")
    vector_pieces = list(_pieces(vector))
    terms: list[tuple[IntArray, int]] = []
    if vector_pieces:
        for data, exponent in _pieces(matrix.data):
            part = with_data(matrix, data)
            terms += [
                (np.asarray(part @ piece.astype(np.int64)), exponent + e)
                for piece, e in vector_pieces
            ]
    terms = [(term, e) for term, e in terms if np.any(term)]
    if not terms:
        return []
    lowest = min(e for _, e in terms)
    total = np.zeros(matrix.shape[0], dtype=object)
    for term, e in terms:
        total = total + term.astype(object) * (1 << (e - lowest))
    return _expansion(total, lowest)


def _expansion(numerators: npt.NDArray[Any], exponent: int) -> list[FloatArray]:
    """Write numerators * 2^exponent as a sum of floats, the largest first."""
    unique, inverse = np.unique(numerators, return_inverse=True)
    rest = [Fraction(int(n)) * Fraction(2) ** exponent for n in unique]
    parts = []
    while any(rest):
        try:
            rounded = [float(value) for value in rest]
        except OverflowError as error:
            raise InexactError("a shift is too large for a float64") from error
        if not any(rounded):
            raise InexactError("a shift is too small for a float64")
        parts.append(np.array(rounded)[inverse.reshape(-1)])
        rest = [value - Fraction(near) for value, near in zip(rest, rounded, strict=True)]
    return parts


def tidy(matrix: Any) -> Any:
    """Make a matrix canonical, with a small integer type if its entries are integers."""
    # The matrix is copied first, because its index arrays may be shared with another matrix.
    if not np.all(matrix.data):
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    data = matrix.data
    if data.dtype.kind == "f" and not np.all(data == np.rint(data)):
        return matrix
    largest = int(np.abs(data).max(initial=0))
    kind = np.int8 if largest <= 127 else np.int32 if largest < 2**31 else np.float64
    return matrix.astype(kind, copy=False)


def relabelled(matrix: Any, columns: IntArray, width: int) -> Any:
    """Move column k of a matrix to column columns[k] of `width` columns."""
    if matrix.shape[1] == width and bool(np.all(columns == np.arange(width))):
        return matrix
    return unsorted_rows(
        matrix.data, columns[matrix.indices], matrix.indptr, (matrix.shape[0], width)
    )


def unsorted_rows(
    data: npt.NDArray[Any], columns: npt.NDArray[Any], indptr: IntArray, shape: tuple[int, int]
) -> Any:
    """Make the canonical matrix of rows whose columns are in any order."""
    matrix = csr_matrix(data, columns.astype(np.int32), indptr, shape)
    matrix.has_sorted_indices = False
    return tidy(matrix)


def _scale_columns(matrix: Any, factor: FloatArray) -> Any:
    data = multiply(matrix.data.astype(np.float64), factor[matrix.indices])
    return tidy(with_data(matrix, data))


def _divide_columns(matrix: Any, divisor: FloatArray) -> tuple[Any, list[ElementwiseStep]]:
    """Write W diag(1/d) as a matrix V and divisions that follow it."""
    try:
        data = divide(matrix.data.astype(np.float64), divisor[matrix.indices])
        return tidy(with_data(matrix, data)), []
    except InexactError:
        different, which = np.unique(divisor, return_inverse=True)
        if different.size > MOST_DIVISORS:
            raise
    # 1/3 is not a float, but w/3 + v/5 = (5 w + 3 v) / 15 has integer weights.
    exact = [Fraction(float(d)) for d in different]
    others = [math.prod(exact[:k] + exact[k + 1 :], start=Fraction(1)) for k in range(len(exact))]
    cofactor = np.array([float(c) for c in others])
    if any(Fraction(float(c)) != o for c, o in zip(cofactor, others, strict=True)):
        raise InexactError("different divisors have no common denominator in float64")
    rows = matrix.shape[0]
    return (
        _scale_columns(matrix, cofactor[which.reshape(-1)]),
        [Divide(np.full(rows, float(d))) for d in different],
    )


def push(matrix: Any, steps: Sequence[ElementwiseStep]) -> tuple[Any, tuple[ElementwiseStep, ...]]:
    """Move steps behind a map: W' and T with  W(S(z)) = T(W' z)  for the steps S of the columns."""
    after: list[ElementwiseStep] = []
    for step in reversed(steps):
        if isinstance(step, Shift):
            moved: list[ElementwiseStep] = [Shift(part) for part in dot_rows(matrix, step.offset)]
        elif isinstance(step, Normalise):
            moved = _push_normalisation(matrix, step)
        else:
            kind = type(step)
            (values,) = step_arrays(step)
            shared = row_values(matrix, values)
            if shared is not None:
                moved = [kind(shared)]
            elif kind is Scale:
                matrix, moved = _scale_columns(matrix, values), []
            else:
                matrix, moved = _divide_columns(matrix, values)
        after[:0] = moved
    return matrix, tuple(after)


def _push_normalisation(matrix: Any, step: Normalise) -> list[ElementwiseStep]:
    shared = [row_values(matrix, array) for array in (step.gamma, step.variance, step.epsilon)]
    gamma, variance, epsilon = shared
    if gamma is None or variance is None or epsilon is None:
        raise InexactError(
            "batch normalisation with several scales in one row is irrational in the weights"
        )
    zero = np.zeros(matrix.shape[0])
    return [
        *(Shift(part) for part in dot_rows(matrix, -step.mean)),
        Normalise(gamma, zero, zero, variance, epsilon),
        *(Shift(part) for part in dot_rows(matrix, step.beta)),
    ]


def _integer_data(data: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Write data as integers m and one exponent e, data = m 2^e."""
    if data.dtype.kind in "iu" or data.size == 0:
        return data.astype(np.int64), 0
    filled = data[data != 0]
    if filled.size == 0:
        return data.astype(np.int64), 0
    mantissa, exponent = np.frexp(filled)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    lowest = int((exponent - 53 + trailing).min())
    scaled = np.ldexp(data, -lowest)
    if np.abs(scaled).max() >= EXACT_BELOW:
        raise InexactError("the weights have too many digits")
    return scaled.astype(np.int64), lowest


def compose(left: Any, right: Any) -> tuple[Any, float]:
    """Multiply ``left @ right`` as an integer matrix times a power of two."""
    (a, e), (b, f) = _integer_data(left.data), _integer_data(right.data)
    first, second = with_data(left, a), with_data(right, b)
    reach = float(abs(first).sum(axis=1).max()) * float(np.abs(b).max(initial=0))
    if reach >= EXACT_BELOW or abs(e + f) > 1000:
        raise InexactError("the product of two weight matrices has too many digits")
    return tidy(first @ second), 2.0 ** (e + f)
