"""Counterexamples with fewer changes: changes are undone while the class stays wrong."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.problem import Problem
from bnncert.questions.smallest.whole_distances import Counts

#: Candidates of one round, and the number of rounds.
MOST_SETS, MOST_ROUNDS = 64, 48


class Shrinking:
    """Moves a counterexample of a problem towards the centre."""

    def __init__(self, problem: Problem, counts: Counts, deadline: Deadline) -> None:
        self._problem, self._counts, self._deadline = problem, counts, deadline
        self._rivals = np.array([t.rival for t in problem.targets], dtype=np.int64)

    def __call__(self, replayer: Replayer, found: Counterexample) -> Counterexample:
        """Return a nearer counterexample that is confirmed exactly, or the given one."""
        counts = self._counts
        places = start = counts.places(found.point)
        places = self._scaled(places) if counts.norm == "linf" else self._taken_back(places)
        if counts.of(places) >= counts.of(start):
            return found
        point = counts.points(places)
        margins = self._margins(places[None, :])[0]
        target = self._problem.targets[int(np.argmin(margins))]
        nearer = replayer.confirm(target, point)
        if nearer is None or counts.count(nearer.point) >= counts.of(start):
            return found
        return nearer

    def _margins(self, places: FloatArray) -> FloatArray:
        scores = self._problem.network.evaluate(self._counts.points(places))
        label = self._problem.label
        return np.asarray(scores[:, label, None] - scores[:, self._rivals])

    def _nearest(self, candidates: FloatArray) -> FloatArray | None:
        """Return the candidate with the least count whose class is wrong; ties by the margin."""
        if not len(candidates):
            return None
        margins = self._margins(candidates).min(axis=1)
        order = np.lexsort((margins, self._counts.of(candidates)))
        wrong = order[margins[order] <= 0]
        return candidates[wrong[0]] if wrong.size else None

    def _scaled(self, places: FloatArray) -> FloatArray:
        """Return the places with all changes clipped to the least possible count."""
        home = self._counts.home
        change = places - home
        most = int(np.abs(change).max(initial=0.0))
        cuts = np.unique(np.linspace(1, max(most - 1, 1), MOST_SETS).astype(np.int64))[:, None]
        nearer = self._nearest(home + np.clip(change, -cuts, cuts))
        return places if nearer is None else nearer

    def _taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places after unnecessary changes are undone, one by one."""
        places = self._many_taken_back(places)
        for _ in range(MOST_ROUNDS):
            if self._deadline.passed():
                break
            nearer = self._nearest(self._one_taken_back(places))
            if nearer is None:
                break
            places = nearer
        return places

    def _many_taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places after the changes with the least effect are undone together."""
        home = self._counts.home
        changed = np.flatnonzero(places != home)
        single = np.repeat(places[None, :], changed.size, axis=0)
        single[np.arange(changed.size), changed] = home[changed]
        if not changed.size:
            return places
        order = changed[np.argsort(self._margins(single).min(axis=1), kind="stable")]
        sizes = np.unique(np.linspace(1, order.size, MOST_SETS).astype(np.int64))
        sets = np.repeat(places[None, :], sizes.size, axis=0)
        for row, size in zip(sets, sizes.tolist(), strict=True):
            row[order[:size]] = home[order[:size]]
        nearer = self._nearest(sets)
        return places if nearer is None else nearer

    def _one_taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places with one change undone: completely, by half, or by one step."""
        home = self._counts.home
        changed = np.flatnonzero(places != home)
        change = places[changed] - home[changed]
        kept = [np.zeros_like(change)]
        if self._counts.norm != "l0":
            kept += [np.trunc(change / 2), change - np.sign(change)]
        rows = np.repeat(places[None, :], changed.size * len(kept), axis=0)
        columns = np.tile(changed, len(kept))
        rows[np.arange(columns.size), columns] = home[columns] + np.concatenate(kept)
        return rows
