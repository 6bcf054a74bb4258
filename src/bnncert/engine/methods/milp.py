"""Exact answers by mixed-integer programming (HiGHS)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.engine.methods.base import Context, register
from bnncert.engine.methods.engine import TargetEngine
from bnncert.engine.methods.exact_search import ExactMethod, Solver
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.linear import LinearModel
from bnncert.engine.relaxations.reduced.problem import is_too_large
from bnncert.engine.solvers.gurobi_ import GurobiModel
from bnncert.engine.verdict import TargetResult
from bnncert.errors import InputError
from bnncert.problem import Target
from bnncert.regions import Region
from bnncert.regions.linear_program import HighsModel

#: Seconds of a first look at a mixed-integer program.
PROGRAM = 0.2


@register
class MilpMethod(ExactMethod):
    """The network as a mixed-integer program."""

    name = "milp"
    summary = "exact mixed-integer program (HiGHS), in lattice form or the paper's Soft form"
    regions = "linf, l1, l0, box, polytope"
    own_solver = "highs"

    def check_region(self, region: Region) -> None:
        """Raise InputError for the L2 ball."""
        if region.norm == "l2":
            raise InputError(
                "the L2 ball is not polyhedral, so milp cannot encode it; use minp, interval, lp, "
                "sample or attack for the L2 norm"
            )

    def solver(self, model: LinearModel, region: Region, context: Context) -> Solver:
        """Build a model in HiGHS, or in Gurobi if the options name it."""
        options = context.options
        if options.solver == "gurobi":
            return GurobiModel(model.program, threads=options.threads, seed=options.seed)
        if options.solver not in (None, "highs"):
            raise InputError(f"method milp has no solver {options.solver!r}; use highs or gurobi")
        return HighsModel(
            model.program,
            {
                "threads": options.threads,
                "random_seed": options.seed % 2**31,
                "mip_rel_gap": 0.0,
                "mip_abs_gap": 1e-6,
            },
        )


class ProgramEngine(TargetEngine):
    """The mixed-integer program, which begins again in each slice."""

    method = MilpMethod
    trusts_solver = True

    def first_slice(self) -> float:
        """Presolve and a first look at each program."""
        if self.question.problem.region.norm == "l2":
            return np.inf
        return PROGRAM * len(self.question.open) + self.question.presolve_seconds

    def decide(self, target: Target, presolved: Presolved, context: Context) -> TargetResult | None:
        """Solve the program of a target, with all clauses that were learned."""
        if is_too_large(presolved):
            return None
        named = context.options.solver
        options = replace(context.options, solver="gurobi" if named == "gurobi" else None)
        clauses = [literals for literals, _ in self.question.learned.known.values()]
        return MilpMethod().solve_target(
            *(self.question.problem, presolved.bounds, target, replace(context, options=options)),
            *(presolved.record, clauses),
        )
