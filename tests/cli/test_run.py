"""`bnncert run`: answers known by hand, and what is left after a kill, Ctrl-C and a full disk.

The network is that of the command line's tests: class 0 wins on the quarter plane x0 > |x1|, so
the distance of (a, 0) to its border is a/2 in L-inf, a/sqrt(2) in L2 and a in L1.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import InputError, Network
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.report.summary import summarise
from bnncert.results.instance import InstanceAnswer, Settings
from bnncert.results.labelled_points import Data, Selection, read_data
from bnncert.results.plan import Plan, plan_run
from bnncert.results.rows import Question, Row, stored_floats
from bnncert.results.runner import Place, run_plan
from bnncert.results.store import ResultsFile
from tests.in_process import Outcome, command_line

WEIGHTS = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]]))
BIASES = (np.zeros(2), np.array([1.0, 0.0, 0.5]))

#: Points (a, 0) of class 0, the last with a wrong label.
POINTS = np.array([[0.5, 0.0], [1.0, 0.0], [1.5, 0.0], [1.0, 0.0]])
LABELS = np.array([0, 0, 0, 2])


@pytest.fixture
def diamond() -> Network:
    return Network.from_arrays(WEIGHTS, BIASES, input_lo=-2.0, input_hi=2.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a network and data in it."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    arrays: dict[str, Any] = {}
    for i, (w, b) in enumerate(zip(WEIGHTS, BIASES, strict=True)):
        arrays[f"W{i}"], arrays[f"b{i}"] = w, b
    np.savez(tmp_path / "net.npz", input_lo=-2.0, input_hi=2.0, **arrays)
    np.savez(tmp_path / "data.npz", points=POINTS, labels=LABELS)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what runs `bnncert run` inside this process."""

    return command_line(monkeypatch, capfd, "run")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(bnncert.__file__).parents[1])}


def rows_of(path: Path) -> list[Row]:
    with ResultsFile(path) as results:
        return results.rows()


def answered(plan: Plan, results: ResultsFile) -> list[Row]:
    """Run a plan in this process and return its rows."""
    finished = run_plan(plan, results)
    assert finished.failures == ()
    return [row for _, row in finished.rows]


def without_times(rows: list[Row]) -> list[Row]:
    """Return rows in the order of the questions, and without what the clock decides."""
    plain = []
    for row in rows:
        targets = json.loads(row.per_target)
        for target in targets:
            # The details hold the seconds of every stage.
            del target["seconds"], target["details"]
        plain.append(replace(row, seconds=0.0, finished_at="", per_target=json.dumps(targets)))
    return sorted(plain, key=lambda row: row.key.digest)


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of the summary: radius, six counts and times, accuracy."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("radius "))
    return [line.split() for line in lines[start + 1 :] if line.strip().endswith("%")]


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "small", "large"), [("linf", 0.3, 0.6), ("l2", 0.4, 0.9), ("l1", 0.6, 1.2)]
)
def test_each_point_is_answered_at_each_radius(
    diamond: Network, tmp_path: Path, norm: Any, small: float, large: float
) -> None:
    plan = plan_run(
        diamond, Data(POINTS, LABELS, "points"), [small, large], settings=Settings(norm=norm)
    )
    with ResultsFile(tmp_path / "r.sqlite") as results:
        rows = answered(plan, results)
    at_small = ["not_robust", "robust", "robust", "misclassified"]
    at_large = ["not_robust", "not_robust", "robust", "misclassified"]
    assert [row.status for row in rows] == at_small + at_large
    assert [(row.key.radius, row.key.input_index) for row in rows] == [
        (r, i) for r in (small, large) for i in range(4)
    ]
    assert [row.predicted for row in rows] == [0] * 8
    for row in rows:
        point = stored_floats(row.counterexample, "row")
        assert (point is not None) == (row.status in ("not_robust", "misclassified"))
        if point is not None:
            centre = POINTS[row.key.input_index]
            assert bnncert.Ball(norm, centre, row.key.radius, -2, 2).contains(point)
            assert diamond.classify(point)[0] != row.key.label
    assert rows[3].stage == "centre"
    assert rows[1].lower == 2.5
    summaries = summarise(rows)
    assert [(s.radius, s.instances, s.misclassified) for s in summaries] == [
        (small, 4, 1),
        (large, 4, 1),
    ]
    assert [(s.robust, s.not_robust, s.undecided) for s in summaries] == [(2, 1, 0), (1, 2, 0)]
    assert [s.certified for s in summaries] == [0.5, 0.25]
    # The misclassified input was not asked about.
    assert summaries[0].max_seconds == max(row.seconds for row in rows[:3])
    assert summaries[0].mean_seconds == pytest.approx(sum(row.seconds for row in rows[:3]) / 3)


