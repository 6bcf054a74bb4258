"""Workers of a Dask cluster that search subtrees of one question.

Every subtree is a task that depends only on the question, which is also a task.  If a worker exits,
the scheduler gives both to another one.  A running task cannot be stopped, so it ends by itself
after some seconds.
"""

from __future__ import annotations

import pickle
import time
import uuid
import zlib
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from bnncert.engine.processes import at_most_threads
from bnncert.engine.scheduler import Cluster
from bnncert.engine.search.patterns.pattern_question import PatternQuestion
from bnncert.engine.search.patterns.sharing import Searched, Subtrees, SubtreeSolver

#: Seconds after which a task returns the open nodes of its subtrees.
SECONDS = 2.0

#: Seconds between two queries of the number of workers.
LOOK = 1.0

#: Failed tasks after which the cluster is not used any more.
MOST_FAILED = 8

#: Level of compression: signs are small numbers, for which the fastest level is enough.
LEVEL = 1


class DaskPool:
    """Tasks on the workers of a cluster; those that have not begun are cancelled at the end."""

    seconds = SECONDS

    def __init__(self, question: PatternQuestion, cluster: Cluster) -> None:
        self._cluster, self._asked = cluster, question
        self._run = uuid.uuid4().hex[:8]
        self._question: Any = None
        self._running: dict[int, Any] = {}
        self._done: SimpleQueue[int] = SimpleQueue()
        self._tickets = self._threads = 0
        self._looked = -LOOK
        # The number of failed tasks, and why the last of them failed.
        self._failures, self._reason = 0, ""

    def __enter__(self) -> DaskPool:
        key = f"bnncert-question-{self._run}"
        self._question = self._cluster.client.submit(_unpack, _pack(self._asked), key=key)
        return self

    def __exit__(self, *_: object) -> None:
        # Best effort: the connection may be lost.
        with suppress(Exception):
            self._cluster.client.cancel([*self._running.values(), self._question])
        self._running.clear()

    @property
    def trouble(self) -> str:
        """How many tasks have failed, and why the last of them failed."""
        if not self._failures:
            return ""
        return f"{self._failures} tasks failed on {self._cluster.address} ({self._reason})"

    def vacancies(self) -> int:
        """Return the number of threads of the cluster that have nothing to do."""
        if self._failures >= MOST_FAILED or self._cluster.client.status != "running":
            return 0
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            try:
                self._threads = self._cluster.threads()
            except Exception as error:  # Dask has many errors for a lost connection.
                self._fail(error)
                self._threads = 0
        return max(0, self._threads - len(self._running))

    def submit(self, work: Subtrees) -> int:
        """Submit subtrees as a task."""
        self._tickets += 1
        ticket = self._tickets
        future = self._cluster.client.submit(
            _search,
            self._question,
            _pack(work),
            key=f"bnncert-subtrees-{self._run}-{ticket}",
            pure=False,
        )
        self._running[ticket] = future
        future.add_done_callback(lambda _: self._done.put(ticket))
        return ticket

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        """Wait for tasks; one that failed returns None."""
        if self._running and self._cluster.client.status != "running":
            self._fail(ConnectionError("the connection was lost"))
            lost = list(self._running)
            self._running.clear()
            return [(ticket, None) for ticket in lost]
        finished: list[tuple[int, Searched | None]] = []
        wait = seconds
        while True:
            try:
                ticket = self._done.get(timeout=wait) if wait > 0 else self._done.get_nowait()
            except Empty:
                return finished
            wait = 0.0
            future = self._running.pop(ticket, None)
            if future is not None:
                finished.append((ticket, self._result(future)))

    def _result(self, future: Any) -> Searched | None:
        """Return the result of a finished task, or None if it failed."""
        try:
            answer = pickle.loads(zlib.decompress(future.result(timeout=SECONDS)))
        except Exception as error:  # A killed worker, a lost connection, an error of the task.
            self._fail(error)
            return None
        finally:
            future.release()
        assert answer is None or isinstance(answer, Searched)
        return answer

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._reason = f"{type(error).__name__}: {' '.join(str(error).split())}"


def _pack(content: object) -> bytes:
    return zlib.compress(pickle.dumps(content), LEVEL)


def _unpack(packed: bytes) -> PatternQuestion:
    question = pickle.loads(zlib.decompress(packed))
    assert isinstance(question, PatternQuestion)
    return question


def _search(question: PatternQuestion, packed: bytes) -> bytes:
    # One thread: the cluster decides how many tasks a worker runs at once.
    with at_most_threads(1):
        return _pack(SubtreeSolver(question).solve(pickle.loads(zlib.decompress(packed))))
