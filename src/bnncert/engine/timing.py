"""What a verification did: the steps of its stages, and how its time divides among the targets.

Methods report a step for each target that they worked on, with the interval of time.  Some stages
work on several targets at once, and their steps overlap.  An instant belongs to the steps that
began last among those which contain it, in equal parts:

    seconds of a target  =  sum over instants of (its steps) / (all steps that the instant has).

Steps without a target, such as presolve, and instants without a step belong to all targets.

While a tree is searched, the share of it that is closed is reported at regular intervals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

#: The name of presolve among the stages.
PRESOLVE = "presolve"

#: The part of the time that no stage reports: start of the methods, replay, bookkeeping.
OTHER = "other"


@dataclass(frozen=True)
class _Found:
    """What a stage found on one target, or on all of them (None).

    `lower` and `upper` are the bounds that it found by itself; `decided` tells whether it decided
    the target.
    """

    stage: str
    target: str | None
    lower: float = field(default=-math.inf, kw_only=True)
    upper: float = field(default=math.inf, kw_only=True)
    decided: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Step(_Found):
    """The work of a stage between two times."""

    begin: float
    end: float


@dataclass(frozen=True)
class LayerCount:
    """The neurons of a layer, and those of them whose sign is not the same on the whole region."""

    neurons: int
    open: int


@dataclass(eq=False)
class Journal:
    """Collects the steps of a run, and the newest count of open neurons."""

    steps: list[Step] = field(default_factory=list)
    layers: tuple[LayerCount, ...] = ()
    #: The last report of progress: finished parts, and all parts.
    counted: tuple[int, int] = (0, 0)

    def shares(self) -> dict[tuple[str | None, str], float]:
        """Return the seconds of every target and stage; the sum is the time that steps cover."""
        times = sorted({t for s in self.steps for t in (s.begin, s.end)})
        starting = sorted(self.steps, key=lambda s: s.begin, reverse=True)
        found: dict[tuple[str | None, str], float] = {}
        active: list[Step] = []
        for begin, end in pairwise(times):
            while starting and starting[-1].begin <= begin:
                active.append(starting.pop())
            active = [s for s in active if s.end > begin]
            latest = max((s.begin for s in active), default=0.0)
            own = [s for s in active if s.begin == latest]
            for step in own:
                key = step.target, step.stage
                found[key] = found.get(key, 0.0) + (end - begin) / len(own)
        return found

    def timing(self) -> Timing:
        """Return what is known about the run."""
        merged: dict[tuple[str | None, str], StageWork] = {}
        shares = self.shares()
        for step in self.steps:
            key = step.target, step.stage
            before = merged.get(key, StageWork(step.stage, step.target, shares.get(key, 0.0)))
            merged[key] = replace(
                before,
                lower=max(before.lower, step.lower),
                upper=min(before.upper, step.upper),
                decided=before.decided or step.decided,
            )
        return Timing(tuple(merged.values()), self.layers)


@dataclass(frozen=True)
class StageWork(_Found):
    """All steps of one stage."""

    seconds: float


@dataclass(frozen=True)
class Timing:
    """The work of all stages in the order in which they began, and the open neurons per layer.

    `remarks` are sentences about candidates for counterexamples that were rejected.
    """

    work: tuple[StageWork, ...] = ()
    layers: tuple[LayerCount, ...] = ()
    remarks: tuple[str, ...] = ()

    def seconds_of(self, target: str) -> dict[str, float]:
        """Return the seconds of each stage for one target."""
        return {w.stage: w.seconds for w in self.work if w.target == target}

    @property
    def shared(self) -> dict[str, float]:
        """The seconds of work for all targets, by stage."""
        return {w.stage: w.seconds for w in self.work if w.target is None}

    @property
    def stages(self) -> dict[str, float]:
        """The seconds of each stage, for all targets together."""
        found: dict[str, float] = {}
        for work in self.work:
            found[work.stage] = found.get(work.stage, 0.0) + work.seconds
        return found

    def spent(self, stage: str, seconds: float) -> Timing:
        """Return the timing with more seconds of a stage for all targets."""
        before = self.shared.get(stage, 0.0)
        others = tuple(w for w in self.work if (w.stage, w.target) != (stage, None))
        return replace(self, work=(*others, StageWork(stage, None, before + seconds)))

    def completed(self, total: float) -> Timing:
        """Return the timing with the rest of the total time under `OTHER`."""
        return self.spent(OTHER, max(0.0, total - sum(w.seconds for w in self.work)))

    def layer_trees(self) -> list[dict[str, int]]:
        """Return the counts of the layers as plain data."""
        return [
            {"layer": k, "neurons": layer.neurons, "open": layer.open}
            for k, layer in enumerate(self.layers, start=1)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON (infinite bounds become None)."""
        return {
            "layers": self.layer_trees(),
            "work": [
                {
                    "stage": w.stage,
                    "target": w.target,
                    "seconds": w.seconds,
                    "lower": w.lower if math.isfinite(w.lower) else None,
                    "upper": w.upper if math.isfinite(w.upper) else None,
                    "decided": w.decided,
                }
                for w in self.work
            ],
        }


def merged_timings(timings: Sequence[Timing]) -> Timing:
    """Combine the timings of several regions; the open neurons are those of the last one."""
    work = tuple(w for timing in timings for w in timing.work)
    layers = next((a.layers for a in reversed(timings) if a.layers), ())
    remarks = tuple(dict.fromkeys(text for timing in timings for text in timing.remarks))
    return Timing(work, layers, remarks)


#: Seconds between two reports of the closed share.
REPORT_INTERVAL = 1.0

#: The largest share of the time for computing what is reported.
REPORT_COST = 0.01


class Pulse:
    """Calls `tell` with the closed share of a tree, but not too often."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._next = time.monotonic() + REPORT_INTERVAL

    def beat(self, open_share: Callable[[], float]) -> None:
        """Report if it is time; `open_share` computes the share that is open."""
        now = time.monotonic()
        if now < self._next:
            return
        self._tell(min(1.0, max(0.0, 1.0 - open_share())))
        after = time.monotonic()
        self._next = after + max(REPORT_INTERVAL, (after - now) / REPORT_COST)
