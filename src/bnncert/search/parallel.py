"""One tree on several processes.

The first process searches alone for some seconds, which is enough for most trees.  Then the open
nodes are distributed in rounds: every process works on its part of the nodes for some seconds and
returns the open ones, which are distributed again.  The first process shares its learned clauses.

A worker is a process with two pipes, and exits when they are closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.presolve.pipeline import Presolved
from bnncert.problem import Objective, Problem, Target
from bnncert.processes import become_worker, interrupts_later
from bnncert.relaxations.reduced.problem import ReducedProblem
from bnncert.replay import Replayer
from bnncert.search.tree import ClosedNode, Confirm, Outcome, Tree, TreeOptions

#: Seconds before other processes are started, of the first round, and of the longest one.
ALONE, FIRST_ROUND, LONGEST_ROUND = 3.0, 3.0, 20.0

#: Seconds after the time limit that a worker may take to answer.
GRACE = 0.5

#: Seconds to wait for a process that was told to end.
JOIN = 0.5

SentNode: TypeAlias = tuple[SignArray, float]
Proof: TypeAlias = tuple[IntArray, FloatArray | None]


@dataclass(frozen=True, eq=False)
class TreeTask:
    """Everything that a process needs to build the tree of one objective.

    `minimum` asks for the minimum of f instead of its sign.
    """

    presolved: Presolved
    problem: Problem
    target: Target
    objective: Objective
    reduced: ReducedProblem
    minimum: bool = False
    options: TreeOptions = field(default_factory=TreeOptions)

    def tree(self, confirm: Confirm | None = None) -> Tree:
        """Build the tree; without `confirm`, points are confirmed by a new :class:`Replayer`."""
        replayer = Replayer(self.problem)
        if confirm is None:

            def confirm(point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
                return replayer.confirm(self.target, point, exact) is not None

        evaluate = partial(replayer.lowest, self.target) if self.minimum else None
        return Tree(self.presolved, self.reduced, self.objective, confirm, evaluate, self.options)


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The result of one process's round."""

    nodes: list[SentNode]
    closed: float
    unresolved: float
    visited: int = 0
    relaxations: int = 0
    proofs: list[Proof] = field(default_factory=list)
    point: FloatArray | None = None
    exact: tuple[Fraction, ...] | None = None
    leaves: list[ClosedNode] = field(default_factory=list)
    exhausted: bool = False


def _prepare(task: TreeTask) -> Tree:
    """Build the tree of a worker process, once."""
    return task.tree()


def _serve(
    connection: Connection,
    lifeline: Connection,
    prepare: Callable[[TreeTask], Tree],
    task: TreeTask,
) -> None:
    """Answer messages in a worker process until the pipe is closed."""
    become_worker(lifeline)
    try:
        tree = prepare(task)
        while True:
            nodes, proofs, upper, seconds = connection.recv()
            for literals, theta in proofs:
                tree.learn(literals, theta)
            tree.outcome.upper = upper
            connection.send(work_on_nodes(tree, nodes, seconds))
    except (EOFError, OSError, MemoryError):
        # The first process has exited, or this one cannot continue, which closes the pipe.
        return


def work_on_nodes(tree: Tree, nodes: Sequence[SentNode], seconds: float) -> RoundResult:
    """Work on some nodes for some seconds."""
    tree.take()
    for signs, bound in nodes:
        tree.push(signs, bound)
    tree.closed = tree.unresolved = np.inf
    outcome = tree.outcome
    outcome.exhausted = False
    if tree.evaluate is None:
        outcome.point = outcome.exact = None
    before, solved = outcome.nodes, outcome.relaxations
    known, kept = len(tree.proofs), len(outcome.leaves)
    tree.search(Deadline(seconds))
    return RoundResult(
        tree.take(),
        tree.closed,
        tree.unresolved,
        outcome.nodes - before,
        outcome.relaxations - solved,
        tree.proofs[known:],
        outcome.point,
        outcome.exact,
        outcome.leaves[kept:],
        outcome.exhausted,
    )


class _TreeWorker(NamedTuple):
    """A process, the pipe for messages, and the pipe whose closing ends the process."""

    process: SpawnProcess
    connection: Connection
    lifeline: Connection


