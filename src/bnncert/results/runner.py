"""Running a plan: instances without an answer in the results file are answered.

Instances that intervals decide are answered many at once, all others one by one.  Only the calling
process writes: the rows of a batch together, every other row at once.  Running a plan again after
an interruption therefore continues it, and running a finished plan again computes nothing.

Each worker process has one instance at a time; if it exits unexpectedly, the instance is tried
again in a new process.  On a Dask cluster each instance is a task that returns its row; if a worker
exits, the scheduler gives its tasks to others.  Networks are also tasks, so that they are unpacked
again on those workers.
"""

from __future__ import annotations

import pickle
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

from bnncert.engine.cluster import check_address, connected
from bnncert.engine.methods import Progress
from bnncert.engine.processes import WorkerProcess, usable_cores
from bnncert.errors import BnncertError, InputError, failure_text
from bnncert.model.formats.atomic import make_folder, write_atomically
from bnncert.model.network import Network
from bnncert.results.instance import Instance, InstanceAnswer, attempt, overdue
from bnncert.results.interval_batches import in_batches
from bnncert.results.plan import Plan
from bnncert.results.rows import InputRecord, Row
from bnncert.results.store import ResultsFile

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


# -- workers ------------------------------------------------------------------------------

#: A worker is killed this long after the time limit of its instance.  Methods check the time limit
#: themselves, but a single step of a general solver may take long.
GRACE_SHARE, GRACE_SECONDS = 0.25, 15.0

#: The most attempts for an instance whose worker exits, and the most workers that do not start.
MOST_ATTEMPTS, MOST_FALSE_STARTS = 2, 3


def answer_here(
    networks: Mapping[str, Network], instances: Iterator[Instance], watch: Progress | None
) -> Generator[InstanceAnswer, None, None]:
    """Answer one instance after the other in this process; `watch` is told what it does."""
    for instance in instances:
        yield attempt(networks[instance.key.model_hash], instance, 0, watch)


