"""The thresholds of all neurons as a table, to compare them with what a device was given."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

import numpy as np

from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import Network

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
    """Write the table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    writer.writerows(threshold_rows(network))
    return text.getvalue()
