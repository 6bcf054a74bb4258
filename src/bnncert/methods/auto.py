"""The default: cheap methods first, the exact one for what they leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.methods.attack import AttackMethod, attack
from bnncert.methods.base import Context, Method, register
from bnncert.methods.branch import BranchMethod, branch_target
from bnncert.methods.interval import interval_proof
from bnncert.methods.lp import LpMethod, lp_lower_bounds
from bnncert.methods.milp import MilpMethod, solve_target
from bnncert.methods.reduced_sdp import WORTH_LP, ReducedSdpMethod, bound_problem
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.presolve.stability import LayerBounds, stability
from bnncert.problem import Problem, Target
from bnncert.regions import Ball
from bnncert.relaxations.reduced import is_too_large, reduce_objective
from bnncert.search.lessons import Lessons
from bnncert.verdict import TargetResult

#: Share of the time limit, and seconds at most, that each attack may take.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0

#: Open neurons of the first layer from which on the attack comes before presolve, which takes
#: seconds there and seldom decides anything.
LARGE = 600

#: For such a problem: share and seconds of the first attack, share of lp and of sdp, and of the
#: second attack.
FIRST_SHARE, FIRST_SECONDS, PROOF_SHARE, SECOND_SHARE = 0.25, 30.0, 0.3, 0.5

#: Rounds of the attack before the relaxation, and of the one before the exact method.
QUICK_ROUNDS, LONG_ROUNDS = 1, 4

#: Gradient steps of the short attack: most targets that reach it fall to the relaxation next.
QUICK_ITERATIONS = 12


#: Unknowns up to which a relaxation takes less time than the shortest attack.
SMALL = 1000

#: Seconds of branching before the long attack: many small trees need no more.
SHORT_SECONDS = 1.5

#: Share of the time that milp gets before branching, for a target with several functions.
MILP_SHARE = 0.5

STAGES = ("small sdp", "quick attack", "lp", "sdp", "short bab", "attack", "bab", "milp")

#: The methods that these stages are.
STAGE_METHODS = (AttackMethod, LpMethod, ReducedSdpMethod, BranchMethod, MilpMethod)


@register
class AutoMethod(Method):
    """Cheap stages first; see STAGES for their order."""

    name = "auto"
    summary = "interval, attack, lp, sdp, branch and bound and milp in turn, for what is still open"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset[str]().union(*(stage.reads for stage in STAGE_METHODS))

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Settle as many targets as the time allows; one counterexample ends the work."""
        results: dict[str, TargetResult] = {}
        bounds = stability(problem.network, problem.region)
        is_large = bounds[0].unstable.size > LARGE
        if is_large:
            _intervals(problem, context, bounds, False, results, {})
            seconds = min(FIRST_SECONDS, FIRST_SHARE * context.deadline.remaining())
            if open_ := _still_open(problem, results):
                self._attack(problem, context, bounds, open_, 0, None, seconds, results)
            if not open_ or any(r.status == "not_robust" for r in results.values()):
                return tuple(results[t.name] for t in problem.targets)
        started = context.deadline.elapsed()
        presolved = presolve(problem.network, problem.region, deadline=context.deadline)
        took = {"presolve": context.deadline.elapsed() - started}
        _intervals(problem, context, presolved.bounds, presolved.contradiction, results, took)
        open_ = _still_open(problem, results)
        lessons = Lessons()
        for stage in STAGES:
            if not open_ or context.deadline.passed():
                break
            if stage == "milp" and isinstance(problem.region, Ball) and problem.region.norm == "l2":
                continue
            if stage == "quick attack" and is_large:
                continue
            if "attack" in stage:
                turn = LONG_ROUNDS if stage == "attack" else QUICK_ROUNDS
                rounds: int | None = turn
                seconds = min(ATTACK_SECONDS, ATTACK_SHARE * context.deadline.remaining())
                if is_large and context.deadline.seconds is not None:
                    # Where no exact method follows, all the time that is left.
                    share = 1.0 if is_too_large(presolved) else SECOND_SHARE
                    rounds, seconds = None, share * context.deadline.remaining()
                args = (open_, turn, rounds, seconds)
                self._attack(problem, context, presolved.bounds, *args, results)
            else:
                limited = context
                if is_large and stage in ("lp", "sdp"):
                    share = PROOF_SHARE * context.deadline.remaining()
                    limited = replace(context, deadline=context.deadline.within(share))
                self._prove(problem, limited, presolved, open_, stage, results, lessons)
                for name in open_:
                    # The end of a stage's share is not the end of the time.
                    if results[name].status == "timeout" and not context.deadline.passed():
                        results[name] = replace(results[name], status="unknown")
            if any(results[name].status == "not_robust" for name in open_):
                break
            open_ = _still_open(problem, results)
        return tuple(_timed(results[t.name], context) for t in problem.targets)

    def _prove(
        self,
        problem: Problem,
        context: Context,
        presolved: Presolved,
        open_: set[str],
        stage: str,
        results: dict[str, TargetResult],
        lessons: Lessons,
    ) -> None:
        # The target that the attack came closest to is the most likely to fail: look there first.
        pending = [t for t in problem.targets if t.name in open_]
        pending.sort(key=lambda t: results[t.name].upper)
        for number, target in enumerate(pending):
            context.report(f"{stage}: {target.name}", number, len(pending))
            if context.deadline.passed():
                return
            before = results[target.name]
            waiting = len(pending) - number
            after = self._stage(stage, problem, context, presolved, target, waiting, lessons)
            if after is None:
                continue
            results[target.name] = _combine(before, after)
            if after.status == "not_robust":
                return

    def _stage(
        self,
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
        if stage == "small sdp" and any(
            r.links + r.size + r.clash_first.size > SMALL for r in reduced
        ):
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

    def _attack(
        self,
        problem: Problem,
        context: Context,
        bounds: tuple[LayerBounds, ...],
        open_: set[str],
        turn: int,
        rounds: int | None,
        seconds: float,
        results: dict[str, TargetResult],
    ) -> None:
        # Another seed than the last attack's, or the same points would be tried again.
        limited = Context(
            replace(
                context.options,
                seed=context.options.seed + turn,
                iterations=QUICK_ITERATIONS
                if rounds == QUICK_ROUNDS
                else context.options.iterations,
            ),
            context.deadline.within(seconds),
            context.replayer,
            context.progress,
        )
        since = context.deadline.elapsed()
        upper, found = attack(problem, limited, bounds=bounds, wanted=open_, rounds=rounds)
        for k, target in enumerate(problem.targets):
            if target.name not in open_:
                continue
            after = context.result(
                target, "attack", since, upper=float(upper[k]), counterexample=found[k]
            )
            results[target.name] = _combine(results[target.name], after)


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


def _is_for_milp(problem: Problem, target: Target, context: Context) -> bool:
    """Whether a target has several functions, one of which must be positive, and milp may be used.

    The verdict of milp rests on trust in its solver, so it comes last where a proof is asked for.
    """
    ball = isinstance(problem.region, Ball) and problem.region.norm == "l2"
    return len(target.objectives) > 1 and not ball and not context.tracing


def _still_open(problem: Problem, results: dict[str, TargetResult]) -> set[str]:
    return {t.name for t in problem.targets if results[t.name].status != "robust"}


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
