"""Plans: radii in each unit, random networks, each question once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert import BnncertError, Network
from bnncert.model.loading import RandomNetwork, load_demo_network
from bnncert.regions.radii import read_radius
from bnncert.results.configuration import read_configuration, with_changes
from bnncert.results.labelled_points import random_points
from bnncert.results.plan import Plan, plan_experiment
from bnncert.results.runner import Estimate, duration
from tests.results.tiny import CONFIG, INSTANCES, write_files


def planned(folder: Path, config: dict[str, Any] | None = None) -> Plan:
    return plan_experiment(read_configuration(write_files(folder, config)))


def test_the_plan_has_every_combination_once(folder: Path) -> None:
    experiment = planned(folder)
    assert len(experiment.instances) == INSTANCES
    assert len({instance.key.digest for instance in experiment.instances}) == INSTANCES
    kinds = experiment.groups()
    assert Counter((k.network, k.question, n) for k, n in kinds.items()) == {
        ("diamond", "verify", 4): 8,
        ("dice", "bound", 3): 2,
    }
    assert [r.name for r in experiment.records] == ["diamond", "dice"]
    assert experiment.records[0].source == str(folder / "net.npz")
    assert sum(k.most_seconds(n) for k, n in kinds.items() if k.network == "dice") == 6 * 30
    # The same part again asks nothing new.
    twice = {**CONFIG, "parts": [*CONFIG["parts"], CONFIG["parts"][0]]}
    assert len(planned(folder, twice).instances) == INSTANCES


def test_radii_in_each_unit() -> None:
    network = load_demo_network("sparse")

    def units(text: Any, norm: Any, clip: Any = None, of: Network = network) -> float:
        radius = read_radius(text, 1)
        assert radius is not None
        return radius.in_units(of, "net", norm, clip)

    # The paper: delta_inf = 127.5 eps, delta_2 = 255 eps; a pixel of a byte is 2/255 of [-1, 1].
    assert units("0.25 delta", "linf") == 0.25 / 127.5
    assert units("10 delta", "l2") == 10 / 255
    assert units("1px", "linf") == pytest.approx(2 / 255, rel=1e-15)
    assert units(0.125, "l1") == units("0.125", "l1") == 0.125
    with pytest.raises(BnncertError, match="delta is defined for linf and l2 only"):
        units("1 delta", "l1")
    with pytest.raises(BnncertError, match=r"the data box of network net is not \[-1, 1\]"):
        units("1 delta", "linf", (0.0, 1.0))
    plain = RandomNetwork((2, 2, 2)).build()
    with pytest.raises(BnncertError, match="does not state the size of a pixel step"):
        units("1px", "linf", None, plain)
    for wrong in ("", "px", "-1px", "1 pixel", True, None, "inf", 10**400):
        assert read_radius(wrong, 1) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"radii": ["1px"]}, "does not state the size of a pixel step"),
        ({"data": {"file": "data.npz", "count": 9}}, "count is 9; from 0 on it holds 4"),
        ({"data": {"file": "data.npz", "indices": [4]}}, "index 4; it holds points 0 to 3"),
        ({"data": "net.npz"}, "net.npz: holds"),
        ({"rivals": 7}, "rival is 7"),
        ({"clip": [0.7, 1.0]}, "has no point in the data box"),
    ],
)
def test_what_only_the_files_show_is_named_with_its_line(
    folder: Path, change: dict[str, Any], words: str
) -> None:
    part = {**CONFIG["parts"][0], **change}
    path = write_files(folder, {**CONFIG, "parts": [part]})
    with pytest.raises(BnncertError) as caught:
        plan_experiment(read_configuration(path))
    text = path.read_text(encoding="utf-8")
    key = next(iter(change))
    # The line of the radius, or of the data.
    marks = {"radii": '"1px"', "data": '"data"'}
    mark = text[: text.index(marks.get(key, '"data"'))].count("\n") + 1
    assert str(caught.value).startswith(f"{path}:{mark}: ")
    assert words in str(caught.value)


def test_networks_that_cannot_be_used(folder: Path) -> None:
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    other = [{"name": "a", "file": "broken.npz"}]
    with pytest.raises(BnncertError, match=r"tiny\.json:\d+: .*broken\.npz: "):
        planned(folder, {**CONFIG["parts"][0], "networks": other})
    same = [{"name": "a", "file": "net.npz"}, {"name": "b", "file": "net.npz"}]
    with pytest.raises(BnncertError, match=r"tiny\.json:\d+: network b is the same as network a"):
        planned(folder, {**CONFIG["parts"][0], "networks": same})
    absent = {**CONFIG["parts"][0], "networks": [{"name": "a"}]}
    with pytest.raises(BnncertError, match=r"network a has no file; give it with --network a=FILE"):
        planned(folder, absent)
    given = with_changes(read_configuration(folder / "tiny.json"), networks={"a": "net.npz"})
    assert len(plan_experiment(given).instances) == 32
    del absent["data"]
    write_files(folder, absent)
    given = with_changes(read_configuration(folder / "tiny.json"), networks={"a": "net.npz"})
    with pytest.raises(BnncertError, match="there is no data; give it with --data FILE"):
        plan_experiment(given)
    assert len(plan_experiment(with_changes(given, data="data.npz", count=1)).instances) == 8


def test_listed_points(folder: Path) -> None:
    part = {**CONFIG["parts"][0], "data": {"file": "data.npz", "indices": [3, 1]}}
    experiment = planned(folder, {**CONFIG, "parts": [part]})
    assert [j.key.input_index for j in experiment.instances[:4]] == [3, 1, 3, 1]
    config = with_changes(read_configuration(folder / "tiny.json"), count=1)
    assert {j.key.input_index for j in plan_experiment(config).instances} == {3}


def test_random_networks() -> None:
    recipe = RandomNetwork((30, 20, 10, 3), zeros=0.4, seed=1)
    network = recipe.build()
    assert network.sizes == (30, 20, 10, 3)
    assert network.content_hash == recipe.build().content_hash
    other = RandomNetwork((30, 20, 10, 3), zeros=0.4, seed=2)
    assert other.build().content_hash != network.content_hash
    for layer in network.layers:
        assert set(np.unique(layer.weights.data)) <= {-1, 1}
        # 600 and 200 weights: far from 0.4 only by a mistake.
        assert 0.25 < 1 - layer.weights.nnz / (layer.size * layer.inputs) < 0.55
    # The margin against the last class is a sum of +-1 times the last layer.
    assert set(np.unique(network.output.weights[:-1])) == {-1.0, 1.0}
    assert not network.output.weights[-1].any()
    sparse = RandomNetwork((30, 20, 10, 2), nonzeros=3).build()
    assert all((np.diff(layer.weights.indptr) == 3).all() for layer in sparse.layers)
    points = random_points(network, 5, 1, None)
    assert points.shape == (5, 30)
    assert np.array_equal(points, random_points(network, 5, 1, None))
    assert np.abs(points).max() <= 1


def test_the_time_left_is_learnt_kind_by_kind(folder: Path) -> None:
    instances = planned(folder).instances
    dice = [i for i in instances if i.network == "dice"]
    estimate = Estimate(dice)
    # Nothing is known: six instances of 30 s.
    assert estimate.remaining(1) == 180
    estimate.finish(dice[0], 2.0)
    # Two more like it, and three of another method.
    assert estimate.remaining(1) == 2 * 2 + 3 * 30
    assert estimate.remaining(2) == 47
    for instance in dice[1:]:
        estimate.finish(instance, 0.0)
    assert estimate.remaining(1) == 0
    # Without a limit nothing is known before the first answer.
    assert Estimate(instances).remaining(1) is None
    assert [duration(s) for s in (3.4, 61, 3660, 90000)] == [
        *("3 s", "1 min 1 s", "1 h 1 min", "1 d 1 h")
    ]
