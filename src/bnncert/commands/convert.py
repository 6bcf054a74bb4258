"""`bnncert convert`: the same network in another file format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnncert.commands.console import PlainConsole
from bnncert.commands.options import ModelArgument, SignZeroOption
from bnncert.commands.output import refuse_unwritable
from bnncert.errors import InputError
from bnncert.network import load


def convert(
    source: ModelArgument,
    target: Annotated[Path, typer.Argument(help="File to write: .npz, .json or .onnx.")],
    sign_zero: SignZeroOption = None,
    layers: Annotated[
        Path | None,
        typer.Option(
            "--layers",
            help="JSON file with the layers of a PyTorch checkpoint or of Keras weights.",
        ),
    ] = None,
    clip_inputs: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--clip-inputs",
            help="Clip the inputs of an ONNX graph to LOW HIGH first, and make this the data box: "
            "for graphs that round their inputs.",
        ),
    ] = None,
) -> None:
    """Convert a network file; the result is the same network, threshold by threshold."""
    refuse_unwritable(target, read=(source, layers))
    network = load(source, layers, clip_inputs=clip_inputs).with_sign_zero(sign_zero)

    def check(written: Path) -> None:
        if load(written).content_hash != network.content_hash:
            raise InputError(f"{target}: not written; it would read back as another network")

    network.save(target, check)
    PlainConsole().print(f"{target}: {network.content_hash}", soft_wrap=True)
