r"""Several small conflicts of one pattern.

Multipliers of an elastic program prove several conflicts at once: neurons that share no input with
each other have nothing to do with each other.  Each connected set of them is solved again on its
own, which names few neurons, as long as conflicts are left in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.reachability.fast import fast_feasibility
from bnncert.reachability.feasibility import Feasibility, SignPattern
from bnncert.regions import Region

#: Conflicts of at most this many neurons are made smaller by leaving out one neuron at a time.
MOST_SHRUNK = 12


def disjoint_conflicts(
    pattern: SignPattern, multipliers: FloatArray, region: Region, deadline: Deadline
) -> Iterator[Feasibility]:
    """Yield conflicts without common neurons; places are those of the pattern.

    Every one of them has multipliers that prove it.
    """
    used = np.flatnonzero(multipliers > 1e-9 * multipliers.max(initial=0.0))
    for part in _connected(pattern, used):
        left = part
        while left.size and not deadline.passed():
            found = fast_feasibility(pattern.part(left), region, deadline)
            if found.conflict is None:
                break
            small = shrink(pattern, _moved(found, left), region, deadline)
            assert small.conflict is not None
            yield small
            left = np.setdiff1d(left, small.conflict)


def shrink(
    pattern: SignPattern, conflict: Feasibility, region: Region, deadline: Deadline
) -> Feasibility:
    """Return a conflict with fewer neurons, where leaving one out leaves a conflict."""
    assert conflict.conflict is not None
    if not 2 < conflict.conflict.size <= MOST_SHRUNK:
        return conflict
    for place in conflict.conflict.tolist():
        assert conflict.conflict is not None
        if conflict.conflict.size <= 2 or place not in conflict.conflict or deadline.passed():
            continue
        rest = conflict.conflict[conflict.conflict != place]
        found = fast_feasibility(pattern.part(rest), region, deadline)
        if found.conflict is not None:
            conflict = _moved(found, rest)
    return conflict


def _moved(found: Feasibility, places: IntArray) -> Feasibility:
    """Return a conflict of a part of the pattern, by places in the whole."""
    assert found.conflict is not None
    return Feasibility(conflict=places[found.conflict], multipliers=found.multipliers)


def _connected(pattern: SignPattern, used: IntArray) -> Iterator[IntArray]:
    """Yield the sets of neurons that are connected by common inputs."""
    if not used.size:
        return
    rows = sp.csr_array(pattern.layer.weights[pattern.neurons[used]] != 0).astype(np.int64)
    count, label = connected_components(rows @ rows.T, directed=False)
    for k in range(count):
        yield used[label == k]
