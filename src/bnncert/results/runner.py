"""Running a plan: instances without an answer in the results file are answered.

Instances that intervals decide are answered many at once, all others one by one.  Only the calling
process writes: the rows of a batch together, every other row at once.  Running a plan again after
an interruption therefore continues it, and running a finished plan again computes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bnncert.engine.methods import Progress
from bnncert.engine.scheduler import check_address
from bnncert.errors import InputError
from bnncert.model.formats.atomic import make_folder, write_atomically
from bnncert.results.instance import Instance, InstanceAnswer
from bnncert.results.interval_batches import in_batches
from bnncert.results.plan import Plan
from bnncert.results.rows import InputRecord, Row
from bnncert.results.store import ResultsFile
from bnncert.results.workers import answer_here, answer_in_processes, answer_on_cluster

#: Called with (finished, total, the latest answer or None).
RunProgress: TypeAlias = Callable[[int, int, InstanceAnswer | None], None]

#: Instances with their rows.
AnsweredInstances: TypeAlias = tuple[tuple[Instance, Row], ...]


@dataclass(frozen=True)
class Place:
    """The place where instances are answered."""

    #: Processes on this machine; 0 answers in the calling process.  In a script, processes need
    #: the usual ``if __name__ == "__main__"``.
    workers: int = 0
    #: The address of a Dask scheduler, whose workers answer instead.
    scheduler: str | None = None
    #: Called with a line of text while the scheduler has no workers.
    say: Callable[[str], None] | None = None
    #: Told what is done for an instance in the calling process.
    watch: Progress | None = None

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InputError(f"workers is {self.workers}; expected at least 0")
        if self.scheduler is not None:
            check_address(self.scheduler)


@dataclass(frozen=True, eq=False)
class Finished:
    """The instances that are answered, with their rows, and the failures of this run."""

    rows: AnsweredInstances
    failures: tuple[InstanceAnswer, ...] = ()


def finished_rows(plan: Plan, results: ResultsFile) -> AnsweredInstances:
    """Return the instances that the file answers, in the order of the plan."""
    found = results.get(instance.key for instance in plan.instances)
    return tuple((i, found[i.key]) for i in plan.instances if i.key in found)


def run_plan(
    plan: Plan,
    results: ResultsFile,
    *,
    place: Place | None = None,
    certificates: Path | None = None,
    progress: RunProgress | None = None,
) -> Finished:
    """Answer the instances without an answer in the file, and return all rows of the plan.

    Certificates are written to the folder `certificates`, by default one beside the results file
    that is named after it.  Raises InputError if a row or a certificate cannot be written; those
    before it are on the disk.
    """
    folder = certificates or default_folder(results.path)
    report = progress or (lambda done, total, answer: None)
    _describe(plan, results)
    known = results.answered()
    unanswered = [i for i in plan.instances if i.key.digest not in known]
    total = len(plan.instances)
    done = total - len(unanswered)
    failures: list[InstanceAnswer] = []

    def enter(*answers: InstanceAnswer) -> None:
        nonlocal done
        rows = [_complete_row(a, a.row, folder, results) for a in answers if a.row is not None]
        if rows:
            results.add(*rows)
        for answer in answers:
            if answer.row is None:
                failures.append(answer)
            done += 1
            report(done, total, answer)

    def open_ones() -> Iterator[Instance]:
        for batch in in_batches(plan.networks, unanswered):
            decided: list[InstanceAnswer] = []
            for instance, answer in batch:
                if answer is not None:
                    decided.append(answer)
                    continue
                enter(*decided)
                decided.clear()
                # Another process may have answered it meanwhile.
                if not results.has(instance.key):
                    yield instance
            enter(*decided)

    report(done, total, None)
    if unanswered:
        # Closed at once at the end, because closing stops the workers.
        with closing(_answers(plan, open_ones(), place or Place())) as answers:
            for answer in answers:
                enter(answer)
    return Finished(finished_rows(plan, results), tuple(failures))


def default_folder(results: Path) -> Path:
    """Return the folder of the certificates that belong to a results file."""
    return results.with_name(f"{results.stem}-certificates")


def _describe(plan: Plan, results: ResultsFile) -> None:
    """Write the networks and inputs of the plan's hashes to the file."""
    shapes = {record.model_hash: record.input_shape for record in plan.records}
    asked = {i.key.model_hash for i in plan.instances}
    inputs = {
        i.key.input_hash: InputRecord(
            i.key.input_hash, i.key.label, shapes[i.key.model_hash], i.point
        )
        for i in plan.instances
    }
    results.add_title(plan.title)
    results.add_networks(record for record in plan.records if record.model_hash in asked)
    results.add_inputs(inputs.values())
    results.mark_labels_given(i.key for i in plan.instances if i.labels == "given")


def _answers(
    plan: Plan, instances: Iterator[Instance], place: Place
) -> Generator[InstanceAnswer, None, None]:
    if place.scheduler is not None:
        say = place.say or (lambda text: None)
        return answer_on_cluster(plan.networks, instances, place.scheduler, say)
    if place.workers == 0:
        return answer_here(plan.networks, instances, place.watch)
    return answer_in_processes(plan.networks, instances, place.workers)


def _complete_row(answer: InstanceAnswer, row: Row, folder: Path, results: ResultsFile) -> Row:
    """Return the row with the names of its points and of its certificate, which is written here.

    The certificate is written before its row, so that the file that a row names exists.
    """
    points = answer.instance.points
    row = replace(row, data=points.data, scale=points.scale)
    name = answer.instance.certificate
    if answer.certificate is None or name is None:
        return row
    make_folder(folder)
    write_atomically(folder / name, answer.certificate)
    return replace(row, certificate=results.relative(folder / name))


class Estimate:
    """The remaining seconds of work, estimated from the finished instances."""

    def __init__(self, instances: Iterable[Instance]) -> None:
        self._open = Counter(instance.group for instance in instances)
        self._sums: dict[object, tuple[float, int]] = {}

    def finish(self, instance: Instance, seconds: float) -> None:
        """Record that an instance is finished and took `seconds`."""
        kind = instance.group
        self._open[kind] -= 1
        for name in (kind, kind.method):
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + seconds, count + 1

    def remaining(self, workers: int) -> float | None:
        """Return the remaining seconds with `workers` workers, or None if they are unknown."""
        left = 0.0
        for kind, count in self._open.items():
            if count == 0:
                continue
            total, seen = self._sums.get(kind) or self._sums.get(kind.method) or (0.0, 0)
            if seen:
                left += count * total / seen
            elif kind.timeout is not None:
                left += count * kind.timeout
            else:
                return None
        return left / max(1, workers)


def duration(seconds: float) -> str:
    """Return seconds in words, with at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole // 60} min {whole % 60} s"
