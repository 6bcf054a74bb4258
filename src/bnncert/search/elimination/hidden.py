r"""Ranges of the sums of hidden layers by elimination, for networks with three or more sign layers.

Conflicting pairs are known between neurons of the first layer, which share pixels.  Above it, a
neuron of few inputs, such as a pooled one, is tied to them by its gate; one of many inputs may have
any sign.  Only local layers are worth it: where all sums read all variables, no order is narrow.

No method uses these ranges: they fix neurons, but have not decided a question, see
docs/elimination.md.  benchmarks/hidden_ranges.py measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.presolve.pipeline import Presolved
from bnncert.search.elimination.bound import EliminationLimits
from bnncert.search.elimination.factors import Gate, gate_of
from bnncert.search.elimination.sums import eliminated_sum_ranges

#: A layer is local if none of its neurons reads more than this share of the layer below.
LOCAL = 0.25


@dataclass(frozen=True)
class HiddenSums:
    """Bounds of the sums of a layer over the variables of the layers below."""

    #: For all sums of one layer together.
    seconds: float = 10.0
    #: The share of the time that is left, if that is less.
    share: float = 0.05
    #: Those of one elimination, for all sums over the same variables.
    limits: EliminationLimits = field(default_factory=lambda: EliminationLimits(0.25, 0.5))
    #: Gates that read more variables are left out.
    most_inputs: int = 6

    def __call__(
        self, below: Presolved, rows: Any, deadline: Deadline
    ) -> tuple[FloatArray, FloatArray]:
        """Return (Lo, U) of every row; rows that the time does not suffice for count in full."""
        weights = below.network.layers[len(below.layers)].weights
        if np.diff(weights.indptr).max(initial=0) > LOCAL * weights.shape[1]:
            reach = np.asarray(abs(rows).sum(axis=1), dtype=np.float64).reshape(-1)
            return -reach, reach
        end = deadline.within(min(self.seconds, self.share * deadline.remaining()))
        pairs = np.stack([below.pairs.first, below.pairs.second], axis=1)
        gate = partial(_gate, below, self.most_inputs)
        return eliminated_sum_ranges(rows, list(pairs), self.limits, end, gate)


def _gate(below: Presolved, most: int, v: int) -> Gate | None:
    return gate_of(below, v, most) if below.owner_layer[v] > 0 else None
