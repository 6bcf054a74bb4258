"""Neurons that are said to be equal or opposite are so at all inputs, ties included."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bnncert.engine.presolve.pipeline import equal_rows, row_keys
from tests.strategies import few

FEW = few(40)

Array = npt.NDArray[Any]


@st.composite
def rows_and_biases(draw: st.DrawFn) -> tuple[Array, Array]:
    """Many rows w and -w with a few different thresholds, some at values that sums take."""
    n = draw(st.integers(1, 4))
    entry = st.sampled_from([-2, -1, 0, 1, 2])
    base = [
        np.array(draw(st.lists(entry, min_size=n, max_size=n)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    count = draw(st.integers(2, 6))
    rows = [draw(st.sampled_from([1, -1])) * draw(st.sampled_from(base)) for _ in range(count)]
    halves = st.integers(-3, 3).map(lambda v: v / 2)
    return np.array(rows), np.array(draw(st.lists(halves, min_size=count, max_size=count)))


def thresholds(w: Array, b: Array, sign_zero: str) -> tuple[Array, Array]:
    """Return where +1 is allowed from, and -1 up to, on the integers of the right parity."""
    plus, minus = [], []
    for row, bias in zip(w, b, strict=True):
        reach = int(np.abs(row).sum())
        lattice = range(-reach - 8, reach + 9, 2)
        plus.append(min(u for u in lattice if 1 in allowed(u + bias, sign_zero)))
        minus.append(max(u for u in lattice if -1 in allowed(u + bias, sign_zero)))
    return np.array(plus, dtype=np.float64), np.array(minus, dtype=np.float64)


def allowed(value: float, sign_zero: str) -> set[int]:
    if value:
        return {1} if value > 0 else {-1}
    return {"plus": {1}, "minus": {-1}, "either": {1, -1}}[sign_zero]


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@given(data=st.data())
@FEW
def test_leaders_have_the_same_sign_at_all_inputs(sign_zero: str, data: st.DataObject) -> None:
    w, b = data.draw(rows_and_biases())
    leader, sign = equal_rows(sp.csr_array(w), *thresholds(w, b, sign_zero))
    assert np.all(leader <= np.arange(b.size))
    np.testing.assert_array_equal(leader[leader], leader)
    np.testing.assert_array_equal(sign[leader], 1)
    for x in product((1.0, -1.0), repeat=w.shape[1]):
        # Halves and small integers: these sums are exact.
        values = w @ np.array(x) + b
        for j, k in enumerate(leader.tolist()):
            if j == k:
                continue
            # At a tie that may go either way two neurons choose independently.
            for mine, theirs in product(
                allowed(values[j], sign_zero), allowed(values[k], sign_zero)
            ):
                assert mine == sign[j] * theirs


@pytest.mark.parametrize("sign_zero", ["plus", "minus"])
@given(data=st.data())
@FEW
def test_every_copy_is_found(sign_zero: str, data: st.DataObject) -> None:
    """w with bias b again, or -w with bias -b off its ties, joins the first."""
    w, b = data.draw(rows_and_biases())
    rows, biases = np.vstack([w, w, -w]), np.concatenate([b, b, -b])
    leader, sign = equal_rows(sp.csr_array(rows), *thresholds(rows, biases, sign_zero))
    # Whether 0 is among the values u + b that integers of the right parity give.
    ties = (np.abs(w).sum(axis=1) + b) % 2 == 0
    n = b.size
    for j in range(n):
        assert leader[n + j] == leader[j] and sign[n + j] == sign[j]
        if not ties[j] and np.any(w[j]):
            assert leader[2 * n + j] == leader[j] and sign[2 * n + j] == -sign[j]


def test_thresholds_tell_equal_rows_apart() -> None:
    rows = sp.csr_array(np.array([[1, 1], [1, 1], [-1, -1], [-1, -1], [1, -1]]))
    # u >= 2; u >= 0; -u >= 0 (the opposite of u >= 2); -u >= 2 (that of u >= 0); another row.
    plus = np.array([2.0, 0.0, 0.0, 2.0, 0.0])
    leader, sign = equal_rows(rows, plus, plus - 2)
    assert leader.tolist() == [0, 1, 0, 1, 4]
    assert sign.tolist() == [1, 1, -1, -1, 1]


def test_keys_are_those_of_rows_up_to_sign() -> None:
    rows = sp.csr_array(np.array([[1, -2, 0], [-1, 2, 0], [1, 2, 0], [0, 1, -2], [0, 0, 0]]))
    keys, signs = zip(*row_keys(rows), strict=True)
    assert keys[0] == keys[1] and len(set(keys)) == 4
    assert signs == (1, -1, 1, 1, 1)
