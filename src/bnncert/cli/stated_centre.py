"""The centre of a certificate: compared with an input, and drawn (`check --input`, `--picture`)."""

from __future__ import annotations

from collections.abc import Callable

from bnncert.arrays import FloatArray
from bnncert.cli.bundled_names import point_source
from bnncert.cli.command_question import chosen_point, scaled_data
from bnncert.cli.consoles import PlainConsole
from bnncert.cli.options import PixelScaleOptions
from bnncert.errors import InputError
from bnncert.model.network import Network


def read_checked_input(
    network: Network, text: str, index: int | None, scaling: PixelScaleOptions
) -> tuple[str, FloatArray]:
    """Return the name and the values of the input that --input and --index name."""
    from bnncert.results.labelled_points import OWN

    source, index = point_source(text, index)
    network, data = scaled_data(network, source, OWN, scaling)
    if data.names and index is None:
        raise InputError(f"{text}: a certificate is about one image; give --index")
    return chosen_point(network, data, text, source, index)


def compare_centre(centre: FloatArray, where: str, point: FloatArray) -> str:
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


def centre_picture(network: Network, centre: FloatArray) -> Callable[[bool], None]:
    """Return what prints the centre, to stderr or not; raise InputError if it is no picture."""
    import numpy as np

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
            console.print(line, soft_wrap=True)

    return draw
