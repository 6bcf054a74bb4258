"""CSV files: every answer of a report, the counts, the gains of the bounds; and thresholds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.model.formats.atomic import make_folder, write_atomically
from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import Network
from bnncert.regions.radii import inputs_text, radius_in_px
from bnncert.report.other_answers import SHOWN_KINDS, ShownLine
from bnncert.report.statistics import Panel, counts, gaps, panels
from bnncert.results.store import Recorded

#: The files: all verdicts and bounds, the counts of them, the gains of the reference method, and
#: answers of other kinds.
CSV_FILES = (
    *("results.csv", "summary.csv", "improvements.csv"),
    *(shown.file for shown in SHOWN_KINDS),
)


def write_csv(recorded: Recorded, folder: Path) -> list[Path]:
    """Write the files, of other kinds of answers only those with a row; return their paths."""
    make_folder(folder)
    known = panels(recorded)
    tables: dict[str, Iterable[Sequence[Any]]] = {
        "results.csv": _result_rows(recorded),
        "summary.csv": _summary_rows(known),
        "improvements.csv": _improvement_rows(known),
    }
    for shown in SHOWN_KINDS:
        if lines := shown.lines(recorded):
            tables[shown.file] = _other_rows(recorded, lines)
    for name, rows in tables.items():
        write_atomically(folder / name, _text(rows))
    return [folder / name for name in tables]


def _text(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _result_rows(recorded: Recorded) -> Iterable[Sequence[Any]]:
    asked = (
        *("model_hash", "norm", "radius", "clip", "rivals", "ties", "question", "method"),
        *("timeout", "seed", "sign_zero", "input_index", "input_hash", "label"),
    )
    found = (
        *("predicted", "status", "lower", "upper", "seconds", "stage", "certificate"),
        *("version", "finished_at", "labels"),
    )
    yield "network", *asked, *found, *_REGION, "radius_px", "tie"
    falsified = [r for r in recorded.rows if r.status in ("not_robust", "misclassified")]
    ties = {r.rowid: one.found.get("tie") for r, one in recorded.evidence(falsified)}
    for r in recorded.rows:
        network = recorded.network(r.key.model_hash)
        step = network.pixel_step
        # The csv module writes floats with all digits and None as an empty cell.
        yield (
            network.name,
            *(getattr(r.key, name) for name in asked),
            *(getattr(r, name) for name in found),
            *(inputs_text(r.key.grid_step, step), r.key.grid_step, r.key.within),
            radius_in_px(r.key.radius, r.key.norm, step),
            ties.get(r.rowid),
        )


#: The columns about the inputs of a region, the last ones of each file.
_REGION = ("inputs", "grid_step", "within")
_PANEL = ("network", "model_hash", "norm", "clip", "rivals", "ties", "labels")


def _panel(panel: Panel) -> tuple[str, ...]:
    network = panel.network
    common = (panel.key.norm, panel.key.clip, panel.key.rivals, panel.key.ties, panel.labels)
    return (network.name, network.model_hash, *common)


def _region(panel: Panel, radius: float) -> tuple[Any, ...]:
    pixels = radius_in_px(radius, panel.key.norm, panel.network.pixel_step)
    return panel.inputs, panel.key.grid_step, panel.key.within, pixels


def _summary_rows(known: Sequence[Panel]) -> Iterable[Sequence[Any]]:
    names = (
        *("radius", "series", "instances", "robust", "not_robust", "undecided", "misclassified"),
        *("mean_seconds", "max_seconds", "certified", "not_falsified"),
    )
    yield *_PANEL, *names, *_REGION, "radius_px"
    for panel in known:
        for one in counts(panel):
            cells = (getattr(one, name) for name in names)
            yield *_panel(panel), *cells, *_region(panel, one.radius)


def _improvement_rows(known: Sequence[Panel]) -> Iterable[Sequence[Any]]:
    names = ("radius", "question", "reference", "other", "instances", "relative_improvement")
    yield *_PANEL, *names, *_REGION, "radius_px"
    for panel in known:
        for gap in gaps(panel):
            for one in gap.improvements:
                yield (
                    *(*_panel(panel), gap.radius, gap.question),
                    *(one.reference, one.other, one.instances, one.share),
                    *_region(panel, gap.radius),
                )


_ASKED = ("model_hash", "input_name", "input_hash", "label", "labels", "region", "settings")
_FOUND = ("status", "seconds", "certificate", "version", "finished_at")


def _other_rows(recorded: Recorded, lines: Sequence[ShownLine]) -> Iterable[Sequence[Any]]:
    yield "network", *_ASKED, *lines[0].facts, *_FOUND
    for line in lines:
        asked, found = ([getattr(line.answer, n) for n in names] for names in (_ASKED, _FOUND))
        network = recorded.network(line.answer.model_hash).name
        yield network, *asked, *line.facts.values(), *found


#: A neuron is +1 iff the sum of its weights times its inputs is at least `threshold`, or for +-1
#: weights and inputs, iff at least `agreeing` of the inputs have the sign of their weight.
HEADS = ("layer", "name", "neuron", "weights", "threshold", "agreeing", "note")

EITHER = "either sign at the threshold"


def threshold_rows(network: Network) -> Iterator[tuple[str, ...]]:
    """Yield a row for each neuron of each threshold layer."""
    step, lo = network.pixel_step, network.input_lo
    whole_inputs = step == 1.0 and lo is not None and bool(np.all(lo == np.rint(lo)))
    for number, layer in enumerate(network.layers, start=1):
        counts = np.diff(layer.rows.indptr)
        for j in range(layer.size):
            cells = (str(number), layer.name, str(j), str(int(counts[j])))
            yield (*cells, *_threshold(layer, j, int(counts[j]), whole_inputs))


def _threshold(layer: ThresholdLayer, j: int, count: int, whole_inputs: bool) -> tuple[str, ...]:
    """State the threshold of a neuron, the number of agreeing inputs, and what is special."""
    if layer.is_lattice:
        ties = layer.tie is not None and bool(layer.tie[j]) and layer.sign_zero == "either"
        least = int(layer.plus_from[j])
        agreeing = str((least + count) // 2) if int(layer.norm[j]) == count else ""
        return str(least), agreeing, EITHER if ties else ""
    low, high = -float(layer.enclosure[1][j]), -float(layer.enclosure[0][j])
    if low != high:
        return repr(low + (high - low) / 2), "", f"irrational, known to {high - low:.3g}"
    row = layer.rows.data[layer.rows.indptr[j] : layer.rows.indptr[j + 1]]
    if whole_inputs and layer.sign_zero != "either" and np.all(row == np.rint(row)):
        # Sums of integers: the next integer decides them in the same way.
        return str(math.floor(low) + 1 if layer.sign_zero == "minus" else math.ceil(low)), "", ""
    notes = {"plus": "", "minus": "-1 at the threshold", "either": EITHER}
    return repr(low + 0.0), "", notes[layer.sign_zero]


def threshold_csv(network: Network) -> str:
    """Return the thresholds of all neurons, to compare them with what a device was given."""
    return _text([HEADS, *threshold_rows(network)])
