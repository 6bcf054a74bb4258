"""The regions around an image that users name by a norm and a radius."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from bnncert.regions.ball import Ball
from bnncert.regions.image_path import ImagePath
from bnncert.regions.image_union import ImageUnion
from bnncert.regions.l0_ball import L0Ball

#: Shapes of change, which are named in the place of a norm.
ShapeName: TypeAlias = Literal["brightness", "contrast", "patch", "shift"]

#: Norms of balls, and shapes of change.
ChangeNorm: TypeAlias = Literal[
    "linf", "l2", "l1", "l0", "brightness", "contrast", "patch", "shift"
]

#: A ball, or the region of a shape of change.
Neighbourhood: TypeAlias = Ball | L0Ball | ImagePath | ImageUnion

#: The shapes of change, those with a value beside the radius, and those without a grid.
SHAPES: tuple[str, ...] = get_args(ShapeName)
VALUED, GRIDLESS = ("contrast", "patch", "shift"), ("contrast", "shift")

#: What a radius is where it is not a length in input units.
RADIUS_MEANING = {
    "l0": "the number of inputs that may change",
    "contrast": "the largest difference between the factor and 1",
    "patch": "the side of the patch in pixels, without a unit",
    "shift": "the number of pixels, without a unit",
}


def is_union(norm: str, *, on_grid: bool) -> bool:
    """Whether the region of a norm is a finite union of boxes."""
    return norm in ("patch", "shift") or (norm == "brightness" and on_grid)
