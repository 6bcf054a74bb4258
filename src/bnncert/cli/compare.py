"""`bnncert compare`: two networks, the question, the answer as text and JSON, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bnncert.arrays import FloatArray
from bnncert.cli.bundled_names import NETWORKS, POINTS, model_file, points_source
from bnncert.cli.command_question import grid_option, read_question
from bnncert.cli.completion import among
from bnncert.cli.consoles import Consoles
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallNormOption,
    BallShape,
    CertificateOption,
    GridOption,
    JsonOption,
    MethodOption,
    PixelOptions,
    PointOptions,
    PrintOptions,
    RadiusOption,
    SaveCounterexampleOption,
    ScalingOptions,
    SeedOption,
    SignZeroOption,
    TimeoutOption,
    WithinOption,
    read_clip,
    read_scale,
)
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import watch
from bnncert.cli.time_limit import DEFAULT_LIMIT, finite_limit, limit_text, remaining
from bnncert.cli.unused import refuse_unread, refuse_without
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import Options
from bnncert.errors import InputError
from bnncert.model.formats.file_content import check_regular
from bnncert.model.formats.inputs import pick_point
from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.questions.compare.compare import compare as compare_networks
from bnncert.questions.compare.comparison_answer import NetworkComparison
from bnncert.regions import Box, Region
from bnncert.report.picture import CounterexampleFile, check_suffix
from bnncert.report.plain_table import plain_table
from bnncert.results.balls import Balls
from bnncert.results.labelled_points import OWN, read_data
from bnncert.results.store import is_database
from bnncert.version import __version__

#: Inputs of a data set with different classes that are listed on the terminal.
MOST_INPUTS = 10


@dataclass(frozen=True)
class TwoNetworksOptions(PixelOptions):
    """The inputs that count, and how two networks are compared."""

    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Centre of a ball, .npy, FILE.npz:KEY, an image file or demo:0 "
            "(default: all inputs of the data box count).",
            autocompletion=among(POINTS, files=True),
        ),
    ] = None
    index: Annotated[int | None, typer.Option("--index", help="Which point of a batch.")] = None
    norm: BallNormOption = "linf"
    radius: RadiusOption = None
    within: WithinOption = None
    grid: GridOption = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Inputs whose classes are compared exactly, FILE.npz, FILE.npz:KEY, "
            ".npy or a folder of images; with --input, points to search from.",
            autocompletion=among(POINTS, files=True),
        ),
    ] = None
    sign_zero: SignZeroOption = None
    method: MethodOption = "auto"
    seed: SeedOption = 0
    timeout: TimeoutOption = DEFAULT_LIMIT
    certificate: CertificateOption = None
    save_counterexample: SaveCounterexampleOption = None

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
    first: Annotated[
        Path,
        typer.Argument(
            parser=model_file,
            metavar="first",
            help="A network, called A.",
            autocompletion=among(tuple(NETWORKS), files=True),
        ),
    ],
    second: Annotated[
        Path,
        typer.Argument(
            parser=model_file,
            metavar="second",
            help="Another network, called B.",
            autocompletion=among(tuple(NETWORKS), files=True),
        ),
    ],
    options: TwoNetworksOptions,
    json_: JsonOption = None,
    printing: PrintOptions,
) -> None:
    """Compare two networks; exit code 1 if they differ."""
    files = first, second
    for file in files:
        check_regular(file)
        if is_database(file):
            raise InputError(f"{file}: not a network; bnncert diff compares two results files")
    consoles = Consoles.of(ctx, printing, stderr=json_ == "-")
    refuse_unread(ctx, options.method)
    outputs = (options.certificate, options.save_counterexample, json_path(json_))
    refuse_unwritable(*outputs, read=(*files, options.input_, options.data))
    settings = Options(processes=0, seed=options.seed).check({"seed": "--seed"})
    a, b = (load(file) for file in files)
    scale = read_scale(options.scale, options.normalise)
    if scale is not None:
        a, b = scale.on(a), scale.on(b)
    question = _question(ctx, a, options)
    saved = _saved(options.save_counterexample, a, question)
    names = f"A = {files[0].name}, B = {files[1].name}"
    title = f"{names}: {question.title}; {limit_text(ctx, options.timeout)}"
    opening = consoles.details.later(title)
    tree = _about(a, b, question.region, options)
    with watch(consoles.watching, finite_limit(options.timeout), opening) as progress:
        try:
            result = compare_networks(
                a,
                b,
                question.region,
                inputs=question.inputs,
                sign_zero=options.sign_zero,
                method=options.method,
                timeout=remaining(options.timeout),
                options=settings,
                progress=progress,
                certificate=options.certificate,
            )
        except Interrupted as stop:
            progress.open()
            with progress.paused():
                _show(consoles, stop.answer)
                consoles.details.print("interrupted: the comparison is not finished")
            write_json(json_, {**tree, **stop.answer.to_dict(), "interrupted": True})
            raise
        progress.open()
    _show(consoles, result)
    if saved is not None:
        found = result.difference
        written = saved.write(None if found is None else found.as_counterexample())
        consoles.details.print(written, soft_wrap=True)
    if options.certificate is not None:
        _show_certificate(consoles, result)
    write_json(json_, {**tree, **result.to_dict()})
    if result.status == "different":
        raise typer.Exit(1)


def _question(ctx: typer.Context, network: Network, options: TwoNetworksOptions) -> _Question:
    """Return the inputs that the options name."""
    inputs = None if options.data is None else _read_inputs(network, options)
    if options.input_ is None:
        refuse_without(ctx, "input_", ("radius", "index", "norm", "within"))
        if inputs is not None and options.grid is None and options.clip is None:
            return _Question(None, inputs, f"{inputs.shape[0]} inputs of {options.data}")
        region = _box(network, options)
        title = "the data box" if region is None else region.describe()
        return _Question(region, inputs, title)
    point = PointOptions(options.input_, options.index, labels=OWN)
    shape = BallShape(options.norm, options.radius, options.within, options.grid)
    if options.radius is None:
        raise InputError("--radius is missing; give --input and --radius, or neither")
    asked = read_question(network, point, shape, options.scaling)
    return _Question(asked.ball, inputs, f"{asked.title}, {asked.ball_text}", asked.image_shape)


def _box(network: Network, options: TwoNetworksOptions) -> Box | None:
    """Return the box of --clip and --grid; None for the data box of both networks."""
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
    """Return all points of --data, one row each."""
    assert options.data is not None
    source = points_source(options.data)
    data = read_data(source, OWN, network)
    if read_scale(options.scale, options.normalise) is not None:
        data = data.as_pixels()
    box = None
    if network.input_lo is not None and network.input_hi is not None:
        box = network.input_lo, network.input_hi
    count, shape = data.count(network), network.input_shape
    rows = [
        pick_point(data.array, None if count == 1 else k, shape, box, source) for k in range(count)
    ]
    return np.stack(rows)


def _saved(path: Path | None, network: Network, question: _Question) -> CounterexampleFile | None:
    """Return the file for an input at which the networks differ, if one is named."""
    if path is None:
        return None
    ball = question.region
    if ball is not None and ball.norm is not None:
        return CounterexampleFile.around(
            path, network, ball.middle, ball.clip_lo, ball.clip_hi, question.image_shape
        )
    check_suffix(path)
    if path.suffix.lower() == ".png":
        raise InputError(
            f"{path}: a picture shows the input beside the centre of a ball; give --input and "
            "--radius, or name a .npy file"
        )
    return CounterexampleFile(path, network.input_shape)


def _about(
    first: Network, second: Network, region: Region | None, options: TwoNetworksOptions
) -> dict[str, Any]:
    """Return the question for JSON."""
    both = first.with_sign_zero(options.sign_zero), second.with_sign_zero(options.sign_zero)
    return {
        "bnncert": __version__,
        "models": [network.source for network in both],
        "network_hashes": [network.content_hash for network in both],
        "sign_zero": [network.sign_zero for network in both],
        "region": None if region is None else region.to_dict(),
        "data": options.data,
        "method": options.method,
        "seed": options.seed,
    }


def _show(consoles: Consoles, result: NetworkComparison) -> None:
    """Print the layers, the inputs with different classes, the answer and remarks."""
    table = result.table()
    shown = plain_table(*table.heads, left=table.heads[: table.left])
    for row in table.rows:
        shown.add_row(*row)
    consoles.details.print(shown)
    if result.first_difference:
        consoles.details.print(f"first difference: {result.first_difference}", soft_wrap=True)
    consoles.answer.print(result.heading, soft_wrap=True)
    for note in result.notes:
        consoles.details.print(f"note: {note}", soft_wrap=True)
    found = result.inputs
    if found is not None and found.differing.size:
        for k in range(min(MOST_INPUTS, found.differing.size)):
            classes = f"class {found.first[k]} of A, {found.second[k]} of B"
            consoles.details.print(f"input {found.differing[k]}: {classes}", soft_wrap=True)
        rest = found.differing.size - MOST_INPUTS
        if rest > 0:
            consoles.details.print(f"{rest} more; --json FILE lists all", soft_wrap=True)
    if consoles.verbose and result.difference is not None:
        for name, scores in zip("AB", result.difference.scores, strict=True):
            text = ", ".join(f"{score:.6g}" for score in scores.tolist())
            consoles.details.print(f"scores of {name} at the input: {text}", soft_wrap=True)


def _show_certificate(consoles: Consoles, result: NetworkComparison) -> None:
    """Print where the certificate is, or that there is none."""
    if result.certificate is not None:
        size = Path(result.certificate).stat().st_size
        consoles.details.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
    else:
        why = "there is no answer" if result.status in ("unknown", "timeout") else "see the notes"
        consoles.details.print(f"no certificate: {why}")
