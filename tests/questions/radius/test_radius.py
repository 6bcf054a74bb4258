"""The search for the radius: known radii, both ends confirmed by questions of their own."""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Ball, BnncertError, Counterexample, InputError, Network
from bnncert.cli.program import main
from bnncert.engine.verdict import Result, TargetResult
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import Problem
from bnncert.questions.prover import Prover
from bnncert.questions.radius.radius import RealSearch, distance
from bnncert.questions.radius.radius_answer import Probe, RadiusResult

#: Class 0 wins on the quarter plane x0 > |x1|: see tests/commands/diamond.py.
WEIGHTS = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]]))
BIASES = (np.zeros(2), np.array([1.0, 0.0, 0.5]))

#: The distance of (1, 0) to the border, by norm.
TRUE = {"linf": 0.5, "l2": math.sqrt(0.5), "l1": 1.0}
NORMS: tuple[Any, ...] = ("linf", "l2", "l1")
CENTRE = Ball("linf", [1.0, 0.0], 0)


@pytest.fixture
def diamond() -> Network:
    return Network.from_arrays(WEIGHTS, BIASES)


def random_network(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    sizes = (3, 6, 5, 3)
    return Network.from_arrays(
        [rng.integers(-1, 2, size=(b, a)) for a, b in itertools.pairwise(sizes)],
        [rng.normal(size=b) for b in sizes[1:]],
    )


# --- known radii -----------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("maximum", [None, 8.0])
def test_the_radius_is_enclosed(diamond: Network, norm: Any, maximum: float | None) -> None:
    point = np.array([1.0, 0.0])
    found = bnncert.radius(diamond, Ball(norm, point, 0), 0, maximum=maximum, tolerance=1e-3)
    assert found.lower <= TRUE[norm] <= found.upper
    assert 0 < found.gap <= 1e-3
    assert found.calls == len(found.probes) < 30
    # Both ends by questions of their own, the lower one also just inside.
    inside = math.nextafter(found.lower, 0.0)
    for radius in (inside, found.lower):
        assert bnncert.verify(diamond, Ball(norm, point, radius), 0).status == "robust"
    at_upper = bnncert.verify(diamond, Ball(norm, point, found.upper), 0)
    assert at_upper.status == "not_robust"
    assert found.counterexample is not None
    assert Ball(norm, point, found.upper).contains(found.counterexample.point)
    scores = diamond.evaluate_exactly(found.counterexample.point)
    assert scores is not None
    assert scores[0] <= max(scores[1:])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_random_networks_agree_with_single_questions(norm: Any, seed: int) -> None:
    network = random_network(seed)
    rng = np.random.default_rng(100 + seed)
    point = rng.uniform(-1, 1, 3)
    label = int(network.classify(point)[0])
    centre = Ball(norm, point, 0, -1.0, 1.0)
    found = bnncert.radius(network, centre, label, tolerance=0.01, timeout=3)
    exact = "auto" if norm != "l2" else "minp"
    if found.lower > 0:
        ball = Ball(norm, point, found.lower, -1.0, 1.0)
        assert bnncert.verify(network, ball, label, method=exact).status == "robust"
    if found.counterexample is None:
        assert found.upper == math.inf
        assert found.covers_data
    else:
        ball = Ball(norm, point, found.upper, -1.0, 1.0)
        assert ball.contains(found.counterexample.exact or found.counterexample.point)
        assert bnncert.verify(network, ball, label, method=exact).status == "not_robust"
    if norm != "l2":
        # The exact method leaves no radius open.
        assert found.gap <= 0.01 or found.lower >= found.limit


@pytest.mark.parametrize("norm", NORMS)
def test_the_distance_is_rounded_up_and_no_further(norm: Any) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        center, point = rng.normal(size=4), rng.normal(size=4)
        exact = tuple(Fraction(p) + Fraction(1, 3**40) for p in point.tolist())
        for place in (None, exact):
            found = Counterexample(point, place, "class 1", Fraction(-1), np.zeros(2))
            far = distance(norm, center, found)
            assert Ball(norm, center, far).contains(place or point)
            assert not Ball(norm, center, math.nextafter(far, 0.0)).contains(place or point)
    same = Counterexample(center, None, "class 1", Fraction(-1), np.zeros(2))
    assert distance(norm, center, same) == 0.0


def test_a_wrong_centre_is_falsified_at_zero(diamond: Network) -> None:
    found = bnncert.radius(diamond, CENTRE, 2)
    assert (found.lower, found.upper, found.calls) == (-math.inf, 0.0, 1)
    tree = found.to_dict()
    assert (tree["lower"], tree["upper"], tree["gap"]) == (None, 0.0, None)


def test_targets_and_ties_are_part_of_the_question(diamond: Network) -> None:
    # With the biases 2, 0, 0.5 class 1 only ties where h = (-,+).
    tied = Network.from_arrays(WEIGHTS, [np.zeros(2), np.array([2.0, 0.0, 0.5])])
    strict = bnncert.radius(tied, CENTRE, 0, rivals=1, maximum=0.9, tolerance=0.01)
    assert strict.lower <= 0.5 <= strict.upper
    fine = bnncert.radius(tied, CENTRE, 0, rivals=1, ties="robust", maximum=0.9)
    assert (fine.lower, fine.upper, fine.covers_data) == (0.9, math.inf, False)


@pytest.mark.parametrize("norm", NORMS)
def test_a_data_box_without_counterexamples_ends_the_search(diamond: Network, norm: Any) -> None:
    box = np.array([0.75, -0.5]), np.array([1.25, 0.5])
    found = bnncert.radius(diamond, Ball(norm, [1.0, 0.0], 0, *box), 0)
    assert found.covers_data
    assert (found.lower, found.upper) == (found.limit, math.inf)
    assert Ball(norm, [1.0, 0.0], found.limit).contains(box[1])


def test_a_counterexample_counts_with_its_own_distance(diamond: Network) -> None:
    found = bnncert.radius(diamond, CENTRE, 0, maximum=1000.0, tolerance=0.01)
    assert [p.radius for p in found.probes[:2]] == [0.0, 1000.0]
    # Bisection alone would ask about 500 next.
    assert found.probes[2].radius < 100
    assert found.calls < 15


# --- radii that stay open --------------------------------------------------------------------


def test_a_method_that_only_proves_leaves_the_upper_end_open(diamond: Network) -> None:
    found = bnncert.radius(diamond, CENTRE, 0, method="interval", maximum=2.0, tolerance=0.01)
    assert (found.upper, found.gap) == (math.inf, math.inf)
    assert 0.48 < found.lower <= 0.5
    assert {p.status for p in found.probes} == {"robust", "unknown"}


def test_a_method_that_only_attacks_certifies_nothing(diamond: Network) -> None:
    found = bnncert.radius(diamond, CENTRE, 0, method="attack", maximum=2.0, tolerance=0.05)
    assert found.lower == -math.inf
    assert 0.5 <= found.upper < 0.6


@pytest.mark.parametrize("maximum", [None, 4.0])
def test_a_gap_is_closed_in_from_both_sides(
    diamond: Network, monkeypatch: pytest.MonkeyPatch, maximum: float | None
) -> None:
    def answer(prover: Prover, problem: Problem, seconds: float, **_: Any) -> Result:
        ball: Any = problem.inputs
        if ball.radius > 0.7:
            point = ball.middle + np.array([ball.radius, 0.0])
            found = Counterexample(point, None, "class 1", Fraction(-1), np.zeros(3))
            parts = (TargetResult("class 1", "not_robust", counterexample=found),)
            return Result("not_robust", parts, 0.0, "auto", found)
        return Result("robust" if ball.radius <= 0.3 else "unknown", (), 0.0, "auto")

    monkeypatch.setattr(Prover, "decide", answer)
    monkeypatch.setattr(RealSearch, "nearer", lambda search, problem, replayer, found: found)
    found = bnncert.radius(diamond, CENTRE, 0, maximum=maximum, tolerance=0.01)
    assert 0.29 <= found.lower <= 0.3
    assert 0.7 < found.upper <= 0.71
    assert found.gap == found.upper - found.lower
    asked = [p.radius for p in found.probes]
    assert len(set(asked)) == len(asked) < 30


def test_a_contradiction_is_not_passed_over(
    diamond: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(prover: Prover, problem: Problem, seconds: float, **_: Any) -> Result:
        ball: Any = problem.inputs
        if ball.radius < 1:
            return Result("robust", (), 0.0, "auto")
        found = Counterexample(np.array([1.0, 1e-6]), None, "c", Fraction(-1), np.zeros(3))
        return Result("not_robust", (), 0.0, "auto", found)

    monkeypatch.setattr(Prover, "decide", answer)
    monkeypatch.setattr(RealSearch, "nearer", lambda search, problem, replayer, found: found)
    with pytest.raises(BnncertError, match="contradiction: radius"):
        bnncert.radius(diamond, CENTRE, 0)


@pytest.mark.parametrize("norm", NORMS)
def test_the_time_limit_is_kept_and_what_is_known_is_true(norm: Any) -> None:
    network, images = load_demo_network(), load_demo_images()
    point, label = images.point(0), int(images.labels[0])
    started = time.monotonic()
    centre = Ball(norm, point, 0, -1.0, 1.0)
    found = bnncert.radius(network, centre, label, timeout=1.0)
    assert time.monotonic() - started < 4.0
    assert found.calls >= 2
    assert 0 <= found.lower < found.upper
    ball = Ball(norm, point, found.lower, -1.0, 1.0)
    assert bnncert.verify(network, ball, label, timeout=20).status == "robust"
    if found.counterexample is not None:
        ball = Ball(norm, point, found.upper, -1.0, 1.0)
        assert ball.contains(found.counterexample.point)
        assert network.classify(found.counterexample.point)[0] != label


# --- input -----------------------------------------------------------------------------------


def test_bad_arguments_are_refused(diamond: Network) -> None:
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tolerance": 0.0}, "tolerance is 0.0"),
        ({"tolerance": math.nan}, "tolerance is nan"),
        ({"maximum": -1.0}, "largest radius is -1.0"),
        ({"maximum": math.inf}, "largest radius is inf"),
        ({"timeout": 0.0}, "timeout is 0.0"),
        ({"method": "magic"}, "no method 'magic'"),
        ({"maximum": "2px"}, "does not state the size of a pixel step"),
        ({"maximum": "wide"}, "maximum is 'wide'; expected a number"),
        ({"region": bnncert.L0Ball([1.0, 0.0], 0, -1, 1)}, "radius takes a Ball, .* not L0Ball"),
        # The ball of radius 0 around a point outside the data box is empty.
        ({"region": Ball("linf", [1.0, 0.0], 2, 2, 3)}, "has no point in the data box"),
    )
    for options, words in bad:
        with pytest.raises(InputError, match=words):
            bnncert.radius(diamond, **{"region": CENTRE, "label": 0, **options})


def test_radii_may_be_in_pixels() -> None:
    steps = Network.from_arrays(WEIGHTS, BIASES, pixel_step=0.125)
    found = bnncert.radius(steps, CENTRE, 0, maximum="8px", tolerance="0.5px")
    assert found.limit == 1.0
    assert 0 < found.gap <= 0.0625
    assert found.lower <= 0.5 <= found.upper


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["bnncert", "radius", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_the_command_prints_what_its_json_says(
    diamond: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    diamond.save("net.npz")
    np.save("x.npy", np.array([[5.0, 5.0], [1.0, 0.0]]))
    common = ["net.npz", "--input", "x.npy", "--index", "1", "--norm", "l1"]
    assert run([*common, "--tolerance", "0.01", "--json", "out.json"], monkeypatch) == 0
    out = capfd.readouterr().out
    tree = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert tree["lower"] <= 1.0 <= tree["upper"]
    assert tree["gap"] <= 0.01
    assert (tree["label"], tree["input"], tree["calls"]) == (0, "x.npy [1]", len(tree["probes"]))
    cells = next(line for line in out.splitlines() if repr(tree["upper"]) in line).split()
    assert cells[:2] == [repr(tree["lower"]), repr(tree["upper"])]
    assert cells[3] == str(tree["calls"])
    assert run([*common, "--max", "0.5"], monkeypatch) == 0
    assert "robust up to the largest radius looked at" in capfd.readouterr().out
    assert run(["net.npz"], monkeypatch) == 2
    assert capfd.readouterr().err == (
        "bnncert: --input is missing; give the point to search around\n"
    )
    assert run([*common, "--max", "0"], monkeypatch) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_a_shown_radius_is_on_the_side_on_which_its_answer_holds() -> None:
    lower, upper = 0.24999996, np.float64(0.30000004)
    probes = (
        *(Probe(lower, "auto", "robust", 1.0), Probe(upper, "auto", "not_robust", 1.0)),
        Probe(0.3, "auto", "not_robust", 1.0),
    )
    result = RadiusResult("linf", 0, lower, upper, 1.0, False, probes, 2.0)
    assert "linf radius 0.249999 certified, 0.300001 falsified" in repr(result)
    assert [row[0] for row in result.table().rows] == ["0.249999", "0.300001", "0.3"]
