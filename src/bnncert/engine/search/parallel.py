"""Search of one tree by several processes.

The first process searches alone for some seconds, which is enough for most trees.  Then the open
nodes are distributed in rounds: every process works on its part of the nodes for some seconds and
returns the open ones, which are distributed again.  The first process shares its learned clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.processes import WorkerProcess, WorkerTeam, usable_cores
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.replay import Replayer
from bnncert.engine.search.frontier import OpenNode
from bnncert.engine.search.tree import ClosedNode, Confirm, Outcome, Tree, TreeOptions
from bnncert.engine.timing import Pulse
from bnncert.problem import Objective, Problem, Target

#: Seconds before other processes are started, of the first round, and of the longest one.
ALONE, FIRST_ROUND, LONGEST_ROUND = 3.0, 3.0, 20.0

#: Seconds after the time limit within which a worker may answer.
GRACE = 0.5

Proof: TypeAlias = tuple[IntArray, FloatArray | None]


@dataclass(frozen=True, eq=False)
class TreeTask:
    """Everything that a process needs to build the tree of one objective.

    With `minimum` the tree finds the minimum of f instead of its sign.
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

    nodes: list[OpenNode]
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


def _serve(connection: Connection, prepare: Callable[[TreeTask], Tree], task: TreeTask) -> None:
    """Answer messages in a worker process until the connection is closed."""
    try:
        tree = prepare(task)
        while True:
            nodes, proofs, upper, seconds = connection.recv()
            for literals, theta in proofs:
                tree.learn(literals, theta)
            tree.outcome.upper = upper
            connection.send(work_on_nodes(tree, nodes, seconds))
    except (EOFError, OSError, MemoryError):
        # The first process has exited, or this one cannot continue and closes the connection.
        return


def work_on_nodes(tree: Tree, nodes: Sequence[OpenNode], seconds: float) -> RoundResult:
    """Work on some nodes for some seconds."""
    tree.take()
    for node in nodes:
        tree.push(node)
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


def _send(worker: WorkerProcess, *message: object) -> bool:
    """Send a message to a worker; False if it has exited."""
    try:
        worker.connection.send(message)
    except OSError:
        return False
    return True


def _collect(worker: WorkerProcess, deadline: Deadline) -> RoundResult | None:
    """Wait for the result of a worker; None if it has exited or is late."""
    left = deadline.remaining() + GRACE
    try:
        if not worker.connection.poll(max(left, 0.0) if np.isfinite(left) else None):
            return None
        result: RoundResult = worker.connection.recv()
    except (EOFError, OSError):
        return None
    return result


def search_together(tree: Tree, task: TreeTask, deadline: Deadline, processes: int) -> Outcome:
    """Search with several processes after `ALONE` seconds in this one."""
    processes = processes or min(8, usable_cores())
    if processes < 2:
        return tree.search(deadline)
    outcome = tree.search(deadline.within(min(ALONE, deadline.remaining())))
    if outcome.status != "interrupted" or outcome.exhausted or deadline.passed():
        return outcome
    options = replace(task.options, memory=task.options.memory / processes)
    # In a round this process has only a part of the open nodes.
    pulse, tree.pulse = tree.pulse, None
    with WorkerTeam() as team:
        # The first process continues with fewer workers, or with none, if some do not start.
        for _ in range(processes - 1):
            team.start(_serve, _prepare, replace(task, options=options))
        whole = tree.open.limit
        # The processes share the memory in equal parts.
        tree.open.limit = whole / processes
        finished = _rounds(tree, team.members, deadline, pulse)
        tree.open.limit = whole
    tree.pulse = pulse
    return outcome if finished else tree.search(deadline)


def _rounds(
    tree: Tree, workers: Sequence[WorkerProcess], deadline: Deadline, pulse: Pulse | None = None
) -> bool:
    """Distribute nodes until none is open; False if the first process has to continue alone."""
    outcome = tree.outcome
    closed, unresolved = tree.closed, tree.unresolved
    seconds = FIRST_ROUND
    shared, processes = 0, 1 + len(workers)
    while True:
        nodes = tree.take()
        for node in nodes:
            tree.push(node)
        if not nodes or deadline.passed() or outcome.exhausted:
            tree.conclude()
            return True
        if pulse is not None:
            pulse.beat(tree.open.share)
        share = min(seconds, deadline.remaining())
        fresh = tree.proofs[shared:]
        shared = len(tree.proofs)
        parts = [nodes[k::processes] for k in range(processes)]
        sent = [
            _send(worker, part, fresh, outcome.upper, share)
            for worker, part in zip(workers, parts[1:], strict=True)
        ]
        results = [work_on_nodes(tree, parts[0], share)]
        if outcome.status == "violated":
            return True
        answers = [_collect(w, deadline) if sent[k] else None for k, w in enumerate(workers)]
        # The nodes of a worker that exited (out of memory) or is late stay open.
        results += [a or RoundResult(parts[k + 1], np.inf, np.inf) for k, a in enumerate(answers)]
        for result in results:
            for node in result.nodes:
                tree.push(node)
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
