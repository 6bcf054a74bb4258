"""A search over sign patterns as it is sent to processes, and the search for their points."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import literal
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import fast_feasibility
from bnncert.engine.reachability.feasibility import SignPattern
from bnncert.engine.replay import Replayer
from bnncert.engine.search.patterns.cells import CellEnumerator
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.flips import FlipBudget
from bnncert.engine.search.patterns.pattern_search import PatternSearch, Realisation
from bnncert.engine.search.trace import LearnedClause
from bnncert.engine.verdict import Counterexample
from bnncert.model.layers import ThresholdLayer
from bnncert.problem import Problem


@dataclass(frozen=True, eq=False)
class PatternQuestion:
    """One search over sign patterns, as it is sent to other processes."""

    #: The problem with the targets that are still open.
    problem: Problem
    #: The first layer, whose neurons `circuit.neurons` are the variables.
    layer: ThresholdLayer
    circuit: Circuit
    #: Symmetric table of conflicting pairs of first-layer literals.
    excluded: BoolArray
    #: The costs of flips, if the region is such a budget.
    budget: FlipBudget | None
    #: The signs of the variables at the region's centre, relative to which patterns are flips.
    home: SignArray | None = None
    #: Whether the minimum of F is computed instead of its sign.
    minimum: bool = False
    #: Whether trees and clauses are recorded for a certificate.
    recording: bool = False
    #: Whether counterexamples have to be float32 numbers.
    only_float32: bool = False

    def search(self, realiser: Realiser) -> PatternSearch:
        """Return a search that begins at the root."""
        cells = None
        if self.budget is None:
            learn = realiser.learn if self.recording else None
            cells = CellEnumerator.of(
                self.circuit, self.layer, self.problem.region, self.excluded, self.home, learn
            )
        search = PatternSearch(
            self.circuit,
            self.excluded,
            self.budget,
            realiser,
            home=self.home,
            cells=cells,
            recording=self.recording,
        )
        search.goal = realiser.goal
        return search


class Realiser:
    """Searches for inputs of the region that have given first-layer signs.

    Attributes
    ----------
    deadline
        The time limit of a check.
    found, point
        The counterexample that ended the search, and the point at which it was confirmed.
    upper, lowest
        For the minimum: for each target the least value found, and its point.
    goal
        A lower bound of objective k above goal[k] excludes its target; in a search for the minimum,
        points lower the goals.
    clauses
        Learned clauses with the multipliers that prove them, if a certificate is wanted.
    """

    def __init__(self, question: PatternQuestion, replayer: Replayer) -> None:
        self.question, self._replayer = question, replayer
        self.deadline = Deadline(None)
        self.found: Counterexample | None = None
        self.point: Point | None = None
        self.clauses: list[LearnedClause] = []
        targets = question.problem.targets
        self.upper = np.full(len(targets), np.inf)
        self.lowest: list[Point | None] = [None] * len(targets)
        self.goal: FloatArray = question.circuit.objectives.enough.copy()
        self._values = []
        if question.minimum:
            exactly = Replayer(question.problem)
            self._values = [partial(exactly.lowest, target) for target in targets]
            self.goal[:] = np.inf

    def begin(self, deadline: Deadline, upper: FloatArray, goal: FloatArray) -> None:
        """Begin a new search with the values and goals of another process."""
        self.deadline = deadline
        self.found = self.point = None
        self.clauses = []
        self.lowest = [None] * len(self.question.problem.targets)
        np.minimum(self.upper, upper, out=self.upper)
        np.minimum(self.goal, goal, out=self.goal)

    def learn(self, variables: IntArray, signs: SignArray, multipliers: FloatArray) -> None:
        """Remember signs of first-layer variables that exclude each other, for the certificate."""
        self.clauses.append((self.question.circuit.neurons[variables], signs, multipliers))

    def __call__(self, pattern: SignArray, targets: BoolArray) -> Realisation:
        """Search for an input of the region with these first-layer signs that reaches a target."""
        question = self.question
        wanted = SignPattern(question.layer, question.circuit.neurons, pattern)
        for check in (fast_feasibility, exact_feasibility):
            found = check(wanted, question.problem.region, self.deadline)
            if found.conflict is not None:
                if question.recording:
                    blamed = wanted.part(found.conflict)
                    self.clauses.append((blamed.neurons, blamed.signs, found.multipliers))
                return Realisation(conflict=literal(found.conflict, pattern[found.conflict]))
            if found.point is not None:
                point = Point(found.point, found.exact_point)
                if self.confirm(point, targets):
                    return Realisation(found=True)
        return Realisation(late=self.deadline.passed())

    def confirm(self, point: Point, targets: BoolArray) -> bool:
        """Return whether the point ends the search; for the minimum it only lowers the goals."""
        for k in np.flatnonzero(targets).tolist():
            if self.question.minimum:
                self.offer(k, point)
                continue
            target = self.question.problem.targets[k]
            found = self._replayer.confirm(target, point.values, point.exact)
            if found is not None:
                self.found, self.point = found, point
                return True
        return False

    def offer(self, k: int, point: Point) -> None:
        """Record a point of target k if its value is lower than that of all others."""
        value = self._values[k](point.values, point.exact)
        if value >= self.upper[k]:
            return
        self.upper[k], self.lowest[k] = value, point
        objectives = self.question.problem.targets[k].objectives
        linear = self.question.circuit.objectives
        places = np.flatnonzero(linear.target == k).tolist()
        for place, objective in zip(places, objectives, strict=True):
            # No value lies between the best one and the next lower one of the lattice.
            step = 0.0
            if len(objectives) == 1 and objective.lattice is not None:
                step = float(objective.lattice[1])
            # The bound of the point's own pattern is up to two slacks below the value.
            below = float(np.nextafter(value - 2 * linear.slack[place], -np.inf))
            self.goal[place] = min(below, value - step / 2)


@dataclass(frozen=True, eq=False)
class Point:
    """An input, and its exact coordinates if these are not floating-point numbers."""

    values: FloatArray
    exact: tuple[Fraction, ...] | None = None
