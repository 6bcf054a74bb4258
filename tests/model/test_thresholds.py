"""Thresholds against the sign of the chain at every lattice point, in exact algebra.

The oracle runs the chain forwards in Q(sqrt t): numbers a + b sqrt(t) with rational a, b, whose
sign is found by squaring.  Chains with two different roots are evaluated in 500-bit balls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bnncert.errors import BnncertError, UnsupportedModelError
from bnncert.model.description import Divide, ElementwiseStep, Normalise, Scale, Shift
from bnncert.model.thresholds import (
    LatticeThresholds,
    affine_coefficients,
    check_steps,
    lattice_thresholds,
    real_thresholds,
)
from tests.strategies import few

CASES = few(60)

#: One neuron's chain: the kind of each step and its parameters.
Chain = list[tuple[type, tuple[float, ...]]]


def sign_of(value: Fraction) -> int:
    return (value > 0) - (value < 0)


@dataclass(frozen=True)
class Surd:
    """a + b sqrt(t), with t >= 0 rational."""

    a: Fraction
    b: Fraction
    t: Fraction

    def times(self, factor: Fraction) -> Surd:
        return Surd(self.a * factor, self.b * factor, self.t)

    def plus(self, number: Fraction) -> Surd:
        return Surd(self.a + number, self.b, self.t)

    def over_root(self, t: Fraction) -> Surd:
        """Divide by sqrt(t), where t must be the own radicand or a rational square."""
        if self.b == 0:
            # a / sqrt(t) = (a / t) sqrt(t)
            return Surd(Fraction(0), self.a / t, t)
        if t == self.t:
            return Surd(self.b, self.a / t, t)
        p, q = math.isqrt(t.numerator), math.isqrt(t.denominator)
        assert p * p == t.numerator
        assert q * q == t.denominator
        return self.times(Fraction(q, p))

    def sign(self) -> int:
        if sign_of(self.a) * sign_of(self.b) >= 0:
            rational_zero = self.b == 0 or self.t == 0
            return sign_of(self.a) if self.a or rational_zero else sign_of(self.b)
        return sign_of(self.a) * sign_of(self.a**2 - self.b**2 * self.t)


def value_at(chain: Chain, u: Fraction) -> Surd:
    value = Surd(u, Fraction(0), Fraction(1))
    for kind, floats in chain:
        p = [Fraction(v) for v in floats]
        if kind is Scale:
            value = value.times(p[0])
        elif kind is Shift:
            value = value.plus(p[0])
        elif kind is Divide:
            value = value.times(1 / p[0])
        else:
            gamma, beta, mean, variance, epsilon = p
            value = value.plus(-mean).over_root(variance + epsilon).times(gamma).plus(beta)
    return value


def steps_of(chains: list[Chain]) -> list[ElementwiseStep]:
    """Stack the chains of several neurons, which must have the same kinds of steps."""
    steps: list[ElementwiseStep] = []
    for number, (kind, parameters) in enumerate(chains[0]):
        columns = [
            np.array([chain[number][1][k] for chain in chains]) for k in range(len(parameters))
        ]
        steps.append(kind(*columns))
    return steps


def lattice(nv: int) -> range:
    return range(-nv, nv + 1, 2)


def predicted(found: LatticeThresholds, j: int, u: int) -> int:
    """Return what the decided threshold says about the sign of F(u); 0 is a tie."""
    direction, p = int(found.direction[j]), int(found.on_from[j])
    y = direction * u
    if y == p and found.tie[j]:
        return 0
    return 1 if y >= p else -1


def assert_decided(chains: list[Chain], nv: list[int]) -> LatticeThresholds:
    found = lattice_thresholds(steps_of(chains), np.array(nv, dtype=np.int64), "here")
    for j, chain in enumerate(chains):
        signs = {u: value_at(chain, Fraction(u)).sign() for u in lattice(nv[j])}
        assert {u: predicted(found, j, u) for u in signs} == signs
        p, bias = int(found.on_from[j]), Fraction(float(found.bias[j]))
        if found.direction[j]:
            assert -nv[j] <= p <= nv[j] + 2
            assert (p - nv[j]) % 2 == 0
            # The float bias describes the same neuron on the lattice.
            assert all((y + bias >= 0) == (y >= p) for y in lattice(nv[j]))
        else:
            assert (p, bool(found.tie[j])) == {1: (0, False), 0: (0, True), -1: (2, False)}[
                signs[nv[j]]
            ]
    return found


# --- chains whose threshold is on, or next to, a lattice point -------------------------------

factors = st.sampled_from([1.0, -1.0, 0.5, -3.0, 0.1, -0.7, 1e-3, 1e5, 1 / 3])
offsets = st.sampled_from([0.0, 1.0, -2.5, 0.1, 1e-3, -0.3, 7.0])
gaps = st.sampled_from([0.0, 0.0, 1e-13, -1e-13, 1e-9, -1e-9, 2.0**-50, 0.4, 1.0, -0.9])
spreads = st.sampled_from(
    [(4.0, 0.0), (0.25, 0.0), (0.0, 1.0), (2.25, 0.0), (2.0, 0.0), (0.3, 1e-5), (1.0, 1e-3)]
)


@st.composite
def near_lattice(draw: st.DrawFn) -> tuple[Chain, int]:
    """Return a chain whose root is close to a lattice point, and nv."""
    nv = draw(st.integers(0, 9))
    # Also beyond both ends of the lattice, where the neuron is constant.
    target = draw(st.sampled_from(range(-nv - 4, nv + 5, 2))) + draw(gaps)
    factor, beta, (variance, epsilon) = draw(factors), draw(offsets), draw(spreads)
    kind = draw(st.sampled_from(["shift", "scale", "divide", "mean", "beta", "both"]))
    if kind == "shift":
        return [(Shift, (-target,))], nv
    if kind == "scale":
        return [(Scale, (factor,)), (Shift, (-target * factor,))], nv
    if kind == "divide":
        return [(Divide, (factor,)), (Shift, (-target / factor,))], nv
    if kind == "mean":
        return [(Normalise, (factor, 0.0, target, variance, epsilon))], nv
    deviation = math.sqrt(variance + epsilon)
    if kind == "beta":
        mean = target + beta * deviation / factor
        return [(Normalise, (factor, beta, mean, variance, epsilon))], nv
    scale = draw(factors)
    mean = scale * target + beta
    return [
        (Scale, (scale,)),
        (Shift, (beta,)),
        (Normalise, (factor, 0.0, mean, variance, epsilon)),
    ], nv


@CASES
@given(case=near_lattice())
def test_thresholds_next_to_lattice_points_are_decided_exactly(case: tuple[Chain, int]) -> None:
    chain, nv = case
    assert_decided([chain], [nv])


# --- any chain -------------------------------------------------------------------------------

anything = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.0, 0.1]), st.floats(1e-6, 8) | st.floats(-8, -1e-6)
)
nonzero = anything.filter(bool)
parameters = {
    Scale: st.tuples(anything),
    Shift: st.tuples(anything),
    Divide: st.tuples(nonzero),
    Normalise: st.tuples(
        anything,
        anything,
        anything,
        st.sampled_from([0.25, 1.0, 4.0, 2.0, 0.3, 17.125]),
        st.sampled_from([0.0, 1e-5, 2.0**-10]),
    ),
}


@st.composite
def chains_of_one_layer(draw: st.DrawFn) -> tuple[list[Chain], list[int]]:
    kinds = draw(st.lists(st.sampled_from([Scale, Shift, Divide]), max_size=3))
    if draw(st.booleans()):
        kinds.insert(draw(st.integers(0, len(kinds))), Normalise)
    count = draw(st.integers(1, 4))
    rows = [[(kind, draw(parameters[kind])) for kind in kinds] for _ in range(count)]
    return rows, [draw(st.integers(0, 8)) for _ in range(count)]


@CASES
@given(case=chains_of_one_layer())
def test_all_neurons_of_a_layer_match_brute_force(case: tuple[list[Chain], list[int]]) -> None:
    rows, nv = case
    assume(rows[0])
    assert_decided(rows, nv)


def test_a_layer_without_steps_is_the_plain_sign() -> None:
    found = lattice_thresholds([], np.array([3, 4]), "here")
    assert found.on_from.tolist() == [1, 0]
    assert found.tie.tolist() == [False, True]


@CASES
@given(
    first=parameters[Normalise], second=parameters[Normalise], shift=anything, nv=st.integers(0, 6)
)
def test_two_roots_match_ball_arithmetic(
    first: tuple[float, ...], second: tuple[float, ...], shift: float, nv: int
) -> None:
    chain: Chain = [(Normalise, first), (Shift, (shift,)), (Normalise, second)]
    assume(first[0] and second[0])
    precision = flint.ctx.prec
    flint.ctx.prec = 500
    try:
        signs = {}
        for u in lattice(nv):
            value = flint.arb(u)
            for kind, floats in chain:
                p = [flint.arb(v) for v in floats]
                if kind is Shift:
                    value += p[0]
                else:
                    value = p[0] * (value - p[2]) / (p[3] + p[4]).sqrt() + p[1]
            assume(value > 0 or value < 0)
            signs[u] = 1 if value > 0 else -1
    finally:
        flint.ctx.prec = precision
    found = lattice_thresholds(steps_of([chain]), np.array([nv]), "here")
    assert {u: predicted(found, 0, u) for u in signs} == signs


def test_a_tie_hidden_behind_two_equal_roots_is_refused_and_not_guessed() -> None:
    # (u / sqrt 2) / sqrt 2 - 1 is zero at u = 2, but no finite number of digits shows it.
    root = (1.0, 0.0, 0.0, 2.0, 0.0)
    chain: Chain = [(Normalise, root), (Normalise, (1.0, -1.0, 0.0, 2.0, 0.0))]
    with pytest.raises(UnsupportedModelError, match=r"layer 7: .*lattice point"):
        lattice_thresholds(steps_of([chain]), np.array([4]), "layer 7")


@pytest.mark.parametrize(
    ("beta", "p", "tie"), [(0.5, 0, False), (0.0, 0, True), (-1e-30, 2, False)]
)
@pytest.mark.parametrize("gamma", [0.0, -0.0])
def test_zero_gamma_is_a_constant_neuron(gamma: float, beta: float, p: int, tie: bool) -> None:
    found = lattice_thresholds(
        steps_of([[(Normalise, (gamma, beta, 3.0, 2.0, 1e-5))]]), np.array([6]), "here"
    )
    assert found.direction.tolist() == [0]
    assert (found.on_from.tolist(), found.tie.tolist()) == ([p], [tie])


def test_parameters_of_one_value_serve_all_neurons() -> None:
    found = lattice_thresholds(
        [Scale(np.array([-2.0])), Shift(np.array([1.0]))], np.array([1, 2, 5]), "here"
    )
    # -2u + 1 >= 0 iff -u >= -1/2: the next lattice points are 1 (odd nv) and 0 (even nv).
    assert found.direction.tolist() == [-1, -1, -1]
    assert found.on_from.tolist() == [1, 0, 1]


@pytest.mark.parametrize("sign", [1, -1])
def test_threshold_beyond_the_float_range_is_a_constant_neuron(sign: int) -> None:
    # u / 1e300 +- 1e300 has its root at -+1e600, far outside the lattice.
    steps = [Scale(np.array([1e-300])), Shift(np.array([sign * 1e300]))]
    found = lattice_thresholds(steps, np.array([4]), "here")
    assert found.on_from.tolist() == [-4 if sign > 0 else 6]


# --- thresholds over real inputs -------------------------------------------------------------


@CASES
@given(case=st.one_of(near_lattice().map(lambda c: ([c[0]], [c[1]])), chains_of_one_layer()))
def test_real_thresholds_enclose_the_root(case: tuple[list[Chain], list[int]]) -> None:
    rows, _ = case
    assume(rows[0])
    found = real_thresholds(steps_of(rows), len(rows), "here")
    for j, chain in enumerate(rows):
        direction = int(found.direction[j])
        lo, hi = Fraction(float(found.bias_lo[j])), Fraction(float(found.bias_hi[j]))
        if direction == 0:
            assert lo == hi
            assert sign_of(lo) == value_at(chain, Fraction(5)).sign()
            continue
        # F(u) has the sign of direction * u + b with lo <= b <= hi.
        assert value_at(chain, -direction * lo).sign() >= 0
        assert value_at(chain, -direction * hi).sign() <= 0


@CASES
@given(factor=st.sampled_from([1.0, -1.0, 2.0, -0.25]), offset=st.floats(-1e6, 1e6), nonce=nonzero)
def test_real_threshold_is_exact_where_it_is_a_float(
    factor: float, offset: float, nonce: float
) -> None:
    shift = real_thresholds([Scale(np.array([factor])), Shift(np.array([offset]))], 1, "here")
    assert shift.bias_lo[0] == shift.bias_hi[0] == offset / abs(factor)
    # The root of a normalisation without beta is its mean, whatever the variance.
    steps = [Normalise(*(np.array([v]) for v in (nonce, 0.0, offset, 2.0, 1e-5)))]
    mean = real_thresholds(steps, 1, "here")
    assert mean.bias_lo[0] == mean.bias_hi[0] == (-offset if nonce > 0 else offset)


@CASES
@given(gamma=nonzero, beta=nonzero, variance=st.floats(1e-3, 1e3))
def test_irrational_real_threshold_is_enclosed_by_neighbouring_floats(
    gamma: float, beta: float, variance: float
) -> None:
    steps = [Normalise(*(np.array([v]) for v in (gamma, beta, 0.0, variance, 0.0)))]
    found = real_thresholds(steps, 1, "here")
    lo, hi = float(found.bias_lo[0]), float(found.bias_hi[0])
    assert lo <= hi <= math.nextafter(math.nextafter(lo, math.inf), math.inf)


@pytest.mark.parametrize("sign", [1, -1])
def test_real_threshold_beyond_the_float_range_is_enclosed_or_refused(sign: int) -> None:
    steps = [Scale(np.array([1e-300])), Shift(np.array([sign * 1e300]))]
    try:
        found = real_thresholds(steps, 1, "here")
    except BnncertError:
        return
    largest = np.finfo(np.float64).max
    if sign > 0:
        assert found.bias_lo[0] <= largest
        assert found.bias_hi[0] == math.inf
    else:
        assert found.bias_lo[0] == -math.inf
        assert found.bias_hi[0] >= -largest


def test_affine_coefficients_enclose_gain_and_offset() -> None:
    # Row 0: 3 (u/4 - 1) / sqrt 2 + 5; row 1: the same; row 2: another mean.
    chain = [
        Divide(np.full(3, 4.0)),
        Normalise(
            np.full(3, 3.0),
            np.full(3, 5.0),
            np.array([1.0, 1.0, 2.0]),
            np.full(3, 2.0),
            np.zeros(3),
        ),
    ]
    found = affine_coefficients(chain, 3, "here")
    half = Fraction(1, 2)
    for j, mean in enumerate((1, 1, 2)):
        # gain = 3 sqrt(2) / 8 and offset = 5 - 3 mean sqrt(2) / 2
        low, high = found.gain[j].lo * 8 / 3, found.gain[j].hi * 8 / 3
        assert low > 0
        assert low**2 <= 2 <= high**2
        low, high = ((5 - c) / 3 / mean / half for c in (found.offset[j].hi, found.offset[j].lo))
        assert low > 0
        assert low**2 <= 2 <= high**2
    assert found.group[0] == found.group[1] != found.group[2]


# --- float32 doubts --------------------------------------------------------------------------


def float32_sign(chain: Chain, u: int) -> int:
    value = np.float32(u)
    for kind, floats in chain:
        p = [np.float32(v) for v in floats]
        if kind is Scale:
            value = value * p[0]
        elif kind is Shift:
            value = value + p[0]
        elif kind is Divide:
            value = value / p[0]
        else:
            value = p[0] * (value - p[2]) / np.sqrt(p[3] + p[4]) + p[1]
    return int(np.sign(value))


def in_float32(chain: Chain) -> Chain:
    return [(kind, tuple(float(np.float32(v)) for v in floats)) for kind, floats in chain]


def flag(chain: Chain, nv: int) -> bool:
    found = lattice_thresholds(steps_of([chain]), np.array([nv]), "here")
    return bool(found.ambiguous[0])


def goes_wrong(chain: Chain, nv: int) -> bool:
    """Whether float32 gives a neuron another sign than exact arithmetic, which must be flagged."""
    chain = in_float32(chain)
    exact = [value_at(chain, Fraction(u)).sign() for u in lattice(nv)]
    wrong = [float32_sign(chain, u) for u in lattice(nv)] != exact
    assert flag(chain, nv) or not wrong
    return wrong


def test_a_float32_execution_that_goes_wrong_was_announced() -> None:
    wrong: list[bool] = []

    @CASES
    @given(case=near_lattice())
    def check(case: tuple[Chain, int]) -> None:
        wrong.append(goes_wrong(*case))

    check()
    assert 5 < sum(wrong) < len(wrong) / 2


def test_a_root_that_float32_rounds_to_either_side_was_announced() -> None:
    wrong = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        nv = int(rng.integers(1, 10))
        factor, beta, variance = rng.uniform(0.1, 3, 3).tolist()
        # The root is a lattice point, but for the rounding of the mean to float32.
        mean = float(rng.choice(list(lattice(nv)))) + beta * math.sqrt(variance + 1e-5) / factor
        wrong += goes_wrong([(Normalise, (factor, beta, mean, variance, 1e-5))], nv)
    assert wrong > 30


@pytest.mark.parametrize("gap", [1e-9, -1e-9, 1e-13, -1e-13])
@pytest.mark.parametrize("point", [-4, -2, 2, 4])
def test_threshold_next_to_a_lattice_point_is_flagged(point: int, gap: float) -> None:
    chain: Chain = [(Normalise, (-1.5, 0.0, point + gap, 2.0, 1e-5))]
    assert flag(chain, 6)


@pytest.mark.parametrize(
    "chain",
    [
        # At either end of the lattice a wrong rounding changes the neuron as well.
        [(Scale, (1.0,)), (Shift, (-4.0 - 1e-12,))],
        [(Scale, (1.0,)), (Shift, (4.0 + 1e-12,))],
    ],
)
def test_threshold_next_to_the_ends_of_the_lattice_is_flagged(chain: Chain) -> None:
    wrong = [u for u in lattice(4) if float32_sign(chain, u) != value_at(chain, Fraction(u)).sign()]
    assert wrong in ([4], [-4])
    assert flag(chain, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: [(Shift, (-t,))],
        lambda t: [(Scale, (-0.3,)), (Shift, (0.3 * t,))],
        lambda t: [(Normalise, (2.0, 0.0, t, 0.5, 1e-5))],
    ],
)
@pytest.mark.parametrize("t", [-3.0, -1.0, 0.5, 1.9, 2.6])
def test_clear_threshold_is_not_flagged(make: Callable[[float], Chain], t: float) -> None:
    assert not flag(make(t), 4)


def test_a_lone_shift_onto_the_lattice_is_exact_in_float32_too() -> None:
    assert not flag([(Shift, (-2.0,))], 4)


# --- parameters that no chain can have -------------------------------------------------------


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ([(Shift, (math.nan,))], "NaN or infinite"),
        ([(Scale, (math.inf,))], "NaN or infinite"),
        ([(Normalise, (1.0, 0.0, 0.0, math.nan, 1e-5))], "NaN or infinite"),
        ([(Divide, (0.0,))], "division by zero"),
        ([(Divide, (-0.0,))], "division by zero"),
        ([(Normalise, (1.0, 0.0, 0.0, -1.0, 0.5))], "variance"),
        ([(Normalise, (1.0, 0.0, 0.0, 0.0, 0.0))], "variance"),
    ],
)
def test_impossible_parameters_are_refused_with_their_place(chain: Chain, reason: str) -> None:
    steps = steps_of([chain])
    for attempt in (
        lambda: check_steps(steps, "net.onnx: node 3"),
        lambda: lattice_thresholds(steps, np.array([2]), "net.onnx: node 3"),
        lambda: real_thresholds(steps, 1, "net.onnx: node 3"),
        lambda: affine_coefficients(steps, 1, "net.onnx: node 3"),
    ):
        with pytest.raises(
            UnsupportedModelError, match=rf"^net\.onnx: node 3: .*{reason}"
        ) as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_possible_parameters_are_accepted() -> None:
    chain: Chain = [(Scale, (0.0,)), (Divide, (-2.0,)), (Normalise, (0.0, 1.0, 2.0, 0.0, 1e-12))]
    check_steps(steps_of([chain]), "here")
