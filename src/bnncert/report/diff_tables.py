"""A comparison of two results files as tables for the terminal, a page, and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from bnncert.engine.answer import lower_text, upper_text
from bnncert.regions.radii import inputs_text, radius_text
from bnncert.report.simple_page import simple_page, simple_table
from bnncert.results.diff import Change, Comparison, Contradiction, Pair
from bnncert.results.rows import Row

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
        for rows in zip(*((p.before, p.after) for p in comparison.pairs), strict=True)
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
