"""The options that several commands share, and their values.

Every command imports this module, so it imports the methods and regions only where it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bnncert.cli.completion import METHODS, among
from bnncert.cli.files import NETWORKS, POINTS, model_file
from bnncert.cli.grouping import flag_of
from bnncert.cli.time_limit import DEFAULT_LIMIT, read_limit
from bnncert.engine.solvers import SolverName
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.engine.methods import Options
    from bnncert.model.description import SignZero
    from bnncert.model.network import Network
    from bnncert.problem import Rivals
    from bnncert.regions import ChangeNorm
    from bnncert.regions.radii import PixelScale


def network_argument(name: str, text: str) -> Any:
    """Declare an argument that names a network file or a bundled network, with its completion."""
    names = among(tuple(NETWORKS), files=True)
    return typer.Argument(parser=model_file, metavar=name, help=text, autocompletion=names)


def point_argument(name: str, text: str) -> Any:
    """Declare an argument that names points or bundled images, with its completion."""
    return typer.Argument(metavar=name, help=text, autocompletion=among(POINTS, files=True))


def point_option(flag: str, text: str) -> Any:
    """Declare an option that names points or bundled images, with its completion."""
    return typer.Option(flag, help=text, autocompletion=among(POINTS, files=True))


ModelArgument = Annotated[
    Path,
    network_argument(
        "model",
        "Network file: .npz, .json, .onnx, Keras or PyTorch (also .gz); or a bundled one, "
        "demo:sparse, demo:dense or demo:certified.",
    ),
]
LayersOption = Annotated[
    Path | None, "JSON file with the layers of a PyTorch checkpoint or of Keras weights."
]


@dataclass(frozen=True)
class ModelOptions:
    """The network that a question is about."""

    model: ModelArgument
    layers: LayersOption = None

    def read(self, sign_zero: SignZero | None = None) -> Network:
        """Load the network; --sign-zero overrides the value that the model states."""
        from bnncert.model.loading import load

        return load(self.model, self.layers).with_sign_zero(sign_zero)

    @property
    def files(self) -> tuple[Path | None, ...]:
        """What is read."""
        return self.model, self.layers


LabelsOption = Annotated[
    str | None,
    "True classes: FILE[:KEY] (.npy, .npz, .csv, .txt, .json, IDX), or `own`: the network's "
    "own answers (default: the labels beside the points or the names of subfolders, else own).",
]
TiesOption = Annotated[
    Literal["violation", "robust"],
    "Whether an equal score is a violation; robust: only a higher one is.",
]
MethodOption = Annotated[
    str,
    typer.Option("--method", help="See `bnncert methods`.", autocompletion=among(METHODS)),
]
SeedOption = Annotated[int, "Seed of all randomness."]
SignZeroOption = Annotated[
    Literal["plus", "minus", "either"] | None,
    "Value of sign(0) (default: that of the model, else plus).",
]
JsonOption = Annotated[str | None, "Write everything as JSON to FILE, or - for stdout."]
ExplainOption = Annotated[
    bool,
    "Show the open neurons per layer, the stages with their times, and the bounds of "
    "each stage; for sdp and elimination also their sizes.",
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=read_limit,
        metavar="SECONDS|none",
        help="Wall time for the whole question, from the start of the process on.",
    ),
]
MemoryOption = Annotated[
    float,
    typer.Option(
        "--memory-limit",
        help="GB that the open nodes of a search may take before it goes deepest first; a "
        "quarter of it for the tables of elimination.",
    ),
]
ChangeNormOption = Annotated[
    Literal["linf", "l2", "l1", "l0", "brightness", "contrast", "patch", "shift"],
    "Norm of the ball (l0: at most --radius inputs change), or a shape of change: "
    "offsets, factors 1 - r to 1 + r, squares of pixels, moves by pixels.",
]
ValueOption = Annotated[
    float | None,
    "Of --norm patch: its value (default: any in the data box); shift: what enters "
    "(default: the edge repeated); contrast: the middle (default: of the data box).",
]
RadiusOption = Annotated[
    str | None, "Radius in input units as in 0.1 or 8/255, in pixels as in 1px, or as in 0.25delta."
]
WithinOption = Annotated[
    str | None,
    "By how much an input may change (--norm l0), in units of --radius (default: "
    "anything in the data box).",
]
GridOption = Annotated[
    str | None,
    "Only inputs at multiples of a step from the lower end of the data box (of the "
    "network, else of --clip) count: 1px for integer pixels, or a step in input units.",
]
CertificatesOption = Annotated[Path | None, "Folder for a certificate of every verdict."]


@dataclass(frozen=True)
class PrintOptions:
    """How much a command prints."""

    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only the answer, and errors.")
    ] = False
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print more details.")] = False


#: The options that set fields of `Options` with a limited range.
FLAGS = {
    "seed": "--seed",
    "samples": "--samples",
    "memory": "--memory-limit",
    "processes": "--processes",
}


@dataclass(frozen=True)
class BallShape:
    """The ball or shape of change around a point, as the options describe it."""

    norm: ChangeNorm
    radius: str | None
    within: str | None = None
    grid: str | None = None
    value: float | None = None
    #: Whether the data box alone limits the inputs if there is no radius.
    whole_box: bool = False


@dataclass(frozen=True)
class Outputs:
    """The files that every question can write."""

    certificate: Annotated[Path | None, "Write a proof of the verdict for `bnncert check`."] = None
    json_: JsonOption = None

    @property
    def files(self) -> dict[str, Path]:
        """The files that are named, by their options; they have to be writable."""
        named = {flag_of(name): value for name, value in vars(self).items()}
        return {name: Path(value) for name, value in named.items() if value not in (None, "-")}


@dataclass(frozen=True)
class CounterexampleOutputs(Outputs):
    """The files of a question that may have a counterexample."""

    save_counterexample: Annotated[
        Path | None,
        "Write the counterexample: .npy (the point) or .png (original, counterexample and "
        "amplified difference side by side).",
    ] = None


@dataclass(frozen=True)
class AnswerOutputs(Outputs):
    """The files that a command about one decision writes."""

    results: Annotated[
        Path | None,
        "Add the answer to a results file (.sqlite) for `bnncert report`; it is created if it "
        "does not exist, and an older answer to the same question is replaced.",
    ] = None


IndexOption = Annotated[int | None, "Which point of a batch or folder."]


@dataclass(frozen=True)
class PointOptions:
    """A point, which is given as an argument or as --input, and its true class."""

    place: Annotated[
        str | None, point_argument("input", "Point or image folder, instead of --input.")
    ] = None
    input_: Annotated[
        str | None,
        point_option(
            "--input",
            "Point: .npy, FILE.npz:KEY, .csv, IDX, an image file or a folder; or a bundled "
            "image as in demo:0.",
        ),
    ] = None
    index: IndexOption = None
    label: Annotated[int | None, "True class (default: as --labels)."] = None
    labels: LabelsOption = None

    @property
    def files(self) -> tuple[str | None, ...]:
        """What is read."""
        return self.input_, self.labels


@dataclass(frozen=True)
class CentreOptions(PointOptions):
    """A labelled point, and the norm of the balls around it."""

    norm: Annotated[
        Literal["linf", "l2", "l1", "l0", "brightness", "contrast", "patch", "shift"],
        "Norm of the balls (l0, a number of inputs: with --exact), or a shape of change.",
    ] = "linf"
    value: ValueOption = None


@dataclass(frozen=True)
class PixelScaleOptions:
    """How pixels enter the network."""

    scale: Annotated[
        tuple[float, float] | None,
        "Inputs LO HI that pixels 0 and 255 become (default: the data box).",
    ] = None
    normalise: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--normalise",
            metavar="MEAN STD",
            help="Pixels enter as (p/255 - mean)/std: each a number, or one for each channel as "
            "in 0.5,0.4,0.4.",
        ),
    ] = None


@dataclass(frozen=True)
class PixelOptions(PixelScaleOptions):
    """The data box, and how pixels enter the network."""

    clip: Annotated[
        tuple[float, float] | None, "Data box LO HI (default: the one in the network file)."
    ] = None


@dataclass(frozen=True)
class ScalingOptions(PixelOptions):
    """The data box, how pixels enter the network, and the rivals."""

    rivals: Annotated[str, "all, runner-up, or classes as in 3 or 1,2."] = "all"


@dataclass(frozen=True)
class PlainBallOptions(PointOptions):
    """A labelled point and the ball around it."""

    norm: ChangeNormOption = "linf"
    radius: RadiusOption = None
    within: WithinOption = None
    grid: GridOption = None

    @property
    def shape(self) -> BallShape:
        """The ball alone."""
        return BallShape(self.norm, self.radius, self.within, self.grid)


@dataclass(frozen=True)
class BallOptions(PlainBallOptions):
    """A labelled point and the ball or shape of change around it."""

    value: ValueOption = None

    @property
    def shape(self) -> BallShape:
        """The ball or shape alone."""
        return replace(super().shape, value=self.value)


@dataclass(frozen=True)
class MethodOptions:
    """The limits and settings of the methods."""

    method: MethodOption = "auto"
    timeout: TimeoutOption = DEFAULT_LIMIT
    seed: SeedOption = 0
    sign_zero: SignZeroOption = None
    memory: MemoryOption = 4.0
    processes: Annotated[
        int, "Processes that search together (default: 0, one for each core, at most eight)."
    ] = 0

    def options(self) -> Options:
        """Check the ranges, so that a wrong value is refused by the name of its flag."""
        from bnncert.engine.methods import Options

        others = ("method", "timeout", "sign_zero", "cluster")
        chosen: dict[str, Any] = {k: v for k, v in vars(self).items() if k not in others}
        return Options(**chosen).check(FLAGS)


@dataclass(frozen=True)
class SharedMethodOptions(MethodOptions):
    """The settings of commands whose search can be shared by the workers of a scheduler."""

    cluster: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            help="Address of a Dask scheduler whose workers share the search over sign patterns.",
        ),
    ] = None
    solver: Annotated[
        SolverName | None,
        "Back end of sdp and the sdp-* methods: structured (default where it fits), "
        "clarabel, scs or mosek, for sdp also low-rank; highs (milp), scip (minp) or gurobi.",
    ] = None

    @contextmanager
    def connected(self, say: Callable[[str], None]) -> Iterator[Options]:
        """Give the options, with the workers of the scheduler if one is named.

        The search also runs in this process, so workers may join later.
        """
        from bnncert.engine.cluster import connected

        options = self.options()
        if self.cluster is None:
            yield options
            return
        with connected(self.cluster) as cluster:
            if not cluster.threads():
                line = f"note: {self.cluster} has no workers yet; the search begins without them"
                say(line)
            yield replace(options, cluster=cluster)


@dataclass(frozen=True)
class BoundMethodOptions(SharedMethodOptions):
    """The settings of `bound`: also those that only some methods read."""

    method: MethodOption = "sdp"
    form: Annotated[Literal["lattice", "soft"], "Encoding of milp."] = "lattice"
    samples: Annotated[int, "Points that sample draws."] = 10_000
    sparsity: Annotated[
        Literal["layered", "pairwise", "chordal", "dense"] | None,
        "Cliques of the sdp-* methods (default: the method's own).",
    ] = None
    coupling: Annotated[
        Literal["auto", "on", "off"], "The input in relaxations (auto: to decide a sign)."
    ] = "auto"


def read_rivals(text: str) -> Rivals:
    """Read --rivals: a word, or classes separated by commas."""
    from bnncert.problem import rivals_of

    parts = [part.strip() for part in text.split(",")]
    numbers = all(part.isdecimal() and part.isascii() for part in parts)
    try:
        found = rivals_of([int(part) for part in parts] if numbers else text)
    except InputError as error:
        raise InputError(f"--rivals is {text!r}: {error}") from error
    if found is None:
        raise InputError(
            f"--rivals is {text!r}; expected all, runner-up, or classes as in 3 or 1,2"
        )
    return found


def read_clip(clip: tuple[float, float] | None) -> tuple[float, float] | None:
    """Read --clip and check that LO is not above HI."""
    from bnncert.regions.radii import check_clip

    try:
        return None if clip is None else check_clip(*clip)
    except InputError as error:
        raise InputError(f"--{error}") from error


def read_scale(
    scale: tuple[float, float] | None, normalise: tuple[str, str] | None
) -> PixelScale | None:
    """Read --scale or --normalise, of which only one can be given."""
    from bnncert.regions.radii import PixelScale

    if normalise is None:
        return None if scale is None else PixelScale.between(*scale)
    if scale is not None:
        raise InputError("--scale and --normalise both define the scale of pixels; give one")
    return PixelScale.normalised(*map(_numbers, normalise))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--normalise has {text!r}; expected numbers as in 0.5 or 0.5,0.4,0.4"
        ) from None
