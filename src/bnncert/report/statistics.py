"""The rows of a results file counted, in panels and series, for tables, the page and files.

Only answers to the same question are counted together: a panel has one network, norm, grid, data
box, choice of rivals and rule for ties; a series of it has one method with its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bnncert.regions.radii import inputs_text, radius_in_px, radius_text
from bnncert.results.rows import InstanceKey, LabelSource, NetworkRecord, Row, label_source
from bnncert.results.store import Recorded

#: The titles of the columns of numbers.
COUNT_TITLES = ("instances", "misclassified", "robust", "not robust", "undecided")


@dataclass(frozen=True)
class Count:
    """The numbers of answers of one series at one radius, and the times.

    A misclassified input is an instance, but no method runs for it.  The mean and the maximum of
    the seconds are therefore those of the other instances, and 0 if there are none.
    """

    radius: float
    series: str
    instances: int
    misclassified: int
    robust: int
    not_robust: int
    undecided: int
    mean_seconds: float
    max_seconds: float

    @property
    def certified(self) -> float:
        """Share of all inputs that are proved to be classified as their label."""
        return self.robust / self.instances

    @property
    def not_falsified(self) -> float:
        """Share of all inputs without a known counterexample: an upper bound of the accuracy."""
        return 1 - (self.not_robust + self.misclassified) / self.instances


def count_answers(radius: float, series: str, rows: Iterable[Row]) -> Count:
    """Count the answers of the rows of one series (a method with its limits) at one radius."""
    rows = list(rows)
    statuses = [row.status for row in rows]
    seconds = [row.seconds for row in rows if row.status != "misclassified"]
    return Count(
        radius=radius,
        series=series,
        instances=len(rows),
        misclassified=statuses.count("misclassified"),
        robust=statuses.count("robust"),
        not_robust=statuses.count("not_robust"),
        undecided=statuses.count("unknown") + statuses.count("timeout"),
        mean_seconds=mean(seconds) or 0.0,
        max_seconds=max(seconds, default=0.0),
    )


def count_cells(count: Count) -> tuple[str, ...]:
    """Return the numbers of answers as the cells of a table, under `COUNT_TITLES`."""
    return tuple(str(getattr(count, title.replace(" ", "_"))) for title in COUNT_TITLES)


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of some values, or None if there are no values."""
    known = list(values)
    return math.fsum(known) / len(known) if known else None


#: The number, hash and label of an input.
_Instance: TypeAlias = tuple[int, str, int]

NORM_NAMES = {"linf": "L∞", "l2": "L2", "l1": "L1", "l0": "L0"}

#: The units of radii that are not lengths in input units.
COUNTED_UNITS = {
    "l0": "number of inputs",
    "contrast": "change of the factor",
    "patch": "side in pixels",
    "shift": "pixels",
}

#: The name of the share of robust inputs, and a description of the labels.
SHARE_NAMES: dict[LabelSource, str] = {
    "given": "accuracy",
    "own": "agreement with the network's own answer",
    "unknown": "share of the inputs",
}
CERTIFIED: dict[LabelSource, str] = {
    "given": "certified accuracy",
    "own": "certified agreement",
    "unknown": "certified share",
}
LABEL_WORDS: dict[LabelSource, str] = {
    "given": "labels given",
    "own": "no labels: agreement with the network's own answer",
    "unknown": "whether labels were given is not recorded",
}

#: Candidates for the reference method, whose gain over the others is shown, in order.
REFERENCE_METHODS = (
    *("sdp", "sdp-tight", "sdp-tight-pairwise", "sdp-tight-plain", "sdp-standard", "sdp-order2"),
)

#: Instances of a figure of bounds are sorted by the first of these methods, as in the paper.
SORTING_METHODS = ("sdp-tight", *REFERENCE_METHODS)


