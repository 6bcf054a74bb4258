"""Exact minima by elimination of variables, for networks whose neurons read few inputs each.

Elimination is also an attack on local networks.  For the minimising patterns of all rivals, and for
patterns of perturbed costs, linear programs find points that have the pattern as nearly as
possible.  These are often counterexamples that gradients do not find, even if no input has the
pattern itself.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, JointWork, Method, register
from bnncert.engine.methods.engine import STEP, Engine
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.methods.reduced_sdp import explain
from bnncert.engine.presolve.literals import literal, variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.replay import Replayer
from bnncert.engine.search.elimination.bound import EliminationLimits, prepare
from bnncert.engine.search.elimination.buckets import EliminationPlan, InexactTableError
from bnncert.engine.search.elimination.elimination_search import EliminationSearch, Ending
from bnncert.engine.search.elimination.factors import (
    MOST_INPUTS,
    last_layer_scopes,
    last_layer_sizes,
)
from bnncert.engine.search.trace import EliminationTrace
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.problem import Problem, Target

#: Share of the time limit for the estimated time of one elimination, and the seconds without a
#: limit.
ELIMINATION_SHARE, ELIMINATION_SECONDS = 0.2, 60.0

#: The largest estimated seconds of an elimination in `auto`, and the largest share of last-layer
#: neurons without a table in a local network.
CHEAP_SECONDS, MOST_WITHOUT_TABLE = 2.0, 0.1

#: Entries of the signs of all tables up to which `auto` computes them.
CHEAP_ENTRIES = 2**24

#: Sizes of the perturbations that are tried in turn, and how many objectives are sampled at a time.
STRENGTHS, SAMPLED = (0.05, 0.2, 0.5), 3

#: Share of the memory for the tables of an elimination.
MEMORY_SHARE = 0.25


@dataclass(eq=False)
class EliminationEngine(JointWork):
    """The elimination of variables within estimated seconds.

    Raises OutOfTimeError if the deadline passes before the tables are complete.
    """

    seconds: InitVar[float]
    deadline: InitVar[Deadline]

    def __post_init__(self, seconds: float, deadline: Deadline) -> None:
        problem, targets, context = self.problem, self.targets, self.context
        #: The target of each objective of the search.
        self.owner = [k for k, t in enumerate(targets) for _ in t.objectives]
        objectives = [o for t in targets for o in t.objectives]
        limits = EliminationLimits(MEMORY_SHARE * context.options.memory, seconds)
        self.search = EliminationSearch(
            self.presolved, objectives, self._offer, self._is_done, limits, deadline
        )
        self.found: Counterexample | None = None
        self.ending: Ending = "interrupted"
        #: How many eliminations were traced for a certificate, and the clauses before them.
        self._traced, self._traced_clauses = 0, 0
        self._values = []
        if context.options.mode == "optimum":
            replayer = Replayer(problem)
            self._values = [partial(replayer.lowest, target) for target in targets]
        self.upper = np.full(len(targets), np.inf)
        self.lowest: list[tuple[FloatArray, tuple[Fraction, ...] | None] | None]
        self.lowest = [None] * len(targets)

    def run(self, deadline: Deadline) -> Ending:
        """Search until the deadline."""
        self.ending = self.search.run(deadline)
        self._leave_traces()
        return self.ending

    def sample(self, deadline: Deadline, rounds: int | None) -> None:
        """Try patterns of perturbed costs, lowest bound first, for some rounds or without limit."""
        generator = self.context.generator()
        strengths = cycle(STRENGTHS) if rounds is None else rounds * STRENGTHS
        try:
            for strength in strengths:
                if not self.search.open:
                    return
                for k in self.search.open[:SAMPLED]:
                    if self.search.sample(k, strength, generator, deadline):
                        return
        except (OutOfTimeError, InexactTableError):
            return

    def _leave_traces(self) -> None:
        """Record the eliminations that proved targets since the last call for a certificate."""
        record = self.context.record
        if record is None:
            return
        presolved, search = self.presolved, self.search
        places = np.stack([presolved.owner_layer, presolved.owner], axis=1)
        for made in search.settling[self._traced :]:
            numbers = dict.fromkeys(self.owner[k] for k in made.objectives)
            trace = EliminationTrace(
                tuple(self.targets[k].name for k in numbers if self._is_proved(k)),
                tuple(places[list(scope)] for scope in made.active),
                search.limits.memory,
                made.seconds,
                clauses=tuple(search.proofs[self._traced_clauses : made.learned]),
            )
            if trace.targets:
                record.eliminations.append(trace)
                self._traced_clauses = made.learned
        self._traced = len(search.settling)

    def _is_done(self, number: int, lower: float) -> bool:
        """Whether the work on an objective is done: on it, or on another one of its target."""
        k = self.owner[number]
        if self._values:
            return bool(lower >= self.upper[k])
        objective = self.targets[k].objectives[number - self.owner.index(k)]
        return self._is_proved(k) or objective.is_proved_by(lower)

    def _lowers(self, k: int) -> list[float]:
        start = self.owner.index(k)
        return [float(v) for v in self.search.lower[start : start + self.owner.count(k)]]

    def _is_proved(self, k: int) -> bool:
        pairs = zip(self.targets[k].objectives, self._lowers(k), strict=True)
        return any(objective.is_proved_by(lower) for objective, lower in pairs)

    def _offer(self, number: int, point: FloatArray, exact: tuple[Fraction, ...] | None) -> bool:
        """Try a point on all targets; for the minimum it only lowers the upper bounds."""
        own = self.owner[number]
        if self._values:
            self._lower_upper(own, self._values[own](point, exact), point, exact)
            return False
        values = self.context.replayer.value(self.targets, point)
        for k, value in enumerate(values or ()):
            self._lower_upper(k, value, point, None)
        # The exact point may be a counterexample although no float near it is.
        tried = [own] if exact is not None else []
        tried += [k for k, value in enumerate(values or ()) if value <= 0 and k not in tried]
        for k in tried:
            self.found = self.context.replayer.confirm(self.targets[k], point, exact)
            if self.found is not None:
                return True
        return False

    def _lower_upper(
        self, k: int, value: float, point: FloatArray, exact: tuple[Fraction, ...] | None
    ) -> None:
        if value < self.upper[k]:
            self.upper[k], self.lowest[k] = value, (point, exact)

    def details(self) -> dict[str, Any]:
        """Return statistics of the search as plain data."""
        counts = self.search.counts
        return {
            "variables": counts.variables,
            "components": counts.components,
            "width": counts.width,
            "split buckets": counts.split,
            "eliminations": counts.eliminations,
            "learned clauses": counts.clauses,
            "active clauses": counts.active,
            "linear programs": counts.programs,
            "seconds": dict(counts.seconds),
        }

    def result(self, target: Target, name: str, since: float, lower: float) -> TargetResult:
        """Return the result of the search so far for one target."""
        k = self.targets.index(target)
        counts = self.search.counts
        note = f"width {counts.width}, {counts.clauses} learned clauses"
        lower = max(lower, *self._lowers(k)) if target.objectives else lower
        found = self.found
        if self._values:
            kept = self.lowest[k] if self.upper[k] <= 0 else None
            found = self.context.replayer.confirm(target, *kept) if kept is not None else None
        return self.context.result(
            target,
            name,
            since,
            lower=lower,
            upper=float(self.upper[k]),
            counterexample=found,
            proved=self._is_proved(k),
            note=note,
            details={"elimination": self.details()},
        )


def local_plan(presolved: Presolved, objectives: int, deadline: Deadline) -> EliminationPlan | None:
    """Return the plan of a cheap elimination, or None if the network is not local.

    A network is local if it has two sign layers and nearly all neurons of the second have a table.
    """
    if presolved.network.depth != 2 or presolved.contradiction:
        return None
    sizes = last_layer_sizes(presolved)
    if not sizes.size or np.mean(sizes > MOST_INPUTS) > MOST_WITHOUT_TABLE:
        return None
    if np.sum(2.0 ** np.minimum(sizes, MOST_INPUTS)) > CHEAP_ENTRIES:
        return None
    scopes = last_layer_scopes(presolved)
    pairs = np.stack([presolved.pairs.first, presolved.pairs.second], axis=1)
    clauses = [tuple(pair) for pair in variable_of(pairs).tolist()]
    limits = EliminationLimits(seconds=CHEAP_SECONDS)
    try:
        within = deadline.within(CHEAP_SECONDS)
        found = prepare(scopes, clauses, objectives, limits, within, active=())
    except OutOfTimeError:
        return None
    return found.plan if limits.allow(found.plan, objectives) else None


def start_engine(
    presolved: Presolved,
    problem: Problem,
    targets: tuple[Target, ...],
    context: Context,
    deadline: Deadline,
) -> EliminationEngine | None:
    """Run a search until the deadline; None if it passes before the tables are complete."""
    left = max(deadline.remaining(), 0.0)
    seconds = min(ELIMINATION_SECONDS, ELIMINATION_SHARE * left)
    try:
        engine = EliminationEngine(presolved, problem, targets, context, seconds, deadline)
    except OutOfTimeError:
        return None
    if engine.run(deadline) == "stuck" and context.options.mode == "feasibility":
        engine.sample(deadline, rounds=1)
    return engine


@register
class EliminationMethod(Method):
    """Elimination of variables."""

    name = "elimination"
    summary = "minimum over sign patterns by eliminating variables; for convolutions"
    promises = ("bound", "exact", "counterexample")
    reads = frozenset({"mode", "memory", "seed"})

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Decide all targets in one search."""
        started = context.deadline.elapsed()
        presolved = context.record_presolved(context.presolve(problem))
        since = context.deadline.elapsed()
        details = {"presolve": explain(presolved), "presolve seconds": since - started}
        known = {t.name: interval_proof(t, presolved.bounds[-1]) for t in problem.targets}
        if presolved.contradiction:
            known = {t.name: (np.inf, True) for t in problem.targets}
        open_ = problem.targets
        if context.options.mode == "feasibility" or presolved.contradiction:
            open_ = tuple(t for t in open_ if not known[t.name][1])
        engine = None
        if open_ and not context.deadline.passed():
            context.report(self.name, 0, 1)
            engine = start_engine(presolved, problem, open_, context, context.deadline)
        results = []
        for target in problem.targets:
            lower, proved = known[target.name]
            if engine is not None and target in open_:
                made = engine.result(target, self.name, since, lower)
                results.append(replace(made, details={**details, **made.details}))
            else:
                now = context.deadline.elapsed()
                results.append(context.result(target, self.name, now, lower=lower, proved=proved))
        return tuple(results)


