"""What is said after `unknown` and `timeout`, and what --explain shows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bnncert import Ball, L0Ball, verify
from bnncert.cli.command_question import CommandQuestion
from bnncert.cli.undecided import _hardest, certified_by_intervals
from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY
from bnncert.engine.verdict import TargetResult
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.regions.radii import RadiusUnit
from tests.cli.diamond import POINT, Run, query

DEMO = ("verify", "demo:sparse", "demo:1")


def test_an_incomplete_method_names_the_class_the_neurons_the_time_and_what_to_try(
    folder: Path, run: Run
) -> None:
    answer = run(*DEMO, "--radius", "2px", "--method", "interval")
    assert answer.code == 3
    hardest, time, advice = answer.out.splitlines()[-3:]
    assert hardest == (
        "hardest of 9 open: class 4, margin at least -498.8; "
        "open neurons per layer: 97 of 500, 496 of 500"
    )
    assert re.fullmatch(r"time: (\w+ \d+\.\d\d s(, )?)+", time)
    assert "a complete method (--method auto)" in advice
    assert "integer pixels only (--grid 1px)" in advice
    # The recommended radius is certified: asked for, it is.
    radius = re.search(r"--radius (\S+px) is certified", advice)
    assert radius is not None
    smaller = run(*DEMO, "--radius", radius[1], "--method", "interval")
    assert smaller.out.splitlines()[-1].startswith("robust in ")


def test_after_a_time_out_more_time_is_recommended(folder: Path, run: Run) -> None:
    answer = run(*DEMO, "--radius", "2px", "--grid", "1px", "--timeout", "0.5")
    lines = answer.out.splitlines()
    assert any(line.startswith("timeout in") for line in lines)
    assert lines[-1].startswith("try: more time (--timeout 5)")
    # The grid is there already.
    assert "--grid" not in lines[-1]


def test_the_bounds_of_the_only_open_class_are_shown(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", *POINT, "--radius", "0.6", "--method", "lp", "--rivals", "2")
    # Both scores of class 2 are -1.5 at worst; the linear relaxation is no better.
    assert "open: class 2, margin at least -1.5; open neurons per layer: 2 of 2" in answer.out


@pytest.mark.parametrize("radius", ["0.25", "0.625"])
def test_a_verdict_is_not_followed_by_advice(folder: Path, run: Run, radius: str) -> None:
    answer = run("verify", "net.npz", *POINT, "--radius", radius)
    for word in ("hardest", "open:", "time:", "try:", "did not replay"):
        assert word not in answer.out


def test_an_open_query_is_one_word_and_the_reason_goes_to_stderr(folder: Path, run: Run) -> None:
    (folder / "q.vnnlib").write_text(query("0.625"))
    answer = run("verify", "net.npz", "q.vnnlib", "--method", "lp")
    assert (answer.code, answer.out) == (3, "unknown\n")
    first, second, third = answer.err.splitlines()
    assert first.startswith("hardest of 2 open: ")
    assert second.startswith("time: ")
    assert third == "try: a complete method (--method auto)"


@pytest.mark.parametrize("method", [m.name for m in REGISTRY.all() if m.available()])
def test_every_method_is_explained(folder: Path, run: Run, method: str) -> None:
    question = ("verify", "net.npz", *POINT, "--radius", "0.25", "--method", method)
    answer = run(*question, "--explain", "--timeout", "10")
    assert answer.code == (3 if method in ("attack", "sample") else 0)
    assert re.search(r"^stages\s*\nstage ", answer.out, re.MULTILINE)
    if method != "sample":
        assert re.search(r"^(layers|presolve)\s*\nlayer +neurons +open", answer.out, re.MULTILINE)
    if "bound" in next(m.promises for m in REGISTRY.all() if m.name == method):
        assert re.search(r"^lower bounds", answer.out, re.MULTILINE)


def test_the_radius_of_a_smaller_ball_is_certified() -> None:
    network, images = load_demo_network("sparse"), load_demo_images()
    point, label = images.point(1), int(images.labels[1])
    unit = RadiusUnit("px", 1 / 127.5)
    ball = Ball("linf", point, 2 / 127.5, -1, 1)
    question = CommandQuestion(network, ball, label, "given", "all", "x", "x", unit=unit)
    text = certified_by_intervals(question, "violation", Deadline(10))
    assert text is not None and text.endswith("px")
    radius = float(text.removesuffix("px")) / 127.5
    smaller = Ball("linf", point, radius, -1, 1)
    assert verify(network, smaller, label, method="interval").status == "robust"
    larger = Ball("linf", point, radius + 2 / 127.5 / 32, -1, 1)
    assert verify(network, larger, label, method="interval").status == "unknown"


def test_a_smaller_number_of_inputs_is_certified_or_nothing_is_said() -> None:
    network, images = load_demo_network("sparse"), load_demo_images()
    point, label = images.point(1).astype(np.float32).astype(np.float64), int(images.labels[1])
    ball = L0Ball(point, 40, -1, 1, within=0.01)
    question = CommandQuestion(network, ball, label, "given", "all", "x", "x")
    text = certified_by_intervals(question, "violation", Deadline(10))
    assert text is not None and 1 <= int(text) < 40
    smaller = L0Ball(point, int(text), -1, 1, within=0.01)
    assert verify(network, smaller, label, method="interval").status == "robust"
    wide = L0Ball(point, 300, -1, 1)
    question = CommandQuestion(network, wide, label, "given", "all", "x", "x")
    assert certified_by_intervals(question, "violation", Deadline(1e-9)) is None


def test_targets_without_any_bound_are_said_to_have_none() -> None:
    open_ = [TargetResult(f"class {k}", "timeout", rival=k) for k in (1, 2)]
    assert _hardest(open_, ()) == "2 open, no bound is known"
