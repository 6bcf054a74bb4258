r"""Moment relaxations of polynomial problems, and rigorous bounds from their duals.

Order d on cliques I_1, .., I_p:  minimise L(f) over pseudo-moments y_a = L(x^a) such that

    M_d(y, I_k) >= 0 for every clique,     M_{d-1}(g y) >= 0 for every constraint g >= 0,

where x^2 = 1 is substituted for binary variables.  The dual multipliers are Gram matrices with

    f - lambda = sum_k v_k' G_k v_k + sum_g (v_g' G_g v_g) g     as polynomials.

The matrices that a solver returns are projected to the cone.  With the remainder
R = f - (right-hand side), the bound  R_0 - sum_{a != 0} |R_a|  is valid, because |x^a| <= 1.

The cliques of variables:

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
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.relaxations.moments.polynomial import (
    Monomial,
    Polynomial,
    PolynomialProblem,
    reduce_monomial,
)
from bnncert.engine.solvers.conic import ConicProgram, pack, unpack
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


#: Relaxations with more scalar moments are refused.
MOST_MOMENTS = 3_000_000


class _Block(NamedTuple):
    """v' G v * factor, with v a list of monomials."""

    basis: tuple[Monomial, ...]
    factor: Polynomial


@dataclass(frozen=True, eq=False)
class MomentRelaxation:
    """A polynomial problem and the conic program of its moments."""

    problem: PolynomialProblem
    program: ConicProgram

    def dual_bound(self, dual: FloatArray, deadline: Deadline | None = None) -> float:
        """Return the lower bound of f that a dual vector proves, rounding included.

        Raises OutOfTimeError if the deadline passes before the bound is known.
        """
        program = self.program
        cone = np.array(dual, dtype=np.float64)
        cone[~np.isfinite(cone)] = 0.0
        head = slice(0, program.nonnegative)
        cone[head] = np.maximum(cone[head], 0.0)
        loss = 0.0
        for n, rows in zip(program.blocks, program.block_rows(), strict=True):
            if not cone[rows].any():
                continue
            if deadline is not None:
                deadline.check()
            # Negative eigenvalues become 0.  The rounding error of the projection lowers the bound
            # by at most trace(v v') <= n times that error on a block of bounded monomials.
            gram = unpack(cone[rows], n)
            values, vectors = np.linalg.eigh(gram)
            kept = np.maximum(values, 0.0)
            projected = (vectors * kept) @ vectors.T
            projected = (projected + projected.T) / 2
            cone[rows] = pack(projected)
            size = float(np.abs(values).max(initial=0.0))
            loss += 4.0 * n * n * 2.0**-52 * size * n
        # R = f - A*(cone) for each coefficient: the rows of the program are the coefficients of the
        # blocks, and the right-hand side is that of the constant monomial.
        residual = program.cost + program.matrix.T @ cone
        magnitude = np.abs(program.cost) + abs(program.matrix).T @ np.abs(cone)
        constant = self.problem.objective.reduced(self.problem.binary).terms.get((), 0.0)
        value = constant - float(program.right @ cone)
        terms = np.diff(sp.csc_array(program.matrix).indptr) + 4
        loss += float(np.abs(residual).sum()) + float((terms * 2.0**-52 * magnitude).sum())
        total = abs(constant) + float(np.abs(program.right) @ np.abs(cone))
        loss += (program.right.size + 4) * 2.0**-52 * total
        return value - loss * (1 + 1e-12) - self.problem.slack


def _basis(variables: Clique, order: int, problem: PolynomialProblem) -> tuple[Monomial, ...]:
    """Return the monomials of degree <= order in these variables, modulo x^2 = 1."""
    found: dict[Monomial, None] = {}
    for degree in range(order + 1):
        for combination in combinations_with_replacement(variables, degree):
            found[reduce_monomial(combination, problem.binary)] = None
    return tuple(found)


def relax(
    problem: PolynomialProblem,
    family: tuple[Clique, ...],
    order: int = 1,
    deadline: Deadline | None = None,
) -> MomentRelaxation:
    """Return the moment relaxation of the given order on a family of cliques.

    Raises OutOfTimeError if the deadline passes before it is built.
    """
    deadline = deadline or Deadline(None)
    if order not in (1, 2):
        raise InputError(f"order is {order}; expected 1 or 2")
    one = Polynomial.constant(1.0)
    estimate = sum(len(c) ** (2 * order) for c in family)
    if estimate > 50 * MOST_MOMENTS:
        raise InputError(
            f"the relaxation has about {estimate:.2g} moments, too many for a general solver"
        )
    blocks = []
    for c in family:
        deadline.check()
        blocks.append(_Block(_basis(c, order, problem), one))
    scalars = []
    members = [frozenset(c) for c in family]
    for g in problem.inequalities:
        deadline.check()
        g = g.reduced(problem.binary)
        clique = None
        if order > 1:
            clique = next((c for c in members if g.variables <= c), None)
        if clique is None:
            # At order 1, or if no clique contains g, its multiplier is a number.
            scalars.append(_Block(((),), g))
        else:
            blocks.append(_Block(_basis(tuple(sorted(clique)), order - 1, problem), g))
    return _assemble(problem, tuple(scalars), tuple(blocks), deadline)


def _assemble(
    problem: PolynomialProblem,
    scalars: tuple[_Block, ...],
    blocks: tuple[_Block, ...],
    deadline: Deadline,
) -> MomentRelaxation:
    """Write all blocks as rows  s = b - A y  over numbered moments."""
    moments: dict[Monomial, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    binary = problem.binary
    count = len(scalars) + sum(len(b.basis) * (len(b.basis) + 1) // 2 for b in blocks)
    right = np.zeros(count)
    root = float(np.sqrt(2.0))

    def put(row: int, monomial: Monomial, value: float) -> None:
        if not monomial:
            right[row] += value
            return
        rows.append(row)
        columns.append(moments.setdefault(monomial, len(moments)))
        values.append(-value)

    row = 0
    for scalar in scalars:
        deadline.check()
        for monomial, c in scalar.factor.terms.items():
            put(row, monomial, c)
        row += 1
    for block in blocks:
        plain = len(block.factor.terms) == 1 and () in block.factor.terms
        for i, a in enumerate(block.basis):
            deadline.check()
            for b in block.basis[: i + 1]:
                scale = 1.0 if a is b else root
                product = reduce_monomial(tuple(sorted(a + b)), binary)
                if plain:
                    put(row, product, scale)
                else:
                    for monomial, c in block.factor.terms.items():
                        short = reduce_monomial(tuple(sorted(product + monomial)), binary)
                        put(row, short, scale * c)
                row += 1
    objective = problem.objective.reduced(binary)
    for monomial in objective.terms:
        if monomial and monomial not in moments:
            raise InputError("the objective has a product of variables that no clique contains")
    cost = np.zeros(len(moments))
    for monomial, c in objective.terms.items():
        if monomial:
            cost[moments[monomial]] = c
    deadline.check()
    matrix = sp.coo_array((values, (rows, columns)), shape=(count, len(moments))).tocsr()
    program = ConicProgram(cost, matrix, right, len(scalars), tuple(len(b.basis) for b in blocks))
    return MomentRelaxation(problem, program)
