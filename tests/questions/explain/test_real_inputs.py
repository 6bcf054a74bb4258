"""Explanations of real inputs against brute force: the kept ones suffice, and each is needed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.questions.explain.explanation_answer import Explanation
from bnncert.questions.explain.free_points import with_free
from tests.brute_force import (
    TinyNetwork,
    is_reached,
    last_layers_at,
    reachable_last_layers,
    rival_target,
    scores_of,
)
from tests.plain_network import SIGNS_AT_ZERO, TIES
from tests.random_questions import random_network
from tests.strategies import few

#: Networks that are drawn until the class of the image can change.
MOST_DRAWS = 8


def is_wrong(net: TinyNetwork, label: int, ties: str, lasts: set[tuple[int, ...]]) -> bool:
    """Whether another class wins for some signs of the last layer."""
    rivals = [k for k in range(net.weights[-1].shape[0]) if k != label]
    scores = scores_of(net, lasts)
    return any(is_reached(rival_target(label, k, ties), s) for k in rivals for s in scores)


def check(net: TinyNetwork, found: Explanation, ties: str) -> None:
    """Check the set, its witnesses and that it is minimal."""
    domain, free = found.domain, ~found.mask
    can_change = {
        i: is_wrong(net, found.label, ties, reachable_last_layers(net, domain.region(region)))
        for i, region in [(-1, free), *((i, with_free(free, [i])) for i in found.kept)]
    }
    assert not can_change.pop(-1)
    assert all(can_change.values())
    assert found.minimal and list(found.witnesses) == list(found.kept), found
    for i, witness in found.witnesses.items():
        exact = witness.exact or tuple(map(Fraction, witness.point.tolist()))
        assert is_wrong(net, found.label, ties, last_layers_at(net, exact))
        for k, (x, c) in enumerate(zip(exact, domain.image, strict=True)):
            assert x == c or k == i or free[k]
            assert domain.lo[k] <= x <= domain.hi[k]


@few(8)
@given(st.integers(0, 2**32 - 1), st.sampled_from(SIGNS_AT_ZERO), st.sampled_from(TIES))
def test_real_inputs(seed: int, sign_zero: str, ties: str) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(MOST_DRAWS):
        size = int(rng.integers(1, 4))
        net = random_network(rng, size, sign_zero)
        image = rng.integers(-4, 5, size) / 4
        ball = bnncert.Ball("linf", image, float(rng.integers(1, 9)) / 4, -1, 1.25)
        network = net.build()
        label = int(network.classify(image)[0])
        if seed % 4 == 0:
            label = int(rng.integers(network.classes))
        try:
            found = bnncert.explain(network, ball, label, ties=ties, timeout=60)
        except bnncert.InputError as error:
            if "the image" not in str(error):
                raise
            assert is_wrong(net, label, ties, last_layers_at(net, [Fraction(v) for v in image]))
            continue
        check(net, found, ties)
        if found.kept:
            return


def test_an_image_whose_class_is_not_certain_is_refused() -> None:
    """In exact arithmetic class 1 is better by 6e-17, which rounded differences do not show."""
    net = bnncert.Network.from_arrays(
        [np.zeros((4, 2)), [[2, 0.1, -0.7, -0.1], [1, 2, 0, 0]]], [[1, 1, -1, 1], [0, -0.3]]
    )
    assert net.evaluate([0.0, 0.0]).tolist() == [2.7, 2.7]
    ball = bnncert.Ball("linf", [0, 0], 1, -1, 1)
    for label in (0, 1):
        with pytest.raises(bnncert.InputError, match="no class to explain: its scores"):
            bnncert.explain(net, ball, label, timeout=10)
