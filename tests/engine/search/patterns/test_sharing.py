"""Subtrees searched elsewhere: the answers of one process, whatever is lost on the way."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import propagation
from bnncert.engine.processes import WorkerProcess
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns import enumeration, pattern_search, sharing
from bnncert.engine.search.patterns.open_nodes import LEAF, NodeBatch
from bnncert.engine.search.patterns.pattern_question import PatternQuestion, Realiser
from bnncert.engine.search.patterns.sharing import (
    ProcessPool,
    Searched,
    SharedSearch,
    Subtrees,
    SubtreeSolver,
)
from bnncert.kernel import check
from tests.engine.search.patterns.test_search import circuit_of, deep_network, grid_minimum


class InlinePool:
    """Two solvers in this process, as if they were others; one result in three is lost."""

    seconds = 1e-3
    trouble = ""
    lost = answered = 0

    def __init__(self, question: PatternQuestion, processes: int) -> None:
        question = pickle.loads(pickle.dumps(question))
        self._solvers = [SubtreeSolver(question), SubtreeSolver(question)]
        self._waiting: dict[int, Subtrees] = {}
        self._tickets = 0

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def vacancies(self) -> int:
        return 2 - len(self._waiting)

    def submit(self, work: Subtrees) -> int:
        self._tickets += 1
        self._waiting[self._tickets] = pickle.loads(pickle.dumps(work))
        return self._tickets

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        if not self._waiting:
            return []
        # The last one first: results arrive in any order.
        ticket, work = self._waiting.popitem()
        if type(self).lost < type(self).answered // 2:
            type(self).lost += 1
            return [(ticket, None)]
        type(self).answered += 1
        answer = self._solvers[ticket % 2].solve(work)
        return [(ticket, pickle.loads(pickle.dumps(answer)))]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> type[InlinePool]:
    """Small batches, which are shared from the start."""
    monkeypatch.setattr(propagation, "ALONE", 1e-9)
    monkeypatch.setattr(propagation, "DESCENTS", 0)
    monkeypatch.setattr(propagation, "ProcessPool", InlinePool)
    monkeypatch.setattr(sharing, "SLICE", 2e-4)
    small_batches(monkeypatch)
    InlinePool.lost = InlinePool.answered = 0
    return InlinePool


def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_search, "BATCH", 1)
    monkeypatch.setattr(pattern_search, "ENUMERATED_SIGNS", 0)
    monkeypatch.setattr(pattern_search, "MOST_PLAIN", 1)
    monkeypatch.setattr(enumeration, "MOST_COMPILED", 1)
    for name in ("FEW_SIGNS", "MOST_SETS", "MOST_OPEN"):
        monkeypatch.setattr(pattern_search, name, 0)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_answers_are_those_of_every_grid_point(norm: str, shared: type[InlinePool]) -> None:
    rng = np.random.default_rng(8)
    statuses: Counter[str] = Counter()
    for _ in range(8):
        net = deep_network(rng, 4, (4, 5, 4), diagonal=True)
        center = rng.integers(-2, 3, 4) + 0.25
        label = int(net.classify(center)[0])
        ball = bnncert.Ball(norm, center, float(rng.choice([1.2, 2.6])))  # type: ignore[arg-type]
        least = grid_minimum(net, ball, label)
        two = Options(processes=2, memory=float(rng.choice([1e-9, 4.0])))
        result = bnncert.verify(net, ball, label, method="propagation", options=two)
        assert result.status == ("robust" if least > 0 else "not_robust")
        statuses[result.status] += 1
        result = bnncert.bound(net, ball, label, method="propagation", options=two)
        assert result.lower == result.upper == least
    assert min(statuses["robust"], statuses["not_robust"]) > 0
    assert min(shared.lost, shared.answered) > 0


def test_general_first_layers_are_decided_as_in_one_process(shared: type[InlinePool]) -> None:
    rng = np.random.default_rng(9)
    statuses: Counter[str] = Counter()
    for _ in range(10):
        net = deep_network(rng, 4, (7, 5, 4), diagonal=False)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 4), 0.7)
        label = int(net.classify(ball.center)[0])
        answers = [
            bnncert.verify(net, ball, label, method="propagation", options=Options(processes=n))
            for n in (1, 2)
        ]
        assert answers[0].status == answers[1].status
        statuses[answers[0].status] += 1
    assert min(statuses["robust"], statuses["not_robust"]) > 0
    assert shared.answered > 0


def test_certificates_of_shared_searches_are_accepted(
    shared: type[InlinePool], tmp_path: Path
) -> None:
    rng = np.random.default_rng(10)
    accepted = 0
    for number in range(12):
        diagonal = number % 2 == 0
        net = deep_network(rng, 4, (4 if diagonal else 6, 5, 4), diagonal=diagonal)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 4), 0.6)
        before = shared.answered
        result = bnncert.verify(
            net,
            ball,
            int(net.classify(ball.center)[0]),
            method="propagation",
            options=Options(processes=2),
            certificate=tmp_path / f"{number}.cert",
        )
        if result.status == "robust" and shared.answered > before:
            assert result.certificate is not None, result.notes
            assert check(tmp_path / f"{number}.cert", net).targets == 2
            accepted += 1
    assert accepted > 1


def leaves_of(tree: np.ndarray, inputs: int) -> np.ndarray:
    """Return the nodes of the leaves of a tree in preorder."""
    found: list[np.ndarray] = []

    def walk(place: int, node: np.ndarray) -> int:
        variable = int(tree[place])
        if variable == LEAF:
            found.append(node)
            return place + 1
        assert node[variable] == 0
        place += 1
        for sign in (1, -1):
            child = node.copy()
            child[variable] = sign
            place = walk(place, child)
        return place

    assert walk(0, np.zeros(inputs, dtype=np.int8)) == tree.size
    return np.array(found)


def question_of(
    net: bnncert.Network, ball: bnncert.Ball, *, minimum: bool = False, recording: bool = False
) -> PatternQuestion:
    label = int(net.classify(ball.center)[0])
    circuit, problem, table = circuit_of(net, ball, label)
    return PatternQuestion(
        problem,
        net.layers[0],
        circuit,
        table,
        None,
        minimum=minimum,
        recording=recording,
    )


def test_the_recorded_tree_has_all_leaves_of_all_processes(shared: type[InlinePool]) -> None:
    rng = np.random.default_rng(14)
    compared = 0
    for _ in range(12):
        net = deep_network(rng, 7, (7, 6, 4), diagonal=True)
        ball = bnncert.Ball("linf", rng.integers(-2, 3, 7) + 0.25, 1.2)
        # For the minimum every question has a whole tree.
        question = question_of(net, ball, minimum=True, recording=True)
        realiser = Realiser(question, Replayer(question.problem))
        search, before = question.search(realiser), shared.answered
        found = SharedSearch(search, realiser, InlinePool(question, 2)).run(Deadline(None))
        if shared.answered == before:
            continue
        assert search.conclude(found).status == "proved"
        assert search.record is not None
        leaves = leaves_of(search.record.preorder(), question.circuit.inputs)
        assert 2 * len(leaves) - 1 == search.record.size
        checker = Realiser(question, Replayer(question.problem))
        checker.begin(Deadline(None), realiser.upper, realiser.goal)
        again = question.search(checker)
        targets = np.ones((len(leaves), question.circuit.objectives.targets), dtype=bool)
        again.restart(NodeBatch(leaves, targets, np.arange(len(leaves))))
        assert again.run(Deadline(None)).status == "proved"
        assert again.record is not None and again.record.size == len(leaves)
        compared += 1
    assert compared > 2


def test_a_rejected_point_leaves_the_search_to_this_process(
    shared: type[InlinePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    rejected = 0
    for _ in range(8):
        net = deep_network(rng, 4, (4, 5, 4), diagonal=True)
        ball = bnncert.Ball("linf", rng.integers(-2, 3, 4) + 0.25, 1.6)
        question = question_of(net, ball)
        replayer = Replayer(question.problem, accept=lambda point, scores: False)
        realiser = Realiser(question, replayer)
        search = question.search(realiser)
        found = SharedSearch(search, realiser, InlinePool(question, 2)).run(Deadline(None))
        assert not found
        status = search.conclude(found).status
        alone = question.search(Realiser(question, replayer))
        assert status == alone.run(Deadline(None)).status
        rejected += status == "open"
    assert rejected > 1


def test_a_killed_process_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch)
    monkeypatch.setattr(sharing, "SLICE", 1e-3)
    killed: list[int] = []
    submit = ProcessPool.submit

    def kill_first(pool: ProcessPool, work: Subtrees) -> int:
        ticket = submit(pool, work)
        if not killed:
            (searcher,) = pool._searchers
            killed.append(int(searcher.worker.process.pid or 0))
            os.kill(killed[0], signal.SIGKILL)
        return ticket

    monkeypatch.setattr(ProcessPool, "submit", kill_first)
    rng = np.random.default_rng(12)
    net = deep_network(rng, 9, (9, 8, 6), diagonal=True)
    ball = bnncert.Ball("linf", np.zeros(9), 3.5)
    question = question_of(net, ball, minimum=True)
    realiser = Realiser(question, Replayer(question.problem))
    search = question.search(realiser)
    with ProcessPool(question, 1) as pool:
        until = time.monotonic() + 60
        # The search waits until the process is there.
        while not pool.vacancies() and time.monotonic() < until:
            pool.collect(0.1)
        assert not SharedSearch(search, realiser, pool).run(Deadline(120))
    assert killed
    assert search.conclude(False).status == "proved"
    alone = question.search(Realiser(question, Replayer(question.problem)))
    assert alone.run(Deadline(None)).status == "proved"
    assert search.outcome.lower.tolist() == alone.outcome.lower.tolist()


def test_processes_that_cannot_be_started_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(WorkerProcess, "start", refuse)
    monkeypatch.setattr(propagation, "ALONE", 1e-9)
    rng = np.random.default_rng(13)
    net = deep_network(rng, 5, (5, 5, 4), diagonal=True)
    ball = bnncert.Ball("linf", rng.integers(-2, 3, 5) + 0.25, 1.6)
    label = int(net.classify(ball.center)[0])
    result = bnncert.bound(net, ball, label, method="propagation", options=Options(processes=3))
    assert result.lower == result.upper == grid_minimum(net, ball, label)


def hard_network(signs: int) -> bnncert.Network:
    """Return a network that is robust on a large box, as only all patterns together show."""
    rng = np.random.default_rng(0)
    sizes = (signs, 64, 64, 64)
    weights = [np.eye(signs), *(rng.choice([-1, 1], (64, below)) for below in sizes[:3])]
    biases = [np.zeros(signs), *(np.full(64, 0.5) for _ in range(3)), np.array([56.0, 0.0])]
    return bnncert.Network.from_arrays([*weights, rng.choice([-1, 1], (2, 64))], biases)


@pytest.mark.parametrize("method", ["propagation", "auto"])
def test_the_time_limit_holds_with_other_processes(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(propagation, "ALONE", 0.1)
    monkeypatch.setattr(propagation, "WORTH_STARTING", 0.5)
    started = time.monotonic()
    result = bnncert.verify(
        hard_network(40),
        bnncert.Ball("linf", np.full(40, 0.25), 1.0),
        0,
        method=method,
        timeout=1.0,
        options=Options(processes=2),
    )
    assert time.monotonic() - started < 3.0
    assert result.status == "timeout"
