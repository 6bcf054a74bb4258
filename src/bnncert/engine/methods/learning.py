"""Complete answers by a conflict-driven search over the signs of all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.attack import Attack
from bnncert.engine.methods.base import Context, JointWork, register
from bnncert.engine.methods.engine import STEP, JointEngine, JointMethod, LearnedClauses
from bnncert.engine.presolve.literals import literal, negation, renumbered, sign_of, variable_of
from bnncert.engine.presolve.pipeline import Presolved, plain_presolve
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import fast_feasibility
from bnncert.engine.reachability.feasibility import SignPattern
from bnncert.engine.search.learning.encoding import MOST_SUM, Encoding, encode
from bnncert.engine.search.learning.solver_state import (
    BUFFER,
    PER_ENTRY,
    ProofLog,
    SolverState,
    make_state,
    with_more_room,
)
from bnncert.engine.search.patterns.enumeration import Compilation
from bnncert.engine.search.trace import ClauseTrace, LearnedClause
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.problem import Problem, Target

LearningStatus: TypeAlias = Literal["proved", "violated", "interrupted"]

#: Notes of answers without a decision.
TOO_LARGE = "too large for a search that learns"
NOT_COMPILED = "the search that learns is not compiled yet"
IN_DOUBT = "some signs could not be decided in exact arithmetic"
NO_MEMORY = "the learned clauses need more memory"

#: Room for clauses and literals at the start.
CLAUSE_ROOM, LITERAL_ROOM = 2**14, 2**19

#: Conflicts between two looks at the clock, at most.
CONFLICTS_AT_ONCE = 64

#: Conflicts before the first round of an attack, and by how much they grow until the next one.
ATTACK_AT, ATTACK_AGAIN = 4000, 8

#: The compiled loops of this process.
LOOPS = Compilation()


def is_suitable(presolved: Presolved, memory: float) -> bool:
    """Whether the rows fit into a quarter of the memory (GB) and into 32-bit sums."""
    layers = presolved.network.layers[1:]
    entries = sum(made.rows[made.bounds.unstable].nnz for made in presolved.layers[1:])
    small = all(float(layer.norm.max(initial=0.0)) < MOST_SUM for layer in layers)
    return small and 2 * PER_ENTRY * entries < 0.25e9 * memory


@dataclass(eq=False)
class LearningEngine(JointWork):
    """The search that learns from conflicts.

    The network is presolved by intervals alone: a variable for each unstable neuron, no pairs.

    Raises OutOfTimeError if the deadline passes before the search can begin.
    """

    #: What finds counterexamples beside the search, if nothing else does.
    attack: Attack | None = None

    def __post_init__(self) -> None:
        self.suitable = is_suitable(self.presolved, self.context.options.memory)
        self.status: LearningStatus = "interrupted"
        self.found: Counterexample | None = None
        self.note = "" if self.suitable else TOO_LARGE
        self._dropped, self._attack_at = set[str](), ATTACK_AT
        #: Clauses of the region, their literals, and those that other searches do not have yet.
        self._region: list[LearnedClause] = []
        self._known: set[bytes] = set()
        self._cores: list[tuple[IntArray, FloatArray | None]] = []
        self._log, self._doubt, self._begun = ProofLog(), False, False
        if not self.suitable:
            return
        self.encoding: Encoding = encode(
            self.presolved, self.targets, self.problem.region, self.context.deadline
        )
        self.state: SolverState = self._start()

    def _start(self) -> SolverState:
        """Return the state of the solver without clauses."""
        encoding = self.encoding
        phase = self._signs_at(self.problem.region.center)
        noise = self.context.generator().random(encoding.variables)
        return make_state(
            encoding.variables, encoding.rows, phase, 1e-3 * noise,
            clauses=CLAUSE_ROOM, literals=LITERAL_ROOM + 4 * encoding.variables,
            log=BUFFER if self.context.tracing else 0,
        )  # fmt: skip

    def _signs_at(self, point: FloatArray) -> IntArray:
        """Return the sign bits of all variables at a point, except for rounding errors."""
        encoding, layers = self.encoding, self.problem.network.layers
        bits = np.zeros(encoding.variables, dtype=np.int64)
        sums = layers[0].operator().forward(point[None, :])[0]
        signs = np.where(sums + layers[0].enclosure[0] < 0, -1, 1)
        for number, layer in enumerate(layers):
            if number:
                signs = layer.exact_signs(np.where(signs < 0, -1, 1).astype(np.int8))
            own = np.flatnonzero(encoding.layer == number)
            bits[own] = signs[encoding.neuron[own]] < 0
        return bits

    @property
    def conflicts(self) -> int:
        """The number of conflicts so far."""
        return int(self.state.number.conflicts) if self.suitable else 0

    def run(self, deadline: Deadline) -> LearningEngine:
        """Search until the deadline; the outcome is `status`."""
        if self.suitable and self.status == "interrupted":
            self._run(deadline)
        return self

    def _run(self, deadline: Deadline) -> None:
        if not is_ready(deadline):
            self.note = NOT_COMPILED
            return
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.search.learning.conflict_loop import FULL, REFUTED, SATISFIED, search

        self.note = IN_DOUBT if self._doubt else ""
        if not self._begun and not self._begin():
            return
        most = 1e9 * self.context.options.memory
        total = len(self.problem.targets)
        while not deadline.passed():
            if self.attack is not None and self.conflicts >= self._attack_at:
                if self._attacked(self.attack, deadline):
                    return
                continue
            answer = search(self.state, CONFLICTS_AT_ONCE)
            if self.context.tracing:
                self._log.take(self.state, most / 2)
            if answer == REFUTED:
                self._refuted()
                return
            if answer == SATISFIED:
                if self._realise(deadline):
                    return
            elif answer == FULL:
                if 8.0 * self.state.literals.size > most:
                    self.note = NO_MEMORY
                    return
                self.state = with_more_room(self.state)
            self.context.report(
                f"{LearningMethod.name}: {self.conflicts} conflicts",
                total - len(self.targets) + len(self._dropped),
                total,
            )

    def _attacked(self, attack: Attack, deadline: Deadline) -> bool:
        """Attack for a round; if it fails, decisions begin with the signs at its best point."""
        from bnncert.engine.search.learning.trail_loop import go_back

        self._attack_at *= ATTACK_AGAIN
        attack.run(deadline, 1)
        self.found = next((found for found in attack.found if found is not None), None)
        if self.found is not None:
            self.status = "violated"
        go_back(self.state, 0)
        self.state.phase[:] = self._signs_at(attack.closest_point)
        return self.found is not None

    def _begin(self) -> bool:
        """State the clauses that hold from the start; False if they are refuted."""
        self._begun = True
        goals = self.encoding.layer.size + np.arange(self.encoding.goals)
        if not self._state(2 * goals):
            return False
        for k, target in enumerate(self.targets):
            if target.name in self._dropped and not self._give_up(k):
                return False
        for literals, clause in self.encoding.excluded:
            if not self._exclude(literals, clause):
                return False
        self.state.number.first = self.state.number.clauses
        return True

    def _refuted(self) -> None:
        self.status = "interrupted" if self._doubt else "proved"

    def _state(self, literals: IntArray) -> bool:
        """Add a clause, one of whose literals holds; False if that ends the search."""
        from bnncert.engine.search.learning.conflict_loop import state_clause

        while self.state.number.clauses + 2 >= self.state.clause_start.size or (
            self.state.number.literals + literals.size + 2 >= self.state.literals.size
        ):
            self.state = with_more_room(self.state)
        if state_clause(self.state, literals.astype(np.int32)):
            return True
        self._refuted()
        return False

    def _exclude(self, literals: IntArray, clause: LearnedClause) -> bool:
        """Add first-layer signs that exclude each other; False if that ends the search."""
        self._known.add(np.sort(literals).tobytes())
        self._region.append(clause)
        return self._state(negation(literals))

    def _realise(self, deadline: Deadline) -> bool:
        """Search for an input with the signs that were found; return whether the search ends."""
        encoding, region = self.encoding, self.problem.region
        value = self.state.value[::2]
        pattern = value[: encoding.inputs].astype(np.int8)
        neurons = encoding.neuron[: encoding.inputs]
        goals = value[encoding.layer.size :] > 0
        wanted = SignPattern(self.problem.network.layers[0], neurons, pattern)
        guess = _point_of(wanted, region.lo, region.hi, region.center)
        if guess is not None and self._confirm(guess, None, goals):
            return True
        for check in (fast_feasibility, exact_feasibility):
            found = check(wanted, region, deadline)
            if found.conflict is not None:
                blamed = wanted.part(found.conflict)
                core = literal(found.conflict, blamed.signs)
                theta = found.multipliers
                proof = theta if isinstance(theta, np.ndarray) else None
                self._cores.append((renumbered(core, neurons), proof))
                return not self._exclude(core, (blamed.neurons, blamed.signs, theta))
            if found.point is not None and self._confirm(found.point, found.exact_point, goals):
                return True
        if deadline.passed():
            return True
        # Neither a point nor a conflict: the rest of the search cannot prove anything.
        self._doubt, self.note = True, IN_DOUBT
        return not self._state(negation(literal(np.arange(encoding.inputs), pattern)))

    def _confirm(self, point: FloatArray, exact: Any, goals: Any) -> bool:
        """Return whether a point is a counterexample; targets whose goals hold come first."""
        for k in np.argsort(~goals, kind="stable").tolist():
            if self.targets[k].name not in self._dropped:
                self.found = self.context.replayer.confirm(self.targets[k], point, exact)
                if self.found is not None:
                    self.status = "violated"
                    return True
        return False

    def drop(self, proved: set[str]) -> None:
        """Remove targets that are proved elsewhere from the search."""
        for k, target in enumerate(self.targets):
            if target.name in proved and target.name not in self._dropped and self.suitable:
                self._dropped.add(target.name)
                if self.status == "interrupted" and self._begun:
                    self._give_up(k)

    def _give_up(self, k: int) -> bool:
        """State that a target is not violated; False if that ends the search."""
        goal = self.encoding.layer.size + k
        return self._state(np.array([2 * goal + 1], dtype=np.int64))

    def exchange(self, learned: LearnedClauses) -> None:
        """Give clauses to other searches of the region, and take theirs."""
        for literals, proof in self._cores:
            learned.add(literals, proof)
        self._cores = []
        if not self._begun or self.status != "interrupted":
            return
        inputs = self.encoding.inputs
        neurons = self.encoding.neuron[:inputs]
        for literals, proof in learned.over(neurons, np.arange(inputs)):
            if np.sort(literals).tobytes() not in self._known:
                own = neurons[variable_of(literals)], sign_of(literals), proof
                if not self._exclude(literals, own):
                    return

    def leave_trace(self) -> None:
        """Record the lemmas for a certificate if they refute all targets."""
        record = self.context.record
        if record is None or self.status != "proved" or self._log.lost:
            return
        size = self.encoding.layer.size
        # Goals of targets that were proved elsewhere do not hold.
        kept = [k for k, target in enumerate(self.targets) if target.name not in self._dropped]
        place = np.full(self.encoding.variables, -1, dtype=np.int64)
        place[:size] = np.arange(size)
        place[size + np.array(kept, dtype=np.int64)] = size + np.arange(len(kept))
        written = []
        for lemma in self._log.lemmas():
            gone = place[lemma >> 1] < 0
            if not np.any(gone & (lemma & 1 == 1)):
                written.append(renumbered(lemma[~gone].astype(np.int64), place))
        starts = np.concatenate([[0], np.cumsum([clause.size for clause in written])])
        record.clause_proofs.append(
            ClauseTrace(
                targets=tuple(self.targets[k].name for k in kept),
                layer=self.encoding.layer,
                neuron=self.encoding.neuron,
                literals=np.concatenate([np.zeros(0, dtype=np.int64), *written]),
                starts=starts,
                region=tuple(self._region),
            )
        )
        if record.presolved is None:
            record.presolved = self.presolved

    def result(self, target: Target, name: str, since: float, lower: float) -> TargetResult:
        """Return the result of the search so far for one target."""
        proved = self.status == "proved" and target.name not in self._dropped
        if proved:
            lower = max(lower, min((o.least_good_value for o in target.objectives), default=lower))
        return self.context.result(
            *(target, name, since),
            lower=lower,
            counterexample=self.found,
            proved=proved,
            note=self.note or f"{self.conflicts} conflicts",
            details={"conflicts": self.conflicts},
        )


def _point_of(
    pattern: SignPattern, lo: FloatArray, hi: FloatArray, center: FloatArray
) -> FloatArray | None:
    """Return a point of the box that has the pattern if every neuron reads one input."""
    rows = pattern.layer.weights[pattern.neurons]
    if np.any(np.diff(rows.indptr) != 1):
        return None
    limit = -pattern.layer.bias[pattern.neurons] / rows.data
    above = pattern.signs * np.sign(rows.data) > 0
    low, high = lo.copy(), hi.copy()
    np.maximum.at(low, rows.indices[above], limit[above])
    np.minimum.at(high, rows.indices[~above], limit[~above])
    own = np.unique(rows.indices)
    point = np.array(center)
    point[own] = (low[own] + high[own]) / 2
    return point


def is_ready(deadline: Deadline) -> bool:
    """Whether the loops are compiled; the first question begins to compile them, or loads them."""
    if LOOPS.is_ready(_compile, deadline):
        return True
    return LOOPS.wait(max(0.0, min(deadline.remaining(), 1e6)))


def _compile() -> None:
    """Refute "x and not x", which compiles all loops for the types that they are called with."""
    from bnncert.engine.search.learning.conflict_loop import search, state_clause

    none = np.zeros(0, dtype=np.int64)
    rows = none, np.zeros(1, dtype=np.int64), none, none, none
    zeros = np.zeros(2)
    state = make_state(2, rows, np.zeros(2, dtype=np.int64), zeros, clauses=8, literals=64, log=0)
    state_clause(state, np.array([0, 2], dtype=np.int32))
    search(state, 1)


@register
class LearningMethod(JointMethod):
    """Search that learns from conflicts."""

    name = "learning"
    summary = "conflict-driven search over the signs of all layers; for sparse and deep networks"
    reads = frozenset({"seed", "memory", "restarts", "iterations"})
    search = LearningEngine

    def presolve(self, problem: Problem, context: Context) -> Presolved:
        """Presolve by intervals, which is enough."""
        return plain_presolve(problem.network, problem.region, context.intervals(problem))

    def begin(
        self, presolved: Presolved, problem: Problem, targets: tuple[Target, ...], context: Context
    ) -> LearningEngine:
        """Begin with an attack, of which the search makes a round from time to time."""
        attack = Attack(problem, context, bounds=presolved.bounds)
        attack.look_for({target.name for target in targets})
        return LearningEngine(presolved, problem, targets, context, attack)


#: Seconds of loading the compiled loops, of a start and some hundred conflicts, and of
#: encoding a weight.
LOAD, START, ENCODE = 0.4, 8e-3, 2.5e-7


class ClausesEngine(JointEngine):
    """The search that learns clauses."""

    method = LearningMethod

    @property
    def is_endless(self) -> bool:
        """Whether nobody waits for it: its loops are not compiled yet."""
        return not LOOPS.wait(0.0)

    def first_slice(self) -> float:
        """Count the encoding, some hundred conflicts, and loading the compiled loops."""
        return STEP + START + self._encoding + (0.0 if LOOPS.wait(0.0) else LOAD)

    @property
    def _encoding(self) -> float:
        """About the seconds of the encoding: open neurons have rows of open ones."""
        network, bounds = self.question.problem.network, self.question.bounds
        share = [b.unstable.size / max(1, b.state.size) for b in bounds]
        layers = zip(network.layers[1:], share[:-1], share[1:], strict=True)
        return ENCODE * sum(float(layer.weights.nnz) * a * b for layer, a, b in layers)

    def start(self, context: Context) -> LearningEngine | None:
        """Begin with the network presolved by intervals, which is enough for it."""
        question = self.question
        if self._encoding > context.deadline.remaining():
            return None
        search = LearningEngine(question.plain, question.problem, question.open, context)
        return search if search.suitable else None
