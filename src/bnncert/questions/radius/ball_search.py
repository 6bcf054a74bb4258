"""Bisection on the sizes of balls around one point.

A network that is robust at a radius is robust at all smaller radii, and a counterexample falsifies
every radius that is at least its distance.  Bisection keeps  lower < true radius <= upper  with

    lower = the largest radius at which the network is proved robust,
    upper = the smallest distance |x - centre| of a counterexample x, rounded up.

Undecided radii lie in between, and the search continues below and above them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property, partial

from bnncert.engine.answer import AnswerT
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.errors import BnncertError
from bnncert.problem import Problem
from bnncert.questions.prover import Prover, Search
from bnncert.questions.radius.radius_answer import Probe
from bnncert.regions import Region

#: The share of the remaining time for one verification; it doubles if only undecided radii remain.
FIRST_SLICE = 0.25

#: The share of this time for an attack without a proof.
ATTACK_SLICE = 0.4


class BallSearch(Search[AnswerT]):
    """The state of a search, which is complete at any time, and the choice of the next radius.

    The radii of a subclass are lengths or whole numbers.

    Attributes
    ----------
    prover
        Decides about one ball; the certificate of a radius has the name `part`.
    ask, label
        Makes the problem of a ball, which should have the label.
    limit, covers_data
        The largest radius of the search, and whether its ball contains the whole data box.
    lower, upper, counterexample
        The largest certified radius, and the smallest falsified one with its counterexample.
    proved
        The part whose certificate is that of the last proof, if it has one.
    probes
        The verifications.
    undecided
        The smallest and the largest undecided radius, if there is one.
    """

    limit: float
    covers_data: bool

    def __init__(self, prover: Prover, ask: partial[Problem]) -> None:
        self.prover, self.ask = prover, ask
        self.label: int = ask.keywords["label"]
        self.lower, self.upper = -math.inf, math.inf
        self.counterexample: Counterexample | None = None
        self.proved: str | None = None
        self.probes: list[Probe] = []
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
