"""The smallest perturbation against brute force over all grid points, on tiny networks."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Ball, Grid, InputError, L0Ball, Network, Options
from bnncert.deadline import TIME_IS_UP, OutOfTimeError
from bnncert.engine.answer import Interrupted
from bnncert.kernel import check as check_certificate
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.questions.radius.radius_answer import WholeDistances
from bnncert.questions.radius.smallest import Known, WholeSearch, smallest
from tests.brute_force import TinyNetwork, last_layers_at, scores_of
from tests.in_process import command_line
from tests.strategies import few, tiny_networks

NORMS: tuple[Any, ...] = ("linf", "l1", "l2", "l0")

#: Little work for what has no end of its own.
SHORT_WORK = Options(restarts=8, iterations=5, samples=50, threads=1)


def ball_around(
    norm: Any, point: Any, lo: float, hi: float, step: float, radius: float = 0.0
) -> Ball | L0Ball:
    if norm == "l0":
        return L0Ball(point, radius, lo, hi, grid=Grid(step))
    return Ball(norm, point, radius, lo, hi, grid=Grid(step))


def count(norm: str, places: tuple[int, ...], home: tuple[int, ...]) -> int:
    gaps = [abs(a - b) for a, b in zip(places, home, strict=True)]
    if norm == "linf":
        return max(gaps)
    if norm == "l0":
        return sum(g > 0 for g in gaps)
    return sum(g * g for g in gaps) if norm == "l2" else sum(gaps)


def is_violated(net: TinyNetwork, point: tuple[Fraction, ...], label: int, ties: str) -> bool:
    """Whether some class is at least as good as the label at a point, for some tie of signs."""
    for scores in scores_of(net, last_layers_at(net, point)):
        best = max(s for k, s in enumerate(scores) if k != label)
        if best > scores[label] or (best == scores[label] and ties == "violation"):
            return True
    return False


def true_minimum(
    net: TinyNetwork,
    norm: str,
    home: tuple[int, ...],
    step: float,
    *,
    label: int,
    ties: str,
) -> int | None:
    """Return the least count of all grid points that violate the property."""
    found = [
        count(norm, places, home)
        for places in product(range(-4, 5), repeat=len(home))
        if is_violated(net, tuple(Fraction(step) * k for k in places), label, ties)
    ]
    return min(found, default=None)


@pytest.mark.parametrize("norm", NORMS)
def test_the_minimum_is_that_of_all_grid_points(norm: Any) -> None:
    seen: Counter[str] = Counter()

    @few(40)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        net = data.draw(tiny_networks())
        inputs = net.weights[0].shape[1]
        step = data.draw(st.sampled_from([0.25, 0.5, 1.0]))
        home = tuple(data.draw(st.lists(st.integers(-4, 4), min_size=inputs, max_size=inputs)))
        network, point = net.build(), step * np.array(home, dtype=np.float64)
        label = int(network.classify(point)[0])
        ties = data.draw(st.sampled_from(["violation", "robust"]))
        ball = ball_around(norm, point, -4 * step, 4 * step, step)
        result = smallest(network, ball, label, ties=ties, options=SHORT_WORK)
        expected = true_minimum(net, norm, home, step, label=label, ties=ties)
        if result.witness is not None:
            exact = tuple(map(Fraction, result.witness.point.tolist()))
            assert is_violated(net, exact, label, ties)
            places = tuple(np.rint(result.witness.point / step).astype(int).tolist())
            assert count(norm, places, home) == result.falsified
        assert result.is_closed
        assert result.minimum == expected
        assert expected is not None or (result.covers_data and result.witness is None)
        seen["some"] += expected is not None and expected > 0
        seen["none"] += expected is None

    check()
    assert seen["some"] > 5
    assert seen["none"] > 5


# --- a network whose minima are known ----------------------------------------------------------

#: Class 1 wins iff x0 + x1 + x2 >= 7 (integers): from 0 that takes 7 steps in L1, 3 in L-inf, and
#: (3, 2, 2) with a squared length of 17.
SUM = Network.from_arrays(
    [np.ones((1, 3)), np.array([[-1], [1]])], [np.array([-6.99]), np.zeros(2)]
)
MINIMA = {"linf": 3, "l1": 7, "l2": 17, "l0": 1}


def integers(norm: Any, point: Any = (0.0, 0.0, 0.0), **options: Any) -> Ball:
    return Ball(norm, point, 1.0, 0.0, 9.0, **{"grid": Grid(1.0), **options})


@pytest.mark.parametrize("norm", NORMS)
def test_both_sides_of_a_known_minimum(norm: Any) -> None:
    result = smallest(SUM, ball_around(norm, np.zeros(3), 0.0, 9.0, 1.0), 0, timeout=20)
    assert (result.certified, result.falsified) == (MINIMA[norm] - 1, MINIMA[norm])
    assert result.minimum == MINIMA[norm]
    assert result.witness is not None
    assert result.witness.point.sum() >= 7
    tree = result.to_dict()
    radius = math.sqrt(17) if norm == "l2" else MINIMA[norm]
    assert tree["minimum"] == tree["falsified"] == radius
    assert tree["counts"] == {
        "certified": MINIMA[norm] - 1,
        "falsified": MINIMA[norm],
        "minimum": MINIMA[norm],
    }
    # Both sides by questions of their own.
    for radius, status in ((tree["certified"], "robust"), (tree["falsified"], "not_robust")):
        ball = ball_around(norm, np.zeros(3), 0.0, 9.0, 1.0, radius)
        assert bnncert.verify(SUM, ball, 0, timeout=20).status == status


def test_a_wrong_centre_has_the_minimum_zero() -> None:
    result = smallest(SUM, integers("l1"), 1)
    assert (result.certified, result.falsified, result.minimum) == (None, 0, 0)


@pytest.mark.parametrize("maximum", [2.5, "5px"])
def test_a_largest_radius_ends_the_search(maximum: Any) -> None:
    result = smallest(replace(SUM, pixel_step=0.5), integers("linf"), 0, maximum=maximum)
    assert (result.certified, result.limit, result.minimum) == (2, 2, None)
    assert result.is_closed
    assert not result.covers_data


def test_a_method_that_only_attacks_leaves_the_minimum_open() -> None:
    result = smallest(SUM, integers("linf"), 0, method="attack")
    assert (result.certified, result.minimum) == (None, None)
    assert result.falsified is not None
    assert result.to_dict()["minimum"] is None


def test_a_search_goes_on_where_another_ended() -> None:
    witness = np.array([9.0, 0.0, 0.0])
    result = smallest(SUM, integers("l1"), 0, known=Known(6, witness), timeout=20)
    assert result.minimum == 7
    # The centre, the witness, and nothing below the certified count.
    assert all(p.radius in (0.0, 7.0, 8.0, 9.0) for p in result.probes)
    with pytest.raises(InputError, match="not a counterexample"):
        smallest(SUM, integers("l1"), 0, known=Known(None, np.array([1.0, 2.0, 3.0])))


def test_an_interrupt_keeps_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(search: WholeSearch) -> None:
        search.verify(2.0, 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(WholeSearch, "run", stopped)
    with pytest.raises(Interrupted) as caught:
        smallest(SUM, integers("l1"), 0)
    assert caught.value.answer.certified == 2


def test_the_time_limit_is_kept_and_the_interval_stays() -> None:
    network, images = load_demo_network(), load_demo_images()
    point = images.point(0).astype(np.float32).astype(np.float64)
    ball = Ball("linf", point, 0.0, -1.0, 1.0, grid=Grid(1 / 127.5, -1.0))
    started = time.monotonic()
    result = smallest(network, ball, int(images.labels[0]), timeout=0.8)
    assert time.monotonic() - started < 3.3
    assert result.certified is not None
    assert result.falsified is None or result.certified < result.falsified
    assert result.to_dict()["minimum"] is None


@pytest.mark.parametrize(
    ("ball", "words"),
    [
        (integers("linf", grid=None), r"needs a grid \(--grid 1px\) or norm l0"),
        (integers("linf", (0.0, 0.5, 1.0)), "a centre on the grid: input 1 = 0.5 is not on it"),
        (integers("l1", grid=Grid([1.0, 1.0, 3.0])), "one grid step for all inputs"),
    ],
)
def test_distances_that_are_not_whole_numbers_are_refused(ball: Ball, words: str) -> None:
    with pytest.raises(InputError, match=words):
        smallest(SUM, ball, 0)


@pytest.mark.parametrize(("within", "minimum"), [(9.0, 1), (4.0, 2), (3.0, 3), (2.0, None)])
def test_inputs_that_change_little_need_more_of_them(within: float, minimum: int | None) -> None:
    # Real inputs: each one adds at most `within` to the sum.
    result = smallest(SUM, L0Ball(np.zeros(3), 0, 0.0, 9.0, within=within), 0, timeout=20)
    assert result.minimum == minimum
    assert result.is_closed
    assert result.certified == (3 if minimum is None else minimum - 1)
    # Larger changes are in the data box, so that is not covered.
    assert not result.covers_data


@pytest.mark.parametrize("norm", NORMS[:3])
def test_counts_and_radii_belong_together(norm: Any) -> None:
    step = 2 / 255
    point = (np.arange(4) * 40 * step - 1).astype(np.float32).astype(np.float64)
    counts = WholeDistances(Ball(norm, point, 0.0, -1.0, 1.0, grid=Grid(step, -1.0)))
    for number in (1, 2, 3, 5, 100, 1000, 12345):
        assert counts.within(counts.radius(number)) == number
        assert counts.within(counts.radius(number) * (1 - 1e-5)) == number - 1
    away = counts.home + np.array([1.0, -2.0, 0.0, 3.0])
    assert counts.count(counts.points(away)) == {"linf": 3, "l1": 6, "l2": 14}[norm]
    # Every side of the box: 255, 215, 175 and 135 levels away at most.
    assert (
        counts.farthest
        == {
            "linf": 255,
            "l1": 255 + 215 + 175 + 135,
            "l2": 255**2 + 215**2 + 175**2 + 135**2,
        }[norm]
    )


def test_the_certificate_is_that_of_the_last_proof_or_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proofs of smaller counts have certificates, but these do not show the certified side."""
    from bnncert.proofs import claims

    written = claims.write_proof

    def write(path: Any, problem: Any, *arguments: Any, **options: Any) -> None:
        if problem.region.radius >= MINIMA["l1"] - 1:
            raise claims.CertificateError("no certificate: too hard")
        written(path, problem, *arguments, **options)

    monkeypatch.setattr(claims, "write_proof", write)
    result = smallest(SUM, integers("l1"), 0, timeout=20, certificate=tmp_path / "proof.bnncert")
    assert result.minimum == MINIMA["l1"]
    assert (result.certificate, result.no_certificate) == (None, "no certificate: too hard")
    assert list(tmp_path.iterdir()) == []


