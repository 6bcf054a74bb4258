"""What an answer says about the rivals that a counterexample left undecided.

The network is that of tests/commands/diamond.py: at (1, 0) its scores are 3, 0, 0.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.method_run import _after_counterexample
from bnncert.engine.methods import Context, Options
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import TargetResult
from bnncert.problem import robustness
from tests.cli.diamond import DIAMOND, diamond_folder
from tests.in_process import Outcome, command_line

Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "160")
    return command_line(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return diamond_folder(tmp_path, monkeypatch)


ABOUT_X = ("net.npz", "--input", "x.npy", "--radius", "0.1")


def answers(out: str) -> dict[str, list[str]]:
    """Return the answer and the bounds in each row of the table."""
    rows = [line.split("  ") for line in out.splitlines() if line.startswith("class ")]
    return {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}


@pytest.mark.parametrize(
    ("label", "winner", "other", "margins"),
    [
        (1, "class 0", ["class 2", "violated"], (-3.0, -0.5)),
        (2, "class 0", ["class 1", "not tried"], (-2.5, 0.5)),
    ],
)
def test_a_misclassified_input_is_called_so(
    run: Run, folder: Path, label: int, winner: str, other: list[str], margins: tuple[float, float]
) -> None:
    ended = run("verify", *ABOUT_X, "--label", label, "--json", "a.json")
    assert ended.code == 1
    table = answers(ended.out)
    assert table[winner][:3] == ["misclassified", "-", f"{margins[0]:g}"]
    assert table[other[0]][:3] == [other[1], "-", f"{margins[1]:g}"]
    last = ended.out.splitlines()[-1]
    assert last.startswith("misclassified in ")
    assert f"the input itself is a counterexample for {winner}, margin {margins[0]:g}" in last
    tree = json.loads(Path("a.json").read_text())
    # What others read is as it was; the rest is new.
    assert (tree["status"], tree["misclassified"]) == ("not_robust", True)
    found = {t["target"]: (t["status"], t["finding"]) for t in tree["targets"]}
    assert found[winner] == ("not_robust", None)
    assert found[other[0]] == ("unknown", other[1].replace(" ", "_"))


def test_a_counterexample_has_one_margin_in_the_last_line(run: Run, folder: Path) -> None:
    ended = run("verify", "net.npz", "--input", "x.npy", "--radius", "0.75", "--label", "0")
    last = ended.out.splitlines()[-1]
    assert last.startswith("not robust in ")
    assert "margin at least" not in last
    assert last.count("margin") == 1
    assert "misclassified" not in ended.out


def test_only_what_nothing_was_applied_to_is_not_tried() -> None:
    # From (0, 0) any signs of the first layer are within reach.
    problem = robustness(
        DIAMOND.build(), bnncert.Ball("linf", np.array([0.25, 0.0]), 1.0), 0, "all", "violation"
    )
    first, second = problem.targets
    context = Context(Options(), Deadline(None), Replayer(problem))
    # h = (-, +) and scores 1, 2, -1.5; then h = (-, -) and scores -1, 0, 0.5.
    one = context.replayer.confirm(first, np.array([0.0, -0.5]))
    both = context.replayer.confirm(first, np.array([-0.5, 0.0]))
    assert one is not None
    assert both is not None
    refuted = TargetResult(first.name, "not_robust", counterexample=one, stage="attack")

    def told(found: TargetResult, other: TargetResult) -> tuple[object, ...]:
        _, after = _after_counterexample(problem, context, (found, other))
        return after.status, after.finding, after.upper

    cheap = TargetResult(second.name, "unknown", lower=-9.0, tried=False)
    assert told(refuted, cheap) == ("unknown", "not_tried", 2.5)
    pursued = TargetResult(second.name, "timeout", stage="bab")
    assert told(refuted, pursued) == ("timeout", None, 2.5)
    proved = TargetResult(second.name, "robust", lower=1.0, stage="interval")
    assert told(refuted, proved) == ("robust", None, np.inf)
    low = TargetResult(second.name, "unknown", upper=-0.5, stage="bab")
    assert told(refuted, low) == ("unknown", "violated", -0.5)
    refuted = TargetResult(first.name, "not_robust", counterexample=both, stage="attack")
    assert told(refuted, cheap) == ("unknown", "violated", -1.5)
    # Without a counterexample nothing is said.
    assert _after_counterexample(problem, context, (cheap, cheap)) == (cheap, cheap)


def test_a_tie_that_counts_as_robust_is_not_violated() -> None:
    tied = np.zeros(2), np.array([2.0, 0.0, 1.5])
    network = bnncert.Network.from_arrays(list(DIAMOND.weights), list(tied))
    ball = bnncert.Ball("linf", np.array([0.25, 0.0]), 1.0)
    # h = (-, -): scores 0, 0, 1.5.
    for ties, finding in (("robust", "not_tried"), ("violation", "violated")):
        problem = robustness(network, ball, 0, "all", ties)  # type: ignore[arg-type]
        context = Context(Options(), Deadline(None), Replayer(problem))
        first, second = problem.targets
        found = context.replayer.confirm(second, np.array([-0.5, 0.0]))
        assert found is not None
        undecided = TargetResult(first.name, "unknown", tried=False)
        refuted = TargetResult(second.name, "not_robust", counterexample=found)
        after, _ = _after_counterexample(problem, context, (undecided, refuted))
        assert (after.finding, after.upper) == (finding, 0.0)
