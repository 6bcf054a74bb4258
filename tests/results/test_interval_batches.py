"""Batches: each row is the one that the instance gets alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel.checker import check
from bnncert.regions.radii import read_step
from bnncert.results.instance import Instance, Settings, attempt
from bnncert.results.interval_batches import in_batches
from bnncert.results.labelled_points import Data
from bnncert.results.plan import Plan, plan_run
from bnncert.results.rows import Row, stored_floats
from tests.random_questions import random_network

SIGNS = ("plus", "minus", "either")


def cells(row: Row) -> dict[str, Any]:
    """Return what a row says, without its times."""
    found = {f.name: getattr(row, f.name) for f in fields(row)}
    del found["seconds"], found["finished_at"]
    targets = json.loads(row.per_target)
    for target in targets:
        del target["seconds"]
        target["details"] = sorted(target["details"])
    return {**found, "per_target": targets}


def planned(seed: int, *, certificates: bool = False, **settings: Any) -> Plan:
    """Plan questions about a random network; its numbers make ties and thresholds common."""
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(1, 5))
    made = random_network(rng, inputs, SIGNS[seed % 3])
    is_clipped = bool(rng.random() < 0.5)
    network = bnncert.Network.from_arrays(
        made.weights,
        made.biases,
        sign_zero=made.sign_zero,
        input_lo=-1.5 if is_clipped else None,
        input_hi=1.25 if is_clipped else None,
    )
    count = 12
    points = rng.integers(-6, 6, (count, inputs)) / 4 + rng.choice([0.0, 1e-9, 0.05], (count, 1))
    if settings.get("grid") is not None:
        points = np.rint(4 * points) / 4
    points = np.clip(points, -1.5, 1.25) if is_clipped else points
    labels = network.classify(points)
    labels = np.where(rng.random(count) < 0.8, labels, rng.integers(0, network.classes, count))
    data = Data(points, labels, "points")
    # The least radii leave most signs fixed.
    radii = [0.0, 1e-9, 0.01, 0.125, 0.25, 0.5]
    chosen = rng.choice(radii, 3, replace=False).tolist()
    made_with = Settings(timeout=20, **settings)
    return plan_run(network, data, chosen, settings=made_with, certificates=certificates)


def pairs(plan: Plan) -> Iterator[tuple[Instance, Row | None]]:
    for batch in in_batches(plan.networks, plan.instances):
        for instance, answer in batch:
            yield instance, None if answer is None else answer.row


@pytest.mark.parametrize("method", ["interval", "auto"])
@pytest.mark.parametrize("ties", ["violation", "robust"])
@pytest.mark.parametrize("rivals", ["all", "runner-up", 0, (0, 1)])
def test_every_row_is_that_of_the_instance_alone(method: str, ties: Any, rivals: Any) -> None:
    decided = total = 0
    for seed in range(6):
        plan = planned(seed, method=method, ties=ties, rivals=rivals)
        (network,) = plan.networks.values()
        assert [instance for instance, _ in pairs(plan)] == list(plan.instances)
        for instance, row in pairs(plan):
            total += 1
            if row is None:
                continue
            decided += 1
            alone = attempt(network, instance, 1)
            assert alone.row is not None, alone.failure
            if row.status == "not_robust":
                check_counterexample(network, instance, row)
                assert alone.row.status == "not_robust"
            else:
                assert cells(row) == cells(alone.row)
    assert decided > total / 10


def check_counterexample(network: bnncert.Network, instance: Instance, row: Row) -> None:
    """Check a counterexample by its rational scores; there may be others."""
    point = stored_floats(row.counterexample, "row")
    assert point is not None
    assert row.stage == "attack"
    assert instance.ball.contains(point)
    lowest = []
    for pattern in network.exact_patterns(point):
        scores = network.output.exactly(pattern[-1])
        rivals = [s for k, s in enumerate(scores) if k != instance.label]
        lowest.append(scores[instance.label] - max(rivals))
    assert min(lowest) < 0
    assert row.upper == min(lowest)


@pytest.mark.parametrize(
    ("norm", "grid"),
    [("linf", None), ("linf", "0.25"), ("l2", None), ("l2", "0.25"), ("l1", None)],
)
def test_what_intervals_prove_alone_they_prove_in_a_batch(norm: Any, grid: str | None) -> None:
    missed = proved = 0
    for seed in range(9):
        step = None if grid is None else read_step(grid)
        plan = planned(seed, method="interval", norm=norm, grid=step)
        (network,) = plan.networks.values()
        for instance, row in pairs(plan):
            alone = attempt(network, instance, 1).row
            assert alone is not None
            proved += alone.status == "robust"
            missed += alone.status == "robust" and row is None
            if row is not None:
                assert cells(row) == cells(alone)
    # Left to themselves are those with a sum that is equal to its threshold, up to rounding.
    assert missed < proved / 2
    assert proved > 13


@pytest.mark.parametrize("method", ["interval", "auto"])
def test_certificates_are_those_of_the_instance_alone(method: str, tmp_path: Path) -> None:
    proved = 0
    for seed in range(2):
        plan = planned(seed, certificates=True, method=method)
        (network,) = plan.networks.values()
        for batch in in_batches(plan.networks, plan.instances):
            for instance, answer in batch:
                if answer is None or answer.row is None:
                    continue
                assert answer.certificate is not None, answer.row
                file = tmp_path / "one.bnncert"
                file.write_bytes(answer.certificate)
                verdict = check(file, network).verdict
                assert verdict == ("robust" if answer.row.status == "robust" else "not_robust")
                if answer.row.status == "robust":
                    assert answer.certificate == attempt(network, instance, 1).certificate
                    proved += 1
    assert proved > 2
