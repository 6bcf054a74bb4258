"""The public function `count`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.problem import Problem, Targets, Ties, robustness
from bnncert.proofs.request import CertificateRequest
from bnncert.questions.count.count_answer import (
    CountResult,
    ShareEstimate,
    lower_count,
    upper_count,
)
from bnncert.questions.count.count_claim import write_count
from bnncert.questions.count.count_search import CountSearch
from bnncert.questions.count.count_tree import Kind
from bnncert.questions.count.grid_points import GridPoints
from bnncert.questions.count.sampling import Sampling
from bnncert.questions.prover import solve
from bnncert.regions import Region

#: Points that are drawn for the estimate, and its level.
SAMPLES, CONFIDENCE = 1000, 0.95

#: The shares of the time limit that the estimate and a proof for the whole region may take, and the
#: most seconds for the proof.
SAMPLING_SHARE, PROOF_SHARE, PROOF_SECONDS = 0.1, 0.4, 60.0


def count(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
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

    A point is counted if an adversarial class has at least the score of the label there (a higher
    one, if `ties` is "robust"); if sign(0) may be either, for some choice of the signs at ties.

    Parameters
    ----------
    network
        The network.
    region
        The points: a :class:`Box`, a :class:`Ball` of the L-inf norm or an :class:`L0Ball`, with a
        grid.
    label
        The class that the points should have.
    targets, ties, sign_zero
        Those of :func:`verify`.
    samples
        The number of random points for the estimate; 0 for none.
    confidence
        The level of its confidence interval.
    seed
        The seed of the random points.
    timeout
        Seconds for the whole search; None sets no limit.
    progress
        Called with a text, and the numbers of steps done and of all steps, which are 0 here.
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
        On Ctrl-C; its `answer` is what was known by then.

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
    deadline = Deadline(timeout)
    if samples < 0:
        raise InputError(f"samples is {samples}; expected a number >= 0")
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1")
    Options(seed=seed).check()
    network = network.with_sign_zero(sign_zero)
    problem = robustness(network, region, label, targets, ties)
    request = None if certificate is None else CertificateRequest(Path(certificate), network)
    run = _Counting(problem, GridPoints.of(region), deadline, progress or _silent, ties)
    with folder_for(certificate) as folder:
        part = None if request is None else replace(request, path=folder / "part.bnncert")
        try:
            run.draw(samples, confidence, seed)
            run.prove(part)
            run.search.run(run.report)
        except KeyboardInterrupt as stop:
            raise Interrupted(run.result()) from stop
        result = run.result()
        if request is None:
            return result
        reason = run.write(request.path, result)
    return replace(result, certificate=None if reason else str(request.path), no_certificate=reason)


def _silent(text: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(eq=False)
class _Counting:
    """A count and what it has found."""

    problem: Problem
    points: GridPoints
    deadline: Deadline
    progress: Progress
    ties: Ties
    search: CountSearch = field(init=False)
    estimate: ShareEstimate | None = None
    witness: FloatArray | None = None
    #: The proof for the whole region, and why it was not written.
    part: Path | None = None
    no_part: str = ""

    def __post_init__(self) -> None:
        self.search = CountSearch(self.problem, self.points, self.deadline)

    def _share(self, share: float, most: float) -> Deadline:
        """Return a deadline for a part of the work."""
        limit = self.deadline.seconds
        return self.deadline.within(most if limit is None else min(most, share * limit))

    def draw(self, samples: int, confidence: float, seed: int) -> None:
        """Estimate the share of changed points from random ones."""
        if samples:
            self.progress("random points", 0, 0)
            sampling = Sampling(self.problem, self.points, self.search.circuit)
            limit = self._share(SAMPLING_SHARE, math.inf)
            self.estimate = sampling(seed, samples, confidence, limit)
            self.witness = sampling.witness

    def prove(self, request: CertificateRequest | None) -> None:
        """Try to prove that no point of a large region is changed, or find one that is."""
        if self.witness is not None or self.search.is_easy() or self.deadline.passed():
            return
        limit = self._share(PROOF_SHARE, PROOF_SECONDS)
        try:
            result = solve(
                [self.problem],
                "auto",
                limit.remaining(),
                progress=self.progress,
                certificate=None if request is None else request.path,
                stated=None if request is None else request.network,
            )
        except Interrupted as stop:
            self._learn(stop.answer)
            raise
        self._learn(result)

    def _learn(self, result: Result) -> None:
        if result.status == "robust":
            self.search.close_root()
            self.part = None if result.certificate is None else Path(result.certificate)
            self.no_part = "" if self.part else ", ".join(result.notes)
        elif result.counterexample is not None:
            self.witness = result.counterexample.point

    def write(self, path: Path, result: CountResult) -> str:
        """Write the certificate; return why it was not written, or nothing."""
        if self.search.root.kind == Kind.PROVED and self.part is None:
            return self.no_part or "the proof for the whole region was not written"
        found = (self.search, result.lower, result.witness, self.part)
        return write_count(path, self.problem, self.ties, *found)

    def report(self, lower: int, upper: int) -> None:
        """Show the bounds."""
        total = upper_count(self.search.total)
        bounds = f"at least {lower_count(lower)}, at most {upper_count(upper)} of {total} points"
        self.progress(bounds, 0, 0)

    def result(self) -> CountResult:
        """Return what is known."""
        search = self.search
        witness = search.witness if self.witness is None else self.witness
        lower = max(search.changed, 0 if witness is None else 1)
        assert self.problem.label is not None
        rivals = tuple(t.rival for t in self.problem.targets if t.rival is not None)
        return CountResult(
            self.problem.label,
            search.total,
            lower,
            search.upper,
            self.estimate,
            search.nodes,
            search.leaves,
            self.deadline.elapsed(),
            witness,
            rivals=None if len(rivals) == self.problem.network.classes - 1 else rivals,
            ties=self.ties,
        )
