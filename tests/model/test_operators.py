"""Fast products with layers, and sparse rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bnncert.model.description import Convolution, Shift, Stage
from bnncert.model.layers import ThresholdLayer
from bnncert.model.matrices import (
    ConvolutionOperator,
    DenseOperator,
    SparseOperator,
    as_sparse,
    factor_dense,
    factor_sparse,
    incidence_matrix,
    make_operator,
    row_norms,
    scale_rows,
)
from tests.model.small_networks import (
    CASES,
    Array,
    describe,
    dyadic,
    naive_scores,
    normalise,
    stage,
    ternary,
)


def convolution_rows(c: Convolution, flip: Array) -> Array:
    """Write the convolution out as a matrix, one output cell and kernel entry at a time."""
    out, inner, kh, kw = c.kernel.shape
    channels, height, width = c.shape
    top, left, bottom, right = c.pads
    oh = (height + top + bottom - c.dilations[0] * (kh - 1) - 1) // c.strides[0] + 1
    ow = (width + left + right - c.dilations[1] * (kw - 1) - 1) // c.strides[1] + 1
    full = np.zeros((out * oh * ow, channels * height * width))
    for o, y, x in product(range(out), range(oh), range(ow)):
        group = o // (out // c.groups)
        for i, a, b in product(range(inner), range(kh), range(kw)):
            row = y * c.strides[0] + a * c.dilations[0] - top
            column = x * c.strides[1] + b * c.dilations[1] - left
            if 0 <= row < height and 0 <= column < width:
                cell = ((group * inner + i) * height + row) * width + column
                full[(o * oh + y) * ow + x, c.source[cell]] += c.kernel[o, i, a, b]
    return flip[:, None] * full[c.rows]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, Array]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    groups = draw(st.sampled_from([1, 1, 2]))
    inner, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels = groups * inner
    kernel_size = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    height = draw(st.integers(1, 3)) + dilations[0] * (kernel_size[0] - 1)
    width = draw(st.integers(1, 3)) + dilations[1] * (kernel_size[1] - 1)
    inputs = channels * height * width
    source = rng.permutation(inputs) if draw(st.booleans()) else np.arange(inputs)
    oh = (height + pads[0] + pads[2] - dilations[0] * (kernel_size[0] - 1) - 1) // strides[0] + 1
    ow = (width + pads[1] + pads[3] - dilations[1] * (kernel_size[1] - 1) - 1) // strides[1] + 1
    rows = np.arange(groups * per_group * oh * ow)
    if draw(st.booleans()):
        rows = rng.permutation(rows)[: draw(st.integers(1, rows.size))]
    convolution = Convolution(
        kernel=rng.integers(-3, 4, (groups * per_group, inner, *kernel_size)).astype(np.float64),
        shape=(channels, height, width),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        source=source.astype(np.int64),
        rows=rows.astype(np.int64),
    )
    return convolution, rng.choice([-1.0, 0.0, 1.0], rows.size)


@CASES
@given(case=convolutions(), count=st.integers(1, 3), kind=st.sampled_from([np.float32, np.float64]))
def test_convolution_operator_is_its_matrix(
    case: tuple[Convolution, Array], count: int, kind: type
) -> None:
    convolution, flip = case
    matrix = convolution_rows(convolution, flip)
    operator = ConvolutionOperator(convolution, flip, kind)
    rng = np.random.default_rng(count)
    ahead = rng.integers(-4, 5, (count, matrix.shape[1])).astype(kind)
    back = rng.integers(-4, 5, (count, matrix.shape[0])).astype(kind)
    np.testing.assert_array_equal(operator.forward(ahead), ahead @ matrix.T)
    np.testing.assert_array_equal(operator.backward(back), back @ matrix)
    assert operator.forward(ahead).dtype == kind
    assert operator.backward(back).dtype == kind


@pytest.mark.parametrize("kind", [DenseOperator, SparseOperator])
def test_matrix_operators_are_their_matrix(kind: type[DenseOperator | SparseOperator]) -> None:
    rng = np.random.default_rng(2)
    matrix = ternary(rng, 6, 9)
    operator = kind(sp.csr_array(matrix), np.float64)
    ahead, back = rng.normal(size=(4, 9)), rng.normal(size=(4, 6))
    np.testing.assert_allclose(operator.forward(ahead), ahead @ matrix.T, atol=1e-14)
    np.testing.assert_allclose(operator.backward(back), back @ matrix, atol=1e-14)


def test_operator_is_chosen_by_density() -> None:
    sparse = sp.csr_array(np.eye(40))
    assert isinstance(make_operator(sparse, None, None, np.float64), SparseOperator)
    assert isinstance(make_operator(sp.csr_array(np.eye(10)), None, None, float), DenseOperator)


def test_convolutional_layer_evaluates_like_its_matrix() -> None:
    rng = np.random.default_rng(6)
    convolution = Convolution(
        kernel=rng.choice([-1.0, 1.0], (2, 1, 2, 2)),
        shape=(1, 3, 3),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        groups=1,
        source=np.arange(9),
        rows=np.arange(8),
    )
    matrix = convolution_rows(convolution, np.ones(8))
    gamma = np.repeat([1.0, -1.0], 4)
    batch_norm = normalise(gamma, 0.0, 0.5, 1.0)
    layer = Stage(as_sparse(matrix), (batch_norm,), "conv", convolution=convolution)
    net = describe(layer, stage(dyadic(rng, 3, 8), Shift(np.zeros(3))))
    weights = [gamma[:, None] * matrix, net.output.weights]
    biases = [-0.5 * gamma, np.zeros(3)]
    points = dyadic(rng, 20, 9)
    expected = [naive_scores(weights, biases, x, 1) for x in points]
    np.testing.assert_array_equal(net.evaluate(points), expected)
    assert [net.evaluate_exactly(x) for x in points] == [list(map(Fraction, s)) for s in expected]


@CASES
@given(described=convolutions(), seed=st.integers(0, 10**6), kind=st.sampled_from(["f4", "f8"]))
def test_magnitudes_of_a_layer_are_those_of_its_matrix(
    described: tuple[Convolution, Array], seed: int, kind: str
) -> None:
    convolution, flip = described
    rows = convolution_rows(convolution, flip)
    batch = np.random.default_rng(seed).integers(-5, 6, (2, rows.shape[1])).astype(kind)
    layer = ThresholdLayer(
        as_sparse(rows), np.zeros(rows.shape[0]), "plus", "conv", convolution=convolution, flip=flip
    )
    for made in (layer, replace(layer, convolution=None)):
        np.testing.assert_array_equal(made.magnitudes(kind).forward(batch), batch @ np.abs(rows).T)
        np.testing.assert_array_equal(made.operator(kind).forward(batch), batch @ rows.T)
        assert made.magnitudes(kind) is made.magnitudes(kind)


ROWS = np.array([[0.5, -0.5, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, -3.0]])


def test_factoring_a_matrix() -> None:
    dense, sparse = factor_dense(ROWS), factor_sparse(as_sparse(ROWS))
    assert dense is not None and sparse is not None
    assert dense[0].tolist() == sparse[0].toarray().tolist() == np.sign(ROWS).tolist()
    assert dense[1].tolist() == sparse[1].tolist() == [0.5, 1.0, 3.0]
    other = np.array([[0.5, 1.0]])
    assert factor_dense(other) is None and factor_sparse(as_sparse(other)) is None


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float64])
def test_norms_and_scaled_rows(kind: type) -> None:
    rows = np.array([[100, -100, 0], [0, 0, 0], [1, 0, -127]], dtype=kind)
    matrix = as_sparse(rows)
    assert row_norms(matrix).tolist() == [200.0, 0.0, 128.0]
    scaled = scale_rows(matrix, np.array([-1.0, 1.0, 0.0]))
    assert scaled.dtype == kind
    assert np.array_equal(scaled.toarray(), rows * np.array([[-1], [1], [0]]))


def test_incidence_has_one_entry_in_each_column() -> None:
    matrix = incidence_matrix(np.array([1, 0, 1]), 3).toarray()
    assert matrix.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
