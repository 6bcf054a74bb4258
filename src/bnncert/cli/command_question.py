"""The question that the options of `verify`, `bound` and `radius` describe: a ball and a label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bnncert.arrays import FloatArray
from bnncert.cli.files import PREFIX, network_tree, point_source
from bnncert.cli.options import (
    BallShape,
    PixelOptions,
    PixelScaleOptions,
    PointOptions,
    ScalingOptions,
    read_clip,
    read_rivals,
    read_scale,
)
from bnncert.errors import InputError
from bnncert.model.formats.images import is_image
from bnncert.model.formats.inputs import pick_point, split_key
from bnncert.model.network import Network
from bnncert.problem import Rivals
from bnncert.regions import Ball, ChangeNorm, L0Ball, Neighbourhood
from bnncert.regions.radii import (
    INPUT_UNITS,
    RADIUS_MEANING,
    VALUED,
    Radius,
    RadiusUnit,
    radius_in_px,
    read_radius,
    read_step,
)
from bnncert.report.picture import CounterexampleFile
from bnncert.results.instance import Balls
from bnncert.results.labelled_points import OWN, Data, in_network_units, read_data

if TYPE_CHECKING:
    from bnncert.results.rows import LabelSource

#: Pixels from which a radius in input units is pointed out.
LARGE = 64

PointT = TypeVar("PointT", bound=PointOptions)


@dataclass(frozen=True)
class CommandQuestion:
    """A network and the ball around a labelled point.

    `where` names the point in messages and files; `title` also states the number of points in its
    file.
    """

    network: Network
    region: Neighbourhood
    label: int
    labels: LabelSource
    rivals: Rivals
    where: str
    title: str
    #: The shape of the image that the point comes from, if the network states no shape.
    image_shape: tuple[int, ...] = ()
    #: The unit in which the radius was given.
    unit: RadiusUnit = INPUT_UNITS
    #: Lines for the user about the data.
    notes: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The question in one line."""
        return f"{self.title}: {self.label_text}, {self.ball_text}"

    def about(self, **settings: Any) -> dict[str, Any]:
        """Return the network and the point for JSON, and the settings of the question."""
        point = {"input": self.where, "labels": self.labels}
        return {**network_tree(self.network), **point, **settings}

    def counterexample_file(self, path: Path | None) -> CounterexampleFile | None:
        """Prepare the file of --save-counterexample; a wrong one is refused before the search."""
        return CounterexampleFile.around(path, self.network, self.region, self.image_shape)

    @property
    def label_text(self) -> str:
        """The label, with a note if it is the network's own answer."""
        own = " (the network's own answer)" if self.labels == "own" else ""
        return f"label {self.label}{own}"

    @property
    def ball(self) -> Ball | L0Ball:
        """The region of a command that takes balls only."""
        assert isinstance(self.region, Ball | L0Ball)
        return self.region

    @property
    def ball_text(self) -> str:
        """The ball, with its radius in the unit in which it was given."""
        ball = self.region
        return ball.describe(self.unit.text(ball.stated_radius))


def radius_option(
    text: str,
    network: Network,
    norm: ChangeNorm = "linf",
    clip: tuple[float, float] | None = None,
    option: str | None = None,
    name: str = "radius",
) -> tuple[float, RadiusUnit]:
    """Return a radius in input units and its own unit; `1.5px` is 1.5 pixel steps of the network.

    `name` is the name of the option.  Messages show `option`, its whole value, if `text` is only a
    part of it.
    """
    shown = text if option is None else option
    if norm in RADIUS_MEANING:
        try:
            return float(text), INPUT_UNITS
        except ValueError:
            raise InputError(
                f"--{name} is {shown!r}; --norm {norm} expects {RADIUS_MEANING[norm]}"
            ) from None
    radius = read_radius(text, name=name)
    if radius is None:
        raise InputError(_expected(name, shown))
    try:
        about = network, network.source, norm, clip
        return radius.in_units(*about), radius.unit_for(*about)
    except InputError as error:
        raise InputError(f"--{error}") from error


def large_radius(text: str, radius: float, network: Network, norm: str) -> list[str]:
    """Make a note on a radius in input units that is a large number of pixels, as a slip is."""
    pixels = radius_in_px(radius, norm, network.pixel_step)
    if pixels is None or pixels < LARGE or norm != "linf" or text.endswith(("px", "delta")):
        return []
    if network.pixel_step == 1:
        return []
    return [f"--radius {text} is {pixels:.6g} px; a radius in pixels is --radius {text}px"]


def grid_option(text: str) -> Radius:
    """Read --grid as it is written, because `1px` depends on the network."""
    step = read_step(text)
    if step is None:
        raise InputError(f"--grid is {text!r}; expected a step > 0, also as in 1px")
    return step


def balls_option(
    network: Network,
    norm: ChangeNorm,
    clip: tuple[float, float] | None,
    grid: str | None,
    within: str | None,
    value: float | None = None,
) -> tuple[Radius | None, Radius | None]:
    """Return the values of --grid and --within, after a check that they can be used."""
    step = None if grid is None else grid_option(grid)
    if value is not None and norm not in VALUED:
        raise InputError(f"--value belongs to --norm {', '.join(VALUED)}; the norm is {norm}")
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
    return f"--{name} is {text!r}; expected finite numbers >= 0, also as in 8/255, 1px or 0.25delta"


def chosen_point(
    network: Network, data: Data, text: str, source: str, index: int | None
) -> tuple[str, FloatArray]:
    """Return the name of a point in messages and files, and its values as the network reads them.

    `text` is the value of --input, and `source` the file or folder that it names.
    """
    data_box = None
    if network.input_lo is not None and network.input_hi is not None:
        data_box = (network.input_lo, network.input_hi)
    point = pick_point(data.array, index, network.input_shape, data_box, source)
    if index is None or text.startswith(PREFIX):
        return text, point
    return str(Path(source) / data.names[index]) if data.names else f"{source} [{index}]", point


