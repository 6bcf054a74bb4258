"""Every method on L0 balls of real inputs against brute force over the inputs that change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations, product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.engine.methods import REGISTRY
from bnncert.engine.verdict import Result
from bnncert.problem import Ties
from tests.brute_force import TinyQuestion, reachable_last_layers, scores_of
from tests.every_mode import MODES, agree_in_every_mode, answer
from tests.strategies import drawn, few, tiny_networks
from tests.test_grid_against_brute_force import binarised, quarters

METHODS = [m.name for m in REGISTRY.all() if m.available() and "l0" in m.regions.split(", ")]


@dataclass(frozen=True, eq=False)
class SparseQuestion(TinyQuestion):
    """A question about inputs of which few change."""

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        ball = self.region
        assert isinstance(ball, bnncert.L0Ball)
        lasts: set[tuple[int, ...]] = set()
        for chosen in combinations(range(ball.size), ball.changes):
            lo, hi = ball.middle.copy(), ball.middle.copy()
            lo[list(chosen)], hi[list(chosen)] = ball.lo[list(chosen)], ball.hi[list(chosen)]
            lasts |= reachable_last_layers(self.net, bnncert.Box(lo, hi))
        return scores_of(self.net, lasts)

    def check(self, result: Result, ties: str = "violation") -> None:
        super().check(result, ties)
        found, ball = result.counterexample, self.region
        assert isinstance(ball, bnncert.L0Ball)
        if found is not None:
            point = found.exact or [Fraction(v) for v in found.point.tolist()]
            changed = [x != Fraction(c) for x, c in zip(point, ball.middle.tolist(), strict=True)]
            assert sum(changed) <= ball.changes


@st.composite
def sparse_questions(draw: st.DrawFn, *, binary: bool = False) -> SparseQuestion:
    net = draw(binarised() if binary else tiny_networks(inputs=3, max_depth=2))
    center = np.array(draw(st.lists(quarters(-4, 4), min_size=3, max_size=3)))
    within = draw(st.none() | quarters(0, 6))
    ball = bnncert.L0Ball(center, draw(st.integers(0, 3)), -1.5, 1.5, within)
    return SparseQuestion(net, ball, draw(st.integers(0, net.weights[-1].shape[0] - 1)))


@cache
def asked() -> list[SparseQuestion]:
    """Return questions that all methods are asked; the first that are drawn are the smallest."""
    return drawn(sparse_questions(), 10)[-5:]


@pytest.mark.parametrize("method", METHODS)
def test_bounds_and_statuses_agree_with_all_choices_of_inputs(method: str) -> None:
    statuses: Counter[str] = Counter()
    for question in asked():
        statuses.update(agree_in_every_mode(question, method))
    assert statuses["robust"] > 0 or "bound" not in REGISTRY.make(method).promises


@few(12)
@given(data=st.data())
def test_binarised_inputs_are_decided_by_the_number_of_flips(data: st.DataObject) -> None:
    question = data.draw(sparse_questions(binary=True))
    for ties, mode in product(get_args(Ties), MODES):
        result = answer(question, "propagation", ties, mode)
        assert result.status == question.expected(ties)


def test_methods_without_l0_balls_say_so() -> None:
    net = bnncert.Network.from_arrays(
        (np.eye(2), np.eye(2)), (np.zeros(2), np.array([1.0, 0.0])), sign_zero="plus"
    )
    ball = bnncert.L0Ball([0.5, 0.5], 1, -1.0, 1.0)
    with pytest.raises(bnncert.InputError, match="L-inf and L2 balls, boxes and polytopes"):
        bnncert.bound(net, ball, 0, method="sdp-tight")
