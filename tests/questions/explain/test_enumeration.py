"""Regions of few grid points against an evaluation of all points in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.problem import robustness
from bnncert.questions.explain.explanation_answer import Domain
from bnncert.questions.explain.free_points import Enumeration
from tests.brute_force import is_reached, last_layers_at, rival_target, scores_of
from tests.random_questions import random_network


# Thirds are not exact in floats, and sums meet thresholds.
@pytest.mark.parametrize("step", [1.0, 0.25, 1 / 3])
@pytest.mark.parametrize("sign_zero", ["plus", "minus"])
def test_all_points(step: float, sign_zero: str) -> None:
    rng = np.random.default_rng(7)
    decided = 0
    for _ in range(25):
        net = random_network(rng, 4, sign_zero)
        image = step * rng.integers(-2, 3, 4)
        domain = Domain(bnncert.Ball("linf", image, step, -2 * step, 2 * step, grid=step))
        network = net.build()
        label = int(network.classify(image)[0])
        problem = robustness(network, domain.everything, label)
        free = np.array([True, True, True, False])
        points = Enumeration(problem, domain, Deadline(60))
        assert points.fits(free)
        known, wrong = points.violation(free)
        values = domain.everything.values
        assert values is not None
        low, high = values.nearest(domain.lo), values.nearest(domain.hi)
        columns = [
            [values.at(np.full(4, k))[i] for k in range(int(low[i]), int(high[i]) + 1)]
            if free[i]
            else [image[i]]
            for i in range(4)
        ]
        targets = [rival_target(label, t.rival, "violation") for t in problem.targets]
        lasts = set().union(
            *(last_layers_at(net, [Fraction(v) for v in x]) for x in product(*columns))
        )
        truth = any(is_reached(t, s) for t in targets for s in scores_of(net, lasts))
        decided += known
        if known:
            assert (wrong is not None) == truth
        if wrong is not None:
            scores = scores_of(net, last_layers_at(net, [Fraction(v) for v in wrong]))
            assert any(is_reached(t, s) for t in targets for s in scores)
    assert decided >= 20


def test_regions_that_are_not_enumerated() -> None:
    weights = [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]]
    network = bnncert.Network.from_arrays(weights, [[0, 0]] * 2, input_lo=-1, input_hi=1)
    image, free = np.array([0.5, 0.0]), np.array([True, True])
    real = Domain(bnncert.Ball("linf", image, 1))
    problem = robustness(network, real.everything, 0)
    assert not Enumeration(problem, real, Deadline(60)).fits(free)
    fine = Domain(bnncert.Ball("linf", image, 1, grid=2.0**-12))
    assert not Enumeration(problem, fine, Deadline(60)).fits(free)
    coarse = Domain(bnncert.Ball("linf", image, 1, grid=0.5))
    assert Enumeration(problem, coarse, Deadline(60)).fits(free)
    either = robustness(network.with_sign_zero("either"), real.everything, 0)
    assert not Enumeration(either, coarse, Deadline(60)).fits(free)
