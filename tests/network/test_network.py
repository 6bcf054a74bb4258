"""The normal form: evaluation, exact evaluation, hashes, pooling and convolutions.

Expected values come from loops over the raw weights, in NumPy or in rationals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert.description.matrices import as_sparse
from bnncert.description.model import (
    Convolution,
    Divide,
    ElementwiseStep,
    ModelDescription,
    Normalise,
    Scale,
    Shift,
    SignZero,
    Stage,
)
from bnncert.errors import FormatError, InputError, UnsupportedModelError
from bnncert.network import Network, load
from bnncert.network import network as network_module
from bnncert.network.operators import (
    ConvolutionOperator,
    DenseOperator,
    SparseOperator,
    make_operator,
)
from bnncert.problem import score_objective
from tests.brute_force import TinyNetwork
from tests.strategies import tiny_networks

CASES = settings(max_examples=60, deadline=None, derandomize=True)

Array = npt.NDArray[Any]
SIGN_ZEROS: tuple[SignZero, ...] = ("plus", "minus", "either")


def ternary(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-1, 2, shape).astype(np.float64)


def dyadic(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers with few bits, so that float sums of products are exact."""
    return rng.integers(-64, 65, shape) / 32.0


def random_arrays(
    rng: np.random.Generator, sizes: Sequence[int], real_first: bool = True
) -> tuple[list[Array], list[Array]]:
    weights, biases = [], []
    for i in range(len(sizes) - 1):
        shape = (sizes[i + 1], sizes[i])
        real = (i == 0 and real_first) or i == len(sizes) - 2
        weights.append(dyadic(rng, *shape) if real else ternary(rng, *shape))
        biases.append(rng.integers(-6, 7, shape[0]) / 2.0)
    return weights, biases


def naive_scores(
    weights: Sequence[Array], biases: Sequence[Array], point: Array, at_zero: int
) -> Array:
    x = point
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        values = [sum(w[j, i] * x[i] for i in range(x.size)) + b[j] for j in range(b.size)]
        x = np.array([1.0 if v > 0 else -1.0 if v < 0 else float(at_zero) for v in values])
    return np.asarray(weights[-1] @ x + biases[-1])


def exact_patterns(
    weights: Sequence[Array], biases: Sequence[Array], point: Sequence[Fraction], sign_zero: str
) -> set[tuple[tuple[int, ...], ...]]:
    """Return the signs of all layers that the raw weights allow, in rationals."""
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]
    patterns: set[tuple[tuple[int, ...], ...]] = {()}
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        longer = set()
        for pattern in patterns:
            below: Sequence[Fraction | int] = pattern[-1] if pattern else point
            choices = []
            for row, c in zip(w.tolist(), b.tolist(), strict=True):
                v = sum((Fraction(p) * q for p, q in zip(row, below, strict=True)), Fraction(c))
                choices.append((1,) if v > 0 else (-1,) if v < 0 else zero)
            longer |= {(*pattern, signs) for signs in product(*choices)}
        patterns = longer
    return patterns


def exact_scores(w: Array, b: Array, signs: Sequence[int]) -> list[Fraction]:
    return [
        sum((Fraction(p) * s for p, s in zip(row, signs, strict=True)), Fraction(c))
        for row, c in zip(w.tolist(), b.tolist(), strict=True)
    ]


def as_tuples(patterns: Any) -> set[tuple[tuple[int, ...], ...]]:
    return {tuple(tuple(int(v) for v in layer) for layer in pattern) for pattern in patterns}


def stage(
    weights: Array,
    *steps: ElementwiseStep,
    sign_zero: SignZero | None = None,
    pool: Array | None = None,
) -> Stage:
    incidence = None if pool is None else sp.csr_array(pool)
    return Stage(as_sparse(weights), steps, "stage", sign_zero=sign_zero, pool=incidence)


def describe(*stages: Stage, inputs: int | None = None) -> Network:
    width = stages[0].weights.shape[1] if inputs is None else inputs
    return Network.from_description(ModelDescription(stages, (width,), source="file"))


