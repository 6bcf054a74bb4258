"""Adapters to the optimisation libraries that do the numerical work."""

from __future__ import annotations

from typing import Literal, TypeAlias

#: The back ends that users can name, of semidefinite and then of mixed-integer programs.
SolverName: TypeAlias = Literal[
    "structured", "low-rank", "clarabel", "scs", "mosek", "highs", "scip", "gurobi"
]
