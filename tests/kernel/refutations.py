"""Refutations that are made by splitting variables one after the other, without the engine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

import bnncert
from bnncert.kernel.container import RejectedError, Section
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.refutation import Facts, _clauses, facts, follow
from bnncert.kernel.refutation_loop import REFUTED, TRAIL
from bnncert.kernel.section_reading import Clauses, joined, read_clauses
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.sparse import SparseRows
from bnncert.kernel.statement import Statement
from bnncert.problem import Problem
from bnncert.proofs.writing import _statement
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork
from tests.kernel.claims import random_network, robust_problem, unpack

Clause = list[int]


def skeleton_of(
    problem: Problem, network: bnncert.Network, arithmetic: str = "real"
) -> tuple[Skeleton, Geometry, Statement]:
    """Return what the checker knows without any clash."""
    claim = Statement.read(_statement(problem, network, "robust", arithmetic, None), network)
    geometry = Geometry(network.layers[0], claim.space, float32=arithmetic == "float32")
    return Skeleton(network, geometry, {}), geometry, claim


def facts_of(problem: Problem, network: bnncert.Network, arithmetic: str = "real") -> Facts:
    """Return the facts about all targets, without any clash or clause."""
    skeleton, geometry, claim = skeleton_of(problem, network, arithmetic)
    return facts(skeleton, geometry, joined([]), claim.targets)


def stated_facts(sections: list[Section], network: bnncert.Network) -> Facts:
    """Return the facts about all targets of a statement, with its clashes and clauses."""
    claim = Statement.read(sections[0], network)
    geometry = Geometry(network.layers[0], claim.space, float32=claim.float32)
    clashes: dict[int, Clauses] = {}
    known: list[Clauses] = []
    for section in sections[1:]:
        if section.name == "clauses":
            known.append(read_clauses(section, network.layers[0].size, geometry.inequalities))
        elif section.name == "clashes":
            layer = section.fields["layer"]
            clashes[layer] = read_clauses(section, network.layers[layer].size, 0)
    return facts(Skeleton(network, geometry, clashes), geometry, joined(known), claim.targets)


def refuted(path: Path) -> tuple[TinyNetwork, list[Section]]:
    """Return a certificate of a refutation that uses clashes and clauses of the region."""
    # The first network of this seed is one; those of other seeds are hundreds in front of it.
    rng = np.random.default_rng(238)
    while True:
        tiny = random_network(rng, [2, 8, 6, 3])
        problem = robust_problem(tiny, bnncert.Ball("linf", rng.integers(-4, 5, 2) / 4, 1.0))
        if solve([problem], "elimination", 20, certificate=path).status != "robust":
            continue
        front = [s for s in unpack(path) if s.name in ("statement", "clashes", "clauses")]
        proof = split(rng, stated_facts(front, problem.network))
        if len(front) == 3 and proof is not None and len(proof) > 8:
            half = len(proof) // 2
            head = Section("refutation", {"targets": list(range(len(problem.targets)))})
            return tiny, [*front, head, lemmas(proof[:half]), lemmas(proof[half:])]


def random_facts(rng: np.random.Generator) -> Facts:
    """Return random inequalities, pairs and clauses, of which about half have no solution."""
    count = int(rng.integers(5, 10))
    parts = []
    for _ in range(int(rng.integers(4, 14))):
        own = rng.choice(count, int(rng.integers(2, count + 1)), replace=False)
        weights = rng.integers(1, int(rng.choice([2, 6, 40])), own.size)
        degree = int(rng.integers(1, max(2, int(0.7 * weights.sum()))))
        least = np.array([2 * degree - int(weights.sum())])
        start = np.array([0, own.size])
        rows = SparseRows(start, own, weights * rng.choice([-1, 1], own.size), count)
        parts.append((rows, least, np.array([-1])))
    excluded = np.argwhere(np.triu(rng.random((2 * count, 2 * count)) < 0.03, 1))
    clauses = (excluded ^ 1).tolist() + [
        (2 * rng.choice(count, 3, replace=False) + rng.integers(0, 2, 3)).tolist()
        for _ in range(int(rng.integers(8)))
    ]
    return Facts.of(count, [*parts, _clauses(*starts(clauses))])


def inequalities(known: Facts) -> list[tuple[Clause, Clause, int]]:
    """Return literals, weights and the degree of each."""
    columns, values = known.rows.columns.tolist(), known.rows.values.tolist()
    parts = zip(pairwise(known.rows.start.tolist()), known.degree.tolist(), strict=True)
    return [(columns[a:b], values[a:b], degree) for (a, b), degree in parts]


def implied(known: Facts, clauses: list[Clause], assumed: Clause) -> set[int] | None:
    """Return the literals that propagation sets, from its definition; None: a conflict."""
    true = set(assumed)
    lines = inequalities(known) + [(sorted({*c}), [1] * len({*c}), 1) for c in clauses]
    while True:
        before = len(true)
        for literals, weights, degree in lines:
            entries = list(zip(literals, weights, strict=True))
            slack = sum(w for k, w in entries if k ^ 1 not in true) - degree
            true |= {k for k, w in entries if w > slack and k ^ 1 not in true}
            if slack < 0 or any(k ^ 1 in true for k in true):
                return None
        if len(true) == before:
            return true


def outcome(known: Facts, proof: list[Clause], *, compiled: bool) -> set[int] | str:
    """Return what is known after all clauses; or "refuted", or "rejected"."""
    try:
        state = follow(known, *starts(proof), compiled=compiled)
    except RejectedError:
        return "rejected"
    return "refuted" if state.counters[REFUTED] else set(state.trail[: state.counters[TRAIL]])


def defined(known: Facts, proof: list[Clause]) -> set[int] | str:
    """Return the same from the definition of propagation."""
    for number, clause in enumerate(proof):
        earlier = proof[:number]
        if implied(known, earlier, []) is None:
            return "refuted"
        if implied(known, earlier, [k ^ 1 for k in clause]) is not None:
            return "rejected"
    found = implied(known, proof, [])
    return "refuted" if found is None else found


def split(rng: np.random.Generator, known: Facts) -> list[Clause] | None:
    """Return clauses that follow one after the other up to the empty one, or None."""
    proof: list[Clause] = []

    def close(path: Clause) -> bool:
        found = implied(known, [], path)
        if found is not None:
            open_ = [k for k in range(2 * known.variables) if not {k, k ^ 1} & found]
            if not open_:
                return False
            literal = int(rng.choice(open_))
            if not all(close([*path, side]) for side in (literal, literal ^ 1)):
                return False
        proof.append([literal ^ 1 for literal in path])
        return True

    return proof if close([]) else None


def lemmas(proof: list[Clause]) -> Section:
    """Return clauses as a section."""
    sizes = np.array([len(clause) for clause in proof], dtype="<i4")
    literals = np.array([k for clause in proof for k in clause], dtype="<i4")
    return Section("lemmas", {}, {"sizes": sizes, "literals": literals})


def by_hand(
    problem: Problem, network: bnncert.Network, proof: list[Clause], arithmetic: str = "real"
) -> list[Section]:
    """Return a certificate of one refutation for all targets, in one or two sections."""
    half = len(proof) // 2
    return [
        _statement(problem, network, "robust", arithmetic, None),
        Section("refutation", {"targets": list(range(len(problem.targets)))}),
        *(lemmas(part) for part in (proof[:half], proof[half:]) if part),
    ]


def forged(rng: np.random.Generator, known: Facts, length: int) -> list[Clause]:
    """Return random clauses, of which the last is empty."""
    made = [
        rng.integers(0, 2 * known.variables, int(rng.integers(1, 4))).tolist()
        for _ in range(length)
    ]
    return [*made, []]


def changed(rng: np.random.Generator, proof: list[Clause], literals: int) -> list[Clause]:
    """Return a proof in which some clauses are shorter, different, missing or elsewhere."""
    out = [list(clause) for clause in proof]
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(len(out)))
        choice = int(rng.integers(4))
        if choice == 0 and out[k]:
            del out[k][int(rng.integers(len(out[k])))]
        elif choice == 1 and out[k]:
            out[k][int(rng.integers(len(out[k])))] = int(rng.integers(literals))
        elif choice == 2 and len(out) > 1:
            del out[k]
        else:
            j = int(rng.integers(len(out)))
            out[k], out[j] = out[j], out[k]
    return out


def starts(proof: list[Clause]) -> tuple[np.ndarray, np.ndarray]:
    """Return where each clause begins, and the literals of all of them."""
    literals = np.array([k for clause in proof for k in clause], dtype=np.int64)
    sizes = np.array([len(clause) for clause in proof], dtype=np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]), literals


def models(known: Facts) -> list[list[bool]]:
    """Return all values of the variables that satisfy every fact, by enumeration."""
    count = known.variables
    table = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    truth = np.stack([table, 1 - table], axis=2).reshape(-1, 2 * count)
    good = np.ones(truth.shape[0], dtype=bool)
    for literals, weights, degree in inequalities(known):
        good &= truth[:, literals] @ np.array(weights, dtype=np.int64) >= degree
    return list(table[good].astype(bool).tolist())
