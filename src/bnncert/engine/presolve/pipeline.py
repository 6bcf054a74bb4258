r"""Presolve: every rule, layer by layer, until nothing changes.

Layer by layer each neuron becomes fixed, a literal of a *variable* (x = sign * v), or a variable of
its own.  Facts about a layer concern only the layers above it.  One pass upwards, which applies the
rules to a layer until nothing changes, therefore reaches the fixed point of all rules.

`plain_presolve` uses intervals alone, for searches that represent the region in other ways: if a
ball limits the number of sign changes, nearly all pairs of neurons conflict, and finding them takes
far longer than the search that follows.

Every step is recorded, rule by rule, so that a bound can be traced back to the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline, Grace, OutOfTimeError
from bnncert.engine.presolve.conflicts import ConflictingPairs, close, sum_ranges
from bnncert.engine.presolve.literals import renumbered, sign_of, variable_of
from bnncert.engine.presolve.pairs import conflicting_pairs
from bnncert.engine.presolve.stability import (
    LayerBounds,
    first_layer,
    first_layer_thresholds,
    settle_states,
)
from bnncert.engine.presolve.triples import Triples, conflicting_triples
from bnncert.model.layers import ThresholdLayer
from bnncert.model.matrices import row_blocks, row_norms
from bnncert.model.network import Network
from bnncert.regions import Box, Region


def row_keys(rows: Any) -> Iterator[tuple[bytes, int]]:
    """Yield a key of every CSR row, equal for w and -w, and the sign that distinguishes them."""
    columns = np.asarray(rows.indices, dtype=np.int64)
    data = np.asarray(rows.data, dtype=np.int64)
    for j in range(rows.shape[0]):
        start, stop = rows.indptr[j], rows.indptr[j + 1]
        values = data[start:stop]
        sign = -1 if values.size and values[0] < 0 else 1
        yield columns[start:stop].tobytes() + b"|" + (sign * values).tobytes(), sign


def equal_rows(
    rows: Any, plus: FloatArray, minus: FloatArray, deadline: Deadline | None = None
) -> tuple[IntArray, SignArray]:
    """Return the first neuron that each one equals, and its sign relative to it.

    -w with thresholds (p, q) is the opposite of w with thresholds (-q, -p).  A neuron whose sign is
    undetermined at a tie equals no other neuron, nor does one that is not reached before the
    deadline.
    """
    limit = deadline or Deadline(None)
    signs = np.ones(rows.shape[0], dtype=np.int8)
    leader = np.arange(rows.shape[0], dtype=np.int64)
    relative = np.ones(rows.shape[0], dtype=np.int8)
    seen: dict[tuple[bytes, float, float], int] = {}
    for j, (key, sign) in enumerate(row_keys(rows)):
        signs[j] = sign
        if limit.passed():
            break
        low, high = float(plus[j]), float(minus[j])
        if low <= high:
            continue
        if signs[j] < 0:
            low, high = -high, -low
        first = seen.setdefault((key, low, high), j)
        leader[j] = first
        relative[j] = signs[j] * signs[first]
    return leader, relative


Rule: TypeAlias = Literal[
    "stable",  # one sign is impossible by the bounds of u = w.y
    "clash",  # a conflicting pair over the region; its witness is a Farkas multiplier
    "triple",  # three conflicting signs; the witness are Farkas multipliers
    "fixed",  # a sign that conflicting pairs exclude
    "equal",  # x_a = sign x_b by conflicting pairs both ways
    "range",  # tighter bounds of u from conflicting pairs
    "literal",  # a neuron with one unstable input is that input, or its negation
    "same",  # a neuron with the row and the threshold of another
]


@dataclass(frozen=True, eq=False)
class PresolveStep:
    """One rule applied to many neurons of one layer.

    `signs` are those of the neurons, `other` and `other_signs` are the second neuron of a pair (for
    "literal" in layer `other_layers`), and `witness` holds the numbers that prove each fact.
    """

    rule: Rule
    layer: int
    neurons: IntArray
    signs: npt.NDArray[np.int8]
    other: IntArray | None = None
    other_signs: npt.NDArray[np.int8] | None = None
    other_layers: IntArray | None = None
    witness: FloatArray | None = None

    @property
    def count(self) -> int:
        """The number of facts."""
        return int(self.neurons.size)


@dataclass(eq=False)
class PresolveRecord:
    """The steps in the order in which they were taken."""

    steps: list[PresolveStep] = field(default_factory=list)

    def add(
        self,
        rule: Rule,
        layer: int,
        neurons: IntArray,
        signs: npt.NDArray[np.int8],
        **facts: npt.NDArray[Any],
    ) -> None:
        """Record a :class:`PresolveStep`, unless it is empty; `facts` are its other fields."""
        if neurons.size:
            self.steps.append(PresolveStep(rule, layer, neurons, signs, **facts))

    def counts(self) -> dict[tuple[int, str], int]:
        """Return the number of facts by layer and rule."""
        totals: dict[tuple[int, str], int] = {}
        for step in self.steps:
            key = (step.layer, step.rule)
            totals[key] = totals.get(key, 0) + step.count
        return totals


#: With more variables the table of conflicting pairs needs too much memory, and ranges are computed
#: without it.
MOST_TABLE = 6000

#: Layers above the first with more unstable neurons are not searched for pairs.
MOST_LATER_PAIRS = 1500

#: Weights of the rows that are substituted between two looks at the clock.
WEIGHTS_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class PresolvedLayer:
    """The facts about one layer.

    `bounds` are those of u = w.y over the neurons of the layer below.  Neuron k is
    `bounds.state[k]` if that is not 0, and else `sign[k]` times variable `variable[k]`.  From the
    second layer on, u = rows v + shift over the variables v.
    """

    bounds: LayerBounds
    variable: IntArray
    sign: SignArray
    rows: Any
    shift: FloatArray


@dataclass(frozen=True, eq=False)
class Presolved:
    """The whole network after presolve.

    `pairs` are conflicting pairs of literals of variables; variable i is neuron `owner[i]` of layer
    `owner_layer[i]`.  If `contradiction` is true, the region is empty.
    """

    network: Network
    region: Region
    layers: tuple[PresolvedLayer, ...]
    owner_layer: IntArray
    owner: IntArray
    pairs: ConflictingPairs
    record: PresolveRecord
    contradiction: bool

    @property
    def bounds(self) -> tuple[LayerBounds, ...]:
        """The bounds and states of every layer."""
        return tuple(layer.bounds for layer in self.layers)

    @cached_property
    def triples(self) -> Triples:
        """Conflicting triples of first-layer variables, computed at the first access."""
        return self._find_triples(Deadline(None))

    @property
    def knows_triples(self) -> bool:
        """Whether all triples have been computed."""
        return "triples" in self.__dict__

    def triples_within(self, deadline: Deadline) -> Triples:
        """Return the triples, or none if the deadline passes before all are found."""
        if not self.knows_triples:
            try:
                self.__dict__["triples"] = self._find_triples(deadline)
            except OutOfTimeError:
                return Triples.none()
        return self.triples

    def _find_triples(self, deadline: Deadline) -> Triples:
        layer = self.network.layers[0]
        own = self.owner[self.owner_layer == 0]
        excluded = self.pairs.part(variable_of(self.pairs.first) < own.size).matrix(own.size)
        plus, minus = first_layer_thresholds(layer, self.region, own)
        rows = layer.weights[own]
        found = conflicting_triples(self.region, rows, plus, minus, excluded, deadline)
        neurons, signs = own[variable_of(found.literals)], sign_of(found.literals)
        self.record.add(
            "triple",
            0,
            neurons[:, 0],
            signs[:, 0],
            other=neurons[:, 1:],
            other_signs=signs[:, 1:],
            witness=found.theta.astype(np.float64),
        )
        return found


def over_variables(
    layer: ThresholdLayer, below: PresolvedLayer, variables: int, deadline: Deadline | None = None
) -> tuple[Any, FloatArray]:
    """Return u = w.y of every neuron as a row over the variables, and its fixed part.

    Raises OutOfTimeError if the deadline passes in a layer with more than WEIGHTS_AT_ONCE weights.
    """
    limit = deadline or Deadline(None)
    free = np.flatnonzero(below.bounds.state == 0)
    substitute = sp.csr_array(
        (below.sign[free].astype(np.int64), (free, below.variable[free])),
        shape=(below.variable.size, variables),
    )
    state = below.bounds.state.astype(np.int64)
    parts, shifts = [], []
    for start, stop in row_blocks(layer.weights.indptr, WEIGHTS_AT_ONCE):
        if start:
            limit.check()
        weights = layer.weights[start:stop].astype(np.int64)
        part = sp.csr_array(weights @ substitute)
        part.eliminate_zeros()
        part.sort_indices()
        parts.append(part)
        shifts.append(np.asarray(weights @ state, dtype=np.float64))
    rows = parts[0] if len(parts) == 1 else sp.csr_array(sp.vstack(parts, format="csr"))
    return rows, np.concatenate(shifts)


class PresolveRun:
    """Applies the rules layer by layer."""

    def __init__(self, network: Network, region: Region, deadline: Deadline) -> None:
        self.network, self.region, self.deadline = network, region, deadline
        self.record = PresolveRecord()
        self.layers: list[PresolvedLayer] = []
        self.owner_layer: list[IntArray] = []
        self.owner: list[IntArray] = []
        self.variables = 0
        self.pairs: list[ConflictingPairs] = []
        self.contradiction = False
        self._grace = Grace(deadline)

    def run(self) -> Presolved:
        """Return the presolved network."""
        for number, layer in enumerate(self.network.layers):
            made = self._later(number, layer) if number else self._first(layer)
            self.layers.append(made)
        return self.so_far()

    def so_far(self) -> Presolved:
        """Return the layers that are done."""
        return Presolved(
            self.network,
            self.region,
            tuple(self.layers),
            _joined(self.owner_layer),
            _joined(self.owner),
            ConflictingPairs.joined(self.pairs),
            self.record,
            self.contradiction,
        )

    def _first(self, layer: ThresholdLayer) -> PresolvedLayer:
        bounds = first_layer(layer, self.region, self.deadline)
        self._stable(0, bounds.state)
        open_ = bounds.unstable
        plus, minus = first_layer_thresholds(layer, self.region, open_)
        pairs = conflicting_pairs(self.region, layer.weights[open_], plus, minus, self.deadline)
        return self._with_pairs(
            0, bounds, open_, pairs, sp.csr_array((layer.size, 0)), np.zeros(layer.size)
        )

    def ranges(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Return the ranges of the sums of a later layer, rows over the variables."""
        return sum_ranges(rows, self._table(), self.deadline)

    def _sum_bounds(
        self, number: int, layer: ThresholdLayer, rows: Any, shift: FloatArray
    ) -> LayerBounds:
        """Bound the sums of a later layer, and record which bounds and states are new."""
        low, high = self.ranges(rows)
        reach = row_norms(rows)
        bounds = settle_states(layer, shift + low, shift + high)
        self._stable(number, bounds.state)
        tight = np.flatnonzero((bounds.state == 0) & ((high < reach) | (low > -reach)))
        self.record.add(
            "range",
            number,
            tight,
            np.zeros(tight.size, dtype=np.int8),
            witness=np.stack([low[tight], high[tight]], axis=1),
        )
        return bounds

    def _later(self, number: int, layer: ThresholdLayer) -> PresolvedLayer:
        self._grace.check(layer.weights.nnz)
        rows, shift = over_variables(layer, self.layers[-1], self.variables, self.deadline)
        bounds = self._sum_bounds(number, layer, rows, shift)
        open_ = bounds.unstable
        if number == self.network.depth - 1:
            # There is no layer above: the objective's tables merge neurons that are equal.
            nothing = np.full(layer.size, -1, dtype=np.int64)
            return PresolvedLayer(bounds, nothing, np.ones(layer.size, dtype=np.int8), rows, shift)
        plus = (layer.plus_from - shift)[open_]
        minus = (layer.minus_upto - shift)[open_]
        part = rows[open_]
        literal, literal_sign = _literals(part, plus, minus)
        rest = np.flatnonzero(literal < 0)
        leader, leader_sign = equal_rows(part[rest], plus[rest], minus[rest], self.deadline)
        leading = rest[leader == np.arange(rest.size)]
        pairs = ConflictingPairs.none()
        if 1 < leading.size <= MOST_LATER_PAIRS:
            cube = Box(-np.ones(self.variables), np.ones(self.variables))
            pairs = conflicting_pairs(
                cube, part[leading], plus[leading], minus[leading], self.deadline
            )
        done = np.flatnonzero(literal >= 0)
        self.record.add(
            "literal",
            number,
            open_[done],
            literal_sign[done],
            other=_joined(self.owner)[literal[done]],
            other_layers=_joined(self.owner_layer)[literal[done]],
        )
        follow = np.flatnonzero(leader != np.arange(rest.size))
        leaders, followers = open_[rest[leader[follow]]], open_[rest[follow]]
        self.record.add("same", number, followers, leader_sign[follow], other=leaders)
        made = self._with_pairs(number, bounds, open_[leading], pairs, rows, shift)
        variable, sign, state = made.variable, made.sign, made.bounds.state
        variable[open_[done]] = literal[done]
        sign[open_[done]] = literal_sign[done]
        variable[followers] = variable[leaders]
        sign[followers] = sign[leaders] * leader_sign[follow]
        state[followers] = state[leaders] * leader_sign[follow]
        return made

    def _with_pairs(
        self,
        number: int,
        bounds: LayerBounds,
        open_: IntArray,
        pairs: ConflictingPairs,
        rows: Any,
        shift: FloatArray,
    ) -> PresolvedLayer:
        """Close the pairs among the neurons `open_` and give the unstable ones variables."""
        self.record.add(
            "clash",
            number,
            open_[variable_of(pairs.first)],
            sign_of(pairs.first),
            other=open_[variable_of(pairs.second)],
            other_signs=sign_of(pairs.second),
            witness=pairs.theta,
        )
        closure = close(pairs, open_.size, self.deadline)
        self.contradiction = self.contradiction or closure.contradiction
        state = bounds.state.copy()
        fixed = np.flatnonzero(closure.state)
        state[open_[fixed]] = closure.state[fixed]
        self.record.add("fixed", number, open_[fixed], closure.state[fixed])
        local = np.arange(open_.size)
        follow = np.flatnonzero((closure.state == 0) & (closure.representative != local))
        self.record.add(
            "equal",
            number,
            open_[follow],
            closure.sign[follow],
            other=open_[closure.representative[follow]],
        )
        leading = np.flatnonzero((closure.state == 0) & (closure.representative == local))
        numbers = np.full(open_.size, -1, dtype=np.int64)
        numbers[leading] = self.variables + np.arange(leading.size)
        size = bounds.state.size
        variable = np.full(size, -1, dtype=np.int64)
        sign = np.ones(size, dtype=np.int8)
        undecided = np.flatnonzero(closure.state == 0)
        variable[open_[undecided]] = numbers[closure.representative[undecided]]
        sign[open_[undecided]] = closure.sign[undecided]
        found = closure.pairs
        self.pairs.append(
            ConflictingPairs(
                renumbered(found.first, numbers), renumbered(found.second, numbers), found.theta
            )
        )
        self.owner_layer.append(np.full(leading.size, number, dtype=np.int64))
        self.owner.append(open_[leading])
        self.variables += leading.size
        kept = LayerBounds(bounds.lower, bounds.upper, state)
        return PresolvedLayer(kept, variable, sign, rows, shift)

    def _table(self) -> BoolArray:
        pairs = ConflictingPairs.joined(self.pairs)
        if not pairs.size or self.variables > MOST_TABLE or self.deadline.passed():
            return np.zeros((2 * self.variables, 0), dtype=bool)
        return pairs.matrix(self.variables)

    def _stable(self, number: int, state: SignArray) -> None:
        stable = np.flatnonzero(state)
        self.record.add("stable", number, stable, state[stable])


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _literals(rows: Any, plus: FloatArray, minus: FloatArray) -> tuple[IntArray, SignArray]:
    """Return the variable (-1 for none) and the sign that a row with one entry equals."""
    variable = np.full(rows.shape[0], -1, dtype=np.int64)
    sign = np.ones(rows.shape[0], dtype=np.int8)
    single = np.flatnonzero(np.diff(rows.indptr) == 1)
    weight = rows.data[rows.indptr[single]]
    size = np.abs(weight)
    # The sums are u = +-|w|: only +1 is allowed at +|w| and only -1 at -|w|.
    clear = (plus[single] > -size) & (minus[single] < size)
    chosen = single[clear]
    variable[chosen] = rows.indices[rows.indptr[chosen]]
    sign[chosen] = np.sign(weight[clear])
    return variable, sign


