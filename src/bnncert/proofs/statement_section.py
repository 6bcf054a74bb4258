"""The first section of a certificate: its statement, and the region as all claims state it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from bnncert.kernel.container import Section
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.regions import InputSet


def statement(
    problem: Problem,
    network: Network,
    *,
    verdict: str,
    arithmetic: str,
    sign_zero: SignZero | None,
    property_: dict[str, Any],
) -> Section:
    """Return the claim about `network`, as its file defines it, as a section."""
    section = region_section(problem.region)
    section.fields |= {
        "verdict": verdict,
        "network": network.content_hash,
        "sizes": list(network.sizes),
        "sign_zero": sign_zero,
        "arithmetic": arithmetic,
        "property": property_,
    }
    return section


def conditions(targets: list[list[tuple[dict[int, Fraction], Fraction, bool]]]) -> dict[str, Any]:
    """Return the property that in every target some function of the scores is positive."""
    return {
        "kind": "targets",
        "targets": [
            [
                {
                    "scores": {str(k): str(c) for k, c in scores.items()},
                    "constant": str(constant),
                    "tie_is_fine": fine,
                }
                for scores, constant, fine in target
            ]
            for target in targets
        ],
    }


def region_section(region: InputSet) -> Section:
    """Return a section `statement` that states only the region.

    The boxes of a union on a grid are proved for all their real inputs, so that it has no grid.
    """
    section = Section("statement")
    if region.values is not None:
        section.fields["grid"] = region.values.dtype.name
        section.arrays |= {"grid_step": region.values.step, "grid_origin": region.values.origin}
    fields, arrays = region.statement()
    section.fields |= fields
    section.arrays |= arrays
    return section
