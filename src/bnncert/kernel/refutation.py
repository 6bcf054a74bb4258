r"""A refutation: clauses that follow one after the other by propagation, up to the empty one.

The network, the region and the assumption that some target is reached are inequalities of literals,

    sum_i a_i [l_i]  >=  d,      a_i > 0,  [l] = 1 if the literal is true and 0 if it is false.

That literal h implies w.x >= t for signs x is such an inequality: w.x = 2 sum |w_i| [l_i] - sum
|w_i|, where l_i says that x_i has the sign of w_i.  So with d = ceil((t + sum |w_i|) / 2) it is

    d [not h] + sum_i |w_i| [l_i]  >=  d.

A neuron with sum u has two of them: +1 implies u >= plus and -1 implies u <= minus, which both may
hold if a tie allows both signs.  A target has one for each of its functions, which it implies not
to be positive, and a budget of flips (`flips`) is one.  Clauses have a_i = d = 1: w.x >= 2 - k for
k literals, without a head h.

Propagation: the slack of an inequality is the sum of a_i over the literals that are not false,
minus d.  A negative slack is a conflict, and a literal with a_i > slack is true.  A clause follows
if propagation from the opposites of its literals ends with a conflict; it may then be used like the
facts.  The empty clause shows that no target is reached.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bnncert.kernel import refutation_loop as loop
from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.flips import UNITS, Flips, is_compiled
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.levels import Scores
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.skeleton import MOST_REACH, Skeleton
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction

#: The most entries of all inequalities, and literals of all clauses.
MOST_ENTRIES, MOST_LITERALS = 2**25, 2**25

#: Propagation of so many clauses takes as long as the facts take to be read.
CLAUSES_LIKE_FACTS = 50

#: Products of entries and clauses that are not worth the start of the compiled loop.
SMALL, SMALL_IF_LOADED = 2**23, 2**19

#: Sums of weights stay below this, so that 64 bits hold every slack.
LARGEST = 2**60


@dataclass(frozen=True, eq=False)
class Facts:
    """What propagation starts from.

    Row k is an inequality: its columns are literals, its values their weights, heaviest first.
    """

    variables: int
    rows: SparseRows
    degree: Integers

    @property
    def slack(self) -> Integers:
        """The slack of every inequality if no literal is false."""
        return self.rows.times(np.ones(2 * self.variables, dtype=np.int64)) - self.degree

    def tables(self) -> tuple[Any, ...]:
        """Sort inequalities by rows and by literals for the loop."""
        rows, order = self.rows, np.argsort(self.rows.columns, kind="stable")
        occurs = np.searchsorted(rows.columns[order], np.arange(2 * self.variables + 1))
        by_rows = rows.start, rows.columns.astype(np.int32), rows.values
        return (*by_rows, occurs, rows.row[order].astype(np.int32), rows.values[order])

    @staticmethod
    def of(variables: int, parts: Sequence[tuple[SparseRows, Integers, Integers]]) -> Facts:
        """Write that literal head_j implies rows_j.x >= least_j; without a head (-1) it holds."""
        least, head = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        if sum(rows.columns.size for rows, _, _ in parts) + head.size > MOST_ENTRIES:
            raise RejectedError(
                f"a refutation of inequalities with more than {MOST_ENTRIES} entries"
            )
        rows = SparseRows.stacked([rows for rows, _, _ in parts])
        total = rows.with_values(np.abs(rows.values)).times(np.ones(variables, dtype=np.int64))
        degree = (least + total + 1) // 2
        if np.any(total.astype(np.float64) + np.abs(degree.astype(np.float64)) > LARGEST):
            raise RejectedError("the weights of a refutation are too large")
        useful = np.flatnonzero(degree > 0)
        rows, degree, head = rows.take(useful), degree[useful], head[useful]
        led = np.flatnonzero(head >= 0)
        row = np.concatenate([rows.row, led])
        literal = np.concatenate([2 * rows.columns + (rows.values < 0), head[led] ^ 1])
        weight = np.concatenate([np.abs(rows.values), degree[led]])
        order = np.lexsort((-weight, row))
        start = np.searchsorted(row[order], np.arange(degree.size + 1))
        made = SparseRows(start, literal[order], weight[order], 2 * variables)
        return Facts(variables, made, degree)


def _clauses(start: Integers, literals: Integers) -> tuple[SparseRows, Integers, Integers]:
    """Write that one literal of each clause is true."""
    rows = SparseRows(start, literals >> 1, 1 - 2 * (literals & 1), 0)
    return rows, 2 - rows.sizes, np.full(rows.count, -1)


def facts(
    skeleton: Skeleton,
    geometry: Geometry,
    clauses: Clauses,
    targets: Sequence[Sequence[ScoreFunction]],
) -> Facts:
    """Collect the facts from which it should follow that none of the targets is reached.

    The variables are those of the skeleton, then the open neurons of the last of several layers,
    then one for each target, which is true only if the target is reached.
    """
    depth, owners = len(skeleton.layers), np.array(skeleton.owner, dtype=np.int64).reshape(-1, 2)
    members = np.flatnonzero(skeleton.layers[-1].state == 0)
    # In a network of one layer the functions are about its variables.
    first = skeleton.size if depth > 1 else 0
    goal = skeleton.size + (members.size if depth > 1 else 0)
    parts = []
    for number in timed(range(1, depth)):
        layer = skeleton.layers[number]
        open_ = np.flatnonzero(layer.state == 0)
        own = 2 * (skeleton.size + np.arange(open_.size))
        if number < depth - 1:
            # A neuron that copies its only open input, a variable of a layer below, adds nothing.
            open_ = open_[owners[layer.variable[open_], 0] == number]
            own = 2 * layer.variable[open_] + (layer.sign[open_] < 0)
        rows = layer.rows.matrix.take(open_)
        # No sum exceeds MOST_REACH, so larger thresholds may be clipped.
        most = MOST_REACH + 2
        plus, minus = (np.clip(t[open_], -most, most) for t in (layer.plus, layer.minus))
        parts += [(rows, plus, own), (rows.with_values(-rows.values), -minus, own ^ 1)]
    scores = Scores.of(skeleton, members, targets)
    weights = SparseRows.of_dense(-scores.weights.astype(np.int64))
    moved = SparseRows(weights.start, first + weights.columns, weights.values, goal)
    parts.append((moved, 1 - scores.enough.astype(np.int64), 2 * (goal + scores.target)))
    inputs = np.flatnonzero(owners[:, 0] == 0)
    flips = Flips.of(geometry, owners[inputs, 1])
    cost = (flips.cost * flips.home).astype(np.int64)[None]
    parts.append((SparseRows.of_dense(cost), np.abs(cost).sum(axis=1) - 2 * UNITS, np.array([-1])))
    if np.count_nonzero(skeleton.excluded) > MOST_ENTRIES:
        raise RejectedError(f"a refutation with more than {MOST_ENTRIES} literals of pairs")
    # Of literals that exclude each other, and of a proved clause's, one is false.
    pairs = np.argwhere(np.triu(skeleton.excluded, 1)).ravel() ^ 1
    parts.append(_clauses(np.arange(0, pairs.size + 1, 2), pairs))
    table, some = skeleton.literal_table(clauses), 2 * (goal + np.arange(len(targets)))
    parts.append(_clauses(table.start, table.columns ^ 1))
    parts.append(_clauses(np.array([0, some.size]), some))  # Some target is reached.
    return Facts.of(goal + len(targets), parts)


def follow(
    known: Facts, start: Integers, literals: Integers, *, compiled: bool | None = None
) -> loop.State:
    """Add clauses in turn, and return what is known then; reject one that does not follow.

    The compiled loop and Python's integers lead to the same (None: choose what is done sooner).
    """
    if compiled is None:
        steps = known.rows.columns.size * (start.size + CLAUSES_LIKE_FACTS)
        compiled = steps > (SMALL_IF_LOADED if "numba" in sys.modules else SMALL) and is_compiled()
    form = np.asarray if compiled else np.ndarray.tolist
    call, at_once = (loop.compiled_follow(), 2**23) if compiled else (loop.follow, 2**14)
    width, empty = 2 * known.variables, partial(np.zeros, dtype=np.int32)
    counters, value = np.zeros(loop.COUNTERS, dtype=np.int64), np.zeros(width, dtype=np.int8)
    counters[loop.CLAUSE], narrow = -1, literals.astype(np.int32)
    numbers = (
        *(*known.tables(), known.slack, value, empty(known.variables), empty(width) - 1, counters),
        *(empty(start.size), narrow.copy(), empty(2 * start.size)),
    )
    state = loop.State(*map(form, numbers))
    answer, clauses = loop.PAUSE, (form(start), form(narrow))
    while answer == loop.PAUSE:
        refuse_late()
        answer = call(state, *clauses, at_once)
    if answer == loop.OPEN:
        raise RejectedError("a clause does not follow by propagation")
    return state


class Refutation:
    """Reads the clauses of a refutation and follows them."""

    def __init__(self, known: Facts) -> None:
        self.known, self.literals, self.complete = known, 0, False
        self.read: list[tuple[Integers, Integers]] = []
        # A refutation has no clauses about the region and no leaves; the empty clause counts, too.
        self.learned: list[Clauses] = []
        self.leaves = self.followed = 0

    def take(self, section: Section) -> None:
        """Read clauses, of which only the last one is empty."""
        sizes, literals = section.integers("sizes"), section.integers("literals")
        if np.any((sizes < 0) | (sizes > literals.size)) or int(sizes.sum()) != literals.size:
            raise UnreadableError("section lemmas: sizes do not add up")
        self.literals += literals.size + sizes.size
        self.followed += sizes.size
        if self.literals > MOST_LITERALS:
            raise RejectedError(f"a refutation has more than {MOST_LITERALS} literals")
        if np.any((literals < 0) | (literals >= 2 * self.known.variables)):
            raise RejectedError("a clause has a literal that does not exist")
        if self.complete or np.any(sizes[:-1] == 0):
            raise RejectedError("a refutation continues after its end")
        self.complete = bool(sizes.size and sizes[-1] == 0)
        self.read.append((sizes, literals))

    def finish(self) -> None:
        """Reject a refutation that does not follow, or does not end with the empty clause."""
        if not self.complete:
            raise RejectedError("a refutation does not end with the empty clause")
        sizes, literals = map(np.concatenate, zip(*self.read, strict=True))
        follow(self.known, np.concatenate([[0], np.cumsum(sizes)]), literals)
