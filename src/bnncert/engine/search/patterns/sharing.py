"""One search over sign patterns, in this process and in others.

This process searches in short time slices.  Between them it gives its oldest nodes, which have the
largest subtrees, to idle processes, and takes back the nodes that others leave open, which are then
distributed again.  Clauses and points are sent with the nodes.  The nodes of a process that has
exited are open again.

A process receives nodes, searches below them for some seconds, and returns the bounds of the nodes
that it closed, and the open nodes.  It has the question and needs nothing else: the nodes of a
process that exits are given to another one.

On this machine a process that exits unexpectedly, for example because it is killed, is replaced by
a new one.  On a Dask cluster every subtree is a task that depends only on the question, which is
also a task; if a worker exits, the scheduler gives both to another one.  A running task cannot be
stopped, so it ends by itself after some seconds.
"""

from __future__ import annotations

import pickle
import time
import uuid
import zlib
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.cluster import Cluster
from bnncert.engine.processes import WorkerProcess, WorkerTeam, at_most_threads, usable_cores
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns.open_nodes import NodeBatch, TreeRecord
from bnncert.engine.search.patterns.pattern_question import PatternQuestion, Point, Realiser
from bnncert.engine.search.patterns.pattern_search import PatternSearch
from bnncert.engine.search.trace import LearnedClause


class Subtrees(NamedTuple):
    """Nodes to search below."""

    nodes: NodeBatch
    #: All known clauses.
    clauses: tuple[IntArray, ...]
    #: The least values found so far, and the goals, see :class:`Realiser`.
    upper: FloatArray
    goal: FloatArray
    #: The time for the search.
    seconds: float
    #: Seconds until the time limit of the question; the check of one pattern may take as long.
    limit: float


@dataclass(frozen=True, eq=False)
class Searched:
    """The result of a search of subtrees."""

    #: The nodes that are still open; their numbers are those of `record`, in which the nodes that
    #: were given come first.
    rest: NodeBatch
    record: TreeRecord | None
    #: As in the outcome of a search.
    lower: FloatArray
    nodes: int
    patterns: int
    #: Whether the feasibility check of some pattern had no answer.
    undecided: bool
    #: Learned clauses: literals, and multipliers if a certificate is wanted.
    clauses: tuple[IntArray, ...] = ()
    proofs: tuple[LearnedClause, ...] = ()
    #: For the minimum: points of the targets with lower values than those known before.
    lowest: tuple[tuple[int, Point], ...] = ()
    #: The number of a target and a point that reaches it; the search ended there.
    violation: tuple[int, Point] | None = None


class SubtreeSolver:
    """Searches subtrees of one question, one after the other; clauses are kept."""

    def __init__(self, question: PatternQuestion) -> None:
        self._question = question
        replayer = Replayer(question.problem, only_float32=question.only_float32)
        self._realiser = Realiser(question, replayer)
        self._search: PatternSearch = question.search(self._realiser)

    def solve(self, work: Subtrees) -> Searched | None:
        """Search for some seconds; None if the deadline passed during a feasibility check."""
        search, realiser = self._search, self._realiser
        for literals in work.clauses:
            search.learn(literals)
        search.limit = Deadline(max(work.limit, 1e-3))
        realiser.begin(search.limit, work.upper, work.goal)
        numbers = np.arange(len(work.nodes) if self._question.recording else 0)
        search.restart(NodeBatch(work.nodes.nodes, work.nodes.targets, numbers))
        search.advance(Deadline(max(work.seconds, 1e-3)))
        if search.is_late:
            return None
        violation = None
        if realiser.found is not None and realiser.point is not None:
            names = [target.name for target in self._question.problem.targets]
            violation = (names.index(realiser.found.target), realiser.point)
        outcome = search.outcome
        return Searched(
            rest=search.open.pop_all() if search.open else work.nodes.take(slice(0)),
            record=search.record,
            lower=outcome.lower,
            nodes=outcome.nodes,
            patterns=outcome.patterns,
            undecided=search.undecided,
            clauses=tuple(outcome.conflicts),
            proofs=tuple(realiser.clauses),
            lowest=tuple((k, p) for k, p in enumerate(realiser.lowest) if p is not None),
            violation=violation,
        )


class SubtreePool(Protocol):
    """Processes, on this machine or on others, that search subtrees of one question."""

    @property
    def seconds(self) -> float:
        """Seconds after which a process should return the open nodes of its subtrees."""

    @property
    def trouble(self) -> str:
        """A short message about failures so far; empty if there were none."""

    def vacancies(self) -> int:
        """Return how many more subtrees can be searched now."""

    def submit(self, work: Subtrees) -> int:
        """Begin to search subtrees; return a ticket."""

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        """Wait at most `seconds` for finished subtrees.

        Returns tickets and results; a result is None if the process has ended without one.
        """


