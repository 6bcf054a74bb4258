"""What a search over sign patterns needs of the processes that search its subtrees."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from bnncert.search.patterns.question import PatternQuestion
from bnncert.search.patterns.subtrees import Searched, Subtrees


class SubtreePool(Protocol):
    """Processes, on this machine or on others, that search subtrees of one question."""

    @property
    def seconds(self) -> float:
        """Seconds after which a process should return what is left of its subtrees."""

    @property
    def trouble(self) -> str:
        """What went wrong so far, in a few words; empty if nothing did."""

    def vacancies(self) -> int:
        """Return how many more subtrees can be searched now."""

    def submit(self, work: Subtrees) -> int:
        """Begin to search subtrees; return a ticket."""

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        """Wait so many seconds at most for finished subtrees.

        Returns tickets and results; None if the process has ended, and nothing of it is known.
        """


#: Opens a pool for a question; its processes end with the block.
PoolMaker: TypeAlias = Callable[[PatternQuestion], AbstractContextManager[SubtreePool]]
