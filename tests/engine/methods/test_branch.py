"""Method `bab`: the exact minimum, limits of time and memory, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.engine.search import tree
from bnncert.engine.search.tree import Tree
from bnncert.model.loading import load_demo_images, load_demo_network
from tests.in_process import without_progress
from tests.strategies import NORMS, few, questions

DATA = Path(bnncert.__file__).parent / "data"


def demo(
    which: Literal["sparse", "dense"], image: int, delta: float
) -> tuple[bnncert.Network, bnncert.Region, int]:
    network, data = load_demo_network(which), load_demo_images()
    region = bnncert.Ball("linf", data.point(image), delta / 127.5, -1.0, 1.0)
    return network, region, int(data.labels[image])


def test_the_minimum_of_the_demo_network_is_met_at_its_point() -> None:
    network, region, label = demo("sparse", 1, 0.2)
    result = bnncert.bound(network, region, label, rivals="runner-up", method="bab", timeout=120)
    (target,) = result.targets
    assert target.lower == target.upper > 0
    point = [Fraction(v) for v in target.details["lowest at"]]
    inside = region.settle(np.array([float(v) for v in point]))
    assert inside is not None and target.rival is not None
    scores = network.evaluate(inside)
    assert scores[label] - scores[target.rival] == pytest.approx(target.upper)


def test_an_interrupted_minimum_has_valid_bounds() -> None:
    network, region, label = demo("sparse", 6, 1.0)
    result = bnncert.bound(network, region, label, rivals="runner-up", method="bab", timeout=1.5)
    (target,) = result.targets
    assert target.status in ("timeout", "not_robust")
    assert -np.inf < target.lower < target.upper < np.inf
    assert len(target.details["lowest at"]) == network.inputs


@pytest.mark.parametrize("method", ["bab", "auto"])
@pytest.mark.parametrize("processes", [1, 2])
def test_the_time_limit_holds_on_a_hard_question(method: str, processes: int) -> None:
    network, region, label = demo("dense", 2, 1.0)
    started = time.monotonic()
    result = bnncert.verify(
        network,
        region,
        label,
        rivals="runner-up",
        method=method,
        timeout=1.0,
        options=Options(processes=processes),
    )
    assert time.monotonic() - started < 3.0
    assert result.status == "timeout"
    assert result.lower <= result.upper
    assert result.lower > -np.inf


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@few(20)
def test_a_tiny_memory_limit_changes_no_verdict(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    result = question.verify("bab", options=Options(memory=1e-9))
    assert result.status == question.expected()


def test_a_failed_allocation_ends_the_search_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, region, label = demo("sparse", 17, 1.0)
    visit = Tree._visit

    def run_out(tree: Tree, *arguments: object) -> object:
        if tree.outcome.nodes > 3:
            raise MemoryError
        return visit(tree, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Tree, "_visit", run_out)
    # With coupling the root is proved.
    options = Options(coupling="off")
    result = bnncert.verify(
        network, region, label, rivals="runner-up", method="bab", timeout=60, options=options
    )
    assert result.status == "unknown"
    assert result.targets[0].note == "out of memory"
    assert -np.inf < result.lower <= 0


def test_the_same_seed_gives_the_same_answer() -> None:
    # While the compiled functions are being loaded, conflicts may have other multipliers.
    assert tree.is_ready(tree.WORTH_IT) or tree.NODES.wait(120.0)
    question = demo("dense", 18, 0.5)
    answers = [
        bnncert.verify(
            *question, rivals="runner-up", method="bab", options=Options(processes=1, seed=3)
        )
        for _ in range(2)
    ]
    first, second = (a.targets[0] for a in answers)
    assert first.status == second.status == "robust"
    assert (first.lower, first.details) == (second.lower, second.details)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("seconds", [0.05, 1.0])
def test_ctrl_c_ends_all_processes_and_says_so_in_one_line(seconds: float) -> None:
    script = (
        "import signal\n"
        "import bnncert.cli.verify\n"
        "from bnncert.cli.program import main\n"
        "import bnncert.engine.search.parallel as parallel\n"
        "parallel.ALONE = 0.1\n"
        "parallel.usable_cores = lambda: 2\n"
        # A parent may have told its children to ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "if __name__ == '__main__':\n"
        "    print('ready', flush=True)\n"
        "    main()\n"
    )
    arguments = [
        *("verify", str(DATA / "mnist_dense.npz"), "--index", "2", "--method", "bab"),
        *("--input", f"{DATA / 'mnist_test_100.npz'}:images", "--radius", repr(1.0 / 127.5)),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(DATA.parents[1])},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until = time.monotonic() + 60
        while len(members(process.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.1)
        # The process, one worker, and Python's tracker of resources.
        assert len(members(process.pid)) >= 3
        # Soon, the worker is still at its imports.
        time.sleep(seconds)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        started = time.monotonic()
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - started < 3
        assert process.returncode == 130
        assert without_progress(err) == "bnncert: interrupted\n"
        assert "of 9 targets are decided" in out.splitlines()[-1]
        time.sleep(0.5)
        assert members(process.pid) == []
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def members(group: int) -> list[int]:
    """The processes of a group that are alive."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(p) for p, g, state in rows if int(g) == group and not state.startswith("Z")]
