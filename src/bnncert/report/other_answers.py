"""Explanations, weight faults and counts as lines of tables, for the page, CSV files and ``print``.

A kind of answers states how a stored answer becomes lines; all tables are made from the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from fractions import Fraction
from statistics import median_low
from typing import Any, TypeAlias

from bnncert.engine.answer import lower_text, rounded, upper_text
from bnncert.errors import FormatError
from bnncert.questions.faults.faults_answer import FaultBit
from bnncert.results.rows import Kind, OtherAnswer, finite_number
from bnncert.results.store import Recorded

#: Counts with more digits are shown in powers of ten, with this many digits.
MOST_DIGITS, SHOWN_DIGITS = 15, 4

#: The cells of a line for people (several texts are a list), and its columns in a CSV file.
_Line: TypeAlias = tuple[tuple[str | Sequence[str], ...], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class ShownLine:
    """A line of a table: cells for people under the heads of its kind, and columns of a file."""

    answer: OtherAnswer
    cells: tuple[str | Sequence[str], ...]
    facts: dict[str, Any]


@dataclass(frozen=True)
class ShownKind:
    """A kind of answers: the title, text and heads of its tables, and how its answers are read."""

    kind: Kind
    title: str
    #: How to read the table.
    text: str
    #: The name of the CSV file.
    file: str
    heads: tuple[str, ...]
    #: The heads whose cells are numbers.
    numbers: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Iterator[_Line]]
    #: Returns all lines of a file in a few words.
    summary: Callable[[Sequence[ShownLine]], str]
    #: The head of the seconds; an answer of several lines repeats its own.
    seconds: str = "seconds"

    def lines(self, recorded: Recorded) -> list[ShownLine]:
        """Return the lines of a file; an answer of another form is named by file and place."""
        found = []
        for answer in recorded.of_kind(self.kind):
            try:
                found += [ShownLine(answer, *line) for line in self.read(answer.tree)]
            except (KeyError, TypeError, ValueError, InvalidOperation) as error:
                raise FormatError(
                    f"{recorded.path}: answer {answer.rowid}: the payload is not that of "
                    f"{self.kind}"
                ) from error
        return found


def other_lines(recorded: Recorded) -> list[str]:
    """Return a sentence for each kind of answers that the file has."""
    found = ((shown, shown.lines(recorded)) for shown in SHOWN_KINDS)
    return [shown.summary(lines) for shown, lines in found if lines]


def count_text(count: Decimal, rounding: str) -> str:
    """Return a count with commas, or a long one in powers of ten and rounded in one direction."""
    if count < Decimal(10) ** MOST_DIGITS:
        return f"{int(count):,}"
    short = rounded(Fraction(count), SHOWN_DIGITS, rounding)
    return f"{short.scaleb(-short.adjusted()).normalize():f}e{short.adjusted()}"


def _explanation(tree: Mapping[str, Any]) -> Iterator[_Line]:
    kept, inputs = [_whole(i) for i in tree["kept"]], _whole(tree["inputs"])
    if inputs == 0 or any(i >= inputs for i in kept):
        raise ValueError
    open_ = len(tree["open"])
    numbers = ", ".join(map(str, kept[:20])) + (", ..." if len(kept) > 20 else "")
    share = f"{len(kept)} of {inputs} ({100 * len(kept) / inputs:.1f} %)"
    cells = (numbers or "none", share, f"sufficient, {open_} open" if open_ else "minimal")
    names = " ".join(map(str, kept))
    yield cells, {"inputs": inputs, "kept": len(kept), "open": open_, "kept_inputs": names}


def _explanations(lines: Sequence[ShownLine]) -> str:
    kept = [line.facts["kept"] for line in lines]
    minimal = sum(line.facts["open"] == 0 for line in lines)
    sizes = f"inputs kept: median {median_low(kept)}, {min(kept)} to {max(kept)}"
    return f"{_number(len(kept), 'explanation')}, {minimal} minimal; {sizes}"


def _faults(tree: Mapping[str, Any]) -> Iterator[_Line]:
    for row in tree["rows"]:
        sure, false = (
            None if row[side] is None else _whole(row[side]) for side in ("certified", "falsified")
        )
        limit, exact = _whole(row["limit"]), row["exact"] is True
        bits = [str(FaultBit(**bit)) for bit in row["bits"]]
        kind, scope = str(row["faults"]), str(row["name"])
        yield (
            (
                *(kind, scope),
                "-" if sure is None else f"all {limit}" if sure == limit else str(sure),
                "-" if false is None else str(false),
                "exact" if exact else "open",
                bits,
            ),
            {
                **{"faults": kind, "scope": scope, "certified": sure, "falsified": false},
                **{"exact": exact, "bits": "; ".join(bits)},
            },
        )


def _fault_scopes(lines: Sequence[ShownLine]) -> str:
    answers = _number(len({line.answer.key for line in lines}), "answer")
    return f"weight faults: {answers} about {_number(len(lines), 'scope')}, {_exact(lines)} exact"


def _count(tree: Mapping[str, Any]) -> Iterator[_Line]:
    total, lower, upper = (_digits(tree[name]) for name in ("total", "lower", "upper"))
    if not 0 <= lower <= upper <= total or total == 0:
        raise ValueError
    exact, estimate = lower == upper, tree["estimate"]
    below, above = (Fraction(end) / Fraction(total) for end in (lower, upper))
    shares = f"{lower_text(100 * below)} to {upper_text(100 * above)} %"
    if exact and below in (0, 1):
        shares = f"{100 * int(below)} %"
    guess: list[float | None] = [None] * 4
    shown = "-"
    if estimate is not None:
        guess = [finite_number(estimate[k]) for k in ("share", "low", "high", "confidence")]
        share, low, high, level = (100 * value for value in guess if value is not None)
        shown = f"{share:.4g} % ({lower_text(low)} to {upper_text(high)} %, level {level:g} %)"
    cells = (
        count_text(total, ROUND_CEILING),
        count_text(lower, ROUND_FLOOR),
        count_text(upper, ROUND_CEILING),
        *(shares, "exact" if exact else "open", shown),
    )
    yield (
        cells,
        {
            **{"total": str(total), "lower": str(lower), "upper": str(upper), "exact": exact},
            **{"estimate": guess[0], "estimate_low": guess[1], "estimate_high": guess[2]},
            "confidence": guess[3],
        },
    )


def _counts(lines: Sequence[ShownLine]) -> str:
    return f"{_number(len(lines), 'count')} of points, {_exact(lines)} exact"


def _exact(lines: Sequence[ShownLine]) -> int:
    return sum(line.facts["exact"] for line in lines)


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


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


_POINTS = ("points", "at least", "at most", "share")

#: All kinds of answers, in the order of the page.
SHOWN_KINDS = (
    ShownKind(
        "explain",
        "Explanations",
        "With the kept inputs as in the image, no values of the other inputs in the region change "
        "the class. Kept inputs are orange in the picture. A set is minimal if each of its members "
        "is shown to be needed; open members are not.",
        "explanations.csv",
        ("kept inputs", "inputs kept", "set"),
        ("inputs kept",),
        _explanation,
        _explanations,
    ),
    ShownKind(
        "faults",
        "Weight faults",
        "Certified: no set of so many faults changes the class of any input of the region. "
        "Falsified: the listed faults change it. Both are exact if falsified is certified + 1, or "
        "if all faults together are tolerated; those have no bar.",
        "faults.csv",
        ("faults", "where", "certified", "falsified", "", "faults found"),
        ("certified", "falsified"),
        _faults,
        _fault_scopes,
        seconds="seconds of the input",
    ),
    ShownKind(
        "count",
        "Counts",
        "How many points of a region have another class than the label: certified bounds, which "
        "are equal if the count is exact, and an estimate from random points, which proves "
        "nothing. Long numbers and shares are rounded outwards.",
        "counts.csv",
        (*_POINTS, "", "estimate"),
        _POINTS,
        _count,
        _counts,
    ),
)
