"""The methods as engines: each works on what is open for a while, and can go on later.

Engines share a question: its results, presolve, and the clauses about the first layer that one
search learns and the searches of other objectives reuse.  An engine asks for presolve if it needs
it, and pays for it with its own time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Method
from bnncert.engine.methods.interval import IntervalMethod, interval_proof
from bnncert.engine.presolve.literals import renumbered, variable_of
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem, Target

if TYPE_CHECKING:
    # A question that intervals decide imports nothing of this.
    from bnncert.engine.presolve.pipeline import Presolved
    from bnncert.engine.search.tree import Tree

#: Longer clauses exclude too few patterns to be useful in another tree.
LONGEST = 12


@dataclass(eq=False)
class LearnedClauses:
    """Clauses as literals of neurons, each with the Farkas multipliers that prove it.

    A clause excludes a combination of signs of first-layer neurons.  It holds for every objective,
    and neurons have the same numbers in all reduced problems of a region.
    """

    known: dict[bytes, tuple[IntArray, FloatArray | None]] = field(default_factory=dict)

    def add(self, literals: IntArray, theta: FloatArray | None) -> None:
        """Add literals of neurons that cannot all hold, unless there are too many of them."""
        if literals.size <= LONGEST:
            self.known.setdefault(np.sort(literals).tobytes(), (literals, theta))

    def add_from(self, tree: Tree) -> None:
        """Add the clauses that a tree has learned."""
        neuron_of = np.full(tree.problem.size, -1, dtype=np.int64)
        neuron_of[tree.inputs] = tree.neurons
        for literals, theta in tree.proofs:
            if np.all(neuron_of[variable_of(literals)] >= 0):
                self.add(renumbered(literals, neuron_of), theta)

    def add_to(self, tree: Tree) -> None:
        """Add to a tree the clauses whose neurons are all variables of its problem."""
        for literals, theta in self.over(tree.neurons, tree.inputs):
            tree.learn(literals, theta)

    def over(
        self, neurons: IntArray, variables: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray | None]]:
        """Yield the clauses over these neurons; neuron k becomes the variable `variables[k]`."""
        if not self.known:
            return
        most = max(int(variable_of(literals).max()) for literals, _ in self.known.values())
        place = np.full(max(most, int(neurons.max(initial=0))) + 1, -1, dtype=np.int64)
        place[neurons] = variables
        for literals, theta in self.known.values():
            if np.all(place[variable_of(literals)] >= 0):
                yield renumbered(literals, place), theta


#: About the seconds of presolve: in any case, for each open neuron, and for each pair of open
#: first-layer neurons and input that both read; for each pair of a budget, where most conflict.
PRESOLVE, PER_NEURON, PER_PAIR, PER_CONFLICT = 2e-3, 2e-5, 2e-9, 2e-5

#: Seconds of a relaxation: in any case, for the cube of its number of unknowns, and at most.
RELAXATION, CUBE, MOST = 0.03, 1e-9, 10.0


class OpenQuestion:
    """One problem, its results so far, and the presolved network, which is made when it is needed.

    Interval bounds are computed at once; they decide many questions alone.
    """

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.results: dict[str, TargetResult] = {}
        self.bounds: tuple[LayerBounds, ...] = context.intervals(problem)
        self._presolved: Presolved | None = None
        self._prove_by_intervals(contradiction=False, seconds={})
        if self.is_over and context.tracing:
            # A certificate of an interval proof needs no other presolve.
            context.record_presolved(self.plain)

    @property
    def open(self) -> tuple[Target, ...]:
        """The targets without a proof, those with the lowest known values first."""
        pending = [t for t in self.problem.targets if self.results[t.name].status != "robust"]
        return tuple(sorted(pending, key=lambda t: self.results[t.name].upper))

    @property
    def is_over(self) -> bool:
        """Whether the question is decided: every target is proved, or one is violated."""
        statuses = {r.status for r in self.results.values()}
        return "not_robust" in statuses or statuses <= {"robust"}

    @cached_property
    def learned(self) -> LearnedClauses:
        """The clauses about the first layer that the searches learn and share."""
        return LearnedClauses()

    @cached_property
    def has_flip_budget(self) -> bool:
        """Whether the region is a budget of flips of the first layer."""
        from bnncert.engine.search.patterns.flips import flip_budget

        first, region = self.problem.network.layers[0], self.problem.region
        return flip_budget(first, self.bounds[0].unstable, region) is not None

    @cached_property
    def plain(self) -> Presolved:
        """The network presolved by intervals only."""
        from bnncert.engine.presolve.pipeline import plain_presolve

        return plain_presolve(self.problem.network, self.problem.region, self.bounds)

    @property
    def presolve_seconds(self) -> float:
        """About the seconds that presolve will take; 0 if it is done."""
        if self._presolved is not None:
            return 0.0
        first, layer = self.bounds[0].unstable.size, self.problem.network.layers[0]
        pair = PER_PAIR * float(layer.weights.nnz) / max(1, layer.size)
        open_ = sum(b.unstable.size for b in self.bounds)
        pair = PER_CONFLICT if self.has_flip_budget else pair
        return PRESOLVE + PER_NEURON * open_ + pair * first**2

    @property
    def unknowns(self) -> float:
        """About the number of unknowns of the reduced relaxation."""
        sizes = [b.unstable.size for b in self.bounds]
        return sizes[0] + sizes[-1] + 4.0 * sum(sizes[1:-1])

    @property
    def relaxation_seconds(self) -> float:
        """About the seconds of one relaxation."""
        return min(RELAXATION + CUBE * self.unknowns**3, MOST)

    def presolved(self) -> Presolved | None:
        """Presolve at the first call; None if the time limit ends it, or if it decides.

        It is not interrupted by the end of a slice, because it cannot be continued.
        """
        if self._presolved is None:
            since = self.context.deadline.elapsed()
            try:
                made = self.context.presolve(self.problem)
            except OutOfTimeError:
                return None
            self._presolved = self.context.record_presolved(made)
            self.bounds = made.bounds
            seconds = {"presolve": self.context.deadline.elapsed() - since}
            self._prove_by_intervals(made.contradiction, seconds)
        return None if self.is_over else self._presolved

    def _prove_by_intervals(self, contradiction: bool, seconds: dict[str, float]) -> None:
        """Prove the targets that bounds of the last layer's sums prove."""
        for target in self.problem.targets:
            before = self.results.get(target.name)
            if before is not None and before.status == "robust":
                continue
            lower, proved = interval_proof(target, self.bounds[-1])
            self.enter(
                self.context.result(
                    target,
                    IntervalMethod.name,
                    self.context.deadline.elapsed(),
                    lower=lower,
                    proved=proved or contradiction,
                    details={"seconds": seconds},
                    tried=False,
                )
            )

    def enter(self, after: TargetResult, *, is_shared: bool = False) -> None:
        """Combine a result for one target with the earlier ones: the later, with the best bounds.

        Work that is shared by all targets is the stage of one only if it decides it.
        """
        if after.status == "timeout" and not self.context.deadline.passed():
            # Only a slice is over.
            after = replace(after, status="unknown")
        before = self.results.get(after.name)
        if before is not None:
            if before.status == "robust":
                return
            kept = is_shared and after.status != "not_robust"
            seconds = before.details.get("seconds", {})
            seconds = {**seconds, after.stage: seconds.get(after.stage, 0.0) + after.seconds}
            after = replace(
                after,
                lower=max(before.lower, after.lower),
                upper=min(before.upper, after.upper),
                seconds=before.seconds + after.seconds,
                stage=before.stage if kept else after.stage,
                tried=before.tried if kept else before.tried or after.tried,
                details={**before.details, **after.details, "seconds": seconds},
            )
        self.results[after.name] = after

    def answers(self) -> tuple[TargetResult, ...]:
        """Return one result for each target."""
        late = self.context.deadline.passed()
        results = (self.results[t.name] for t in self.problem.targets)
        return tuple(
            replace(r, status="timeout") if late and r.status == "unknown" else r for r in results
        )


