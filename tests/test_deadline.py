"""Deadlines: shares of them, and that everything with a loop ends when one has passed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import bnncert
from bnncert import Options
from bnncert.cli import time_limit as clock
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods import REGISTRY, Context
from bnncert.engine.methods.attack import Attack
from bnncert.engine.presolve.conflicts import ConflictingPairs, close, sum_ranges
from bnncert.engine.presolve.pairs import conflicting_pairs
from bnncert.engine.presolve.pipeline import equal_rows, presolve
from bnncert.engine.presolve.reduction import reduce_target
from bnncert.engine.presolve.stability import first_layer, stability
from bnncert.engine.relaxations.moments.layered_program import encode
from bnncert.engine.relaxations.moments.relaxation import cliques, relax
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import reduce_objective
from bnncert.engine.replay import Replayer
from bnncert.engine.solvers.integer_back_ends import ScipModel
from bnncert.problem import robustness
from tests.clock import Clock
from tests.large_networks import write_local_network

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


def _chain(n: int) -> ConflictingPairs:
    """Return x_0 => x_1 => .. => x_(n-1)."""
    every = np.arange(n - 1)
    return ConflictingPairs(2 * every, 2 * every + 3, np.full(n - 1, 0.5))


ROWS, INPUTS = 60, 10
_weights = _generator.integers(-3, 4, (ROWS, INPUTS)) * 2 + 1
_box = bnncert.Box(-np.ones(INPUTS), np.ones(INPUTS))
_layer = bnncert.Network.from_arrays(
    [_weights, np.ones((2, ROWS))], [np.full(ROWS, 0.5), np.zeros(2)]
).layers[0]

#: Parts of presolve, how many looks at the clock they take at least, and at most after the limit.
UNITS: dict[str, tuple[Callable[[Deadline], object], int, int]] = {
    "closure": (lambda end: close(_chain(100), 100, end), 200, 1),
    "bisection": (
        lambda end: conflicting_pairs(
            _box, sp.csr_array(_weights), np.full(ROWS, 2.0), np.full(ROWS, -2.0), end
        ),
        ROWS * (ROWS - 1) // 2 * 4,
        4,
    ),
    "ternary": (
        lambda end: conflicting_pairs(
            _box, sp.csr_array(np.sign(_weights)), np.full(ROWS, 2.0), np.full(ROWS, -2.0), end
        ),
        ROWS * 4,
        4,
    ),
    "ranges": (
        lambda end: sum_ranges(sp.csr_array(_weights), _chain(INPUTS).matrix(INPUTS), end),
        ROWS,
        5,
    ),
    "equal rows": (
        lambda end: equal_rows(sp.csr_array(_weights), np.ones(ROWS), -np.ones(ROWS), end),
        ROWS,
        1,
    ),
    "first layer": (
        lambda end: first_layer(_layer, bnncert.Ball("l2", np.zeros(INPUTS), 1.0), end),
        ROWS - 1,
        ROWS,
    ),
    "programs": (
        lambda end: first_layer(
            _layer, bnncert.Polytope([np.ones(INPUTS)], [1.0], _box.lo, _box.hi), end
        ),
        ROWS - 1,
        ROWS,
    ),
}


@pytest.mark.parametrize("name", UNITS)
def test_presolve_looks_at_the_clock_between_small_units_of_work(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, least, late = UNITS[name]
    for place in ("pairs.CHUNK", "pairs.PRODUCTS_AT_ONCE", "conflicts.CELLS_AT_ONCE"):
        monkeypatch.setattr(f"bnncert.engine.presolve.{place}", 1)
    monkeypatch.setattr("bnncert.engine.presolve.stability.WEIGHTS_AT_ONCE", INPUTS)
    monkeypatch.setattr("bnncert.engine.presolve.stability.PROGRAMS_AT_ONCE", 1)
    clock = Clock(monkeypatch, tick=1.0)
    work(Deadline(1e9))
    assert clock.looks >= least
    limit = Deadline(10.5)
    clock.looks = 0
    work(limit)
    assert clock.looks <= 10 + late


def test_a_closure_without_time_is_the_pairs_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = _chain(100)
    whole = close(pairs, 100)
    # x_i => x_j for all i < j, which are pairs of x_i and -x_j.
    assert whole.pairs.size == 100 * 99 // 2
    Clock(monkeypatch, tick=1.0)
    for seconds in (0.5, 50.0, 198.0):
        found = close(pairs, 100, Deadline(seconds))
        assert found.pairs is pairs and not found.contradiction and not found.state.any()


def test_bounds_without_time_leave_large_layers_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.deadline.MOST_LATE", 100)
    # The second layer has 8 * 11 weights, which are few enough; with the third they are too many.
    deeper = bnncert.Network.from_arrays(
        [np.ones((11, 12)), np.ones((8, 11)), np.ones((8, 8)), np.ones((3, 8))],
        [np.full(n, 0.5) for n in (11, 8, 8, 3)],
    )
    box = bnncert.Box(np.full(12, 0.1), np.full(12, 0.2))
    assert all(layer.state.all() for layer in stability(deeper, box))
    first, second, third = stability(deeper, box, PASSED)
    assert first.state.all() and second.state.all() and not third.state.any()
    assert third.lower.tolist() == [-8.0] * 8 and third.upper.tolist() == [8.0] * 8


def test_an_attack_on_a_large_network_stops_between_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.engine.methods.attack.LONG_WORK", 1)
    problem = robustness(NETWORK, REGION, LABEL)
    limit = Deadline(None)
    context = Context(Options(), limit, Replayer(problem))
    clock = Clock(monkeypatch, tick=1.0)
    search = Attack(problem, context)
    search.run(Deadline(1.5))
    assert search.steps == 0 and clock.looks < 6
    assert not search.is_over
    # The next run begins a new round, in which it finds a counterexample.
    search.run(Deadline(1e6), 1)
    assert search.is_over and truth("linf") == "not_robust"


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
    from bnncert.engine.relaxations.linear import linear_model
    from bnncert.regions.linear_program import input_block

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


# -- a whole question ----------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bnncert.Network:
    """Return a network with wide layers, after which the clock is that of the processor.

    That clock does not depend on the load of the machine.
    """
    sizes = (3072, 25_000, 25_000, 25_000, 20_000, 25_000, 20_000, 10_000, 10)
    network = bnncert.load(write_local_network(tmp_path / "wide.npz", sizes, 27))
    processor = SimpleNamespace(monotonic=time.process_time)
    monkeypatch.setattr("bnncert.deadline.time", processor)
    return network


WIDE_POINT = np.random.default_rng(0).uniform(-1, 1, size=3072)


def test_a_network_with_wide_layers_is_answered_at_its_limit(wide: bnncert.Network) -> None:
    """Closing the pairs of its 2900 open first-layer neurons takes far longer than the limit."""
    ball = bnncert.Ball("linf", WIDE_POINT, 0.0185, -1, 1)
    began = time.process_time()
    result = bnncert.verify(wide, ball, 0, timeout=0.7)
    assert time.process_time() - began < 2.2
    assert result.status == "timeout"
    # What interval arithmetic knows is told.
    assert np.isfinite(result.lower) and np.isfinite(result.upper)


def test_faults_of_a_network_with_wide_layers_end_at_the_limit(wide: bnncert.Network) -> None:
    """The table of all single wrong signs of a layer has 25,000 x 25,000 entries."""
    point = bnncert.Ball("linf", WIDE_POINT, 0.0, -1, 1)
    began = time.process_time()
    result = bnncert.faults(wide, point, 0, timeout=1.0)
    assert time.process_time() - began < 2.5
    assert all(row.certified is not None for row in result.rows)
