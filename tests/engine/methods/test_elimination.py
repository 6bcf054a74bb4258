"""The method `elimination` and the stage of `auto`, on convolutions along a line."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import elimination
from bnncert.engine.methods.attack import Attack
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.elimination import attack_locally
from bnncert.engine.replay import Replayer
from bnncert.engine.search.elimination.bound import EliminationLimits, minimise, prepare
from bnncert.engine.search.elimination.elimination_search import influences, perturbed
from bnncert.kernel import check
from bnncert.kernel.container import read_sections
from bnncert.problem import Problem, robustness
from tests.engine.search.elimination.test_bound import brute_force, random_model, value


def line(
    seed: int,
    length: int,
    window: int = 3,
    channels: int = 3,
    *,
    shuffled: bool = False,
    lead: float = 0.0,
) -> bnncert.Network:
    """Return two convolutional sign layers along a line; shuffled inputs are not local.

    Class 0 leads by a constant.
    """
    rng = np.random.default_rng(seed)
    first = np.zeros((2 * (length - 2), length))
    for row in range(first.shape[0]):
        first[row, row // 2 : row // 2 + 3] = rng.choice([-1, 1], 3)
    second = np.zeros((channels * (first.shape[0] - window + 1), first.shape[0]))
    places = rng.permutation(first.shape[0]) if shuffled else np.arange(first.shape[0])
    for row in range(second.shape[0]):
        start = row // channels
        second[row, places[start : start + window]] = rng.choice([-1, 1], window)
    output = rng.choice([-1, 1], (4, second.shape[0]))
    weights = [first, second, output]
    biases = [rng.integers(-2, 3, w.shape[0]) / 4 for w in weights]
    biases[-1][0] += lead
    return bnncert.Network.from_arrays(weights, biases)


def question(
    seed: int, length: int, radius: float, lead: float = 0.0
) -> tuple[bnncert.Region, int, bnncert.Network]:
    net = line(seed, length, lead=lead)
    center = np.random.default_rng(seed + 100).uniform(-1, 1, length)
    label = int(np.argmax(net.evaluate(center)))
    return bnncert.Ball("linf", center, radius), label, net


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_milp_on_a_line(seed: int) -> None:
    region, label, net = question(seed, 14, 0.15)
    exact = bnncert.bound(net, region, label, method="elimination")
    other = bnncert.bound(net, region, label, method="milp", options=Options(mode="optimum"))
    for mine, theirs in zip(exact.targets, other.targets, strict=True):
        assert mine.lower == mine.upper == pytest.approx(theirs.upper)
    verdict = bnncert.verify(net, region, label, method="elimination")
    assert verdict.status == other.status


def test_auto_eliminates_where_the_network_is_local(tmp_path: Path) -> None:
    region, label, net = question(5, 40, 0.2, lead=60)
    result = bnncert.verify(net, region, label, timeout=30)
    stages = {t.stage for t in result.targets}
    assert result.status == "robust" and elimination.EliminationMethod.name in stages
    done = next(t.details["elimination"] for t in result.targets if "elimination" in t.details)
    assert done["width"] < done["variables"] / 2
    assert done["split buckets"] == 0
    path = tmp_path / "proof"
    proof = bnncert.verify(net, region, label, timeout=30, certificate=path)
    assert proof.status == "robust" and proof.certificate is not None
    assert check(path, net).targets == len(result.targets)
    assert "elimination" in {section.name for section in read_sections(path)}


def test_time_and_memory_are_limited_where_tables_would_explode() -> None:
    net = line(1, 150, window=6, channels=8, shuffled=True)
    center = np.random.default_rng(7).uniform(-0.3, 0.3, 150)
    region = bnncert.Ball("linf", center, 0.5)
    label = int(np.argmax(net.evaluate(center)))
    started = time.monotonic()
    result = bnncert.verify(
        net, region, label, method="elimination", timeout=1, options=Options(memory=0.01)
    )
    assert time.monotonic() - started < 3
    assert all(t.lower <= t.upper for t in result.targets)
    done = [t.details["elimination"] for t in result.targets if "elimination" in t.details]
    assert all(d["width"] < 22 for d in done)


# -- elimination as an attack ---------------------------------------------------------------------


def context_of(problem: Problem, options: Options, seconds: float | None = None) -> Context:
    return Context(options, Deadline(seconds), Replayer(problem))


def test_points_of_minimising_patterns_are_counterexamples() -> None:
    found = 0
    for seed in range(6):
        region, label, net = question(seed, 30, 0.5)
        problem = robustness(net, region, label)
        results = attack_locally(problem, context_of(problem, Options(), 5.0))
        for result in results.values():
            if result.counterexample is None:
                continue
            found += 1
            point = result.counterexample.point
            assert region.contains(point)
            scores = net.evaluate(point)
            assert scores[label] <= scores[result.rival]
    assert found >= 4


def test_the_method_attack_uses_them_where_gradients_find_nothing() -> None:
    region, label, net = question(1, 30, 0.3)
    with mock.patch.object(Attack, "_harvest"):
        result = bnncert.verify(net, region, label, method="attack", timeout=10)
    assert result.status == "not_robust"
    assert result.deciding_stage == "attack"


def test_networks_that_are_not_local_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    sizes = (30, 40, 40, 3)
    weights = [rng.choice([-1, 1], (above, below)) for below, above in pairwise(sizes)]
    net = bnncert.Network.from_arrays(weights, [np.zeros(n) for n in sizes[1:]])
    region = bnncert.Ball("linf", np.zeros(30), 1.0)
    problem = robustness(net, region, 0)
    assert attack_locally(problem, context_of(problem, Options())) == {}
    deep = bnncert.Network.from_arrays(
        [*weights[:2], np.eye(40), weights[2]], [np.zeros(n) for n in (40, 40, 40, 3)]
    )
    problem = robustness(deep, region, 0)
    assert attack_locally(problem, context_of(problem, Options())) == {}
    local = line(0, 20)
    problem = robustness(local, bnncert.Ball("linf", np.zeros(20), 1.0), 0)
    assert attack_locally(problem, context_of(problem, Options(), 1e-9)) == {}


def test_perturbed_costs_give_other_patterns_that_violate_no_clause() -> None:
    rng = np.random.default_rng(2)
    different = 0
    for _ in range(25):
        model = random_model(rng)
        scopes, count = model.scopes(), len(model.tables)
        plan = prepare(scopes[:count], scopes[count:], 5, EliminationLimits(), Deadline(None)).plan
        truth, size = brute_force(model), 9
        influence = influences(model, size)[:, 0]
        if not np.isfinite(truth[0]):
            continue
        for strength in (0.0, 1.0):
            other = perturbed(model, 0, strength * influence, rng, 5)
            made = minimise(
                replace(other, clauses=model.clauses), plan, EliminationLimits(), Deadline(None)
            )
            assert np.array_equal(made.values, brute_force(other))
            values = [
                value(model, dict(zip(made.variables.tolist(), row.tolist(), strict=True)))[0]
                for row in made.patterns
            ]
            assert np.all(np.isfinite(values))
            if strength == 0:
                assert np.all(values == truth[0])
            else:
                different += len(np.unique(made.patterns, axis=0)) > 1
    assert different > 5


def test_nothing_is_sampled_where_everything_is_proved() -> None:
    region, label, net = question(5, 40, 0.2, lead=60)
    problem = robustness(net, region, label)
    context = context_of(problem, Options(), 100.0)
    results = attack_locally(problem, context)
    assert results and all(r.counterexample is None for r in results.values())
    assert context.deadline.remaining() > 50
