r"""Connected components of a reduced problem, bounded one by one.

Two variables are *linked* if a table's row, a gate (row and output) or a conflicting pair contains
both.  All other entries of T are zero except those of the constant 1.  If the graph of links has
several components, T = sum_c T_c with nothing in common but the constant, and

    f = constant + sum_c f_c,      bound(f) = constant + sum_c bound(f_c),

because T_c >= 0 for all c gives T >= 0, and moments of the components complete to moments of the
whole: E[x_i x_j] = E[x_i] E[x_j] for i and j in different components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import renumbered, variable_of
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem


@dataclass(frozen=True, eq=False)
class Component:
    """One component, and its variables, tables, gates and pairs by their numbers in the whole."""

    problem: ReducedProblem
    variables: IntArray
    tables: IntArray
    gates: IntArray
    pairs: IntArray


def link_groups(problem: ReducedProblem) -> Iterator[IntArray]:
    """Yield sets of variables that are linked with each other."""
    for row in problem.table.rows:
        yield np.flatnonzero(row)
    for row, output in zip(problem.gates.rows, problem.outputs, strict=True):
        yield np.append(np.flatnonzero(row), output)
    yield from variable_of(np.stack([problem.pair_first, problem.pair_second], axis=1))
    if problem.coupling is not None or problem.cuts is not None:
        # The input links all variables with each other.
        yield np.arange(problem.size)


def labels(problem: ReducedProblem) -> IntArray:
    """Return the number of the component of each variable."""
    # Imported on use: it takes longer than the rest of this package.
    from scipy.sparse.csgraph import connected_components

    first, second = [], []
    for group in link_groups(problem):
        # A path through the group is enough to connect it.
        first.append(group[:-1])
        second.append(group[1:])
    nothing = np.zeros(0, dtype=np.int64)
    ends = np.concatenate([nothing, *first]), np.concatenate([nothing, *second])
    graph = sp.coo_array((np.ones(ends[0].size), ends), shape=(problem.size, problem.size))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def components(problem: ReducedProblem) -> list[Component]:
    """Split a problem into its components, the largest last.

    The constant and the slack belong to the first part.  A problem with a coupling is one part.
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
    # A row without entries is a constant, which can belong to any part.
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
    return Lattice(lattice.rows[np.ix_(rows, columns)], lattice.points[rows])


def join(problem: ReducedProblem, parts: list[Component], duals: list[DualPoint]) -> DualPoint:
    """Return the dual point of the whole, whose bound is the sum of the bounds of the parts.

    A T_c with a negative eigenvalue lambda is shifted by -lambda I.  The bound of its part already
    includes the loss by lambda, so the bound of the whole does not become smaller.
    """
    size, tables, gates, pairs = _sizes(problem)
    joined = DualPoint(
        np.zeros((tables, 2)), np.zeros((gates, 4)), np.zeros(size + 1), np.zeros(pairs)
    )
    for part, one in zip(parts, duals, strict=True):
        joined.table[part.tables] = one.table
        joined.gate[part.gates] = one.gate
        least = float(np.linalg.eigvalsh(one.form(part.problem)[0])[0])
        lifted = one.diagonal + min(0.0, least)
        joined.diagonal[0] += lifted[0]
        joined.diagonal[1 + part.variables] = lifted[1:]
        joined.pair[part.pairs] = one.pair
    return joined


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
    """The solution of one part; `primal` includes the constant of the part."""

    dual: DualPoint
    moments: FloatArray | None
    primal: float


@dataclass(eq=False)
class SplitBound:
    """The bound of the whole from the solutions of the parts."""

    lower: float
    dual: DualPoint
    moments: FloatArray | None
    primal: float
    parts: int


def split_bound(
    problem: ReducedProblem, solve: Callable[[ReducedProblem, bool], ComponentAnswer]
) -> SplitBound:
    """Bound a problem part by part.

    `solve` is called with each part and whether it is the last one.  The constant of the last and
    largest part includes the bounds of all others, so that a solver that stops once the sign of its
    bound is known decides the whole problem.
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
