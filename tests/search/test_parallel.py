"""Several processes give the answer of one, and lose nothing when one of them dies."""

from __future__ import annotations

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.demo import load_demo_images, load_demo_network
from bnncert.search import parallel


@pytest.fixture
def question() -> tuple[bnncert.Network, bnncert.Region, int]:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(9), 0.5 / 127.5, -1.0, 1.0)
    return network, region, int(data.labels[9])


def test_two_processes_prove_what_one_does(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.3)
    hands = []
    play = parallel.play_hand
    monkeypatch.setattr(parallel, "play_hand", lambda *a: hands.append(play(*a)) or hands[-1])
    result = bnncert.verify(
        *question, targets="runner-up", method="bab", timeout=120, options=Options(processes=2)
    )
    assert result.status == "robust"
    assert result.lower > 0
    assert hands, "the tree was finished before another process was asked"


def test_a_worker_that_dies_loses_no_node(
    question: tuple[bnncert.Network, bnncert.Region, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ALONE", 0.3)
    # The worker ends as soon as it starts: every node it held must come back.
    monkeypatch.setattr(parallel, "_prepare", _die)
    result = bnncert.verify(
        *question, targets="runner-up", method="bab", timeout=120, options=Options(processes=2)
    )
    assert result.status == "robust"
    alone = bnncert.verify(*question, targets="runner-up", method="bab", timeout=120)
    assert result.targets[0].details["nodes"] >= alone.targets[0].details["nodes"] - 2
    assert np.isfinite(result.lower) and result.lower <= alone.lower + 100


def _die(task: parallel.Task) -> None:
    raise SystemExit(3)
