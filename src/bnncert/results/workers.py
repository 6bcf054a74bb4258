"""Worker processes on this machine, each with one instance at a time.

If a worker exits unexpectedly, its instance is tried again in a new process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from bnncert.engine.processes import WorkerProcess, usable_cores
from bnncert.errors import BnncertError
from bnncert.model.network import Network
from bnncert.results.instance import Instance
from bnncert.results.instance_answer import Answer, attempt, overdue

#: A worker is killed this long after the time limit of its instance.  Methods check the time limit
#: themselves, but a single step of a general solver may take long.
GRACE_SHARE, GRACE_SECONDS = 0.25, 15.0

#: The most attempts for an instance whose worker exits, and the most workers that do not start.
MOST_ATTEMPTS, MOST_FALSE_STARTS = 2, 3


def answer_here(
    networks: Mapping[str, Network], instances: Iterator[Instance]
) -> Generator[Answer, None, None]:
    """Answer one instance after the other in this process."""
    for instance in instances:
        yield attempt(networks[instance.key.model_hash], instance, 0)


def answer_in_processes(
    networks: Mapping[str, Network], instances: Iterator[Instance], workers: int
) -> Generator[Answer, None, None]:
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
                        yield Answer(instance, None, failure=reason)
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

    def news(self) -> Answer | None:
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
        assert isinstance(message, Answer)
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