def normalise(gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float = 0.0) -> Normalise:
    columns = np.broadcast_arrays(gamma, beta, mean, variance, epsilon)
    return Normalise(*(np.atleast_1d(np.array(c, dtype=np.float64)) for c in columns))


# --- floating-point evaluation ---------------------------------------------------------------


@pytest.mark.parametrize("at_zero", [1, -1])
@pytest.mark.parametrize("sizes", [(5, 4, 3), (4, 6, 5, 2), (3, 4, 5, 4, 3)])
def test_batched_evaluation_is_a_loop_over_neurons(sizes: tuple[int, ...], at_zero: int) -> None:
    rng = np.random.default_rng(sum(sizes))
    sign_zero: SignZero = "plus" if at_zero > 0 else "minus"
    for _ in range(5):
        weights, biases = random_arrays(rng, sizes)
        net = Network.from_arrays(weights, biases, sign_zero=sign_zero)
        points = dyadic(rng, 30, sizes[0])
        expected = [naive_scores(weights, biases, x, at_zero) for x in points]
        np.testing.assert_array_equal(net.evaluate(points), expected)
        np.testing.assert_array_equal(net.evaluate(points[3]), expected[3])
        assert net.classify(points).tolist() == [int(np.argmax(s)) for s in expected]


@pytest.mark.parametrize("sign_zero", ["plus", "minus"])
def test_float_evaluation_agrees_with_the_exact_one_on_a_threshold(sign_zero: SignZero) -> None:
    net = Network.from_arrays(
        [[[1.0, -2.0]], [[1.0], [-1.0]]], [[0.5], [0.0, 0.0]], sign_zero=sign_zero
    )
    point = np.array([1.5, 1.0])
    expected = [1, -1] if sign_zero == "plus" else [-1, 1]
    assert net.evaluate_exactly(point) == expected
    assert net.evaluate(point).tolist() == expected


def test_evaluation_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    weights, biases = random_arrays(rng, (4, 7, 5, 3))
    net = Network.from_arrays(weights, biases)
    points = dyadic(rng, 23, 4)
    at_once = net.evaluate(points)
    monkeypatch.setattr(network_module, "BATCH_FLOATS", 30)
    np.testing.assert_array_equal(net.evaluate(points), at_once)


def test_points_may_have_the_shape_of_the_file() -> None:
    rng = np.random.default_rng(4)
    weights, biases = random_arrays(rng, (6, 4, 2))
    net = Network.from_arrays(weights, biases, input_shape=(1, 2, 3))
    points = dyadic(rng, 5, 6)
    expected = np.array([naive_scores(weights, biases, x, 1) for x in points])
    np.testing.assert_array_equal(net.evaluate(points.reshape(5, 1, 2, 3)), expected)
    np.testing.assert_array_equal(net.evaluate(points[0].reshape(1, 2, 3)), expected[0])


@pytest.mark.parametrize("shape", [(3,), (5,), (2, 3), (2, 6), (0,), (0, 4), ()])
def test_points_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    net = Network.from_arrays([np.eye(4), np.ones((2, 4))], [np.zeros(4), np.zeros(2)])
    with pytest.raises(InputError, match="4 values"):
        net.evaluate(np.ones(shape))


# --- exact evaluation ------------------------------------------------------------------------

quarters = st.integers(-12, 12).map(lambda v: Fraction(v, 4))


@CASES
@given(net=tiny_networks(), point=st.tuples(quarters, quarters))
def test_exact_patterns_are_those_of_the_raw_weights(
    net: TinyNetwork, point: tuple[Fraction, ...]
) -> None:
    built = net.build()
    expected = exact_patterns(net.weights, net.biases, point, net.sign_zero)
    for given_as in (point, np.array([float(v) for v in point])):
        found = list(built.exact_patterns(given_as))
        assert len(found) == len(expected)
        assert as_tuples(found) == expected
        scores = built.evaluate_exactly(given_as)
        if len(expected) > 1:
            assert scores is None
        else:
            (pattern,) = expected
            assert scores == exact_scores(net.weights[-1], net.biases[-1], pattern[-1])


