"""One tree on several processes.

The tree grows on its own for a moment: most are finished by then, and no process was started for
them.  Then its open nodes are dealt out in rounds: every process works on its hand for some seconds
and returns what is left, which is dealt again.  Clauses that the first process has are shared.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray, IntArray
from bnncert.presolve.pipeline import Presolved
from bnncert.problem import Objective, Problem, Target
from bnncert.relaxations.reduced import ReducedProblem
from bnncert.replay import Replayer
from bnncert.search.tree import Outcome, SignArray, Tree

#: Seconds before other processes are started, of the first round, and of the longest one.
ALONE, FIRST_ROUND, LONGEST_ROUND = 3.0, 3.0, 20.0


@dataclass(frozen=True, eq=False)
class Task:
    """What a process needs to build the tree itself."""

    presolved: Presolved
    problem: ReducedProblem
    objective: Objective
    question: Problem
    target: Target
    seed: int


@dataclass(frozen=True, eq=False)
class Hand:
    """The result of one process's round."""

    nodes: list[tuple[SignArray, float]]
    closed: float
    unresolved: float
    visited: int
    relaxations: int
    clauses: list[IntArray]
    point: FloatArray | None


_worker: list[Tree] = []


def _prepare(task: Task) -> None:
    """Build the tree of a worker process, once."""
    replayer = Replayer(task.question)
    _worker.append(
        Tree(
            task.presolved,
            task.problem,
            task.objective,
            lambda point, exact: replayer.confirm(task.target, point, exact) is not None,
            seed=task.seed,
        )
    )


def _play(nodes: list[tuple[SignArray, float]], clauses: list[IntArray], seconds: float) -> Hand:
    """Work on a hand of nodes in a worker process."""
    tree = _worker[0]
    known = len(tree.learned)
    for clause in clauses:
        tree.restrictor.learn(clause)
    return play_hand(tree, nodes, seconds, known)


def play_hand(tree: Tree, nodes: list[tuple[SignArray, float]], seconds: float, known: int) -> Hand:
    """Work on a hand of nodes for some seconds."""
    tree.take()
    for signs, bound in nodes:
        tree.push(signs, bound)
    tree.closed = tree.unresolved = np.inf
    tree.outcome.point = None
    before, solved = tree.outcome.nodes, tree.outcome.relaxations
    outcome = tree.search(Deadline(seconds))
    return Hand(
        tree.take(),
        tree.closed,
        tree.unresolved,
        outcome.nodes - before,
        outcome.relaxations - solved,
        tree.learned[known:],
        outcome.point,
    )


def search_together(
    tree: Tree,
    task: Task,
    deadline: Deadline,
    processes: int,
    confirm: Callable[[FloatArray], bool],
) -> Outcome:
    """Search with several processes, after a while alone."""
    processes = processes or min(8, os.cpu_count() or 1)
    outcome = tree.search(deadline.within(min(ALONE, deadline.remaining())))
    if outcome.status != "interrupted" or processes < 2 or deadline.passed():
        return outcome if outcome.status != "interrupted" else tree.search(deadline)
    pool = ProcessPoolExecutor(
        processes - 1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(task,)
    )
    try:
        return _rounds(tree, pool, deadline, processes, confirm)
    finally:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        # A hand may have seconds to go, and the interpreter would wait for it when it ends.
        for worker in workers:
            worker.kill()


def _rounds(
    tree: Tree,
    pool: ProcessPoolExecutor,
    deadline: Deadline,
    processes: int,
    confirm: Callable[[FloatArray], bool],
) -> Outcome:
    outcome = tree.outcome
    closed, unresolved = tree.closed, tree.unresolved
    seconds = FIRST_ROUND
    shared = 0
    while True:
        nodes = tree.take()
        for signs, bound in nodes:
            tree.push(signs, bound)
        left = min((bound for _, bound in nodes), default=np.inf)
        outcome.lower = min(left, closed, unresolved)
        tree.closed, tree.unresolved = closed, unresolved
        if not nodes or deadline.passed():
            outcome.status = "open" if np.isfinite(unresolved) else "proved"
            if nodes:
                outcome.status = "interrupted"
            return outcome
        share = min(seconds, deadline.remaining())
        fresh = tree.learned[shared:]
        shared = len(tree.learned)
        try:
            futures: list[Future[Hand]] = [
                pool.submit(_play, nodes[k::processes], fresh, share) for k in range(1, processes)
            ]
        except BrokenProcessPool:
            return tree.search(deadline)
        hands = [play_hand(tree, nodes[0::processes], share, shared)]
        own_point = hands[0].point
        if own_point is not None:
            outcome.status, outcome.lower = "violated", -np.inf
            return outcome
        try:
            hands += [future.result() for future in futures]
        except BrokenProcessPool:
            # A worker died (out of memory, say).  All nodes of this round count as open again.
            tree.take()
            for signs, bound in nodes:
                tree.push(signs, bound)
            tree.closed, tree.unresolved = closed, unresolved
            return tree.search(deadline)
        for hand in hands:
            for signs, bound in hand.nodes:
                tree.push(signs, bound)
            closed, unresolved = min(closed, hand.closed), min(unresolved, hand.unresolved)
            if hand is not hands[0]:
                outcome.nodes += hand.visited
                outcome.relaxations += hand.relaxations
                for clause in hand.clauses:
                    tree.restrictor.learn(clause)
        points = [hand.point for hand in hands if hand.point is not None]
        for point in points:
            if confirm(point):
                outcome.point, outcome.status, outcome.lower = point, "violated", -np.inf
                return outcome
        if points:
            # A worker would find the point that we reject again and again.
            tree.closed, tree.unresolved = closed, unresolved
            return tree.search(deadline)
        seconds = min(LONGEST_ROUND, 1.5 * seconds)
