"""The option `--scheduler` of the commands for one question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bnncert.cli.consoles import Consoles
from bnncert.engine.methods import Options
from bnncert.engine.scheduler import connected


@contextmanager
def with_cluster(options: Options, address: str | None, consoles: Consoles) -> Iterator[Options]:
    """Return the options with the workers of the scheduler at an address, if one is given.

    The search also runs in this process, so workers may join later.
    """
    if address is None:
        yield options
        return
    with connected(address) as cluster:
        if not cluster.threads():
            line = f"note: {address} has no workers yet; the search begins without them"
            consoles.watching.print(line, soft_wrap=True)
        yield replace(options, cluster=cluster)
