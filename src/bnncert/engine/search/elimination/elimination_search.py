r"""Elimination with clauses that are learned when they are needed.

An elimination returns its minimising pattern.  If an input of the region has this pattern, the
minimum is that of f over the inputs.  If no input has it, Farkas multipliers prove that a few of
its signs exclude each other: this *learned clause* holds for all objectives and is one more factor
of the next elimination.  An elastic linear program finds points that nearly have the pattern, and
they are tried as counterexamples.

Patterns near the minimum come from eliminations with perturbed costs: a random multiple of x_v is
added to the costs of every variable v.  The minimising patterns of several perturbations differ in
signs that have little influence, and agree in the others.

Not all clauses are taken into account.  A clause whose variables are in one bucket without it costs
nothing.  Any other clause joins variables and widens the tables, so it is *activated* only when a
minimising pattern violates it. Conflicting pairs of presolve and learned clauses are treated in the
same way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.presolve.literals import literal, variable_of
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import (
    ElasticProgram,
    disjoint_conflicts,
    fast_feasibility,
)
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.engine.search.clauses import ClauseSet
from bnncert.engine.search.elimination.bound import (
    EliminationLimits,
    Prepared,
    columns,
    minimise,
    prepare,
)
from bnncert.engine.search.elimination.buckets import (
    InexactTableError,
    Model,
    Table,
    float_type,
    spread,
)
from bnncert.engine.search.elimination.factors import build_factors, integer_objective
from bnncert.engine.search.trace import LearnedClause
from bnncert.problem import Objective


def influences(model: Model, size: int) -> FloatArray:
    """Return the change of each objective (column) that each of `size` variables (row) can make."""
    total = np.zeros((size, model.objectives))
    for table in model.tables:
        if not table.scope or table.values.shape[-1] != model.objectives:
            continue
        axes = tuple(range(len(table.scope)))
        high = np.where(np.isfinite(table.values), table.values, -np.inf).max(axis=axes)
        move = high - table.values.min(axis=axes)
        total[list(table.scope)] += np.where(np.isfinite(move), move, 0.0)
    return total


def perturbed(
    model: Model, objective: int, influence: FloatArray, generator: np.random.Generator, count: int
) -> Model:
    """Return `count` perturbations of one objective; `influence` are the sizes of the noise."""
    own: IntArray = np.full(count, objective, dtype=np.int64)
    noise = np.rint(generator.normal(size=(influence.size, count)) * influence[:, None])
    tables, done = [], set()
    for table in columns(model, own).tables:
        # Each variable is perturbed in the first table that has it and belongs to the objective.
        new = [v for v in table.scope if v not in done]
        if not new or table.values.shape[-1] != count:
            tables.append(table)
            continue
        done.update(new)
        tables.append(_with_noise(table, {v: noise[v] for v in new}))
    return replace(model, tables=tuple(tables), objectives=count)


def _with_noise(table: Table, noise: dict[int, FloatArray]) -> Table:
    reach = table.reach + sum(int(np.abs(weights).max()) for weights in noise.values())
    values = table.values.astype(float_type(reach))
    for v, weights in noise.items():
        values = values + spread(np.stack([weights, -weights]), (v,), table.scope)
    return Table(table.scope, values.astype(float_type(reach)), reach)


#: Longer clauses join so many variables that they are activated only if no shorter one helps.
SHORT = 4


class ClausePool(ClauseSet):
    """Clauses with their variables, and how often a minimising pattern violated each of them."""

    def __init__(self, clauses: Iterable[IntArray] = ()) -> None:
        super().__init__()
        self.scopes: list[tuple[int, ...]] = []
        #: How often each active clause was violated by a minimising pattern.
        self.uses: Counter[int] = Counter()
        for clause in clauses:
            self.add(clause)

    @property
    def active(self) -> list[int]:
        """The active clauses, those that were violated most often first."""
        return sorted(self.uses, key=lambda i: (-self.uses[i], self.clauses[i].size, i))

    def add(self, literals: IntArray) -> bool:
        """Add a clause; False if it is in the pool already."""
        new = super().add(literals)
        if new:
            self.scopes.append(tuple(variable_of(self.clauses[-1]).tolist()))
        return new

    def activate(self, clauses: Iterable[int]) -> None:
        """Activate the short ones of the clauses that a pattern violates: they exclude it."""
        violated = list(clauses)
        longest = max(SHORT, min((self.clauses[i].size for i in violated), default=0))
        self.uses.update(i for i in violated if self.clauses[i].size <= longest)

    def violated(self, signs: SignArray) -> list[int]:
        """Return the clauses that a pattern violates; `signs` are those of all variables."""
        found: list[int] = np.flatnonzero(self.violations(signs[None, :])[0]).tolist()
        return found


#: How a search ends: all objectives are done, a point ended it, no progress is possible, or the
#: deadline passed.
Ending: TypeAlias = Literal["done", "found", "stuck", "interrupted"]

#: Tries a point, with its exact coordinates if known, for an objective; True ends the search.
Offer: TypeAlias = Callable[[int, FloatArray, "tuple[Fraction, ...] | None"], bool]

#: Whether the work on an objective is done, given a lower bound of it.
IsDone: TypeAlias = Callable[[int, float], bool]


#: Estimated seconds of the first elimination, which is short so that bounds are known early.
FIRST_SECONDS = 0.5

#: Perturbations that are eliminated together.
SAMPLES = 8


@dataclass(eq=False)
class EliminationCounts:
    """Statistics of a search.

    The width and the numbers of components and split buckets are those of the last elimination;
    `seconds` are the times of all tables, all eliminations and all checks of patterns.
    """

    variables: int = 0
    components: int = 0
    width: int = 0
    split: int = 0
    eliminations: int = 0
    clauses: int = 0
    active: int = 0
    programs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def spent(self, part: str, since: float) -> None:
        """Add the time since a moment of the monotonic clock to a part of the work."""
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - since


class SettlingElimination(NamedTuple):
    """An elimination after which some objectives are done."""

    objectives: tuple[int, ...]
    #: The variables of each clause that was active.
    active: tuple[tuple[int, ...], ...]
    #: The estimated seconds that the elimination was planned for.
    seconds: float
    #: How many clauses were learned before.
    learned: int


class EliminationSearch:
    """One search for all objectives; `run` may be called again to continue.

    `limits` are those of one elimination.  OutOfTimeError is raised if the deadline passes before
    the tables are complete.
    """

    def __init__(
        self,
        presolved: Presolved,
        objectives: Sequence[Objective],
        offer: Offer,
        is_done: IsDone,
        limits: EliminationLimits,
        deadline: Deadline,
    ) -> None:
        started = time.monotonic()
        self.presolved, self.limits = presolved, limits
        self._offer, self._is_done = offer, is_done
        self._integer = [integer_objective(o) for o in objectives]
        self._factors = build_factors(presolved, deadline)
        model: Model = self._factors.model(self._integer)
        self.pool = ClausePool(model.clauses)
        self._model = replace(model, clauses=())
        used = sorted({v for table in self._model.tables for v in table.scope})
        first = [v for v in used if presolved.owner_layer[v] == 0]
        #: The first-layer variables in use, and their neurons.
        self.variables = np.array(first, dtype=np.int64)
        self.neurons = presolved.owner[self.variables]
        self.counts = EliminationCounts(variables=len(used))
        self.counts.spent("tables", started)
        #: The learned clauses, in the form of certificates.
        self.proofs: list[LearnedClause] = []
        #: The eliminations that settled objectives, for a certificate.
        self.settling: list[SettlingElimination] = []
        self.lower = np.full(len(objectives), -np.inf)
        self._stuck: set[int] = set()
        self._prepared: Prepared | None = None
        self._before: Prepared | None = None
        self._planned = 0
        #: Objectives for which the elastic program of a pattern was solved.
        self._tried: set[int] = set()
        #: Estimated seconds of one elimination; raised when buckets are split and no clause helps.
        self._effort = min(FIRST_SECONDS, limits.seconds)
        self._influence = influences(self._model, presolved.owner.size)

    @property
    def open(self) -> list[int]:
        """The objectives that are not done, lowest bound first."""
        found = [k for k in range(len(self._integer)) if not self._is_done(k, self.lower[k])]
        return sorted(found, key=lambda k: (self.lower[k], k))

    @cached_property
    def _program(self) -> ElasticProgram:
        first = self.presolved.network.layers[0]
        return ElasticProgram(first, self.neurons, self.presolved.region)

    def prepare(self, objectives: int, deadline: Deadline) -> Prepared:
        """Return the plan for the active clauses and a number of objectives.

        Raises OutOfTimeError if the deadline passes.
        """
        prepared = self._prepared
        # With fewer objectives, wider tables are within the limits.
        if prepared is None or (objectives < self._planned and not prepared.plan.is_exact):
            self._prepared = self._before = prepared = prepare(
                [table.scope for table in self._model.tables],
                self.pool.scopes,
                objectives,
                replace(self.limits, seconds=self._effort),
                deadline,
                self.pool.active,
                self._before,
            )
            self._planned = objectives
            plan = prepared.plan
            self.counts.width, self.counts.split = plan.width, plan.split
            self.counts.components = prepared.components
            self.counts.active = len(self.pool.uses)
        return prepared

    def run(self, deadline: Deadline) -> Ending:
        """Eliminate and learn until all objectives are done, or the deadline passes."""
        try:
            while True:
                wanted = [k for k in self.open if k not in self._stuck]
                if not wanted:
                    if not self.open:
                        return "done"
                    if not self._widen():
                        return "stuck"
                    continue
                deadline.check()
                patterns = self._eliminate(wanted, deadline)
                left = {k: p for k, p in patterns.items() if not self._is_done(k, self.lower[k])}
                self._record([k for k in wanted if k not in left])
                started = time.monotonic()
                found = self._learn(left, deadline)
                self.counts.spent("checks", started)
                if found:
                    return "found"
        except OutOfTimeError:
            return "interrupted"
        except InexactTableError:
            return "stuck"

    def _record(self, settled: list[int]) -> None:
        """Record the elimination after which objectives are done."""
        if settled:
            active = tuple(self.pool.scopes[i] for i in self.pool.active)
            made = SettlingElimination(tuple(settled), active, self._effort, len(self.proofs))
            self.settling.append(made)

    def _widen(self) -> bool:
        """Allow wider tables for stuck objectives; False if no bucket is split, or at the limit."""
        plan = None if self._prepared is None else self._prepared.plan
        if (plan is not None and plan.is_exact) or self._effort >= self.limits.seconds:
            return False
        self._effort = min(4 * self._effort, self.limits.seconds)
        self._prepared = None
        self._stuck.clear()
        return True

    def _eliminate(self, wanted: list[int], deadline: Deadline) -> dict[int, SignArray]:
        """Raise the lower bounds; return the signs of all variables for each objective."""
        started = time.monotonic()
        prepared = self.prepare(len(wanted), deadline)
        own = columns(self._model, np.array(wanted, dtype=np.int64))
        own = replace(own, clauses=tuple(self.pool.clauses[i] for i in prepared.clauses))
        made = minimise(own, prepared.plan, self.limits, deadline)
        self.counts.eliminations += 1
        self.counts.spent("elimination", started)
        patterns = {}
        for row, k in enumerate(wanted):
            bound = self._integer[k].lower(float(made.values[row]))
            self.lower[k] = max(self.lower[k], bound)
            signs = np.zeros(self.presolved.owner.size, dtype=np.int8)
            signs[made.variables] = made.patterns[row]
            patterns[k] = signs
        return patterns

    def _learn(self, patterns: dict[int, SignArray], deadline: Deadline) -> bool:
        """Find clauses that exclude the patterns, lowest bound first; True ends the search."""
        counted = set() if self._prepared is None else set(self._prepared.clauses)
        for k in sorted(patterns, key=lambda k: (self.lower[k], k)):
            deadline.check()
            pattern = patterns[k]
            # Clauses that the elimination did not use, or that other patterns have taught since.
            broken = self.pool.violated(pattern)
            self.pool.activate(i for i in broken if i not in counted)
            progress = not counted.issuperset(broken)
            if not broken or k not in self._tried:
                if k not in self._tried and self._try_near(k, pattern[self.variables], deadline):
                    return True
                self._tried.add(k)
                learned, found = self._realise(k, pattern[self.variables], deadline)
                if found:
                    return True
                progress = self._add(learned) or progress
            if progress:
                self._prepared = None
            elif not self._is_done(k, self.lower[k]):
                self._stuck.add(k)
        return False

    def _add(self, learned: list[tuple[SignPattern, Feasibility]]) -> bool:
        """Add conflicts to the pool and activate them; return whether one is new."""
        before = len(self.pool)
        for pattern, conflict in learned:
            assert conflict.conflict is not None
            blamed = pattern.part(conflict.conflict)
            if self.pool.add(literal(self.variables[conflict.conflict], blamed.signs)):
                self.proofs.append((blamed.neurons, blamed.signs, conflict.multipliers))
                self.counts.clauses += 1
        self.pool.activate(range(before, len(self.pool)))
        return len(self.pool) > before

    def sample(
        self, k: int, strength: float, generator: np.random.Generator, deadline: Deadline
    ) -> bool:
        """Try points for minimising patterns of perturbed costs; True ends the search.

        `strength` is the size of the perturbations as a share of each variable's influence.
        Raises OutOfTimeError if the deadline passes.
        """
        prepared = self.prepare(SAMPLES, deadline)
        noise = strength * self._influence[:, k]
        own = perturbed(self._model, k, noise, generator, SAMPLES)
        own = replace(own, clauses=tuple(self.pool.clauses[i] for i in prepared.clauses))
        made = minimise(own, prepared.plan, self.limits, deadline)
        places = np.searchsorted(made.variables, self.variables)
        patterns = np.unique(made.patterns[:, places], axis=0)
        return any(self._try_near(k, signs, deadline) for signs in patterns)

    def _try_near(self, k: int, signs: SignArray, deadline: Deadline) -> bool:
        """Try the point that nearly has a pattern; signs are weighted by their influence."""
        deadline.check()
        prices = self._influence[self.variables, k]
        if not signs.size or prices.max(initial=0.0) <= 0:
            return False
        self.counts.programs += 1
        near = self._program.solve(signs, prices + 0.01 * prices.max(), deadline)
        return near is not None and self._offer(k, near.point, None)

    def _realise(
        self, k: int, signs: SignArray, deadline: Deadline
    ) -> tuple[list[tuple[SignPattern, Feasibility]], bool]:
        """Try points that have a pattern, or nearly; return its conflicts and whether to stop."""
        region = self.presolved.region
        wanted = SignPattern(self.presolved.network.layers[0], self.neurons, signs)
        if not self.neurons.size:
            return [], self._offer(k, region.center, None)
        self.counts.programs += 1
        near = self._program.solve(wanted.signs, None, deadline)
        if near is not None:
            if self._offer(k, near.point, None):
                return [], True
            found_now = disjoint_conflicts(wanted, near.multipliers, region, deadline)
            conflicts = [(wanted, conflict) for conflict in found_now]
            if conflicts or self._is_done(k, self.lower[k]):
                return conflicts, False
        for check in (fast_feasibility, exact_feasibility):
            found = check(wanted, region, deadline)
            if found.conflict is not None:
                return [(wanted, found)], False
            if found.point is not None and self._offer(k, found.point, found.exact_point):
                return [], True
            if self._is_done(k, self.lower[k]):
                break
        return [], False
