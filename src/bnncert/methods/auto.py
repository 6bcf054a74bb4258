"""The default: cheap methods first, the exact one for what they leave open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.methods.attack import Attack, AttackMethod
from bnncert.methods.attack_share import SHARE, AttackShare
from bnncert.methods.base import Context, Method, register
from bnncert.methods.branch import Branching, BranchMethod
from bnncert.methods.interval import IntervalMethod, interval_proof
from bnncert.methods.proof_stages import (
    BAB,
    LP,
    MILP,
    SDP,
    SHORT_BAB,
    SMALL_SDP,
    ProofStage,
    ProofTask,
)
from bnncert.methods.propagation import PatternEngine, PropagationMethod
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.presolve.plain import plain_presolve
from bnncert.presolve.stability import LayerBounds, stability
from bnncert.problem import Problem
from bnncert.relaxations.reduced.problem import is_too_large
from bnncert.search.patterns.circuit import is_small_enough
from bnncert.search.patterns.flips import flip_budget
from bnncert.verdict import Counterexample, TargetResult

#: Share of the time limit, and seconds at most, that the quick and the long attack may take.  The
#: attack also gets slices of time between proofs, see `attack_share`.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0

#: Unstable neurons of the first layer from which on the attack comes before presolve, which takes
#: seconds there and seldom decides anything.
LARGE = 600

#: For such a problem: share and seconds of the first attack, and share of the second attack.
FIRST_SHARE, FIRST_SECONDS, SECOND_SHARE = 0.25, 30.0, 0.5

#: Rounds of the attack before the relaxation, and of the one before the exact method.
QUICK_ROUNDS, LONG_ROUNDS = 1, 5

#: Gradient steps of the quick attack: the relaxation proves most targets that reach it.
QUICK_ITERATIONS = 12

#: Unstable first-layer signs up to which all their patterns take less time than a relaxation.
FEW_SIGNS = 12

#: Sign layers from which on relaxations are weak, and patterns are searched first.
DEEP = 3

#: Seconds of the first search over patterns, and the share and seconds of the long one in a deep
#: network.
SHORT_PATTERNS, PATTERNS_SHARE, PATTERNS_SECONDS = 0.5, 0.5, 60.0

#: Seconds and share of the time of the first search over patterns where the region is a budget of
#: flips.
SHORT_BUDGET, SHORT_SHARE = 2.0, 0.25


class AutoRun:
    """The work on one problem."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.results: dict[str, TargetResult] = {}
        self.bounds = stability(problem.network, problem.region)
        self.is_large = self.bounds[0].unstable.size > LARGE
        # The same search as that of the method `attack`, from its first point on.
        self.search = Attack(problem, context, bounds=self.bounds)
        self.share = AttackShare(context.deadline)
        self.patterns: PatternEngine | None = None
        self.branching: Branching
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

    def run(self) -> tuple[TargetResult, ...]:
        """Run the stages in order; in the end the attack gets the rest of its share."""
        problem, context = self.problem, self.context
        if self.is_large or self.has_flip_budget:
            self.prove_by_intervals(self.bounds)
            self.run_before_presolve()
            if self.is_over:
                return tuple(self.results[t.name] for t in problem.targets)
        presolved = self.presolve()
        if presolved is not None:
            self.run_stages(presolved)
        limit = context.deadline.seconds
        if not self.is_over and limit is not None:
            self.attack(SHARE * limit - self.share.seconds)
        return tuple(_timed(self.results[t.name], context) for t in problem.targets)

    def run_before_presolve(self) -> None:
        """Run what needs no presolve, where that takes long or the region is a budget of flips."""
        plain = None
        if self.has_flip_budget and not self.is_over:
            plain = plain_presolve(self.problem.network, self.problem.region, self.bounds)
            end = self.share.for_proofs()
            seconds = min(SHORT_BUDGET, SHORT_SHARE * end.remaining())
            self.search_patterns(plain, seconds, end)
        if self.is_large and not self.is_over:
            self.attack(min(FIRST_SECONDS, FIRST_SHARE * self.context.deadline.remaining()))
        if self.is_large and plain is not None and not self.is_over:
            end = self.share.for_proofs()
            self.search_patterns(plain, _long_search(plain, end.remaining()), end)

    def presolve(self) -> Presolved | None:
        """Return the presolved network, or None if presolve takes all the time for proofs."""
        problem, deadline = self.problem, self.context.deadline
        started = deadline.elapsed()
        bounds, contradiction, presolved = self.bounds, False, None
        try:
            presolved = presolve(problem.network, problem.region, deadline=self.share.for_proofs())
            self.context.record_presolved(presolved)
            bounds, contradiction = presolved.bounds, presolved.contradiction
        except OutOfTimeError:
            pass
        took = {"presolve": deadline.elapsed() - started}
        self.prove_by_intervals(bounds, contradiction, took)
        return presolved

    def run_stages(self, presolved: Presolved) -> None:
        """Run the stages until the question is decided or the time for proofs is over."""
        self.branching = Branching(presolved, self.problem, BranchMethod.name)
        for stage in STAGES:
            if self.is_over or self.share.for_proofs().passed():
                return
            stage.run(self, presolved)

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

    def search_patterns(self, presolved: Presolved, seconds: float, end: Deadline) -> None:
        """Search over sign patterns, for all open targets together."""
        if seconds <= 0 or not is_small_enough(presolved):
            return
        since = self.context.deadline.elapsed()
        if self.patterns is None:
            own = tuple(t for t in self.problem.targets if t.name in self.open)
            decide = replace(
                self.context, options=replace(self.context.options, mode="feasibility")
            )
            self.patterns = PatternEngine(presolved, self.problem, own, decide)
        self.context.report(PropagationMethod.name, 0, 1)
        self.patterns.run(end.within(seconds))
        self.patterns.leave_trace()
        for target in self.patterns.targets:
            before = self.results[target.name]
            after = self.patterns.result(target, PropagationMethod.name, since, before.lower)
            if before.status != "robust":
                self.results[target.name] = _combine(before, self.unfinished(after))

    def unfinished(self, result: TargetResult) -> TargetResult:
        """Return the result of a stage: the end of its share is not the end of the time."""
        if result.status == "timeout" and not self.context.deadline.passed():
            return replace(result, status="unknown")
        return result

    def quick_attack(self, presolved: Presolved) -> None:
        """Make a few steps, from other points than those of the long attack."""
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
            # Where no exact method follows, all the time that is left.
            share = 1.0 if is_too_large(presolved) else SECOND_SHARE
            self.attack(share * deadline.remaining())
        else:
            self.attack(self.attack_seconds(), LONG_ROUNDS)

    def attack_seconds(self) -> float:
        """Return how long the quick or the long attack may take now."""
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
        self.share.spend(deadline.elapsed() - since)

    def take(
        self,
        since: float,
        open_: set[str],
        upper: FloatArray,
        found: list[Counterexample | None],
    ) -> None:
        """Enter the results of an attack."""
        for k, target in enumerate(self.problem.targets):
            if target.name in open_:
                after = self.context.result(
                    target,
                    AttackMethod.name,
                    since,
                    upper=float(upper[k]),
                    counterexample=found[k],
                )
                self.results[target.name] = _combine(self.results[target.name], after)

    def prove(self, stage: ProofStage, presolved: Presolved) -> None:
        """Try one kind of proof on every open target; the attack gets its share in between."""
        problem, results, own = self.problem, self.results, self.context.deadline
        # The target that the attack came closest to is the most likely to fail: look there first.
        pending = [t for t in problem.targets if t.name in self.open]
        pending.sort(key=lambda t: results[t.name].upper)
        stage_end = own
        if self.is_large and stage.share_if_large < 1:
            stage_end = own.within(stage.share_if_large * own.remaining())
        for number, target in enumerate(pending):
            self.context.report(f"{stage.method.name}: {target.name}", number, len(pending))
            end = self.share.for_proofs().within(stage_end.remaining())
            if end.passed():
                return
            context = replace(self.context, deadline=end)
            waiting = len(pending) - number
            task = ProofTask(problem, presolved, target, context, waiting, self.branching)
            after = stage.prove(task)
            if after is not None:
                results[target.name] = _combine(results[target.name], self.unfinished(after))
                if after.status == "not_robust":
                    return
            # With the last target settled, nothing is left to attack.
            if self.open:
                self.attack(self.share.due())
            if self.is_over:
                return


