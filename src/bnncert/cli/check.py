"""`bnncert check`: whether a certificate is accepted.

The check of a small certificate takes less time than importing SciPy or rich, so neither is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bnncert.cli.exit_codes import ExitCode
from bnncert.cli.files import json_path, model_file, point_source, refuse_unwritable, write_json
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    IndexOption,
    JsonOption,
    LayersOption,
    PixelScaleOptions,
    point_option,
)
from bnncert.errors import FormatError, InputError, MissingFileError

if TYPE_CHECKING:
    from bnncert.arrays import FloatArray
    from bnncert.kernel import Report
    from bnncert.model.network import Network


@dataclass(frozen=True)
class CheckedInput(PixelScaleOptions):
    """The input that a certificate should be about."""

    input_: Annotated[
        str | None,
        point_option(
            "--input",
            "The input that has to be the certificate's centre: .npy, FILE.npz:KEY, an image file, "
            "or a bundled image as in demo:0.",
        ),
    ] = None
    index: IndexOption = None


@grouped
def check(
    *,
    certificate: Annotated[Path, typer.Argument(help="Certificate that verify wrote.")],
    models: Annotated[
        list[Path],
        typer.Option(
            "--model",
            parser=model_file,
            metavar="<path>",
            help="The network file it is about; once more for the second one of two.",
        ),
    ],
    layers: LayersOption = None,
    sign_zero: Annotated[
        Literal["plus", "minus", "either"] | None,
        "Value of sign(0) that the certificate is to hold for (default: the model's).",
    ] = None,
    timeout: Annotated[float | None, "Seconds after which it is rejected."] = None,
    point: CheckedInput,
    picture: Annotated[bool, "Draw the certificate's centre, if it is an image."] = False,
    json_: JsonOption = None,
) -> None:
    """Check a certificate in exact arithmetic: exit code 0 accepted, 1 rejected, 2 unreadable."""
    from bnncert.kernel import RejectedError, UnreadableError
    from bnncert.kernel import check as check_certificate
    from bnncert.model.formats.file_content import check_regular
    from bnncert.model.formats.model_files import takes_layers
    from bnncert.model.loading import load

    refuse_unwritable(json_path(json_), read=(certificate, *models, layers, point.input_))
    if len(models) > 2:
        raise InputError(f"--model is given {len(models)} times; a certificate is about 1 or 2")
    model, other = models[0], models[1] if len(models) == 2 else None
    if timeout is not None and not timeout > 0:
        raise InputError(f"--timeout is {timeout}; expected a number of seconds > 0")
    check_regular(certificate)
    to_stderr = json_ == "-"
    # Of two networks, the layers are those of the one that has weights only.
    own = layers if other is None or (layers and takes_layers(model)) else None
    network = load(model, own)
    second = None if other is None else load(other, layers if own is None else None)
    asked = None if point.input_ is None else _read_input(network, point)
    if asked is None and point.index is not None:
        raise InputError("--index is given without --input")
    tree: dict[str, Any] = {"certificate": str(certificate), "model": str(model)}
    if other is not None:
        tree["other"] = str(other)
    if asked is not None:
        tree["input"] = asked[0]
    remark, draw = "", None
    try:
        report = check_certificate(
            certificate, network, other=second, sign_zero=sign_zero, timeout=timeout
        )
        if asked is not None:
            remark = _compare_centre(_centre(certificate, report, "--input"), *asked)
        if picture:
            draw = _centre_picture(network, _centre(certificate, report, "--picture"))
    except UnreadableError as error:
        raise FormatError(f"{certificate}: {error}") from error
    except MissingFileError:
        raise
    except OSError as error:
        raise FormatError(f"{certificate}: {error.strerror or error}") from error
    except RejectedError as error:
        typer.echo(f"rejected: {error}", err=to_stderr)
        write_json(json_, tree | {"accepted": False, "reason": str(error)})
        raise typer.Exit(ExitCode.FAILS) from error
    typer.echo(f"accepted: {report.statement}", err=to_stderr)
    counts = f"{report.targets} targets, {report.clauses} clauses, {report.leaves} leaves"
    if not report.targets:
        # The claim has no parts.
        counts = "computed again by the checker"
    typer.echo(f"{counts}, {report.seconds:.2f} s", err=to_stderr)
    if remark:
        typer.echo(remark, err=to_stderr)
    if draw is not None:
        draw(to_stderr)
    told = asdict(report)
    # The centre is in the certificate; its hash is told.
    del told["centre"]
    write_json(json_, tree | {"accepted": True} | told)


def _read_input(network: Network, point: CheckedInput) -> tuple[str, FloatArray]:
    """Return the name and the values of the input that --input and --index name."""
    from bnncert.cli.command_question import chosen_point, scaled_data
    from bnncert.results.labelled_points import OWN

    text = str(point.input_)
    source, index = point_source(text, point.index)
    network, data = scaled_data(network, source, OWN, point)
    if data.names and index is None:
        raise InputError(f"{text}: a certificate is about one image; give --index")
    return chosen_point(network, data, text, source, index)


def _centre(certificate: Path, report: Report, option: str) -> FloatArray:
    """Take the centre to compare or draw; a certificate about a box has none."""
    if report.centre is None:
        region = next((k for k in ("box", "polytope") if k in report.about), "")
        what = f"a {region}" if region else "all inputs"
        raise InputError(f"{certificate}: it is about {what} and has no centre; leave out {option}")
    return report.centre


def _compare_centre(centre: FloatArray, where: str, point: FloatArray) -> str:
    """Return a sentence that the input is the centre; raise RejectedError if it is another one.

    Regions of grid points and of changed pixels have centres of float32 numbers, as `bnncert
    verify` reads their inputs.
    """
    import numpy as np

    from bnncert.kernel import RejectedError

    if np.array_equal(centre, point):
        return f"the centre is {where}"
    if np.array_equal(centre, point.astype(np.float32)):
        return f"the centre is {where}, rounded to float32 numbers"
    different = np.flatnonzero(centre != point)
    first = int(different[0])
    raise RejectedError(
        f"it is about another input than {where}: {different.size} of {centre.size} values differ, "
        f"the first at input {first}: {float(centre[first])!r} in the certificate, "
        f"{float(point[first])!r} in {where}"
    )


def _centre_picture(network: Network, centre: FloatArray) -> Callable[[bool], None]:
    """Return what prints the centre, to stderr or not; raise InputError if it is no picture."""
    import numpy as np

    from bnncert.cli.consoles import PlainConsole
    from bnncert.report.picture import grey_lines, requested_image

    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = centre.min(), centre.max()
    scaled = (centre - lo) / np.maximum(hi - lo, 1e-300)
    image = requested_image(scaled, network.input_shape, "--picture")

    def draw(stderr: bool) -> None:
        console = PlainConsole(stderr=stderr)
        colour = console.is_terminal and console.color_system is not None
        for line in grey_lines(image, colour=colour):
            console.say(line)

    return draw
