"""`bnncert compare`: two networks, the question, the answer as text and JSON, and its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bnncert.cli.answer_view import AnswerView, begin
from bnncert.cli.files import points_source
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallShape,
    CounterexampleOutputs,
    GridOption,
    LayersOption,
    MethodOption,
    PixelOptions,
    PointOptions,
    PrintOptions,
    RadiusOption,
    ScalingOptions,
    SeedOption,
    SignZeroOption,
    TimeoutOption,
    WithinOption,
    network_argument,
    point_option,
    read_clip,
    read_scale,
)
from bnncert.cli.time_limit import DEFAULT_LIMIT
from bnncert.errors import InputError
from bnncert.version import __version__

if TYPE_CHECKING:
    from bnncert.arrays import FloatArray
    from bnncert.model.network import Network
    from bnncert.questions.compare.comparison_answer import NetworkComparison
    from bnncert.regions import Box, Region
    from bnncert.report.picture import CounterexampleFile

#: Inputs of a data set with different classes that are listed on the terminal.
MOST_INPUTS = 10


@dataclass(frozen=True)
class TwoNetworksOptions(PixelOptions):
    """The inputs that count, and how two networks are compared."""

    input_: Annotated[
        str | None,
        point_option(
            "--input",
            "Centre of a ball, .npy, FILE.npz:KEY, an image file or demo:0 (default: all inputs of "
            "the data box count).",
        ),
    ] = None
    index: Annotated[int | None, "Which point of a batch."] = None
    norm: Annotated[
        Literal["linf", "l2", "l1", "l0"], "Norm of the ball; l0: at most --radius inputs change."
    ] = "linf"
    radius: RadiusOption = None
    within: WithinOption = None
    grid: GridOption = None
    data: Annotated[
        str | None,
        point_option(
            "--data",
            "Inputs whose classes are compared exactly, FILE.npz, FILE.npz:KEY, .npy or a folder "
            "of images; with --input, points to search from.",
        ),
    ] = None
    tolerance: Annotated[
        float,
        "Accept constants that differ by this share of their size, as 1e-6, and say near "
        "which ties the class may differ.",
    ] = 0.0
    sign_zero: SignZeroOption = None
    method: MethodOption = "auto"
    seed: SeedOption = 0
    timeout: TimeoutOption = DEFAULT_LIMIT

    @property
    def scaling(self) -> ScalingOptions:
        """The data box, how pixels enter, and all classes."""
        return ScalingOptions(self.scale, self.normalise, self.clip)


@dataclass(frozen=True, eq=False)
class _Question:
    """The region and the given inputs; `title` names them, and `region` may be the data box."""

    region: Region | None
    inputs: FloatArray | None
    title: str
    image_shape: tuple[int, ...] = ()


@grouped
def compare(
    *,
    ctx: typer.Context,
    first: Annotated[Path, network_argument("first", "A network, called A.")],
    second: Annotated[Path, network_argument("second", "Another network, called B.")],
    layers: LayersOption = None,
    options: TwoNetworksOptions,
    outputs: CounterexampleOutputs,
    printing: PrintOptions,
) -> None:
    """Compare two networks; exit code 1 if they differ."""
    from bnncert.engine.methods import Options
    from bnncert.model.formats.file_content import check_regular
    from bnncert.model.formats.model_files import takes_layers
    from bnncert.model.loading import load
    from bnncert.questions.compare.compare import compare as compare_networks
    from bnncert.results.store import is_database

    files = first, second
    for file in files:
        check_regular(file)
        if is_database(file):
            raise InputError(f"{file}: not a network; bnncert diff compares two results files")
    read = (*files, layers, options.input_, options.data)
    consoles = begin(ctx, printing, outputs, read, options.method)
    settings = Options(processes=0, seed=options.seed).check({"seed": "--seed"})
    a, b = (load(file, layers if layers and takes_layers(file) else None) for file in files)
    scale = read_scale(options.scale, options.normalise)
    if scale is not None:
        a, b = scale.on(a), scale.on(b)
    question = _question(ctx, a, options)
    saved = _saved(outputs.save_counterexample, a, question)
    about = partial(_about, a, b, question.region, options)
    _ComparisonView(consoles, outputs, about, saved).ask(
        ctx,
        f"A = {first.name}, B = {second.name}: {question.title}",
        options.timeout,
        partial(
            compare_networks,
            *(a, b, question.region),
            inputs=question.inputs,
            sign_zero=options.sign_zero,
            tolerance=options.tolerance,
            method=options.method,
            options=settings,
        ),
    )


def _question(ctx: typer.Context, network: Network, options: TwoNetworksOptions) -> _Question:
    """Read what is compared: a ball around --input, the rows of --data alone, or a box."""
    from bnncert.cli.command_question import read_question
    from bnncert.cli.grouping import refuse_without
    from bnncert.results.labelled_points import OWN

    inputs = None if options.data is None else _read_inputs(network, options)
    if options.input_ is None:
        refuse_without(ctx, "input_", ("radius", "index", "norm", "within"))
        if inputs is not None and options.grid is None and options.clip is None:
            return _Question(None, inputs, f"{inputs.shape[0]} inputs of {options.data}")
        region = _box(network, options)
        title = "the data box" if region is None else region.describe()
        return _Question(region, inputs, title)
    point = PointOptions(input_=options.input_, index=options.index, labels=OWN)
    shape = BallShape(options.norm, options.radius, options.within, options.grid)
    if options.radius is None:
        raise InputError("--radius is missing; give --input and --radius, or neither")
    asked = read_question(network, point, shape, options.scaling)
    return _Question(asked.ball, inputs, f"{asked.title}, {asked.ball_text}", asked.image_shape)


def _box(network: Network, options: TwoNetworksOptions) -> Box | None:
    """Return the box of --clip and --grid; None for the data box of both networks."""
    import numpy as np

    from bnncert.cli.command_question import grid_option
    from bnncert.regions import Box
    from bnncert.results.instance import Balls

    clip = read_clip(options.clip)
    if options.grid is None:
        if clip is None:
            return None
        return Box(np.full(network.inputs, clip[0]), np.full(network.inputs, clip[1]))
    step = grid_option(options.grid)
    try:
        balls = Balls.of(network, network.source, "linf", clip, grid=step)
    except InputError as error:
        raise InputError(f"--grid is {options.grid!r}: {error}") from error
    if balls.lo is None or balls.hi is None:
        raise InputError(f"{network.source}: the network states no data box; give --clip LO HI")
    lo, hi = (np.broadcast_to(v, (network.inputs,)) for v in (balls.lo, balls.hi))
    return Box(lo, hi, balls.grid)


def _read_inputs(network: Network, options: TwoNetworksOptions) -> FloatArray:
    """Read all points of --data, one row each, in the scale of the network."""
    import numpy as np

    from bnncert.cli.command_question import chosen_point, scaled_data
    from bnncert.results.labelled_points import OWN

    assert options.data is not None
    source = points_source(options.data)
    _, data = scaled_data(network, source, OWN, options)
    count = data.count(network)
    numbers = [None] if count == 1 else range(count)
    return np.stack([chosen_point(network, data, source, source, k)[1] for k in numbers])


def _saved(path: Path | None, network: Network, question: _Question) -> CounterexampleFile | None:
    """Return the file for an input at which the networks differ, if one is named."""
    from bnncert.report.picture import CounterexampleFile

    ball = question.region
    if ball is None or ball.norm is None:
        ball = None
        if path is not None and path.suffix.lower() == ".png":
            raise InputError(
                f"{path}: a picture shows the input beside the centre of a ball; give --input and "
                "--radius, or name a .npy file"
            )
    return CounterexampleFile.around(path, network, ball, question.image_shape)


def _about(
    first: Network, second: Network, region: Region | None, options: TwoNetworksOptions
) -> dict[str, Any]:
    """State both networks, as they are compared, and the inputs that count."""
    both = first.with_sign_zero(options.sign_zero), second.with_sign_zero(options.sign_zero)
    return {
        "bnncert": __version__,
        "models": [network.source for network in both],
        "network_hashes": [network.content_hash for network in both],
        "sign_zero": [network.sign_zero for network in both],
        "region": None if region is None else region.to_dict(),
        "data": options.data,
        "method": options.method,
        "tolerance": options.tolerance,
        "seed": options.seed,
    }


@dataclass(frozen=True, eq=False)
class _ComparisonView(AnswerView["NetworkComparison"]):
    """Prints a comparison."""

    saved: CounterexampleFile | None

    def print_answer(self, found: NetworkComparison) -> None:
        """Print the layers, the inputs with different classes, the answer and remarks."""
        from bnncert.report.plain_table import plain_table

        consoles, table = self.consoles, found.table()
        left = table.heads[: table.left]
        consoles.details.print(plain_table(*table.heads, left=left, rows=table.rows))
        if found.first_difference:
            consoles.details.say(f"first difference: {found.first_difference}")
        consoles.answer.say(found.heading)
        consoles.details.notes(found.notes)
        self._print_inputs(found)
        if consoles.verbose and found.difference is not None:
            for name, scores in zip("AB", found.difference.scores, strict=True):
                text = ", ".join(f"{score:.6g}" for score in scores.tolist())
                consoles.details.say(f"scores of {name} at the input: {text}")

    def _print_inputs(self, found: NetworkComparison) -> None:
        """Print the first inputs of --data with different classes."""
        given, console = found.inputs, self.consoles.details
        if given is None:
            return
        for k in range(min(MOST_INPUTS, given.differing.size)):
            classes = f"class {given.first[k]} of A, {given.second[k]} of B"
            console.say(f"input {given.differing[k]}: {classes}")
        rest = given.differing.size - MOST_INPUTS
        if rest > 0:
            console.say(f"{rest} more; --json FILE lists all")

    def no_proof(self, found: NetworkComparison) -> str:
        """Point to the notes, which explain an answer without a certificate."""
        return "there is no answer" if found.status in ("unknown", "timeout") else "see the notes"

    def written(self, found: NetworkComparison, *, is_interrupted: bool) -> Iterator[str]:
        """Write the input at which the networks differ."""
        if self.saved is not None and not is_interrupted:
            shown = None if found.difference is None else found.difference.as_counterexample()
            yield self.saved.write(shown)
