"""The question that the options of `verify`, `bound` and `radius` describe: a ball and a label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.batch.labelled_points import OWN, read_data
from bnncert.batch.radii import read_radius
from bnncert.batch.rows import LabelSource
from bnncert.commands.options import (
    BallShape,
    PointOptions,
    ScalingOptions,
    read_clip,
    read_scale,
    read_targets,
)
from bnncert.description.model import SignZero
from bnncert.errors import InputError
from bnncert.formats.inputs import pick_point
from bnncert.network import Network, load
from bnncert.problem import Targets
from bnncert.regions import Ball, Grid, L0Ball, Norm


@dataclass(frozen=True)
class CommandQuestion:
    """A network and the ball around a labelled point.

    `where` names the point in messages and files; `title` also states the number of points in its
    file.
    """

    network: Network
    region: Ball | L0Ball
    label: int
    labels: LabelSource
    targets: Targets
    where: str
    title: str

    @property
    def label_text(self) -> str:
        """The label, with a note if it is the network's own answer."""
        own = " (the network's own answer)" if self.labels == "own" else ""
        return f"label {self.label}{own}"


def read_network(model: Path, sign_zero: SignZero | None) -> Network:
    """Return the network in a file, with the sign(0) that was asked for."""
    network = load(model)
    return network if sign_zero is None else network.with_sign_zero(sign_zero)


def radius_option(
    text: str,
    network: Network,
    norm: Norm = "linf",
    clip: tuple[float, float] | None = None,
    option: str | None = None,
) -> float:
    """Return a radius in input units; `1.5px` is that many of the network's pixel steps.

    Messages show `option`, the whole value of --radius, if `text` is only a part of it.
    """
    radius = read_radius(text)
    if radius is None:
        raise InputError(
            f"--radius is {text if option is None else option!r}; expected finite numbers >= 0, "
            "also as in 1px or 0.25delta"
        )
    try:
        return radius.in_units(network, network.source, norm, clip)
    except InputError as error:
        raise InputError(f"--{error}") from error


def grid_option(text: str, network: Network, lo: FloatArray | float | None) -> Grid:
    """Return the grid that `--grid` states; it begins at the lower end of the data box."""
    step = read_radius(text)
    if step is None or step.number == 0 or step.unit == "delta":
        raise InputError(f"--grid is {text!r}; expected a step > 0, also as in 1px")
    try:
        size = step.in_units(network, network.source, "linf", None)
    except InputError as error:
        raise InputError(f"--{str(error).replace('radius', 'grid')}") from error
    return Grid(size, 0.0 if lo is None else lo)


def _region(
    shape: BallShape, network: Network, clip: tuple[float, float] | None, lo: Any, hi: Any
) -> Callable[[FloatArray], Ball | L0Ball]:
    """Return what makes the region around a centre."""
    assert shape.radius is not None
    grid = None if shape.grid is None else grid_option(shape.grid, network, lo)
    if shape.norm != "l0":
        if shape.within is not None:
            raise InputError(f"--within belongs to --norm l0; the norm is {shape.norm}")
        norm, size = shape.norm, radius_option(shape.radius, network, shape.norm, clip)
        return lambda centre: Ball(norm, centre, size, lo, hi, grid=grid)
    try:
        changes = float(shape.radius)
    except ValueError:
        raise InputError(
            f"--radius is {shape.radius!r}; --norm l0 expects the number of inputs that may change"
        ) from None
    within = None
    if shape.within is not None:
        try:
            within = radius_option(shape.within, network, "linf", clip)
        except InputError as error:
            raise InputError(str(error).replace("radius", "within")) from error
    return lambda centre: L0Ball(centre, changes, lo, hi, within, grid)


def read_question(
    network: Network,
    point: PointOptions,
    shape: BallShape,
    scaling: ScalingOptions,
) -> CommandQuestion:
    """Return the ball around a point that the options describe."""
    scale, clip = read_scale(scaling.scale, scaling.mean, scaling.std), read_clip(scaling.clip)
    network = network if scale is None else scale.on(network)
    source, index = point.input_, point.index
    if source is None or shape.radius is None:
        missing = "--input" if source is None else "--radius"
        raise InputError(f"{missing} is missing; give --input and --radius, or a .vnnlib file")
    data_box = None
    if network.input_lo is not None and network.input_hi is not None:
        data_box = (network.input_lo, network.input_hi)
    if point.label is not None and point.labels is not None:
        raise InputError("--label and --labels both name the true class; give one")
    # If --label is given, the labels beside the points are not read.
    data = read_data(source, point.labels if point.label is None else OWN)
    data = data if scale is None else data.as_pixels()
    centre = pick_point(data.array, index, network.input_shape, data_box, source)
    lo: Any = network.input_lo if clip is None else clip[0]
    hi: Any = network.input_hi if clip is None else clip[1]
    if shape.grid is not None or shape.norm == "l0":
        # A model gets its pixels as float32 numbers, and those that do not change stay as they are.
        centre = _as_float32(centre)
        lo, hi = (None if v is None else _as_float32(v) for v in (lo, hi))
    where = source if index is None else f"{source} [{index}]"
    make = _region(shape, network, clip, lo, hi)
    try:
        region = make(centre)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    label = data.label(index, network) if point.label is None else point.label
    labels: LabelSource = "own" if label is None else "given"
    if label is None:
        label = int(network.classify(centre)[0])
    count = data.count(network)
    title = where if count == 1 else f"{where} (of {count} points)"
    return CommandQuestion(
        network, region, label, labels, read_targets(scaling.targets), where, title
    )


def _as_float32(values: npt.ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)
