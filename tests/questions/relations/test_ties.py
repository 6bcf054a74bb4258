"""Sign(0) that may be either: each neuron decides on its own, and alike for both inputs."""

from __future__ import annotations

import itertools
from fractions import Fraction
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
from bnncert.questions.relations.relation_parts import PairQuestion, make_parts
from bnncert.questions.relations.relation_search import relation_claim, violated_problem
from bnncert.questions.relations.relations import feature_change
from tests.brute_force import TinyNetwork
from tests.questions.relations.pairs import Point, agree, class_of, fails, ordered_pairs, outcomes
from tests.random_questions import random_network
from tests.strategies import tiny_networks

#: Without shrinking, which would ask many more questions.
MANY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

REAL = bnncert.Box([0, 0], [9, 9])

#: Class 1 iff input 0 - input 1 >= 2.
LOANS = bnncert.Network.from_arrays([[[1, -1]], [[-1], [1]]], [[-2], [0, 0]], sign_zero="either")


def lines(tiny: TinyNetwork, data: st.DataObject) -> tuple[bnncert.Box, list[tuple[Point, Point]]]:
    """Return a region on which input 0 is real or on a grid, and all pairs of inputs that matter.

    On a line the signs are constant between the points at which a sum of the first layer is 0, so
    these and one point of each interval stand for all.
    """
    if data.draw(st.booleans()):
        box = bnncert.Box([-2, -1], [1, 1], grid=1)
        axes = [[Fraction(v) for v in range(-2, 2)], [Fraction(v) for v in range(-1, 2)]]
        return box, ordered_pairs(axes, 0)
    fixed = Fraction(data.draw(st.integers(-4, 4)), 4)
    rows = zip(tiny.weights[0].tolist(), tiny.biases[0].tolist(), strict=True)
    roots = {-(Fraction(b) + Fraction(v) * fixed) / Fraction(w) for (w, v), b in rows if w}
    cuts = sorted({Fraction(-2), Fraction(2), *(r for r in roots if -2 < r < 2)})
    # Two points of each interval, since both inputs may lie in the same one.
    inner = [(k * a + (3 - k) * b) / 3 for a, b in itertools.pairwise(cuts) for k in (1, 2)]
    box = bnncert.Box([-2, float(fixed)], [2, float(fixed)])
    return box, ordered_pairs([sorted({*cuts, *inner}), [fixed]], 0)


def agrees(
    result: RelationResult,
    tiny: TinyNetwork,
    pairs: list[tuple[Point, Point]],
    violated: Any,
    path: Path,
) -> None:
    """Assert the answer of brute force, a real pair, and what the checker says about it."""
    assert result.status == ("fails" if fails(tiny, pairs, violated) else "holds")
    if result.pair is not None:
        found = result.pair.exact or tuple(
            tuple(map(Fraction, x.tolist())) for x in (result.pair.first, result.pair.second)
        )
        assert found[0][0] < found[1][0] and found[0][1] == found[1][1]
        assert fails(tiny, [found], violated)
    # Few proofs about neurons that are always tied rely on a solver.
    if result.certificate is not None or result.status == "fails":
        assert check(path, tiny.build()).verdict == f"relation_{result.status}"


@given(tiny_networks(), st.booleans(), st.data())
@MANY
def test_monotone_classes(
    tmp_path_factory: pytest.TempPathFactory,
    tiny: TinyNetwork,
    increasing: bool,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.getbasetemp() / "monotone.bnncert"
    box, pairs = lines(tiny, data)
    label = data.draw(st.integers(0, tiny.biases[-1].size - 1))
    result = bnncert.monotone(
        *(tiny.build(), 0, box), label=label, increasing=increasing, timeout=60, certificate=path
    )

    def violated(a: Any, b: Any) -> bool:
        one, two = (a, b) if increasing else (b, a)
        return class_of(one) == label != class_of(two)

    agrees(result, tiny, pairs, violated, path)


@given(tiny_networks(), st.data())
@MANY
def test_fair_classes(
    tmp_path_factory: pytest.TempPathFactory, tiny: TinyNetwork, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "fair.bnncert"
    box, pairs = lines(tiny, data)
    result = bnncert.fair(tiny.build(), 0, box, timeout=60, certificate=path)
    agrees(result, tiny, pairs, lambda a, b: class_of(a) != class_of(b), path)


@pytest.mark.parametrize("seed", range(150))
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
    (part,) = make_parts(question)
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
