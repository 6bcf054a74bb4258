"""Input regions: boxes, norm balls inside a data box, polytopes, and shapes of change."""

from __future__ import annotations

from bnncert.regions.ball import Ball, Norm, is_l2_ball
from bnncert.regions.box import Box
from bnncert.regions.changes import SHAPES, Change, ChangeNorm
from bnncert.regions.grid import Grid
from bnncert.regions.image_path import Brightness, Contrast, ImagePath
from bnncert.regions.image_union import BrightnessSteps, ImageShift, ImageUnion, Patch
from bnncert.regions.l0_ball import BallNorm, L0Ball
from bnncert.regions.polytope import Polytope
from bnncert.regions.region import LARGEST_VALUE, EmptyRegionError, Point, Region

__all__ = [
    "Ball",
    "BallNorm",
    "Box",
    "Brightness",
    "BrightnessSteps",
    "Change",
    "ChangeNorm",
    "Contrast",
    "EmptyRegionError",
    "Grid",
    "ImagePath",
    "ImageShift",
    "ImageUnion",
    "L0Ball",
    "LARGEST_VALUE",
    "Norm",
    "Patch",
    "Point",
    "Polytope",
    "Region",
    "SHAPES",
    "is_l2_ball",
]
