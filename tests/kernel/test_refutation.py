"""Refutations: complete ones of true claims are accepted, and no others."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel import refutation as kernel
from bnncert.kernel.container import Section
from bnncert.kernel.refutation import Facts
from bnncert.problem import Problem, robustness
from tests.kernel.claims import Judge, accepted, excluding_pair, pack
from tests.kernel.pattern_trees import random_deep_question
from tests.kernel.refutations import (
    Clause,
    by_hand,
    changed,
    defined,
    facts_of,
    forged,
    models,
    outcome,
    random_facts,
    split,
    starts,
)
from tests.random_questions import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_refutation_proves_is_true(kind: str, tmp_path: Path) -> None:
    """A box over disjoint inputs needs no clauses: there every true claim is accepted."""
    rng = np.random.default_rng(KINDS.index(kind))
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for _ in range(40):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        judge = Judge(question.tiny)
        known = facts_of(problem, network, question.arithmetic)
        proof = split(rng, known)
        sections = by_hand(problem, network, proof or [[]], question.arithmetic)
        report = accepted(pack(tmp_path / "one.cert", sections), network)
        true = judge.decide(sections[0])[0]
        assert (report is not None) == (proof is not None)
        if report is not None:
            assert judge.objection(report, sections[0]) is None
        if question.has_all_patterns:
            assert (report is not None) == true
        outcomes[report is not None, true] += 1
        # Nothing that is made up proves what is not true.
        for made in (forged(rng, known, 8), changed(rng, proof or forged(rng, known, 8), 9)):
            sections = by_hand(problem, network, made, question.arithmetic)
            assert accepted(pack(tmp_path / "forged.cert", sections), network) is None or true
    assert outcomes[True, True] > 6 and outcomes[False, False] > 6
    assert not outcomes[True, False]


def _small(rng: np.random.Generator, kind: str) -> Facts | None:
    if kind == "random":
        return random_facts(rng)
    question = random_deep_question(rng, kind)
    known = facts_of(question.problem, question.network, question.arithmetic)
    return known if known.variables < 14 else None


@pytest.mark.parametrize("kind", [*KINDS, "random"])
def test_facts_that_can_be_satisfied_are_not_refuted(kind: str) -> None:
    """Propagation finds no contradiction that enumeration does not, whatever clauses are tried."""
    rng = np.random.default_rng(len(kind))
    satisfied = accepted_ones = 0
    for _ in range(60):
        known = _small(rng, kind)
        if known is None:
            continue
        found = models(known)
        assert (split(rng, known) is None) == bool(found)
        if not found:
            continue
        satisfied += 1
        for _ in range(10):
            proof: list[Clause] = []
            for clause in forged(rng, known, 10):
                ended = outcome(known, [*proof, clause], compiled=False)
                assert ended != "refuted"
                if ended == "rejected":
                    break
                # A clause that was accepted holds in all models.
                proof.append(clause)
                accepted_ones += 1
                assert all(any(model[k >> 1] != bool(k & 1) for k in clause) for model in found)
    assert satisfied > 10 and accepted_ones > 10


def test_both_forms_of_the_loop_do_what_propagation_is_defined_to_do() -> None:
    """Also what follows without an assumption in the end is the same."""
    rng = np.random.default_rng(7)
    outcomes: Counter[str] = Counter()
    for number in range(160):
        known = random_facts(rng)
        if number < 40:
            question = random_deep_question(rng, KINDS[number % len(KINDS)])
            known = facts_of(question.problem, question.network, question.arithmetic)
        proof, true = split(rng, known), []
        for clause in forged(rng, known, 12 if number > 40 else 0)[:-1]:
            if defined(known, [*true, clause]) != "rejected":
                true.append(clause)
        tried = [forged(rng, known, 6), true]
        tried += [proof, changed(rng, proof, 2 * known.variables)] if proof else []
        for made in tried:
            plain = outcome(known, made, compiled=False)
            assert plain == outcome(known, made, compiled=True) == defined(known, made)
            outcomes[plain if isinstance(plain, str) else "open"] += 1
    assert min(outcomes[name] for name in ("refuted", "rejected", "open")) > 20, outcomes


def _ring() -> tuple[Problem, Facts, list[Clause]]:
    """Return a robust question that intervals do not decide, and a proof.

    Around a ring, (x_i or x_j) - (x_i and x_j) >= 0 for all neighbours, which intervals miss.
    """
    pairs = np.eye(6) + np.roll(np.eye(6), 1, axis=1)
    scores = np.concatenate([np.ones(6), -np.ones(6)])
    weights = [np.eye(6), np.concatenate([pairs, pairs]), np.outer([1, 0, 0], scores)]
    biases = [np.zeros(6), scores, np.array([1.0, 0.0, -1.0])]
    network = bnncert.Network.from_arrays(weights, biases)
    problem = robustness(network, bnncert.Ball("linf", np.zeros(6), 1.0), 0)
    known = facts_of(problem, network)
    proof = split(np.random.default_rng(3), known)
    assert proof is not None and len(proof) > 10
    return problem, known, proof


def test_refutations_that_are_not_complete_are_rejected(tmp_path: Path) -> None:
    problem, known, proof = _ring()
    network, path = problem.network, tmp_path / "one.cert"
    assert check(pack(path, by_hand(problem, network, proof)), network).targets == 2
    literal = proof[0][0]
    for broken, why in (
        (proof[:-1], "does not end with the empty clause"),
        ([], "does not end with the empty clause"),
        ([*proof, []], "continues after its end"),
        ([*proof, [literal]], "continues after its end"),
        ([[], *proof], "continues after its end"),
        ([[]], "does not follow"),
        ([*proof[: len(proof) // 4], []], "does not follow"),
        ([proof[0][:1], *proof[1:]], "does not follow"),
        ([[2 * known.variables], *proof], "does not exist"),
        ([[-1], *proof], "does not exist"),
    ):
        with pytest.raises(RejectedError, match=why):
            check(pack(path, by_hand(problem, network, broken)), network)
    # What is true without any proof, or is said twice, does no harm.
    more = [[literal, literal ^ 1], proof[0], [*proof[0], *proof[0]], *proof]
    check(pack(path, by_hand(problem, network, more)), network)


@pytest.mark.parametrize("targets", [None, [], [True, 1], [0, 0], [-1], "0", [0.5], {}, [0]])
def test_targets_that_are_not_all_targets_are_rejected(targets: object, tmp_path: Path) -> None:
    problem, _, proof = _ring()
    sections = by_hand(problem, problem.network, proof)
    sections[1].fields["targets"] = targets
    with pytest.raises((RejectedError, UnreadableError)):
        check(pack(tmp_path / "one.cert", sections), problem.network)


def test_sizes_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    problem, _, proof = _ring()
    for sizes in ([2**62, 2**62, 2**62, 2**62], [-1], [10**6], [1], []):
        sections = by_hand(problem, problem.network, proof)
        sections[2].arrays["sizes"] = np.array(sizes, dtype="<i8")
        with pytest.raises((RejectedError, UnreadableError)):
            check(pack(tmp_path / "one.cert", sections), problem.network)


def test_one_target_needs_its_own_proof(tmp_path: Path) -> None:
    """Clauses about some targets prove nothing about the others."""
    problem, _, proof = _ring()
    sections = by_hand(problem, problem.network, proof)
    one = [sections[0], Section("refutation", {"targets": [0]}), *sections[2:]]
    with pytest.raises(RejectedError, match="a target is not proved"):
        check(pack(tmp_path / "one.cert", one), problem.network)


def test_proved_clauses_exclude_patterns(tmp_path: Path) -> None:
    problem, arrays = excluding_pair()
    network, path = problem.network, tmp_path / "one.cert"
    sections = by_hand(problem, network, [[0], []])
    with pytest.raises(RejectedError, match="does not follow"):
        check(pack(path, sections), network)
    for theta, fine in ((np.array([1, 1]), True), (np.array([1, 0]), False)):
        for name in ("clauses", "clashes"):
            known = Section(name, {"layer": 0}, {**arrays, "theta": theta})
            report = accepted(pack(path, [sections[0], known, *sections[1:]]), network)
            assert (report is not None) == fine


def _wide(size: int) -> tuple[Problem, Facts]:
    """Return a question about two dense layers."""
    rng = np.random.default_rng(0)
    weights = [
        np.eye(size),
        rng.choice([-1.0, 1.0], (size, size)),
        rng.choice([-1.0, 1.0], (3, size)),
    ]
    network = bnncert.Network.from_arrays(weights, [np.zeros(w.shape[0]) for w in weights])
    problem = robustness(network, bnncert.Ball("linf", np.zeros(size), 1.0), 0)
    return problem, facts_of(problem, network)


def test_too_many_entries_or_literals_are_rejected_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, known = _wide(60)
    path = pack(tmp_path / "one.cert", by_hand(problem, problem.network, [[0, 1]] * 50 + [[]]))
    for name, size, why in (
        ("MOST_ENTRIES", known.rows.columns.size + 200, "does not follow"),
        ("MOST_ENTRIES", known.rows.columns.size - 1, "with more than"),
        ("MOST_ENTRIES", -1, "more than -1 literals of pairs"),
        ("MOST_LITERALS", 151, "does not follow"),
        ("MOST_LITERALS", 150, "more than 150 literals"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kernel, name, size)
            with pytest.raises(RejectedError, match=why):
                check(path, problem.network)


@pytest.mark.parametrize("small", [0, 2**40])
def test_a_refutation_ends_when_time_is_up(
    small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clause after the other follows, each after propagation through all layers."""
    problem, _ = _wide(400)
    network = problem.network
    # All different: a clause that is there already follows without propagation.
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (20_000, 400))
    scores = network.evaluate(signs / 2)
    label = int(np.bincount(scores.argmax(axis=1)).argmax())
    problem = robustness(network, problem.region, label)
    wins = scores[:, label] > np.delete(scores, label, axis=1).max(axis=1)
    clauses = (2 * np.arange(400) + (signs[wins] > 0)).tolist()
    path = pack(tmp_path / "one.cert", by_hand(problem, network, [*clauses, []]))
    monkeypatch.setattr(kernel, "SMALL", small)
    monkeypatch.setattr(kernel, "SMALL_IF_LOADED", small)
    known = facts_of(problem, network)
    kernel.follow(known, *starts(clauses[:1]))
    started = time.process_time()
    with pytest.raises(RejectedError, match=r"did not end within 0\.2 s"):
        check(path, network, timeout=0.2)
    assert time.process_time() - started < 4
