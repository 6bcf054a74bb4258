"""Steps are moved through weights, and weights are multiplied, without any rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bnncert.model.description import Divide, ElementwiseStep, Normalise, Scale, Shift, take_step
from bnncert.model.formats.onnx.exact import (
    InexactError,
    add,
    compose,
    divide,
    dot_rows,
    multiply,
    push,
    row_values,
    tidy,
)
from bnncert.model.thresholds import affine_coefficients

WIDE = st.one_of(
    st.floats(-1e6, 1e6, width=32),
    st.floats(-1e-6, 1e-6),
    st.floats(1e100, 1e150),
    st.integers(-3, 3).map(float),
)


def _matrix(rows: npt.ArrayLike) -> Any:
    return tidy(sp.csr_array(np.asarray(rows, dtype=np.float64)))


def _exactly(step: ElementwiseStep, values: list[Fraction]) -> list[Fraction]:
    """Apply a rational step."""
    if isinstance(step, Scale):
        return [Fraction(f) * v for f, v in zip(step.factor.tolist(), values, strict=True)]
    if isinstance(step, Divide):
        return [v / Fraction(d) for d, v in zip(step.divisor.tolist(), values, strict=True)]
    assert isinstance(step, Shift)
    return [v + Fraction(a) for a, v in zip(step.offset.tolist(), values, strict=True)]


def _product(matrix: Any, values: list[Fraction]) -> list[Fraction]:
    return [
        sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(0))
        for row in matrix.toarray().astype(np.float64).tolist()
    ]


@given(
    rows=st.lists(st.lists(WIDE, min_size=3, max_size=3), min_size=1, max_size=4),
    vector=st.lists(WIDE, min_size=3, max_size=3),
)
@settings(max_examples=35, deadline=None)
def test_dot_products_are_exact(rows: list[list[float]], vector: list[float]) -> None:
    try:
        parts = dot_rows(_matrix(rows), np.array(vector))
    except InexactError:
        assume(False)
    exact = _product(_matrix(rows), [Fraction(v) for v in vector])
    for k, value in enumerate(exact):
        assert sum((Fraction(float(part[k])) for part in parts), Fraction(0)) == value


def test_a_dot_product_of_integers_is_one_float() -> None:
    matrix = _matrix([[1, -1, 0], [1, 1, 1]])
    (part,) = dot_rows(matrix, np.array([0.5, 0.25, 3.0]))
    assert part.tolist() == [0.25, 3.75]
    assert dot_rows(matrix, np.zeros(3)) == []


def test_a_dot_product_that_underflows_is_refused() -> None:
    with pytest.raises(InexactError):
        dot_rows(_matrix([[1e-200]]), np.array([1e-200]))
    with pytest.raises(InexactError):
        dot_rows(_matrix([[1e200]]), np.array([1e200]))


@given(x=st.floats(-1e30, 1e30), y=st.floats(-1e30, 1e30))
@settings(max_examples=30, deadline=None)
def test_arithmetic_is_exact_or_refused(x: float, y: float) -> None:
    a, b = np.array([x]), np.array([y])
    for operation, exact in (
        (multiply, Fraction(x) * Fraction(y)),
        (add, Fraction(x) + Fraction(y)),
        (divide, Fraction(x) / Fraction(y) if y else None),
    ):
        if exact is None:
            continue
        try:
            result = operation(a, b)
        except InexactError:
            continue
        assert Fraction(float(result[0])) == exact


def test_simple_arithmetic_is_not_refused() -> None:
    third, big = np.float64(np.float32(1 / 3)), np.float64(np.float32(1e20))
    assert multiply(np.array([third]), np.array([big]))[0] == third * big
    assert divide(np.array([3.0]), np.array([0.5]))[0] == 6.0
    assert add(np.array([1.0]), np.array([2.0**-50]))[0] == 1.0 + 2.0**-50
    with pytest.raises(InexactError):
        add(np.array([1.0]), np.array([2.0**-60]))
    with pytest.raises(InexactError):
        divide(np.array([1.0]), np.array([3.0]))


STEP = st.one_of(
    st.tuples(st.just(Scale), st.lists(st.sampled_from([0.5, -1.5, 0.1, 3.0]), min_size=3)),
    st.tuples(st.just(Shift), st.lists(st.sampled_from([0.3, -7.0, 1e-9, 0.0]), min_size=3)),
    st.tuples(st.just(Divide), st.lists(st.sampled_from([3.0, 0.25, -5.0, 7.0]), min_size=3)),
    st.tuples(st.just(Scale), st.sampled_from([0.1, -2.0]).map(lambda v: [v] * 3)),
    st.tuples(st.just(Divide), st.sampled_from([0.1, -3.0]).map(lambda v: [v] * 3)),
)


@given(
    rows=st.lists(
        st.lists(st.integers(-2, 2).map(float), min_size=3, max_size=3), min_size=1, max_size=3
    ),
    chain=st.lists(STEP, max_size=4),
    point=st.lists(st.integers(-5, 5), min_size=3, max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_pushing_steps_through_weights_changes_nothing(
    rows: list[list[float]], chain: list[tuple[Any, list[float]]], point: list[int]
) -> None:
    steps = [kind(np.array(values[:3])) for kind, values in chain]
    try:
        weights, after = push(_matrix(rows), steps)
    except InexactError:
        assume(False)
    values = [Fraction(v) for v in point]
    for step in steps:
        values = _exactly(step, values)
    before = _product(_matrix(rows), values)
    pushed = _product(weights, [Fraction(v) for v in point])
    for step in after:
        pushed = _exactly(step, pushed)
    assert pushed == before


def test_different_divisors_get_a_common_denominator() -> None:
    weights, after = push(_matrix([[1, 1], [1, -1]]), [Divide(np.array([3.0, 5.0]))])
    assert weights.toarray().tolist() == [[5, 3], [5, -3]]
    assert [type(step) for step in after] == [Divide, Divide]


def test_normalisation_moves_behind_a_sum() -> None:
    two = np.full(2, 2.0)
    norm = Normalise(two, two * 0.1, two * 0.3, two, two * 1e-3)
    _, after = push(_matrix([[1, 1], [1, 0]]), [norm])
    gains = affine_coefficients([norm], 2, "test")
    moved = affine_coefficients(after, 2, "test")
    for row, count in enumerate((2, 1)):
        assert moved.gain[row] == gains.gain[0]
        # count times the offset, up to the width of the enclosures of the square root.
        error = abs(moved.offset[row].lo - count * gains.offset[0].lo)
        assert error < Fraction(1, 10**20)
    with pytest.raises(InexactError):
        push(_matrix([[1, 1]]), [take_step(norm, np.array([0, 1])), _uneven(norm)])


def _uneven(norm: Normalise) -> Normalise:
    return Normalise(np.array([1.0, 2.0]), norm.beta, norm.mean, norm.variance, norm.epsilon)


def test_composition_is_integer_times_a_power_of_two() -> None:
    left, right = _matrix([[0.5, 1.5]]), _matrix([[4.0, 0.0], [4.0, 12.0]])
    matrix, scale = compose(left, right)
    assert (matrix.toarray() * scale).tolist() == [[8.0, 18.0]]
    assert matrix.data.dtype == np.int8
    with pytest.raises(InexactError):
        compose(_matrix([[0.1, 0.7]]), _matrix([[0.3], [0.9]]))


def test_cancelled_weights_are_dropped_without_touching_the_factors() -> None:
    left, right = _matrix([[1, 1]]), _matrix([[1, 2], [-1, 3]])
    matrix, _ = compose(left, right)
    assert matrix.toarray().tolist() == [[0, 5]]
    assert matrix.nnz == 1
    assert right.toarray().tolist() == [[1, 2], [-1, 3]]


def test_rows_share_a_value_or_not() -> None:
    matrix = _matrix([[1, 1, 0], [0, 0, 1], [0, 0, 0]])
    shared = row_values(matrix, np.array([2.0, 2.0, 5.0]))
    assert shared is not None
    assert shared.tolist() == [2.0, 5.0, 1.0]
    assert row_values(matrix, np.array([2.0, 3.0, 5.0])) is None
