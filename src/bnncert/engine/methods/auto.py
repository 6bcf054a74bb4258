r"""The default: every method works on what is still open, in slices of time.

The next slice goes to the engine for which  price(seconds used so far + next slice)  is the least,

    price(t) = t                     for t <= EQUAL,
    price(t) = EQUAL + (t - EQUAL) / weight   else,

and every slice of an engine is GROWTH times as long as its last one.  First slices are the engines'
own estimates of a first useful step, so what is cheap comes first, whatever the network.  Weights
come from one table by the shape of the problem.  They say which engine is worth long work: what
takes at most EQUAL seconds is tried in turn with equal shares, because a tenth of a second of a
better engine is worth more than any guess about the shape.

Whichever engine is the best: if it alone needs t <= EQUAL / GROWTH seconds, each other engine works
for at most GROWTH t and a first slice until then.  If it needs more and has the weight w of W in
all, all together work for about GROWTH t W / w after their equal shares.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.engine import OpenQuestion
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem
from bnncert.regions import ImagePath

if TYPE_CHECKING:
    from bnncert.engine.methods.engine import Engine


def engines() -> tuple[type[Engine], ...]:
    """Return all engines, which are imported now; between equals the earlier one comes first."""
    from bnncert.engine.methods.attack import AttackEngine
    from bnncert.engine.methods.branch import TreesEngine
    from bnncert.engine.methods.elimination import VariablesEngine
    from bnncert.engine.methods.integer_programs import ProgramEngine
    from bnncert.engine.methods.learning import ClausesEngine
    from bnncert.engine.methods.propagation import PatternsEngine

    searches = ClausesEngine, PatternsEngine, VariablesEngine
    return (AttackEngine, *searches, TreesEngine, ProgramEngine)


#: The weights by shape; an engine without one has `OTHERWISE`.
WEIGHTS: dict[str, dict[str, float]] = {
    # A ball that limits the number of sign changes.
    "budget": {"propagation": 4.0, "learning": 2.0, "attack": 2.0},
    # So few open first-layer signs that all their patterns can be evaluated.
    "few": {"propagation": 8.0, "bab": 2.0, "attack": 2.0},
    # So many weights that a step of anything but the attack takes seconds.
    "large": {"attack": 8.0, "elimination": 4.0, "bab": 2.0, "learning": 1.0},
    # Three or more sign layers, through which relaxations are weak, above signs of single inputs:
    # every pattern of these has a point, and what is learned counts for all of them.
    "levels": {"learning": 6.0, "propagation": 2.0, "attack": 1.0},
    # As many above sums of inputs: most patterns have no point, and each is a linear program.
    "deep": {"propagation": 8.0, "attack": 4.0, "learning": 1.0},
    # Two sign layers whose neurons read few open signs each.
    "local": {"elimination": 4.0, "bab": 3.0, "attack": 2.0},
    "dense": {"bab": 6.0, "attack": 2.0, "propagation": 2.0, "learning": 1.0},
}
OTHERWISE = 0.5

#: Seconds for which all engines have equal shares, and how many times longer the next slice is.
EQUAL, GROWTH = 0.1, 1.5

#: The share of time that an attack has which is far from all rivals and does not improve.
STALLED = 0.3

#: Open first-layer signs up to which they are few, and weights from which on a network is large.
FEW, LARGE = 16, 5_000_000

#: Sign layers from which on a network is deep, and the share of the open first-layer signs up to
#: which the neurons of the second layer of a local network read in the mean.
DEEP, LOCAL = 3, 0.25


def shape(question: OpenQuestion) -> str:
    """Name the row of the table."""
    network, bounds = question.problem.network, question.bounds
    if question.has_flip_budget:
        return "budget"
    if bounds[0].unstable.size <= FEW:
        return "few"
    if sum(layer.weights.nnz for layer in network.layers) > LARGE:
        return "large"
    if network.depth >= DEEP:
        reads_one = np.diff(network.layers[0].weights.indptr).max(initial=0) <= 1
        return "levels" if reads_one else "deep"
    if network.depth == 2 and bounds[0].unstable.size and bounds[1].unstable.size:
        rows = network.layers[1].weights[bounds[1].unstable][:, bounds[0].unstable]
        if rows.nnz <= LOCAL * rows.shape[0] * rows.shape[1]:
            return "local"
    return "dense"


def rotate(question: OpenQuestion, engines: Iterable[Engine], weights: dict[str, float]) -> None:
    """Give slices of time to the engines until the question is decided or nothing is left to do.

    Engines without proofs come last if a certificate is wanted.
    """
    used = {engine: 0.0 for engine in engines if engine.first_slice() < np.inf}
    slices = {engine: engine.first_slice() for engine in used}

    def turn(engine: Engine) -> tuple[bool, float]:
        comes_last = engine.trusts_solver and question.context.tracing
        weight = weights.get(engine.method.name, OTHERWISE)
        seconds = (used[engine] + slices[engine]) / (STALLED if engine.stalled else 1.0)
        return comes_last, min(seconds, EQUAL) + max(0.0, seconds - EQUAL) / weight

    deadline = question.context.deadline
    while not question.is_over and not deadline.passed() and not all(e.is_endless for e in used):
        engine = min(used, key=turn)
        since = deadline.elapsed()
        goes_on = engine.work(deadline.within(slices[engine]))
        used[engine] += deadline.elapsed() - since
        slices[engine] *= GROWTH
        if not goes_on:
            del used[engine]


@register
class AutoMethod(Method):
    """All engines in turn, see :func:`rotate`."""

    name = "auto"
    summary = "all methods in slices of time, by the shape of the problem: the default"
    promises = ("bound", "exact", "counterexample")
    regions = f"{Method.regions}, brightness, contrast"
    #: What the engines read, stated here because they are imported when intervals do not decide.
    reads = frozenset(
        {
            *("seed", "restarts", "iterations", "mode", "form", "processes", "cluster"),
            *("memory", "threads", "solver", "coupling"),
        }
    )

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide as many targets as the time allows; one counterexample ends the work."""
        if isinstance(problem.inputs, ImagePath):
            from bnncert.engine.methods.sweep import run_sweep

            # A sweep is complete and takes less time than the first slices.
            return run_sweep(problem, problem.inputs, context)
        question = OpenQuestion(problem, context)
        if not question.is_over:
            made = [engine(question) for engine in engines()]
            rotate(question, made, WEIGHTS[shape(question)])
            for engine in made:
                engine.finish()
        return question.answers()
