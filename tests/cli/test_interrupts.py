"""Ctrl-C at any moment: one line, what is known so far, and no process that stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.engine.presolve import pipeline
from bnncert.engine.verdict import Result, TargetResult, best_of
from bnncert.regions import Ball
from tests.cli.diamond import DATA, DIAMOND, HARD, environment, read_json
from tests.engine.methods.test_branch import members
from tests.engine.search.patterns.test_sharing import hard_network
from tests.in_process import without_progress
from tests.results.tiny import CONFIG, write_files

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

#: Says when the import of the commands begins.  A parent may have told its children to ignore
#: Ctrl-C.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from bnncert.__main__ import main
class Telling:
    def find_spec(self, name, path=None, target=None):
        if name == "bnncert.cli.program":
            print("ready", flush=True)
if __name__ == "__main__":
    sys.meta_path.insert(0, Telling())
    main()
"""


def start(script: str, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def interrupt(process: subprocess.Popen[str]) -> str:
    """Send Ctrl-C as a terminal does, to the whole group; check the end and return the output."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
        said = without_progress(err)
        assert (process.returncode, said) == (130, "bnncert: interrupted\n")
        until = time.monotonic() + 5
        while members(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert members(process.pid) == []
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return out


def scripted(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script that stands for the program, and return what it printed."""
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3, 1.0])
def test_in_the_first_second_there_is_no_traceback(seconds: float) -> None:
    process = start(START, "verify", *HARD)
    time.sleep(seconds)
    interrupt(process)


def test_while_the_command_is_imported_it_is_one_line_too() -> None:
    # Libraries may catch an exception during their import and go on without the failed part.
    process = start(START.replace("bnncert.cli.program", "bnncert.cli.verify"), "verify", *HARD)
    interrupt(process)


def test_an_interrupt_that_a_destructor_loses_is_raised_again() -> None:
    script = (
        "import signal, sys, time, weakref\n"
        "class Thing: pass\n"
        "def lose(_): signal.raise_signal(signal.SIGINT)\n"
        "def slow():\n"
        "    thing = Thing()\n"
        "    known = weakref.ref(thing, lose)\n"
        "    del thing\n"
        "    time.sleep(20)\n"
        "import bnncert.cli.program as program\n"
        "program.main = slow\n" + START
    )
    started = time.monotonic()
    done = scripted(script)
    assert (done.returncode, done.stderr) == (130, "bnncert: interrupted\n")
    assert time.monotonic() - started < 15


def test_while_the_arguments_are_read_it_is_one_line_too() -> None:
    # Not in a command yet: typer makes this an exit code of its own.
    script = (
        "import typer.core\n"
        "def parse(*arguments, **options):\n"
        "    raise KeyboardInterrupt\n"
        "typer.core.TyperGroup.make_context = parse\n" + START
    )
    done = scripted(script, "methods")
    assert (done.returncode, done.stderr) == (130, "bnncert: interrupted\n")


@pytest.mark.parametrize("module", ["signal", "bnncert.cli.exit_codes", "contextlib"])
def test_before_the_first_import_it_is_one_line_too(module: str) -> None:
    # A module that is loaded already is not looked for: Ctrl-C meets the first one that is not.
    script = (
        "import sys\n"
        "class Ctrl:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "from bnncert.__main__ import main\n"
        f"sys.modules.pop({module!r}, None)\n"
        "sys.meta_path.insert(0, Ctrl())\n"
        "main()\n"
    )
    done = scripted(script, "methods")
    assert (done.returncode, done.stderr) == (130, "bnncert: interrupted\n")


