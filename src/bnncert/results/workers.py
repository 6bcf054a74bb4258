"""Workers that answer instances: processes on this machine, or the workers of a Dask cluster.

Each process has one instance at a time; if it exits unexpectedly, the instance is tried again in a
new process.  On a cluster each instance is a task that returns its row; if a worker exits, the
scheduler gives its tasks to others.  Networks are also tasks, so that they are unpacked again on
those workers.
"""

from __future__ import annotations

import pickle
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from bnncert.engine.methods import Progress
from bnncert.engine.processes import WorkerProcess, usable_cores
from bnncert.engine.scheduler import connected
from bnncert.errors import BnncertError, failure_text
from bnncert.model.network import Network
from bnncert.results.instance import Instance, InstanceAnswer, attempt, overdue

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
        yield from _answers(cluster.client, networks, instances, address)


def _answers(
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
