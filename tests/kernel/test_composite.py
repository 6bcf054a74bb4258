"""Composite certificates: a claim and its parts, in order, each exactly what the claim needs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.claims import kinds as registry
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, Subject
from bnncert.kernel.container import Section
from bnncert.kernel.statement import classification
from bnncert.proofs.claims import write_claim
from tests.kernel.claims import pack, unpack

RADII = (0.1, 0.2)


@pytest.fixture
def network() -> bnncert.Network:
    weights = [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]]
    return bnncert.Network.from_arrays(weights, [[0, 0], [0, 0]])


class TwoBalls:
    def __init__(self, section: Section, subject: Subject) -> None:
        assert section.details(("balls",)) == {"balls": 2}
        self.network = subject.network

    def parts(self) -> ClaimParts:
        for radius in RADII:
            ball = {"region": "linf", "radius": str(Fraction(radius))}
            region = Section("statement", ball, {"center": np.array([0.5, 0.0])})
            proved = yield ClaimPart(self.network, region, classification(0, [1], "violation"))
            assert proved.verdict == "robust" and not proved.point

    def shown(self) -> Shown:
        return Shown("two balls are robust", "balls", {}, {})


@pytest.fixture
def path(tmp_path: Path, network: bnncert.Network, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(registry.CLAIMS, "balls", TwoBalls)
    parts = []
    for radius in RADII:
        parts.append(tmp_path / f"{radius}.cert")
        region = bnncert.Ball("linf", [0.5, 0], radius)
        result = bnncert.verify(network, region, 0, timeout=60, certificate=parts[-1])
        assert result.status == "robust"
    write_claim(
        tmp_path / "both.cert", Section("claim", {"kind": "balls", "details": {"balls": 2}}), parts
    )
    return tmp_path / "both.cert"


def test_a_claim_with_its_parts_is_accepted(path: Path, network: bnncert.Network) -> None:
    report = check(path, network)
    assert (report.statement, report.verdict, report.targets) == (
        f"two balls are robust; SHA-256: network {network.content_hash}",
        "balls",
        2,
    )
    assert report.property == {"kind": "balls", "details": {"balls": 2}}


def starts(sections: list[Section]) -> list[int]:
    return [k for k, s in enumerate(sections) if s.name == "statement"]


def test_parts_that_are_missing_exchanged_or_repeated_are_refused(
    path: Path, network: bnncert.Network, tmp_path: Path
) -> None:
    sections = unpack(path)
    first, second = starts(sections)
    head, one, two = sections[:first], sections[first:second], sections[second:]
    changed = {
        "missing": head + one,
        "only the second": head + two,
        "exchanged": head + two + one,
        "repeated": head + one + one,
        "one more": head + one + two + two,
        "nothing": head,
        "claim in the middle": one + head + two,
    }
    for name, wrong in changed.items():
        with pytest.raises((RejectedError, UnreadableError)):
            print(name, check(pack(tmp_path / "wrong.cert", wrong), network))


def test_a_part_needs_its_own_proof(path: Path, network: bnncert.Network, tmp_path: Path) -> None:
    sections = unpack(path)
    first, second = starts(sections)
    with pytest.raises(RejectedError, match="not proved"):
        check(pack(tmp_path / "wrong.cert", sections[: first + 1] + sections[second:]), network)


def test_an_unknown_kind_is_unreadable(tmp_path: Path, network: bnncert.Network) -> None:
    claim = Section("claim", {"kind": "nothing", "details": {}})
    with pytest.raises(UnreadableError, match="unknown kind 'nothing'"):
        check(pack(tmp_path / "wrong.cert", [claim]), network)


def test_an_ordinary_certificate_has_one_part(
    path: Path, network: bnncert.Network, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableError, match="statement"):
        check(pack(tmp_path / "wrong.cert", unpack(path)[1:]), network)
