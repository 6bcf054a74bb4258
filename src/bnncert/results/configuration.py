"""The content of a configuration file; docs/experiments.md explains the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bnncert.engine.relaxations.linear import Form
from bnncert.errors import BnncertError, InputError
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.regions import ChangeNorm
from bnncert.regions.radii import VALUED, PixelScale, Radius, read_radius
from bnncert.results.instance import Settings


@dataclass(frozen=True)
class RandomNetwork:
    """A recipe: sizes with inputs and classes, and how many weights are zero.

    `nonzeros` (of each row, all layers below the output) replaces the share `zeros`.  Every weight
    is -1, 0 or +1; biases are uniform in [-1, 1] times the number of a row's non-zeros, so that
    nearly all neurons of the first layer are unstable on the data box [-1, 1].  The last class has
    no weights: with two classes the margin is a sum of +-1 times the last layer, as in the paper.
    The network is the same for the same seed.
    """

    sizes: tuple[int, ...]
    zeros: float = 0.0
    nonzeros: int | None = None
    seed: int = 0

    @property
    def text(self) -> str:
        """The recipe in one line."""
        share = f"zeros={self.zeros:g}" if self.nonzeros is None else f"nonzeros={self.nonzeros}"
        return f"random:{'-'.join(map(str, self.sizes))} {share} seed={self.seed}"

    def build(self) -> Network:
        """Return the network."""
        generator = np.random.default_rng(self.seed)
        weights, biases = [], []
        for below, above in pairwise(self.sizes[:-1]):
            layer = self._layer(generator, above, below)
            # A row of zeros would make a constant neuron.
            empty = np.flatnonzero(~layer.any(axis=1))
            layer[empty, generator.integers(0, below, empty.size)] = 1
            weights.append(layer)
            count = np.count_nonzero(layer, axis=1)
            biases.append(generator.uniform(-1.0, 1.0, above) * count)
        output = np.zeros((self.sizes[-1], self.sizes[-2]), dtype=np.int8)
        output[:-1] = generator.choice(np.array([-1, 1], dtype=np.int8), size=output[:-1].shape)
        weights.append(output)
        biases.append(np.zeros(self.sizes[-1]))
        return Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)

    def _layer(
        self, generator: np.random.Generator, above: int, below: int
    ) -> npt.NDArray[np.int8]:
        signs = generator.choice(np.array([-1, 1], dtype=np.int8), size=(above, below))
        if self.nonzeros is None:
            signs[generator.random((above, below)) < self.zeros] = 0
        elif self.nonzeros < below:
            kept = np.zeros((above, below), dtype=bool)
            for row in kept:
                row[generator.choice(below, self.nonzeros, replace=False)] = True
            signs[~kept] = 0
        return signs


def random_points(
    network: Network, count: int, seed: int, clip: tuple[float, float] | None
) -> npt.NDArray[np.float64]:
    """Return uniform points of the data box ([-1, 1] if the network does not state one)."""
    lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
    if lo is None or hi is None:
        lo, hi = -1.0, 1.0
    generator = np.random.default_rng(seed)
    return np.asarray(generator.uniform(lo, hi, size=(count, network.inputs)))


#: Networks and data that come with bnncert.
DEMO_NETWORKS: dict[str, Literal["sparse", "dense", "certified"]] = {
    "demo:sparse": "sparse",
    "demo:dense": "dense",
    "demo:certified": "certified",
}
DEMO_DATA = "demo"


def bundled_index(text: str) -> int | None:
    """Return the number of the bundled image that demo:INDEX names, or None."""
    number = text.removeprefix(f"{DEMO_DATA}:")
    return int(number) if number != text and number.isdecimal() else None


@dataclass(frozen=True)
class NetworkSource:
    """A network: a file, a bundled one, a recipe, or None if the command line names the file."""

    name: str
    source: str | RandomNetwork | None
    sign_zero: SignZero | None
    line: int

    @property
    def text(self) -> str:
        """The file or recipe."""
        return self.source.text if isinstance(self.source, RandomNetwork) else str(self.source)


@dataclass(frozen=True)
class DataSource:
    """Points: a file, the bundled images, a seed of random points, or None.

    None means a file that the command line names.  `labels` is a file of their classes, or "own";
    None means the labels in the same file.
    """

    source: str | int | None
    first: int
    count: int | None
    indices: tuple[int, ...] | None
    line: int
    labels: str | None = None

    def replaced_by(self, text: str) -> DataSource:
        """Return the points of another file, or of demo:INDEX, in the same selection."""
        index = bundled_index(text)
        if index is not None:
            return DataSource(DEMO_DATA, index, 1, None, self.line)
        # The labels of the configuration belong to other points.
        return replace(self, source=text, labels=None)


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options; `timeout` replaces that of the part."""

    method: str
    form: Form | None
    samples: int | None
    solver: str | None
    timeout: float | None
    line: int


