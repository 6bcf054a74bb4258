"""What a count of the grid points with another class has found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any, Literal

from bnncert.arrays import FloatArray
from bnncert.engine.answer import Answer, Columns, lower_text, rounded, upper_text
from bnncert.kernel.claims.counting import rival_words
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Ties

#: Counts with more digits are shown in powers of ten, with a few digits.
MOST_SHOWN_DIGITS, SHOWN_DIGITS = 15, 4


def count_digits(count: int) -> str:
    """Return all digits of a count; Python itself refuses to write very long integers."""
    return str(Decimal(count))


def count_text(count: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return a count with commas, or a long one in powers of ten, rounded as `decimal` names it."""
    if abs(count) < 10**MOST_SHOWN_DIGITS:
        return f"{count:,}"
    return f"about {rounded(Fraction(count), SHOWN_DIGITS, rounding):.3e}"


def lower_count(count: int) -> str:
    """Round a long lower bound down, so that it stays one."""
    return count_text(count, ROUND_FLOOR)


def upper_count(count: int) -> str:
    """Round a long upper bound up, so that it stays one."""
    return count_text(count, ROUND_CEILING)


@dataclass(frozen=True)
class ShareEstimate:
    r"""An estimate of the share of changed points from uniform random points of the region.

    For x changed points among n, the Clopper-Pearson interval at level 1 - a goes from the a/2
    quantile of the beta distribution B(x, n - x + 1) to the 1 - a/2 quantile of B(x + 1, n - x).
    """

    #: The number of points drawn, those that certainly have another class, and undecided ones.
    samples: int
    changed: int
    undecided: int
    #: The level of the interval: it contains the true share with at least this probability.
    confidence: float
    #: The interval of the share.
    low: float
    high: float

    @staticmethod
    def of(samples: int, changed: int, undecided: int, confidence: float) -> ShareEstimate:
        """Return the estimate; undecided points count as unchanged for `low`, else as changed."""
        from scipy.stats import beta

        tail, most = (1 - confidence) / 2, changed + undecided
        low = 0.0 if changed == 0 else float(beta.ppf(tail, changed, samples - changed + 1))
        high = 1.0 if most == samples else float(beta.ppf(1 - tail, most + 1, samples - most))
        return ShareEstimate(samples, changed, undecided, confidence, low, high)

    @property
    def share(self) -> float:
        """The share of changed points among those drawn."""
        return self.changed / self.samples


@dataclass(frozen=True, eq=False, repr=False)
class CountResult(Answer):
    """Bounds of the number of points whose class changes: lower <= number <= upper.

    Attributes
    ----------
    label
        The class that the points should have.
    total
        The number of points of the region.
    lower, upper
        The certified bounds of the number of changed points.
    estimate
        The estimate from random points; None if none were drawn.
    nodes, leaves
        The parts of the region that the search looked at, and those that it decided.
    witness
        A point with another class, if one was met.
    rivals
        The classes that count, if these are not all classes but the label.
    ties
        Whether an equal score of a rival counts: it does if a tie is a violation.
    seconds, certificate, no_certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"exact"})

    label: int
    total: int
    lower: int = field()
    upper: int = field()
    estimate: ShareEstimate | None
    nodes: int
    leaves: int
    seconds: float
    witness: FloatArray | None = None
    certificate: str | None = None
    no_certificate: str = ""
    rivals: tuple[int, ...] | None = None
    ties: Ties = "violation"

    @property
    def is_exact(self) -> bool:
        """Whether the bounds meet."""
        return self.lower == self.upper

    @property
    def status(self) -> Literal["exact", "open"]:
        """Whether the bounds meet, in a word."""
        return "exact" if self.is_exact else "open"

    @property
    def evidence(self) -> FloatArray | None:
        """The point with another class."""
        return self.witness

    @property
    def number(self) -> int | None:
        """The number of changed points, if it is known."""
        return self.lower if self.is_exact else None

    @property
    def lower_share(self) -> float:
        """The lower bound as a share of all points, rounded down."""
        return float_below(Fraction(self.lower, self.total))

    @property
    def upper_share(self) -> float:
        """The upper bound as a share of all points, rounded up."""
        return float_above(Fraction(self.upper, self.total))

    @property
    def summary(self) -> str:
        """The bounds in words."""
        total = f"of {upper_count(self.total)} point{'s' * (self.total != 1)}"
        one = self.number == 1
        changed = f"{'has' if one else 'have'} another class"
        if self.rivals is not None:
            changed = rival_words(self.label, self.rivals, self.ties, one=one)
        if self.is_exact:
            return f"{total}, exactly {count_text(self.lower)} {changed}"
        bounds = f"at least {lower_count(self.lower)} and at most {upper_count(self.upper)}"
        return f"{total}, {bounds} {changed}"

    def columns(self) -> Columns:
        """Return the bounds and the estimate as counts and as shares."""
        rows = [
            ["at least", lower_count(self.lower), lower_text(self.lower_share, 6)],
            ["at most", upper_count(self.upper), upper_text(self.upper_share, 6)],
        ]
        if (found := self.estimate) is not None:
            low, high = (Fraction(share) * self.total for share in (found.low, found.high))
            points = f"{lower_count(math.floor(low))} to {upper_count(math.ceil(high))}"
            shares = f"{lower_text(found.low, 4)} to {upper_text(found.high, 4)}"
            rows.append(["estimate", points, shares])
        return Columns(["bound", "points", "share"], rows)

    @property
    def heading(self) -> str:
        """The bounds in words; the time stands below the table."""
        return self.summary

    def below(self) -> list[str]:
        """Return the sample of the estimate, the size of the search and its time."""
        nodes = f"{self.nodes:,} node{'s' * (self.nodes != 1)}"
        leaves = f"{self.leaves:,} lea{'f' if self.leaves == 1 else 'ves'}"
        below = [f"{nodes}, {leaves}, {self.seconds:.2f} s"]
        if self.estimate is not None:
            drawn, changed = self.estimate.samples, self.estimate.changed
            level = f"level {self.estimate.confidence:.6g}"
            below.insert(0, f"estimate: {changed:,} of {drawn:,} random points, {level}")
        return below

    def facts(self) -> dict[str, Any]:
        """Return plain data; counts are texts of digits, since they can be very long."""
        return {
            "label": self.label,
            "rivals": None if self.rivals is None else list(self.rivals),
            "total": count_digits(self.total),
            "lower": count_digits(self.lower),
            "upper": count_digits(self.upper),
            "exact": self.is_exact,
            "lower_share": self.lower_share,
            "upper_share": self.upper_share,
            "estimate": None
            if self.estimate is None
            else {**asdict(self.estimate), "share": self.estimate.share},
            "nodes": self.nodes,
            "leaves": self.leaves,
            "witness": None if self.witness is None else self.witness.tolist(),
            "no_certificate": self.no_certificate,
        }
