r"""Blocks that follow the windows of convolutional layers.

Two variables are *linked* if a table's row, a gate (row and output) or a clash contains both.  All
other entries of T are zero but those of the constant 1, so the form splits along that graph:

* *components*: T = sum_c T_c with nothing in common but the constant, and

      f = constant + sum_c f_c,      bound(f) = constant + sum_c bound(f_c),

  because T_c >= 0 for all c gives T >= 0, and moments of the parts complete to moments of the
  whole: E[x_i x_j] = E[x_i] E[x_j] for i and j in different parts.
* *cliques*: if a chordal graph with maximal cliques C_1, C_2, .. contains the links, T >= 0 iff
  T = sum_k T_k with T_k >= 0 on C_k and the constant (Agler, Helton, McCullough and Rodman).  The
  freedom in that sum is one multiplier for each pair inside a separator, s (s + 1) / 2 of them.

`costs` compares the floating-point operations of one interior-point step in each form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.literals import renumbered, variable_of
from bnncert.relaxations.reduced.dual_point import DualPoint
from bnncert.relaxations.reduced.problem import UNIT, Lattice, ReducedProblem

BlockForm: TypeAlias = Literal["whole", "parts", "conic"]

#: Work on one entry of the Newton matrix besides its factorisation, in operations.
PER_ENTRY = 600

#: Work of a sparse conic step on one entry of a block, in operations, and how much slower than a
#: dense one its factorisation runs (measured with Clarabel on cliques of 9 to 34 variables).
PER_ROW, SPARSE = 300_000, 4.0


@dataclass(frozen=True, eq=False)
class Component:
    """One component, and which variables, tables, gates and clashes of the whole it holds."""

    problem: ReducedProblem
    variables: IntArray
    tables: IntArray
    gates: IntArray
    pairs: IntArray


@dataclass(frozen=True, eq=False)
class Cliques:
    """Maximal cliques of a chordal graph; clique k meets its parent in `separators[k]`.

    Parents come first; a root has parent -1 and an empty separator.
    """

    members: tuple[IntArray, ...]
    parents: tuple[int, ...]
    separators: tuple[IntArray, ...]


@dataclass(frozen=True)
class Costs:
    """Operations of one interior-point step.

    `whole` is one block, `parts` are the components one after the other, `cliques` the clique
    blocks with a multifrontal Newton system, and `conic` the clique blocks in a sparse conic
    solver, which factorises a dense matrix over the n (n + 1) / 2 entries of each block.
    `unknowns` and `overlap` are the multipliers of one block and those that cliques add.
    """

    whole: float
    parts: float
    cliques: float
    conic: float
    unknowns: int
    overlap: int

    @property
    def cheapest(self) -> BlockForm:
        """The cheapest of the forms that the package has a solver for."""
        if self.conic < min(self.whole, self.parts):
            return "conic"
        return "parts" if self.parts < self.whole else "whole"


# -- the graph ------------------------------------------------------------------------------


def _groups(problem: ReducedProblem) -> Iterator[IntArray]:
    """Yield sets of variables that are linked with each other."""
    for row in problem.table.rows:
        yield np.flatnonzero(row)
    for row, output in zip(problem.gates.rows, problem.outputs, strict=True):
        yield np.append(np.flatnonzero(row), output)
    yield from variable_of(np.stack([problem.pair_first, problem.pair_second], axis=1))
    if problem.coupling is not None:
        # The input belongs to all windows at once.
        yield np.arange(problem.size)


def labels(problem: ReducedProblem) -> IntArray:
    """Return the number of the component of each variable."""
    first, second = [], []
    for group in _groups(problem):
        # A path through the group connects it as well as all of its pairs do.
        first.append(group[:-1])
        second.append(group[1:])
    nothing = np.zeros(0, dtype=np.int64)
    ends = np.concatenate([nothing, *first]), np.concatenate([nothing, *second])
    graph = sp.coo_array((np.ones(ends[0].size), ends), shape=(problem.size, problem.size))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


# -- components -----------------------------------------------------------------------------


def components(problem: ReducedProblem) -> list[Component]:
    """Split a problem into its components, the largest last.

    The first part keeps the constant and the slack, and the others have none.  A problem with a
    coupling is one part.
    """
    label = labels(problem)
    count = int(label.max(initial=-1)) + 1
    if count <= 1:
        whole = (np.arange(n) for n in _sizes(problem))
        return [Component(problem, *whole)]
    order = np.argsort(np.bincount(label, minlength=count), kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    label = rank[label]
    # A row without entries is a constant: any part may have it.
    table = _label_of_rows(problem.table.rows, label)
    pair = label[variable_of(problem.pair_first)]
    triple = label[variable_of(problem.triples)]
    inside = np.flatnonzero((triple == triple[:, :1]).all(axis=1))
    parts = []
    for k in range(count):
        variables = np.flatnonzero(label == k)
        tables, gates = np.flatnonzero(table == k), np.flatnonzero(label[problem.outputs] == k)
        pairs = np.flatnonzero(pair == k)
        place = np.full(problem.size, -1, dtype=np.int64)
        place[variables] = np.arange(variables.size)
        triples = problem.triples[inside[triple[inside, 0] == k]]
        part = replace(
            problem,
            variables=problem.variables[variables],
            constant=problem.constant if k == 0 else 0.0,
            slack=problem.slack if k == 0 else 0.0,
            linear=problem.linear[variables],
            table=_lattice_part(problem.table, tables, variables),
            values=problem.values[tables],
            gates=_lattice_part(problem.gates, gates, variables),
            gate_signs=problem.gate_signs[gates],
            outputs=place[problem.outputs[gates]],
            pair_first=renumbered(problem.pair_first[pairs], place),
            pair_second=renumbered(problem.pair_second[pairs], place),
            triples=renumbered(triples, place),
        )
        parts.append(Component(part, variables, tables, gates, pairs))
    return parts


def _sizes(problem: ReducedProblem) -> tuple[int, int, int, int]:
    tables, gates = problem.table.rows.shape[0], problem.gates.rows.shape[0]
    return problem.size, int(tables), int(gates), int(problem.pair_first.size)


def _label_of_rows(rows: FloatArray, label: IntArray) -> IntArray:
    filled = (rows != 0).any(axis=1)
    return np.where(filled, label[np.argmax(rows != 0, axis=1)], 0)


def _lattice_part(lattice: Lattice, rows: IntArray, columns: IntArray) -> Lattice:
    return Lattice(lattice.rows[np.ix_(rows, columns)], lattice.points[rows], lattice.sizes[rows])


def join(problem: ReducedProblem, parts: list[Component], duals: list[DualPoint]) -> DualPoint:
    """Return the certificate of the whole: its bound is the sum of the parts' bounds.

    A T_c that is indefinite by lambda is lifted by lambda I first, which costs its own part what
    the bound would take off anyway, and the whole nothing more.
    """
    size, tables, gates, pairs = _sizes(problem)
    table, gate = np.zeros((2, tables)), np.zeros((4, gates))
    diagonal, pair = np.zeros(size + 1), np.zeros(pairs)
    for part, one in zip(parts, duals, strict=True):
        table[:, part.tables] = one.table_linear, one.table_square
        gate[:, part.gates] = one.gate_linear, one.gate_square, one.gate_sign, one.gate_product
        least = float(np.linalg.eigvalsh(one.form(part.problem)[0])[0])
        lifted = one.diagonal + min(0.0, least)
        diagonal[0] += lifted[0]
        diagonal[1 + part.variables] = lifted[1:]
        pair[part.pairs] = one.pair
    return DualPoint(
        table_linear=table[0],
        table_square=table[1],
        gate_linear=gate[0],
        gate_square=gate[1],
        gate_sign=gate[2],
        gate_product=gate[3],
        diagonal=diagonal,
        pair=pair,
    )


def join_moments(
    problem: ReducedProblem, parts: list[Component], moments: list[FloatArray]
) -> FloatArray:
    """Return moments of the whole in which the parts are independent of each other."""
    mean = np.ones(problem.size + 1)
    for part, m in zip(parts, moments, strict=True):
        mean[1 + part.variables] = m[0, 1:]
    whole = np.outer(mean, mean)
    for part, m in zip(parts, moments, strict=True):
        own = 1 + part.variables
        whole[np.ix_(own, own)] = m[1:, 1:]
    return whole


@dataclass(eq=False)
class ComponentAnswer:
    """What a solver says of one part; `primal` includes the part's constant."""

    dual: DualPoint
    moments: FloatArray | None
    primal: float