@dataclass(frozen=True)
class Part:
    """Some networks, and every combination of norms, radii and methods for them.

    `common` are the settings of all instances, without norm and method.
    """

    networks: tuple[str, ...]
    data: DataSource
    norms: tuple[ChangeNorm, ...]
    radii: tuple[Radius, ...]
    methods: tuple[MethodChoice, ...]
    common: Settings
    certificates: bool
    clip: tuple[float, float] | None
    scale: PixelScale | None
    line: int

    def settings(self, norm: ChangeNorm, choice: MethodChoice) -> Settings:
        """Return the settings of the instances of a norm and a method."""
        return replace(
            self.common,
            norm=norm,
            method=choice.method,
            timeout=self.common.timeout if choice.timeout is None else choice.timeout,
            form=choice.form,
            samples=choice.samples,
            solver=choice.solver,
            within=self.common.within if norm == "l0" else None,
            value=self.common.value if norm in VALUED else None,
        )


@dataclass(frozen=True)
class Configuration:
    """The content of a configuration file, completely checked."""

    path: Path
    title: str
    networks: tuple[NetworkSource, ...]
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of networks, points and labels (and the names of bundled ones)."""
        points = [s for p in self.parts for s in (p.data.source, p.data.labels)]
        sources = [*(n.source for n in self.networks), *points]
        return tuple(s for s in sources if isinstance(s, str))

    def wrong(self, line: int, error: BnncertError) -> BnncertError:
        """Return an error of the same kind that names its line."""
        return type(error)(f"{self.path}:{line}: {error}")


def with_changes(
    configuration: Configuration,
    *,
    networks: Mapping[str, str] | None = None,
    data: str | None = None,
    labels: str | None = None,
    count: int | None = None,
    timeout: float | None = None,
    grid: Radius | None = None,
) -> Configuration:
    """Return the configuration with the values that the command line states.

    `count` is the largest number of points of each part.
    """
    files = dict(networks or {})
    known = {n.name for n in configuration.networks}
    for name in files:
        if name not in known:
            raise InputError(
                f"--network names {name}; {configuration.path} has {', '.join(sorted(known))}"
            )
    if count is not None and count < 1:
        raise InputError(f"--count is {count}; expected at least 1")
    parts = []
    for part in configuration.parts:
        points = part.data
        if data is not None:
            points = points.replaced_by(data)
        if labels is not None:
            points = replace(points, labels=labels)
        if count is not None:
            points = replace(points, count=min(count, points.count or count))
        part = replace(part, data=points)
        if grid is not None:
            part = replace(part, common=replace(part.common, grid=grid))
        if timeout is not None:
            methods = tuple(replace(choice, timeout=None) for choice in part.methods)
            common = replace(part.common, timeout=timeout)
            part = replace(part, common=common, methods=methods)
        parts.append(part)
    return replace(
        configuration,
        networks=tuple(
            replace(n, source=files.get(n.name, n.source)) for n in configuration.networks
        ),
        parts=tuple(parts),
    )


def selected(
    configuration: Configuration,
    *,
    networks: Sequence[str] = (),
    radii: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> Configuration:
    """Keep the instances of the named networks, radii and methods; no name keeps all of a kind.

    A radius is named as the file writes it, up to spaces and zeros: its unit may depend on the
    network, and an experiment is selected before any network is read.
    """
    parts = configuration.parts
    names = dict.fromkeys(name for part in parts for name in part.networks)
    sizes = dict.fromkeys(radius.text for part in parts for radius in part.radii)
    kinds = dict.fromkeys(choice.method for part in parts for choice in part.methods)
    read = [(text, read_radius(text)) for text in radii]
    wanted = {text if radius is None else radius.text for text, radius in read}
    choices = (("network", networks, names), ("radius", wanted, sizes), ("method", methods, kinds))
    for option, asked, known in choices:
        for text in asked:
            if text not in known:
                there = ", ".join(known)
                raise InputError(f"--{option} is {text}; {configuration.path} has {there}")
    kept = [
        replace(
            part,
            networks=tuple(n for n in part.networks if not networks or n in networks),
            radii=tuple(r for r in part.radii if not wanted or r.text in wanted),
            methods=tuple(m for m in part.methods if not methods or m.method in methods),
        )
        for part in parts
    ]
    kept = [part for part in kept if part.networks and part.radii and part.methods]
    if not kept:
        given = [f"--{option} {','.join(asked)}" for option, asked, _ in choices if asked]
        raise InputError(
            f"{configuration.path}: no part has {' and '.join(given)} together; --dry-run without "
            "them lists what there is"
        )
    used = {name for part in kept for name in part.networks}
    sources = tuple(n for n in configuration.networks if n.name in used)
    return replace(configuration, networks=sources, parts=tuple(kept))
