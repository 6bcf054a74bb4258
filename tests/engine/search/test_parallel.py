"""Several processes give the answer of one, and lose nothing when one of them dies."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.processes import WorkerProcess
from bnncert.engine.relaxations.reduced.problem import reduce_objective
from bnncert.engine.search import parallel
from bnncert.engine.search.tree import Tree, TreeOptions
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness


@pytest.fixture
def question() -> tuple[bnncert.Network, bnncert.Region, int]:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(9), 0.5 / 127.5, -1.0, 1.0)
    return network, region, int(data.labels[9])


def test_two_processes_prove_what_one_does(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.0)
    # A tree of some hundred nodes: the first process must not be done before the other one starts.
    network, small, label = question
    region = bnncert.Ball("linf", small.center, 0.7 / 127.5, -1.0, 1.0)
    hands = []
    play = parallel.work_on_nodes
    monkeypatch.setattr(parallel, "work_on_nodes", lambda *a: hands.append(play(*a)) or hands[-1])
    how = {"method": "bab", "timeout": 120, "options": Options(processes=2)}
    result = bnncert.verify(network, region, label, rivals="runner-up", **how)
    assert result.status == "robust"
    assert result.lower > 0
    assert hands, "the tree was finished before another process was asked"


def test_a_worker_that_dies_loses_no_node(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.3)
    # The worker ends as soon as it starts: every node it held must come back.
    monkeypatch.setattr(parallel, "_prepare", _die)
    result = bnncert.verify(
        *question, rivals="runner-up", method="bab", timeout=120, options=Options(processes=2)
    )
    assert result.status == "robust"
    alone = bnncert.verify(*question, rivals="runner-up", method="bab", timeout=120)
    assert result.targets[0].details["nodes"] >= alone.targets[0].details["nodes"] - 2
    assert np.isfinite(result.lower) and result.lower <= alone.lower + 100


def test_two_processes_have_the_leaves_and_proofs_of_the_whole_tree(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.3)
    network, region, label = question
    problem = robustness(network, region, label, "runner-up")
    (target,) = problem.targets
    (objective,) = target.objectives
    presolved = presolve(network, region)
    reduced = reduce_objective(presolved, objective, triples=presolved.triples)
    options = TreeOptions(keep_leaves=True)
    task = parallel.TreeTask(presolved, problem, target, objective, reduced, options=options)
    tree = task.tree(lambda point, exact: False)
    outcome = parallel.search_together(tree, task, Deadline(120), 2)
    assert outcome.status == "proved"
    assert sum(0.5 ** np.count_nonzero(leaf.signs) for leaf in outcome.leaves) == 1.0
    assert all(
        leaf.multipliers is not None for leaf in outcome.leaves if leaf.reason == "relaxation"
    )


def test_two_processes_find_the_minimum_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.3)
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(3), 0.2 / 127.5, -1.0, 1.0)
    result = bnncert.bound(
        network,
        region,
        int(data.labels[3]),
        rivals="runner-up",
        method="bab",
        timeout=120,
        options=Options(processes=2),
    )
    (target,) = result.targets
    assert target.lower == target.upper == pytest.approx(149.81227481272072)


def _die(task: parallel.TreeTask) -> Tree:
    raise SystemExit(3)


def _busy(task: object) -> Any:
    """Stand for a worker in the middle of a long round."""
    while True:
        time.sleep(0.01)


def test_a_busy_worker_ends_with_the_process_it_works_for() -> None:
    worker = WorkerProcess.start(parallel._serve, _busy, None)
    worker.join(0.5)
    assert worker.process.is_alive()
    # The connection is also closed when the first process is killed.
    worker.lifeline.close()
    worker.join(20)
    assert worker.process.exitcode == 1
    worker.connection.close()


def test_processes_that_cannot_be_started_are_not_needed(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def refuse(*arguments: object) -> None:
        refused.append(arguments)
        raise OSError("no more processes")

    monkeypatch.setattr(WorkerProcess, "start", refuse)
    monkeypatch.setattr(parallel, "ALONE", 0.0)
    result = bnncert.verify(
        *question, rivals="runner-up", method="bab", timeout=120, options=Options(processes=2)
    )
    assert result.status == "robust"
    assert refused
