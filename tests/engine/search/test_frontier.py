"""Starting from the moments of the parent: inside the cones, and never another bound."""

from __future__ import annotations

import numpy as np
import pytest

from bnncert.deadline import Deadline
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search.frontier import ParentMoments
from bnncert.engine.search.restrict import Restrictor
from bnncert.engine.solvers.structured import solve_structured
from tests.engine.solvers.test_low_rank import random_relaxation


@pytest.mark.parametrize("seed", range(6))
def test_the_start_is_inside_and_leads_to_the_same_bound(seed: int) -> None:
    generator = np.random.default_rng(seed)
    problem = random_relaxation(seed, [12, 10, 14, 2], 0.3).problem
    restrictor = Restrictor(problem)
    signs = np.zeros(problem.size, dtype=np.int8)
    parent = restrictor.restrict(signs)
    assert parent is not None
    assert parent.free.size > 2
    found = solve_structured(relax_reduced(parent.problem).program, Deadline(None), iterations=8)
    signs[generator.choice(parent.free)] = 1
    child = restrictor.restrict(signs)
    assert child is not None
    start = ParentMoments(parent.free, found.moments).start(child)
    assert start is not None
    moments, probabilities = start
    assert np.linalg.eigvalsh(moments)[0] > 0
    np.testing.assert_allclose(np.diag(moments), 1.0, atol=0.05)
    assert all(p.min(initial=1.0) > 0 for p in probabilities)
    program = relax_reduced(child.problem).program
    cold = solve_structured(program, Deadline(None))
    warm = solve_structured(program, Deadline(None), moments=moments, probabilities=probabilities)
    assert cold.status == warm.status == "optimal"
    np.testing.assert_allclose(warm.dual, cold.dual, atol=1e-3 * (1 + abs(cold.dual)))
