"""Results files for tests, whose rows are written with plain SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.results.rows import create_tables

NETWORK = {
    "model_hash": "a" * 64,
    "name": "sparse",
    "source": "/home/someone/models/sparse.npz",
    "sizes": "[784, 500, 500, 10]",
    "input_shape": "[784]",
    "input_lo": -1.0,
    "input_hi": 1.0,
    "pixel_step": 2 / 255,
    "zero_fraction": 0.3434,
}

ROW: dict[str, Any] = {
    "model_hash": "a" * 64,
    "input_index": 0,
    "input_hash": "i0",
    "label": 7,
    "norm": "linf",
    "radius": 0.5 * 2 / 255,
    "clip": "-1.0,1.0",
    "rivals": "all",
    "method": "sdp",
    "timeout": 60.0,
    "ties": "violation",
    "sign_zero": "plus",
    "seed": 0,
    "predicted": 7,
    "status": "robust",
    "lower": 1.0,
    "upper": None,
    "seconds": 0.5,
    "stage": "sdp",
    "per_target": "[]",
    "counterexample": None,
    "counterexample_json": None,
    "version": "0.1.0",
    "finished_at": "2025-03-01T12:00:00+00:00",
}


def write_results(
    path: Path,
    rows: Iterable[dict[str, Any]],
    *,
    networks: Iterable[dict[str, Any]] = (),
    inputs: Iterable[dict[str, Any]] = (),
) -> Path:
    """Write a file; each row is ROW with changes."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        create_tables(connection)
        full = ({"key": str(k), **ROW, **row} for k, row in enumerate(rows))
        for table, entries in (("results", full), ("networks", networks), ("inputs", inputs)):
            names: tuple[str, ...] = ()
            batch: list[tuple[Any, ...]] = []
            for entry in entries:
                if tuple(entry) != names:
                    _insert(connection, table, names, batch)
                    names, batch = tuple(entry), []
                batch.append(tuple(entry.values()))
            _insert(connection, table, names, batch)
    connection.close()
    return path


def _insert(
    connection: sqlite3.Connection, table: str, names: tuple[str, ...], batch: list[Any]
) -> None:
    if batch:
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", batch)


def digit(number: int) -> np.ndarray:
    """Return some 28 x 28 drawing in [-1, 1]: a ring and a stroke that depend on the number."""
    y, x = np.mgrid[-1:1:28j, -1:1:28j]
    ring = np.exp(-60 * (np.hypot(x, y * (1 + 0.05 * number)) - 0.5) ** 2)
    stroke = np.exp(-80 * (x * np.cos(number) + y * np.sin(number)) ** 2) * (np.hypot(x, y) < 0.7)
    drawn: np.ndarray = np.clip(2 * np.maximum(ring, stroke) - 1, -1, 1)
    return drawn


def stored_input(number: int) -> dict[str, Any]:
    """Return the row of an input with its picture."""
    return {
        "input_hash": f"i{number}",
        "label": number % 10,
        "shape": "[1, 28, 28]",
        "point": digit(number).astype("<f4").tobytes(),
        "dtype": "<f4",
    }


STEPS = (0.25, 0.5, 1.0, 1.5)
METHODS = ("interval", "lp", "sdp", "bab")