def test_undecided_is_counted(diamond: Network, tmp_path: Path) -> None:
    settings = Settings(method="interval")
    plan = plan_run(diamond, Data(POINTS, LABELS, "points"), [0.6], settings=settings)
    with ResultsFile(tmp_path / "r.sqlite") as results:
        summary = summarise(answered(plan, results))[0]
    assert (summary.undecided, summary.not_robust, summary.misclassified) == (2, 0, 1)


def test_any_class_that_wins_at_the_centre_makes_it_misclassified(
    diamond: Network, tmp_path: Path
) -> None:
    # Label 2 beats class 1 at (1, 0), but class 0 beats both.
    plan = plan_run(diamond, Data(POINTS, LABELS, "p"), [0.25], settings=Settings(rivals=1))
    with ResultsFile(tmp_path / "r.sqlite") as results:
        rows = answered(plan, results)
    assert [row.status for row in rows] == ["robust", "robust", "robust", "misclassified"]


@pytest.mark.parametrize("label", [0, 1])
def test_a_tie_at_the_centre_is_a_violation_but_can_be_bounded(tmp_path: Path, label: int) -> None:
    # Scores are x_1 + 1 and x_2 + 1, equal at (1, 1), where the network's class is 0.
    layers = [np.eye(2), np.eye(2)]
    tied = Network.from_arrays(layers, [np.zeros(2), np.ones(2)], input_lo=-2.0, input_hi=2.0)
    data = Data(np.array([[1.0, 1.0]]), np.array([label]), "p")
    found = {}
    questions: tuple[Question, ...] = ("verify", "bound")
    for question in questions:
        settings = Settings(question=question, method="sdp")
        with ResultsFile(tmp_path / f"{question}.sqlite") as results:
            (found[question],) = answered(plan_run(tied, data, [0.5], settings=settings), results)
    assert found["verify"].predicted == 0
    assert found["verify"].status == ("misclassified" if label else "not_robust")
    assert (found["bound"].status, found["bound"].lower) == ("unknown", 0.0)


def test_inputs_of_the_target_class_are_left_out(diamond: Network) -> None:
    plan = plan_run(diamond, Data(POINTS, LABELS, "p"), [0.25], settings=Settings(rivals=2))
    assert [i.key.input_index for i in plan.instances] == [0, 1, 2]
    assert plan.notes == ("1 input(s) of class 2, the rival itself, left out",)


def test_the_box_of_the_network_is_part_of_the_question(diamond: Network) -> None:
    data = Data(POINTS, LABELS, "p")
    wide = plan_run(diamond, data, [0.25]).instances[0].key
    same = plan_run(diamond, data, [0.25], clip=(-2.0, 2.0)).instances[0].key
    narrow = plan_run(diamond, data, [0.25], clip=(-1.5, 1.5)).instances[0].key
    assert wide == same
    assert (wide.clip, narrow.clip) == ("-2.0,2.0", "-1.5,1.5")
    free = replace(diamond, input_lo=None, input_hi=None)
    assert plan_run(free, data, [0.25]).instances[0].key.clip == "none"
    uneven = replace(diamond, input_lo=np.array([-2.0, -1.0]))
    assert plan_run(uneven, data, [0.25]).instances[0].key.clip.startswith("sha256:")


def test_data_files(folder: Path) -> None:
    data = read_data("data.npz")
    assert data.labels is not None
    assert data.labels.tolist() == LABELS.tolist()
    np.testing.assert_array_equal(data.array, POINTS)
    np.save("plain.npy", POINTS)
    assert read_data("plain.npy").labels is None
    np.savez("two.npz", a=POINTS, b=POINTS + 1, y=LABELS)
    with pytest.raises(InputError, match=r"two.npz: holds a, b, y; name the points"):
        read_data("two.npz")
    np.testing.assert_array_equal(read_data("two.npz:b").array, POINTS + 1)
    np.savez("odd.npz", a=POINTS, labels=LABELS + 0.5)
    with pytest.raises(InputError, match="not whole numbers"):
        read_data("odd.npz")