@dataclass(frozen=True, eq=False)
class AutoStage:
    """One step of the plan: the method that it is, and what it does to a run."""

    method: type[Method]
    run: Callable[[AutoRun, Presolved], None]


def _proof(stage: ProofStage) -> AutoStage:
    return AutoStage(stage.method, lambda run, presolved: run.prove(stage, presolved))


def _patterns(seconds: Callable[[Presolved, float], float]) -> AutoStage:
    def work(run: AutoRun, presolved: Presolved) -> None:
        end = run.share.for_proofs()
        run.search_patterns(presolved, seconds(presolved, end.remaining()), end)

    return AutoStage(PropagationMethod, work)


def _short_search(presolved: Presolved, remaining: float) -> float:
    few = np.count_nonzero(presolved.owner_layer == 0) <= FEW_SIGNS
    # Where the region is a budget of flips, the first search comes before presolve.
    return SHORT_PATTERNS if few and not _has_flip_budget(presolved) else 0.0


def _long_search(presolved: Presolved, remaining: float) -> float:
    if not _is_deep(presolved) and not _has_flip_budget(presolved):
        return 0.0
    return min(PATTERNS_SHARE * remaining, PATTERNS_SECONDS)


def _last_search(presolved: Presolved, remaining: float) -> float:
    # Branching on a bound takes over where the network is shallow.
    return remaining if _is_deep(presolved) else 0.0


def _is_deep(presolved: Presolved) -> bool:
    return presolved.network.depth >= DEEP


def _has_flip_budget(presolved: Presolved) -> bool:
    first = presolved.owner[presolved.owner_layer == 0]
    return flip_budget(presolved.network.layers[0], first, presolved.region) is not None


#: The plan, in order.  Each stage works on the targets that are still open.
STAGES = (
    _patterns(_short_search),
    _proof(SMALL_SDP),
    AutoStage(AttackMethod, AutoRun.quick_attack),
    _patterns(_long_search),
    _proof(LP),
    _proof(SDP),
    _proof(SHORT_BAB),
    AutoStage(AttackMethod, AutoRun.long_attack),
    _patterns(_last_search),
    _proof(BAB),
    _proof(MILP),
)


@register
class AutoMethod(Method):
    """Cheap stages first; see STAGES for their order."""

    name = "auto"
    summary = "cheap methods first, exact ones for what is still open: the default"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset[str]().union(*(stage.method.reads for stage in STAGES))

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide as many targets as the time allows; one counterexample ends the work."""
        return AutoRun(problem, context).run()


def _combine(before: TargetResult, after: TargetResult) -> TargetResult:
    """Return the later result with the better of both bounds.

    The attack works on all targets together: it is a target's stage only where it decides.
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


def _timed(result: TargetResult, context: Context) -> TargetResult:
    if result.status == "unknown" and context.deadline.passed():
        return replace(result, status="timeout")
    return result
