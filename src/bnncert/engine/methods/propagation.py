"""Complete answers by propagation of sign patterns in large batches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import BoolArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context, JointWork, register
from bnncert.engine.methods.engine import STEP, JointEngine, JointMethod, LearnedClauses
from bnncert.engine.presolve.literals import literal, renumbered, sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved, plain_presolve
from bnncert.engine.processes import at_most_threads, usable_cores
from bnncert.engine.search.patterns.circuit import Circuit, build_circuit, is_small_enough
from bnncert.engine.search.patterns.descent import FlipDescent
from bnncert.engine.search.patterns.enumeration import pattern_counts, without_stable_gates
from bnncert.engine.search.patterns.flips import flip_budget
from bnncert.engine.search.patterns.pattern_question import PatternQuestion, Point, Realiser
from bnncert.engine.search.patterns.pattern_search import SearchOutcome
from bnncert.engine.search.patterns.sharing import DaskPool, ProcessPool, SharedSearch, SubtreePool
from bnncert.engine.search.trace import PatternTrace
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem, Target

#: The note for a network whose dense matrices do not fit into memory.
TOO_LARGE = "too large for a search over sign patterns"

#: Starts of the local search, its share of the time, and the most seconds.
DESCENTS, DESCENT_SHARE, DESCENT_SECONDS = 12, 0.2, 3.0


#: Seconds before other processes are started, and the least remaining seconds for which they are
#: started: they need about one second to begin.
ALONE, WORTH_STARTING = 1.0, 2.0


@dataclass(eq=False)
class PatternEngine(JointWork):
    """The search over sign patterns.

    Raises OutOfTimeError if the deadline passes before the search can begin.
    """

    def __post_init__(self) -> None:
        problem, targets, context = self.problem, self.targets, self.context
        self.layer = self.presolved.network.layers[0]
        circuit = build_circuit(self.presolved, targets, context.deadline)
        self.budget = flip_budget(self.layer, circuit.neurons, problem.region)
        self.circuit: Circuit = without_stable_gates(circuit, self.budget)
        home = self._home()
        question = PatternQuestion(
            problem=replace(problem, targets=targets),
            layer=self.layer,
            circuit=self.circuit,
            excluded=self._excluded(),
            budget=self.budget,
            home=home,
            # For the minimum of F the search continues below the best point found.
            minimum=context.options.mode == "optimum",
            recording=context.tracing,
            only_float32=context.replayer.only_float32,
        )
        self.realiser = Realiser(question, context.replayer)
        self.search = question.search(self.realiser)
        if question.minimum:
            for k in range(len(targets)):
                self.realiser.offer(k, Point(problem.region.center))
        self.question = question
        #: Targets that were proved elsewhere, and how many conflicts other searches have.
        self._dropped = np.zeros(len(targets), dtype=bool)
        self._exchanged = 0
        # Seconds without other processes, and a message about failures of these.
        self._alone = ALONE
        self._trouble = ""
        self._descent: FlipDescent | None = None
        # If all patterns are evaluated at once, no local search is needed.
        root = np.zeros((1, self.circuit.inputs), dtype=np.int8)
        flips = None
        if self.budget is not None:
            flips = self.budget.most_flips(*self.budget.restrict(root))
        few = pattern_counts(root, flips)[0] <= self.search.most_patterns
        if not question.minimum and not few and (self.budget is not None or self._disjoint()):
            self._descent = FlipDescent(
                self.circuit, self.budget, home, self.realiser, context.options.seed
            )

    def run(self, deadline: Deadline) -> SearchOutcome:
        """Search until the deadline."""
        self.realiser.deadline = self.search.limit = deadline
        self.search.pulse = self.context.pulse(PropagationMethod.name)
        if self._descent is not None:
            seconds = min(DESCENT_SECONDS, DESCENT_SHARE * deadline.remaining())
            if self._descent.run(deadline.within(seconds), DESCENTS):
                self.search.outcome.status = "violated"
                return self.search.outcome
        return self._search(deadline)

    def _search(self, deadline: Deadline) -> SearchOutcome:
        """Search in this process, which is enough for most questions, then also in others."""
        search, options = self.search, self.context.options
        opened = self._pool()
        if opened is None:
            return search.run(deadline)
        since = deadline.elapsed()
        found = search.advance(deadline.within(self._alone))
        # The rest of it is for the next slice of time.
        self._alone = max(0.0, self._alone - (deadline.elapsed() - since))
        if found or not search.open or deadline.remaining() < WORTH_STARTING:
            return search.conclude(found or search.advance(deadline))
        with at_most_threads(max(1, usable_cores() // self._processes)), opened as pool:
            search.open.most_bytes = 1e9 * options.memory
            found = SharedSearch(search, self.realiser, pool).run(deadline)
            self._trouble = pool.trouble
        return search.conclude(found)

    @property
    def _processes(self) -> int:
        """The number of processes on this machine, including this one."""
        options = self.context.options
        if options.cluster is not None:
            return 1
        return options.processes or min(8, usable_cores())

    def _pool(self) -> AbstractContextManager[SubtreePool] | None:
        """Return the pool of other processes for subtrees, which are not started yet."""
        if self.context.options.cluster is not None:
            return DaskPool(self.question, self.context.options.cluster)
        return ProcessPool(self.question, self._processes - 1) if self._processes > 1 else None

    def drop(self, proved: set[str]) -> None:
        """Remove targets that are proved elsewhere from the search."""
        now = np.array([target.name in proved for target in self.targets]) & ~self._dropped
        if now.any():
            self._dropped |= now
            self.search.open.drop_targets(self._dropped)

    def exchange(self, learned: LearnedClauses) -> None:
        """Give clauses to other searches of the region, and take theirs."""
        neurons, clauses = self.circuit.neurons, self.realiser.clauses
        # Multipliers are kept only for a certificate.
        theta = {np.sort(literal(n, s)).tobytes(): t for n, s, t in clauses}
        for literals in self.search.outcome.conflicts[self._exchanged :]:
            moved = renumbered(literals, neurons)
            proof = theta.get(np.sort(moved).tobytes())
            learned.add(moved, proof if isinstance(proof, np.ndarray) else None)
        known = {np.sort(c).tobytes() for c in self.search.outcome.conflicts}
        for literals, proof in learned.over(neurons, np.arange(neurons.size)):
            if np.sort(literals).tobytes() not in known:
                self.search.learn(literals)
                if self.context.tracing:
                    variables = variable_of(literals)
                    clauses.append((neurons[variables], sign_of(literals), proof))
        self._exchanged = len(self.search.outcome.conflicts)

    def _home(self) -> SignArray:
        """Return the signs at the region's centre, +1 if undetermined.

        The budget refers to the centre of the ball, which need not be on a grid.
        """
        if self.budget is not None:
            return self.budget.home
        signs = self.layer.exact_signs(self.problem.region.center)[self.circuit.neurons]
        return np.where(signs == -1, -1, 1).astype(np.int8)

    def _disjoint(self) -> bool:
        """Whether the first-layer neurons read disjoint inputs and so do not exclude each other."""
        columns = self.layer.weights[self.circuit.neurons].indices
        return bool(np.unique(columns).size == columns.size)

    def _excluded(self) -> BoolArray:
        """Return the table of first-layer literals that exclude each other."""
        pairs, size = self.presolved.pairs, self.circuit.inputs
        table = np.zeros((2 * size, 2 * size), dtype=bool)
        mine = (variable_of(pairs.first) < size) & (variable_of(pairs.second) < size)
        table[pairs.first[mine], pairs.second[mine]] = True
        return np.asarray(table | table.T)

    def leave_trace(self) -> None:
        """Record the tree for a certificate if it proves all of its targets."""
        tree, record = self.search.record, self.context.record
        if tree is not None and record is not None and self.search.outcome.status == "proved":
            kept = zip(self.targets, self._dropped.tolist(), strict=True)
            names = tuple(target.name for target, dropped in kept if not dropped)
            clauses = tuple(self.realiser.clauses)
            record.patterns.append(PatternTrace(names, tree, self.circuit.neurons, clauses=clauses))
            if record.presolved is None:
                record.presolved = self.presolved

    def result(self, target: Target, name: str, since: float, lower: float) -> TargetResult:
        """Return the result of the search so far for one target."""
        outcome, number = self.search.outcome, self.targets.index(target)
        note = f"{outcome.nodes} nodes, {outcome.patterns} patterns"
        if self._trouble:
            note += f"; {self._trouble}"
        closed = bool(outcome.closed[number])
        if closed and len(target.objectives) == 1:
            lower = max(lower, target.objectives[0].round_up(float(outcome.lower[number])))
        elif closed:
            lower = max(lower, float(outcome.lower[number]))
        found, upper = self.realiser.found, float(self.realiser.upper[number])
        proved = closed
        if self.question.minimum:
            found, kept = None, self.realiser.lowest[number]
            if kept is not None and upper <= 0:
                found = self.context.replayer.confirm(target, kept.values, kept.exact)
            # A bound of F is one of an objective, which also decides about ties.
            proved = found is None and any(o.is_proved_by(lower) for o in target.objectives)
        return self.context.result(
            *(target, name, since),
            lower=lower,
            upper=upper,
            counterexample=found,
            proved=proved,
            note=note,
            details={"nodes": outcome.nodes, "patterns": outcome.patterns},
        )


#: Seconds of a pattern of first-layer signs, and the seconds after which a search may be useful.
PATTERN, PATTERNS = 1e-6, 5e-3


@register
class PropagationMethod(JointMethod):
    """Search over sign patterns of the first layer."""

    name = "propagation"
    summary = "search over first-layer signs by integer propagation in batches; for deep networks"
    reads = frozenset({"seed", "mode", "processes", "cluster", "memory"})
    search = PatternEngine

    def presolve(self, problem: Problem, context: Context) -> Presolved:
        """Presolve; a budget of flips implies all pairs, so they are not needed."""
        network, region = problem.network, problem.region
        bounds = context.intervals(problem)
        if flip_budget(network.layers[0], bounds[0].unstable, region) is not None:
            return plain_presolve(network, region, bounds)
        return context.presolve(problem)

    def refusal(self, presolved: Presolved) -> str:
        """Refuse networks that are too large."""
        return "" if is_small_enough(presolved) else TOO_LARGE


class PatternsEngine(JointEngine):
    """The search over first-layer signs."""

    method = PropagationMethod

    def first_slice(self) -> float:
        """All patterns if they are few."""
        question = self.question
        patterns = PATTERN * 2.0 ** min(question.bounds[0].unstable.size, 30)
        presolve = 0.0 if question.has_flip_budget else question.presolve_seconds
        return STEP + presolve + min(patterns, PATTERNS)

    def start(self, context: Context) -> PatternEngine | None:
        """Begin; a budget of flips implies all pairs, so it needs no presolve."""
        question = self.question
        presolved = question.plain if question.has_flip_budget else question.presolved()
        if presolved is None or not is_small_enough(presolved):
            return None
        return PatternEngine(presolved, question.problem, question.open, context)
