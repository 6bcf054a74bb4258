"""The default: cheap methods first, then exact ones for the targets that are still open.

Some stages eliminate variables, for all open targets of a local network together.  If each variable
shares tables with few others, elimination is fast and usually decides, so it comes before the
relaxations and the attack.  If nearly all variables share a table, as in dense networks, its tables
have as many entries as there are patterns: a small relaxation is faster and comes first. If buckets
have to be split, it comes after the attack and gets little time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.engine.methods.attack import AttackMethod
from bnncert.engine.methods.auto_run import (
    AutoRun,
    AutoStage,
    Engine,
    half_of,
    has_flip_budget,
    is_deep,
)
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.elimination import EliminationMethod, local_plan, start_engine
from bnncert.engine.methods.proof_stages import BAB, LP, MILP, SDP, SHORT_BAB, SMALL_SDP, ProofStage
from bnncert.engine.methods.propagation import PropagationMethod
from bnncert.engine.methods.sweep import run_sweep
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.search.elimination.elimination_plan import EliminationPlan
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem
from bnncert.regions import ImagePath

#: The kinds of plans: exact with small tables, exact with tables of nearly all variables, or with
#: split buckets.
PlanKind: TypeAlias = Literal["local", "dense", "split"]

#: Share of the time and most seconds of an exact elimination, and of one that splits buckets.
EXACT, SPLIT = (0.5, 60.0), (0.1, 5.0)

#: The tables of a local plan have at most this share of the number of all patterns.
LOCAL = 1 / 16


def plan_kind(plan: EliminationPlan) -> PlanKind:
    """Return the kind of a plan."""
    if not plan.is_exact:
        return "split"
    return "local" if plan.entries <= LOCAL * 2.0 ** min(len(plan.order), 1000) else "dense"


def eliminate(run: AutoRun, presolved: Presolved, kind: PlanKind) -> None:
    """Eliminate variables if the plan is cheap and of the kind of the stage."""
    end = run.share.for_proofs()
    own = tuple(t for t in run.problem.targets if t.name in run.open)
    if kind == "local":
        run.elimination = local_plan(presolved, sum(len(t.objectives) for t in own), end)
    if run.elimination is None or plan_kind(run.elimination) != kind:
        return
    share, seconds = SPLIT if kind == "split" else EXACT
    since = run.context.deadline.elapsed()
    run.context.report(EliminationMethod.name, 0, 1)
    slice_ = end.within(min(seconds, share * end.remaining()))
    engine = start_engine(presolved, run.problem, own, run.context.deciding(), slice_)
    if engine is None:
        return
    for target in own:
        lower = run.results[target.name].lower
        run.enter(engine.result(target, EliminationMethod.name, since, lower))
    for neurons, signs, theta in engine.search.proofs:
        # Rational multipliers belong to ties, which floats cannot prove.
        run.learned.add(literal(neurons, signs), theta if isinstance(theta, np.ndarray) else None)


#: Unstable first-layer signs up to which evaluating all patterns is faster than a relaxation, or
#: than the attack on a deep network, and the seconds of that search.
FEW_SIGNS, FEW_SIGNS_IF_DEEP, SHORT_PATTERNS = 12, 20, 0.5


def _proof(stage: ProofStage) -> AutoStage:
    return AutoStage(stage.method, lambda run, presolved: run.prove(stage, presolved))


def _prover(stage: ProofStage, **kind: Any) -> Engine:
    return Engine(stage.method, lambda run, *slice_: run.prove(stage, *slice_), **kind)


def _patterns(seconds: Callable[[Presolved, float], float]) -> AutoStage:
    def work(run: AutoRun, presolved: Presolved) -> None:
        end = run.share.for_proofs()
        run.search_patterns(presolved, seconds(presolved, end.remaining()), end)

    return AutoStage(PropagationMethod, work)


def _elimination(kind: PlanKind) -> AutoStage:
    return AutoStage(EliminationMethod, lambda run, presolved: eliminate(run, presolved, kind))


def _short_search(presolved: Presolved, remaining: float) -> float:
    most = FEW_SIGNS_IF_DEEP if is_deep(presolved) else FEW_SIGNS
    few = np.count_nonzero(presolved.owner_layer == 0) <= most
    # If the region is a budget of flips, the first search comes before presolve.
    return SHORT_PATTERNS if few and not has_flip_budget(presolved) else 0.0


def _long_search(presolved: Presolved, remaining: float) -> float:
    # If the region is a budget of flips, the long search also comes before presolve.
    return half_of(remaining) if is_deep(presolved) and not has_flip_budget(presolved) else 0.0


def _suits_patterns(presolved: Presolved) -> bool:
    return is_deep(presolved) or has_flip_budget(presolved)


#: The plan, in order.  Each stage works on the targets that are still open.
STAGES = (
    _patterns(_short_search),
    _elimination("local"),
    _proof(SMALL_SDP),
    _elimination("dense"),
    AutoStage(AttackMethod, AutoRun.quick_attack),
    _patterns(_long_search),
    _elimination("split"),
    _proof(LP),
    _proof(SDP),
    _proof(SHORT_BAB),
    AutoStage(AttackMethod, AutoRun.long_attack),
)

#: The complete methods, which share the remaining time after the stages.
ENGINES = (
    Engine(
        PropagationMethod,
        lambda run, presolved, end: run.search_patterns(presolved, end.remaining(), end),
        _suits_patterns,
    ),
    _prover(BAB, suits=lambda presolved: not _suits_patterns(presolved)),
    _prover(MILP, trusts_solver=True),
)


@register
class AutoMethod(Method):
    """Cheap stages first; see STAGES for their order."""

    name = "auto"
    summary = "cheap methods first, exact ones for what is still open: the default"
    promises = ("bound", "exact", "counterexample")
    regions = f"{Method.regions}, brightness, contrast"
    reads = frozenset[str]().union(*(step.method.reads for step in (*STAGES, *ENGINES)))

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide as many targets as the time allows; one counterexample ends the work."""
        if isinstance(problem.inputs, ImagePath):
            # A sweep is complete and takes less time than the first stages.
            return run_sweep(problem, problem.inputs, context)
        return AutoRun(problem, context).run(STAGES, ENGINES)
