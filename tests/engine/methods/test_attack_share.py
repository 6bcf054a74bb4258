"""The attack's share of the time: complete at the limit, in slices before it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.methods import auto
from bnncert.engine.methods.attack import Attack
from bnncert.engine.methods.attack_share import FIRST_SLICE, SHARE, STALLED_SHARE, AttackShare
from bnncert.engine.methods.base import Context, Options
from bnncert.engine.methods.proof_stages import ProofStage, ProofTask
from bnncert.engine.methods.propagation import PatternEngine
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns.pattern_search import SearchOutcome
from bnncert.engine.verdict import TargetResult
from bnncert.problem import robustness
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_nothing_is_due_while_proofs_are_quick(clock: Clock) -> None:
    share = AttackShare(Deadline(10.0))
    clock.advance(1.9 * FIRST_SLICE)
    assert share.due() == 0
    clock.advance(0.2 * FIRST_SLICE)
    assert share.due() >= FIRST_SLICE


def test_what_is_due_completes_the_share_and_the_next_slice_is_longer(clock: Clock) -> None:
    share = AttackShare(Deadline(None))
    clock.advance(1.0)
    due = share.due()
    clock.advance(due)
    share.spend(due, stalled=False)
    assert share.seconds == pytest.approx(SHARE * (1.0 + due))
    clock.advance(2 * FIRST_SLICE)
    assert share.due() == 0
    clock.advance(2.5 * FIRST_SLICE)
    assert share.due() >= 2 * FIRST_SLICE


def test_proofs_end_when_what_the_attack_lacks_is_all_that_is_left(clock: Clock) -> None:
    share = AttackShare(Deadline(12.0))
    assert share.for_proofs().remaining() == pytest.approx(8.0)
    clock.advance(1.0)
    share.spend(1.0, stalled=False)
    assert share.for_proofs().remaining() == pytest.approx(8.0)
    clock.advance(8.5)
    assert share.for_proofs().passed()
    assert AttackShare(Deadline(None)).for_proofs().remaining() == math.inf


def test_a_stalled_attack_leaves_nearly_all_the_time_to_proofs(clock: Clock) -> None:
    share = AttackShare(Deadline(10.0))
    clock.advance(0.5)
    share.spend(0.5, stalled=True)
    assert share.lacking() == pytest.approx(10 * STALLED_SHARE - 0.5)
    assert share.for_proofs().remaining() == pytest.approx(9.5 - share.lacking())
    clock.advance(2.0)
    assert share.due() == 0
    # It comes closer again: the whole share is due.
    share.spend(0.0, stalled=False)
    assert share.due() > 0
    assert share.lacking() == pytest.approx(10 * SHARE - 0.5)


def test_an_attack_far_from_all_classes_is_stalled_and_one_that_comes_closer_is_not() -> None:
    # Class 1 needs all of the first 40 signs to change; the ball lets five of them change.
    weights = [np.eye(40), np.vstack([np.ones(40), -np.ones(40)])]
    network = bnncert.Network.from_arrays(weights, [np.zeros(40), np.zeros(2)])
    centre = np.concatenate([np.full(5, 0.1), np.full(35, 2.0)])
    for radius, stalled in ((0.5, True), (5.0, False)):
        problem = robustness(network, bnncert.Ball("linf", centre, radius), 0, "all", "violation")
        context = Context(Options(iterations=10), Deadline(None), Replayer(problem))
        attack = Attack(problem, context, stop_at_first=False)
        assert not attack.is_stalled
        attack.run(Deadline(None), 1)
        attack.run(Deadline(None), 4)
        upper, found = attack.outcome(Deadline(None))
        assert (found[0] is None) == stalled
        assert attack.is_stalled or not stalled
        if stalled:
            assert upper[0] == 60


@pytest.mark.parametrize("limit", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("greed", [0.01, 0.3, 1.0])
def test_the_attack_has_a_third_of_the_time_whatever_the_proofs_take(
    limit: float, greed: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked = [0.0]
    searches = []

    def attack(search: Attack, deadline: Deadline, rounds: int | None = None) -> None:
        used = deadline.remaining() if rounds is None else min(0.02, deadline.remaining())
        searches.append(search)
        attacked[0] += used
        clock.advance(used)

    def prove(stage: ProofStage, task: ProofTask) -> TargetResult:
        clock.advance(greed * task.context.deadline.remaining())
        return task.context.result(task.target, stage.method.name, 0.0)

    def search(engine: PatternEngine, deadline: Deadline) -> SearchOutcome:
        clock.advance(greed * deadline.remaining())
        return engine.search.outcome

    monkeypatch.setattr(Attack, "run", attack)
    monkeypatch.setattr(PatternEngine, "run", search)
    monkeypatch.setattr(ProofStage, "prove", prove)
    monkeypatch.setattr(auto, "eliminate", lambda run, presolved, kind: None)
    generator = np.random.default_rng(0)
    weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((6, 9), (9, 7), (7, 3))]
    network = bnncert.Network.from_arrays(weights, [np.zeros(9), np.zeros(7), [0.5, 0, 0]])
    region = bnncert.Ball("linf", np.full(6, 0.1), 0.5)
    label = int(network.classify(region.center)[0])
    started = clock.now
    result = bnncert.verify(network, region, label, timeout=limit)
    elapsed = clock.now - started
    assert result.status in ("unknown", "timeout")
    assert elapsed <= limit + 1e-6
    assert attacked[0] >= SHARE * limit - 1e-6
    # One search that goes on, besides the quick one.
    assert len(set(map(id, searches))) <= 2
