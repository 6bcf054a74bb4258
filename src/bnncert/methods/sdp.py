"""The paper's semidefinite relaxations: moment relaxations of the polynomial encodings."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bnncert.deadline import OutOfTimeError
from bnncert.methods.base import Context, Method, register
from bnncert.methods.interval import interval_proof
from bnncert.presolve.reduction import OpenProblem, reduce_target
from bnncert.presolve.stability import stability
from bnncert.problem import Problem
from bnncert.relaxations.moments.cliques import Sparsity, cliques
from bnncert.relaxations.moments.encoding import Encoding, encode
from bnncert.relaxations.moments.relaxation import relax
from bnncert.solvers.registry import conic_solver
from bnncert.verdict import TargetResult


class MomentMethod(Method):
    """A moment relaxation of one encoding, order and family of cliques."""

    promises = ("bound",)
    reads = frozenset({"solver", "sparsity"})
    regions = "linf, l2, box, polytope"
    encoding: ClassVar[Encoding]
    order: ClassVar[int] = 1
    sparsity: ClassVar[Sparsity] = "layered"

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Bound every target; the bound is re-derived from the dual."""
        bounds = stability(problem.network, problem.region)
        results = []
        for number, target in enumerate(problem.targets):
            since = context.deadline.elapsed()
            context.report(f"{self.name}: {target.name}", number, len(problem.targets))
            lower, proved = interval_proof(target, bounds[-1])
            note = ""
            if not context.deadline.passed():
                reduced = reduce_target(problem.network, bounds, target)
                for k, objective in enumerate(target.objectives):
                    value, note = self._bound(reduced, problem, k, context)
                    value = objective.round_up(value)
                    lower = max(lower, value)
                    proved = proved or objective.is_proved_by(value)
            results.append(
                context.result(target, self.name, since, lower=lower, proved=proved, note=note)
            )
        return tuple(results)

    def _bound(
        self, reduced: OpenProblem, problem: Problem, objective: int, context: Context
    ) -> tuple[float, str]:
        if not reduced.layers[-1].size:
            # Everything is fixed: f is a constant, and interval arithmetic has it already.
            return -np.inf, ""
        deadline = context.deadline
        solver = conic_solver(context.options.solver or "clarabel")
        try:
            encoded = encode(reduced, problem.region, self.encoding, objective, deadline)
            family = cliques(encoded, context.options.sparsity or self.sparsity, deadline)
            relaxation = relax(encoded, family, self.order, deadline)
        except OutOfTimeError:
            return -np.inf, "no time to build the relaxation"
        solution = solver.solve(relaxation.program, deadline)
        note = "" if solution.status == "solved" else f"{solver.name}: {solution.status}"
        try:
            return relaxation.dual_bound(solution.dual, deadline), note
        except OutOfTimeError:
            return -np.inf, f"{note or solver.name}; no time to derive the bound"


@register
class SdpStandard(MomentMethod):
    """tau^1."""

    name = "sdp-standard"
    summary = "the paper's tau^1: order-1 moment relaxation of the standard encoding"
    encoding = "standard"


@register
class SdpTightPlain(MomentMethod):
    """The tight encoding without tautologies."""

    name = "sdp-tight-plain"
    summary = "order-1 relaxation of the tight encoding without the tautologies"
    encoding = "tight-plain"


@register
class SdpTight(MomentMethod):
    """tau^1_tighter,cs."""

    name = "sdp-tight"
    summary = "the paper's tau^1_tighter: order-1 relaxation with both tautologies"
    encoding = "tight"


@register
class SdpTightPairwise(MomentMethod):
    """The tight encoding on cliques of two neurons."""

    name = "sdp-tight-pairwise"
    summary = "sdp-tight on pairs of neurons in adjacent layers: faster and coarser"
    encoding = "tight"
    sparsity: ClassVar[Sparsity] = "pairwise"


@register
class SdpOrder2(MomentMethod):
    """tau^2."""

    name = "sdp-order2"
    summary = "the paper's tau^2: order-2 relaxation of the standard encoding (tiny networks)"
    encoding = "standard"
    order = 2
