"""One search over sign patterns, in this process and in others.

This process searches in short time slices.  Between them it gives its oldest nodes, which have the
largest subtrees, to idle processes, and takes back the nodes that others leave open, which are then
distributed again.  Clauses and points are sent with the nodes.  The nodes of a process that has
exited are open again.
"""

from __future__ import annotations

import numpy as np

from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.open_nodes import NodeBatch
from bnncert.engine.search.patterns.pattern_question import Realiser
from bnncert.engine.search.patterns.pattern_search import PatternSearch
from bnncert.engine.search.patterns.subtrees import Searched, SubtreePool, Subtrees

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
