"""One question of a batch, and its answer: a row, and the certificate as bytes.

The certificate is returned as bytes because its folder may be on another machine than the worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError, failure_text
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.problem import Rivals, Ties
from bnncert.problem.problem import Arithmetic
from bnncert.questions.verify import bound, verify
from bnncert.regions import (
    SHAPES,
    Ball,
    Box,
    Brightness,
    BrightnessSteps,
    ChangeNorm,
    Contrast,
    Cover,
    Grid,
    ImageShift,
    L0Ball,
    Neighbourhood,
    Patch,
)
from bnncert.regions.radii import GRIDLESS, VALUED, Radius, is_union
from bnncert.results.rows import InstanceKey, LabelSource, Question, Row

if TYPE_CHECKING:
    # Importing the linear relaxation takes longer than a small question.
    from bnncert.engine.relaxations.linear import Form

#: Norms that leave some inputs as they are.  A model reads its pixels as float32 numbers, and
#: unchanged pixels have exactly these values.
SINGLE = ("l0", "patch", "shift")


@dataclass(frozen=True, eq=False)
class Balls:
    """What all balls of a question have in common: norm, data box, and conditions on inputs."""

    norm: ChangeNorm
    #: The data box, or None.
    lo: Any
    hi: Any
    grid: Grid | None = None
    #: The largest change of an input in an L0 ball; None if only the data box limits it.
    within: float | None = None
    #: The value of a shape of change; None is its default.
    value: float | None = None
    #: The shape of the inputs, for patches and shifts.
    shape: tuple[int, ...] = ()

    @staticmethod
    def of(
        network: Network,
        name: str,
        norm: ChangeNorm,
        clip: tuple[float, float] | None = None,
        *,
        grid: Radius | None = None,
        within: Radius | None = None,
        value: float | None = None,
    ) -> Balls:
        """Return the balls for a network, which messages call `name`.

        Raises InputError if the network does not state the unit of a number, or the norm does not
        use it.
        """
        lo: Any
        hi: Any
        lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
        reach = values = None
        if within is not None:
            if norm != "l0":
                raise InputError(f"within belongs to norm l0; the norm is {norm}")
            reach = within.in_units(network, name, "linf", clip)
        if value is not None and norm not in VALUED:
            raise InputError(f"value belongs to norm {' or '.join(VALUED)}; the norm is {norm}")
        if grid is not None and norm in GRIDLESS:
            raise InputError(f"norm {norm} has no grid; leave it out")
        if grid is not None or norm in SINGLE:
            lo, hi = (None if v is None else _as_float32(v) for v in (lo, hi))
        if grid is not None:
            # Pixel 0 is the lower end of the network's own data box, also with a clip.
            start = lo if network.input_lo is None else _as_float32(network.input_lo)
            step = grid.in_units(network, name, "linf", None)
            values = Grid(step, 0.0 if start is None else start)
            if lo is not None and hi is not None:
                # Raises if the step does not fit the data box, for any centre.
                corner = np.broadcast_to(lo, (network.inputs,))
                Ball("linf", corner, float(np.max(hi - lo)), lo, hi, values)
        shape = network.input_shape if norm in SHAPES else ()
        return Balls(norm, lo, hi, values, reach, value, shape)

    def centre(self, point: FloatArray) -> FloatArray:
        """Return the point with the values that the network reads."""
        is_real = self.grid is None and self.norm not in SINGLE
        return point if is_real else _as_float32(point)

    def around(self, centre: FloatArray, radius: float | None) -> Neighbourhood:
        """Return the ball or shape around a centre; some radii are numbers of inputs or pixels.

        Without a radius it is the whole data box.
        """
        box, value = (self.lo, self.hi), self.value
        if radius is None:
            return Ball.of_data_box(centre, *box, self.grid)
        if self.norm == "l0":
            return L0Ball(centre, radius, *box, self.within, self.grid)
        if self.norm == "brightness" and self.grid is not None:
            return BrightnessSteps(centre, radius, *box, self.grid)
        if self.norm == "brightness":
            return Brightness(centre, radius, *box)
        if self.norm == "contrast":
            return Contrast(centre, radius, *box, value)
        if self.norm == "patch":
            return Patch(centre, radius, self.shape, *box, value, self.grid)
        if self.norm == "shift":
            return ImageShift(centre, radius, self.shape, *box, value)
        return Ball(self.norm, centre, radius, *box, self.grid)


def _as_float32(values: npt.ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


@dataclass(frozen=True)
class Settings:
    """Settings that many instances share."""

    norm: ChangeNorm = "linf"
    rivals: Rivals = "all"
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
    arithmetic: Arithmetic = "real"
    #: Processes that work on one instance.
    processes: int = 0

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
        chosen: dict[str, object] = {
            "form": self.form,
            "samples": self.samples,
            "solver": self.solver,
            "arithmetic": None if self.arithmetic == "real" else self.arithmetic,
        }
        words = (f"{name}={value}" for name, value in chosen.items() if value is not None)
        return " ".join((self.method, *words))

    def options(self, threads: int) -> Options:
        """Return the options of the method."""
        options = Options(
            seed=self.seed,
            threads=threads,
            memory=self.memory,
            solver=self.solver,
            processes=self.processes,
        )
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
    #: The centre, and what all balls of the question have in common.
    point: FloatArray
    balls: Balls
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
    def ball(self) -> Neighbourhood:
        """The inputs that count; made anew by each use, because thousands of them are large."""
        return self.balls.around(self.point, self.key.radius)

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


@dataclass(frozen=True, eq=False)
class InstanceAnswer:
    """A row, or the reason why there is none."""

    instance: Instance
    row: Row | None
    certificate: bytes | None = None
    failure: str = ""
    #: What the row is made from; None without a row.
    result: Result | None = None


def attempt(
    network: Network, instance: Instance, threads: int, watch: Progress | None = None
) -> InstanceAnswer:
    """Answer one instance; an error becomes an answer without a row."""
    try:
        if instance.certificate is None:
            return answered(instance, answer(network, instance, threads, None, watch))
        with folder_for(instance.certificate) as folder:
            path = folder / "certificate.bnncert"
            found = answer(network, instance, threads, path, watch)
            content = None if found.certificate is None else Path(found.certificate).read_bytes()
            return answered(instance, replace(found, certificate=None), content)
    except Exception as error:
        return InstanceAnswer(instance, None, failure=failure_text(error))


def answered(
    instance: Instance, result: Result, certificate: bytes | None = None
) -> InstanceAnswer:
    """Return the row of a result."""
    row = Row.of(instance.key, instance.predicted, result, instance.labels)
    return InstanceAnswer(instance, row, certificate, result=result)


def answer(
    network: Network,
    instance: Instance,
    threads: int = 0,
    certificate: Path | None = None,
    watch: Progress | None = None,
) -> Result:
    """Answer one instance, and write its certificate to a file if one is given."""
    settings = instance.settings
    region, label, options = instance.ball, instance.label, settings.options(threads)
    bounding = settings.question == "bound"
    if settings.rivals != "all" or bounding:
        # Verification checks only the chosen rivals, but the centre may have any
        # class.  A bound does not check the centre, and a tie there does not exclude a bound.
        ties = "robust" if bounding else settings.ties
        # Methods other than auto have no paths of images, of which only the image is asked about.
        is_shape = isinstance(region, Cover)
        place = Box(region.center, region.center) if is_shape else region
        result = verify(
            network, place, label, ties=ties, method="interval", options=options, strict=False
        )
        if result.is_misclassified:
            return result
    how: dict[str, Any] = {
        **{name: getattr(settings, name) for name in ("rivals", "method", "timeout")},
        "options": options,
    }
    if bounding:
        return bound(network, region, label, **how)
    how |= {"ties": settings.ties, "arithmetic": settings.arithmetic}
    return verify(network, region, label, **how, progress=watch, certificate=certificate)


def overdue(instance: Instance, seconds: float) -> InstanceAnswer:
    """Return the answer of a worker that was ended after its time limit: a time-out."""
    return answered(instance, Result("timeout", (), seconds, instance.settings.method))
