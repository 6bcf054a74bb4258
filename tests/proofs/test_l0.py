"""Certificates about L0 balls of real inputs: what is written is accepted, and says so in words."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import bnncert
from tests.kernel.claims import accepted, pack, unpack
from tests.proofs.written import Written
from tests.strategies import few
from tests.test_l0_against_brute_force import sparse_questions


@pytest.mark.parametrize("method", ["auto", "propagation", "bab", "elimination"])
def test_what_is_written_is_accepted(method: str, tmp_path: Path) -> None:
    written = Written(tmp_path / "proof")

    @few(8)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        question = data.draw(sparse_questions(binary=data.draw(st.booleans())))
        ball = question.region
        assert isinstance(ball, bnncert.L0Ball)
        written.check(question, method, f"at most {ball.changes} of 3 inputs change")

    check()
    written.conclude()


def claim(tmp_path: Path) -> tuple[Path, bnncert.Network]:
    """Two of three inputs would have to change."""
    network = bnncert.Network.from_arrays(
        [np.eye(3), np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])],
        [np.full(3, 0.5), np.zeros(2)],
        sign_zero="plus",
    )
    path = tmp_path / "proof"
    ball = bnncert.L0Ball([0.0, 0.0, 0.0], 1, -1.0, 1.0, 0.75)
    assert bnncert.verify(network, ball, 0, certificate=path).certificate is not None
    assert accepted(path, network) is not None
    return path, network


@pytest.mark.parametrize(
    ("change", "is_accepted"),
    [
        ({"radius": "0"}, True),
        ({"within": "1/4"}, True),
        ({"within": "2"}, True),
        ({"radius": "2"}, False),
        ({"radius": "4"}, False),
        ({"radius": "1/2"}, False),
        ({"radius": "-1"}, False),
        ({"within": "-1"}, False),
        ({"within": None}, False),
        ({"region": "linf"}, False),
        ({"region": "l1"}, False),
    ],
)
def test_other_claims_with_the_same_proof(
    change: dict[str, str | None], is_accepted: bool, tmp_path: Path
) -> None:
    path, network = claim(tmp_path)
    first, *rest = unpack(path)
    first.fields |= change
    found = accepted(pack(tmp_path / "changed", [first, *rest]), network)
    assert (found is not None) == is_accepted


def test_without_the_reach_the_data_box_limits_the_changes(tmp_path: Path) -> None:
    path, network = claim(tmp_path)
    first, *rest = unpack(path)
    del first.fields["within"]
    assert accepted(pack(tmp_path / "a", [first, *rest]), network) is not None
    del first.arrays["clip_hi"]
    assert accepted(pack(tmp_path / "b", [first, *rest]), network) is None


def test_the_centre_has_to_be_inside_the_data_box_and_on_the_grid(tmp_path: Path) -> None:
    path, network = claim(tmp_path)
    first, *rest = unpack(path)
    first.arrays["clip_lo"] = np.full(3, 0.25)
    assert accepted(pack(tmp_path / "a", [first, *rest]), network) is None
    first.arrays["clip_lo"] = np.full(3, -1.0)
    first.fields["grid"] = "float64"
    first.arrays |= {"grid_step": np.full(3, 0.5), "grid_origin": np.zeros(3)}
    assert accepted(pack(tmp_path / "b", [first, *rest]), network) is not None
    first.arrays["grid_origin"] = np.full(3, 0.25)
    assert accepted(pack(tmp_path / "c", [first, *rest]), network) is None