def scaled_data(
    network: Network, source: str, labels: str | None, scaling: PixelScaleOptions
) -> tuple[Network, Data]:
    """Read points; return them with the network that reads their pixels in the stated scale."""
    scale = read_scale(scaling.scale, scaling.normalise)
    is_clipped = isinstance(scaling, PixelOptions) and scaling.clip is not None
    data = read_data(source, labels, network)
    return in_network_units(network, data, scale, is_clipped=is_clipped)


@dataclass(frozen=True, eq=False)
class AskedPoints:
    """The points that --input names, and what all balls around them have in common."""

    network: Network
    data: Data
    balls: Balls
    #: The radius of the balls; None for the whole data box.
    radius: float | None
    rivals: Rivals
    #: The value of --input, the file or folder that it names, and the index in it.
    text: str
    source: str
    index: int | None
    #: The value of --label.
    label: int | None
    #: The unit in which the radius was given.
    unit: RadiusUnit = INPUT_UNITS
    #: The values of --clip, --grid and --within.
    clip: tuple[float, float] | None = None
    grid: Radius | None = None
    within: Radius | None = None

    @property
    def is_folder(self) -> bool:
        """Whether the question is about all images of a folder."""
        return bool(self.data.names) and self.index is None

    def questions(self) -> Iterator[CommandQuestion]:
        """Yield the questions about all points."""
        for index in range(self.data.count(self.network)):
            yield self.question(index)

    def question(self, index: int | None) -> CommandQuestion:
        """Make the question about one point: its ball, its label and their names."""
        network, data = self.network, self.data
        where, centre = chosen_point(network, data, self.text, self.source, index)
        try:
            centre = self.balls.centre(centre)
            region = self.balls.around(centre, self.radius)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        label = data.label(index, network) if self.label is None else self.label
        labels: LabelSource = "own" if label is None else "given"
        if label is None:
            label = int(network.classify(centre)[0])
        count, named = data.count(network), self.text.startswith(PREFIX)
        title = where if count == 1 or named or data.names else f"{where} (of {count} points)"
        shape = data.image_shape if len(network.input_shape) == 1 else ()
        return CommandQuestion(
            *(network, region, label, labels, self.rivals, where, title),
            shape,
            self.unit,
            data.notes,
        )


def is_input(text: str) -> bool:
    """Whether the second argument of `verify` names points, and not a query."""
    file = split_key(text)[0]
    named = text.startswith(PREFIX) or text == PREFIX[:-1]
    arrays = (".npy", ".npz", ".csv")
    return named or is_image(file) or Path(file).suffix in arrays or Path(file).is_dir()


def with_argument(point: PointT) -> PointT:
    """Let --input be the input that is given as an argument instead."""
    text = point.place
    if text is None:
        return point
    if point.input_ is not None:
        raise InputError(f"{text} and --input {point.input_} both name the input; give one")
    return replace(point, place=None, input_=text)


def read_points(
    network: Network, point: PointOptions, shape: BallShape, scaling: ScalingOptions
) -> AskedPoints:
    """Read the points that the options name, and the balls around them."""
    clip = read_clip(scaling.clip)
    if point.input_ is None or (shape.radius is None and not shape.whole_box):
        missing = "--input" if point.input_ is None else "--radius"
        raise InputError(f"{missing} is missing; give --input and --radius, or a .vnnlib file")
    source, index = point_source(point.input_, point.index)
    if point.label is not None and point.labels is not None:
        raise InputError("--label and --labels both name the true class; give one")
    # If --label is given, the labels beside the points are not read.
    labels = point.labels if point.label is None else OWN
    network, data = scaled_data(network, source, labels, scaling)
    radius, unit = None, INPUT_UNITS
    if shape.radius is not None:
        radius, unit = radius_option(shape.radius, network, shape.norm, clip)
        notes = large_radius(shape.radius, radius, network, shape.norm)
        data = replace(data, notes=(*data.notes, *notes))
    grid, within = balls_option(network, shape.norm, clip, shape.grid, shape.within, shape.value)
    given: dict[str, Any] = {"grid": grid, "within": within, "value": shape.value}
    try:
        balls = Balls.of(network, network.source, shape.norm, clip, **given)
    except InputError as error:
        raise InputError(f"{point.input_}: {error}") from error
    rivals = read_rivals(scaling.rivals)
    return AskedPoints(
        *(network, data, balls, radius, rivals, point.input_, source, index, point.label),
        *(unit, clip, grid, within),
    )


def read_decision(
    network: Network,
    point: PointOptions,
    shape: BallShape,
    scaling: ScalingOptions,
    *,
    missing: str,
    several: str,
) -> CommandQuestion:
    """Return the question about one point; without a label it is about the network's own answer.

    `missing` and `several` end the messages about no point and about a folder.
    """
    if point.input_ is None:
        raise InputError(f"--input is missing; give {missing}")
    if point.label is None and point.labels is None:
        # The decision of the network is looked at, whether or not it is right.
        point = replace(point, labels=OWN)
    points = read_points(network, point, shape, scaling)
    if points.is_folder:
        raise InputError(f"{point.input_}: {several}; give --index")
    return points.question(points.index)


def read_question(
    network: Network, point: PointOptions, shape: BallShape, scaling: ScalingOptions
) -> CommandQuestion:
    """Return the ball around the one point that the options describe."""
    points = read_points(network, point, shape, scaling)
    return points.question(points.index)
