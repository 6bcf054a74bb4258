"""Tables of one answer, of a network, of the methods, and about how a result was found."""

from __future__ import annotations

import math
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from bnncert.engine.answer import lower_text, upper_text
from bnncert.engine.methods import REGISTRY
from bnncert.engine.timing import OTHER, Timing
from bnncert.engine.verdict import Finding, Result, Status, TargetResult
from bnncert.model.network import Network, weight_values, zero_share
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
    """Show the answer and the bounds of each target, and the time that targets share."""
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
    shared = result.timing.shared
    if shared:
        seconds = f"{sum(shared.values()):.2f}"
        table.add_row(Text("shared"), "", "", "", seconds, Text(", ".join(shared)))
    return table


def network_table(network: Network) -> Table:
    """Show the size, the weights and the thresholds of each layer."""
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
            zero_share(layer.weights.data, cells),
            weight_values(layer.weights.data, cells),
            "integer" if layer.is_lattice else "real",
            _zero(layer.sign_zero),
        )
    output = network.output
    used = output.weights[output.weights != 0]
    table.add_row(
        _short(output.name),
        str(output.weights.shape[1]),
        str(output.classes),
        str(used.size),
        zero_share(used, output.weights.size),
        weight_values(used, output.weights.size),
        "scores" if network.output_transform == "scores" else network.output_transform,
        "",
    )
    return table


def _short(name: str) -> Text:
    """Return the end of a long layer name; exported names differ at their ends."""
    # As Text, because a name from a file may look like rich's markup.
    return Text(name if len(name) <= 30 else "..." + name[-27:])


def _zero(sign_zero: str) -> str:
    return {"plus": "+1", "minus": "-1", "either": "either"}[sign_zero]


def methods_table() -> Table:
    """Show what each registered method promises and needs."""
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


def explanation_tables(result: Result) -> list[Table]:
    """Make the tables of --explain for which the result has data."""
    timing, details = result.timing, [t.details for t in result.targets]
    has_presolve = any("presolve" in d for d in details)
    tables = [presolve_table(result)] if has_presolve else []
    if timing.layers and not has_presolve:
        tables.append(layer_table(timing))
    if timing.work:
        tables.append(work_table(timing))
    bounds = bound_table(result)
    if bounds is not None:
        tables.append(bounds)
    if any("elimination" in d for d in details):
        tables.append(elimination_table(result))
    elif any("rounds" in d for d in details):
        tables.append(stage_table(result))
    return tables


def layer_table(timing: Timing) -> Table:
    """Show how many neurons of each layer have no known sign."""
    counts = enumerate(timing.layers, start=1)
    rows = ((str(k), str(layer.neurons), str(layer.open)) for k, layer in counts)
    return plain_table("layer", "neurons", "open", name="layers", rows=rows)


def work_table(timing: Timing) -> Table:
    """Return the targets and seconds of each stage; the seconds add up to those of the result."""
    table = plain_table("stage", "targets", "decided", "seconds", left=("stage",), name="stages")
    for stage, seconds in timing.stages.items():
        own = [w for w in timing.work if w.stage == stage and w.target is not None]
        decided = str(sum(w.decided for w in own)) if own else ""
        targets = str(len(own)) if own else "" if stage == OTHER else "all"
        table.add_row(stage, targets, decided, f"{seconds:.2f}")
    return table


def bound_table(result: Result) -> Table | None:
    """Return the lower bound of each target by each stage; None if no stage has one."""
    work = [w for w in result.timing.work if w.target is not None and math.isfinite(w.lower)]
    stages = list(dict.fromkeys(w.stage for w in work))
    if not stages:
        return None
    table = plain_table("target", *stages, left=("target",), name="lower bounds")
    for target in result.targets:
        own = {w.stage: w.lower for w in work if w.target == target.name}
        table.add_row(Text(target.name), *(lower_text(own.get(s, math.nan)) for s in stages))
    return table


def presolve_table(result: Result) -> Table:
    """Return the effect of presolve on each layer, which is the same for all targets."""
    titles = ("layer", "neurons", "open", "variables", "rules")
    table = plain_table(*titles, left=("rules",), name="presolve")
    lines: list[dict[str, Any]] = next(
        (t.details["presolve"] for t in result.targets if "presolve" in t.details), []
    )
    for line in lines:
        rules = ", ".join(f"{rule} {count}" for rule, count in line["rules"].items())
        table.add_row(
            str(line["layer"]),
            str(line["neurons"]),
            str(line["open"]),
            "tables" if line["variables"] is None else str(line["variables"]),
            Text(rules),
        )
    return table


def stage_table(result: Result) -> Table:
    """Show sizes, iterations, gap and time of every solve."""
    titles = ("target", "stage", "unknowns", "iterations", "bound", "gap", "seconds", "status")
    words = ("target", "stage", "status")
    table = plain_table(*titles, left=words, one_line=titles, name="relaxations")
    first = next((t for t in result.targets if "presolve seconds" in t.details), None)
    if first is not None:
        seconds = f"{first.details['presolve seconds']:.3f}"
        table.add_row("all", "presolve", "", "", "", "", seconds, "")
    for t in result.targets:
        for k, stage in enumerate(t.details.get("rounds", ())):
            table.add_row(
                Text(t.name if k == 0 else ""),
                stage["solver"] if k == 0 else f"+ cuts {k}",
                str(stage["unknowns"]),
                str(stage["iterations"]),
                lower_text(math.nan if stage["bound"] is None else stage["bound"]),
                number(_gap(stage["primal"], stage["bound"])),
                f"{stage['seconds']:.3f}",
                stage["status"],
            )
    return table


def elimination_table(result: Result) -> Table:
    """Return the statistics of an elimination, which are the same for all of its targets."""
    counts: dict[str, Any] = next(
        (t.details["elimination"] for t in result.targets if "elimination" in t.details), {}
    )
    rows = [(name, str(value), "") for name, value in counts.items() if name != "seconds"]
    rows += [(part, "", f"{seconds:.3f}") for part, seconds in counts.get("seconds", {}).items()]
    titles = ("quantity", "value", "seconds")
    return plain_table(*titles, left=("quantity",), name="elimination", rows=rows)


def _gap(primal: float | None, bound: float | None) -> float:
    return math.nan if primal is None or bound is None else primal - bound
