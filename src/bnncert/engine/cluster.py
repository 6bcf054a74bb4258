"""Connections to the scheduler of a Dask cluster (extra `cluster`)."""

from __future__ import annotations

import importlib.util
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bnncert.errors import InputError, MissingExtraError

#: Seconds to wait for the scheduler, and for the connection to close.
CONNECT_SECONDS, CLOSE_SECONDS = 5.0, 5.0

#: Seconds to wait for the first worker, and between two messages about it.
WORKER_SECONDS, SAY_SECONDS = 60.0, 30.0

#: An address as Dask prints it: tcp://10.0.0.1:8786, or without the protocol.
_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")


@dataclass(frozen=True, eq=False)
class Cluster:
    """A scheduler and the client of Dask that is connected to it."""

    address: str
    client: Any

    def threads(self) -> int:
        """Return the number of tasks that the workers can run at once."""
        return int(sum(self.client.nthreads().values()))

    def wait_for_worker(self, say: Callable[[str], None]) -> None:
        """Wait until there is a worker, and report that at once and at regular intervals.

        Raises
        ------
        InputError
            If there is no worker after `WORKER_SECONDS`.
        """
        if self.threads():
            return
        end = time.monotonic() + WORKER_SECONDS
        while (left := end - time.monotonic()) > 0:
            say(f"waiting for a worker of {self.address}, {left:.0f} s more at most")
            try:
                self.client.wait_for_workers(1, timeout=min(left, SAY_SECONDS))
            except (TimeoutError, OSError):
                continue
            return
        raise InputError(f"--scheduler {self.address}: it has no workers")


def check_address(address: str) -> tuple[str, int]:
    """Return the host and port of the address of a scheduler; raise if it is not an address.

    Dask takes half a minute to report a wrong address.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[4]) < 2**16:
        raise InputError(
            f"--scheduler is {address!r}; expected HOST:PORT or PROTOCOL://HOST:PORT, as the "
            "scheduler prints it (tcp://10.0.0.1:8786)"
        )
    return found[3].strip("[]"), int(found[4])


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler inside the block; it may have no workers yet.

    Raises
    ------
    InputError
        If there is no scheduler at the address.
    MissingExtraError
        If Dask is not installed.
    """
    place = check_address(address)
    if importlib.util.find_spec("distributed") is None:
        raise MissingExtraError("--scheduler needs distributed: pip install 'bnncert[cluster]'")
    try:
        # Dask repeats the attempt until its time limit, even if nothing listens at the address.
        if not address.startswith("ucx"):
            socket.create_connection(place, CONNECT_SECONDS).close()
        import distributed

        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"--scheduler {address}: cannot be reached ({text})") from error
    try:
        yield Cluster(address, client)
    finally:
        client.close(timeout=CLOSE_SECONDS)
