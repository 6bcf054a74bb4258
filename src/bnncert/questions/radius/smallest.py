"""The smallest perturbation that changes the class, by bisection on whole numbers.

    lower = the largest count that is proved robust,
    upper = the least count of a counterexample,

and the minimum is known when upper = lower + 1: the ball of count `lower` is proved robust, and the
counterexample of count `upper` is the witness.  Its count becomes smaller when changes are undone
while the class stays wrong.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.method_run import time_for_strict
from bnncert.engine.methods import Options, Progress
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.errors import InputError
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, Rivals, Ties, robustness
from bnncert.questions.prover import Effort, Prover
from bnncert.questions.radius.radius import BallSearch, checked_maximum
from bnncert.questions.radius.radius_answer import (
    LARGEST_COUNT,
    Probe,
    SmallestResult,
    WholeDistances,
)
from bnncert.questions.verify import warn_outside
from bnncert.regions import Ball, L0Ball


@dataclass(frozen=True, eq=False)
class Known:
    """The result of an earlier search: the largest certified count and a witness."""

    certified: int | None = None
    witness: FloatArray | None = None


def smallest(
    network: Network,
    region: Ball | L0Ball,
    label: int,
    *,
    rivals: Rivals = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    maximum: float | str | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
    known: Known | None = None,
) -> SmallestResult:
    """Find the smallest perturbation of a point for which the class is not `label`.

    Parameters
    ----------
    network, label, rivals, ties, sign_zero, method, timeout, options, progress
        Those of :func:`verify`.
    region
        A ball around the point with the norm, data box and grid; its own radius does not matter.
    maximum
        The largest radius of interest, in input units or as in "3px".
    certificate
        Where to write the certificate of the largest count that is proved.
    known
        The result of an earlier search.  Its witness is replayed; its certified count is trusted.

    Returns
    -------
    SmallestResult
        The largest certified count, and the count of the witness; `minimum` if they meet.

    Raises
    ------
    InputError
        If the distances from the point are not whole numbers (no grid, and not L0), or an argument
        cannot be used, as for :func:`verify`.
    MissingExtraError, Interrupted
        As :func:`verify`.

    Examples
    --------
    Inputs are multiples of 1/8; two of these steps are certified and three are not robust:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> centre = bnncert.Ball("linf", [0.5, 0], 0, -1, 1, grid=bnncert.Grid(1 / 8, -1))
    >>> found = bnncert.smallest(net, centre, label=0, timeout=60)
    >>> found.certified, found.minimum
    (2, 3)
    """
    network = network.with_sign_zero(sign_zero)
    counts = WholeDistances(region)
    most = checked_maximum(maximum, network, region.norm, math.inf)
    warn_outside(network, region)
    prover = Prover(Effort(method, timeout, options, progress, certificate), [network])
    ask = partial(robustness, network, label=label, rivals=rivals, ties=ties)
    return WholeSearch(prover, ask, counts, most, known or Known()).outcome()


class WholeSearch(BallSearch[SmallestResult]):
    """A search on whole numbers: every radius is a count."""

    def __init__(
        self,
        prover: Prover,
        ask: partial[Problem],
        counts: WholeDistances,
        maximum: float | None,
        known: Known,
    ) -> None:
        super().__init__(prover, ask)
        self.counts, self._earlier = counts, known
        self._least_first = False
        farthest = counts.farthest
        limit = min(farthest, LARGEST_COUNT)
        if maximum is not None:
            limit = min(limit, counts.within(maximum))
        self.limit = float(limit)
        ball = counts.ball
        has_data_box = not isinstance(ball, L0Ball) or ball.within is None
        self.covers_data = limit >= farthest and has_data_box

    def ball(self, radius: float) -> Ball | L0Ball:
        """Take all points up to a count, and perhaps more by the rounding of the grid."""
        return self.counts.ball_of(radius)

    def measure(self, found: Counterexample) -> float:
        """Count exactly, because the points lie on the grid."""
        return float(self.counts.count(found.point))

    def prefix(self, radius: float) -> str:
        """Return both sides and the count that is asked about."""
        text = self.counts.text
        sides = f"certified {text(self.lower)}, falsified {text(self.upper)}"
        return f"{sides}, at {text(radius)}: "

    def nearer(self, problem: Problem, replayer: Replayer, found: Counterexample) -> Counterexample:
        """Return a counterexample with a smaller count, or this one."""
        return Shrinking(problem, self.counts, self.prover.deadline)(replayer, found)

    def learn(self, probe: Probe, found: Counterexample | None) -> None:
        """Add the result of one verification."""
        if found is not None and self.measure(found) > probe.radius:
            # Balls are enlarged by the rounding of the grid's values; large ones may therefore
            # contain points of a larger count.
            far = self.measure(found)
            if far < self.upper:
                self.upper, self.counterexample = far, found
            probe, found = replace(probe, status="unknown"), None
        super().learn(probe, found)

    def between(self, low: float, high: float) -> float | None:
        """Return the whole number in the middle of two, if there is one between them."""
        if math.isinf(high):
            grown = min(max(2 * low, 1.0), self.limit)
            return grown if grown > low else None
        # The least count is the easiest to prove, and its proof is needed in any case.
        is_least = self._least_first and low == max(self.lower, 0.0)
        middle = low + 1 if is_least else float((low + high) // 2)
        return middle if low < middle < high else None

    def share(self, share: float) -> float:
        """Return all the time for the last undecided count."""
        return 1.0 if self.upper - max(self.lower, 0.0) == 2 else share

    def forget_undecided(self) -> None:
        """Allow undecided counts to be verified again, from the least one on."""
        super().forget_undecided()
        self._least_first = True

    def run(self) -> None:
        """Start from an earlier search, close the gap, and improve certificate and witness."""
        self.resume(self._earlier)
        super().run()
        self.certify_known()
        self.prefer_strict()

    def resume(self, known: Known) -> None:
        """Start from the result of an earlier search."""
        if known.certified is not None:
            self.lower = float(known.certified)
        if known.witness is None:
            return
        count = float(self.counts.count(known.witness))
        problem = self.ask(self.ball(count))
        replayer = Replayer(problem, self.runtime)
        for target in problem.targets:
            found = replayer.confirm(target, known.witness)
            if found is not None:
                self.learn(Probe(count, "replay", "not_robust", 0.0), found)
                return
        raise InputError(
            "the witness of the earlier search is not a counterexample of this question"
        )

    def certify_known(self) -> None:
        """Prove the lower side again if its certificate is wanted, and there is none.

        An earlier search has proved it, or the share of the time was too short for the certificate.
        """
        prover = self.prover
        if not prover.wants_certificate or self.lower < 0:
            return
        proved_here = any(p.status == "robust" and p.radius == self.lower for p in self.probes)
        if not proved_here or (prover.is_late and not prover.deadline.passed()):
            self.verify(self.lower, 1.0)

    def prefer_strict(self) -> None:
        """Look for a strict counterexample of the same count, if the witness is a tie."""
        tie, seconds = self.counterexample, time_for_strict(self.prover.deadline).remaining()
        if tie is None or not tie.tie or self.upper == 0 or seconds <= 0:
            return
        strict = self.ask(self.ball(self.upper), ties="robust")
        found = self.prover.decide(strict, seconds).counterexample
        if found is not None and self.measure(found) == self.upper:
            self.counterexample = found

    def answer(self) -> SmallestResult:
        """State both sides, which hold at any time."""
        return SmallestResult(
            norm=self.counts.norm,
            label=int(self.label),
            counts=self.counts,
            certified=int(self.lower) if math.isfinite(self.lower) else None,
            falsified=int(self.upper) if math.isfinite(self.upper) else None,
            limit=int(self.limit),
            covers_data=self.covers_data,
            probes=tuple(self.probes),
            seconds=self.prover.deadline.elapsed(),
            witness=self.counterexample,
        )

    def certified(self, found: SmallestResult) -> SmallestResult:
        """Write the certificate of the largest count that is proved."""
        part, written = self.part(self.lower), None
        if self.proved == part:
            written = self.prover.finish(None, [part])
        reason, seconds = self.prover.reason, self.prover.deadline.elapsed()
        return replace(found, certificate=written, no_certificate=reason, seconds=seconds)

    def interrupted(self) -> SmallestResult:
        """Certify the lower side, which is proved at any time."""
        return self.with_certificate(self.answer())


#: Candidates of one round of undoing changes, and the number of rounds.
MOST_SETS, MOST_ROUNDS = 64, 48


class Shrinking:
    """Moves a counterexample of a problem towards the centre."""

    def __init__(self, problem: Problem, counts: WholeDistances, deadline: Deadline) -> None:
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
