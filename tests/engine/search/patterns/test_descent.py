"""The tabu search over flips: its steps keep the budget, and it finds what there is to find."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.descent import FlipDescent
from bnncert.engine.search.patterns.flips import UNITS, FlipBudget, flip_budget
from bnncert.engine.search.patterns.interval_propagation import evaluate
from bnncert.engine.search.patterns.pattern_search import Realisation
from tests.engine.search.patterns.test_search import circuit_of, deep_network


def budgeted(rng: np.random.Generator) -> tuple[Circuit, FlipBudget] | None:
    """Return a random circuit whose region is a budget of flips."""
    net = deep_network(rng, 7, (7, 9, 6), diagonal=True)
    ball = bnncert.Ball("l1", rng.uniform(-2, 2, 7), float(rng.uniform(1, 4)))
    circuit, _, _ = circuit_of(net, ball, int(net.classify(ball.center)[0]))
    budget = flip_budget(net.layers[0], circuit.neurons, ball)
    return None if budget is None or circuit.inputs < 3 else (circuit, budget)


def always(pattern: np.ndarray, targets: np.ndarray) -> Realisation:
    return Realisation(found=True)


@pytest.mark.parametrize("starts", [1, 2], ids=["single", "exchanges"])
def test_steps_stay_within_the_budget_and_exchange_flips_where_it_is_spent(starts: int) -> None:
    rng = np.random.default_rng(9)
    kinds: Counter[bool] = Counter()
    for _ in range(15):
        made = budgeted(rng)
        if made is None:
            continue
        circuit, budget = made
        descent = FlipDescent(circuit, budget, budget.home, always, 0)
        for _ in range(starts):
            pattern = descent._start()
        forbidden = rng.random(circuit.inputs) < 0.2
        steps = descent._steps(pattern, forbidden)
        assert len({tuple(sorted(step)) for step in steps.tolist()}) == len(steps)
        for step in steps.tolist():
            moved = [i for i in step if i >= 0]
            assert not forbidden[moved].any()
            after = pattern.copy()
            after[moved] *= -1
            assert budget.spent(after[None, :])[0] <= UNITS
            kinds[len(moved) == 2] += 1
        fitting = 0
        for i in np.flatnonzero(~forbidden).tolist():
            after = pattern.copy()
            after[i] *= -1
            fitting += int(budget.spent(after[None, :])[0] <= UNITS)
        assert np.count_nonzero(steps[:, 1] < 0) == fitting
    assert kinds[False] > 20
    assert (kinds[True] > 0) == (starts == 2)


def test_a_pattern_that_reaches_a_target_is_found_if_there_is_one() -> None:
    rng = np.random.default_rng(10)
    statuses: Counter[bool] = Counter()
    for _ in range(20):
        made = budgeted(rng)
        if made is None:
            continue
        circuit, budget = made
        patterns = np.array(list(product((-1, 1), repeat=circuit.inputs)), dtype=np.int8)
        patterns = patterns[budget.spent(patterns) <= UNITS]
        exists = bool(np.any(evaluate(circuit, patterns).lower <= circuit.objectives.enough))
        descent = FlipDescent(circuit, budget, budget.home, always, 0)
        found = descent.run(Deadline(None), 40)
        assert found <= exists
        statuses[found == exists] += 1
    # A local search may miss some.
    assert statuses[True] > 9 * statuses[False]


def test_a_descent_goes_on_where_the_end_of_a_slice_interrupted_it() -> None:
    rng, longer = np.random.default_rng(9), 0
    for _ in range(15):
        made = budgeted(rng)
        if made is None:
            continue
        circuit, budget = made
        whole = FlipDescent(circuit, budget, budget.home, always, 0)
        sliced = FlipDescent(circuit, budget, budget.home, always, 0)
        found = whole.run(Deadline(None), 3)
        over = Deadline(1e-9, 0.0)
        slices = 1
        while not sliced.run(over, 1) and sliced._starts <= 3:
            slices += 1
        assert found == (sliced._starts <= 3)
        assert not found or sliced._starts == whole._starts
        longer += slices > sliced._starts
    assert longer
