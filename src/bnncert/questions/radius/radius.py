"""The largest radius that is certified, and the smallest that is falsified."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from bnncert.engine.answer import AnswerT
from bnncert.engine.methods import Options, Progress
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.errors import BnncertError, InputError
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, square_root
from bnncert.problem import Problem, Rivals, Ties, robustness
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.questions.radius.radius_answer import Probe, RadiusResult
from bnncert.questions.radius.shape_radius import ShapeSearch
from bnncert.questions.verify import warn_outside
from bnncert.regions import (
    LARGEST_VALUE,
    Ball,
    ImagePath,
    ImageShift,
    Neighbourhood,
    Norm,
    Patch,
    Region,
)
from bnncert.regions.radii import in_input_units

#: The first radius as a share of the width of the data box (in each coordinate).
FIRST_SHARE = 2.0**-10

#: A search without other bounds ends at this multiple of the first radius.
FARTHEST = 2.0**30

#: The default tolerance: a share of the falsified radius, and at least a share of the first radius.
RELATIVE_TOLERANCE, SMALLEST_SHARE = 0.01, 2.0**-20

#: Points between a counterexample and the centre, and how many of them are checked exactly.
STEPS_INWARD, CHECKS_INWARD = 64, 4


def radius(
    network: Network,
    region: Neighbourhood,
    label: int,
    *,
    rivals: Rivals = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    maximum: float | str | None = None,
    tolerance: float | str | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> RadiusResult:
    """Find the largest radius around a point at which the network is robust, by bisection.

    Parameters
    ----------
    network, label, rivals, ties, sign_zero, method, timeout, options, progress
        Those of :func:`verify`.
    region
        The point, as the centre of a :class:`Ball` or a shape of change (:class:`Brightness`,
        :class:`Contrast`, :class:`Patch` or :class:`ImageShift`) with its data box; its own radius
        does not matter.
    maximum
        The largest radius of the search, in input units or as in "3px".  Without it the radius is
        doubled until there is a counterexample, the ball contains the data box, or it is `FARTHEST`
        times the first radius.
    tolerance
        The search ends at a gap of this size, in input units or as in "0.1px" (default: 1 % of the
        falsified radius).

    Returns
    -------
    RadiusResult
        The largest certified and the smallest falsified radius, and the counterexample.

    Raises
    ------
    InputError
        If an argument cannot be used, as for :func:`verify`, or the point is not in the data box.
    MissingExtraError, Interrupted
        As :func:`verify`.

    Examples
    --------
    The class is 0 where both signs are +1, which holds up to the radius 1/4:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0, clip_lo=-1, clip_hi=1)
    >>> found = bnncert.radius(net, ball, label=0, timeout=60)
    >>> found.lower <= 0.25 < found.upper, found.gap < 0.003
    (True, True)
    """
    network = network.with_sign_zero(sign_zero)
    if not isinstance(region, Ball | ImagePath | Patch | ImageShift):
        raise InputError(
            "radius takes a Ball, Brightness, Contrast, Patch or ImageShift, not "
            f"{type(region).__name__}"
        )
    most = checked_maximum(maximum, network, region.norm)
    gap = in_input_units(tolerance, network, region.norm, "tolerance")
    if gap is not None and not 0 < gap < math.inf:
        raise InputError(f"tolerance is {tolerance}; expected a finite number > 0")
    prover = Prover(Effort(method, timeout, options, progress), [network])
    if not isinstance(region, Ball):
        return ShapeSearch(network, region, label, rivals, ties, most, prover).outcome()
    warn_outside(network, region)
    ask = partial(robustness, network, label=label, rivals=rivals, ties=ties)
    return RealSearch(prover, ask, region.with_radius(0.0), most, gap).outcome()


def checked_maximum(
    maximum: float | str | None, network: Network, norm: str, most: float = LARGEST_VALUE
) -> float | None:
    """Return the largest radius of a search in input units, or raise InputError."""
    radius = in_input_units(maximum, network, norm, "maximum")
    if radius is not None and not 0 < radius <= most:
        raise InputError(f"the largest radius is {maximum}; expected a number > 0")
    return radius


#: The share of the remaining time for one verification; it doubles if only undecided radii remain.
FIRST_SLICE = 0.25

#: The share of this time for an attack without a proof.
ATTACK_SLICE = 0.4


class BallSearch(Search[AnswerT]):
    """Bisection on the sizes of balls around one point, which are lengths or whole numbers.

    A network that is robust at a radius is robust at all smaller radii, and a counterexample
    falsifies every radius that is at least its distance.  The search keeps, at any time,
    lower < true radius <= upper  with

        lower = the largest radius at which the network is proved robust,
        upper = the smallest distance |x - centre| of a counterexample x, rounded up.

    Undecided radii lie in between, and the search continues below and above them.
    """

    #: The largest radius of the search, and whether its ball contains the whole data box.
    limit: float
    covers_data: bool

    def __init__(self, prover: Prover, ask: partial[Problem]) -> None:
        self.prover, self.ask = prover, ask
        self.label: int = ask.keywords["label"]
        self.lower, self.upper = -math.inf, math.inf
        self.counterexample: Counterexample | None = None
        #: The part whose certificate is that of the last proof, if it has one.
        self.proved: str | None = None
        self.probes: list[Probe] = []
        #: The smallest and the largest undecided radius, if there is one.
        self.undecided: tuple[float, float] | None = None
        self._out_of_time = self._above_next = False

    @abstractmethod
    def ball(self, radius: float) -> Region:
        """Make the ball of a radius around the one centre of the search."""

    @abstractmethod
    def measure(self, found: Counterexample) -> float:
        """Return the distance of a counterexample from the centre, rounded up."""

    @abstractmethod
    def nearer(self, problem: Problem, replayer: Replayer, found: Counterexample) -> Counterexample:
        """Return a counterexample that is nearer to the centre, or this one."""

    @abstractmethod
    def between(self, low: float, high: float) -> float | None:
        """Return a radius that halves an interval, or None if the interval is small."""

    @abstractmethod
    def prefix(self, radius: float) -> str:
        """Say what is known and which radius is verified, before the progress itself."""

    def share(self, share: float) -> float:
        """Allow a search to give the next verification another share of the remaining time."""
        return share

    @cached_property
    def runtime(self) -> OnnxRuntime | None:
        """The model file, executed by onnxruntime, if there is one."""
        return OnnxRuntime.of(self.prover.networks[0])

    def part(self, radius: float) -> str:
        """Name the part about a radius, whose certificate may be that of the answer."""
        return f"radius {radius!r}"

    def run(self) -> None:
        """Verify one radius after the other until the gap is small or the deadline has passed."""
        self.verify(0.0, 1.0)
        share = FIRST_SLICE
        while not self.prover.deadline.passed():
            radius, above = self.next_radius()
            if radius is None:
                if not self._out_of_time or share >= 1:
                    break
                # Only radii that ran out of time remain: they are verified again with more time.
                share *= 2
                self.forget_undecided()
            elif above and self.prover.engine.name == "auto":
                # A radius above an undecided one is harder to prove, so it is only attacked.
                self.verify(radius, share * ATTACK_SLICE, "attack")
            else:
                self.verify(radius, self.share(share))

    def verify(self, radius: float, share: float, method: str | None = None) -> None:
        """Verify a radius in a share of the remaining time, and move a counterexample inwards."""
        problem, prover = self.ask(self.ball(radius)), self.prover
        result = prover.decide(
            problem,
            share * prover.deadline.remaining(),
            name=self.part(radius),
            method=method,
            prefix=self.prefix(radius),
        )
        if result.status == "robust":
            self.proved = None if result.certificate is None else self.part(radius)
        found = result.counterexample
        if found is not None:
            found = self.nearer(problem, Replayer(problem, self.runtime), found)
        self.learn(Probe(radius, result.method, result.status, result.seconds), found)

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
            self._out_of_time |= status == "timeout"
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

    def forget_undecided(self) -> None:
        """Allow undecided radii to be verified again."""
        self.undecided = None
        self._out_of_time = False

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


class RealSearch(BallSearch[RadiusResult]):
    """A search on radii of any size; `centre` is the ball of radius 0."""

    def __init__(
        self,
        prover: Prover,
        ask: partial[Problem],
        centre: Ball,
        maximum: float | None,
        tolerance: float | None,
    ) -> None:
        super().__init__(prover, ask)
        self.centre, self._maximum, self._tolerance = centre, maximum, tolerance
        ball = centre
        reach = np.maximum(np.abs(ball.middle), 1.0)
        covering = math.inf
        if ball.clip_lo is not None and ball.clip_hi is not None:
            reach = np.maximum(ball.clip_hi - ball.middle, ball.middle - ball.clip_lo)
            # Rounded up: the ball must contain every corner.
            covering = _length(reach, ball.norm) * (1 + 1e-9)
        self._first = _length(reach, ball.norm) * FIRST_SHARE
        if not self._first > 0:
            # The data box is one point.
            self._first = covering = 1.0
        limits = (maximum or math.inf, covering, self._first * FARTHEST, LARGEST_VALUE)
        self.limit = min(limits)
        self.covers_data = self.limit >= covering
        self._first = min(self._first, self.limit)

    def answer(self) -> RadiusResult:
        """State the bounds, which hold at any time."""
        known = (self.lower, self.upper, self.limit, self.covers_data, tuple(self.probes))
        seconds, found = self.prover.deadline.elapsed(), self.counterexample
        return RadiusResult(self.centre.norm, int(self.label), *known, seconds, found)

    def ball(self, radius: float) -> Ball:
        """Keep the centre, the data box and the grid of all balls."""
        return self.centre.with_radius(radius)

    def prefix(self, radius: float) -> str:
        """Name the radius that is verified."""
        return f"radius {radius:.4g}: "

    def measure(self, found: Counterexample) -> float:
        """Return the exact distance of a counterexample, rounded up to a float."""
        return distance(self.centre.norm, self.centre.middle, found)

    def nearer(self, problem: Problem, replayer: Replayer, found: Counterexample) -> Counterexample:
        """Return a counterexample between this one and the centre, or this one."""
        centre, network, label = problem.inputs.center, problem.network, problem.label
        rivals = np.array([t.rival for t in problem.targets], dtype=np.int64)
        shares = np.arange(1, STEPS_INWARD)[:, None] / STEPS_INWARD
        line = centre + shares * (found.point - centre)
        scores = network.evaluate(line)
        margins = scores[:, label, None] - scores[:, rivals]
        for k in np.flatnonzero(margins.min(axis=1) <= 0)[:CHECKS_INWARD]:
            target = problem.targets[int(np.argmin(margins[k]))]
            nearer = replayer.confirm(target, line[k])
            if nearer is not None:
                return nearer
        return found

    def between(self, low: float, high: float) -> float | None:
        """Return the middle of an interval, or a larger radius if it has no end."""
        if math.isinf(high):
            if self._maximum is not None and low < self.limit:
                return self.limit
            grown = self._first if low == 0 else min(2 * low, self.limit)
            return grown if grown > low else None
        small = self._tolerance
        if small is None:
            largest = self.upper if math.isfinite(self.upper) else high
            small = max(RELATIVE_TOLERANCE * largest, SMALLEST_SHARE * self._first)
        if self.undecided is not None:
            # The gap consists of two such distances and the undecided radii between them.
            small /= 2
        middle = low + (high - low) / 2
        return middle if high - low > small and low < middle < high else None


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


def _length(step: npt.NDArray[np.float64], norm: Norm) -> float:
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    return float(np.linalg.norm(step, order))
