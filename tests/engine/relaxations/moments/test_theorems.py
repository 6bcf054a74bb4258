"""The paper's theorems on its relaxations, as tests."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.presolve.reduction import UnstableProblem, reduce_target
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.relaxations.linear import linear_model
from bnncert.engine.relaxations.moments.layered_program import Encoding, encode
from bnncert.engine.relaxations.moments.polynomial import Polynomial, PolynomialProblem
from bnncert.engine.relaxations.moments.relaxation import Sparsity, cliques, relax
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.problem import Target
from bnncert.regions.linear_program import HighsModel, input_block
from tests.brute_force import TinyNetwork, reachable_last_layers
from tests.strategies import few

#: Interior-point accuracy after the rigorous correction.
TOLERANCE = 2e-5


def random_network(seed: int, depth: int) -> tuple[TinyNetwork, np.ndarray]:
    """Return a network whose neurons all satisfy the theorems' |b| < nv, and an objective."""
    rng = np.random.default_rng(seed)
    sizes = [2, *rng.integers(2, 4, size=depth).tolist()]
    weights, biases = [], []
    for below, above in pairwise(sizes):
        w = rng.choice([-1.0, 1.0], size=(above, below))
        weights.append(w)
        biases.append(rng.uniform(-0.9, 0.9, above) * below)
    d = rng.choice([-2.0, -1.0, 1.0, 2.0], size=sizes[-1])
    weights.append(np.vstack([d, np.zeros(sizes[-1])]))
    biases.append(np.zeros(2))
    return TinyNetwork(tuple(weights), tuple(biases), "either"), d


def unreduced(net: TinyNetwork, region: bnncert.Region, d: np.ndarray) -> UnstableProblem:
    """Return the problem with every neuron open and bounds +-nv, as the paper states it."""
    built = net.build()
    bounds = []
    for number, layer in enumerate(built.layers):
        reach = layer.norm
        if number == 0:
            half = np.asarray(abs(layer.weights) @ ((region.hi - region.lo) / 2))
            middle = np.asarray(layer.weights @ ((region.hi + region.lo) / 2))
            lower, upper = middle - half, middle + half
        else:
            lower, upper = -reach, reach
        bounds.append(LayerBounds(lower, upper, np.zeros(layer.size, dtype=np.int8)))
    target = Target("f", (bnncert.Objective(d, 0.0),))
    return reduce_target(built, tuple(bounds), target)


def sdp(problem: PolynomialProblem, sparsity: Sparsity = "dense", order: int = 1) -> float:
    relaxation = relax(problem, cliques(problem, sparsity), order)
    answer = ClarabelSolver().solve(relaxation.program, Deadline())
    return relaxation.dual_bound(answer.dual)


def lp(problem: UnstableProblem, region: bnncert.Region) -> float:
    block = input_block(region, problem.layers[0].inputs)
    model = linear_model(problem, block, "paper", integer=False)
    part, offset = model.objective_row(problem.objectives[0])
    cost = np.zeros(model.program.cost.size)
    cost[model.last_layer()] = part
    program = replace(model.program, cost=cost, offset=offset)
    answer = HighsModel(program).solve(Deadline())
    assert answer.multipliers is not None
    return program.dual_bound(answer.multipliers)


def true_minimum(net: TinyNetwork, region: bnncert.Region, d: np.ndarray) -> float:
    return min(float(np.dot(d, x)) for x in reachable_last_layers(net, region))


@pytest.mark.parametrize("depth", [1, 2, 3])
@given(seed=st.integers(0, 10**6))
@few(10)
def test_bounds_are_ordered_on_a_box(depth: int, seed: int) -> None:
    net, d = random_network(seed, depth)
    region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    problem = unreduced(net, region, d)
    minimum = true_minimum(net, region, d)
    linear = lp(problem, region)
    standard = sdp(encode(problem, region, "standard"))
    plain = sdp(encode(problem, region, "tight-plain"))
    tight = sdp(encode(problem, region, "tight"))
    assert standard <= tight + TOLERANCE
    assert plain <= tight + TOLERANCE
    assert linear <= tight + TOLERANCE
    # Rigorous: no tolerance.
    assert max(standard, plain, tight, linear) <= minimum
    # Dense blocks of order 2 grow with the fourth power: small ones only.
    encoded = encode(problem, region, "standard")
    if encoded.size <= 7:
        second = sdp(encoded, order=2)
        assert linear <= second + TOLERANCE
        assert standard <= second + TOLERANCE
        assert second <= minimum


@given(seed=st.integers(0, 10**6))
@few(15)
def test_bounds_are_ordered_on_a_disc(seed: int) -> None:
    net, d = random_network(seed, 2)
    rng = np.random.default_rng(seed)
    region = bnncert.Ball("l2", rng.uniform(-0.5, 0.5, 2), 0.8, -1.0, 1.0)
    problem = unreduced(net, region, d)
    standard = sdp(encode(problem, region, "standard"))
    tight = sdp(encode(problem, region, "tight"))
    assert standard <= tight + TOLERANCE
    assert max(standard, tight) <= true_minimum(net, region, d)


@pytest.mark.parametrize("encoding", ["standard", "tight-plain", "tight"])
@pytest.mark.parametrize("sparsity", ["layered", "chordal"])
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
@few(8)
def test_sparse_equals_dense_at_order_1(
    encoding: Encoding, sparsity: Sparsity, seed: int, depth: int
) -> None:
    net, d = random_network(seed, depth)
    region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    problem = encode(unreduced(net, region, d), region, encoding)
    assert sdp(problem, sparsity) == pytest.approx(sdp(problem), abs=TOLERANCE * 10)


