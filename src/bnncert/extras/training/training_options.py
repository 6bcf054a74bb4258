"""The options of a training, checked before it starts, and what it reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from bnncert.errors import InputError
from bnncert.model.formats.file_content import DEFAULT_LIMITS

#: With a larger stride a 3 x 3 convolution does not read every pixel.
MOST_STRIDE = 3


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

    def __post_init__(self) -> None:
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

    def _check_sizes(self) -> None:
        """Raise for an architecture that exceeds the limits of the readers."""
        width, entries = DEFAULT_LIMITS.width, DEFAULT_LIMITS.matrix
        for name, widths, kernel in (("hidden", self.hidden, 1), ("conv", self.conv, 9)):
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

    `held_out` is None if no images are held out, `open_share` if no penalty is computed.
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


Report: TypeAlias = Callable[[TrainingProgress], None]
