"""A point, a norm and a radius from the command line, made one question."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.batch.labelled_points import OWN, read_data
from bnncert.batch.store import LabelSource
from bnncert.commands.options import read_targets
from bnncert.description.model import SignZero
from bnncert.errors import InputError
from bnncert.formats.inputs import pick_point
from bnncert.network import Network, load
from bnncert.network.pixel_scale import PixelScale
from bnncert.problem import Targets
from bnncert.regions import Ball, Norm, Region


@dataclass(frozen=True)
class Question:
    """What the options of verify and bound have in common.

    `where` names the point in messages and files, `title` also says of how many it is one.
    """

    network: Network
    region: Region
    label: int
    labels: LabelSource
    targets: Targets
    where: str
    title: str

    @property
    def label_text(self) -> str:
        """The label, and whether it is only what the network says."""
        own = " (the network's own answer)" if self.labels == "own" else ""
        return f"label {self.label}{own}"


def read_network(model: Path, sign_zero: SignZero | None) -> Network:
    """Return the network in a file, with the sign(0) that was asked for."""
    network = load(model)
    return network if sign_zero is None else network.with_sign_zero(sign_zero)


def read_radius(text: str, network: Network, option: str | None = None) -> float:
    """Return a radius in input units; `1.5px` is that many of the network's pixel steps.

    Messages show `option`, all that was given, where `text` is only a part of it.
    """
    shown = text if option is None else option
    number, pixels = text.strip(), False
    if number.endswith("px"):
        number, pixels = number[:-2], True
    try:
        radius = float(number)
    except ValueError:
        radius = -1.0
    if not 0 <= radius < np.inf:
        raise InputError(
            f"--radius is {shown!r}; expected finite numbers >= 0, or pixels as in 1px"
        )
    if not pixels:
        return radius
    if network.pixel_step is None:
        raise InputError(
            f"--radius is {shown!r}, but {network.source} does not say how large a pixel step is "
            "(pixel_step); give --scale, or the radius in input units"
        )
    return radius * network.pixel_step


def read_question(
    network: Network,
    source: str | None,
    index: int | None,
    label: int | None,
    labels: str | None,
    norm: Norm,
    radius: str | None,
    clip: tuple[float, float] | None,
    targets: str,
    scale: PixelScale | None = None,
) -> Question:
    """Return the ball around a point that the options describe."""
    network = network if scale is None else scale.on(network)
    if source is None or radius is None:
        missing = "--input" if source is None else "--radius"
        raise InputError(f"{missing} is missing; give --input and --radius, or a .vnnlib file")
    data_box = None
    if network.input_lo is not None and network.input_hi is not None:
        data_box = (network.input_lo, network.input_hi)
    if label is not None and labels is not None:
        raise InputError("--label and --labels both name the true class; give one")
    # A label that is given needs no other, so none is looked for.
    data = read_data(source, labels if label is None else OWN)
    data = data if scale is None else data.as_pixels()
    array = data.array
    point = pick_point(array, index, network.input_shape, data_box, source)
    lo: Any = network.input_lo if clip is None else clip[0]
    hi: Any = network.input_hi if clip is None else clip[1]
    if clip is not None and not -np.inf < clip[0] <= clip[1] < np.inf:
        raise InputError(f"--clip is {clip[0]} {clip[1]}; expected finite numbers LO <= HI")
    size = read_radius(radius, network)
    where = source if index is None else f"{source} [{index}]"
    try:
        region = Ball(norm, point, size, lo, hi)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    chosen = data.label(index, network) if label is None else label
    source_of_label: LabelSource = "own" if chosen is None else "given"
    if chosen is None:
        chosen = int(network.classify(point)[0])
    count = data.count(network)
    title = where if count == 1 else f"{where} (of {count} points)"
    return Question(network, region, chosen, source_of_label, read_targets(targets), where, title)
