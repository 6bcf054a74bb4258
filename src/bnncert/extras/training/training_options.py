"""The options of a training, checked before it starts, and what it reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from bnncert.errors import InputError
from bnncert.extras.training.labelled_images import Scaling
from bnncert.model.formats.file_content import DEFAULT_LIMITS
from bnncert.regions.radii import Radius, read_radius

#: With a larger stride a 3 x 3 convolution does not read every pixel.
MOST_STRIDE = 3


#: What `--certify` chooses unless it is given.  A kernel sees few open pixels, a neuron of a sparse
#: layer few open signs, and every further layer would lose more to intervals.
RECIPE: dict[str, Any] = {
    "hidden": (300,),
    "conv": (32,),
    "stride": 2,
    "kernel": 5,
    "zeros": 0.97,
    "epochs": 12,
    "batch": 100,
    "lr": 0.01,
}

#: With more open pixels a network needs more kernels: these, for balls whose radius exceeds this
#: share of the data range.
LARGE, MORE_KERNELS = 0.2, (48,)

#: The most input levels of certified training: thresholds less than ten radii apart leave more
#: pixels open, and many of them cost time.
MOST_LEVELS = 3


@dataclass(frozen=True)
class TrainingOptions:
    """Architecture and optimisation of one training."""

    #: Sizes of the dense hidden layers.
    hidden: tuple[int, ...] = (500, 500)
    #: Channels of the convolutions before them (3 x 3).
    conv: tuple[int, ...] = ()
    #: Share of zero weights in every layer; 0 makes the weights binary.
    zeros: float = 0.34
    epochs: int = 40
    batch: int = 200
    #: Learning rate at the start.
    lr: float = 1e-3
    seed: int = 0
    #: Epochs without a better held-out accuracy before training stops; None trains on all
    #: images for all epochs.
    patience: int | None = None
    #: Weight of the penalties that make the network easier to verify; 0 leaves them out.
    robust: float = 0.0
    #: Radius of the L-inf balls of these penalties, in pixel levels.
    radius: float = 0.5
    #: Whether the first layer takes the sign of every input about the middle of the data box.
    binarise_input: bool = False
    #: Stride of the convolutions; those of stride 1 are followed by 2 x 2 max-pooling.
    stride: int = 1
    #: Side of the kernels of the convolutions.
    kernel: int = 3
    #: The L-inf radius to certify, as a share of the data range (0.1) or in pixels (25px).
    certify: str | None = None

    @classmethod
    def chosen(cls, certify: float | str | None, **given: Any) -> TrainingOptions:
        """Fill in what is not given (None): with the recipe of certified training, or defaults."""
        given = {name: value for name, value in given.items() if value is not None}
        if certify is None:
            return cls(**given)
        options = cls(certify=str(certify).strip(), **{**RECIPE, **given})
        radius = options._radius()
        share = radius.number if radius.unit == "input" else radius.number / 255
        return options if share <= LARGE or "conv" in given else replace(options, conv=MORE_KERNELS)

    def __post_init__(self) -> None:
        if self.certify is not None:
            self._radius()
            if self.robust or self.binarise_input:
                raise InputError(
                    "--certify has a loss and input levels of its own; leave out --robust and "
                    "binarise_input"
                )
        for name, widths in (("hidden", self.hidden), ("conv", self.conv)):
            if any(width < 1 for width in widths):
                raise InputError(f"--{name} has a layer of {min(widths)}; expected sizes >= 1")
        self._check_sizes()
        if not self.hidden and not self.conv:
            raise InputError("--hidden is empty; a binary network needs a hidden layer")
        if not 1 <= self.stride <= MOST_STRIDE:
            raise InputError(f"--stride is {self.stride}; expected an integer in 1..{MOST_STRIDE}")
        if not 0.0 <= self.zeros < 1.0:
            raise InputError(f"--zeros is {self.zeros}; expected a share in [0, 1)")
        for name, count in (("epochs", self.epochs), ("patience", self.patience)):
            if count is not None and count < 1:
                raise InputError(f"--{name} is {count}; expected an integer >= 1")
        if self.batch < 2:
            raise InputError(f"--batch is {self.batch}; batch normalisation needs at least 2")
        if not 0 < self.lr <= 1:
            raise InputError(f"--lr is {self.lr}; expected a number in (0, 1]")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed is {self.seed}; expected an integer >= 0")
        for name, number in (("robust", self.robust), ("radius", self.radius)):
            if not 0 <= number < math.inf:
                raise InputError(f"--{name} is {number}; expected a finite number >= 0")

    def _radius(self) -> Radius:
        """Read the radius to certify, and refuse what no network can be certified at."""
        radius = read_radius(self.certify)
        if radius is None or radius.unit == "delta" or radius.number == 0:
            raise InputError(
                f"--certify is {self.certify}; expected a radius above 0, as a share of the data "
                "range (0.1) or in pixels (25px)"
            )
        if radius.unit == "input":
            self._check_share(radius.number)
        return radius

    def _check_share(self, share: float) -> None:
        if share >= 0.5:
            raise InputError(
                f"--certify is {self.certify}, which is {100 * share:.4g} % of the data range; "
                "expected less than half of it, or black and white are in one ball"
            )

    def certified_radius(self, scaling: Scaling, input_shape: tuple[int, ...]) -> float | None:
        """Convert the radius to certify to input units; None if there is none."""
        if self.certify is None:
            return None
        if len(input_shape) != 3 or scaling.lo is None or scaling.hi is None:
            raise InputError(
                "--certify needs images in pixels (uint8), or with input_lo and input_hi; the data "
                f"have shape {'x'.join(map(str, input_shape))}; use --robust for tables"
            )
        radius, width = self._radius(), scaling.hi - scaling.lo
        if radius.unit == "input":
            return radius.number * width
        if scaling.pixel_step is None:
            raise InputError(
                f"--certify is {self.certify}, but the data file does not state pixel_step; give "
                "a share of the data range"
            )
        self._check_share(radius.number * scaling.pixel_step / width)
        return radius.number * scaling.pixel_step

    def input_thresholds(self, scaling: Scaling, radius: float | None) -> tuple[float, ...]:
        """Choose the thresholds of a binarised input; `radius` is the one to certify, if any.

        They divide the data box evenly, each a quarter above a pixel level, so that neither a pixel
        nor the end of a ball of half levels is on one of them, where rounding would decide.
        """
        if radius is None and not self.binarise_input:
            return ()
        if scaling.lo is None or scaling.hi is None:
            raise InputError(
                "binarise_input needs data in pixels (uint8), or input_lo and input_hi in the "
                "data file"
            )
        width, step = scaling.hi - scaling.lo, scaling.pixel_step
        levels = 1 if radius is None else min(MOST_LEVELS, max(1, int(0.1 * width / radius)))
        places = [width * k / (levels + 1) for k in range(1, levels + 1)]
        if step is not None and radius is not None:
            places = [(place // step + 0.25) * step for place in places]
        return tuple(scaling.lo + place for place in places)

    def _check_sizes(self) -> None:
        """Raise for an architecture that exceeds the limits of the readers."""
        width, entries = DEFAULT_LIMITS.width, DEFAULT_LIMITS.matrix
        for name, widths, kernel in (
            ("hidden", self.hidden, 1),
            ("conv", self.conv, self.kernel**2),
        ):
            if max(widths, default=0) > width:
                raise InputError(f"--{name} has a layer of {max(widths)}; expected at most {width}")
            for before, after in pairwise(widths):
                if before * after * kernel > entries:
                    raise InputError(
                        f"--{name} has layers of {before} and {after}; between them are "
                        f"{before * after * kernel} weights, expected at most {entries}"
                    )

    def check_inputs(self, input_shape: tuple[int, ...]) -> None:
        """Raise for a first dense layer that exceeds the limits of the readers."""
        inputs = math.prod(input_shape)
        first = 0 if self.conv or not self.hidden else self.hidden[0]
        if inputs * first > DEFAULT_LIMITS.matrix:
            raise InputError(
                f"--hidden has a first layer of {first}; with {inputs} inputs it has "
                f"{inputs * first} weights, expected at most {DEFAULT_LIMITS.matrix}"
            )


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training; `finished` is set at the end of an epoch.

    `held_out` is None if no images are held out, `open_share` if no penalty is computed, and
    `certified` without a radius to certify; it is the share of the images held out.
    """

    epoch: int
    step: int
    steps: int
    loss: float
    accuracy: float
    zeros: float
    seconds: float
    finished: bool = False
    held_out: float | None = None
    open_share: float | None = None
    certified: float | None = None


Report: TypeAlias = Callable[[TrainingProgress], None]
