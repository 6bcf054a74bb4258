r"""Sign patterns that satisfy all constraints of a reduced problem.

Conflicting pairs closed under implication are a 2-SAT instance in which every consistent choice
for some variables extends to all variables.  Choosing signs in a random order, such that no earlier
choice excludes them, therefore always succeeds.  Gates determine the signs of the layers above.
Averages over such patterns are feasible moments, from which the solver starts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import both_literals, literal
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem

#: The share of independent uniform signs in the start: their moments have no zero eigenvalue.
BLEND = 0.5

#: The least and the largest share of its range that a cut starts with.
CUT_SHARES = 0.02, 0.98


def consistent_patterns(
    problem: ReducedProblem,
    generator: np.random.Generator,
    count: int,
    deadline: Deadline | None = None,
) -> npt.NDArray[np.int8]:
    """Return sign vectors of the variables, one per row, that satisfy all pairs and gates.

    Raises OutOfTimeError if the deadline passes before they are complete.
    """
    limit = deadline or Deadline(None)
    n = problem.size
    signs = np.zeros((count, n), dtype=np.int8)
    blocked = np.zeros((count, 2 * n), dtype=bool)
    table = problem.excluded
    gate_of = {int(v): j for j, v in enumerate(problem.outputs)}
    free = np.array([v for v in range(n) if v not in gate_of], dtype=np.int64)
    # Probabilities that differ by row make the patterns more diverse.
    lean = generator.uniform(0.1, 0.9, size=(count, n))
    for v in generator.permutation(free).tolist():
        limit.check()
        up = generator.uniform(size=count) < lean[:, v]
        no_plus, no_minus = blocked[:, both_literals(np.array([v]))].T
        up = np.where(no_plus, False, np.where(no_minus, True, up))
        signs[:, v] = np.where(up, 1, -1)
        blocked |= table[literal(np.full(count, v), signs[:, v])]
    # Not int8 times float, which converts the whole matrix for every gate.
    numbers = signs.astype(np.float32)
    for v in sorted(gate_of):
        limit.check()
        j = gate_of[v]
        u = numbers @ problem.gates.rows[j].astype(np.float32)
        points, sign = problem.gates.points[j], problem.gate_signs[j]
        # The nearest lattice point; u can be outside the bounds if not all pairs were used.
        nearest = np.argmin(np.abs(u[:, None] - points[None, :]), axis=1)
        numbers[:, v] = signs[:, v] = sign[nearest]
    return signs


def starting_moments(
    problem: ReducedProblem, seed: int = 0, deadline: Deadline | None = None
) -> tuple[FloatArray, list[FloatArray]]:
    """Return moments of consistent patterns, and the distributions of all tables and gates.

    Raises OutOfTimeError if the deadline passes before they are known.
    """
    limit = deadline or Deadline(None)
    generator = np.random.default_rng(seed)
    count = 8 * (problem.size + 4)
    signs = consistent_patterns(problem, generator, count, limit).astype(np.float64)
    z = np.hstack([np.ones((count, 1)), signs])
    moments = (1 - BLEND) * (z.T @ z) / count + BLEND * np.eye(problem.size + 1)
    whole, splits = problem.whole, problem.splits
    tables = Lattice(problem.table.rows[whole], problem.table.points[whole])
    start = [_distribution(tables, signs, None, None, limit)]
    outputs = signs[:, problem.outputs]
    start.append(_distribution(problem.gates, signs, problem.gate_signs, outputs, limit))
    if splits is not None:
        tables = Lattice(problem.table.rows[splits.tables], splits.points)
        outputs = signs[:, splits.variables]
        start.append(_distribution(tables, signs, splits.signs, outputs, limit))
    if problem.cuts is not None:
        return moments, [*start, cut_start(problem.cuts, moments)]
    if problem.coupling is None:
        return moments, start
    # The input is independent of the signs at the start: a pattern may have no point.
    blocks = np.eye(moments.shape[0] + problem.coupling.size)
    blocks[: moments.shape[0], : moments.shape[0]] = moments
    mean = moments[0, 1 + problem.coupling.outputs][:, None] * np.array(problem.coupling.SIGNS)
    return blocks, [*start, (1 + mean) / 4]


def cut_start(cuts: InputCuts, moments: FloatArray) -> FloatArray:
    """Return the distributions of all cuts on 0 and the most that z'Cz can be."""
    most = np.abs(cuts.forms).sum(axis=(1, 2)) + 1e-300
    share = np.clip(np.tensordot(cuts.forms, moments, 2) / most, *CUT_SHARES)
    return np.stack([1 - share, share], axis=1)


def _distribution(
    lattice: Lattice,
    signs: FloatArray,
    point_signs: FloatArray | None,
    outputs: FloatArray | None,
    deadline: Deadline,
) -> FloatArray:
    """Return the frequency of each lattice point, averaged with a normal density around zero."""
    rows, points = lattice.rows, lattice.points
    width = np.maximum(1.0, np.sqrt((rows**2).sum(axis=1, keepdims=True)))
    bell = np.exp(-0.5 * (points / width) ** 2) + 1e-3
    bell /= bell.sum(axis=1, keepdims=True)
    mass = np.zeros_like(points)
    u = signs @ rows.T
    for j in range(rows.shape[0]):
        deadline.check()
        distance = np.abs(u[:, j : j + 1] - points[j][None, :])
        if point_signs is not None and outputs is not None:
            distance = distance + 1e6 * (outputs[:, j : j + 1] != point_signs[j][None, :])
        # Repeated points share their mass.
        hit = distance == distance.min(axis=1, keepdims=True)
        mass[j] = (hit / hit.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.asarray((1 - BLEND) * mass + BLEND * bell)
