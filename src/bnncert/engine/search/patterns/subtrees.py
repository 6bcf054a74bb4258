"""Subtrees of a search over sign patterns that another process searches for some seconds.

A process receives nodes and returns the bounds of the nodes that it closed, and the open nodes.  It
has the question and needs nothing else: the nodes of a process that exits are given to another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns.open_nodes import NodeBatch, TreeRecord
from bnncert.engine.search.patterns.pattern_question import PatternQuestion, Point, Realiser
from bnncert.engine.search.patterns.pattern_search import PatternSearch
from bnncert.engine.search.trace import LearnedClause


@dataclass(frozen=True, eq=False)
class Subtrees:
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
