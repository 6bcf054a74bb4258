"""What the rows of a results file add up to; the page, the CSV and the LaTeX files agree on it.

Only answers to the same question are counted together: a panel is one network, norm, data box,
choice of rivals and rule for ties, a series in it one method with its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from bnncert.batch.recorded import NetworkNote, Record, Recorded
from bnncert.batch.store import LabelSource, label_source

NORM_NAMES = {"linf": "L∞", "l2": "L2", "l1": "L1"}

#: What a share of robust inputs is called, and what is said about the labels behind it.
SHARE_NAMES: dict[LabelSource, str] = {
    "given": "accuracy",
    "own": "agreement with the network's own answer",
    "unknown": "share of the inputs",
}
LABEL_WORDS: dict[LabelSource, str] = {
    "given": "labels given",
    "own": "no labels: agreement with the network's own answer",
    "unknown": "whether labels were given is not recorded",
}

#: Methods whose gain over the others is of interest, the first that is there.
REFERENCE_METHODS = (
    *("sdp", "sdp-tight", "sdp-tight-pairwise", "sdp-tight-plain", "sdp-standard", "sdp-order2"),
)


@dataclass(frozen=True)
class Count:
    """The answers of one series at one radius."""

    radius: float
    series: str
    instances: int
    robust: int
    not_robust: int
    undecided: int
    misclassified: int
    mean_seconds: float
    max_seconds: float

    @property
    def certified(self) -> float:
        """Share of all inputs that are proved to keep their class."""
        return self.robust / self.instances

    @property
    def not_falsified(self) -> float:
        """Share of all inputs without a known counterexample: no accuracy can be above it."""
        return 1 - (self.not_robust + self.misclassified) / self.instances


@dataclass(frozen=True, eq=False)
class Panel:
    """Rows that may be compared; `series` names the one that each row belongs to."""

    network: NetworkNote
    norm: str
    clip: str
    targets: str
    ties: str
    records: tuple[Record, ...]
    series: tuple[str, ...]

    @property
    def norm_name(self) -> str:
        """The norm as people write it."""
        return NORM_NAMES.get(self.norm, self.norm)

    @property
    def settings(self) -> str:
        """What is common to all rows besides network and norm."""
        rivals = {"all": "All rivals", "runner-up": "The runner-up"}.get(
            self.targets, f"Rival {self.targets}"
        )
        box = "no data box" if self.clip == "none" else f"data box {self.clip.replace(',', ' to ')}"
        return f"{rivals}, {box}, ties: {self.ties}, {LABEL_WORDS[self.labels]}"

    @cached_property
    def labels(self) -> LabelSource:
        """Where the labels of all rows come from."""
        return label_source((r.labels, r.label, r.predicted) for r in self.records)

    def delta(self, radius: float) -> str:
        """Return a radius in pixel steps where the network has them, else as it is."""
        step = self.network.pixel_step
        return f"{radius / step:.4g}" if step else f"{radius:.6g}"

    @property
    def unit(self) -> str:
        """What :meth:`delta` counts."""
        return "pixel steps" if self.network.pixel_step else "input units"

    def rows(self, question: str) -> list[tuple[str, Record]]:
        """Return the rows of one kind with their series."""
        pairs = zip(self.series, self.records, strict=True)
        return [(name, record) for name, record in pairs if record.question == question]


def panels(recorded: Recorded) -> list[Panel]:
    """Return the panels, in the order in which their first rows were written."""
    groups: dict[tuple[str, str, str, str, str], list[Record]] = {}
    for r in recorded.records:
        groups.setdefault((r.model_hash, r.norm, r.clip, r.targets, r.ties), []).append(r)
    return [
        Panel(recorded.network(model), norm, clip, targets, ties, tuple(rows), _series(rows))
        for (model, norm, clip, targets, ties), rows in groups.items()
    ]


def _series(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the name of each row's series: the method, and limits where they differ."""
    limits: dict[tuple[str, str], tuple[set[float | None], set[int]]] = {}
    for r in records:
        timeouts, seeds = limits.setdefault((r.method, r.question), (set(), set()))
        timeouts.add(r.timeout)
        seeds.add(r.seed)
    names = []
    for r in records:
        timeouts, seeds = limits[r.method, r.question]
        name = r.method
        if len(timeouts) > 1:
            name += " (no limit)" if r.timeout is None else f" ({r.timeout:g} s)"
        if len(seeds) > 1:
            name += f" seed {r.seed}"
        names.append(name)
    return tuple(names)


