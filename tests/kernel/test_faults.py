"""Certificates about faults: accepted as they are written, and refused with any other claim."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel.container import Section
from tests.kernel.claim_changes import (
    Values,
    with_other_arrays,
    with_other_details,
    with_other_parts,
)
from tests.kernel.claims import accepted, pack, unpack
from tests.plain_network import TIES, PlainNetwork, random_plain
from tests.questions.faults.oracle import least_faults

NETWORK = PlainNetwork(
    [
        np.array([[1, 1, 0], [1, -1, 1], [0, 1, 1], [1, 0, -1]]),
        np.array([[1, 1, 0, 1], [1, -1, 1, 1], [-1, 1, 1, 0]]),
        np.array([[1, 1, 1], [-1, 1, -1], [1, -1, -1]]),
    ],
    [np.array([1, -1, 2, 1]), np.array([0, 1, 0]), np.array([1, 0, 0])],
    "plus",
)

#: The rows that are changed: layers 1 and 2, anywhere, and stuck thresholds of layer 1.
CHANGED = (0, 1, 3, 7)


@pytest.fixture(scope="module")
def network() -> bnncert.Network:
    return NETWORK.build()


@pytest.fixture(scope="module", params=[0.0, 0.03125], ids=["point", "ball"])
def path(
    request: pytest.FixtureRequest,
    network: bnncert.Network,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    ball = bnncert.Ball("linf", [0.75, 0.5, 0.25], request.param, -1, 1)
    file = tmp_path_factory.mktemp("faults") / "faults.bnncert"
    found = bnncert.faults(network, ball, 0, timeout=60, certificate=file)
    assert found.certificate == str(file)
    assert found.row("weights", "layer", 2).certified
    return file


def tolerated(count: int) -> str:
    """Return a certified number, which is not that of all faults, in words."""
    if not count:
        return "the class holds without any"
    return "any 1 is tolerated" if count == 1 else f"any {count} are tolerated"


def test_a_certificate_says_what_it_shows(path: Path, network: bnncert.Network) -> None:
    report = accepted(path, network)
    assert report is not None and report.verdict == "faults"
    rows = report.property["details"]["rows"]
    for number, faults in (
        (1, "flipped weights in layer 2"),
        (3, "flipped weights anywhere"),
        (7, "stuck thresholds in layer 1"),
    ):
        assert f"{faults}: {tolerated(rows[number]['certified'])}" in report.statement
    assert report.assumptions["ties"] == "violation"


def changed_rows() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return changes of one row that make another claim."""

    def set_to(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda row: row.update({name: value})

    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "one more": lambda row: row.update(certified=row["certified"] + 1),
        "many more": set_to("certified", 10**6),
        "negative": set_to("certified", -1),
        "a truth value": set_to("certified", True),
        "a float": set_to("certified", 1.0),
        "no faults": set_to("faults", None),
        "another field": set_to("more", 1),
        "no proof": set_to("proof", None),
        "computed": set_to("proof", "computed"),
        "a list": set_to("kind", ["weights"]),
        "unknown place": set_to("place", "nowhere"),
        "negative layer": set_to("layer", -1),
        "no such layer": set_to("layer", 9),
        "another kind": lambda row: row.update(
            kind="weights" if row["kind"] == "thresholds" else "thresholds"
        ),
    }
    for number, shift in ((0, 1), (1, 1), (2, 1), (3, 1), (3, -1)):

        def moved(row: dict[str, Any], number: int = number, shift: int = shift) -> None:
            row["faults"][0][number] = (row["faults"][0][number] or 0) + shift

        changes[f"another fault {number} {shift}"] = moved
    changes["a fault twice"] = lambda row: row["faults"].append(row["faults"][0])
    changes["a fault less"] = lambda row: row["faults"].pop()
    changes["half a fault"] = lambda row: row["faults"][0].pop()
    return changes


def is_true(details: dict[str, Any]) -> bool:
    """Whether the oracle confirms all rows of a claim at the centre of its region."""
    for row in details["rows"]:
        scope = (row["kind"], row["place"], row["layer"])
        least = least_faults(NETWORK, [(3, 2, 1)], 0, "violation", scope, 2)
        if row["certified"] is not None and least is not None and row["certified"] >= least:
            return False
    return True


