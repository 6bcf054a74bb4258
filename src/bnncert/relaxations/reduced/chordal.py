r"""Chordal components: the cliques of a chordal graph that contains all links of a reduced problem.

With maximal cliques C_1, C_2, .. of such a graph, T >= 0 iff T = sum_k T_k with T_k >= 0 on C_k and
the constant (Agler, Helton, McCullough and Rodman).  The freedom in that sum is one multiplier for
each pair inside a separator, s (s + 1) / 2 of them.

`costs` compares the floating-point operations of one interior-point step on one block, on connected
components and on cliques.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray
from bnncert.relaxations.reduced.components import components, link_groups
from bnncert.relaxations.reduced.problem import ReducedProblem

BlockForm: TypeAlias = Literal["whole", "parts", "conic"]

#: Work on one entry of the Newton matrix besides its factorisation, in operations.
PER_ENTRY = 600

#: Work of a sparse conic step on one entry of a block, in operations, and how much slower than a
#: dense one its factorisation runs (measured with Clarabel on cliques of 9 to 34 variables).
PER_ROW, SPARSE = 300_000, 4.0


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
    for group in link_groups(problem):
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
    for group, weight in zip(link_groups(problem), weights, strict=True):
        if group.size:
            counts[int(np.argmax(holds[:, group].all(axis=1)))] += weight
    np.add.at(counts, np.argmax(holds, axis=0), 1)
    return counts
