r"""Tables and conflicting pairs that a node leaves out of its relaxation.

If the moments of a node allow a table to have its least value with probability one, its quadratic
is 0 at the optimum, and the table is worth its least value.  Leaving it out therefore costs nothing
there, and little in the children, while the time of a relaxation grows with the third power of the
number of tables and pairs.  The same holds for pairs with small multipliers.  The moments of every
node show which of the parts that it left out its children need.  Any choice gives a valid bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem
from bnncert.engine.search.restrict import Restriction
from bnncert.engine.search.warm_start import Numbering, pair_keys

#: A table is left out if it has its least value with at least this probability.
LEAST_SHARE = 0.98

#: How far outside its least values the moments of a table may be, as a share of its range.
OUTSIDE = 0.02

#: A pair is left out if its multiplier is below this share of the mean, and as long as it occurs
#: with less than this probability.
SMALL_SHARE, RARE = 0.25, 0.02

#: With fewer unknowns a relaxation is so fast that nothing is left out.
WORTH_IT = 300


@dataclass(frozen=True, eq=False)
class IdleParts:
    """Numbers of tables and sorted keys of pairs of a numbering."""

    tables: IntArray
    pairs: IntArray

    @property
    def bytes(self) -> int:
        """The approximate memory."""
        return int(self.tables.nbytes + self.pairs.nbytes)


def without(left: Restriction, idle: IdleParts | None, numbering: Numbering) -> Restriction:
    """Return a node without some of its tables and pairs."""
    problem = left.problem
    unknowns = problem.links + problem.size + problem.pair_first.size
    if idle is None or unknowns < WORTH_IT:
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


def find_idle(
    left: Restriction,
    thin: Restriction,
    numbering: Numbering,
    found: DualPoint,
    moments: FloatArray,
    probabilities: FloatArray,
) -> IdleParts:
    """Return the parts of a node that its children leave out.

    Parameters
    ----------
    left, thin
        The whole node, and what was solved of it.
    found, moments, probabilities
        The solution: multipliers, moments, and the distributions of its tables.
    """
    problem = left.problem
    idle: BoolArray = _has_least_values(problem, moments)
    solved = np.isin(left.tables, thin.tables)
    least = thin.problem.values <= thin.problem.values.min(axis=1, keepdims=True, initial=np.inf)
    idle[solved] = (probabilities * least).sum(axis=1) >= LEAST_SHARE
    keys = pair_keys(left, numbering.size)
    rare = _probabilities(problem, moments) < RARE
    solved = np.isin(keys, pair_keys(thin, numbering.size))
    size = np.abs(found.pair)
    rare[solved] = size < SMALL_SHARE * size.mean() if size.size else False
    return IdleParts(left.tables[idle], np.sort(keys[rare]))


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
