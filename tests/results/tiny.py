"""A small experiment with answers known by hand, and what a results file holds without its times.

In the network of the campaigns' tests class 0 wins on the quarter plane x0 > |x1|, so the distance
of (a, 0) to its border is a/2 in L-inf and a/sqrt(2) in L2.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]]))
BIASES = (np.zeros(2), np.array([1.0, 0.0, 0.5]))

#: Points (a, 0) of class 0, the last with a wrong label.
POINTS = np.array([[0.5, 0.0], [1.0, 0.0], [1.5, 0.0], [1.0, 0.0]])
LABELS = np.array([0, 0, 0, 2])

#: As JSON, which is YAML as well.
CONFIG: dict[str, Any] = {
    "title": "tiny",
    "networks": [
        {"name": "diamond", "file": "net.npz"},
        {"name": "dice", "random": {"sizes": [3, 4, 4, 3], "zeros": 0.2, "seed": 5}},
    ],
    "parts": [
        {
            "networks": ["diamond"],
            "data": "data.npz",
            "norms": ["linf", "l2"],
            "radii": [0.3, 0.6],
            "methods": ["interval", "auto"],
        },
        {
            "networks": ["dice"],
            "data": {"random": {"seed": 7}, "count": 3},
            "norms": "linf",
            "radii": [0.1],
            "methods": ["lp", {"method": "sample", "samples": 50}],
            "question": "bound",
            "timeout": 30,
        },
    ],
}

#: 2 norms x 2 radii x 2 methods x 4 points, and 2 methods x 3 points.
INSTANCES = 32 + 6


def write_files(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """Write network, data and configuration, and return the configuration."""
    arrays: dict[str, Any] = {}
    for i, (w, b) in enumerate(zip(WEIGHTS, BIASES, strict=True)):
        arrays[f"W{i}"], arrays[f"b{i}"] = w, b
    np.savez(folder / "net.npz", input_lo=-2.0, input_hi=2.0, **arrays)
    np.savez(folder / "data.npz", points=POINTS, labels=LABELS)
    path = folder / "tiny.json"
    path.write_text(json.dumps(CONFIG if config is None else config, indent=1), encoding="utf-8")
    return path


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return all tables, in a fixed order and without what the clock decides."""
    tables: dict[str, list[dict[str, Any]]] = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        for table, order in (
            ("meta", "name"),
            ("results", "key"),
            ("networks", "model_hash"),
            ("inputs", "input_hash"),
        ):
            found = connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
            tables[table] = [dict(row) for row in found]
    for row in tables["results"]:
        del row["seconds"], row["finished_at"]
        targets = json.loads(row["per_target"])
        # Which engine of `auto` is the first to decide depends on the clock.
        timed = ["stage"] if row["method"] == "auto" else []
        for target in targets:
            # The details hold the seconds of every stage, and the note the size of a tree, which
            # depends on the slices of time that `auto` gives.
            for name in ("seconds", "details", "note", *timed):
                del target[name]
        for name in timed:
            del row[name]
        row["per_target"] = targets
    return tables
