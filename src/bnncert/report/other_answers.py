"""Explanations, weight faults and counts as the page and the files show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from fractions import Fraction
from statistics import median_low
from typing import Any, TypeVar

from bnncert.engine.rounded_bounds import lower_text, rounded, upper_text
from bnncert.errors import FormatError
from bnncert.results.rows import Kind, OtherAnswer
from bnncert.results.schema import finite_number
from bnncert.results.store import Recorded

#: Counts with more digits are shown in powers of ten, with this many digits.
MOST_DIGITS, SHOWN_DIGITS = 15, 4

ShownT = TypeVar("ShownT")


@dataclass(frozen=True, eq=False)
class ShownExplanation:
    """A set of inputs that suffices for the class."""

    answer: OtherAnswer
    kept: tuple[int, ...]
    #: The number of inputs of the network, and of kept ones that are not shown to be needed.
    inputs: int
    open: int

    @property
    def is_minimal(self) -> bool:
        """Whether each kept input is shown to be needed."""
        return self.open == 0

    @property
    def kept_text(self) -> str:
        """The number of kept inputs and their share."""
        return f"{len(self.kept)} of {self.inputs} ({100 * len(self.kept) / self.inputs:.1f} %)"

    @property
    def minimal_text(self) -> str:
        """Whether the set is minimal, or how many members are open."""
        return "minimal" if self.is_minimal else f"sufficient, {self.open} open"


@dataclass(frozen=True, eq=False)
class ShownFaults:
    """How many faults of one scope are tolerated around one input."""

    answer: OtherAnswer
    #: What fails (weights or thresholds), and where.
    faults: str
    scope: str
    #: No set of `certified` faults changes the class; the `falsified` faults of `bits` do.
    certified: int | None
    falsified: int | None
    is_exact: bool
    #: The number of faults that the scope has room for.
    limit: int
    bits: tuple[str, ...]

    @property
    def certified_text(self) -> str:
        """The certified number, or that all faults together are tolerated."""
        if self.certified is None:
            return "-"
        return f"all {self.limit}" if self.certified == self.limit else str(self.certified)

    @property
    def exact_text(self) -> str:
        """Whether both numbers meet."""
        return "exact" if self.is_exact else "open"


@dataclass(frozen=True, eq=False)
class ShownCount:
    """Bounds of the number of points with another class."""

    answer: OtherAnswer
    total: Decimal
    lower: Decimal
    upper: Decimal
    #: The estimated share, the ends of its interval, and the level of the interval; or nothing.
    estimate: tuple[float, float, float, float] | None

    @property
    def is_exact(self) -> bool:
        """Whether the bounds meet."""
        return self.lower == self.upper

    @property
    def share_text(self) -> str:
        """The bounds as shares of all points, rounded outwards."""
        below, above = (Fraction(end) / Fraction(self.total) for end in (self.lower, self.upper))
        if below == above and below in (0, 1):
            return f"{100 * int(below)} %"
        return f"{lower_text(100 * below)} to {upper_text(100 * above)} %"

    @property
    def estimate_text(self) -> str:
        """The estimated share with its interval, or a dash."""
        if self.estimate is None:
            return "-"
        share, low, high, level = (100 * value for value in self.estimate)
        return f"{share:.4g} % ({lower_text(low)} to {upper_text(high)} %, level {level:g} %)"


def shown_explanations(recorded: Recorded) -> list[ShownExplanation]:
    """Return the explanations of a file."""
    return _all(recorded, "explain", _explanation)


def shown_faults(recorded: Recorded) -> list[ShownFaults]:
    """Return a row for each input and scope of the answers about faults."""
    return [row for rows in _all(recorded, "faults", _fault_rows) for row in rows]


def shown_counts(recorded: Recorded) -> list[ShownCount]:
    """Return the counts of a file."""
    return _all(recorded, "count", _count)


def count_text(count: Decimal, rounding: str) -> str:
    """Return a count with commas, or a long one in powers of ten and rounded in one direction."""
    if count < Decimal(10) ** MOST_DIGITS:
        return f"{int(count):,}"
    short = rounded(Fraction(count), SHOWN_DIGITS, rounding)
    return f"{short.scaleb(-short.adjusted()).normalize():f}e{short.adjusted()}"


def lower_count(count: Decimal) -> str:
    """Return a lower bound of a count."""
    return count_text(count, ROUND_FLOOR)


def upper_count(count: Decimal) -> str:
    """Return an upper bound of a count."""
    return count_text(count, ROUND_CEILING)


def _all(
    recorded: Recorded, kind: Kind, read: Callable[[OtherAnswer, Mapping[str, Any]], ShownT]
) -> list[ShownT]:
    """Read the answers of one kind; a payload with other fields is named by its file and place."""
    found = []
    for answer in recorded.of_kind(kind):
        try:
            found.append(read(answer, answer.tree))
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise FormatError(
                f"{recorded.path}: answer {answer.rowid}: the payload is not that of {kind}"
            ) from error
    return found


def _explanation(answer: OtherAnswer, tree: Mapping[str, Any]) -> ShownExplanation:
    kept, inputs = tuple(map(_whole, tree["kept"])), _whole(tree["inputs"])
    if inputs == 0 or any(i >= inputs for i in kept):
        raise ValueError
    return ShownExplanation(answer, kept, inputs, len(tree["open"]))


def _fault_rows(answer: OtherAnswer, tree: Mapping[str, Any]) -> list[ShownFaults]:
    return [
        ShownFaults(
            answer,
            faults=str(row["faults"]),
            scope=str(row["name"]),
            certified=None if row["certified"] is None else _whole(row["certified"]),
            falsified=None if row["falsified"] is None else _whole(row["falsified"]),
            is_exact=row["exact"] is True,
            limit=_whole(row["limit"]),
            bits=tuple(_bit(bit) for bit in row["bits"]),
        )
        for row in tree["rows"]
    ]


def _bit(bit: Mapping[str, Any]) -> str:
    """Return a fault in words: `layer 1, neuron 2, input 3: 1 -> -1`."""
    output = bit["layer"] == "output"
    where = "output" if output else f"layer {_whole(bit['layer'])}"
    neuron = _whole(bit["neuron"])
    old, new = finite_number(bit["old"]), finite_number(bit["new"])
    if old is None or new is None:
        raise ValueError
    if bit["input"] is None:
        return f"{where}, neuron {neuron}: threshold stuck, sign {new:+g}"
    place = "score" if output else "neuron"
    return f"{where}, {place} {neuron}, input {_whole(bit['input'])}: {old:g} -> {new:g}"


def _count(answer: OtherAnswer, tree: Mapping[str, Any]) -> ShownCount:
    total, lower, upper = (_digits(tree[name]) for name in ("total", "lower", "upper"))
    if not 0 <= lower <= upper <= total or total == 0:
        raise ValueError
    found = tree["estimate"]
    estimate = None
    if found is not None:
        share, low, high, level = (
            finite_number(found[name]) for name in ("share", "low", "high", "confidence")
        )
        if share is None or low is None or high is None or level is None:
            raise ValueError
        estimate = (share, low, high, level)
    return ShownCount(answer, total, lower, upper, estimate)


def _whole(value: Any) -> int:
    """Return a whole number >= 0; raise if it is another value."""
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _digits(value: Any) -> Decimal:
    """Return a count, which is a text of digits because it may be very long."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError
    return Decimal(value)


def other_lines(recorded: Recorded) -> list[str]:
    """Return a line for each kind of answers that the file has."""
    lines = []
    explanations = shown_explanations(recorded)
    if explanations:
        kept = [len(one.kept) for one in explanations]
        minimal = sum(one.is_minimal for one in explanations)
        lines.append(
            f"{len(kept)} explanation{_s(kept)}, {minimal} minimal; inputs kept: median "
            f"{median_low(kept)}, {min(kept)} to {max(kept)}"
        )
    faults = shown_faults(recorded)
    if faults:
        exact = sum(one.is_exact for one in faults)
        inputs = {one.answer.key for one in faults}
        lines.append(
            f"weight faults: {len(inputs)} answer{_s(inputs)} about {len(faults)} "
            f"scope{_s(faults)}, {exact} exact"
        )
    counts = shown_counts(recorded)
    if counts:
        exact = sum(one.is_exact for one in counts)
        lines.append(f"{len(counts)} count{_s(counts)} of points, {exact} exact")
    return lines


def _s(things: Sized) -> str:
    """Return the ending of a plural."""
    return "" if len(things) == 1 else "s"
