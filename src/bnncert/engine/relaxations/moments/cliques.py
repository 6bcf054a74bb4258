"""Cliques of variables for sparse relaxations.

* `layered`: the paper's theorem.  L = 1: each input with layer 1.  L = 2: each input with layer 1,
  and each last neuron with layer 1.  L >= 3: adjacent hidden layers (up to L-1), each input with
  layer 1, each last neuron with layer L-1.
* `pairwise`: every pair of neurons in adjacent layers (faster and much weaker).  These cliques
  have cycles and in general do not have the running-intersection property.
* `chordal`: the maximal cliques of a minimum-fill extension of the correlative sparsity graph.
* `dense`: one clique.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from bnncert.deadline import Deadline
from bnncert.engine.relaxations.moments.polynomial import PolynomialProblem
from bnncert.errors import InputError

Clique: TypeAlias = tuple[int, ...]
Sparsity: TypeAlias = Literal["layered", "pairwise", "chordal", "dense"]


def cliques(
    problem: PolynomialProblem, sparsity: Sparsity, deadline: Deadline | None = None
) -> tuple[Clique, ...]:
    """Return cliques that cover every variable of the problem.

    Raises OutOfTimeError if the deadline passes before they are found.
    """
    if sparsity == "dense":
        return (tuple(range(problem.size)),)
    if sparsity == "chordal":
        return chordal_cliques(problem, deadline)
    if sparsity == "layered":
        family = layered_cliques(problem.layers)
    elif sparsity == "pairwise":
        family = pairwise_cliques(problem.layers)
    else:
        raise InputError(f"sparsity is {sparsity!r}; expected layered, pairwise, chordal or dense")
    # The layer below a neuron with a constant sum may be empty.
    covered = {v for clique in family for v in clique}
    return (*family, *((v,) for v in range(problem.size) if v not in covered))


def covers(problem: PolynomialProblem, family: Sequence[Clique]) -> bool:
    """Whether every product of two variables in the objective lies in a clique."""
    members = [frozenset(c) for c in family]
    pairs = {frozenset(m) for m in problem.objective.terms if len(set(m)) > 1}
    return all(any(pair <= clique for clique in members) for pair in pairs)


def layered_cliques(layers: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return the cliques of the paper's theorem for layers x_0, .., x_L."""
    inputs, hidden = layers[0], [tuple(layer) for layer in layers[1:]]
    depth = len(hidden)
    made: list[Clique] = [(*hidden[k], *hidden[k + 1]) for k in range(depth - 2)]
    made += [(v, *hidden[0]) for v in inputs]
    if depth >= 2:
        made += [(*hidden[-2], v) for v in hidden[-1]]
    return tuple(tuple(sorted(c)) for c in made if c)


def pairwise_cliques(layers: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return {x_{i-1,j}, x_{i,k}} for all pairs of adjacent layers, input side first."""
    return tuple((a, b) for below, above in pairwise(layers) for a in below for b in above)


def chordal_cliques(
    problem: PolynomialProblem, deadline: Deadline | None = None
) -> tuple[Clique, ...]:
    """Return the maximal cliques of a minimum-fill elimination."""
    limit = deadline or Deadline(None)
    neighbours: dict[int, set[int]] = {v: set() for v in range(problem.size)}
    for polynomial in (problem.objective, *problem.inequalities):
        for monomial in polynomial.terms:
            for a in monomial:
                neighbours[a].update(b for b in monomial if b != a)
    made: list[frozenset[int]] = []
    remaining = dict(neighbours)
    while remaining:
        vertex = min(remaining, key=lambda v: (_fill(v, remaining, limit), len(remaining[v]), v))
        near = remaining.pop(vertex)
        clique = frozenset(near | {vertex})
        if not any(clique <= other for other in made):
            made.append(clique)
        for v in near:
            remaining[v] = (remaining[v] | near) - {v, vertex}
    # The reversed order of elimination has the running-intersection property.
    return tuple(tuple(sorted(c)) for c in reversed(made))


def _fill(vertex: int, graph: dict[int, set[int]], deadline: Deadline) -> int:
    deadline.check()
    near = graph[vertex]
    missing = sum(len(near) - 1 - len(graph[v] & near) for v in near)
    return missing // 2