def test_the_package_imports_nothing_before_it_can_be_interrupted() -> None:
    code = (
        "import sys; before = set(sys.modules); import bnncert.__main__\n"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    others = {name for name in done.stdout.split() if not name.startswith("bnncert")}
    assert others <= {"__future__"}


def test_the_package_itself_is_imported_in_no_time() -> None:
    code = "import sys, bnncert; sys.exit('numpy' in sys.modules or not bnncert.__version__)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)


def test_every_name_of_the_package_can_be_imported() -> None:
    for name in bnncert.__all__:
        assert getattr(bnncert, name) is not None
        assert name in dir(bnncert)
    assert bnncert.regions.Ball is bnncert.Ball
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bnncert.nothing
    with pytest.raises(ImportError, match="nothing"):
        exec("from bnncert import nothing")


# --- what is known so far ---------------------------------------------------------------------

#: Stops before the work on one target begins that nothing cheaper has decided.
STUCK = (
    """
import time
def stuck(*arguments):
    print("searching", flush=True)
    time.sleep(60)
"""
    + START
)
IN_RELAXATION = (
    "from bnncert.engine.methods import reduced_sdp\nreduced_sdp.bound_problem = stuck\n"
)
HALF_PIXEL = (
    str(DATA / "mnist_sparse.npz"),
    *("--input", f"{DATA / 'mnist_test_100.npz'}:images", "--index", "1"),
    *("--radius", "0.00392"),
)
AFTER_FOUR = """
from bnncert.questions.prover import Prover
decide, calls = Prover.decide, []
def some(*arguments, **options):
    calls.append(1)
    return stuck() if len(calls) > 4 else decide(*arguments, **options)
Prover.decide = some
"""


def mid_search(patch: str, *arguments: str) -> str:
    process = start(
        STUCK.replace("if __name__", patch + "if __name__", 1),
        *arguments,
    )
    assert process.stdout is not None
    before = ""
    while (line := process.stdout.readline()) != "searching\n":
        # The line on the question may come before.
        assert line, process.communicate()
        before += line
    return before + interrupt(process)


def test_verify_prints_the_targets_that_are_settled(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    out = mid_search(IN_RELAXATION, "verify", *HALF_PIXEL, "--json", str(file))
    lines = out.splitlines()
    assert "label 2, L-inf ball" in lines[0]
    rows = [line for line in lines if line.startswith("class ")]
    assert len(rows) == 9
    robust = [row for row in rows if " robust " in row]
    assert 0 < len(robust) < 9
    # Those that are open have bounds from the stages before.
    for row in set(rows) - set(robust):
        assert re.match(r"class \d  unknown +-?\d", row), row
    assert re.fullmatch(
        rf"interrupted after [\d.]+ s: {len(robust)} of 9 targets are decided", lines[-1]
    )
    tree = read_json(file)
    assert tree["interrupted"] is True and tree["status"] == "unknown"
    assert sum(t["status"] == "robust" for t in tree["targets"]) == len(robust)


def test_radius_prints_both_radii_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DIAMOND.build().save(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", np.array([1.0, 0.0]))
    files = (str(tmp_path / "net.npz"), "--input", str(tmp_path / "x.npy"))
    file = tmp_path / "a.json"
    out = mid_search(AFTER_FOUR, "radius", *files, "--max", "1", "--json", str(file))
    lines = out.splitlines()
    assert lines[1].split()[:2] == ["certified", "radius"]
    certified, falsified, _, calls = lines[2].split()[:4]
    assert 0 < float(certified) < 0.5 <= float(falsified) < 1
    assert calls == "4"
    tree = read_json(file)
    assert tree["interrupted"] is True and tree["calls"] == 4
    assert 0 < tree["lower"] < 0.5 <= tree["upper"] < 1
    assert lines[-1].startswith("interrupted after ")


def test_the_exception_has_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    net, ball, label = DIAMOND.build(), Ball("linf", np.array([1.0, 0.0]), 0.75), 0

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "presolve", interrupted)
    with pytest.raises(Interrupted) as caught:
        bnncert.verify(net, ball, label, method="bab")
    result = caught.value.answer
    assert isinstance(result, Result)
    assert [t.rival for t in result.targets] == [k for k in range(3) if k != label]
    assert {t.status for t in result.targets} == {"unknown"}
    with pytest.raises(Interrupted) as stopped:
        bnncert.radius(net, ball, label, maximum=2.0, method="bab")
    assert (stopped.value.answer.lower, stopped.value.answer.calls) == (-np.inf, 0)


def test_the_best_of_two_answers() -> None:
    proved = TargetResult("a", "robust", lower=1.0, seconds=1.0, stage="sdp")
    later = TargetResult("a", "timeout", lower=-3.0, upper=4.0, seconds=2.0, stage="milp")
    for pair in ((proved, later), (later, proved)):
        both = best_of(*pair)
        assert (both.status, both.stage) == ("robust", "sdp")
        assert (both.lower, both.upper, both.seconds) == (1.0, 4.0, 3.0)


# --- workers ----------------------------------------------------------------------------------


def hears_ctrl_c(process: int) -> bool:
    """Whether a process neither blocks nor ignores the signal."""
    status = Path(f"/proc/{process}/status").read_text()
    masks = [
        int(re.findall(rf"^{name}:\s*(\w+)", status, re.M)[0], 16) for name in ("SigBlk", "SigIgn")
    ]
    return not any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


IN_SUBTREES = """
import os
from bnncert.engine.methods import propagation
from bnncert.engine.search.patterns.sharing import ProcessPool
propagation.ALONE, propagation.usable_cores, submit = 0.1, lambda: 2, ProcessPool.submit
def telling(pool, work):
    print("searching", flush=True)
    ProcessPool.submit = submit
    return submit(pool, work)
ProcessPool.submit = telling
"""


def test_processes_that_search_subtrees_end_with_the_command(tmp_path: Path) -> None:
    hard_network(40).save(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", np.full(40, 0.25))
    files = (str(tmp_path / "net.npz"), "--input", str(tmp_path / "x.npy"))
    out = mid_search(IN_SUBTREES, "verify", *files, "--radius", "1", "--method", "propagation")
    assert "interrupted after " in out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("command", ["run", "experiment"])
def test_workers_do_not_hear_it_even_while_they_start(tmp_path: Path, command: str) -> None:
    write_files(tmp_path, CONFIG)
    data = ("net.npz", "--data", "data.npz", "--radius", "0.3", "--out", "r.sqlite")
    words = {
        # Without a batch, which would answer everything before there are workers.
        "run": ("run", *data, "--method", "sample"),
        "experiment": ("experiment", "tiny.json"),
    }[command]
    process = start(START, *words, "--processes", "2", cwd=tmp_path)
    until = time.monotonic() + 60
    # This process, Python's tracker of resources, and a worker.
    while len(members(process.pid)) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    others = [member for member in members(process.pid) if member != process.pid]
    hearing = [member for member in others if hears_ctrl_c(member)]
    out = interrupt(process)
    assert len(others) >= 2
    assert hearing == []
    assert " instances are in " in out
