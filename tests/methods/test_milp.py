"""Method `milp`: which solver a verdict rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.methods import milp
from bnncert.solvers.highs_ import HighsModel
from bnncert.solvers.linear_program import LinearProgram


def gurobi_by_highs(program: LinearProgram, **options: Any) -> HighsModel:
    """Stand for Gurobi, which few have."""
    return HighsModel(program, {})


@pytest.mark.parametrize(("solver", "trusted"), [(None, "highs"), ("gurobi", "gurobi")])
def test_a_proof_names_the_solver_that_ran(
    solver: str | None, trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milp, "GurobiModel", gurobi_by_highs)
    # h = (sign(x0 + x1), sign(x0 - x1)); class 0 loses only where both are -1, at x0 < 0.
    network = bnncert.Network.from_arrays(
        [np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, -1]])], [np.zeros(2), [1.0, 0.0]]
    )
    ball = bnncert.Ball("linf", [1.0, 0.0], 0.9)
    result = bnncert.verify(network, ball, 0, method="milp", options=Options(solver=solver))
    (target,) = result.targets
    assert (result.status, target.stage, target.trusted) == ("robust", "milp", trusted)
