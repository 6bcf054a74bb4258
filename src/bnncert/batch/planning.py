"""From a configuration to the list of its instances, with everything loaded that they need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bnncert.batch.campaign import Instance, Settings, plan
from bnncert.batch.config.configuration import (
    DEMO_DATA,
    Configuration,
    DataSource,
    NetworkSource,
    Part,
)
from bnncert.batch.config.random_network import RandomNetwork, random_points
from bnncert.batch.labelled_points import Data, read_data
from bnncert.batch.store import NetworkRecord
from bnncert.bundled import load_demo_images, load_demo_network
from bnncert.errors import BnncertError, InputError
from bnncert.network import Network, load


@dataclass(frozen=True, eq=False)
class Job:
    """An instance, how to answer it, and the names that a reader knows it by."""

    network: str
    radius: str
    settings: Settings
    instance: Instance
    certificate: bool


@dataclass(frozen=True, eq=False)
class Experiment:
    """Networks by content, and the questions about them, each once."""

    title: str
    networks: dict[str, Network]
    records: tuple[NetworkRecord, ...]
    jobs: tuple[Job, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The instances of one network, question, norm, radius and method."""

    network: str
    question: str
    norm: str
    radius: str
    method: str
    timeout: float | None
    instances: int

    @property
    def most_seconds(self) -> float:
        """What its instances may take at most, one after the other."""
        return math.inf if self.timeout is None else self.instances * self.timeout


def plan_experiment(configuration: Configuration) -> Experiment:
    """Load networks and data and list the instances: part, network, norm, method, radius, input.

    Raises
    ------
    BnncertError
        With the line of the configuration, if something in it cannot be used.
    """
    networks: dict[str, Network] = {}
    hashes: dict[str, str] = {}
    for source in configuration.networks:
        try:
            network = _load_network(source)
        except BnncertError as error:
            raise configuration.wrong(source.line, error) from error
        same = next((n for n, h in hashes.items() if h == network.content_hash), None)
        if same is not None:
            text = f"network {source.name} is the same as network {same}"
            raise configuration.wrong(source.line, InputError(text))
        networks[source.name], hashes[source.name] = network, network.content_hash
    scaled: dict[str, Network] = {}
    jobs: dict[str, Job] = {}
    notes: dict[str, None] = {}
    files: dict[tuple[str, str | None], Data] = {}
    for part in configuration.parts:
        for name in part.networks:
            try:
                network = networks[name]
                network = network if part.scale is None else part.scale.on(network)
                data = _load_data(part, network, files)
                if part.scale is not None and not isinstance(part.data.source, int):
                    data = data.as_pixels()
            except BnncertError as error:
                raise configuration.wrong(part.data.line, error) from error
            # The file names one data box; it is that of the first part.
            scaled.setdefault(name, network)
            for job in _jobs(configuration, part, name, network, data, notes):
                jobs.setdefault(job.instance.key.digest, job)
    networks |= scaled
    return Experiment(
        title=configuration.title,
        networks={hashes[name]: network for name, network in networks.items()},
        records=tuple(
            NetworkRecord.of(networks[source.name], source.name, source.text)
            for source in configuration.networks
        ),
        jobs=tuple(jobs.values()),
        notes=tuple(notes),
    )


def groups(jobs: Sequence[Job]) -> list[Group]:
    """Return how many instances there are of each kind, in the order of the plan."""
    counts: dict[Group, int] = {}
    for job in jobs:
        kind = group_of(job)
        counts[kind] = counts.get(kind, 0) + 1
    return [replace(kind, instances=count) for kind, count in counts.items()]


def group_of(job: Job) -> Group:
    """Return the kind of an instance, with no count."""
    settings = job.settings
    return Group(
        network=job.network,
        question=settings.question,
        norm=settings.norm,
        radius=job.radius,
        method=settings.method_text,
        timeout=settings.timeout,
        instances=0,
    )


def _jobs(
    configuration: Configuration,
    part: Part,
    name: str,
    network: Network,
    data: Data,
    notes: dict[str, None],
) -> list[Job]:
    points: DataSource = part.data
    jobs = []
    for norm in part.norms:
        sizes: dict[float, str] = {}
        for radius in part.radii:
            try:
                sizes.setdefault(radius.in_units(network, name, norm, part.clip), radius.text)
            except BnncertError as error:
                raise configuration.wrong(radius.line, error) from error
        for choice in part.methods:
            settings = part.settings(norm, choice)
            try:
                campaign = plan(
                    network,
                    data,
                    list(sizes),
                    first=points.first,
                    count=points.count if points.indices is None else _fewer(points),
                    indices=points.indices,
                    clip=part.clip,
                    settings=settings,
                )
            except BnncertError as error:
                raise configuration.wrong(points.line, error) from error
            notes.update(dict.fromkeys(f"network {name}: {note}" for note in campaign.notes))
            jobs += [
                Job(name, sizes[i.key.radius], settings, i, part.certificates)
                for i in campaign.instances
            ]
    return jobs


def _fewer(points: DataSource) -> int | None:
    """Return the number of listed points that are wanted (the command line may want fewer)."""
    assert points.indices is not None
    return None if points.count is None else min(points.count, len(points.indices))


def _load_network(source: NetworkSource) -> Network:
    if source.source is None:
        raise InputError(
            f"network {source.name} has no file; give it with --network {source.name}=FILE"
        )
    if isinstance(source.source, RandomNetwork):
        network = source.source.build()
    elif source.source == "demo:sparse":
        network = load_demo_network("sparse")
    elif source.source == "demo:dense":
        network = load_demo_network("dense")
    else:
        network = load(source.source)
    return network if source.sign_zero is None else network.with_sign_zero(source.sign_zero)


def _load_data(part: Part, network: Network, files: dict[tuple[str, str | None], Data]) -> Data:
    source = part.data.source
    if source is None:
        raise InputError("there is no data; give it with --data FILE")
    if isinstance(source, int):
        count = part.data.count or 1
        points = random_points(network, part.data.first + count, source, part.clip)
        return Data(points, None, f"random points of seed {source}")
    key = source, part.data.labels
    if key not in files:
        if source == DEMO_DATA:
            if part.data.labels is not None:
                raise InputError("the bundled images have labels of their own; leave labels out")
            images = load_demo_images()
            files[key] = Data(images.pixels, images.labels.astype(np.int64), source)
        else:
            files[key] = read_data(source, part.data.labels)
    return files[key]
