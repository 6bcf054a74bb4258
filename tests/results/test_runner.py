"""Runs: known answers, nothing twice, and what is left after Ctrl-C, a dead worker, a bad file."""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.engine.batches import BatchIntervals
from bnncert.kernel.checker import check
from bnncert.results import instance as answering
from bnncert.results import interval_batches, runner
from bnncert.results.configuration import read_configuration, with_changes
from bnncert.results.instance import InstanceAnswer
from bnncert.results.plan import Plan, plan_experiment
from bnncert.results.runner import Place, run_plan
from bnncert.results.store import ResultsFile
from tests.results.conftest import Outcome
from tests.results.tiny import CONFIG, INSTANCES, POINTS, content, write_files

HERE = Place(workers=0)


def planned(timeout: float | None = None) -> Plan:
    config = with_changes(read_configuration(Path("tiny.json")), timeout=timeout)
    return plan_experiment(config)


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing is left to answer")


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- answers ---------------------------------------------------------------------------------


def test_answers_known_by_hand(folder: Path) -> None:
    with ResultsFile("r.sqlite") as results:
        finished = run_plan(planned(), results, place=HERE)
        networks, inputs = results.networks(), results.inputs()
    assert finished.failures == ()
    assert len(finished.rows) == INSTANCES
    reach = {"linf": 0.5, "l2": 1 / math.sqrt(2)}
    for instance, row in finished.rows:
        if instance.network != "diamond":
            continue
        index = row.key.input_index
        if index == 3:
            assert row.status == "misclassified"
            continue
        safe = row.key.radius < reach[row.key.norm] * POINTS[index, 0]
        if row.key.method == "auto":
            assert row.status == ("robust" if safe else "not_robust")
        else:
            assert row.status == "robust" if safe and row.lower else row.status != "robust"
    # Bounds enclose: no sampled margin is below the bound of the same ball.
    lower: dict[tuple[str, float], float] = {}
    upper: dict[tuple[str, float], float] = {}
    for instance, row in finished.rows:
        if instance.network == "dice":
            assert row.key.question == "bound"
            place = (row.key.input_hash, row.key.radius)
            if row.key.method == "lp":
                assert row.lower is not None
                lower[place] = row.lower
            else:
                assert row.key.method == "sample samples=50"
                assert row.upper is not None
                upper[place] = row.upper
    assert lower.keys() == upper.keys()
    assert len(lower) == 3
    assert all(lower[place] <= upper[place] for place in lower)
    # What the hashes stand for is in the file.
    assert {n.name: n.sizes for n in networks} == {"diamond": (2, 2, 3), "dice": (3, 4, 4, 3)}
    assert (networks[0].input_lo, networks[0].input_hi) == (-2.0, 2.0)
    points = {record.input_hash: record.point for record in inputs}
    for instance, row in finished.rows:
        if instance.network == "diamond":
            np.testing.assert_array_equal(points[row.key.input_hash], POINTS[row.key.input_index])


