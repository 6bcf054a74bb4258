"""What a certificate leaves out of presolve's facts, because the checker does not accept it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel.container import RejectedError
from bnncert.kernel.skeleton import Skeleton
from bnncert.proofs import proof_builder


def test_pairs_of_later_layers_that_are_not_accepted_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = []

    def picky(network: Any, geometry: Any, clashes: dict[int, Any]) -> Skeleton:
        if any(layer > 0 for layer in clashes):
            refused.append(clashes)
            raise RejectedError("a clash of neurons in layer 2 is not proved")
        return Skeleton(network, geometry, clashes)

    monkeypatch.setattr(proof_builder, "Skeleton", picky)
    written = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = ((4, 6), (6, 6), (6, 6), (6, 3))
        weights = [rng.choice([-1.0, 0.0, 1.0], (n, m)) for m, n in sizes]
        net = bnncert.Network.from_arrays(weights, [rng.integers(-1, 2, n) for _, n in sizes])
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 4), 0.4)
        label, path = int(net.classify(ball.center)[0]), tmp_path / "answer.bnncert"
        result = bnncert.verify(net, ball, label, method="bab", timeout=20, certificate=path)
        if result.status == "robust" and result.certificate is not None:
            bnncert.check(path, net)
            written += 1
    assert refused and written
