"""Certificates of counts: accepted ones are true, and changed ones are refused or still true."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Ball, Grid, Network
from bnncert.kernel import RejectedError, check
from bnncert.kernel.claims import count_parts
from bnncert.kernel.container import Section
from bnncert.questions.count import count_search as search
from tests.kernel.claims import accepted, pack, unpack
from tests.questions.count.questions import (
    CountQuestion,
    binary_question,
    count_questions,
    fast_truth,
)

few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", ["box", "l0"])
@pytest.mark.parametrize("chunk", [1, 30, 200])
def test_cells_are_counted_once_in_batches_of_any_size(
    kind: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are cut between cells, and between the alternatives of one cell."""
    monkeypatch.setattr(count_parts, "CHUNK", chunk)
    path = tmp_path / "count.bnncert"

    @few
    @given(data=st.data())
    def accept(data: st.DataObject) -> None:
        question = data.draw(count_questions(kind))
        question.count(samples=0, certificate=path)
        assert f"exactly {question.truth:,} ha" in check(path, question.network).statement

    accept()


def test_bounds_of_a_stopped_search_are_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_CELLS", 1)
    question = binary_question(14, 2)
    found = bnncert.count(
        *(question.network, question.region, question.label),
        timeout=0.4,
        certificate=tmp_path / "c",
    )
    assert found.lower < found.upper
    statement = check(tmp_path / "c", question.network).statement
    assert f"at least {found.lower:,} and at most {found.upper:,} have" in statement


def test_equal_inputs_are_merged_by_the_checker(tmp_path: Path) -> None:
    net = Network.from_arrays([[[1] * 201], [[1], [-1]]], [[-1], [0, 0]])
    box = bnncert.Box([-1] * 201, [1] * 201, grid=Grid(2, -1))
    assert bnncert.count(net, box, 0, samples=0, certificate=tmp_path / "c").number == 2**200
    assert "exactly about 1.607e+60" in check(tmp_path / "c", net).statement


def test_a_proof_for_the_whole_region_is_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.CountSearch, "is_easy", lambda self: False)
    net = Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    ball = Ball("linf", [0.5, 0], 0.25, -1, 1, grid=Grid(1 / 8, -1))
    found = bnncert.count(net, ball, 0, timeout=20, samples=0, certificate=tmp_path / "c")
    assert found.number == 0
    report = check(tmp_path / "c", net)
    assert "of the 25 grid points" in report.statement and "exactly 0 have" in report.statement
    sections = unpack(tmp_path / "c")
    assert [s.name for s in sections[:2]] == ["claim", "statement"]
    other = bnncert.Ball("linf", [0.5, 0], 0.125, -1, 1, grid=Grid(1 / 8, -1))
    bnncert.verify(net, other, 0, timeout=20, certificate=tmp_path / "other")
    assert check(pack(tmp_path / "w", sections[1:]), net).verdict == "robust"
    claim, part = sections[:1], sections[1:]
    for wrong in (claim, claim + part + part, claim + unpack(tmp_path / "other")):
        assert accepted(pack(tmp_path / "w", wrong), net) is None


def test_a_witness_shows_that_one_point_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.CountSearch, "run", lambda self, report: None)
    question = binary_question(8, 3)
    found = question.count(samples=50, certificate=tmp_path / "c")
    assert (found.lower, found.upper) == (1, 256)
    assert "at least 1 and at most 256" in check(tmp_path / "c", question.network).statement
    shown = Certified(question, unpack(tmp_path / "c")[0], tmp_path / "w")
    point = shown.claim.arrays["witness"]
    unchanged = next(p for p in question.points if not question.is_changed(p))
    for wrong in (point * 0.5, point[:-1], np.array(unchanged), None):
        assert not shown.is_accepted(shown.with_array("witness", wrong))


@dataclass(frozen=True, eq=False)
class Certified:
    """A question, the claim of its certificate, and a file for changed ones."""

    question: CountQuestion
    claim: Section
    path: Path

    def is_accepted(self, claim: Section) -> bool:
        return accepted(pack(self.path, [claim]), self.question.network) is not None

    def with_field(self, name: str, value: Any = None, *, drop: bool = False) -> Section:
        wrong = copy.deepcopy(self.claim)
        wrong.fields["details"][name] = value
        if drop:
            del wrong.fields["details"][name]
        return wrong

    def with_array(self, name: str, array: Any) -> Section:
        wrong = copy.deepcopy(self.claim)
        del wrong.arrays[name]
        if array is not None:
            wrong.arrays[name] = array
        return wrong

    def is_true(self, claim: Section) -> bool:
        """Whether a changed claim is a weaker one about the same question, which holds, too."""
        stated = claim.fields["details"]
        return int(stated["lower"], 16) <= fast_truth(self.question) <= int(stated["upper"], 16)

    def has_same_truth(self, claim: Section) -> bool:
        """Whether a question with other rivals or ties has the same number, by the search."""
        stated, question = claim.fields["details"], self.question
        try:
            found = bnncert.count(
                *(question.network, question.region, question.label),
                rivals=tuple(stated["rivals"]) or "all",
                ties=stated["ties"],
                samples=0,
            )
        except (bnncert.InputError, TypeError):
            return False
        return bool(stated["rivals"]) and found.number == fast_truth(question)


