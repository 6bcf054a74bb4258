"""What changed between two results files: answers, bounds, times, and contradictions.

Two rows are about the same *question* if network, input, label, region, rivals, ties and sign(0)
are equal; method, time limit and seed may differ.  A comparison is shown as tables on the terminal,
as a page, and as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from bnncert.engine.answer import lower_text, upper_text
from bnncert.regions.radii import inputs_text, radius_text
from bnncert.report.page.markup import simple_page, simple_table
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


class Pair(NamedTuple):
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
        tuple(_contradicting(before.rows, after.rows, questions)),
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


def _contradicting(
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


#: The letters of the files in tables.
LETTERS = ("A", "B")


@dataclass(frozen=True)
class ChangeTable:
    """A table with a sentence above it; `loud` is something that must not be overlooked."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    loud: bool = False


def instance_cells(comparison: Comparison, row: Row) -> tuple[str, ...]:
    """Return what a row is about: network, input, label and region."""
    key, network = row.key, comparison.network(row)
    radius = f"{key.norm} {radius_text(key.radius, key.norm, network.pixel_step)}"
    if key.grid is not None:
        radius += f", {inputs_text(key.grid_step, network.pixel_step)}"
    return network.name, str(key.input_index), str(key.label), radius


ABOUT = ("network", "input", "label", "region")


def answer_word(row: Row) -> str:
    """Return the answer of a row in words."""
    return row.status.replace("_", " ")


def bound_text(row: Row, side: Literal["lower", "upper"]) -> str:
    """Return a bound of a row, or a dash if there is none."""
    if side == "lower":
        return "-" if row.lower is None else lower_text(row.lower, 6)
    return "-" if row.upper is None else upper_text(row.upper, 6)


def headline(comparison: Comparison) -> list[str]:
    """Return the sentences above the tables."""
    lines = [
        f"{letter}: {file.path}, {len(file.rows)} answers"
        for letter, file in zip(LETTERS, comparison.files, strict=True)
    ]
    lines.append(
        f"{len(comparison.pairs)} instances are in both, {len(comparison.missing)} only in A, "
        f"{len(comparison.new)} only in B"
    )
    decided = [
        sum(r.status in ("robust", "not_robust", "misclassified") for r in rows)
        for rows in zip(*comparison.pairs, strict=True)
    ]
    if decided:
        old, new = (
            math.fsum(getattr(p, side).seconds for p in comparison.pairs)
            for side in ("before", "after")
        )
        ratio = f" ({new / old:.2f} times as long)" if old > 0 else ""
        lines.append(
            f"in both: decided {decided[0]} in A, {decided[1]} in B; {old:.1f} s in A, {new:.1f} s "
            f"in B{ratio}"
        )
    return lines


def sections(comparison: Comparison) -> list[ChangeTable]:
    """Return all tables, the contradictions first."""
    made = [
        _contradictions(comparison),
        _changes(
            comparison,
            ("answer", "answers"),
            lambda pair: pair.answer,
            lambda row: answer_word(row),
            ("became undecided", "became decided", "changed otherwise"),
        ),
        _changes(
            comparison,
            ("lower bound", "lower bounds"),
            lambda pair: pair.bound,
            lambda row: bound_text(row, "lower"),
            ("became weaker", "became tighter", ""),
        ),
        _changes(
            comparison,
            ("seconds", "times"),
            lambda pair: pair.time,
            lambda row: f"{row.seconds:.2f}",
            ("became longer", "became shorter", ""),
        ),
        _alone(comparison, "only in A", comparison.missing),
        _alone(comparison, "only in B", comparison.new),
    ]
    return [section for section in made if section.rows]


def _contradictions(comparison: Comparison) -> ChangeTable:
    rows = [
        (
            *instance_cells(comparison, found.proved),
            _claim(found, found.proved, found.proved_in, "lower"),
            _claim(found, found.refuted, found.refuted_in, "upper"),
        )
        for found in comparison.contradictions
    ]
    answers = sum(found.is_about_answers for found in comparison.contradictions)
    parts = []
    if answers:
        parts.append(f"{answers} robust in one row and falsified in another")
    if len(rows) > answers:
        parts.append(f"{len(rows) - answers} with a lower bound above an upper bound")
    title = f"CONTRADICTIONS: {' and '.join(parts)}"
    return ChangeTable(title, (*ABOUT, "one row", "another row"), tuple(rows), loud=True)


def _claim(found: Contradiction, row: Row, file: int, side: Literal["lower", "upper"]) -> str:
    """Return what a row states, and where."""
    what = answer_word(row)
    if not found.is_about_answers:
        what = f"{side} bound {bound_text(row, side)}"
    return f"{what} ({LETTERS[file]}, {row.key.method})"


