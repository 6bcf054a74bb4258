"""Explanations by blocks: what is proved is not asked again, and what is open is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.arrays import BoolArray
from bnncert.engine.verdict import Result
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import Problem
from bnncert.questions.explain.explain import ExplanationSearch
from bnncert.questions.prover import Prover
from bnncert.regions import Box


class Spy:
    """Notes what is asked; the first answers may be replaced by "unknown"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unknown: Sequence[int] = ()) -> None:
        self.asked: list[tuple[Problem, Result]] = []
        decide = Prover.decide

        def noted(prover: Prover, problem: Problem, *given: Any, **named: Any) -> Result:
            if len(self.asked) in unknown:
                result = Result("unknown", (), 0.0, "nothing")
            else:
                result = decide(prover, problem, *given, **named)
            self.asked.append((problem, result))
            return result

        monkeypatch.setattr(Prover, "decide", noted)


def width(problem: Problem) -> BoolArray:
    """Tell which inputs are free in a question."""
    return problem.region.hi > problem.region.lo


def explained(radius: float, **how: Any) -> bnncert.Explanation:
    """Explain the first bundled image by blocks of 4 x 4 pixels, with interval bounds."""
    net, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(0), radius * net.pixel_step, -1, 1)
    return bnncert.explain(net, ball, blocks=4, method="interval", timeout=60, **how)


def test_a_rival_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    found = explained(0.6)
    proved: list[tuple[str, BoolArray]] = []
    skipped = 0
    for number, (problem, result) in enumerate(spy.asked):
        free = width(problem)
        known = {name for name, larger in proved if np.all(larger | ~free)}
        names = {target.name for target in problem.targets}
        # The first question is about everything, and the closest rival alone: it stays open.
        assert len(names | known) == (9 if number else 1) and not names & known
        assert np.all(free) == (number == 0)
        skipped += len(known)
        proved += [(t.name, free) for t in result.targets if t.status == "robust"]
    assert found.steps[0].free == 49 and found.steps[0].method == "class 3 alone"
    assert skipped > 0 and 0 < len(found.kept_units) < 49
    # What suffices by several proofs suffices by one.
    region = found.domain.region(~np.isin(np.arange(49), found.kept_units))
    whole = bnncert.verify(load_demo_network(), Box(region.lo, region.hi), label=7, timeout=60)
    assert whole.status == "robust"


def test_a_certificate_is_one_proof_of_all_rivals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    spy = Spy(monkeypatch)
    file = tmp_path / "a.bnncert"
    explained(0.6, certificate=file)
    # The image alone, the longest beginning, everything for the closest rival, then the rest.
    assert {len(problem.targets) for problem, _ in spy.asked[:2] + spy.asked[3:]} == {9}
    assert bnncert.check(file, load_demo_network()).verdict == "explanation"


def test_an_undecided_block_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known about the first block at first; three of four blocks can be free."""
    weights = [[[1, 1, 1, 1], [1, -1, -1, -1]], [[1, 1], [-1, -1]]]
    net = bnncert.Network.from_arrays(weights, [[0, 0]] * 2, input_shape=[2, 2])
    ball = bnncert.Ball("linf", [0.5, 0, 0, 0], 0.15)
    monkeypatch.setattr(ExplanationSearch, "_is_proved_by_intervals", lambda *_: False)
    monkeypatch.setattr(ExplanationSearch, "_look_for_witnesses", lambda *_, **__: None)
    # The question about everything, and the first one about one block.
    spy = Spy(monkeypatch, unknown=[0, 1])
    found = bnncert.explain(net, ball, blocks=1)
    (first,) = np.flatnonzero(width(spy.asked[1][0])).tolist()
    assert found.minimal, found
    assert any(width(problem)[first] for problem, _ in spy.asked[2:])
