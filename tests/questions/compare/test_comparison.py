"""Comparisons of tiny networks against brute force, and what they say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.kernel import check
from bnncert.questions.compare.comparison_answer import NetworkComparison
from tests.brute_force import TinyNetwork, is_inside
from tests.questions.compare.pairs import classes_at, pairs_on_grid, pairs_on_region, random_pair
from tests.random_questions import random_region

EQUAL = ("identical", "equal")

statuses: Counter[str] = Counter()


def ask(
    one: TinyNetwork, two: TinyNetwork, region: bnncert.Region, folder: Path
) -> NetworkComparison:
    """Compare two networks; a certificate has to be accepted, and a difference to be right."""
    path = folder / "proof.bnncert"
    nets = one.build(), two.build()
    found = bnncert.compare(*nets, region, timeout=60, certificate=path)
    statuses[f"{found.status} {found.how}"] += 1
    if found.status in (*EQUAL, "different"):
        assert found.certificate == str(path), found.notes
        report = check(path, nets[0], other=nets[1])
        assert report.verdict == f"networks_{'equal' if found.status in EQUAL else 'different'}"
    if found.difference is not None:
        point = found.difference.exact or [Fraction(v) for v in found.difference.point.tolist()]
        assert is_inside(region, point)
        assert classes_at(one, list(point)) == {found.difference.classes[0]}
        assert classes_at(two, list(point)) == {found.difference.classes[1]}
    return found


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_on_a_grid_the_answer_is_that_of_enumeration(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    one, two = random_pair(rng, int(rng.integers(1, 4)))
    size = one.weights[0].shape[1]
    step = float(rng.choice([1.0, 2.0]))
    region = bnncert.Box([-1.0] * size, [1.0] * size, bnncert.Grid(step, -1.0))
    values = [-1.0, 0.0, 1.0] if step == 1.0 else [-1.0, 1.0]
    pairs = pairs_on_grid(one, two, values)
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.5:
            # As with many classes, i and j are compared with each other only at first.
            patch.setattr("bnncert.questions.compare.compare.MOST_CONDITIONS", 0)
        found = ask(one, two, region, tmp_path_factory.mktemp("grid"))
    assert (found.status in EQUAL) == all(a == b for a, b in pairs)
    assert found.status in (*EQUAL, "different")
    if found.difference is not None:
        assert found.difference.classes in pairs


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_on_a_region_the_answer_is_that_of_brute_force(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    one, two = random_pair(rng, 2)
    region = random_region(rng, str(rng.choice(["linf", "l1", "box", "polytope"])), 2)
    pairs = pairs_on_region(one, two, region)
    found = ask(one, two, region, tmp_path_factory.mktemp("region"))
    if found.status in EQUAL:
        assert all(a == b for a, b in pairs)
    elif found.status == "different":
        assert found.difference is not None and found.difference.classes in pairs
    else:
        # Only a difference at points that are no floats stays open.
        assert any(a != b for a, b in pairs)


def test_all_kinds_of_answers_occur() -> None:
    """The tests above are about something; they run before this one."""
    if statuses:
        wanted = {"equal neurons", "equal one class", "equal product", "different inputs"}
        assert wanted <= set(statuses), statuses
        assert sum(n for s, n in statuses.items() if s.startswith("un")) < 0.1 * statuses.total()


def tiny(*layers: tuple[list[list[float]], list[float]], zero: str = "plus") -> bnncert.Network:
    weights, biases = zip(*layers, strict=True)
    return bnncert.Network.from_arrays(
        weights,
        biases,
        sign_zero=zero,
        input_lo=-1,
        input_hi=1,  # type: ignore[arg-type]
    )


FIRST = ([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.5])
SECOND = ([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]], [0.0, 0.0, 0.0])
OUTPUT = ([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], [0.0, 1.0])
NET = tiny(FIRST, SECOND, OUTPUT)
OTHER = tiny(FIRST, (SECOND[0], [0, -2, 0]), OUTPUT)


def test_the_same_network_in_another_format(tmp_path: Path) -> None:
    NET.save(tmp_path / "net.onnx")
    NET.save(tmp_path / "net.json")
    one, two = (bnncert.load(tmp_path / f"net.{kind}") for kind in ("onnx", "json"))
    found = bnncert.compare(one, two)
    assert (found.status, found.how, found.scope) == ("identical", "normal forms", "all inputs")
    assert "identical: the normal forms are equal" in str(found)
    assert found.to_dict()["first_difference"] is None


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (tiny(([[1, 1], [1, 0]], [0, 0.5]), SECOND, OUTPUT),
         "layer 1, neuron 1: the weight of input 1 is -1 in A and 0 in B"),
        (tiny(([[1, 1], [1, -1]], [0, 0.25]), SECOND, OUTPUT),
         "layer 1, neuron 1: the bias is 0.5 in A and 0.25 in B"),
        (OTHER, "layer 2, neuron 1: +1 from a sum of 0 in A and of 2 in B"),
        (tiny(FIRST, (SECOND[0][::-1], [0, 0, 0]), OUTPUT),
         "layer 2, neuron 0: the weight of input 1 is 1 in A and 0 in B"),
        (tiny(FIRST, (SECOND[0][:2], [0, 0]), ([[1, 0], [0, 1]], [0, 1])),
         "layer 2: 3 neurons in A and 2 in B"),
        (tiny(FIRST, SECOND, (OUTPUT[0], [0, 2])),
         "output, score 1: the bias is 1 in A and 2 in B"),
        (tiny(FIRST, SECOND, ([[1, 0, 2], [0, 1, 1]], [0, 1])),
         "output, score 1: the weight of input 2 is -1 in A and 1 in B"),
        (tiny(FIRST, ([[1, 1]], [0]), ([[1], [-1]], [0, 0])), "layer 2: 3 neurons in A and 1 in B"),
        (tiny(FIRST, ([[1, 1], [1, -1]], [0, 0]), SECOND, OUTPUT),
         "layer 2: 3 neurons in A and 2 in B"),
        (tiny((FIRST[0], [0, 0.5]), SECOND, OUTPUT, zero="minus"),
         "layer 1, neuron 0: sign(0) is plus in A and minus in B"),
    ],
)  # fmt: skip
def test_the_first_difference_in_words(other: bnncert.Network, text: str) -> None:
    found = bnncert.compare(NET, other, timeout=60)
    assert found.first_difference == text
    assert f"first difference: {text}" in str(found)
    assert found.status in ("equal", "different")


def test_a_network_with_fewer_layers() -> None:
    deeper = tiny(FIRST, ([[1, 0], [0, 1]], [0, 0]), ([[1, 0], [0, 1]], [0, 0]))
    plain = tiny(FIRST, ([[1, 0], [0, 1]], [0, 0]))
    found = bnncert.compare(plain, deeper)
    assert (found.status, found.how) == ("equal", "neurons")
    assert found.first_difference == "layer 2: A has 1 sign layers"
    assert [layer.second for layer in found.layers] == [2, 2, 2]


def test_scores_up_to_a_factor_and_a_common_shift() -> None:
    weights, bias = np.array(OUTPUT[0]), np.array(OUTPUT[1])
    shifted = 3 * weights + np.array([1.0, 5.0, -2.0]), 3 * bias + 7
    for w, b, same in (
        (*shifted, True),
        (weights / 8, bias / 8, True),
        (-weights, -bias, False),
        (weights, bias + np.array([0.0, 4.0]), False),
    ):
        found = bnncert.compare(NET, tiny(FIRST, SECOND, (w.tolist(), b.tolist())))
        assert (found.how == "neurons") == same
        assert (found.status == "equal") == same


def test_a_neuron_that_only_changes_outside_the_box() -> None:
    """The third neuron is +1 in the data box, so its weight may move to the bias."""
    one = tiny(([[1.0, 1.0], [1.0, 0.0]], [0.0, 2.0]), ([[1.0, 2.0], [-1.0, 0.0]], [0.0, 1.0]))
    two = tiny(([[1.0, 1.0]], [0.0]), ([[1.0], [-1.0]], [2.0, 1.0]))
    found = bnncert.compare(one, two)
    assert (found.status, found.how) == ("equal", "neurons")
    assert found.scope.startswith("the data box (box in 2 dimensions")
    wide = bnncert.Box([-4, -4], [4, 4])
    assert bnncert.compare(one, two, wide, timeout=60).status == "different"


def test_given_inputs_are_evaluated_exactly() -> None:
    other, rng = tiny(FIRST, (SECOND[0], [0, 0, -2]), OUTPUT), np.random.default_rng(0)
    points = np.vstack([rng.integers(-4, 5, (300, 2)) / 4, rng.uniform(-1, 1, (300, 2))])
    found = bnncert.compare(NET, other, inputs=points)
    wanted = np.flatnonzero(NET.classify(points) != other.classify(points))
    assert found.inputs is not None and 0 < wanted.size < 600
    assert found.inputs.differing.tolist() == wanted.tolist()
    assert found.inputs.first.tolist() == NET.classify(points[wanted]).tolist()
    assert found.inputs.second.tolist() == other.classify(points[wanted]).tolist()
    assert found.summary.startswith(f"different: the classes of {wanted.size} of 600 inputs")
    assert found.difference is not None
    assert found.difference.point.tolist() == points[wanted[0]].tolist()
    rest = np.delete(points, wanted, axis=0)
    found = bnncert.compare(NET, other, inputs=rest)
    assert (found.status, found.how) == ("equal", "inputs")
    assert found.scope == f"the {600 - wanted.size} given inputs"


def test_inputs_inside_a_region_are_tried_first() -> None:
    """Both networks differ in a corner that random points hardly meet."""
    one = tiny(([[1.0, 1.0]], [0.0]), ([[1.0], [-1.0]], [0.0, 0.0]))
    two = tiny(
        ([[1.0, 1.0], [1.0, 1.0]], [0.0, -1.9999]),
        ([[1.0, -2.0], [-1.0, 0.0]], [-2.0, 0.0]),
    )
    found = bnncert.compare(one, two, bnncert.Box([-1, -1], [1, 1]), inputs=[[1.0, 1.0]])
    assert found.difference is not None
    assert found.difference.point.tolist() == [1.0, 1.0]


def test_undetermined_ties_are_not_taken_for_equal() -> None:
    """Where sign(0) may be either, each network decides its ties on its own."""
    points = [[0.0, 0.0], [0.5, 0.25]]
    found = bnncert.compare(NET, OTHER, inputs=points, sign_zero="either")
    assert found.status == "unknown" and found.inputs is not None
    assert found.inputs.undetermined.tolist() == [0]
    assert "class of 1 inputs is not determined" in found.notes[0]
    same = bnncert.compare(NET, NET, sign_zero="either")
    assert same.status == "identical"


def test_networks_that_cannot_be_compared() -> None:
    three = tiny(([[1.0, 1.0, 1.0]], [0.0]), ([[1.0], [-1.0]], [0.0, 0.0]))
    many = tiny(FIRST, ([[1.0, 1.0]] * 3, [0.0, 0.0, 1.0]))
    single = tiny(FIRST, ([[1.0, 1.0]], [0.0]))
    other = tiny(FIRST, ([[1.0, 0.0]], [0.0]))
    for one, two, text in (
        (NET, three, "3 inputs, but <arrays> has 2"),
        (NET, many, "3 classes, but <arrays> has 2"),
        (single, other, "single score"),
    ):
        with pytest.raises(bnncert.InputError, match=text):
            bnncert.compare(one, two)
    assert bnncert.compare(single, single).status == "identical"
    with pytest.raises(bnncert.InputError, match="the region has 3 inputs, the networks 2"):
        bnncert.compare(NET, NET, bnncert.Box([0] * 3, [1] * 3))
    far = replace(NET, input_lo=np.array([2.0, 2.0]), input_hi=np.array([3.0, 3.0]))
    with pytest.raises(bnncert.InputError, match="have no input in common"):
        bnncert.compare(NET, far)


@pytest.mark.parametrize(
    ("boxes", "note"),
    [
        (((-1, 1), (0.5, 1)), "different data boxes; inputs in both"),
        (((-1, 1), (None, None)), "only network A states a data box; the inputs in it count"),
        (((None, None), (-1, 1)), "only network B states a data box; the inputs in it count"),
        (((None, None), (None, None)), "the networks state no data box; name the inputs"),
    ],
)
def test_data_boxes_that_differ_or_are_missing(boxes: Any, note: str) -> None:
    pair = []
    for net, box in zip((NET, OTHER), boxes, strict=True):
        lo, hi = (None if v is None else np.full(2, float(v)) for v in box)
        pair.append(replace(net, input_lo=lo, input_hi=hi))
    found = bnncert.compare(*pair, timeout=60)
    assert any(note in text for text in found.notes)
    assert (found.status == "unknown") == ("state no data box" in note)
    lowest = max((box[0] for box in boxes if box[0] is not None), default=-1)
    assert found.difference is None or found.difference.point.min() >= lowest


def test_ctrl_c_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bnncert.questions.compare.difference.BoundarySearch.run", interrupted)
    with pytest.raises(Interrupted) as stop:
        bnncert.compare(NET, OTHER)
    assert stop.value.answer.status == "unknown"
    assert stop.value.answer.first_difference.startswith("layer 2, neuron 1")


def test_a_time_limit_leaves_the_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    sizes = (40, 80, 80, 3)
    weights = [rng.choice([-1.0, 1.0], (b, a)) for a, b in pairwise(sizes)]
    biases = [np.zeros(n) for n in sizes[1:]]
    one = bnncert.Network.from_arrays(weights, biases, input_lo=-1, input_hi=1)
    biases[1] = biases[1] + 2 * np.eye(80)[7]
    two = bnncert.Network.from_arrays(weights, biases, input_lo=-1, input_hi=1)
    monkeypatch.setattr("bnncert.questions.compare.difference.BoundarySearch.run", lambda *_: None)
    found = bnncert.compare(one, two, timeout=0.2, method="propagation")
    assert found.status == "timeout" and found.seconds < 1.2
    assert "no difference found on the data box" in found.summary
    assert found.targets and found.first_difference.startswith("layer 2, neuron 7: +1 from")