@pytest.fixture(params=["box", "l0", "merged"])
def certified(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Certified:
    """A question whose certificate has all kinds of nodes between the three of them."""
    monkeypatch.setattr(search, "MOST_CELLS", 16)
    monkeypatch.setattr(search, "FEW_CELLS", 2 if request.param == "merged" else 2**10)
    question = binary_question(7, 8, changes=3 if request.param == "l0" else None)
    found = question.count(samples=0, certificate=tmp_path / "c")
    assert 0 < found.lower == found.upper == fast_truth(question) < found.total
    (claim,) = unpack(tmp_path / "c")
    return Certified(question, claim, tmp_path / "w")


def test_changed_fields_are_refused(certified: Certified) -> None:
    label, stated = certified.question.label, certified.claim.fields["details"]
    assert certified.is_accepted(certified.claim)
    lower, total = int(stated["lower"], 16), int(stated["total"], 16)
    changes: dict[str, list[Any]] = {
        "network": ["0" * 64, None],
        "label": [(label + 1) % 3, 7, -1, "0"],
        "rivals": [[], stated["rivals"][:1], [label], 3],
        "ties": ["robust", "both"],
        "region": [{}, {**stated["region"], "grid": "float64"}, {"region": "box"}, None],
        "total": [f"{total + 1:x}", f"{total - 1:x}", "-1", "", "x", 5],
        "lower": [f"{lower + 1:x}", f"{total:x}", "0x5", None],
        "upper": [f"{lower - 1:x}", "0", 12],
    }
    for name, values in changes.items():
        for value in values:
            wrong = certified.with_field(name, value)
            if value != stated[name]:
                same = name in ("rivals", "ties", "region") and certified.has_same_truth(wrong)
                assert same or not certified.is_accepted(wrong), (name, value)
        assert not certified.is_accepted(certified.with_field(name, drop=True))


def test_changed_arrays_are_refused_or_still_true(certified: Certified) -> None:
    generator = np.random.default_rng(0)
    refused, region = 0, ("lo", "hi", "center", "clip_lo", "clip_hi", "grid_step")
    for name, array in certified.claim.arrays.items():
        for _ in range(4):
            changed = array.copy()
            if changed.size:
                # The neighbouring value of the grid is 2 away.
                step = {"grid_step": 0.5, "grid_origin": 0.5}.get(name, 2)
                step = 1 if changed.dtype.kind == "i" else step
                changed[generator.integers(changed.size)] += step * generator.choice([-1, 1])
            else:
                changed = np.array([1], dtype=array.dtype)
            wrong = certified.with_array(name, changed)
            if certified.is_accepted(wrong):
                # Another split of the same points, for example.
                assert name not in region and certified.is_true(wrong), name
            else:
                refused += 1
        others: list[Any] = [array[:-1], np.concatenate([array, array[:1]])] if array.size else []
        others += [None] if name not in ("clip_lo", "clip_hi") else []
        for other in others:
            assert not certified.is_accepted(certified.with_array(name, other)), name
    assert refused > 10


def test_leaves_of_another_kind_are_refused(certified: Certified) -> None:
    kinds = certified.claim.arrays["kinds"]
    for node in range(min(kinds.size, 9)):
        for kind in range(8):
            changed = kinds.copy()
            changed[node] = kind
            if kind != kinds[node] and certified.is_accepted(
                certified.with_array("kinds", changed)
            ):
                # A leaf that propagation decides may also be enumerated.
                assert kind == 3 and kinds[node] in (1, 2)


def test_a_claim_about_another_network_is_refused(certified: Certified) -> None:
    with pytest.raises(RejectedError, match="another network"):
        check(pack(certified.path, [certified.claim]), binary_question(7, 9).network)


def three_classes() -> tuple[Network, bnncert.Ball]:
    """Return a network of one input x = 0, 1, .., 5.

    With a = sign(x - 2) and b = sign(x - 4) its scores are -a, a - 2b and a + 2b, that is
    (1, 1, -3) for x < 2, then (-1, 3, -1) for x < 4, and (-1, -1, 3).
    """
    net = Network.from_arrays([[[1], [1]], [[-1, 0], [1, -2], [1, 2]]], [[-2, -4], [0, 0, 0]])
    return net, bnncert.Ball("linf", [0], 5, 0, 5, grid=1)


@pytest.mark.parametrize(
    ("ties", "words"),
    [
        # Also at x = 4 and 5, where the class is 2.
        ("violation", "exactly 6 give class 1 at least the score of class 0"),
        ("robust", "exactly 2 give class 1 a higher score than class 0"),
    ],
)
def test_the_words_say_what_is_counted_of_some_rivals(
    tmp_path: Path, ties: Any, words: str
) -> None:
    net, ball = three_classes()
    asked = {"ties": ties, "timeout": 60, "certificate": tmp_path / "c"}
    found = bnncert.count(net, ball, 0, rivals=[1], **asked)
    assert found.summary == f"of 6 points, {words}"
    assert f": {words} (" in check(tmp_path / "c", net).statement
    number = {"violation": 6, "robust": 4}[ties]
    assert bnncert.count(net, ball, 0, **asked).number == number
    statement = check(tmp_path / "c", net).statement
    assert f": exactly {number} have another class than 0 (" in statement


def test_an_upper_bound_above_the_total_is_rejected(tmp_path: Path) -> None:
    net, ball = three_classes()
    bnncert.count(net, ball, 0, timeout=60, certificate=tmp_path / "c")
    sections = unpack(tmp_path / "c")
    for upper, fine in (("6", True), ("7", False), ("ff", False)):
        sections[0].fields["details"]["upper"] = upper
        assert (accepted(pack(tmp_path / "d", sections), net) is not None) == fine