@CASES
@given(
    seed=st.integers(0, 10**6),
    sign_zero=st.sampled_from(["plus", "minus"]),
    step=st.sampled_from([0.0, math.inf, -math.inf]),
)
def test_points_one_float_from_a_threshold_are_decided(
    seed: int, sign_zero: SignZero, step: float
) -> None:
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(3, 4))
    x = rng.normal(size=4)
    # Close to the threshold of every neuron, and mostly not representable on it.
    b = -(w @ x)
    if step:
        x = np.nextafter(x, step)
    out = np.array([[1.0, 2.0, 4.0], [0.0, 1.0, 0.0]])
    net = Network.from_arrays([w, out], [b, np.zeros(2)], sign_zero=sign_zero)
    exact = [Fraction(v) for v in x.tolist()]
    (pattern,) = exact_patterns([w, out], [b, np.zeros(2)], exact, sign_zero)
    expected = exact_scores(out, np.zeros(2), pattern[-1])
    assert net.evaluate_exactly(x) == expected
    assert net.evaluate_exactly(exact) == expected


def test_third_of_a_unit_is_on_a_threshold_only_as_a_rational() -> None:
    net = Network.from_arrays([[[2.0, 1.0]], [[1.0], [-1.0]]], [[-1.0], [0.0, 0.0]])
    third = Fraction(1, 3)
    minus = net.with_sign_zero("minus")
    assert net.evaluate_exactly([third, third]) == [1, -1]
    assert minus.evaluate_exactly([third, third]) == [-1, 1]
    # The float 1/3 is below a third.
    assert net.evaluate_exactly([1 / 3, 1 / 3]) == minus.evaluate_exactly([1 / 3, 1 / 3]) == [-1, 1]


def test_rows_of_equal_magnitude_keep_their_rational_threshold() -> None:
    # 3x + 1 = 0 has no float solution, but -1/3 is a rational one.
    net = Network.from_arrays([[[3.0]], [[1.0], [-1.0]]], [[1.0], [0.0, 0.0]])
    assert net.evaluate_exactly([Fraction(-1, 3)]) == [1, -1]
    assert net.with_sign_zero("minus").evaluate_exactly([Fraction(-1, 3)]) == [-1, 1]


def irrational_network(sign_zero: SignZero) -> Network:
    """x -> sign(x / sqrt 2 - 1), whose threshold is sqrt 2."""
    return describe(
        stage(np.array([[1.0]]), normalise(1.0, -1.0, 0.0, 2.0), sign_zero=sign_zero),
        stage(np.array([[1.0], [-1.0]]), Shift(np.zeros(2))),
    )


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
def test_points_inside_the_enclosure_of_an_irrational_threshold_have_no_value(
    sign_zero: SignZero,
) -> None:
    net = irrational_network(sign_zero)
    layer = net.layers[0]
    assert layer.bias_lo is not None
    assert layer.bias_hi is not None
    lo, hi = -Fraction(float(layer.bias_hi[0])), -Fraction(float(layer.bias_lo[0]))
    assert lo**2 < 2 < hi**2
    assert net.evaluate_exactly([(lo + hi) / 2]) is None
    assert list(net.exact_patterns([(lo + hi) / 2])) == []


@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
def test_points_beside_the_enclosure_of_an_irrational_threshold_are_decided(
    sign_zero: SignZero,
) -> None:
    net = irrational_network(sign_zero)
    root = math.sqrt(2)
    for x in (root - 2**-51, root + 2**-51):
        expected = 1 if Fraction(x) ** 2 > 2 else -1
        assert net.evaluate_exactly([x]) == [expected, -expected]


@pytest.mark.parametrize("count", [3, 5])
def test_exact_points_of_another_size_are_refused(count: int) -> None:
    net = Network.from_arrays([np.eye(4), np.ones((2, 4))], [np.zeros(4), np.zeros(2)])
    with pytest.raises(InputError, match="4"):
        net.evaluate_exactly([Fraction(1)] * count)


def test_points_that_are_not_numbers_are_refused() -> None:
    net = Network.from_arrays([np.eye(2), np.ones((2, 2))], [np.zeros(2), np.zeros(2)])
    for evaluate in (net.evaluate, net.evaluate_exactly):
        with pytest.raises(InputError, match=r"(?i)nan|finite"):
            evaluate(np.array([math.nan, 0.0]))


