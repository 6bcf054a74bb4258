"""The question that the options of `verify`, `bound` and `radius` describe: a ball and a label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bnncert.batch.balls import Balls
from bnncert.batch.labelled_points import OWN, read_data
from bnncert.batch.radii import Radius, read_radius, read_step
from bnncert.batch.rows import LabelSource
from bnncert.commands.bundled_names import PREFIX, point_source
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
from bnncert.regions import Ball, BallNorm, L0Ball


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
    """Return the network in a file, with the given value of sign(0)."""
    return load(model).with_sign_zero(sign_zero)


def radius_option(
    text: str,
    network: Network,
    norm: BallNorm = "linf",
    clip: tuple[float, float] | None = None,
    option: str | None = None,
) -> float:
    """Return a radius in input units; `1.5px` is 1.5 of the network's pixel steps.

    Messages show `option`, the whole value of --radius, if `text` is only a part of it.
    """
    shown = text if option is None else option
    if norm == "l0":
        try:
            return float(text)
        except ValueError:
            raise InputError(
                f"--radius is {shown!r}; --norm l0 expects the number of inputs that may change"
            ) from None
    radius = read_radius(text)
    if radius is None:
        raise InputError(_expected("radius", shown))
    try:
        return radius.in_units(network, network.source, norm, clip)
    except InputError as error:
        raise InputError(f"--{error}") from error


def grid_option(text: str) -> Radius:
    """Return the step of --grid as it is written."""
    step = read_step(text)
    if step is None:
        raise InputError(f"--grid is {text!r}; expected a step > 0, also as in 1px")
    return step


def balls_option(
    network: Network,
    norm: BallNorm,
    clip: tuple[float, float] | None,
    grid: str | None,
    within: str | None,
) -> tuple[Radius | None, Radius | None]:
    """Return the values of --grid and --within, after a check that the network can use them."""
    step = None if grid is None else grid_option(grid)
    if within is not None and norm != "l0":
        raise InputError(f"--within belongs to --norm l0; the norm is {norm}")
    reach = None if within is None else read_radius(within, name="within")
    if within is not None and reach is None:
        raise InputError(_expected("within", within))
    for number in (step, reach):
        try:
            if number is not None:
                number.in_units(network, network.source, "linf", clip)
        except InputError as error:
            raise InputError(f"--{error}") from error
    return step, reach


def _expected(name: str, text: str) -> str:
    return f"--{name} is {text!r}; expected finite numbers >= 0, also as in 1px or 0.25delta"


def read_question(
    network: Network, point: PointOptions, shape: BallShape, scaling: ScalingOptions
) -> CommandQuestion:
    """Return the ball around a point that the options describe."""
    scale, clip = read_scale(scaling.scale, scaling.mean, scaling.std), read_clip(scaling.clip)
    network = network if scale is None else scale.on(network)
    if point.input_ is None or shape.radius is None:
        missing = "--input" if point.input_ is None else "--radius"
        raise InputError(f"{missing} is missing; give --input and --radius, or a .vnnlib file")
    source, index = point_source(point.input_, point.index)
    data_box = None
    if network.input_lo is not None and network.input_hi is not None:
        data_box = (network.input_lo, network.input_hi)
    if point.label is not None and point.labels is not None:
        raise InputError("--label and --labels both name the true class; give one")
    # If --label is given, the labels beside the points are not read.
    data = read_data(source, point.labels if point.label is None else OWN)
    data = data if scale is None else data.as_pixels()
    centre = pick_point(data.array, index, network.input_shape, data_box, source)
    named = point.input_.startswith(PREFIX)
    where = point.input_ if named or index is None else f"{source} [{index}]"
    radius = radius_option(shape.radius, network, shape.norm, clip)
    grid, within = balls_option(network, shape.norm, clip, shape.grid, shape.within)
    try:
        balls = Balls.of(network, network.source, shape.norm, clip, grid=grid, within=within)
        centre = balls.centre(centre)
        region = balls.around(centre, radius)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    label = data.label(index, network) if point.label is None else point.label
    labels: LabelSource = "own" if label is None else "given"
    if label is None:
        label = int(network.classify(centre)[0])
    count = data.count(network)
    title = where if count == 1 or named else f"{where} (of {count} points)"
    return CommandQuestion(
        network, region, label, labels, read_targets(scaling.targets), where, title
    )
