r"""Exact answers by mixed-integer nonlinear programming (SCIP): the L2 ball, and all other regions.

The model is that of `milp`; for an L2 ball its inputs are the projection of the ball to the space
of the first-layer weights, with the constraint |v|_2^2 <= 1.  The unstable neurons depend only on W
(x - m).  If the columns of Q are an orthonormal basis of the rows of W,

    W (x - m) = r W Q v,      v = Q' (x - m) / r,      |v|_2 <= 1,

and every such v belongs to a point of the ball: there is one variable for each unstable neuron
instead of one for each input.  The data box is not represented by v, only by the bounds Lo and U of
the neurons; clauses exclude the signs that the box makes impossible.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.engine.methods.base import Context, register
from bnncert.engine.methods.exact_search import ExactMethod, Solver
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableProblem
from bnncert.engine.relaxations.linear import LinearModel
from bnncert.engine.solvers.gurobi_ import GurobiModel
from bnncert.engine.solvers.scip_ import ScipModel
from bnncert.errors import InputError
from bnncert.regions import Region
from bnncert.regions.linear_program import InputBlock, input_block


def ball_block(region: Region, layer: UnstableLayer) -> InputBlock:
    """Describe an L2 ball by few variables v; the solver adds the constraint |v|_2 <= 1."""
    used = layer.inputs
    if layer.size >= used.size:
        # v = (x - m) / r has as few variables and represents the data box, too.
        return input_block(region, used)
    basis = np.linalg.qr(layer.weights.toarray().astype(np.float64).T)[0]
    ones = np.ones(layer.size)
    spread = sp.csr_array(region.radius * basis)
    nothing = sp.csr_array((0, layer.size))
    return InputBlock(used, region.middle[used], spread, -ones, ones, nothing, np.zeros(0))


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
