"""The stages of `auto` that eliminate variables, for all open targets of a local network together.

Where no bucket has to be split this takes a moment and usually decides, so it comes before the
relaxations and the attack; otherwise it comes after the attack and gets little time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.methods.auto_run import AutoRun
from bnncert.methods.elimination import EliminationMethod, local_plan, start_engine
from bnncert.presolve.literals import literal
from bnncert.presolve.pipeline import Presolved

#: Share of the time, and seconds at most, of an exact elimination and of one that splits buckets.
EXACT, SPLIT = (0.5, 60.0), (0.1, 5.0)


def eliminate(run: AutoRun, presolved: Presolved, *, exactly: bool) -> None:
    """Eliminate variables if the plan is cheap, and exact or not as the stage wants it."""
    end = run.share.for_proofs()
    own = tuple(t for t in run.problem.targets if t.name in run.open)
    if exactly:
        run.elimination = local_plan(presolved, sum(len(t.objectives) for t in own), end)
    if run.elimination is None or run.elimination.is_exact != exactly:
        return
    share, seconds = EXACT if exactly else SPLIT
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
