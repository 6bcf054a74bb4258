"""A certificate names what it is about: the network and the numbers of its inputs, by SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from bnncert.checking.claims.registry import CLAIMS
from tests.checking.every_claim import IMAGE, KINDS, NEAR, NET


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
