"""What a search for the largest radius, or for the smallest perturbation, has found.

The smallest perturbation has a distance from the centre that is a whole number.  With the places
k_i of a grid (x_i = origin_i + step k_i) and those h_i of the centre, the count of a point is

    L-inf  max_i |k_i - h_i|,     L1  sum_i |k_i - h_i|,     L2  sum_i (k_i - h_i)^2,

and the radius of a count m is step m, or step sqrt(m) for L2.  For L0 the count is the number of
inputs that differ from the centre, which needs no grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.answer import Answer, Columns
from bnncert.engine.verdict import Counterexample, Status, finite_bounds, finite_or_none
from bnncert.errors import InputError
from bnncert.regions import Ball, ChangeNorm, L0Ball

#: The largest count; the radii of larger consecutive counts may be equal as floats.
LARGEST_COUNT = 2**28


class WholeDistances:
    """The distances from the centre of a ball; raises InputError unless they are whole numbers."""

    def __init__(self, ball: Ball | L0Ball) -> None:
        self.ball = ball
        self.norm = str(ball.norm)
        self._values = ball.values
        self.step = 1.0
        if self.norm == "l0":
            return
        if self._values is None:
            raise InputError(
                "the exact smallest perturbation needs a grid (--grid 1px) or norm l0: real inputs "
                "may come as near to it as they like without attaining it"
            )
        steps = self._values.step
        self.step = float(steps[0])
        if np.any(steps != self.step):
            raise InputError("the smallest perturbation needs one grid step for all inputs")
        off = np.flatnonzero(~self._values.has(ball.middle))
        if off.size:
            i = int(off[0])
            raise InputError(
                "the smallest perturbation needs a centre on the grid: input "
                f"{i} = {ball.middle[i]:.9g} is not on it"
            )

    @cached_property
    def home(self) -> FloatArray:
        """The places of the centre."""
        return self.places(self.ball.middle)

    def places(self, point: FloatArray) -> FloatArray:
        """Return the places of grid points; without a grid (L0 needs none), the points."""
        return point if self._values is None else self._values.nearest(point)

    def points(self, places: FloatArray) -> FloatArray:
        """Return the points of places."""
        return places if self._values is None else self._values.at(places)

    def of(self, places: FloatArray) -> FloatArray:
        """Return the counts of places, of one point or of one in each row."""
        away = np.abs(places - self.home)
        if self.norm == "l0":
            return np.asarray(np.sum(away > 0, axis=-1, dtype=np.float64))
        if self.norm == "linf":
            return np.asarray(away.max(axis=-1, initial=0.0))
        return np.asarray((away if self.norm == "l1" else away * away).sum(axis=-1))

    def count(self, point: FloatArray) -> int:
        """Return the count of a point."""
        return int(self.of(self.places(point)))

    def radius(self, count: float) -> float:
        """Return the radius of the ball of the points up to a count."""
        return self.step * (math.sqrt(count) if self.norm == "l2" else count)

    def ball_of(self, count: float) -> Ball | L0Ball:
        """Return the ball of the points up to a count."""
        return self.ball.with_radius(self.radius(count))

    def within(self, radius: float) -> int:
        """Return the largest count of a radius."""
        share = radius / self.step
        return math.floor((share * share if self.norm == "l2" else share) * (1 + 1e-9) + 1e-9)

    @property
    def farthest(self) -> float:
        """The largest count in the data box; infinite without one."""
        ball = self.ball
        if self.norm == "l0":
            return float(self.home.size)
        if ball.clip_lo is None or ball.clip_hi is None:
            return math.inf
        assert self._values is not None
        low, high = self._values.first_from(ball.clip_lo), self._values.last_until(ball.clip_hi)
        return float(self.of(np.where(high - self.home > self.home - low, high, low)))

    def text(self, count: float | None) -> str:
        """Return a count with its unit."""
        if count is None or not math.isfinite(count):
            return "-"
        number = f"sqrt({int(count)})" if self.norm == "l2" else f"{int(count)}"
        unit = "input" if self.norm == "l0" else "step"
        return f"{number} {unit}" + ("" if count == 1 and self.norm != "l2" else "s")


#: Digits of a radius in tables and descriptions.
DIGITS = 6


@dataclass(frozen=True)
class Probe:
    """One verification of the search."""

    radius: float
    method: str
    status: Status
    seconds: float


def _shown(radius: float, is_robust: bool) -> str:
    """Return a radius with few digits, rounded to the side on which its answer holds."""
    context = Context(prec=DIGITS, rounding=ROUND_FLOOR if is_robust else ROUND_CEILING)
    # The digits of `repr` are those of the float: 0.3 is shown as 0.3.
    return f"{float(context.create_decimal(Decimal(repr(float(radius))))):.{DIGITS}g}"


def probe_columns(probes: Sequence[Probe]) -> Columns:
    """Show radii rounded to the side on which their answer holds."""
    heads = ["radius", "answer", "method", "seconds"]
    rows = [
        [
            _shown(p.radius, p.status == "robust"),
            *(p.status.replace("_", " "), p.method, f"{p.seconds:.2f}"),
        ]
        for p in probes
    ]
    return Columns(heads, rows)


@dataclass(frozen=True, eq=False, repr=False)
class RadiusResult(Answer):
    """Bounds of the robustness radius: lower < radius <= upper.

    ``print`` and notebooks show one row for each verification of the search.

    Attributes
    ----------
    norm, label
        The norm of the balls, and the class of their centre.
    lower
        The largest certified radius; -inf if the centre is not certified.
    upper
        The smallest falsified radius, at which the ball contains the counterexample; inf if none.
    limit
        The largest radius of the search.
    covers_data
        Whether the ball of radius `limit` contains the whole data box.
    probes
        The verifications, in the order in which they were made.
    seconds
        The time of the whole search.
    counterexample
        The nearest counterexample that was found.
    """

    HOLDS = frozenset({"certified"})

    norm: ChangeNorm
    label: int
    lower: float = field()
    upper: float = field()
    limit: float
    covers_data: bool
    probes: tuple[Probe, ...]
    seconds: float
    counterexample: Counterexample | None = None

    @property
    def status(self) -> Literal["certified", "falsified", "unknown"]:
        """Whether a radius is certified, or else whether one is falsified."""
        if self.lower >= 0:
            return "certified"
        return "falsified" if self.upper < math.inf else "unknown"

    @property
    def evidence(self) -> Counterexample | None:
        """The nearest counterexample."""
        return self.counterexample

    @property
    def summary(self) -> str:
        """Both sides and the number of verifications."""
        known = []
        if self.lower >= 0:
            known.append(f"{self.norm} radius {_shown(self.lower, True)} certified")
        if self.upper < math.inf:
            known.append(f"{_shown(self.upper, False)} falsified")
        told = ", ".join(known) or "nothing known"
        return f"{told}, {self.calls} verifications"

    def columns(self) -> Columns:
        """Show how the gap was closed, verification by verification."""
        return probe_columns(self.probes)

    @property
    def gap(self) -> float:
        """The difference between `upper` and `lower`."""
        return self.upper - self.lower

    @property
    def calls(self) -> int:
        """The number of verifications."""
        return len(self.probes)

    def facts(self) -> dict[str, Any]:
        """Return both sides and the verifications (infinite numbers become None)."""
        return {
            "norm": self.norm,
            "label": self.label,
            **finite_bounds(self),
            "gap": finite_or_none(self.gap),
            "limit": self.limit,
            "covers_data": self.covers_data,
            "calls": self.calls,
            "probes": [asdict(probe) for probe in self.probes],
            "counterexample": self.counterexample and self.counterexample.to_dict(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class SmallestResult(Answer):
    """Bounds of the smallest perturbation, in counts: steps of the grid, or changed inputs for L0.

    ``print`` and notebooks show one row for each verification of the search.

    Attributes
    ----------
    counts
        Converts counts to radii in input units (`counts.radius(3)`).
    certified
        The largest certified count, of which there may be a certificate; None if not even the
        centre is certified.
    falsified, witness
        The count of the nearest counterexample, and the counterexample; None if there is none.
    norm, label, limit, covers_data, probes
        Those of :class:`RadiusResult`; the limit and the radii of the verifications are counts.
    seconds, certificate, no_certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"exact"})

    norm: str
    label: int
    counts: WholeDistances
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
    def status(self) -> Literal["exact", "falsified", "open"]:
        """Whether the minimum is known, or that there is none up to the limit.

        "falsified" as for :class:`RadiusResult`: the centre itself has another class.
        """
        if self.falsified == 0:
            return "falsified"
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
        return probe_columns(self.probes)

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
