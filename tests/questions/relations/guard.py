"""Random questions about two copies of a tiny network, beside all pairs of grid points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from bnncert.questions.relations.relation_answer import RelationResult
from tests.guarded import Guarded, how, wanted
from tests.plain_network import PlainNetwork, Point, Scores, first_best, quarters, random_plain

#: Whether the scores of x and x' violate a relation.
Violated: TypeAlias = Callable[[Scores, Scores], bool]

#: Kinds of questions with a one-hot group, which changes or not.
GROUPED = ("group", "group and input", "beside a group")

#: Pairs of points that are looked at one by one in a changed claim.
MOST_PAIRS = 4000


def changed_class(a: Scores, b: Scores) -> bool:
    """Whether the classes differ."""
    return first_best(a) != first_best(b)


def fallen(*, label: int | None, score: int | None, falling: bool) -> Violated:
    """Return whether x' loses the class, or has a lower score; with `falling` x does."""

    def violated(a: Scores, b: Scores) -> bool:
        one, two = (b, a) if falling else (a, b)
        if score is not None:
            return two[score] < one[score]
        return first_best(one) == label != first_best(two)

    return violated


def fails(net: PlainNetwork, pairs: Iterable[tuple[Point, Point]], violated: Violated) -> bool:
    """Whether a pair violates the relation for some signs at ties, which equal sums share."""
    return any(violated(a, b) for x, y in pairs for a, b in net.pair_outcomes(x, y))


def random_axes(rng: np.random.Generator, inputs: int) -> tuple[list[range], int, int]:
    """Return the values of all inputs in quarters, their step and their origin."""
    step = int(rng.choice([1, 2, 4]))
    origin = int(rng.integers(0, step))
    low = [origin + step * int(k) for k in rng.integers(-3, 2, inputs)]
    counts = rng.integers(2, 4 if inputs > 2 else 6, inputs).tolist()
    axes = [range(a, a + step * n, step) for a, n in zip(low, counts, strict=True)]
    return axes, step, origin


def box_of(axes: Sequence[range], step: int, origin: int) -> bnncert.Box:
    """Return the box with these values."""
    lo, hi = ([axis[k] / 4 for axis in axes] for k in (0, -1))
    return bnncert.Box(lo, hi, bnncert.Grid(step / 4, origin / 4))


