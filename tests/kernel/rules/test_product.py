"""The product of two networks against the two networks themselves."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.kernel.rules.product import product_network
from bnncert.kernel.rules.relation_products import increase_product, values_product
from tests.brute_force import TinyNetwork
from tests.random_questions import random_network
from tests.rewritten_networks import rewritten

SIGNS_AT_ZERO = ("plus", "minus", "either")


def scores(net: bnncert.Network, point: list[Fraction]) -> set[tuple[Fraction, ...]]:
    """All scores that a network may have at a point, which are several if sign(0) may be either."""
    return {tuple(net.output.exactly(p[-1])) for p in net.exact_patterns(point)}


def grid_points(rng: np.random.Generator, inputs: int, count: int) -> list[list[Fraction]]:
    """Points at which sums often meet thresholds."""
    return [[Fraction(int(v), 4) for v in rng.integers(-8, 9, inputs)] for _ in range(count)]


@settings(max_examples=16, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_scores_of_the_product_are_those_of_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(1, 4))
    at_zero = [str(rng.choice(SIGNS_AT_ZERO[:2])) for _ in range(2)]
    if rng.random() < 0.3:
        at_zero = ["either", "either"]
    tiny = [random_network(rng, inputs, zero) for zero in at_zero]
    if rng.random() < 0.5:
        tiny[1] = rewritten(tiny[0], rng)
    one, two = (t.build() for t in tiny)
    product = product_network(one, two)
    assert product.network.depth == max(one.depth, two.depth)
    for point in grid_points(rng, inputs, 12):
        # With undetermined signs each network decides its ties on its own.
        wanted = {a + b for a in scores(one, point) for b in scores(two, point)}
        assert scores(product.network, point) == wanted
        floats = [float(v) for v in point]
        if at_zero[0] != "either":
            assert product.network.evaluate(floats).tolist() == [
                *one.evaluate(floats).tolist(),
                *two.evaluate(floats).tolist(),
            ]


@settings(max_examples=16, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_rewritten_network_adds_no_neuron(seed: int) -> None:
    """Permuted, negated and duplicated neurons are those of the first network."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, 3, str(rng.choice(SIGNS_AT_ZERO[:2])))
    # Merged neurons add their weights in the scores, which have to be integers.
    net = replace(net, weights=(*net.weights[:-1], 2 * net.weights[-1]))
    net = replace(net, biases=(*net.biases[:-1], np.rint(net.biases[-1])))
    alone = product_network(net.build(), net.build())
    both = product_network(net.build(), rewritten(net, rng).build())
    assert both.network.sizes == alone.network.sizes
    assert both.network.output.weights.tolist() == alone.network.output.weights.tolist()
    count = net.build().classes
    assert np.array_equal(both.network.output.weights[:count], both.network.output.weights[count:])


def test_within_a_box_constant_neurons_of_the_first_layer_are_left_out() -> None:
    one = TinyNetwork(
        (np.array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2)), (np.array([0.0, 3.0]), np.zeros(2)), "plus"
    ).build()
    box = np.full(2, -1.0), np.full(2, 1.0)
    assert product_network(one, one).network.sizes == (2, 2, 4)
    assert product_network(one, one, box=box).network.sizes == (2, 1, 4)
    inside = product_network(one, one, box=box).network
    for x in (-1.0, -0.5, 0.0, 1.0):
        assert inside.evaluate([x, -x])[:2].tolist() == one.evaluate([x, -x]).tolist()
    # The neuron touches its threshold in a corner of this box, where sign(0) = -1 matters.
    wide = np.full(2, -1.5), np.full(2, 1.5)
    minus = one.with_sign_zero("minus")
    assert product_network(one, minus, box=wide).network.sizes == (2, 4, 4)


def test_copies_that_share_some_inputs() -> None:
    rng = np.random.default_rng(3)
    net = random_network(rng, 3, "plus").build()
    product = product_network(net, net, columns=[0, 3, 2])
    assert product.network.inputs == 4
    for point in rng.integers(-3, 4, (20, 4)) / 2.0:
        both = product.network.evaluate(point)
        assert both[: net.classes].tolist() == net.evaluate(point[:3]).tolist()
        assert both[net.classes :].tolist() == net.evaluate(point[[0, 3, 2]]).tolist()
    with pytest.raises(bnncert.InputError, match="one number twice"):
        product_network(net, net, columns=[0, 2, 2])
    with pytest.raises(bnncert.InputError, match="columns has 2 values; expected one for each"):
        product_network(net, net, columns=[0, 2])


