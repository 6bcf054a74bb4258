"""The method `elimination` and the stage of `auto`, on convolutions along a line."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.engine.methods import elimination
from bnncert.kernel import check
from bnncert.kernel.container import read_sections


def line(
    seed: int,
    length: int,
    window: int = 3,
    channels: int = 3,
    *,
    shuffled: bool = False,
    lead: float = 0.0,
) -> bnncert.Network:
    """Return two convolutional sign layers along a line; shuffled inputs are not local.

    Class 0 leads by a constant.
    """
    rng = np.random.default_rng(seed)
    first = np.zeros((2 * (length - 2), length))
    for row in range(first.shape[0]):
        first[row, row // 2 : row // 2 + 3] = rng.choice([-1, 1], 3)
    second = np.zeros((channels * (first.shape[0] - window + 1), first.shape[0]))
    places = rng.permutation(first.shape[0]) if shuffled else np.arange(first.shape[0])
    for row in range(second.shape[0]):
        start = row // channels
        second[row, places[start : start + window]] = rng.choice([-1, 1], window)
    output = rng.choice([-1, 1], (4, second.shape[0]))
    weights = [first, second, output]
    biases = [rng.integers(-2, 3, w.shape[0]) / 4 for w in weights]
    biases[-1][0] += lead
    return bnncert.Network.from_arrays(weights, biases)


def question(
    seed: int, length: int, radius: float, lead: float = 0.0
) -> tuple[bnncert.Region, int, bnncert.Network]:
    net = line(seed, length, lead=lead)
    center = np.random.default_rng(seed + 100).uniform(-1, 1, length)
    label = int(np.argmax(net.evaluate(center)))
    return bnncert.Ball("linf", center, radius), label, net


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_milp_on_a_line(seed: int) -> None:
    region, label, net = question(seed, 14, 0.15)
    exact = bnncert.bound(net, region, label, method="elimination")
    other = bnncert.bound(net, region, label, method="milp", options=Options(mode="optimum"))
    for mine, theirs in zip(exact.targets, other.targets, strict=True):
        assert mine.lower == mine.upper == pytest.approx(theirs.upper)
    verdict = bnncert.verify(net, region, label, method="elimination")
    assert verdict.status == other.status


def test_auto_eliminates_where_the_network_is_local(tmp_path: Path) -> None:
    region, label, net = question(5, 40, 0.2, lead=60)
    result = bnncert.verify(net, region, label, timeout=30)
    stages = {t.stage for t in result.targets}
    assert result.status == "robust" and elimination.EliminationMethod.name in stages
    done = next(t.details["elimination"] for t in result.targets if "elimination" in t.details)
    assert done["width"] < done["variables"] / 2
    assert done["split buckets"] == 0
    path = tmp_path / "proof"
    proof = bnncert.verify(net, region, label, timeout=30, certificate=path)
    assert proof.status == "robust" and proof.certificate is not None
    assert check(path, net).targets == len(result.targets)
    assert "elimination" in {section.name for section in read_sections(path)}


def test_time_and_memory_are_limited_where_tables_would_explode() -> None:
    net = line(1, 150, window=6, channels=8, shuffled=True)
    center = np.random.default_rng(7).uniform(-0.3, 0.3, 150)
    region = bnncert.Ball("linf", center, 0.5)
    label = int(np.argmax(net.evaluate(center)))
    started = time.monotonic()
    result = bnncert.verify(
        net, region, label, method="elimination", timeout=2, options=Options(memory=0.01)
    )
    assert time.monotonic() - started < 4
    assert all(t.lower <= t.upper for t in result.targets)
    done = [t.details["elimination"] for t in result.targets if "elimination" in t.details]
    assert all(d["width"] < 22 for d in done)