def monotone(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask whether a class or a score is monotone in one feature, by steps or listed values."""
    net = random_plain(rng, int(rng.integers(2, 4)))
    axes, step, origin = random_axes(rng, net.inputs)
    feature = int(rng.integers(net.inputs))
    falling, about = bool(rng.random() < 0.5), int(rng.integers(net.classes))
    is_score = bool(rng.random() < 0.4)
    asked: dict[str, Any] = {"score" if is_score else "label": about}
    allowed: Callable[[int, int], bool] = lambda a, b: True  # noqa: E731
    kind = str(rng.choice(["grid", "step", "values"]))
    if kind == "step" and len(axes[feature]) > 2:
        asked["step"] = 2 * step / 4
        allowed = lambda a, b: (b - a) % (2 * step) == 0  # noqa: E731
    elif kind == "values" and len(axes[feature]) > 2:
        chosen = sorted(rng.choice(axes[feature], int(rng.integers(2, 4)), replace=False).tolist())
        asked["values"] = [v / 4 for v in chosen]
        allowed = lambda a, b: a in chosen and b in chosen  # noqa: E731
    pairs = [
        (x, (*x[:feature], b, *x[feature + 1 :]))
        for x in product(*axes)
        for b in axes[feature]
        if b > x[feature] and allowed(x[feature], b)
    ]
    violated = fallen(label=about, score=about if is_score else None, falling=falling)
    path, network = wanted(rng, folder, "monotone"), net.build()
    region = box_of(axes, step, origin)
    way = how(rng)
    result = bnncert.monotone(
        *(network, feature, region), increasing=not falling, certificate=path, **way, **asked
    )
    kind = f"{sorted(asked)[-1]}, {way['method']}"
    return _judged(rng, net, network, result, pairs, violated, path, mutants, kind)


def fair(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask whether protected inputs, some of them one-hot groups, can change the class."""
    kind = str(rng.choice(["one", "two", "values", *GROUPED]))
    grouped = kind in GROUPED
    net = random_plain(rng, int(rng.integers(3, 5)) if grouped else int(rng.integers(2, 4)))
    axes, step, origin = random_axes(rng, net.inputs)
    states: list[tuple[int, ...]] = list(product(*axes))
    protected: Any = int(rng.integers(net.inputs))
    asked: dict[str, Any] = {}
    if kind == "values" or (kind == "two" and rng.random() < 0.5):
        first = 0 if kind == "two" else protected
        chosen = sorted(rng.choice(axes[first], 2, replace=False).tolist())
        asked["values"] = {first: [v / 4 for v in chosen]}
        states = [x for x in states if x[first] in chosen]
    if kind == "two":
        protected = [0, 1]
    if grouped:
        # The last inputs are a one-hot group of 0 and 1.
        size, step, origin = net.inputs - 1, 4, 0
        axes = [range(-4, 5, 4), *[range(0, 5, 4)] * size]
        group = tuple(range(1, net.inputs))
        states = [x for x in product(*axes) if sorted(x[1:]) == [0] * (size - 1) + [4]]
        protected = {"group": [group], "group and input": [0, group]}.get(kind, 0)
        asked["one_hot"] = [group]
    changing = [
        f
        for p in (protected if isinstance(protected, list) else [protected])
        for f in (p if isinstance(p, tuple) else (p,))
    ]
    pairs = [
        (x, y)
        for x in states
        for y in states
        if x != y and all(x[i] == y[i] for i in range(net.inputs) if i not in changing)
    ]
    path, network = wanted(rng, folder, "fair"), net.build()
    region = box_of(axes, step, origin)
    way = how(rng)
    kind += f", {way['method']}"
    result = bnncert.fair(network, protected, region, certificate=path, **way, **asked)
    return _judged(rng, net, network, result, pairs, changed_class, path, mutants, kind)


def _judged(
    rng: np.random.Generator,
    net: PlainNetwork,
    network: bnncert.Network,
    result: RelationResult,
    pairs: list[tuple[Point, Point]],
    violated: Violated,
    path: Path | None,
    mutants: int,
    kind: str,
) -> Guarded:
    """Compare an answer with all pairs, and check its certificate."""
    found = Guarded()
    expected = "fails" if fails(net, pairs, violated) else "holds"
    found.tally.update([result.status, f"{kind}, sign(0) {net.sign_zero}: {result.status}"])
    about = f"{kind}, sign(0) {net.sign_zero}, {net.weights} {net.biases}"
    if result.status == "unknown" and kind.endswith("propagation"):
        found.tally["undecided"] += 1
        return found
    found.expect(result.status == expected, f"{about}: {result.status} instead of {expected}")
    if result.status not in ("holds", "fails"):
        return found
    if result.pair is not None:
        points = result.pair.exact or (result.pair.first.tolist(), result.pair.second.tolist())
        pair = quarters(points[0]), quarters(points[1])
        found.expect(pair in pairs, f"{about}: the pair {pair} is not in question")
        found.expect(fails(net, [pair], violated), f"{about}: the pair {pair} is no failure")
    found.check_certificate(path, network, f"relation_{result.status}")
    found.change_certificate(rng, path, network, mutants, lambda claim: refuted(net, claim))
    return found


# -- changed claims ------------------------------------------------------------------------


def refuted(net: PlainNetwork, claim: Section) -> str | None:
    """Return what is wrong with an accepted claim about two copies, or None."""
    details = claim.fields["details"]
    relation = details["relation"]
    violated: Violated = changed_class
    if relation["label"] is not None or relation["score"] is not None:
        violated = fallen(**relation)
    pairs = list(_stated_pairs(claim))
    if len(pairs) > MOST_PAIRS:
        return None if details["failure"] is None else "too many pairs"
    if fails(net, pairs, violated) != (details["failure"] is not None):
        return "all pairs say otherwise"
    return None


def _stated_pairs(claim: Section) -> Iterator[tuple[Point, Point]]:
    """Yield the pairs of a claim; the values of its grid are numbers of the stated type."""
    details, arrays = claim.fields["details"], claim.arrays
    lo, hi, step, origin = (
        quarters(arrays[name].tolist()) for name in ("lo", "hi", "grid_step", "grid_origin")
    )
    number = np.dtype(details["region"]["grid"]).type
    axes = []
    for a, b, s, o in zip(lo, hi, step, origin, strict=True):
        # Rounding may move the values next to a bound across it.
        near = range(int((a - o) // s) - 1, int((b - o) // s) + 3)
        values = {4 * Fraction(float(number(float((o + s * k) / 4)))) for k in near}
        axes.append(sorted(v for v in values if a <= v <= b))
    changes = [
        (c["features"], None if c["step"] is None else 4 * Fraction(c["step"]),
         [quarters(v) for v in c["values"]])
        for c in details["changes"]
    ]  # fmt: skip
    states = [x for x in product(*axes) if _is_allowed(x, changes, details["one_hot"])]
    changing = {f for features, _, _ in changes for f in features}
    ordered = details["relation"]["label"] is not None or details["relation"]["score"] is not None
    for x, y in product(states, repeat=2):
        if x == y or any(x[i] != y[i] for i in range(len(x)) if i not in changing):
            continue
        steps = [
            s is None or all((x[f] - y[f]) % s == 0 for f in features) for features, s, _ in changes
        ]
        if all(steps) and (not ordered or all(y[f] >= x[f] for f in changing)):
            yield x, y


def _is_allowed(x: Point, changes: Sequence[Any], groups: Sequence[Sequence[int]]) -> bool:
    for group in groups:
        if sorted(x[f] for f in group) != [0] * (len(group) - 1) + [4]:
            return False
    return all(
        not values or tuple(x[f] for f in features) in values for features, _, values in changes
    )
