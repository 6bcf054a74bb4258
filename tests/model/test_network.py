"""Networks: evaluation, identity, and how they are printed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.errors import InputError
from bnncert.model import network as network_module
from bnncert.model.description import Divide, ElementwiseStep, Normalise, Scale, Shift, SignZero
from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.problem import robustness
from tests.brute_force import TinyNetwork
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
from tests.strategies import tiny_networks


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


@pytest.mark.parametrize("suffix", ["json", "npz", "onnx"])
@given(seed=st.integers(0, 2**32 - 1))
@CASES
def test_chains_with_irrational_numbers_are_read_back_the_same(suffix: str, seed: int) -> None:
    """First layers and outputs with any steps, negative and zero scales included."""
    rng = np.random.default_rng(seed)
    sign_zero = SIGN_ZEROS[rng.integers(3)]

    def steps(count: int) -> list[ElementwiseStep]:
        kinds = (
            lambda: Scale(rng.choice([-0.5, 0.3, 1.0, 3.0], count)),
            lambda: Shift(dyadic(rng, count) + 0.1),
            lambda: Divide(rng.choice([-3.0, 0.7, 1.0], count)),
        )
        gamma = rng.choice([-1.5, 0.0, 0.25, 2.0], count)
        numbers = (dyadic(rng, count), dyadic(rng, count), rng.uniform(0.1, 3, count))
        norm = Normalise(gamma, *numbers, np.full(count, 2.0**-10))
        some = [kinds[k]() for k in rng.integers(3, size=rng.integers(3))]
        return [*some, norm, *([kinds[rng.integers(3)]()] if rng.integers(2) else [])]

    weights = dyadic(rng, 4, 3) if rng.integers(2) else ternary(rng, 4, 3)
    net = describe(
        stage(weights, *steps(4), sign_zero=sign_zero),
        stage(ternary(rng, 3, 4), *steps(3), sign_zero=sign_zero),
        stage(dyadic(rng, 2, 3), *steps(2)),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{suffix}"
        net.save(path)
        assert load(path).content_hash == net.content_hash


def test_a_changed_layer_with_an_irrational_threshold_is_not_written(tmp_path: Path) -> None:
    """The numbers of its file would be those of another layer."""
    net = irrational_network("plus")
    layer = net.layers[0]
    wider = replace(layer, bias_hi=layer.enclosure[1] + 1)
    with pytest.raises(InputError, match="changed after it was read"):
        replace(net, layers=(wider,)).save(tmp_path / "net.json")
    alone = replace(layer, described=None)
    with pytest.raises(InputError, match="does not come from a file"):
        replace(net, layers=(alone,)).save(tmp_path / "net.json")
    assert not list(tmp_path.iterdir())


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


def network(hidden: int = 1) -> bnncert.Network:
    """Return 3 inputs, some layers of 2 neurons, 2 classes."""
    weights = [np.array([[1.0, 0.0, -1.0], [1.0, 1.0, 0.0]])]
    weights += [np.array([[1.0, 1.0], [1.0, -1.0]])] * hidden
    return bnncert.Network.from_arrays(
        weights, [np.full(2, 0.5)] * len(weights), input_lo=-1.0, input_hi=1.0
    )


def test_a_network_is_a_table_of_layers() -> None:
    made = network()
    assert repr(made) == "Network(3-2-2, <arrays>)"
    lines = str(made).splitlines()
    assert lines[0] == "Network 3-2-2, <arrays>"
    assert lines[2].split() == ["1", "dense", "2", "3", "-1,", "0,", "1", "33.3", "%", "plus"]
    assert lines[3].split() == ["output", "dense", "2", "2", "-1,", "1", "0.0", "%"]
    assert lines[4] == "inputs of shape 3 in [-1, 1]"
    assert made._repr_html_().count("<tr>") == 3


def test_deep_networks_stay_short() -> None:
    assert len(str(network(hidden=40)).splitlines()) <= 13


@pytest.mark.parametrize(
    ("region", "text"),
    [
        (
            bnncert.Ball("l2", np.zeros(3), 0.5, -1.0, 1.0),
            "Ball(l2, radius 0.5, data box [-1, 1], 3 inputs)",
        ),
        (bnncert.Ball("linf", np.zeros(3), 0.5), "Ball(linf, radius 0.5, 3 inputs)"),
        (
            bnncert.L0Ball(np.zeros(3), 2, -1.0, 1.0, within=0.25),
            "L0Ball(at most 2 changes, by at most 0.25, data box [-1, 1], 3 inputs)",
        ),
        (
            bnncert.Box([0.0, 0.0], [1.0, 0.0], grid=bnncert.Grid(0.5)),
            "Box([0, 1], 1 of the inputs can change, 2 inputs, grid of step 0.5 from 0)",
        ),
    ],
)
def test_regions_say_what_they_are(region: bnncert.Region, text: str) -> None:
    assert repr(region) == text


def test_problems_and_results() -> None:
    made = network()
    ball = bnncert.Ball("linf", np.zeros(3), 0.1)
    label = int(made.classify(np.zeros(3))[0])
    problem = robustness(made, ball, label)
    assert repr(problem) == (
        f"Problem({made!r}, {ball!r}, label {label}, 1 target (class {1 - label}))"
    )
    result = bnncert.verify(made, ball, label)
    assert repr(result).startswith(f"Result({result.status.replace('_', ' ')} by auto, in ")
    lines = str(result).splitlines()
    assert lines[1].split()[:2] == ["target", "answer"]
    assert lines[2].split()[:2] == ["class", str(1 - label)]
    assert f"class {1 - label}" in result._repr_html_()
