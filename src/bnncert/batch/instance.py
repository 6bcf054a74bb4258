"""One question of a batch: a ball, a label, and how the question is answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bnncert.batch.rows import InstanceKey, LabelSource, Question
from bnncert.deadline import Deadline
from bnncert.errors import InputError
from bnncert.methods import REGISTRY, Options
from bnncert.problem import Targets, Ties
from bnncert.regions import Ball, Norm
from bnncert.relaxations.linear import Form


@dataclass(frozen=True)
class Settings:
    """What many instances have in common.

    Attributes
    ----------
    timeout
        Seconds for each instance.
    memory
        Gigabytes for each instance.
    form, samples, solver
        Options of the method; None stands for the default of the method.
    """

    norm: Norm = "linf"
    targets: Targets = "all"
    ties: Ties = "violation"
    method: str = "auto"
    timeout: float | None = None
    seed: int = 0
    memory: float = 4.0
    question: Question = "verify"
    form: Form | None = None
    samples: int | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        # Checked here, so that a mistake is reported before the first instance is answered.
        engine = REGISTRY.make(self.method)
        if self.norm not in engine.regions.split(", "):
            raise InputError(f"method {self.method} has no {self.norm} ball; only {engine.regions}")
        if self.question == "bound" and self.ties != "violation":
            raise InputError("ties say nothing about a bound; leave them out")
        Deadline(self.timeout)
        self.options(0).check()

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
class InstanceGroup:
    """The instances of one network, question, norm, radius and method."""

    network: str
    question: str
    norm: str
    radius: str
    method: str
    timeout: float | None

    def most_seconds(self, instances: int) -> float:
        """Return what that many instances may take at most, one after the other."""
        return math.inf if self.timeout is None else instances * self.timeout


@dataclass(frozen=True, eq=False)
class Instance:
    """One question: whether every point of a ball is classified as its label."""

    key: InstanceKey
    ball: Ball
    #: The network's own class of the centre.
    predicted: int
    settings: Settings
    #: Names for the reader: the network's, and the radius as the user wrote it.
    network: str
    radius: str
    #: Where the label comes from.
    labels: LabelSource = "own"
    #: The file name of its certificate; None if no certificate is asked for.
    certificate: str | None = None

    @property
    def label(self) -> int:
        """The true class."""
        return self.key.label

    @property
    def group(self) -> InstanceGroup:
        """The kind of question that this is."""
        return InstanceGroup(
            network=self.network,
            question=self.settings.question,
            norm=self.settings.norm,
            radius=self.radius,
            method=self.settings.method_text,
            timeout=self.settings.timeout,
        )


def certificate_name(key: InstanceKey) -> str:
    """Return a file name for the certificate of an instance; no two instances share one."""
    return f"{key.input_index}-{key.norm}-{key.radius:.9g}-{key.digest[:12]}.bnncert"
