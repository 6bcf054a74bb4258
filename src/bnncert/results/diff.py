"""What changed between two results files: answers, bounds, times, and contradictions.

Two rows are about the same *question* if network, input, label, region, rivals, ties and sign(0)
are equal; method, time limit and seed may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from typing import Literal, TypeAlias

from bnncert.results.rows import InstanceKey, NetworkRecord, Row, RowStatus
from bnncert.results.store import Recorded

#: Fields of a key, except those that say how a question is answered or where its input was found.
_HOW = ("method", "timeout", "seed", "input_index")
_ABOUT = tuple(f.name for f in fields(InstanceKey) if f.name not in _HOW)

#: Bounds that differ by a smaller share are equal: files hold them as rounded numbers.
SAME_BOUND = 1e-6

#: A time has changed if it differs by this factor and by this many seconds.
SLOWER, LEAST_SECONDS = 1.25, 0.1

_DECIDED = ("robust", "not_robust", "misclassified")

#: How an answer or a bound changed.
Change: TypeAlias = Literal["lost", "gained", "other", "same"]


@dataclass(frozen=True, eq=False)
class Contradiction:
    """Two rows about one question of which one must be wrong.

    Either one proves the property and the other has a counterexample, or a lower bound is above an
    upper bound.
    """

    #: The row that proves more, and the file that it is in (0 or 1).
    proved: Row
    proved_in: int
    #: The row that refutes it.
    refuted: Row
    refuted_in: int

    @property
    def is_about_answers(self) -> bool:
        """Whether the answers contradict each other, and not only the bounds."""
        return self.proved.status == "robust" and _is_falsified(self.refuted.status)


@dataclass(frozen=True, eq=False)
class Pair:
    """The rows of two files about one question."""

    before: Row
    after: Row

    @property
    def answer(self) -> Change:
        """How the answer changed: `lost` is a verdict that the second file does not have."""
        old, new = self.before.status, self.after.status
        if old == new:
            return "same"
        decided = old in _DECIDED, new in _DECIDED
        return "lost" if decided == (True, False) else "gained" if decided[1] else "other"

    @property
    def bound(self) -> Change:
        """How the lower bound changed: `lost` is a smaller one."""
        old, new = self.before.lower, self.after.lower
        if old is None or new is None:
            return "same" if old is new else "lost" if new is None else "gained"
        if abs(new - old) <= SAME_BOUND * max(1.0, abs(old), abs(new)):
            return "same"
        return "lost" if new < old else "gained"

    @property
    def time(self) -> Change:
        """How the time changed: `lost` is a longer one."""
        old, new = self.before.seconds, self.after.seconds
        if abs(new - old) < LEAST_SECONDS or max(old, new) < SLOWER * min(old, new):
            return "same"
        return "lost" if new > old else "gained"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two results files side by side."""

    files: tuple[Recorded, Recorded]
    contradictions: tuple[Contradiction, ...]
    pairs: tuple[Pair, ...]
    #: Rows of one file whose question the other does not have.
    missing: tuple[Row, ...]
    new: tuple[Row, ...]

    def network(self, row: Row) -> NetworkRecord:
        """Return the network of a row, from the file that describes it."""
        known = self.files[row.key.model_hash not in self.files[0].networks]
        return known.network(row.key.model_hash)

    def changed(self, what: Callable[[Pair], Change]) -> list[Pair]:
        """Return the pairs with a change, what was lost first."""
        order = ("lost", "gained", "other")
        found = [(what(pair), pair) for pair in self.pairs]
        changes = [(order.index(change), pair) for change, pair in found if change != "same"]
        return [pair for _, pair in sorted(changes, key=lambda item: item[0])]


def question_of(key: InstanceKey) -> tuple[Hashable, ...]:
    """Return what a row is about, without how it was answered."""
    return tuple(getattr(key, name) for name in _ABOUT)


def compare_results(before: Recorded, after: Recorded) -> Comparison:
    """Compare two results files.

    Rows are matched if all settings are equal, else if the method is equal, else if each file has
    one row that is left about the question.
    """
    left, right = list(before.rows), list(after.rows)
    pairs: list[Pair] = []
    questions = {row.key: question_of(row.key) for row in chain(left, right)}
    levels: tuple[Callable[[Row], Hashable], ...] = (
        lambda row: row.key,
        lambda row: (questions[row.key], row.key.method),
        lambda row: questions[row.key],
    )
    for level in levels:
        found, left, right = _matched(left, right, level)
        pairs += found
    order = {row.key: place for place, row in enumerate(before.rows)}
    pairs.sort(key=lambda pair: order[pair.before.key])
    return Comparison(
        (before, after),
        tuple(_contradictions(before.rows, after.rows, questions)),
        tuple(pairs),
        tuple(left),
        tuple(right),
    )


def _matched(
    left: list[Row], right: list[Row], level: Callable[[Row], Hashable]
) -> tuple[list[Pair], list[Row], list[Row]]:
    """Return the pairs that are alone on both sides, and the other rows."""
    groups: dict[Hashable, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((left, right)):
        for row in rows:
            groups.setdefault(level(row), ([], []))[side].append(row)
    pairs, rest = [], (list[Row](), list[Row]())
    for old, new in groups.values():
        if len(old) == len(new) == 1:
            pairs.append(Pair(old[0], new[0]))
        else:
            rest[0].extend(old)
            rest[1].extend(new)
    return pairs, *rest


def _contradictions(
    before: Iterable[Row], after: Iterable[Row], questions: dict[InstanceKey, tuple[Hashable, ...]]
) -> Iterator[Contradiction]:
    """Yield one contradiction for each question that has some, those of answers first."""
    groups: dict[Hashable, list[tuple[Row, int]]] = {}
    for side, rows in enumerate((before, after)):
        for row in rows:
            groups.setdefault(questions[row.key], []).append((row, side))
    found = [c for group in groups.values() if (c := _contradiction(group)) is not None]
    yield from sorted(found, key=lambda c: not c.is_about_answers)


def _contradiction(group: list[tuple[Row, int]]) -> Contradiction | None:
    """Return the contradiction among the rows about one question, or None."""
    robust = next((item for item in group if item[0].status == "robust"), None)
    falsified = next((item for item in group if _is_falsified(item[0].status)), None)
    if robust is not None and falsified is not None:
        return Contradiction(*robust, *falsified)
    lower = max(group, key=lambda item: -float("inf") if item[0].lower is None else item[0].lower)
    upper = min(group, key=lambda item: float("inf") if item[0].upper is None else item[0].upper)
    low, high = lower[0].lower, upper[0].upper
    if low is None or high is None or low - high <= SAME_BOUND * max(1.0, abs(low), abs(high)):
        return None
    return Contradiction(*lower, *upper)


def _is_falsified(status: RowStatus) -> bool:
    return status in ("not_robust", "misclassified")
