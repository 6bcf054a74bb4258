"""How many threads linear algebra may use: small matrices are faster on one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

#: Newton systems smaller than this gain little from more threads, and lose much on a busy
#: machine, where threads wait for each other at every product.
WORTH_THREADS = 6000


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(size: int) -> AbstractContextManager[object]:
    """Return a context in which matrices of this size are handled with few enough threads."""
    return nullcontext() if size >= WORTH_THREADS else at_most_threads(1)


def at_most_threads(count: int) -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses no more than so many threads."""
    limit: AbstractContextManager[object] = _controller().limit(limits=count, user_api="blas")
    return limit
