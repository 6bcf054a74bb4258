"""One run of `auto`: the state that its stages share, and the division of the time.

The stages run in the order of the plan (`auto`); each works on the targets that are still open.
After them the complete methods take turns in slices of time, and share the clauses that they learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.attack import Attack, AttackMethod
from bnncert.engine.methods.attack_share import AttackShare
from bnncert.engine.methods.base import Context, Method
from bnncert.engine.methods.branch import Branching, BranchMethod
from bnncert.engine.methods.interval import IntervalMethod, interval_proof
from bnncert.engine.methods.proof_stages import ProofStage, ProofTask
from bnncert.engine.methods.propagation import PatternEngine, PropagationMethod
from bnncert.engine.presolve.pipeline import Presolved, plain_presolve
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.relaxations.reduced.problem import is_too_large
from bnncert.engine.search.elimination.elimination_plan import EliminationPlan
from bnncert.engine.search.learned_clauses import LearnedClauses
from bnncert.engine.search.patterns.circuit import is_small_enough
from bnncert.engine.search.patterns.flips import flip_budget
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.problem import Problem

#: Share of the time limit for the quick and the long attack, and the most seconds.  The attack also
#: gets slices of time between proofs, see `attack_share`.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0

#: Unstable neurons of the first layer from which on the attack comes before presolve, which takes
#: seconds for such a problem and seldom decides a target.
LARGE = 600

#: For such a problem: share and seconds of the first attack, and share of the second attack.
FIRST_SHARE, FIRST_SECONDS, SECOND_SHARE = 0.25, 30.0, 0.5

#: A search over flips that is expected to end within this share of the remaining time goes on.
ENDS_SHARE = 0.9

#: Rounds of the attack before the relaxation, and of the one before the exact method.
QUICK_ROUNDS, LONG_ROUNDS = 1, 5

#: Gradient steps of the quick attack; few, because the relaxation proves most of the open targets.
QUICK_ITERATIONS = 12

#: Sign layers from which on relaxations are weak, and patterns are searched first.
DEEP = 3

#: Share of the remaining time for a long search over patterns, and the most seconds.
PATTERNS_SHARE, PATTERNS_SECONDS = 0.5, 60.0

#: Seconds and share of the time of the first search over patterns if the region is a budget of
#: flips, and the share of the remaining time for presolve in this case.
SHORT_BUDGET, SHORT_SHARE, PRESOLVE_SHARE = 2.0, 0.25, 0.3

#: Seconds of the first slice of a complete method, for each open target, and the factor for the
#: method that suits the problem best.
FIRST_SLICE, FAVOURED = 1.0, 4.0


class AutoRun:
    """The work on one problem."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.results: dict[str, TargetResult] = {}
        self.bounds = context.intervals(problem)
        self.is_large = self.bounds[0].unstable.size > LARGE
        # The same search as that of the method `attack`, from its first point on.
        self.search = Attack(problem, context, bounds=self.bounds)
        self.share = AttackShare(context.deadline)
        self.patterns: PatternEngine | None = None
        self.branching: Branching
        #: The plan for the elimination of a local network's variables.
        self.elimination: EliminationPlan | None = None
        #: The clauses about the first layer that the complete methods learn and share.
        self.learned = LearnedClauses()
        first = problem.network.layers[0]
        self.has_flip_budget = (
            flip_budget(first, self.bounds[0].unstable, problem.region) is not None
        )

    @property
    def open(self) -> set[str]:
        """The targets without a proof."""
        results = self.results
        return {t.name for t in self.problem.targets if results[t.name].status != "robust"}

    @property
    def is_over(self) -> bool:
        """Whether the question is decided: every target is proved, or one is violated."""
        statuses = {r.status for r in self.results.values()}
        return "not_robust" in statuses or statuses <= {"robust"}

    def run(
        self, stages: Sequence[AutoStage], engines: Sequence[Engine]
    ) -> tuple[TargetResult, ...]:
        """Run the stages in order, then the complete methods in slices of time.

        At the end the attack gets the rest of its share.
        """
        problem, context = self.problem, self.context
        if self.is_large or self.has_flip_budget:
            self.prove_by_intervals(self.bounds)
            self.run_before_presolve()
            if self.is_over:
                return tuple(self.results[t.name] for t in problem.targets)
        presolved = self.presolve()
        if presolved is not None:
            self.run_stages(presolved, stages)
            self.rotate(presolved, list(engines))
        if not self.is_over:
            self.attack(self.share.lacking())
        results = [self.results[t.name] for t in problem.targets]
        if context.deadline.passed():
            return tuple(
                replace(r, status="timeout") if r.status == "unknown" else r for r in results
            )
        return tuple(results)

    def run_before_presolve(self) -> None:
        """Run the stages without presolve: it takes long, or the region is a budget of flips."""
        if self.is_over and self.context.tracing:
            # A certificate of an interval proof needs no other presolve.
            self.context.record_presolved(self.plain())
        plain = None
        if self.has_flip_budget and not self.is_over:
            plain = self.context.record_presolved(self.plain())
            end = self.share.for_proofs()
            self.search_patterns(plain, min(SHORT_BUDGET, SHORT_SHARE * end.remaining()), end)
        # A search over flips also finds counterexamples.
        if self.is_large and plain is None and not self.is_over:
            self.attack(min(FIRST_SECONDS, FIRST_SHARE * self.context.deadline.remaining()))
        if plain is not None and not self.is_over:
            self.quick_attack(plain)
        if plain is not None and not self.is_over:
            end = self.share.for_proofs()
            self.search_patterns(plain, half_of(end.remaining()), end)
        left = self.context.deadline
        if plain is None or self.patterns is None or self.is_over:
            return
        if self.patterns.seconds_left() < ENDS_SHARE * left.remaining():
            # A search that ends in time needs no help by other methods.
            self.search_patterns(plain, left.remaining(), left)

    def plain(self) -> Presolved:
        """Return the network presolved by intervals only."""
        return plain_presolve(self.problem.network, self.problem.region, self.bounds)

    def presolve(self) -> Presolved | None:
        """Return the presolved network, or None if presolve takes all the time for proofs."""
        problem, deadline, end = self.problem, self.context.deadline, self.share.for_proofs()
        started = deadline.elapsed()
        contradiction, presolved = False, None
        if self.has_flip_budget:
            end = end.within(PRESOLVE_SHARE * end.remaining())
        try:
            presolved = self.context.presolve(problem, end)
            contradiction = presolved.contradiction
        except OutOfTimeError:
            presolved = self.plain() if self.has_flip_budget else None
        bounds = self.bounds if presolved is None else presolved.bounds
        if presolved is not None:
            self.context.record_presolved(presolved)
        took = {"presolve": deadline.elapsed() - started}
        self.prove_by_intervals(bounds, contradiction, took)
        return presolved

    def run_stages(self, presolved: Presolved, stages: Sequence[AutoStage]) -> None:
        """Run the stages until the question is decided or the time for proofs is over."""
        name, trees = BranchMethod.name, max(1, len(self.open))
        self.branching = Branching(presolved, self.problem, name, self.learned, trees)
        for stage in stages:
            if self.is_over or self.share.for_proofs().passed():
                return
            stage.run(self, presolved)

    def rotate(self, presolved: Presolved, engines: list[Engine]) -> None:
        """Give slices of time to the complete methods in turn, each round longer than the last.

        A method that ends before its slice has nothing more to find, and is left out from then on.
        """
        seconds = FIRST_SLICE
        # The verdict of milp relies on its solver: if a certificate is wanted, it comes last.
        last = [e for e in engines if e.trusts_solver and self.context.tracing]
        engines = [e for e in engines if e not in last]
        while engines or last:
            if not engines:
                engines, last = last, []
            for engine in sorted(engines, key=lambda e: not e.suits(presolved)):
                end = self.share.for_proofs()
                if self.is_over or end.passed():
                    return
                own = seconds * len(self.open) * (FAVOURED if engine.suits(presolved) else 1.0)
                if not engine.run(self, presolved, end.within(own)):
                    engines.remove(engine)
                if not self.is_over:
                    self.attack(self.share.due())
            seconds *= 2

    def prove_by_intervals(
        self,
        bounds: tuple[LayerBounds, ...],
        contradiction: bool = False,
        took: dict[str, float] | None = None,
    ) -> None:
        """Prove the targets that bounds of the last layer's sums prove."""
        for target in self.problem.targets:
            before = self.results.get(target.name)
            if before is not None and before.status == "robust":
                continue
            since = self.context.deadline.elapsed()
            lower, proved = interval_proof(target, bounds[-1])
            after = self.context.result(
                target,
                IntervalMethod.name,
                since,
                lower=lower,
                proved=proved or contradiction,
                details={"seconds": took or {}},
                tried=False,
            )
            self.results[target.name] = after if before is None else _combine(before, after)

    def search_patterns(self, presolved: Presolved, seconds: float, end: Deadline) -> bool:
        """Search over sign patterns, for all open targets together; True if it was interrupted."""
        if seconds <= 0 or not is_small_enough(presolved):
            return False
        since = self.context.deadline.elapsed()
        if self.patterns is None:
            own = tuple(t for t in self.problem.targets if t.name in self.open)
            context = self.context.deciding()
            try:
                self.patterns = PatternEngine(presolved, self.problem, own, context, end)
            except OutOfTimeError:
                return True
        self.patterns.drop({t.name for t in self.problem.targets} - self.open)
        self.patterns.exchange(self.learned)
        everyone = len(self.problem.targets)
        self.context.report(PropagationMethod.name, everyone - len(self.open), everyone)
        slice_ = end.within(seconds)
        outcome = self.patterns.run(slice_)
        self.patterns.exchange(self.learned)
        self.patterns.leave_trace()
        for target in self.patterns.targets:
            before = self.results[target.name]
            after = self.patterns.result(target, PropagationMethod.name, since, before.lower)
            if before.status != "robust":
                self.enter(after)
        return outcome.status == "interrupted" and slice_.passed()

    def enter(self, after: TargetResult) -> None:
        """Combine the result of a stage for one target with the earlier ones."""
        if after.status == "timeout" and not self.context.deadline.passed():
            # Only the share of the stage is over.
            after = replace(after, status="unknown")
        self.results[after.name] = _combine(self.results[after.name], after)

    def quick_attack(self, presolved: Presolved) -> None:
        """Attack for a few steps, from other points than those of the long attack."""
        if self.is_large:
            return
        context, open_ = self.context, self.open
        options = replace(
            context.options, seed=context.options.seed + 1, iterations=QUICK_ITERATIONS
        )
        deadline = context.deadline.within(self.attack_seconds())
        limited = replace(context, options=options, deadline=deadline)
        since = context.deadline.elapsed()
        search = Attack(self.problem, limited, bounds=presolved.bounds, wanted=open_)
        search.run(deadline, QUICK_ROUNDS)
        self.take(since, open_, *search.outcome(deadline))

    def long_attack(self, presolved: Presolved) -> None:
        """Attack for longer, before the exact methods."""
        deadline = self.context.deadline
        if self.is_large and deadline.seconds is not None:
            if self.search.is_stalled and not is_too_large(presolved):
                return
            # If no exact method follows, the attack gets all the remaining time.
            share = 1.0 if is_too_large(presolved) else SECOND_SHARE
            self.attack(share * deadline.remaining())
        else:
            self.attack(self.attack_seconds(), LONG_ROUNDS)

    def attack_seconds(self) -> float:
        """Return the seconds for the quick or the long attack now."""
        return min(ATTACK_SECONDS, ATTACK_SHARE * self.context.deadline.remaining())

    def attack(self, seconds: float, rounds: int | None = None) -> None:
        """Continue the attack for some time, on all open targets together."""
        if seconds <= 0:
            return
        deadline, open_ = self.context.deadline, self.open
        since = deadline.elapsed()
        limited = deadline.within(seconds)
        self.search.look_for(open_)
        self.search.run(limited, rounds)
        self.take(since, open_, *self.search.outcome(limited))
        self.share.spend(deadline.elapsed() - since, stalled=self.search.is_stalled)

    def take(
        self, since: float, open_: set[str], upper: FloatArray, found: list[Counterexample | None]
    ) -> None:
        """Combine the results of an attack with the earlier ones."""
        for k, target in enumerate(self.problem.targets):
            if target.name in open_:
                after = self.context.result(
                    target, AttackMethod.name, since, upper=float(upper[k]), counterexample=found[k]
                )
                self.enter(after)

    def prove(
        self, stage: ProofStage, presolved: Presolved, within: Deadline | None = None
    ) -> bool:
        """Try one kind of proof on every open target; the attack gets its share in between.

        True if the deadline ended the work on some target.
        """
        problem, own = self.problem, within or self.context.deadline
        # The target with the lowest value found by the attack is the most likely to be violated.
        pending = [t for t in problem.targets if t.name in self.open]
        pending.sort(key=lambda t: self.results[t.name].upper)
        stage_end, late = own, False
        share = stage.share(is_large=self.is_large, is_deep=is_deep(presolved))
        if share < 1:
            stage_end = own.within(share * own.remaining())
        for number, target in enumerate(pending):
            self.context.report(f"{stage.method.name}: {target.name}", number, len(pending))
            end = self.share.for_proofs().within(stage_end.remaining())
            if end.passed():
                return True
            context = replace(self.context, deadline=end)
            waiting = len(pending) - number
            task = ProofTask(problem, presolved, target, context, waiting, self.branching)
            since = context.deadline.elapsed()
            after = stage.prove(task)
            if after is None:
                context.spend(stage.method.name, since, target.name)
            else:
                late = late or after.status == "timeout"
                self.enter(after)
                if after.status == "not_robust":
                    return False
            # When the last target is proved, nothing is left to attack.
            if self.open:
                self.attack(self.share.due())
            if self.is_over:
                return False
        return late