@dataclass(frozen=True, eq=False)
class Panel:
    """Rows that may be compared; `series` has the name of the series of each row.

    `numbers` has a number for each series of the file, so that all panels draw it alike.
    """

    network: NetworkRecord
    answers: tuple[Row, ...]
    series: tuple[str, ...]
    numbers: Mapping[str, int]

    @property
    def key(self) -> InstanceKey:
        """The key of the first row; all rows share its norm, data box, rivals, ties and grid."""
        return self.answers[0].key

    @property
    def norm_name(self) -> str:
        """The norm in mathematical notation, with the reach of single inputs if it is limited."""
        name = NORM_NAMES.get(self.key.norm, self.key.norm)
        if self.key.value is not None:
            name += f" of value {self.key.value:.9g}"
        if self.key.within is None:
            return name
        return f"{name} within {radius_text(self.key.within, 'linf', self.network.pixel_step)}"

    @property
    def inputs(self) -> str:
        """The inputs that the radii are about: real ones, integer pixels, or another grid."""
        return inputs_text(self.key.grid_step, self.network.pixel_step)

    @property
    def settings(self) -> str:
        """The settings that all rows share, apart from network and norm."""
        rivals, clip = self.key.rivals, self.key.clip
        classes = "all rivals" if rivals == "all" else f"{self.rival_names} only"
        box = "no data box" if clip == "none" else f"data box {clip.replace(',', ' to ')}"
        return f"{classes}, {box}, ties: {self.key.ties}, {LABEL_WORDS[self.labels]}"

    @property
    def rival_names(self) -> str:
        """The rivals if they are not all."""
        rivals = self.key.rivals
        if rivals == "runner-up":
            return "the runner-up"
        return f"class{'es' if ',' in rivals else ''} {rivals.replace(',', ', ')}"

    @property
    def name(self) -> str:
        """Network, norm, inputs and the rivals (if not all) in one line."""
        name = f"{self.network.name}, {self.norm_name}, {self.inputs}"
        return name if self.key.rivals == "all" else f"{name}, {self.rival_names} only"

    @property
    def certified_name(self) -> str:
        """The name of the share of robust inputs; an accuracy is about all rivals."""
        if self.key.rivals == "all":
            return CERTIFIED[self.labels]
        return f"certified against {self.rival_names}"

    @cached_property
    def labels(self) -> LabelSource:
        """Where the labels of all rows come from."""
        return label_source(self.answers)

    def radius_text(self, radius: float) -> str:
        """Return a radius with its unit: in px if the network states its pixel step."""
        return radius_text(radius, self.key.norm, self.network.pixel_step)

    def radius_number(self, radius: float) -> float:
        """Return a radius in the units of :attr:`unit`."""
        pixels = radius_in_px(radius, self.key.norm, self.network.pixel_step)
        return radius if pixels is None else pixels

    @property
    def unit(self) -> str:
        """The unit of radii."""
        if self.key.norm in COUNTED_UNITS:
            return COUNTED_UNITS[self.key.norm]
        return "px" if self.network.pixel_step else "input units"

    def rows(self, question: str) -> list[tuple[str, Row]]:
        """Choose the rows of `verify` or of `bound`, with their series."""
        pairs = zip(self.series, self.answers, strict=True)
        return [(name, row) for name, row in pairs if row.key.question == question]


def panels(recorded: Recorded) -> list[Panel]:
    """Return the panels, in the order in which their first rows were written."""
    groups: dict[tuple[str | float | None, ...], list[Row]] = {}
    for r in recorded.rows:
        k = r.key
        place = (k.model_hash, k.norm, k.clip, k.rivals, k.ties, k.grid, k.within, k.value)
        groups.setdefault(place, []).append(r)
    series = [_series(rows) for rows in groups.values()]
    # Without those that have no curve, to keep the number of different styles small.
    drawn = dict.fromkeys(n for names in series for n in names if n.split(" ")[0] != "sample")
    numbers = {name: number for number, name in enumerate(drawn)}
    return [
        Panel(recorded.network(rows[0].key.model_hash), tuple(rows), names, numbers)
        for rows, names in zip(groups.values(), series, strict=True)
    ]


