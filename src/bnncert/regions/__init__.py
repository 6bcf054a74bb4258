"""Sets of inputs: regions (boxes, balls, polytopes) and covers (shapes of change)."""

from __future__ import annotations

from bnncert.regions.ball import Ball, Norm
from bnncert.regions.box import Box
from bnncert.regions.changes import SHAPES, ChangeNorm, Neighbourhood
from bnncert.regions.cover import Cover, refuse_cover
from bnncert.regions.grid import Grid
from bnncert.regions.image_path import Brightness, Contrast, ImagePath
from bnncert.regions.image_union import BrightnessSteps, ImageShift, ImageUnion, Patch
from bnncert.regions.l0_ball import BallNorm, L0Ball
from bnncert.regions.polytope import Polytope
from bnncert.regions.region import LARGEST_VALUE, EmptyRegionError, InputSet, Point, Region

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