@dataclass(frozen=True, eq=False)
class AutoStage:
    """One step of the plan: its method, and the function that runs it."""

    method: type[Method]
    run: Callable[[AutoRun, Presolved], object]


@dataclass(frozen=True, eq=False)
class Engine:
    """A complete method that works in slices of time."""

    method: type[Method]
    #: Works until the deadline; False if it has nothing more to find.
    run: Callable[[AutoRun, Presolved, Deadline], bool]
    #: Whether it is the preferred method for such a network.
    suits: Callable[[Presolved], bool] = lambda presolved: False
    #: Whether its verdict relies on a solver.
    trusts_solver: bool = False


def half_of(remaining: float) -> float:
    """Return the seconds of a long search over patterns."""
    return min(PATTERNS_SHARE * remaining, PATTERNS_SECONDS)


def is_deep(presolved: Presolved) -> bool:
    """Whether the network has so many sign layers that relaxations are weak."""
    return presolved.network.depth >= DEEP


def has_flip_budget(presolved: Presolved) -> bool:
    """Whether the region is a budget of flips of the first layer."""
    first = presolved.owner[presolved.owner_layer == 0]
    return flip_budget(presolved.network.layers[0], first, presolved.region) is not None


def _combine(before: TargetResult, after: TargetResult) -> TargetResult:
    """Return the later result with the better of both bounds.

    The attack works on all targets together: it is the stage of a target only if it decides it.
    """
    kept = after.stage == AttackMethod.name and after.status not in ("robust", "not_robust")
    seconds = before.details.get("seconds", {})
    seconds = {**seconds, after.stage: seconds.get(after.stage, 0.0) + after.seconds}
    return replace(
        after,
        lower=max(before.lower, after.lower),
        upper=min(before.upper, after.upper),
        seconds=before.seconds + after.seconds,
        stage=before.stage if kept else after.stage,
        tried=before.tried if kept else before.tried or after.tried,
        details={**before.details, **after.details, "seconds": seconds},
    )
