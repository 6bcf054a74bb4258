"""Certificates about two copies of a network: accepted as written, rejected after any change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, check
from bnncert.kernel.container import Section
from tests.kernel.claim_changes import (
    Values,
    with_other_arrays,
    with_other_details,
    with_other_parts,
)
from tests.kernel.claims import REFUSALS, pack, unpack

WEIGHTS = [
    [[1, -1, 1, 0, 0], [1, 0, 0, 1, -1], [0, -1, 1, 0, 0]],
    [[1, 1, 0], [0, 1, 1]],
    [[-1, 0], [1, 1]],
]
BIASES = [[-2.5, -1.5, 0.5], [0, 1], [0.5, 0]]
BOX = bnncert.Box([0, 0, 0, 0, 0], [4, 3, 1, 1, 1], grid=1)
GROUP = (3, 4)


def network(biases: list[list[float]] = BIASES) -> bnncert.Network:
    return bnncert.Network.from_arrays(WEIGHTS, biases)


def monotone(path: Path, feature: int, **how: Any) -> list[Section]:
    how = {"region": BOX, "one_hot": [GROUP], **how}
    result = bnncert.monotone(network(), feature, timeout=60, certificate=path, **how)
    assert result.certificate is not None, result
    return unpack(path)


def holding(path: Path) -> list[Section]:
    return monotone(path, 0)


def failing(path: Path) -> list[Section]:
    return monotone(path, 1)


def listed(path: Path) -> list[Section]:
    return monotone(path, 0, values=[0, 1, 4])


def fair(path: Path) -> list[Section]:
    """Write a claim about two attributes, one of them a group."""
    box = bnncert.Box([3, 0, 0, 0, 0], [4, 0, 1, 1, 1], grid=1)
    result = bnncert.fair(network(), [2, GROUP], box, timeout=60, certificate=path)
    assert result.status == "holds" and result.count == 3, result
    return unpack(path)


def other_details() -> Values:
    """Return other values of the details of the claim."""
    return {
        "network": ["0" * 64, None],
        "relation": [
            {"label": 0, "score": None, "falling": False},
            {"label": 1, "score": None, "falling": True},
            {"label": None, "score": None, "falling": False},
            {"label": None, "score": 0, "falling": False},
            {"label": 1, "score": 1, "falling": False},
            {"label": 7, "score": None, "falling": False},
            {"label": True, "score": None, "falling": False},
            {"label": 1, "score": None},
            None,
        ],
        "changes": [
            [],
            None,
            [{"features": [2], "step": "1", "values": []}],
            [{"features": [0], "step": "2", "values": []}],
            [{"features": [0], "step": "1/2", "values": []}],
            [{"features": [0], "step": None, "values": []}],
            [{"features": [0], "step": "-1", "values": []}],
            [{"features": [0], "step": "9", "values": []}],
            [{"features": [0], "step": None, "values": [["0"], ["4"]]}],
            [{"features": [0], "step": None, "values": [["4"], ["1"], ["0"]]}],
            [{"features": [0], "step": None, "values": [["0"], ["1"], ["2"], ["4"]]}],
            [{"features": [0], "step": None, "values": [["0"], ["0"], ["1"], ["4"]]}],
            [{"features": [0], "step": None, "values": [["0"], ["1"], ["5"]]}],
            [{"features": [0], "step": "1", "values": [["0"], ["1"], ["4"]]}],
            [{"features": [3], "step": "1", "values": []}],
            [{"features": [0, 1], "step": "1", "values": []}],
            [{"features": [0], "step": "1", "values": []}] * 2,
            [{"features": [9], "step": "1", "values": []}],
            [{"features": [0], "step": "1"}],
            [{"features": [2], "step": "1", "values": []}],
            [{"features": [3, 4], "step": None, "values": [["1", "0"], ["0", "1"]]}],
            [{"features": [3, 4], "step": None, "values": [["1", "0"], ["0", "0"], ["0", "1"]]}],
        ],
        "one_hot": [[], [[4, 3]], [[2, 3]], [[3]], [[3, 4], [3, 4]], [[3, 9]], None],
        "region": [
            {"region": "box"},
            {"region": "box", "grid": "float64"},
            {"region": "linf", "radius": "1"},
            {"region": "box", "grid": "float32", "within": "1"},
            None,
        ],
        "failure": [None, [0, 0], [1, 0], [9, 0], [0, 9], [-1, 0], [0], "0"],
    }


def changed_numbers(sections: list[Section]) -> Iterator[list[Section]]:
    """Yield certificates with another number in an array of the claim.

    Wider bounds of inputs that have listed values or are one-hot do not change the statement.
    """
    changes = sections[0].fields["details"]["changes"]
    fixed = {*GROUP, *(c["features"][0] for c in changes if c["values"])}
    for name, array in sections[0].arrays.items():
        for place in sorted(set(range(array.size)) - fixed):
            for change in (0.5,) if place else (np.nan, -1.0):
                made = deepcopy(sections)
                made[0].arrays[name][place] += change
                yield made


@pytest.mark.parametrize("write", [holding, failing, listed, fair])
def test_every_change_is_rejected(tmp_path: Path, write: Callable[[Path], list[Section]]) -> None:
    sections = write(tmp_path / "proof.bnncert")
    report = check(pack(tmp_path / "same.bnncert", deepcopy(sections)), network())
    assert report.verdict == ("relation_fails" if write is failing else "relation_holds")
    other = (failing if write is not failing else holding)(tmp_path / "other.bnncert")
    mutants = [
        *with_other_details(sections, other_details()),
        *changed_numbers(sections),
        *with_other_arrays(sections),
        *with_other_parts(sections),
        *([sections[0], *other[1:]], [other[0], *sections[1:]], sections[1:]),
    ]
    for made in mutants:
        with pytest.raises(REFUSALS):
            print(made[0].fields, check(pack(tmp_path / "wrong.bnncert", made), network()))
    assert len(mutants) > 60


def test_another_network_is_rejected(tmp_path: Path) -> None:
    holding(tmp_path / "proof.bnncert")
    with pytest.raises(RejectedError, match="another network"):
        check(tmp_path / "proof.bnncert", network([[-2.5, -1.5, 0.25], *BIASES[1:]]))


def test_the_statement_in_words(tmp_path: Path) -> None:
    holding(tmp_path / "proof.bnncert")
    words, _ = check(tmp_path / "proof.bnncert", network()).statement.split("; SHA-256: ")
    assert words == (
        "for every two inputs in a box in 5 dimensions with bounds [0, 4] (less for some inputs), "
        "integer inputs only, on the grid of step 1 from 0 in float32, exactly one of inputs 3, 4 "
        "being 1 and the others 0 that are equal up to input 0, by multiples of 1: if one has "
        "class 1, the one with the larger value has class 1 (real arithmetic, sign(0) = +1, of "
        "equal scores the first counts)"
    )
    failing(tmp_path / "proof.bnncert")
    found = check(tmp_path / "proof.bnncert", network()).statement
    assert found.startswith("for some two inputs in a box in 5 dimensions")
    assert (
        "that are equal up to input 1, by multiples of 1, this is wrong: if one has class 1"
        in found
    )
