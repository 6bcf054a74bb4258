"""The engine of `learning`: slices of time, targets proved elsewhere, clauses of others, traces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import learning
from bnncert.engine.methods.attack import Attack
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.engine import LearnedClauses
from bnncert.engine.methods.learning import TOO_LARGE, LearningEngine, is_ready
from bnncert.engine.presolve.pipeline import plain_presolve
from bnncert.engine.presolve.stability import stability
from bnncert.engine.replay import Replayer
from bnncert.engine.search.learning.encoding import encode
from bnncert.engine.search.trace import SearchRecord
from bnncert.kernel import check
from bnncert.problem import Objective, Target, robustness
from bnncert.questions.prover import solve

#: Layers for which some questions at a small radius need conflicts.
WIDE = (12, 30, 20, 20, 3)


def question(seed: int, radius: float, sizes: tuple[int, ...] = (6, 14, 12, 10, 4)) -> Any:
    """Return the problem of a random ternary network and a box."""
    rng = np.random.default_rng(seed)
    weights = [rng.choice([-1.0, 0.0, 1.0], (b, a)) for a, b in pairwise(sizes)]
    biases = [np.asarray(rng.integers(-1, 2, w.shape[0]) / 4) for w in weights]
    network = bnncert.Network.from_arrays(weights, biases)
    center = rng.integers(-8, 9, sizes[0]) / 8
    region = bnncert.Ball("linf", center, radius)
    label = int(np.argmax(network.evaluate(center)))
    return robustness(network, region, label)


def engine_of(problem: Any, *, tracing: bool = False, attack: bool = False) -> LearningEngine:
    context = Context(
        Options(), Deadline(None), Replayer(problem), record=SearchRecord() if tracing else None
    )
    network, region = problem.network, problem.region
    made = plain_presolve(network, region, stability(network, region))
    beside = Attack(problem, context, bounds=made.bounds) if attack else None
    return LearningEngine(made, problem, problem.targets, context, beside)


@pytest.mark.parametrize("attack", [False, True])
def test_answers_are_those_of_propagation(attack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATTACK_AT", "CONFLICTS_AT_ONCE"):
        monkeypatch.setattr(learning, name, 1)
    statuses, attacks = [], 0
    for seed in range(16):
        problem = question(seed, 0.03, WIDE)
        engine = engine_of(problem, attack=attack).run(Deadline(None))
        attacks += engine.attack is not None and engine.attack.steps > 0
        expected = solve([problem], "propagation", 60, Options(), None).status
        statuses.append(expected)
        assert {"proved": "robust", "violated": "not_robust"}[engine.status] == expected
    assert min(statuses.count("robust"), statuses.count("not_robust")) > 3
    assert (attacks > 3) == attack


def test_a_search_in_slices_has_the_same_conflicts() -> None:
    """A deadline that passes leaves the search as it is; the next slice continues."""
    whole = engine_of(question(3, 0.45)).run(Deadline(None))
    parts, slices = engine_of(question(3, 0.45)), 0
    assert is_ready(Deadline(None))
    while parts.status == "interrupted":
        parts.run(Deadline(2e-3))
        slices += 1
    assert (parts.status, parts.conflicts) == (whole.status, whole.conflicts)


def test_targets_that_are_proved_elsewhere_are_not_asked() -> None:
    """Of a violated question all targets but those that hold are dropped: the rest is proved."""
    for seed in range(20):
        problem = question(seed, 0.3)
        alone = {
            t.name: engine_of(bnncert.Problem(problem.network, problem.region, (t,)))
            .run(Deadline(None))
            .status
            for t in problem.targets
        }
        if len(set(alone.values())) == 2:
            break
    engine = engine_of(problem, tracing=True)
    engine.drop({name for name, status in alone.items() if status == "violated"})
    assert engine.run(Deadline(None)).status == "proved"
    engine.leave_trace()
    assert engine.context.record is not None
    trace = engine.context.record.clause_proofs[0]
    assert set(trace.targets) == {name for name, status in alone.items() if status == "proved"}
    most = 2 * (trace.layer.size + len(trace.targets))
    assert trace.literals.size == trace.starts[-1] and np.all(trace.literals < most)
    for target in problem.targets:
        robust = engine.result(target, "learning", 0.0, -np.inf).status == "robust"
        assert robust == (alone[target.name] == "proved")


def test_clauses_are_exchanged() -> None:
    """Clauses that exclude all signs of a neuron end the search, whatever the targets are."""
    engine = engine_of(question(1, 0.4))
    assert is_ready(Deadline(None)) and engine.run(Deadline(1e-9)).status == "interrupted"
    first = int(engine.encoding.neuron[0])
    learned = LearnedClauses()
    for sign in (0, 1):
        learned.add(np.array([2 * first + sign], dtype=np.int64), None)
    engine.exchange(learned)
    assert engine.run(Deadline(None)).status == "proved"


def test_what_is_too_large_is_refused() -> None:
    problem = question(1, 0.4)
    context = Context(Options(memory=1e-9), Deadline(None), Replayer(problem))
    made = plain_presolve(
        problem.network, problem.region, stability(problem.network, problem.region)
    )
    engine = LearningEngine(made, problem, problem.targets, context)
    assert not engine.suitable
    assert engine.run(Deadline(None)).status == "interrupted"
    result = engine.result(problem.targets[0], "learning", 0.0, -1.0)
    assert (result.status, result.note, result.lower) == ("unknown", TOO_LARGE, -1.0)


@pytest.mark.parametrize("tie_is_fine", [False, True])
def test_objectives_with_real_coefficients_are_never_stricter(tie_is_fine: bool) -> None:
    """All signs of the last layer that violate the objective satisfy the row of its goal."""
    rng = np.random.default_rng(5)
    weights = [np.eye(4), rng.normal(size=(2, 4))]
    network = bnncert.Network.from_arrays(weights, [np.zeros(4), np.zeros(2)])
    box = bnncert.Box(-np.ones(4), np.ones(4))
    presolved = plain_presolve(network, box, stability(network, box))
    for scale in (1.0, 3.0**-40, 1e30):
        for _ in range(20):
            numbers = rng.normal(size=4) * scale * (rng.random(4) < 0.8)
            objective = Objective(numbers, float(rng.normal() * scale), tie_is_fine=tie_is_fine)
            made = encode(presolved, (Target("f", (objective,)),), box, Deadline(None))
            head, start, literals, sizes, limits = made.rows
            for number in range(16):
                signs = np.array([1 - 2 * (number >> k & 1) for k in range(4)])
                bits = (signs < 0).astype(np.int64)
                held = sum(
                    int(a) for x, a in zip(literals, sizes, strict=True) if bits[x >> 1] == x & 1
                )
                fits = not head.size or held >= limits[0]
                if objective.is_violated(signs):
                    assert fits
                elif made.exact:
                    assert not fits
            assert start.size == head.size + 1


def test_levels_of_an_input_are_in_order() -> None:
    """x >= 3/4 excludes x < 1/4 and so on, for weights of both signs and other sizes."""
    weights = np.array([[1.0], [-2.0], [1.0], [4.0]])
    bias = np.array([-0.25, 1.0, -0.75, -0.4])
    network = bnncert.Network.from_arrays([weights, np.ones((2, 4))], [bias, np.zeros(2)])
    box = bnncert.Box(np.zeros(1), np.ones(1))
    problem = robustness(network, box, 0)
    presolved = plain_presolve(network, box, stability(network, box))
    found = encode(presolved, problem.targets, box, Deadline(None)).excluded
    # The thresholds are 1/4, 1/2, 3/4 and 1/10.
    pairs = {tuple(sorted(literals.tolist())) for literals, _ in found}
    assert pairs == {(0, 7), (1, 3), (2, 4)}
    for x in np.linspace(0, 1, 41):
        bits = network.layers[0].exact_signs(np.array([x])) < 0
        assert not any(all(bits[v >> 1] == v & 1 for v in pair) for pair in pairs)


def test_a_certificate_of_a_refutation_is_accepted(tmp_path: Path) -> None:
    """A question that intervals do not decide, so that the certificate has lemmas."""
    path, refuted = tmp_path / "answer.cert", 0
    for seed in (0, 1, 3, 9, 15):
        problem = question(seed, 0.03, WIDE)
        result = solve([problem], "learning", 120, Options(), None, certificate=path)
        if result.status == "robust":
            assert check(path, problem.network).verdict == "robust"
            path.unlink()
            refuted += sum(t.details.get("conflicts", 0) for t in result.targets)
    assert refuted > 10
