"""Plans: the list of all instances of a run or of an experiment, with their networks."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, numbers_hash
from bnncert.engine.exact_classes import exact_classes
from bnncert.errors import BnncertError, InputError
from bnncert.model.formats.inputs import pick_point
from bnncert.model.loading import RandomNetwork, load, load_demo_images, load_demo_network
from bnncert.model.network import Network
from bnncert.problem import rivals_text, robustness
from bnncert.regions import Ball, Grid
from bnncert.regions.radii import inputs_text, radius_text
from bnncert.results.configuration import DEMO_NETWORKS, Configuration, NetworkSource, Part
from bnncert.results.instance import (
    Balls,
    Instance,
    InstanceGroup,
    PointSource,
    Settings,
    certificate_name,
)
from bnncert.results.labelled_points import (
    DEMO_DATA,
    Data,
    Selection,
    in_network_units,
    random_points,
    read_data,
)
from bnncert.results.rows import InstanceKey, LabelSource, NetworkRecord

#: Data that was read: the source, its labels, and the shape and classes of the network.
_DataKey: TypeAlias = tuple[str, str | None, tuple[int, ...], int]


@dataclass(frozen=True, eq=False)
class Plan:
    """The instances, each once, and the networks to answer them."""

    #: Networks by content hash.
    networks: dict[str, Network]
    #: The descriptions of these networks in the results file.
    records: tuple[NetworkRecord, ...]
    instances: tuple[Instance, ...]
    #: Lines for the user, such as how many inputs are left out.
    notes: tuple[str, ...] = ()
    #: The title of an experiment; a run has none.
    title: str = ""

    def groups(self) -> dict[InstanceGroup, int]:
        """Return the number of instances of each kind, in the order of the plan."""
        return Counter(instance.group for instance in self.instances)


@dataclass(frozen=True, eq=False)
class _Subject:
    """A network with its name, the chosen points, and the data box."""

    name: str
    network: Network
    data: Data
    selection: Selection
    clip: tuple[float, float] | None
    points: PointSource

    def balls(self, settings: Settings) -> Balls:
        """Return the common properties of the balls around the points."""
        return Balls.of(
            self.network,
            self.name,
            settings.norm,
            self.clip,
            grid=settings.grid,
            within=settings.within,
            value=settings.value,
        )


def plan_run(
    network: Network,
    data: Data,
    radii: Sequence[float],
    *,
    selection: Selection | None = None,
    clip: tuple[float, float] | None = None,
    settings: Settings | None = None,
    certificates: bool = False,
    points: PointSource | None = None,
) -> Plan:
    """Plan the questions about one network, radius by radius.

    By default they are about all points and the network's own data box.  `points` are the names of
    the data and of its scale that the rows record (default: the file).  Raises InputError if one of
    the questions cannot be asked.
    """
    if not radii:
        raise InputError("no radius given")
    name = Path(network.source).name
    points = points or PointSource(data.where)
    subject = _Subject(name, network, data, selection or Selection(), clip, points)
    sizes = dict.fromkeys(map(float, radii))
    instances, notes = _instances(subject, sizes, settings or Settings(), certificates, "")
    return Plan(
        networks={network.content_hash: network},
        records=(NetworkRecord.of(network, name),),
        instances=tuple(instances),
        notes=notes,
    )


def plan_experiment(configuration: Configuration) -> Plan:
    """Plan an experiment in the order part, network, norm, method, radius, input.

    Networks and data are loaded here.  Raises BnncertError with the line of the configuration if
    something in it cannot be used.
    """
    networks = _load_networks(configuration)
    scaled: dict[str, Network] = {}
    instances: dict[str, Instance] = {}
    notes: dict[str, None] = {}
    files: dict[_DataKey, Data] = {}
    for part in configuration.parts:
        for name in part.networks:
            try:
                network = networks[name]
                if isinstance(part.data.source, int):
                    network = network if part.scale is None else part.scale.on(network)
                    data = _load_data(part, network, files)
                else:
                    data, clipped = _load_data(part, network, files), part.clip is not None
                    network, data = in_network_units(network, data, part.scale, is_clipped=clipped)
            except BnncertError as error:
                raise configuration.wrong(part.data.line, error) from error
            # A results file has one data box for each network: that of the first part.
            scaled.setdefault(name, network)
            points = _point_source(part)
            subject = _Subject(name, network, data, part.data.selection, part.clip, points)
            for instance in _part_instances(configuration, part, subject, notes):
                instances.setdefault(instance.key.digest, instance)
    networks |= scaled
    return Plan(
        networks={network.content_hash: network for network in networks.values()},
        records=tuple(
            NetworkRecord.of(networks[source.name], source.name, source.text)
            for source in configuration.networks
        ),
        instances=tuple(instances.values()),
        notes=tuple(notes),
        title=configuration.title,
    )


def _instances(
    subject: _Subject, sizes: Collection[float], settings: Settings, certificates: bool, prefix: str
) -> tuple[list[Instance], tuple[str, ...]]:
    """Return the questions of one network and method, and notes on inputs that are left out.

    `sizes` are the radii in input units; `prefix` begins the names of the certificates.
    """
    if settings.question == "bound" and certificates:
        raise InputError("a bound has no certificate; only verdicts have")
    network, data = subject.network, subject.data
    balls = subject.balls(settings)
    rivals = settings.rivals
    classes = rivals if isinstance(rivals, tuple) else (rivals,)
    asked = [p for p in _classified(subject, balls) if p.label not in classes]
    off_grid, seen = 0, set[int]()
    for p in asked:
        try:
            if p.label not in seen:
                seen.add(p.label)
                robustness(network, Ball("linf", p.values, 0.0), p.label, rivals)
            made = [balls.around(p.values, radius) for radius in sizes]
        except InputError as error:
            raise InputError(f"{data.where} [{p.number}]: {error}") from error
        off_grid += bool(made[0].notes)
    common = _common_key(subject, settings, balls)
    step, instances = network.pixel_step, []
    labels: LabelSource = "own" if data.labels is None else "given"
    texts = inputs_text(common.grid_step, step)
    hashes = [numbers_hash(p.values) for p in asked]
    for radius in sizes:
        shown = radius_text(radius, settings.norm, step)
        for p, content in zip(asked, hashes, strict=True):
            key = replace(
                common, input_index=p.number, input_hash=content, label=p.label, radius=radius
            )
            instances.append(
                Instance(
                    key,
                    p.values,
                    balls,
                    p.predicted,
                    settings,
                    subject.name,
                    shown,
                    texts,
                    labels,
                    subject.points,
                    prefix + certificate_name(key) if certificates else None,
                )
            )
    left_out = len(subject.selection.numbers(data, network)) - len(asked)
    excluded = rivals_text(rivals).replace(",", " or ")
    counts = {
        f"{left_out} input(s) of class {excluded}, the rival itself, left out": left_out,
        f"{off_grid} input(s) are not on the grid; the balls stay around them": off_grid,
    }
    notes = (*data.notes, *(note for note, count in counts.items() if count))
    return instances, notes


def _common_key(subject: _Subject, settings: Settings, balls: Balls) -> InstanceKey:
    """Return the common key of one network and method, to which inputs and radii are added."""
    return InstanceKey(
        model_hash=subject.network.content_hash,
        input_index=0,
        input_hash="",
        label=0,
        norm=settings.norm,
        radius=0.0,
        clip=_clip_text(balls.lo, balls.hi),
        rivals=rivals_text(settings.rivals),
        method=settings.method_text,
        timeout=settings.timeout,
        ties=settings.ties,
        sign_zero=subject.network.sign_zero,
        seed=settings.seed,
        question=settings.question,
        grid=_grid_text(balls.grid),
        within=balls.within,
        value=balls.value,
    )


class _Classified(NamedTuple):
    """A chosen point: its number and values, its label, and the class of the network."""

    number: int
    values: FloatArray
    label: int
    predicted: int


def _classified(subject: _Subject, balls: Balls) -> Iterator[_Classified]:
    """Yield the chosen points."""
    network, data = subject.network, subject.data
    box = None
    if network.input_lo is not None and network.input_hi is not None:
        box = (network.input_lo, network.input_hi)
    numbers = subject.selection.numbers(data, network)
    points = [
        balls.centre(pick_point(data.array, index, network.input_shape, box, data.where))
        for index in numbers
    ]
    for index, values, own in zip(
        numbers, points, exact_classes(network, np.stack(points)).tolist(), strict=True
    ):
        stated = data.label(index, network)
        yield _Classified(index, values, own if stated is None else stated, own)


def _clip_text(lo: Any, hi: Any) -> str:
    """Return the data box as text: two numbers if they describe it completely, else a hash."""
    if lo is None or hi is None:
        return "none"
    low, high = np.atleast_1d(lo).astype("<f8") + 0.0, np.atleast_1d(hi).astype("<f8") + 0.0
    if np.all(low == low[0]) and np.all(high == high[0]):
        return f"{float(low[0])!r},{float(high[0])!r}"
    return "sha256:" + hashlib.sha256(low.tobytes() + high.tobytes()).hexdigest()


def _grid_text(grid: Grid | None) -> str | None:
    """Return the grid as `STEP,ORIGIN`, with a hash if the inputs have different origins."""
    if grid is None:
        return None
    tree = grid.to_dict()
    step, origin = tree["step"], tree["origin"]
    if isinstance(origin, list):
        return f"{step!r},sha256:" + hashlib.sha256(np.array(origin, "<f8").tobytes()).hexdigest()
    return f"{step!r},{origin + 0.0!r}"


def _part_instances(
    configuration: Configuration, part: Part, subject: _Subject, notes: dict[str, None]
) -> Iterator[Instance]:
    """Yield the questions that a part has about one network; new notes are added to `notes`."""
    name = subject.name
    prefix = re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip(".") or "network"
    for norm in part.norms:
        sizes: dict[float, None] = {}
        for radius in part.radii:
            try:
                sizes[radius.in_units(subject.network, name, norm, part.clip)] = None
            except BnncertError as error:
                raise configuration.wrong(radius.line, error) from error
        for choice in part.methods:
            settings = part.settings(norm, choice)
            try:
                subject.balls(settings)
            except BnncertError as error:
                line = (settings.grid or settings.within or part.data).line or part.data.line
                raise configuration.wrong(line, error) from error
            try:
                found, new = _instances(subject, sizes, settings, part.certificates, f"{prefix}-")
            except BnncertError as error:
                raise configuration.wrong(part.data.line, error) from error
            notes.update(dict.fromkeys(f"network {name}: {note}" for note in new))
            yield from found


def _point_source(part: Part) -> PointSource:
    """Return the names of the data of a part; random points have no file."""
    source = part.data.source
    if not isinstance(source, str):
        return PointSource()
    return PointSource(source, "" if part.scale is None else part.scale.options)


def _load_networks(configuration: Configuration) -> dict[str, Network]:
    """Load all networks by name; two names for one network are a mistake."""
    networks: dict[str, Network] = {}
    names: dict[str, str] = {}
    for source in configuration.networks:
        try:
            network = _load_network(source)
            same = names.setdefault(network.content_hash, source.name)
            if same != source.name:
                raise InputError(f"network {source.name} is the same as network {same}")
        except BnncertError as error:
            raise configuration.wrong(source.line, error) from error
        networks[source.name] = network
    return networks


def _load_network(source: NetworkSource) -> Network:
    if source.source is None:
        raise InputError(
            f"network {source.name} has no file; give it with --network {source.name}=FILE"
        )
    if isinstance(source.source, RandomNetwork):
        network = source.source.build()
    elif source.source in DEMO_NETWORKS:
        network = load_demo_network(DEMO_NETWORKS[source.source])
    else:
        network = load(source.source)
    return network.with_sign_zero(source.sign_zero)


def _load_data(part: Part, network: Network, files: dict[_DataKey, Data]) -> Data:
    """Return the points of a part; files that were read before are in `files`."""
    source = part.data.source
    if source is None:
        raise InputError("there is no data; give it with --data FILE")
    if isinstance(source, int):
        chosen = part.data.selection
        points = random_points(network, chosen.first + (chosen.count or 1), source, part.clip)
        return Data(points, None, f"random points of seed {source}")
    # Images are converted to the channels of the network, and folders stand for its classes.
    key = source, part.data.labels, network.input_shape, network.classes
    if key not in files:
        if source == DEMO_DATA:
            if part.data.labels is not None:
                raise InputError("the bundled images have labels of their own; leave labels out")
            images = load_demo_images()
            files[key] = Data(images.pixels, images.labels.astype(np.int64), source)
        else:
            files[key] = read_data(source, part.data.labels, network)
    return files[key]
