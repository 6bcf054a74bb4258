r"""Branch and bound on the signs of neurons.

A node fixes some signs.  It is closed if they contradict each other (pairs, learned clauses,
gates), if no input has them (linear or conic program, checked), if it has few patterns and none of
them reaches the goal (`branching`), or if the bound of the reduced relaxation is above the
goal.  Otherwise it is split on one more sign.  Points of feasibility checks, and patterns rounded
from the moments, are tried as counterexamples.  If all signs are fixed, exact arithmetic decides.

The goal is f > 0 (after rounding up to f's lattice), or for the minimum of f the best value found
so far minus half a step of the lattice: f has no value between the two.

Most trees have very few nodes, and are finished before numba is imported.  Its functions are loaded
(or compiled, on their first use on a machine) in a thread, while a tree that has some nodes goes on
with the plain form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import NO_DEADLINE, Deadline, OutOfTimeError
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import NearestPoints, fast_feasibility
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import LATTICE_GAP, relax_reduced
from bnncert.engine.search.branching import (
    NodePatterns,
    choose_variable,
    count_violated_pairs,
    objective_values,
    round_moments,
)
from bnncert.engine.search.frontier import Frontier, OpenNode, ParentMoments
from bnncert.engine.search.patterns.enumeration import Compilation
from bnncert.engine.search.restrict import Restriction, Restrictor, sum_of_minima
from bnncert.engine.search.warm_start import (
    NodeMultipliers,
    NodeParts,
    Numbering,
    choose_parts,
    keep,
    start_from,
    thinned,
)
from bnncert.engine.solvers.structured import Iterate, Iteration, solve_structured
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    Tables,
)
from bnncert.engine.timing import Pulse
from bnncert.model.layers import ThresholdLayer
from bnncert.model.rationals import float_below
from bnncert.problem import Objective
from bnncert.regions import Region

#: The relaxations of a tree after which it is worth it.
WORTH_IT = 4

NODES = Compilation()


def is_ready(relaxations: int) -> bool:
    """Whether the functions are loaded; a tree with several relaxations begins to load them."""
    return relaxations >= WORTH_IT and NODES.is_ready(_compile, NO_DEADLINE, patience=0.0)


def node_iteration(program: StructuredProgram, relaxations: int) -> type[Iteration]:
    """Return the fastest form of the solver for a node that is ready."""
    if not is_ready(relaxations):
        return Iteration
    # Imported on use: numba takes a third of a second to import.
    from bnncert.engine.solvers.compiled_iteration import CompiledIteration, is_small

    return CompiledIteration if is_small(program) else Iteration


def _compile() -> None:
    """Solve  min |x_1 + x_2| - 2 x_1 x_2  over signs that are not both positive."""
    from bnncert.engine.reachability.nearest_loop import nearest
    from bnncert.engine.solvers.compiled_iteration import CompiledIteration

    u = np.array([[-2.0, 0.0, 2.0]])
    one, own = np.array([[1, 0]]), np.array([[0, 0]])
    table = Tables(np.abs(u), np.stack([np.ones_like(u), u, u * u], axis=2), one, own)
    form = np.zeros((1, 3, 3))
    form[0, 1, 2] = form[0, 2, 1] = 1.0
    nothing = np.zeros((1, 1), dtype=np.int64)
    ends = np.array([[-2.0, 2.0]])
    cut = Tables(-ends, np.stack([np.ones_like(ends), ends], axis=2), nothing, nothing, form)
    program = StructuredProgram(
        linear=np.zeros(3),
        rows=np.array([[0.0, 1.0, 1.0]]),
        tables=(table, cut),
        pair_unit=np.array([1, 2]),
        pair_sign=np.array([1.0, 1.0]),
        pair_left=np.array([4]),
        pair_right=np.array([5]),
    )
    solve_structured(program, NO_DEADLINE, kind=CompiledIteration)
    row, ends = np.ones((1, 1)), np.ones(1)
    nearest(row, ends, -ends, ends, 0.0, 1.0, 1, np.zeros(1))


TreeStatus: TypeAlias = Literal["proved", "violated", "open", "interrupted"]

#: Patterns rounded from the moments of each node, and the largest number that is checked.
ROUNDED, CHECKED = 40, 2

#: The largest number of patterns of an enumerated node that are checked.
ENUMERATED = 64

#: The largest number of iterations for the relaxation of one node.
NODE_ITERATIONS = 40

#: Iterations before the progress of the solver is checked, and between two such checks.
FIRST_LOOK, NEXT_LOOK = 7, 2

#: A relaxation is stopped if the primal value is below the goal by this share of the gap.
HOPELESS_SHARE = 0.05

#: Gigabytes of open nodes above which the search is deepest first.
MEMORY = 4.0

#: Share of the memory for learned clauses; more are not kept.  The multipliers of leaves have the
#: same share; without them a certificate takes longer.
CLAUSE_SHARE = LEAF_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class ClosedNode:
    """A closed node: its fixed signs, why it is closed, and the multipliers of its relaxation."""

    signs: SignArray
    reason: Literal["contradiction", "unreachable", "constant", "patterns", "relaxation"]
    bound: float
    multipliers: NodeMultipliers | None = None


@dataclass(eq=False)
class Outcome:
    """The result of a search; `lower` is a lower bound of f.

    In a search for the minimum, `upper` is the least value found, at `point`; the status "proved"
    means that it is the minimum.  `exhausted` is True if the memory ran out.
    """

    status: TreeStatus
    lower: float
    nodes: int
    leaves: list[ClosedNode] = field(default_factory=list)
    point: FloatArray | None = None
    relaxations: int = 0
    upper: float = np.inf
    exact: tuple[Fraction, ...] | None = None
    exhausted: bool = False


@dataclass(frozen=True)
class TreeOptions:
    """Settings of a search."""

    #: Seed of all randomness.
    seed: int = 0
    #: Whether closed nodes are kept, for a certificate.
    keep_leaves: bool = False
    #: The search stops after this many nodes.
    max_nodes: int = 10**9
    #: Gigabytes of open nodes above which the search is deepest first.
    memory: float = MEMORY


#: Whether a point is a counterexample.
Confirm: TypeAlias = Callable[[FloatArray, tuple[Fraction, ...] | None], bool]
#: The exact value of f at a point, rounded up, or infinity.
Evaluate: TypeAlias = Callable[[FloatArray, tuple[Fraction, ...] | None], float]


@dataclass(frozen=True, eq=False)
class _Split:
    """A bound of an open node, the variable to split on, and the multipliers for its children."""

    bound: float
    variable: int | None
    start: NodeMultipliers | None
    parts: NodeParts | None = None
    moments: ParentMoments | None = None


class Tree:
    """The search for one objective; with `evaluate` for its minimum."""

    def __init__(
        self,
        presolved: Presolved,
        problem: ReducedProblem,
        objective: Objective,
        confirm: Confirm,
        evaluate: Evaluate | None = None,
        options: TreeOptions | None = None,
    ) -> None:
        self.problem, self.objective, self.confirm = problem, objective, confirm
        self.evaluate = evaluate
        self.region: Region = presolved.region
        self.network = presolved.network
        self.layer: ThresholdLayer = presolved.network.layers[0]
        owners = presolved.owner_layer[problem.variables]
        #: The variables that are neurons of the first layer, and which neurons they are.
        self.inputs: IntArray = np.flatnonzero(owners == 0)
        self.neurons: IntArray = presolved.owner[problem.variables[self.inputs]]
        self.restrictor = Restrictor(problem)
        self.numbering = Numbering.of(problem)
        self.patterns = NodePatterns(presolved, problem, objective)
        self.options = options or TreeOptions()
        self.generator = np.random.default_rng(self.options.seed)
        self.outcome = Outcome("open", -np.inf, 0)
        #: The smallest bound of all closed nodes, and of those that could not be decided.
        self.closed = np.inf
        self.unresolved = np.inf
        #: Learned clauses as literals that cannot all hold, with the Farkas multipliers.
        self.proofs: list[tuple[IntArray, FloatArray | None]] = []
        self.open = Frontier(self.options.memory * 2.0**30)
        #: Reports the closed share of the tree, if somebody wants to know it.
        self.pulse: Pulse | None = None
        self.numbers = 0
        self.leaf_bytes = 0
        self.push(OpenNode(np.zeros(problem.size, dtype=np.int8), -np.inf))

    def search(self, deadline: Deadline) -> Outcome:
        """Search until decided or out of time, nodes or memory; another call continues."""
        outcome = self.outcome
        while len(self.open):
            if outcome.nodes >= self.options.max_nodes or deadline.passed():
                break
            if self.pulse is not None:
                self.pulse.beat(self.open.share)
            node: OpenNode | None = None
            try:
                node = self.open.pop(self.restrictor.clauses.bytes)
                outcome.nodes += 1
                stop = self._work_on(node, deadline)
            except MemoryError:
                # The node stays open: a lack of memory does not prove anything.
                if node is not None:
                    self.open.push(node)
                outcome.exhausted = True
                break
            if stop:
                outcome.status, outcome.lower = "violated", -np.inf
                return outcome
        return self.conclude()

    def conclude(self) -> Outcome:
        """Return the outcome as it stands."""
        outcome = self.outcome
        outcome.lower = min(self.open.least(), self.unresolved, self.closed, outcome.upper)
        outcome.status = "proved"
        if len(self.open):
            outcome.status = "interrupted"
        elif np.isfinite(self.unresolved) and not self._enough(outcome.lower):
            outcome.status = "open"
        return outcome

    def _work_on(self, node: OpenNode, deadline: Deadline) -> bool:
        """Close a node or split it; True for a counterexample."""
        found = self._visit(node, deadline)
        if self.evaluate is None and self.outcome.point is not None:
            # The node stays open in case the caller rejects the point.
            self.open.push(node)
            return True
        if found is None:
            return False
        if deadline.passed():
            # The relaxation is unfinished, so the node is not split but waits for more time.
            self.open.push(replace(node, bound=max(node.bound, found.bound)))
        elif found.variable is None:
            # All signs are fixed, and the node is neither closed nor violated, mostly due to ties.
            self.unresolved = min(self.unresolved, found.bound)
        else:
            for sign in (1, -1):
                child = node.signs.copy()
                child[found.variable] = sign
                self.push(OpenNode(child, found.bound, 0, found.start, found.parts, found.moments))
        return False

    def push(self, node: OpenNode) -> None:
        """Add an open node, with a number of its own."""
        self.open.push(replace(node, number=self.numbers))
        self.numbers += 1

    def take(self) -> list[OpenNode]:
        """Remove and return all open nodes, lowest bound first."""
        return self.open.take()

    def learn(self, literals: IntArray, theta: FloatArray | None) -> None:
        """Add a clause: literals that cannot all hold, and the multipliers that prove it."""
        has_room = self.restrictor.clauses.bytes < CLAUSE_SHARE * self.open.limit
        # A certificate needs every conflict that closed a node, also one that is not kept.
        is_new = self.options.keep_leaves
        if has_room or literals.size == 2:
            is_new = self.restrictor.learn(literals)
        if is_new:
            self.proofs.append((literals, theta))

    def offer(self, point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
        """Try a point; True if it ends the search."""
        if self.evaluate is None:
            if self.confirm(point, exact):
                self.outcome.point, self.outcome.exact = point, exact
                return True
            return False
        value = self.evaluate(point, exact)
        if value < self.outcome.upper:
            self.outcome.upper, self.outcome.point, self.outcome.exact = value, point, exact
        return False

    def _try(self, point: FloatArray) -> bool:
        """Offer a point, unless floats show that f is not violated there; True if it ends all."""
        if self.evaluate is None and self.region.values is None:
            # Replaying takes several times as long, in rationals where a sum is near a threshold.
            signs = self.network.last_signs(point[None, :])[0]
            if self.objective.is_clearly_met(signs):
                return False
        return self.offer(point, None)

    @property
    def goal(self) -> float:
        """The value that a bound has to exceed for a node to be closed."""
        if self.evaluate is None:
            return self.objective.enough
        upper = self.outcome.upper
        lattice = self.objective.lattice
        if lattice is None or not np.isfinite(upper):
            return upper
        # With an error, one value of the lattice may have two computed values.
        half = lattice[1] / 2 - 2 * self.objective.exact_error
        return float_below(Fraction(upper) - half) if half > 0 else upper

    def _enough(self, bound: float) -> bool:
        """Whether a bound (rounded up to a value of f) closes a node."""
        if self.evaluate is None:
            return self.objective.is_proved_by(bound)
        return bound > self.goal or bound >= self.outcome.upper

    def _close(self, leaf: ClosedNode) -> None:
        self.closed = min(self.closed, leaf.bound)
        if self.options.keep_leaves:
            if leaf.multipliers is not None:
                self.leaf_bytes += leaf.multipliers.bytes
                if self.leaf_bytes > LEAF_SHARE * self.open.limit:
                    leaf = replace(leaf, multipliers=None)
            self.outcome.leaves.append(leaf)

    def _visit(self, node: OpenNode, deadline: Deadline) -> _Split | None:
        """Return how to split the node, or None if it is closed."""
        left = self.restrictor.restrict(node.signs)
        if left is None:
            self._close(ClosedNode(node.signs, "contradiction", np.inf))
            return None
        problem = left.problem
        least = max(sum_of_minima(problem), node.bound)
        rounded = self.objective.round_up(least)
        if self._enough(rounded):
            self._close(ClosedNode(node.signs, "constant", rounded))
            return None
        if self.evaluate is None and self.patterns.is_worth_it(left):
            bound = self._enumerate(left, deadline)
            if bound > -np.inf:
                self._close(ClosedNode(node.signs, "patterns", bound))
            if bound > -np.inf or self.outcome.point is not None:
                return None
        thorough = not node.depth or self.evaluate is not None
        bound, moments, kept, parts = self._relaxation(left, node, deadline, thorough)
        bound = max(bound, least)
        rounded = self.objective.round_up(bound)
        if self._enough(rounded):
            self._close(ClosedNode(node.signs, "relaxation", rounded, kept))
            return None
        fixed = np.flatnonzero(left.signs[self.inputs])
        if fixed.size > 2 or not left.free.size:
            check = self._check(left.signs, fixed, deadline)
            if check.conflict is not None:
                self._close(ClosedNode(node.signs, "unreachable", np.inf))
                return None
            if check.point is not None and self._try(check.point):
                return None
        if moments is not None and left.free.size and self._round(left, moments, deadline):
            return None
        candidates = np.intersect1d(left.free, self.inputs)
        if not candidates.size:
            if self._settle(node, left, deadline):
                return None
            if self._enough(rounded):
                # The point that was found here has the minimum of this node.
                self._close(ClosedNode(node.signs, "relaxation", rounded, kept))
                return None
            candidates = left.free
        if not candidates.size:
            return _Split(bound, None, None)
        diagonal = None if kept is None else kept.kappa[left.free]
        place = choose_variable(problem, moments, np.searchsorted(left.free, candidates), diagonal)
        parent = None if moments is None else ParentMoments(left.free, moments)
        return _Split(bound, int(left.free[place]), kept, parts, parent)

    def _enumerate(self, left: Restriction, deadline: Deadline) -> float:
        """Return a bound above the goal if no pattern of the node reaches it, else -inf."""
        patterns, least = self.patterns.violating(left)
        whole = np.repeat(left.signs[None, :], patterns.shape[0], axis=0)
        whole[:, self.inputs] = patterns
        everyone = np.arange(self.inputs.size)
        for _ in range(ENUMERATED):
            whole = whole[~self.restrictor.broken_by(whole, self.inputs)]
            if not whole.shape[0]:
                return max(self.objective.round_up(least), self.objective.least_good_value)
            check = self._check(whole[0], everyone, deadline)
            if check.point is not None:
                self._try(check.point)
            if check.conflict is None:
                break
        return -np.inf

    def _settle(self, node: OpenNode, left: Restriction, deadline: Deadline) -> bool:
        """Decide a node whose first layer is fixed, in exact arithmetic; True if it is decided."""
        pattern = SignPattern(self.layer, self.neurons, left.signs[self.inputs])
        found = exact_feasibility(pattern, self.region, deadline)
        if found.conflict is not None:
            variables = self.inputs[found.conflict]
            self.learn(literal(variables, left.signs[variables]), None)
            self._close(ClosedNode(node.signs, "unreachable", np.inf))
            return True
        return found.point is not None and self.offer(found.point, found.exact_point)

    def _relaxation(
        self, left: Restriction, node: OpenNode, deadline: Deadline, thorough: bool
    ) -> tuple[float, FloatArray | None, NodeMultipliers | None, NodeParts | None]:
        """Bound f; unless `thorough`, stop when the bound cannot reach the goal."""
        whole = left
        if node.parts is not None:
            left = thinned(left, node.parts, self.numbering)
        problem = left.problem
        if not problem.size:
            return -np.inf, None, None, None
        self.outcome.relaxations += 1
        relaxation = relax_reduced(problem)
        room = 1e-7 * max(1.0, abs(problem.constant))
        goal = self.goal
        step = 0.0
        if self.evaluate is not None and self.objective.lattice is not None:
            step = float(self.objective.lattice[1])
        above = relaxation.goal(goal + room)
        below = relaxation.goal(goal - room) if np.isfinite(goal) else -np.inf
        start: StructuredMultipliers | None = None
        if node.start is not None:
            start = start_from(node.start, self.numbering, left, relaxation)
        try:
            own = None if node.moments is None else node.moments.start(left)
            moments, probabilities = own or starting_moments(problem, self.options.seed, deadline)
        except OutOfTimeError:
            return -np.inf, None, None, None
        still, chunk = NODE_ITERATIONS, NODE_ITERATIONS if thorough else FIRST_LOOK
        while True:
            solution = solve_structured(
                relaxation.program,
                deadline,
                above=above,
                below=below,
                gap=LATTICE_GAP * step / relaxation.scale,
                tolerance=1e-4,
                iterations=chunk,
                start=start,
                moments=moments,
                probabilities=probabilities,
                kind=node_iteration(relaxation.program, self.outcome.relaxations),
                # From the moments of a parent it makes one step in fifty longer.
                second=own is None,
            )
            still, chunk = still - chunk, NEXT_LOOK
            if solution.status != "limit" or still <= 0 or _hopeless(solution.history[-1], below):
                break
            start, moments = solution.multipliers, solution.moments
            probabilities = solution.probabilities
        dual = relaxation.dual_point(solution.multipliers)
        kept = keep(self.numbering, left, dual)
        found, given = solution.moments, solution.probabilities
        parts = choose_parts(whole, left, self.numbering, dual, found, given, self.inputs)
        return dual.bound(problem), found, kept, parts

    @cached_property
    def _nearest(self) -> NearestPoints | None:
        return NearestPoints.of(self.layer, self.neurons, self.region)

    def _check(self, signs: SignArray, fixed: IntArray, deadline: Deadline) -> Feasibility:
        """Check whether an input has these signs; learn from a conflict."""
        chosen = self.inputs[fixed]
        pattern = SignPattern(self.layer, self.neurons[fixed], signs[chosen])
        check = None
        if self._nearest is not None and is_ready(self.outcome.relaxations):
            check = self._nearest.find(fixed, pattern)
        check = check or fast_feasibility(pattern, self.region, deadline)
        if check.conflict is not None:
            assert isinstance(check.multipliers, np.ndarray)
            variables = chosen[check.conflict]
            self.learn(literal(variables, signs[variables]), check.multipliers)
        return check

    def _round(self, left: Restriction, moments: FloatArray, deadline: Deadline) -> bool:
        """Try patterns near the moments as counterexamples; True if one ends the search."""
        patterns = round_moments(left.problem, moments, self.generator, ROUNDED)
        values = objective_values(left.problem, patterns)
        whole = np.repeat(left.signs[None, :], patterns.shape[0], axis=0)
        whole[:, left.free] = patterns
        impossible = count_violated_pairs(left.problem, patterns) > 0
        impossible |= self.restrictor.clauses.broken_by(whole)
        values = np.where(impossible, np.inf, values)
        order = np.argsort(values, kind="stable")[:CHECKED]
        everyone = np.arange(self.inputs.size)
        promising = values[order] <= min(self.goal + left.problem.slack, np.finfo(float).max)
        for k in order[promising]:
            check = self._check(whole[k], everyone, deadline)
            if check.point is not None and self._try(check.point):
                return True
        return False


def _hopeless(last: Iterate, below: float) -> bool:
    """Whether the optimum is very likely below the goal; a wrong guess costs only a split."""
    goal = below - HOPELESS_SHARE * abs(below - last.dual)
    return last.infeasibility < 1e-2 and last.primal < goal
