"""Radii in tables, charts and files: in px if the network states its pixel step.

The inputs of the region are named together with the radius: real inputs, integer pixels, or another
grid.
"""

from __future__ import annotations

#: The largest relative difference between the step of a grid and the pixel step.
ROUNDING = 1e-6


def radius_text(radius: float, norm: str, pixel_step: float | None) -> str:
    """Return a radius with its unit; the radius of an L0 ball is a number of inputs."""
    if norm == "l0":
        return f"{radius:g} input{'' if radius == 1 else 's'}"
    return f"{radius:.9g}" if pixel_step is None else f"{radius / pixel_step:.6g} px"


def radius_in_px(radius: float, norm: str, pixel_step: float | None) -> float | None:
    """Return a radius in pixel steps; None if there are no pixel steps, or it is not a length."""
    return None if norm == "l0" or pixel_step is None else radius / pixel_step


def inputs_text(step: float | None, pixel_step: float | None) -> str:
    """Return the inputs that a region with a grid of this step consists of; None: all reals."""
    if step is None:
        return "real inputs"
    if pixel_step is None:
        return f"grid of step {step:.9g}"
    pixels = step / pixel_step
    return "integer pixels" if abs(pixels - 1) < ROUNDING else f"grid of {pixels:.6g} px"
