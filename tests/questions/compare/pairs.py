"""Pairs of tiny networks, and an oracle for the pairs of classes that they give."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

import bnncert
from tests.brute_force import TinyNetwork, last_layers_at, reachable_first_layers, scores_of
from tests.random_questions import random_network
from tests.rewritten_networks import rewritten


def changed(net: TinyNetwork, rng: np.random.Generator) -> TinyNetwork:
    """Return a network with another weight or threshold, or without a neuron."""
    weights = [w.copy() for w in net.weights]
    biases = [b.copy() for b in net.biases]
    k = int(rng.integers(len(weights)))
    j = int(rng.integers(biases[k].size))
    kind = int(rng.integers(3))
    if kind == 0:
        i = int(rng.integers(weights[k].shape[1]))
        weights[k][j, i] = float(rng.choice([-1.0, 0.0, 1.0]))
    elif kind == 1:
        biases[k][j] += float(rng.choice([-1.0, -0.5, 0.5, 1.0]))
    else:
        weights[k][j] = 0.0
    return TinyNetwork(tuple(weights), tuple(biases), net.sign_zero)


def random_pair(rng: np.random.Generator, inputs: int) -> tuple[TinyNetwork, TinyNetwork]:
    """Return a network and a changed one, a rewritten one, or an independent one."""
    zero = str(rng.choice(["plus", "minus"]))
    one = random_network(rng, inputs, zero)
    choice = float(rng.random())
    if choice < 0.65:
        return one, changed(rewritten(one, rng) if choice < 0.2 else one, rng)
    if choice < 0.8:
        return one, rewritten(one, rng)
    while True:
        two = random_network(rng, inputs, zero)
        if two.biases[-1].size == one.biases[-1].size:
            return one, two


def first_best(scores: list[Fraction]) -> int:
    return scores.index(max(scores))


def classes_at(net: TinyNetwork, point: list[Fraction]) -> set[int]:
    """The classes that a network may give to a point; several if sign(0) may be either."""
    return {first_best(s) for s in scores_of(net, last_layers_at(net, point))}


def pairs_on_grid(one: TinyNetwork, two: TinyNetwork, values: list[float]) -> set[tuple[int, int]]:
    """All pairs of classes on a grid, by enumeration."""
    size = one.weights[0].shape[1]
    points = [[Fraction(v) for v in p] for p in product(values, repeat=size)]
    return {pair for p in points for pair in product(classes_at(one, p), classes_at(two, p))}


def pairs_on_region(
    one: TinyNetwork, two: TinyNetwork, region: bnncert.Region
) -> set[tuple[int, int]]:
    """All pairs of classes on a region, from the sign patterns of both first layers together."""
    both = TinyNetwork(
        (np.vstack([one.weights[0], two.weights[0]]),),
        (np.concatenate([one.biases[0], two.biases[0]]),),
        one.sign_zero,
    )
    cut = one.biases[0].size
    found = set()
    for signs in reachable_first_layers(both, region):
        pair = []
        for net, part in ((one, signs[:cut]), (two, signs[cut:])):
            pair.append(_class_above(net, part))
        found.add((pair[0], pair[1]))
    return found


def _class_above(net: TinyNetwork, signs: tuple[int, ...]) -> int:
    """The class for signs of the first layer; sign(0) is determined."""
    if len(net.weights) == 2:
        return first_best(scores_of(net, [signs])[0])
    above = TinyNetwork(net.weights[1:], net.biases[1:], net.sign_zero)
    (found,) = classes_at(above, [Fraction(s) for s in signs])
    return found
