"""Elimination on tiny networks: against all patterns, and against all inputs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from unittest import mock

import numpy as np
import pytest

from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.elimination import EliminationEngine
from bnncert.engine.presolve.pipeline import Presolved, plain_presolve, presolve
from bnncert.engine.presolve.stability import stability
from bnncert.engine.replay import Replayer
from bnncert.engine.search.elimination import bound, factors
from bnncert.engine.search.elimination.bound import EliminationLimits, minimise, prepare
from bnncert.engine.search.elimination.elimination_search import ClausePool
from bnncert.engine.search.elimination.factors import build_factors, integer_objective
from bnncert.problem import Objective, Problem, robustness
from tests.brute_force import TinyNetwork, TinyQuestion, reachable_first_layers
from tests.random_questions import random_region

FOREVER = Deadline(None)
SIGN_RULES = ("plus", "minus", "either")
REGIONS = ("linf", "l1", "l2", "box", "polytope")


def line_network(rng: np.random.Generator, sign_zero: str, real: bool = False) -> TinyNetwork:
    """Return a convolution along a line of 3 inputs with 2 or 3 sign layers and 3 classes."""
    first = np.zeros((4, 3))
    for row in range(4):
        first[row, row % 2 : row % 2 + 2] = rng.choice([-1.0, 1.0], 2)
    weights, sizes = [first], [4, *([3] if rng.random() < 0.3 else []), 5]
    for below, above in pairwise(sizes):
        window = np.zeros((above, below))
        for row in range(above):
            start = row % (below - 1)
            window[row, start : start + 2] = rng.choice([-1, 0, 1], 2, p=[0.4, 0.2, 0.4])
        weights.append(window)
    output = rng.choice([-1.0, 0.0, 1.0], (3, 5))
    weights.append(rng.normal(size=(3, 5)) if real else output)
    biases = [rng.integers(-3, 4, w.shape[0]) / 2 for w in weights]
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)  # type: ignore[arg-type]


def question_of(rng: np.random.Generator, kind: str, rule: str, real: bool) -> TinyQuestion:
    net = line_network(rng, rule, real)
    return TinyQuestion(net, random_region(rng, kind, 3), int(rng.integers(3)))


def later_signs(presolved: Presolved, number: int, below: list[np.ndarray]) -> list[np.ndarray]:
    """Return every sign vector that a layer may have over those of the layer below."""
    layer = presolved.network.layers[number]
    found = {}
    for y in below:
        sums = layer.weights @ y.astype(np.int64)
        options = [
            [s for s, ok in ((1, u >= p), (-1, u <= q)) if ok]
            for u, p, q in zip(sums, layer.plus_from, layer.minus_upto, strict=True)
        ]
        for signs in product(*options):
            found[signs] = np.array(signs, dtype=np.int8)
    return list(found.values())


def minima_over_patterns(presolved: Presolved, objectives: list[Objective]) -> list[Fraction]:
    """Return the minimum of each objective over the patterns without a conflicting pair."""
    layer = presolved.layers[0]
    count = int(np.count_nonzero(presolved.owner_layer == 0))
    pairs = list(zip(presolved.pairs.first.tolist(), presolved.pairs.second.tolist(), strict=True))
    lasts: list[np.ndarray] = []
    for pattern in product((1, -1), repeat=count):
        holds = [s == side for s in pattern for side in (1, -1)]
        if any(a < 2 * count and b < 2 * count and holds[a] and holds[b] for a, b in pairs):
            continue
        own = np.array([*pattern, 0])[layer.variable] * layer.sign
        signs = [np.where(layer.bounds.state != 0, layer.bounds.state, own)]
        for number in range(1, presolved.network.depth):
            signs = later_signs(presolved, number, signs)
        lasts += signs
    return [min(o.exactly(x) for x in lasts) for o in objectives]


@pytest.mark.parametrize("rule", SIGN_RULES)
def test_elimination_is_the_minimum_over_patterns_without_conflicting_pairs(rule: str) -> None:
    rng = np.random.default_rng(SIGN_RULES.index(rule))
    widths: Counter[int] = Counter()
    for number in range(25):
        real = number % 4 == 0
        asked = question_of(rng, str(rng.choice(REGIONS)), rule, real)
        presolved = presolve(asked.network, asked.region)
        problem = robustness(asked.network, asked.region, asked.label)
        objectives = [t.objectives[0] for t in problem.targets]
        whole = [integer_objective(o) for o in objectives]
        model = build_factors(presolved, FOREVER).model(whole)
        scopes, count = model.scopes(), len(model.tables)
        truth = minima_over_patterns(presolved, objectives)
        for limits in (EliminationLimits(), EliminationLimits(seconds=0.0)):
            # Where nothing is allowed, the narrowest mini-buckets still give a bound.
            plan = prepare(scopes[:count], scopes[count:], len(whole), limits, FOREVER).plan
            made = minimise(model, plan, EliminationLimits(), FOREVER)
            for objective, least, least_true in zip(whole, made.values, truth, strict=True):
                lower = objective.lower(float(least))
                assert lower <= least_true
                if plan.is_exact:
                    assert least_true - lower <= Fraction(1, 10**6) * real
            widths[plan.width] += 1
    assert max(widths) >= 2


def search_minimum(asked: TinyQuestion, pairs: bool) -> tuple[EliminationEngine, Problem]:
    """Search for the minimum; without conflicting pairs, everything has to be learned."""
    problem = robustness(asked.network, asked.region, asked.label)
    context = Context(Options(mode="optimum"), FOREVER, Replayer(problem))
    network, region = asked.network, asked.region
    if pairs:
        presolved = presolve(network, region)
    else:
        presolved = plain_presolve(network, region, stability(network, region))
    engine = EliminationEngine(presolved, problem, problem.targets, context, 10.0, FOREVER)
    engine.run(FOREVER)
    return engine, problem


def test_with_clauses_it_is_the_minimum_over_inputs() -> None:
    rng = np.random.default_rng(10)
    learned = 0
    for number in range(75):
        rule = SIGN_RULES[number % 3]
        asked = question_of(rng, str(rng.choice(("linf", "l1", "box", "polytope"))), rule, False)
        engine, problem = search_minimum(asked, pairs=number % 2 == 0)
        for k, target in enumerate(problem.targets):
            assert target.rival is not None
            result = engine.result(target, "elimination", 0.0, -np.inf)
            assert result.lower == result.upper == asked.truth[target.rival], k
        # No clause excludes a pattern that some input has.
        patterns = list(reachable_first_layers(asked.net, asked.region))
        for neurons, signs, _ in engine.search.proofs:
            learned += 1
            assert not any(
                all(p[n] == s for n, s in zip(neurons.tolist(), signs.tolist(), strict=True))
                for p in patterns
            )
    assert learned >= 8


@pytest.mark.parametrize("most_inputs", [0, 1])
def test_neurons_without_a_table_and_narrow_buckets_leave_a_bound(most_inputs: int) -> None:
    rng = np.random.default_rng(most_inputs)
    below = 0
    with (
        mock.patch.object(factors, "MOST_INPUTS", most_inputs),
        mock.patch.object(bound, "ENTRY_SECONDS", 1e9),
    ):
        for _ in range(15):
            asked = question_of(rng, "linf", "plus", False)
            result = asked.verify("elimination")
            asked.check(result)
            below += sum(t.lower < m for t, m in asked.targets(result))
    assert below > 0


# -- which clauses are active, and which are violated ---------------------------------------------


def test_violated_clauses_are_those_whose_literals_all_hold() -> None:
    rng = np.random.default_rng(0)
    pool = ClausePool()
    assert pool.violated(np.ones(3, dtype=np.int8)) == []
    for _ in range(30):
        own = rng.permutation(6)[: int(rng.integers(1, 4))]
        clause = 2 * own + rng.integers(0, 2, own.size)
        known = any(np.array_equal(np.sort(clause), c) for c in pool.clauses)
        assert pool.add(clause) is not known
    for _ in range(50):
        signs = rng.choice([-1, 1], 6).astype(np.int8)
        expected = [
            i
            for i, clause in enumerate(pool.clauses)
            if all(signs[c >> 1] == (-1 if c & 1 else 1) for c in clause.tolist())
        ]
        assert pool.violated(signs) == expected


def test_long_clauses_are_activated_where_no_short_one_is_violated() -> None:
    pool = ClausePool([np.arange(0, 2 * n, 2) for n in (6, 3, 2, 5)])
    pool.activate([0, 1, 2, 3])
    assert pool.active == [2, 1]
    pool.activate([1])
    assert pool.active == [1, 2]
    pool.activate([0, 3])
    assert pool.active == [1, 2, 3]


def test_clauses_inside_a_bucket_are_free() -> None:
    tables = [(0, 1, 2), (2, 3), (3, 4), (4, 5)]
    clauses = [(0, 2), (0, 5), (3, 4), (1, 9)]
    narrow = prepare(tables, clauses, 1, EliminationLimits(), Deadline(None), active=())
    assert narrow.clauses == (0, 2)
    assert narrow.plan.width == 2
    wide = prepare(tables, clauses, 1, EliminationLimits(), Deadline(None), active=(1,))
    assert wide.clauses == (1, 0, 2)
    assert wide.components == 1 and wide.plan.is_exact
