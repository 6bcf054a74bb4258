r"""How a node of a tree is split, and which patterns are tried in it.

If all variables are first-layer signs, the score of a variable is  -kappa_a (1 - E[x_a]^2):  the
multiplier of x_a^2 = 1 is the price of the variance that a fixed sign does not have.  On instances
where all splits were solved, its rank correlation with the product of both children's gains is 0.8.

Otherwise the influence of variables decides: the change of f that a sign can make, which counts
less if the moments have nearly decided the sign.  The score of a child is the influence of all
variables that it fixes, by implication included, and the score of a split is the product of the
scores of its children.

Sign patterns near the moments of a relaxation come from random hyperplanes.

A node with few open first-layer signs is not split, but all of their patterns are enumerated.  The
signs of a node are propagated through all layers by intervals.  If that does not close the node,
all patterns of its open first-layer signs are evaluated.  In a deep network this takes
milliseconds, whereas a relaxation over all of its gates takes a second and gives a weak bound.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.search.patterns.circuit import Circuit, build_circuit, is_small_enough
from bnncert.engine.search.patterns.enumeration import enumerate_node
from bnncert.engine.search.patterns.interval_propagation import propagate
from bnncert.engine.search.restrict import Restriction
from bnncert.problem import Objective, Target

#: Tolerance for comparing integers that are stored as floats.
HALF = 0.5


def influences(problem: ReducedProblem) -> FloatArray:
    """Return the change of f that each variable can make, also through gates."""
    spread = problem.values.max(axis=1, initial=-np.inf) - problem.values.min(
        axis=1, initial=np.inf
    )
    rows = np.abs(problem.table.rows)
    influence = spread @ rows if rows.shape[0] else np.zeros(problem.size)
    influence = influence + np.abs(problem.linear)
    if problem.gates.rows.shape[0]:
        influence = influence + influence[problem.outputs] @ np.abs(problem.gates.rows)
    return np.asarray(influence)


def choose_variable(
    problem: ReducedProblem,
    moments: FloatArray | None,
    candidates: IntArray,
    diagonal: FloatArray | None = None,
) -> int:
    """Return the candidate (a place in the problem) with the best split.

    `diagonal` are the multipliers kappa of the variables.
    """
    if moments is not None and diagonal is not None and not problem.outputs.size:
        price = -diagonal * (1 - moments[0, 1 : problem.size + 1] ** 2)
        best = int(candidates[int(np.argmax(price[candidates]))])
        if price[best] > 0:
            return best
    influence = influences(problem)
    if moments is not None:
        influence = influence * (1.05 - np.abs(moments[0, 1 : problem.size + 1]))
    # The row of a literal marks the literals that are false if this one holds.
    fixed = problem.excluded[:, 0::2] | problem.excluded[:, 1::2]
    plus, minus = influence + (fixed @ influence).reshape(-1, 2).T
    return int(candidates[int(np.argmax((plus * minus)[candidates]))])


def round_moments(
    problem: ReducedProblem, moments: FloatArray, generator: np.random.Generator, count: int
) -> SignArray:
    """Return sign vectors x = sign(V g) with M = V V', negated if the constant is -1."""
    values, vectors = np.linalg.eigh(moments)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = root @ generator.standard_normal((root.shape[1], count))
    drawn *= np.where(drawn[:1] >= 0, 1.0, -1.0)
    signs = np.where(drawn[1:] >= 0, 1, -1).astype(np.int8).T
    for j, out in enumerate(problem.outputs.tolist()):
        u = signs @ problem.gates.rows[j]
        points = problem.gates.points[j]
        nearest = np.argmin(np.abs(u[:, None] - points[None, :]), axis=1)
        signs[:, out] = problem.gate_signs[j][nearest]
    return np.unique(signs, axis=0)


