"""The matrices of a program against their definition, one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.solvers import product_matrices
from bnncert.engine.solvers.product_matrices import ProductMatrices
from bnncert.engine.solvers.structured_program import StructuredProgram
from tests.engine.solvers.test_structured import problems

CASES = settings(max_examples=20, deadline=None)


def products(program: StructuredProgram) -> list[np.ndarray]:
    """Return (ab' + ba')/2 for every link, entry of the diagonal and clash, in their order."""
    z = program.vectors
    pairs = [
        (int(a), int(b))
        for tables in program.tables
        for left, right in zip(tables.left.T, tables.right.T, strict=True)
        for a, b in zip(left, right, strict=True)
    ]
    units = range(program.unit_from, program.unit_from + program.size)
    pairs += [(i, i) for i in units]
    pairs += list(zip(program.pair_left.tolist(), program.pair_right.tolist(), strict=True))
    return [(np.outer(z[a], z[b]) + np.outer(z[b], z[a])) / 2 for a, b in pairs]


def definite(size: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return np.asarray(root @ root.T + np.eye(size))


@CASES
@given(problem=problems(), seed=st.integers(0, 99), rows=st.sampled_from([1, 2, 3, 128]))
def test_the_newton_matrix_is_that_of_the_definition(
    problem: ReducedProblem, seed: int, rows: int
) -> None:
    program = relax_reduced(problem).program
    matrices = products(program)
    moments, inverse = definite(program.size, seed), definite(program.size, seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_matrices, "ROWS_AT_ONCE", rows)
        ours = ProductMatrices(program)
        # A second time in the same space, which is not empty then.
        ours.schur(np.eye(program.size), inverse)
        found = ours.schur(moments, inverse)
    signed = [b * s for b, s in zip(matrices, ours.signs, strict=True)]
    for k, left in enumerate(signed):
        for j, right in enumerate(signed[: k + 1]):
            expected = np.trace(left @ moments @ right @ inverse)
            assert found[k, j] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@CASES
@given(problem=problems(), seed=st.integers(0, 99))
def test_sums_and_products_are_those_of_the_definition(problem: ReducedProblem, seed: int) -> None:
    program = relax_reduced(problem).program
    matrices = products(program)
    ours = ProductMatrices(program)
    weights = np.random.default_rng(seed).normal(size=len(matrices))
    total = sum(w * b for w, b in zip(weights, matrices, strict=True))
    np.testing.assert_allclose(ours.combine(weights), total, atol=1e-9)
    moments = definite(program.size, seed)
    expected = [float((b * moments).sum()) for b in matrices]
    np.testing.assert_allclose(ours.measure(moments), expected, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 128])
@pytest.mark.parametrize("shared", [2, 3])
def test_entries_with_one_multiplier_are_one_unknown(
    monkeypatch: pytest.MonkeyPatch, shared: int, rows: int
) -> None:
    monkeypatch.setattr(product_matrices, "ROWS_AT_ONCE", rows)
    program = StructuredProgram(
        linear=np.ones(5),
        rows=np.zeros((0, 5)),
        tables=(),
        pair_unit=np.array([1, 2]),
        pair_sign=np.array([1.0, -1.0]),
        pair_left=np.array([5]),
        pair_right=np.array([6]),
    )
    moments, inverse = definite(5, 1), definite(5, 2)
    apart = np.tril(ProductMatrices(program).schur(moments, inverse).copy())
    apart = apart + np.tril(apart, -1).T
    joined = ProductMatrices(replace(program, shared=shared)).schur(moments, inverse)
    # The last entries of the diagonal are added up; the clash comes after them.
    join = np.zeros((6 - shared + 1, 6))
    join[: 5 - shared, : 5 - shared] = np.eye(5 - shared)
    join[5 - shared, 5 - shared : 5] = 1.0
    join[6 - shared, 5] = 1.0
    np.testing.assert_allclose(np.tril(joined), np.tril(join @ apart @ join.T), atol=1e-9)