# --- from weights to the normal form ---------------------------------------------------------


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


def test_sizes_and_sparsity() -> None:
    net = Network.from_arrays(
        [[[1, 0, 0], [0, -1, 1]], [[1, 0], [1, 1]]], [[0, 0], [0, 0]], input_shape=(3, 1)
    )
    assert (net.inputs, net.depth, net.classes) == (3, 1, 2)
    assert net.sizes == (3, 2, 2)
    assert net.zero_fraction == pytest.approx(4 / 10)
    assert net.sign_zero == "plus"
    assert net.with_sign_zero("either").sign_zero == "either"
    with pytest.raises(InputError, match="sign-zero is 'zero'"):
        net.with_sign_zero("zero")  # type: ignore[arg-type]


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


# --- what is refused -------------------------------------------------------------------------


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


# --- content hash and files ------------------------------------------------------------------


def arrays_of(seed: int) -> tuple[list[Array], list[Array]]:
    return random_arrays(np.random.default_rng(seed), (5, 6, 4, 3))


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize("sign_zero", SIGN_ZEROS)
def test_saved_networks_read_back_as_themselves(
    tmp_path: Path, suffix: str, sign_zero: SignZero
) -> None:
    rng = np.random.default_rng(8)
    weights, biases = arrays_of(8)
    net = Network.from_arrays(
        weights,
        biases,
        sign_zero=sign_zero,
        input_lo=np.full(5, -1.5),
        input_hi=np.full(5, 0.1),
        input_shape=(5, 1),
    )
    path = tmp_path / f"net{suffix}"
    net.save(path)
    back = load(path)
    assert back.content_hash == net.content_hash
    assert back.sign_zero == sign_zero
    assert back.input_shape == (5, 1)
    assert back.input_lo is not None
    assert back.input_hi is not None
    np.testing.assert_array_equal(back.input_lo, np.full(5, -1.5))
    np.testing.assert_array_equal(back.input_hi, np.full(5, 0.1))
    for _ in range(10):
        point = [Fraction(int(v), 64) for v in rng.integers(-128, 129, 5)]
        expected = exact_patterns(weights, biases, point, sign_zero)
        assert as_tuples(back.exact_patterns(point)) == expected


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_network_from_batch_normalisation_reads_back(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(9)
    net = describe(
        stage(ternary(rng, 4, 3), Shift(rng.normal(size=4))),
        stage(ternary(rng, 5, 4), normalise(rng.normal(size=5), 0.3, 0.7, 2.0, 1e-5)),
        stage(rng.normal(size=(2, 5)), Shift(rng.normal(size=2))),
    )
    net.save(tmp_path / f"net{suffix}")
    back = load(tmp_path / f"net{suffix}")
    assert back.content_hash == net.content_hash
    points = rng.normal(size=(50, 3))
    np.testing.assert_array_equal(back.evaluate(points), net.evaluate(points))


def test_a_first_layer_of_equal_magnitudes_can_be_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    weights = [0.1 * ternary(rng, 4, 3), ternary(rng, 2, 4)]
    biases = [rng.normal(size=4), np.zeros(2)]
    net = Network.from_arrays(weights, biases)
    net.save(tmp_path / "net.npz")
    assert load(tmp_path / "net.npz").content_hash == net.content_hash


def test_a_network_with_irrational_first_thresholds_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neuron 0 has an irrational bias"):
        irrational_network("plus").save(tmp_path / "net.npz")


def test_hash_ignores_storage_type_and_negative_zero() -> None:
    weights = [[[1, 0, -1], [0, 1, 1]], [[1, -1], [0, 1]], [[2, -1], [0, 3]]]
    biases = [[0.0, 1.0], [1.0, 0.0], [0.0, -2.0]]
    hashes = {
        Network.from_arrays([np.array(w, dtype=kind) for w in weights], biases).content_hash
        for kind in (np.int8, np.int32, np.float32, np.float64)
    }
    negative = [np.array(w, dtype=np.float64) for w in weights]
    for w in negative:
        w[w == 0] = -0.0
    signed = [[-0.0, 1.0], [1.0, -0.0], [-0.0, -2.0]]
    hashes.add(Network.from_arrays(negative, signed).content_hash)
    assert len(hashes) == 1


def test_hash_ignores_how_a_lattice_threshold_is_written() -> None:
    weights = [np.eye(3), np.ones((1, 3)), np.array([[1.0], [-1.0]])]

    def hashed(bias: float, factor: float = 1.0) -> str:
        scaled = [weights[0], factor * weights[1], weights[2]]
        return Network.from_arrays(
            scaled, [np.zeros(3), np.array([bias]), np.zeros(2)]
        ).content_hash

    # u in {-3, -1, 1, 3}: every bias strictly between -1 and 1 is the same neuron.
    assert hashed(0.9) == hashed(-0.9) == hashed(0.45, 0.5)
    assert hashed(0.9) != hashed(1.0) != hashed(1.1)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_hash_changes_with_any_number(layer: int, kind: str) -> None:
    weights, biases = arrays_of(12)
    before = Network.from_arrays(weights, biases).content_hash
    assert Network.from_arrays(*arrays_of(12)).content_hash == before
    if kind == "weight":
        row, column = (int(v) for v in np.argwhere(weights[layer] != 0)[-1])
        weights[layer][row, column] *= -1
    else:
        biases[layer][-1] += 4.0 if layer == 1 else 2.0**-40
    assert Network.from_arrays(weights, biases).content_hash != before


def test_hash_changes_with_sign_zero_and_shape() -> None:
    weights, biases = arrays_of(13)
    net = Network.from_arrays(weights, biases)
    hashes = {net.with_sign_zero(s).content_hash for s in SIGN_ZEROS}
    wider = [np.hstack([weights[0], np.zeros((6, 1))]), *weights[1:]]
    hashes.add(Network.from_arrays(wider, biases).content_hash)
    assert len(hashes) == 4


def test_unknown_suffix_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"net\.txt: cannot write"):
        Network.from_arrays(*arrays_of(1)).save(tmp_path / "net.txt")


