"""Details of single instances: pictures, margins of the adversarial classes, times, certificate.

A decided instance has a verdict; for an undecided one there are sentences that tell why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.engine.verdict import tie_text
from bnncert.regions.pictures import as_image, difference, shades
from bnncert.report.page.links import certificate_link
from bnncert.report.page.table_data import shortened
from bnncert.report.page.thumbnails import Album
from bnncert.report.page.why import stage_seconds, why_undecided
from bnncert.results.radii import radius_text
from bnncert.results.rows import Evidence, NetworkRecord, Row
from bnncert.results.schema import finite_number
from bnncert.results.store import Recorded

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
    place = (k.model_hash, k.input_hash, k.label, k.norm, k.clip, k.targets, k.ties, k.sign_zero)
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