def test_networks_without_a_changing_neuron() -> None:
    """Every layer of the product has a neuron, whatever the networks compute."""
    fixed = TinyNetwork(
        (np.array([[0.0, 0.0]]), np.array([[1.0]]), np.array([[2.0], [1.0]])),
        (np.array([1.0]), np.array([3.0]), np.zeros(2)),
        "plus",
    ).build()
    product = product_network(fixed, fixed).network
    assert product.sizes == (2, 1, 1, 4)
    assert product.evaluate([0.0, 0.0]).tolist() == [2.0, 1.0, 2.0, 1.0]


def test_weights_of_scores_that_do_not_add_exactly() -> None:
    """0.1 + 0.2 is not a float, so equal neurons below such weights stay two neurons."""
    net = TinyNetwork(
        (np.array([[1.0], [1.0]]), np.array([[0.1, 0.2], [0.0, 0.0]])),
        (np.zeros(2), np.zeros(2)),
        "plus",
    ).build()
    product = product_network(net, net)
    assert product.network.sizes == (1, 2, 4) and product.shared == (2,)
    assert product.network.output.weights[0].tolist() == [0.1, 0.2]


def test_sign_zero_that_only_one_first_layer_leaves_open() -> None:
    net = random_network(np.random.default_rng(0), 2, "plus").build()
    with pytest.raises(bnncert.InputError, match="may be either in the first layer of one network"):
        product_network(net, net.with_sign_zero("either"))


def test_enclosures_are_compared_and_data_boxes_intersected() -> None:
    net = random_network(np.random.default_rng(1), 2, "plus").build()
    layer = net.layers[0]
    wide = replace(layer, bias_hi=np.nextafter(layer.enclosure[1], np.inf))
    doubtful = replace(net, layers=(wide, *net.layers[1:]))
    other = product_network(net, doubtful)
    assert other.shared[0] == 0
    assert product_network(doubtful, doubtful).shared[0] > 0
    # Between the floats of an enclosure, the signs of two networks may differ, those of copies not.
    apart = product_network(doubtful, doubtful, enclosed_apart=True)
    exact = np.equal(*doubtful.layers[0].enclosure)
    assert apart.shared[0] == np.count_nonzero(exact) < doubtful.layers[0].size
    copies = product_network(doubtful, doubtful, copies=True, enclosed_apart=True)
    assert copies.shared[0] == doubtful.layers[0].size
    one = replace(net, input_lo=np.array([-1.0, 0.0]), input_hi=np.array([1.0, 1.0]))
    two = replace(net, input_lo=np.array([0.0, -1.0]), input_hi=np.array([2.0, 0.5]))
    made = product_network(one, two).network
    assert made.input_lo is not None and made.input_hi is not None
    assert (made.input_lo.tolist(), made.input_hi.tolist()) == ([0.0, 0.0], [1.0, 0.5])
    assert product_network(net, two).network.input_lo is not None
    assert product_network(net, net).network.input_lo is None


def test_copies_share_an_enclosed_threshold_only_with_themselves() -> None:
    """Two irrational thresholds between the same floats need not be equal."""
    net = TinyNetwork(
        (np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(2)), (np.zeros(2), np.zeros(2)), "plus"
    ).build()
    upper = np.nextafter(np.zeros(2), 1.0)
    net = replace(net, layers=(replace(net.layers[0], bias_hi=upper),))
    assert product_network(net, net).network.sizes == (2, 1, 4)
    for copies in (values_product(net, [1], [0.0], [1.0]), increase_product(net, 1)):
        assert copies.network.sizes == (3, 2, 4) and copies.shared == (2,)


def test_tiny_thresholds_are_not_rounded() -> None:
    """The least float above zero, divided by 4, would be zero."""
    zero, least = (
        TinyNetwork(
            (np.array([[1.0, 2.0]]), np.eye(2)[:, :1]), (np.array([b]), np.zeros(2)), "plus"
        )
        for b in (0.0, 5e-324)
    )
    assert zero.build().classify([-5e-324, 0.0]).tolist() == [1]
    assert least.build().classify([-5e-324, 0.0]).tolist() == [0]
    assert product_network(zero.build(), least.build()).network.sizes == (2, 2, 4)
