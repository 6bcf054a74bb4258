"""The rows for the page's script: columns with dictionaries, deflated, as text; and their details.

Each row has the command that asks about it again:

    bnncert verify MODEL --input FILE --index I --label L --norm N --radius R ...

Files are named without their folders, because pages are shared with others.  MODEL and POINTS stand
for files that the results do not name: those of random networks and points.

The details of a row are pictures, margins of the rivals, times and the certificate.  A decided
instance has a verdict; for an undecided one there are sentences that tell why: which rivals are
open, the gap, and what took the time.
"""

from __future__ import annotations

import base64
import json
import math
import os
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from fractions import Fraction
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from bnncert.engine.answer import rounded
from bnncert.engine.methods import REGISTRY
from bnncert.engine.verdict import tie_text
from bnncert.regions.pictures import as_image, difference, png_bytes, shades
from bnncert.regions.radii import COUNTED, radius_text, read_radius
from bnncert.report.statistics import Panel
from bnncert.results.rows import Evidence, InstanceKey, NetworkRecord, Row, finite_number
from bnncert.results.store import Recorded

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
    points = _points_argument(row.data)
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


def _points_argument(data: str) -> str:
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


# -- details ------------------------------------------------------------------------------


class Album:
    """Pictures as base64 of PNG files, each one kept once, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.pictures: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._left = limit

    def add(self, pixels: npt.NDArray[np.uint8]) -> int | None:
        """Return the number of a picture, or None if the limit is reached."""
        file = png_bytes(pixels)
        number = self._numbers.get(file)
        if number is None:
            text = base64.b64encode(file).decode("ascii")
            if len(text) > self._left:
                return None
            self._left -= len(text)
            number = self._numbers[file] = len(self.pictures)
            self.pictures.append(text)
        return number


def certificate_link(certificate: str, results: Path, page: Path) -> dict[str, Any]:
    """Return the address relative to the page; `certificate` is relative to the results file."""
    file = results.resolve().parent / certificate
    try:
        address = os.path.relpath(file, page.resolve().parent)
    except ValueError:
        # The paths are on different drives (Windows).
        address = str(file)
    # With "./" in front and escaped colons, no part of a name is interpreted as a URL scheme.
    prefix = "" if address.startswith((".", "/")) else "./"
    address = prefix + quote(address.replace(os.sep, "/"))
    try:
        there = file.is_file()
    except (OSError, ValueError):
        # Not a valid file name.
        there = False
    return {"name": Path(certificate).name, "href": address, "there": there}


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

    Presolve runs once for all targets, and counts once.  Other stages that work on several targets
    at once state their whole time for each of them.  If the sum exceeds the total, such stages
    therefore count once, those first that then count less by the most.
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
    return f"{len(left)} of {len(targets)} rivals are open. Hardest: {name}; {gap}."


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
    """Say what could decide the row, with the options to give."""
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


#: The most characters of base64 for all pictures together.
PICTURE_LIMIT = 9_000_000

#: Points that are not pictures are shown as numbers if they have at most this many values.
MOST_NUMBERS = 64


@dataclass(frozen=True, eq=False)
class Details:
    """Details by rowid, their pictures by number, and the number of rows without details."""

    entries: dict[int, dict[str, Any]]
    pictures: list[str]
    #: The number of the picture of each input hash.
    inputs: dict[str, int]
    left_out: int


def collect_details(recorded: Recorded, page: Path, most: int) -> Details:
    """Return the details of at most `most` rows, those with a counterexample first."""
    first = {"not_robust": 0, "misclassified": 1}
    found = sorted(recorded.rows, key=lambda r: first.get(r.status, 2))
    chosen = sorted(found[:most], key=lambda r: r.rowid)
    album = Album(PICTURE_LIMIT)
    proved = _certified_radii(recorded.rows)
    entries, inputs = dict[int, dict[str, Any]](), dict[str, int]()
    for row, evidence in recorded.evidence(chosen):
        entry = entries[row.rowid] = _entry(recorded, row, evidence, album, page)
        network = recorded.network(row.key.model_hash)
        smaller = [r for r in proved.get(_question(row), ()) if r < row.key.radius]
        certified = radius_text(max(smaller), row.key.norm, network.pixel_step) if smaller else ""
        why = why_undecided(row, evidence.targets, certified, network.pixel_step)
        if why:
            entry["why"] = why
        drawn = entry.get("pictures", [None])[0]
        if drawn is not None:
            inputs[row.key.input_hash] = drawn
    return Details(entries, album.pictures, inputs, len(recorded.rows) - len(entries))


def _question(row: Row) -> tuple[Any, ...]:
    """Return what two rows have in common that differ in radius, method and its settings only."""
    k = row.key
    place = (k.model_hash, k.input_hash, k.label, k.norm, k.clip, k.rivals, k.ties, k.sign_zero)
    return (*place, k.grid, k.within, k.value)


def _certified_radii(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[float]]:
    """Return the radii at which each input is proved robust by some method."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row.status == "robust" and row.key.question == "verify":
            found.setdefault(_question(row), []).append(row.key.radius)
    return found


