"""Construction of a proof that the checker accepts: facts, and a tree of signs for every target.

The search that answered the question records its tree: the signs of its leaves and the multipliers
of their relaxations.  The proof follows this tree and solves nothing at inner nodes.  At a leaf it
tries the recorded multipliers; if the checker's bound is too low with them, it solves the
relaxation again, and if that is not enough, it splits the leaf.  Without a trace it searches depth
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.arrays import SignArray as Signs
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import Presolved, PresolveStep
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import fast_feasibility
from bnncert.engine.reachability.feasibility import SignPattern
from bnncert.engine.search.branching import choose_variable
from bnncert.engine.search.trace import LearnedClause, Trace
from bnncert.engine.search.warm_start import NodeMultipliers, Numbering
from bnncert.kernel.branches import Branched
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Function
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.input_cuts import CutNumbers
from bnncert.kernel.leaves import Goal, View
from bnncert.kernel.patterns import Patterns
from bnncert.kernel.proof import BOUND, CONFLICT, PATTERNS, RANGES
from bnncert.kernel.section_reading import Clauses, Multipliers, joined
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.space import Space
from bnncert.kernel.statement import ScoreFunction
from bnncert.model.network import Network
from bnncert.proofs.branch_proof import prove_by_branching
from bnncert.proofs.clause_proof import kept, many, prove_clause, prove_many
from bnncert.proofs.leaf_proof import LeafProblem, Translation, stated_cuts
from bnncert.regions import Region

#: theta of a pair is a multiple of 2^-12.
PAIR_UNIT = 4096

#: How often a tree is made again because of a clause that a tree of inputs proves.
MOST_RESTARTS = 200

#: A node with this many signs of first-layer neurons fixed may have become unreachable.
WORTH_MEETING = 3


@dataclass(eq=False)
class ProofNode:
    """One node of a finished tree: a branch variable or a kind, and the numbers of a leaf."""

    kind: int
    numbers: Multipliers | None = None
    #: Clauses that are known from this node on.
    learned: Clauses | None = None


@dataclass(eq=False)
class TargetProof:
    """The tree of one target in preorder; `objective` is the one shown to be positive."""

    number: int
    objective: int
    nodes: list[ProofNode] = field(default_factory=list)
    #: Inequalities of first-layer signs that its leaves use.
    cuts: CutNumbers | None = None


class _NewClauseError(Exception):
    """A clause that has to be known from the root of a tree on is found."""


class ProofBuilder:
    """Facts about a network on a region, and proofs of functions on it.

    The proofs are about `network` (with widened thresholds for float32), and the certificate names
    the network `stated`.  Without `presolved` there are no pairs that exclude each other.
    """

    def __init__(
        self,
        network: Network,
        stated: Network,
        region: Region,
        space: Space,
        presolved: Presolved | None,
        *,
        float32: bool,
    ) -> None:
        self.network, self.region = network, region
        self.geometry = Geometry(stated.layers[0], space, float32=float32)
        self.clashes: dict[int, Clauses] = {}
        for step in presolved.record.steps if presolved is not None else ():
            if step.rule == "clash":
                found = _clauses(step)
                if found.count:
                    self.clashes[step.layer] = found
        if region.inequalities[1].size and presolved is not None:
            self._keep_proved_pairs()
            self._add_stable(presolved)
        try:
            self.skeleton = Skeleton(stated, self.geometry, self.clashes)
        except RejectedError:
            # The checker accepts almost all pairs, so they are tried one by one only if it rejects.
            self._keep_proved_pairs()
            self.skeleton = self._accepted(stated)
        #: Why the last clause could not be proved.
        self.unproved = ""
        #: Clauses before all trees, those of them that trees of inputs prove and that are not
        #: in the file yet, and all that are known so far.
        self.clauses = joined([]) if presolved is None else self._triples(presolved)
        self.branched: list[Branched] = []
        self.known = self.clauses

    def _keep_proved_pairs(self) -> None:
        """Drop the conflicting pairs of the first layer that the checker does not accept."""
        if 0 in self.clashes:
            proved = self._proved(self.clashes.pop(0))
            if proved.count:
                # The first layer comes first in the file.
                self.clashes = {0: proved, **self.clashes}

    def _accepted(self, stated: Network) -> Skeleton:
        """Build the skeleton; pairs of later layers may need pairs below them that are not kept."""
        try:
            return Skeleton(stated, self.geometry, self.clashes)
        except RejectedError:
            self.clashes = {layer: found for layer, found in self.clashes.items() if layer == 0}
            return Skeleton(stated, self.geometry, self.clashes)

    def _proved(self, clauses: Clauses) -> Clauses:
        """Return the clauses that the checker accepts, with other multipliers if necessary."""
        good = self.geometry.proved(clauses)
        parts = [kept(clauses, good)]
        if self.region.inequalities[1].size:
            for k in np.flatnonzero(~good).tolist():
                one = clauses.part(k, k + 1)
                found = self.prove_clause(one.neuron, one.sign, one.theta.astype(np.float64))
                parts += [] if found is None else [found]
        return joined(parts)

    def prove_clause(
        self, neurons: IntArray, signs: npt.NDArray[Any], theta: FloatArray | tuple[Fraction, ...]
    ) -> Clauses | None:
        """Return a clause of first-layer signs that the checker accepts, or None."""
        layer = self.network.layers[0]
        return prove_clause(self.geometry, layer, self.region, neurons, signs, theta)

    def unreachable(
        self, neurons: IntArray, wanted: Signs, deadline: Deadline, *, exactly: bool = True
    ) -> Clauses | Branched | None:
        """Return a clause that signs of first-layer neurons violate, if no input has these signs.

        With `exactly`, rational arithmetic decides if floating point does not, and a tree of inputs
        proves what no multipliers do.
        """
        pattern = SignPattern(self.network.layers[0], neurons, wanted)
        check = fast_feasibility(pattern, self.region, deadline)
        if check.conflict is None and exactly:
            check = exact_feasibility(pattern, self.region, deadline)
        found: Clauses | Branched | None = None
        blamed = pattern if check.conflict is None else pattern.part(check.conflict)
        if check.conflict is not None and check.multipliers is not None:
            found = self.prove_clause(blamed.neurons, blamed.signs, check.multipliers)
        if found is None and check.point is None and exactly:
            found = self._branch(blamed.neurons, blamed.signs, deadline)
        return found

    def _branch(
        self, neurons: IntArray, signs: npt.NDArray[Any], deadline: Deadline
    ) -> Branched | None:
        """Return a clause that a tree of inputs proves; None: there is no small one."""
        if self.geometry.space.grid is None and self.geometry.space.norm != "l0":
            return None
        found = prove_by_branching(self.geometry, neurons, signs, deadline)
        if found is None:
            self.unproved = "no small tree of inputs excludes some first-layer signs"
        return found

    def add(self, found: Clauses | Branched) -> Clauses:
        """Add a clause in front of the next tree, and return it as a clause."""
        if isinstance(found, Branched):
            self.branched.append(found)
            found = found.clauses
        else:
            self.clauses = joined([self.clauses, found])
        self.known = joined([self.known, found])
        return found

    def _add_stable(self, presolved: Presolved) -> None:
        """Prove the signs that the polytope's inequalities fix: the checker only uses its box."""
        state = self.geometry.states()
        parts = [self.clashes[0]] if 0 in self.clashes else []
        for j in np.flatnonzero((presolved.bounds[0].state != 0) & (state == 0)).tolist():
            sign = np.array([-presolved.bounds[0].state[j]])
            found = self.prove_clause(np.array([j]), sign, np.ones(1))
            parts += [] if found is None else [found]
        if parts:
            self.clashes[0] = joined(parts)

    def _triples(self, presolved: Presolved) -> Clauses:
        steps = [step for step in presolved.record.steps if step.rule == "triple"]
        return joined([self._proved(_clauses(step)) for step in steps])

    def remember(self, clauses: Sequence[LearnedClause], deadline: Deadline) -> None:
        """Add the learned clauses of a search to the clauses before all trees."""
        proved, left = prove_many(self.geometry, clauses)
        parts: list[Clauses] = [proved]
        trees: list[Branched] = []
        for neurons, signs, theta in left:
            found = None if theta is None else self.prove_clause(neurons, signs, theta)
            parts += [] if found is None else [found]
            if found is None and not deadline.passed():
                tree = self._branch(neurons, signs, deadline)
                trees += [] if tree is None else [tree]
        self.clauses = joined([self.clauses, *parts])
        self.branched += trees
        self.known = joined([self.known, *parts, *(tree.clauses for tree in trees)])

    def prove(
        self, number: int, target: Sequence[ScoreFunction], trace: Trace | None, deadline: Deadline
    ) -> TargetProof | None:
        """Return a proof that one of the target's functions is positive, or None."""
        chosen = 0 if trace is None else trace.objective
        order = [chosen, *(k for k in range(len(target)) if k != chosen)]
        for k in order:
            function = target[k].of(self.skeleton.network)
            nodes = None
            for _ in range(MOST_RESTARTS):
                work = _Work(self, function, target[k], deadline)
                try:
                    nodes = work.run(trace if k == chosen else None)
                except _NewClauseError:
                    continue
                break
            if nodes is not None:
                # The clauses of an attempt without success are not in the file.
                self.known = joined([self.known, *work.learned])
                return TargetProof(number, k, nodes, work.cuts)
        return None


