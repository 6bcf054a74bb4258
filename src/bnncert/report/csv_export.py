"""The report as CSV files: every row, the counts, and the gains of the bounds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bnncert.atomic import make_folder, write_atomically
from bnncert.batch.recorded import Recorded
from bnncert.report.statistics import Panel, counts, gaps, panels

#: The files that are written: every answer, the sums, and what one method adds to another.
CSV_FILES = ("results.csv", "summary.csv", "improvements.csv")


def write_csv(recorded: Recorded, folder: Path) -> list[Path]:
    """Write results.csv, summary.csv and improvements.csv; return their paths."""
    make_folder(folder)
    known = panels(recorded)
    texts = (
        _text(_result_rows(recorded)),
        _text(_summary_rows(known)),
        _text(_improvement_rows(known)),
    )
    for name, text in zip(CSV_FILES, texts, strict=True):
        write_atomically(folder / name, text)
    return [folder / name for name in CSV_FILES]


def _text(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _result_rows(recorded: Recorded) -> Iterable[Sequence[Any]]:
    asked = (
        *("model_hash", "norm", "radius", "clip", "targets", "ties", "question", "method"),
        *("timeout", "seed", "sign_zero", "input_index", "input_hash", "label"),
    )
    found = (
        *("predicted", "status", "lower", "upper", "seconds", "stage", "certificate"),
        *("version", "finished_at", "labels"),
    )
    yield "network", *asked, *found
    for r in recorded.rows:
        # The csv module writes floats with all digits and None as an empty cell.
        yield (
            recorded.network(r.key.model_hash).name,
            *(getattr(r.key, name) for name in asked),
            *(getattr(r, name) for name in found),
        )


_PANEL = ("network", "model_hash", "norm", "clip", "targets", "ties", "labels")


def _panel(panel: Panel) -> tuple[str, ...]:
    network = panel.network
    common = (panel.norm, panel.clip, panel.targets, panel.ties, panel.labels)
    return (network.name, network.model_hash, *common)


def _summary_rows(known: Sequence[Panel]) -> Iterable[Sequence[Any]]:
    names = (
        *("radius", "series", "instances", "robust", "not_robust", "undecided", "misclassified"),
        *("mean_seconds", "max_seconds", "certified", "not_falsified"),
    )
    yield *_PANEL, *names
    for panel in known:
        for one in counts(panel):
            yield *_panel(panel), *(getattr(one, name) for name in names)


def _improvement_rows(known: Sequence[Panel]) -> Iterable[Sequence[Any]]:
    yield *_PANEL, "radius", "question", "reference", "other", "instances", "relative_improvement"
    for panel in known:
        for gap in gaps(panel):
            for one in gap.improvements:
                yield (
                    *(*_panel(panel), gap.radius, gap.question),
                    *(one.reference, one.other, one.instances, one.share),
                )
