"""Method `auto`: complete on tiny networks of every kind, and what it shares between rivals."""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import auto
from bnncert.engine.methods.auto import rotate
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.branch import BranchMethod, TreesEngine
from bnncert.engine.methods.engine import Engine, LearnedClauses, OpenQuestion
from bnncert.engine.methods.integer_programs import MilpMethod
from bnncert.engine.methods.propagation import PatternEngine, PropagationMethod
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.replay import Replayer
from bnncert.engine.search.trace import SearchRecord
from bnncert.engine.search.tree import Tree
from bnncert.problem import robustness
from tests.clock import Clock
from tests.strategies import NORMS, few, questions

#: Little of everything: what an attack finds at once would never reach the exact stages.
WEAK = Options(restarts=2, iterations=1, samples=5)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@few(20)
def test_auto_agrees_with_brute_force(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    result = question.verify(options=WEAK)
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


@given(data=st.data())
@few(20)
def test_auto_agrees_with_brute_force_on_the_disc(data: st.DataObject) -> None:
    question = data.draw(questions("l2", exact_ties=False))
    result = question.verify(options=WEAK)
    # A pattern that the disc only touches may stay open.
    assert result.status in (question.expected(), "unknown")
    question.check_bounds(result)
    question.check_counterexample(result)


def tiny(engine: Engine) -> float:
    return 1e-4


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@few(20)
def test_complete_methods_in_short_slices_agree_with_brute_force(
    kind: str, data: st.DataObject
) -> None:
    question = data.draw(questions(kind))
    # One complete engine alone, in slices that end in the middle of everything.
    engine = data.draw(st.sampled_from([e for e in auto.engines() if "exact" in e.method.promises]))
    # The mixed-integer program is not for L2 balls, elimination only for two layers.
    engines = (engine, TreesEngine)
    with (
        mock.patch.object(auto, "engines", return_value=engines),
        mock.patch.object(engine, "first_slice", tiny),
    ):
        result = question.verify(options=WEAK)
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


def test_auto_reads_what_its_engines_read() -> None:
    read = frozenset[str]().union(*(engine.method.reads for engine in auto.engines()))
    assert auto.AutoMethod.reads == read


class Timed(Engine):
    """An engine that uses up its slices, and decides after some seconds of its own."""

    def __init__(self, question: OpenQuestion, clock: Clock, first: float, needs: float) -> None:
        super().__init__(question)
        self.clock, self.first, self.needs, self.used = clock, first, needs, 0.0

    def first_slice(self) -> float:
        return self.first

    def work(self, end: Deadline) -> bool:
        seconds = min(end.remaining(), self.needs - self.used)
        self.used += seconds
        self.clock.advance(seconds)
        if self.used >= self.needs:
            for target in self.question.open:
                self.question.enter(self.context.result(target, "bab", 0.0, proved=True))
        return self.used < self.needs


class FirstTimed(Timed):
    method = BranchMethod


class SecondTimed(Timed):
    method = PropagationMethod


class ThirdTimed(Timed):
    method = MilpMethod
    trusts_solver = True


def open_question(tracing: bool = False) -> OpenQuestion:
    network = bnncert.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    ball = bnncert.Ball("linf", np.array([0.5, -0.5]), 1.0)
    problem = robustness(network, ball, 0, "all", "violation")
    record = SearchRecord() if tracing else None
    context = Context(Options(), Deadline(1000.0), Replayer(problem), record=record)
    return OpenQuestion(problem, context)


@pytest.mark.parametrize("first", [(0.01, 0.01, 0.01), (0.5, 0.001, 0.02)])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (4.0, 1.0, 2.0)])
@pytest.mark.parametrize("best", [0, 1, 2])
@pytest.mark.parametrize("needs", [0.1, 7.0, 40.0])
def test_the_loop_keeps_its_guarantee_whichever_engine_is_the_best(
    first: tuple[float, ...],
    weights: tuple[float, ...],
    best: int,
    needs: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, question = Clock(monkeypatch), open_question()
    kinds = (FirstTimed, SecondTimed, ThirdTimed)
    limits = [needs if k == best else math.inf for k in range(3)]
    engines = [
        kind(question, clock, slice_, limit)
        for kind, slice_, limit in zip(kinds, first, limits, strict=True)
    ]
    table = {kind.method.name: weight for kind, weight in zip(kinds, weights, strict=True)}
    started = clock.now
    rotate(question, engines, table)
    assert question.is_over
    # Its last slice is at most as long as all before it; the others may be in their first slices.
    bound = 2 * max(needs, first[best]) * sum(weights) / weights[best] + sum(first)
    assert clock.now - started <= bound + 1e-9


@pytest.mark.parametrize("best", [0, 1, 2])
@pytest.mark.parametrize("needs", [0.01, 0.03, 0.06])
def test_no_weight_delays_what_takes_little_time(
    best: int, needs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, question = Clock(monkeypatch), open_question()
    kinds = (FirstTimed, SecondTimed, ThirdTimed)
    limits = [needs if k == best else math.inf for k in range(3)]
    engines = [kind(question, clock, 0.002, limits[k]) for k, kind in enumerate(kinds)]
    table = {kind.method.name: 100.0 if k != best else 0.1 for k, kind in enumerate(kinds)}
    started = clock.now
    rotate(question, engines, table)
    assert question.is_over
    assert clock.now - started <= needs + 2 * (auto.GROWTH * needs + 0.002) + 1e-9


def test_an_engine_without_proofs_comes_last_if_a_certificate_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for tracing in (False, True):
        clock, question = Clock(monkeypatch), open_question(tracing)
        slow = FirstTimed(question, clock, 1.0, 20.0)
        quick = ThirdTimed(question, clock, 0.001, 0.01)
        rotate(question, [slow, quick], {})
        assert question.is_over
        assert (quick.used == 0.0) == tracing


def test_the_loop_ends_when_only_an_endless_engine_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, question = Clock(monkeypatch), open_question()
    endless = FirstTimed(question, clock, 0.1, math.inf)
    other = SecondTimed(question, clock, 0.1, math.inf)
    monkeypatch.setattr(FirstTimed, "is_endless", True)
    monkeypatch.setattr(other, "work", lambda end: False)
    rotate(question, [endless, other], {})
    assert not question.is_over
    assert {r.status for r in question.answers()} == {"unknown"}


def test_a_pattern_search_and_a_tree_give_each_other_their_clauses() -> None:
    # x > 0.3, x < -0.3 and y, z likewise: signs that no point of the region has are learned.
    generator = np.random.default_rng(5)
    weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((3, 9), (9, 8), (8, 3))]
    biases = [generator.uniform(-1, 1, n) for n in (9, 8, 3)]
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Ball("linf", generator.uniform(-1, 1, 3), 0.8)
    problem = robustness(network, region, int(network.classify(region.center)[0]), "all", "robust")
    context = Context(Options(), Deadline(None), Replayer(problem))
    presolved = presolve(network, region)
    engine = PatternEngine(presolved, problem, problem.targets, context)
    learned = LearnedClauses()
    neurons = engine.circuit.neurons
    clause = literal(neurons[:3], np.array([1, -1, 1]))
    learned.add(clause, None)
    engine.exchange(learned)
    assert [c.tolist() for c in engine.search.outcome.conflicts] == [
        literal(np.arange(3), np.array([1, -1, 1])).tolist()
    ]
    engine.search.learn(literal(np.arange(1, 4), np.array([-1, -1, 1])))
    engine.exchange(learned)
    expected = literal(neurons[1:4], np.array([-1, -1, 1]))
    assert np.sort(expected).tobytes() in learned.known
    engine.exchange(learned)
    assert len(engine.search.outcome.conflicts) == len(learned.known) == 2


def test_a_pattern_search_drops_targets_that_are_proved_elsewhere(tmp_path: Path) -> None:
    question = np.random.default_rng(11)
    weights = [question.choice([-1.0, 1.0], (n, m)) for m, n in ((6, 9), (9, 8), (8, 4))]
    network = bnncert.Network.from_arrays(weights, [question.uniform(-1, 1, n) for n in (9, 8, 4)])
    region = bnncert.Ball("linf", question.uniform(-1, 1, 6), 0.3)
    label = int(network.classify(region.center)[0])
    problem = robustness(network, region, label, "all", "robust")
    context = Context(Options(), Deadline(None), Replayer(problem))
    engine = PatternEngine(presolve(network, region), problem, problem.targets, context)
    engine.drop({problem.targets[0].name})
    batch = engine.search.open.pop(10)
    assert batch.targets.tolist() == [[False, True, True]]
    engine.search.open.push(batch)
    engine.drop({t.name for t in problem.targets})
    assert engine.search.open.is_empty


def test_clauses_learned_for_one_class_hold_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[int] = []
    add_to = LearnedClauses.add_to

    def watch(learned: LearnedClauses, tree: Tree) -> None:
        before = len(tree.proofs)
        add_to(learned, tree)
        taught.append(len(tree.proofs) - before)

    monkeypatch.setattr(LearnedClauses, "add_to", watch)
    for seed in (1, 15, 29):
        generator = np.random.default_rng(seed)
        weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((4, 14), (14, 10), (10, 5))]
        biases = [generator.uniform(-2, 2, n) for n in (14, 10, 5)]
        network = bnncert.Network.from_arrays(weights, biases)
        region = bnncert.Ball("linf", generator.uniform(-1, 1, 4), 0.5)
        label = int(network.classify(region.center)[0])
        result = bnncert.verify(network, region, label, method="bab")
        exact = bnncert.verify(network, region, label, method="milp")
        for ours, theirs in zip(result.targets, exact.targets, strict=True):
            assert ours.status == theirs.status
    assert sum(taught) > 0, "no tree had any clause for the next"