def test_without_labels_the_network_answers_itself(diamond: Network) -> None:
    plan = plan_run(diamond, Data(POINTS, None, "p"), [0.25], selection=Selection(2, 2))
    assert [(i.key.input_index, i.label) for i in plan.instances] == [(2, 0), (3, 0)]


def test_the_time_limit_is_kept_for_each_instance(tmp_path: Path) -> None:
    images = load_demo_images()
    network = load_demo_network("dense")
    data = Data(images.pixels, images.labels.astype(np.int64), "images")
    settings = Settings(method="milp", timeout=0.4)
    plan = plan_run(network, data, [1 / 127.5], selection=Selection(2, 2), settings=settings)
    with ResultsFile(tmp_path / "r.sqlite") as results:
        started = time.monotonic()
        rows = answered(plan, results)
        assert time.monotonic() - started < 5.4
    assert [row.status for row in rows] == ["timeout", "timeout"]
    assert all(0.2 < row.seconds < 2.2 for row in rows)


# --- the command -----------------------------------------------------------------------------

COMMAND = ("net.npz", "--data", "data.npz", "--radius", "0.3,0.6", "--out", "r.sqlite")


def test_the_command_prints_a_summary_and_goes_on_where_it_was(
    folder: Path, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(*COMMAND, "--count", "2")
    assert (first.code, first.err) == (0, "")
    assert [(c[0], c[3:8], c[-2]) for c in table_rows(first.out)] == [
        ("0.3", ["2", "0", "1", "1", "0"], "50.0"),
        ("0.6", ["2", "0", "0", "2", "0"], "0.0"),
    ]
    before = rows_of(folder / "r.sqlite")
    second = run(*COMMAND)
    assert second.code == 0
    assert "4 of 8 instances are in r.sqlite already" in second.out
    assert [c[3:8] for c in table_rows(second.out)] == [
        ["4", "1", "2", "1", "0"],
        ["4", "1", "1", "2", "0"],
    ]
    after = rows_of(folder / "r.sqlite")
    assert after[:4] == before
    assert len(after) == 8

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to verify")

    monkeypatch.setattr("bnncert.results.instance.verify", never)
    third = run(*COMMAND)
    assert (third.code, table_rows(third.out)) == (0, table_rows(second.out))


def test_another_question_is_another_row(folder: Path, run: Callable[..., Outcome]) -> None:
    options = ((), ("--seed", "1"), ("--sign-zero", "minus"), ("--ties", "robust"))
    options += (("--clip", "-1.5", "1.5"), ("--timeout", "30"), ("--norm", "l1"))
    for number, extra in enumerate(options, start=1):
        assert run(*COMMAND, "--count", "1", *extra).code == 0
        assert len(rows_of(folder / "r.sqlite")) == 2 * number


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--radius", "0.1,x"), "--radius is '0.1,x'"),
        (("--radius", "-1"), "--radius is '-1'"),
        (("--radius", ""), "--radius is ''"),
        (("--count", "5"), "count is 5"),
        (("--count", "0"), "count is 0"),
        (("--index", "4"), "index 4; it holds points 0 to"),
        (("--index", "-1"), "index -1; it holds points 0 to"),
        (("--method", "magic"), "no method 'magic'"),
        (("--rivals", "9"), "rival is 9"),
        (("--rivals", "most"), "--rivals is 'most'"),
        (("--timeout", "0"), "timeout is 0"),
        (("--seed", "-1"), "seed is -1"),
        (("--processes", "-1"), "workers is -1"),
        (("--data", "none.npz"), "none.npz: no such file"),
        (("--data", "net.npz"), "net.npz: holds"),
        (("--clip", "1", "0"), "--clip is 1.0 0.0"),
        (("--clip", "0.75", "1", "--norm", "l2"), "data.npz [0]: "),
        (("--out", "none/r.sqlite"), "none/r.sqlite: cannot be written (No such directory)"),
        (("--out", "."), ".: cannot be written (Is a directory)"),
        (("--out", "data.npz"), "data.npz: cannot be written (this command reads it)"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, run: Callable[..., Outcome], arguments: tuple[str, ...], words: str
) -> None:
    data = (folder / "data.npz").read_bytes()
    answer = run(*COMMAND, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("bnncert: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert (folder / "data.npz").read_bytes() == data


def test_a_full_disk_is_one_line_and_loses_nothing(
    folder: Path, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    class SmallDisk(ResultsFile):
        def add(self, *rows: Row) -> int:
            kept.append(len(self.rows()))
            if len(kept) == 2:
                pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
                self._connection.execute(f"PRAGMA max_page_count = {pages}")
                rows = tuple(replace(row, stage="x" * 20_000) for row in rows)
            return super().add(*rows)

    with monkeypatch.context() as patch:
        patch.setattr("bnncert.results.store.ResultsFile", SmallDisk)
        patch.setattr("bnncert.results.interval_batches.MOST", 3)
        answer = run(*COMMAND)
    assert answer.code == 2
    assert answer.err == "bnncert: r.sqlite: cannot be written (database or disk is full)\n"
    assert len(rows_of(folder / "r.sqlite")) == kept[-1] > 0
    assert run(*COMMAND).code == 0
    assert len(rows_of(folder / "r.sqlite")) == 8


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_protected_folder_is_one_line(folder: Path, run: Callable[..., Outcome]) -> None:
    (folder / "protected").mkdir(mode=0o500)
    answer = run(*COMMAND, "--out", "protected/r.sqlite")
    assert answer.code == 2
    assert answer.err == ("bnncert: protected/r.sqlite: cannot be written (Permission denied)\n")


def test_a_file_that_cannot_be_opened_is_one_line(
    folder: Path, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: Any, **__: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", connect)
    answer = run(*COMMAND)
    assert answer.code == 2
    assert answer.err == "bnncert: r.sqlite: cannot be written (unable to open database file)\n"


# --- processes -------------------------------------------------------------------------------

#: The command line with a pause in each instance, so that a signal surely finds it at work.
SLOW = """
import signal, sys, time
import bnncert.results.instance as answering
import bnncert.results.interval_batches as batches
from bnncert.cli.program import main

# A parent may have told its children to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
def slowed(quick):
    def slow(*arguments):
        time.sleep(0.08)
        return quick(*arguments)
    return slow
answering.answer = slowed(answering.answer)
batches.MOST = 2
batches.BatchIntervals.bounds = slowed(batches.BatchIntervals.bounds)
main()
"""

MANY = ("--data", "many.npz", "--radius", "0.3,0.6", "--out")


@pytest.fixture
def many(folder: Path) -> Path:
    """Return a folder whose data make a run of 30 instances."""
    generator = np.random.default_rng(0)
    points = generator.uniform(-2, 2, size=(15, 2)).round(2)
    np.savez(folder / "many.npz", points=points, labels=generator.integers(0, 3, size=15))
    return folder


def start(script: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **options,
    )


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Return once some rows are there, read without getting in the writer's way."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        if path.exists():
            reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
            try:
                if reader.execute("SELECT count(*) FROM results").fetchone()[0] >= count:
                    return
            except sqlite3.OperationalError:
                pass
            finally:
                reader.close()
        time.sleep(0.02)
    raise AssertionError("no rows came")


def finish(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=60)
    return Outcome(process.returncode, out, err)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_after_kill_9_the_same_command_ends_with_the_same_rows(
    many: Path, run: Callable[..., Outcome]
) -> None:
    undisturbed = run("net.npz", *MANY, "whole.sqlite")
    assert (undisturbed.code, undisturbed.err) == (0, "")
    whole = rows_of(many / "whole.sqlite")
    assert len(whole) == 30
    assert {row.status for row in whole} == {"robust", "not_robust", "misclassified"}

    killed = start(SLOW, "net.npz", *MANY, "killed.sqlite")
    wait_for_rows(many / "killed.sqlite", 5, killed)
    killed.send_signal(signal.SIGKILL)
    assert finish(killed).code == -signal.SIGKILL
    kept = rows_of(many / "killed.sqlite")
    assert 5 <= len(kept) < 30

    resumed = run("net.npz", *MANY, "killed.sqlite")
    assert (resumed.code, resumed.err) == (0, "")
    assert f"{len(kept)} of 30 instances are in killed.sqlite already" in resumed.out
    rows = rows_of(many / "killed.sqlite")
    assert rows[: len(kept)] == kept
    assert without_times(rows) == without_times(whole)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_keeps_the_rows_and_says_how_to_go_on(many: Path) -> None:
    process = start(SLOW, "net.npz", *MANY, "r.sqlite")
    wait_for_rows(many / "r.sqlite", 3, process)
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert (stopped.code, stopped.err) == (130, "bnncert: interrupted\n")
    kept = len(rows_of(many / "r.sqlite"))
    assert 3 <= kept < 30
    assert sum(int(cells[3]) for cells in table_rows(stopped.out)) == kept
    last = stopped.out.splitlines()[-1]
    assert last == f"{kept} of 30 instances are in r.sqlite; the same command continues from there"


def test_two_runs_share_one_file(many: Path, run: Callable[..., Outcome]) -> None:
    slow = start(SLOW, "net.npz", *MANY, "r.sqlite")
    wait_for_rows(many / "r.sqlite", 1, slow)
    quick = run("net.npz", *MANY, "r.sqlite")
    # The slow one had begun and was not done: both have written.
    known = re.search(r"^(\d+) of 30 instances are in r.sqlite already", quick.out, re.MULTILINE)
    assert known is not None
    assert 1 <= int(known[1]) < 30
    for done in (quick, finish(slow)):
        assert (done.code, done.err) == (0, "")
        assert [cells[3] for cells in table_rows(done.out)] == ["15", "15"]
    rows = rows_of(many / "r.sqlite")
    assert len({row.key for row in rows}) == len(rows) == 30


# --- workers ---------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except OSError:
        return False


def test_workers_find_what_one_process_finds(diamond: Network, tmp_path: Path) -> None:
    plan = plan_run(diamond, Data(POINTS, LABELS, "p"), [0.3, 0.6])
    with ResultsFile(tmp_path / "one.sqlite") as results:
        alone = answered(plan, results)
    seen: list[tuple[int, int]] = []
    with ResultsFile(tmp_path / "two.sqlite") as results:
        together = run_plan(
            plan,
            results,
            place=Place(workers=2),
            progress=lambda done, total, answer: seen.append((done, total)),
        )
    assert without_times([row for _, row in together.rows]) == without_times(alone)
    assert seen == [(k, 8) for k in range(9)]
    assert multiprocessing.active_children() == []


def test_an_instance_whose_workers_die_is_named(
    folder: Path, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(networks: Any, instances: Any, workers: int) -> Any:
        assert workers == 2
        for instance in instances:
            yield InstanceAnswer(instance, None, failure="its worker process ended unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr("bnncert.results.runner.answer_in_processes", fail)
        # A method that does not begin with intervals has no batches.
        failed = run(*COMMAND, "--processes", "2", "--count", "1", "--method", "bab")
    assert failed.code == 2
    assert failed.err == (
        "bnncert: 2 of 2 instances have no answer; the same command tries them again\n"
    )
    named = "no answer: net.npz, input 0, linf 0.3, bab: its worker process ended unexpectedly"
    assert named in failed.out.splitlines()
    assert run(*COMMAND, "--count", "1", "--method", "bab").code == 0


HARD = ("--radius", repr(1 / 127.5), "--method", "milp", "--timeout", "300", "--processes", "2")


@pytest.fixture
def hard(folder: Path) -> tuple[str, ...]:
    """Return a run with one quick instance and two that take minutes."""
    data = Path(bnncert.__file__).parent / "data"
    images = load_demo_images()
    chosen = [8, 2, 2]
    labels = images.labels[chosen].astype(np.int64)
    labels[0] = (labels[0] + 1) % 10
    np.savez(folder / "hard.npz", images=images.pixels[chosen], labels=labels)
    return (str(data / "mnist_dense.npz"), "--data", "hard.npz", *HARD, "--out", "r.sqlite")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(
    folder: Path, hard: tuple[str, ...], sent: signal.Signals
) -> None:
    process = start(
        "import signal\nfrom bnncert.cli.program import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nmain()",
        *hard,
        start_new_session=True,
    )
    wait_for_rows(folder / "r.sqlite", 1, process)
    workers = children(process.pid)
    assert len(workers) >= 2
    if sent == signal.SIGINT:
        # A terminal sends Ctrl-C to the whole group.
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    ended = finish(process)
    until = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    assert [row.status for row in rows_of(folder / "r.sqlite")] == ["misclassified"]
    if sent == signal.SIGINT:
        assert (ended.code, ended.err) == (130, "bnncert: interrupted\n")
        assert "1 of 3 instances are in r.sqlite; the same command" in ended.out


def test_bundled_images_are_named_as_the_user_names_them(
    folder: Path, run: Callable[..., Outcome]
) -> None:
    asked = ("demo:sparse", "--data", "demo", "--radius", "0.1px", "--out", "r.sqlite")
    for count in ("0", "101"):
        answer = run(*asked, "--count", count)
        assert answer.code == 2
        assert answer.err == f"bnncert: demo: count is {count}; from 0 on it holds 100\n"
