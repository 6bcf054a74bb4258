r"""A refutation: clauses that follow one after the other by propagation, up to the empty one.

The network, the region and the assumption that some target is reached are inequalities of literals,

    sum_i a_i [l_i]  >=  d,      a_i > 0,  [l] = 1 if the literal is true and 0 if it is false.

That literal h implies w.x >= t for signs x is such an inequality: w.x = 2 sum |w_i| [l_i] - sum
|w_i|, where l_i says that x_i has the sign of w_i.  So with d = ceil((t + sum |w_i|) / 2) it is

    d [not h] + sum_i |w_i| [l_i]  >=  d.

A neuron with sum u has two of them: +1 implies u >= plus and -1 implies u <= minus, which both may
hold if a tie allows both signs.  A target has one for each of its functions, which it implies not
to be positive, and a budget of flips (`flips`) is one.  Clauses have a_i = d = 1.

Propagation: the slack of an inequality is the sum of a_i over the literals that are not false,
minus d.  A negative slack is a conflict, and a literal with a_i > slack is true.  A clause follows
if propagation from the opposites of its literals ends with a conflict; it may then be used like the
facts.  The empty clause shows that no target is reached.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.flips import UNITS, Flips, is_compiled
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.levels import Scores
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.skeleton import MOST_REACH, Skeleton
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction

#: The most entries of all inequalities, pairs of literals, and literals of all clauses.
MOST_ENTRIES, MOST_PAIRS, MOST_LITERALS = 2**24, 2**24, 2**25

#: Propagation of so many clauses takes as long as the facts take to be read.
CLAUSES_LIKE_FACTS = 50

#: Products of entries and clauses that are not worth the start of the compiled loop.
SMALL, SMALL_IF_LOADED = 2**23, 2**19

#: Sums of weights stay below this, so that 64 bits hold every slack.
LARGEST = 2**62


@dataclass(frozen=True, eq=False)
class Facts:
    """What propagation starts from.

    Row k of `rows` is an inequality: its columns are literals, its values their weights, heaviest
    first.  A row of `clauses` has literals of which one is true.
    """

    variables: int
    rows: SparseRows
    degree: Integers
    clauses: SparseRows

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.rows.columns.size + self.clauses.columns.size

    @property
    def slack(self) -> Integers:
        """The slack of every inequality if no literal is false."""
        return self.rows.times(np.ones(2 * self.variables, dtype=np.int64)) - self.degree

    def tables(self) -> tuple[npt.NDArray[Any], ...]:
        """Sort inequalities by rows and by literals for the compiled loop."""
        rows, order = self.rows, np.argsort(self.rows.columns, kind="stable")
        return (
            *(rows.start, rows.columns.astype(np.int32), rows.values),
            rows.values[rows.start[:-1]],
            np.searchsorted(rows.columns[order], np.arange(2 * self.variables + 1)),
            *(rows.row[order].astype(np.int32), rows.values[order]),
        )


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
    made = _Inequalities(goal + len(targets))
    for number in range(1, depth):
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
        made.add(rows, plus, own)
        made.add(rows.with_values(-rows.values), -minus, own ^ 1)
    scores = Scores.of(skeleton, members, targets)
    weights = SparseRows.of_dense(-scores.weights.astype(np.int64))
    moved = SparseRows(weights.start, first + weights.columns, weights.values, goal)
    made.add(moved, 1 - scores.enough.astype(np.int64), 2 * (goal + scores.target))
    inputs = np.flatnonzero(owners[:, 0] == 0)
    flips = Flips.of(geometry, owners[inputs, 1])
    cost = (flips.cost * flips.home).astype(np.int64)[None]
    made.add(SparseRows.of_dense(cost), np.abs(cost).sum(axis=1) - 2 * UNITS, np.array([-1]))
    if np.count_nonzero(skeleton.excluded) > MOST_PAIRS:
        raise RejectedError(f"a refutation with more than {MOST_PAIRS} pairs of literals")
    width = 2 * made.variables
    # Literals that exclude each other and the signs of a proved clause are not all true, and some
    # target is reached.
    excluded = np.argwhere(np.triu(skeleton.excluded, 1)).ravel() ^ 1
    pairs = SparseRows(np.arange(0, excluded.size + 1, 2), excluded, np.ones_like(excluded), width)
    table, some = skeleton.literal_table(clauses), 2 * (goal + np.arange(len(targets)))
    region = SparseRows(table.start, table.columns ^ 1, table.values, width)
    reached = SparseRows(np.array([0, some.size]), some, some, width)
    return Facts(made.variables, *made.stacked(), SparseRows.stacked([pairs, region, reached]))


class _Inequalities:
    """Inequalities that are collected."""

    def __init__(self, variables: int) -> None:
        self.variables, self.count, self.size = variables, 0, 0
        self.entries: list[tuple[Integers, Integers, Integers]] = []
        self.degrees: list[Integers] = []

    def add(self, rows: SparseRows, least: Integers, head: Integers) -> None:
        """Add that literal head_j implies rows_j.x >= least_j; without a head (-1) it holds."""
        refuse_late()
        sizes = np.abs(rows.values)
        total = rows.with_values(sizes).times(np.ones(rows.width, dtype=np.int64))
        degree = (least + total + 1) // 2
        self.size += rows.columns.size + head.size
        if self.size > MOST_ENTRIES:
            raise RejectedError(
                f"a refutation of inequalities with more than {MOST_ENTRIES} entries"
            )
        if np.any(total.astype(np.float64) + np.abs(degree.astype(np.float64)) > LARGEST / 4):
            raise RejectedError("the weights of a refutation are too large")
        useful = np.flatnonzero(degree > 0)
        rows, degree, head = rows.take(useful), degree[useful], head[useful]
        led = np.flatnonzero(head >= 0)
        self.entries.append(
            (
                self.count + np.concatenate([rows.row, led]),
                np.concatenate([2 * rows.columns + (rows.values < 0), head[led] ^ 1]),
                np.concatenate([np.abs(rows.values), degree[led]]),
            )
        )
        self.degrees.append(degree)
        self.count += degree.size

    def stacked(self) -> tuple[SparseRows, Integers]:
        """Stack all of them, heaviest literals first, with their degrees."""
        row, literal, weight = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        order = np.lexsort((-weight, row))
        start = np.searchsorted(row[order], np.arange(self.count + 1))
        rows = SparseRows(start, literal[order], weight[order], 2 * self.variables)
        return rows, np.concatenate(self.degrees)


class PlainPropagator:
    """Propagation in Python's integers; clauses are inequalities like all others."""

    def __init__(self, known: Facts) -> None:
        #: 1: true, -1: false, 0: open.
        self.value = [0] * (2 * known.variables)
        self.trail: list[int] = []
        #: How many literals of the trail have been taken off the slacks.
        self.done = 0
        self.rows: list[list[tuple[int, int]]] = []
        self.slack: list[int] = []
        self.occurs: list[list[tuple[int, int]]] = [[] for _ in self.value]
        self.refuted = False
        entries = list(zip(known.rows.columns.tolist(), known.rows.values.tolist(), strict=True))
        degrees = known.degree.tolist()
        for part, degree in timed(zip(pairwise(known.rows.start), degrees, strict=True)):
            self._add(entries[slice(*part)], degree)
        for clause in timed(_clauses(known.clauses.start, known.clauses.columns)):
            self._add([(literal, 1) for literal in clause], 1)
        self.refuted = not (all(map(self._look, range(len(self.rows)))) and self._propagate())

    def _add(self, entries: list[tuple[int, int]], degree: int) -> None:
        """Add an inequality of open literals, heaviest first."""
        for literal, weight in entries:
            self.occurs[literal].append((len(self.rows), weight))
        self.rows.append(entries)
        self.slack.append(sum(weight for _, weight in entries) - degree)

    def _set(self, literal: int) -> None:
        self.value[literal], self.value[literal ^ 1] = 1, -1
        self.trail.append(literal)

    def _look(self, row: int) -> bool:
        """Set the literals of an inequality that have to be true; False: it cannot hold."""
        for literal, weight in self.rows[row]:
            if weight <= self.slack[row]:
                break
            if self.value[literal] == 0:
                self._set(literal)
        return self.slack[row] >= 0

    def _propagate(self) -> bool:
        """Propagate the literals of the trail that are not done; False: there is a conflict."""
        fine = True
        while fine and self.done < len(self.trail):
            refuse_late()
            touched = self.occurs[self.trail[self.done] ^ 1]
            self.done += 1
            for row, weight in touched:
                self.slack[row] -= weight
            for row, _ in touched:
                fine = self._look(row) and fine
        return fine

    def _undo(self, size: int) -> None:
        """Forget the literals after the first `size`."""
        for place, literal in enumerate(self.trail[size:], size):
            self.value[literal] = self.value[literal ^ 1] = 0
            if place < self.done:
                for row, weight in self.occurs[literal ^ 1]:
                    self.slack[row] += weight
        del self.trail[size:]
        self.done = min(self.done, size)

    def follow(self, start: Integers, literals: Integers) -> None:
        """Add clauses in turn; reject one that does not follow by propagation."""
        for clause in timed(_clauses(start, literals)):
            size, fits = len(self.trail), not self.refuted
            for literal in clause:
                fits = fits and self.value[literal] < 1
                if fits and self.value[literal] == 0:
                    self._set(literal ^ 1)
            assumed = [(literal ^ 1, 1) for literal in self.trail[size:]]
            if fits and self._propagate():
                raise RejectedError("a clause does not follow by propagation")
            self._undo(size)
            if fits:
                # Literals that were false before stay false.
                self._add(assumed, 1)
                self.refuted = not (self._look(len(self.rows) - 1) and self._propagate())