@dataclass(eq=False)
class SplitBound:
    """What the parts say of the whole."""

    lower: float
    dual: DualPoint
    moments: FloatArray | None
    primal: float
    parts: int


def split_bound(
    problem: ReducedProblem, solve: Callable[[ReducedProblem, bool], ComponentAnswer]
) -> SplitBound:
    """Bound a problem part by part.

    `solve` is called with each part and whether it is the last one.  The last part, the largest,
    comes with the constant of the whole and the bounds of all others in its own constant, so that
    a solver that stops once the sign of its bound is known decides the whole.
    """
    parts = components(problem)
    answers: list[ComponentAnswer] = []
    lower, primal = 0.0, 0.0
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if last:
            asked = replace(part.problem, constant=lower + part.problem.constant)
            answer = solve(asked, True)
            primal += answer.primal - lower
        else:
            answer = solve(part.problem, False)
            lower += answer.dual.bound(part.problem)
            primal += answer.primal
        answers.append(answer)
    duals = [a.dual for a in answers]
    dual = duals[0] if len(parts) == 1 else join(problem, parts, duals)
    known = [a.moments for a in answers if a.moments is not None]
    moments = join_moments(problem, parts, known) if len(known) == len(parts) else None
    return SplitBound(dual.bound(problem), dual, moments, primal, len(parts))


