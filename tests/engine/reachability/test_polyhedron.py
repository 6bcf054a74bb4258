"""Reachability of first-layer patterns against Fourier-Motzkin elimination in rationals."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.engine.reachability.polyhedron import polyhedral_feasibility
from bnncert.model.description import ModelDescription, Normalise, Shift, Stage
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network
from bnncert.regions import Ball, Box, Polytope, Region
from tests.brute_force import TinyNetwork, reachable_first_layers

Array = npt.NDArray[Any]
KINDS = ("box", "linf", "l1", "polytope")
SIGN_ZEROS = ("plus", "minus", "either")


def check(net: Network, neurons: Any, signs: Any, region: Region) -> Feasibility:
    pattern = SignPattern(
        net.layers[0], np.array(neurons, dtype=np.int64), np.array(signs, dtype=np.int8)
    )
    return polyhedral_feasibility(pattern, region, Deadline(20))


def conflict_of(check: Feasibility) -> tuple[int, ...]:
    """Return the places of the conflict, none if there is no conflict."""
    return () if check.conflict is None else tuple(check.conflict.tolist())


def random_case(rng: np.random.Generator, kind: str, sign_zero: str) -> tuple[TinyNetwork, Region]:
    """Return integer and half-integer data, so that ties and degenerate vertices are common."""
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    weights = rng.integers(-2, 3, (m, n)).astype(np.float64)
    biases = rng.integers(-4, 5, m) / 2
    net = TinyNetwork((weights, np.ones((2, m))), (biases, np.zeros(2)), sign_zero)
    center = rng.integers(-2, 3, n) / 2
    radius = float(rng.choice([0.0, 0.5, 1.0, 1.5]))
    region: Region
    if kind == "box":
        region = Box(center - radius, center + float(rng.choice([0.0, 0.5, 2.0])))
    elif kind == "polytope":
        matrix = rng.integers(-1, 2, (2, n)).astype(np.float64)
        right = matrix @ center + rng.integers(0, 3, 2) / 2
        region = Polytope(matrix, right, center - 1, center + 1)
    elif rng.uniform() < 0.5:
        region = Ball(kind, center, radius)  # type: ignore[arg-type]
    else:
        region = Ball(kind, center, radius, center - 0.5, center + 1.0)  # type: ignore[arg-type]
    return net, region


def subset(net: TinyNetwork, neurons: list[int]) -> TinyNetwork:
    rows, biases = net.weights[0][neurons], net.biases[0][neurons]
    return TinyNetwork((rows, np.ones((2, len(neurons)))), (biases, np.zeros(2)), net.sign_zero)


def allows(net: TinyNetwork, point: tuple[Fraction, ...], neuron: int, sign: int) -> bool:
    row = [Fraction(w) for w in net.weights[0][neuron].tolist()]
    value = Fraction(float(net.biases[0][neuron]))
    value += sum(w * x for w, x in zip(row, point, strict=True))
    if value == 0:
        return net.sign_zero in ("either", "plus" if sign > 0 else "minus")
    return (value > 0) == (sign > 0)


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
@pytest.mark.parametrize("kind", KINDS)
def test_patterns_are_reachable_exactly_when_elimination_says_so(kind: str, sign_zero: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    total = open_ = reached = 0
    for _ in range(15):
        net, region = random_case(rng, kind, sign_zero)
        built = net.build()
        count = net.biases[0].size
        neurons = sorted(rng.permutation(count)[: int(rng.integers(1, count + 1))].tolist())
        reachable = set(reachable_first_layers(subset(net, neurons), region))
        for signs in product((1, -1), repeat=len(neurons)):
            found = check(built, neurons, signs, region)
            total += 1
            if found.exact_point is not None:
                reached += 1
                assert signs in reachable
                assert conflict_of(found) == ()
                assert region.contains(found.exact_point)
                assert all(
                    allows(net, found.exact_point, j, s)
                    for j, s in zip(neurons, signs, strict=True)
                )
            elif found.conflict is not None:
                assert signs not in reachable
                # The conflict alone is already impossible.
                blamed = list(conflict_of(found))
                assert len(set(blamed)) == len(blamed)
                part = set(
                    reachable_first_layers(subset(net, [neurons[k] for k in blamed]), region)
                )
                assert tuple(signs[k] for k in blamed) not in part
            else:
                open_ += 1
    assert reached > 10
    assert total - reached - open_ > 5
    assert open_ <= 0.05 * total


@pytest.mark.parametrize(
    ("sign_zero", "sign", "reachable"),
    [
        ("plus", 1, True),
        ("plus", -1, False),
        ("minus", 1, False),
        ("minus", -1, True),
        ("either", 1, True),
        ("either", -1, True),
    ],
)
@pytest.mark.parametrize("kind", ["box", "linf", "l1"])
def test_a_neuron_that_is_always_tied(
    kind: str, sign_zero: Any, sign: int, reachable: bool
) -> None:
    # x - y is zero on the single point (1/2, 1/2).
    net = Network.from_arrays(
        [np.array([[1.0, -1.0]]), np.ones((2, 1))], [np.zeros(1), np.zeros(2)], sign_zero=sign_zero
    )
    half = [0.5, 0.5]
    region = Box(half, half) if kind == "box" else Ball(kind, half, 0.0)  # type: ignore[arg-type]
    found = check(net, [0], [sign], region)
    if reachable:
        assert found.exact_point == (Fraction(1, 2), Fraction(1, 2))
        assert found.conflict is None
    else:
        assert found.point is None
        assert conflict_of(found) == (0,)


def test_a_tie_that_two_neurons_share_needs_both_conventions() -> None:
    # x >= 0 and -x >= 0 meet in x = 0 only.
    weights, biases = [np.array([[1.0], [-1.0]]), np.eye(2)], [np.zeros(2), np.zeros(2)]
    region = Box([-1.0], [1.0])
    for sign_zero, both_on, both_off in (
        ("plus", True, False),
        ("minus", False, True),
        ("either", True, True),
    ):
        net = Network.from_arrays(weights, biases, sign_zero=sign_zero)  # type: ignore[arg-type]
        for signs, expected in (((1, 1), both_on), ((-1, -1), both_off)):
            found = check(net, [0, 1], signs, region)
            if expected:
                assert found.exact_point == (0,)
            else:
                assert conflict_of(found) == (0, 1)


def test_radius_counts_as_the_float_it_is() -> None:
    # 0.1 + 0.2 in rationals of floats, against thresholds at the exact sum and next to it.
    edge = Fraction(0.1) + Fraction(0.2)
    region = Ball("linf", [0.1], 0.2)
    for threshold, reachable in ((0.30000000000000004, False), (0.3, True)):
        net = Network.from_arrays([[[1.0]], [[1.0], [1.0]]], [[-threshold], [0.0, 0.0]])
        assert (Fraction(threshold) <= edge) is reachable
        found = check(net, [0], [1], region)
        assert (found.exact_point is not None) is reachable


def test_no_neurons_are_always_reachable() -> None:
    net = Network.from_arrays([[[1.0]], [[1.0], [1.0]]], [[0.0], [0.0, 0.0]])
    region = Box([2.0], [3.0])
    found = check(net, [], [], region)
    assert found.exact_point is not None
    assert region.contains(found.exact_point)


def test_zero_rows_decide_by_their_bias() -> None:
    net = Network.from_arrays([np.zeros((3, 1)), np.ones((2, 3))], [[1.0, -1.0, 0.0], [0.0, 0.0]])
    region = Box([-1.0], [1.0])
    assert check(net, [0, 1, 2], [1, -1, 1], region).point is not None
    for neuron, sign in ((0, -1), (1, 1), (2, -1)):
        assert conflict_of(check(net, [neuron], [sign], region)) == (0,)


def test_the_l2_ball_is_refused() -> None:
    net = Network.from_arrays([[[1.0]], [[1.0], [1.0]]], [[0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="not polyhedral"):
        check(net, [0], [1], Ball("l2", [0.0], 1.0))


def test_a_passed_deadline_leaves_the_pattern_open() -> None:
    net = Network.from_arrays([[[1.0]], [[1.0], [1.0]]], [[0.0], [0.0, 0.0]])
    pattern = SignPattern(net.layers[0], np.array([0]), np.array([1], dtype=np.int8))
    found = polyhedral_feasibility(pattern, Box([-1.0], [1.0]), Deadline(1e-9))
    assert found.point is None and found.conflict is None


def irrational(sign_zero: Any) -> Network:
    """x -> sign(x / sqrt 2 - 1), whose threshold is sqrt 2."""
    one = np.ones(1)
    first = Stage(
        as_sparse(np.array([[1.0]])),
        (Normalise(one, -one, 0 * one, 2 * one, 0 * one),),
        "first",
        sign_zero=sign_zero,
    )
    last = Stage(as_sparse(np.array([[1.0], [-1.0]])), (Shift(np.zeros(2)),), "last")
    return Network.from_description(ModelDescription((first, last), (1,)))


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
def test_an_irrational_threshold_inside_the_region_is_passed(sign_zero: Any) -> None:
    net = irrational(sign_zero)
    for sign in (1, -1):
        found = check(net, [0], [sign], Box([1.0], [2.0]))
        assert found.exact_point is not None
        assert (found.exact_point[0] ** 2 > 2) is (sign > 0)
    assert conflict_of(check(net, [0], [1], Box([0.0], [1.0]))) == (0,)
    assert conflict_of(check(net, [0], [-1], Box([1.5], [2.0]))) == (0,)


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
def test_a_reachable_pattern_is_not_excluded_by_the_enclosure_of_a_threshold(
    sign_zero: Any,
) -> None:
    # The largest x of the box is the float above sqrt 2: the neuron is +1 there, and the float
    # below sqrt 2 is where it is still -1.
    net = irrational(sign_zero)
    above = float(np.sqrt(2.0))
    below = float(np.nextafter(above, 0.0))
    assert Fraction(below) ** 2 < 2 < Fraction(above) ** 2
    assert conflict_of(check(net, [0], [1], Box([0.0], [above]))) == ()
    assert conflict_of(check(net, [0], [-1], Box([below], [2.0]))) == ()


def test_after_the_deadline_no_exact_program_is_built() -> None:
    layer = Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0.0], [0.0, 0.0]]).layers[0]
    pattern = SignPattern(layer, np.array([0]), np.array([1], dtype=np.int8))
    box = Box(np.full(2, -1.0), np.full(2, 1.0))
    assert exact_feasibility(pattern, box, Deadline(None)).point is not None
    late = Deadline(1e-9)
    assert late.passed() and not exact_feasibility(pattern, box, late).is_decided
