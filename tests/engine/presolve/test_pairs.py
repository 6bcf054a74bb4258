"""Pairs of signs that exclude each other, against every reachable pattern."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.presolve import pairs
from bnncert.engine.presolve.conflicts import ConflictingPairs
from bnncert.engine.presolve.pairs import conflicting_pairs
from bnncert.model.description import SignZero
from bnncert.model.layers import ThresholdLayer
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.strategies import few, regions

Array = npt.NDArray[Any]

FEW = few(20)

KINDS = ("box", "linf", "l2", "l1", "polytope")


@st.composite
def first_layers(
    draw: st.DrawFn, *, ternary: bool, exact_ties: bool, inputs: int = 2, most: int = 4
) -> TinyNetwork:
    """Networks of which only the first layer matters."""
    count = draw(st.integers(2, most))
    entry = st.sampled_from([-1.0, 0.0, 1.0]) if ternary else st.integers(-12, 12).map(_eighth)
    loose = st.floats(-2, 2, allow_nan=False, width=32).map(lambda v: v + 1 / 3)
    bias = st.integers(-12, 12).map(lambda v: v / 4) if exact_ties else loose
    cells = draw(st.lists(entry, min_size=count * inputs, max_size=count * inputs))
    weights = np.array(cells).reshape(count, inputs)
    biases = np.array(draw(st.lists(bias, min_size=count, max_size=count)))
    sign_zero = draw(st.sampled_from(["plus", "minus", "either"]))
    return TinyNetwork(
        (weights, np.ones((2, count))), (biases, np.zeros(2)), sign_zero if exact_ties else "plus"
    )


def _eighth(value: int) -> float:
    return value / 8


def found_pairs(
    net: TinyNetwork, region: bnncert.Region, keep: Any = slice(None)
) -> ConflictingPairs:
    """Call it as presolve does, on the chosen neurons."""
    layer = net.build().layers[0]
    assert layer.bias_lo is not None and layer.bias_hi is not None
    return conflicting_pairs(
        region, layer.weights[keep], -layer.bias_hi[keep], -layer.bias_lo[keep]
    )


def as_set(conflicts: ConflictingPairs) -> set[tuple[int, int]]:
    return set(zip(conflicts.first.tolist(), conflicts.second.tolist(), strict=True))


def sign_of(literal: int) -> int:
    return -1 if literal % 2 else 1


def open_neurons(patterns: Array) -> list[int]:
    """Return the neurons that take both signs."""
    return [j for j in range(patterns.shape[1]) if np.unique(patterns[:, j]).size == 2]


def value_at(
    layer: ThresholdLayer, region: bnncert.Region, first: int, second: int, theta: float
) -> tuple[list[Fraction], Fraction]:
    """Return the mixed row and the mixed constant, in rationals.

    theta belongs to the rows of the layer, which are those of the network up to a factor.
    """
    assert layer.bias_lo is not None and layer.bias_hi is not None
    rows = [list(map(Fraction, row)) for row in layer.weights.toarray().tolist()]
    row = [Fraction(0)] * region.size
    constant = Fraction(0)
    for literal, share in ((first, Fraction(theta)), (second, 1 - Fraction(theta))):
        s, j = sign_of(literal), literal // 2
        row = [v + s * share * Fraction(w) for v, w in zip(row, rows[j], strict=True)]
        constant += s * share * Fraction(float((layer.bias_hi if s > 0 else layer.bias_lo)[j]))
    return row, constant


def is_proved_on_box(
    layer: ThresholdLayer, region: bnncert.Region, first: int, second: int, theta: float
) -> bool:
    row, constant = value_at(layer, region, first, second, theta)
    ends = zip(row, region.lo.tolist(), region.hi.tolist(), strict=True)
    return constant + sum(max(v * Fraction(a), v * Fraction(b)) for v, a, b in ends) < 0


def is_proved_on_ball(
    layer: ThresholdLayer, region: bnncert.Ball, first: int, second: int, theta: float
) -> bool:
    row, constant = value_at(layer, region, first, second, theta)
    linear = constant + sum(
        v * Fraction(m) for v, m in zip(row, region.middle.tolist(), strict=True)
    )
    square = Fraction(region.radius) ** 2 * sum(v * v for v in row)
    return linear < 0 and square < linear * linear


@given(data=st.data(), kind=st.sampled_from(KINDS), ternary=st.booleans())
@few(30)
def test_no_reachable_pattern_has_both_signs(data: st.DataObject, kind: str, ternary: bool) -> None:
    net = data.draw(first_layers(ternary=ternary, exact_ties=kind != "l2"))
    region = data.draw(regions(kind))
    patterns = list(reachable_first_layers(net, region))
    for first, second in as_set(found_pairs(net, region)):
        assert first // 2 < second // 2
        for x in patterns:
            both = x[first // 2] == sign_of(first) and x[second // 2] == sign_of(second)
            assert not both


@given(data=st.data())
@FEW
def test_three_inputs(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["box", "linf"]))
    net = data.draw(first_layers(ternary=data.draw(st.booleans()), exact_ties=True, inputs=3))
    region = data.draw(regions(kind, inputs=3))
    patterns = np.array(list(reachable_first_layers(net, region)))
    for first, second in as_set(found_pairs(net, region)):
        assert not np.any(
            (patterns[:, first // 2] == sign_of(first))
            & (patterns[:, second // 2] == sign_of(second))
        )


def clear_pairs(net: TinyNetwork, region: bnncert.Region, margin: float) -> set[tuple[int, int]]:
    """Return the literals of open neurons that exclude each other even with a tolerance."""
    open_ = open_neurons(np.array(list(reachable_first_layers(net, region))))
    clear = set()
    for a, b in combinations(open_, 2):
        for s, t in product((1, -1), repeat=2):
            rows = np.stack([s * net.weights[0][a], t * net.weights[0][b]])
            bias = np.array([s * net.biases[0][a], t * net.biases[0][b]]) + margin
            pair = TinyNetwork((rows, np.ones((2, 2))), (bias, np.zeros(2)), "plus")
            if (1, 1) not in set(reachable_first_layers(pair, region)):
                clear.add((2 * a + (s < 0), 2 * b + (t < 0)))
    return clear


@pytest.mark.parametrize(
    ("ternary", "margin"), [(True, 1e-9), (False, 0.05)], ids=["ternary", "real"]
)
def test_every_clear_pair_on_a_box_is_found(ternary: bool, margin: float) -> None:
    """With weights in {-1, 0, 1} only rounding may hide one, else the grid of theta."""
    count = 0
    for seed in range(23):
        rng = np.random.default_rng(seed)
        center, reach = rng.integers(-8, 9, 2) / 4, rng.integers(1, 7, 2) / 4
        rows = rng.integers(-1, 2, (4, 2)) if ternary else rng.integers(-12, 13, (4, 2)) / 8
        # Every line crosses the box, so that the neurons are open.
        places = center + reach * (rng.integers(-3, 4, (4, 2)) / 4)
        biases = -np.sum(rows * places, axis=1)
        zero: SignZero = ("plus", "minus", "either")[seed % 3]
        net = TinyNetwork((rows.astype(float), np.ones((2, 4))), (biases, np.zeros(2)), zero)
        region = bnncert.Box(center - reach, center + reach)
        clear = clear_pairs(net, region, margin)
        count += len(clear)
        assert clear <= as_set(found_pairs(net, region))
    assert count > 20


@pytest.mark.parametrize("ternary", [True, False], ids=["ternary", "real"])
@given(data=st.data())
@FEW
def test_theta_proves_each_pair_on_a_box(ternary: bool, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["box", "linf"]))
    net = data.draw(first_layers(ternary=ternary, exact_ties=data.draw(st.booleans()), most=6))
    region = data.draw(regions(kind))
    found = found_pairs(net, region)
    layer = net.build().layers[0]
    for first, second, theta in zip(found.first, found.second, found.theta, strict=True):
        assert is_proved_on_box(layer, region, int(first), int(second), float(theta))


@given(data=st.data())
@FEW
def test_theta_proves_each_pair_on_a_disc(data: st.DataObject) -> None:
    net = data.draw(first_layers(ternary=data.draw(st.booleans()), exact_ties=True, most=6))
    region = data.draw(regions("l2"))
    assert isinstance(region, bnncert.Ball)
    # Without the data box the support function is that of the ball alone.
    region = bnncert.Ball("l2", region.middle, region.radius)
    found = found_pairs(net, region)
    layer = net.build().layers[0]
    for first, second, theta in zip(found.first, found.second, found.theta, strict=True):
        # Of a touching pair float rounding tells nothing: none may be claimed.
        pair = int(first), int(second), float(theta)
        assert is_proved_on_ball(layer, region, *pair) or is_proved_on_box(layer, region, *pair)


def test_the_disc_excludes_more_than_its_bounding_box() -> None:
    # x >= 0.8 and y >= 0.8 meet in a corner of the square, outside the disc.
    rows = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    plus = np.array([0.8, 0.8])
    box = conflicting_pairs(bnncert.Box([-1, -1], [1, 1]), rows, plus, plus)
    disc = conflicting_pairs(bnncert.Ball("l2", [0, 0], 1.0), rows, plus, plus)
    assert (0, 2) in as_set(disc)
    assert (0, 2) not in as_set(box)


def test_the_cross_polytope_excludes_more_than_its_bounding_box() -> None:
    rows = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    plus = np.array([0.6, 0.6])
    assert (0, 2) in as_set(conflicting_pairs(bnncert.Ball("l1", [0, 0], 1.0), rows, plus, plus))
    polytope = bnncert.Polytope([[1.0, 1.0]], [1.0], [-1, -1], [1, 1])
    assert (0, 2) in as_set(conflicting_pairs(polytope, rows, plus, plus))
    assert not conflicting_pairs(bnncert.Box([-1, -1], [1, 1]), rows, plus, plus).size


@pytest.mark.parametrize("ternary", [True, False], ids=["ternary", "real"])
@given(data=st.data())
@FEW
def test_many_neurons_are_searched_in_blocks(ternary: bool, data: st.DataObject) -> None:
    """Pairs that share inputs, a few at a time, give what the whole table gives."""
    kind = data.draw(st.sampled_from(["box", "linf", "l2", "l1"]))
    net = data.draw(first_layers(ternary=ternary, exact_ties=True, inputs=3, most=7))
    region = data.draw(regions(kind, inputs=3))
    layer = net.build().layers[0]
    rows = layer.weights.astype(np.float64)
    # The open neurons: only for these no pair is lost that shares nothing.
    open_ = np.flatnonzero(
        (region.support(rows) >= -net.biases[0]) & (-region.support(-rows) <= -net.biases[0])
    )
    whole = found_pairs(net, region, open_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "MOST_DENSE", 1)
        patch.setattr(pairs, "CHUNK", data.draw(st.integers(1, 12)))
        blocks = found_pairs(net, region, open_)
    assert as_set(blocks) == as_set(whole)
    if kind in ("box", "linf"):
        for first, second, theta in zip(blocks.first, blocks.second, blocks.theta, strict=True):
            a, b = 2 * open_[first // 2] + first % 2, 2 * open_[second // 2] + second % 2
            assert is_proved_on_box(layer, region, int(a), int(b), float(theta))


def test_nothing_to_compare() -> None:
    box = bnncert.Box([-1, -1], [1, 1])
    for count in (0, 1, 3):
        none = conflicting_pairs(box, sp.csr_array((count, 2)), np.zeros(count), np.zeros(count))
        assert none.size == 0


def test_rounding_never_claims_a_touching_pair() -> None:
    # Pairs that meet in one point up to rounding: what is claimed must hold in exact arithmetic.
    rng = np.random.default_rng(7)
    for _ in range(200):
        n = int(rng.integers(2, 30))
        w = rng.choice([-1.0, 0.0, 1.0], (2, n))
        w = w if rng.random() < 0.5 else w * rng.random((2, n))
        lo = rng.random(n) - 0.5
        hi = lo + rng.random(n)
        theta = Fraction(1, 2)
        mixed = [theta * Fraction(a) + theta * Fraction(b) for a, b in w.T.tolist()]
        most = sum(
            max(v * Fraction(a), v * Fraction(b))
            for v, a, b in zip(mixed, lo.tolist(), hi.tolist(), strict=True)
        )
        # need_a + need_b = -2 most up to one rounding, so that the pair touches.
        target = float(2 * most)
        share = float(rng.random()) * target
        plus = np.array([share, target - share])
        net = TinyNetwork((w, np.ones((2, 2))), (-plus, np.zeros(2)), "plus")
        layer = net.build().layers[0]
        box = bnncert.Box(lo, hi)
        found = conflicting_pairs(box, sp.csr_array(w), plus, plus)
        for first, second, at in zip(found.first, found.second, found.theta, strict=True):
            assert is_proved_on_box(layer, box, int(first), int(second), float(at))


@pytest.mark.parametrize("seed", range(5))
def test_sparse_products_find_the_same_pairs_as_dense_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(seed)
    dense = generator.integers(-1, 2, (60, 12)) * (generator.random((60, 12)) < 0.5)
    dense = dense[np.abs(dense).sum(axis=1) > 0]
    weights = sp.csr_array(dense)
    lo = generator.normal(size=12)
    region = bnncert.Box(lo, lo + generator.uniform(0.1, 1.0, 12))
    middle, half = (region.lo + region.hi) / 2, (region.hi - region.lo) / 2
    # Thresholds inside the range of every sum, so that each neuron is open by itself.
    threshold = dense @ middle + generator.uniform(-0.9, 0.9, len(dense)) * (np.abs(dense) @ half)
    found = conflicting_pairs(region, weights, threshold, threshold)
    monkeypatch.setattr("bnncert.engine.presolve.pairs.MOST_DENSE", 1)
    monkeypatch.setattr("bnncert.engine.presolve.pairs.CHUNK", 500)
    again = conflicting_pairs(region, weights, threshold, threshold)
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs == set(zip(again.first.tolist(), again.second.tolist(), strict=True))
    assert len(pairs) > 20


def test_a_layer_that_shares_too_much_and_a_passed_deadline_give_no_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(0)
    weights = sp.csr_array(generator.choice([-1, 1], (40, 6)))
    region, zero = bnncert.Box(-np.ones(6), np.ones(6)), np.zeros(40)
    assert conflicting_pairs(region, weights, zero + 3.5, zero - 3.5).size > 0
    late = Deadline(1e-9)
    time.sleep(0.01)
    assert conflicting_pairs(region, weights, zero + 3.5, zero - 3.5, late).size == 0
    monkeypatch.setattr("bnncert.engine.presolve.pairs.MOST_DENSE", 1)
    assert conflicting_pairs(region, weights, zero + 3.5, zero - 3.5, late).size == 0
    monkeypatch.setattr("bnncert.engine.presolve.pairs.MOST_WORK", 100)
    assert conflicting_pairs(region, weights, zero + 3.5, zero - 3.5).size == 0


@pytest.mark.parametrize("ternary", [True, False])
def test_over_a_box_neurons_with_disjoint_inputs_have_no_pairs(
    ternary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pair of signs occurs at a corner, so that no search is made."""
    rng = np.random.default_rng(8)
    for _ in range(10):
        weights = np.kron(np.eye(4), np.ones(2)) * rng.choice([-1.0, 1.0], 8)
        weights = weights if ternary else weights * rng.uniform(0.5, 2, 8)
        at, reach = rng.uniform(-0.4, 0.4, 4), np.abs(weights).sum(axis=1)
        corners = np.array(list(product((-1.0, 1.0), repeat=8)))
        signs = np.where(corners @ weights.T >= at * reach, 1, -1)
        assert all(
            {(1, 1), (1, -1), (-1, 1), (-1, -1)} == set(map(tuple, signs[:, [a, b]].tolist()))
            for a, b in combinations(range(4), 2)
        )
        rows, box = sp.csr_array(weights), bnncert.Box(np.full(8, -1.0), np.full(8, 1.0))
        with monkeypatch.context() as patch:
            patch.setattr(pairs, "_blocks", lambda *_: pytest.fail("pairs are looked for"))
            assert conflicting_pairs(box, rows, at * reach, at * reach).size == 0
        # Where two neurons share an input, pairs are looked for.
        shared = np.vstack([weights, weights[0]])
        own = np.append(at, at[0]) * np.append(reach, reach[0])
        assert conflicting_pairs(box, sp.csr_array(shared), own, own - 0.01).size > 0
