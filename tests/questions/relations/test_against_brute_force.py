"""Monotonicity and fairness of tiny networks against all pairs of inputs, in exact rationals.

Random questions about grids are those of `guard`; here are real inputs, ties and single cases.  If
sign(0) may be either, each neuron decides on its own, and alike for both inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.engine.verdict import Counterexample
from bnncert.kernel import RejectedError, check
from bnncert.kernel.rules.relation_products import (
    Relation,
    any_increase_product,
    increase_product,
    values_product,
)
from bnncert.proofs.claims import write_claim
from bnncert.proofs.writing import write_counterexample
from bnncert.questions.relations.relation_answer import RelationResult
from bnncert.questions.relations.relation_search import (
    PairParts,
    PairQuestion,
    relation_claim,
    violated_problem,
)
from bnncert.questions.relations.relations import feature_change
from tests.brute_force import TinyNetwork
from tests.random_questions import random_network
from tests.strategies import tiny_networks

#: Without shrinking, which would ask many more questions.
MANY = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

REAL = bnncert.Box([0, 0], [9, 9])

#: Class 1 iff input 0 - input 1 >= 2.
LOANS = bnncert.Network.from_arrays([[[1, -1]], [[-1], [1]]], [[-2], [0, 0]], sign_zero="either")

Point = tuple[Fraction, ...]


#: The signs of neurons at sums of 0: (layer, neuron, sign).
Choices = frozenset[tuple[int, int, int]]


def outcomes(
    tiny: TinyNetwork, point: Sequence[Fraction]
) -> set[tuple[tuple[Fraction, ...], Choices]]:
    """Return all score vectors that an input can have, with the signs at sums of 0 that they need.

    If sign(0) may be either, it is so for each neuron on its own.
    """
    states: set[tuple[tuple[Fraction, ...], Choices]] = {(tuple(point), frozenset())}
    last = len(tiny.weights) - 1
    for number, (weights, bias) in enumerate(zip(tiny.weights, tiny.biases, strict=True)):
        after: set[tuple[tuple[Fraction, ...], Choices]] = set()
        for state, known in states:
            sums = [
                sum((Fraction(w) * x for w, x in zip(row, state, strict=True)), Fraction(b))
                for row, b in zip(weights.tolist(), bias.tolist(), strict=True)
            ]
            if number == last:
                after.add((tuple(sums), known))
                continue
            zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[tiny.sign_zero]
            signs = [zero if s == 0 else (1,) if s > 0 else (-1,) for s in sums]
            for choice in product(*signs):
                new = {(number, j, choice[j]) for j, s in enumerate(sums) if s == 0}
                after.add((tuple(map(Fraction, choice)), known | new))
        states = after
    return states


def agree(one: Choices, two: Choices) -> bool:
    """Whether no neuron has sign(0) = +1 for one input and -1 for the other."""
    return not any((layer, j, -sign) in two for layer, j, sign in one)


def class_of(scores: Sequence[Fraction]) -> int:
    """Return the first class with the highest score."""
    return max(range(len(scores)), key=lambda k: (scores[k], -k))


def fails(
    tiny: TinyNetwork,
    pairs: Iterable[tuple[Point, Point]],
    violated: Callable[[Sequence[Fraction], Sequence[Fraction]], bool],
) -> bool:
    """Whether a pair of inputs violates a relation between their scores.

    If sign(0) may be either, it is the same for both inputs, for each neuron.
    """
    known: dict[Point, set[tuple[tuple[Fraction, ...], Choices]]] = {}

    def scores(point: Point) -> set[tuple[tuple[Fraction, ...], Choices]]:
        if point not in known:
            known[point] = outcomes(tiny, point)
        return known[point]

    return any(
        violated(a, b) and agree(one, two)
        for x, y in pairs
        for a, one in scores(x)
        for b, two in scores(y)
    )


def ordered_pairs(
    axes: Sequence[Sequence[Fraction]],
    feature: int,
    step: Fraction | None = None,
    allowed: Callable[[Point], bool] = lambda point: True,
) -> list[tuple[Point, Point]]:
    """Return all pairs of points of a product of axes with a larger value of one feature."""
    found = []
    for point in filter(allowed, product(*axes)):
        for value in axes[feature]:
            gap = value - point[feature]
            if gap > 0 and (step is None or (gap / step).denominator == 1):
                found.append((point, (*point[:feature], value, *point[feature + 1 :])))
    return found


def changed(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    return class_of(a) != class_of(b)


def lost(label: int, increasing: bool) -> Any:
    def violated(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
        one, two = (a, b) if increasing else (b, a)
        return class_of(one) == label != class_of(two)

    return violated


def agrees(
    result: RelationResult,
    tiny: TinyNetwork,
    pairs: Iterable[tuple[Point, Point]],
    violated: Any,
    path: Path,
) -> None:
    """Assert the answer of brute force, a real pair, and what the checker says about it."""
    assert result.status == ("fails" if fails(tiny, pairs, violated) else "holds")
    if result.pair is not None:
        found = result.pair.exact or tuple(
            tuple(map(Fraction, x.tolist())) for x in (result.pair.first, result.pair.second)
        )
        assert found != found[::-1] and fails(tiny, [found], violated)
    # Few proofs about neurons that are always tied rely on a solver.
    always_tied = tiny.sign_zero == "either" and result.status == "holds"
    if result.certificate is not None or not always_tied:
        assert check(path, tiny.build()).verdict == f"relation_{result.status}"


@st.composite
def lines(draw: st.DrawFn) -> tuple[TinyNetwork, bnncert.Box, list[Fraction], Fraction]:
    """Return a network, a line on which input 0 is real, and its points that matter.

    On a line the signs are constant between the points at which a sum of the first layer is 0, so
    these and two points of each interval stand for all, since both inputs may lie in the same one.
    """
    tiny = draw(tiny_networks())
    fixed = Fraction(draw(st.integers(-4, 4)), 4)
    rows = zip(tiny.weights[0].tolist(), tiny.biases[0].tolist(), strict=True)
    roots = {-(Fraction(b) + Fraction(v) * fixed) / Fraction(w) for (w, v), b in rows if w}
    cuts = sorted({Fraction(-2), Fraction(2), *(r for r in roots if -2 < r < 2)})
    inner = [(k * a + (3 - k) * b) / 3 for a, b in itertools.pairwise(cuts) for k in (1, 2)]
    box = bnncert.Box([-2, float(fixed)], [2, float(fixed)])
    return tiny, box, sorted({*cuts, *inner}), fixed


@given(lines(), st.booleans(), st.data())
@MANY
def test_monotone_classes_of_a_real_feature(
    tmp_path_factory: pytest.TempPathFactory, line: Any, increasing: bool, data: st.DataObject
) -> None:
    path, (tiny, box, places, fixed) = tmp_path_factory.getbasetemp() / "monotone.bnncert", line
    label = data.draw(st.integers(0, tiny.biases[-1].size - 1))
    result = bnncert.monotone(
        *(tiny.build(), 0, box), label=label, increasing=increasing, timeout=60, certificate=path
    )
    pairs = ordered_pairs([places, [fixed]], 0)
    agrees(result, tiny, pairs, lost(label, increasing), path)
    if result.pair is not None:
        assert result.pair.first[0] < result.pair.second[0]


@given(lines(), st.sampled_from(["any", "step", "values"]))
@MANY
def test_fair_classes_of_a_real_feature(
    tmp_path_factory: pytest.TempPathFactory, line: Any, kind: str
) -> None:
    path, (tiny, box, places, fixed) = tmp_path_factory.getbasetemp() / "fair.bnncert", line
    asked: dict[str, Any] = {}
    pairs = ordered_pairs([places, [fixed]], 0)
    if kind == "step":
        asked, step = {"step": {0: 2.5}}, Fraction(5, 2)
        starts = sorted({*places, *(p - step for p in places)})
        starts += [(a + b) / 2 for a, b in itertools.pairwise(starts)]
        pairs = [((p, fixed), (p + step, fixed)) for p in starts if -2 <= p <= 2 - step]
    if kind == "values":
        values = [-1.3, 0.1, 1.7]
        asked = {"values": {0: values}}
        pairs = ordered_pairs([[Fraction(v) for v in values], [fixed]], 0)
    result = bnncert.fair(tiny.build(), 0, box, **asked, timeout=60, certificate=path)
    agrees(result, tiny, pairs, changed, path)


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
        agrees(result, tiny, ordered_pairs([axis, axis], feature), lost(1, True), path)


def test_a_network_that_ignores_the_attribute_is_fair_in_spite_of_ties(tmp_path: Path) -> None:
    weights = (np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    tiny = TinyNetwork(weights, (np.array([0.0, 0.0]), np.array([0.0, 0.0])), "plus")
    ((found, _),) = outcomes(tiny, (Fraction(1), Fraction(0)))
    assert found == (Fraction(1), Fraction(1))
    path = tmp_path / "proof.bnncert"
    box = bnncert.Box([-1, 0], [1, 1])
    result = bnncert.fair(tiny.build(), 1, box, timeout=60, certificate=path)
    agrees(result, tiny, [], changed, path)


def test_a_pair_outside_of_a_group_is_no_failure(tmp_path: Path) -> None:
    """The class depends on input 0 only if neither of the inputs 1 and 2 is 1."""
    weights = (np.array([[1.0, -1.0, -1.0]]), np.array([[0.0], [1.0]]))
    tiny = TinyNetwork(weights, (np.array([-0.5]), np.zeros(2)), "plus")
    box, path = bnncert.Box([0] * 3, [1] * 3, grid=1), tmp_path / "proof.bnncert"
    result = bnncert.fair(tiny.build(), [0, (1, 2)], box, timeout=60, certificate=path)
    agrees(result, tiny, [], changed, path)


@pytest.mark.parametrize("seed", range(30))
def test_the_scores_of_products_are_those_of_one_choice_for_both_inputs(seed: int) -> None:
    """Products of two copies have exactly these scores; with any increase of 0 they may have more.

    For input (x, d) the second input is x + d e_f, and for (x, v) it has the values v.
    """
    rng = np.random.default_rng(seed)
    tiny = random_network(rng, 3, "either")
    network, f = tiny.build(), int(rng.integers(0, 3))
    features = rng.permutation(3)[: int(rng.integers(1, 4))].tolist()
    old, new = rng.integers(-1, 2, (2, len(features))).tolist()
    made = [
        (increase_product(network, f).network, True),
        (any_increase_product(network, f).network, True),
        (values_product(network, features, old, new).network, False),
    ]
    for _ in range(8):
        x = [Fraction(int(v), 2) for v in rng.integers(-3, 4, 3)]
        step = Fraction(int(rng.integers(0, 4)), 2)
        for both, increase in made:
            one = list(x)
            for g, v in () if increase else zip(features, old, strict=True):
                one[g] = Fraction(v)
            more = [step] if increase else [Fraction(v) for v in new]
            two = list(one)
            for g, v in zip([f] if increase else features, more, strict=True):
                two[g] = two[g] + v if increase else v
            wanted = {
                a + b
                for a, first in outcomes(tiny, one)
                for b, second in outcomes(tiny, two)
                if agree(first, second)
            }
            found = {tuple(both.output.exactly(p[-1])) for p in both.exact_patterns([*one, *more])}
            scale = Fraction(network.output.gain)
            found = {tuple(scale * v for v in scores) for scores in found}
            assert wanted == found if one != two else wanted <= found


def test_one_input_twice_does_not_undo_a_decision(tmp_path: Path) -> None:
    path = tmp_path / "proof.bnncert"
    result = bnncert.monotone(LOANS, 0, REAL, timeout=60, certificate=path)
    assert result.status == "holds"
    assert check(path, LOANS).verdict == "relation_holds"
    # A larger debt does, with two different debts.
    result = bnncert.monotone(LOANS, 1, REAL, timeout=60)
    assert result.pair is not None and result.pair.first[1] < result.pair.second[1]


@pytest.mark.parametrize("grid", [None, 1])
def test_an_attribute_without_weights_changes_nothing(tmp_path: Path, grid: int | None) -> None:
    weights = [[[1, 0], [-1, 0]], [[1, 1], [1, -1]], [[1, -1], [0, 1]]]
    blind = bnncert.Network.from_arrays(weights, [[0, 0], [0, 0], [0, 0]], sign_zero="either")
    box = bnncert.Box([-2, 0], [2, 3], grid=grid)
    for k, ask in enumerate((bnncert.fair, bnncert.monotone)):
        path = tmp_path / f"{k}.bnncert"
        assert ask(blind, 1, box, timeout=60, certificate=path).status == "holds"
        assert check(path, blind).verdict == "relation_holds"


def test_a_neuron_of_layer_2_has_one_sign_for_both_inputs(tmp_path: Path) -> None:
    """The sum of layer 2 is 0 at both values, from opposite signs of layer 1."""
    weights = ([[1.0], [1.0]], [[1.0, -1.0]], [[1.0], [-1.0]])
    biases = ([0.5, -1.5], [0.0], [0.0, 0.0])
    tiny = TinyNetwork(tuple(map(np.array, weights)), tuple(map(np.array, biases)), "either")
    path, box = tmp_path / "proof.bnncert", bnncert.Box([-1], [2])
    result = bnncert.fair(tiny.build(), 0, box, values={0: [-1, 2]}, timeout=60, certificate=path)
    assert result.status == "holds"
    assert check(path, tiny.build()).verdict == "relation_holds"


def forged(
    path: Path, network: bnncert.Network, relation: Relation, point: list[float], classes: Any
) -> None:
    """Write the claim that a relation fails in feature 0 at a point of the product."""
    change = feature_change(0, REAL, "x")
    question = PairQuestion(network, REAL, (change,), (), relation, ("x", "y"))
    (part,) = PairParts(question)
    chosen, problem = violated_problem(part, relation, classes)
    name = problem.targets[0].name
    found = Counterexample(np.array(point), None, name, Fraction(0), np.zeros(2))
    write_counterexample(path.with_suffix(".part"), problem, problem.network, found)
    write_claim(path, relation_claim(question, [0, chosen]), [path.with_suffix(".part")])


def test_a_certificate_of_one_input_twice_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "proof.bnncert"
    forged(path, LOANS, Relation(), [3, 1, 0], (0, 1))
    with pytest.raises(RejectedError, match="the pair does not violate the relation"):
        check(path, LOANS)
    forged(path, LOANS, Relation(1), [3, 1, 0], (1, 0))
    with pytest.raises(RejectedError, match="does not violate"):
        check(path, LOANS)
    forged(path, LOANS, Relation(), [3, 1, 1], (0, 1))
    assert check(path, LOANS).verdict == "relation_fails"
