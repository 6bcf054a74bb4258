"""Thresholds so near to reachable sums that floating point gets them wrong; exact matrices."""

from __future__ import annotations

import copy
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import bnncert
from bnncert.kernel import check
from bnncert.kernel.container import Section
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.leaves import is_definite
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.sparse import SparseRows
from bnncert.problem import robustness
from bnncert.proofs.writing import write_proof
from tests.kernel.claims import accepted, answer, exact_space, pack, unpack

GAPS = (1e-9, 1e-15, 2.0**-52, 0.0, -(2.0**-52), -1e-15, -1e-9)


def _network(gap: float, sign_zero: str) -> bnncert.Network:
    """The neuron x_1 + .. + x_n >= reach + gap, where the region's sums go up to `reach`."""
    return bnncert.Network.from_arrays(
        [np.full((1, 10), 0.1), np.array([[-1.0], [1.0]])],
        [np.array([-(1.0 + gap)]), np.zeros(2)],
        sign_zero=sign_zero,  # type: ignore[arg-type]
    )


def _reaches(gap: float, sign_zero: str) -> bool:
    """Whether the neuron can be +1 on [-1, 1]^10, in rationals."""
    top = 10 * Fraction(0.1) - Fraction(1.0 + gap)
    return top > 0 or (top == 0 and sign_zero != "minus")


REGIONS = {
    "linf": bnncert.Ball("linf", np.zeros(10), 1.0),
    "box": bnncert.Box(-np.ones(10), np.ones(10)),
    # All corners of the box are in these balls.
    "l1": bnncert.Ball("l1", np.zeros(10), 10.0, -np.ones(10), np.ones(10)),
    "l2": bnncert.Ball("l2", np.zeros(10), 4.0, -np.ones(10), np.ones(10)),
}


@pytest.mark.parametrize("kind", list(REGIONS))
def test_sums_at_the_threshold(tmp_path: Path, kind: str) -> None:
    """Both answers are claimed, with the proof of a neighbour and with the corner as a point."""
    path, region = tmp_path / "near.cert", REGIONS[kind]
    corner = Section("point", {"target": 0}, {"point": np.ones(10)})
    for sign_zero in ("plus", "minus", "either"):
        far = _network(1e-3, sign_zero)
        write_proof(path, robustness(far, region, 0, "all", "violation"), far)
        sections = unpack(path)
        for gap in GAPS:
            network = _network(gap, sign_zero)
            true = not _reaches(gap, sign_zero)
            sections[0].fields |= {"network": network.content_hash, "verdict": "robust"}
            assert (accepted(pack(path, sections), network) is not None) == true
            sections[0].fields["verdict"] = "not_robust"
            assert (accepted(pack(path, [sections[0], corner]), network) is None) == true
            if true:
                write_proof(path, robustness(network, region, 0, "all", "violation"), network)
                check(path, network)


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@pytest.mark.parametrize("gap", [1e-9, 0.0, -1e-9])
def test_the_solver_agrees(tmp_path: Path, gap: float, sign_zero: str) -> None:
    one, network = np.ones(10), _network(gap, sign_zero)
    region = bnncert.Polytope(one[None, :], np.array([10.0]), -2 * one, 2 * one)
    problem = robustness(network, region, 0, "all", "violation")
    status = answer(tmp_path / "near.cert", problem, network)
    assert (status == "not_robust") == _reaches(gap, sign_zero)
    check(tmp_path / "near.cert", network)


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_ties_of_scores_and_of_sums(tmp_path: Path, sign_zero: str) -> None:
    """Both neurons tie at the centre, and so do the scores: what is true depends on all rules."""
    path = tmp_path / "tie.cert"
    network = bnncert.Network.from_arrays(
        [np.array([[1.0], [-1.0]]), np.array([[1.0, 1.0], [1.0, -1.0]])],
        [np.zeros(2), np.zeros(2)],
        sign_zero=sign_zero,  # type: ignore[arg-type]
    )
    region = bnncert.Box([0.0], [0.0])
    for label in (0, 1):
        for ties in ("violation", "robust"):
            problem = robustness(network, region, label, "all", ties)  # type: ignore[arg-type]
            status = answer(path, problem, network)
            # plus: scores (2, 0); minus: (-2, 0); either: also (0, 2) and (0, -2).
            right = {"plus": label == 0, "minus": label == 1, "either": False}[sign_zero]
            assert (status == "robust") == right
            check(path, network)
            forged = copy.deepcopy(unpack(path))
            forged[0].fields["property"]["label"] = 1 - label
            forged[0].fields["property"]["rivals"] = [label]
            if status == "robust":
                assert accepted(pack(path, forged), network) is None


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@pytest.mark.parametrize("gap", GAPS)
def test_multipliers_of_55_bits(gap: float, sign_zero: str) -> None:
    """0.1 (x_1 + .. + x_10) <= 1 by x_1 + .. + x_10 <= 10: the multiplier is the float 0.1."""
    one = [Fraction(1)] * 10
    box = [-2 * v for v in one], [2 * v for v in one]
    space = exact_space(*box, np.ones((1, 10)), np.array([10.0]))
    geometry = Geometry(_network(gap, sign_zero).layers[0], space)
    theta = np.array([2**55, int(Fraction(0.1) * 2**55)])
    clause = Clauses(np.array([0, 2]), np.array([0, -1]), np.array([1, 1]), theta)
    assert geometry.proved(clause).tolist() == [not _reaches(gap, sign_zero)]


