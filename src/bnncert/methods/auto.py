"""The default: cheap methods first, the exact one for what they leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import OutOfTimeError
from bnncert.methods.attack import Attack, AttackMethod, attack
from bnncert.methods.attack_share import SHARE, AttackShare
from bnncert.methods.base import Context, Method, register
from bnncert.methods.branch import BranchMethod, branch_target
from bnncert.methods.interval import interval_proof
from bnncert.methods.lp import LpMethod, lp_lower_bounds
from bnncert.methods.milp import MilpMethod, solve_target
from bnncert.methods.propagation import PatternEngine, PropagationMethod
from bnncert.methods.reduced_sdp import WORTH_LP, ReducedSdpMethod, bound_problem
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.presolve.stability import LayerBounds, stability
from bnncert.problem import Problem, Target
from bnncert.regions import Ball, Region
from bnncert.relaxations.reduced.relaxation import is_too_large, reduce_objective
from bnncert.search.lessons import Lessons
from bnncert.search.patterns.circuit import is_small_enough
from bnncert.search.patterns.flips import flip_budget
from bnncert.verdict import Counterexample, TargetResult

#: Share of the time limit, and seconds at most, that the quick and the long attack may take.  What
#: the attack gets besides is the matter of `attack_share`.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0

#: Open neurons of the first layer from which on the attack comes before presolve, which takes
#: seconds there and seldom decides anything.
LARGE = 600

#: For such a problem: share and seconds of the first attack, share of lp and of sdp, and of the
#: second attack.
FIRST_SHARE, FIRST_SECONDS, PROOF_SHARE, SECOND_SHARE = 0.25, 30.0, 0.3, 0.5

#: Rounds of the attack before the relaxation, and of the one before the exact method.
QUICK_ROUNDS, LONG_ROUNDS = 1, 5

#: Gradient steps of the short attack: most targets that reach it fall to the relaxation next.
QUICK_ITERATIONS = 12


#: Unknowns up to which a relaxation takes less time than the shortest attack.
SMALL = 1000

#: Seconds of branching before the long attack: many small trees need no more.
SHORT_SECONDS = 1.5

#: Share of the time that milp gets before branching, for a target with several functions.
MILP_SHARE = 0.5

#: Open first-layer signs up to which all their patterns take less time than a relaxation.
FEW_SIGNS = 12

#: Sign layers from which on a relaxation says little, and patterns are searched first.
DEEP = 3

#: Seconds of the first search over patterns, and the share and seconds of the long one in a deep
#: network.
SHORT_PATTERNS, PATTERNS_SHARE, PATTERNS_SECONDS = 0.5, 0.5, 60.0

STAGES = (
    "short propagation",
    "small sdp",
    "quick attack",
    "propagation",
    "lp",
    "sdp",
    "short bab",
    "attack",
    "last propagation",
    "bab",
    "milp",
)

#: The methods that these stages are.
STAGE_METHODS = (
    AttackMethod,
    LpMethod,
    ReducedSdpMethod,
    BranchMethod,
    MilpMethod,
    PropagationMethod,
)


@register
class AutoMethod(Method):
    """Cheap stages first; see STAGES for their order."""

    name = "auto"
    summary = "cheap methods first, exact ones for what is still open: the default"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset[str]().union(*(stage.reads for stage in STAGE_METHODS))

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Settle as many targets as the time allows; one counterexample ends the work."""
        return _Run(problem, context).run()


