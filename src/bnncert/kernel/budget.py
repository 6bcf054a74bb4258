"""The time limit of the check that is running, which loops in all of its parts read.

Rules and exact arithmetic are called from many places, some of them outside of any check.  So the
limit is not passed on from call to call: `running` sets it, and without it there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from bnncert.kernel.container import Budget

T = TypeVar("T")

_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def running(budget: Budget) -> Iterator[None]:
    """Set the budget whose time limit holds inside."""
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def refuse_late() -> None:
    """Reject the file if its check takes too long."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.refuse_late()


def timed(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; reject the file when its check takes too long."""
    for item in items:
        refuse_late()
        yield item
