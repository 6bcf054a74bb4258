"""The number of threads of linear algebra: small matrices are faster with one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

#: Smaller Newton systems gain little from more threads, and lose much on a busy machine, where
#: threads wait for each other at every product.
WORTH_THREADS = 6000


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(size: int) -> AbstractContextManager[object]:
    """Return a context in which matrices of this size are factorised with a good thread count."""
    return nullcontext() if size >= WORTH_THREADS else at_most_threads(1)


def at_most_threads(count: int) -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses at most `count` threads."""
    limit: AbstractContextManager[object] = _controller().limit(limits=count, user_api="blas")
    return limit
