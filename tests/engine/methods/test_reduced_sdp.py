"""Where the default bound stops when only the sign of f is asked for."""

from __future__ import annotations

import numpy as np

import bnncert


def question(seed: int) -> tuple[bnncert.Network, bnncert.Region, int]:
    generator = np.random.default_rng(seed)
    weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((6, 10), (10, 9), (9, 2))]
    biases = [generator.uniform(-2, 2, n) for n in (10, 9, 2)]
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Ball("linf", generator.uniform(-1, 1, 6), 0.15)
    return network, region, int(network.classify(region.center)[0])


def test_the_sign_is_decided_where_the_rounded_bound_decides_it() -> None:
    options = bnncert.Options(coupling="off", cut_rounds=0)
    proved, by_rounding = 0, 0
    for seed in range(40):
        network, region, label = question(seed)
        best = bnncert.bound(network, region, label, method="sdp", options=options).targets[0]
        asked = bnncert.verify(network, region, label, method="sdp", options=options).targets[0]
        assert best.lower is not None
        assert (asked.status == "robust") == (best.lower > 0), seed
        proved += best.lower > 0
        rounds = best.details.get("rounds") or []
        # The relaxation itself does not exceed zero: only the next value of f does.
        by_rounding += best.lower > 0 and bool(rounds) and rounds[-1]["primal"] < -1e-3
    assert 5 < proved < 35
    assert by_rounding > 0, "no case in which the lattice matters"
