"""The largest radius that is certified, and the smallest that is falsified.

A network that is robust at a radius is robust at all smaller radii, and a counterexample falsifies
every radius that is at least its distance.  Bisection keeps  lower < true radius <= upper  with

    lower = the largest radius at which the network is proved robust,
    upper = the smallest distance |x - centre| of a counterexample x, rounded up.

Undecided radii lie in between, and the search continues below and above them.  A counterexample is
first moved towards the centre while it remains a counterexample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bnncert.deadline import Deadline
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import BnncertError, InputError
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, square_root
from bnncert.problem import Problem, Targets, Ties, robustness
from bnncert.questions.prover import Effort
from bnncert.questions.radius_answer import Probe, RadiusResult
from bnncert.questions.shapes.shape_radius import ShapeSearch, Sized
from bnncert.questions.verify import verify
from bnncert.regions import (
    LARGEST_VALUE,
    Ball,
    Brightness,
    ChangeNorm,
    Contrast,
    ImageShift,
    Norm,
    Patch,
    Region,
)

#: The first radius as a share of the width of the data box (in each coordinate).
FIRST_SHARE = 2.0**-10

#: A search without other bounds ends at this multiple of the first radius.
FARTHEST = 2.0**30

#: The default tolerance: a share of the falsified radius, and at least a share of the first radius.
RELATIVE_TOLERANCE, SMALLEST_SHARE = 0.01, 2.0**-20

#: The share of the remaining time for one verification; it doubles if only undecided radii remain.
FIRST_SLICE = 0.25

#: The share of this time for an attack without a proof.
ATTACK_SLICE = 0.4

#: Points between a counterexample and the centre, and how many of them are checked exactly.
STEPS_INWARD, CHECKS_INWARD = 64, 4


def radius(
    network: Network,
    point: npt.ArrayLike,
    label: int,
    norm: ChangeNorm = "linf",
    *,
    clip_lo: npt.ArrayLike | None = None,
    clip_hi: npt.ArrayLike | None = None,
    value: float | None = None,
    targets: Targets = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    maximum: float | None = None,
    tolerance: float | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> RadiusResult:
    """Find the largest radius around `point` at which the network is robust, by bisection.

    Parameters
    ----------
    network
        The network.
    point
        The centre of the balls, with as many values as the network has inputs.
    label
        The class that the inputs around the point should have.
    norm
        The norm of the balls: "linf", "l2" or "l1"; or a shape of change: "brightness",
        "contrast", "patch" or "shift".
    clip_lo, clip_hi
        The data box, which must contain the point (default: none).
    value
        The value of :class:`Contrast`, :class:`Patch` or :class:`ImageShift`.
    targets, ties, sign_zero, method, options, progress
        Those of :func:`verify`.
    maximum
        The largest radius of the search.  Without it the radius is doubled until there is a
        counterexample, the ball contains the data box, or it is `FARTHEST` times the first radius.
    tolerance
        The search ends at a gap of this size (default: 1 % of the falsified radius).
    timeout
        Seconds for the whole search; None sets no limit.

    Returns
    -------
    RadiusResult
        The largest certified and the smallest falsified radius, and the counterexample.

    Raises
    ------
    InputError
        If an argument cannot be used, as for :func:`verify`, or the point is not in the data box.
    MissingExtraError
        If the method needs a package that is not installed.
    Interrupted
        On Ctrl-C; its `answer` is what was known by then.

    Examples
    --------
    The class is 0 where both signs are +1, which holds up to the radius 1/4:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> found = bnncert.radius(net, [0.5, 0], label=0, clip_lo=-1, clip_hi=1, timeout=60)
    >>> found.lower <= 0.25 < found.upper, found.gap < 0.003
    (True, True)
    """
    network = network.with_sign_zero(sign_zero)
    REGISTRY.make(method)
    if tolerance is not None and not 0 < tolerance < np.inf:
        raise InputError(f"tolerance is {tolerance}; expected a finite number > 0")
    if maximum is not None and not 0 < maximum <= LARGEST_VALUE:
        raise InputError(f"the largest radius is {maximum}; expected a number > 0")
    if norm == "brightness" or norm == "contrast" or norm == "patch" or norm == "shift":
        region = partial(_shape, network, point, norm, clip_lo, clip_hi, value)
        effort = Effort(method, timeout, options, progress)
        return ShapeSearch(network, region, label, targets, ties, maximum, effort).run()

    if norm == "l0" or value is not None:
        wrong = f"norm is {norm!r}" if norm == "l0" else f"value is {value}"
        raise InputError(f"{wrong}; the norms linf, l2 and l1 have radii without a value")
    deadline = Deadline(timeout)
    centre = Ball(norm, point, 0.0, clip_lo, clip_hi)
    search = Bisection(centre, maximum, tolerance)
    verifier = BallVerifier(network, centre, label, targets, ties, options, progress, deadline)
    try:
        bisect(search, verifier, method)
    except KeyboardInterrupt as stop:
        raise Interrupted(search.result(label, deadline)) from stop
    return search.result(label, deadline)


def _shape(
    network: Network,
    point: npt.ArrayLike,
    norm: ChangeNorm,
    clip_lo: npt.ArrayLike | None,
    clip_hi: npt.ArrayLike | None,
    value: float | None,
    radius: float,
) -> Sized:
    """Return the region of a shape of change."""
    if norm == "brightness":
        if value is not None:
            raise InputError("value belongs to contrast, patch or shift, not to brightness")
        return Brightness(point, radius, clip_lo, clip_hi)
    if norm == "contrast":
        return Contrast(point, radius, clip_lo, clip_hi, value)
    if norm == "patch":
        return Patch(point, radius, network.input_shape, clip_lo, clip_hi, value)
    return ImageShift(point, radius, network.input_shape, clip_lo, clip_hi, value)


@dataclass(frozen=True, eq=False)
class BallVerifier:
    """Verifies balls around one centre, within the time of the whole search."""

    network: Network
    centre: Ball
    label: int
    targets: Targets
    ties: Ties
    options: Options | None
    progress: Progress | None
    deadline: Deadline

    @cached_property
    def runtime(self) -> OnnxRuntime | None:
        """The model file, executed by onnxruntime, if there is one."""
        return OnnxRuntime.of(self.network)

    def verify(
        self, radius: float, share: float, method: str
    ) -> tuple[Probe, Counterexample | None]:
        """Verify a radius in a share of the remaining time, and move a counterexample inwards."""
        left = self.deadline.remaining()
        # The limit is at least a millisecond, so that the centre is always evaluated.
        limit = None if math.isinf(left) else max(left * share, 1e-3)
        ball, progress = self.ball(radius), self.progress
        result = verify(
            self.network,
            ball,
            self.label,
            targets=self.targets,
            ties=self.ties,
            method=method,
            timeout=limit,
            options=self.options,
            progress=_prefixed(progress, self.prefix(radius)),
            certificate=self.certificate(),
            # A strict counterexample may be farther away.
            strict=False,
        )
        self.finish(radius, result)
        found = result.counterexample
        if found is not None:
            problem = robustness(self.network, ball, self.label, self.targets, self.ties)
            found = self.nearer(problem, found)
        return Probe(radius, method, result.status, result.seconds), found

    def ball(self, radius: float) -> Region:
        """Return the ball of a radius."""
        centre = self.centre
        return Ball(centre.norm, centre.middle, radius, centre.clip_lo, centre.clip_hi)

    def prefix(self, radius: float) -> str:
        """Return the beginning of the progress lines of a radius."""
        return f"radius {radius:.4g}: "

    def certificate(self) -> Path | None:
        """Return the file to which the next verification writes its certificate."""
        return None

    def finish(self, radius: float, result: Result) -> None:
        """Process a result and its certificate."""

    def nearer(self, problem: Problem, found: Counterexample) -> Counterexample:
        """Return a counterexample that is nearer to the centre, or this one."""
        return _nearer(problem, self.runtime, found)


def bisect(search: Bisection, verifier: BallVerifier, method: str) -> None:
    """Verify one radius after the other until the gap is small or the deadline has passed."""
    search.learn(*verifier.verify(0.0, 1.0, method))
    share = FIRST_SLICE
    while not verifier.deadline.passed():
        radius, above = search.next_radius()
        if radius is None:
            if not search.out_of_time or share >= 1:
                break
            # Only radii that ran out of time remain: they are verified again with more time.
            share *= 2
            search.forget_undecided()
        elif above and method == "auto":
            # A radius above an undecided one is harder to prove, so it is only attacked.
            search.learn(*verifier.verify(radius, share * ATTACK_SLICE, "attack"))
        else:
            search.learn(*verifier.verify(radius, search.share(share), method))


def distance(norm: Norm, center: npt.ArrayLike, found: Counterexample) -> float:
    """Return the exact distance of a counterexample, rounded up to a float."""
    middle = [Fraction(c) for c in np.asarray(center, dtype=np.float64).tolist()]
    place = found.exact or tuple(map(Fraction, found.point.tolist()))
    gaps = [abs(x - c) for x, c in zip(place, middle, strict=True)]
    if norm == "linf":
        return float_above(max(gaps))
    if norm == "l1":
        return float_above(sum(gaps, Fraction(0)))
    return float_above(square_root(sum((g * g for g in gaps), Fraction(0)), 120).hi)


def _nearer(problem: Problem, runtime: OnnxRuntime | None, found: Counterexample) -> Counterexample:
    """Return a counterexample between this one and the centre, or this one."""
    centre, network, label = problem.inputs.center, problem.network, problem.label
    rivals = np.array([t.rival for t in problem.targets], dtype=np.int64)
    shares = np.arange(1, STEPS_INWARD)[:, None] / STEPS_INWARD
    line = centre + shares * (found.point - centre)
    scores = network.evaluate(line)
    margins = scores[:, label, None] - scores[:, rivals]
    replayer = Replayer(problem, runtime)
    for k in np.flatnonzero(margins.min(axis=1) <= 0)[:CHECKS_INWARD]:
        target = problem.targets[int(np.argmin(margins[k]))]
        nearer = replayer.confirm(target, line[k])
        if nearer is not None:
            return nearer
    return found


@dataclass
class Bisection:
    """The state of a search, and the choice of the next radius."""

    centre: Ball
    maximum: float | None
    tolerance: float | None
    lower: float = -math.inf
    upper: float = math.inf
    counterexample: Counterexample | None = None
    probes: list[Probe] = field(default_factory=list)
    #: The smallest and the largest undecided radius, if there is one.
    undecided: tuple[float, float] | None = None
    out_of_time: bool = False
    _above_next: bool = False

    def __post_init__(self) -> None:
        ball = self.centre
        reach = np.maximum(np.abs(ball.middle), 1.0)
        covering = math.inf
        if ball.clip_lo is not None and ball.clip_hi is not None:
            reach = np.maximum(ball.clip_hi - ball.middle, ball.middle - ball.clip_lo)
            # Rounded up: the ball must contain every corner.
            covering = _length(reach, ball.norm) * (1 + 1e-9)
        self.first = _length(reach, ball.norm) * FIRST_SHARE
        if not self.first > 0:
            # The data box is one point.
            self.first = covering = 1.0
        limits = (self.maximum or math.inf, covering, self.first * FARTHEST, LARGEST_VALUE)
        self.limit = min(limits)
        self.covers_data = self.limit >= covering
        self.first = min(self.first, self.limit)

    def result(self, label: int, deadline: Deadline) -> RadiusResult:
        """Return the current bounds."""
        return RadiusResult(
            norm=self.centre.norm,
            label=int(label),
            lower=self.lower,
            upper=self.upper,
            limit=self.limit,
            covers_data=self.covers_data,
            probes=tuple(self.probes),
            seconds=deadline.elapsed(),
            counterexample=self.counterexample,
        )

    def measure(self, found: Counterexample) -> float:
        """Return the distance of a counterexample from the centre, rounded up."""
        return distance(self.centre.norm, self.centre.middle, found)

    def learn(self, probe: Probe, found: Counterexample | None) -> None:
        """Update the bounds by one answer."""
        radius, status = probe.radius, probe.status
        self.probes.append(probe)
        if found is not None:
            far = self.measure(found)
            if far < self.upper:
                self.upper, self.counterexample = far, found
        elif status == "robust":
            self.lower = max(self.lower, radius)
        elif radius > 0:
            self.out_of_time |= status == "timeout"
            least, largest = self.undecided or (radius, radius)
            self.undecided = min(radius, least), max(radius, largest)
        if self.lower >= self.upper:
            raise BnncertError(
                f"contradiction: radius {self.lower!r} was certified, but there is a "
                f"counterexample at distance {self.upper!r}; please report this"
            )
        self._drop_settled()

    def _drop_settled(self) -> None:
        """Drop undecided radii that a later answer decides."""
        if self.undecided is None:
            return
        least, largest = self.undecided
        if least >= self.upper or largest <= self.lower:
            self.undecided = None
        elif largest >= self.upper:
            self.undecided = least, least
        elif least <= self.lower:
            self.undecided = largest, largest

    def share(self, share: float) -> float:
        """Return the share of the remaining time for the next verification."""
        return share

    def forget_undecided(self) -> None:
        """Allow undecided radii to be verified again."""
        self.undecided = None
        self.out_of_time = False

    def next_radius(self) -> tuple[float | None, bool]:
        """Return the radius to verify next, if any, and whether it is above undecided ones."""
        certified = max(self.lower, 0.0)
        if self.upper == 0 or certified >= self.limit:
            return None, False
        if self.undecided is None:
            return self.between(certified, self.upper), False
        below = self.between(certified, self.undecided[0])
        above = self.between(self.undecided[1], self.upper)
        # The sides alternate, so that a slow side does not use all of the time.
        self._above_next = not self._above_next
        if above is not None and (self._above_next or below is None):
            return above, True
        return below, False

    def between(self, low: float, high: float) -> float | None:
        """Return a radius that halves an interval, or None if the interval is small."""
        if math.isinf(high):
            if self.maximum is not None and low < self.limit:
                return self.limit
            grown = self.first if low == 0 else min(2 * low, self.limit)
            return grown if grown > low else None
        small = self.tolerance
        if small is None:
            largest = self.upper if math.isfinite(self.upper) else high
            small = max(RELATIVE_TOLERANCE * largest, SMALLEST_SHARE * self.first)
        if self.undecided is not None:
            # The gap consists of two such distances and the undecided radii between them.
            small /= 2
        middle = low + (high - low) / 2
        return middle if high - low > small and low < middle < high else None


def _length(step: npt.NDArray[np.float64], norm: Norm) -> float:
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    return float(np.linalg.norm(step, order))


def _prefixed(progress: Progress | None, prefix: str) -> Progress | None:
    """Return a report of progress whose lines begin with a text."""
    if progress is None:
        return None
    return lambda text, done, total: progress(prefix + text, done, total)
