r"""What a node of a tree has from its parent: multipliers to start from, and parts to leave out.

The quadratic b u + c u^2 of a table is written in the u of the whole problem, so that a node whose
u has another constant part can use it.  The constant terms are then as large as the node's lattice
allows, and kappa_0 as large as T >= 0 allows (a Schur complement).  The start of a solver is a
convex combination with its cold start, which is away from the boundary.

A node also leaves tables and conflicting pairs out of its relaxation.  If the moments of a node
allow a table to have its least value with probability one, its quadratic is 0 at the optimum, and
the table is worth its least value.  Leaving it out therefore costs nothing there, and little in the
children, while the time of a relaxation grows with the third power of the number of tables and
pairs.  The same holds for pairs with small multipliers.  The moments of every node show which of
the parts that it left out its children need.  They also show by which signs its children split
tables (`reduced.table_splits`), besides those that it has split.  Any choice gives a valid bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.engine.presolve.literals import renumbered, sign_of, variable_of
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import ReducedRelaxation
from bnncert.engine.relaxations.reduced.table_splits import choose_splits, split
from bnncert.engine.search.restrict import Restriction
from bnncert.engine.solvers.structured_program import StructuredMultipliers, starting_point

#: Share of the cold start, and the least slack (in the solver's units) of the warm one.
BLEND, MARGIN = 0.1, 1e-3


@dataclass(frozen=True, eq=False)
class Numbering:
    """The numbering that multipliers refer to: tables, outputs of gates, and variables."""

    tables: int
    outputs: IntArray
    size: int

    @staticmethod
    def of(problem: ReducedProblem) -> Numbering:
        """Return the numbering of a problem."""
        return Numbering(problem.table.rows.shape[0], problem.outputs, problem.size)


@dataclass(frozen=True, eq=False)
class NodeMultipliers:
    """Multipliers of a numbering's tables (then idle gates), gates, variables and pairs.

    `pair_keys` are sorted; the key of a pair of literals a, b is 2 size a + b.
    """

    tables: FloatArray
    gates: FloatArray
    kappa: FloatArray
    pair_keys: IntArray
    pairs: FloatArray
    #: Multipliers of the cuts that the input implies, which are the same in every node.
    cuts: FloatArray = field(default_factory=lambda: np.zeros(0))
    #: The tables that are split, and the variables that split them.
    splits: IntArray = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    #: (splits, 2): e and g of  e x + g x u.
    split_values: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def bytes(self) -> int:
        """The approximate memory of the multipliers."""
        return int(sum(part.nbytes for part in vars(self).values())) + 600


def pair_keys(left: Restriction, size: int) -> IntArray:
    """Return the key of each conflicting pair, by the literals of the numbering."""
    problem = left.problem
    first = renumbered(problem.pair_first, left.free)
    second = renumbered(problem.pair_second, left.free)
    return np.asarray(first * 2 * size + second, dtype=np.int64)


def keep(numbering: Numbering, left: Restriction, found: DualPoint) -> NodeMultipliers | None:
    """Return the multipliers of a node in a numbering; None if they include inputs."""
    if left.problem.coupling is not None:
        return None
    tables = np.zeros((numbering.tables + numbering.outputs.size, 2))
    tables[left.tables] = found.tables_over(left.table_shift)
    gates = np.zeros((numbering.outputs.size, 4))
    gates[left.gates] = found.gates_over(left.gate_shift)
    kappa = np.zeros(numbering.size)
    kappa[left.free] = found.diagonal[1:]
    keys = pair_keys(left, numbering.size)
    order = np.argsort(keys)
    multipliers = NodeMultipliers(tables, gates, kappa, keys[order], found.pair[order], found.cut)
    splits = left.problem.splits
    if splits is None:
        return multipliers
    shift = left.table_shift[splits.tables]
    return replace(multipliers, splits=splits_of(left), split_values=found.splits_over(shift))


def splits_of(left: Restriction) -> IntArray:
    """Return the tables of a node that are split, and their variables, by the numbering."""
    splits = left.problem.splits
    if splits is None:
        return np.zeros((2, 0), dtype=np.int64)
    return np.stack([left.tables[splits.tables], left.free[splits.variables]])


def split_node(left: Restriction, splits: IntArray) -> Restriction:
    """Return a node with those splits of the numbering that it can have."""
    tables, variables = splits
    place = np.full(max(int(left.tables.max(initial=-1)), int(tables.max(initial=-1))) + 1, -1)
    place[left.tables] = np.arange(left.tables.size)
    kept = (place[tables] >= 0) & (left.signs[variables] == 0)
    if not kept.any():
        return left
    variables = np.searchsorted(left.free, variables[kept])
    return replace(left, problem=split(left.problem, place[tables[kept]], variables))


def start_from(
    kept: NodeMultipliers, numbering: Numbering, left: Restriction, relaxation: ReducedRelaxation
) -> StructuredMultipliers | None:
    """Return a strictly feasible start for the relaxation of a node, or None."""
    warm = carried(kept, numbering, left, relaxation, MARGIN)
    if warm is None:
        return None
    # Both are strictly feasible, and so are their convex combinations.
    cold = starting_point(relaxation.program)
    return StructuredMultipliers(
        [(1 - BLEND) * a + BLEND * b for a, b in zip(warm.theta, cold.theta, strict=True)],
        (1 - BLEND) * warm.kappa + BLEND * cold.kappa,
        (1 - BLEND) * warm.pi + BLEND * cold.pi,
    )


def carried(
    kept: NodeMultipliers,
    numbering: Numbering,
    left: Restriction,
    relaxation: ReducedRelaxation,
    margin: float,
) -> StructuredMultipliers | None:
    """Return the multipliers for the relaxation of a node with slack `margin`, or None."""
    problem, program, scale = left.problem, relaxation.program, relaxation.scale
    if problem.coupling is not None:
        return None
    theta = _features(kept, numbering, left, relaxation)
    for part, family in zip(theta, program.tables, strict=True):
        rest = family.values - np.einsum("jkf,jf->jk", family.features, part)
        part[:, 0] = rest.min(axis=1, initial=np.inf) - margin
    pairs = np.zeros(problem.pair_first.size)
    if kept.pair_keys.size:
        keys = pair_keys(left, numbering.size)
        place = np.minimum(np.searchsorted(kept.pair_keys, keys), kept.pair_keys.size - 1)
        pairs = np.where(kept.pair_keys[place] == keys, kept.pairs[place], 0.0) / scale
    kappa = np.concatenate([[0.0], kept.kappa[left.free] / scale])
    warm = StructuredMultipliers(theta, kappa, pairs)
    form = relaxation.dual_point(warm).form(problem)[0] / scale
    inner = form[1:, 1:]
    try:
        lift = max(margin, margin - 1.1 * float(np.linalg.eigvalsh(inner)[0]))
        kappa[1:] -= lift
        inner = inner + lift * np.eye(inner.shape[0])
        kappa[0] = form[0, 0] - form[0, 1:] @ np.linalg.solve(inner, form[1:, 0]) - lift
    except np.linalg.LinAlgError:
        return None
    return warm if np.isfinite(kappa[0]) else None


def _features(
    kept: NodeMultipliers, numbering: Numbering, left: Restriction, relaxation: ReducedRelaxation
) -> list[FloatArray]:
    """Return the multipliers of tables and gates for the sums of a node, constants 0."""
    linear, square = kept.tables[left.tables].T
    # For a gate whose output x has been fixed to s, x u is now s u.
    idle = np.flatnonzero(left.tables >= numbering.tables)
    gate = left.tables[idle] - numbering.tables
    sign = left.signs[numbering.outputs[gate]]
    linear[idle] += kept.gates[gate, 0] + sign * kept.gates[gate, 3]
    square[idle] += kept.gates[gate, 1]
    # So it is for a table whose split has been fixed.
    by = np.zeros((kept.tables.shape[0], 2))
    variable = np.full(kept.tables.shape[0], -1)
    by[kept.splits[0]], variable[kept.splits[0]] = kept.split_values, kept.splits[1]
    by, variable = by[left.tables], variable[left.tables]
    known = np.where(variable >= 0, left.signs[variable], 0)
    linear += known * by[:, 1]
    linear += 2 * square * left.table_shift
    table_norm, gate_norm = relaxation.table_norm, relaxation.gate_norm
    tables = np.stack([0 * linear, linear * table_norm, square * table_norm**2], axis=1)
    straight, bent, alone, product = kept.gates[left.gates].T
    straight = straight + 2 * bent * left.gate_shift
    alone = alone + product * left.gate_shift
    parts = [0 * alone, straight * gate_norm, bent * gate_norm**2, alone, product * gate_norm]
    families = [tables[left.problem.whole], np.stack(parts, axis=1)]
    splits = left.problem.splits
    if splits is not None:
        own = splits.tables
        same = variable[own] == left.free[splits.variables]
        alone, product = np.where(same, by[own].T, 0.0)
        alone = alone + product * left.table_shift[own]
        product = product * table_norm[own]
        families.append(np.hstack([tables[own], np.stack([alone, product], axis=1)]))
    families = [family / relaxation.scale for family in families]
    if left.problem.cuts is not None:
        count = left.problem.cuts.count
        used = kept.cuts if kept.cuts.size == count else np.zeros(count)
        weight = -used * relaxation.cut_norm / relaxation.scale
        families.append(np.stack([0 * weight, weight], axis=1))
    return families


#: A table is left out if it has its least value with at least this probability.
LEAST_SHARE = 0.98

#: How far outside its least values the moments of a table may be, as a share of its range.
OUTSIDE = 0.02

#: A pair is left out if its multiplier is below this share of the mean, and as long as it occurs
#: with less than this probability.
SMALL_SHARE, RARE = 0.25, 0.02

#: A split is not inherited if its multiplier g is below this share of the mean.
SPLIT_SHARE = 0.5

#: With fewer unknowns a relaxation is so fast that nothing is left out.
WORTH_IT = 300


class NodeParts(NamedTuple):
    """What the relaxation of a node leaves out, and what it splits, by a numbering."""

    #: Numbers of tables and sorted keys of pairs that are left out.
    tables: IntArray
    pairs: IntArray
    #: Numbers of tables that are split, and their variables.
    splits: IntArray

    @property
    def bytes(self) -> int:
        """The approximate memory."""
        return int(self.tables.nbytes + self.pairs.nbytes + self.splits.nbytes)


def thinned(left: Restriction, parts: NodeParts, numbering: Numbering) -> Restriction:
    """Return a node without some of its tables and pairs, and with others split."""
    return split_node(_without(left, parts, numbering), parts.splits)


def _without(left: Restriction, idle: NodeParts, numbering: Numbering) -> Restriction:
    problem = left.problem
    unknowns = problem.links + problem.size + problem.pair_first.size
    if unknowns < WORTH_IT:
        return left
    live = ~np.isin(left.tables, idle.tables)
    pairs = ~np.isin(pair_keys(left, numbering.size), idle.pairs)
    # The values of a table are finite, and each is at least the least one.
    added = float(problem.values[~live].min(axis=1, initial=np.inf).sum())
    thin = replace(
        problem,
        constant=problem.constant + added,
        # Constants are summed once more; for integers both slacks are zero.
        slack=2 * problem.slack,
        table=Lattice(problem.table.rows[live], problem.table.points[live]),
        values=problem.values[live],
        pair_first=problem.pair_first[pairs],
        pair_second=problem.pair_second[pairs],
    )
    shift = left.table_shift[live]
    return replace(left, problem=thin, tables=left.tables[live], table_shift=shift)


def choose_parts(
    left: Restriction,
    thin: Restriction,
    numbering: Numbering,
    found: DualPoint,
    moments: FloatArray,
    probabilities: list[FloatArray],
    inputs: IntArray,
) -> NodeParts:
    """Return the parts of a node that its children leave out, and those that they split.

    Parameters
    ----------
    left, thin
        The whole node, and what was solved of it.
    found, moments, probabilities
        The solution: multipliers, moments, and the distributions of its tables.
    inputs
        The variables that may split a table.
    """
    problem = left.problem
    idle: BoolArray = _has_least_values(problem, moments)
    solved = np.isin(left.tables, thin.tables)
    idle[solved] = _least_shares(thin.problem, probabilities) >= LEAST_SHARE
    keys = pair_keys(left, numbering.size)
    rare = _probabilities(problem, moments) < RARE
    solved = np.isin(keys, pair_keys(thin, numbering.size))
    size = np.abs(found.pair)
    rare[solved] = size < SMALL_SHARE * size.mean() if size.size else False
    among = np.isin(thin.free, inputs)
    tables, variables = choose_splits(thin.problem, moments, probabilities[0], among)
    chosen = np.stack([thin.tables[tables], thin.free[variables]])
    size = np.abs(found.split[:, 1])
    kept = size >= SPLIT_SHARE * size.mean() if size.size else size > 0
    splits = np.hstack([splits_of(thin)[:, kept], chosen])
    return NodeParts(left.tables[idle], np.sort(keys[rare]), splits)


def _least_shares(problem: ReducedProblem, probabilities: list[FloatArray]) -> FloatArray:
    """Return the probability with which each table has its least value."""
    least = problem.values.min(axis=1, initial=np.inf)
    shares = np.zeros(least.size)
    whole, splits = problem.whole, problem.splits
    reached = problem.values[whole] <= least[whole, None]
    shares[whole] = (probabilities[0] * reached).sum(axis=1)
    if splits is not None:
        reached = splits.values <= least[splits.tables, None]
        shares[splits.tables] = (probabilities[2] * reached).sum(axis=1)
    return shares


def _has_least_values(problem: ReducedProblem, moments: FloatArray) -> BoolArray:
    """Whether each sum's two moments are, nearly, those of a distribution on the least values."""
    points, values = problem.table.points, problem.values
    least = values <= values.min(axis=1, keepdims=True, initial=np.inf)
    low = np.where(least, points, np.inf).min(axis=1, initial=np.inf)
    high = np.where(least, points, -np.inf).max(axis=1, initial=-np.inf)
    rows = problem.table.rows
    mean = rows @ moments[0, 1 : problem.size + 1]
    inner = moments[1 : problem.size + 1, 1 : problem.size + 1]
    square = np.einsum("ji,ik,jk->j", rows, inner, rows, optimize=True)
    room = OUTSIDE * (points.max(axis=1, initial=0.0) - points.min(axis=1, initial=0.0) + 1.0)
    # Distributions on [low, high] have  E[(u - low)(u - high)] <= 0.
    inside = square - (low + high) * mean + low * high <= room**2
    return np.asarray(inside & (mean >= low - room) & (mean <= high + room))


def _probabilities(problem: ReducedProblem, moments: FloatArray) -> FloatArray:
    """Return the probability that both literals of each pair hold."""
    a, b = variable_of(problem.pair_first) + 1, variable_of(problem.pair_second) + 1
    s, t = sign_of(problem.pair_first), sign_of(problem.pair_second)
    return np.asarray((1 + s * moments[0, a] + t * moments[0, b] + s * t * moments[a, b]) / 4)
