"""Subtrees on a Dask cluster: one of two workers is killed, tasks fail, the connection ends."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.engine.cluster import Cluster, connected
from bnncert.engine.methods import propagation
from bnncert.engine.search.patterns import sharing
from bnncert.engine.search.patterns.sharing import DaskPool, Subtrees
from bnncert.kernel import check
from tests.engine.search.patterns.test_search import deep_network, grid_minimum
from tests.engine.search.patterns.test_sharing import hard_network, small_batches
from tests.results.test_cluster import address_in, dask, needs_dask


class FakeClient:
    """Runs tasks at once in this process; every other one fails."""

    status = "running"

    def __init__(self, *, failing: bool = False) -> None:
        self.failing, self.tasks = failing, 0
        self.cancelled: list[Any] = []

    def nthreads(self) -> dict[str, int]:
        return {"worker": 2}

    def submit(self, task: Any, *arguments: Any, key: str, pure: bool = True) -> Any:
        future: Any = Future()
        future.release = lambda: None
        if task is sharing._unpack:
            future.set_result(task(*arguments))
            return future
        self.tasks += 1
        if self.failing or self.tasks % 2:
            future.set_exception(RuntimeError("the worker has\nanother version"))
        else:
            question, packed = arguments
            future.set_result(task(question.result(), packed))
        return future

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled += futures


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "ALONE", 1e-9)
    monkeypatch.setattr(propagation, "DESCENTS", 0)


@pytest.mark.parametrize("failing", [False, True], ids=["some", "all"])
def test_tasks_that_fail_lose_nothing(failing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch)
    monkeypatch.setattr(sharing, "SLICE", 2e-4)
    monkeypatch.setattr(DaskPool, "seconds", 1e-3)
    rng = np.random.default_rng(15)
    tasks, notes = 0, []
    for _ in range(6):
        net = deep_network(rng, 4, (4, 5, 4), diagonal=True)
        ball = bnncert.Ball("linf", rng.integers(-2, 3, 4) + 0.25, 2.6)
        label = int(net.classify(ball.center)[0])
        client = FakeClient(failing=failing)
        options = Options(cluster=Cluster("tcp://here:1", client))
        result = bnncert.bound(net, ball, label, method="propagation", options=options)
        assert result.lower == result.upper == grid_minimum(net, ball, label)
        tasks += client.tasks
        assert client.tasks <= sharing.MOST_FAILED + 1 or not failing
        assert client.cancelled
        notes += [t.note for t in result.targets]
    assert tasks > 3
    reason = "tasks failed on tcp://here:1 (RuntimeError: the worker has another version)"
    assert any(reason in note for note in notes)


def test_a_connection_that_ends_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch)
    monkeypatch.setattr(sharing, "SLICE", 2e-4)
    rng = np.random.default_rng(16)
    net = deep_network(rng, 6, (6, 5, 4), diagonal=True)
    ball = bnncert.Ball("linf", rng.integers(-2, 3, 6) + 0.25, 2.6)
    label = int(net.classify(ball.center)[0])
    client = FakeClient()
    submit = DaskPool.submit

    def lose(pool: DaskPool, work: Subtrees) -> int:
        ticket = submit(pool, work)
        client.status = "closed"
        return ticket

    monkeypatch.setattr(DaskPool, "submit", lose)
    options = Options(cluster=Cluster("tcp://here:1", client))
    result = bnncert.bound(net, ball, label, method="propagation", options=options)
    assert result.lower == result.upper == grid_minimum(net, ball, label)
    assert client.tasks > 0
    assert "ConnectionError" in result.targets[0].note


@needs_dask
def test_two_workers_one_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, ball = hard_network(9), bnncert.Ball("linf", np.full(9, 0.25), 1.0)
    alone = bnncert.verify(net, ball, 0, method="propagation")
    monkeypatch.setattr(DaskPool, "seconds", 0.2)
    monkeypatch.setattr(sharing, "SLICE", 0.01)
    small_batches(monkeypatch)
    submit, tickets = DaskPool.submit, []
    worker = ["worker", "--scheduler-file", "s.json", "--nthreads", "1", "--no-nanny"]
    with (
        dask(tmp_path, "scheduler", "--scheduler-file", "s.json", "--port", "0") as process,
        dask(tmp_path, *worker, "--name", "first") as first,
        dask(tmp_path, *worker, "--name", "second"),
    ):

        def kill(pool: DaskPool, work: Subtrees) -> int:
            tickets.append(submit(pool, work))
            if len(tickets) == 2:
                first.kill()
            return tickets[-1]

        monkeypatch.setattr(DaskPool, "submit", kill)
        with connected(address_in(tmp_path / "s.json", process)) as cluster:
            cluster.client.wait_for_workers(2, timeout=90)
            result = bnncert.verify(
                net,
                ball,
                0,
                method="propagation",
                options=Options(cluster=cluster),
                certificate=tmp_path / "c.cert",
            )
        assert first.wait() != 0
    assert len(tickets) >= 2
    assert result.status == alone.status == "robust"
    assert result.lower == alone.lower
    assert check(tmp_path / "c.cert", net).targets == 1
