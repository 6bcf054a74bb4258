"""The paper's order-1 relaxations as structured programs: same value, and bounds that hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.presolve.reduction import UnstableProblem, reduce_target
from bnncert.engine.presolve.stability import stability
from bnncert.engine.relaxations.moments.layered_program import (
    Encoding,
    LayeredRelaxation,
    encode,
    layered_program,
)
from bnncert.engine.solvers.structured import StructuredSolution, solve_structured
from bnncert.problem import Target
from tests.brute_force import TinyNetwork
from tests.engine.relaxations.moments.test_theorems import (
    TOLERANCE,
    lp,
    random_network,
    sdp,
    toy_network,
    true_minimum,
    unreduced,
)
from tests.strategies import few

ENCODINGS: tuple[Encoding, ...] = ("standard", "tight-plain", "tight")


def unstable(net: TinyNetwork, region: bnncert.Region, d: np.ndarray) -> UnstableProblem:
    """Return the unstable neurons of a network."""
    built = net.build()
    target = Target("f", (bnncert.Objective(d, 0.0),))
    return reduce_target(built, stability(built, region), target)


def solved(
    problem: UnstableProblem, region: bnncert.Region, encoding: Encoding
) -> tuple[LayeredRelaxation, StructuredSolution]:
    """Solve the relaxation of the first objective as far as floats allow."""
    relaxation = layered_program(problem, region, encoding, problem.objectives[0])
    return relaxation, solve_structured(relaxation.program, Deadline(), tolerance=1e-7)


def structured(problem: UnstableProblem, region: bnncert.Region, encoding: Encoding) -> float:
    """Return the bound of the structured solver."""
    relaxation, solution = solved(problem, region, encoding)
    return relaxation.bound(solution.multipliers)


def region_of(kind: str, seed: int) -> bnncert.Region:
    """Return a region in the plane, which the data box cuts for most seeds."""
    rng = np.random.default_rng(seed)
    center = rng.uniform(-0.9, 0.9, 2)
    if kind == "box":
        return bnncert.Box(center - rng.uniform(0.1, 1, 2), center + rng.uniform(0.1, 1, 2))
    if kind == "polytope":
        facets = rng.normal(size=(2, 2))
        right = facets @ center + rng.uniform(0.1, 0.5, 2)
        return bnncert.Polytope(facets, right, center - 1, center + 1)
    ball = bnncert.Ball(kind, center, float(rng.uniform(0.2, 1.2)), -1.0, 1.0)  # type: ignore[arg-type]
    return ball


@pytest.mark.parametrize("kind", ["linf", "l2", "box", "polytope"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
@few(4)
def test_the_value_is_that_of_the_conic_form(
    kind: str, encoding: Encoding, seed: int, depth: int
) -> None:
    net, d = random_network(seed, depth)
    region = region_of(kind, seed)
    problem = unstable(net, region, d)
    assume(problem.layers[-1].size > 0)
    conic = sdp(encode(problem, region, encoding), "layered")
    assert structured(problem, region, encoding) == pytest.approx(conic, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", ["linf", "l2", "polytope"])
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
@few(10)
def test_bounds_are_ordered_and_below_the_minimum(kind: str, seed: int, depth: int) -> None:
    net, d = random_network(seed, depth)
    region = region_of(kind, seed)
    problem = unstable(net, region, d)
    assume(problem.layers[-1].size > 0)
    standard, plain, tight = (structured(problem, region, e) for e in ENCODINGS)
    assert standard <= tight + TOLERANCE
    assert plain <= tight + TOLERANCE
    if kind == "linf":
        assert lp(problem, region) <= tight + TOLERANCE
    # Rigorous: no tolerance.
    assert max(standard, plain, tight) <= true_minimum(net, region, d)


@pytest.mark.parametrize("kind", ["box", "disc"])
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
@few(10)
def test_the_theorems_hold_with_every_neuron_open(kind: str, seed: int, depth: int) -> None:
    """The order of the paper's bounds, in its own setting: bounds +-nv and no stable neurons."""
    net, d = random_network(seed, depth)
    region: bnncert.Region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    if kind == "disc":
        center = np.random.default_rng(seed).uniform(-0.5, 0.5, 2)
        region = bnncert.Ball("l2", center, 0.8, -1.0, 1.0)
    problem = unreduced(net, region, d)
    # The theorems assume that every neuron has both signs within its bounds.
    for layer in problem.layers:
        assume(np.all((layer.lower < layer.plus_from) & (layer.plus_from < layer.upper)))
    standard, plain, tight = (structured(problem, region, e) for e in ENCODINGS)
    assert standard <= tight + TOLERANCE
    assert plain <= tight + TOLERANCE
    if kind == "box":
        assert lp(problem, region) <= tight + TOLERANCE
    assert max(standard, plain, tight) <= true_minimum(net, region, d)


@pytest.mark.parametrize("encoding", ["standard", "tight"])
def test_the_toy_network_of_the_paper(encoding: Encoding) -> None:
    net, ball, d = toy_network()
    value = structured(unreduced(net, ball, d), ball, encoding)
    assert -3 - TOLERANCE <= value - 1 <= -3


@pytest.mark.parametrize("kind", ["linf", "l2", "polytope"])
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), encoding=st.sampled_from(ENCODINGS))
@few(10)
def test_any_multipliers_give_a_bound(kind: str, seed: int, depth: int, encoding: Encoding) -> None:
    net, d = random_network(seed, depth)
    region = region_of(kind, seed)
    problem = unstable(net, region, d)
    assume(problem.layers[-1].size > 0)
    relaxation, solution = solved(problem, region, encoding)
    rng = np.random.default_rng(seed)
    minimum = true_minimum(net, region, d)
    for size in (1e-9, 1e-3, 0.1, 3.0):
        found = solution.multipliers
        kappa = found.kappa + size * rng.normal(size=found.kappa.size)
        if relaxation.program.shared:
            shared = relaxation.program.shared
            kappa[-shared:] = kappa[-1]
        theta = [t + size * rng.normal(size=t.shape) for t in found.theta]
        assert relaxation.bound(replace(found, theta=theta, kappa=kappa)) <= minimum


def test_numbers_that_prove_nothing() -> None:
    net, d = random_network(0, 2)
    region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    relaxation, solution = solved(unstable(net, region, d), region, "tight")
    broken = solution.multipliers.kappa.copy()
    broken[0] = np.nan
    assert relaxation.bound(replace(solution.multipliers, kappa=broken)) == -np.inf
