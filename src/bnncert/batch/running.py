"""Running an experiment: what the results file does not answer yet is answered and written.

Only the calling process writes, each row when it is there.  So running again after any end goes on
from there, and running again after the end does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bnncert.atomic import write_atomically
from bnncert.batch.answering import Answer
from bnncert.batch.campaign import certificate_name, describe_instances
from bnncert.batch.cluster import answer_on_cluster, check_address
from bnncert.batch.local import answer_here, answer_in_processes
from bnncert.batch.planning import Experiment, Job
from bnncert.batch.store import ResultsFile, Row
from bnncert.errors import InputError

#: Called with (finished, total, what was answered just now or None).
ExperimentProgress: TypeAlias = Callable[[int, int, Answer | None], None]


@dataclass(frozen=True)
class Place:
    """Where instances are answered.

    Attributes
    ----------
    workers
        Processes on this machine; 0 answers in the calling process.  In a script, processes need
        the usual ``if __name__ == "__main__"``.
    scheduler
        The address of a Dask scheduler, whose workers answer instead.
    """

    workers: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InputError(f"workers is {self.workers}; expected at least 0")
        if self.scheduler is not None:
            check_address(self.scheduler)


@dataclass(frozen=True, eq=False)
class Finished:
    """The jobs that are answered, with their rows, and those that are not, with reasons."""

    rows: tuple[tuple[Job, Row], ...]
    failures: tuple[Answer, ...] = ()


def finished_jobs(experiment: Experiment, results: ResultsFile) -> list[tuple[Job, Row]]:
    """Return the jobs that the file answers, in the order of the plan."""
    found = ((job, results.get(job.instance.key)) for job in experiment.jobs)
    return [(job, row) for job, row in found if row is not None]


def run_experiment(
    experiment: Experiment,
    results: ResultsFile,
    *,
    place: Place | None = None,
    certificates: Path | None = None,
    progress: ExperimentProgress | None = None,
) -> Finished:
    """Answer what the file does not answer yet, and return all rows of the experiment.

    Parameters
    ----------
    certificates
        The folder of the certificates (default: beside the results file, named after it).

    Raises
    ------
    InputError
        If a row or a certificate cannot be written.  Those before it are on the disk.
    """
    place = place or Place()
    folder = certificates or default_folder(results.path)
    report = progress or (lambda done, total, answer: None)
    for record in experiment.records:
        mine = [
            j.instance for j in experiment.jobs if j.instance.key.model_hash == record.model_hash
        ]
        if mine:
            describe_instances(results, record, mine)
    open_ = [job for job in experiment.jobs if not results.has(job.instance.key)]
    total = len(experiment.jobs)
    done = total - len(open_)
    report(done, total, None)
    failures: list[Answer] = []
    if open_:
        # Closed at once, not some time later: closing is what stops the workers.
        with closing(_answers(experiment, _unanswered(open_, results), place)) as answers:
            for answer in answers:
                if answer.row is None:
                    failures.append(answer)
                else:
                    results.add(_with_certificate(answer, answer.row, folder, results))
                done += 1
                report(done, total, answer)
    return Finished(tuple(finished_jobs(experiment, results)), tuple(failures))


def default_folder(results: Path) -> Path:
    """Return the folder of the certificates that belong to a results file."""
    return results.with_name(f"{results.stem}-certificates")


def _unanswered(jobs: Sequence[Job], results: ResultsFile) -> Iterator[Job]:
    """Yield jobs, but not those that another process has answered in the meantime."""
    return (job for job in jobs if not results.has(job.instance.key))


def _answers(
    experiment: Experiment, jobs: Iterator[Job], place: Place
) -> Generator[Answer, None, None]:
    if place.scheduler is not None:
        return answer_on_cluster(experiment.networks, jobs, place.scheduler)
    if place.workers == 0:
        return answer_here(experiment.networks, jobs)
    return answer_in_processes(experiment.networks, jobs, place.workers)


def _with_certificate(answer: Answer, row: Row, folder: Path, results: ResultsFile) -> Row:
    """Write the certificate first: a row never names a file that is not there."""
    if answer.certificate is None:
        return row
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", answer.job.network).strip(".") or "network"
    path = folder / f"{name}-{certificate_name(answer.job.instance)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error})") from error
    write_atomically(path, answer.certificate)
    return replace(row, certificate=results.relative(path))
