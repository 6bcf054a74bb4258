"""The division of the time of a verification among stages and targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert import Ball, Network, verify
from bnncert.engine.methods import REGISTRY
from bnncert.engine.timing import OTHER, Journal, StageWork, Step, Timing, merged_timings
from tests.cli.diamond import DIAMOND

#: Times on a coarse scale, so that steps often begin or end together.
TIMES = st.integers(0, 12).map(float)
STEPS = st.lists(
    st.builds(
        lambda stage, target, a, b: Step(stage, target, min(a, b), max(a, b)),
        st.sampled_from(["sdp", "attack", "bab"]),
        st.sampled_from([None, "class 1", "class 2", "class 3"]),
        TIMES,
        TIMES,
    ),
    max_size=12,
)


@given(STEPS)
def test_the_parts_add_up_to_the_time_that_steps_cover(steps: list[Step]) -> None:
    covered = {k for s in steps for k in range(int(s.begin), int(s.end))}
    shares = Journal(steps).shares()
    assert sum(shares.values()) == pytest.approx(len(covered))
    assert all(seconds > 0 for seconds in shares.values())


@given(STEPS, st.floats(12, 100))
def test_a_completed_account_has_the_total_time(steps: list[Step], total: float) -> None:
    timing = Journal(steps).timing().completed(total)
    assert sum(w.seconds for w in timing.work) == pytest.approx(total)
    assert sum(timing.stages.values()) == pytest.approx(total)
    own = sum(sum(timing.seconds_of(f"class {k}").values()) for k in (1, 2, 3))
    assert own + sum(timing.shared.values()) == pytest.approx(total)


def test_a_stage_on_several_targets_divides_its_time_equally() -> None:
    steps = [Step("attack", f"class {k}", 1.0, 4.0) for k in (1, 2, 3)]
    assert Journal(steps).shares() == {(f"class {k}", "attack"): 1.0 for k in (1, 2, 3)}


def test_a_step_inside_another_one_takes_its_time_from_it() -> None:
    steps = [Step("bab", "class 1", 0.0, 10.0), Step("attack", "class 2", 4.0, 7.0)]
    assert Journal(steps).shares() == {("class 1", "bab"): 7.0, ("class 2", "attack"): 3.0}


def test_all_steps_of_a_stage_on_a_target_become_one_entry_with_the_best_bounds() -> None:
    steps = [
        Step("bab", "class 1", 0.0, 1.0, lower=-5.0),
        Step("attack", "class 1", 1.0, 2.0, upper=9.0),
        Step("bab", "class 1", 2.0, 5.0, lower=1.0, decided=True),
    ]
    assert Journal(steps).timing().work == (
        StageWork("bab", "class 1", 4.0, lower=1.0, decided=True),
        StageWork("attack", "class 1", 1.0, upper=9.0),
    )


def test_timings_of_several_regions_are_joined() -> None:
    first = Timing((StageWork("sdp", "class 1", 2.0),), remarks=("a",))
    second = Timing((StageWork("lp", "class 1", 1.0),), remarks=("a", "b"))
    both = merged_timings([first, second])
    assert both.stages == {"sdp": 2.0, "lp": 1.0}
    assert both.remarks == ("a", "b")


@pytest.mark.parametrize("method", [m.name for m in REGISTRY.all() if m.available()])
@pytest.mark.parametrize("radius", [0.25, 0.5625])
def test_targets_and_shared_work_add_up_to_the_time_of_every_method(
    method: str, radius: float
) -> None:
    network = Network.from_arrays(DIAMOND.weights, DIAMOND.biases)
    result = verify(network, Ball("linf", [1.0, 0.0], radius), 0, method=method, timeout=5)
    own = sum(t.seconds for t in result.targets)
    shared = result.timing.shared
    assert own + sum(shared.values()) == pytest.approx(result.seconds)
    assert sum(result.timing.stages.values()) == pytest.approx(result.seconds)
    assert OTHER in shared
    tree = result.to_dict()["account"]
    assert sum(w["seconds"] for w in tree["work"]) == pytest.approx(result.seconds)
    if method != "sample":
        assert [layer["neurons"] for layer in tree["layers"]] == [2]


def test_open_targets_state_the_open_neurons() -> None:
    network = Network.from_arrays(DIAMOND.weights, DIAMOND.biases)
    result = verify(network, Ball("linf", np.array([1.0, 0.0]), 0.5625), 0, method="interval")
    assert result.status == "unknown"
    counts = [{"layer": 1, "neurons": 2, "open": 2}]
    assert all(t.details["open neurons"] == counts for t in result.targets)
