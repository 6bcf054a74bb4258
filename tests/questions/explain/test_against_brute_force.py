"""Explanations against brute force: the kept inputs suffice, and each of them is needed."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.arrays import BoolArray
from bnncert.questions.explain import free_points as enumeration
from bnncert.questions.explain.explanation_answer import Explanation
from bnncert.questions.explain.free_points import MOST_POINTS, with_free
from tests.brute_force import (
    TinyNetwork,
    is_reached,
    last_layers_at,
    reachable_last_layers,
    rival_target,
    scores_of,
)
from tests.every_mode import few
from tests.random_questions import random_network


class Oracle:
    """Decides by enumeration whether the class can change while some inputs are free."""

    def __init__(self, net: TinyNetwork, found: Explanation, ties: str) -> None:
        self.net, self.found, self.domain = net, found, found.domain
        rivals = [k for k in range(net.weights[-1].shape[0]) if k != found.label]
        self.targets = [rival_target(found.label, k, ties) for k in rivals]

    def is_wrong(self, lasts: set[tuple[int, ...]]) -> bool:
        scores = scores_of(self.net, lasts)
        return any(is_reached(target, s) for target in self.targets for s in scores)

    def can_change(self, free: BoolArray) -> bool:
        domain = self.domain
        if domain.grid is None:
            return self.is_wrong(reachable_last_layers(self.net, domain.region(free)))
        # All grids of these tests have the step 1 and the origin 0.
        values = [
            range(int(low), int(high) + 1) if is_free else [int(x)]
            for is_free, low, high, x in zip(free, domain.lo, domain.hi, domain.image, strict=True)
        ]
        points = product(*([Fraction(v) for v in column] for column in values))
        return any(self.is_wrong(last_layers_at(self.net, x)) for x in points)

    def check(self) -> None:
        """Check the set, its witnesses and that it is minimal."""
        found, free = self.found, ~self.found.mask
        assert not self.can_change(free)
        for i, witness in found.witnesses.items():
            exact = witness.exact or tuple(map(Fraction, witness.point.tolist()))
            assert i in found.kept
            assert self.is_wrong(last_layers_at(self.net, exact))
            for k, (x, c) in enumerate(zip(exact, self.domain.image, strict=True)):
                assert x == c or k == i or free[k]
                assert self.domain.lo[k] <= x <= self.domain.hi[k]
                assert self.domain.grid is None or x.denominator == 1
        assert all(self.can_change(with_free(free, [i])) for i in found.witnesses)
        assert found.minimal, found
        assert sorted(found.witnesses) == list(found.kept)


def explained(
    net: TinyNetwork, ball: bnncert.Ball, ties: str, label: int | None = None
) -> Explanation | None:
    """Return the explanation, or None if the image has no class to explain."""
    network = net.build()
    try:
        return bnncert.explain(network, ball, label, ties=ties, timeout=60)
    except bnncert.InputError as error:
        if "the image" not in str(error):
            raise
        lasts = last_layers_at(net, [Fraction(v) for v in ball.middle.tolist()])
        own = int(network.classify(ball.middle)[0]) if label is None else label
        rivals = [k for k in range(network.classes) if k != own]
        scores = scores_of(net, lasts)
        assert any(is_reached(rival_target(own, k, ties), s) for k in rivals for s in scores)
        return None


#: Networks that are drawn until the class of the image can change.
MOST_DRAWS = 8

ways = given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plus", "minus", "either"]),
    st.sampled_from(["violation", "robust"]),
)


@pytest.mark.parametrize("most", [0, MOST_POINTS])
@few(6)
@ways
def test_inputs_on_a_grid(most: int, seed: int, sign_zero: str, ties: str) -> None:
    """Regions are decided by methods, or by the enumeration of their points."""
    with mock.patch.object(enumeration, "MOST_POINTS", most):
        check_on_a_grid(seed, sign_zero, ties)


def check_on_a_grid(seed: int, sign_zero: str, ties: str) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(MOST_DRAWS):
        size = int(rng.integers(2, 7))
        net = random_network(rng, size, sign_zero)
        image = rng.integers(-1, 2, size).astype(float)
        ball = bnncert.Ball("linf", image, float(rng.integers(1, 3)), -1, 1, grid=1.0)
        found = explained(net, ball, ties)
        if found is not None:
            Oracle(net, found, ties).check()
            if found.kept:
                return


@few(8)
@ways
def test_real_inputs(seed: int, sign_zero: str, ties: str) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(MOST_DRAWS):
        size = int(rng.integers(1, 4))
        net = random_network(rng, size, sign_zero)
        image = rng.integers(-4, 5, size) / 4
        ball = bnncert.Ball("linf", image, float(rng.integers(1, 9)) / 4, -1, 1.25)
        label = int(rng.integers(0, net.weights[-1].shape[0])) if seed % 4 == 0 else None
        found = explained(net, ball, ties, label)
        if found is not None:
            Oracle(net, found, ties).check()
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
