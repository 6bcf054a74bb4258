"""Explanations, weight faults and counts as the rows of CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bnncert.report.other_answers import shown_counts, shown_explanations, shown_faults
from bnncert.results.rows import OtherAnswer
from bnncert.results.store import Recorded

#: The files of answers of other kinds.
OTHER_FILES = ("explanations.csv", "faults.csv", "counts.csv")

_ASKED = ("model_hash", "input_name", "input_hash", "label", "labels", "region", "settings")
_FOUND = ("status", "seconds", "certificate", "version", "finished_at")


def other_tables(recorded: Recorded) -> dict[str, list[Sequence[Any]]]:
    """Return the rows of each file, with the heads first."""

    def line(answer: OtherAnswer, *cells: Any) -> Sequence[Any]:
        asked = (getattr(answer, name) for name in _ASKED)
        found = (getattr(answer, name) for name in _FOUND)
        return (recorded.network(answer.model_hash).name, *asked, *cells, *found)

    heads = {
        "explanations.csv": ("inputs", "kept", "open", "kept_inputs"),
        "faults.csv": ("faults", "scope", "certified", "falsified", "exact", "bits"),
        "counts.csv": (
            *("total", "lower", "upper", "exact"),
            *("estimate", "estimate_low", "estimate_high", "confidence"),
        ),
    }
    rows: dict[str, list[Sequence[Any]]] = {
        name: [("network", *_ASKED, *own, *_FOUND)] for name, own in heads.items()
    }
    for one in shown_explanations(recorded):
        kept = " ".join(map(str, one.kept))
        rows["explanations.csv"].append(line(one.answer, one.inputs, len(one.kept), one.open, kept))
    for row in shown_faults(recorded):
        sides = (row.certified, row.falsified, row.is_exact)
        cells = (row.faults, row.scope, *sides, "; ".join(row.bits))
        rows["faults.csv"].append(line(row.answer, *cells))
    for count in shown_counts(recorded):
        estimate = (None,) * 4 if count.estimate is None else count.estimate
        bounds = (str(count.total), str(count.lower), str(count.upper), count.is_exact)
        rows["counts.csv"].append(line(count.answer, *bounds, *estimate))
    return rows
