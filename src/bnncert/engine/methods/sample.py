"""Random points: the paper's upper bound."""

from __future__ import annotations

import numpy as np

from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.problem import Problem

#: Points drawn at once.
CHUNK = 1024


@register
class SampleMethod(Method):
    """Uniform random points of the region."""

    name = "sample"
    summary = "evaluates random points of the region: an upper bound, sometimes a counterexample"
    promises = ("counterexample",)
    reads = frozenset({"seed", "samples"})

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Evaluate `samples` points (and the centre) and keep the lowest value per target."""
        generator = context.generator()
        count = context.options.samples
        best = np.full(len(problem.targets), np.inf)
        places = np.tile(problem.region.center, (len(problem.targets), 1))
        found: list[Counterexample | None] = [None] * len(problem.targets)
        drawn = 0
        while drawn < count and not (drawn and context.deadline.passed()):
            size = min(CHUNK, count - drawn)
            points = problem.region.sample(generator, size)
            if drawn == 0:
                points[0] = problem.region.center
            drawn += size
            signs = problem.network.last_signs(points).astype(np.float64)
            for k, target in enumerate(problem.targets):
                values = target.values(signs)
                lowest = int(np.argmin(values))
                # Only the exact replay decides whether the point is a counterexample.
                if found[k] is None and values[lowest] <= 1e-9:
                    found[k] = context.replayer.confirm(target, points[lowest])
                if values[lowest] < best[k]:
                    best[k], places[k] = float(values[lowest]), points[lowest]
            context.report(self.name, drawn, count)
        best = context.exact_upper_bounds(problem.targets, places, best)
        return tuple(
            context.result(target, self.name, 0.0, upper=float(best[k]), counterexample=found[k])
            for k, target in enumerate(problem.targets)
        )
