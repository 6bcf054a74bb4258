"""The rows for the page's script: columns with dictionaries, deflated, as text.

Each row has the command that asks about it again:

    bnncert verify MODEL --input FILE --index I --label L --norm N --radius R ...

Files are named without their folders, because pages are shared with others.  MODEL and POINTS stand
for files that the results do not name: those of random networks and points.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any

from bnncert.engine.answer import rounded
from bnncert.engine.methods import REGISTRY
from bnncert.regions.radii import COUNTED, read_radius
from bnncert.report.statistics import Panel
from bnncert.results.rows import InstanceKey, NetworkRecord, Row

#: The files of the bundled networks, by the end of their path.
_BUNDLED = {
    f"bnncert/data/mnist_{name}.npz": f"demo:{name}" for name in ("sparse", "dense", "certified")
}


def command_parts(network: NetworkRecord, row: Row) -> tuple[str, str]:
    """Return the command before and after `I --label L`, the number of the input and its label.

    Many rows have the same two texts, which keeps the page small.
    """
    key = row.key
    method, *chosen = key.method.split(" ")
    options = dict(part.split("=", 1) for part in chosen if "=" in part)
    # Only `bound` takes options of a method, and it answers with the same bound.
    question = "bound" if options else key.question
    points = _points(row.data)
    before = [f"bnncert {question} {shlex.quote(_model(network.source))} {points}"]
    if row.scale:
        before.append(row.scale)
    number = "" if points.endswith(":") else " --index "
    after = [f"--norm {key.norm} --radius {_length(key.radius, key.norm, network)}"]
    if key.value is not None:
        after.append(f"--value={key.value!r}")
    if key.within is not None:
        after.append(f"--within {_length(key.within, 'linf', network)}")
    if key.grid_step is not None:
        after.append(f"--grid {_length(key.grid_step, 'linf', network)}")
    after.append(f"--rivals {shlex.quote(key.rivals)} --method {shlex.quote(method)}")
    after += [f"--{name} {shlex.quote(value)}" for name, value in options.items()]
    after += _setting_options(network, key, question)
    return " ".join(before) + number, " ".join(["", *after])


def _setting_options(network: NetworkRecord, key: InstanceKey, question: str) -> list[str]:
    """Return the options that differ from the defaults."""
    found = ["--timeout none" if key.timeout is None else f"--timeout {key.timeout:g}"]
    if question == "verify" and key.ties != "violation":
        found.append(f"--ties {shlex.quote(key.ties)}")
    method = key.method.split(" ")[0]
    if key.seed and any(m.name == method and "seed" in m.reads for m in REGISTRY.all()):
        found.append(f"--seed {key.seed}")
    if key.sign_zero != "plus":
        found.append(f"--sign-zero {shlex.quote(key.sign_zero)}")
    own = (network.input_lo, network.input_hi)
    ends = key.clip.split(",")
    if len(ends) == 2 and ends != [repr(end) for end in own]:
        found.append(f"--clip {shlex.quote(ends[0])} {shlex.quote(ends[1])}")
    return found


def _model(source: str) -> str:
    path = source.replace("\\", "/")
    if path.startswith("demo:"):
        return path
    bundled = next((name for end, name in _BUNDLED.items() if path.endswith(end)), None)
    if bundled is not None:
        return bundled
    return "MODEL" if not path or path.startswith("random:") else PurePosixPath(path).name


def _points(data: str) -> str:
    """Name the points as --input does, up to their number."""
    if data == "demo" or data.startswith("demo:"):
        return "--input demo:"
    name = PurePosixPath(data.replace("\\", "/")).name if data else "POINTS"
    return f"--input {shlex.quote(name)}"


def _length(value: float, norm: str, network: NetworkRecord) -> str:
    """Return a radius in px if that gives the same number, else in input units."""
    if norm in COUNTED:
        return repr(value) if norm == "contrast" else f"{value:g}"
    step = network.pixel_step
    if step:
        text = f"{value / step:.6g}px"
        radius = read_radius(text)
        if radius is not None and radius.number * step == value:
            return text
    return repr(value)


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
