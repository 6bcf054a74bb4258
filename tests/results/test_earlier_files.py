"""Certificates of earlier versions are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

import bnncert
from bnncert.kernel import check

EARLIER = Path(__file__).resolve().parents[1] / "data" / "earlier"


@pytest.mark.parametrize("path", sorted((EARLIER / "certificates").iterdir()), ids=lambda p: p.name)
def test_certificates_are_accepted(path: Path) -> None:
    report = check(path, bnncert.load(EARLIER / "network.npz"))
    index, _, radius, _ = path.name.removeprefix("old-").split("-")
    robust = {("0", "0.05"), ("1", "0.3")}
    assert report.verdict == ("robust" if (index, radius) in robust else "not_robust")
