"""Worker processes end with the block that started them; the number of usable cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

import pytest

from bnncert.engine.processes import WorkerProcess, WorkerTeam, interrupts_later


def _echo(connection: Connection) -> None:
    while True:
        connection.send(connection.recv())


def test_all_workers_end_with_the_block() -> None:
    with WorkerTeam() as team:
        first, second = team.start(_echo), team.start(_echo)
        assert first is not None and second is not None
        first.connection.send("text")
        assert first.connection.recv() == "text"
        team.end(first)
        assert team.members == [second]
        assert not first.process.is_alive()
    second.process.join(5)
    assert not second.process.is_alive()
    assert team.members == []


def test_a_block_that_raises_ends_its_workers() -> None:
    workers: list[WorkerProcess | None] = []

    def stop() -> None:
        with WorkerTeam() as team:
            workers.append(team.start(_echo))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    (worker,) = workers
    assert worker is not None
    worker.process.join(5)
    assert not worker.process.is_alive()


def test_a_refused_process_is_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(WorkerProcess, "start", refuse)
    with WorkerTeam() as team:
        assert team.start(_echo) is None
        assert team.members == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_a_process_that_may_use_one_core_counts_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from bnncert.engine.processes import usable_cores; print(usable_cores())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1"]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
def test_an_interrupt_that_another_thread_takes_is_held_back(
    request: pytest.FixtureRequest,
) -> None:
    # A shell starts the commands of its background with Ctrl-C ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, inherited))
    over, reached = threading.Event(), []
    other = threading.Thread(target=over.wait)

    def interrupted() -> None:
        with interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            reached.append("the end of the block")
        time.sleep(0.2)

    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        over.set()
        other.join()
    assert reached == ["the end of the block"]
