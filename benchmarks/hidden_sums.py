r"""Ranges of the sums u = w.x of hidden layers by elimination, for networks of three sign layers.

The sum of a hidden neuron is a model whose tables have one variable each.  Only clauses and gates
join variables: conflicting pairs are known between first-layer neurons, which share pixels, and a
gate ties a hidden neuron to its inputs.  Rows that read the same variables, such as the channels of
one position of a convolution, are objectives of one elimination: w for the minimum and -w for the
maximum.  Only local layers are worth it: where all sums read all variables, no order is narrow.

No method of the package uses these ranges, because they have not decided a question; see
docs/elimination.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.presolve.literals import variable_of
from bnncert.engine.presolve.pipeline import Presolved, PresolveRun, over_variables
from bnncert.engine.presolve.stability import settle_states
from bnncert.engine.search.elimination.bound import EliminationLimits, columns, prepare
from bnncert.engine.search.elimination.buckets import InexactTableError, Model, eliminate
from bnncert.engine.search.elimination.factors import Gate, gate_of, linear_table
from bnncert.model.network import Network
from bnncert.regions import Region

#: A layer is local if none of its neurons reads more than this share of the layer below.
LOCAL = 0.25


@dataclass(frozen=True)
class HiddenSums:
    """Bounds of the sums of a layer over the variables of the layers below.

    Attributes
    ----------
    seconds
        For all sums of one layer together.
    share
        The share of the time that is left, if that is less.
    limits
        Those of one elimination, for all sums over the same variables.
    most_inputs
        Gates that read more variables are left out.
    """

    seconds: float = 10.0
    share: float = 0.05
    limits: EliminationLimits = field(default_factory=lambda: EliminationLimits(0.25, 0.5))
    most_inputs: int = 6

    def __call__(
        self, below: Presolved, rows: Any, deadline: Deadline
    ) -> tuple[FloatArray, FloatArray]:
        """Return (Lo, U) of every row; rows that the time does not suffice for count in full."""
        weights = below.network.layers[len(below.layers)].weights
        if np.diff(weights.indptr).max(initial=0) > LOCAL * weights.shape[1]:
            reach = np.asarray(abs(rows).sum(axis=1), dtype=np.float64).reshape(-1)
            return -reach, reach
        end = deadline.within(min(self.seconds, self.share * deadline.remaining()))
        pairs = np.stack([below.pairs.first, below.pairs.second], axis=1)
        gate = partial(_gate, below, self.most_inputs)
        return eliminated_sum_ranges(rows, list(pairs), self.limits, end, gate)


class HiddenPresolve(PresolveRun):
    """A presolve with these bounds; a certificate cannot refer to them."""

    def __init__(self, network: Network, region: Region, sums: HiddenSums) -> None:
        super().__init__(network, region, Deadline(None))
        self._sums = sums

    def ranges(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Tighten the ranges of the sums of unstable neurons."""
        low, high = super().ranges(rows)
        layer = self.network.layers[len(self.layers)]
        _, shift = over_variables(layer, self.layers[-1], self.variables)
        open_ = settle_states(layer, shift + low, shift + high).unstable
        lower, upper = self._sums(self.so_far(), rows[open_], self.deadline)
        # A range is empty if the layers below have no possible pattern.
        empty = lower > upper
        self.contradiction = self.contradiction or bool(empty.any())
        low[open_] = np.where(empty, low[open_], np.maximum(low[open_], lower))
        high[open_] = np.where(empty, high[open_], np.minimum(high[open_], upper))
        return low, high


def _gate(below: Presolved, most: int, v: int) -> Gate | None:
    return gate_of(below, v, most) if below.owner_layer[v] > 0 else None


@dataclass(frozen=True, eq=False)
class _SameScope:
    """Rows over one set of variables, the gates below it, and all variables of both."""

    scope: tuple[int, ...]
    rows: tuple[int, ...]
    gates: tuple[Gate, ...]
    variables: frozenset[int]

    @property
    def gates_exclude(self) -> bool:
        """Whether gates may exclude patterns: not if nothing that one reads is in use elsewhere."""
        inputs = [u for gate in self.gates for u in gate.variables[:-1]]
        return len({*inputs, *self.scope}) < len(inputs) + len(self.scope)


