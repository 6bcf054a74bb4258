"""The first section of a certificate: its statement, and the region as all claims state it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.kernel.container import Section
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.regions import (
    Ball,
    Box,
    Contrast,
    ImagePath,
    ImageUnion,
    L0Ball,
    Polytope,
    Region,
)


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


def region_section(region: Region) -> Section:
    """Return a section `statement` that states only the region."""
    section = Section("statement")
    if region.values is not None:
        section.fields["grid"] = region.values.dtype.name
        section.arrays |= {"grid_step": region.values.step, "grid_origin": region.values.origin}
    if isinstance(region, Ball):
        section.fields |= {"region": region.norm, "radius": str(Fraction(region.radius))}
        section.arrays |= _centre(region)
    elif isinstance(region, L0Ball):
        section.fields |= {"region": "l0", "radius": str(region.changes)}
        section.fields |= {} if region.within is None else {"within": str(Fraction(region.reach))}
        section.arrays |= _centre(region)
    elif isinstance(region, Polytope):
        section.fields |= {"region": "polytope", "inequalities": int(region.right.size)}
        section.arrays |= {
            "lo": region.lo,
            "hi": region.hi,
            "matrix": np.asarray(region.matrix, dtype=np.float64).reshape(-1),
            "right": region.right,
        }
        # This point shows that the region is not empty; not every polytope contains a float point.
        inside = region.settle(region.center, np.float32)
        inside = region.settle(region.center) if inside is None else inside
        if inside is not None:
            section.arrays["inside"] = inside
    elif isinstance(region, Box):
        section.fields["region"] = "box"
        section.arrays |= {"lo": region.lo, "hi": region.hi}
    else:
        raise InputError(f"no certificate for a region of type {type(region).__name__}")
    return section


def shape_section(region: ImagePath | ImageUnion) -> Section:
    """Return a section that states a shape of change around an image in the same way.

    The boxes of a union on a grid are proved for all their real inputs, so that it has no grid.
    """
    radius = str(Fraction(region.stated_radius))
    section = Section("statement", {"region": region.norm, "radius": radius}, _centre(region))
    if isinstance(region, ImageUnion):
        value = None if region.value is None else str(Fraction(region.value))
        section.fields["value"] = value
    elif isinstance(region, Contrast):
        section.arrays["pivot"] = region.pivot
    return section


def _centre(region: Ball | L0Ball | ImagePath | ImageUnion) -> dict[str, FloatArray]:
    """Return the centre and the data box."""
    box = {"center": region.middle, "clip_lo": region.clip_lo, "clip_hi": region.clip_hi}
    return {name: side for name, side in box.items() if side is not None}
