"""The interface of the processes that search subtrees of a search over sign patterns."""

from __future__ import annotations

from typing import Protocol

from bnncert.engine.search.patterns.subtrees import Searched, Subtrees


class SubtreePool(Protocol):
    """Processes, on this machine or on others, that search subtrees of one question."""

    @property
    def seconds(self) -> float:
        """Seconds after which a process should return the open nodes of its subtrees."""

    @property
    def trouble(self) -> str:
        """A short message about failures so far; empty if there were none."""

    def vacancies(self) -> int:
        """Return how many more subtrees can be searched now."""

    def submit(self, work: Subtrees) -> int:
        """Begin to search subtrees; return a ticket."""

    def collect(self, seconds: float) -> list[tuple[int, Searched | None]]:
        """Wait at most `seconds` for finished subtrees.

        Returns tickets and results; a result is None if the process has ended without one.
        """
