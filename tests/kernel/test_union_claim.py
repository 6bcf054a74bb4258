"""Claims about patches and shifts: accepted if they are true, and changed ones are rejected."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.kernel import check
from bnncert.kernel.claims.union import pixel_inputs
from bnncert.problem import robustness
from bnncert.proofs.claims import shape_claim, write_claim
from bnncert.regions import Cover, ImageUnion
from bnncert.regions.pictures import pixel_inputs as searched
from tests.kernel.claim_changes import (
    Values,
    parts_of,
    with_other_arrays,
    with_other_details,
    with_other_parts,
)
from tests.kernel.claims import pack, unpack
from tests.kernel.every_claim import NET
from tests.kernel.test_path_claim import verdict
from tests.questions.shapes.oracle import UnionBruteForce, union_questions
from tests.strategies import few

IMAGE = [1.0, 1.0, 0.5, 0.5]


def test_a_robust_claim_without_parts_is_accepted_only_if_it_is_true(tmp_path: Path) -> None:
    """A box at whose boundary a sum is zero may need a part, so that not all are accepted."""
    accepted: Counter[tuple[bool, bool]] = Counter()
    file = tmp_path / "claim.bnncert"

    @few(18)
    @given(question=union_questions())
    def agree(question: UnionBruteForce) -> None:
        union, network = question.region, question.network
        assert isinstance(union, ImageUnion)
        problem = robustness(network, union.real_box(0), question.label)
        more = {"place": None, "parts": []}
        write_claim(file, shape_claim("union", problem, network, union, None, more))
        is_true = question.expected() == "robust"
        is_accepted = verdict(file, network) == "robust"
        assert is_true or not is_accepted
        accepted[is_true, is_accepted] += 1

    agree()
    assert accepted[True, True] > 2 and accepted[False, False] > 2


def test_every_box_may_have_a_part_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "proof.bnncert"
    patch = bnncert.Patch(IMAGE, 1, (2, 2), -1, 1)
    # Methods other than auto do not split boxes.
    result = bnncert.verify(NET, patch, 0, method="milp", certificate=file)
    assert result.status == "robust" and result.certificate is not None
    claim, *sections = unpack(file)
    assert claim.fields["details"]["parts"] == [0, 1, 2, 3, 4]
    assert sum(section.name == "statement" for section in sections) == 5
    assert "one square of 1 x 1 pixels has any values" in check(file, NET).statement


def test_parts_that_are_missing_exchanged_or_doubled_are_rejected(tmp_path: Path) -> None:
    file, other = tmp_path / "proof.bnncert", tmp_path / "other.bnncert"
    bnncert.verify(NET, bnncert.Patch(IMAGE, 1, (2, 2), -1, 1), 0, method="milp", certificate=file)
    bnncert.verify(NET, bnncert.Box([0.5] * 4, IMAGE), 0, certificate=other)
    assert verdict(file, NET) == "robust"
    sections, strange = unpack(file), unpack(other)
    parts = parts_of(sections)
    replaced = [sections[0], *strange, *(s for part in parts[1:] for s in part)]
    for made in [*with_other_parts(sections), replaced]:
        assert verdict(pack(file, made), NET) is None


def test_a_changed_claim_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "claim.bnncert"
    patch = bnncert.Patch(IMAGE, 1, (2, 2), -1, 1)
    assert bnncert.verify(NET, patch, 0, certificate=file).certificate == str(file)
    details: Values = {
        "network": ["0" * 64],
        "verdict": ["not_robust", 1],
        "label": [1],
        "rivals": [[0], []],
        "ties": [None],
        "parts": [[1], [9], None],
        "place": [1],
    }
    region: Values = {
        "region": ["brightness"],
        "radius": ["2", "3", "1/2", "-1"],
        "value": ["2", "1/3", 0.5],
        "more": [0],
    }
    arrays: Values = {
        "center": [[-1, -1, 0.5, 0.5], [2, 1, 0.5, 0.5]],
        "clip_lo": [[-9] * 4],
        "clip_hi": [[0.5] * 4],
        "pivot": [[0] * 4],
    }
    sections = unpack(file)
    assert verdict(pack(file, sections), NET) == "robust"
    wrong = [*with_other_details(sections, details, region), *with_other_arrays(sections, arrays)]
    for made in wrong:
        assert verdict(pack(file, made), NET) is None, made[0].fields


def test_a_counterexample_belongs_to_the_box_that_the_claim_names(tmp_path: Path) -> None:
    file = tmp_path / "proof.bnncert"
    patch = bnncert.Patch([1.0, 0.5, -0.25, -0.25], 1, (2, 2), -1, 1)
    result = bnncert.verify(NET, patch, 0, certificate=file)
    assert result.status == "not_robust" and verdict(file, NET) == "not_robust"
    assert "or some image in which one square" in check(file, NET).statement
    claim, *sections = unpack(file)
    place = claim.fields["details"]["place"]
    for changed in (None, 0, place + 1, place - 1, 5, True):
        if changed != place:
            claim.fields["details"]["place"] = changed
            assert verdict(pack(file, [claim, *sections]), NET) is None
    claim.fields["details"]["place"] = place
    assert verdict(pack(file, [claim]), NET) is None


def test_a_counterexample_outside_the_data_box_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged certificate: the image moves to the right, where 1 is no value of the data."""
    file = tmp_path / "proof.bnncert"
    net = bnncert.Network.from_arrays(
        [[[0, -2, 0, 0]], [[1], [-1]]],
        [[1], [0, 0]],
        input_lo=0,
        input_hi=[1, 0.25, 1, 1],
        input_shape=(2, 2),
    )
    assert net.input_lo is not None and net.input_hi is not None
    shift = bnncert.ImageShift([1, 0.25, 0, 0], 1, (2, 2), net.input_lo, net.input_hi)
    assert bnncert.verify(net, shift, 0, certificate=file).certificate == str(file)
    assert check(file, net).verdict == "robust"
    assert "clipped to the data box, inside the network's data box" in check(file, net).statement
    monkeypatch.setattr(Cover, "clipped", lambda self, values: values)
    forged = bnncert.verify(net, shift, 0, certificate=file)
    assert forged.status == "not_robust" and forged.counterexample is not None
    assert forged.counterexample.point[1] == 1 > net.input_hi[1]
    assert verdict(file, net) is None


