"""Small convolutional networks, as exporters write them: every method against brute force.

All but two to four pixels are pinned, so that `tests.exact_onnx` can find every sign pattern that
the region reaches and the exact minimum of every margin, from the nodes of the ONNX file alone.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

import bnncert
from bnncert import Options
from bnncert.engine.methods import REGISTRY, Method
from bnncert.engine.verdict import Result, TargetResult
from bnncert.kernel import RejectedError, check
from tests.brute_force import satisfiable
from tests.exact_onnx import Form, Graph, box, cut, faces, plane_of
from tests.model.formats.onnx_sketch import Sketch, network_of, run
from tests.tiny_convolutions import Question, inside, random_model, random_question

#: Little of everything: what an attack finds at once would never reach the exact stages.
WEAK = Options(restarts=2, iterations=1, samples=5)
MODEST = Options(restarts=8, iterations=5, samples=100)

COMPLETE = ("auto", "bab", "elimination", "milp", "minp")
SMALL = ("sdp-standard", "sdp-tight-plain", "sdp-tight", "sdp-tight-pairwise", "sdp-order2")

#: Questions for each method; the rest take MANY.
FEWER = dict.fromkeys(("attack", "auto", "bab", "elimination", "minp", "sdp"), 18)
FEWER |= dict.fromkeys(SMALL, 8)
MANY = 55

#: Seconds for one question.  An attack on a robust network would go on until the end.
SECONDS = {"attack": 0.03}


@cache
def question(seed: int, kind: str | None = None, small: bool = False) -> Question:
    return random_question(seed, kind, small)


def kind_of(region: bnncert.Region) -> str:
    return region.norm if isinstance(region, bnncert.Ball) else type(region).__name__.lower()


def point_of(found: bnncert.Counterexample) -> list[Fraction]:
    if found.exact is not None:
        return list(found.exact)
    return [Fraction(v) for v in found.point.tolist()]


def check_counterexample(asked: Question, target: TargetResult) -> None:
    """Replay a counterexample with the oracle, and in onnxruntime where rounding is harmless."""
    found = target.counterexample
    assert found is not None and target.rival is not None
    point = point_of(found)
    assert inside(asked.region, point)
    shape = asked.network.input_shape
    scores, walk = asked.graph.evaluate(point, shape)
    margin = scores[asked.label] - scores[target.rival]
    assert margin <= 0
    assert found.value == margin
    floats = np.array([float(v) for v in point], dtype=np.float32)
    same = [Fraction(float(v)) for v in floats] == point
    if same and not walk.delicate and not walk.bare_zero:
        (output,) = run(asked.model, floats.reshape(1, *shape))
        assert output[asked.label] <= output[target.rival] + 1e-5


def check_answer(asked: Question, result: Result) -> None:
    """No bound and no verdict may contradict brute force."""
    assert len(result.targets) == len(asked.margins)
    for target in result.targets:
        assert target.rival is not None
        minimum = asked.margins[target.rival]
        assert target.lower <= minimum
        assert target.upper >= minimum
        if target.status == "robust":
            assert minimum > 0
        if target.status == "not_robust":
            check_counterexample(asked, target)
    if result.status == "robust":
        assert asked.is_robust
    if result.status == "not_robust":
        assert not asked.is_robust
        assert any(t.status == "not_robust" for t in result.targets)


def check_decided(asked: Question, result: Result) -> None:
    """A complete method says "unknown" only where no rational point is a counterexample.

    Or where two neurons share an irrational threshold, which is a known gap: see
    `test_two_neurons_with_one_irrational_threshold`.
    """
    expected = "robust" if asked.is_robust else "not_robust"
    if asked.truth.twins or not asked.can_be_shown:
        assert result.status in (expected, "unknown")
    else:
        assert result.status == expected


def answer(asked: Question, method: str, options: Options) -> Result:
    result = bnncert.verify(
        asked.network,
        asked.region,
        asked.label,
        method=method,
        options=options,
        timeout=SECONDS.get(method, 20),
    )
    check_answer(asked, result)
    return result


def registered(name: str) -> type[Method]:
    """Return a method; the test is skipped where its package is missing."""
    (method,) = [m for m in REGISTRY.all() if m.name == name]
    if not method.available():
        pytest.skip(f"{name} needs {method.package}: pip install 'bnncert[{method.extra}]'")
    return method


# -- the oracle itself --------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_cells_are_those_of_fourier_motzkin(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    touching = 0
    for _ in range(12):
        count = int(rng.integers(2, 4 if dimension == 3 else 5))
        rows = rng.integers(-2, 3, (count, dimension))
        rows[:, 0] += np.all(rows == 0, axis=1)
        forms = [Form(tuple(map(int, r)), Fraction(int(rng.integers(-4, 5)), 2)) for r in rows]
        limit = Fraction(int(rng.integers(-2, 3)), 2)
        body = box([Fraction(-1)] * dimension, [Fraction(1)] * dimension)
        body = cut(body, Form((1,) * dimension, limit), "cut")
        pairs = [plane_of(form) for form in forms]
        planes = list(dict.fromkeys(plane for plane, _ in pairs))
        found = set()
        for states, _ in faces(body, planes):
            side = dict(zip(planes, states, strict=True))
            found.add(tuple(s * side[plane] for plane, s in pairs))
        system = [((Fraction(-1),) * dimension, limit, False)]
        for k, s in product(range(dimension), (1, -1)):
            unit = tuple(Fraction(s if i == k else 0) for i in range(dimension))
            system.append((unit, Fraction(1), False))
        for states in product((-1, 0, 1), repeat=count):
            wanted = list(system)
            for form, s in zip(forms, states, strict=True):
                for t in (s,) if s else (1, -1):
                    # s form >= 0, strictly unless both signs are wanted.
                    slope = tuple(Fraction(-t * p) for p in form.slope)
                    wanted.append((slope, Fraction(t * form.constant), bool(s)))
            assert (states in found) == satisfiable(wanted, dimension)
        touching += sum(0 in states for states in found)
    assert touching > 30


def test_the_oracle_compares_squares() -> None:
    # 7/5 < sqrt 2 < 99/70, and 3 - sqrt 9 is nothing.
    assert Form((), Fraction(-7, 5), Fraction(2)).constant_sign() == 1
    assert Form((), Fraction(-99, 70), Fraction(2)).constant_sign() == -1
    assert Form((), Fraction(99, 70), Fraction(-2)).constant_sign() == 1
    assert Form((), Fraction(0), Fraction(-2)).constant_sign() == -1


# -- points -------------------------------------------------------------------------------


def random_points(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return points on a grid, where ties occur, and others."""
    points = rng.integers(-4, 5, size=(3, *shape)) / 4
    points[2:] += rng.uniform(-0.25, 0.25, size=points[2:].shape)
    return points.astype(np.float32)


