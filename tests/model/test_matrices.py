"""Weight matrices in sparse rows are the dense ones."""

from __future__ import annotations

import numpy as np
import pytest

from bnncert.model.matrices import (
    as_sparse,
    factor_dense,
    factor_sparse,
    incidence_matrix,
    row_norms,
    scale_rows,
)

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
