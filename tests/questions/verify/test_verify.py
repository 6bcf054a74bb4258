"""The Python API: verify of regions and queries, bound and solve."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Ball, Box, Counterexample, InputError, Network, Options
from bnncert.deadline import Deadline
from bnncert.engine.verdict import VNNCOMP_WORD, Result, TargetResult, merge, overall_status
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness
from bnncert.problem.vnnlib import parse_vnnlib
from bnncert.questions.prover import solve

#: Scores by pattern: (+,+) 3, 0, 0.5; (-,+) 1, 2, -1.5; (+,-) 1, -2, 2.5; (-,-) -1, 0, 0.5.
WEIGHTS = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]]))
BIASES = (np.zeros(2), np.array([1.0, 0.0, 0.5]))

DECLARATIONS = "".join(f"(declare-const {n} Real)" for n in ("X_0", "X_1", "Y_0", "Y_1", "Y_2"))


@pytest.fixture
def diamond() -> Network:
    return Network.from_arrays(WEIGHTS, BIASES)


def ball(radius: float, center: tuple[float, float] = (1.0, 0.0)) -> Ball:
    return Ball("linf", center, radius)


def box_query(x0: tuple[float, float], x1: tuple[float, float]) -> str:
    return f"(and (>= X_0 {x0[0]}) (<= X_0 {x0[1]}) (>= X_1 {x1[0]}) (<= X_1 {x1[1]}) (>= Y_1 Y_0))"


def random_network(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    sizes = (12, 20, 16, 4)
    return Network.from_arrays(
        [rng.integers(-1, 2, size=(b, a)) for a, b in itertools.pairwise(sizes)],
        [rng.normal(size=b) for b in sizes[1:]],
    )


def without_times(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: without_times(value) for key, value in tree.items() if key != "seconds"}
    return [without_times(item) for item in tree] if isinstance(tree, list) else tree


# --- answers ---------------------------------------------------------------------------------


def test_answers_are_frozen(diamond: Network) -> None:
    specification = parse_vnnlib(f"{DECLARATIONS}(assert {box_query((0, 2), (-1, 1))})")
    problem = robustness(diamond, ball(0.6), 0)
    answers = [
        bnncert.verify(diamond, ball(0.6), 0),
        bnncert.bound(diamond, ball(0.6), 0, method="milp"),
        bnncert.verify(diamond, specification),
        solve([problem], "milp", None, None, None, check_centre=True),
    ]
    for answer in answers:
        assert isinstance(answer, Result)
        assert answer.status == "not_robust"
        assert isinstance(answer.counterexample, Counterexample)
        assert isinstance(answer.targets, tuple)
        for part in (answer, answer.counterexample, *answer.targets):
            field = dataclasses.fields(part)[0].name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field, "changed")


def test_a_robust_answer_has_one_target_for_each_rival(diamond: Network) -> None:
    result = bnncert.verify(diamond, ball(0.25), 0)
    assert (result.status, result.vnncomp_word, result.label) == ("robust", "unsat", 0)
    assert [(t.name, t.rival, t.lower) for t in result.targets] == [
        ("class 1", 1, 3.0),
        ("class 2", 2, 2.5),
    ]
    assert result.lower == 2.5
    assert result.counterexample is None


def test_a_misclassified_centre_ends_the_question(diamond: Network) -> None:
    # At (1, 0) the scores are 3, 0, 0.5: label 2 loses to 0 by 2.5 and beats 1 by 0.5.
    for method in ("interval", "milp", "auto"):
        result = bnncert.verify(diamond, ball(0.25), 2, method=method)
        assert result.status == "not_robust"
        assert {t.stage for t in result.targets} == {"centre"}
        assert result.is_misclassified
        # The status does not depend on the name of a stage.
        renamed = tuple(dataclasses.replace(t, stage="other") for t in result.targets)
        assert dataclasses.replace(result, targets=renamed).is_misclassified
        assert [(t.name, t.status, t.upper) for t in result.targets] == [
            ("class 0", "not_robust", -2.5),
            ("class 1", "unknown", 0.5),
        ]
        assert result.counterexample is not None
        assert result.counterexample.point.tolist() == [1.0, 0.0]
        assert result.counterexample.value == Fraction(-5, 2)


def test_bound_does_not_stop_at_the_centre(diamond: Network) -> None:
    result = bnncert.bound(diamond, ball(0.25), 2, method="milp")
    assert [(t.lower, t.upper) for t in result.targets] == [(-2.5, -2.5), (0.5, 0.5)]
    assert [t.status for t in result.targets] == ["not_robust", "robust"]
    assert {t.stage for t in result.targets} == {"milp"}


def test_sign_zero_overrides_the_network(diamond: Network) -> None:
    # The ball touches x0 + x1 = 0 at (1/2, -1/2) and does not cross it.
    answers = {
        zero: bnncert.verify(diamond, ball(0.5), 0, rivals=1, sign_zero=zero).status
        for zero in ("plus", "minus", "either")
    }
    assert answers == {"plus": "robust", "minus": "not_robust", "either": "not_robust"}
    assert diamond.sign_zero == "plus"


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["robust", "robust"], "robust"),
        (["robust", "unknown"], "unknown"),
        (["unknown", "timeout"], "timeout"),
        (["robust", "timeout"], "timeout"),
        (["timeout", "not_robust", "robust"], "not_robust"),
        (["unknown", "not_robust"], "not_robust"),
        ([], "robust"),
    ],
)
def test_the_overall_status(statuses: list[Any], status: str) -> None:
    assert overall_status(statuses) == status
    results = [Result(s, (), 1.0, "lp", notes=("same",)) for s in statuses]
    if len(results) > 1:
        merged = merge(results)
        assert (merged.status, merged.seconds, merged.method) == (status, len(results), "lp")
        assert merged.notes == ("same",)


def test_every_status_has_a_word_for_vnncomp() -> None:
    assert VNNCOMP_WORD == {
        "robust": "unsat",
        "not_robust": "sat",
        "unknown": "unknown",
        "timeout": "timeout",
    }


def test_bounds_without_a_value_become_null() -> None:
    tree = TargetResult("class 1", "unknown").to_dict()
    assert (tree["lower"], tree["upper"]) == (None, None)
    result = Result("unknown", (TargetResult("class 1", "unknown", upper=2.0),), 0.0, "lp")
    assert (result.lower, result.upper) == (-math.inf, 2.0)
    assert (result.to_dict()["lower"], result.to_dict()["upper"]) == (None, 2.0)


# --- queries ---------------------------------------------------------------------------------


def test_an_empty_query_is_robust(diamond: Network) -> None:
    empty = parse_vnnlib(f"{DECLARATIONS}(assert {box_query((1, 0), (0, 1))})")
    assert empty.disjuncts == ()
    result = bnncert.verify(diamond, empty)
    assert (result.status, result.targets, result.counterexample) == ("robust", (), None)
    assert solve([], "milp", None, None, None, check_centre=True).status == "robust"


def test_a_query_over_two_boxes_fails_in_the_second(diamond: Network) -> None:
    # Class 1 beats class 0 only where x0 + x1 < 0: in the second box, everywhere.
    robust, failing = box_query((1, 2), (-0.5, 0.5)), box_query((0.5, 1), (-3, -2))
    both = parse_vnnlib(f"{DECLARATIONS}(assert (or {robust} {failing}))")
    result = bnncert.verify(diamond, both)
    assert result.status == "not_robust"
    assert [t.status for t in result.targets] == ["robust", "not_robust"]
    assert result.counterexample is not None
    assert both.holds(
        list(map(Fraction, result.counterexample.point.tolist())),
        list(map(Fraction, result.counterexample.scores.tolist())),
    )
    one = parse_vnnlib(f"{DECLARATIONS}(assert {robust})")
    assert bnncert.verify(diamond, one).status == "robust"


@pytest.mark.parametrize("method", ["auto", "milp", "attack", "sample"])
def test_a_query_may_fix_an_input_at_zero(diamond: Network, method: str) -> None:
    # On x1 = 0 both neurons have the sign of x0: for x0 < 0 class 1 wins with 0 over -1.
    text = f"{DECLARATIONS}(assert {box_query((-0.25, 1), (0, 0))})"
    result = bnncert.verify(
        diamond, parse_vnnlib(text), method=method, options=Options(samples=100, restarts=8)
    )
    assert result.status == "not_robust"
    assert result.counterexample is not None
    assert result.counterexample.point[0] < 0
    assert result.counterexample.scores.tolist() == [-1.0, 0.0, 0.5]


@pytest.mark.parametrize("method", ["auto", "milp", "attack", "sample", "lp", "interval"])
def test_a_query_that_nothing_satisfies_is_never_sat(diamond: Network, method: str) -> None:
    # Only the formula knows that the bounds exclude each other, and it has no outputs at all.
    text = "(assert (< X_0 0.5))(assert (>= X_0 0.5))(assert (>= X_1 1))(assert (<= X_1 2))"
    result = bnncert.verify(diamond, parse_vnnlib(DECLARATIONS + text), method=method, timeout=0.5)
    assert result.status != "not_robust"
    assert result.counterexample is None


def test_candidates_that_do_not_replay_are_noted(diamond: Network) -> None:
    # Y_0 is 3 all over the box, but the query wants more than 3.
    text = "(assert (>= X_0 0.5))(assert (<= X_0 1))(assert (= X_1 0.25))(assert (> Y_0 3))"
    result = bnncert.verify(
        diamond, parse_vnnlib(DECLARATIONS + text), method="sample", options=Options(samples=8)
    )
    assert result.status == "unknown"
    assert result.counterexample is None
    assert any("did not replay" in note for note in result.notes)


# --- limits and seeds ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["milp", "attack", "lp", "auto"])
def test_a_passed_time_limit_is_a_timeout(method: str) -> None:
    network, data = load_demo_network("dense"), load_demo_images()
    region = Ball("linf", data.point(2), 1.0 / 127.5, -1.0, 1.0)
    started = time.monotonic()
    result = bnncert.verify(network, region, int(data.labels[2]), method=method, timeout=0.3)
    assert time.monotonic() - started < 2.5
    assert result.status == "timeout"
    assert "timeout" in {t.status for t in result.targets}
    assert {t.status for t in result.targets} <= {"timeout", "robust", "unknown"}


@pytest.mark.parametrize("method", ["attack", "sample", "bab", "auto"])
def test_a_seed_determines_the_answer(method: str) -> None:
    options = Options(seed=5, samples=500, restarts=16)
    for number in range(4):
        network = random_network(number)
        center = np.random.default_rng(number).uniform(-1, 1, size=12)
        label = int(network.classify(center)[0])
        region = Ball("linf", center, (0.05, 0.5)[number % 2])
        first, second = (
            without_times(
                bnncert.verify(network, region, label, method=method, options=options).to_dict()
            )
            for _ in range(2)
        )
        if method == "auto":
            # Which engine is the first to decide, and so the bounds, depends on the clock.
            first, second = ({"status": answer["status"]} for answer in (first, second))
        assert first == second


def test_another_seed_samples_other_points() -> None:
    network = random_network(1)
    center = np.random.default_rng(1).uniform(-1, 1, size=12)
    label = int(network.classify(center)[0])
    points = set()
    for seed in (0, 1):
        options = Options(seed=seed, samples=2000)
        result = bnncert.verify(
            network, Ball("linf", center, 1.0), label, method="sample", options=options
        )
        assert result.counterexample is not None
        points.add(tuple(result.counterexample.point.tolist()))
    assert len(points) == 2


def test_a_deadline_within_another_ends_with_the_earlier_one() -> None:
    endless = Deadline(None)
    assert endless.remaining() == math.inf and not endless.passed()
    assert endless.within(None) is endless
    assert 59 < endless.within(60).remaining() <= 60
    short = Deadline(0.01)
    assert short.within(60).remaining() <= 0.01
    time.sleep(0.02)
    assert short.passed() and short.remaining() < 0
    time.sleep(0.001)
    assert short.within(60).passed()
    assert short.elapsed() >= 0.02


# --- bad arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        ({"label": 3}, "label is 3"),
        ({"label": -1}, "label is -1"),
        ({"label": 0, "rivals": 0}, "label itself"),
        ({"label": 0, "rivals": 7}, "rival is 7"),
        ({"label": 0, "method": "magic"}, "'magic'"),
        ({"label": 0, "timeout": 0.0}, "timeout is 0"),
        ({"label": 0, "timeout": math.nan}, "timeout is nan"),
        ({"label": 0, "options": Options(seed=-1)}, "seed is -1"),
        ({"label": 0, "sign_zero": "zero"}, "'zero'"),
    ],
)
def test_bad_arguments_are_input_errors(
    diamond: Network, arguments: dict[str, Any], mentioned: str
) -> None:
    with pytest.raises(InputError, match=mentioned):
        bnncert.verify(diamond, ball(0.25), **arguments)


def test_a_region_of_another_dimension_is_refused(diamond: Network) -> None:
    with pytest.raises(InputError, match="3 inputs, the network 2"):
        bnncert.verify(diamond, Box(np.zeros(3), np.ones(3)), 0)


def test_magnitudes_that_would_overflow_are_refused() -> None:
    with pytest.raises(InputError, match="at most"):
        bnncert.Ball("linf", [1e308, 0.0], 1.0)
    with pytest.raises(InputError, match="radius"):
        bnncert.Ball("linf", [0.0, 0.0], 1e308)
    with pytest.raises(InputError, match="larger than"):
        Network.from_arrays([np.array([[1e300, 1.0]]), np.ones((2, 1))], [np.zeros(1), np.zeros(2)])


def test_a_certificate_does_not_replace_the_network(diamond: Network, tmp_path: Path) -> None:
    file = tmp_path / "net.npz"
    diamond.save(file)
    net, content = bnncert.load(file), file.read_bytes()
    question: dict[str, Any] = {"timeout": 20, "certificate": file}
    on_grid = Ball("linf", [1.0, 0.0], 0, -2, 2, grid=0.25)
    for ask in (
        lambda: bnncert.verify(net, ball(0.4), 0, **question),
        lambda: bnncert.smallest(net, on_grid, 0, **question),
        lambda: solve(robustness(net, ball(0.4), 0), **question),
    ):
        with pytest.raises(InputError, match="the network was read from it"):
            ask()
    assert file.read_bytes() == content


def test_a_region_has_a_label_and_a_query_none(diamond: Network) -> None:
    query = parse_vnnlib(f"{DECLARATIONS}(assert {box_query((1, 2), (0, 1))})")
    with pytest.raises(InputError, match="label is missing"):
        bnncert.verify(diamond, ball(0.4))
    with pytest.raises(InputError, match="label is 0; a query has no label"):
        bnncert.verify(diamond, query, 0)
