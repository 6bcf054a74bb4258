"""Results files with explanations, weight faults and counts, as their commands write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.results.rows import InputRecord, NetworkRecord, OtherAnswer, made_answer
from bnncert.results.store import ResultsFile
from tests.report.results_sketch import NETWORK, digit

BIT = {"layer": 1, "neuron": 4, "input": 17, "old": 1.0, "new": -1.0}
STUCK = {"layer": 2, "neuron": 3, "input": None, "old": 1.0, "new": -1.0}
SCORE = {"layer": "output", "neuron": 7, "input": 5, "old": 1.0, "new": -1.0}

#: 256 to the power of 784, and a bound of its points.
LONG = "1" + "0" * 400


def explanation(image: int, open_: int = 0) -> dict[str, Any]:
    """Return an explanation that keeps the light pixels of a digit."""
    kept = [int(i) for i in np.flatnonzero(digit(image).ravel() > 0.6)]
    return {"inputs": 784, "kept": kept, "open": kept[:open_], "minimal": open_ == 0}


def fault_row(
    name: str, certified: int | None, falsified: int | None, *bits: Any
) -> dict[str, Any]:
    exact = falsified == (-1 if certified is None else certified) + 1 or certified == 999
    return {
        **{"faults": "weights", "scope": "layer", "layer": 1, "name": name, "limit": 999},
        **{"certified": certified, "falsified": falsified, "exact": exact, "bits": list(bits)},
    }


def faults(image: int) -> dict[str, Any]:
    return {
        "rows": [
            fault_row("anywhere", image, image + 1, *[BIT] * (image + 1)),
            fault_row("layer 1", 3 + image, 9, *[BIT] * 8, STUCK),
            fault_row("output", 999, None),
        ]
    }


def count(lower: str, upper: str, total: str, estimate: bool = True) -> dict[str, Any]:
    found = {"share": 0.25, "low": 0.2012345, "high": 0.3012345, "confidence": 0.99}
    return {
        **{"lower": lower, "upper": upper, "total": total, "exact": lower == upper},
        "estimate": found if estimate else None,
    }


def answer(kind: str, image: int, payload: dict[str, Any], **changes: Any) -> OtherAnswer:
    made = made_answer(
        {"ties": "violation"},
        payload,
        **{"kind": kind, "model_hash": "a" * 64, "input_name": f"/home/x/digits.npz [{image}]"},
        **{"input_hash": f"i{image}", "label": image % 10, "region": "within 8 px"},
        **{"status": "exact", "summary": "an answer", "seconds": 1.25 + image, "labels": "given"},
    )
    return replace(made, **changes)


def other_answers() -> list[OtherAnswer]:
    """Return explanations, faults and counts of a few images."""
    return [
        answer("explain", 0, explanation(0), certificate="proofs/0.bnncert"),
        answer("explain", 1, explanation(1, open_=7), status="sufficient"),
        *(answer("faults", image, faults(image)) for image in range(3)),
        answer("count", 0, count("12", "12", "4096")),
        answer("count", 1, count("0", LONG[:-3], LONG, estimate=False)),
    ]


def other_file(path: Path, answers: list[OtherAnswer] | None = None) -> Path:
    """Write answers with their network and inputs; the file may have rows already."""
    record = {**NETWORK, "sizes": (784, 500, 500, 10), "input_shape": (784,)}
    with ResultsFile(path) as results:
        results._connection.execute("PRAGMA synchronous = OFF")
        results.add_networks([NetworkRecord(**record)])
        results.add_inputs(
            InputRecord(f"i{k}", k, (1, 28, 28), digit(k).ravel().astype("f4").astype(float))
            for k in range(3)
        )
        for one in other_answers() if answers is None else answers:
            results.replace_other(one)
    return path