def _series(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the name of each row's series: the method, and its limits if they differ."""
    limits: dict[tuple[str, str], tuple[set[float | None], set[int]]] = {}
    for r in rows:
        timeouts, seeds = limits.setdefault((r.key.method, r.key.question), (set(), set()))
        timeouts.add(r.key.timeout)
        seeds.add(r.key.seed)
    names = []
    for r in rows:
        timeouts, seeds = limits[r.key.method, r.key.question]
        name = r.key.method
        if len(timeouts) > 1:
            name += " (no limit)" if r.key.timeout is None else f" ({r.key.timeout:g} s)"
        if len(seeds) > 1:
            name += f" seed {r.key.seed}"
        names.append(name)
    return tuple(names)


def counts(panel: Panel) -> list[Count]:
    """Count the answers of `verify` by radius and series, smallest radius first."""
    groups: dict[tuple[float, str], list[Row]] = {}
    for name, row in panel.rows("verify"):
        groups.setdefault((row.key.radius, name), []).append(row)
    order = {name: k for k, name in enumerate(dict.fromkeys(panel.series))}
    keys = sorted(groups, key=lambda key: (key[0], order[key[1]]))
    return [count_answers(*key, groups[key]) for key in keys]


def reference_series(
    names: Iterable[str], methods: Sequence[str] = REFERENCE_METHODS
) -> str | None:
    """Return the series of the first of these methods, whose gain over the others is shown."""
    known = list(names)
    for method in methods:
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
    """Bounds of the instances at one radius, sorted by the bound of `sorted_by`, highest first."""

    radius: float
    question: str
    #: Where the upper bounds come from.
    upper_name: str
    #: The series that the instances are sorted by.
    sorted_by: str
    #: Number of the input of each instance.
    images: tuple[int, ...]
    upper: tuple[float | None, ...]
    #: For each series, a lower bound or None for each instance.
    lower: dict[str, tuple[float | None, ...]]
    improvements: tuple[Improvement, ...]


def gaps(panel: Panel) -> list[Gap]:
    """Return one gap for each radius at which there is a lower bound.

    Rows of `bound` are preferred: `verify` stops as soon as the sign of the margin is known, except
    by methods that solve one program to its end.
    """
    found = []
    for radius in sorted({r.key.radius for r in panel.answers}):
        bound, verify = (
            [(s, r) for s, r in panel.rows(question) if r.key.radius == radius]
            for question in ("bound", "verify")
        )
        known = {name for name, _ in bound}
        ended = [
            (name, r)
            for name, r in verify
            if name not in known and r.key.method.startswith(("lp", "sdp-"))
        ]
        gap = _gap(radius, "bound", bound + ended) if bound else None
        gap = gap or _gap(radius, "verify", verify)
        if gap is not None:
            found.append(gap)
    return found


def _gap(radius: float, question: str, rows: Sequence[tuple[str, Row]]) -> Gap | None:
    rows = [(name, r) for name, r in rows if r.status != "misclassified"]
    if not any(r.lower is not None for _, r in rows):
        return None
    sampled = any(_is_sample(r) and r.upper is not None for _, r in rows)
    upper: dict[_Instance, float] = {}
    lower: dict[str, dict[_Instance, float]] = {}
    for name, r in rows:
        instance = r.key.instance
        if r.upper is not None and (_is_sample(r) or not sampled):
            upper[instance] = min(r.upper, upper.get(instance, math.inf))
        if r.lower is not None:
            known = lower.setdefault(name, {})
            known[instance] = max(r.lower, known.get(instance, -math.inf))
    first = reference_series(lower, SORTING_METHODS) or next(iter(lower))
    best = {i: max(b.get(i, -math.inf) for b in lower.values()) for b in lower.values() for i in b}
    order = sorted(best, key=lambda i: (-lower[first].get(i, -math.inf), -best[i], i))
    return Gap(
        radius=radius,
        question=question,
        upper_name="sample" if sampled else "all methods",
        sorted_by=first,
        images=tuple(i[0] for i in order),
        upper=tuple(upper.get(i) for i in order),
        lower={name: tuple(b.get(i) for i in order) for name, b in lower.items()},
        improvements=tuple(_improvements(upper, lower)),
    )


def _is_sample(row: Row) -> bool:
    """Return whether random points gave the upper bound; options follow the method's name."""
    return row.key.method.split(" ")[0] == "sample"


def _improvements(
    upper: Mapping[_Instance, float], lower: Mapping[str, Mapping[_Instance, float]]
) -> Iterator[Improvement]:
    """Yield the gain of the reference method over the others, and of the paper's own over lp."""
    reference, tight = reference_series(lower), reference_series(lower, ("sdp-tight",))
    pairs = [(reference, name) for name in lower if reference not in (None, name)]
    if tight not in (None, reference):
        pairs += [(tight, name) for name in lower if name == "lp" or name.startswith("lp ")]
    for better, name in pairs:
        assert better is not None
        shares = [
            (lower[better][i] - low) / (upper[i] - low)
            for i, low in lower[name].items()
            # A bound that equals the minimum cannot be improved.
            if i in upper and i in lower[better] and upper[i] > low
        ]
        share = mean(shares)
        if share is not None:
            yield Improvement(better, name, len(shares), share)


#: The answers from the most to the least informative one.
_STRENGTH = ("misclassified", "not_robust", "robust", "timeout", "unknown")


@dataclass(frozen=True)
class Together:
    """The counts at one radius, and the numbers of inputs with two opposite verdicts."""

    count: Count
    contradictions: tuple[int, ...] = ()

    @property
    def falsified(self) -> int:
        """Inputs with a known counterexample; a misclassified input is one itself."""
        return self.count.not_robust + self.count.misclassified


def together(panel: Panel) -> list[Together]:
    """Return the answers of all methods to both questions, radius by radius."""
    groups: dict[float, dict[tuple[int, str, int], list[Row]]] = {}
    for row in panel.answers:
        groups.setdefault(row.key.radius, {}).setdefault(row.key.instance, []).append(row)
    return [_together(radius, list(groups[radius].values())) for radius in sorted(groups)]


def _together(radius: float, instances: Sequence[Sequence[Row]]) -> Together:
    best = [min(rows, key=lambda row: _STRENGTH.index(row.status)) for rows in instances]
    opposite = (
        rows[0].key.input_index
        for rows in instances
        if {"robust", "not_robust"} <= {row.status for row in rows}
    )
    return Together(count_answers(radius, "", best), tuple(sorted(opposite)))
