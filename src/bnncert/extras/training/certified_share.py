"""The share of labelled images that interval bounds certify on balls around them, as `run` does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.engine.batches import BatchIntervals, interval_proofs
from bnncert.engine.exact_classes import chunk_size
from bnncert.model.network import Network
from bnncert.problem import robustness
from bnncert.regions import Ball

#: The most images that are bounded at once.
MOST = 256


def certified_share(
    network: Network, points: FloatArray, labels: npt.NDArray[np.int64], radius: float
) -> float:
    """Find the share of points whose L-inf ball is proved to have the label, by intervals alone.

    It is a lower bound of the certified accuracy, because `run` goes on with the rest.
    """
    intervals = BatchIntervals(network)
    box = network.input_lo, network.input_hi
    size, proved = max(1, min(MOST, chunk_size(network))), 0
    for start in range(0, len(labels), size):
        rows = slice(start, start + size)
        balls = [Ball("linf", point, radius, *box) for point in points[rows]]
        problems = [
            robustness(network, ball, int(label), "all", "violation")
            for ball, label in zip(balls, labels[rows], strict=True)
        ]
        bounds = intervals.bounds([problem.region for problem in problems])
        proved += int(np.sum(interval_proofs(problems, bounds, "violation")[1]))
    return proved / len(labels)
