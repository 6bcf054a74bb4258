"""The first-order solver: any bound it gives is valid, and it comes close to the exact one."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.demo import load_demo_images, load_demo_network
from bnncert.presolve.pipeline import presolve
from bnncert.relaxations.reduced import ReducedRelaxation, reduce_objective, relax_reduced
from bnncert.solvers.low_rank import solve_low_rank
from bnncert.solvers.structured import solve_structured
from tests.brute_force import true_margins
from tests.strategies import NORMS, regions, tiny_networks


@given(data=st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
def test_its_bounds_never_exceed_the_minimum(data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    built = net.build()
    truth = true_margins(net, region, 0)
    result = bnncert.bound(built, region, 0, options=Options(solver="low-rank"), timeout=0.5)
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival]


def demo_relaxation() -> ReducedRelaxation:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(0), 0.25 / 127.5, -1.0, 1.0)
    target = bnncert.robustness(network, region, 7, "runner-up").targets[0]
    return relax_reduced(reduce_objective(presolve(network, region), target.objectives[0]))


def test_it_comes_close_to_the_interior_point_method() -> None:
    relaxation = demo_relaxation()
    exact = relaxation.bound(solve_structured(relaxation.program, Deadline(None)).multipliers)
    found = solve_low_rank(relaxation.program, Deadline(20))
    bound = relaxation.bound(found.multipliers)
    assert bound <= exact + 1e-3
    assert bound >= exact - 0.05 * abs(exact)
    np.testing.assert_allclose(np.diag(found.moments), 1.0)


def test_it_stops_at_its_goal_and_at_the_time_limit() -> None:
    relaxation = demo_relaxation()
    goal = -relaxation.problem.constant / relaxation.scale
    early = solve_low_rank(relaxation.program, Deadline(20), above=goal)
    assert early.status == "above"
    assert relaxation.bound(early.multipliers) > 0
    deadline = Deadline(0.2)
    late = solve_low_rank(relaxation.program, deadline)
    assert late.status == "interrupted"
    assert deadline.elapsed() < 2.0
    # The interior-point optimum, 203.96, is the most that any multipliers can prove.
    assert relaxation.bound(late.multipliers) < 204.0