@given(seed=st.integers(0, 10**6))
@few(15)
def test_pairwise_cliques_are_coarser(seed: int) -> None:
    net, d = random_network(seed, 2)
    region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    problem = encode(unreduced(net, region, d), region, "tight")
    pairwise = sdp(problem, "pairwise")
    assert pairwise <= sdp(problem, "layered") + TOLERANCE
    assert pairwise <= true_minimum(net, region, d)


@given(seed=st.integers(0, 10**6), depth=st.integers(2, 3))
@few(20)
def test_an_affine_function_that_only_lp_bounds_by_zero(seed: int, depth: int) -> None:
    # Hardness of the first order: f = x - (2 (w.y + b) / (nv + b) - 1) is >= 0 in the LP,
    # while the standard first-order relaxation goes down to -1.
    net, d = random_network(seed, depth)
    region = bnncert.Box([-1.0, -1.0], [1.0, 1.0])
    open_ = unreduced(net, region, d)
    problem = encode(open_, region, "standard")
    w, b = net.weights[-2][0], float(net.biases[-2][0])
    c = float(np.abs(w).sum()) + b
    terms = {v: -2 * float(wi) / c for v, wi in zip(problem.layers[-2], w, strict=True)}
    terms[problem.layers[-1][0]] = 1.0
    f = Polynomial.affine(terms, 1 - 2 * b / c)
    assert sdp(replace(problem, objective=f)) <= -1 + TOLERANCE
    tight = replace(encode(open_, region, "tight"), objective=f)
    assert sdp(tight) >= -TOLERANCE
    # tau_LP >= 0: the function is one of the LP's constraints, so it is >= 0 on its vertices.
    for y in product((-1.0, 1.0), repeat=len(w)):
        value = float(w @ np.array(y)) + b
        assert 1.0 - (2 * value / c - 1) >= -1e-12 or value > c


@given(seed=st.integers(0, 10**6))
@few(15)
def test_without_tautologies_the_papers_moment_matrix_is_feasible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    w = rng.choice([-1.0, 1.0], size=n)
    nv = float(n)
    b = float(rng.uniform(-0.9, 0.9)) * nv
    a = 0.5 * math.sqrt(2 - b * b / nv**2) - b / (2 * nv)
    t = math.sqrt(1 - a * a)
    matrix = np.zeros((n + 2, n + 2))
    matrix[0, 0] = matrix[-1, -1] = 1.0
    matrix[0, 1:-1] = matrix[1:-1, 0] = a * w
    matrix[1:-1, 1:-1] = np.outer(w, w)
    matrix[-1, 1:-1] = matrix[1:-1, -1] = t * w
    assert np.linalg.eigvalsh(matrix)[0] >= -1e-9
    x, y = matrix[-1], matrix[0]
    value = w @ y[1:-1] + b
    product_ = w @ x[1:-1] + b * x[0]
    assert product_ + value >= -1e-9
    assert product_ - value >= -1e-9
    # The tautology nv (x + 1) - w.y (x + 1) >= 0 is what it violates, through f < 0.
    f = x[0] - (2 * value / (nv + b) - 1)
    expected = -nv / (nv + b) * (math.sqrt(2 - b * b / nv**2) - 1)
    assert f == pytest.approx(expected, abs=1e-9)
    assert f < 0


def test_the_papers_sum_of_squares_for_the_toy_network() -> None:
    one = Polynomial({(): Fraction(1)})  # type: ignore[dict-item]
    x11, x12, x22 = (Polynomial({(v,): Fraction(1)}) for v in range(3))  # type: ignore[dict-item]

    def times(c: Fraction, p: Polynomial) -> Polynomial:
        return Polynomial({(): c}) * p  # type: ignore[dict-item]

    half, two = Fraction(1, 2), Fraction(2)
    left = times(two, x22) - one + times(Fraction(4), one)
    first = times(Fraction(2, 3), (x22 - one) * (x12 - x11 - times(half, one))) + times(
        Fraction(2, 3), (one + x22) * (times(two, one) - x12 + x11)
    )
    right = (
        times(Fraction(3, 10), first)
        + times(Fraction(1, 5), (one - x11) * (one - x11))
        + times(Fraction(1, 5), (one + x12) * (one + x12))
        + times(Fraction(17, 20), (one + x22) * (one + x22))
    )
    assert (left - right).reduced(frozenset({0, 1, 2})).terms == {}


def toy_network() -> tuple[TinyNetwork, bnncert.Ball, np.ndarray]:
    """Return the paper's network of its first example, the ball and the objective."""
    net = TinyNetwork(
        (
            np.array([[-1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]]),
            np.array([[-1.0, -1.0], [-1.0, 1.0]]),
            np.array([[-1.0, 1.0], [-1.0, -1.0]]),
        ),
        (np.array([1.5, 2.0]), np.array([1.0, -0.5]), np.array([-2.0, -1.0])),
        "plus",
    )
    return net, bnncert.Ball("l2", [0.0, 0.5, 0.0], 0.2), np.array([0.0, 2.0])


def test_all_bounds_of_the_toy_network() -> None:
    net, ball, d = toy_network()
    problem = unreduced(net, ball, d)
    bounds = {
        "lp": lp(problem, ball),
        "standard": sdp(encode(problem, ball, "standard")),
        "tight": sdp(encode(problem, ball, "tight")),
        "order2": sdp(encode(problem, ball, "standard"), order=2),
    }
    # 2 x_{2,2} - 1 is -3 at the centre already, and cannot be lower.
    signs = net.build().last_signs(ball.center[None])[0]
    assert 2 * signs[1] - 1 == -3
    for value in bounds.values():
        assert -3 - TOLERANCE <= value - 1 <= -3