def _entry(
    recorded: Recorded, row: Row, evidence: Evidence, album: Album, page: Path
) -> dict[str, Any]:
    entry: dict[str, Any] = {"targets": [_target(t) for t in evidence.targets]}
    stages = stage_seconds(evidence.targets, row.seconds)
    entry["stages"] = [[name, round(total, 3), n] for name, (total, n) in stages.items()]
    entry.update(_points(recorded.network(row.key.model_hash), row, evidence, album))
    found = evidence.found
    if found:
        entry["found"] = {
            "target": str(found.get("target", "")),
            "value": shortened(_margin(found), ROUND_CEILING),
            "predicted": found.get("predicted"),
            "replayed": [str(v) for v in _list(found.get("replayed_in"))],
            "near": "input_exact" in found,
            "tie": _tie(row, evidence),
        }
    if row.certificate is not None:
        entry["certificate"] = certificate_link(row.certificate, recorded.path, page)
    return entry


def _target(tree: dict[str, Any]) -> list[Any]:
    return [
        str(tree.get("target", "")),
        str(tree.get("finding") or tree.get("status", "")),
        shortened(finite_number(tree.get("lower")), ROUND_FLOOR),
        shortened(finite_number(tree.get("upper")), ROUND_CEILING),
        round(finite_number(tree.get("seconds")) or 0.0, 3),
        str(tree.get("stage", "")),
        str(tree.get("note", "")),
    ]


def _tie(row: Row, evidence: Evidence) -> str:
    """Return a tie in words; empty for a strict counterexample, and for files without ties."""
    found = evidence.found
    named = (t.get("rival") for t in evidence.targets if t.get("target") == found.get("target"))
    rival, best = next(named, None), found.get("predicted")
    if found.get("tie") is not True or not isinstance(rival, int):
        return ""
    known = best if isinstance(best, int) and found.get("class_changes") is not None else None
    return tie_text(row.key.label, rival, known, one_choice=bool(found.get("one_choice")))


def _margin(found: dict[str, Any]) -> float | None:
    """Return the margin of a counterexample as a decimal number; it is stored as a fraction."""
    try:
        return float(Fraction(str(found.get("value_exact"))))
    except (ValueError, ZeroDivisionError, OverflowError):
        return finite_number(found.get("value"))


def _points(network: NetworkRecord, row: Row, evidence: Evidence, album: Album) -> dict[str, Any]:
    before, after = evidence.point, evidence.counterexample
    if before is not None and after is not None and before.size != after.size:
        after = None
    known = [p for p in (before, after) if p is not None]
    if not known:
        return {}
    entry: dict[str, Any] = {}
    if before is not None and after is not None:
        change = np.abs(after - before)
        most = float(change.max(initial=0.0))
        entry["change"] = {"largest": shortened(most), "values": int(np.count_nonzero(change))}
        if network.pixel_step:
            entry["change"]["steps"] = shortened(most / network.pixel_step)
    shapes = (network.input_shape, evidence.shape)
    images = {p.size: as_image(p, *shapes) for p in known}
    if all(image is None for image in images.values()):
        if known[0].size <= MOST_NUMBERS:
            entry["numbers"] = [None if p is None else p.tolist() for p in (before, after)]
        return entry
    lo, hi = _range(network, row, known)
    drawn = [None if p is None else as_image(p, *shapes) for p in (before, after)]
    pixels = [None if image is None else shades(image, lo, hi) for image in drawn]
    if drawn[0] is not None and drawn[1] is not None:
        pixels.append(difference(drawn[0], drawn[1]))
        entry["change"]["colour"] = drawn[0].ndim == 3
    entry["pictures"] = [None if p is None else album.add(p) for p in pixels]
    return entry


def _range(network: NetworkRecord, row: Row, points: Sequence[Any]) -> tuple[float, float]:
    """Return the values of black and white: the data box, or the range of the points."""
    if network.input_lo is not None and network.input_hi is not None:
        return network.input_lo, network.input_hi
    try:
        lo, hi = map(float, row.key.clip.split(","))
        return lo, hi
    except ValueError:
        return min(float(p.min()) for p in points), max(float(p.max()) for p in points)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
