"""Eliminations: complete ones of true claims are accepted, and no others."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import bnncert
from bnncert.engine.search.elimination import bound
from bnncert.engine.search.elimination.buckets import UNLIMITED
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel import elimination as kernel
from bnncert.kernel.container import Section
from bnncert.kernel.elimination import Elimination, SignTable
from bnncert.problem import Problem, robustness
from bnncert.questions.prover import solve
from tests.engine.search.elimination.test_search import line_network
from tests.kernel.claims import (
    Judge,
    accepted,
    excluding_pair,
    pack,
    random_network,
    robust_problem,
    unpack,
)
from tests.kernel.eliminations import by_hand, elimination_of, random_parts
from tests.kernel.pattern_trees import random_deep_question
from tests.kernel.random_claims import SIZES
from tests.random_questions import KINDS, random_region


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_elimination_proves_is_true(kind: str, tmp_path: Path) -> None:
    """A box over disjoint inputs needs no clauses: there every true claim is accepted."""
    rng = np.random.default_rng(KINDS.index(kind))
    outcomes: Counter[tuple[bool, bool]] = Counter()
    split = 0
    for _ in range(24):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        own = elimination_of(problem, network, question.arithmetic)
        limit = int(rng.choice([0, 1, 2, UNLIMITED]))
        parts = random_parts(rng, own, limit)
        split += len(parts) > len({part[0] for part in parts})
        sections = by_hand(problem, network, parts, question.arithmetic)
        report = accepted(pack(tmp_path / "one.cert", sections), network)
        judge = Judge(question.tiny)
        true = judge.decide(sections[0])[0]
        if report is not None:
            assert judge.objection(report, sections[0]) is None
        if (
            limit == UNLIMITED
            and question.has_all_patterns
            and all(len(target.objectives) == 1 for target in problem.targets)
        ):
            assert (report is not None) == true
        outcomes[report is not None, true] += 1
    assert outcomes[True, True] > 3 and outcomes[False, False] > 3
    assert not outcomes[True, False]
    assert split > 3


def _robust() -> tuple[Problem, list[tuple[int, ...]]]:
    """Return a robust question and its buckets.

    Around a ring, (x_i or x_j) - (x_i and x_j) >= 0 for all neighbours, which intervals miss.
    """
    pairs = np.eye(6) + np.roll(np.eye(6), 1, axis=1)
    scores = np.concatenate([np.ones(6), -np.ones(6)])
    weights = [np.eye(6), np.concatenate([pairs, pairs]), np.outer([1, 0, 0], scores)]
    biases = [np.zeros(6), scores, np.array([1.0, 0.0, -1.0])]
    network = bnncert.Network.from_arrays(weights, biases)
    problem = robustness(network, bnncert.Ball("linf", np.zeros(6), 1.0), 0)
    own = elimination_of(problem, network)
    return problem, random_parts(np.random.default_rng(3), own)


def test_eliminations_that_are_not_complete_are_rejected(tmp_path: Path) -> None:
    problem, parts = _robust()
    network, path = problem.network, tmp_path / "one.cert"
    assert check(pack(path, by_hand(problem, network, parts)), network).targets > 0
    first, *rest = parts
    for broken in (
        rest,  # A variable is missing.
        [*rest, first],  # Out of order.
        [first, *parts],  # The same tables would be counted once: still a valid split.
        [(*first[:1], first[0]), *rest],
        [first[:1], *rest],
        [(*first, 10**6), *rest],
        [(-1, *first[1:]), *rest],
        [(), *parts],
        [],
    ):
        sections = by_hand(problem, network, broken)
        if broken == [first, *parts]:
            check(pack(path, sections), network)
            continue
        with pytest.raises((RejectedError, UnreadableError)):
            check(pack(path, sections), network)


@pytest.mark.parametrize("targets", [None, [], [True, 1], [0, 0], [-1], "0", [0.5], {}, [0]])
def test_targets_that_are_not_all_targets_are_rejected(targets: object, tmp_path: Path) -> None:
    problem, parts = _robust()
    sections = by_hand(problem, problem.network, parts)
    sections[1].fields["targets"] = targets
    with pytest.raises((RejectedError, UnreadableError)):
        check(pack(tmp_path / "one.cert", sections), problem.network)


def test_sizes_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    problem, parts = _robust()
    for sizes in ([2**62, 2**62], [-1], [10**6], [1]):
        sections = by_hand(problem, problem.network, parts)
        sections[2].arrays["sizes"] = np.array(sizes, dtype="<i8")
        with pytest.raises((RejectedError, UnreadableError)):
            check(pack(tmp_path / "one.cert", sections), problem.network)


def _dense(size: int) -> Problem:
    """Return a question about neurons that read ten of `size` signs each."""
    rng = np.random.default_rng(0)
    window = np.zeros((size, size))
    for row in window:
        row[rng.choice(size, 10, replace=False)] = rng.choice([-1.0, 1.0], 10)
    weights = [np.eye(size), window, rng.choice([-1.0, 1.0], (3, size))]
    network = bnncert.Network.from_arrays(weights, [np.zeros(w.shape[0]) for w in weights])
    return robustness(network, bnncert.Ball("linf", np.zeros(size), 1.0), 0)


def test_tables_that_are_too_large_are_rejected_at_once(tmp_path: Path) -> None:
    problem = _dense(60)
    wide = [tuple(range(k, 60)) for k in range(60)]
    many = [tuple(range(k, min(k + 24, 60))) for k in range(60)] * 20
    for parts, reason in (
        (wide, "with more than 24 variables"),
        (many, "more than 67108864 entries|fits into no part"),
        ([(0,)] * (2**16 + 1), "more than 65536 parts"),
    ):
        path = pack(tmp_path / "bomb.cert", by_hand(problem, problem.network, parts))
        started = time.process_time()
        with pytest.raises(RejectedError, match=reason):
            check(path, problem.network)
        assert time.process_time() - started < 5


def test_an_elimination_ends_when_time_is_up(tmp_path: Path) -> None:
    problem, parts = _robust()
    path = pack(tmp_path / "one.cert", by_hand(problem, problem.network, parts))
    with pytest.raises(RejectedError, match="did not end within"):
        check(path, problem.network, timeout=0.0)


def test_proved_clauses_exclude_patterns(tmp_path: Path) -> None:
    problem, arrays = excluding_pair()
    network, path = problem.network, tmp_path / "one.cert"
    sections = by_hand(problem, network, [(0, 1), (1,)])
    with pytest.raises(RejectedError, match="does not exclude a target"):
        check(pack(path, sections), network)
    for theta, fine in ((np.array([1, 1]), True), (np.array([1, 0]), False)):
        known = Section("clauses", {"layer": 0}, {**arrays, "theta": theta})
        report = accepted(pack(path, [sections[0], known, *sections[1:]]), network)
        assert (report is not None) == fine
    # A pair of clashes fixes the neurons above, so that nothing is left to eliminate.
    known = Section("clashes", {"layer": 0}, arrays)
    assert check(pack(path, [sections[0], known, *sections[1:]]), network).clauses == 1


def test_moved_costs_change_no_sum() -> None:
    rng = np.random.default_rng(4)
    moved = 0
    for _ in range(15):
        scopes = [(0, 1, 2), (0, 2, 3), (0, 2)][: int(rng.integers(2, 4))]
        parts = []
        for scope in scopes:
            values = rng.integers(-9, 10, (2,) * len(scope) + (2,)).astype(float)
            values[rng.random(values.shape) < 0.15] = np.inf
            parts.append(SignTable(scope, values, 9))
        after = kernel._moved(parts)

        def total(tables: list[SignTable]) -> np.ndarray:
            return sum(kernel._spread(t.values, t.scope, (0, 1, 2, 3)) for t in tables)  # type: ignore[return-value]

        np.testing.assert_array_equal(total(parts), total(after))
        for table in after:
            finite = table.values[np.isfinite(table.values)]
            assert np.all(np.abs(finite) <= table.reach) and np.all(finite == np.rint(finite))
        least = [sum(t.values.min() for t in tables) for tables in (parts, after)]
        moved += least[1] > least[0]
    assert moved > 3


def _answer(path: Path, problem: Problem) -> str:
    """Solve by elimination; every decided question has to have an accepted certificate."""
    result = solve([problem], "elimination", 20, certificate=path)
    if result.status in ("robust", "not_robust"):
        assert result.certificate is not None, result.notes
        assert check(path, problem.network).verdict == result.status
    return result.status


def _random_problem(rng: np.random.Generator, kind: str) -> Problem:
    """Return a question about a convolution along a line, or a dense network."""
    zero = str(rng.choice(["plus", "minus", "either"]))
    if rng.integers(2):
        return robust_problem(line_network(rng, zero), random_region(rng, kind, 3))
    sizes = SIZES[int(rng.integers(len(SIZES)))]
    return robust_problem(random_network(rng, sizes, sign_zero=zero), random_region(rng, kind, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_searches_by_elimination_have_certificates(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([KINDS.index(kind), 7])
    path, eliminations = tmp_path / "answer.cert", 0
    for _ in range(40):
        problem = _random_problem(rng, kind)
        if _answer(path, problem) == "robust":
            eliminations += any(s.name == "elimination" for s in unpack(path))
        if eliminations == 2:
            break
    assert eliminations == 2


def test_split_buckets_have_certificates(tmp_path: Path) -> None:
    """Where every elimination takes too long by its estimate, buckets are split."""
    problem, _ = _robust()
    network, path = problem.network, tmp_path / "answer.cert"
    for seconds, split in ((1e-9, False), (1e9, True)):
        with mock.patch.object(bound, "ENTRY_SECONDS", seconds):
            assert _answer(path, problem) == "robust"
        sections = unpack(path)
        assert [s.name for s in sections] == ["statement", "elimination", "buckets"]
        sizes = sections[2].arrays["sizes"].astype(int)
        first = sections[2].arrays["scopes"][np.cumsum(sizes) - sizes]
        assert (first.size > np.unique(first).size) == split
        sections[0].fields["property"].update(label=1, rivals=[0, 2])
        assert accepted(pack(path, sections), network) is None


def test_many_functions_are_eliminated_in_turn() -> None:
    problem, parts = _robust()
    own = elimination_of(problem, problem.network)
    own.parts = parts
    peak = own.peak(kernel.SplitOrder.of(parts))
    with (
        mock.patch.object(kernel, "MOST_LIVE", peak),
        mock.patch.object(
            Elimination, "_least", autospec=True, side_effect=Elimination._least
        ) as m,
    ):
        assert own.excluded().all()
    assert m.call_count == own.scores.enough.size > 1
