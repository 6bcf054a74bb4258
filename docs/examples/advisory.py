"""Verify a small collision-avoidance controller, in the style of the ACAS Xu properties.

The controller (``advisory.json``, a ternary 5-24-24-5 network made by ``advisory_train.py``) sees
an encounter with another aircraft and scores five advisories; the highest score wins.

Run ``python docs/examples/advisory.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bnncert

FloatArray = npt.NDArray[np.float64]

HERE = Path(__file__).resolve().parent

CLEAR, WEAK_LEFT, WEAK_RIGHT, STRONG_LEFT, STRONG_RIGHT = range(5)
ADVISORIES = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")

#: What the network sees, with the physical range that is scaled to [-1, 1].  Angles are in
#: degrees, counted to the left: a bearing of 90 is an intruder on the left, a heading of 180 one
#: that comes the other way, a heading of 0 one that flies in the same direction.
QUANTITIES: Mapping[str, tuple[float, float]] = {
    "distance": (0.0, 8000.0),
    "bearing": (-180.0, 180.0),
    "heading": (-180.0, 180.0),
    "own speed": (50.0, 250.0),
    "intruder speed": (50.0, 250.0),
}
LOWEST: FloatArray = np.array([low for low, _ in QUANTITIES.values()])
HIGHEST: FloatArray = np.array([high for _, high in QUANTITIES.values()])


def to_inputs(encounters: npt.ArrayLike) -> FloatArray:
    """Scale metres, degrees and metres per second to the network's inputs."""
    values = np.asarray(encounters, dtype=np.float64)
    return np.asarray(2.0 * (values - LOWEST) / (HIGHEST - LOWEST) - 1.0)


def to_encounters(inputs: npt.ArrayLike) -> FloatArray:
    """Undo :func:`to_inputs`."""
    values = np.asarray(inputs, dtype=np.float64)
    return np.asarray(LOWEST + (values + 1.0) / 2.0 * (HIGHEST - LOWEST))


def encounter_box(**limits: tuple[float, float]) -> bnncert.Box:
    """Return the box of inputs within the limits; what is not mentioned may take any value."""
    named = {name.replace(" ", "_"): span for name, span in QUANTITIES.items()}
    spans = {**named, **limits}
    if len(spans) != len(named):
        raise ValueError(f"unknown quantities: {sorted(set(limits) - set(named))}")
    ends = np.array(list(spans.values()), dtype=np.float64).T
    return bnncert.Box(to_inputs(ends[0]), to_inputs(ends[1]))
