"""Deadlines: shares of them, and that everything with a loop ends when one has passed."""

from __future__ import annotations

import math
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bnncert
from bnncert import Options
from bnncert.commands import clock
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.methods import REGISTRY
from bnncert.presolve.conflicts import ConflictingPairs
from bnncert.presolve.pipeline import presolve
from bnncert.presolve.ranges import sum_ranges
from bnncert.presolve.reduction import reduce_target
from bnncert.presolve.stability import stability
from bnncert.problem import robustness
from bnncert.relaxations.moments.cliques import cliques
from bnncert.relaxations.moments.encoding import encode
from bnncert.relaxations.moments.relaxation import relax
from bnncert.relaxations.reduced.patterns import starting_moments
from bnncert.relaxations.reduced.problem import reduce_objective
from bnncert.solvers.scip_ import ScipModel
from tests.clock import Clock

PASSED = Deadline(1.0, time.monotonic() - 10.0)

_generator = np.random.default_rng(4)
NETWORK = bnncert.Network.from_arrays(
    [_generator.choice([-1.0, 1.0], (n, m)) for m, n in ((12, 11), (11, 8), (8, 3))],
    [np.full(n, 0.5) for n in (11, 8, 3)],
)
REGION = bnncert.Ball("linf", np.full(12, 0.05), 0.6, -1.0, 1.0)
LABEL = int(NETWORK.classify(REGION.center)[0])


def test_a_deadline_within_one_that_has_passed_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limit = Deadline(10.0)
    clock.advance(4.0)
    assert limit.within(3.0).remaining() == pytest.approx(3.0)
    assert limit.within(30.0).remaining() == pytest.approx(6.0)
    assert limit.within(0.0).passed() and limit.within(-1.0).passed()
    clock.advance(7.0)
    assert limit.within(5.0).remaining() == pytest.approx(-1.0, abs=1e-5)
    with pytest.raises(OutOfTimeError):
        limit.check()


def test_building_a_moment_relaxation_looks_at_the_clock() -> None:
    problem = robustness(NETWORK, REGION, LABEL)
    bounds = stability(NETWORK, REGION)
    reduced = reduce_target(NETWORK, bounds, problem.targets[0])
    with pytest.raises(OutOfTimeError):
        encode(reduced, REGION, "tight", 0, PASSED)
    encoded = encode(reduced, REGION, "tight", 0)
    with pytest.raises(OutOfTimeError):
        cliques(encoded, "chordal", PASSED)
    family = cliques(encoded, "layered")
    with pytest.raises(OutOfTimeError):
        relax(encoded, family, 1, PASSED)
    relaxation = relax(encoded, family, 1)
    with pytest.raises(OutOfTimeError):
        relaxation.dual_bound(np.ones(relaxation.program.right.size), PASSED)


def test_presolve_and_the_start_of_a_relaxation_look_at_the_clock() -> None:
    presolved = presolve(NETWORK, REGION)
    assert not presolved.triples_within(PASSED).size
    found = presolved.triples_within(Deadline(None))
    assert presolved.triples_within(PASSED) is found
    objective = robustness(NETWORK, REGION, LABEL).targets[0].objectives[0]
    with pytest.raises(OutOfTimeError):
        starting_moments(reduce_objective(presolved, objective), 0, PASSED)


def test_ranges_without_time_are_wider_and_valid() -> None:
    # x0 and x1 are never both +1.
    conflicts = ConflictingPairs(np.array([0]), np.array([2]), np.array([0.5])).matrix(3)
    rows = sp.csr_array(np.array([[1, 1, 1]]))
    low, high = sum_ranges(rows, conflicts)
    assert (low.tolist(), high.tolist()) == ([-3.0], [1.0])
    low, high = sum_ranges(rows, conflicts, PASSED)
    assert (low.tolist(), high.tolist()) == ([-3.0], [3.0])


def test_handing_a_program_to_scip_looks_at_the_clock() -> None:
    pytest.importorskip("pyscipopt")
    from bnncert.regions.linear_block import input_block
    from bnncert.relaxations.linear import linear_model

    problem = robustness(NETWORK, REGION, LABEL)
    reduced = reduce_target(NETWORK, stability(NETWORK, REGION), problem.targets[0])
    block = input_block(REGION, reduced.layers[0].inputs)
    model = linear_model(reduced, block, "lattice", integer=True)
    with pytest.raises(OutOfTimeError):
        ScipModel(model.program, deadline=PASSED)


@cache
def truth(norm: str) -> str:
    region = bnncert.Ball(norm, np.full(12, 0.05), 0.6, -1.0, 1.0)  # type: ignore[arg-type]
    return bnncert.verify(NETWORK, region, LABEL, method="bab").status


@pytest.mark.parametrize(
    ("method", "norm"),
    [
        (method.name, norm)
        for method in REGISTRY.all()
        for norm in ("linf", "l2")
        if method.available() and norm in method.regions.split(", ")
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_every_method_answers_when_there_is_no_time(
    method: str, norm: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        # Then presolve gives up instead of finishing the layers above the first.
        monkeypatch.setattr("bnncert.deadline.MOST_LATE", -1)
    region = bnncert.Ball(norm, np.full(12, 0.05), 0.6, -1.0, 1.0)  # type: ignore[arg-type]
    for mode in ("feasibility", "optimum"):
        options = Options(mode=mode)  # type: ignore[arg-type]
        result = bnncert.verify(
            NETWORK, region, LABEL, method=method, timeout=1e-6, options=options
        )
        if result.status in ("robust", "not_robust"):
            assert result.status == truth(norm)
        else:
            assert result.status == "timeout"


# -- the clock of the command line ---------------------------------------------------------------


def test_the_limit_of_a_command_counts_from_the_start_of_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert clock.remaining(math.inf) is None
    # This process is not a command, so its age does not count.
    assert clock.remaining(5.0) == 5.0
    monkeypatch.setattr(clock, "is_command_line", lambda: True)
    monkeypatch.setattr(clock, "process_start", lambda: time.monotonic() - 2.0)
    left = clock.remaining(5.0)
    assert left is not None and 2.0 < left < 3.1
    assert clock.remaining(1.0) == clock.LEAST_SECONDS
    with pytest.raises(bnncert.InputError):
        clock.remaining(-1.0)


def test_the_start_of_the_process_is_before_the_first_import() -> None:
    assert clock.process_start() <= clock._IMPORTED
    assert time.monotonic() - clock.process_start() < 24 * 3600


@pytest.mark.parametrize("content", ["", "1 (a b) c", "1 ((x) y) " + "S " * 40, None])
def test_a_system_that_does_not_tell_falls_back_to_the_first_import(
    content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> str:
        if content is None:
            raise FileNotFoundError(path)
        return content

    monkeypatch.setattr(Path, "read_text", read)
    assert clock.process_start() == clock._IMPORTED
