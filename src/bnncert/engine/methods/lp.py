"""The paper's LP relaxation, solved by HiGHS and re-derived from its multipliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods.base import Context, register
from bnncert.engine.methods.interval import RelaxationMethod
from bnncert.engine.presolve.reduction import reduce_target
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.relaxations.linear import Form, linear_model
from bnncert.problem import Problem, Target
from bnncert.regions.linear_program import HighsModel, input_block


def lp_lower_bounds(
    problem: Problem, bounds: tuple[LayerBounds, ...], target: Target, form: Form, context: Context
) -> list[float]:
    """Return the LP bound of each objective of a target, -inf if the deadline passed."""
    reduced = reduce_target(problem.network, bounds, target)
    try:
        block = input_block(problem.region, reduced.layers[0].inputs)
        model = linear_model(reduced, block, form, integer=False, deadline=context.deadline)
        context.deadline.check()
    except OutOfTimeError:
        return [-np.inf] * len(target.objectives)
    highs = HighsModel(model.program, {"threads": context.options.threads})
    lowers = []
    for objective, original in zip(reduced.objectives, target.objectives, strict=True):
        part, offset = model.objective_row(objective)
        cost = np.zeros(model.program.cost.size)
        cost[model.last_layer()] = part
        highs.set_cost(cost, offset)
        solution = highs.solve(context.deadline)
        if solution.multipliers is None:
            lowers.append(-np.inf)
            continue
        program = replace(model.program, cost=cost, offset=offset)
        lower = program.dual_bound(solution.multipliers)
        if objective.slack:
            lower = float(np.nextafter(lower - objective.slack, -np.inf))
        lowers.append(original.round_up(lower))
    return lowers


@register
class LpMethod(RelaxationMethod):
    """The LP relaxation of the paper."""

    name = "lp"
    summary = "the paper's linear relaxation (HiGHS); the bound is re-derived from the dual"
    reads = frozenset({"threads"})

    def relax(
        self, problem: Problem, bounds: tuple[LayerBounds, ...], target: Target, context: Context
    ) -> tuple[list[float], str]:
        """Bound every objective by its LP."""
        return lp_lower_bounds(problem, bounds, target, "paper", context), ""
