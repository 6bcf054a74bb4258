"""Method `milp`: which solver a verdict rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import integer_programs
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.elimination import EliminationEngine
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import plain_presolve
from bnncert.engine.presolve.stability import stability
from bnncert.engine.replay import Replayer
from bnncert.problem import robustness
from bnncert.regions.linear_program import HighsModel, LinearProgram
from tests.engine.methods.test_elimination import question


def gurobi_by_highs(program: LinearProgram, **options: Any) -> HighsModel:
    """Stand for Gurobi, which few have."""
    return HighsModel(program, {})


@pytest.mark.parametrize(("solver", "trusted"), [(None, "highs"), ("gurobi", "gurobi")])
def test_a_proof_names_the_solver_that_ran(
    solver: str | None, trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integer_programs, "GurobiModel", gurobi_by_highs)
    # h = (sign(x0 + x1), sign(x0 - x1)); class 0 loses only where both are -1, at x0 < 0.
    network = bnncert.Network.from_arrays(
        [np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, -1]])], [np.zeros(2), [1.0, 0.0]]
    )
    ball = bnncert.Ball("linf", [1.0, 0.0], 0.9)
    result = bnncert.verify(network, ball, 0, method="milp", options=Options(solver=solver))
    (target,) = result.targets
    assert (result.status, target.stage, target.trusted) == ("robust", "milp", trusted)


def test_learned_clauses_are_rows_of_the_program() -> None:
    region, label, net = question(3, 14, 0.15)
    problem = robustness(net, region, label)
    options = Options(mode="optimum")
    context = Context(options, Deadline(None), Replayer(problem))
    bounds = stability(net, region)
    plain = plain_presolve(net, region, bounds)
    engine = EliminationEngine(plain, problem, problem.targets, context, 10.0, Deadline(None))
    engine.run(Deadline(None))
    learned = [literal(neurons, signs) for neurons, signs, _ in engine.search.proofs]
    assert learned
    method, target = integer_programs.MilpMethod(), problem.targets[0]
    for clauses in ((), learned):
        result = method.solve_target(problem, bounds, target, context, None, clauses)
        assert result.lower == result.upper == engine.upper[0]
    # Both signs of one neuron are forbidden: nothing is left.
    both = [np.array([2 * bounds[0].unstable[0] + side]) for side in (0, 1)]
    decide = replace(context, options=Options())
    assert method.solve_target(problem, bounds, target, decide, None, both).status == "robust"
