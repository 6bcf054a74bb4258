"""Why a row is undecided: which adversarial classes are open, the gap, and what took the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

from bnncert.engine.methods import REGISTRY
from bnncert.report.page.table_data import shortened
from bnncert.results.rows import Row
from bnncert.results.schema import finite_number

#: Stages that took less than this share of the time are not named.
SMALL_SHARE = 0.05


def why_undecided(
    row: Row, targets: Sequence[dict[str, Any]], certified: str, pixel_step: float | None
) -> list[str]:
    """Return sentences for the reader; none if the row is decided.

    `certified` is the largest smaller radius at which the same input is proved robust, as text.
    """
    if row.status not in ("unknown", "timeout") or row.key.question != "verify":
        return []
    sentences = [_classes(targets), _neurons(targets), _time(row, targets)]
    sentences += dict.fromkeys(_sentence(t.get("note")) for t in _open(targets))
    if certified:
        sentences.append(f"The same input is certified at the smaller radius {certified}.")
    sentences.append(_advice(row, pixel_step))
    return [text for text in sentences if text]


def stage_seconds(targets: Sequence[dict[str, Any]], total: float) -> dict[str, tuple[float, int]]:
    """Return the seconds and the number of targets of each stage.

    Presolve runs once for all targets, and counts once.  Files of earlier versions state the whole
    time of a stage for each of the targets that it works on at once.  If the sum exceeds the total,
    such stages therefore count once, those first that then count less by the most.
    """
    found: dict[str, list[float]] = {}
    for tree in targets:
        details = _mapping(tree.get("details"))
        # `auto` records the time of each stage; other methods have one stage.
        known = _mapping(details.get("seconds"))
        presolve = finite_number(known.get("presolve", details.get("presolve seconds")))
        if presolve is not None and "presolve" not in found:
            found["presolve"] = [presolve] + [0.0] * (len(targets) - 1)
        stages = {str(k): finite_number(v) or 0.0 for k, v in known.items() if k != "presolve"}
        if not stages:
            name = str(tree.get("stage") or "undecided")
            stages = {name: finite_number(tree.get("seconds")) or 0.0}
        for name, seconds in stages.items():
            found.setdefault(name, []).append(seconds)
    sums = {name: sum(times) for name, times in found.items()}
    for name in sorted(found, key=lambda name: max(found[name]) - sums[name]):
        if sum(sums.values()) > total:
            sums[name] = max(found[name])
    return {name: (sums[name], len(times)) for name, times in found.items()}


def _open(targets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [t for t in targets if t.get("status") in ("unknown", "timeout")]


def _classes(targets: Sequence[dict[str, Any]]) -> str:
    """Return how many classes are open, and the bounds of the hardest one."""
    left = _open(targets)
    if not left:
        return "No method returned an answer before the time limit."
    hardest = min(left, key=lambda t: _number(t.get("lower"), -math.inf))
    lower = shortened(finite_number(hardest.get("lower")), ROUND_FLOOR)
    upper = shortened(finite_number(hardest.get("upper")), ROUND_CEILING)
    gap = "no bound of its margin is known"
    if lower is not None and upper is not None:
        gap = f"its margin is between {lower:g} and {upper:g}"
    elif lower is not None:
        gap = f"its margin is at least {lower:g}, and no upper bound is known"
    elif upper is not None:
        gap = f"its margin is at most {upper:g}, and no lower bound is known"
    if upper is not None and hardest.get("upper") == 0 and hardest.get("rival") is not None:
        gap += " (the upper bound is a tie)"
    name = str(hardest.get("target", ""))
    if len(left) == len(targets) == 1:
        return f"Open: {name}; {gap}."
    return f"{len(left)} of {len(targets)} adversarial classes are open. Hardest: {name}; {gap}."


def _neurons(targets: Sequence[dict[str, Any]]) -> str:
    """Return the unstable neurons of each layer, if they are recorded."""
    for tree in _open(targets):
        details = _mapping(tree.get("details"))
        layers = details.get("presolve", details.get("open neurons"))
        if not isinstance(layers, list):
            continue
        counts = [
            f"{layer['open']} of {layer['neurons']} in layer {layer['layer']}"
            for layer in layers
            if isinstance(layer, dict) and {"open", "neurons", "layer"} <= layer.keys()
        ]
        if counts:
            return f"Unstable neurons: {', '.join(counts)}."
    return ""


def _time(row: Row, targets: Sequence[dict[str, Any]]) -> str:
    limit = (
        "without a limit" if row.key.timeout is None else f"with a limit of {row.key.timeout:g} s"
    )
    text = f"It took {row.seconds:.2f} s {limit}"
    known = stage_seconds(targets, row.seconds)
    spent = {name: seconds for name, (seconds, _) in known.items()}
    large = {n: s for n, s in spent.items() if s > SMALL_SHARE * max(row.seconds, 1e-9)}
    parts = sorted(large.items(), key=lambda part: -part[1])
    return text + (f": {', '.join(f'{n} {s:.2f} s' for n, s in parts)}." if parts else ".")


def _advice(row: Row, pixel_step: float | None) -> str:
    """Return what could decide the row."""
    key, choices = row.key, []
    method = key.method.split(" ")[0]
    exact = any(m.name == method and "exact" in m.promises for m in REGISTRY.all())
    if row.status == "timeout" and key.timeout is not None:
        choices.append(f"more time (--timeout {4 * key.timeout:g})")
    if not exact:
        choices.append("a complete method (--method auto)")
    if key.grid is None and pixel_step is not None and key.norm not in ("l0", "contrast", "shift"):
        choices.append("integer pixels only (--grid 1px), if real inputs are not needed")
    choices.append("a smaller radius")
    return f"What may help: {'; '.join(choices)}."


def _sentence(note: Any) -> str:
    text = str(note or "").strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""


def _number(value: Any, default: float) -> float:
    found = finite_number(value)
    return default if found is None else found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
