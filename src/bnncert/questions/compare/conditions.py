"""Conditions on the scores of a product of two networks as a target."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bnncert.kernel.rules.disagreement import Condition
from bnncert.model.network import Network
from bnncert.problem.objective import score_objective
from bnncert.problem.problem import Target


def condition_target(network: Network, name: str, conditions: Sequence[Condition]) -> Target:
    """Return the target that all conditions hold at once."""
    objectives = tuple(
        score_objective(
            network,
            {k: Fraction(c) for k, c in condition.scores},
            tie_is_fine=condition.strict,
            name=name,
        )
        for condition in conditions
    )
    return Target(name, objectives)
