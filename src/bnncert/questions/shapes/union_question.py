"""A question about a union of boxes, and what is known about one box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from bnncert.engine.methods import Options, Progress
from bnncert.engine.replay import OnnxRuntime
from bnncert.engine.verdict import Status
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, Targets, Ties, robustness
from bnncert.problem.float32 import Arithmetic, float32_network
from bnncert.regions import Box, ImageUnion


@dataclass(frozen=True, eq=False)
class UnionQuestion:
    """A question about a union of boxes, and how it is answered."""

    network: Network
    union: ImageUnion
    label: int
    targets: Targets = "all"
    ties: Ties = "violation"
    sign_zero: SignZero | None = None
    arithmetic: Arithmetic = "real"
    method: str = "auto"
    options: Options | None = None
    progress: Progress | None = None

    @cached_property
    def rivals(self) -> tuple[int, ...]:
        """The adversarial classes; the runner-up is that of the image itself."""
        place = self.union.real_box(0)
        image = robustness(self.network, place, self.label, self.targets, self.ties)
        return tuple(t.rival for t in image.targets if t.rival is not None)

    def problem(self, box: Box) -> Problem:
        """Return the question about one box."""
        network = self.network
        if self.arithmetic == "float32":
            network = float32_network(network, box)
        return robustness(network, box, self.label, self.rivals, self.ties)

    @cached_property
    def runtime(self) -> OnnxRuntime | None:
        """The model file, executed by onnxruntime, if there is one."""
        return OnnxRuntime.of(self.network)

    def report(self, text: str, done: int) -> None:
        """Report the progress by position."""
        if self.progress is not None:
            self.progress(text, done, self.union.count + 1)


@dataclass(frozen=True)
class BoxAnswer:
    """What is known about one target on one box."""

    status: Status
    lower: float = -math.inf
    upper: float = math.inf
