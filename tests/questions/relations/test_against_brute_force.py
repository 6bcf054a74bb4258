"""Monotonicity and fairness of tiny networks against all pairs of inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.kernel import check
from bnncert.questions.relations.relation_answer import RelationResult
from tests.brute_force import TinyNetwork
from tests.questions.relations.pairs import Point, class_of, fails, ordered_pairs, outcomes
from tests.strategies import tiny_networks

SETTINGS = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def changed(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    return class_of(a) != class_of(b)


def lost(label: int, increasing: bool) -> Any:
    def violated(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
        one, two = (a, b) if increasing else (b, a)
        return class_of(one) == label != class_of(two)

    return violated


def axes_of(box: bnncert.Box) -> list[list[Fraction]]:
    """Return the values of every input of a box on the grid of step 1."""
    ends = zip(box.lo.tolist(), box.hi.tolist(), strict=True)
    return [[Fraction(k) for k in range(int(low), int(high) + 1)] for low, high in ends]


def agrees(
    result: RelationResult, expected: bool, tiny: TinyNetwork, path: Path, violated: Any
) -> None:
    """Assert the verdict, the pair, and that the certificate is accepted."""
    assert result.status == ("fails" if expected else "holds")
    report = check(path, tiny.build())
    assert report.verdict == f"relation_{result.status}"
    if result.pair is None:
        assert not expected
        return
    points = result.pair.exact or tuple(
        tuple(map(Fraction, x.tolist())) for x in (result.pair.first, result.pair.second)
    )
    assert fails(tiny, [points], violated)


@st.composite
def boxes(draw: st.DrawFn, inputs: int) -> bnncert.Box:
    """Boxes on the grid of step 1, each side with 2 to 3 values."""
    low = np.array([draw(st.integers(-2, 1)) for _ in range(inputs)])
    width = np.array([draw(st.integers(1, 2)) for _ in range(inputs)])
    return bnncert.Box(low, low + width, grid=1)


@given(tiny_networks(inputs=3), boxes(3), st.booleans(), st.data())
@SETTINGS
def test_monotone_classes_on_a_grid(
    tmp_path: Path, tiny: TinyNetwork, box: bnncert.Box, increasing: bool, data: st.DataObject
) -> None:
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    label = data.draw(st.integers(0, network.classes - 1))
    feature = data.draw(st.integers(0, 2))
    result = bnncert.monotone(
        *(network, feature, box), label=label, increasing=increasing, timeout=60, certificate=path
    )
    violated = lost(label, increasing)
    expected = fails(tiny, ordered_pairs(axes_of(box), feature), violated)
    agrees(result, expected, tiny, path, violated)


@given(tiny_networks(inputs=3), boxes(3), st.booleans(), st.data())
@SETTINGS
def test_monotone_scores_on_a_grid(
    tmp_path: Path, tiny: TinyNetwork, box: bnncert.Box, increasing: bool, data: st.DataObject
) -> None:
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    score = data.draw(st.integers(0, network.classes - 1))
    feature = data.draw(st.integers(0, 2))
    result = bnncert.monotone(
        *(network, feature, box), score=score, increasing=increasing, timeout=60, certificate=path
    )

    def violated(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
        return b[score] < a[score] if increasing else b[score] > a[score]

    expected = fails(tiny, ordered_pairs(axes_of(box), feature), violated)
    agrees(result, expected, tiny, path, violated)


@given(tiny_networks(inputs=3), boxes(3), st.booleans())
@SETTINGS
def test_fair_in_two_features_on_a_grid(
    tmp_path: Path, tiny: TinyNetwork, box: bnncert.Box, listed: bool
) -> None:
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    axes = axes_of(box)
    values = {0: [float(v) for v in axes[0]]} if listed else None
    result = bnncert.fair(network, [0, 1], box, values=values, timeout=60, certificate=path)
    points: list[Point] = [(a, b, c) for a in axes[0] for b in axes[1] for c in axes[2]]
    pairs = [(x, y) for x in points for y in points if x[2] == y[2] and x != y]
    agrees(result, fails(tiny, pairs, changed), tiny, path, changed)


@given(tiny_networks(inputs=4), st.booleans())
@SETTINGS
def test_one_hot_groups(tmp_path: Path, tiny: TinyNetwork, protected: bool) -> None:
    """Inputs 1, 2 and 3 are a group; it is what changes, or input 0 is."""
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    box = bnncert.Box([-1, 0, 0, 0], [1, 1, 1, 1], grid=1)
    group = (1, 2, 3)
    result = bnncert.fair(
        *(network, [group] if protected else 0, box), one_hot=[group], timeout=60, certificate=path
    )
    units = [tuple(Fraction(int(f == k)) for f in group) for k in group]
    points = [(Fraction(v), *unit) for v in (-1, 0, 1) for unit in units]
    keep = (lambda x: x[:1]) if protected else (lambda x: x[1:])
    pairs = [(x, y) for x in points for y in points if keep(x) == keep(y) and x != y]
    agrees(result, fails(tiny, pairs, changed), tiny, path, changed)


@given(tiny_networks(inputs=2), st.sampled_from(["any", "step", "values"]))
@SETTINGS
def test_a_real_feature_beside_a_fixed_one(tmp_path: Path, tiny: TinyNetwork, kind: str) -> None:
    """One input is fixed, so the class changes only where a neuron of layer 1 has sum 0."""
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    fixed, low, high = Fraction(1, 4), Fraction(-2), Fraction(2)
    box = bnncert.Box([-2, 0.25], [2, 0.25])
    rows = zip(tiny.weights[0].tolist(), tiny.biases[0].tolist(), strict=True)
    roots = {-(Fraction(b) + Fraction(v) * fixed) / Fraction(w) for (w, v), b in rows if w}
    cuts = sorted({low, high, *(r for r in roots if low < r < high)})
    places = sorted({*cuts, *((a + b) / 2 for a, b in itertools.pairwise(cuts))})
    how: dict[str, Any] = {}
    pairs = ordered_pairs([places, [fixed]], 0)
    if kind == "step":
        how = {"step": {0: 2.5}}
        starts = sorted({*places, *(p - Fraction(5, 2) for p in places)})
        starts += [(a + b) / 2 for a, b in itertools.pairwise(starts)]
        inside = [p for p in starts if low <= p <= high - Fraction(5, 2)]
        pairs = [((p, fixed), (p + Fraction(5, 2), fixed)) for p in inside]
    if kind == "values":
        how = {"values": {0: [-1.3, 0.1, 1.7]}}
        pairs = ordered_pairs([[Fraction(v) for v in (-1.3, 0.1, 1.7)], [fixed]], 0)
    result = bnncert.fair(network, 0, box, **how, timeout=60, certificate=path)
    agrees(result, fails(tiny, pairs, changed), tiny, path, changed)


@pytest.mark.parametrize("step", [0.25, 0.1])
def test_grids_with_exact_and_with_rounded_values(tmp_path: Path, step: float) -> None:
    """The values of step 0.1 are rounded to float32, so each pair of neighbours is a part."""
    weights = (np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    tiny = TinyNetwork(weights, (np.array([-0.3, 0.2]), np.array([0.0, 0.0])), "plus")
    path = tmp_path / "proof.bnncert"
    box = bnncert.Box(np.float32([0, 0]), np.float32([1, 1]), grid=step)
    assert box.values is not None
    values = [float(np.float32(step * k)) for k in range(round(1 / step) + 1)]
    axis = [Fraction(v) for v in values]
    for feature in (0, 1):
        result = bnncert.monotone(tiny.build(), feature, box, timeout=60, certificate=path)
        assert result.count == (1 if step == 0.25 else 10)
        violated = lost(1, True)
        expected = fails(tiny, ordered_pairs([axis, axis], feature), violated)
        agrees(result, expected, tiny, path, violated)


def test_a_network_that_ignores_the_attribute_is_fair_in_spite_of_ties(tmp_path: Path) -> None:
    weights = (np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    tiny = TinyNetwork(weights, (np.array([0.0, 0.0]), np.array([0.0, 0.0])), "plus")
    ((found, _),) = outcomes(tiny, (Fraction(1), Fraction(0)))
    assert found == (Fraction(1), Fraction(1))
    path = tmp_path / "proof.bnncert"
    box = bnncert.Box([-1, 0], [1, 1])
    result = bnncert.fair(tiny.build(), 1, box, timeout=60, certificate=path)
    agrees(result, False, tiny, path, changed)


@given(tiny_networks(inputs=4), st.booleans())
@SETTINGS
def test_several_attributes_have_their_values_also_while_others_change(
    tmp_path: Path, tiny: TinyNetwork, group: bool
) -> None:
    """Input 0 changes, and a group of two inputs or an input with two of its three values."""
    network, path = tiny.build(), tmp_path / "proof.bnncert"
    box = bnncert.Box([0, 0, 0, 1], [1, 2, 1, 1], grid=1)
    values = None if group else {1: [1.0, 2.0]}
    what = [0, (1, 2)] if group else [0, 1]
    result = bnncert.fair(network, what, box, values=values, timeout=60, certificate=path)
    states = [(1, 0), (0, 1)] if group else [(1, 0), (2, 0), (1, 1), (2, 1)]
    points = [(Fraction(v), *map(Fraction, s), Fraction(1)) for v in (0, 1) for s in states]
    keep = slice(3 if group else 2, 4)
    pairs = [(x, y) for x in points for y in points if x[keep] == y[keep] and x != y]
    agrees(result, fails(tiny, pairs, changed), tiny, path, changed)


def test_a_pair_outside_of_a_group_is_no_failure(tmp_path: Path) -> None:
    """The class depends on input 0 only if neither of the inputs 1 and 2 is 1."""
    weights = (np.array([[1.0, -1.0, -1.0]]), np.array([[0.0], [1.0]]))
    tiny = TinyNetwork(weights, (np.array([-0.5]), np.zeros(2)), "plus")
    box, path = bnncert.Box([0] * 3, [1] * 3, grid=1), tmp_path / "proof.bnncert"
    result = bnncert.fair(tiny.build(), [0, (1, 2)], box, timeout=60, certificate=path)
    agrees(result, False, tiny, path, changed)
