"""The stages of `auto` that eliminate variables, for all open targets of a local network together.

Where variables meet few others, elimination takes a moment and usually decides, so it comes before
the relaxations and the attack.  Where nearly all variables meet, as in dense networks, its tables
are as large as all patterns together: a small relaxation is cheaper and comes first.  Where buckets
have to be split it comes after the attack and gets little time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from bnncert.methods.auto_run import AutoRun
from bnncert.methods.elimination import EliminationMethod, local_plan, start_engine
from bnncert.presolve.literals import literal
from bnncert.presolve.pipeline import Presolved
from bnncert.search.elimination.plan import EliminationPlan

#: What a plan is like: exact with small tables, exact with tables of nearly all variables, or with
#: split buckets.
PlanKind: TypeAlias = Literal["local", "dense", "split"]

#: Share of the time, and seconds at most, of an exact elimination and of one that splits buckets.
EXACT, SPLIT = (0.5, 60.0), (0.1, 5.0)

#: Share of all patterns of the variables that the tables of a local plan have at most.
LOCAL = 1 / 16


def plan_kind(plan: EliminationPlan) -> PlanKind:
    """Return what a plan is like."""
    if not plan.is_exact:
        return "split"
    return "local" if plan.entries <= LOCAL * 2.0 ** min(len(plan.order), 1000) else "dense"


def eliminate(run: AutoRun, presolved: Presolved, kind: PlanKind) -> None:
    """Eliminate variables if the plan is cheap and of the kind that the stage wants."""
    end = run.share.for_proofs()
    own = tuple(t for t in run.problem.targets if t.name in run.open)
    if kind == "local":
        run.elimination = local_plan(presolved, sum(len(t.objectives) for t in own), end)
    if run.elimination is None or plan_kind(run.elimination) != kind:
        return
    share, seconds = SPLIT if kind == "split" else EXACT
    since = run.context.deadline.elapsed()
    run.context.report(EliminationMethod.name, 0, 1)
    decide = replace(run.context, options=replace(run.context.options, mode="feasibility"))
    slice_ = end.within(min(seconds, share * end.remaining()))
    engine = start_engine(presolved, run.problem, own, decide, slice_)
    if engine is None:
        return
    for target in own:
        lower = run.results[target.name].lower
        run.enter(engine.result(target, EliminationMethod.name, since, lower))
    for neurons, signs, theta in engine.search.proofs:
        # Multipliers in rationals belong to ties that floats cannot prove.
        run.learned.add(literal(neurons, signs), theta if isinstance(theta, np.ndarray) else None)
