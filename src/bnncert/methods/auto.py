"""The default: cheap methods first, the exact one for what they leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.methods.attack import attack
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.methods.lp import lp_lower_bounds
from bnncert.methods.milp import solve_target
from bnncert.presolve.stability import LayerBounds, stability
from bnncert.problem import Problem
from bnncert.regions import Ball
from bnncert.verdict import TargetResult

#: Share of the time limit, and seconds at most, that each attack may take.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0

#: Rounds of the attack before the relaxation, and of the one before the exact method.
QUICK_ROUNDS, LONG_ROUNDS = 1, 4

#: Gradient steps of the short attack: most targets that reach it fall to the relaxation next.
QUICK_ITERATIONS = 12


@register
class AutoMethod(Method):
    """interval -> short attack -> lp -> long attack -> milp."""

    name = "auto"
    summary = "interval, attack, lp and milp in turn, for the targets still open"
    promises = ("bound", "exact", "counterexample")

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Settle as many targets as the time allows; one counterexample ends the work."""
        results: dict[str, TargetResult] = {}
        bounds = stability(problem.network, problem.region)
        for target in problem.targets:
            since = context.deadline.elapsed()
            lower, proved = interval_proof(target, bounds[-1])
            results[target.name] = context.result(
                target, "interval", since, lower=lower, proved=proved
            )
        open_ = {t.name for t in problem.targets if results[t.name].status != "robust"}
        stages = ["attack", "lp", "attack", "milp"]
        if isinstance(problem.region, Ball) and problem.region.norm == "l2":
            stages.remove("milp")
        for number, stage in enumerate(stages):
            if not open_ or context.deadline.passed():
                break
            if stage == "attack":
                rounds = LONG_ROUNDS if number else QUICK_ROUNDS
                self._attack(problem, context, bounds, open_, rounds, results)
            else:
                self._prove(problem, context, bounds, open_, stage, results)
            if any(results[name].status == "not_robust" for name in open_):
                break
            open_ = {name for name in open_ if results[name].status != "robust"}
        return tuple(_timed(results[t.name], context) for t in problem.targets)

    def _prove(
        self,
        problem: Problem,
        context: Context,
        bounds: tuple[LayerBounds, ...],
        open_: set[str],
        stage: str,
        results: dict[str, TargetResult],
    ) -> None:
        # The target that the attack came closest to is the most likely to fail: look there first.
        pending = [t for t in problem.targets if t.name in open_]
        pending.sort(key=lambda t: results[t.name].upper)
        for number, target in enumerate(pending):
            context.report(f"{stage}: {target.name}", number, len(pending))
            if context.deadline.passed():
                return
            before = results[target.name]
            since = context.deadline.elapsed()
            if stage == "lp":
                lowers = lp_lower_bounds(problem, bounds, target, "lattice", context)
                proved = any(
                    o.is_proved_by(b) for o, b in zip(target.objectives, lowers, strict=True)
                )
                lower = max(lowers, default=-np.inf)
                after = context.result(target, "lp", since, lower=lower, proved=proved)
            else:
                after = solve_target(problem, bounds, target, context)
            results[target.name] = _combine(before, after)
            if after.status == "not_robust":
                return

    def _attack(
        self,
        problem: Problem,
        context: Context,
        bounds: tuple[LayerBounds, ...],
        open_: set[str],
        rounds: int,
        results: dict[str, TargetResult],
    ) -> None:
        seconds = min(ATTACK_SECONDS, ATTACK_SHARE * context.deadline.remaining())
        # Another seed than the last attack's, or the same points would be tried again.
        limited = Context(
            replace(
                context.options,
                seed=context.options.seed + rounds,
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
    )


def _timed(result: TargetResult, context: Context) -> TargetResult:
    if result.status == "unknown" and context.deadline.passed():
        return TargetResult(**{**result.__dict__, "status": "timeout"})
    return result