def test_an_unproved_side_of_an_earlier_search_has_no_certificate(tmp_path: Path) -> None:
    """A counterexample beyond the count, in a ball that rounding enlarges, is no proof of it."""
    path = tmp_path / "proof.bnncert"
    known, seconds = Known(6), 1e-3
    result = smallest(
        SUM, integers("l1"), 0, method="attack", known=known, timeout=seconds, certificate=path
    )
    assert (result.certified, result.certificate) == (6, None)
    assert not path.exists()


@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_the_certificate_of_the_lower_side_is_accepted(norm: Any, tmp_path: Path) -> None:
    path = tmp_path / "proof.bnncert"
    ball = integers(norm)
    result = smallest(SUM, ball, 0, timeout=20, certificate=path)
    assert result.minimum == MINIMA[norm]
    assert (result.certificate, result.no_certificate) == (str(path), "")
    report = check_certificate(path, SUM)
    assert report.verdict == "robust"
    assert f"radius {MINIMA[norm] - 1}" in report.statement
    # The certificate of a search that goes on is that of its certified side, too.
    again = tmp_path / "again.bnncert"
    known = Known(result.certified)
    smallest(SUM, ball, 0, timeout=20, certificate=again, known=known)
    assert check_certificate(again, SUM).statement == report.statement