#: Seconds of the overhead of a first step.
STEP = 2e-3


class Engine(ABC):
    """A method that works on the open targets in slices of time."""

    method: ClassVar[type[Method]]
    #: Whether its verdict relies on a solver and so has no certificate.
    trusts_solver: ClassVar[bool] = False
    #: Whether it is unlikely to find anything soon.
    stalled: bool = False

    def __init__(self, question: OpenQuestion) -> None:
        self.question = question

    @property
    def context(self) -> Context:
        """The options and limits of the question."""
        return self.question.context

    @property
    def is_endless(self) -> bool:
        """Whether nobody waits for it when all others have nothing more to find."""
        return False

    @abstractmethod
    def first_slice(self) -> float:
        """About the seconds of a first useful step; infinite if it does not suit the problem."""

    @abstractmethod
    def work(self, end: Deadline) -> bool:
        """Work until about `end`; False if there is nothing more to find."""

    def finish(self) -> None:  # noqa: B027 (most engines enter everything while they work)
        """Enter what is known when the time is over."""

    def report(self) -> None:
        """Tell what is worked on."""
        everyone = len(self.question.problem.targets)
        self.context.report(self.method.name, everyone - len(self.question.open), everyone)

    def limited(self, end: Deadline) -> Context:
        """Return the context of a slice."""
        return replace(self.context, deadline=end)


