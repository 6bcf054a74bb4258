"""The exact classes that two networks give to the same inputs."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods import Progress
from bnncert.model.network import Network
from bnncert.questions.compare.classes import UNDETERMINED, exact_classes
from bnncert.questions.compare.comparison_answer import InputsComparison

#: Inputs that are evaluated at a time.
BATCH = 1000


def compare_inputs(
    first: Network,
    second: Network,
    rows: FloatArray,
    deadline: Deadline,
    progress: Progress | None = None,
) -> InputsComparison:
    """Return the classes of all inputs, or of the first ones if the time is up."""
    parts: list[IntArray] = []
    for start in range(0, rows.shape[0], BATCH):
        if progress is not None:
            progress("inputs", start, rows.shape[0])
        batch = rows[start : start + BATCH]
        try:
            pair = [exact_classes(network, batch, deadline) for network in (first, second)]
        except OutOfTimeError:
            break
        parts.append(np.stack(pair))
    classes = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), dtype=np.int64)
    unknown = np.any(classes == UNDETERMINED, axis=0)
    differing = np.flatnonzero((classes[0] != classes[1]) & ~unknown)
    one, two = classes[:, differing]
    return InputsComparison(classes.shape[1], differing, one, two, np.flatnonzero(unknown))
