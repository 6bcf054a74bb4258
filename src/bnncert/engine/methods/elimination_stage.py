"""The stages of `auto` that eliminate variables, for all open targets of a local network together.

If each variable shares tables with few others, elimination is fast and usually decides, so it comes
before the relaxations and the attack.  If nearly all variables share a table, as in dense networks,
its tables have as many entries as there are patterns: a small relaxation is faster and comes first.
If buckets have to be split, it comes after the attack and gets little time.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from bnncert.engine.methods.auto_run import AutoRun
from bnncert.engine.methods.elimination import EliminationMethod, local_plan, start_engine
from bnncert.engine.presolve.literals import literal
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.search.elimination.elimination_plan import EliminationPlan

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