def test_a_large_problem_does_not_starve_the_attack() -> None:
    data = Path(bnncert.__file__).parent / "data"
    network = bnncert.load(data / "mnist_sparse.npz")
    image = np.load(data / "mnist_test_100.npz")["images"][0]
    assert network.pixel_step is not None and network.input_lo is not None
    point = network.input_lo + image.reshape(-1) * network.pixel_step
    region = bnncert.Ball("linf", point, 6 * network.pixel_step, network.input_lo, network.input_hi)
    result = bnncert.verify(network, region, 7, timeout=60)
    assert result.status == "not_robust"


@pytest.mark.parametrize(("first", "row"), [("single inputs", "levels"), ("sums", "deep")])
def test_deep_networks_are_told_by_what_their_first_layer_reads(first: str, row: str) -> None:
    rng = np.random.default_rng(0)
    size = 20
    weights = [rng.choice([-1, 1], (size, size)) for _ in range(3)]
    if first == "single inputs":
        weights[0] = np.diag(weights[0].diagonal())
    weights.append(rng.choice([-1, 1], (2, size)))
    network = bnncert.Network.from_arrays(weights, [np.zeros(len(w)) for w in weights])
    box = bnncert.Box(np.full(size, -1.0), np.full(size, 1.0))
    problem = robustness(network, box, 0, "all", "violation")
    context = Context(Options(), Deadline(60), Replayer(problem))
    assert auto.shape(OpenQuestion(problem, context)) == row
