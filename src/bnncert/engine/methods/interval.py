"""Interval bounds: support functions in layer 1, integer interval arithmetic above."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Objective, Problem, Target


def interval_lower(objective: Objective, last: LayerBounds) -> float:
    """Return a lower bound of f: stable neurons contribute d times their sign, others -|d|."""
    d = objective.coefficients
    fixed = d * last.state
    loose = np.abs(d[last.state == 0])
    return lower_from_sums(objective, float(fixed.sum()), float(loose.sum()))


def lower_from_sums(objective: Objective, fixed: float, loose: float) -> float:
    """Return the lower bound of f from the sums of both kinds of neurons."""
    value = objective.constant + fixed - loose
    reach, terms = abs(objective.constant) + objective.size, objective.coefficients.size + 2
    slack = objective.error + (0.0 if objective.is_whole else terms * 2.0**-52 * reach)
    # `nextafter`, because a slack below the spacing of floats would not change the value.
    value = float(np.nextafter(value - slack, -np.inf)) if slack else value
    return objective.round_up(value)


def interval_proof(target: Target, last: LayerBounds) -> tuple[float, bool]:
    """Return the lower bound of F = max f_i, and whether some f_i is proved positive."""
    bounds = [(o, interval_lower(o, last)) for o in target.objectives]
    lower = max((b for _, b in bounds), default=-np.inf)
    return lower, any(o.is_proved_by(b) for o, b in bounds)


class RelaxationMethod(Method):
    """Bounds every target by intervals, and by a relaxation of each of its objectives."""

    promises = ("bound",)
    #: Whether a target that this method does not decide counts as tried.
    works_on_targets: ClassVar[bool] = True

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Bound every target in turn."""
        bounds = context.intervals(problem)
        results = []
        for target in context.in_turn(problem, self.name):
            since = context.deadline.elapsed()
            lower, proved = interval_proof(target, bounds[-1])
            note = ""
            if not context.deadline.passed():
                lowers, note = self.relax(problem, bounds, target, context)
                proved = proved or target.is_proved_by(lowers)
                lower = max([lower, *lowers])
            results.append(
                context.result(
                    target,
                    self.name,
                    since,
                    lower=lower,
                    proved=proved,
                    note=note,
                    tried=self.works_on_targets,
                )
            )
        return tuple(results)

    def relax(
        self, problem: Problem, bounds: tuple[LayerBounds, ...], target: Target, context: Context
    ) -> tuple[list[float], str]:
        """Return a lower bound of each objective (-inf: none), and a note for the user."""
        return [-np.inf] * len(target.objectives), ""


@register
class IntervalMethod(RelaxationMethod):
    """Interval propagation."""

    name = "interval"
    summary = "bounds by interval arithmetic; finds the neurons that never change sign"
    works_on_targets = False
