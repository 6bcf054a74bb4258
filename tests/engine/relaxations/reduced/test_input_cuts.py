"""Inequalities that the input implies hold at every sign pattern and are worth coupling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.arrays import FloatArray
from bnncert.engine.presolve.pipeline import Presolved, presolve
from bnncert.engine.relaxations.reduced.coupling import couple
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts, input_cut
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import (
    conic_program,
    multipliers_of,
    relax_reduced,
)
from bnncert.engine.search.restrict import Restrictor
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.problem import robustness
from tests.brute_force import TinyNetwork, reachable_first_layers, true_margins
from tests.engine.relaxations.reduced.test_coupling import FEW, NEVER, any_case
from tests.kernel.input_cuts import crossing, solved


def random_moments(rng: np.random.Generator, size: int) -> FloatArray:
    """Return the moments of random sign vectors."""
    z = np.hstack([np.ones((5, 1)), rng.choice([-1.0, 1.0], (5, size))])
    return np.asarray(z.T @ z / 5)


def any_cut(
    presolved: Presolved, variables: np.ndarray, rng: np.random.Generator
) -> InputCuts | None:
    """Return an inequality with random multipliers."""
    gates = int(np.count_nonzero(presolved.owner_layer[variables] == 0))
    multipliers = rng.standard_normal((gates, 3)) * rng.integers(0, 2, (gates, 1))
    return input_cut(presolved, variables, multipliers, random_moments(rng, variables.size))


def first_layers(
    net: TinyNetwork, region: bnncert.Region, presolved: Presolved, variables: np.ndarray
) -> FloatArray:
    """Return the signs of the first-layer ones of these variables that inputs have, as rows."""
    own = presolved.owner[variables]
    rows = [np.array(signs)[own] for signs in reachable_first_layers(net, region)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), variables.size)


def problems(presolved: Presolved) -> Iterator[tuple[ReducedProblem, int]]:
    """Yield the reduced problem of every rival of class 0."""
    for target in robustness(presolved.network, presolved.region, 0).targets:
        assert target.rival is not None
        yield reduce_objective(presolved, target.objectives[0]), target.rival


@given(data=st.data(), seed=st.integers(0, 10**6))
@settings(FEW, max_examples=15)
def test_every_pattern_that_an_input_has_satisfies_it(data: st.DataObject, seed: int) -> None:
    net, region = any_case(data)
    presolved, rng = presolve(net.build(), region), np.random.default_rng(seed)
    variables = np.flatnonzero(presolved.owner_layer == 0)
    patterns = first_layers(net, region, presolved, variables)
    for _ in range(5):
        cuts = any_cut(presolved, variables, rng)
        if cuts is None:
            continue
        z = np.hstack([np.ones((patterns.shape[0], 1)), patterns])
        assert np.all(np.einsum("ka,ab,kb->k", z, cuts.forms[0], z) >= 0)
        # The same with some signs fixed.
        for signs in patterns[:3]:
            fixed = (signs * rng.integers(0, 2, signs.size)).astype(np.int8)
            free = np.flatnonzero(fixed == 0)
            left = cuts.restricted(fixed, free)
            inner = np.concatenate([[1.0], signs[free]])
            whole = np.concatenate([[1.0], signs])
            value = inner @ left.forms[0] @ inner
            # The constant of the restricted form makes up for rounding.
            rounding = 1e-9 + 1e-13 * float(np.abs(cuts.forms[0]).sum())
            wanted = whole @ cuts.forms[0] @ whole
            assert value == pytest.approx(wanted, rel=1e-9, abs=rounding)


@given(data=st.data(), seed=st.integers(0, 10**6))
@FEW
def test_the_bound_is_below_the_minimum(data: st.DataObject, seed: int) -> None:
    net, region = any_case(data)
    presolved, truth = presolve(net.build(), region), true_margins(net, region, 0)
    for plain, rival in problems(presolved):
        coupling = couple(presolved, plain.variables)
        if coupling is None:
            continue
        dual, moments = solved(replace(plain, coupling=coupling))
        rng = np.random.default_rng(seed)
        for cuts in (
            input_cut(presolved, plain.variables, dual.input, moments),
            any_cut(presolved, plain.variables, rng),
        ):
            closer = replace(plain, cuts=cuts)
            found = solved(closer)[0]
            assert found.bound(closer) <= truth[rival]
            # Multipliers are no part of the proof: any that are not negative bound f.
            scaled = replace(found, cut=found.cut * rng.uniform(0, 3, found.cut.size))
            assert scaled.bound(closer) <= truth[rival]
            if cuts is not None:
                negative = replace(found, cut=found.cut - found.cut - 1e-3)
                assert negative.bound(closer) == -np.inf


def test_one_inequality_is_worth_nearly_as_much_as_the_input() -> None:
    net, region = crossing(247, "linf")
    label = int(np.argmax(net.build().evaluate(region.center)))
    presolved = presolve(net.build(), region)
    (target,) = robustness(net.build(), region, label).targets
    plain = reduce_objective(presolved, target.objectives[0])
    wide = replace(plain, coupling=couple(presolved, plain.variables))
    dual, moments = solved(wide)
    closer = replace(plain, cuts=input_cut(presolved, plain.variables, dual.input, moments))
    before, most, after = (
        point.bound(problem)
        for point, problem in ((solved(plain)[0], plain), (dual, wide), (solved(closer)[0], closer))
    )
    assert after > before + 0.8 * (most - before) > before + 0.3


def test_clarabel_finds_the_same_value() -> None:
    net, region = crossing(247, "linf")
    presolved = presolve(net.build(), region)
    for plain, _ in problems(presolved):
        rng = np.random.default_rng(3)
        problem = replace(plain, cuts=any_cut(presolved, plain.variables, rng))
        relaxation = relax_reduced(problem)
        conic = conic_program(relaxation.program)
        answer = ClarabelSolver().solve(conic, NEVER)
        theirs = relaxation.bound(multipliers_of(relaxation.program, answer.primal))
        assert solved(problem)[0].bound(problem) == pytest.approx(theirs, abs=1e-3)


def test_a_child_inherits_the_inequality() -> None:
    net, region = crossing(294, "linf")
    presolved = presolve(net.build(), region)
    for plain, _ in problems(presolved):
        rng = np.random.default_rng(1)
        cuts = any_cut(presolved, plain.variables, rng)
        problem = replace(plain, cuts=cuts)
        signs = np.zeros(plain.size, dtype=np.int8)
        signs[0] = 1
        left = Restrictor(problem).restrict(signs)
        assert left is not None and cuts is not None and left.problem.cuts is not None
        assert left.problem.cuts.forms.shape == (1, left.free.size + 1, left.free.size + 1)
        assert left.problem.cuts.sources == cuts.sources
