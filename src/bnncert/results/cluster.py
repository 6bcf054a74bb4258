"""Workers of a Dask cluster.

Each instance is a task that returns its row; only the coordinating process writes.  If a worker
exits, the scheduler gives its tasks to other workers.  Networks are also tasks, so that they are
unpacked again on those workers.
"""

from __future__ import annotations

import pickle
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from bnncert.engine.scheduler import connected
from bnncert.errors import BnncertError, failure_text
from bnncert.model.network import Network
from bnncert.results.instance import Instance
from bnncert.results.instance_answer import Answer, attempt

#: Submitted tasks for each thread of the cluster: enough to keep all threads busy, but few, because
#: another process may answer some of the instances.
AHEAD = 3


def answer_on_cluster(
    networks: Mapping[str, Network],
    instances: Iterator[Instance],
    address: str,
    say: Callable[[str], None],
) -> Generator[Answer, None, None]:
    """Answer instances on the workers of a scheduler, in the order in which they finish.

    Raises InputError if there is no scheduler at the address or it has no workers, and BnncertError
    if the connection is lost; the answers before are in the results file.
    """
    with connected(address) as cluster:
        cluster.wait_for_worker(say)
        yield from _answers(cluster.client, networks, instances, address)


def _answers(
    client: Any, networks: Mapping[str, Network], instances: Iterator[Instance], address: str
) -> Generator[Answer, None, None]:
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
            answer = Answer(instance, None, failure="every worker that tried it ended unexpectedly")
        except Exception as error:
            if client.status != "running" or future.cancelled() or future.status == "lost":
                raise BnncertError(
                    f"--scheduler {address}: the connection was lost; the rows before are written, "
                    "and the same command continues from there"
                ) from error
            answer = Answer(instance, None, failure=failure_text(error))
        future.release()
        yield answer
        top_up()


def _unpack(packed: bytes) -> Network:
    network = pickle.loads(zlib.decompress(packed))
    assert isinstance(network, Network)
    return network


def _answer(network: Network, instance: Instance) -> Answer:
    # One thread: the cluster decides how many tasks a worker runs at once.
    return attempt(network, instance, 1)
