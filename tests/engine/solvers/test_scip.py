"""The SCIP adapter: models, limits and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.engine.solvers.integer_back_ends import ScipModel
from bnncert.regions.linear_program import HighsModel, LinearProgram

pytest.importorskip("pyscipopt", reason="pyscipopt is not installed: pip install 'bnncert[scip]'")


def program(
    cost: Any, matrix: Any, row_lower: Any, row_upper: Any, integer: bool = True, offset: float = 0
) -> LinearProgram:
    count = len(cost)
    return LinearProgram(
        np.array(cost, dtype=float),
        sp.csr_array(np.array(matrix, dtype=float).reshape(len(row_lower), count)),
        np.array(row_lower, dtype=float),
        np.array(row_upper, dtype=float),
        np.zeros(count) if integer else -np.ones(count),
        np.ones(count),
        np.full(count, integer),
        offset,
    )


def market_split(rows: int = 6, columns: int = 50) -> LinearProgram:
    """Equality knapsacks that take any solver far longer than a test may last."""
    weights = np.random.default_rng(0).integers(0, 100, (rows, columns))
    half = weights.sum(axis=1) // 2
    return program(np.zeros(columns), weights, half, half)


def test_random_programs_have_the_optimum_of_highs() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        matrix = generator.integers(-4, 5, (4, 6))
        high = matrix @ generator.integers(0, 2, 6) + generator.integers(0, 3, 4)
        model = program(generator.integers(-9, 10, 6), matrix, np.full(4, -3.0), high, offset=0.5)
        ours, other = (m.solve(Deadline(None)) for m in (ScipModel(model), HighsModel(model)))
        assert ours.status == other.status
        if ours.point is not None:
            value = float(model.cost @ ours.point) + 0.5
            assert value == pytest.approx(other.dual_bound, abs=1e-6)
            assert ours.dual_bound == pytest.approx(value, abs=1e-6)


def test_the_ball_binds() -> None:
    model = program([-1.0, -1.0], np.zeros((0, 2)), [], [], integer=False)
    answer = ScipModel(model, ball=2).solve(Deadline(None))
    assert answer.dual_bound == pytest.approx(-np.sqrt(2), abs=1e-5)
    assert answer.point == pytest.approx([np.sqrt(0.5)] * 2, abs=1e-2)
    assert ScipModel(model).solve(Deadline(None)).dual_bound == pytest.approx(-2.0)


def test_rows_can_be_added_between_solves() -> None:
    model = ScipModel(program([-2.0, -1.0], [[1, 1]], [-np.inf], [1.0]))
    assert model.solve(Deadline(None)).point == pytest.approx([1, 0])
    model.add_row(-np.inf, 0.0, [0], [1.0])
    assert model.solve(Deadline(None)).point == pytest.approx([0, 1])
    model.add_row(2.0, np.inf, [0, 1], [1.0, 1.0])
    assert model.solve(Deadline(None)).status == "infeasible"


def test_rows_without_variables_decide_by_themselves() -> None:
    fine = program([1.0], [[0.0]], [-1.0], [0.0])
    assert ScipModel(fine).solve(Deadline(None)).status == "optimal"
    broken = program([1.0], [[0.0]], [0.5], [np.inf])
    assert ScipModel(broken).solve(Deadline(None)).status == "infeasible"
    empty = program([], np.zeros((0, 0)), [], [], offset=2.5)
    answer = ScipModel(empty).solve(Deadline(None))
    assert (answer.status, answer.dual_bound) == ("optimal", 2.5)


def test_the_clock_stops_scip() -> None:
    model = ScipModel(market_split())
    started = time.monotonic()
    answer = model.solve(Deadline(0.5))
    assert (answer.status, answer.point) == ("limit", None)
    assert time.monotonic() - started < 3
    assert model.solve(Deadline(1e-9, start=0.0)).status == "limit"


class Deaf:
    """Stands for a SCIP that is stuck: it hears no interrupt."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.interrupts = 0

    def freeTransform(self) -> None:  # noqa: N802
        pass

    def setParam(self, name: str, value: object) -> None:  # noqa: N802
        pass

    def optimizeNogil(self) -> None:  # noqa: N802
        self.release.wait()

    def interruptSolve(self) -> None:  # noqa: N802
        self.interrupts += 1


def test_a_solver_that_does_not_obey_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.engine.solvers.integer_back_ends.OBEY_SECONDS", 0.2)
    model = ScipModel(market_split())
    deaf = Deaf()
    model._model = deaf
    started = time.monotonic()
    try:
        assert model.solve(Deadline(0.1)).status == "limit"
        assert time.monotonic() - started < 2
        assert deaf.interrupts > 1
    finally:
        deaf.release.set()


def test_trouble_inside_scip_is_a_failed_solve() -> None:
    class Broken(Deaf):
        def optimizeNogil(self) -> None:  # noqa: N802
            raise Exception("SCIP: error in LP solver!")

    model = ScipModel(market_split())
    model._model = Broken()
    assert model.solve(Deadline(None)).status == "failed"


CTRL_C = """
import signal
from bnncert.deadline import Deadline
from bnncert.engine.solvers.integer_back_ends import ScipModel
from tests.engine.solvers.test_scip import market_split
# A parent may have told its children to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
model = ScipModel(market_split())
print("ready", flush=True)
try:
    model.solve(Deadline(None))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_stops_scip_and_goes_on_up() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        assert process.poll() is None
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (out, err, process.returncode) == ("interrupted\n", "", 0)
        assert time.monotonic() - started < 5
    finally:
        if process.poll() is None:
            process.kill()