class _Run:
    """The work on one problem."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.results: dict[str, TargetResult] = {}
        self.lessons = Lessons()
        self.bounds = stability(problem.network, problem.region)
        self.is_large = self.bounds[0].unstable.size > LARGE
        # The same search as that of the method `attack`, from its first point on.
        self.search = Attack(problem, context, bounds=self.bounds)
        self.share = AttackShare(context.deadline)
        self.patterns: PatternEngine | None = None

    @property
    def open(self) -> set[str]:
        """The targets without a proof."""
        results = self.results
        return {t.name for t in self.problem.targets if results[t.name].status != "robust"}

    @property
    def over(self) -> bool:
        """Whether the question is settled: all is proved, or there is a counterexample."""
        statuses = {r.status for r in self.results.values()}
        return "not_robust" in statuses or statuses <= {"robust"}

    def run(self) -> tuple[TargetResult, ...]:
        """Go through the stages; in the end the attack gets what it lacks of its share."""
        problem, context = self.problem, self.context
        if self.is_large:
            _intervals(problem, context, self.bounds, False, self.results, {})
            if not self.over:
                self.attack(min(FIRST_SECONDS, FIRST_SHARE * context.deadline.remaining()))
            if self.over:
                return tuple(self.results[t.name] for t in problem.targets)
        presolved = self.presolve()
        if presolved is not None:
            self.stages(presolved)
        limit = context.deadline.seconds
        if not self.over and limit is not None:
            self.attack(SHARE * limit - self.share.seconds)
        return tuple(_timed(self.results[t.name], context) for t in problem.targets)

    def presolve(self) -> Presolved | None:
        """Return what the proofs work on, or None if it takes all their time."""
        problem, context = self.problem, self.context
        started = context.deadline.elapsed()
        bounds, contradiction, presolved = self.bounds, False, None
        try:
            presolved = presolve(problem.network, problem.region, deadline=self.share.for_proofs())
            bounds, contradiction = presolved.bounds, presolved.contradiction
        except OutOfTimeError:
            pass
        took = {"presolve": context.deadline.elapsed() - started}
        _intervals(problem, context, bounds, contradiction, self.results, took)
        return presolved

    def stages(self, presolved: Presolved) -> None:
        """Go through the stages until the question is settled or the time for proofs is over."""
        for stage in STAGES:
            if self.over or self.share.for_proofs().passed():
                break
            if "attack" in stage:
                self.planned_attack(stage, presolved)
            elif "propagation" in stage:
                self.search_patterns(stage, presolved)
            elif stage != "milp" or not _is_l2_ball(self.problem.region):
                self.prove(stage, presolved)

    def search_patterns(self, stage: str, presolved: Presolved) -> None:
        """Search over sign patterns, for all open targets together, for a part of the time."""
        end = self.share.for_proofs()
        seconds = _pattern_seconds(stage, presolved, end.remaining())
        if seconds <= 0 or self.context.tracing or not is_small_enough(presolved):
            return
        since = self.context.deadline.elapsed()
        if self.patterns is None:
            own = tuple(t for t in self.problem.targets if t.name in self.open)
            decide = replace(
                self.context, options=replace(self.context.options, mode="feasibility")
            )
            self.patterns = PatternEngine(presolved, self.problem, own, decide)
        self.context.report("propagation", 0, 1)
        self.patterns.run(end.within(seconds))
        for target in self.patterns.targets:
            before = self.results[target.name]
            after = self.patterns.result(target, "propagation", since, before.lower)
            if before.status != "robust":
                if after.status == "timeout" and not self.context.deadline.passed():
                    after = replace(after, status="unknown")
                self.results[target.name] = _combine(before, after)

    def planned_attack(self, stage: str, presolved: Presolved) -> None:
        """Run one of the two attacks that have a place among the stages."""
        deadline = self.context.deadline
        seconds = min(ATTACK_SECONDS, ATTACK_SHARE * deadline.remaining())
        if stage == "quick attack":
            if not self.is_large:
                self.quick_attack(presolved, seconds)
        elif self.is_large and deadline.seconds is not None:
            # Where no exact method follows, all the time that is left.
            share = 1.0 if is_too_large(presolved) else SECOND_SHARE
            self.attack(share * deadline.remaining())
        else:
            self.attack(seconds, LONG_ROUNDS)

    def quick_attack(self, presolved: Presolved, seconds: float) -> None:
        """Make a few steps, from other points than those of the long attack."""
        context, open_ = self.context, self.open
        options = replace(
            context.options, seed=context.options.seed + 1, iterations=QUICK_ITERATIONS
        )
        limited = Context(
            options, context.deadline.within(seconds), context.replayer, context.progress
        )
        since = context.deadline.elapsed()
        upper, found = attack(
            self.problem, limited, bounds=presolved.bounds, wanted=open_, rounds=QUICK_ROUNDS
        )
        self.take(since, open_, upper, found)

    def attack(self, seconds: float, rounds: int | None = None) -> None:
        """Go on with the attack for some time, on all open targets together."""
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
        """Enter what an attack found."""
        for k, target in enumerate(self.problem.targets):
            if target.name in open_:
                after = self.context.result(
                    target, "attack", since, upper=float(upper[k]), counterexample=found[k]
                )
                self.results[target.name] = _combine(self.results[target.name], after)

    def prove(self, stage: str, presolved: Presolved) -> None:
        """Try one kind of proof on every open target; the attack gets its share in between."""
        problem, results, own = self.problem, self.results, self.context.deadline
        # The target that the attack came closest to is the most likely to fail: look there first.
        pending = [t for t in problem.targets if t.name in self.open]
        pending.sort(key=lambda t: results[t.name].upper)
        stage_end = own
        if self.is_large and stage in ("lp", "sdp"):
            stage_end = own.within(PROOF_SHARE * own.remaining())
        for number, target in enumerate(pending):
            self.context.report(f"{stage}: {target.name}", number, len(pending))
            end = self.share.for_proofs().within(stage_end.remaining())
            if end.passed():
                return
            context = replace(self.context, deadline=end)
            waiting = len(pending) - number
            after = _stage(stage, problem, context, presolved, target, waiting, self.lessons)
            if after is not None:
                if after.status == "timeout" and not own.passed():
                    # The end of a stage's share is not the end of the time.
                    after = replace(after, status="unknown")
                results[target.name] = _combine(results[target.name], after)
            if after is not None and after.status == "not_robust":
                return
            # With the last target settled, nothing is left to attack.
            if self.open:
                self.attack(self.share.due())
            if self.over:
                return


def _stage(
    stage: str,
    problem: Problem,
    context: Context,
    presolved: Presolved,
    target: Target,
    waiting: int,
    lessons: Lessons,
) -> TargetResult | None:
    """Run one stage on one target; None if the stage is not for it."""
    since = context.deadline.elapsed()
    # A solver was named for one kind of stage; the others keep their own.
    named = context.options.solver
    too_large = is_too_large(presolved)
    if too_large and stage != "lp":
        return None
    if stage == "short bab" and _is_for_milp(problem, target, context):
        # One program knows all functions at once, a bound only one of them.
        stage = "milp"
        share = MILP_SHARE * context.deadline.remaining() / waiting
        context = replace(context, deadline=context.deadline.within(share))
    if stage == "milp":
        own = replace(context.options, solver=named if named == "gurobi" else None)
        mixed = replace(context, options=own)
        return solve_target(problem, presolved.bounds, target, mixed, presolved.record)
    if stage in ("bab", "short bab"):
        # An equal share of what is left, so that one hard target does not starve the others.
        share = context.deadline.remaining() / waiting
        if stage == "short bab":
            share = min(share, SHORT_SECONDS)
        limited = replace(context, deadline=context.deadline.within(share))
        return branch_target(presolved, problem, target, limited, "bab", -np.inf, lessons)
    objectives = () if too_large else target.objectives
    reduced = [reduce_objective(presolved, o) for o in objectives]
    is_large = too_large or any(r.links > WORTH_LP for r in reduced)
    if stage == "small sdp" and any(r.links + r.size + r.pair_first.size > SMALL for r in reduced):
        return None
    if stage == "lp":
        if not is_large:
            return None
        lowers = lp_lower_bounds(problem, presolved.bounds, target, "lattice", context)
    else:
        solver = None if named in ("gurobi", "highs", "scip") else named
        own = replace(context.options, mode="feasibility", solver=solver)
        decide = replace(context, options=own)
        # A certificate has no place for the input's variables: branching proves the same.
        coupled = None if context.tracing or stage == "small sdp" else presolved
        lowers = [
            bound_problem(r, o, decide, 0, coupled).lower
            for r, o in zip(reduced, target.objectives, strict=True)
        ]
    proved = any(o.is_proved_by(b) for o, b in zip(target.objectives, lowers, strict=True))
    lower = max(lowers, default=-np.inf)
    name = stage.removeprefix("small ")
    return context.result(target, name, since, lower=lower, proved=proved)


def _intervals(
    problem: Problem,
    context: Context,
    bounds: tuple[LayerBounds, ...],
    contradiction: bool,
    results: dict[str, TargetResult],
    took: dict[str, float],
) -> None:
    """Prove what bounds of the last layer's sums prove."""
    for target in problem.targets:
        before = results.get(target.name)
        if before is not None and before.status == "robust":
            continue
        since = context.deadline.elapsed()
        lower, proved = interval_proof(target, bounds[-1])
        after = context.result(
            target,
            "interval",
            since,
            lower=lower,
            proved=proved or contradiction,
            details={"seconds": took},
        )
        results[target.name] = after if before is None else _combine(before, after)