#: Share of the remaining time, and the most seconds.
SHARE, SECONDS = 0.4, 20.0

#: Share of that time for learning clauses, before costs are perturbed.
LEARNING_SHARE = 0.4


def attack_locally(problem: Problem, context: Context) -> dict[str, TargetResult]:
    """Return the result for each target, if the network is local and there is time."""
    deadline = context.deadline.within(min(SECONDS, SHARE * context.deadline.remaining()))
    if problem.network.depth != 2:
        return {}
    try:
        presolved = context.presolve(problem, deadline)
    except OutOfTimeError:
        return {}
    if local_plan(presolved, len(problem.targets), deadline) is None:
        return {}
    since = context.deadline.elapsed()
    first = deadline.within(LEARNING_SHARE * deadline.remaining())
    engine = start_engine(presolved, problem, problem.targets, context.deciding(), first)
    if engine is None:
        return {}
    if engine.found is None:
        # Without a time limit the attack ends after a few rounds.
        engine.sample(deadline, rounds=None if context.deadline.seconds is not None else 1)
    name = EliminationMethod.name
    return {t.name: engine.result(t, name, since, float("-inf")) for t in problem.targets}


class VariablesEngine(Engine):
    """The elimination of variables of a local network, for all open targets together."""

    method = EliminationMethod
    _search: EliminationEngine | None = None

    def first_slice(self) -> float:
        """Presolve and the tables."""
        question = self.question
        if question.problem.network.depth != 2:
            return np.inf
        open_ = sum(b.unstable.size for b in question.bounds)
        return STEP + question.presolve_seconds + len(question.open) * 1e-5 * open_

    def work(self, end: Deadline) -> bool:
        """Continue the search; its clauses are also for the others."""
        question, since = self.question, self.context.deadline.elapsed()
        targets = question.open
        self.report()
        if self._search is None:
            presolved, deadline = question.presolved(), self.context.deadline
            count = sum(len(t.objectives) for t in targets)
            if presolved is None or local_plan(presolved, count, deadline) is None:
                return False
            seconds = min(ELIMINATION_SECONDS, ELIMINATION_SHARE * deadline.remaining())
            given = (presolved, question.problem, targets, self.context.deciding())
            try:
                self._search = EliminationEngine(*given, seconds, end)
            except OutOfTimeError:
                return True
        ending = self._search.run(end)
        if ending == "stuck":
            self._search.sample(end, rounds=1)
        for target in self._search.targets:
            lower = question.results[target.name].lower
            question.enter(self._search.result(target, self.method.name, since, lower))
        for neurons, signs, theta in self._search.search.proofs:
            # Rational multipliers belong to ties, which floats cannot prove.
            proof = theta if isinstance(theta, np.ndarray) else None
            question.learned.add(literal(neurons, signs), proof)
        return ending == "interrupted"
