"""Exact answers by mixed-integer programming (HiGHS)."""

from __future__ import annotations

from bnncert.engine.methods.base import Context, register
from bnncert.engine.methods.exact_search import ExactMethod, Solver
from bnncert.engine.relaxations.linear import LinearModel
from bnncert.engine.solvers.gurobi_ import GurobiModel
from bnncert.errors import InputError
from bnncert.regions import Region
from bnncert.regions.highs_ import HighsModel


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
