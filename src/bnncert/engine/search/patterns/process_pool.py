"""Processes of this machine that search subtrees of one question.

A process that exits unexpectedly, for example because it is killed, is replaced by a new one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from bnncert.engine.processes import WorkerProcess, WorkerTeam, usable_cores
from bnncert.engine.search.patterns.pattern_question import PatternQuestion
from bnncert.engine.search.patterns.subtrees import Searched, Subtrees, SubtreeSolver
from bnncert.engine.solvers.threads import at_most_threads

#: Seconds after which a process returns the open nodes of its subtrees.
SECONDS = 0.5

#: The largest number of processes that are replaced.
MOST_REPLACED = 8


@dataclass(eq=False)
class _Searcher:
    """A process, the ticket of its subtrees, and how many clauses it has."""

    worker: WorkerProcess
    ready: bool = False
    ticket: int | None = None
    known: int = 0


class ProcessPool:
    """Processes that search subtrees; all of them have exited when the block is left."""

    seconds = SECONDS

    def __init__(self, question: PatternQuestion, processes: int) -> None:
        self._question, self._count = question, processes
        self._team = WorkerTeam()
        self._searchers: list[_Searcher] = []
        self._tickets = self._ended = 0
        # The cores of this machine are shared with the first process.
        self._threads = max(1, usable_cores() // (processes + 1))

    def __enter__(self) -> ProcessPool:
        try:
            for _ in range(self._count):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._team.__exit__()
        self._searchers = []

    def _start(self) -> None:
        """Start one process; if it fails, the search continues with fewer, or with none."""
        worker = self._team.start(_serve, self._question, self._threads)
        if worker is not None:
            self._searchers.append(_Searcher(worker))

    @property
    def trouble(self) -> str:
        """How many processes have exited unexpectedly."""
        return f"{self._ended} worker processes ended unexpectedly" if self._ended else ""

    def vacancies(self) -> int:
        """Return the number of processes that have nothing to do."""
        return sum(s.ready and s.ticket is None for s in self._searchers)

    def submit(self, work: Subtrees) -> int:
        """Send subtrees to a process that has nothing to do."""
        searcher = next(s for s in self._searchers if s.ready and s.ticket is None)
        self._tickets += 1
        searcher.ticket = self._tickets
        fresh = work.clauses[searcher.known :]
        searcher.known = len(work.clauses)
        # An error means that the process has exited, which `collect` handles.
        with suppress(OSError):
            searcher.worker.connection.send(replace(work, clauses=fresh))
        return self._tickets

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        """Wait for messages; a process that has ended returns None for its subtrees."""
        places = {s.worker.connection: s for s in self._searchers}
        finished: list[tuple[int, Searched | None]] = []
        for connection in wait(list(places), timeout=seconds):
            assert isinstance(connection, Connection)
            searcher = places[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                self._replace(searcher)
                message = None
            if searcher.ticket is not None:
                finished.append((searcher.ticket, message))
            searcher.ready, searcher.ticket = True, None
        return finished

    def _replace(self, searcher: _Searcher) -> None:
        """Replace a process that has exited by a new one."""
        self._team.end(searcher.worker)
        self._searchers.remove(searcher)
        self._ended += 1
        if self._ended <= MOST_REPLACED:
            self._start()


def _serve(connection: Connection, question: PatternQuestion, threads: int) -> None:
    """Search the subtrees that arrive until the connection is closed."""
    try:
        with at_most_threads(threads):
            solver = SubtreeSolver(question)
            connection.send(None)
            while True:
                connection.send(solver.solve(connection.recv()))
    except (EOFError, OSError, MemoryError):
        # The first process has exited, or this one cannot continue and closes the connection.
        return