# --- max-pooling -----------------------------------------------------------------------------

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
            stage(np.eye(5), Shift(np.zeros(5))),
            stage(np.eye(5), Shift(np.zeros(2)), pool=WINDOWS),
        )


def test_a_neuron_outside_all_windows_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="has no window"):
        describe(
            stage(np.eye(3), Shift(np.zeros(1)), pool=np.array([[1, 1, 0]])),
            stage(np.ones((2, 1)), Shift(np.zeros(2))),
        )


# --- output layers ---------------------------------------------------------------------------


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


def test_irrational_outputs_cannot_be_saved(tmp_path: Path) -> None:
    net = output_network(np.eye(2), normalise([1.0, 1.0], 0.0, 0.0, [2.0, 3.0]))
    with pytest.raises(InputError, match="irrational output"):
        net.save(tmp_path / "net.npz")


# --- operators -------------------------------------------------------------------------------


def convolution_rows(c: Convolution, flip: Array) -> Array:
    """Write the convolution out as a matrix, one output cell and kernel entry at a time."""
    out, inner, kh, kw = c.kernel.shape
    channels, height, width = c.shape
    top, left, bottom, right = c.pads
    oh = (height + top + bottom - c.dilations[0] * (kh - 1) - 1) // c.strides[0] + 1
    ow = (width + left + right - c.dilations[1] * (kw - 1) - 1) // c.strides[1] + 1
    full = np.zeros((out * oh * ow, channels * height * width))
    for o, y, x in product(range(out), range(oh), range(ow)):
        group = o // (out // c.groups)
        for i, a, b in product(range(inner), range(kh), range(kw)):
            row = y * c.strides[0] + a * c.dilations[0] - top
            column = x * c.strides[1] + b * c.dilations[1] - left
            if 0 <= row < height and 0 <= column < width:
                cell = ((group * inner + i) * height + row) * width + column
                full[(o * oh + y) * ow + x, c.source[cell]] += c.kernel[o, i, a, b]
    return flip[:, None] * full[c.rows]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, Array]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    groups = draw(st.sampled_from([1, 1, 2]))
    inner, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels = groups * inner
    kernel_size = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    height = draw(st.integers(1, 3)) + dilations[0] * (kernel_size[0] - 1)
    width = draw(st.integers(1, 3)) + dilations[1] * (kernel_size[1] - 1)
    inputs = channels * height * width
    source = rng.permutation(inputs) if draw(st.booleans()) else np.arange(inputs)
    oh = (height + pads[0] + pads[2] - dilations[0] * (kernel_size[0] - 1) - 1) // strides[0] + 1
    ow = (width + pads[1] + pads[3] - dilations[1] * (kernel_size[1] - 1) - 1) // strides[1] + 1
    rows = np.arange(groups * per_group * oh * ow)
    if draw(st.booleans()):
        rows = rng.permutation(rows)[: draw(st.integers(1, rows.size))]
    convolution = Convolution(
        kernel=rng.integers(-3, 4, (groups * per_group, inner, *kernel_size)).astype(np.float64),
        shape=(channels, height, width),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        source=source.astype(np.int64),
        rows=rows.astype(np.int64),
    )
    return convolution, rng.choice([-1.0, 0.0, 1.0], rows.size)


