r"""Branch and bound on the signs of neurons.

A node fixes some signs.  It is closed when they contradict each other (clashes, learned clauses,
gates), when no input has them (linear or cone program, checked), or when the reduced relaxation of
what is left bounds f above zero.  Otherwise it is split on the sign with the largest influence that
the moments leave undecided.  Points met on the way, and patterns rounded from the moments, are
tried as counterexamples.  Where all signs are fixed, exact arithmetic decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.ball_leaf import check_ball_pattern
from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray, IntArray
from bnncert.layers import ThresholdLayer
from bnncert.leaf import check_pattern
from bnncert.presolve.pipeline import Presolved
from bnncert.problem import Objective
from bnncert.regions import Ball, Region
from bnncert.relaxations.patterns import starting_moments
from bnncert.relaxations.reduced import Certificate, ReducedProblem, relax_reduced
from bnncert.search.reachability import Meeting, meet
from bnncert.search.restrict import Restriction, Restrictor
from bnncert.search.rounding import clash_count, objective_values, round_moments
from bnncert.solvers.structured import solve_structured

SignArray = npt.NDArray[np.int8]

TreeStatus: TypeAlias = Literal["proved", "violated", "open", "interrupted"]

#: Patterns rounded from the moments of each node, and how many of them are checked at most.
ROUNDED, CHECKED = 40, 2

#: Iterations that one node's relaxation may take.
NODE_ITERATIONS = 40


@dataclass(frozen=True, eq=False)
class Leaf:
    """A closed node: its fixed signs and why nothing is left of it."""

    signs: SignArray
    reason: Literal["contradiction", "unreachable", "constant", "relaxation"]
    bound: float
    certificate: Certificate | None = None


@dataclass(eq=False)
class Outcome:
    """What the search found; `lower` bounds f over everything that is not closed."""

    status: TreeStatus
    lower: float
    nodes: int
    leaves: list[Leaf] = field(default_factory=list)
    point: FloatArray | None = None
    relaxations: int = 0


Confirm: TypeAlias = Callable[[FloatArray, tuple[Fraction, ...] | None], bool]


@dataclass(order=True)
class _Node:
    priority: float
    number: int
    signs: SignArray = field(compare=False)
    bound: float = field(compare=False)


class Tree:
    """The search for one objective."""

    def __init__(
        self,
        presolved: Presolved,
        problem: ReducedProblem,
        objective: Objective,
        confirm: Confirm,
        *,
        seed: int = 0,
        keep_leaves: bool = False,
        max_nodes: int = 10**9,
        max_open: int = 1_000_000,
    ) -> None:
        self.problem, self.objective, self.confirm = problem, objective, confirm
        self.region: Region = presolved.region
        self.layer: ThresholdLayer = presolved.network.layers[0]
        owners = presolved.owner_layer[problem.variables]
        #: The variables that are neurons of the first layer, and which neurons they are.
        self.inputs: IntArray = np.flatnonzero(owners == 0)
        self.neurons: IntArray = presolved.owner[problem.variables[self.inputs]]
        self.restrictor = Restrictor(problem)
        self.generator = np.random.default_rng(seed)
        self.seed = seed
        self.keep_leaves = keep_leaves
        self.max_nodes, self.max_open = max_nodes, max_open
        self.outcome = Outcome("open", -np.inf, 0)
        #: The smallest bound of all closed nodes, and of those that nothing could close.
        self.closed = np.inf
        self.unresolved = np.inf
        #: Conflicts found so far, as literals that cannot all hold.
        self.learned: list[IntArray] = []
        self.heap: list[_Node] = []
        self.numbers = 0
        self.push(np.zeros(problem.size, dtype=np.int8), -np.inf)

    def search(self, deadline: Deadline) -> Outcome:
        """Search until decided or out of time, nodes or memory; another call goes on from there."""
        outcome = self.outcome
        status: TreeStatus = "proved"
        while self.heap:
            full = outcome.nodes >= self.max_nodes or len(self.heap) > self.max_open
            if full or deadline.passed():
                status = "interrupted"
                break
            node = heapq.heappop(self.heap)
            outcome.nodes += 1
            found = self._visit(node, deadline)
            if outcome.point is not None:
                # Should someone else reject the point, the node is still open.
                heapq.heappush(self.heap, node)
                outcome.status = "violated"
                outcome.lower = -np.inf
                return outcome
            if found is None:
                continue
            bound, variable = found
            if deadline.passed():
                # An unfinished relaxation is no reason to split: the node waits for more time.
                heapq.heappush(self.heap, replace(node, bound=max(node.bound, bound)))
                continue
            if variable is None:
                # Nothing left to branch on, and neither closed nor violated: ties, mostly.
                self.unresolved = min(self.unresolved, bound)
                continue
            for sign in (1, -1):
                child = node.signs.copy()
                child[variable] = sign
                self.push(child, bound)
        left = min((n.bound for n in self.heap), default=np.inf)
        outcome.lower = min(left, self.unresolved, self.closed)
        if status == "proved" and np.isfinite(self.unresolved):
            status = "open"
        outcome.status = status
        return outcome

    def push(self, signs: SignArray, bound: float) -> None:
        """Add an open node."""
        heapq.heappush(self.heap, _Node(bound, self.numbers, signs, bound))
        self.numbers += 1

    def take(self) -> list[tuple[SignArray, float]]:
        """Remove and return all open nodes, lowest bound first."""
        nodes = [(n.signs, n.bound) for n in sorted(self.heap)]
        self.heap = []
        return nodes

    def _learn(self, literals: IntArray) -> None:
        self.restrictor.learn(literals)
        self.learned.append(literals)

    def _close(self, leaf: Leaf) -> None:
        self.closed = min(self.closed, leaf.bound)
        if self.keep_leaves:
            self.outcome.leaves.append(leaf)

    def _visit(self, node: _Node, deadline: Deadline) -> tuple[float, int | None] | None:
        """Return a bound and the variable to split, or None if the node is closed."""
        left = self.restrictor.restrict(node.signs)
        if left is None:
            self._close(Leaf(node.signs, "contradiction", np.inf))
            return None
        problem = left.problem
        least = self._simple_bound(problem)
        rounded = self.objective.round_up(least)
        if self.objective.is_proved_by(rounded):
            self._close(Leaf(node.signs, "constant", rounded))
            return None
        bound, moments, certificate = self._relaxation(problem, deadline)
        bound = max(bound, least, node.bound)
        rounded = self.objective.round_up(bound)
        if self.objective.is_proved_by(rounded):
            self._close(Leaf(node.signs, "relaxation", rounded, certificate))
            return None
        fixed = np.flatnonzero(left.signs[self.inputs])
        if fixed.size > 2 or not left.free.size:
            meeting = self._meet(left.signs, fixed, deadline)
            if meeting.conflict is not None:
                self._close(Leaf(node.signs, "unreachable", np.inf))
                return None
            if meeting.point is not None and self.confirm(meeting.point, None):
                self.outcome.point = meeting.point
                return None
        if moments is not None and left.free.size:
            self._round(left, moments, deadline)
            if self.outcome.point is not None:
                return None
        candidates = np.intersect1d(left.free, self.inputs)
        if not candidates.size:
            return self._settle(node, left, bound, deadline)
        return bound, self._choose(left, moments, candidates)

    def _settle(
        self, node: _Node, left: Restriction, bound: float, deadline: Deadline
    ) -> tuple[float, int | None] | None:
        """Decide a node whose first layer is fixed, in exact arithmetic."""
        signs = left.signs[self.inputs]
        region = self.region
        if isinstance(region, Ball) and region.norm == "l2":
            leaf = check_ball_pattern(self.layer, self.neurons, signs, region, deadline)
        else:
            leaf = check_pattern(self.layer, self.neurons, signs, region, deadline)
        if leaf.conflict:
            variables = self.inputs[np.isin(self.neurons, leaf.conflict)]
            self._learn(2 * variables + (left.signs[variables] < 0))
            self._close(Leaf(node.signs, "unreachable", np.inf))
            return None
        if leaf.point is not None:
            point = np.array([float(v) for v in leaf.point])
            if self.confirm(point, leaf.point):
                self.outcome.point = point
                return None
        return bound, None

    @staticmethod
    def _simple_bound(problem: ReducedProblem) -> float:
        """Return the sum of all minima."""
        least = problem.values.min(axis=1, initial=np.inf).sum() if problem.values.size else 0.0
        size = float(np.abs(problem.values).max(axis=1, initial=0.0).sum()) + abs(problem.constant)
        size += float(np.abs(problem.linear).sum())
        rounding = (problem.values.shape[0] + problem.size + 8) * 2.0**-51 * size
        rounding = 0.0 if problem.slack == 0 else rounding
        total = problem.constant + float(least) - float(np.abs(problem.linear).sum())
        return total - rounding - problem.slack

    def _relaxation(
        self, problem: ReducedProblem, deadline: Deadline
    ) -> tuple[float, FloatArray | None, Certificate | None]:
        if not problem.size:
            return -np.inf, None, None
        self.outcome.relaxations += 1
        relaxation = relax_reduced(problem)
        constant = problem.constant - problem.slack
        goal = 1e-7 * max(1.0, abs(problem.constant))
        moments, probabilities = starting_moments(problem, self.seed)
        solution = solve_structured(
            relaxation.program,
            deadline,
            above=(goal - constant) / relaxation.scale,
            below=(-goal - constant) / relaxation.scale,
            tolerance=1e-4,
            iterations=NODE_ITERATIONS,
            moments=moments,
            probabilities=probabilities,
        )
        certificate = relaxation.certificate(solution.multipliers)
        return certificate.bound(problem), solution.moments, certificate

    def _meet(self, signs: SignArray, fixed: IntArray, deadline: Deadline) -> Meeting:
        """Look for an input with these signs; learn from a conflict."""
        chosen = self.inputs[fixed]
        meeting = meet(self.layer, self.neurons[fixed], signs[chosen], self.region, deadline)
        if meeting.conflict is not None:
            variables = chosen[meeting.conflict]
            self._learn(2 * variables + (signs[variables] < 0))
        return meeting

    def _round(self, left: Restriction, moments: FloatArray, deadline: Deadline) -> None:
        """Try patterns near the moments as counterexamples."""
        patterns = round_moments(left.problem, moments, self.generator, ROUNDED)
        values = objective_values(left.problem, patterns)
        values = np.where(clash_count(left.problem, patterns) == 0, values, np.inf)
        order = np.argsort(values, kind="stable")[:CHECKED]
        for k in order[values[order] <= left.problem.slack]:
            signs = left.signs.copy()
            signs[left.free] = patterns[k]
            everyone = np.arange(self.inputs.size)
            meeting = self._meet(signs, everyone, deadline)
            if meeting.point is not None and self.confirm(meeting.point, None):
                self.outcome.point = meeting.point
                return

    def _choose(self, left: Restriction, moments: FloatArray | None, candidates: IntArray) -> int:
        """Return the undecided variable with the largest influence on f."""
        problem = left.problem
        place = np.searchsorted(left.free, candidates)
        spread = problem.values.max(axis=1, initial=-np.inf) - problem.values.min(
            axis=1, initial=np.inf
        )
        rows = np.abs(problem.table.rows)
        influence = spread @ rows if rows.shape[0] else np.zeros(problem.size)
        influence = influence + np.abs(problem.linear)
        if problem.gates.rows.shape[0]:
            influence = influence + influence[problem.outputs] @ np.abs(problem.gates.rows)
        undecided = np.ones(problem.size)
        if moments is not None:
            undecided = 1.05 - np.abs(moments[0, 1:])
        score = (influence * undecided)[place]
        return int(candidates[int(np.argmax(score))])
