"""Proofs by trees of first-layer signs: the tree of a search, tried with the checker's code.

The search closes leaves with the facts of presolve, the checker with those of its own skeleton.  If
these differ, a leaf is split further, and a pattern that no input has is excluded by a clause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bnncert.arrays import SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.trace import PatternTrace
from bnncert.kernel.patterns import LEAF, LEAVES, Patterns
from bnncert.kernel.statement import ScoreFunction
from bnncert.proofs.proof_builder import ProofBuilder

Tree = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class PatternProof:
    """A tree in preorder, over the checker's variables, that proves some targets."""

    targets: list[int]
    tree: Tree


class _UnprovedError(Exception):
    """A leaf cannot be closed, or the deadline has passed."""


def prove_patterns(
    builder: ProofBuilder,
    targets: Mapping[int, Sequence[ScoreFunction]],
    trace: PatternTrace,
    deadline: Deadline,
) -> PatternProof | None:
    """Return a proof that the checker accepts, or None; its clauses are added to the builder."""
    tree = _translated(builder, trace)
    patterns = Patterns(builder.skeleton, builder.geometry, builder.known, list(targets.values()))
    try:
        tree = _Leaves(builder, patterns, deadline).close(tree)
    except _UnprovedError:
        return None
    return PatternProof(list(targets), tree)


def _translated(builder: ProofBuilder, trace: PatternTrace) -> Tree:
    """Return the tree of the search over the checker's variables."""
    tree = trace.record.preorder()
    first = builder.skeleton.layers[0]
    state = first.state[trace.neurons]
    # A fixed neuron is not a variable; its sign is its state.
    variable = np.where(state != 0, LEAF, first.variable[trace.neurons]).astype(np.int32)
    sign = np.where(state != 0, state, first.sign[trace.neurons]).astype(np.int8)
    used = np.unique(tree[tree != LEAF])
    distinct = np.unique(variable[used]).size == used.size
    if distinct and np.all(variable[used] >= 0) and np.all(sign[used] > 0):
        # The last entry is that of LEAF.
        return np.append(variable, np.int32(LEAF))[tree]
    return _rewritten(tree, variable, sign)


def _rewritten(tree: Tree, variable: Tree, sign: SignArray) -> Tree:
    """Return a tree over variables of which some are fixed, equal to each other, or negated."""
    # The end of the subtree of each node.
    end = [0] * tree.size
    for k in range(tree.size - 1, -1, -1):
        end[k] = k + 1 if tree[k] == LEAF else end[end[k + 1]]
    out: list[int] = []
    stack: list[tuple[int, dict[int, int]]] = [(0, {})]
    while stack:
        k, path = stack.pop()
        if tree[k] == LEAF:
            out.append(LEAF)
            continue
        v, s = int(variable[tree[k]]), int(sign[tree[k]])
        children = {s: k + 1, -s: end[k + 1]}
        known = 1 if v < 0 else path.get(v, 0)
        if known:
            # For a fixed neuron, `s` is the sign itself.
            stack.append((children[known], path))
            continue
        out.append(v)
        stack.append((children[-1], {**path, v: -1}))
        stack.append((children[1], {**path, v: 1}))
    return np.array(out, dtype=np.int32)


class _Leaves:
    """Closes the leaves of a tree, many at a time."""

    def __init__(self, builder: ProofBuilder, patterns: Patterns, deadline: Deadline) -> None:
        self.builder, self.patterns, self.deadline = builder, patterns, deadline
        owner = builder.skeleton.owner
        self.neurons = np.array([j for n, j in owner if n == 0], dtype=np.int64)

    def close(self, tree: Tree) -> Tree:
        """Return the tree, with further branches for leaves that need them."""
        more: dict[int, list[int]] = {}
        path = np.zeros(self.patterns.inputs, dtype=np.int8)
        branches: list[int] = []
        waiting: list[SignArray] = []
        places: list[int] = []
        for place, variable in enumerate(tree.tolist()):
            if variable != LEAF:
                path[variable] = 1
                branches.append(variable)
                continue
            waiting.append(path.copy())
            places.append(place)
            if len(waiting) == LEAVES or place == tree.size - 1:
                for k in self._open(np.array(waiting)):
                    more[places[k]] = self._split(waiting[k])
                waiting, places = [], []
            while branches and path[branches[-1]] < 0:
                path[branches.pop()] = 0
            if branches:
                path[branches[-1]] = -1
        if not more:
            return tree
        parts = [more.get(k, [v]) for k, v in enumerate(tree.tolist())]
        return np.array([v for part in parts for v in part], dtype=np.int32)

    def _open(self, leaves: SignArray) -> list[int]:
        """Return the leaves that have too many patterns; the others are closed."""
        if self.deadline.passed():
            raise _UnprovedError
        nodes, targets, index = self.patterns.propagated(leaves)
        few = self.patterns.countable(nodes)
        rest, open_ = nodes[few], targets[few]
        while (found := self.patterns.counterexample(rest, open_)) is not None:
            clause = self.builder.unreachable(self.neurons, found, self.deadline)
            if clause is None or self.deadline.passed():
                raise _UnprovedError
            self.patterns.learn(self.builder.add(clause))
        return list(index[~few].tolist())

    def _split(self, leaf: SignArray) -> list[int]:
        """Return a tree for a leaf that has too many patterns."""
        nodes, _ = self.patterns.implied(leaf[None, :])
        open_ = np.flatnonzero((nodes[0] == 0) & (leaf == 0))
        if not open_.size:
            raise _UnprovedError
        weight = np.zeros(self.patterns.inputs)
        if self.patterns.levels:
            first = self.patterns.levels[0]
            weight[first.inputs] = first.sizes.sum(axis=0)
        variable = int(open_[np.argmax(weight[open_])])
        out = [variable]
        for sign in (1, -1):
            child = leaf.copy()
            child[variable] = sign
            out += self._split(child) if self._open(child[None, :]) else [LEAF]
        return out
