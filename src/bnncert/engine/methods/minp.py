"""Exact answers by mixed-integer nonlinear programming (SCIP): the L2 ball, and all other regions.

The model is that of `milp`; for an L2 ball its inputs are those of
:mod:`bnncert.engine.relaxations.moments.ball_moments`, with the constraint |v|_2^2 <= 1.  These
ignore a part of the data box; clauses exclude the signs that the box makes impossible.
"""

from __future__ import annotations

from bnncert.engine.methods.base import Context, register
from bnncert.engine.methods.exact_search import ExactMethod, Solver
from bnncert.engine.presolve.reduction import UnstableProblem
from bnncert.engine.relaxations.linear import LinearModel
from bnncert.engine.relaxations.moments.ball_moments import ball_block
from bnncert.engine.solvers.gurobi_ import GurobiModel
from bnncert.engine.solvers.scip_ import ScipModel
from bnncert.errors import InputError
from bnncert.regions import Region
from bnncert.regions.linear_block import InputBlock


@register
class MinpMethod(ExactMethod):
    """The network as a mixed-integer program with a quadratic constraint."""

    name = "minp"
    summary = "exact mixed-integer nonlinear program (SCIP), in lattice form or Soft form"
    extra = "scip"
    package = "pyscipopt"
    own_solver = "scip"

    def inputs(self, reduced: UnstableProblem, region: Region) -> InputBlock:
        """Describe the inputs of a model."""
        if region.norm == "l2":
            return ball_block(region, reduced.layers[0])
        return super().inputs(reduced, region)

    def solver(self, model: LinearModel, region: Region, context: Context) -> Solver:
        """Build a model in SCIP, or in Gurobi if the options name it."""
        options = context.options
        ball = model.inputs.size if region.norm == "l2" else 0
        if options.solver == "gurobi":
            return GurobiModel(model.program, ball=ball, threads=options.threads, seed=options.seed)
        if options.solver not in (None, "scip"):
            raise InputError(f"method minp has no solver {options.solver!r}; use scip or gurobi")
        start = model.offsets[0]
        return ScipModel(
            model.program,
            ball=ball,
            # The signs of the first layer imply all later ones.
            branch_first=range(start, start + model.problem.layers[0].size),
            seed=options.seed,
            deadline=context.deadline,
        )