def sum_of_bounds(parts: list[Component], duals: list[DualPoint]) -> float:
    """Return the sum of the parts' bounds, rounded down."""
    bounds = [c.bound(p.problem) for p, c in zip(parts, duals, strict=True)]
    return sum(bounds) - len(bounds) * UNIT * sum(abs(b) for b in bounds)


# -- cliques --------------------------------------------------------------------------------


def chordal_cliques(problem: ReducedProblem) -> Cliques:
    """Eliminate the variable with the fewest neighbours, again and again; keep maximal cliques."""
    near = _adjacency(problem)
    order, later = _eliminate(near)
    position = {v: i for i, v in enumerate(order)}
    home = [-1] * len(order)
    members: list[int] = []
    parents: list[int] = []
    separators: list[int] = []
    # From the last variable back: each one joins its parent's clique, or begins a new one.
    for i in range(len(order) - 1, -1, -1):
        meets = later[i]
        parent = home[min(position[u] for u in _bits(meets))] if meets else -1
        if parent >= 0 and meets == members[parent]:
            members[parent] |= 1 << order[i]
            home[i] = parent
            continue
        members.append(meets | 1 << order[i])
        parents.append(parent)
        separators.append(meets)
        home[i] = len(members) - 1
    return Cliques(
        tuple(np.array(list(_bits(m)), dtype=np.int64) for m in members),
        tuple(parents),
        tuple(np.array(list(_bits(s)), dtype=np.int64) for s in separators),
    )


def _adjacency(problem: ReducedProblem) -> list[int]:
    """Return the neighbours of each variable as the bits of an integer."""
    near = [0] * problem.size
    for group in _groups(problem):
        members = group.tolist()
        bits = 0
        for v in members:
            bits |= 1 << v
        for v in members:
            near[v] |= bits
    return [bits & ~(1 << v) for v, bits in enumerate(near)]


def _eliminate(near: list[int]) -> tuple[list[int], list[int]]:
    """Return an order by minimum degree, and each variable's neighbours that come after it."""
    near = list(near)
    left = set(range(len(near)))
    order, later = [], []
    while left:
        vertex = min(left, key=lambda v: (near[v].bit_count(), v))
        left.remove(vertex)
        order.append(vertex)
        later.append(near[vertex])
        for u in _bits(near[vertex]):
            near[u] = (near[u] | near[vertex]) & ~(1 << u | 1 << vertex)
    return order, later


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


# -- costs ----------------------------------------------------------------------------------


def _newton(unknowns: int, size: int) -> float:
    """Return the operations of one step of the structured solver."""
    return unknowns**3 / 3 + PER_ENTRY * unknowns**2 + 40.0 * size**3


def costs(problem: ReducedProblem) -> Costs:
    """Estimate what one interior-point step costs in each form."""
    cliques = chordal_cliques(problem)
    unknowns = problem.links + problem.size + 1 + int(problem.pair_first.size)
    local = _assigned(problem, cliques)
    overlap = [s.size * (s.size + 1) // 2 for s in cliques.separators]
    inherited = np.zeros(len(overlap), dtype=np.int64)
    fronts = 0.0
    for k in range(len(overlap) - 1, -1, -1):
        # A front eliminates its own multipliers and those it shares with its children.
        width, after = int(local[k] + inherited[k]) + overlap[k], overlap[k]
        fronts += (width**3 - after**3) / 3 + PER_ENTRY * width**2
        fronts += 40.0 * (cliques.members[k].size + 1) ** 3
        if cliques.parents[k] >= 0:
            inherited[cliques.parents[k]] += after
    triangles = np.array([(m.size + 1) * (m.size + 2) // 2 for m in cliques.members], dtype=float)
    conic = float(SPARSE * (triangles**3).sum() / 3 + PER_ROW * triangles.sum())
    return Costs(
        whole=_newton(unknowns, problem.size + 1),
        parts=sum(
            _newton(p.problem.links + p.variables.size + 1 + p.pairs.size, p.variables.size + 1)
            for p in components(problem)
        ),
        cliques=fronts,
        conic=conic,
        unknowns=unknowns,
        overlap=sum(overlap),
    )


def _assigned(problem: ReducedProblem, cliques: Cliques) -> npt.NDArray[np.int64]:
    """Return how many multipliers belong to each clique: each to one that holds its variables."""
    holds = np.zeros((len(cliques.members), problem.size), dtype=bool)
    for k, members in enumerate(cliques.members):
        holds[k, members] = True
    counts = np.zeros(len(cliques.members), dtype=np.int64)
    tables, gates = problem.table.rows.shape[0], problem.gates.rows.shape[0]
    weights = [2] * tables + [4] * gates + [1] * int(problem.pair_first.size)
    weights += [0] if problem.coupling is not None else []
    for group, weight in zip(_groups(problem), weights, strict=True):
        if group.size:
            counts[int(np.argmax(holds[:, group].all(axis=1)))] += weight
    np.add.at(counts, np.argmax(holds, axis=0), 1)
    return counts