@pytest.mark.parametrize("step", [0, 1, -1])
def test_a_tangent_ball(tmp_path: Path, step: int) -> None:
    """3 x + 4 y reaches exactly 5 on the unit disc, and one unit more or less is not the same."""
    path = tmp_path / "disc.cert"
    bias = -5.0
    for _ in range(abs(step)):
        bias = float(np.nextafter(bias, step * np.inf))
    for zero in ("plus", "minus"):
        network = bnncert.Network.from_arrays(
            [np.array([[3.0, 4.0]]), np.array([[-1.0], [1.0]])],
            [np.array([bias]), np.zeros(2)],
            sign_zero=zero,  # type: ignore[arg-type]
        )
        region = bnncert.Ball("l2", np.zeros(2), 1.0)
        far = bnncert.Network.from_arrays(
            [np.array([[3.0, 4.0]]), np.array([[-1.0], [1.0]])],
            [np.array([-6.0]), np.zeros(2)],
            sign_zero=zero,  # type: ignore[arg-type]
        )
        assert answer(path, robustness(far, region, 0, "all", "violation"), far) == "robust"
        sections = unpack(path)
        sections[0].fields["network"] = network.content_hash
        proved = accepted(pack(path, sections), network) is not None
        assert proved == (step < 0 or (step == 0 and zero == "minus"))


def truly_definite(matrix: np.ndarray) -> bool:
    """Decide by elimination in rationals: all pivots are positive."""
    rows = [[Fraction(int(v)) for v in row] for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, len(rows)):
                rows[i][j] -= factor * rows[k][j]
    return True


@pytest.mark.parametrize("scale", [1, 1000, 2**26])
@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_never_wrong(scale: int, shift: int) -> None:
    rng = np.random.default_rng(scale + shift + 9)
    found = 0
    for _ in range(25):
        n, rank = int(rng.integers(1, 8)), int(rng.integers(1, 9))
        factor = rng.integers(-scale, scale + 1, (n, rank)) // 4
        # Singular or definite, and then a little more or less on the diagonal.
        matrix = factor @ factor.T + shift * np.eye(n, dtype=np.int64)
        if rng.integers(2):
            k = int(rng.integers(n))
            matrix[k, k] += int(rng.integers(-2, 3))
        if is_definite(matrix):
            found += 1
            assert truly_definite(matrix)
    assert found > 0 or shift <= 0 or scale > 2**20


@pytest.mark.parametrize("n", [1, 2, 10, 60])
def test_a_comfortable_margin_is_enough(n: int) -> None:
    rng = np.random.default_rng(n)
    factor = rng.integers(-(2**28), 2**28, (n, n))
    matrix = (factor @ factor.T) // (4 * n) + (2**20) * np.eye(n, dtype=np.int64)
    matrix = (matrix + matrix.T) // 2
    assert is_definite(matrix)


def test_singular_or_not_symmetric_matrices_are_not_definite() -> None:
    assert not is_definite(np.zeros((3, 3), dtype=np.int64))
    assert not is_definite(np.ones((2, 2), dtype=np.int64))
    assert not is_definite(np.array([[1, 2], [2, 1]]))
    assert not is_definite(np.array([[-(2**62)]]))
    # Beyond 2^53 floats round: this is singular but for one unit in 2^60.
    large = np.array([[2**60, 2**60], [2**60, 2**60 + 1]])
    assert not is_definite(large)
    # Only the lower triangle goes into a factorisation; the upper one is looked at, too.
    assert not is_definite(np.array([[2, 2**40], [0, 2]]))


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
