"""The time limit of the check that is running, which loops in all of its parts read.

Rules and exact arithmetic are called from many places, some of them outside of any check.  So the
limit is not passed on from call to call: `running` sets it, and without it there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread
from typing import Any, TypeVar

from bnncert.kernel.container import Budget

T = TypeVar("T")

#: Seconds between two looks at the clock while a function is compiled.
LOOK = 0.02

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


class CompiledFunction:
    """A function that its first call compiles, for which some machines take 20 seconds.

    The compiler reads no clock.  So the first call is made in a thread, which a check leaves behind
    if its time is up.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._is_compiled = function, False

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; reject the file if its check takes too long meanwhile."""
        if self._is_compiled:
            return self.function(*arguments)
        returned: list[Any] = []
        raised: list[BaseException] = []

        def run() -> None:
            try:
                returned.append(self.function(*arguments))
            except BaseException as error:
                raised.append(error)

        first = Thread(target=run, daemon=True)
        first.start()
        while first.is_alive():
            first.join(LOOK)
            refuse_late()
        if raised:
            raise raised[0]
        self._is_compiled = True
        return returned[0]
