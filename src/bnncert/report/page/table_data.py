"""The rows for the page's script: columns with dictionaries, deflated, as text."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from operator import attrgetter
from typing import Any

from bnncert.engine.rounded_bounds import rounded
from bnncert.report.page.page_command import command_parts
from bnncert.report.statistics import Panel
from bnncert.results.rows import InstanceKey, Row

#: What the command of a row depends on, apart from the number and the label of its input.
_COMMAND = attrgetter(
    *(f"key.{f.name}" for f in fields(InstanceKey) if not f.name.startswith(("input", "label"))),
    *("data", "scale"),
)

#: Digits of a number in the table.
DIGITS = 6


def packed(tree: Any) -> str:
    """Return JSON, deflated (zlib) and in base64, which has no characters that HTML interprets."""
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")


def shortened(value: float | None, rounding: str = ROUND_HALF_EVEN) -> float | None:
    """Return a number with few digits; lower bounds are rounded down and upper bounds up."""
    if value is None or value == 0 or not math.isfinite(value):
        return value if value is None or math.isfinite(value) else None
    near = float(rounded(value, DIGITS, rounding))
    # The decimal is rounded in the right direction, but the nearest float may not be.
    if (rounding == ROUND_FLOOR and near > value) or (rounding == ROUND_CEILING and near < value):
        return value
    return near


def table_columns(
    known: Sequence[Panel], order: dict[int, int], pictures: Mapping[str, int]
) -> dict[str, dict[str, list[Any]] | list[Any]]:
    """Return the columns of all rows, sorted by `order`, the place of each rowid.

    A column with few values is {"names": [...], "codes": [...]}.  `pictures` has the number of the
    picture of each input hash.
    """
    rows: list[tuple[Panel, str, Row]] = [
        (panel, name, row)
        for panel in known
        for name, row in zip(panel.series, panel.answers, strict=True)
    ]
    rows.sort(key=lambda entry: order[entry[2].rowid])

    # Thousands of rows differ in nothing else than the input, and share the rest of the command.
    first = {_COMMAND(row): (panel, row) for panel, _, row in rows}
    commands = {place: command_parts(p.network, row) for place, (p, row) in first.items()}

    def coded(of: Callable[[Panel, str, Row], Any]) -> dict[str, list[Any]]:
        codes: dict[Any, int] = {}
        column = [codes.setdefault(of(*entry), len(codes)) for entry in rows]
        return {"names": list(codes), "codes": column}

    return {
        "row": [r.rowid for _, _, r in rows],
        "picture": coded(lambda p, s, r: pictures.get(r.key.input_hash)),
        "command": coded(lambda p, s, r: commands[_COMMAND(r)]),
        "image": [r.key.input_index for _, _, r in rows],
        "label": coded(lambda p, s, r: r.key.label),
        "predicted": coded(lambda p, s, r: r.predicted),
        "network": coded(lambda p, s, r: p.network.name),
        "norm": coded(lambda p, s, r: p.norm_name),
        "radius": coded(lambda p, s, r: r.key.radius),
        "shown": coded(lambda p, s, r: p.radius_text(r.key.radius)),
        "inputs": coded(lambda p, s, r: p.inputs),
        "method": coded(lambda p, s, r: s),
        "question": coded(lambda p, s, r: r.key.question),
        "status": coded(lambda p, s, r: r.status),
        "lower": [shortened(r.lower, ROUND_FLOOR) for _, _, r in rows],
        "upper": [shortened(r.upper, ROUND_CEILING) for _, _, r in rows],
        "seconds": [round(r.seconds, 3) for _, _, r in rows],
        "stage": coded(lambda p, s, r: r.stage),
        "settings": coded(lambda p, s, r: _settings(p, r)),
        "finished": coded(lambda p, s, r: r.finished_at),
    }


def _settings(panel: Panel, row: Row) -> str:
    limit = "no time limit" if row.key.timeout is None else f"limit {row.key.timeout:g} s"
    return (
        f"{panel.settings}, {limit}, seed {row.key.seed}, sign(0): {row.key.sign_zero}, "
        f"bnncert {row.version}"
    )
