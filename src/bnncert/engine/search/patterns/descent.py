r"""Local search over sign patterns, for counterexamples of deep networks.

Surrogate gradients are inaccurate in networks with many sign layers.  Here a step evaluates every
single flip of the current pattern and makes the one with the lowest objective.  A flip is not
undone for some steps (tabu search), and the search starts again from a random pattern after
PATIENCE steps without an improvement.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bnncert.arrays import BoolArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.flips import UNITS, FlipBudget
from bnncert.engine.search.patterns.interval_propagation import evaluate
from bnncert.engine.search.patterns.pattern_search import Realise

#: The smallest and the largest number of steps for which a flip may not be undone.
TABU = (3, 10)

#: Steps without a new lowest value before the search starts again.
PATIENCE = 40

#: The largest number of exchanges of two flips that one step evaluates.
SWAPS = 1024

#: Share of the variables that a random start flips if there is no budget.
RANDOM_SHARE = 0.3


class FlipDescent:
    """A tabu search; `run` may be called again to continue."""

    def __init__(
        self,
        circuit: Circuit,
        budget: FlipBudget | None,
        home: SignArray,
        realise: Realise,
        seed: int,
    ) -> None:
        self.circuit, self.budget, self.home, self.realise = circuit, budget, home, realise
        self._generator = np.random.default_rng(seed)
        self._tried: set[bytes] = set()
        self._starts = 0
        #: The steps of the present start, which the end of a slice of time interrupts.
        self._steps_left: Iterator[bool] | None = None

    def run(self, deadline: Deadline, starts: int) -> bool:
        """Search from at most `starts` patterns; True if a counterexample was found."""
        if not self.circuit.inputs:
            return False
        for _ in range(starts):
            walk = self._steps_left or self._descend(self._start())
            self._steps_left = walk
            for found in walk:
                if found or deadline.passed():
                    return found
            self._steps_left = None
        return False

    def _start(self) -> SignArray:
        """Return the pattern of the centre the first time, and random patterns after that."""
        pattern: SignArray = self.home.copy()
        self._starts += 1
        if self._starts == 1:
            return pattern
        if self.budget is None:
            flip = self._generator.random(pattern.size) < RANDOM_SHARE * self._generator.random()
            return np.asarray(np.where(flip, -pattern, pattern), dtype=np.int8)
        left = float(UNITS) * self._generator.random()
        for i in self._generator.permutation(pattern.size).tolist():
            if self.budget.cost[i] <= left:
                pattern[i] = -pattern[i]
                left -= float(self.budget.cost[i])
        return pattern

    def _descend(self, pattern: SignArray) -> Iterator[bool]:
        """Yield after each step whether a counterexample was found."""
        lowest, since = np.inf, 0
        forbidden = np.zeros(pattern.size, dtype=np.int64)
        for step in range(10 * PATIENCE + pattern.size):
            if since > PATIENCE:
                return
            steps = self._steps(pattern, forbidden > step)
            if not steps.shape[0]:
                return
            rows = np.arange(steps.shape[0])
            neighbours = np.repeat(pattern[None, :], steps.shape[0], axis=0)
            neighbours[rows, steps[:, 0]] *= -1
            swapped = steps[:, 1] >= 0
            neighbours[rows[swapped], steps[swapped, 1]] *= -1
            made = evaluate(self.circuit, neighbours)
            objectives = self.circuit.objectives
            values = objectives.target_bounds(made.lower - objectives.enough)
            reached = values <= 0
            for k in np.flatnonzero(reached.any(axis=1))[:4].tolist():
                if self._reaches(neighbours[k], reached[k]):
                    yield True
            # The closest target decides; the others break ties between equal steps.
            value = values.min(axis=1, initial=np.inf) + 1e-3 * values.mean(axis=1)
            best = int(np.argmin(value))
            pattern = neighbours[best]
            moved = steps[best][steps[best] >= 0]
            forbidden[moved] = step + 1 + self._generator.integers(*TABU, moved.size)
            since = 0 if value[best] < lowest else since + 1
            lowest = min(lowest, float(value[best]))
            yield False

    def _steps(self, pattern: SignArray, forbidden: BoolArray) -> IntArray:
        """Return the flips that are allowed now: one or two variables, -1 for none.

        If another flip does not fit the budget, one flip is exchanged for another.  That helps in
        some networks and not in others, so every second start makes no exchanges.
        """
        free = np.flatnonzero(~forbidden)
        if self.budget is None:
            return np.stack([free, np.full(free.size, -1)], axis=1)
        cost, away = self.budget.cost, pattern != self.budget.home
        left = UNITS - float(self.budget.spent(pattern[None, :])[0])
        single = free[away[free] | (cost[free] <= left)]
        back, more = free[away[free]], free[~away[free] & (cost[free] > left)]
        if self._starts % 2:
            back = back[:0]
        first, second = np.repeat(back, more.size), np.tile(more, back.size)
        fits = cost[second] - cost[first] <= left
        pairs = np.stack([first[fits], second[fits]], axis=1)
        if pairs.shape[0] > SWAPS:
            pairs = pairs[self._generator.choice(pairs.shape[0], SWAPS, replace=False)]
        return np.concatenate([np.stack([single, np.full(single.size, -1)], axis=1), pairs])

    def _reaches(self, pattern: SignArray, targets: np.ndarray) -> bool:
        key = pattern.tobytes()
        if key in self._tried:
            return False
        self._tried.add(key)
        return self.realise(pattern, targets).found
