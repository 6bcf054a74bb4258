"""Certificates for float32 arithmetic hold for every way to add up a first layer in float32."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.kernel import RejectedError, check
from bnncert.kernel.container import Section
from bnncert.kernel.geometry import Geometry
from bnncert.problem import robustness
from bnncert.problem.problem import float32_network
from bnncert.proofs.writing import CertificateError, write_proof
from tests.kernel.claims import accepted, exact_space, pack, unpack

F = np.float32


def _sums(
    weights: np.ndarray, bias: np.ndarray, x: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield W x + b in float32, in several orders."""
    w, b = weights.astype(F), bias.astype(F)
    terms = w * x[None, :]
    yield w @ x + b
    yield terms.sum(axis=1, dtype=F) + b
    for _ in range(3):
        order = rng.permutation(x.size)
        total = b.copy() if rng.integers(2) else np.zeros_like(b)
        started_with_bias = bool(np.any(total))
        for k in order:
            total = total + terms[:, k]
        yield total if started_with_bias else total + b
    # In pairs, and with products that are not rounded (fused).
    pairs = [terms[:, k] for k in rng.permutation(x.size)]
    while len(pairs) > 1:
        pairs = [sum(pairs[k : k + 2], F(0)) for k in range(0, len(pairs), 2)]
    yield pairs[0] + b
    fused = b.astype(np.float64)
    for k in rng.permutation(x.size):
        fused = (w[:, k].astype(np.float64) * float(x[k]) + fused).astype(F).astype(np.float64)
    yield fused.astype(F)


def _scores(network: bnncert.Network, first: np.ndarray) -> list[Fraction]:
    signs = first
    for layer in network.layers[1:]:
        u = layer.weights.toarray().astype(int) @ signs
        signs = np.where(u >= layer.plus_from, 1, -1)
    return network.output.exactly(signs)


def _network(
    rng: np.random.Generator, scale: float
) -> tuple[bnncert.Network, np.ndarray, np.ndarray]:
    weights = scale * rng.standard_normal((5, 12))
    bias = scale * rng.standard_normal(5) / 4
    upper = [rng.integers(-1, 2, (4, 5)).astype(float), rng.integers(-1, 2, (3, 4)).astype(float)]
    network = bnncert.Network.from_arrays(
        [weights, *upper], [bias, rng.integers(-2, 3, 4) / 2, rng.integers(-2, 3, 3) / 2]
    )
    return network, weights, bias


@pytest.mark.parametrize("scale", [1.0, 1e-3, 3e7])
@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
def test_no_float32_execution_contradicts(tmp_path: Path, norm: str, scale: float) -> None:
    path, proved = tmp_path / "float32.cert", 0
    rng = np.random.default_rng(int(np.log2(scale)) + 40 + len(norm))
    for _ in range(8):
        network, weights, bias = _network(rng, scale)
        center = rng.standard_normal(12).astype(F).astype(np.float64)
        # Thresholds that the centre's sums nearly hit make rounding matter.
        near = int(rng.integers(5))
        bias[near] = -float(weights[near] @ center) * (1 + 1e-7)
        network = bnncert.Network.from_arrays(
            [
                weights,
                *(layer.weights.toarray() for layer in network.layers[1:]),
                network.output.weights,
            ],
            [bias, *(layer.bias for layer in network.layers[1:]), network.output.bias],
        )
        region = bnncert.Ball(norm, center, 2.0**-12)  # type: ignore[arg-type]
        label = int(np.argmax(network.evaluate(center)))
        problem = robustness(float32_network(network, region), region, label, "all", "violation")
        try:
            write_proof(path, problem, network, arithmetic="float32", deadline=Deadline(20))
        except CertificateError:
            continue
        proved += 1
        assert "float32" in check(path, network).statement
        for _ in range(20):
            sample = region.settle(region.sample(rng, 1)[0], F)
            for value in _sums(weights, bias, sample.astype(F), rng):
                scores = _scores(network, np.where(value >= 0, 1, -1))
                assert all(scores[label] > s for k, s in enumerate(scores) if k != label)
    assert proved > 2


def test_a_proof_in_reals_is_none_in_float32(tmp_path: Path) -> None:
    """The sum is -1e-9 at the only point: certain in reals, and not in float32."""
    path = tmp_path / "thin.cert"
    network = bnncert.Network.from_arrays(
        [np.full((1, 8), 0.1), np.array([[-1.0], [1.0]])],
        [np.array([-0.8 - 1e-9]), np.zeros(2)],
    )
    region = bnncert.Box(np.ones(8), np.ones(8))
    write_proof(path, robustness(network, region, 0, "all", "violation"), network)
    check(path, network)
    sections = unpack(path)
    sections[0].fields["arithmetic"] = "float32"
    with pytest.raises(RejectedError):
        check(pack(path, sections), network)
    # It is no counterexample either: the sign is not certain.
    sections[0].fields |= {"verdict": "not_robust"}
    point = Section("point", {"target": 0}, {"point": np.ones(8)})
    with pytest.raises(RejectedError, match="rounding"):
        check(pack(path, [sections[0], point]), network)


def test_a_counterexample_in_float32(tmp_path: Path) -> None:
    """A sign that no rounding changes, at a point that float32 has."""
    path = tmp_path / "point.cert"
    network = bnncert.Network.from_arrays(
        [np.full((1, 8), 0.1), np.array([[-1.0], [1.0]])], [np.array([-0.7]), np.zeros(2)]
    )
    region = bnncert.Box(-np.ones(8), np.ones(8))
    far = bnncert.Network.from_arrays(
        [np.full((1, 8), 0.1), np.array([[-1.0], [1.0]])], [np.array([-2.0]), np.zeros(2)]
    )
    write_proof(path, robustness(far, region, 0, "all", "violation"), far)
    statement = unpack(path)[0]
    statement.fields |= {
        "verdict": "not_robust",
        "arithmetic": "float32",
        "network": network.content_hash,
    }
    point = Section("point", {"target": 0}, {"point": np.ones(8)})
    assert check(pack(path, [statement, point]), network).verdict == "not_robust"
    other = copy.deepcopy(point)
    other.arrays["point"] = np.full(8, 1 - 2.0**-40)
    assert accepted(pack(path, [statement, other]), network) is None
    statement.fields["arithmetic"] = "real"
    assert accepted(pack(path, [statement, other]), network) is not None


def test_beyond_float32() -> None:
    box = [Fraction(1)] * 2
    space = exact_space(box, box, np.zeros((0, 2)), np.zeros(0))
    for weight, fine in ((1e37, True), (1e39, False)):
        network = bnncert.Network.from_arrays(
            [weight * np.array([[1.0, 0.375]]), np.ones((2, 1))], [np.zeros(1), np.zeros(2)]
        )
        if fine:
            assert Geometry(network.layers[0], space, float32=True).states().tolist() == [1]
        else:
            with pytest.raises(RejectedError, match="float32"):
                Geometry(network.layers[0], space, float32=True)
