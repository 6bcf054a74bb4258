"""Integer rows against dense matrices."""

from __future__ import annotations

from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from bnncert.kernel.sparse import SparseRows


@st.composite
def entries(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Return rows, columns and values of entries, with places that repeat, and a shape."""
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    count = draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    row, column = (rng.integers(0, n, count) for n in shape)
    return row, column, rng.integers(-3, 4, count), shape


def dense(
    row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    matrix = np.zeros(shape, dtype=np.int64)
    np.add.at(matrix, (row, column), values)
    return matrix


@given(entries())
def test_entries_at_one_place_are_added_up(
    given: tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]],
) -> None:
    matrix, rows = dense(*given), SparseRows.of_entries(*given)
    assert rows.dense().tolist() == matrix.tolist()
    assert np.all(rows.values != 0)
    again = SparseRows.of_dense(matrix)
    for mine, other in (
        (rows.start, again.start),
        (rows.columns, again.columns),
        (rows.values, again.values),
    ):
        assert mine.tolist() == other.tolist()


@given(entries(), st.integers(0, 2**32))
def test_products_and_chosen_rows(
    given: tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]], seed: int
) -> None:
    """The weights of a layer may have two entries at one place, in any order."""
    row, column, values, shape = given
    order = np.argsort(row, kind="stable")
    indptr = np.searchsorted(row[order], np.arange(shape[0] + 1))
    weights = SimpleNamespace(
        data=values[order].astype(np.int8),
        indices=column[order].astype(np.int32),
        indptr=indptr.astype(np.int32),
        shape=shape,
    )
    matrix, rng = dense(*given), np.random.default_rng(seed)
    rows = SparseRows.of_weights(weights)
    vector = rng.integers(-(2**40), 2**40, shape[1])
    assert rows.times(vector).tolist() == (matrix @ vector).tolist()
    chosen = rng.integers(0, shape[0], 7)
    assert rows.take(chosen).times(vector).tolist() == (matrix[chosen] @ vector).tolist()
    both = SparseRows.stacked([rows, rows.take(chosen)])
    assert both.times(vector).tolist() == [*(matrix @ vector), *(matrix[chosen] @ vector)]
    factors = rng.integers(-(2**40), 2**40, (3, shape[0])) * rng.integers(0, 2, (3, shape[0]))
    product = SparseRows.of_dense(factors).product(rows)
    assert product.tolist() == (factors @ matrix).tolist()
