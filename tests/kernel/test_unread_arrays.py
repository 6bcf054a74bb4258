"""Every array of a certificate is read: one that nothing depends on is refused."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.container import CONTENTS, Section, WatchedSections
from tests.kernel.claims import pack, unpack
from tests.kernel.every_claim import KINDS, NET

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
