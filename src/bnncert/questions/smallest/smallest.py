"""The smallest perturbation that changes the class, by bisection on whole numbers.

    lower = the largest count that is proved robust,
    upper = the least count of a counterexample,

and the minimum is known when upper = lower + 1: the ball of count `lower` is proved robust, and the
counterexample of count `upper` is the witness.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.answer import Answer, Columns, Interrupted
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.engine.methods.strict_search import time_for_strict
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import InputError
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import writing_for
from bnncert.model.network import Network
from bnncert.problem import Problem, Targets, Ties, robustness
from bnncert.questions.radius import BallVerifier, Bisection, bisect
from bnncert.questions.radius_answer import Probe, probe_rows
from bnncert.questions.smallest.best_proof import LowerSide
from bnncert.questions.smallest.shrinking import Shrinking
from bnncert.questions.smallest.whole_distances import LARGEST_COUNT, Counts
from bnncert.questions.verify import verify
from bnncert.regions import Ball, L0Ball, Region


@dataclass(frozen=True, eq=False)
class Known:
    """The result of an earlier search: the largest certified count and a witness."""

    certified: int | None = None
    witness: FloatArray | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SmallestResult(Answer):
    """Bounds of the smallest perturbation, in counts: steps of the grid, or changed inputs for L0.

    ``print`` and notebooks show one row for each verification of the search.

    Attributes
    ----------
    norm, label
        The norm of the balls, and the class of their centre.
    counts
        Converts counts to radii in input units (`counts.radius(3)`).
    certified
        The largest certified count; None if not even the centre is certified.
    falsified
        The count of the witness; None if there is none.
    limit
        The largest count of the search.
    covers_data
        Whether the ball of `limit` contains the whole data box.
    probes
        The verifications, in the order in which they were made; their radii are counts.
    seconds
        The time of the whole search.
    witness
        A counterexample of the count `falsified`.
    certificate
        The file with the proof of `certified`, if it was requested and written.
    no_certificate
        Why there is no certificate.
    """

    HOLDS = frozenset({"exact"})
    notes = ()

    norm: str
    label: int
    counts: Counts
    certified: int | None
    falsified: int | None
    limit: int
    covers_data: bool
    probes: tuple[Probe, ...]
    seconds: float
    witness: Counterexample | None = None
    certificate: str | None = None
    no_certificate: str = ""

    @property
    def status(self) -> Literal["exact", "open"]:
        """Whether the minimum is known, or that there is none up to the limit."""
        return "exact" if self.is_closed else "open"

    @property
    def lower(self) -> int | None:
        """The largest certified count."""
        return self.certified

    @property
    def upper(self) -> int | None:
        """The count of the witness."""
        return self.falsified

    @property
    def evidence(self) -> Counterexample | None:
        """The witness."""
        return self.witness

    @property
    def summary(self) -> str:
        """Both sides and the number of verifications."""
        known = [] if self.certified is None else [f"{self.norm} count {self.certified} certified"]
        known += [] if self.falsified is None else [f"{self.falsified} falsified"]
        told = ", ".join(known) or "nothing known"
        return f"{told}, {len(self.probes)} verifications"

    def columns(self) -> Columns:
        """Return the verifications of the search; their radii are counts."""
        return Columns(*probe_rows(self.probes))

    @property
    def minimum(self) -> int | None:
        """The count of the smallest perturbation; None while it is not known."""
        below = -1 if self.certified is None else self.certified
        return self.falsified if self.falsified == below + 1 else None

    @property
    def is_closed(self) -> bool:
        """Whether the minimum is known, or no count up to the limit has a counterexample."""
        return self.minimum is not None or self.certified == self.limit

    def facts(self) -> dict[str, Any]:
        """Return the distances in input units, and their counts."""
        known = {"certified": self.certified, "falsified": self.falsified, "minimum": self.minimum}
        return {
            "norm": self.norm,
            "label": self.label,
            **{name: None if n is None else self.counts.radius(n) for name, n in known.items()},
            "counts": known,
            "step": self.counts.step,
            "limit": self.limit,
            "covers_data": self.covers_data,
            "calls": len(self.probes),
            "probes": [asdict(probe) for probe in self.probes],
            "witness": self.witness and self.witness.to_dict(),
        }


def smallest(
    network: Network,
    centre: Ball | L0Ball,
    label: int,
    *,
    targets: Targets = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    maximum: float | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: Path | None = None,
    known: Known | None = None,
) -> SmallestResult:
    """Find the smallest perturbation of a point for which the class is not `label`.

    Parameters
    ----------
    network
        The network.
    centre
        A ball around the point with the norm, data box and grid; its radius is ignored.
    label
        The class that the inputs around the point should have.
    targets, ties, sign_zero, method, options, progress
        Those of :func:`verify`.
    maximum
        The largest radius of interest, in input units.
    timeout
        Seconds for the whole search; None sets no limit.
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
    MissingExtraError
        If the method needs a package that is not installed.
    Interrupted
        On Ctrl-C; its `answer` is what was known by then.

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
    REGISTRY.make(method)
    counts = Counts(centre)
    deadline = Deadline(timeout)
    # This ball states only the point and its data box; norm and grid are those of the counts.
    point = Ball("linf", centre.middle, 0.0, centre.clip_lo, centre.clip_hi)
    search = CountBisection(point, maximum, None, counts=counts)
    verifier = CountVerifier(
        *(network, point, label, targets, ties, options, progress, deadline),
        search=search,
        lower=LowerSide(certificate),
    )
    try:
        if known is not None:
            _resume(search, verifier, known)
        with writing_for(certificate):
            bisect(search, verifier, method)
            _certify_known(search, verifier, method)
            _prefer_strict(search, verifier, method)
    except KeyboardInterrupt as stop:
        raise Interrupted(search.smallest(verifier)) from stop
    return search.smallest(verifier)


