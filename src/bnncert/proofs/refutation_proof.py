"""Proofs by clauses: those of a search that learns, over the checker's variables, and trimmed.

The search knows the facts of presolve, the checker those of its own skeleton: a neuron that the
checker has fixed leaves its clauses or makes them true, and neurons that it finds to be equal
become one.  What followed by propagation still does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bnncert.arrays import IntArray
from bnncert.deadline import Deadline
from bnncert.engine.search.trace import ClauseTrace
from bnncert.kernel.container import RejectedError
from bnncert.kernel.refutation import MOST_LITERALS, Facts, facts, follow
from bnncert.kernel.refutation_loop import REFUTED
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import ScoreFunction
from bnncert.proofs.proof_builder import ProofBuilder

#: Literals that are always true or false.
TRUE, FALSE = -2, -1


@dataclass(frozen=True, eq=False)
class RefutationProof:
    """Clauses over the checker's variables; clause k is literals[start[k] : start[k + 1]]."""

    targets: list[int]
    start: IntArray
    literals: IntArray


def prove_refutation(
    builder: ProofBuilder,
    targets: Mapping[int, Sequence[ScoreFunction]],
    trace: ClauseTrace,
    names: Mapping[str, int],
    deadline: Deadline,
) -> RefutationProof | None:
    """Return a proof that the checker accepts, or None.

    The targets are those of the trace that are to be proved, and others: of these the proof has
    only targets that follow without any clause.  `names` has the numbers of all targets.
    """
    own = {names[name] for name in trace.targets}
    start, literals = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    try:
        known = facts(builder.skeleton, builder.geometry, builder.known, list(targets.values()))
        found = follow(known, start, literals)
        if not found.counters[REFUTED]:
            reached = found.value[2 * (known.variables - len(targets)) :: 2]
            closed = {n for n, value in zip(targets, reached, strict=True) if value < 0}
            kept = {n: target for n, target in targets.items() if n in own or n in closed}
            if len(kept) < len(targets):
                return prove_refutation(builder, kept, trace, names, deadline) if kept else None
    except RejectedError:
        return None
    if not found.counters[REFUTED]:
        literal = _literals(builder.skeleton, known, trace, targets, names)
        start, literals = _translated(trace, literal)
        needed = trimmed(known, start, literals, deadline)
        if needed is None:
            return None
        start, literals = _chosen(start, literals, needed)
    if literals.size + start.size > MOST_LITERALS:
        return None
    # The empty clause comes last.
    return RefutationProof(list(targets), np.append(start, start[-1]), literals)


def prove_at_once(
    builder: ProofBuilder, targets: Mapping[int, Sequence[ScoreFunction]], deadline: Deadline
) -> RefutationProof | None:
    """Return a proof of those targets that follow without any clause, or None."""
    none = np.zeros(0, dtype=np.int64)
    nothing = ClauseTrace((), none, none, none, np.zeros(1, dtype=np.int64))
    return prove_refutation(builder, targets, nothing, {}, deadline)


def _literals(
    skeleton: Skeleton,
    known: Facts,
    trace: ClauseTrace,
    targets: Collection[int],
    names: Mapping[str, int],
) -> IntArray:
    """Return the checker's literal for each variable of the trace being true."""
    depth, size = len(skeleton.layers), trace.layer.size
    literal = np.full(size + len(trace.targets), FALSE, dtype=np.int64)
    for number in np.unique(trace.layer).tolist():
        own, layer = np.flatnonzero(trace.layer == number), skeleton.layers[number]
        neuron = trace.neuron[own]
        variable, sign = layer.variable[neuron], layer.sign[neuron]
        if number == depth - 1 > 0:
            variable = skeleton.size + np.cumsum(layer.state == 0)[neuron] - 1
        state = layer.state[neuron]
        fixed = np.where(state > 0, TRUE, FALSE)
        literal[own] = np.where(state == 0, 2 * variable + (sign < 0), fixed)
    # A target that is proved elsewhere is not reached.
    goals = {n: 2 * (known.variables - len(targets) + k) for k, n in enumerate(targets)}
    literal[size:] = [goals.get(names[name], FALSE) for name in trace.targets]
    return literal


def _translated(trace: ClauseTrace, literal: IntArray) -> tuple[IntArray, IntArray]:
    """Return the clauses over the checker's literals, without those that are always true."""
    # TRUE and FALSE are opposites like all other pairs of literals.
    moved = literal[trace.literals >> 1] ^ (trace.literals & 1)
    sizes = np.diff(trace.starts)
    owner = np.repeat(np.arange(sizes.size), sizes)
    useful = np.ones(sizes.size, dtype=bool)
    useful[owner[moved == TRUE]] = False
    kept = useful[owner] & (moved >= 0)
    owner, moved = owner[kept], moved[kept]
    real = literal[literal >= 0] >> 1
    if np.unique(real).size < real.size:
        # Neurons that are equal: a literal may occur twice, or with its opposite.
        order = np.lexsort((moved, owner))
        owner, moved = owner[order], moved[order]
        again = (np.diff(owner, prepend=-1) == 0) & (np.diff(moved >> 1, prepend=-1) == 0)
        twice = again & (np.diff(moved, prepend=-1) == 0)
        useful[owner[again & ~twice]] = False
        kept = useful[owner] & ~twice
        owner, moved = owner[kept], moved[kept]
    counts = np.bincount(owner, minlength=sizes.size)[useful]
    return np.concatenate([[0], np.cumsum(counts)]), moved


def _chosen(start: IntArray, literals: IntArray, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Return some of the clauses."""
    sizes = np.diff(start)
    owner = np.zeros(sizes.size, dtype=bool)
    owner[chosen] = True
    return np.concatenate([[0], np.cumsum(sizes[owner])]), literals[np.repeat(owner, sizes)]


def trimmed(
    known: Facts, start: IntArray, literals: IntArray, deadline: Deadline
) -> IntArray | None:
    """Return the clauses that a contradiction needs, or None if one of them does not follow."""
    # Imported on use: numba takes a third of a second to import.
    from bnncert.proofs import trimming_loop as loop

    wide, count = 2 * known.variables, start.size - 1
    counters = np.zeros(loop.COUNTERS, dtype=np.int64)
    numbers = np.zeros((3, known.variables), dtype=np.int64)
    state = (
        *(np.zeros(wide, dtype=np.int8), *numbers.astype(np.int32)[:2], numbers[2]),
        *(known.slack, known.slack, np.full((2, wide), -1, dtype=np.int32)),
    )
    following, before = np.zeros(2 * count, dtype=np.int32), np.zeros(count, dtype=np.int32)
    marks, cone = np.zeros(count, dtype=np.int8), np.zeros((2, known.variables), dtype=np.int8)
    clauses = literals.astype(np.int32), start, following, before, marks
    tables, answer = known.tables(), loop.PAUSE
    while answer == loop.PAUSE and not deadline.passed():
        answer = loop.trim(tables, state, counters, clauses, cone)
    return np.flatnonzero(marks) if answer == loop.FINE else None
