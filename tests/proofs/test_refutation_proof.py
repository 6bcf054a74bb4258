"""Refutations from traces: what is written is accepted, and no larger than the trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.search.trace import ClauseTrace, SearchRecord
from bnncert.kernel import check
from bnncert.kernel.refutation import facts
from bnncert.kernel.section_reading import joined
from bnncert.proofs import writing
from bnncert.proofs.refutation_proof import trimmed
from bnncert.proofs.writing import write_proof
from bnncert.questions.prover import solve
from tests.kernel.claims import Judge, unpack
from tests.kernel.pattern_trees import random_deep_question
from tests.kernel.random_claims import Question
from tests.kernel.refutations import (
    Clause,
    by_hand,
    outcome,
    random_facts,
    skeleton_of,
    split,
    starts,
)
from tests.random_questions import KINDS


def _redundant(rng: np.random.Generator, proof: list[Clause], literals: int) -> list[Clause]:
    """Return the proof with longer copies of its clauses between them."""
    out: list[Clause] = []
    for clause in proof:
        for _ in range(int(rng.integers(3))):
            other = proof[int(rng.integers(len(proof)))]
            if out and other in out:
                more = sorted({*other, int(rng.integers(literals))})
                out.append(more)
        out.append(clause)
    return out


def test_trimmed_clauses_follow_from_each_other() -> None:
    rng = np.random.default_rng(3)
    lengths: Counter[str] = Counter()
    for _ in range(80):
        known = random_facts(rng)
        proof = split(rng, known)
        if proof is None:
            start, literals = starts([[int(k)] for k in rng.integers(0, 2 * known.variables, 5)])
            assert trimmed(known, start, literals, Deadline(None)) is None
            lengths["open"] += 1
            continue
        long = _redundant(rng, proof, 2 * known.variables)
        start, literals = starts(long[:-1])
        chosen = trimmed(known, start, literals, Deadline(None))
        assert chosen is not None
        kept = [long[k] for k in chosen.tolist()]
        assert outcome(known, [*kept, []], compiled=False) == "refuted" and len(kept) < len(long)
        lengths["proof"] += len(proof)
        lengths["kept"] += len(kept)
        # Without some needed clause of a proof the rest may not follow, and is not written.
        for _ in range(10):
            rest = [clause for clause in long[:-1] if rng.random() < 0.6]
            found = trimmed(known, *starts(rest), Deadline(None))
            if found is not None:
                again = [*(rest[j] for j in found.tolist()), []]
                assert outcome(known, again, compiled=False) == "refuted"
            else:
                lengths["needed"] += 1
    assert lengths["kept"] < 0.7 * lengths["proof"]
    assert lengths["needed"] > 20 and lengths["open"] > 20


def _trace(rng: np.random.Generator, question: Question, chosen: list[int]) -> ClauseTrace | None:
    """Return a trace over all neurons of the network, in any order, about some targets."""
    problem, network = question.problem, question.network
    skeleton, geometry, claim = skeleton_of(problem, network, question.arithmetic)
    known = facts(skeleton, geometry, joined([]), [claim.targets[k] for k in chosen])
    proof = split(rng, known)
    if proof is None:
        return None
    every = [(number, j) for number, layer in enumerate(network.layers) for j in range(layer.size)]
    order = [every[k] for k in rng.permutation(len(every))]
    last = len(skeleton.layers) - 1
    members = np.flatnonzero(skeleton.layers[-1].state == 0).tolist() if last else []
    owners = [*skeleton.owner, *((last, j) for j in members)]
    number = [
        *(order.index(owner) for owner in owners),
        *range(len(order), len(order) + len(chosen)),
    ]
    # Signs that are fixed are false literals for the search as well.
    states = [int(skeleton.layers[n].state[j]) for n, j in order]
    false = [2 * v + (state > 0) for v, state in enumerate(states) if state]
    clauses = []
    for clause in proof:
        own = [2 * number[k >> 1] + (k & 1) for k in clause]
        own += [int(rng.choice(false))] if false and rng.random() < 0.3 else []
        clauses.append(own)
        if false and rng.random() < 0.2:
            clauses.append([int(rng.choice(false)) ^ 1, *own])
    layer, neuron = np.array(order, dtype=np.int64).reshape(-1, 2).T
    start, literals = starts(clauses)
    names = tuple(problem.targets[k].name for k in chosen)
    return ClauseTrace(names, layer, neuron, literals, start)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_becomes_an_accepted_certificate(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(20 + KINDS.index(kind))
    written, shared, path = 0, 0, tmp_path / "one.cert"
    for _ in range(60):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        count = len(problem.targets)
        chosen = sorted(rng.choice(count, int(rng.integers(1, count + 1)), replace=False).tolist())
        judge = Judge(question.tiny)
        statement = by_hand(problem, network, [], question.arithmetic)[0]
        trace = _trace(rng, question, chosen)
        if trace is None or not judge.decide(statement)[0]:
            continue
        presolved = presolve(problem.network, problem.region)
        record = SearchRecord(presolved, clause_proofs=[trace])
        write_proof(
            path, problem, network, arithmetic=question.arithmetic, record=record,
            deadline=Deadline(20),
        )  # fmt: skip
        sections, report = unpack(path), check(path, network)
        assert judge.objection(report, sections[0]) is None
        heads = [s for s in sections if s.name == "refutation"]
        if len(sections) > 1:
            # If presolve leaves nothing to prove, there is only the statement.
            assert len(heads) == 1 and {*chosen} <= {*heads[0].fields["targets"]}
            written += 1
            shared += len(heads[0].fields["targets"]) > len(chosen)
    assert written > 8 and shared


def test_large_refutations_have_several_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, path = np.random.default_rng(1), tmp_path / "one.cert"
    monkeypatch.setattr(writing, "SECTION_NUMBERS", 5)
    while True:
        question = random_deep_question(rng, "linf")
        problem, network = question.problem, question.network
        trace = _trace(rng, question, list(range(len(problem.targets))))
        if trace is None or question.arithmetic != "real":
            continue
        record = SearchRecord(presolve(problem.network, problem.region), clause_proofs=[trace])
        write_proof(path, problem, network, record=record, deadline=Deadline(20))
        sizes = [s.arrays["sizes"].tolist() for s in unpack(path) if s.name == "lemmas"]
        assert check(path, network).targets == len(problem.targets)
        assert not sizes or sizes[-1][-1] == 0
        if len(sizes) > 2:
            break


def test_a_trace_that_proves_nothing_is_not_written(tmp_path: Path) -> None:
    """Then the targets are proved without it."""
    rng, path = np.random.default_rng(2), tmp_path / "one.cert"
    found = 0
    while found < 5:
        question = random_deep_question(rng, "box")
        problem, network = question.problem, question.network
        trace = _trace(rng, question, list(range(len(problem.targets))))
        if trace is None or any(len(target.objectives) > 1 for target in problem.targets):
            continue
        kept = int(trace.starts[0])
        cut = replace(trace, literals=trace.literals[:kept], starts=trace.starts[:1])
        record = SearchRecord(presolve(problem.network, problem.region), clause_proofs=[cut])
        write_proof(
            path, problem, network, arithmetic=question.arithmetic, record=record,
            deadline=Deadline(20),
        )  # fmt: skip
        names = [s.name for s in unpack(path)]
        check(path, network)
        found += "target" in names


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_learns_gets_certificates(kind: str, tmp_path: Path) -> None:
    """Real inputs, budgets, ties, any sign(0), several functions of a target."""
    rng = np.random.default_rng(40 + KINDS.index(kind))
    outcomes: Counter[str] = Counter()
    for number in range(40):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        if question.arithmetic != "real":
            continue
        path = tmp_path / f"{number}.cert"
        result = solve([problem], "learning", 60, certificate=path)
        outcomes[result.status] += 1
        if result.status == "robust":
            assert result.certificate is not None, result.notes
            sections = unpack(path)
            assert Judge(question.tiny).objection(check(path, network), sections[0]) is None
            outcomes["refutation"] += "refutation" in [s.name for s in sections]
    # Intervals alone decide many of these.
    assert outcomes["robust"] > 5 and outcomes["refutation"]
    assert outcomes.keys() <= {"robust", "not_robust", "refutation"}
