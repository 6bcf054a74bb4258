"""Sets of inputs: regions (boxes, balls, polytopes) and covers (shapes of change)."""

from __future__ import annotations

from bnncert.regions.ball import Ball, BallNorm, L0Ball, Norm
from bnncert.regions.grid import Grid
from bnncert.regions.image_path import Brightness, Contrast, ImagePath
from bnncert.regions.image_union import BrightnessSteps, ImageShift, ImageUnion, Patch
from bnncert.regions.polytope import Polytope
from bnncert.regions.radii import SHAPES, ChangeNorm, Neighbourhood
from bnncert.regions.region import (
    LARGEST_VALUE,
    Box,
    Cover,
    EmptyRegionError,
    InputSet,
    Point,
    Region,
    refuse_cover,
)

__all__ = [
    "Ball",
    "BallNorm",
    "Box",
    "Brightness",
    "BrightnessSteps",
    "ChangeNorm",
    "Contrast",
    "Cover",
    "EmptyRegionError",
    "Grid",
    "ImagePath",
    "ImageShift",
    "ImageUnion",
    "InputSet",
    "L0Ball",
    "LARGEST_VALUE",
    "Neighbourhood",
    "Norm",
    "Patch",
    "Point",
    "Polytope",
    "Region",
    "SHAPES",
    "refuse_cover",
]
