"""Method `auto`: complete on tiny networks of every kind, and what it shares between rivals."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import auto, auto_run
from bnncert.engine.methods.attack import Attack
from bnncert.engine.methods.auto import plan_kind
from bnncert.engine.methods.auto_run import AutoRun, Engine
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.milp import MilpMethod
from bnncert.engine.methods.propagation import PatternEngine
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import Presolved, presolve
from bnncert.engine.replay import Replayer
from bnncert.engine.search.elimination.elimination_plan import make_plan
from bnncert.engine.search.learned_clauses import LearnedClauses
from bnncert.engine.search.tree import Tree
from bnncert.problem import robustness
from tests.clock import Clock
from tests.strategies import NORMS, questions

MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

#: Little of everything: what an attack finds at once would never reach the exact stages.
WEAK = Options(restarts=2, iterations=1, samples=5)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@MANY
def test_auto_agrees_with_brute_force(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    result = question.verify(options=WEAK)
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


@given(data=st.data())
@MANY
def test_auto_agrees_with_brute_force_on_the_disc(data: st.DataObject) -> None:
    question = data.draw(questions("l2", exact_ties=False))
    result = question.verify(options=WEAK)
    # A pattern that the disc only touches may stay open.
    assert result.status in (question.expected(), "unknown")
    question.check_bounds(result)
    question.check_counterexample(result)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@settings(MANY, max_examples=30)
def test_complete_methods_in_short_slices_agree_with_brute_force(
    kind: str, data: st.DataObject
) -> None:
    question = data.draw(questions(kind))
    # No stage but the complete methods, and slices that end in the middle of everything.
    with mock.patch.multiple(auto, STAGES=()), mock.patch.multiple(auto_run, FIRST_SLICE=1e-4):
        result = question.verify(options=WEAK)
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


def test_no_complete_method_starves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    used = dict.fromkeys("abc", 0.0)

    def engine(name: str, suits: bool) -> Engine:
        def work(run: AutoRun, presolved: Presolved, end: Deadline) -> bool:
            used[name] += end.remaining()
            clock.advance(end.remaining())
            return True

        return Engine(MilpMethod, work, lambda presolved: suits)

    def attack(search: Attack, deadline: Deadline, rounds: int | None = None) -> None:
        clock.advance(deadline.remaining())

    monkeypatch.setattr(Attack, "run", attack)
    network = bnncert.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    problem = robustness(
        network, bnncert.Ball("linf", np.array([0.5, -0.5]), 1.0), 0, "all", "violation"
    )
    context = Context(Options(), Deadline(60.0), Replayer(problem))
    run = AutoRun(problem, context)
    results = run.run((), [engine("a", False), engine("b", True), engine("c", False)])
    assert {r.status for r in results} == {"timeout"}
    assert clock.now - context.deadline.start == pytest.approx(60.0, abs=1e-3)
    assert sum(used.values()) == pytest.approx(40.0, abs=1e-3)
    assert min(used.values()) > 0.1 * 40
    assert used["b"] > 0.5 * 40


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


# -- the stages of `auto` that eliminate variables: which one a plan belongs to -------------------


CHAIN = [(v, v + 1) for v in range(20)]


def test_a_chain_is_local() -> None:
    assert plan_kind(make_plan(CHAIN, [], range(21))) == "local"


def test_a_table_of_all_variables_is_dense() -> None:
    assert plan_kind(make_plan([tuple(range(12)), *CHAIN[:11]], [], range(12))) == "dense"


def test_a_split_bucket_is_neither() -> None:
    plan = make_plan([(0, v) for v in range(1, 9)], [], range(9), 2)
    assert plan.split and plan_kind(plan) == "split"
