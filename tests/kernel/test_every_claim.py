"""Certificates of every kind: what they are about, and that every part and number of them counts.

They name the network and the numbers of their inputs by SHA-256, and an array that nothing depends
on is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import deepcopy
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.claims.kinds import CLAIMS
from bnncert.kernel.container import CONTENTS, Section, WatchedSections
from tests.kernel.claim_changes import with_other_details, with_other_parts
from tests.kernel.claims import pack, unpack
from tests.kernel.every_claim import IMAGE, KINDS, NEAR, NET


def test_every_kind_of_claim_is_here() -> None:
    assert set(CLAIMS) <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hashes_are_those_of_the_numbers(kind: str, tmp_path: Path) -> None:
    report = KINDS[kind].report(tmp_path / "c")
    expected = {"network": NET.content_hash}
    if kind == "equivalence":
        expected["other"] = NEAR.content_hash
    for name, numbers in KINDS[kind].about.items():
        stated = np.asarray(numbers(IMAGE))
        expected[name] = hashlib.sha256(stated.astype("<f8").tobytes()).hexdigest()
    assert report.about == expected
    assert all(f"{name} {digest}" in report.statement for name, digest in expected.items())
    if "centre" in expected:
        assert report.centre is not None and np.array_equal(report.centre, IMAGE)
    else:
        assert report.centre is None


@pytest.mark.parametrize("kind", KINDS)
def test_certificates_of_two_images_say_different_things(kind: str, tmp_path: Path) -> None:
    one = KINDS[kind].report(tmp_path / "a", IMAGE)
    # The same pixels in another order have the same sums, so that all other words are the same.
    two = KINDS[kind].report(tmp_path / "b", IMAGE[::-1].copy())
    assert one.statement != two.statement and one.about != two.about


def test_grids_and_data_boxes_that_words_do_not_tell_are_named(tmp_path: Path) -> None:
    steps = ([0.25, 0.25, 0.25, step] for step in (0.125, 0.0625))
    for name, regions in {
        "grid": [bnncert.Box(IMAGE - 0.25, IMAGE, grid=bnncert.Grid(s, 0)) for s in steps],
        "data_box": [bnncert.Ball("linf", IMAGE, 0.125, -1, [1, 1, 1, x]) for x in (0.5, 0.75)],
    }.items():
        reports = []
        for number, region in enumerate(regions):
            path = tmp_path / str(number)
            bnncert.verify(NET, region, 0, timeout=60, certificate=path)
            reports.append(check(path, NET))
        assert reports[0].statement != reports[1].statement
        assert name in reports[1].about
    low, high = np.full(4, -1.0), np.array([1, 1, 1, 0.75])
    numbers = np.concatenate([low, high])
    assert reports[1].about["data_box"] == hashlib.sha256(numbers.tobytes()).hexdigest()


#: Arrays that some certificates need not have; each is checked if it is there.
OPTIONAL = {"witness", "clip_lo", "clip_hi", "inside"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_that_is_not_needed_is_refused(kind: str, tmp_path: Path) -> None:
    written = KINDS[kind]
    written.report(tmp_path / "c")
    sections = unpack(tmp_path / "c")
    own = sections[0].arrays
    refused = 0
    for name in CONTENTS[sections[0].name][1]:
        if name in own or name in OPTIONAL:
            continue
        for values in (np.zeros(4), np.zeros(0), np.zeros(4, dtype=np.int8)):
            changed = deepcopy(sections)
            changed[0].arrays[name] = values
            with pytest.raises((UnreadableError, RejectedError)) as caught:
                check(pack(tmp_path / "d", changed), NET, other=written.other)
            assert "\n" not in str(caught.value)
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_claim_has_exactly_its_details_and_parts(kind: str, tmp_path: Path) -> None:
    written = KINDS[kind]
    written.report(tmp_path / "c")
    sections = unpack(tmp_path / "c")
    for changed in (*with_other_details(sections, {}), *with_other_parts(sections)):
        with pytest.raises((UnreadableError, RejectedError)):
            check(pack(tmp_path / "d", changed), NET, other=written.other)


@pytest.mark.parametrize("kind", ["count", "faults", "equivalence", "two copies"])
def test_evidence_of_another_kind_is_refused(kind: str, tmp_path: Path) -> None:
    """A point `inside` belongs to a polytope, and a `witness` to a count."""
    written = KINDS[kind]
    written.report(tmp_path / "c")
    for name in {"inside", "witness"} - ({"witness"} if kind == "count" else set()):
        sections = unpack(tmp_path / "c")
        sections[0].arrays[name] = np.zeros(4)
        with pytest.raises((UnreadableError, RejectedError)):
            check(pack(tmp_path / "d", sections), NET, other=written.other)


def test_the_point_inside_a_violated_polytope_is_checked(tmp_path: Path) -> None:
    region = bnncert.Polytope([[1.0, 0, 0, 0]], [0.5], [-1] * 4, [1] * 4)
    found = bnncert.verify(NET, region, 0, timeout=60, certificate=tmp_path / "c")
    assert found.status == "not_robust" and check(tmp_path / "c", NET).verdict == "not_robust"
    sections = unpack(tmp_path / "c")
    sections[0].arrays["inside"] = np.array([1.0, 0, 0, 0])
    with pytest.raises(RejectedError, match="lies outside"):
        check(pack(tmp_path / "d", sections), NET)


def test_the_memory_does_not_grow_with_the_number_of_sections() -> None:
    def endless(taken: list[int]) -> Iterator[Section]:
        for k in count():
            taken.append(k)
            yield Section("tree", {}, {"variables": np.zeros(0, dtype=np.int8)})

    taken: list[int] = []
    with pytest.raises(UnreadableError, match="'variables' does not belong there"):
        for _ in WatchedSections(endless(taken)):
            pass
    assert len(taken) < 10
    watched = WatchedSections(endless(taken))
    for section in islice(watched, 1000):
        section.integers("variables")
    watched.refuse_unread()
