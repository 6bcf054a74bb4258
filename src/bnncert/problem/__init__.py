"""Verification problems: a network, a region, and a property that must hold there."""

from __future__ import annotations

from bnncert.problem.objective import Objective, score_objective
from bnncert.problem.problem import (
    Problem,
    Rivals,
    Target,
    Ties,
    output_polytope,
    rivals_of,
    rivals_text,
    robustness,
)
from bnncert.problem.vnnlib import from_vnnlib

__all__ = [
    "Objective",
    "Problem",
    "Target",
    "Rivals",
    "Ties",
    "from_vnnlib",
    "output_polytope",
    "robustness",
    "score_objective",
    "rivals_of",
    "rivals_text",
]
