"""Nodes that leave out tables and pairs: valid bounds, exact answers, accepted proofs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search import warm_start
from bnncert.engine.search.branching import objective_values
from bnncert.engine.search.restrict import Restriction, Restrictor
from bnncert.engine.search.warm_start import NodeParts, Numbering, choose_parts, pair_keys, thinned
from bnncert.engine.solvers.structured import solve_structured
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_coupling import any_case
from tests.kernel.input_cuts import crossing
from tests.strategies import NORMS, few, regions, tiny_networks

SOME = few(20)

NO_SPLITS = np.zeros((2, 0), dtype=np.int64)


def root_of(problem: ReducedProblem) -> Restriction | None:
    return Restrictor(problem).restrict(np.zeros(problem.size, dtype=np.int8))


@given(data=st.data())
@SOME
def test_f_without_some_parts_is_never_above_f(data: st.DataObject) -> None:
    built = data.draw(tiny_networks()).build()
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    objective = robustness(built, region, 0).targets[0].objectives[0]
    problem = reduce_objective(presolve(built, region), objective)
    root = root_of(problem)
    if root is None or not 0 < root.free.size <= 10:
        return
    numbering = Numbering.of(problem)
    tables = data.draw(st.lists(st.sampled_from(root.tables.tolist()))) if root.tables.size else []
    keys = pair_keys(root, numbering.size).tolist()
    pairs = data.draw(st.lists(st.sampled_from(keys))) if keys else []
    left_out = np.array(tables, dtype=np.int64), np.sort(np.array(pairs, dtype=np.int64))
    with patch.object(warm_start, "WORTH_IT", 0):
        thin = thinned(root, NodeParts(*left_out, NO_SPLITS), numbering)
    assert thin.problem.pair_first.size == len(keys) - len(set(pairs))
    assert thin.problem.table.rows.shape[0] == root.tables.size - len(set(tables))
    signs = np.array(list(product([-1, 1], repeat=root.free.size)), dtype=np.int8)
    less = objective_values(thin.problem, signs) - thin.problem.slack
    assert np.all(less <= objective_values(root.problem, signs) + root.problem.slack)
    relaxation = relax_reduced(thin.problem)
    solved = solve_structured(relaxation.program, Deadline(None), iterations=15)
    bound = relaxation.bound(solved.multipliers)
    assert bound <= objective_values(root.problem, signs).min() + root.problem.slack


@given(data=st.data())
@few(15)
def test_the_minimum_is_the_true_one(data: st.DataObject) -> None:
    net, region = any_case(data)
    truth = true_margins(net, region, 0)
    with patch.multiple(warm_start, WORTH_IT=0, LEAST_SHARE=0.5, SMALL_SHARE=1.0):
        result = bnncert.bound(
            net.build(), region, 0, method="bab", options=Options(processes=1), timeout=60
        )
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival] <= target.upper


@pytest.mark.parametrize(("kind", "seed"), [("linf", 294), ("l2", 149)])
def test_the_certificate_of_such_a_tree_is_accepted(kind: str, seed: int, tmp_path: Path) -> None:
    net, region = crossing(seed, kind)
    network, path = net.build(), tmp_path / "one.cert"
    label = int(np.argmax(network.evaluate(region.center)))
    with patch.multiple(warm_start, WORTH_IT=0):
        result = bnncert.verify(
            network, region, label, method="bab", options=Options(processes=1), certificate=path
        )
    assert result.status == "robust"
    assert check(path, network).verdict == "robust"


def test_parts_that_the_moments_need_come_back() -> None:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(9), 0.5 / 127.5, -1.0, 1.0)
    objective = (
        robustness(network, region, int(data.labels[9]), "runner-up").targets[0].objectives[0]
    )
    problem = reduce_objective(presolve(network, region), objective)
    root, numbering = root_of(problem), Numbering.of(problem)
    assert root is not None

    def solved(parts: NodeParts) -> tuple[float, NodeParts]:
        thin = thinned(root, parts, numbering)
        relaxation = relax_reduced(thin.problem)
        found = solve_structured(relaxation.program, Deadline(None), tolerance=1e-3)
        dual = relaxation.dual_point(found.multipliers)
        given = found.moments, found.probabilities, root.free
        later = choose_parts(root, thin, numbering, dual, *given)
        return dual.bound(thin.problem), later

    nothing = np.zeros(0, dtype=np.int64)
    whole, idle = solved(NodeParts(nothing, nothing, NO_SPLITS))
    assert 0.1 < idle.tables.size / root.tables.size < 0.9
    fewer, _ = solved(idle)
    assert whole - 1.0 < fewer
    every_other = root.tables[::2], np.sort(pair_keys(root, numbering.size))[::2]
    half, later = solved(NodeParts(*every_other, NO_SPLITS))
    assert half < whole - 10.0
    better, _ = solved(later)
    assert better > half + 10.0
