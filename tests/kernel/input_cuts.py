"""Certificates whose leaves use inequalities that the input implies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import bnncert
from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.coupling import couple
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.input_cuts import input_cut
from bnncert.engine.relaxations.reduced.patterns import starting_moments
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search.trace import SearchRecord, root_trace
from bnncert.engine.solvers.structured import solve_structured
from bnncert.kernel.container import Section
from bnncert.problem import Problem
from bnncert.proofs.writing import write_proof
from tests.brute_force import TinyNetwork
from tests.kernel.claims import robust_problem, unpack


def solved(problem: ReducedProblem) -> tuple[DualPoint, FloatArray]:
    """Return the multipliers of a relaxation, and the moments of z = (1, x)."""
    relaxation = relax_reduced(problem)
    moments, probabilities = starting_moments(problem)
    found = solve_structured(
        relaxation.program,
        Deadline(None),
        tolerance=1e-7,
        moments=moments,
        probabilities=probabilities,
    )
    signs = problem.size + 1
    return relaxation.dual_point(found.multipliers), found.moments[:signs, :signs]


def recorded(problem: Problem) -> SearchRecord:
    """Return what a search leaves that proves every target with one inequality of the input."""
    presolved = presolve(problem.network, problem.region)
    record = SearchRecord(presolved)
    for target in problem.targets:
        plain = reduce_objective(presolved, target.objectives[0])
        coupling = couple(presolved, plain.variables)
        if coupling is None:
            continue
        dual, moments = solved(replace(plain, coupling=coupling))
        cuts = input_cut(presolved, plain.variables, dual.input, moments)
        if cuts is not None:
            closer = replace(plain, cuts=cuts)
            record.traces[target.name] = root_trace(closer, solved(closer)[0], presolved, 0)
    return record


def crossing(seed: int, kind: str) -> tuple[TinyNetwork, bnncert.Region]:
    """Return a network of real rows in the plane, and a region around which they cross."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((6, 2)).round(3), rng.integers(-1, 2, (5, 6)) * 1.0]
    weights.append(rng.integers(-1, 2, (2, 5)) * 1.0)
    biases = [0.4 * rng.standard_normal(6).round(3), rng.integers(-3, 4, 5) / 2, np.zeros(2)]
    tiny = TinyNetwork(tuple(weights), tuple(biases), "plus")
    if kind == "box":
        return tiny, bnncert.Box([-1.0, -0.5], [0.75, 1.0])
    return tiny, bnncert.Ball(kind, [0.0, 0.125], 1.0, -0.75, 0.875)  # type: ignore[arg-type]


def certified(
    path: Path, tiny: TinyNetwork, region: bnncert.Region
) -> tuple[Problem, list[Section]]:
    """Write a certificate with inequalities; return the problem and the sections."""
    problem = robust_problem(tiny, region)
    write_proof(path, problem, problem.network, record=recorded(problem), deadline=Deadline(60))
    return problem, unpack(path)
