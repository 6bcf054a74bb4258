"""Claims about brightness and contrast are accepted exactly if they are true."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.container import read_sections
from bnncert.problem import Ties, robustness
from bnncert.proofs.claims import write_claim, write_path
from bnncert.regions import ImagePath
from tests.brute_force import is_reached, last_layers_at, rival_target, scores_of
from tests.kernel.claim_changes import Values, with_other_arrays, with_other_details
from tests.kernel.claims import pack, unpack
from tests.questions.shapes.oracle import PathQuestion, all_places, image_at, path_questions
from tests.strategies import few

NET = bnncert.Network.from_arrays(
    [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2, input_lo=-1, input_hi=1
)


def verdict(path: Path, network: bnncert.Network) -> str | None:
    """Return what an accepted file shows, None for a rejected one."""
    try:
        return check(path, network).verdict
    except (RejectedError, UnreadableError):
        return None


def test_a_claim_is_accepted_if_and_only_if_it_is_true(tmp_path: Path) -> None:
    accepted: Counter[tuple[str, bool]] = Counter()
    file = tmp_path / "claim.bnncert"

    @few(20)
    @given(question=path_questions(), data=st.data())
    def agree(question: PathQuestion, data: st.DataObject) -> None:
        path, network = question.region, question.network
        assert isinstance(path, ImagePath)
        ties: Literal["violation", "robust"] = data.draw(st.sampled_from(get_args(Ties)))
        problem = robustness(network, path, question.label, "all", ties)
        write_path(file, problem, path, network, None)
        is_true = question.expected(ties) == "robust"
        assert (verdict(file, network) == "robust") == is_true
        accepted["robust", is_true] += 1
        (claim,) = read_sections(file)
        t = data.draw(st.sampled_from(all_places(question.net, path)))
        target = data.draw(st.integers(0, len(problem.targets) - 1))
        changed = {"verdict": "not_robust", "place": str(t), "target": target}
        claim.fields["details"] |= changed
        write_claim(file, claim)
        rival = problem.targets[target].rival
        assert rival is not None
        scores = scores_of(question.net, last_layers_at(question.net, image_at(path, t)))
        fails = any(is_reached(rival_target(question.label, rival, ties), s) for s in scores)
        assert (verdict(file, network) == "not_robust") == fails
        accepted["not_robust", fails] += 1

    agree()
    assert min(accepted.values()) > 2 and len(accepted) == 4


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (bnncert.Brightness([0.5, 0], 0.2, -1, 1), "every brightness offset from -0.2 to 0.2"),
        (
            bnncert.Contrast([0.5, 0.125], 0.25, -1, 1),
            "every contrast factor from 1 - 0.25 to 1 + 0.25 about 0.0",
        ),
    ],
)
def test_the_statement_says_in_words_what_is_proved(
    region: bnncert.Region, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "proof.bnncert"
    assert bnncert.verify(NET, region, 0, certificate=file).status == "robust"
    report = check(file, NET)
    assert words in report.statement and "class 0 scores more than class 1" in report.statement
    assert "inside the network's data box [-1, 1]" in report.statement


def test_a_changed_claim_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "claim.bnncert"
    brightness = bnncert.Brightness([0.75, 0.375], 0.5, -1, 1)
    assert bnncert.verify(NET, brightness, 0, certificate=file).status == "robust"
    details: Values = {
        "network": ["0" * 64],
        "verdict": ["not_robust", "proved"],
        "label": [1, 2, "0"],
        "rivals": [[], [0], [1, 1]],
        "ties": ["never"],
        "place": ["0"],
        "target": [0],
    }
    region: Values = {"region": ["contrast", "l2"], "radius": ["2", "-1", "1/3", None], "more": [1]}
    arrays: Values = {
        "center": [[0.25, 0.125], [1.5, 0.125], [np.nan, 0.125]],
        "clip_lo": [[0.8, -1]],
        "clip_hi": [[0.5, 1]],
        "pivot": [[0, 0]],
        "lo": [[0, 0]],
    }
    sections = unpack(file)
    # Without a data box, the claim holds for more images.
    wrong = [*with_other_details(sections, details, region), *with_other_arrays(sections, arrays)]
    for made in wrong:
        is_larger = not {"clip_lo", "clip_hi"} <= made[0].arrays.keys()
        expected = "robust" if is_larger else None
        assert verdict(pack(file, made), NET) == expected, made[0].fields
    assert verdict(pack(file, sections), NET) == "robust"


def test_a_claim_has_no_parts(tmp_path: Path) -> None:
    file, part = tmp_path / "claim.bnncert", tmp_path / "part.bnncert"
    bnncert.verify(NET, bnncert.Ball("linf", [0.5, 0], 0.1), 0, certificate=part)
    bnncert.verify(NET, bnncert.Brightness([0.5, 0], 0.2, -1, 1), 0, certificate=file)
    (claim,) = read_sections(file)
    write_claim(file, claim, [part])
    assert verdict(file, NET) is None


def test_a_counterexample_off_the_path_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "claim.bnncert"
    region = bnncert.Brightness([0.25, 0.125], 0.5, -1, 1)
    assert bnncert.verify(NET, region, 0, certificate=file).status == "not_robust"
    assert verdict(file, NET) == "not_robust"
    (claim,) = read_sections(file)
    for place in (Fraction(-2), Fraction(1, 2), Fraction(1, 10**3000)):
        claim.fields["details"]["place"] = str(place)
        write_claim(file, claim)
        assert verdict(file, NET) is None


def test_a_pivot_that_words_do_not_tell_is_rejected(tmp_path: Path) -> None:
    """With the image as pivot, contrast changes nothing; "the middle of each input" is not that."""
    file = tmp_path / "claim.bnncert"
    region = bnncert.Contrast([0.5, 0.125], 0.25, [-1, -2], [1, 1])
    assert bnncert.verify(NET, region, 0, certificate=file).status == "robust"
    assert "about the middle of each input" in check(file, NET).statement
    (claim,) = read_sections(file)
    claim.arrays["pivot"] = claim.arrays["center"]
    claim.fields["details"]["region"]["radius"] = "1"
    write_claim(file, claim)
    assert verdict(file, NET) is None
