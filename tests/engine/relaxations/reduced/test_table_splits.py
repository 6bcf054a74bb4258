"""Tables that are split by a sign: valid bounds that are not weaker, and accepted proofs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import reduced_sdp
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced import table_splits
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import (
    conic_program,
    multipliers_of,
    relax_reduced,
)
from bnncert.engine.relaxations.reduced.table_splits import choose_splits, split
from bnncert.engine.search import warm_start
from bnncert.engine.search.branching import count_violated_pairs, objective_values
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.engine.solvers.structured import solve_structured
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness
from bnncert.proofs.leaf_proof import LeafProblem
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_coupling import any_case
from tests.kernel.input_cuts import crossing
from tests.strategies import NORMS, few, regions, tiny_networks


def any_problem(data: st.DataObject) -> ReducedProblem:
    built = data.draw(tiny_networks()).build()
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    objective = robustness(built, region, 0).targets[0].objectives[0]
    return reduce_objective(presolve(built, region), objective)


def demo_problem(image: int, delta: float) -> ReducedProblem:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(image), delta / 127.5, -1.0, 1.0)
    label = int(data.labels[image])
    objective = robustness(network, region, label, "runner-up").targets[0].objectives[0]
    return reduce_objective(presolve(network, region), objective)


def patterns(problem: ReducedProblem) -> np.ndarray:
    """Return all sign vectors that satisfy the pairs and the gates."""
    signs = np.array(list(product([-1, 1], repeat=problem.size)), dtype=np.int8)
    kept = count_violated_pairs(problem, signs) == 0
    for row, points, side, out in zip(
        problem.gates.rows, problem.gates.points, problem.gate_signs, problem.outputs, strict=True
    ):
        fits = np.abs((signs @ row)[:, None] - points) < 0.5
        kept &= (fits & (signs[:, out, None] == side)).any(axis=1)
    return signs[kept]


@given(data=st.data())
@few(60)
def test_what_occurs_is_among_the_points_and_the_bound_is_below_f(data: st.DataObject) -> None:
    problem = any_problem(data)
    count = problem.table.rows.shape[0]
    if not count or not 0 < problem.size <= 8:
        return
    tables = np.array(data.draw(st.lists(st.sampled_from(range(count)), unique=True, min_size=1)))
    variable = st.sampled_from(range(problem.size))
    variables = np.array([data.draw(variable) for _ in tables])
    problem = split(problem, tables, variables)
    signs, splits = patterns(problem), problem.splits
    if splits is None or not signs.shape[0]:
        return
    for k, (table, variable_) in enumerate(zip(splits.tables, splits.variables, strict=True)):
        u, x = signs @ problem.table.rows[table], signs[:, variable_]
        found = (np.abs(u[:, None] - splits.points[k]) < 0.5) & (x[:, None] == splits.signs[k])
        inside = np.abs(u[:, None] - problem.table.points[table]).min(axis=1) < 0.5
        assert np.all(found.any(axis=1) | ~inside)
    truth = objective_values(problem, signs).min() + problem.slack
    relaxation = relax_reduced(problem)
    for iterations in (3, 15):
        found_ = solve_structured(relaxation.program, Deadline(None), iterations=iterations)
        assert relaxation.bound(found_.multipliers) <= truth
        assert found_.multipliers.theta[2].shape == (splits.tables.size, 5)
    # A general solver of the same program agrees.
    conic = ClarabelSolver().solve(conic_program(relaxation.program), Deadline(None))
    bound = relaxation.bound(multipliers_of(relaxation.program, conic.primal))
    assert bound <= truth
    if found_.status == "optimal" and conic.status == "optimal":
        assert bound == pytest.approx(relaxation.value(found_.dual), abs=1e-2)


@given(data=st.data())
@few(40)
def test_any_multipliers_of_split_tables_give_a_bound(data: st.DataObject) -> None:
    problem = any_problem(data)
    count = problem.table.rows.shape[0]
    if not count or not 0 < problem.size <= 8:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    problem = split(problem, np.arange(count), rng.integers(problem.size, size=count))
    signs = patterns(problem)
    if problem.splits is None or not signs.shape[0]:
        return
    relaxation = relax_reduced(problem)
    point = relaxation.dual_point(solve_structured(relaxation.program, Deadline(None)).multipliers)
    moved = replace(
        point,
        table=point.table + rng.normal(size=point.table.shape),
        split=point.split + rng.normal(size=point.split.shape),
    )
    assert moved.bound(problem) <= objective_values(problem, signs).min() + problem.slack


def test_splits_raise_the_bound_of_a_large_network() -> None:
    problem = demo_problem(9, 0.5)
    relaxation = relax_reduced(problem)
    found = solve_structured(relaxation.program, Deadline(None), tolerance=1e-4)
    among = np.ones(problem.size, dtype=bool)
    chosen = choose_splits(problem, found.moments, found.probabilities[0], among)
    assert 0 < chosen[0].size <= np.ceil(table_splits.SHARE * problem.table.rows.shape[0])
    closer = relax_reduced(split(problem, *chosen))
    better = solve_structured(closer.program, Deadline(None), tolerance=1e-4)
    before, after = relaxation.bound(found.multipliers), closer.bound(better.multipliers)
    assert after > before + 1.0
    # Those that the moments already satisfy are not chosen.
    again = choose_splits(closer.problem, better.moments, better.probabilities[0], ~among)
    assert not again[0].size


@given(data=st.data())
@few(15)
def test_the_minimum_is_the_true_one(data: st.DataObject) -> None:
    net, region = any_case(data)
    truth = true_margins(net, region, 0)
    with (
        patch.multiple(warm_start, WORTH_IT=0, LEAST_SHARE=0.5, SMALL_SHARE=1.0),
        patch.multiple(table_splits, SHARE=1.0, VISIBLE=-10.0),
    ):
        for method in ("bab", "sdp"):
            options = Options(processes=1, cut_rounds=2) if method == "sdp" else None
            result = bnncert.bound(
                net.build(), region, 0, method=method, options=options, timeout=60
            )
            for target in result.targets:
                assert target.rival is not None
                assert target.lower <= truth[target.rival] <= target.upper


@pytest.mark.parametrize(("kind", "seed"), [("linf", 294), ("l2", 149)])
def test_a_tree_with_splits_has_a_certificate(kind: str, seed: int, tmp_path: Path) -> None:
    net, region = crossing(seed, kind)
    network, path = net.build(), tmp_path / "one.cert"
    label = int(np.argmax(network.evaluate(region.center)))

    def solve(*_: object) -> NoReturn:
        raise AssertionError("the multipliers of the search are those of the checker")

    with (
        patch.multiple(table_splits, SHARE=1.0, VISIBLE=-10.0),
        # Also those of inequalities, whose squares are constants for the checker.
        patch.object(reduced_sdp, "WORTH_CUTS", 1),
        patch.object(LeafProblem, "solve", solve),
    ):
        result = bnncert.verify(
            network, region, label, method="bab", options=Options(processes=1), certificate=path
        )
    assert result.status == "robust"
    assert check(path, network).verdict == "robust"