#: Seconds that this process searches before it checks the others.
SLICE = 0.1

#: The largest number of nodes that are given to one process.
MOST_GIVEN = 1024

#: Seconds after the time limit within which others may return their results.
GRACE = 0.3


class SharedSearch:
    """A search whose subtrees go to a pool."""

    def __init__(self, search: PatternSearch, realiser: Realiser, pool: SubtreePool) -> None:
        self.search, self.realiser, self.pool = search, realiser, pool
        self._given: dict[int, NodeBatch] = {}
        self._alone = False

    def run(self, deadline: Deadline) -> bool:
        """Search until no node is open or the deadline passes; True for a counterexample."""
        try:
            found = self._run(deadline)
            end = Deadline(GRACE)
            while self._given and not end.passed() and not found:
                found = self._collect(end.remaining())
            return found
        finally:
            for nodes in self._given.values():
                self.search.open.take_back(nodes, nodes)
            self._given.clear()

    def _run(self, deadline: Deadline) -> bool:
        search = self.search
        while not deadline.passed():
            self._give(deadline)
            if search.open or search.is_late:
                if search.advance(deadline.within(SLICE)) or self._collect(0.0):
                    return True
            elif not self._given:
                return False
            elif self._collect(min(deadline.remaining(), 1.0)):
                return True
        return False

    def _give(self, deadline: Deadline) -> None:
        """Give nodes to every idle process, as long as nodes wait here."""
        vacancies = 0 if self._alone else self.pool.vacancies()
        while vacancies > 0 and len(self.search.open) > 1:
            share = -(-len(self.search.open) // (1 + vacancies))
            nodes = self.search.open.hand_out(min(share, MOST_GIVEN))
            left = deadline.remaining()
            work = Subtrees(
                nodes,
                tuple(self.search.outcome.conflicts),
                self.realiser.upper.copy(),
                self.realiser.goal.copy(),
                min(self.pool.seconds, left),
                left,
            )
            self._given[self.pool.submit(work)] = nodes
            vacancies -= 1

    def _collect(self, seconds: float) -> bool:
        """Take the results of other processes; True if one is a counterexample."""
        for ticket, searched in self.pool.collect(seconds):
            nodes = self._given.pop(ticket)
            if searched is None:
                self.search.open.take_back(nodes, nodes)
            elif self._enter(nodes, searched):
                return True
        return False

    def _enter(self, nodes: NodeBatch, searched: Searched) -> bool:
        """Add the result of a subtree to the search; True if it has a counterexample."""
        search, realiser = self.search, self.realiser
        for literals in searched.clauses:
            search.learn(literals)
        realiser.clauses.extend(searched.proofs)
        for k, point in searched.lowest:
            realiser.offer(k, point)
        outcome = search.outcome
        outcome.nodes += searched.nodes
        outcome.patterns += searched.patterns
        if searched.violation is not None:
            k, point = searched.violation
            wanted = np.arange(len(realiser.question.problem.targets)) == k
            # If the point does not replay here, other processes would find it again.
            self._alone = not realiser.confirm(point, wanted)
            search.open.take_back(nodes, nodes)
            return not self._alone
        np.minimum(outcome.lower, searched.lower, out=outcome.lower)
        search.undecided = search.undecided or searched.undecided
        rest = searched.rest
        if search.record is not None and searched.record is not None:
            numbers = search.record.graft(nodes.numbers, searched.record)
            rest = NodeBatch(rest.nodes, rest.targets, numbers[rest.numbers])
        search.open.take_back(nodes, rest)
        return False


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
            searcher.worker.connection.send(work._replace(clauses=fresh))
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


# -- a cluster ----------------------------------------------------------------------------

#: Seconds after which a task returns the open nodes of its subtrees.
TASK_SECONDS = 2.0

#: Seconds between two queries of the number of workers.
LOOK = 1.0

#: Failed tasks after which the cluster is not used any more.
MOST_FAILED = 8

#: Level of compression: signs are small numbers, for which the fastest level is enough.
LEVEL = 1


class DaskPool:
    """Tasks on the workers of a cluster; those that have not begun are cancelled at the end."""

    seconds = TASK_SECONDS

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
            answer = pickle.loads(zlib.decompress(future.result(timeout=TASK_SECONDS)))
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