@CASES
@given(case=convolutions(), count=st.integers(1, 3), kind=st.sampled_from([np.float32, np.float64]))
def test_convolution_operator_is_its_matrix(
    case: tuple[Convolution, Array], count: int, kind: type
) -> None:
    convolution, flip = case
    matrix = convolution_rows(convolution, flip)
    operator = ConvolutionOperator(convolution, flip, kind)
    rng = np.random.default_rng(count)
    ahead = rng.integers(-4, 5, (count, matrix.shape[1])).astype(kind)
    back = rng.integers(-4, 5, (count, matrix.shape[0])).astype(kind)
    np.testing.assert_array_equal(operator.forward(ahead), ahead @ matrix.T)
    np.testing.assert_array_equal(operator.backward(back), back @ matrix)
    assert operator.forward(ahead).dtype == kind
    assert operator.backward(back).dtype == kind


@pytest.mark.parametrize("kind", [DenseOperator, SparseOperator])
def test_matrix_operators_are_their_matrix(kind: type[DenseOperator | SparseOperator]) -> None:
    rng = np.random.default_rng(2)
    matrix = ternary(rng, 6, 9)
    operator = kind(sp.csr_array(matrix), np.float64)
    ahead, back = rng.normal(size=(4, 9)), rng.normal(size=(4, 6))
    np.testing.assert_allclose(operator.forward(ahead), ahead @ matrix.T, atol=1e-14)
    np.testing.assert_allclose(operator.backward(back), back @ matrix, atol=1e-14)


def test_operator_is_chosen_by_density() -> None:
    sparse = sp.csr_array(np.eye(40))
    assert isinstance(make_operator(sparse, None, None, np.float64), SparseOperator)
    assert isinstance(make_operator(sp.csr_array(np.eye(10)), None, None, float), DenseOperator)


def test_convolutional_layer_evaluates_like_its_matrix() -> None:
    rng = np.random.default_rng(6)
    convolution = Convolution(
        kernel=rng.choice([-1.0, 1.0], (2, 1, 2, 2)),
        shape=(1, 3, 3),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        groups=1,
        source=np.arange(9),
        rows=np.arange(8),
    )
    matrix = convolution_rows(convolution, np.ones(8))
    gamma = np.repeat([1.0, -1.0], 4)
    batch_norm = normalise(gamma, 0.0, 0.5, 1.0)
    layer = Stage(as_sparse(matrix), (batch_norm,), "conv", convolution=convolution)
    net = describe(layer, stage(dyadic(rng, 3, 8), Shift(np.zeros(3))))
    weights = [gamma[:, None] * matrix, net.output.weights]
    biases = [-0.5 * gamma, np.zeros(3)]
    points = dyadic(rng, 20, 9)
    expected = [naive_scores(weights, biases, x, 1) for x in points]
    np.testing.assert_array_equal(net.evaluate(points), expected)
    assert [net.evaluate_exactly(x) for x in points] == [list(map(Fraction, s)) for s in expected]