def answer_in_processes(
    networks: Mapping[str, Network], instances: Iterator[Instance], workers: int
) -> Generator[InstanceAnswer, None, None]:
    """Answer instances in worker processes, in the order in which they finish."""
    threads = max(1, usable_cores() // workers)
    again: deque[Instance] = deque()
    attempts: Counter[str] = Counter()
    false_starts = 0
    team: list[_Worker] = []
    waiting = next(instances, None)
    try:
        while True:
            # Start a new process only if there is an instance for it.
            idle = sum(w.instance is None for w in team)
            wanted = len(again) + (waiting is not None)
            if len(team) < workers and idle < wanted:
                team.append(_Worker(WorkerProcess.start(_serve, threads)))
            for worker in team:
                if worker.ready and worker.instance is None:
                    if again:
                        worker.give(again.popleft(), networks)
                    elif waiting is not None:
                        worker.give(waiting, networks)
                        waiting = next(instances, None)
            if waiting is None and not again and all(w.instance is None for w in team):
                return
            # Returns early if a worker reports; time limits are checked at least twice a second.
            pause = 0.05 if len(team) < workers and waiting is not None else 0.5
            wait([w.running.connection for w in team], timeout=pause)
            for worker in list(team):
                instance = worker.instance
                if worker.lost:
                    team.remove(worker)
                    worker.stop()
                    if instance is None:
                        false_starts += not worker.ready
                        if false_starts >= MOST_FALSE_STARTS:
                            raise BnncertError("worker processes end before they begin to work")
                        continue
                    attempts[instance.key.digest] += 1
                    if attempts[instance.key.digest] < MOST_ATTEMPTS:
                        again.append(instance)
                    else:
                        reason = "its worker process ended unexpectedly (killed, or out of memory)"
                        yield InstanceAnswer(instance, None, failure=reason)
                elif (answer := worker.news()) is not None:
                    yield answer
                elif instance is not None and worker.is_overdue():
                    team.remove(worker)
                    worker.stop()
                    yield overdue(instance, worker.busy_seconds())
    finally:
        for worker in team:
            worker.stop()


@dataclass(eq=False)
class _Worker:
    """A process, the instance that it answers, and the network that it has."""

    running: WorkerProcess
    ready: bool = False
    lost: bool = False
    instance: Instance | None = None
    network: str = ""
    since: float = 0.0

    def give(self, instance: Instance, networks: Mapping[str, Network]) -> None:
        """Send an instance, and its network if the process has another one."""
        content = instance.key.model_hash
        network = None if content == self.network else networks[content]
        self.instance, self.network, self.since = instance, content, time.monotonic()
        try:
            self.running.connection.send((instance, network))
        except OSError:
            self.lost = True

    def news(self) -> InstanceAnswer | None:
        """Return the answer if the process has sent one."""
        try:
            if not self.running.connection.poll():
                return None
            message = self.running.connection.recv()
        except (EOFError, OSError):
            self.lost = True
            return None
        if message is None:
            self.ready = True
            return None
        assert isinstance(message, InstanceAnswer)
        self.instance = None
        return message

    def busy_seconds(self) -> float:
        return time.monotonic() - self.since

    def is_overdue(self) -> bool:
        limit = None if self.instance is None else self.instance.settings.timeout
        if limit is None:
            return False
        return self.busy_seconds() > (1 + GRACE_SHARE) * limit + GRACE_SECONDS

    def stop(self) -> None:
        """End the process immediately."""
        self.running.kill()
        self.running.join()


def _serve(connection: Connection, threads: int) -> None:
    """Answer the instances that arrive until the parent process exits."""
    network: Network | None = None
    try:
        connection.send(None)
        while True:
            instance, sent = connection.recv()
            network = network if sent is None else sent
            assert network is not None
            connection.send(attempt(network, instance, threads))
    except (EOFError, OSError):
        # The parent process has exited.
        return


#: Submitted tasks for each thread of the cluster: enough to keep all threads busy, but few, because
#: another process may answer some of the instances.
AHEAD = 3


def answer_on_cluster(
    networks: Mapping[str, Network],
    instances: Iterator[Instance],
    address: str,
    say: Callable[[str], None],
) -> Generator[InstanceAnswer, None, None]:
    """Answer instances on the workers of a scheduler, in the order in which they finish.

    Raises InputError if there is no scheduler at the address or it has no workers, and BnncertError
    if the connection is lost; the answers before are in the results file.
    """
    with connected(address) as cluster:
        cluster.wait_for_worker(say)
        yield from _of_tasks(cluster.client, networks, instances, address)


def _of_tasks(
    client: Any, networks: Mapping[str, Network], instances: Iterator[Instance], address: str
) -> Generator[InstanceAnswer, None, None]:
    import distributed

    run = uuid.uuid4().hex[:8]
    shared: dict[str, Any] = {}
    running: dict[str, Instance] = {}
    # Results are fetched one by one: a failed task in a batch would fail the whole batch.
    done = distributed.as_completed(loop=client.loop)

    def submit() -> bool:
        instance = next(instances, None)
        if instance is None:
            return False
        content = instance.key.model_hash
        if content not in shared:
            # Only the last network is kept here, because instances come network by network; tasks
            # that need an earlier one keep it on the scheduler.
            shared.clear()
            packed = zlib.compress(pickle.dumps(networks[content]))
            shared[content] = client.submit(_unpack, packed, key=f"bnncert-network-{run}-{content}")
        key = f"bnncert-{run}-{instance.key.digest}"
        future = client.submit(_answer, shared[content], instance, key=key, pure=False)
        running[key] = instance
        done.add(future)
        return True

    def top_up() -> None:
        threads = sum(client.nthreads().values())
        while len(running) < max(4, AHEAD * threads) and submit():
            pass

    top_up()
    for future in done:
        instance = running.pop(future.key)
        try:
            answer = future.result()
        except distributed.KilledWorker:
            answer = InstanceAnswer(
                instance, None, failure="every worker that tried it ended unexpectedly"
            )
        except Exception as error:
            if client.status != "running" or future.cancelled() or future.status == "lost":
                raise BnncertError(
                    f"--scheduler {address}: the connection was lost; the rows before are written, "
                    "and the same command continues from there"
                ) from error
            answer = InstanceAnswer(instance, None, failure=failure_text(error))
        future.release()
        yield answer
        top_up()


def _unpack(packed: bytes) -> Network:
    network = pickle.loads(zlib.decompress(packed))
    assert isinstance(network, Network)
    return network


def _answer(network: Network, instance: Instance) -> InstanceAnswer:
    # One thread: the cluster decides how many tasks a worker runs at once.
    return attempt(network, instance, 1)