def test_the_certificate_gets_all_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt for the certified side is late, the second one has the rest of the time."""
    from bnncert.proofs import claims

    written, seen = claims.write_proof, set()

    def write(path: Any, problem: Any, *arguments: Any, **options: Any) -> None:
        if problem.region.radius not in seen:
            seen.add(problem.region.radius)
            raise OutOfTimeError(TIME_IS_UP)
        written(path, problem, *arguments, **options)

    monkeypatch.setattr(claims, "write_proof", write)
    path = tmp_path / "proof.bnncert"
    result = smallest(SUM, integers("l1"), 0, timeout=20, certificate=path)
    assert (result.certificate, result.no_certificate) == (str(path), "")
    assert result.minimum == MINIMA["l1"]
    assert check_certificate(path, SUM).verdict == "robust"


# --- the command line --------------------------------------------------------------------------


def test_the_command_prints_and_saves_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    SUM.save("net.npz")
    np.save("x.npy", np.zeros(3))
    run = command_line(monkeypatch, capfd)
    question = ("radius", "net.npz", "--input", "x.npy", "--norm", "l1", "--clip", "0", "9")
    exact = (*question, "--exact", "--grid", "1")
    ended = run(*exact, "--json", "out.json", "--save-counterexample", "c.npy")
    assert (ended.code, ended.err) == (0, "")
    assert "smallest perturbation: 7 steps (7 in input units), class 1" in ended.out
    tree = json.loads(Path("out.json").read_text())
    assert (tree["certified"], tree["falsified"], tree["minimum"]) == (6.0, 7.0, 7.0)
    assert tree["witness"]["input"] == np.load("c.npy").tolist()
    again = run(*exact, "--resume", "out.json", "--json", "out.json")
    assert again.code == 0
    assert json.loads(Path("out.json").read_text())["counts"]["minimum"] == 7
    sparse = ("net.npz", "--input", "x.npy", "--clip", "0", "9", "--norm", "l0", "--within", "4")
    ended = run("radius", *sparse, "--exact")
    assert (ended.code, ended.err) == (0, "")
    assert "smallest perturbation: 2 inputs, class 1" in ended.out
    for words, line in (
        (sparse, "--within belongs to --exact, which was not given"),
        (sparse[:-2], "--norm l0 has whole numbers for radii; give --exact"),
        (
            (
                *question[1:],
                "--exact",
            ),
            "needs a grid (--grid 1px) or norm l0",
        ),
        ((*question[1:], "--grid", "1"), "--grid belongs to --exact, which was not given"),
        ((*exact[1:], "--tolerance", "1"), "--tolerance is not used with --exact"),
        ((*exact[1:], "--resume", "x.npy"), "x.npy"),
        ((*exact[1:], "--resume", "out.json", "--label", "1"), "another question (label differs)"),
        ((*exact[1:], "--save-counterexample", "c.jpg"), "expected .png (picture) or .npy"),
    ):
        refused = run("radius", *words)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert line in refused.err