def test_evaluation_agrees_with_the_oracle_and_with_onnxruntime() -> None:
    compared = undecided = 0
    for seed in range(80):
        rng = np.random.default_rng([seed, 99])
        model = random_model(rng).model()
        network, graph = network_of(model), Graph(model)
        points = random_points(rng, network.input_shape)
        outputs = run(model, points)
        softmax = network.output_transform == "softmax"
        for point, output in zip(points, outputs, strict=True):
            flat = [Fraction(float(v)) for v in point.reshape(-1)]
            scores, walk = graph.evaluate(flat, network.input_shape)
            patterns = list(network.exact_patterns(point.reshape(-1).astype(np.float64)))
            if not patterns:
                # Only a sum within rounding of an irrational threshold may stay open.
                assert walk.delicate
                undecided += 1
                continue
            (pattern,) = patterns
            assert network.output.exactly(pattern[-1]) == list(scores)
            assert network.evaluate_exactly(flat) == list(scores)
            if walk.delicate:
                continue
            expected = np.array([float(s / graph.divisor) for s in scores])
            np.testing.assert_allclose(network.evaluate(point), expected, atol=1e-12)
            if walk.bare_zero:
                continue
            compared += 1
            if softmax:
                powers = np.exp(expected - expected.max())
                expected = powers / powers.sum()
            np.testing.assert_allclose(output, expected, atol=1e-5)
    assert compared > 120
    assert undecided < 6


# -- methods ------------------------------------------------------------------------------


def test_the_questions_are_worth_asking() -> None:
    asked = [question(seed) for seed in range(MANY)]
    assert sum(q.is_robust for q in asked) > MANY / 5
    assert sum(not q.is_robust for q in asked) > MANY / 5
    assert sum(len(q.truth.scores) > 2 for q in asked) > MANY / 4
    assert {kind_of(q.region) for q in asked} == {"box", "linf", "l1", "polytope"}
    layers = [layer for q in asked for layer in q.network.layers]
    first = [q.network.layers[0] for q in asked]
    assert sum(bool(np.any(f.bias_lo != f.bias_hi)) for f in first) > MANY / 5
    assert any(layer.tie is not None and np.any(layer.tie) for layer in layers)
    assert {q.network.depth for q in asked} >= {1, 2, 3, 4}


@pytest.mark.parametrize("method", [m.name for m in REGISTRY.all()])
def test_no_method_contradicts_brute_force(method: str) -> None:
    regions = registered(method).regions.split(", ")
    decided = 0
    for seed in range(FEWER.get(method, MANY)):
        asked = question(seed, None, method in SMALL)
        if kind_of(asked.region) not in regions:
            continue
        result = answer(asked, method, WEAK if method in COMPLETE else MODEST)
        if method in COMPLETE:
            check_decided(asked, result)
        decided += result.status in ("robust", "not_robust")
    assert decided > 0


