"""The default: cheap methods first, the exact one for what they leave open."""

from __future__ import annotations


from bnncert.methods.attack import attack
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.methods.lp import lp_lower_bounds
from bnncert.methods.milp import solve_target
from bnncert.presolve.stability import stability
from bnncert.problem import Problem
from bnncert.regions import Ball
from bnncert.verdict import TargetResult

#: Share of the time limit, and seconds at most, for the attack before anything expensive.
ATTACK_SHARE, ATTACK_SECONDS = 0.2, 10.0
ATTACK_ROUNDS = 3


@register
class AutoMethod(Method):
    """interval -> attack -> lp -> milp."""

    name = "auto"
    summary = "interval, then attack, then lp, then milp for the targets still open"
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
        if open_:
            self._attack(problem, context, bounds, open_, results)
        if any(r.status == "not_robust" for r in results.values()):
            return tuple(results[t.name] for t in problem.targets)
        # The target that the attack came closest to is the most likely to fail: look there first.
        pending = sorted(
            (t for t in problem.targets if t.name in open_), key=lambda t: results[t.name].upper
        )
        exact = not (isinstance(problem.region, Ball) and problem.region.norm == "l2")
        for stage in ("lp", "milp") if exact else ("lp",):
            for number, target in enumerate(list(pending)):
                context.report(f"{stage}: {target.name}", number, len(pending))
                if context.deadline.passed():
                    break
                before = results[target.name]
                since = context.deadline.elapsed() - before.seconds
                if stage == "lp":
                    lowers = lp_lower_bounds(problem, bounds, target, "lattice", context)
                    proved = any(
                        o.is_proved_by(b) for o, b in zip(target.objectives, lowers, strict=True)
                    )
                    after = context.result(
                        target, "lp", since, lower=max([before.lower, *lowers]), proved=proved
                    )
                else:
                    after = solve_target(problem, bounds, target, context)
                results[target.name] = _combine(before, after)
                if after.status == "not_robust":
                    return tuple(results[t.name] for t in problem.targets)
            pending = [t for t in pending if results[t.name].status != "robust"]
        return tuple(_timed(results[t.name], context) for t in problem.targets)

    def _attack(
        self,
        problem: Problem,
        context: Context,
        bounds: tuple,  # type: ignore[type-arg]
        open_: set[str],
        results: dict[str, TargetResult],
    ) -> None:
        seconds = min(ATTACK_SECONDS, ATTACK_SHARE * context.deadline.remaining())
        limited = Context(
            context.options,
            context.deadline.within(seconds),
            context.replayer,
            context.progress,
        )
        since = context.deadline.elapsed()
        upper, found = attack(
            problem, limited, bounds=bounds, wanted=open_, rounds=ATTACK_ROUNDS
        )
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


