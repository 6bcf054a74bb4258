"""Claims about two networks: accepted as written, refused after any change that matters."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.container import Section
from tests.brute_force import TinyNetwork
from tests.kernel.claim_changes import with_other_arrays, with_other_parts
from tests.kernel.claims import pack, unpack
from tests.kernel.mutations import STRANGE
from tests.questions.compare.pairs import pairs_on_region, random_pair
from tests.random_questions import random_region

WAYS = ("normal forms", "neurons", "one class", "product", "point")

Made = tuple[TinyNetwork, TinyNetwork, bnncert.Region, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Made]]:
    """A few certificates for each way to show a claim."""
    folder = tmp_path_factory.mktemp("claims")
    found: dict[str, list[Made]] = {way: [] for way in WAYS}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        one, two = random_pair(rng, 2)
        region = random_region(rng, ("linf", "box")[seed % 2], 2)
        path = folder / f"{seed}.bnncert"
        result = bnncert.compare(one.build(), two.build(), region, certificate=path)
        way = "point" if result.status == "different" else result.how
        if result.certificate is not None and len(found[way]) < 2:
            found[way].append((one, two, region, path))
        if all(len(files) == 2 for files in found.values()):
            break
    assert all(found.values())
    return found


def accepted(path: Path, one: TinyNetwork, two: TinyNetwork) -> str | None:
    try:
        return check(path, one.build(), other=two.build()).statement
    except (RejectedError, UnreadableError):
        return None


@pytest.mark.parametrize("way", WAYS)
def test_what_is_proved_in_words(way: str, made: dict[str, list[Made]]) -> None:
    words = {
        "normal forms": "the two networks have the same normal form",
        "neurons": "both networks give the same class",
        "one class": "both networks give class",
        "product": "both networks give the same class",
        "point": "the first network gives class",
    }
    for one, two, _, path in made[way]:
        statement = accepted(path, one, two)
        assert statement is not None and words[way] in statement
        assert "of equal scores the first counts" in statement


def test_the_two_networks_have_to_be_named(made: dict[str, list[Made]]) -> None:
    one, two, _, path = made["point"][0]
    a, b = one.build(), two.build()
    for networks, text in (
        ({"network": a}, "name both"),
        ({"network": b, "other": a}, "in the other order"),
        ({"network": a, "other": a}, "about other networks"),
        ({"network": a, "other": b, "sign_zero": "either"}, "another sign"),
    ):
        with pytest.raises(RejectedError, match=text):
            check(path, **networks)  # type: ignore[arg-type]


def changes(details: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield details with one field changed to something else."""
    others: dict[str, list[Any]] = {
        "how": list(WAYS),
        "verdict": ["equal", "different"],
        "classes": [None, [0, 0], [0, 1], [1, 0], [1, 1], [0], [0, 9], [-1, 0]],
        "networks": [details["networks"][::-1], details["networks"][:1], ["", ""]],
        "excluded": [{"label": 0, "A": [1], "B": []}, {"label": 1, "A": [0], "B": [0]}, {}],
        "all_scores": [True, False],
        "region": [{"region": "box"}, {"region": "linf", "radius": "9"}],
    }
    for name, old in details.items():
        for new in [*others[name], *STRANGE[:: 1 + len(STRANGE) // 6]]:
            if type(new) is type(old) and new == old:
                continue
            yield {**details, name: new}
    for name in details:
        yield {k: v for k, v in details.items() if k != name}
    yield {**details, "more": 1}


def is_true(details: dict[str, Any], pairs: set[tuple[int, int]]) -> bool:
    """Whether brute force confirms what changed details say about the same region."""
    if details["how"] == "point":
        return tuple(details["classes"]) in pairs
    if details["how"] == "one class":
        return pairs == {tuple(details["classes"])}
    return all(a == b for a, b in pairs)


@pytest.mark.parametrize("way", WAYS)
def test_changed_details_are_refused_or_true(
    way: str, made: dict[str, list[Made]], tmp_path: Path
) -> None:
    one, two, region, path = made[way][0]
    pairs = pairs_on_region(one, two, region)
    sections = unpack(path)
    original = sections[0].fields["details"]
    taken = 0
    for changed in changes(original):
        claim = Section("claim", {"kind": "equivalence", "details": changed}, sections[0].arrays)
        wrong = pack(tmp_path / "wrong.bnncert", [claim, *sections[1:]])
        if accepted(wrong, one, two) is not None:
            taken += 1
            assert is_true(changed, pairs)
    # Claims without parts may be stated otherwise, and of two classes all scores are compared.
    assert taken <= (4 if way in ("normal forms", "neurons", "product") else 0)


@pytest.mark.parametrize("way", ["neurons", "one class", "product", "point"])
def test_changed_arrays_and_parts_are_refused(
    way: str, made: dict[str, list[Made]], tmp_path: Path
) -> None:
    one, two, region, path = made[way][0]
    pairs = pairs_on_region(one, two, region)
    sections = unpack(path)

    def refuse(wrong: list[Section]) -> None:
        assert accepted(pack(tmp_path / "wrong.bnncert", wrong), one, two) is None

    for name, array in sections[0].arrays.items():
        for k in range(array.size):
            for value in (array[k] + 1.0, np.nextafter(array[k], np.inf), np.nan):
                wrong = copy.deepcopy(sections)
                wrong[0].arrays[name][k] = value
                if way != "neurons":
                    refuse(wrong)
    for wrong in (*with_other_arrays(sections), *with_other_parts(sections)):
        refuse(wrong)
    assert pairs


def test_parts_of_another_question_are_refused(made: dict[str, list[Made]], tmp_path: Path) -> None:
    """Each claim with the parts of every other one."""
    files = [entry for way in WAYS for entry in made[way]]
    for one, two, _, path in files:
        own = unpack(path)
        for entry in files:
            parts = unpack(entry[3])[1:]
            if entry[3] == path or not parts or (not own[1:] and not parts):
                continue
            wrong = pack(tmp_path / "wrong.bnncert", [own[0], *parts])
            assert accepted(wrong, one, two) is None


@pytest.mark.parametrize("seed", [67, 1426])
def test_excluded_classes_need_their_parts(seed: int, tmp_path: Path) -> None:
    """Parts about single networks exclude some classes before the one about the product."""
    rng = np.random.default_rng(seed)
    one, two = random_pair(rng, 2)
    region = random_region(rng, ("linf", "box")[seed % 2], 2)
    path = tmp_path / "proof.bnncert"
    found = bnncert.compare(one.build(), two.build(), region, certificate=path)
    assert found.how == "product" and accepted(path, one, two) is not None
    sections = unpack(path)
    excluded = sections[0].fields["details"]["excluded"]
    assert excluded["A"] and excluded["B"]
    every = list(range(one.biases[-1].size))
    for name in "AB":
        for classes in ([], excluded[name][:-1], every, [excluded["label"]]):
            if classes == excluded[name]:
                continue
            wrong = copy.deepcopy(sections)
            wrong[0].fields["details"]["excluded"][name] = classes
            assert accepted(pack(tmp_path / "wrong.bnncert", wrong), one, two) is None


def test_a_network_and_itself_with_ties_of_their_own(tmp_path: Path) -> None:
    """If sign(0) may be either, two runs of one network can have different classes."""
    net = bnncert.Network.from_arrays([[[1.0]], [[1], [-1]]], [[0], [0, 0]], sign_zero="either")
    path = tmp_path / "same.bnncert"
    assert bnncert.compare(net, net, certificate=path).status == "identical"
    assert "the same class for all inputs if their ties have the same signs" in (
        check(path, net, other=net).statement
    )
    plus = net.with_sign_zero("plus")
    bnncert.compare(plus, plus, certificate=path)
    assert "the same class for all inputs (real" in check(path, plus, other=plus).statement
