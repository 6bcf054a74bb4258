"""A call in another process: its answer, its errors, and its end at the limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.engine import processes
from bnncert.engine.processes import killable_call
from bnncert.engine.solvers import conic
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, ConicSolver
from bnncert.engine.solvers.conic_back_ends import ClarabelSolver
from bnncert.errors import InputError


def twice(array: np.ndarray, path: Path) -> np.ndarray:
    path.write_text(str(os.getpid()), encoding="utf-8")
    print("what a library prints is not part of the answer")
    return 2 * array


def refuse() -> None:
    raise InputError("the reason")


def die() -> None:
    os._exit(3)


def sleep(path: Path) -> None:
    path.write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_answer_comes_from_another_process(tmp_path: Path) -> None:
    large = np.arange(100_000)
    answer = killable_call(twice, (large, tmp_path / "pid"), Deadline(60))
    np.testing.assert_array_equal(answer, 2 * large)
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_a_foreseen_error_is_raised_here_and_a_death_is_no_answer() -> None:
    with pytest.raises(InputError, match="the reason"):
        killable_call(refuse, (), Deadline(None))
    assert killable_call(die, (), Deadline(60)) is None


def test_a_call_that_sleeps_is_ended_at_the_limit(tmp_path: Path) -> None:
    # The process gets all the time it needs to start, whatever else the machine does.
    begun = time.monotonic()
    starting = subprocess.Popen.communicate

    def communicate(process: subprocess.Popen[bytes], data: bytes, timeout: float) -> object:
        assert process.stdin is not None
        process.stdin.write(data)
        process.stdin.close()
        process.stdin = None
        while not (tmp_path / "pid").exists() and time.monotonic() - begun < 60:
            time.sleep(0.01)
        return starting(process, None, 0.1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", communicate)
        assert killable_call(sleep, (tmp_path / "pid",), Deadline(600)) is None
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_nothing_is_started_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    assert killable_call(twice, (), Deadline(1.0, time.monotonic() - 2.0)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it on Linux only")
def test_the_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "from pathlib import Path\nfrom bnncert.deadline import Deadline\n"
        "from bnncert.engine.processes import killable_call\n"
        "from tests.engine.test_killable_call import sleep\n"
        f"killable_call(sleep, (Path({str(pid)!r}),), Deadline(600))\n"
    )
    asking = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    for _ in range(6000):
        if pid.exists() and pid.read_text():
            break
        time.sleep(0.01)
    asking.kill()
    asking.wait()
    for _ in range(1000):
        if not is_alive(int(pid.read_text())):
            return
        time.sleep(0.01)
    pytest.fail("the process is still there")


# -- conic solvers -----------------------------------------------------------------------------


def small_program() -> ConicProgram:
    """Minimise y with [[1, y], [y, 1]] positive semidefinite: y = -1."""
    matrix = sp.csr_array(np.array([[0.0], [-np.sqrt(2.0)], [0.0]]))
    return ConicProgram(np.ones(1), matrix, np.array([1.0, 0.0, 1.0]), 0, (2,))


class SleepingSolver(ConicSolver):
    """Never comes back."""

    name = "sleeping"
    package = "numpy"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        raise AssertionError("a large program with a limit is solved elsewhere")


def test_a_large_program_with_a_limit_is_solved_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conic, "QUICK_WORK", 0.0)
    here = ClarabelSolver().solve(small_program(), Deadline(None))
    elsewhere = ClarabelSolver().solve(small_program(), Deadline(60))
    assert (here.status, elsewhere.status) == ("solved", "solved")
    np.testing.assert_allclose(here.primal, [-1.0], atol=1e-6)
    np.testing.assert_array_equal(here.primal, elsewhere.primal)


def test_without_an_answer_in_time_the_vectors_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conic, "QUICK_WORK", 0.0)
    monkeypatch.setattr(conic, "killable_call", lambda function, arguments, deadline: None)
    for deadline in (Deadline(60), Deadline(1.0, time.monotonic() - 2.0)):
        answer = SleepingSolver().solve(small_program(), deadline)
        assert answer.status == ("limit" if deadline.passed() else "failed")
        assert not answer.primal.any() and not answer.dual.any()
    assert processes.GRACE < 1
