"""The exact value of an objective at a point, from which a search takes its upper bound."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.description.rationals import float_above
from bnncert.problem import Problem, Target
from bnncert.replay import Replayer
from bnncert.search.tree import Evaluate


def exact_values(question: Problem, target: Target) -> Evaluate:
    """Return a function that bounds F from above at points of the region, and by inf elsewhere."""
    replayer = Replayer(question)

    def evaluate(point: FloatArray, exact: tuple[Fraction, ...] | None) -> float:
        found = replayer.value((target,), point)
        values = [] if found is None else list(found)
        if exact is not None and question.region.contains(exact):
            # A tie may be met at this rational point and at no float.
            lasts = (p[-1] for p in question.network.exact_patterns(exact))
            values += [float_above(target.exactly(x)) for x in lasts]
        return min(values, default=np.inf)

    return evaluate
