r"""Several small conflicts of one pattern.

Multipliers of an elastic program prove several conflicts at once, because neurons without common
inputs are independent.  Each connected set of neurons is solved again on its own as long as it
contains conflicts, which then have few neurons.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.active_signs import MOST_SHRUNK
from bnncert.engine.reachability.fast_signs import MarginProgram, fast_feasibility
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.regions import Region


def disjoint_conflicts(
    pattern: SignPattern, multipliers: FloatArray, region: Region, deadline: Deadline
) -> Iterator[Feasibility]:
    """Yield conflicts without common neurons, each with multipliers that prove it."""
    used = np.flatnonzero(multipliers > 1e-9 * multipliers.max(initial=0.0))
    for part in _connected(pattern, used):
        connected = _ConnectedPart(pattern.part(part), region)
        left = np.arange(part.size)
        while left.size and not deadline.passed():
            found = connected.conflict(left, deadline)
            if found is None:
                break
            small = connected.shrunk(found, deadline)
            assert small.conflict is not None
            yield _moved(small, part)
            left = np.setdiff1d(left, small.conflict)


class _ConnectedPart:
    """The conflicts of a part of a pattern; its linear program is built once."""

    def __init__(self, pattern: SignPattern, region: Region) -> None:
        self._pattern, self._region = pattern, region
        self._program = None if region.norm == "l2" else MarginProgram(pattern, region)

    def conflict(self, places: IntArray, deadline: Deadline) -> Feasibility | None:
        """Return a conflict among some neurons, or None if none is found."""
        part = self._pattern.part(places)
        found: Feasibility | None
        if self._program is None:
            found = fast_feasibility(part, self._region, deadline)
        else:
            guide = self._program.solve(deadline, places)
            found = None if guide is None else find_conflict(part, guide[1], self._region)
        return None if found is None or found.conflict is None else _moved(found, places)

    def shrunk(self, found: Feasibility, deadline: Deadline) -> Feasibility:
        """Leave out neurons one at a time, if the others still conflict."""
        assert found.conflict is not None
        kept: IntArray = found.conflict
        if kept.size > MOST_SHRUNK:
            return found
        for place in found.conflict.tolist():
            if kept.size <= 2 or place not in kept or deadline.passed():
                continue
            smaller = self.conflict(kept[kept != place], deadline)
            if smaller is not None and smaller.conflict is not None:
                found, kept = smaller, smaller.conflict
        return found


def _moved(found: Feasibility, places: IntArray) -> Feasibility:
    """Return a conflict of a part of the pattern with its places in the whole pattern."""
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