def counts(panel: Panel) -> list[Count]:
    """Count the answers of `verify` by radius and series, smallest radius first."""
    groups: dict[tuple[float, str], list[Record]] = {}
    for name, record in panel.rows("verify"):
        groups.setdefault((record.radius, name), []).append(record)
    order = {name: k for k, name in enumerate(dict.fromkeys(panel.series))}
    keys = sorted(groups, key=lambda key: (key[0], order[key[1]]))
    return [_count(*key, groups[key]) for key in keys]


def _count(radius: float, series: str, rows: Sequence[Record]) -> Count:
    words = [r.status for r in rows]
    asked = [r.seconds for r in rows if r.status != "misclassified"]
    return Count(
        radius=radius,
        series=series,
        instances=len(rows),
        robust=words.count("robust"),
        not_robust=words.count("not_robust"),
        undecided=words.count("unknown") + words.count("timeout"),
        misclassified=words.count("misclassified"),
        mean_seconds=mean(asked) or 0.0,
        max_seconds=max(asked, default=0.0),
    )


def mean(values: Iterable[float]) -> float | None:
    """Return the mean, or None of nothing."""
    known = list(values)
    return math.fsum(known) / len(known) if known else None


def reference_series(names: Iterable[str]) -> str | None:
    """Return the series whose gain over the others is shown."""
    known = list(names)
    for method in REFERENCE_METHODS:
        for name in known:
            if name == method or name.startswith((f"{method} (", f"{method} seed")):
                return name
    return None


@dataclass(frozen=True)
class Improvement:
    """Mean of (reference - other) / (upper - other) over the instances that have all three."""

    reference: str
    other: str
    instances: int
    share: float


@dataclass(frozen=True, eq=False)
class Gap:
    """Bounds of the instances at one radius, sorted by upper bound.

    Attributes
    ----------
    upper_name
        Where the upper bounds come from.
    images
        Number of the input of each instance.
    lower
        For each series, a lower bound or None for each instance.
    """

    radius: float
    question: str
    upper_name: str
    images: tuple[int, ...]
    upper: tuple[float | None, ...]
    lower: dict[str, tuple[float | None, ...]]
    improvements: tuple[Improvement, ...]


def gaps(panel: Panel) -> list[Gap]:
    """Return one gap for each radius at which there is a lower bound.

    Rows of `bound` are preferred: `verify` stops as soon as the sign of the margin is known, except
    by methods that solve one program to its end.
    """
    found = []
    for radius in sorted({r.radius for r in panel.records}):
        bound, verify = (
            [(s, r) for s, r in panel.rows(question) if r.radius == radius]
            for question in ("bound", "verify")
        )
        known = {name for name, _ in bound}
        ended = [
            (name, r)
            for name, r in verify
            if name not in known and r.method.startswith(("lp", "sdp-"))
        ]
        gap = _gap(radius, "bound", bound + ended) if bound else None
        gap = gap or _gap(radius, "verify", verify)
        if gap is not None:
            found.append(gap)
    return found


def _gap(radius: float, question: str, rows: Sequence[tuple[str, Record]]) -> Gap | None:
    rows = [(name, r) for name, r in rows if r.status != "misclassified"]
    if not any(r.lower is not None for _, r in rows):
        return None
    sampled = any(r.method == "sample" and r.upper is not None for _, r in rows)
    upper: dict[tuple[int, str, int], float] = {}
    lower: dict[str, dict[tuple[int, str, int], float]] = {}
    for name, r in rows:
        instance = (r.input_index, r.input_hash, r.label)
        if r.upper is not None and (r.method == "sample" or not sampled):
            upper[instance] = min(r.upper, upper.get(instance, math.inf))
        if r.lower is not None:
            known = lower.setdefault(name, {})
            known[instance] = max(r.lower, known.get(instance, -math.inf))
    instances = {i for bounds in lower.values() for i in bounds}
    best = {i: max(b[i] for b in lower.values() if i in b) for i in instances}
    order = sorted(instances, key=lambda i: (upper.get(i, math.inf), best[i], i))
    reference, improvements = reference_series(lower), []
    for name in lower:
        if reference is None or name == reference:
            continue
        shares = [
            (lower[reference][i] - lower[name][i]) / (upper[i] - lower[name][i])
            for i in order
            # Where the other bound is the minimum already there is nothing to gain.
            if i in upper
            and i in lower[name]
            and i in lower[reference]
            and upper[i] > lower[name][i]
        ]
        if shares:
            improvements.append(
                Improvement(reference, name, len(shares), math.fsum(shares) / len(shares))
            )
    return Gap(
        radius=radius,
        question=question,
        upper_name="sample" if sampled else "all methods",
        images=tuple(i[0] for i in order),
        upper=tuple(upper.get(i) for i in order),
        lower={name: tuple(b.get(i) for i in order) for name, b in lower.items()},
        improvements=tuple(improvements),
    )
