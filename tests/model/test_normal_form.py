"""From weights, batch normalisation and pooling to threshold layers; what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import Divide, ElementwiseStep, Scale, Shift, SignZero
from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.problem import score_objective
from tests.model.small_networks import (
    CASES,
    SIGN_ZEROS,
    Array,
    as_tuples,
    describe,
    dyadic,
    exact_patterns,
    exact_scores,
    naive_scores,
    normalise,
    stage,
    ternary,
)


@CASES
@given(
    seed=st.integers(0, 10**6), sign_zero=st.sampled_from(SIGN_ZEROS), first_scaled=st.booleans()
)
def test_scaled_rows_are_factored_into_ternary_ones(
    seed: int, sign_zero: SignZero, first_scaled: bool
) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.choice([0.1, 3.0, 0.75, 1e-3, 1.0], (5, 1))
    signs = ternary(rng, 5, 4)
    hidden = factor * signs
    # Thresholds on the lattice of the scaled row (up to rounding) or half way between.
    hidden_bias = factor[:, 0] * rng.integers(-4, 5, 5) / rng.choice([1.0, 2.0], 5)
    first = 0.5 * ternary(rng, 4, 3) if first_scaled else dyadic(rng, 4, 3)
    weights, biases = [first, hidden, dyadic(rng, 2, 5)], [np.zeros(4), hidden_bias, np.zeros(2)]
    net = Network.from_arrays(weights, biases, sign_zero=sign_zero)
    np.testing.assert_array_equal(net.layers[1].weights.toarray(), signs)
    assert net.layers[1].weights.dtype == np.int8
    for _ in range(4):
        point = [Fraction(int(v), 2) for v in rng.integers(-3, 4, 3)]
        expected = exact_patterns(weights, biases, point, sign_zero)
        assert as_tuples(net.exact_patterns(point)) == expected


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
@pytest.mark.parametrize("bias", [-1.0, 0.0, 2.0])
def test_zero_rows_are_constant_neurons(sign_zero: SignZero, bias: float) -> None:
    weights = [np.array([[0.0], [1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]]), np.eye(2)]
    biases = [np.array([bias, 0.5]), np.array([bias, 0.5]), np.zeros(2)]
    net = Network.from_arrays(weights, biases, sign_zero=sign_zero)
    for x in (Fraction(-1), Fraction(2)):
        expected = exact_patterns(weights, biases, [x], sign_zero)
        assert as_tuples(net.exact_patterns([x])) == expected
        np.testing.assert_array_equal(
            net.evaluate([float(x)]),
            naive_scores(weights, biases, np.array([float(x)]), -1 if sign_zero == "minus" else 1),
        )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("beta", "expected"), [(0.3, 1), (-0.3, -1), (0.0, 0)])
def test_zero_gamma_is_a_constant_neuron(first: bool, beta: float, expected: int) -> None:
    constant = normalise([0.0, 1.0], [beta, 0.1], [5.0, 0.0], [2.0, 1.0])
    plain = Shift(np.full(2, 0.5))
    net = describe(
        stage(np.eye(2), constant if first else plain, sign_zero="either"),
        stage(np.eye(2), plain if first else constant, sign_zero="either"),
        stage(np.eye(2), Shift(np.zeros(2))),
    )
    for x in ([1.0, -1.0], [-3.0, 9.0]):
        found = {pattern[0 if first else 1][0] for pattern in as_tuples(net.exact_patterns(x))}
        assert found == ({expected} if expected else {1, -1})


def test_negative_gamma_flips_the_row_and_its_strictness() -> None:
    # sign(-(u - 2)) with u = x + y on the lattice {-2, 0, 2}: a tie at u = 2, else +1.
    weights = np.array([[1.0, 1.0]])
    net = describe(
        stage(np.eye(2), Shift(np.zeros(2))),
        stage(weights, normalise(-1.0, 0.0, 2.0, 1.0)),
        stage(np.array([[1.0], [-1.0]]), Shift(np.zeros(2))),
    )
    for sign_zero, at_two in (("plus", 1), ("minus", -1)):
        chosen = net.with_sign_zero(sign_zero)  # type: ignore[arg-type]
        assert chosen.evaluate_exactly([3.0, 3.0]) == [at_two, -at_two]
        assert chosen.evaluate_exactly([3.0, -3.0]) == [1, -1]
        assert chosen.evaluate([3.0, 3.0]).tolist() == [at_two, -at_two]


def test_float32_doubts_become_a_note() -> None:
    def hidden(mean: float) -> Network:
        return describe(
            stage(np.eye(2), Shift(np.zeros(2))),
            stage(np.ones((1, 2)), normalise(1.0, 0.0, mean, 2.0)),
            stage(np.array([[1.0], [-1.0]]), Shift(np.zeros(2))),
        )

    (note,) = hidden(2 - 1e-9).notes
    assert "neuron 0" in note
    assert "float32" in note
    assert hidden(1.2).notes == ()


@pytest.mark.parametrize("value", [0.5, 2.0, -3.0])
def test_hidden_weights_that_are_not_ternary_name_layer_and_neuron(value: float) -> None:
    hidden = np.array([[1.0, -1.0], [0.0, 1.0], [1.0, value]])
    with pytest.raises(UnsupportedModelError, match=rf"W1: neuron 2 has weight {value:g};"):
        Network.from_arrays(
            [np.eye(2), hidden, np.ones((2, 3))], [np.zeros(2), np.zeros(3), np.zeros(2)]
        )


def test_a_zero_row_before_the_bad_one_does_not_shift_its_name() -> None:
    hidden = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    with pytest.raises(UnsupportedModelError, match="neuron 2 "):
        Network.from_arrays(
            [np.eye(2), hidden, np.ones((2, 4))], [np.zeros(2), np.zeros(4), np.zeros(2)]
        )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"W1": np.ones((2, 5))}, "W1: weights take 5 inputs, the layer before has 3"),
        ({"b0": np.zeros(2)}, r"b0 has shape \(2,\); expected \(3,\)"),
        ({"b1": np.zeros((2, 1))}, "b1 has shape"),
        ({"W0": np.array([[1.0, math.nan], [1, 1], [1, 1]])}, "W0 contains NaN"),
        ({"W1": np.array([[1.0, math.inf, 0], [1, 1, 1]])}, "W1 contains NaN or infinity"),
        ({"b0": np.array([0, math.nan, 0])}, "b0 contains NaN"),
        ({"b1": np.array([0, -math.inf])}, "b1 contains NaN or infinity"),
        ({"W0": np.zeros((3, 0))}, "W0 has shape"),
        ({"W0": np.zeros(3)}, "W0 has shape"),
        ({"W0": np.ones((3, 2), dtype=complex)}, "W0 has shape .* type complex128"),
    ],
)
def test_unusable_arrays_are_refused_by_name(change: dict[str, Array], reason: str) -> None:
    arrays = {"W0": np.ones((3, 2)), "b0": np.zeros(3), "W1": np.ones((2, 3)), "b1": np.zeros(2)}
    arrays.update(change)
    with pytest.raises(FormatError, match=reason):
        Network.from_arrays([arrays["W0"], arrays["W1"]], [arrays["b0"], arrays["b1"]])


def test_networks_without_a_hidden_layer_are_refused() -> None:
    with pytest.raises(FormatError, match="at least one hidden layer"):
        Network.from_arrays([np.eye(2)], [np.zeros(2)])
    with pytest.raises(UnsupportedModelError, match="no sign activation"):
        describe(stage(np.eye(2), Shift(np.zeros(2))))


@pytest.mark.parametrize(
    ("lo", "hi", "reason"),
    [
        ([0.0, 0.0], [1.0, -1.0], "input_lo is above input_hi"),
        ([0.0, 0.0, 0.0], None, "input bounds of shape"),
        (None, [math.nan, 1.0], "NaN or infinite"),
    ],
)
def test_unusable_data_boxes_are_refused(
    lo: list[float] | None, hi: list[float] | None, reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        Network.from_arrays(
            [np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)], input_lo=lo, input_hi=hi
        )


WINDOWS = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])


OVERLAPPING = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 1]])


def pooled_signs(
    values: Sequence[Fraction], pool: Array, f: Callable[[int, Fraction], Fraction], sign_zero: str
) -> set[tuple[int, ...]]:
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]
    choices = []
    for k, window in enumerate(pool):
        v = f(k, max(values[i] for i in np.flatnonzero(window)))
        choices.append((1,) if v > 0 else (-1,) if v < 0 else zero)
    return set(product(*choices))


@pytest.mark.parametrize(
    ("sign_zero", "pool"),
    [
        ("plus", WINDOWS),
        ("minus", WINDOWS),
        ("either", WINDOWS),
        ("plus", OVERLAPPING),
        ("minus", OVERLAPPING),
    ],
)
@pytest.mark.parametrize("hidden", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("gamma", [2.0, -1.0, 0.0], ids=["increasing", "decreasing", "constant"])
def test_pooling_before_sign_is_the_sign_of_the_maximum(
    sign_zero: SignZero, pool: Array, hidden: bool, gamma: float
) -> None:
    rng = np.random.default_rng(17)
    count = pool.shape[0]
    # Overlapping windows must share their normalisation.
    mean = np.full(count, 1.0) if pool is OVERLAPPING else np.array([1.0, -1.0])
    beta = 0.0 if gamma else 0.5
    below = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    weights = rng.choice([-1.0, 1.0], (5, 3))
    pooled = stage(
        weights,
        Scale(np.full(count, 2.0)),
        normalise(np.full(count, gamma), beta, 2 * mean, 4.0),
        sign_zero=sign_zero,
        pool=pool,
    )
    first = [stage(below, Shift(np.full(3, 0.25)), sign_zero=sign_zero)] if hidden else []
    net = describe(*first, pooled, stage(np.eye(count), Shift(np.zeros(count))))

    def f(k: int, u: Fraction) -> Fraction:
        return Fraction(gamma) * (2 * u - 2 * Fraction(mean[k])) / 2 + Fraction(beta)

    ties = 0
    for signs in product((-1, 1), repeat=3):
        # In the first layer also real inputs, so that windows are close calls.
        inputs = [Fraction(s) if hidden else Fraction(s, 1 + i % 2) for i, s in enumerate(signs)]
        values = [
            sum((Fraction(w) * x for w, x in zip(row, inputs, strict=True)), Fraction(0))
            for row in weights.tolist()
        ]
        expected = pooled_signs(values, pool, f, sign_zero)
        ties += any(
            f(k, max(values[i] for i in np.flatnonzero(p))) == 0 for k, p in enumerate(pool)
        )
        found = {pattern[-1] for pattern in as_tuples(net.exact_patterns(inputs))}
        assert found == expected
        if sign_zero != "either":
            batch = net.evaluate(np.array([[float(x) for x in inputs]] * 2))
            np.testing.assert_array_equal(batch, [*expected, *expected])
    if gamma and hidden:
        assert ties > 0


def test_ties_of_overlapping_windows_are_independent() -> None:
    # At (1, 0) the windows have maxima 1 and 1 of (0, 1) and (1, 0), both on the threshold.
    weights = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    pool = np.array([[1, 1, 0], [0, 1, 1]])
    net = describe(
        stage(weights, Shift(-np.ones(2)), sign_zero="either", pool=pool),
        stage(np.eye(2), Shift(np.zeros(2))),
    )
    found = {pattern[-1] for pattern in as_tuples(net.exact_patterns([Fraction(1), Fraction(0)]))}
    assert found == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_pooled_networks_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    net = describe(
        stage(dyadic(rng, 5, 3), Shift(np.array([0.5, -0.25])), pool=WINDOWS),
        stage(ternary(rng, 2, 2), Shift(np.zeros(2))),
    )
    net.save(tmp_path / "net.npz")
    back = load(tmp_path / "net.npz")
    assert back.content_hash == net.content_hash
    points = dyadic(rng, 40, 3)
    np.testing.assert_array_equal(back.evaluate(points), net.evaluate(points))


def test_overlapping_windows_may_have_different_thresholds() -> None:
    # max(u_0, u_1) - 1 and max(u_1, u_2) + 1 with u = x: both windows see neuron 1.
    net = describe(
        stage(np.eye(3), Shift(np.array([-1.0, 1.0])), pool=np.array([[1, 1, 0], [0, 1, 1]])),
        stage(np.eye(2), Shift(np.zeros(2))),
    )
    points = np.array([[0.0, 0.0, -5.0], [0.0, 2.0, -5.0], [-5.0, -2.0, -3.0], [3.0, -2.0, -2.0]])
    expected = [[-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]
    assert net.evaluate(points).tolist() == expected


def test_pooling_scores_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="max-pooling of scores"):
        describe(
            stage(np.eye(5), Shift(np.zeros(5))), stage(np.eye(5), Shift(np.zeros(2)), pool=WINDOWS)
        )


def test_a_neuron_outside_all_windows_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="has no window"):
        describe(
            stage(np.eye(3), Shift(np.zeros(1)), pool=np.array([[1, 1, 0]])),
            stage(np.ones((2, 1)), Shift(np.zeros(2))),
        )


def output_network(weights: Array, *steps: ElementwiseStep) -> Network:
    width = weights.shape[1]
    return describe(stage(np.eye(width), Shift(np.zeros(width))), stage(weights, *steps))


def test_irrational_common_gain_keeps_comparisons_exact() -> None:
    weights = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [0.0, 1.0, 0.0]])
    net = output_network(weights, normalise(np.full(3, 3.0), 0.0, 0.0, 2.0))
    assert net.output.gain == pytest.approx(3 / math.sqrt(2))
    np.testing.assert_array_equal(net.output.weights, weights)
    assert net.output.error.tolist() == [0.0, 0.0, 0.0]
    # Scores 1 and 1 up to the gain: a tie, exactly.
    assert net.evaluate_exactly([2.0, 2.0, 2.0]) == [1, 1, 1]
    np.testing.assert_allclose(
        net.evaluate([2.0, 2.0, -2.0]), np.array([3.0, -1.0, 1.0]) * 3 / math.sqrt(2), rtol=1e-15
    )


def test_common_irrational_offset_cancels_in_a_comparison() -> None:
    weights = np.array([[1.0, 1.0], [1.0, -1.0]])
    net = output_network(weights, normalise(np.full(2, 1.0), np.full(2, 0.5), 0.0, 2.0))
    assert np.all(net.output.error > 0)
    assert net.evaluate_exactly([1.0, 1.0]) is None
    objective = score_objective(net, {0: Fraction(1), 1: Fraction(-1)})
    assert objective.error == 0
    assert objective.exactly(np.array([1, 1])) == 2
    assert objective.exactly(np.array([1, -1])) == -2


def test_different_irrational_gains_are_known_up_to_a_stated_error() -> None:
    weights = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    net = output_network(weights, normalise([1.0, 1.0], [0.5, 0.25], [0.0, 1.0], [2.0, 3.0]))
    assert net.output.gain == 1.0
    assert np.all(net.output.error > 0)
    assert np.all(net.output.error < 1e-14)
    for signs in product((1, -1), repeat=3):
        for j, (mean, beta, square) in enumerate(((0, 0.5, 2), (1, 0.25, 3))):
            held = exact_scores(net.output.weights[[j]], net.output.bias[[j]], signs)[0]
            integer = exact_scores(weights[[j]], np.zeros(1), signs)[0] - mean
            error = Fraction(float(net.output.error[j]))
            # The true score is integer / sqrt(square) + beta; compare by squaring.
            low, high = held - error - Fraction(beta), held + error - Fraction(beta)
            assert signed_square(low) <= signed_square(integer) / square <= signed_square(high)


def signed_square(value: Fraction) -> Fraction:
    return value * abs(value)


@pytest.mark.parametrize("divisor", [3.0, 7.0])
def test_different_rational_gains_are_known_up_to_a_stated_error(divisor: float) -> None:
    weights = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, 0.0]])
    steps = (Divide(np.array([divisor, 1.0])), Shift(np.array([0.1, 0.2])))
    net = output_network(weights, *steps)
    assert net.output.error[0] > 0
    assert net.output.error[1] == 0
    for signs in product((1, -1), repeat=3):
        held = exact_scores(net.output.weights, net.output.bias, signs)
        raw = exact_scores(weights, np.zeros(2), signs)
        true = [raw[0] / Fraction(divisor) + Fraction(0.1), raw[1] + Fraction(0.2)]
        assert abs(held[0] - true[0]) <= Fraction(float(net.output.error[0]))
        assert held[1] == true[1]


def test_dyadic_gains_are_exact() -> None:
    weights = np.array([[1.0, -1.0], [3.0, 1.0]])
    net = output_network(weights, Scale(np.array([0.5, -4.0])), Shift(np.array([1.0, 0.0])))
    assert net.output.error.tolist() == [0.0, 0.0]
    assert net.evaluate_exactly([1.0, -1.0]) == [2, -8]


def test_irrational_outputs_are_saved_as_what_they_are_made_of(tmp_path: Path) -> None:
    net = output_network(np.eye(2), normalise([1.0, 1.0], 0.0, 0.0, [2.0, 3.0]))
    net.save(tmp_path / "net.npz")
    again = load(tmp_path / "net.npz")
    assert again.output.error.tolist() == net.output.error.tolist()
    assert min(again.output.error) > 0
    assert again.content_hash == net.content_hash
