"""Counterexamples are judged in rationals: what only floating point believes is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Ball, Box, Network, Problem
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.problem import from_vnnlib, robustness
from bnncert.problem.vnnlib import parse_vnnlib
from tests.brute_force import TinyNetwork
from tests.strategies import few

#: h = (sign(x0 + x1), sign(x0 - x1)); class 0 wins where h = (+,+), class 1 where h = (-,+).
DIAMOND = TinyNetwork(
    (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]])),
    (np.zeros(2), np.array([1.0, 0.0, 0.5])),
    "plus",
)

#: 0.1 + 0.2 in floats; the floats 0.1 and 0.2 themselves add up to less.
SUM = 0.30000000000000004


def diamond(radius: float, **options: Any) -> Problem:
    """Ask for class 0 around (1, 0), with class 1 as the only rival."""
    net = options.pop("net", DIAMOND).build()
    return robustness(net, Ball("linf", [1.0, 0.0], radius), 0, 1, **options)


def confirm(problem: Problem, point: list[float], **options: Any) -> bnncert.Counterexample | None:
    return Replayer(problem, **options).confirm(problem.targets[0], np.array(point))


# --- exact arithmetic ------------------------------------------------------------------------


def test_a_valid_candidate_is_confirmed() -> None:
    problem = diamond(0.75)
    replayer = Replayer(problem)
    found = replayer.confirm(problem.targets[0], np.array([0.5, -0.625]))
    assert found is not None
    assert found.point.tolist() == [0.5, -0.625]
    assert found.exact is None
    assert found.target == "class 1"
    assert found.value == Fraction(-1)
    assert found.scores.tolist() == [1.0, 2.0, -1.5]
    assert found.replayed_in == ("exact",)
    assert replayer.rejected == 0


def test_a_confirmed_point_is_a_float32_where_there_is_one() -> None:
    found = confirm(diamond(0.75), [0.4, -0.6])
    assert found is not None
    assert found.point.tolist() == [float(np.float32(0.4)), float(np.float32(-0.6))]


def test_a_candidate_outside_the_region_is_refused() -> None:
    # (0.5, -0.625) reaches class 1, but no point of this ball does.
    problem = diamond(0.4)
    replayer = Replayer(problem)
    assert replayer.confirm(problem.targets[0], np.array([0.5, -0.625])) is None
    assert replayer.rejected == 1
    exact = (Fraction(1, 2), Fraction(-5, 8))
    assert replayer.confirm(problem.targets[0], np.array([0.5, -0.625]), exact) is None
    assert replayer.rejected == 2


def test_a_candidate_outside_by_rounding_is_moved_inside() -> None:
    problem = diamond(0.75)
    found = confirm(problem, [0.25 - 1e-9, -0.75 - 1e-9])
    assert found is not None
    assert all(
        abs(Fraction(x) - c) <= Fraction(3, 4)
        for x, c in zip(found.point.tolist(), (1, 0), strict=True)
    )


def test_a_rational_point_is_kept_as_it_is() -> None:
    # The violations begin at 3 x = 1, and the float next to 1/3 is below it.
    net = Network.from_arrays([[[3.0]], [[-1.0], [1.0]]], [[-1.0], [0.0, 0.0]])
    third = Fraction(1, 3)
    problem = robustness(net, Box([0.0], [0.5]), 0)
    replayer = Replayer(problem)
    found = replayer.confirm(problem.targets[0], np.array([float(third)]), (third,))
    assert found is not None
    assert found.exact == (third,)
    assert Fraction(found.point.tolist()[0]) < third
    assert found.to_dict()["input_exact"] == ["1/3"]


@pytest.mark.parametrize(
    ("sign_zero", "accepted"), [("plus", False), ("minus", True), ("either", True)]
)
def test_a_point_on_a_threshold_counts_as_sign_zero_says(sign_zero: str, accepted: bool) -> None:
    net = TinyNetwork(DIAMOND.weights, DIAMOND.biases, sign_zero)
    found = confirm(diamond(0.5, net=net), [0.5, -0.5])
    assert (found is not None) is accepted
    if found is not None:
        assert found.point.tolist() == [0.5, -0.5]
        assert found.scores.tolist() == [1.0, 2.0, -1.5]


@pytest.mark.parametrize(("ties", "accepted"), [("violation", True), ("robust", False)])
def test_an_equal_score_counts_as_ties_says(ties: str, accepted: bool) -> None:
    net = TinyNetwork(DIAMOND.weights, (np.zeros(2), np.array([2.0, 0.0, 0.5])), "plus")
    found = confirm(diamond(0.75, net=net, ties=ties), [0.5, -0.625])
    assert (found is not None) is accepted
    if found is not None:
        assert found.value == 0


@pytest.mark.parametrize(("label", "accepted"), [(0, True), (1, False)])
def test_a_point_where_floating_point_is_wrong_is_judged_exactly(
    label: int, accepted: bool
) -> None:
    # Exactly, 0.1 + 0.2 is below the threshold, so class 1 wins; floats say it is reached.
    net = Network.from_arrays([[[1, 1]], [[1], [-1]]], [[-SUM], [0, 0]])
    point = np.array([0.1, 0.2])
    assert int(net.classify(point)[0]) == 0
    assert Fraction(0.1) + Fraction(0.2) < Fraction(SUM)
    problem = robustness(net, Box(point, point), label)
    found = Replayer(problem).confirm(problem.targets[0], point)
    assert (found is not None) is accepted


@given(
    seed=st.integers(0, 2**32 - 1),
    ulps=st.integers(-3, 3),
    sign_zero=st.sampled_from(["plus", "minus"]),
)
@few(30)
def test_thresholds_within_rounding_of_the_point_are_judged_exactly(
    seed: int, ulps: int, sign_zero: str
) -> None:
    rng = np.random.default_rng(seed)
    point = rng.uniform(-1, 1, size=7)
    weights = rng.choice([-1.0, 1.0], size=7)
    threshold = float(weights @ point)
    for _ in range(abs(ulps)):
        threshold = float(np.nextafter(threshold, np.inf * ulps))
    net = Network.from_arrays(
        [weights[None, :], [[1], [-1]]], [[-threshold], [0, 0]], sign_zero=sign_zero
    )
    exact = sum(
        (Fraction(w) * Fraction(x) for w, x in zip(weights.tolist(), point.tolist(), strict=True)),
        -Fraction(threshold),
    )
    plus = exact > 0 or (exact == 0 and sign_zero == "plus")
    for label, violated in ((0, not plus), (1, plus)):
        problem = robustness(net, Box(point, point), label)
        found = Replayer(problem).confirm(problem.targets[0], point)
        assert (found is not None) is violated


def test_value_is_the_exact_margin_and_the_lowest_at_a_tie() -> None:
    corner = np.array([0.5, -0.5])
    for sign_zero, margin in (("plus", 3.0), ("minus", -1.0), ("either", -1.0)):
        problem = diamond(0.5, net=TinyNetwork(DIAMOND.weights, DIAMOND.biases, sign_zero))
        assert Replayer(problem).value(problem.targets, corner) == [margin]


# --- the original formula --------------------------------------------------------------------


def test_the_formula_sees_the_exact_point_and_scores_and_can_veto() -> None:
    problem = diamond(0.75)
    seen: list[tuple[list[Fraction], list[Fraction]]] = []

    def veto(inputs: list[Fraction], outputs: list[Fraction]) -> bool:
        seen.append((inputs, outputs))
        return False

    assert confirm(problem, [0.5, -0.625], accept=veto) is None
    assert seen[0] == (
        [Fraction(1, 2), Fraction(-5, 8)],
        [Fraction(1), Fraction(2), Fraction(-3, 2)],
    )
    assert confirm(problem, [0.5, -0.625], accept=lambda inputs, outputs: True) is not None


def test_a_strict_bound_of_a_query_is_strict_for_witnesses() -> None:
    # The box is the closure of the query; only its formula knows that 1/4 itself is excluded.
    text = "".join(f"(declare-const {n} Real)" for n in ("X_0", "X_1", "Y_0", "Y_1", "Y_2"))
    text += "(assert (> X_0 0.25))(assert (<= X_0 0.25))(assert (= X_1 -0.5))(assert (>= Y_1 Y_0))"
    specification = parse_vnnlib(text)
    (problem,) = from_vnnlib(DIAMOND.build(), specification)
    point = [0.25, -0.5]
    assert confirm(problem, point) is not None
    assert confirm(problem, point, accept=specification.holds) is None


# --- onnxruntime -----------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[TinyNetwork], Network]:
    def save(net: TinyNetwork) -> Network:
        path = tmp_path / f"net{len(list(tmp_path.iterdir()))}.onnx"
        net.build().save(path)
        return bnncert.load(path)

    return save


Saved = Callable[[TinyNetwork], Network]


def test_a_written_network_replays_in_onnxruntime(saved: Saved) -> None:
    pytest.importorskip("onnxruntime")
    net = saved(DIAMOND)
    runtime = OnnxRuntime.of(net)
    assert runtime is not None
    assert runtime.scores(np.array([0.5, -0.625])).tolist() == [1.0, 2.0, -1.5]
    problem = robustness(net, Ball("linf", [1.0, 0.0], 0.75), 0, 1)
    found = confirm(problem, [0.4, -0.6], runtime=runtime)
    assert found is not None
    assert found.replayed_in == ("exact", "onnxruntime")
    np.testing.assert_array_equal(found.point, found.point.astype(runtime.dtype))


def test_a_runtime_that_disagrees_vetoes(saved: Saved) -> None:
    pytest.importorskip("onnxruntime")
    # The scores of classes 1 and 2 are exchanged in the file that is executed.
    other = TinyNetwork(
        (DIAMOND.weights[0], DIAMOND.weights[1][[0, 2, 1]]),
        (DIAMOND.biases[0], DIAMOND.biases[1][[0, 2, 1]]),
        "plus",
    )
    runtime = OnnxRuntime.of(saved(other))
    assert runtime is not None
    problem = robustness(saved(DIAMOND), Ball("linf", [1.0, 0.0], 0.75), 0, 1)
    replayer = Replayer(problem, runtime)
    assert replayer.confirm(problem.targets[0], np.array([0.5, -0.625])) is None
    assert replayer.rejected == 1


def test_there_is_no_runtime_for_other_formats(tmp_path: Path) -> None:
    for name in ("net.npz", "net.json"):
        DIAMOND.build().save(tmp_path / name)
        assert OnnxRuntime.of(bnncert.load(tmp_path / name)) is None
    assert OnnxRuntime.of(DIAMOND.build()) is None


def test_there_is_no_runtime_when_the_file_is_gone_or_broken(saved: Saved) -> None:
    pytest.importorskip("onnxruntime")
    net = saved(DIAMOND)
    assert OnnxRuntime.of(net) is not None
    Path(net.source).write_bytes(b"no model any more")
    assert OnnxRuntime.of(net) is None
    Path(net.source).unlink()
    assert OnnxRuntime.of(net) is None


def test_there_is_no_runtime_without_the_package(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = saved(DIAMOND)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    assert OnnxRuntime.of(net) is None


# --- candidates between grid points ------------------------------------------------------------


def test_candidates_between_grid_points_are_counted_apart() -> None:
    net = DIAMOND.build()
    problem = robustness(net, Ball("linf", [1.0, 0.0], 0.9, -2.0, 2.0, 1.0), 0)
    replayer = Replayer(problem)
    target = problem.targets[0]
    # (0.25, -0.75) has another class, and the nearest grid point of the ball is the centre.
    assert replayer.confirm(target, np.array([0.25, -0.75])) is None
    assert (replayer.rejected, replayer.rejected_off_grid) == (0, 1)
    assert replayer.confirm(target, np.array([1.0, 0.0])) is None
    assert (replayer.rejected, replayer.rejected_off_grid) == (1, 1)


@pytest.mark.parametrize("method", ["auto", "bab", "milp", "elimination"])
def test_a_verdict_has_no_notes_about_candidates(method: str) -> None:
    net = DIAMOND.build()
    ball = Ball("linf", [1.0, 0.0], 0.9, -2.0, 2.0, 1.0)
    result = bnncert.verify(net, ball, 0, method=method)
    assert (result.status, result.notes) == ("robust", ())
