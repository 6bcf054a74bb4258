"""Starting from the parent: always inside, and never another answer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.problem import reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search.restrict import Restrictor
from bnncert.engine.search.warm_start import Numbering, keep, start_from
from bnncert.engine.solvers.structured import solve_structured
from bnncert.problem import robustness
from tests.strategies import NORMS, few, regions, tiny_networks

SOME = few(30)


@given(data=st.data())
@SOME
def test_the_start_is_strictly_feasible_and_leads_to_the_same_bound(data: st.DataObject) -> None:
    built = data.draw(tiny_networks()).build()
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    objective = robustness(built, region, 0).targets[0].objectives[0]
    problem = reduce_objective(presolve(built, region), objective)
    restrictor = Restrictor(problem)
    signs = np.zeros(problem.size, dtype=np.int8)
    parent = restrictor.restrict(signs)
    if parent is None or not parent.free.size:
        return
    relaxation = relax_reduced(parent.problem)
    found = solve_structured(relaxation.program, Deadline(None), iterations=12)
    numbering = Numbering.of(problem)
    kept = keep(numbering, parent, relaxation.dual_point(found.multipliers))
    assert kept is not None
    signs[data.draw(st.sampled_from(parent.free.tolist()))] = data.draw(st.sampled_from([1, -1]))
    child = restrictor.restrict(signs)
    if child is None or not child.free.size:
        return
    relaxation = relax_reduced(child.problem)
    start = start_from(kept, numbering, child, relaxation)
    assert start is not None
    for family, theta in zip(relaxation.program.tables, start.theta, strict=True):
        slack = family.values - np.einsum("jkf,jf->jk", family.features, theta)
        assert slack.min(initial=np.inf) > 0
    form = relaxation.dual_point(start).form(child.problem)[0]
    assert np.linalg.eigvalsh(form)[0] > 0
    cold = solve_structured(relaxation.program, Deadline(None))
    warm = solve_structured(relaxation.program, Deadline(None), start=start)
    if cold.status == warm.status == "optimal":
        np.testing.assert_allclose(warm.dual, cold.dual, atol=1e-3 * (1 + abs(cold.dual)))
