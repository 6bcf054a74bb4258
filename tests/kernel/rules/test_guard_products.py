"""The rules about products of networks, beside loops over inputs and scores."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.kernel.rules.canonical_neurons import (
    CanonicalNeurons,
    first_layer_neurons,
    lattice_neurons,
)
from bnncert.kernel.rules.disagreement import Condition, disagreement, disagreements, scores_agree
from bnncert.kernel.rules.product import product_network
from bnncert.kernel.rules.relation_products import Relation, increase_product, values_product
from bnncert.model.matrices import as_sparse
from tests.kernel.rules.plain_layers import derived_outcomes, in_units, neuron_signs
from tests.plain_network import PlainNetwork, first_best, random_plain
from tests.questions.compare.guard import changed_network
from tests.strategies import few

seeds = given(seed=st.integers(0, 2**32 - 1))


def points(rng: np.random.Generator, inputs: int, count: int) -> list[tuple[int, ...]]:
    """Return inputs in quarters."""
    return [tuple(int(v) for v in rng.integers(-6, 7, inputs)) for _ in range(count)]


def scaled(point: tuple[int, ...]) -> list[Fraction]:
    return [Fraction(v, 4) for v in point]


# -- product, disagreement ----------------------------------------------------------------------


@few(80)
@seeds
def test_a_product_has_the_scores_of_both_networks(seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    one = random_plain(rng, int(rng.integers(1, 4)))
    two = changed_network(rng, one)
    nets = one.build(), two.build()
    inside = points(rng, one.inputs, 8)
    box = None
    if rng.random() < 0.5:
        low, high = (np.array([f(p[i] for p in inside) for i in range(one.inputs)]) / 4
                     for f in (min, max))  # fmt: skip
        box = low, high
    both = product_network(*nets, box=box).network
    for p in inside:
        wanted = {
            in_units(a, nets[0], one.factors[1]) + in_units(b, nets[1], two.factors[1])
            for a in one.outcomes(p)
            for b in two.outcomes(p)
        }
        assert derived_outcomes(both, scaled(p)) == wanted


def test_scores_that_agree_give_one_class() -> None:
    """Whatever the signs are."""
    agreed: list[bool] = []

    @few(80)
    @seeds
    def check(seed: int) -> None:
        rng = np.random.default_rng([2, seed])
        zero = str(rng.choice(["plus", "minus"]))
        one = random_plain(rng, int(rng.integers(1, 4)), sign_zero=zero)
        two = changed_network(rng, one, same=bool(rng.random() < 0.5))
        if rng.random() < 0.2:
            # Opposite scores are a multiple, too, but of another class.
            negated = [[[-w for w in row] for row in two.weights[-1]], [-b for b in two.biases[-1]]]
            weights, biases = [*two.weights[:-1], negated[0]], [*two.biases[:-1], negated[1]]
            two = PlainNetwork(weights, biases, zero, two.factors)
        both = product_network(one.build(), two.build())
        agreed.append(scores_agree(both))
        if not agreed[-1]:
            return
        for p in points(rng, one.inputs, 12):
            assert one.classes_at(p) == two.classes_at(p)
        classes, output = one.classes, both.network.output
        for signs in product((1, -1), repeat=both.network.layers[-1].size):
            scores: list[Any] = []
            for row, b in zip(output.weights.tolist(), output.bias.tolist(), strict=True):
                terms = (Fraction(w) * s for w, s in zip(row, signs, strict=True))
                scores.append(sum(terms, Fraction(b)))
            assert first_best(scores[:classes]) == first_best(scores[classes:])

    check()
    assert 16 < sum(agreed) < 72


def holds(condition: Condition, scores: list[int]) -> bool:
    total = 0
    for k, factor in condition.scores:
        total += factor * scores[k]
    return total < 0 or (total == 0 and not condition.strict)


@few(80)
@given(st.data())
def test_conditions_of_a_disagreement_are_those_of_the_classes(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 4))
    scores = data.draw(st.lists(st.integers(-2, 2), min_size=2 * count, max_size=2 * count))
    found = first_best(scores[:count]), first_best(scores[count:])
    first, second = (
        data.draw(st.sets(st.integers(0, count - 1), max_size=count)) | {k} for k in found
    )
    for i, j in product(range(count), repeat=2):
        if i != j:
            met = all(holds(c, scores) for c in disagreement(count, i, j))
            assert met == (found == (i, j))
    for all_scores in (True, False):
        made = disagreements(count, first, second, all_scores=all_scores)
        met_pairs = [(i, j) for i, j, each in made if all(holds(c, scores) for c in each)]
        assert found in met_pairs or found[0] == found[1]
        assert not all_scores or met_pairs == ([found] if found[0] != found[1] else [])


# -- two copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@few(60)
@seeds
def test_products_of_copies_have_the_scores_of_both_inputs(sign_zero: str, seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    net = random_plain(rng, int(rng.integers(2, 4)), sign_zero=sign_zero)
    network, factor = net.build(), net.factors[1]
    feature = int(rng.integers(net.inputs))
    features = rng.permutation(net.inputs)[: int(rng.integers(1, net.inputs + 1))].tolist()
    old, new = ([int(v) for v in row] for row in rng.integers(-4, 5, (2, len(features))))
    stepped = increase_product(network, feature).network
    valued = values_product(network, features, [v / 4 for v in old], [v / 4 for v in new]).network
    for x in points(rng, net.inputs, 4):
        step = int(rng.integers(0, 4))
        y = tuple(v + step * (i == feature) for i, v in enumerate(x))
        wanted = {
            in_units(a, network, factor) + in_units(b, network, factor)
            for a, b in net.pair_outcomes(x, y)
        }
        found = derived_outcomes(stepped, scaled((*x, step)))
        # One input twice is no pair: there the product may have more scores than the network.
        assert found == wanted if step else found >= wanted
        x, y = (
            tuple(values[features.index(i)] if i in features else v for i, v in enumerate(x))
            for values in (old, new)
        )
        wanted = {
            in_units(a, network, factor) + in_units(b, network, factor)
            for a, b in net.pair_outcomes(x, y)
        }
        found = derived_outcomes(valued, scaled((*x, *new)))
        assert found == wanted if x != y else found >= wanted


@few(80)
@given(st.data())
def test_violations_of_a_relation_are_those_of_its_definition(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 3))
    scores = data.draw(st.lists(st.integers(-2, 2), min_size=2 * count, max_size=2 * count))
    kind, falling = data.draw(st.sampled_from(["label", "score", "same"])), data.draw(st.booleans())
    k = data.draw(st.integers(0, count - 1))
    one, two = scores[:count], scores[count:]
    if falling:
        one, two = two, one
    if kind == "score":
        relation, wanted = Relation(score=k, falling=falling), two[k] < one[k]
    elif kind == "label":
        relation = Relation(label=k, falling=falling)
        wanted = first_best(one) == k != first_best(two)
    else:
        relation, wanted = Relation(), first_best(one) != first_best(two)
    met = [all(holds(c, scores) for c in each) for _, each in relation.violations(count)]
    assert any(met) == wanted


# -- canonical neurons --------------------------------------------------------------------------


def value(made: CanonicalNeurons, number: int, y: tuple[Any, ...], plus: bool) -> int:
    """Return the sign of a neuron from its canonical form: sign * z, and z >= 0 or >= start."""
    if made.constant[number]:
        return int(made.sign[number] * made.constant[number])
    row = made.rows.toarray()[number].tolist()
    total = sum((Fraction(w) * x for w, x in zip(row, y, strict=True)), Fraction(0))
    low = Fraction(float(made.low[number]))
    is_plus = total >= low if plus else total + low >= 0
    return int(made.sign[number]) * (1 if is_plus else -1)


def check_keys(made: CanonicalNeurons, tables: list[tuple[int, ...]]) -> None:
    """Neurons with the same key have the same canonical function."""
    keys = [made.key(j) for j in range(len(tables))]
    for i, j in product(range(len(tables)), repeat=2):
        if made.constant[i] == made.constant[j] == 0 and keys[i] == keys[j] is not None:
            same = int(made.sign[i] * made.sign[j])
            assert tables[i] == tuple(same * v for v in tables[j])


def net_of(rng: np.random.Generator, layer: int) -> PlainNetwork:
    """Return a network with many equal and opposite neurons."""
    zero = str(rng.choice(["plus", "minus"]))
    net = random_plain(rng, int(rng.integers(1, 4)), depth=2, sign_zero=zero)
    weights = [[list(row) for row in w] for w in net.weights]
    biases = [list(b) for b in net.biases]
    for _ in range(3):
        j, factor = int(rng.integers(len(biases[layer]))), int(rng.choice([1, 2, -1, -2, 3]))
        weights[layer].append([factor * w for w in weights[layer][j]])
        biases[layer].append(factor * biases[layer][j] + int(rng.choice([-1, 0, 0, 1])))
        weights[layer + 1] = [[*row, 0] for row in weights[layer + 1]]
    return PlainNetwork(weights, biases, zero)


@few(80)
@seeds
def test_canonical_neurons_above_the_first_layer(seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    net = net_of(rng, 1)
    network = net.build()
    layer, width = network.layers[1], len(net.biases[0])
    made = lattice_neurons(layer, as_sparse(np.eye(width, dtype=np.int64)), np.zeros(width, int))
    signs = list(product((1, -1), repeat=width))
    tables = []
    for j in range(layer.size):
        table = tuple(net.signs(net.sums(1, y)[j])[0] for y in signs)
        assert table == tuple(neuron_signs(layer, j, y)[0] for y in signs)
        assert table == tuple(value(made, j, y, plus=True) for y in signs)
        tables.append(table)
    check_keys(made, tables)


@few(80)
@seeds
def test_canonical_neurons_of_the_first_layer(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    net = net_of(rng, 0)
    layer = net.build().layers[0]
    inside = points(rng, net.inputs, 30)
    low, high = (np.array([f(p[i] for p in inside) for i in range(net.inputs)]) / 4
                 for f in (min, max))  # fmt: skip
    for box in (None, (low, high)):
        made = first_layer_neurons(layer, np.arange(net.inputs), net.inputs, box)
        tables = []
        for j in range(layer.size):
            table = tuple(net.signs(net.sums(0, p)[j])[0] for p in inside)
            assert table == tuple(value(made, j, tuple(scaled(p)), plus=False) for p in inside)
            tables.append(table)
        check_keys(made, tables)
