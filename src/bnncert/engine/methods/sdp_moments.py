"""The paper's semidefinite relaxations: moment relaxations of the polynomial encodings.

Those of order 1 are solved in the form of `relaxations.moments.layered_program`, which has the
same optimal value as the paper's cliques; a conic solver takes the cliques themselves.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Options, register
from bnncert.engine.methods.interval import RelaxationMethod
from bnncert.engine.presolve.reduction import UnstableProblem, reduce_target
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.relaxations.moments.layered_program import Encoding, encode, layered_program
from bnncert.engine.relaxations.moments.polynomial import Polynomial
from bnncert.engine.relaxations.moments.relaxation import Sparsity, cliques, covers, relax
from bnncert.engine.solvers.conic_back_ends import conic_solver
from bnncert.engine.solvers.structured import solve_structured
from bnncert.errors import InputError
from bnncert.problem import Problem, Target
from bnncert.regions import Region

#: Choices of the solver that mean the structured one where it fits.
OWN_SOLVERS = (None, "structured")


class MomentMethod(RelaxationMethod):
    """A moment relaxation of one encoding, order and family of cliques."""

    reads = frozenset({"solver", "sparsity"})
    regions = "linf, l2, box, polytope"
    encoding: ClassVar[Encoding]
    order: ClassVar[int] = 1
    sparsity: ClassVar[Sparsity] = "layered"

    def relax(
        self, problem: Problem, bounds: tuple[LayerBounds, ...], target: Target, context: Context
    ) -> tuple[list[float], str]:
        """Bound every objective; the bounds are re-derived from the duals."""
        reduced = reduce_target(problem.network, bounds, target)
        lowers, note = [], ""
        for k, objective in enumerate(target.objectives):
            value, note = self.bound(reduced, problem.region, k, context.options, context.deadline)
            lowers.append(objective.round_up(value))
        return lowers, note

    def bound(
        self,
        reduced: UnstableProblem,
        region: Region,
        objective: int | Polynomial,
        options: Options,
        deadline: Deadline,
    ) -> tuple[float, str]:
        """Return a lower bound of an objective, as in :func:`encode`, and a note for the user."""
        if not isinstance(objective, Polynomial) and not reduced.layers[-1].size:
            # All neurons are fixed: f is a constant, which interval arithmetic has found.
            return -np.inf, ""
        fits = self.order == 1 and self.sparsity == "layered" and options.sparsity is None
        if fits and not isinstance(objective, Polynomial) and options.solver in OWN_SOLVERS:
            return self._structured(reduced, region, objective, deadline)
        if options.solver == "structured":
            raise InputError(
                "solver structured takes linear objectives and relaxations of order 1 on the "
                "layered cliques; expected clarabel, scs or mosek"
            )
        solver = conic_solver(options.solver or "clarabel")
        try:
            encoded = encode(reduced, region, self.encoding, objective, deadline)
            family = cliques(encoded, options.sparsity or self.sparsity, deadline)
            if options.sparsity is None and not covers(encoded, family):
                # The layered cliques do not cover some products, for example of two last neurons.
                family = cliques(encoded, "chordal", deadline)
            relaxation = relax(encoded, family, self.order, deadline)
        except OutOfTimeError:
            return -np.inf, "no time to build the relaxation"
        solution = solver.solve(relaxation.program, deadline)
        note = "" if solution.status == "solved" else f"{solver.name}: {solution.status}"
        try:
            return relaxation.dual_bound(solution.dual, deadline), note
        except OutOfTimeError:
            return -np.inf, f"{note or solver.name}; no time to derive the bound"

    def _structured(
        self, reduced: UnstableProblem, region: Region, objective: int, deadline: Deadline
    ) -> tuple[float, str]:
        """Bound an objective on the layered cliques, by the solver of the package."""
        form = layered_program(reduced, region, self.encoding, reduced.objectives[objective])
        # Solved to the end for any sign: these methods return the value.
        found = solve_structured(form.program, deadline)
        note = "" if found.status == "optimal" else f"structured: {found.status}"
        return form.bound(found.multipliers), note


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