def test_a_dry_run_prints_the_plan_and_makes_nothing(
    folder: Path, experiment: Callable[..., Outcome]
) -> None:
    before = sorted(os.listdir())
    shown = experiment("tiny.json", "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    assert sorted(os.listdir()) == before
    table = [cells for cells in lines(shown.out) if cells[0] in ("diamond", "dice")]
    assert len(table) == 10
    assert ["diamond", "verify", "l2", "0.6", "real", "inputs", "auto", "4", "0", "-", "-"] in table
    expected = ["dice", "bound", "linf", "0.1", "real", "inputs", "sample", "samples=50"]
    expected += ["3", "0", "30", "s"]
    assert [*expected, "1", "min", "30", "s"] in table
    assert shown.out.splitlines()[-1] == (
        "38 instances, 0 in tiny.sqlite already; no limit of work"
    )
    limited = experiment(
        "tiny.json", "--dry-run", "--timeout", "2", "--count", "1", "--processes", "2"
    )
    # 8 kinds of one and 2 of one, 2 s each.
    assert limited.out.splitlines()[-1] == (
        "10 instances, 0 in tiny.sqlite already; at most 20 s of work, 10 s with 2 workers"
    )


def test_a_second_run_computes_nothing(
    folder: Path, experiment: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = experiment("tiny.json", "--processes", "0", "--count", "1")
    assert (first.code, first.err) == (0, "")
    assert "10 of 10 instances in tiny.sqlite" in first.out
    second = experiment("tiny.json", "--processes", "0")
    assert second.code == 0
    assert "of 38 instances are in tiny.sqlite already" in second.out
    whole = content(folder / "tiny.sqlite")
    assert len(whole["results"]) >= INSTANCES
    monkeypatch.setattr(answering, "answer", never)
    before = (folder / "tiny.sqlite").read_bytes()
    third = experiment("tiny.json", "--processes", "0")
    assert (third.code, third.err) == (0, "")
    assert "38 of 38 instances are in tiny.sqlite already" in third.out
    dry = experiment("tiny.json", "--dry-run")
    assert "38 instances, 38 in tiny.sqlite already; at most 0 s of work" in dry.out
    assert content(folder / "tiny.sqlite") == whole
    # A dry run does not even touch the file.
    after = (folder / "tiny.sqlite").read_bytes()
    assert experiment("tiny.json", "--dry-run").code == 0
    assert (folder / "tiny.sqlite").read_bytes() == after
    assert len(before) == len(after)


def test_certificates_are_written_and_named_in_the_rows(folder: Path) -> None:
    part = {**CONFIG["parts"][0], "norms": "linf", "methods": "auto", "certificates": True}
    config = write_files(folder, {**CONFIG, "parts": [part]})
    (folder / "deep").mkdir()
    with ResultsFile(folder / "deep" / "r.sqlite") as results:
        finished = run_plan(plan_experiment(read_configuration(config)), results, place=HERE)
    network = bnncert.load("net.npz")
    named = [row.certificate for _, row in finished.rows]
    for (_, row), name in zip(finished.rows, named, strict=True):
        assert name is not None, row.status
        assert not Path(name).is_absolute()
        # Raises unless it accepts.
        verdict = check(folder / "deep" / name, network).verdict
        assert verdict == ("robust" if row.status == "robust" else "not_robust")
    assert len(set(named)) == 8
    assert {p.name for p in (folder / "deep" / "r-certificates").iterdir()} == {
        Path(str(name)).name for name in named
    }


def test_ctrl_c_inside_a_batch_loses_no_other_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultsFile("whole.sqlite") as results:
        run_plan(planned(), results, place=HERE)
    monkeypatch.setattr(interval_batches, "MOST", 3)
    bound, calls = BatchIntervals.bounds, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return bound(*arguments)

    with ResultsFile("r.sqlite") as results:
        with monkeypatch.context() as patch:
            patch.setattr(BatchIntervals, "bounds", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run_plan(planned(), results, place=HERE)
        before = content(folder / "r.sqlite")["results"]
        # Two batches of three are complete.
        assert len(before) == 6
        assert len(run_plan(planned(), results, place=HERE).rows) == INSTANCES
    after = content(folder / "r.sqlite")["results"]
    assert [row for row in after if row in before] == before
    assert after == content(folder / "whole.sqlite")["results"]


def test_one_instance_that_fails_stops_no_other(
    folder: Path, experiment: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = answering.answer

    def picky(network: Any, instance: Any, *rest: Any) -> Any:
        if instance.key.input_index == 2 and instance.key.question == "bound":
            raise ZeroDivisionError("by hand")
        return quick(network, instance, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer", picky)
        failed = experiment("tiny.json", "--processes", "0")
    assert failed.code == 2
    assert failed.err == (
        "bnncert: 2 of 38 instances have no answer; the same command tries them again\n"
    )
    expected = "no answer: dice, input 2, linf 0.1, lp: ZeroDivisionError: by hand"
    assert expected in failed.out.splitlines()
    assert experiment("tiny.json", "--processes", "0").code == 0
    assert len(content(folder / "tiny.sqlite")["results"]) == INSTANCES


# --- files that say no -----------------------------------------------------------------------


def one_line(answer: Outcome) -> str:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("bnncert: ")
    assert answer.err.count("\n") == 1
    return answer.err


def test_a_results_file_from_the_future(folder: Path, experiment: Callable[..., Outcome]) -> None:
    with ResultsFile("tiny.sqlite") as results:
        results._connection.execute("UPDATE meta SET value = '9' WHERE name = 'schema_version'")
    before = Path("tiny.sqlite").read_bytes()
    for extra in ((), ("--dry-run",)):
        text = one_line(experiment("tiny.json", "--processes", "0", *extra))
        assert "tiny.sqlite: results of schema version 9; this bnncert reads" in text
    assert Path("tiny.sqlite").read_bytes() == before


def test_a_locked_results_file(
    folder: Path, experiment: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bnncert.results.store.BUSY_SECONDS", 0.1)
    ResultsFile("tiny.sqlite").close()
    with closing(sqlite3.connect("tiny.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        text = one_line(experiment("tiny.json", "--processes", "0"))
        assert text == "bnncert: tiny.sqlite: cannot be written (database is locked)\n"
        text = one_line(experiment("tiny.json", "--dry-run"))
        assert text == "bnncert: tiny.sqlite: cannot be read (database is locked)\n"
        other.execute("ROLLBACK")
    assert experiment("tiny.json", "--processes", "0", "--count", "1").code == 0


@pytest.mark.parametrize("broken", ["header", "page", "text"])
def test_a_corrupt_results_file(
    folder: Path, experiment: Callable[..., Outcome], broken: str
) -> None:
    assert experiment("tiny.json", "--processes", "0", "--count", "1").code == 0
    good = Path("tiny.sqlite").read_bytes()
    bad = {
        "header": good[:16] + b"\xff" * 84 + good[100:],
        "page": good[:100] + b"\xff" * 4000 + good[4100:],
        "text": b"key,status\n",
    }[broken]
    Path("tiny.sqlite").write_bytes(bad)
    for extra in ((), ("--dry-run",)):
        text = one_line(experiment("tiny.json", "--processes", "0", *extra))
        assert text.startswith("bnncert: tiny.sqlite: ")
        assert Path("tiny.sqlite").read_bytes() == bad


def test_one_cell_of_a_table_is_one_command(
    folder: Path, experiment: Callable[..., Outcome]
) -> None:
    cell = ("--network", "diamond", "--radius", "0.30", "--method", "auto", "--processes", "0")
    done = experiment("tiny.json", *cell)
    # Two norms and four points; the same rows as in a run of everything.
    assert (done.code, done.out.splitlines()[-1]) == (0, "8 of 8 instances in tiny.sqlite")
    rest = experiment("tiny.json", "--dry-run")
    assert f"{INSTANCES} instances, 8 in tiny.sqlite already" in rest.out
    # A network without its file does not stand in the way of the others.
    both = experiment("tiny.json", "--network", "dice", "--network", "diamond=net.npz", "--dry-run")
    assert f"{INSTANCES} instances" in both.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.json",), "none.json: no such file"),
        (("tiny.json", "--network", "dice="), "--network is 'dice='; expected NAME or NAME=FILE"),
        (("tiny.json", "--network", "cube"), "--network is cube; tiny.json has diamond, dice"),
        (("tiny.json", "--radius", "0.3,1px"), "--radius is 1 px; tiny.json has 0.3, 0.6, 0.1"),
        (("tiny.json", "--method", "milp"), "--method is milp; tiny.json has interval, auto, lp,"),
        (("tiny.json", "--network", "dice", "--method", "auto"), "no part has --network dice and"),
        (("tiny.json", "--network", "x=y"), "--network names x"),
        (("tiny.json", "--network", "dice=none.npz"), "none.npz"),
        (("tiny.json", "--count", "0"), "--count is 0"),
        (("tiny.json", "--timeout", "0"), "timeout is 0"),
        (("tiny.json", "--processes", "-1"), "workers is -1"),
        (("tiny.json", "--out", "none/r.sqlite"), "none/r.sqlite: cannot be written"),
        (("nothing-like-it",), "no bundled experiment"),
    ],
)
def test_bad_arguments_are_one_line(
    folder: Path, experiment: Callable[..., Outcome], arguments: tuple[str, ...], words: str
) -> None:
    assert words in one_line(experiment(*arguments))


@pytest.mark.skipif(
    importlib.util.find_spec("yaml") is None, reason="needs the extra 'experiments'"
)
def test_a_mistake_in_the_file_is_one_line_with_its_number(
    folder: Path, experiment: Callable[..., Outcome]
) -> None:
    Path("c.yaml").write_text(
        "networks:\n  - {name: a, file: net.npz}\ndata: data.npz\nmethods: lp\nradii:\n  - -1\n",
        encoding="utf-8",
    )
    text = one_line(experiment("c.yaml"))
    assert text == "bnncert: c.yaml:6: radius is -1; expected a number >= 0\n"


# --- processes -------------------------------------------------------------------------------


def test_worker_processes_and_one_that_is_killed(folder: Path) -> None:
    with ResultsFile("alone.sqlite") as results:
        run_plan(planned(), results, place=HERE)
    victims: list[int] = []

    def kill_one(done: int, total: int, answer: InstanceAnswer | None) -> None:
        children = multiprocessing.active_children()
        if done in (3, 9) and children:
            children[0].kill()
            victims.append(children[0].pid or 0)

    with ResultsFile("killed.sqlite") as results:
        finished = run_plan(planned(), results, place=Place(workers=2), progress=kill_one)
    assert len(set(victims)) == 2
    assert finished.failures == ()
    assert content(folder / "killed.sqlite") == content(folder / "alone.sqlite")
    assert multiprocessing.active_children() == []


class Deadly(str):
    """A text that ends every process that receives it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_an_instance_that_ends_its_workers_is_tried_twice_and_named(folder: Path) -> None:
    config = with_changes(read_configuration(Path("tiny.json")), count=1)
    plan = plan_experiment(config)
    first, second, third, *_ = plan.instances
    plan = replace(plan, instances=(first, replace(second, certificate=Deadly()), third))
    with ResultsFile("r.sqlite") as results:
        finished = run_plan(plan, results, place=Place(workers=1))
    assert [instance for instance, _ in finished.rows] == [first, third]
    (failed,) = finished.failures
    assert failed.instance is plan.instances[1]
    assert failed.failure == "its worker process ended unexpectedly (killed, or out of memory)"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_worker_that_ignores_the_clock_is_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.2)
    stopped: list[int] = []

    def stop_once(done: int, total: int, answer: InstanceAnswer | None) -> None:
        children = multiprocessing.active_children()
        if not stopped and children:
            # It takes the next instance and is never heard of again.
            os.kill(children[0].pid or 0, signal.SIGSTOP)
            stopped.append(done)

    config = with_changes(read_configuration(Path("tiny.json")), timeout=1.0, count=1)
    with ResultsFile("r.sqlite") as results:
        finished = run_plan(
            plan_experiment(config), results, place=Place(workers=1), progress=stop_once
        )
    words = [(row.status, row.per_target) for _, row in finished.rows]
    assert len(words) == 10
    assert [s for s, _ in words].count("timeout") == words.count(("timeout", "[]")) == 1
    slow = next(row for _, row in finished.rows if row.status == "timeout")
    assert 1 < slow.seconds < 20
    assert (slow.lower, slow.upper, slow.counterexample) == (None, None, None)


SLOW = """
import signal, sys, time
import bnncert.results.instance as answering
from bnncert.cli.program import main

# A parent may have told its children to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
quick, done = answering.answer, []
def slow(*arguments):
    done.append(1)
    if len(done) == 6:
        # As if Ctrl-C came while the sixth open one is being answered.
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)
    return quick(*arguments)
answering.answer = slow
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_keeps_what_is_there(folder: Path, experiment: Callable[..., Outcome]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SLOW, "experiment", "tiny.json", "--processes", "0"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(bnncert.__file__).parents[1])},
    )
    assert (ended.returncode, ended.stderr) == (130, "bnncert: interrupted\n")
    kept = content(folder / "tiny.sqlite")["results"]
    assert ended.stdout.splitlines()[-1] == (
        f"{len(kept)} of 38 instances are in tiny.sqlite; the same command continues from there"
    )
    # The five before it, and those of batches that come before it.
    assert 5 < len(kept) < INSTANCES
    assert experiment("tiny.json", "--processes", "0").code == 0
    after = content(folder / "tiny.sqlite")["results"]
    assert len(after) == INSTANCES
    assert [row for row in after if row in kept] == kept