def no_gate(_: int) -> None:
    """Every variable is free."""


def eliminated_sum_ranges(
    rows: Any,
    clauses: Sequence[IntArray],
    limits: EliminationLimits,
    deadline: Deadline,
    find_gate: Callable[[int], Gate | None] = no_gate,
) -> tuple[FloatArray, FloatArray]:
    """Return (Lo, U) of every row of a CSR matrix of integers over the variables.

    The range is exact over the patterns that violate no gate and no clause among the row's
    variables and those of their gates, or contains that one where the limits ask for mini-buckets.
    The sums with the fewest variables come first; after the deadline rows count in full.
    An empty range, (inf, -inf), means that every pattern violates something.
    """
    upper = np.asarray(abs(rows).sum(axis=1), dtype=np.float64).reshape(-1)
    lower = -upper
    others: dict[int, list[int]] = {}
    for number, clause in enumerate(clauses):
        for v in variable_of(clause).tolist():
            others.setdefault(v, []).append(number)
    try:
        for sums in _by_variables(rows, find_gate, deadline):
            near = sorted({i for v in sums.variables for i in others.get(v, ())})
            kept = [c for c in (clauses[i] for i in near) if _is_inside(c, sums.variables)]
            if not kept and not sums.gates_exclude:
                continue
            least = _minima(rows, sums, kept, limits, deadline)
            own = list(sums.rows)
            lower[own], upper[own] = least[: len(own)], -least[len(own) :]
    except (OutOfTimeError, InexactTableError):
        # What is left counts in full.
        pass
    return lower, upper


def _is_inside(clause: IntArray, variables: frozenset[int]) -> bool:
    return variables.issuperset(variable_of(clause).tolist())


def _by_variables(
    rows: Any, find_gate: Callable[[int], Gate | None], deadline: Deadline
) -> list[_SameScope]:
    """Return the rows by the variables that they read, those with the fewest first."""
    members: dict[tuple[int, ...], list[int]] = {}
    for j in range(rows.shape[0]):
        scope = tuple(rows.indices[rows.indptr[j] : rows.indptr[j + 1]].tolist())
        members.setdefault(scope, []).append(j)
    known: dict[int, Gate | None] = {}
    found = []
    for scope, own in members.items():
        deadline.check()
        gates, seen, waiting = [], set(scope), list(scope)
        while waiting:
            v = waiting.pop()
            if v not in known:
                known[v] = find_gate(v)
            gate = known[v]
            if gate is None:
                continue
            gates.append(gate)
            waiting += [u for u in gate.variables if u not in seen]
            seen.update(gate.variables)
        found.append(_SameScope(scope, tuple(own), tuple(gates), frozenset(seen)))
    return sorted(found, key=lambda sums: len(sums.variables))


def _minima(
    rows: Any,
    sums: _SameScope,
    clauses: list[IntArray],
    limits: EliminationLimits,
    deadline: Deadline,
) -> FloatArray:
    """Return the minima of w.x for some rows over one set of variables, then those of -w.x."""
    weights = np.stack([rows.data[rows.indptr[j] : rows.indptr[j + 1]] for j in sums.rows])
    both = np.concatenate([weights, -weights]).astype(np.float64)
    tables = [linear_table(v, both[:, i]) for i, v in enumerate(sums.scope)]
    tables += [gate.table() for gate in sums.gates]
    model = Model(tuple(tables), tuple(clauses), len(both))
    scopes = model.scopes()
    plan = prepare(scopes[: len(tables)], scopes[len(tables) :], len(both), limits, deadline).plan
    size = limits.together(plan)
    parts = [
        columns(model, np.arange(start, min(start + size, len(both))))
        for start in range(0, len(both), size)
    ]
    return np.concatenate([eliminate(p, plan, deadline, patterns=False).minimum for p in parts])