def objective_values(problem: ReducedProblem, signs: SignArray) -> FloatArray:
    """Return f at sign vectors (rows); +inf if a sum is not a point of its lattice."""
    total = problem.constant + signs @ problem.linear
    points, tables = problem.table.points, np.arange(problem.table.rows.shape[0])
    sums = signs @ problem.table.rows.T
    # Most lattices are evenly spaced; the others, and sums outside, are searched.
    first = points[:, 0] if points.size else np.zeros(tables.size)
    step = points[:, 1] - first if points.shape[1] > 1 else np.ones(tables.size)
    place = np.rint((sums - first) / np.where(step > 0, step, 1.0))
    place = np.clip(place, 0, max(points.shape[1] - 1, 0)).astype(np.int64)
    missed = np.abs(points[tables, place] - sums) > HALF
    searched = np.flatnonzero(missed.any(axis=0))
    distance = np.abs(sums[:, searched, None] - points[None, searched])
    place[:, searched] = np.argmin(distance, axis=2)
    missed[:, searched] = distance.min(axis=2, initial=np.inf) > HALF
    return np.asarray(total + np.where(missed, np.inf, problem.values[tables, place]).sum(axis=1))


def count_violated_pairs(problem: ReducedProblem, signs: SignArray) -> IntArray:
    """Return how many conflicting pairs each sign vector violates."""
    first, second = problem.pair_first, problem.pair_second
    left = signs[:, variable_of(first)] == sign_of(first)
    right = signs[:, variable_of(second)] == sign_of(second)
    return np.asarray((left & right).sum(axis=1))


#: Open first-layer signs up to which a node is enumerated.
MOST_OPEN = 15

#: Open variables of all layers from which on a relaxation takes longer than the enumeration.
WORTH_IT = 60


class NodePatterns:
    """Enumerates the patterns of nodes of one tree."""

    def __init__(self, presolved: Presolved, problem: ReducedProblem, objective: Objective) -> None:
        self._presolved, self._objective = presolved, objective
        #: The first-layer variables of the tree; a circuit has the numbers of presolve.
        self._inputs: IntArray = np.flatnonzero(presolved.owner_layer[problem.variables] == 0)
        self._numbers: IntArray = problem.variables[self._inputs]
        self._can = is_small_enough(presolved)

    @cached_property
    def _circuit(self) -> Circuit:
        return build_circuit(self._presolved, (Target("", (self._objective,)),))

    def is_worth_it(self, left: Restriction) -> bool:
        """Whether a node is enumerated: it has few open signs and many open gates."""
        few = np.count_nonzero(left.signs[self._inputs] == 0) <= MOST_OPEN
        if not few or left.free.size < WORTH_IT or not self._can:
            return False
        return bool(np.count_nonzero(self._node(left) == 0) <= MOST_OPEN)

    def _node(self, left: Restriction) -> SignArray:
        """Return the node's signs of all first-layer variables, as one row."""
        node = np.zeros((1, self._circuit.inputs), dtype=np.int8)
        # Variables that f does not depend on also stay open: with a sign that no input has, a gate
        # that conflicts make stable could contradict the pattern, which would be dropped.
        node[0, self._numbers] = left.signs[self._inputs]
        return node

    def violating(self, left: Restriction) -> tuple[SignArray, float]:
        """Return the patterns that may reach the objective, over the tree's first-layer variables.

        Also return a lower bound of f on all others.
        """
        circuit, node = self._circuit, self._node(left)
        made = propagate(circuit, node)
        nothing = np.zeros((0, self._inputs.size), dtype=np.int8)
        if not made.possible[0]:
            return nothing, np.inf
        if made.lower[0, 0] > circuit.objectives.enough[0]:
            return nothing, float(made.lower[0, 0])
        patterns, least = [nothing], np.inf
        wanted = np.ones(1, dtype=bool)
        for part in enumerate_node(
            circuit, None, made.states[0], made.last[0], wanted, circuit.objectives.enough
        ):
            patterns.append(part.violating[:, self._numbers])
            least = min(least, float(part.least[0]))
        return np.concatenate(patterns), least