class Workers:
    """Processes that work on parts of nodes; all of them have exited when the block is left."""

    def __init__(self, count: int, task: TreeTask) -> None:
        self._task = task
        self._count = count
        self._all: list[_TreeWorker] = []

    def __enter__(self) -> Workers:
        context = get_context("spawn")
        try:
            with interrupts_later():
                for _ in range(self._count):
                    mine, its = context.Pipe()
                    watched, lifeline = context.Pipe(duplex=False)
                    process = context.Process(
                        target=_serve, args=(its, watched, _prepare, self._task), daemon=True
                    )
                    process.start()
                    # Only the worker may hold its ends, so that its exit closes the pipes.
                    its.close()
                    watched.close()
                    self._all.append(_TreeWorker(process, mine, lifeline))
        except (OSError, MemoryError):
            # The first process continues with fewer workers, or with none.
            pass
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.lifeline.close()
            worker.connection.close()
            worker.process.kill()
        for worker in self._all:
            worker.process.join(JOIN)
        self._all = []

    def __len__(self) -> int:
        return len(self._all)

    def send(self, number: int, *message: object) -> bool:
        """Send a message to a worker; False if it has exited."""
        try:
            self._all[number].connection.send(message)
        except OSError:
            return False
        return True

    def collect(self, number: int, deadline: Deadline) -> RoundResult | None:
        """Wait for the result of a worker; None if it has exited or is late."""
        connection = self._all[number].connection
        left = deadline.remaining() + GRACE
        try:
            if not connection.poll(max(left, 0.0) if np.isfinite(left) else None):
                return None
            result: RoundResult = connection.recv()
        except (EOFError, OSError):
            return None
        return result


def search_together(tree: Tree, task: TreeTask, deadline: Deadline, processes: int) -> Outcome:
    """Search with several processes, after a while alone."""
    processes = processes or min(8, os.cpu_count() or 1)
    if processes < 2:
        return tree.search(deadline)
    outcome = tree.search(deadline.within(min(ALONE, deadline.remaining())))
    if outcome.status != "interrupted" or outcome.exhausted or deadline.passed():
        return outcome
    options = replace(task.options, memory=task.options.memory / processes)
    with Workers(processes - 1, replace(task, options=options)) as workers:
        whole = tree.open.limit
        # Each process has its share of the memory.
        tree.open.limit = whole / processes
        finished = _rounds(tree, workers, deadline)
        tree.open.limit = whole
    return outcome if finished else tree.search(deadline)


def _rounds(tree: Tree, workers: Workers, deadline: Deadline) -> bool:
    """Distribute nodes until all is decided; False if the first process has to continue alone."""
    outcome = tree.outcome
    closed, unresolved = tree.closed, tree.unresolved
    seconds = FIRST_ROUND
    shared, count = 0, len(workers)
    processes = 1 + count
    while True:
        nodes = tree.take()
        for signs, bound in nodes:
            tree.push(signs, bound)
        if not nodes or deadline.passed() or outcome.exhausted:
            tree.conclude()
            return True
        share = min(seconds, deadline.remaining())
        fresh = tree.proofs[shared:]
        shared = len(tree.proofs)
        parts = [nodes[k::processes] for k in range(processes)]
        sent = [workers.send(k, parts[k + 1], fresh, outcome.upper, share) for k in range(count)]
        results = [work_on_nodes(tree, parts[0], share)]
        if outcome.status == "violated":
            return True
        answers = [workers.collect(k, deadline) if sent[k] else None for k in range(count)]
        # The nodes of a worker that exited (out of memory) or is late stay open.
        results += [a or RoundResult(parts[k + 1], np.inf, np.inf) for k, a in enumerate(answers)]
        for result in results:
            for signs, bound in result.nodes:
                tree.push(signs, bound)
            closed, unresolved = min(closed, result.closed), min(unresolved, result.unresolved)
            outcome.exhausted = outcome.exhausted or result.exhausted
        tree.closed, tree.unresolved = closed, unresolved
        rejected = False
        for result in results[1:]:
            outcome.nodes += result.visited
            outcome.relaxations += result.relaxations
            outcome.leaves += result.leaves
            for literals, theta in result.proofs:
                tree.learn(literals, theta)
            if result.point is not None:
                if tree.offer(result.point, result.exact):
                    outcome.status, outcome.lower = "violated", -np.inf
                    return True
                rejected = tree.evaluate is None
        if rejected or (None in answers and not deadline.passed()):
            # A worker would find the rejected point again.
            return False
        seconds = min(LONGEST_ROUND, 1.5 * seconds)
