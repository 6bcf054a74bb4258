"""Deep, binarised and convolutional networks: complete methods against brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bnncert import Options
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork, faults, largest_value, reachable_first_layers
from tests.one_input_rows import reachable_patterns
from tests.random_questions import random_ask, random_region
from tests.random_shapes import SHAPES, random_shaped_question

ZEROS = ("plus", "minus", "either")


@pytest.mark.parametrize("kind", ["linf", "l2", "l1", "box"])
def test_both_oracles_find_the_same_patterns(kind: str) -> None:
    rng = np.random.default_rng(0)
    for number in range(25):
        inputs = int(rng.integers(1, 3 if kind == "l2" else 4))
        weights = np.zeros((inputs + 1, inputs))
        weights[np.arange(inputs + 1), np.arange(inputs + 1) % inputs] = rng.choice(
            [-3, -1, 0, 0.5, 1], inputs + 1
        )
        bias = rng.integers(-3, 4, inputs + 1) / 4
        net = TinyNetwork((weights,), (bias,), ZEROS[number % 3])  # type: ignore[arg-type]
        region = random_region(rng, kind, inputs)
        assert reachable_patterns(net, region) == set(reachable_first_layers(net, region))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["auto", "bab", "elimination", "propagation"])
def test_methods_agree_with_brute_force(method: str, shape: str) -> None:
    rng = np.random.default_rng(len(shape))
    statuses: Counter[str] = Counter()
    for number in range(4):
        kind = str(rng.choice(["linf", "l1", "box"]))
        asked = random_shaped_question(rng, shape, kind, ZEROS[number % 3])
        scores = asked.scores()
        network = asked.net.build()
        for mode in ("feasibility", "optimum"):
            ask = random_ask(rng, network, asked.region)
            options = Options(mode=mode, restarts=4, iterations=3, threads=1)  # type: ignore[arg-type]
            result = solve([ask.problem], method, 60, options, check_centre=False)
            assert not faults(asked.net, asked.region, scores, ask.targets, result)
            statuses[result.status] += 1
            if method == "propagation" and mode == "optimum" and asked.net.sign_zero != "either":
                for target, answer in zip(ask.targets, result.targets, strict=True):
                    minimum = float(min(largest_value(target, s) for s in scores))
                    assert answer.upper == pytest.approx(minimum, abs=1e-9)
                    assert answer.lower == pytest.approx(minimum, abs=1e-9)
    assert statuses["robust"] and statuses["not_robust"]
