"""Proofs by elimination, planned over the checker's own tables.

The search eliminates the variables of presolve, the checker those of its own skeleton.  They differ
little, so only the active clauses of the search and its limits are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.search.elimination.bound import EliminationLimits, prepare
from bnncert.engine.search.trace import EliminationTrace
from bnncert.kernel.container import RejectedError
from bnncert.kernel.elimination import MOST_INPUTS, MOST_LIVE, Elimination, SplitOrder
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import ScoreFunction
from bnncert.proofs.proof_builder import ProofBuilder

#: How often tables that are too large for the checker are planned again, with less memory.
ATTEMPTS = 4

#: Multiples of the search's estimated seconds: the buckets may be split differently here.
EFFORTS = (1.0, 16.0)


@dataclass(frozen=True, eq=False)
class EliminationProof:
    """The parts of all buckets over the checker's variables, and the targets that they prove."""

    targets: list[int]
    parts: list[tuple[int, ...]]


def prove_elimination(
    builder: ProofBuilder,
    targets: Mapping[int, Sequence[ScoreFunction]],
    trace: EliminationTrace,
    deadline: Deadline,
) -> list[EliminationProof]:
    """Return proofs of as many targets as the checker accepts."""
    proofs: list[EliminationProof] = []
    rest = dict(targets)
    for factor in EFFORTS:
        if not rest:
            break
        try:
            own = Elimination(builder.skeleton, builder.known, list(rest.values()))
            own.parts = _parts(own, replace(trace, seconds=factor * trace.seconds), deadline)
            proved = own.excluded()
        except (OutOfTimeError, RejectedError):
            break
        kept = [number for number, fine in zip(rest, proved.tolist(), strict=True) if fine]
        if kept:
            proofs.append(EliminationProof(kept, own.parts))
        rest = {number: target for number, target in rest.items() if number not in kept}
    return proofs


def _parts(own: Elimination, trace: EliminationTrace, deadline: Deadline) -> list[tuple[int, ...]]:
    """Return buckets that fit the checker's memory, or the last ones that were tried."""
    scopes = [*own.groups, *_gates(own)]
    known = {v for scope in scopes for v in scope}
    joined = [_variables(own.skeleton, neurons) for neurons in trace.joined]
    active = [scope for scope in joined if scope and known.issuperset(scope)]
    limits = EliminationLimits(trace.memory, trace.seconds)
    parts: list[tuple[int, ...]] = []
    for _ in range(ATTEMPTS):
        plan = prepare(scopes, active, own.scores.enough.size, limits, deadline).plan
        parts = [mini.scope for bucket in plan.buckets for mini in bucket]
        if own.peak(SplitOrder.of(parts)) <= MOST_LIVE:
            break
        limits = replace(limits, memory=limits.memory / 4)
    return parts


def _gates(own: Elimination) -> list[tuple[int, ...]]:
    """Return the variables of the tables of hidden neurons, from the last layer downwards."""
    waiting = sorted({v for scope in own.groups for v in scope})
    seen, found = set(waiting), []
    while waiting:
        v = waiting.pop()
        if own.skeleton.owner[v][0] == 0:
            continue
        inputs = own.gate(v)[0].tolist()
        if len(inputs) <= MOST_INPUTS:
            found.append((*inputs, v))
            waiting += [u for u in inputs if u not in seen]
            seen.update(inputs)
    return found


def _variables(skeleton: Skeleton, neurons: np.ndarray) -> tuple[int, ...]:
    """Return the checker's variables of the unstable neurons."""
    layers = [(skeleton.layers[number], j) for number, j in neurons.tolist()]
    return tuple(sorted({int(layer.variable[j]) for layer, j in layers if layer.state[j] == 0}))
