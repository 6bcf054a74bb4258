"""Tables for the terminal."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from rich.table import Table
from rich.text import Text

from bnncert.engine.methods import REGISTRY
from bnncert.engine.rounded_bounds import lower_text, upper_text
from bnncert.engine.verdict import Finding, Result, Status, TargetResult
from bnncert.model.network import Network
from bnncert.report.plain_table import plain_table

#: The words and the colour of each answer.
STYLE: dict[Status | Finding | Literal["misclassified"], tuple[str, str]] = {
    "robust": ("robust", "green"),
    "not_robust": ("not robust", "red"),
    "unknown": ("unknown", "yellow"),
    "timeout": ("timeout", "yellow"),
    "violated": ("violated", "red"),
    "not_tried": ("not tried", "yellow"),
    "misclassified": ("misclassified", "red"),
}


def status_text(answer: Result | TargetResult) -> Text:
    """Return the answer to a question, or for one target, in its colour."""
    if isinstance(answer, Result):
        word, colour = STYLE["misclassified" if answer.is_misclassified else answer.status]
    elif answer.is_misclassified and answer.rival is not None:
        word, colour = STYLE["misclassified"]
    else:
        word, colour = STYLE[answer.finding or answer.status]
    return Text(word, style=colour)


def number(value: float) -> str:
    """Return a value that is not a bound with four digits, or a dash if it is not finite."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"


def result_table(result: Result) -> Table:
    """Return one row for each target."""
    table = plain_table(
        *("target", "answer", "lower bound", "upper bound", "seconds", "decided by"),
        left=("target", "answer", "decided by"),
        one_line=("target", "answer"),
        optional=("seconds", "decided by", "upper bound"),
    )
    for t in result.targets:
        table.add_row(
            Text(t.name),
            status_text(t),
            lower_text(t.lower),
            upper_text(t.upper),
            f"{t.seconds:.2f}",
            Text(t.stage if t.status in ("robust", "not_robust") else t.note),
        )
    shared = result.account.shared
    if shared:
        seconds = f"{sum(shared.values()):.2f}"
        table.add_row(Text("shared"), "", "", "", seconds, Text(", ".join(shared)))
    return table


def network_table(network: Network) -> Table:
    """Return one row for each layer."""
    table = plain_table(
        *("layer", "inputs", "neurons", "weights", "zeros", "values", "thresholds", "sign(0)"),
        left=("layer", "values", "thresholds"),
    )
    for layer in network.layers:
        cells = layer.size * layer.inputs
        table.add_row(
            _short(layer.name),
            str(layer.inputs),
            str(layer.size),
            str(layer.weights.nnz),
            f"{100 * (1 - layer.weights.nnz / cells):.1f} %",
            weight_values(layer.weights.data),
            "integer" if layer.is_lattice else "real",
            _zero(layer.sign_zero),
        )
    output = network.output
    used = int(np.count_nonzero(output.weights))
    table.add_row(
        _short(output.name),
        str(output.weights.shape[1]),
        str(output.classes),
        str(used),
        f"{100 * (1 - used / output.weights.size):.1f} %",
        weight_values(output.weights[output.weights != 0]),
        "scores" if network.output_transform == "scores" else network.output_transform,
        "",
    )
    return table


def _short(name: str) -> Text:
    """Return the end of a long layer name; exported names differ at their ends."""
    # As Text, because a name from a file may look like rich's markup.
    return Text(name if len(name) <= 30 else "..." + name[-27:])


def weight_values(data: np.ndarray) -> str:
    """Return the values of the non-zero weights of a layer, in words."""
    if data.size == 0:
        return "empty"
    if np.all(np.abs(data) == 1):
        return "-1, 0, 1"
    if np.all(data == np.rint(data)):
        return f"integers up to {int(np.abs(data).max())}"
    return "real"


def _zero(sign_zero: str) -> str:
    return {"plus": "+1", "minus": "-1", "either": "either"}[sign_zero]


def methods_table() -> Table:
    """Return one row for each registered method."""
    titles = ("method", "promises", "regions", "needs", "what it does")
    table = plain_table(*titles, left=titles)
    for method in REGISTRY.all():
        needs = "-" if method.package is None else method.package
        if not method.available():
            needs += " (not installed)"
        table.add_row(
            method.name, ", ".join(method.promises), method.regions, needs, method.summary
        )
    return table