def _clauses(start: Integers, literals: Integers) -> Iterator[list[int]]:
    for part in pairwise(start.tolist()):
        yield literals[slice(*part)].tolist()


class CompiledPropagator:
    """The same by a compiled loop: clauses are watched by two of their literals each."""

    def __init__(self, known: Facts) -> None:
        # Imported on use: numba takes a third of a second to import.
        from bnncert.kernel import refutation_loop

        self.loop = refutation_loop
        self.tables, literals = known.tables(), 2 * known.variables
        self.counters = np.zeros(refutation_loop.COUNTERS, dtype=np.int64)
        self.value = np.zeros(literals, dtype=np.int8)
        self.state = (
            self.value,
            np.zeros(known.variables, dtype=np.int32),
            known.slack,
            np.full(literals, -1, dtype=np.int32),
            self.counters,
        )
        self.kept = [np.zeros(0, dtype=np.int32)] * 3
        self._run(known.clauses.start, known.clauses.columns, 0)

    @property
    def refuted(self) -> bool:
        """Whether the facts and clauses contradict each other without any assumption."""
        return bool(self.counters[self.loop.REFUTED])

    def follow(self, start: Integers, literals: Integers) -> None:
        """Add clauses in turn; reject one that does not follow by propagation."""
        self._run(start, literals, 1)

    def _run(self, start: Integers, literals: Integers, proved: int) -> None:
        """Add clauses in turn; with `proved`, each has to follow."""
        counters, loop = self.counters, self.loop
        # Room for what is kept and for all that may be added.
        kept, used = counters[loop.CLAUSES] + start.size, counters[loop.LITERALS] + literals.size
        sizes = zip(self.kept, (used, kept, 2 * kept), strict=True)
        self.kept = [np.append(a[:n], np.zeros(max(0, n - a.size), a.dtype)) for a, n in sizes]
        counters[loop.CLAUSE] = 0
        narrow, answer = literals.astype(np.int32), loop.PAUSE
        while answer == loop.PAUSE:
            refuse_late()
            kept_now = tuple(self.kept)
            answer = loop.timely_follow(self.tables, self.state, kept_now, start, narrow, proved)
        if answer == loop.OPEN:
            raise RejectedError("a clause does not follow by propagation")


class Refutation:
    """Reads the clauses of a refutation and follows them."""

    def __init__(self, known: Facts) -> None:
        self.known, self.literals, self.complete = known, 0, False
        self.propagator: PlainPropagator | CompiledPropagator | None = None
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
        if self.propagator is None:
            self.propagator = propagator(self.known, sizes.size)
        self.propagator.follow(np.concatenate([[0], np.cumsum(sizes)]), literals)

    def finish(self) -> None:
        """Reject a refutation that does not end with the empty clause."""
        if not self.complete:
            raise RejectedError("a refutation does not end with the empty clause")


def propagator(known: Facts, clauses: int) -> PlainPropagator | CompiledPropagator:
    """Choose what follows so many clauses sooner; both accept the same."""
    steps = known.size * (clauses + CLAUSES_LIKE_FACTS)
    large = steps > (SMALL_IF_LOADED if "numba" in sys.modules else SMALL)
    return CompiledPropagator(known) if large and is_compiled() else PlainPropagator(known)