def campaign_rows(images: int = 40) -> list[dict[str, Any]]:
    """Return a campaign of two networks, two norms, four methods and four radii, and bounds."""
    random = np.random.default_rng(3)
    rows = []
    strength = {"interval": 6.0, "lp": 4.5, "sdp": 1.6, "bab": 1.1, "sample": 0.0}
    for model, scale in (("a" * 64, 1.0), ("b" * 64, 1.7)):
        for norm in ("linf", "l2"):
            for image in range(images):
                clean, slope = random.uniform(5, 60), scale * random.uniform(8, 30)
                wrong = image % 17 == 8
                for step in STEPS:
                    minimum = clean - slope * step
                    for method in (*METHODS, "sample") if norm == "linf" else METHODS:
                        lower = minimum - strength[method] * step * random.uniform(2, 7)
                        question = "bound" if norm == "linf" and method != "bab" else "verify"
                        both = {question} if method == "sample" else {question, "verify"}
                        for asked in sorted(both):
                            row = _answer(image, method, minimum, lower, wrong, random)
                            row.update(
                                model_hash=model,
                                norm=norm,
                                radius=step * 2 / 255 * (1 if norm == "linf" else 14),
                                question=asked,
                            )
                            if asked == "bound":
                                row["status"] = "misclassified" if wrong else "unknown"
                                row["upper"] = minimum + 3 * random.random() + 1
                            if method == "sample":
                                row["lower"] = None
                            rows.append(row)
    return rows


def _answer(
    image: int, method: str, minimum: float, lower: float, wrong: bool, random: Any
) -> dict[str, Any]:
    status, found, seconds = "unknown", None, float(np.exp(random.normal(-3, 1)))
    if method in ("sdp", "bab"):
        seconds *= 30 if method == "sdp" else 90
    if lower > 0:
        status = "robust"
    elif method == "bab" and minimum < -10:
        status = "not_robust"
    elif method == "bab" and minimum > 5:
        status = "robust"
    elif method == "bab":
        status, seconds = "timeout", 60.0
    if wrong:
        status, seconds = "misclassified", 0.0
    row: dict[str, Any] = {
        **{"input_index": image, "input_hash": f"i{image}", "label": image % 10},
        **{"predicted": (image + wrong) % 10, "method": method, "status": status},
        **{"lower": None if wrong else lower, "upper": None, "seconds": seconds},
        **{"stage": method if status in ("robust", "not_robust") else ""},
        **{"counterexample": None, "counterexample_json": None, "certificate": None},
    }
    rivals = [r for r in range(10) if r != row["label"]]
    row["per_target"] = json.dumps(
        [
            {
                "target": f"class {r}",
                "rival": r,
                "status": "unknown" if status == "misclassified" else status,
                "lower": lower + 3.7 * k,
                "upper": minimum + 4 * k if k < 3 else None,
                "seconds": seconds / 9,
                "stage": method,
                "note": "",
                "details": {"presolve seconds": 0.02} if method == "sdp" else {},
            }
            for k, r in enumerate(rivals)
        ]
    )
    if status == "not_robust":
        found = digit(image) + random.uniform(-1, 1, (28, 28)) * 0.05
        row["counterexample"] = np.clip(found, -1, 1).astype("<f8").tobytes()
        row["counterexample_json"] = json.dumps(
            {
                **{"target": f"class {rivals[0]}", "value": minimum, "value_exact": "-41/4"},
                **{"scores": [0.0] * 10, "predicted": rivals[0], "replayed_in": ["exact"]},
            }
        )
        row["certificate"] = f"proofs/{image}.bnncert"
    return row


def campaign_file(path: Path, images: int = 40) -> Path:
    """Write the campaign with its networks and inputs."""
    dense = {**NETWORK, "model_hash": "b" * 64, "name": "dense", "source": "dense.npz"}
    inputs = [stored_input(k) for k in range(images)]
    return write_results(path, campaign_rows(images), networks=[NETWORK, dense], inputs=inputs)


def large_file(path: Path, count: int = 100_000) -> Path:
    """Write many rows; only the first have answers of single rivals, to keep the file small."""
    base = campaign_rows(images=5)[:200]
    rows = (
        {
            **base[k % 200],
            "input_index": k // 10,
            "input_hash": f"i{k // 10}",
            "lower": None if k % 7 == 0 else (k * 7919 % 100_003) / 997 - 40,
            "seconds": (k * 104_729 % 99_991) / 9973,
            "per_target": base[k % 200]["per_target"] if k < 2000 else "[]",
        }
        for k in range(count)
    )
    return write_results(path, rows, networks=[NETWORK])