def _changes(
    comparison: Comparison,
    name: tuple[str, str],
    what: Callable[[Pair], Change],
    text: Callable[[Row], str],
    words: tuple[str, str, str],
) -> ChangeTable:
    """Return the table of one kind of change; `words` are for lost, gained and other."""
    pairs = comparison.changed(what)
    changes = [what(pair) for pair in pairs]
    counts = zip(words, ("lost", "gained", "other"), strict=True)
    parts = [f"{changes.count(kind)} {word}" for word, kind in counts if kind in changes]
    rows = tuple(
        (
            *instance_cells(comparison, pair.before),
            _methods(pair),
            text(pair.before),
            text(pair.after),
        )
        for pair in pairs
    )
    heads = (*ABOUT, "method", f"{name[0]} in A", f"{name[0]} in B")
    return ChangeTable(f"{name[1]}: {', '.join(parts)}", heads, rows)


def _methods(pair: Pair) -> str:
    """Return the method, or both if they differ."""
    return " / ".join(dict.fromkeys((pair.before.key.method, pair.after.key.method)))


def _alone(comparison: Comparison, where: str, rows: Sequence[Row]) -> ChangeTable:
    cells = tuple(
        (*instance_cells(comparison, row), row.key.method, answer_word(row)) for row in rows
    )
    return ChangeTable(f"{where}: {len(rows)}", (*ABOUT, "method", "answer"), cells)


def comparison_tree(comparison: Comparison) -> dict[str, Any]:
    """Return everything for JSON."""
    pairs = comparison.pairs

    def tree(row: Row) -> dict[str, Any]:
        return _row_tree(comparison, row)

    def changed(what: Callable[[Pair], Change]) -> list[dict[str, Any]]:
        return [
            {
                **{"before": tree(pair.before), "after": tree(pair.after)},
                **{"answer": pair.answer, "bound": pair.bound, "time": pair.time},
            }
            for pair in pairs
            if what(pair) != "same"
        ]

    return {
        "files": [str(file.path) for file in comparison.files],
        "answers": [len(file.rows) for file in comparison.files],
        "in_both": len(pairs),
        "contradictions": [
            {
                "kind": "answers" if c.is_about_answers else "bounds",
                "proved": tree(c.proved) | {"file": LETTERS[c.proved_in]},
                "refuted": tree(c.refuted) | {"file": LETTERS[c.refuted_in]},
            }
            for c in comparison.contradictions
        ],
        "changed_answers": changed(lambda pair: pair.answer),
        "changed_bounds": changed(lambda pair: pair.bound),
        "changed_times": changed(lambda pair: pair.time),
        "seconds": [
            math.fsum(p.before.seconds for p in pairs),
            math.fsum(p.after.seconds for p in pairs),
        ],
        "only_in_first": [tree(row) for row in comparison.missing],
        "only_in_second": [tree(row) for row in comparison.new],
    }


def _row_tree(comparison: Comparison, row: Row) -> dict[str, Any]:
    """Return the question of a row and its answer."""
    key = row.key
    return {
        "network": comparison.network(row).name,
        "network_hash": key.model_hash,
        "input": key.input_index,
        **{name: getattr(key, name) for name in ("label", "norm", "radius", "grid")},
        **{name: getattr(key, name) for name in ("rivals", "method")},
        **{name: getattr(row, name) for name in ("status", "lower", "upper", "seconds")},
    }


#: The most rows of a table in the page.
MOST_ROWS = 5000


def comparison_page(comparison: Comparison) -> str:
    """Return the page."""
    title = " and ".join(file.path.name for file in comparison.files)
    tables = sections(comparison)
    loud = [section for section in tables if section.loud]
    lines = "".join(f"<p>{escape(line)}</p>" for line in headline(comparison))
    if not loud:
        lines += "<p>There are no contradictions.</p>"
    if len(tables) == len(loud):
        lines += "<p>No answer, bound or time has changed.</p>"
    body = "".join(map(_section_html, loud)) + lines
    body += "".join(_section_html(section) for section in tables if not section.loud)
    return simple_page(f"Changes: {title}", f"Changes between {title}", body)


def _section_html(section: ChangeTable) -> str:
    shown = section.rows[:MOST_ROWS]
    rest = len(section.rows) - len(shown)
    more = f"<p>{rest} more are in the file of <code>--json</code>.</p>" if rest else ""
    title = section.title[0].upper() + section.title[1:]
    return simple_table(title, section.heads, shown, loud=section.loud) + more