def _clauses(step: PresolveStep) -> Clauses:
    """Return the pairs or triples of a step; a pair records only one of its two multipliers."""
    assert step.other is not None and step.other_signs is not None and step.witness is not None
    theta = np.rint(step.witness * PAIR_UNIT).astype(np.int64)
    return many(
        np.column_stack([step.neurons, step.other]),
        np.column_stack([step.signs, step.other_signs]),
        np.column_stack([theta, PAIR_UNIT - theta]) if step.rule == "clash" else theta,
    )


@dataclass(frozen=True, eq=False)
class _Hint:
    """A leaf of the search's tree in the numbering of the checker."""

    signs: Signs
    multipliers: NodeMultipliers | None
    by_patterns: bool


class _Work:
    def __init__(
        self,
        builder: ProofBuilder,
        function: Function,
        objective: ScoreFunction,
        deadline: Deadline,
    ) -> None:
        self.builder, self.function, self.deadline = builder, function, deadline
        self.objective = objective
        self.patterns: Patterns | None = None
        self.cuts: CutNumbers | None = None
        self.goal = Goal(builder.skeleton, function, builder.known)
        self.phi: FloatArray = np.ldexp(self.goal.values.astype(np.float64), -self.goal.unit)
        self.least, self.enough = _thresholds(function)
        self.numbering: Numbering | None = None
        self.learned: list[Clauses] = []
        self.pending: Clauses | None = None
        #: First-layer neurons by variable.
        self.inputs: IntArray = np.array(
            [v for v, (n, _) in enumerate(builder.skeleton.owner) if n == 0], dtype=np.int64
        )
        self.neurons: IntArray = np.array(
            [j for n, j in builder.skeleton.owner if n == 0], dtype=np.int64
        )

    def run(self, trace: Trace | None) -> list[ProofNode] | None:
        """Return the nodes in preorder, or None if time is up or a leaf cannot be proved."""
        size = self.builder.skeleton.size
        nodes: list[ProofNode] = []
        stack: list[tuple[Signs, list[_Hint]]] = [
            (np.zeros(size, dtype=np.int8), self._translated(trace))
        ]
        while stack:
            if self.deadline.passed():
                return None
            path, guide = stack.pop()
            made = self._node(path, guide)
            if made is None:
                return None
            made.learned, self.pending = self.pending, None
            nodes.append(made)
            if made.kind >= 0:
                for sign in (-1, 1):
                    child = path.copy()
                    child[made.kind] = sign
                    left = [h for h in guide if h.signs[made.kind] == sign]
                    stack.append((child, left))
        return nodes

    def _translated(self, trace: Trace | None) -> list[_Hint]:
        """Return the leaves of the search's tree in the numbering of the checker."""
        if trace is None:
            return []
        if trace.problem.cuts is not None:
            builder = self.builder
            found = stated_cuts(trace.problem.cuts, builder.geometry, builder.skeleton)
            if found is not None:
                self.cuts, self.goal.cuts = found
        translation = Translation(trace, self.goal)
        self.numbering = translation.numbering
        return [
            _Hint(
                translation.signs(leaf.signs),
                None if leaf.multipliers is None else translation.multipliers(leaf.multipliers),
                leaf.by_patterns,
            )
            for leaf in trace.leaves
        ]

    def _node(self, path: Signs, guide: list[_Hint]) -> ProofNode | None:
        view = self.goal.view(path)
        if view is None:
            return ProofNode(CONFLICT)
        nothing = Multipliers.none()
        if self.function.is_positive_from(self.goal.bound(view, nothing)):
            return ProofNode(RANGES)
        if len(guide) > 1:
            # Branch on a variable that is fixed in all leaves below.
            split = np.all(np.array([h.signs for h in guide]) != 0, axis=0)
            shared = np.flatnonzero(split & (view.signs == 0))
            if shared.size:
                return ProofNode(int(shared[0]))
        if guide and guide[0].by_patterns and self._closed_by_patterns(path):
            return ProofNode(PATTERNS)
        kept = guide[0].multipliers if guide else None
        problem = LeafProblem(self.goal, view, self.phi, None if kept is None else kept.splits)
        if kept is not None:
            assert self.numbering is not None
            numbers = problem.carried(kept, self.numbering, self.least)
            if numbers is not None:
                return ProofNode(BOUND, numbers)
        numbers, moments = problem.solve(self.deadline, self.least, self.enough)
        if numbers is not None:
            return ProofNode(BOUND, numbers)
        if self.deadline.passed():
            return None
        if self._unreachable(view):
            return ProofNode(CONFLICT)
        candidates = np.intersect1d(view.free, self.inputs)
        if not candidates.size:
            # Only gates are left whose sign a tie leaves open.
            candidates = view.free
        if not candidates.size:
            return None
        place = np.searchsorted(problem.free, candidates)
        return ProofNode(int(problem.free[choose_variable(problem.problem, moments, place)]))

    def _closed_by_patterns(self, path: Signs) -> bool:
        """Whether the checker closes a leaf by enumeration of its patterns."""
        if self.patterns is None:
            builder, targets = self.builder, [[self.objective]]
            known = joined([builder.known, *self.learned])
            self.patterns = Patterns(builder.skeleton, builder.geometry, known, targets)
        try:
            self.patterns.refuse_reached(path[None, : self.patterns.inputs])
        except RejectedError:
            return False
        return True

    def _unreachable(self, view: View) -> bool:
        """Learn a clause that the signs of the first layer violate; False if there is none."""
        signs = view.signs[self.inputs]
        fixed = np.flatnonzero(signs)
        if fixed.size < WORTH_MEETING and fixed.size < signs.size:
            return False
        everything = fixed.size == signs.size
        found = self.builder.unreachable(
            self.neurons[fixed], signs[fixed], self.deadline, exactly=everything
        )
        if found is None:
            return False
        if isinstance(found, Branched):
            # Trees of inputs come in front of the tree, which is made again with the clause.
            self.builder.add(found)
            raise _NewClauseError
        self.goal.learn(found)
        if self.patterns is not None:
            self.patterns.learn(found)
        self.learned.append(found)
        self.pending = found
        return True


def _thresholds(function: Function) -> tuple[float, float]:
    """Return the value that a bound of f must exceed, and one with a margin for rounding."""
    top, step = function.lattice
    if not step:
        return 0.0, 0.0
    # The largest value of f that is not positive.
    last = top + (function.doubt - top) // step * step
    if function.is_positive(last):
        last -= step
    return float(last), float(last + step / 20)
