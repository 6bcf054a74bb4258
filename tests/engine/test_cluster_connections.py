"""Connections to a Dask scheduler: addresses, waiting for workers, and what is not there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bnncert.engine import cluster as connections
from bnncert.engine.cluster import Cluster, check_address
from bnncert.errors import InputError
from tests.cli.diamond import DIAMOND
from tests.in_process import Outcome, command_line


class FakeClient:
    """A client whose first worker joins after some calls of `wait_for_workers`."""

    def __init__(self, late: int | None) -> None:
        self.late, self.waited = late, 0

    def nthreads(self) -> dict[str, int]:
        return {"a": 2, "b": 3} if self.late is not None and self.waited > self.late else {}

    def wait_for_workers(self, count: int, timeout: float) -> None:
        self.waited += 1
        if self.late is None or self.waited <= self.late:
            time.sleep(timeout)
            raise TimeoutError


def test_waiting_for_a_worker_is_said_at_once_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SAY_SECONDS", 0.01)
    said: list[str] = []
    cluster = Cluster("tcp://here:1", FakeClient(late=2))
    cluster.wait_for_worker(said.append)
    assert len(said) == 3
    assert said[0] == "waiting for a worker of tcp://here:1, 60 s more at most"
    assert cluster.threads() == 5
    cluster.wait_for_worker(said.append)
    assert len(said) == 3


def test_a_scheduler_without_workers_is_an_error_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "WORKER_SECONDS", 0.02)
    with pytest.raises(InputError, match="tcp://here:1: it has no workers"):
        Cluster("tcp://here:1", FakeClient(late=None)).wait_for_worker(lambda text: None)


def test_host_and_port_of_an_address() -> None:
    assert check_address("tls://[::1]:8786") == ("::1", 8786)
    assert check_address("a.b:9/") == ("a.b", 9)


@pytest.fixture
def question(tmp_path: Path) -> tuple[str, ...]:
    DIAMOND.build().save(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", np.array([1.0, 0.0]))
    return (str(tmp_path / "net.npz"), "--input", str(tmp_path / "x.npy"))


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Outcome]:
    return command_line(monkeypatch, capfd, request.param)


@pytest.mark.parametrize("run", ["verify", "bound", "radius"], indirect=True)
def test_a_scheduler_that_is_not_there_is_one_line(
    run: Callable[..., Outcome], question: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    command = request.node.callspec.params["run"]
    options = ("--max", "1") if command == "radius" else ("--radius", "0.1")
    answer = run(*question, *options, "--method", "propagation", "--scheduler", "127.0.0.1:9")
    assert answer.code == 2
    assert answer.err.startswith("bnncert: --scheduler 127.0.0.1:9: cannot be reached")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("run", ["verify"], indirect=True)
def test_what_cannot_be_used_is_refused(
    run: Callable[..., Outcome], question: tuple[str, ...]
) -> None:
    answer = run(*question, "--radius", "0.1", "--scheduler", "nowhere")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("bnncert: --scheduler is 'nowhere'; expected HOST:PORT")
    answer = run(*question, "--radius", "0.1", "--scheduler", "a:1", "--method", "lp")
    assert answer.code == 2
    assert "method lp does not use --scheduler; it belongs to propagation and auto" in answer.err
