"""Reports about the closed share of a tree."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bnncert import Ball, Network, verify
from bnncert.arrays import FloatArray
from bnncert.engine import timing
from bnncert.engine.search.frontier import Frontier, OpenNode
from bnncert.engine.search.patterns import enumeration
from bnncert.engine.search.patterns.open_nodes import NodeBatch, OpenNodes
from bnncert.engine.timing import Pulse
from tests.engine.search.patterns.test_sharing import hard_network
from tests.questions.verify.test_verify import random_network


def test_a_split_divides_the_share_of_a_node() -> None:
    frontier = Frontier(1e9)
    for number, signs in enumerate(([0, 0, 1], [1, 0, -1], [-1, 1, -1])):
        frontier.push(OpenNode(np.array(signs, dtype=np.int8), 0.0, number))
    assert frontier.share() == 1 / 2 + 1 / 4 + 1 / 8


def test_nodes_that_are_searched_elsewhere_are_open() -> None:
    nodes = np.array([[1, 0, 0], [-1, 1, 0], [-1, -1, 0]], dtype=np.int8)
    batch = NodeBatch(nodes, np.ones((3, 1), dtype=bool), np.zeros(0, dtype=np.int64))
    opened = OpenNodes(batch)
    assert opened.share() == 1.0
    given = opened.hand_out(1)
    assert (len(opened), opened.share()) == (2, 1.0)
    opened.take_back(given, given.take(slice(0)))
    assert opened.share() == 0.5


def test_reports_are_not_too_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    seldom = Pulse(told.append)
    for _ in range(1000):
        seldom.beat(lambda: 0.25)
    assert told == []
    monkeypatch.setattr(timing, "REPORT_INTERVAL", -1.0)
    often = Pulse(told.append)
    often.beat(lambda: 0.25)
    # The sum of shares may be rounded to more than the whole tree.
    often.beat(lambda: 1 + 1e-15)
    assert told[0] == 0.75
    assert all(0 <= share <= 1 for share in told)


def asked(
    network: Network, point: FloatArray, radius: float, method: str
) -> dict[str, list[float]]:
    """Return the shares that a verification reports, by the text before them."""
    shares: dict[str, list[float]] = {}

    def progress(text: str, done: int, total: int) -> None:
        found = re.fullmatch(r"(.*), ([\d.e-]+) % of the tree closed", text)
        if found is not None:
            shares.setdefault(found[1], []).append(float(found[2]))

    label = int(network.classify(point)[0])
    region = Ball("linf", point, radius)
    verify(network, region, label, method=method, timeout=4, progress=progress)
    return shares


@pytest.mark.parametrize("method", ["bab", "propagation"])
def test_the_closed_share_of_a_search_grows(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(timing, "REPORT_INTERVAL", -1.0)
    monkeypatch.setattr(timing, "REPORT_COST", 1e9)
    if method == "bab":
        point = np.random.default_rng(11).normal(size=12)
        shares = asked(random_network(11), point, 0.4, method)
        assert all(name.startswith("bab: class ") for name in shares)
    else:
        # The compiled loop would evaluate all patterns of the root at once.
        monkeypatch.setattr(enumeration, "pack", lambda circuit: None)
        shares = asked(hard_network(20), np.full(20, 0.25), 1.0, method)
        assert list(shares) == ["propagation"]
    assert max(map(len, shares.values())) > 3
    for reported in shares.values():
        assert 0 <= reported[0] <= reported[-1] <= 100
        assert reported == sorted(reported)
