"""The paper's relaxations as methods: which solver takes them, and how far it goes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import bnncert


def question() -> tuple[bnncert.Network, bnncert.Ball, int]:
    """Return a random network and a ball in which several neurons are unstable."""
    rng = np.random.default_rng(3)
    sizes = (8, 7, 6, 3)
    weights = [rng.choice([-1.0, 0.0, 1.0], (b, a)) for a, b in pairwise(sizes)]
    biases = [rng.uniform(-1, 1, size) for size in sizes[1:]]
    network = bnncert.Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)
    center = rng.uniform(-1, 1, sizes[0])
    return network, bnncert.Ball("linf", center, 0.3, -1.0, 1.0), int(network.classify(center)[0])


def bounds(method: str, **options: object) -> list[float]:
    network, region, label = question()
    made = bnncert.Options(mode="optimum", **options)  # type: ignore[arg-type]
    result = bnncert.verify(network, region, label, method=method, options=made)
    return [target.lower for target in result.targets]


@pytest.mark.parametrize("method", ["sdp-standard", "sdp-tight-plain", "sdp-tight"])
def test_the_structured_solver_is_the_default_and_agrees_with_the_conic_one(method: str) -> None:
    mine = bounds(method)
    assert mine == bounds(method, solver="structured")
    assert mine == pytest.approx(bounds(method, solver="clarabel"), abs=1e-3)
    assert mine == pytest.approx(bounds(method, sparsity="dense"), abs=1e-3)


@pytest.mark.parametrize("method", ["sdp-order2", "sdp-tight-pairwise"])
def test_other_relaxations_refuse_the_structured_solver(method: str) -> None:
    with pytest.raises(bnncert.InputError, match="solver structured takes linear"):
        bounds(method, solver="structured")


def test_verify_and_bound_show_the_value_of_the_relaxation() -> None:
    network, region, label = question()
    for method in ("sdp-standard", "sdp-tight-plain", "sdp-tight"):
        result = bnncert.verify(network, region, label, method=method)
        assert [target.lower for target in result.targets] == bounds(method)


def test_a_time_limit_leaves_a_bound_that_holds() -> None:
    network, region, label = question()
    result = bnncert.verify(network, region, label, method="sdp-tight", timeout=1e-9)
    exact = bnncert.verify(
        network, region, label, method="milp", options=bnncert.Options(mode="optimum")
    )
    for limited, best in zip(result.targets, exact.targets, strict=True):
        assert limited.lower <= best.lower + 1e-9