def _pattern_seconds(stage: str, presolved: Presolved, remaining: float) -> float:
    """Return how long a stage of the search over patterns may take; 0 leaves it out."""
    deep = presolved.network.depth >= DEEP
    first = np.flatnonzero(presolved.owner_layer == 0)
    is_budget = (
        flip_budget(presolved.network.layers[0], presolved.owner[first], presolved.region)
        is not None
    )
    if stage == "short propagation":
        return SHORT_PATTERNS if is_budget or first.size <= FEW_SIGNS else 0.0
    if stage == "propagation":
        return min(PATTERNS_SHARE * remaining, PATTERNS_SECONDS) if deep or is_budget else 0.0
    # Branching on a bound takes over where the network is shallow.
    return remaining if deep else 0.0


def _is_for_milp(problem: Problem, target: Target, context: Context) -> bool:
    """Whether a target has several functions, one of which must be positive, and milp may be used.

    The verdict of milp rests on trust in its solver, so it comes last where a proof is asked for.
    """
    ball = _is_l2_ball(problem.region)
    return len(target.objectives) > 1 and not ball and not context.tracing


def _is_l2_ball(region: Region) -> bool:
    return isinstance(region, Ball) and region.norm == "l2"


def _combine(before: TargetResult, after: TargetResult) -> TargetResult:
    """Return the later result with the better of both bounds."""
    decided = after.status in ("robust", "not_robust")
    return TargetResult(
        name=after.name,
        status=after.status,
        lower=max(before.lower, after.lower),
        upper=min(before.upper, after.upper),
        seconds=before.seconds + after.seconds,
        stage=after.stage if decided or after.stage != "attack" else before.stage,
        rival=after.rival,
        counterexample=after.counterexample,
        note=after.note,
        details={
            **before.details,
            **after.details,
            "seconds": {
                **before.details.get("seconds", {}),
                after.stage: before.details.get("seconds", {}).get(after.stage, 0.0)
                + after.seconds,
            },
        },
    )


def _timed(result: TargetResult, context: Context) -> TargetResult:
    if result.status == "unknown" and context.deadline.passed():
        return TargetResult(**{**result.__dict__, "status": "timeout"})
    return result
