"""Estimates of the remaining time of an experiment.

Methods differ by orders of magnitude.  The estimate for an unanswered instance is therefore the
mean time of the finished instances of its own kind; if there are none, that of its method; if there
are none of these either, its time limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bnncert.results.instance import Instance


class Estimate:
    """The remaining seconds of work, estimated from the finished instances."""

    def __init__(self, instances: Iterable[Instance]) -> None:
        self._open = Counter(instance.group for instance in instances)
        self._sums: dict[object, tuple[float, int]] = {}

    def finish(self, instance: Instance, seconds: float) -> None:
        """Record that an instance is finished and took `seconds`."""
        kind = instance.group
        self._open[kind] -= 1
        for name in (kind, kind.method):
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + seconds, count + 1

    def remaining(self, workers: int) -> float | None:
        """Return the remaining seconds with `workers` workers, or None if they are unknown."""
        left = 0.0
        for kind, count in self._open.items():
            if count == 0:
                continue
            total, seen = self._sums.get(kind) or self._sums.get(kind.method) or (0.0, 0)
            if seen:
                left += count * total / seen
            elif kind.timeout is not None:
                left += count * kind.timeout
            else:
                return None
        return left / max(1, workers)


def duration(seconds: float) -> str:
    """Return seconds in words, with at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole // 60} min {whole % 60} s"
