"""A certificate names what it is about: the network and the numbers of its inputs, by SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import check
from bnncert.kernel.claims.kinds import CLAIMS
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
