"""A question that engines share: what is known about it, and presolve when it is needed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.interval import IntervalMethod, interval_proof
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Problem, Target

if TYPE_CHECKING:
    # A question that intervals decide imports nothing of this.
    from bnncert.engine.presolve.pipeline import Presolved
    from bnncert.engine.search.learned_clauses import LearnedClauses

#: About the seconds of presolve: in any case, for each open neuron, and for each pair of open
#: first-layer neurons and input that both read; for each pair of a budget, where most conflict.
PRESOLVE, PER_NEURON, PER_PAIR, PER_CONFLICT = 2e-3, 2e-5, 2e-9, 2e-5

#: Seconds of a relaxation: in any case, for the cube of its number of unknowns, and at most.
RELAXATION, CUBE, MOST = 0.03, 1e-9, 10.0


class OpenQuestion:
    """One problem, its results so far, and the presolved network, which is made when it is needed.

    Interval bounds are computed at once; they decide many questions alone.
    """

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.results: dict[str, TargetResult] = {}
        self.bounds: tuple[LayerBounds, ...] = context.intervals(problem)
        self._presolved: Presolved | None = None
        self._prove_by_intervals(contradiction=False, seconds={})
        if self.is_over and context.tracing:
            # A certificate of an interval proof needs no other presolve.
            context.record_presolved(self.plain)

    @property
    def open(self) -> tuple[Target, ...]:
        """The targets without a proof, those with the lowest known values first."""
        pending = [t for t in self.problem.targets if self.results[t.name].status != "robust"]
        return tuple(sorted(pending, key=lambda t: self.results[t.name].upper))

    @property
    def is_over(self) -> bool:
        """Whether the question is decided: every target is proved, or one is violated."""
        statuses = {r.status for r in self.results.values()}
        return "not_robust" in statuses or statuses <= {"robust"}

    @cached_property
    def learned(self) -> LearnedClauses:
        """The clauses about the first layer that the searches learn and share."""
        from bnncert.engine.search.learned_clauses import LearnedClauses

        return LearnedClauses()

    @cached_property
    def has_flip_budget(self) -> bool:
        """Whether the region is a budget of flips of the first layer."""
        from bnncert.engine.search.patterns.flips import flip_budget

        first, region = self.problem.network.layers[0], self.problem.region
        return flip_budget(first, self.bounds[0].unstable, region) is not None

    @cached_property
    def plain(self) -> Presolved:
        """The network presolved by intervals only."""
        from bnncert.engine.presolve.pipeline import plain_presolve

        return plain_presolve(self.problem.network, self.problem.region, self.bounds)

    @property
    def presolve_seconds(self) -> float:
        """About the seconds that presolve will take; 0 if it is done."""
        if self._presolved is not None:
            return 0.0
        first, layer = self.bounds[0].unstable.size, self.problem.network.layers[0]
        pair = PER_PAIR * float(layer.weights.nnz) / max(1, layer.size)
        open_ = sum(b.unstable.size for b in self.bounds)
        pair = PER_CONFLICT if self.has_flip_budget else pair
        return PRESOLVE + PER_NEURON * open_ + pair * first**2

    @property
    def unknowns(self) -> float:
        """About the number of unknowns of the reduced relaxation."""
        sizes = [b.unstable.size for b in self.bounds]
        return sizes[0] + sizes[-1] + 4.0 * sum(sizes[1:-1])

    @property
    def relaxation_seconds(self) -> float:
        """About the seconds of one relaxation."""
        return min(RELAXATION + CUBE * self.unknowns**3, MOST)

    def presolved(self) -> Presolved | None:
        """Presolve at the first call; None if the time limit ends it, or if it decides.

        It is not interrupted by the end of a slice, because it cannot be continued.
        """
        if self._presolved is None:
            since = self.context.deadline.elapsed()
            try:
                made = self.context.presolve(self.problem)
            except OutOfTimeError:
                return None
            self._presolved = self.context.record_presolved(made)
            self.bounds = made.bounds
            seconds = {"presolve": self.context.deadline.elapsed() - since}
            self._prove_by_intervals(made.contradiction, seconds)
        return None if self.is_over else self._presolved

    def _prove_by_intervals(self, contradiction: bool, seconds: dict[str, float]) -> None:
        """Prove the targets that bounds of the last layer's sums prove."""
        for target in self.problem.targets:
            before = self.results.get(target.name)
            if before is not None and before.status == "robust":
                continue
            lower, proved = interval_proof(target, self.bounds[-1])
            self.enter(
                self.context.result(
                    target,
                    IntervalMethod.name,
                    self.context.deadline.elapsed(),
                    lower=lower,
                    proved=proved or contradiction,
                    details={"seconds": seconds},
                    tried=False,
                )
            )

    def enter(self, after: TargetResult, *, is_shared: bool = False) -> None:
        """Combine a result for one target with the earlier ones: the later, with the best bounds.

        Work that is shared by all targets is the stage of one only if it decides it.
        """
        if after.status == "timeout" and not self.context.deadline.passed():
            # Only a slice is over.
            after = replace(after, status="unknown")
        before = self.results.get(after.name)
        if before is not None:
            if before.status == "robust":
                return
            kept = is_shared and after.status != "not_robust"
            seconds = before.details.get("seconds", {})
            seconds = {**seconds, after.stage: seconds.get(after.stage, 0.0) + after.seconds}
            after = replace(
                after,
                lower=max(before.lower, after.lower),
                upper=min(before.upper, after.upper),
                seconds=before.seconds + after.seconds,
                stage=before.stage if kept else after.stage,
                tried=before.tried if kept else before.tried or after.tried,
                details={**before.details, **after.details, "seconds": seconds},
            )
        self.results[after.name] = after

    def answers(self) -> tuple[TargetResult, ...]:
        """Return one result for each target."""
        late = self.context.deadline.passed()
        results = (self.results[t.name] for t in self.problem.targets)
        return tuple(
            replace(r, status="timeout") if late and r.status == "unknown" else r for r in results
        )
