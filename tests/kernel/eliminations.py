"""Certificates with orders of elimination that are made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bnncert
from bnncert.engine.search.elimination.buckets import UNLIMITED, make_plan
from bnncert.kernel.container import Section
from bnncert.kernel.elimination import Elimination
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.section_reading import joined
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import Statement
from bnncert.problem import Problem
from bnncert.proofs.elimination_proof import _gates
from bnncert.proofs.writing import _statement
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork
from tests.kernel.claims import random_network, robust_problem, unpack


def elimination_of(
    problem: Problem, network: bnncert.Network, arithmetic: str = "real"
) -> Elimination:
    """Return the elimination of all targets, without any clash or clause."""
    claim = Statement.read(_statement(problem, network, "robust", arithmetic, None), network)
    geometry = Geometry(network.layers[0], claim.space, float32=arithmetic == "float32")
    return Elimination(Skeleton(network, geometry, {}), joined([]), list(claim.targets))


def random_parts(
    rng: np.random.Generator, made: Elimination, limit: int = UNLIMITED
) -> list[tuple[int, ...]]:
    """Return the parts of the buckets of a random order."""
    scopes = [*made.groups, *_gates(made)]
    order = rng.permutation(sorted({v for scope in scopes for v in scope})).tolist()
    plan = make_plan(scopes, [], order, limit)
    return [mini.scope for bucket in plan.buckets for mini in bucket]


def buckets(parts: list[tuple[int, ...]]) -> Section:
    """Return parts of buckets as a section."""
    sizes = np.array([len(part) for part in parts], dtype="<i4")
    scopes = np.array([v for part in parts for v in part], dtype="<i4")
    return Section("buckets", {}, {"sizes": sizes, "scopes": scopes})


def eliminated(path: Path) -> tuple[TinyNetwork, list[Section]]:
    """Return a certificate of a search by elimination that has learned clauses."""
    rng = np.random.default_rng(0)
    while True:
        tiny = random_network(rng, [2, 8, 6, 3])
        problem = robust_problem(tiny, bnncert.Ball("linf", rng.integers(-4, 5, 2) / 4, 1.0))
        if solve([problem], "elimination", 20, certificate=path).status == "robust":
            sections = unpack(path)
            if {"elimination", "clauses"} <= {s.name for s in sections}:
                return tiny, sections


def by_hand(
    problem: Problem,
    network: bnncert.Network,
    parts: list[tuple[int, ...]],
    arithmetic: str = "real",
) -> list[Section]:
    """Return a certificate of one elimination for all targets, in one or two sections."""
    half = len(parts) // 2
    return [
        _statement(problem, network, "robust", arithmetic, None),
        Section("elimination", {"targets": list(range(len(problem.targets)))}),
        *(buckets(own) for own in (parts[:half], parts[half:]) if own),
    ]