@pytest.mark.parametrize("name", changed_rows())
def test_other_rows_are_refused(
    name: str, path: Path, network: bnncert.Network, tmp_path: Path
) -> None:
    sections, done = unpack(path), 0
    for number in CHANGED:
        row = sections[0].fields["details"]["rows"][number]
        details = deepcopy(sections[0].fields["details"])
        before = deepcopy(details)
        try:
            changed_rows()[name](details["rows"][number])
        except (AttributeError, IndexError, TypeError):
            # The row has no fault or no number to change.
            continue
        if details == before:
            continue
        done += 1
        wrong = Section("claim", {"kind": "faults", "details": details}, sections[0].arrays)
        report = accepted(pack(tmp_path / "wrong.bnncert", [wrong, *sections[1:]]), network)
        if report is not None:
            # The checker may compute more than the file claimed.
            assert name == "one more" and row["proof"] == "computed", (name, row)
            assert is_true(details)
    assert done


#: Other values of the details of the claim.
OTHERS: Values = {
    "network": ["0" * 64],
    "label": [1, -1, 0.0],
    "rivals": [[1], [2, 1], [1, 1], [0, 1, 2], []],
    "ties": ["robust", "sometimes"],
    "rows": [[], {}],
    "region": [
        {"region": "linf", "radius": "1/16"},
        {"region": "l2", "radius": "1/32"},
        {"region": "linf", "radius": "0", "grid": "float64"},
        {"region": "linf", "radius": "0", "verdict": "robust"},
        [],
    ],
}


def test_other_questions_are_refused(path: Path, network: bnncert.Network, tmp_path: Path) -> None:
    for made in with_other_details(unpack(path), OTHERS):
        assert accepted(pack(tmp_path / "wrong.bnncert", made), network) is None, made[0].fields


def test_other_inputs_are_refused(path: Path, network: bnncert.Network, tmp_path: Path) -> None:
    sections = unpack(path)
    head, wrong = sections[0], tmp_path / "wrong.bnncert"
    for name in head.arrays:
        arrays = {**head.arrays, name: head.arrays[name] + 0.125}
        made = [Section("claim", head.fields, arrays), *sections[1:]]
        assert accepted(pack(wrong, made), network) is None
    for made in with_other_arrays(sections):
        assert accepted(pack(wrong, made), network) is None


def test_parts_that_are_missing_exchanged_or_doubled_are_refused(
    path: Path, network: bnncert.Network, tmp_path: Path
) -> None:
    for made in with_other_parts(unpack(path)):
        assert accepted(pack(tmp_path / "wrong", made), network) is None


def test_another_network_is_refused(path: Path) -> None:
    weights = [w.copy() for w in NETWORK.weights]
    weights[2][0, 0] *= -1
    other = PlainNetwork(weights, NETWORK.biases, "plus").build()
    assert accepted(path, other) is None
    assert accepted(path, NETWORK.build().with_sign_zero("minus")) is None


@pytest.mark.parametrize("seed", range(4))
def test_random_certificates(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    network = random_plain(rng, 2).build()
    centre = rng.integers(-4, 5, 2) / 4
    ball = bnncert.Ball("linf", centre, (seed % 2) / 4, grid=1 / 4)
    file, label = tmp_path / "faults.bnncert", int(network.classify(centre)[0])
    ways: Any = {"ties": TIES[seed // 2], "timeout": 60, "certificate": file}
    found = bnncert.faults(network, ball, label, **ways)
    report = accepted(file, network)
    assert report is not None
    rows = report.property["details"]["rows"]
    assert [row["certified"] for row in rows] == [row.certified for row in found.rows]


def test_a_polytope_without_a_point_may_be_empty(tmp_path: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    region = bnncert.Polytope([[1, 1]], [0.75], [0.25, 0], [0.5, 0.125])
    file = tmp_path / "faults.bnncert"
    assert bnncert.faults(net, region, 0, timeout=60, certificate=file).certificate
    sections = unpack(file)
    for section in sections:
        section.arrays.pop("inside", None)
    words = "a tie is a violation, not shown: that the region has an input)"
    report = accepted(pack(tmp_path / "without.bnncert", sections), net)
    assert report is not None and words in report.statement
