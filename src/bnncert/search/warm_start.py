r"""A child starts from the multipliers of its parent.

The parent's quadratic b u + c u^2 of a table is written in the u of the whole problem, so that the
child, whose u has another constant part, can read it.  The constant terms are then as large as the
child's lattice allows, kappa_0 as large as T >= 0 allows (a Schur complement), and a share of the
solver's own start keeps the point away from the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.literals import renumbered
from bnncert.relaxations.reduced.relaxation import ReducedProblem, ReducedRelaxation
from bnncert.search.restrict import Restriction
from bnncert.solvers.structured_program import StructuredMultipliers, starting_point

#: Share of the cold start, and the least slack (in the solver's units) of the warm one.
BLEND, MARGIN = 0.1, 1e-3


@dataclass(frozen=True, eq=False)
class Kept:
    """Multipliers by the tables (idle gates behind), gates, variables and clashes of a problem.

    `clash_keys` are sorted.
    """

    tables: FloatArray
    gates: FloatArray
    kappa: FloatArray
    pair_keys: IntArray
    pairs: FloatArray

    @property
    def bytes(self) -> int:
        """The memory it takes, about."""
        parts = (self.tables, self.gates, self.kappa, self.pair_keys, self.pairs)
        return int(sum(p.nbytes for p in parts)) + 600


def _keys(left: Restriction, size: int) -> IntArray:
    """Return a number for each clash, by the literals of the whole problem."""
    problem = left.problem
    first = renumbered(problem.pair_first, left.free)
    second = renumbered(problem.pair_second, left.free)
    return np.asarray(first * 2 * size + second, dtype=np.int64)


def keep(
    whole: ReducedProblem,
    left: Restriction,
    relaxation: ReducedRelaxation,
    found: StructuredMultipliers,
) -> Kept | None:
    """Return the multipliers of a node in terms of the whole problem; None if it has an input."""
    if left.problem.coupling is not None:
        return None
    dual = relaxation.dual_point(found)
    count = whole.table.rows.shape[0] + whole.gates.rows.shape[0]
    tables = np.zeros((count, 2))
    square = dual.table_square
    tables[left.tables, 0] = dual.table_linear - 2 * square * left.table_shift
    tables[left.tables, 1] = square
    gates = np.zeros((whole.gates.rows.shape[0], 4))
    square, product = dual.gate_square, dual.gate_product
    gates[left.gates, 0] = dual.gate_linear - 2 * square * left.gate_shift
    gates[left.gates, 1] = square
    gates[left.gates, 2] = dual.gate_sign - product * left.gate_shift
    gates[left.gates, 3] = product
    kappa = np.zeros(whole.size)
    kappa[left.free] = dual.diagonal[1:]
    keys = _keys(left, whole.size)
    order = np.argsort(keys)
    return Kept(tables, gates, kappa, keys[order], dual.pair[order])


def start_from(
    kept: Kept, whole: ReducedProblem, left: Restriction, relaxation: ReducedRelaxation
) -> StructuredMultipliers | None:
    """Return a strictly feasible start for a child's relaxation, or None."""
    problem, program, scale = left.problem, relaxation.program, relaxation.scale
    if problem.coupling is not None:
        return None
    count = whole.table.rows.shape[0]
    linear, square = kept.tables[left.tables].T
    # A gate whose output was fixed meanwhile: x u is now s u.
    idle = np.flatnonzero(left.tables >= count)
    gate = left.tables[idle] - count
    sign = left.signs[whole.outputs[gate]]
    linear[idle] += kept.gates[gate, 0] + sign * kept.gates[gate, 3]
    square[idle] += kept.gates[gate, 1]
    linear += 2 * square * left.table_shift
    table_norm, gate_norm = relaxation.table_norm, relaxation.gate_norm
    tables = np.stack([0 * linear, linear * table_norm, square * table_norm**2], axis=1) / scale
    straight, bent, alone, product = kept.gates[left.gates].T
    straight = straight + 2 * bent * left.gate_shift
    alone = alone + product * left.gate_shift
    parts = [0 * alone, straight * gate_norm, bent * gate_norm**2, alone, product * gate_norm]
    theta = [tables, np.stack(parts, axis=1) / scale]
    for part, family in zip(theta, program.tables, strict=True):
        rest = family.values - np.einsum("jkf,jf->jk", family.features, part)
        part[:, 0] = rest.min(axis=1, initial=np.inf) - MARGIN
    pairs = np.zeros(problem.pair_first.size)
    if kept.pair_keys.size:
        keys = _keys(left, whole.size)
        place = np.minimum(np.searchsorted(kept.pair_keys, keys), kept.pair_keys.size - 1)
        pairs = np.where(kept.pair_keys[place] == keys, kept.pairs[place], 0.0) / scale
    kappa = np.concatenate([[0.0], kept.kappa[left.free] / scale])
    warm = StructuredMultipliers(theta, kappa, pairs)
    form = relaxation.dual_point(warm).form(problem)[0] / scale
    inner = form[1:, 1:]
    try:
        lift = max(MARGIN, MARGIN - 1.1 * float(np.linalg.eigvalsh(inner)[0]))
        kappa[1:] -= lift
        inner = inner + lift * np.eye(inner.shape[0])
        kappa[0] = form[0, 0] - form[0, 1:] @ np.linalg.solve(inner, form[1:, 0]) - lift
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(kappa[0]):
        return None
    # Both are strictly feasible, and so is everything between them.
    cold = starting_point(program)
    return StructuredMultipliers(
        [(1 - BLEND) * a + BLEND * b for a, b in zip(theta, cold.theta, strict=True)],
        (1 - BLEND) * kappa + BLEND * cold.kappa,
        (1 - BLEND) * pairs + BLEND * cold.pi,
    )
