"""How many grid points of a region have another class: an estimate, a proof of none, a search.

The certificate is the tree of the search, and one part if a method proves the whole region.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.kernel.container import MOST_NUMBERS
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, Rivals, Ties, robustness
from bnncert.proofs.claims import claim_section, class_details
from bnncert.questions import CONFIDENCE, SAMPLES
from bnncert.questions.count.count_answer import (
    CountResult,
    ShareEstimate,
    lower_count,
    upper_count,
)
from bnncert.questions.count.count_search import CountSearch, NodeKind
from bnncert.questions.count.first_layer import GridPoints
from bnncert.questions.count.layers_above import CHANGED, OPEN
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.regions import Region

#: Points of the estimate that are drawn at once.
CHUNK = 256

#: The shares of the time limit that the estimate and a proof for the whole region may take, and the
#: most seconds for the proof.
SAMPLING_SHARE, PROOF_SHARE, PROOF_SECONDS = 0.1, 0.4, 60.0

#: The name of the part that proves the whole region.
WHOLE = "whole region"


def count(
    network: Network,
    region: Region,
    label: int,
    *,
    rivals: Rivals = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    samples: int = SAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    timeout: float | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> CountResult:
    """Count the points of a region on a grid whose class is not `label`.

    A point is counted if a rival has at least the score of the label there (a higher
    one, if `ties` is "robust"); if sign(0) may be either, for some choice of the signs at ties.

    Parameters
    ----------
    network, label, rivals, ties, sign_zero, timeout, progress
        Those of :func:`verify`.
    region
        The points: a :class:`Box`, a :class:`Ball` of the L-inf norm or an :class:`L0Ball`, with a
        grid.
    samples
        The number of random points for the estimate; 0 for none.
    confidence
        The level of its confidence interval.
    seed
        The seed of the random points.
    certificate
        The file for a certificate of the bounds, which ``bnncert check`` accepts.

    Returns
    -------
    CountResult
        Lower and upper bounds of the number of points, which are equal if the search ended.

    Raises
    ------
    InputError
        If the region has no grid or is of another kind, or an argument cannot be used.
    Interrupted
        As :func:`verify`.

    Examples
    --------
    Ten binary inputs vote; the label 0 loses where at most five of them are +1:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1] * 10], [[1], [-1]]], [[-1], [0, 0]])
    >>> votes = bnncert.Box([-1] * 10, [1] * 10, grid=bnncert.Grid(2, -1))
    >>> found = bnncert.count(net, votes, label=0, timeout=60)
    >>> found.total, found.lower, found.upper
    (1024, 638, 638)
    """
    # The claim is about the network with this sign(0), so its part does not replace it again.
    network = network.with_sign_zero(sign_zero)
    prover = Prover(Effort(timeout=timeout, progress=progress, certificate=certificate), [network])
    if samples < 0:
        raise InputError(f"samples is {samples}; expected a number >= 0")
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")
    Options(seed=seed).check()
    problem = robustness(network, region, label, rivals, ties)
    run = _Count(problem, GridPoints.of(region), prover, ties, (samples, confidence, seed))
    return run.outcome()


class _Count(Search[CountResult]):
    """One count and what it has found; `drawn` are the arguments of the estimate."""

    def __init__(
        self,
        problem: Problem,
        points: GridPoints,
        prover: Prover,
        ties: Ties,
        drawn: tuple[int, float, int],
    ) -> None:
        self.problem, self.points, self.prover, self.ties = problem, points, prover, ties
        self._drawn = drawn
        self.search = CountSearch(problem, points, prover.deadline)
        self.estimate: ShareEstimate | None = None
        self.witness: FloatArray | None = None

    def _share(self, share: float, most: float) -> Deadline:
        """Limit a step to a share of the time, so that the search itself has the rest."""
        limit = self.prover.deadline.seconds
        return self.prover.deadline.within(most if limit is None else min(most, share * limit))

    def run(self) -> None:
        """Draw points, try to prove that none is changed, and count."""
        self.draw(*self._drawn)
        self.prove()
        self.search.run(self.report)

    def draw(self, samples: int, confidence: float, seed: int) -> None:
        """Estimate the share of changed points from random ones, as many as the time allows."""
        if not samples:
            return
        self.prover.tell("random points")
        deadline, generator = self._share(SAMPLING_SHARE, math.inf), np.random.default_rng(seed)
        found: Counter[int] = Counter()
        while (drawn := found.total()) < samples and not deadline.passed():
            for places in self.points.random_places(generator, min(CHUNK, samples - drawn)):
                if deadline.passed():
                    break
                point = self.points.at(places)
                verdict = self.search.verdict(point)
                found[verdict] += 1
                if verdict == CHANGED and self.witness is None:
                    self.witness = point
        if found:
            numbers = found.total(), found[CHANGED], found[OPEN]
            self.estimate = ShareEstimate.of(*numbers, confidence)

    def prove(self) -> None:
        """Try to prove that no point of a large region is changed, or find one that is."""
        if self.witness is not None or self.search.is_easy() or self.prover.deadline.passed():
            return
        seconds = self._share(PROOF_SHARE, PROOF_SECONDS).remaining()
        try:
            self._learn(self.prover.decide(self.problem, seconds, name=WHOLE))
        except Interrupted as stop:
            self._learn(stop.answer)
            raise

    def _learn(self, result: Result) -> None:
        if result.status == "robust":
            self.search.close_root()
        elif result.counterexample is not None:
            self.witness = result.counterexample.point

    def report(self, lower: int, upper: int) -> None:
        """Let the progress show how far the bounds are apart."""
        total = upper_count(self.search.total)
        self.prover.tell(
            f"at least {lower_count(lower)}, at most {upper_count(upper)} of {total} points"
        )

    def answer(self) -> CountResult:
        """Take the bounds of the tree so far; a witness raises the lower one to 1."""
        search, problem = self.search, self.problem
        witness = search.witness if self.witness is None else self.witness
        assert problem.label is not None
        rivals = tuple(t.rival for t in problem.targets if t.rival is not None)
        return CountResult(
            problem.label,
            search.total,
            max(search.changed, 0 if witness is None else 1),
            search.upper,
            self.estimate,
            search.nodes,
            search.leaves,
            self.prover.deadline.elapsed(),
            witness,
            rivals=None if len(rivals) == problem.network.classes - 1 else rivals,
            ties=self.ties,
        )

    def certified(self, found: CountResult) -> CountResult:
        """Write the tree of the search, and the proof for the whole region if there is one."""
        prover, search, problem = self.prover, self.search, self.problem
        is_proved = search.root.kind == NodeKind.PROVED
        if is_proved and not prover.has(WHOLE):
            reason = prover.reason or "the proof for the whole region was not written"
            return replace(found, no_certificate=reason)
        details = class_details(problem, problem.network, self.ties)
        numbers = {"total": search.total, "lower": found.lower, "upper": search.upper}
        details |= {name: f"{number:x}" for name, number in numbers.items()}
        claim = claim_section("count", problem.region, details, search.root.arrays())
        if found.witness is not None and search.changed == 0:
            claim.arrays["witness"] = found.witness
        if sum(array.size for array in claim.arrays.values()) > MOST_NUMBERS:
            reason = f"the tree has more than {MOST_NUMBERS} numbers"
            return replace(found, no_certificate=reason)
        return replace(found, certificate=prover.finish(claim, [WHOLE] if is_proved else []))
