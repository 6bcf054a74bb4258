"""Records of a search from which a certificate is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.search.patterns.open_nodes import TreeRecord
from bnncert.engine.search.restrict import Restriction
from bnncert.engine.search.tree import Tree
from bnncert.engine.search.warm_start import NodeMultipliers, Numbering, keep

#: First-layer neurons, signs of them that exclude each other, and the Farkas multipliers.
LearnedClause: TypeAlias = tuple[IntArray, SignArray, FloatArray | tuple[Fraction, ...] | None]


@dataclass(frozen=True, eq=False)
class Trace:
    """The leaves of a tree and the clauses it learned."""

    #: The number of the objective that the tree proves.
    objective: int
    #: The reduced problem of the leaves.
    problem: ReducedProblem
    #: The layer and neuron of each variable of the problem.
    layer: IntArray
    neuron: IntArray
    #: The closed nodes; a proof without branching is one leaf.
    leaves: tuple[TracedLeaf, ...]
    #: First-layer neurons, their signs, and the Farkas multipliers that exclude them (None if
    #: exact arithmetic has found the conflict).
    clauses: tuple[LearnedClause, ...] = ()


@dataclass(frozen=True, eq=False)
class TracedLeaf:
    """The signs of a closed node (0: free), and the multipliers of its relaxation, if any.

    `by_patterns` is True if the patterns of its open first-layer signs were enumerated.
    """

    signs: SignArray
    multipliers: NodeMultipliers | None = None
    by_patterns: bool = False


@dataclass(frozen=True, eq=False)
class _JointTrace:
    """What proves targets together, and the clauses that it learned since the last such trace."""

    targets: tuple[str, ...]
    clauses: tuple[LearnedClause, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class PatternTrace(_JointTrace):
    """The tree of a search over the signs of first-layer neurons."""

    record: TreeRecord
    neurons: IntArray


@dataclass(frozen=True, eq=False)
class EliminationTrace(_JointTrace):
    """An elimination of variables."""

    #: The neurons of each clause that was active: rows (layer, neuron).
    joined: tuple[IntArray, ...]
    #: The limits that the elimination was planned for: gigabytes, and estimated seconds.
    memory: float
    seconds: float


@dataclass(frozen=True, eq=False)
class ClauseTrace:
    """Clauses that end with the empty one; each follows from what is before it by propagation.

    Variable v < layer.size is the sign of a neuron; variable layer.size + k means that target k of
    `targets` is violated. Literals are those of `presolve.literals`.
    """

    #: None of these can be violated: at least one of them would have to be.
    targets: tuple[str, ...]
    #: The layer (0 is the first) and the neuron of each variable, as the network numbers them.
    layer: IntArray
    neuron: IntArray
    #: Clause c is literals[starts[c] : starts[c + 1]]; one of its literals holds.
    literals: IntArray
    starts: IntArray
    #: Clauses of the first layer that the region implies.
    region: tuple[LearnedClause, ...] = ()


@dataclass(eq=False)
class SearchRecord:
    """The presolved network of a method and its traces by target, for a certificate."""

    presolved: Presolved | None = None
    traces: dict[str, Trace] = field(default_factory=dict)
    patterns: list[PatternTrace] = field(default_factory=list)
    eliminations: list[EliminationTrace] = field(default_factory=list)
    clause_proofs: list[ClauseTrace] = field(default_factory=list)


def trace_of(tree: Tree, presolved: Presolved, objective: int) -> Trace:
    """Return the trace of a tree that has proved its objective."""
    variables = tree.problem.variables
    layer, neuron = presolved.owner_layer[variables], presolved.owner[variables]
    clauses = []
    for literals, theta in tree.proofs:
        own = variable_of(literals)
        if np.all(layer[own] == 0):
            clauses.append((neuron[own], sign_of(literals), theta))
    leaves = tuple(
        TracedLeaf(leaf.signs, leaf.multipliers, leaf.reason == "patterns")
        for leaf in tree.outcome.leaves
    )
    return Trace(objective, tree.problem, layer, neuron, leaves, tuple(clauses))


def root_trace(
    problem: ReducedProblem, found: DualPoint, presolved: Presolved, objective: int
) -> Trace:
    """Return the trace of a relaxation that proves its objective without branching."""
    variables = problem.variables
    tables, gates = problem.table.rows.shape[0], problem.outputs.size
    free = np.arange(problem.size)
    signs = np.zeros(problem.size, dtype=np.int8)
    whole = Restriction(
        problem, free, signs, np.arange(tables), np.zeros(tables), np.arange(gates), np.zeros(gates)
    )
    leaf = TracedLeaf(signs, keep(Numbering.of(problem), whole, found))
    layer, neuron = presolved.owner_layer[variables], presolved.owner[variables]
    return Trace(objective, problem, layer, neuron, (leaf,))
