"""What every question returns, and what Ctrl-C leaves of it.

An answer has a status in one word and a sentence, bounds, evidence, the columns of its table, notes
and a certificate.  Tables, notebooks, JSON, results files and pages are made from these alone, so
that a new question states its facts and nothing else.

In short texts a lower bound is rounded down and an upper bound up: a text rounded to nearest could
state more than is proved.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from bnncert.model.text_table import PrintedAsTable, TextTable

#: Significant digits of a bound, and of one whose absolute value is at least `LARGE`.
DIGITS, DIGITS_OF_LARGE, LARGE = 4, 6, 10_000


def lower_text(value: float | Fraction, digits: int | None = None) -> str:
    """Return a lower bound rounded down, or a dash if it is not finite."""
    return _text(value, digits, ROUND_FLOOR)


def upper_text(value: float | Fraction, digits: int | None = None) -> str:
    """Return an upper bound rounded up, or a dash if it is not finite."""
    return _text(value, digits, ROUND_CEILING)


def rounded(value: float | Fraction, digits: int, rounding: str) -> Decimal:
    """Return a finite number with this many significant digits, rounded as `decimal` names it."""
    exact = Fraction(value)
    context = Context(prec=digits, rounding=rounding)
    return context.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _text(value: float | Fraction, digits: int | None, rounding: str) -> str:
    if not math.isfinite(value):
        return "-"
    if digits is None:
        digits = DIGITS if -LARGE < value < LARGE else DIGITS_OF_LARGE
    # As the format `g` of floats does, which would round again.
    short = rounded(value, digits, rounding).normalize()
    exponent = short.adjusted()
    if not short or -5 < exponent < digits:
        return f"{short:f}"
    return f"{short.scaleb(-exponent):f}e{exponent:+03d}"


class Columns(NamedTuple):
    """The table of an answer; the first `left` columns are aligned to the left."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


class Answer(PrintedAsTable):
    """The answer to a question: ``if answer:`` is true where it is shown to hold.

    ``print`` and notebooks show a table.  A question's own answer is a frozen dataclass with this
    base; each has the attributes below, as fields or as properties.

    Attributes
    ----------
    status
        The answer in one word, such as "robust", "minimal" or "timeout".
    lower, upper
        Bounds of what the question asks for, if it is a number; else None.
    evidence
        What shows the answer: a counterexample, a pair of inputs, witnesses, a list of bits.
    notes
        Remarks for the user, one line each.
    certificate, no_certificate
        The file of the certificate if it was requested and written, and why there is none.
    seconds
        The time of the whole question.
    """

    #: The words of `status` that mean that the property holds.
    HOLDS: ClassVar[frozenset[str]] = frozenset()
    #: Those of all questions that mean that it does not; after other words it is undecided.
    FAILS: ClassVar[frozenset[str]] = frozenset({"not_robust", "different", "fails", "falsified"})

    if TYPE_CHECKING:
        # Types alone: a dataclass would take a property of its base as a default value.
        status: Any
        evidence: Any
        seconds: Any

    # What a question does not have.  A dataclass takes them as the defaults of its fields, too, so
    # that bounds which an answer must state are `field()`.
    lower: Any = None
    upper: Any = None
    notes: Any = ()
    certificate: Any = None
    no_certificate: Any = ""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The answer in one sentence, without the time."""

    @abstractmethod
    def columns(self) -> Columns:
        """Return the table of the answer: one row for each part that was decided."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what only this question's answers have, as plain data for JSON."""

    def __bool__(self) -> bool:
        return self.status in self.HOLDS

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.heading})"

    @property
    def heading(self) -> str:
        """The answer in one sentence, with the time."""
        return f"{self.summary}, in {self.seconds:.2f} s"

    def below(self) -> list[str]:
        """Return the lines below the table, besides notes and the certificate."""
        return []

    def table(self, *, certificate: bool = True) -> TextTable:
        """Return the answer with its columns, its notes and, unless not wanted, its certificate."""
        heads, rows, left = self.columns()
        below = [*self.below(), *(f"note: {note}" for note in self.notes)]
        if certificate and self.certificate is not None:
            below.append(f"certificate: {self.certificate}")
        return TextTable(self.heading, heads, rows, below, left)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "status": self.status,
            "summary": self.summary,
            **self.facts(),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "certificate": self.certificate,
        }


AnswerT = TypeVar("AnswerT", bound=Answer)


class Interrupted(KeyboardInterrupt, Generic[AnswerT]):
    """Ctrl-C while a question is answered; `answer` is what was known by then."""

    def __init__(self, answer: AnswerT) -> None:
        super().__init__("interrupted")
        self.answer = answer
