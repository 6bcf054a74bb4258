"""Values of features and one-hot categories are values of the region's grid."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, check
from bnncert.kernel.container import Section
from tests.kernel.claims import pack, unpack

#: Class 1 iff input 0 - input 1 + (input 2 - input 3) / 4 >= 2.
NETWORK = bnncert.Network.from_arrays([[[4, -4, 1, -1]], [[-1], [1]]], [[-8], [0, 0]])
GROUP = (2, 3)
BOX = bnncert.Box([0, 0, 0, 0], [4, 4, 1, 1], grid=1)


def box(step: float) -> bnncert.Box:
    """Return the region with another step of the two last inputs, which take 0 and 1."""
    return bnncert.Box([0] * 4, [4, 4, 1.5, 1.5], grid=bnncert.Grid([1, 1, step, step]))


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            lambda: bnncert.fair(NETWORK, 0, BOX, values={0: [0.5, 0.75]}),
            r"value 0.5 of feature input 0 is not on the grid of step 1 from 0; the nearest value",
        ),
        (
            lambda: bnncert.monotone(NETWORK, 0, BOX, values=[0, 2, 3.25]),
            r"value 3.25 of feature input 0 is not on the grid",
        ),
        (
            lambda: bnncert.monotone(NETWORK, 0, BOX, values=[0, 5]),
            r"value 5 of feature input 0 is outside the region \[0, 4\]",
        ),
        (
            lambda: bnncert.fair(NETWORK, [GROUP], box(0.75)),
            r"value 1 of input 2, which is in a one-hot group, is not on the grid of step 0.75",
        ),
        (
            lambda: bnncert.monotone(NETWORK, 0, box(0.75), one_hot=[GROUP]),
            r"value 1 of input 2, which is in a one-hot group, is not on the grid of step 0.75",
        ),
    ],
)
def test_values_off_the_grid_are_refused(ask: Callable[[], Any], text: str) -> None:
    with pytest.raises(bnncert.InputError, match=text):
        ask()


def test_values_on_a_grid_of_another_step_are_not() -> None:
    assert bnncert.fair(NETWORK, [GROUP], box(0.5), timeout=60).status == "fails"
    listed = bnncert.fair(NETWORK, 2, box(0.75), values={2: [0.75, 1.5]}, timeout=60)
    assert listed.status in ("holds", "fails")


def with_steps(sections: list[Section], features: tuple[int, ...], step: float) -> list[Section]:
    """Return a certificate whose claim and parts state another step of some inputs.

    If these inputs change, their second values are the last inputs of the parts.
    """
    made = deepcopy(sections)
    (change,) = made[0].fields["details"]["changes"]
    more = range(4, 4 + len(features)) if change["features"] == list(features) else ()
    for section in made:
        if "grid_step" in section.arrays:
            steps = section.arrays["grid_step"]
            steps[[f for f in (*features, *more) if f < steps.size]] = step
    return made


@pytest.mark.parametrize(
    ("ask", "features"),
    [
        (lambda path: bnncert.fair(NETWORK, [GROUP], BOX, certificate=path), GROUP),
        (
            lambda path: bnncert.monotone(
                NETWORK, 0, BOX, one_hot=[GROUP], values=[0, 4], certificate=path
            ),
            GROUP,
        ),
        (
            lambda path: bnncert.monotone(NETWORK, 0, BOX, values=[1, 4], certificate=path),
            (0,),
        ),
    ],
)
def test_claims_about_values_off_the_grid_are_rejected(
    tmp_path: Path, ask: Callable[[Path], Any], features: tuple[int, ...]
) -> None:
    path = tmp_path / "proof.bnncert"
    ask(path)
    sections = unpack(path)
    assert check(pack(path, deepcopy(sections)), NETWORK).verdict.startswith("relation_")
    for step in (0.75, 3.0):
        wrong = pack(tmp_path / "wrong.bnncert", with_steps(sections, features, step))
        with pytest.raises(RejectedError, match="is not on the grid"):
            check(wrong, NETWORK)


def test_pairs_outside_of_the_region_or_its_grid_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "proof.bnncert"
    result = bnncert.monotone(NETWORK, 1, BOX, timeout=60, certificate=path)
    assert result.status == "fails"
    sections = unpack(path)
    assert check(pack(path, deepcopy(sections)), NETWORK).verdict == "relation_fails"
    # x = (2, 0, 0, 0) and x' = (2, 1, 0, 0) violate it; these pairs do so, too, but do not count.
    for point in ([2.5, 0, 0, 0, 1], [2, 0.25, 0, 0, 1], [6, 4, 0, 0, 1], [2, -1, 0, 0, 2]):
        made = deepcopy(sections)
        made[-1].arrays["point"] = np.array(point, dtype=np.float64)
        made[-1].fields["exact"] = None
        with pytest.raises(RejectedError, match="outside the region"):
            check(pack(tmp_path / "wrong.bnncert", made), NETWORK)
    made[-1].arrays["point"] = np.array([2.0, 0, 0, 0, 1])
    assert check(pack(tmp_path / "right.bnncert", made), NETWORK).verdict == "relation_fails"
