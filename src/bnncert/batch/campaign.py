"""Campaigns: many inputs at many radii, each answer written when it is there.

A campaign is a list of instances, and running it means answering those that its results file
does not answer yet.  So resuming after a kill is running it again.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.batch.labelled_points import Data
from bnncert.batch.store import (
    InputRecord,
    InstanceKey,
    LabelSource,
    NetworkRecord,
    Question,
    ResultsFile,
    Row,
)
from bnncert.deadline import Deadline
from bnncert.errors import BnncertError, InputError
from bnncert.formats.inputs import pick_point
from bnncert.methods import REGISTRY, Options
from bnncert.network import Network
from bnncert.problem import Targets, Ties, robustness
from bnncert.processes import become_worker, interrupts_later
from bnncert.regions import Ball, Norm
from bnncert.relaxations.linear import Form
from bnncert.verification import bound, verify

#: Called with (finished, total, the row just finished or None).
CampaignProgress: TypeAlias = Callable[[int, int, Row | None], None]


@dataclass(frozen=True)
class Settings:
    """What all instances of a campaign have in common; `timeout` is per instance.

    `memory` is in gigabytes, `certificates` the folder that gets a certificate of every verdict.
    `form`, `samples` and `solver` are those of the methods (None: the method's own).
    """

    norm: Norm = "linf"
    targets: Targets = "all"
    ties: Ties = "violation"
    method: str = "auto"
    timeout: float | None = None
    seed: int = 0
    memory: float = 4.0
    certificates: str | None = None
    question: Question = "verify"
    form: Form | None = None
    samples: int | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        # Here, so that nothing is found out only after the first hours of a campaign.
        engine = REGISTRY.make(self.method)
        if self.norm not in engine.regions.split(", "):
            raise InputError(f"method {self.method} has no {self.norm} ball; only {engine.regions}")
        if self.samples is not None and self.samples < 1:
            raise InputError(f"samples is {self.samples}; expected at least 1")
        if self.question == "bound" and self.ties != "violation":
            raise InputError("ties say nothing about a bound; leave them out")
        if self.question == "bound" and self.certificates is not None:
            raise InputError("a bound has no certificate; only verdicts have")
        Deadline(self.timeout)
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; expected an integer >= 0")
        if not self.memory > 0:
            raise InputError(f"memory limit is {self.memory}; expected a number of GB > 0")

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


@dataclass(frozen=True, eq=False)
class Instance:
    """One question: whether every point of a ball is classified as its label."""

    key: InstanceKey
    ball: Ball
    predicted: int
    labels: LabelSource = "own"

    @property
    def label(self) -> int:
        """The true class."""
        return self.key.label


@dataclass(frozen=True, eq=False)
class Campaign:
    """A network, the questions about it, and what to say about those left out."""

    network: Network
    settings: Settings
    instances: tuple[Instance, ...]
    notes: tuple[str, ...] = field(default=())


def plan(
    network: Network,
    data: Data,
    radii: Sequence[float],
    *,
    first: int = 0,
    count: int | None = None,
    indices: Sequence[int] | None = None,
    clip: tuple[float, float] | None = None,
    settings: Settings | None = None,
) -> Campaign:
    """List the instances, radius by radius, and find out now which cannot be asked.

    Parameters
    ----------
    first, count
        Which points: `count` (default: all that follow) from number `first` on.
    indices
        The numbers of the points instead; of these, `count` and `first` choose.
    clip
        The data box (default: the network's own).
    """
    settings = settings or Settings()
    total = data.count(network)
    for index in indices or ():
        if not 0 <= index < total:
            raise InputError(f"{data.where}: index {index}; it holds points 0 to {total - 1}")
    numbers: Sequence[int] = range(total) if indices is None else indices
    if not 0 <= first < len(numbers):
        raise InputError(f"{data.where}: first is {first}; it holds points 0 to {len(numbers) - 1}")
    count = len(numbers) - first if count is None else count
    if not 1 <= count <= len(numbers) - first:
        raise InputError(
            f"{data.where}: count is {count}; from {first} on it holds {len(numbers) - first}"
        )
    if not radii:
        raise InputError("no radius given")
    box = None
    if network.input_lo is not None and network.input_hi is not None:
        box = (network.input_lo, network.input_hi)
    lo: Any = network.input_lo if clip is None else clip[0]
    hi: Any = network.input_hi if clip is None else clip[1]
    asked: list[tuple[int, FloatArray, int, int]] = []
    left_out = 0
    for index in numbers[first : first + count]:
        where = f"{data.where} [{index}]"
        point = pick_point(data.array, index, network.input_shape, box, data.where)
        predicted = int(network.classify(point)[0])
        stated = data.label(index, network)
        label = predicted if stated is None else stated
        if label == settings.targets:
            left_out += 1
            continue
        try:
            robustness(network, Ball(settings.norm, point, 0.0), label, settings.targets)
            for radius in radii:
                Ball(settings.norm, point, radius, lo, hi)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        asked.append((index, point, label, predicted))
    instances = [
        Instance(
            InstanceKey(
                model_hash=network.content_hash,
                input_index=index,
                input_hash=hashlib.sha256(point.astype("<f8").tobytes()).hexdigest(),
                label=label,
                norm=settings.norm,
                radius=float(radius),
                clip=_clip_text(lo, hi),
                targets=str(settings.targets),
                method=settings.method_text,
                timeout=settings.timeout,
                ties=settings.ties,
                sign_zero=network.sign_zero,
                seed=settings.seed,
                question=settings.question,
            ),
            Ball(settings.norm, point, radius, lo, hi),
            predicted,
            "own" if data.labels is None else "given",
        )
        for radius in dict.fromkeys(radii)
        for index, point, label, predicted in asked
    ]
    notes: tuple[str, ...] = ()
    if left_out:
        notes = (f"{left_out} input(s) of class {settings.targets}, the target itself, left out",)
    return Campaign(network, settings, tuple(instances), notes)


def _clip_text(lo: Any, hi: Any) -> str:
    """Return the data box in words: two numbers where they say it all, else a hash."""
    if lo is None or hi is None:
        return "none"
    low, high = np.atleast_1d(lo).astype("<f8") + 0.0, np.atleast_1d(hi).astype("<f8") + 0.0
    if np.all(low == low[0]) and np.all(high == high[0]):
        return f"{float(low[0])!r},{float(high[0])!r}"
    return "sha256:" + hashlib.sha256(low.tobytes() + high.tobytes()).hexdigest()


def answer(network: Network, instance: Instance, settings: Settings, threads: int = 0) -> Row:
    """Answer one instance."""
    options = settings.options(threads)
    path = None
    if settings.certificates is not None:
        path = Path(settings.certificates) / certificate_name(instance)
    if settings.targets != "all" or settings.question == "bound":
        # Verification asks about the chosen rivals only, but any of them can win at the centre;
        # a bound does not look at the centre at all, and a tie there is no reason to leave it out.
        result = verify(
            network,
            instance.ball,
            instance.label,
            ties="robust" if settings.question == "bound" else settings.ties,
            method="interval",
            options=options,
        )
        row = Row.of(instance.key, instance.predicted, result, instance.labels)
        if row.status == "misclassified":
            return row
    if settings.question == "bound":
        result = bound(
            network,
            instance.ball,
            instance.label,
            targets=settings.targets,
            method=settings.method,
            timeout=settings.timeout,
            options=options,
        )
    else:
        result = verify(
            network,
            instance.ball,
            instance.label,
            targets=settings.targets,
            ties=settings.ties,
            method=settings.method,
            timeout=settings.timeout,
            options=options,
            certificate=path,
        )
    return Row.of(instance.key, instance.predicted, result, instance.labels)


def certificate_name(instance: Instance) -> str:
    """Return the file name of an instance's certificate; no two instances share one."""
    key = instance.key
    return f"{key.input_index}-{key.norm}-{key.radius:.9g}-{key.digest[:12]}.bnncert"


def describe_instances(
    results: ResultsFile, network: NetworkRecord, instances: Sequence[Instance]
) -> None:
    """Write into the file what the hashes of a network and of its inputs stand for."""
    inputs = {
        i.key.input_hash: InputRecord(
            i.key.input_hash, i.key.label, network.input_shape, i.ball.middle
        )
        for i in instances
    }
    results.add_networks([network])
    results.add_inputs(inputs.values())
    results.mark_labels_given(i.key for i in instances if i.labels == "given")


def finished_rows(campaign: Campaign, results: ResultsFile) -> list[Row]:
    """Return the rows of a campaign's instances that the file holds, in the campaign's order."""
    found = (results.get(instance.key) for instance in campaign.instances)
    return [row for row in found if row is not None]


def run_campaign(
    campaign: Campaign,
    results: ResultsFile,
    *,
    workers: int = 1,
    progress: CampaignProgress | None = None,
) -> list[Row]:
    """Answer what the file does not answer yet, write each row when it is there, return all.

    Parameters
    ----------
    workers
        Processes at work at once.  More than one needs the usual ``if __name__ == "__main__"``
        in a script; only this process writes.

    Raises
    ------
    InputError
        If a row cannot be written.  Those before it are in the file.
    """
    if workers < 1:
        raise InputError(f"workers is {workers}; expected at least 1")
    report = progress or (lambda done, total, row: None)
    name = Path(campaign.network.source).name
    describe_instances(results, NetworkRecord.of(campaign.network, name), campaign.instances)
    open_ = [i for i in campaign.instances if not results.has(i.key)]
    total = len(campaign.instances)
    done = total - len(open_)
    report(done, total, None)
    answers = _here if workers == 1 else _in_processes
    # Closed at once, not some time later: closing is what stops the processes.
    with closing(answers(campaign, _unanswered(open_, results), workers)) as rows:
        for row in rows:
            if row.certificate is not None:
                row = replace(row, certificate=results.relative(row.certificate))
            results.add(row)
            done += 1
            report(done, total, row)
    return finished_rows(campaign, results)


def _unanswered(instances: Sequence[Instance], results: ResultsFile) -> Iterator[Instance]:
    """Yield instances, but not those that another process has answered in the meantime."""
    return (i for i in instances if not results.has(i.key))


def _here(
    campaign: Campaign, instances: Iterator[Instance], workers: int
) -> Generator[Row, None, None]:
    for instance in instances:
        yield answer(campaign.network, instance, campaign.settings)


def _in_processes(
    campaign: Campaign, instances: Iterator[Instance], workers: int
) -> Generator[Row, None, None]:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    threads = max(1, (os.cpu_count() or 1) // workers)
    executor = ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(receiving, campaign.network, campaign.settings, threads),
    )
    pending: set[Future[Row]] = set()

    def top_up() -> None:
        # Some ahead of the workers, so that none waits; not all, for another process may answer.
        while len(pending) < 2 * workers and (instance := next(instances, None)) is not None:
            with interrupts_later():
                pending.add(executor.submit(_answer_in_worker, instance))

    try:
        top_up()
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
            top_up()
    except BrokenProcessPool as error:
        raise BnncertError(
            "a worker process ended unexpectedly (killed, or out of memory); the rows before it "
            "are written, and the same command goes on from there"
        ) from error
    finally:
        # Workers end when this end of the pipe is closed, by us or by the end of this process.
        sending.close()
        receiving.close()
        executor.shutdown(wait=True, cancel_futures=True)


#: What a worker process works on; set once, when it starts.
_worker: tuple[Network, Settings, int] | None = None


def _start_worker(lifeline: Connection, network: Network, settings: Settings, threads: int) -> None:
    global _worker
    become_worker(lifeline)
    _worker = network, settings, threads


def _answer_in_worker(instance: Instance) -> Row:
    assert _worker is not None
    network, settings, threads = _worker
    return answer(network, instance, settings, threads)
