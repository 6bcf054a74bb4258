"""Verification problems: a network, a region, and a property that must hold there."""

from __future__ import annotations

from bnncert.problem.objective import Objective, score_objective
from bnncert.problem.problem import (
    Problem,
    Target,
    Targets,
    Ties,
    output_polytope,
    robustness,
    targets_of,
    targets_text,
)
from bnncert.problem.vnnlib import from_vnnlib

__all__ = [
    "Objective",
    "Problem",
    "Target",
    "Targets",
    "Ties",
    "from_vnnlib",
    "output_polytope",
    "robustness",
    "score_objective",
    "targets_of",
    "targets_text",
]