class JointSearch(Protocol):
    """A search for all open targets together, which can be interrupted and continued."""

    targets: tuple[Target, ...]

    def __init__(
        self, presolved: Presolved, problem: Problem, targets: tuple[Target, ...], context: Context
    ) -> None: ...

    def drop(self, proved: set[str]) -> None:
        """Remove targets that are proved elsewhere."""

    def exchange(self, learned: LearnedClauses) -> None:
        """Give clauses to other searches of the region, and take theirs."""

    def run(self, deadline: Deadline) -> HasStatus:
        """Search until the deadline."""

    def leave_trace(self) -> None:
        """Record the proof for a certificate, if there is one."""

    def result(self, target: Target, name: str, since: float, lower: float) -> TargetResult:
        """Return the result of the search so far for one target."""


class HasStatus(Protocol):
    """What a search tells: it is "interrupted" until it is decided."""

    @property
    def status(self) -> str:
        """What is known."""


class JointMethod(Method):
    """A method that decides all targets in one search, after what interval bounds prove."""

    promises = ("bound", "exact", "counterexample")
    search: ClassVar[type[JointSearch]]

    def begin(
        self, presolved: Presolved, problem: Problem, targets: tuple[Target, ...], context: Context
    ) -> JointSearch:
        """Begin the search."""
        return self.search(presolved, problem, targets, context)

    @abstractmethod
    def presolve(self, problem: Problem, context: Context) -> Presolved:
        """Presolve the network as far as the search needs it."""

    def refusal(self, presolved: Presolved) -> str:
        """Say why there is no search for this network; empty if there is one."""
        return ""

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide all targets in one search."""
        presolved = self.presolve(problem, context)
        since = context.deadline.elapsed()
        known: dict[str, TargetResult] = {}
        for target in problem.targets:
            lower, proved = interval_proof(target, presolved.bounds[-1])
            if presolved.contradiction:
                lower, proved = np.inf, True
            known[target.name] = context.result(
                target, self.name, since, lower=lower, proved=proved
            )
        open_ = problem.targets
        # The minimum is also computed of targets that are proved.
        wants_minimum = "mode" in self.reads and context.options.mode != "feasibility"
        if presolved.contradiction or not wants_minimum:
            open_ = tuple(t for t in open_ if known[t.name].status != "robust")
        if open_ and not context.deadline.passed():
            lowers = [known[target.name].lower for target in open_]
            note, search = self.refusal(presolved), None
            if not note:
                context.report(self.name, len(problem.targets) - len(open_), len(problem.targets))
                search = self.begin(presolved, problem, open_, context)
                search.run(context.deadline)
                search.leave_trace()
            for target, lower in zip(open_, lowers, strict=True):
                known[target.name] = (
                    context.result(target, self.name, since, lower=lower, note=note)
                    if search is None
                    else search.result(target, self.name, since, lower)
                )
        return tuple(known[target.name] for target in problem.targets)


class JointEngine(Engine):
    """A search for all open targets together."""

    _search: JointSearch | None = None

    @abstractmethod
    def start(self, context: Context) -> JointSearch | None:
        """Begin the search; None if it does not suit the problem."""

    def work(self, end: Deadline) -> bool:
        """Continue the search."""
        question, since = self.question, self.context.deadline.elapsed()
        self.report()
        if self._search is None:
            try:
                self._search = self.start(self.context.deciding())
            except OutOfTimeError:
                return False
        search = self._search
        if search is None:
            return False
        open_ = {t.name for t in question.open}
        search.drop({t.name for t in question.problem.targets} - open_)
        search.exchange(question.learned)
        outcome = search.run(end)
        search.exchange(question.learned)
        search.leave_trace()
        for target in search.targets:
            lower = question.results[target.name].lower
            question.enter(search.result(target, self.method.name, since, lower))
        return outcome.status == "interrupted" and end.passed()


class TargetEngine(Engine):
    """A method for one target at a time; each has an equal share of a slice."""

    def work(self, end: Deadline) -> bool:
        """Work on every open target; what the end of its share interrupts is worked on again."""
        presolved, late = self.question.presolved(), False
        if presolved is None:
            return False
        pending = self.pending()
        for number, target in enumerate(pending):
            if self.context.deadline.passed():
                return False
            self.context.report(f"{self.method.name}: {target.name}", number, len(pending))
            own = self.limit(target, end.within(end.remaining() / (len(pending) - number)))
            since = self.context.deadline.elapsed()
            after = self.decide(target, presolved, self.limited(own))
            if after is None:
                self.context.spend(self.method.name, since, target.name)
                continue
            self.question.enter(after)
            late = late or (own.passed() and after.status not in ("robust", "not_robust"))
            if self.question.is_over:
                return False
            if end.passed():
                return late or number + 1 < len(pending)
        return late

    def limit(self, target: Target, equal: Deadline) -> Deadline:
        """Return the limit of the work on a target; `equal` is that of an equal share."""
        return equal

    def pending(self) -> list[Target]:
        """Return the targets to work on now."""
        return list(self.question.open)

    @abstractmethod
    def decide(self, target: Target, presolved: Presolved, context: Context) -> TargetResult | None:
        """Work on one target; None if the method is not meant for it."""
