"""`bnncert convert`: the same network in another file format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.files import refuse_unwritable
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    LayersOption,
    ModelArgument,
    PixelScaleOptions,
    SignZeroOption,
    read_scale,
)
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically


@grouped
def convert(
    source: ModelArgument,
    target: Annotated[Path, typer.Argument(help="File to write: .npz, .json or .onnx.")],
    sign_zero: SignZeroOption = None,
    layers: LayersOption = None,
    clip: Annotated[
        tuple[float, float] | None,
        "Write an ONNX graph with its inputs clipped to LO HI, the data box: for "
        "graphs that round their inputs.",
    ] = None,
    grid: Annotated[
        str | None,
        "1px: the network for pixels 0 to 255, whose first layer has integer thresholds, "
        "too; it is the same at all pixels.",
    ] = None,
    *,
    scaling: PixelScaleOptions,
) -> None:
    """Convert a network file; the result is the same network, threshold by threshold."""
    from bnncert.cli.command_question import grid_option
    from bnncert.cli.consoles import PlainConsole
    from bnncert.model.loading import load
    from bnncert.model.pixel_levels import on_pixels

    refuse_unwritable(target, read=(source, layers))
    if clip is not None:
        others = (layers, sign_zero, grid, scaling.scale, scaling.normalise)
        if target.suffix != ".onnx" or any(other is not None for other in others):
            raise InputError(
                "--clip only adds a Clip to an ONNX graph: name a target .onnx, without "
                "other options"
            )
        PlainConsole().say(f"{target}: {_clipped(source, target, clip)}")
        return
    network = load(source, layers).with_sign_zero(sign_zero)
    scale = read_scale(scaling.scale, scaling.normalise)
    network = network if scale is None else scale.on(network)
    if grid is not None:
        if grid_option(grid).text != "1 px":
            raise InputError(f"--grid is {grid!r}; convert takes 1px, all integer pixels")
        network = on_pixels(network)

    def check(written: Path) -> None:
        if load(written).content_hash != network.content_hash:
            raise InputError(f"{target}: not written; it would read back as another network")

    network.save(target, check)
    PlainConsole().say(f"{target}: {network.content_hash}")


def _clipped(source: Path, target: Path, bounds: tuple[float, float]) -> str:
    """Write a graph with clipped inputs, if it can be read; return the hash of its network."""
    # Imported on use: importing onnx takes half a second.
    from bnncert.model.formats.onnx.reader import read_onnx
    from bnncert.model.formats.onnx.writer import clipped_graph
    from bnncert.model.network import Network

    content = clipped_graph(source, *bounds)
    network = Network.from_description(read_onnx(content, str(source)))
    write_atomically(target, content)
    return network.content_hash
