"""The map from pixels (0 to 255) to inputs, for networks that do not state it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.network import Network

#: The largest pixel.
WHITE = 255


@dataclass(frozen=True)
class PixelScale:
    """The inputs of pixel 0 and of pixel 255, for all channels or one for each channel."""

    lo: tuple[float, ...]
    hi: tuple[float, ...]

    @staticmethod
    def between(lo: float, hi: float) -> PixelScale:
        """Return the scale from lo (pixel 0) to hi (pixel 255)."""
        if not -np.inf < lo < hi < np.inf:
            raise InputError(f"scale is {lo:g} {hi:g}; expected finite numbers LO < HI")
        return PixelScale((float(lo),), (float(hi),))

    @staticmethod
    def normalised(mean: Sequence[float], std: Sequence[float]) -> PixelScale:
        """Return the scale (pixel / 255 - mean) / std; a single number is used for all channels."""
        count = max(len(mean), len(std))
        if not mean or not std or any(len(x) not in (1, count) for x in (mean, std)):
            raise InputError(
                f"mean has {len(mean)} and std {len(std)} values; expected one or as many as "
                "there are channels"
            )
        if not np.all(np.isfinite(mean)):
            raise InputError(f"mean is {_text(mean)}; expected finite numbers")
        if not np.all(np.isfinite(std)) or min(std) <= 0:
            raise InputError(f"std is {_text(std)}; expected finite numbers > 0")
        means, deviations = np.broadcast_to(mean, count), np.broadcast_to(std, count)
        lo, hi = (0.0 - means) / deviations, (1.0 - means) / deviations
        if not np.all(np.isfinite([lo, hi])) or np.any(lo >= hi):
            raise InputError(
                f"mean {_text(mean)} and std {_text(std)} map pixels to an empty or infinite range"
            )
        return PixelScale(tuple(map(float, lo)), tuple(map(float, hi)))

    @property
    def options(self) -> str:
        """The options of the command line that state this scale."""
        if len(self.lo) == 1:
            return f"--scale {self.lo[0]!r} {self.hi[0]!r}"
        # lo = -mean / std and hi = (1 - mean) / std
        ends = list(zip(self.lo, self.hi, strict=True))
        mean = ",".join(f"{-lo / (hi - lo):.12g}" for lo, hi in ends)
        std = ",".join(f"{1 / (hi - lo):.12g}" for lo, hi in ends)
        return f"--normalise {mean} {std}"

    def on(self, network: Network) -> Network:
        """Return the network with the data box and the pixel step that follow from the scale."""
        lo, hi = (self._spread(values, network) for values in (self.lo, self.hi))
        steps = {(b - a) / WHITE for a, b in zip(self.lo, self.hi, strict=True)}
        # With different steps a ball in pixels would be an ellipsoid in input units.
        step = steps.pop() if len(steps) == 1 else None
        return replace(network, input_lo=lo, input_hi=hi, pixel_step=step)

    def _spread(self, values: tuple[float, ...], network: Network) -> FloatArray:
        """Return one value for each input, channel by channel."""
        shape, count = network.input_shape, len(values)
        if count == 1:
            return np.full(network.inputs, values[0])
        wide = np.asarray(values)
        if len(shape) == 3 and shape[0] == count:
            wide = wide[:, None, None]
        elif len(shape) != 3 or shape[2] != count:
            raise InputError(
                f"mean and std are for {count} channels, but {network.source} has inputs of shape "
                f"{shape}"
            )
        return np.ascontiguousarray(np.broadcast_to(wide, shape)).reshape(-1)


def _text(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)