@pytest.mark.xfail(
    strict=True,
    reason="in layer 1 two neurons with the same sum and the same irrational threshold may have "
    "different signs between the floats that enclose it: the answer is unknown",
)
@pytest.mark.parametrize("method", ["auto", "bab", "milp"])
def test_two_neurons_with_one_irrational_threshold(method: str) -> None:
    """Both neurons are sign(x - t), so that class 0 wins everywhere; overlapping pools do this."""
    ones = np.ones(2, dtype=np.float32)
    sketch = Sketch(1, 1, 1, 1).then("Conv", np.ones((2, 1, 1, 1), dtype=np.float32))
    sketch.then("BatchNormalization", ones, 0.5 * ones, 0.25 * ones, 2 * ones, epsilon=1e-3)
    sketch.then("Sign").then("Flatten")
    # One of these is on where the first two differ.
    sketch.then("MatMul", np.array([[1, -1], [-1, 1]], "f")).then("Add", -1.0).then("Sign")
    sketch.then("Gemm", np.array([[-1, -1], [1, 1]], "f"), np.array([-1, 0], "f"), transB=1)
    result = bnncert.verify(sketch.network(), bnncert.Box([-2.0], [2.0]), 0, method=method)
    assert result.status == "robust"


@pytest.mark.parametrize("method", ["bab", "milp", "sdp", "lp"])
def test_bounds_are_those_of_brute_force(method: str) -> None:
    met = 0
    for seed in range(12):
        asked = question(seed)
        result = bnncert.bound(asked.network, asked.region, asked.label, method=method, timeout=20)
        check_answer(asked, result)
        if method not in COMPLETE or asked.margins != asked.rational_margins:
            continue
        if asked.truth.twins:
            continue
        for target in result.targets:
            assert target.rival is not None
            minimum = asked.margins[target.rival]
            # Scores with float weights are bounded up to rounding.
            assert target.lower == pytest.approx(float(minimum), abs=1e-5)
            assert target.upper == pytest.approx(float(minimum), abs=1e-5)
            met += 1
    assert met > 9 or method not in COMPLETE


@pytest.mark.parametrize("method", ["auto", "bab", "sdp", "attack", "minp"])
def test_no_method_contradicts_brute_force_on_the_disc(method: str) -> None:
    promises = registered(method).promises
    asked = [question(seed, "l2") for seed in range(12)]
    statuses = [answer(q, method, WEAK).status for q in asked]
    robust = sum(q.is_robust for q in asked)
    if method in COMPLETE:
        # A pattern that the disc only touches may stay open.
        assert statuses.count("robust") + statuses.count("not_robust") >= len(asked) - 1
    elif "bound" in promises:
        assert statuses.count("robust") > robust / 2
    else:
        assert statuses.count("not_robust") > (len(asked) - robust) / 3


def test_counterexamples_of_a_file_are_those_of_onnxruntime(tmp_path: Path) -> None:
    """With the file at hand a counterexample counts only if onnxruntime sees it, too."""
    path = tmp_path / "model.onnx"
    found = 0
    for seed in range(12):
        asked = question(seed)
        path.write_bytes(asked.model.SerializeToString())
        network = bnncert.load(path)
        result = bnncert.verify(network, asked.region, asked.label, options=MODEST, timeout=20)
        check_answer(asked, result)
        if result.status == "not_robust":
            assert result.counterexample is not None
            assert result.counterexample.replayed_in == ("exact", "onnxruntime")
            found += 1
    assert found > 2


# -- certificates -------------------------------------------------------------------------


def flipped(model: Any, rng: np.random.Generator) -> Any:
    """Return the model with one weight of one sign layer or of the output changed."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    weighted = [n.input[1] for n in changed.graph.node if n.op_type in ("Conv", "MatMul", "Gemm")]
    name = str(rng.choice(weighted))
    (tensor,) = [t for t in changed.graph.initializer if t.name == name]
    values = numpy_helper.to_array(tensor).copy()
    place = int(rng.integers(values.size))
    values.flat[place] = -values.flat[place] if values.flat[place] else values.dtype.type(1)
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    return changed


def test_every_verdict_has_a_certificate_of_its_own_network(tmp_path: Path) -> None:
    path = tmp_path / "proof.bnncert"
    rng = np.random.default_rng(7)
    robust = rejected = 0
    for seed in range(18):
        asked = question(seed)
        result = bnncert.verify(
            asked.network, asked.region, asked.label, options=WEAK, timeout=20, certificate=path
        )
        check_decided(asked, result)
        if result.status == "unknown":
            continue
        assert result.certificate is not None, result.notes
        report = check(path, asked.network)
        assert report.verdict == result.status == ("robust" if asked.is_robust else "not_robust")
        assert report.targets == len(asked.margins)
        robust += report.verdict == "robust"
        other = network_of(flipped(asked.model, rng))
        if other.content_hash == asked.network.content_hash:
            # The weight belongs to a neuron that is constant.
            continue
        with pytest.raises(RejectedError, match="another network"):
            check(path, other)
        rejected += 1
    assert robust > 4 and rejected > 10