def _resume(search: CountBisection, verifier: CountVerifier, known: Known) -> None:
    """Start from the result of an earlier search."""
    if known.certified is not None:
        search.lower = float(known.certified)
    if known.witness is None:
        return
    count = search.counts.count(known.witness)
    problem = verifier.problem(verifier.ball(float(count)))
    replayer = Replayer(problem, verifier.runtime)
    for target in problem.targets:
        found = replayer.confirm(target, known.witness)
        if found is not None:
            search.learn(Probe(float(count), "replay", "not_robust", 0.0), found)
            return
    raise InputError("the witness of the earlier search is not a counterexample of this question")


def _prefer_strict(search: CountBisection, verifier: CountVerifier, method: str) -> None:
    """Look for a strict counterexample of the same count, if the witness is a tie."""
    tie, seconds = search.counterexample, time_for_strict(verifier.deadline).remaining()
    if tie is None or not tie.tie or search.upper == 0 or seconds <= 0:
        return
    found = verify(
        *(verifier.network, verifier.ball(search.upper), verifier.label),
        targets=verifier.targets,
        ties="robust",
        method=method,
        timeout=seconds,
        options=verifier.options,
        progress=verifier.progress,
    ).counterexample
    if found is not None and search.measure(found) == search.upper:
        search.counterexample = found


def _certify_known(search: CountBisection, verifier: CountVerifier, method: str) -> None:
    """Prove the lower side again if its certificate is wanted, and there is none.

    An earlier search has proved it, or the share of the time was too short for the certificate.
    """
    lower = verifier.lower
    if lower.path is None or search.lower < 0:
        return
    proved_here = any(p.status == "robust" and p.radius == search.lower for p in search.probes)
    if not proved_here or (lower.is_late and not verifier.deadline.passed()):
        search.learn(*verifier.verify(search.lower, 1.0, method))


@dataclass
class CountBisection(Bisection):
    """Bisection on counts: every radius of the search is a count."""

    counts: Counts = field(kw_only=True)
    _least_first: bool = False

    def __post_init__(self) -> None:
        """Find the largest count of interest."""
        if self.maximum is not None and not 0 < self.maximum < math.inf:
            raise InputError(f"the largest radius is {self.maximum}; expected a number > 0")
        farthest = self.counts.farthest
        limit = min(farthest, LARGEST_COUNT)
        if self.maximum is not None:
            limit = min(limit, self.counts.within(self.maximum))
        self.limit, self.first = float(limit), 1.0
        ball = self.counts.ball
        has_data_box = ball.within is None
        self.covers_data = limit >= farthest and has_data_box

    def measure(self, found: Counterexample) -> float:
        """Return the count of a counterexample."""
        return float(self.counts.count(found.point))

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

    def smallest(self, verifier: CountVerifier) -> SmallestResult:
        """Return the result so far."""
        lower = verifier.lower
        has_certificate = lower.count is not None and lower.count == self.lower
        return SmallestResult(
            norm=self.counts.norm,
            label=int(verifier.label),
            counts=self.counts,
            certified=int(self.lower) if math.isfinite(self.lower) else None,
            falsified=int(self.upper) if math.isfinite(self.upper) else None,
            limit=int(self.limit),
            covers_data=self.covers_data,
            probes=tuple(self.probes),
            seconds=verifier.deadline.elapsed(),
            witness=self.counterexample,
            certificate=str(lower.path) if has_certificate else None,
            no_certificate=lower.reason,
        )


@dataclass(frozen=True, eq=False)
class CountVerifier(BallVerifier):
    """Verifies the balls of counts around one centre."""

    search: CountBisection
    lower: LowerSide

    def problem(self, ball: Region) -> Problem:
        """Return the question about a ball."""
        return robustness(self.network, ball, self.label, self.targets, self.ties)

    def ball(self, radius: float) -> Region:
        """Return the ball of a count."""
        return self.search.counts.ball_of(radius)

    def prefix(self, radius: float) -> str:
        """Return both sides and the count that is asked about."""
        search, text = self.search, self.search.counts.text
        sides = f"certified {text(search.lower)}, falsified {text(search.upper)}"
        return f"{sides}, at {text(radius)}: "

    def certificate(self) -> Path | None:
        """Return the file of the next certificate."""
        return self.lower.next_file()

    def finish(self, radius: float, result: Result) -> None:
        """Keep the certificate of a proof."""
        self.lower.finish(radius, result)

    def nearer(self, problem: Problem, found: Counterexample) -> Counterexample:
        """Return a counterexample with a smaller count, or this one."""
        shrink = Shrinking(problem, self.search.counts, self.deadline)
        return shrink(Replayer(problem, self.runtime), found)
