"""The largest size of a shape of change at which the class is proved.

A path of images is swept once up to the largest radius of interest.  Its cells are known exactly,
so the radius is exact: `lower` and `upper` are neighbouring floats, or equal up to the rounding of
one float.  The sizes of patches and shifts are whole numbers, which are verified one after the
other; a size is certified only if all smaller ones are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from bnncert.deadline import OutOfTimeError
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods.sweep import STAGE, SweptCell, point_of, simplest_between, sweep
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample, Status
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Problem, Rivals, Target, Ties, robustness
from bnncert.questions.prover import Prover, Search
from bnncert.questions.radius.radius_answer import Probe, RadiusResult
from bnncert.questions.union_search import UnionQuestion, UnionSearch
from bnncert.regions import ImagePath, ImageShift, Patch

#: The shapes whose size is searched.
Sized: TypeAlias = ImagePath | Patch | ImageShift

#: The share of the remaining time for one size.
SHARE = 0.5


@dataclass(eq=False)
class ShapeSearch(Search[RadiusResult]):
    """A search for the size of a shape around one image; the size of `region` does not matter."""

    network: Network
    region: Sized
    label: int
    rivals: Rivals
    ties: Ties
    maximum: float | None
    prover: Prover
    #: What is known: the bounds, the largest size of the search, and whether it covers all data.
    lower: float = -math.inf
    upper: float = math.inf
    limit: float = 0.0
    covers_data: bool = False
    example: Counterexample | None = None
    probes: list[Probe] = field(default_factory=list)

    def run(self) -> None:
        """Find the largest certified and the smallest falsified size."""
        if isinstance(self.region, ImagePath):
            self._sweep(self.region)
        else:
            self._verify_sizes(self.region)

    def answer(self) -> RadiusResult:
        """State the bounds, which hold at any time."""
        known = (self.lower, self.upper, self.limit, self.covers_data, tuple(self.probes))
        seconds = self.prover.deadline.elapsed()
        return RadiusResult(self.region.norm, self.label, *known, seconds, self.example)

    def _learn(self, size: float, status: Status, seconds: float) -> None:
        self.probes.append(Probe(size, self.prover.effort.method, status, seconds))

    # -- paths of images ----------------------------------------------------------------------

    def _sweep(self, centre: ImagePath) -> None:
        """Sweep the path up to the largest radius."""
        self.limit, self.covers_data = limit, _ = self._limit(centre)
        path = centre.with_radius(limit)
        problem = robustness(self.network, path, self.label, self.rivals, self.ties)
        self.prover.tell(f"{STAGE} up to radius {limit:.4g}", 0, 1)
        nearest = _Nearest(problem, path)
        try:
            for judged in sweep(problem, path, self.prover.deadline):
                nearest.take(judged)
        except OutOfTimeError:
            self._learn(limit, "timeout", self.prover.deadline.elapsed())
            return
        self.lower, self.upper, self.example = nearest.bounds(limit)
        missed: Status = "not_robust" if self.example else "unknown"
        status = "robust" if self.lower >= limit else missed
        self._learn(limit, status, self.prover.deadline.elapsed())

    def _limit(self, centre: ImagePath) -> tuple[float, bool]:
        """Return the largest radius of the search, and whether a larger one changes nothing."""
        if centre.norm == "contrast":
            return min(1.0, self.maximum or 1.0), False
        if centre.clip_lo is None or centre.clip_hi is None:
            if self.maximum is None:
                raise InputError("brightness without a data box needs a largest radius")
            return self.maximum, False
        # Beyond this offset all inputs are at one side of the data box.
        reach = np.maximum(centre.clip_hi - centre.middle, centre.middle - centre.clip_lo)
        cover = float(np.nextafter(reach.max(), np.inf))
        return (cover, True) if self.maximum is None else (min(cover, self.maximum), False)

    # -- patches and shifts -------------------------------------------------------------------

    def _verify_sizes(self, centre: Patch | ImageShift) -> None:
        """Verify sizes from 0 on until one is falsified."""
        height, width = centre.pixels.shape[:2]
        most = min(height, width) - (centre.norm == "shift")
        self.limit = float(int(most if self.maximum is None else min(most, self.maximum)))
        is_proved = True
        for size in range(int(self.limit) + 1):
            if self.prover.deadline.passed() and self.probes:
                return
            is_proved &= self._verify(centre.with_radius(size)) == "robust"
            if self.example is not None:
                self.upper = float(size)
                return
            if is_proved:
                self.lower = float(size)

    def _verify(self, union: Patch | ImageShift) -> Status:
        size, left = union.stated_radius, self.prover.deadline.remaining()
        told = self.prover.told(f"radius {size:g}: ")
        question = UnionQuestion(self.network, union, self.label, self.rivals, self.ties)
        limit = None if math.isinf(left) else max(1e-3, SHARE * left)
        try:
            effort = replace(self.prover.effort, timeout=limit, progress=told)
            result = UnionSearch(question, effort).outcome()
        except Interrupted as stop:
            self._learn(size, stop.answer.status, stop.answer.seconds)
            raise
        self._learn(size, result.status, result.seconds)
        self.example = result.counterexample
        return result.status


class _Nearest:
    """The violated and undecided cells that are nearest to the image itself."""

    def __init__(self, problem: Problem, path: ImagePath) -> None:
        self._problem, self._path = problem, path
        #: (distance, whether it is not attained) of the nearest cell that is not proved.
        self._open: tuple[Fraction, bool] | None = None
        self._violated: tuple[tuple[Fraction, bool], SweptCell, Target] | None = None

    def take(self, judged: list[SweptCell]) -> None:
        """Look at one cell, with what is known about each target."""
        for swept, target in zip(judged, self._problem.targets, strict=True):
            if swept.is_violated is False:
                continue
            far = self._distance(swept)
            if self._open is None or far < self._open:
                self._open = far
            if swept.is_violated and (self._violated is None or far < self._violated[0]):
                self._violated = far, swept, target

    def _distance(self, swept: SweptCell) -> tuple[Fraction, bool]:
        """Return the distance of a cell, and whether no image of the cell has it."""
        cell, middle = swept.cell, self._path.nominal
        if (
            cell.lo < middle < cell.hi
            or (cell.lo == middle and cell.has_lo)
            or (cell.hi == middle and cell.has_hi)
        ):
            return Fraction(0), False
        if cell.lo >= middle:
            return cell.lo - middle, not cell.has_lo
        return middle - cell.hi, not cell.has_hi

    def bounds(self, limit: float) -> tuple[float, float, Counterexample | None]:
        """Return the largest certified and the smallest falsified float, and its counterexample."""
        lower = limit
        if self._open is not None:
            far, missed = self._open
            lower = float_below(far)
            if not missed and Fraction(lower) == far:
                lower = -math.inf if far == 0 else math.nextafter(lower, -math.inf)
        if self._violated is None:
            return lower, math.inf, None
        (far, missed), swept, target = self._violated
        upper = float_above(far)
        if missed and Fraction(upper) == far:
            upper = math.nextafter(upper, math.inf)
        found = self._example(swept, target, far, missed, Fraction(upper))
        return lower, math.inf if found is None else upper, found

    def _example(
        self, swept: SweptCell, target: Target, far: Fraction, missed: bool, upper: Fraction
    ) -> Counterexample | None:
        """Return the image of the cell that is nearest to the image itself, or one beside it."""
        path, cell = self._path, swept.cell
        above = cell.lo >= path.nominal
        t = path.nominal + (far if above else -far)
        if missed and above:
            t = simplest_between(t, min(cell.hi, path.nominal + upper))
        elif missed:
            t = simplest_between(max(cell.lo, path.nominal - upper), t)
        replayer = Replayer(self._problem, OnnxRuntime.of(self._problem.network))
        return point_of(replayer, path, target, t)
