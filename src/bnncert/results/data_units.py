"""How the numbers of a data file enter a network, with a line about numbers that look wrong.

8-bit pixels 0 and 255 become the ends of the data box, or of the scale that the user states; other
numbers enter as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.errors import FormatError
from bnncert.model.network import Network
from bnncert.regions.radii import WHITE, PixelScale
from bnncert.results.labelled_points import Data

#: The least number of inputs of what is taken for an image.
IMAGE_INPUTS = 64

#: Numbers that exceed the data box by this factor, up to 255, are taken for pixels.
FAR = 8


def in_network_units(
    network: Network, data: Data, scale: PixelScale | None = None, *, is_clipped: bool = False
) -> tuple[Network, Data]:
    """Give the network the pixel step of 8-bit data, and the data a note if they look wrong.

    With a clip the data box of the network does not count, so nothing is compared with it.

    Raises FormatError for pixels in floats, of which hardly any ball meets the data box.
    """
    lo, hi = network.input_lo, network.input_hi
    if scale is not None:
        return scale.on(network), data.as_pixels()
    if lo is None or hi is None or is_clipped:
        return network, data
    if data.array.dtype == np.uint8:
        (*other, width) = set((hi - lo).tolist())
        if network.pixel_step is None and not other and width > 0:
            network = replace(network, pixel_step=width / WHITE)
        return network, data
    notes = _doubts(data, float(lo.min()), float(hi.max()), is_image=network.inputs >= IMAGE_INPUTS)
    return network, replace(data, notes=(*data.notes, *notes))


def _doubts(data: Data, lo: float, hi: float, *, is_image: bool) -> list[str]:
    """Compare the numbers with the data box [lo, hi]."""
    least, most = float(data.array.min()), float(data.array.max())
    held = f"{data.where}: holds {data.array.dtype} numbers from {least:g} to {most:g}"
    box = f"the network's data box is [{lo:g}, {hi:g}]"
    if least >= 0 and FAR * max(abs(lo), abs(hi)) < most <= WHITE + 1:
        way = f"give --scale {lo:g} {hi:g}"
        if not np.all(data.array == np.round(data.array)):
            way = f"round them and give --scale {lo:g} {hi:g}, or map them to the data box"
        raise FormatError(f"{held}, and {box}; if they are pixels, {way}")
    if is_image and least >= 0 and 0.5 < most <= 1 and lo <= -0.5:
        return [f"{held}, and {box}; if 0 is black, give 2 x - 1, or 8-bit pixels"]
    return []
