"""Nodes of branch and bound that are closed by enumeration of their sign patterns."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.engine.search import branching
from bnncert.kernel import check
from bnncert.kernel.proof import PATTERNS
from bnncert.problem import robustness
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork, TinyQuestion
from tests.kernel.claims import unpack
from tests.strategies import NORMS, few, questions

#: Small problems have quick relaxations: without this none of them would be enumerated.
ALWAYS = mock.patch.object(branching, "WORTH_IT", 0)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("most_open", [2, 15])
@given(data=st.data())
@few(15)
def test_branching_with_enumerated_nodes_agrees_with_brute_force(
    kind: str, most_open: int, data: st.DataObject
) -> None:
    question = data.draw(questions(kind))
    with ALWAYS, mock.patch.object(branching, "MOST_OPEN", most_open):
        result = question.verify(method="bab")
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


@pytest.mark.parametrize("most_open", [3, 15])
def test_certificates_have_enumerated_leaves(most_open: int, tmp_path: Path) -> None:
    path, kinds = tmp_path / "answer.cert", set[int]()
    for seed in range(15):
        generator = np.random.default_rng(seed)
        weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in pairwise((3, 9, 7, 6, 3))]
        biases = [*(generator.uniform(-1, 1, n) for n in (9, 7, 6)), np.array([3.0, 0.0, 0.0])]
        network = bnncert.Network.from_arrays(weights, biases)
        region = bnncert.Ball("linf", generator.uniform(-1, 1, 3), 0.3)
        label = int(network.classify(region.center)[0])
        with ALWAYS, mock.patch.object(branching, "MOST_OPEN", most_open):
            result = bnncert.verify(network, region, label, method="bab", certificate=path)
        if result.status != "robust":
            continue
        assert result.certificate is not None, result.notes
        check(path, network)
        if most_open > 9:
            # No node has more open signs than that.
            assert not any(t.details.get("relaxations") for t in result.targets)
        for section in unpack(path):
            kinds |= set(section.arrays.get("kind", np.zeros(0)).tolist())
    assert PATTERNS in kinds


def test_variables_without_influence_do_not_make_patterns_impossible() -> None:
    """Of signs that f does not depend on, +1 may be what no input has together with the others."""
    weights = (
        np.array([[-1.0, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1], [0, 0, 0, -1]]),
        np.array([[1.0, -1, 1, 1], [1, 1, 1, 1]]),
        np.array([[1.0, -1], [1, 0], [0, 1]]),
        np.array([[-1.0, -1, 0], [-1, 1, -1], [-1, 0, -1], [-1, -1, -1]]),
    )
    biases = ([-1.5] * 4, [0.75, 0.125], [-1.0, 3, 3], [1.5, 1, -1.5, 1.5])
    net = TinyNetwork(weights, tuple(np.array(b) for b in biases), "minus")
    matrix = [[-2.0, 0, -1, 2], [1, -2, -1, 2], [0, 2, 1, 0]]
    region = bnncert.Polytope(matrix, [6.0, 1.5, 2.0], [-2.0, -1, -1, 0], [0.0, 1, 1, 2])
    question = TinyQuestion(net, region, 2)
    problem = robustness(question.network, region, 2)
    assert question.expected() == "not_robust"
    for mode in ("feasibility", "optimum"):
        options = Options(mode=mode, threads=1)  # type: ignore[arg-type]
        with ALWAYS:
            result = solve([problem], "bab", 60, options, check_centre=False)
        question.check(result)
        assert result.status == "not_robust"
