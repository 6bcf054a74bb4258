"""One question of a batch: a ball, a label, and how the question is answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Options
from bnncert.engine.relaxations.linear import Form
from bnncert.errors import InputError
from bnncert.problem import Targets, Ties
from bnncert.regions import SHAPES, Change, ChangeNorm
from bnncert.regions.changes import is_union
from bnncert.results.radii import Radius
from bnncert.results.rows import InstanceKey, LabelSource, Question


@dataclass(frozen=True)
class Settings:
    """Settings that many instances share."""

    norm: ChangeNorm = "linf"
    targets: Targets = "all"
    ties: Ties = "violation"
    method: str = "auto"
    #: Seconds for each instance.
    timeout: float | None = None
    seed: int = 0
    #: Gigabytes for each instance.
    memory: float = 4.0
    question: Question = "verify"
    #: Options of the method; None is the default of the method.
    form: Form | None = None
    samples: int | None = None
    solver: str | None = None
    #: The step of the grid that inputs are on; None: all real inputs count.
    grid: Radius | None = None
    #: By how much an input may change (norm l0); None: anything in the data box.
    within: Radius | None = None
    #: The value of a shape of change; None is its default.
    value: float | None = None

    def __post_init__(self) -> None:
        # Checked here, so that a mistake is reported before the first instance is answered.
        engine = REGISTRY.make(self.method)
        union = is_union(self.norm, on_grid=self.grid is not None)
        if ("box" if union else self.norm) not in engine.regions.split(", "):
            kind = self.norm if self.norm in SHAPES else f"{self.norm} ball"
            raise InputError(f"method {self.method} has no {kind}; only {engine.regions}")
        if union and self.question == "bound":
            raise InputError(f"a bound takes one region, not {self.norm}")
        if self.question == "bound" and self.ties != "violation":
            raise InputError("ties have no meaning for a bound; leave them out")
        Deadline(self.timeout)
        self.options(0).check()

    @property
    def norm_text(self) -> str:
        """The norm, with the reach of single inputs if it is limited."""
        value = "" if self.value is None else f" value {self.value:.9g}"
        return self.norm + value + ("" if self.within is None else f" within {self.within.text}")

    @property
    def method_text(self) -> str:
        """The method and those of its options that were chosen, as in `milp form=soft`."""
        chosen = {"form": self.form, "samples": self.samples, "solver": self.solver}
        words = (f"{name}={value}" for name, value in chosen.items() if value is not None)
        return " ".join((self.method, *words))

    def options(self, threads: int) -> Options:
        """Return the options of the method."""
        options = Options(seed=self.seed, threads=threads, memory=self.memory, solver=self.solver)
        if self.form is not None:
            options = replace(options, form=self.form)
        return options if self.samples is None else replace(options, samples=self.samples)


@dataclass(frozen=True)
class PointSource:
    """Where points come from, for the command that asks about one of them again."""

    #: The file as the user named it; empty if there is none.
    data: str = ""
    #: The options of `bnncert verify` that state the scale of pixels; empty if there are none.
    scale: str = ""


@dataclass(frozen=True)
class InstanceGroup:
    """The instances of one network, question, norm, radius, method and kind of inputs."""

    network: str
    question: str
    norm: str
    radius: str
    inputs: str
    method: str
    timeout: float | None

    def most_seconds(self, instances: int) -> float:
        """Return the largest total time of `instances` instances."""
        return math.inf if self.timeout is None else instances * self.timeout


@dataclass(frozen=True, eq=False)
class Instance:
    """One question: whether every point of a ball is classified as its label."""

    key: InstanceKey
    ball: Change
    #: The network's own class of the centre.
    predicted: int
    settings: Settings
    #: Texts for the reader: the network's name, the radius, and which inputs count.
    network: str
    radius: str
    inputs: str = "real inputs"
    #: Where the label comes from.
    labels: LabelSource = "own"
    points: PointSource = PointSource()
    #: The file name of its certificate; None if no certificate is wanted.
    certificate: str | None = None

    @property
    def label(self) -> int:
        """The true class."""
        return self.key.label

    @property
    def group(self) -> InstanceGroup:
        """The group of the instance."""
        return InstanceGroup(
            network=self.network,
            question=self.settings.question,
            norm=self.settings.norm_text,
            radius=self.radius,
            inputs=self.inputs,
            method=self.settings.method_text,
            timeout=self.settings.timeout,
        )


def certificate_name(key: InstanceKey) -> str:
    """Return a file name for the certificate of an instance; no two instances share one."""
    return f"{key.input_index}-{key.norm}-{key.radius:.9g}-{key.digest[:12]}.bnncert"