def test_a_network_without_an_image_has_no_such_claim(tmp_path: Path) -> None:
    from dataclasses import replace

    file = tmp_path / "proof.bnncert"
    bnncert.verify(NET, bnncert.ImageShift(IMAGE, 1, (2, 2), -1, 1), 0, certificate=file)
    assert verdict(file, NET) == "robust"
    assert verdict(file, replace(NET, input_shape=(4,))) is None


def test_float32_has_no_certificate_of_a_union(tmp_path: Path) -> None:
    patch = bnncert.Patch(IMAGE, 1, (2, 2), -1, 1)
    with pytest.raises(bnncert.InputError, match="real arithmetic, not float32"):
        bnncert.verify(NET, patch, 0, arithmetic="float32", certificate=tmp_path / "c")
    assert bnncert.verify(NET, patch, 0, arithmetic="float32").status == "robust"


SHAPES = [
    *itertools.product((1, 3, 5, 7)),
    *itertools.product((1, 2, 3, 6), repeat=2),
    *itertools.product((1, 2, 3, 5), repeat=3),
    *itertools.product((1, 2, 3), repeat=4),
    (25,), (24,), (36,), (75,), (108,), (784,), (1, 784), (3072,), (1, 3, 32, 32), (0,),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_sides_find_the_same_pixels(shape: tuple[int, ...]) -> None:
    ours, theirs = pixel_inputs(shape), searched(shape)
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        np.testing.assert_array_equal(ours, theirs)
        # Every input is a value of one pixel.
        assert sorted(ours.ravel().tolist()) == list(range(int(np.prod(shape))))


def by_loops(shape: tuple[int, ...]) -> list[list[list[int]]] | None:
    """Return the inputs of every pixel, counted one by one in the order of the input."""
    sizes = [n for n in shape if n > 1]
    total = 1
    for n in shape:
        total *= n
    if len(sizes) == 2:
        order, (height, width, channels) = "yxc", (*sizes, 1)
    elif len(sizes) == 3 and sizes[0] == 3:
        order, (channels, height, width) = "cyx", sizes
    elif len(sizes) == 3 and sizes[2] == 3:
        order, (height, width, channels) = "yxc", sizes
    else:
        for channels in (1, 3):
            sides = [n for n in range(5, total + 1) if channels * n * n == total]
            if sides:
                order, height, width = "cyx", sides[0], sides[0]
                break
        else:
            return None
    found = [[[-1] * channels for _ in range(width)] for _ in range(height)]
    counts = {"y": height, "x": width, "c": channels}
    for number, place in enumerate(itertools.product(*(range(counts[axis]) for axis in order))):
        at = dict(zip(order, place, strict=True))
        found[at["y"]][at["x"]][at["c"]] = number
    return found


@few(100)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 25, 36, 75]), min_size=1, max_size=4))
def test_pixels_are_counted_in_the_order_of_the_input(shape: list[int]) -> None:
    if np.prod(shape) > 3000:
        shape = shape[:1]
    found = pixel_inputs(tuple(shape))
    assert (None if found is None else found.tolist()) == by_loops(tuple(shape))