def presolve(network: Network, region: Region, *, deadline: Deadline | None = None) -> Presolved:
    """Apply every rule to a network on a region.

    After the deadline only fast rules are applied, and OutOfTimeError is raised if large layers
    are left.
    """
    return PresolveRun(network, region, deadline or Deadline(None)).run()


def plain_presolve(network: Network, region: Region, bounds: tuple[LayerBounds, ...]) -> Presolved:
    """Return the network with a variable for each unstable neuron and without pairs."""
    record = PresolveRecord()
    layers: list[PresolvedLayer] = []
    owner_layer, owner = [], []
    variables = 0
    for number, (layer, made) in enumerate(zip(network.layers, bounds, strict=True)):
        stable = np.flatnonzero(made.state)
        record.add("stable", number, stable, made.state[stable])
        rows, shift = sp.csr_array((layer.size, 0)), np.zeros(layer.size)
        if layers:
            rows, shift = over_variables(layer, layers[-1], variables)
        variable = np.full(layer.size, -1, dtype=np.int64)
        if number == 0 or number < network.depth - 1:
            unstable = made.unstable
            variable[unstable] = variables + np.arange(unstable.size)
            variables += unstable.size
            owner_layer.append(np.full(unstable.size, number, dtype=np.int64))
            owner.append(unstable)
        sign = np.ones(layer.size, dtype=np.int8)
        layers.append(PresolvedLayer(made, variable, sign, rows, shift))
    return Presolved(
        network,
        region,
        tuple(layers),
        np.concatenate(owner_layer),
        np.concatenate(owner),
        ConflictingPairs.none(),
        record,
        contradiction=False,
    )
