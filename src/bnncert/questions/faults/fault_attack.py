r"""Few faults that change the class, at points of the region at which that is likely.

What is found here is a candidate: the caller replays it on the network with these faults.

A set S of wrong signs of a layer changes the sums of the next layer by -2 sum_{i in S} x_i w_i; the
class follows from these sums.  For every number of faults a beam search keeps the sets with the
smallest margins, and extends them by one neuron.  If the next layer is the last one, sets are
compared by a smooth margin, with tanh(distance from the threshold / WIDTH_OF_SIGN) in the place of
signs: it also counts neurons that come near to their thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bnncert.arrays import Float32Array, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.kernel.rules.fault_losses import Gains, knapsack
from bnncert.kernel.rules.fault_questions import FaultScope, PointSigns, first_layer
from bnncert.kernel.rules.weight_flips import NEVER, Fault, flip_costs
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.network import Network
from bnncert.problem import Problem, Target

#: Rivals towards which a point is made.
MOST_RIVALS = 2

#: Sets of each beam that are completed by faults in the last layer.
COMPLETED = 3

#: The largest number of faults that a beam search looks at.
MOST_LEVELS = 100

#: Sets that are kept for each number of faults, and how many faults one more neuron may take.
WIDTH, DEAREST = 24, 24

#: The distance from a threshold within which a smooth sign differs from the sign.
WIDTH_OF_SIGN = 2.0

#: Signs or sums of one layer that are evaluated at once, and entries of the table of their changes.
CELLS = 2**24


def attack_points(problem: Problem) -> Iterator[FloatArray]:
    """Yield the centre of the region, and points towards rivals.

    Such a point is the one farthest in the direction -g, g being the product of all weight
    matrices and the margin's coefficients: the gradient of the margin if the signs were linear.
    """
    network, region = problem.network, problem.region
    found = [region.center]
    if not np.array_equal(region.lo, region.hi):
        values = [t.values(network.last_signs(region.center[None, :]))[0] for t in problem.targets]
        for number in np.argsort(values)[:MOST_RIVALS].tolist():
            slope = problem.targets[number].objectives[0].coefficients
            for layer in reversed(network.layers):
                slope = np.asarray(slope @ layer.weights.astype(np.float64))
            width = float((region.hi - region.lo).max())
            found.append(region.project((region.center - width * np.sign(slope))[None, :])[0])
    for point in found:
        # A point of the region next to it: of float32 numbers if possible.
        settled = (region.settle(point, kind) for kind in (np.float32, np.float64))
        yield from [p for p in settled if p is not None][:1]


def signs_from(network: Network, number: int, signs: Float32Array) -> list[Float32Array]:
    """Return the signs of a layer and of all above it, for rows of its signs, in floats."""
    found = [signs]
    for layer in network.layers[number + 1 :]:
        value = layer.operator(np.float32).forward(found[-1])
        plus = value >= layer.threshold(np.float32)
        found.append(np.where(plus, np.float32(1), np.float32(-1)))
    return found


def flip_order(layer: ThresholdLayer, below: npt.NDArray[Any], neuron: int, sign: int) -> IntArray:
    """Return the inputs of a neuron whose weights lower sign * u by a flip, the best ones first."""
    row = slice(layer.rows.indptr[neuron], layer.rows.indptr[neuron + 1])
    columns = np.asarray(layer.rows.indices[row], dtype=np.int64)
    terms = sign * layer.rows.data[row].astype(np.float64) * below[columns].astype(np.float64)
    order = np.argsort(-terms, kind="stable")
    return np.asarray(columns[order[terms[order] > 0]])


def sign_gains(output: OutputLayer, pair: tuple[int, int], signs: SignArray) -> Gains:
    """Return the loss of margin by another sign of each last-layer neuron, in units."""
    first, second = (output.integers[0][k] for k in pair)
    return np.asarray(2 * (first - second) * signs.astype(np.int64))


def weight_gains(output: OutputLayer, pair: tuple[int, int], signs: SignArray) -> list[Gains]:
    """Return the loss of margin by a flip of each weight in the rows of both classes, in units."""
    rows = zip((2, -2), (output.integers[0][k] for k in pair), strict=True)
    return [np.asarray(factor * row * signs.astype(np.int64)) for factor, row in rows]


class PointAttack:
    """Looks for few faults that change the class at one point.

    The objectives of `problem`, the question without faults, are the margins over rivals.
    """

    def __init__(self, at: PointSigns, problem: Problem, deadline: Deadline) -> None:
        assert problem.label is not None
        self.at, self.label, self.targets = at, problem.label, problem.targets
        self.network, self.deadline = at.network, deadline
        self._beams: dict[tuple[int, str], Beam] = {}
        #: The flips after which the other sign is certain, by layer, for each of its neurons.
        self._costs: dict[int, IntArray] = {}

    def faults(self, scope: FaultScope, most: int) -> Iterator[list[Fault]]:
        """Yield sets of at most `most` faults that may change the class, the best ones first."""
        depth = self.network.depth
        if scope.place == "anywhere":
            yield from self._anywhere(scope, most)
        elif scope.number == depth:
            yield from self._output(scope)
        elif scope.place == "neuron":
            yield from self._one_neuron(scope.number)
        elif scope.number == depth - 1:
            yield from self._last_layer(scope, self.at, [], most, weights=False)
        else:
            for sets in self._beam(scope.number, scope.kind, most):
                if sets and sets[0].margin <= 0:
                    yield self._faults_of(scope.kind, self.at, scope.number, sets[0].neurons)
                    return

    # -- faults of neurons ----------------------------------------------------------------

    def _cost(self, kind: str, number: int) -> IntArray:
        home = self.at.signs[number]
        if kind == "thresholds":
            return np.ones(home.size, dtype=np.int64)
        if number not in self._costs:
            layer, below = self.network.layers[number], self.at.below(number)
            self._costs[number] = flip_costs(layer, below, home, certain=True)
        return self._costs[number]

    def _faults_of(
        self, kind: str, at: PointSigns, number: int, neurons: Iterable[int]
    ) -> list[Fault]:
        """Return the faults that give neurons of a layer their other signs."""
        layer, home, below = at.network.layers[number], at.signs[number], at.below(number)
        found = []
        for j in sorted(neurons):
            if kind == "thresholds":
                found.append(Fault(number, j, None, -int(home[j])))
                continue
            order = flip_order(layer, below, j, int(home[j]))
            # The signs below may differ from those at the point.
            alone = flip_costs(layer, below, home, certain=True, only=j)
            found += [Fault(number, j, int(i)) for i in order[: int(alone[j])]]
        return found

    def _one_neuron(self, number: int) -> Iterator[list[Fault]]:
        """Yield the cheapest single neurons whose other sign changes the class."""
        cost = self._cost("weights", number)
        order = np.argsort(cost, kind="stable")
        order = order[cost[order] < NEVER]
        home = self.at.signs[number].astype(np.float32)
        height, found = max(1, CELLS // home.size), 0
        for start in range(0, order.size, height):
            if found >= 2 or self.deadline.passed():
                return
            part = order[start : start + height]
            signs = np.repeat(home[None, :], part.size, axis=0)
            signs[np.arange(part.size), part] *= -1
            last = signs_from(self.network, number, signs)[-1].astype(np.float64)
            margins = np.min([target.values(last) for target in self.targets], axis=0)
            for j in part[margins <= 0][: 2 - found].tolist():
                found += 1
                yield self._faults_of("weights", self.at, number, [j])

    # -- the last layer and the output ----------------------------------------------------

    def _output(self, scope: FaultScope) -> Iterator[list[Fault]]:
        """Yield the flips of output weights with the largest gains, for each class."""
        found = []
        for target, rival, margin in self._margins_at(self.at.signs[-1]):
            all_gains, places = self._weight_flips(rival, self.at.signs[-1])
            parts = [all_gains]
            if scope.place == "neuron":
                parts = [np.where(places[:, 0] == k, all_gains, 0) for k in (self.label, rival)]
            for gains in parts:
                order = np.argsort(-gains, kind="stable")
                order = order[gains[order] > 0]
                lost = np.concatenate([[0], np.cumsum(gains[order])]).tolist()
                count = self._first_lost(target, margin, lost)
                if count is not None:
                    chosen = places[order[:count]].tolist()
                    found.append([Fault(self.network.depth, k, i) for k, i in chosen])
        yield from sorted(found, key=len)[:2]

    def _weight_flips(self, rival: int, signs: SignArray) -> tuple[Gains, IntArray]:
        """Return the gains of flips of the weights of both scores, and which weights these are."""
        rows = weight_gains(self.network.output, (self.label, rival), signs)
        columns = np.tile(np.arange(signs.size), 2)
        places = np.stack([np.repeat([self.label, rival], signs.size), columns], axis=1)
        return np.concatenate(rows), places

    def _first_lost(self, target: Target, margin: Fraction, lost: Sequence[int]) -> int | None:
        """Return the least index of a loss after which the margin certainly violates."""
        objective, unit = target.objectives[0], self.network.output.integers[1]
        for index, loss in enumerate(lost):
            value = margin - Fraction(loss, unit) + objective.exact_error
            if value < 0 or (value == 0 and not objective.tie_is_fine):
                return index
        return None

    def _margins_at(self, signs: SignArray) -> Iterator[tuple[Target, int, Fraction]]:
        for target in self.targets:
            assert target.rival is not None
            yield target, target.rival, target.objectives[0].exactly(signs)

    def _last_layer(
        self, scope: FaultScope, at: PointSigns, before: list[Fault], most: int, *, weights: bool
    ) -> Iterator[list[Fault]]:
        """Yield faults of the last layer, and of the output if `weights`, after those before."""
        number, signs, found = self.network.depth - 1, at.signs[-1], []
        cost = np.ones(signs.size, dtype=np.int64)
        if scope.kind == "weights":
            cost = flip_costs(self.network.layers[number], at.below(number), signs, certain=True)
        for target, rival, margin in self._margins_at(signs):
            pair = (self.label, rival)
            if not self._is_within_reach(target, pair, signs, cost, most, weights):
                continue
            gains, costs = sign_gains(self.network.output, pair, signs), cost
            places = np.zeros((0, 2), dtype=np.int64)
            if weights:
                more, places = self._weight_flips(rival, signs)
                # A neuron whose other sign has a gain keeps its output weights.
                free = (more > 0) & np.tile(gains <= 0, 2)
                gains, places = np.concatenate([gains, more[free]]), places[free]
                costs = np.concatenate([cost, np.ones(places.shape[0], dtype=np.int64)])
            budget = self._least_budget(target, margin, costs, gains, most)
            if budget is None:
                continue
            chosen = knapsack(costs, gains, budget)[1]
            most = budget - 1
            mine = self._faults_of(scope.kind, at, number, [j for j in chosen if j < signs.size])
            added = [places[j - signs.size].tolist() for j in chosen if j >= signs.size]
            mine += [Fault(number + 1, k, i) for k, i in added]
            found.append([*before, *mine])
        yield from reversed(found[-2:])

    def _is_within_reach(
        self,
        target: Target,
        pair: tuple[int, int],
        signs: SignArray,
        cost: IntArray,
        most: int,
        weights: bool,
    ) -> bool:
        """Whether the largest gains of `most` faults reach the margin, roughly and from above."""
        first, second = (self.network.output.weights[k] for k in pair)
        gains = 2 * (first - second) * signs
        gains = np.where((gains > 0) & (cost <= most), gains, 0.0)
        if weights:
            gains = np.concatenate([gains, 2 * first * signs, -2 * second * signs])
        largest = np.maximum(-np.sort(-gains)[: max(most, 0)], 0.0).sum()
        return bool(target.values(signs[None, :].astype(np.float64))[0] <= largest * (1 + 1e-9))

    def _least_budget(
        self, target: Target, margin: Fraction, cost: IntArray, gains: Gains, most: int
    ) -> int | None:
        """Return the least number of faults with a gain that the margin does not survive."""
        # More faults than these gain nothing.
        most = min(most, int(cost[(gains > 0) & (cost < NEVER)].sum()))
        budget = min(64, most)
        while budget >= 0 and not self.deadline.passed():
            found = self._first_lost(target, margin, knapsack(cost, gains, budget)[0])
            if found is not None or budget == most:
                return found
            budget = min(4 * budget, most)
        return None

    # -- several layers ---------------------------------------------------------------------

    def _beam(self, number: int, kind: str, most: int) -> Iterator[list[WrongSigns]]:
        """Yield the best sets of wrong signs of a layer for 0, 1, 2, .. faults."""
        key = (number, kind)
        if key not in self._beams:
            rivals = [t.rival for t in self.targets if t.rival is not None]
            made = Beam(self.at, number, self._cost(kind, number), self.label, rivals)
            self._beams[key] = made
        yield from self._beams[key].grow(min(most, MOST_LEVELS), self.deadline)

    def _anywhere(self, scope: FaultScope, most: int) -> Iterator[list[Fault]]:
        """Yield faults in one hidden layer that are completed in the last layer and the output."""
        best: list[Fault] | None = None

        def complete(at: PointSigns, before: list[Fault]) -> None:
            nonlocal best, most
            weights, rest = scope.kind == "weights", most - len(before)
            for found in self._last_layer(scope, at, before, rest, weights=weights):
                if best is None or len(found) < len(best):
                    best, most = found, len(found) - 1

        complete(self.at, [])
        for number in range(first_layer(scope.kind, self.network), self.network.depth - 1):
            if self.deadline.passed():
                break
            for faults, sets in enumerate(self._beam(number, scope.kind, most)):
                if faults > most or self.deadline.passed():
                    break
                for chosen in sets[:COMPLETED]:
                    before = self._faults_of(scope.kind, self.at, number, chosen.neurons)
                    complete(self._with_wrong_signs(number, chosen.neurons), before)
        if best is not None:
            yield best

    def _with_wrong_signs(self, number: int, neurons: Iterable[int]) -> PointSigns:
        """Return the signs at the point if neurons of a layer have their other signs."""
        wrong = self.at.signs[number].copy()
        wrong[list(neurons)] *= -1
        above = signs_from(self.network, number, wrong[None, :].astype(np.float32))
        signs = (*self.at.signs[:number], *(rows[0].astype(np.int8) for rows in above))
        return PointSigns(self.network, self.at.point, signs)


class WrongSigns(NamedTuple):
    """Neurons of a layer with wrong signs, the sums of the next layer, and the margin."""

    neurons: frozenset[int]
    sums: Float32Array
    margin: float


class Beam:
    """The sets of wrong signs of one layer, which is below the last one, for 0, 1, 2, .. faults.

    `cost` has the faults that each wrong sign takes.
    """

    def __init__(
        self, at: PointSigns, number: int, cost: IntArray, label: int, rivals: list[int]
    ) -> None:
        self._network, self._above = at.network, number + 1
        self._label, self._rivals = label, rivals
        layer = at.network.layers[number + 1]
        home = at.signs[number].astype(np.float32)
        sums = layer.operator(np.float32).forward(home[None, :])[0]
        #: The change of the sums by each neuron, as an array if it is small.
        self._steps: Any = layer.weights.T.tocsr().astype(np.float32).multiply(-2 * home[:, None])
        self._steps = self._steps.tocsr()
        if layer.size * layer.inputs <= CELLS:
            self._steps = self._steps.toarray()
        self._by_cost = {c: np.flatnonzero(cost == c) for c in range(1, DEAREST + 1)}
        start = WrongSigns(frozenset(), sums, float(self._margins(sums[None, :])[0]))
        self._levels: list[list[WrongSigns]] = [[start]]

    def grow(self, most: int, deadline: Deadline) -> Iterator[list[WrongSigns]]:
        """Yield the best sets for 0, 1, 2, .. faults."""
        yield from list(self._levels)
        while len(self._levels) <= most and not deadline.passed():
            self._levels.append(self._next(deadline))
            yield self._levels[-1]

    def _next(self, deadline: Deadline) -> list[WrongSigns]:
        """Return the best sets with one more fault, of those that are reached in time."""
        faults = len(self._levels)
        height = max(1, CELLS // self._levels[0][0].sums.size)
        seen: set[frozenset[int]] = set()
        found: list[tuple[float, WrongSigns, int]] = []
        for cost, members in self._by_cost.items():
            if cost > faults:
                continue
            # A dear neuron is added to fewer sets.
            for base in self._levels[faults - cost][: max(WIDTH // cost, 2)]:
                new = [i for i in members.tolist() if i not in base.neurons]
                new = [i for i in new if base.neurons | {i} not in seen]
                seen.update(base.neurons | {i} for i in new)
                for start in range(0, len(new), height):
                    if deadline.passed():
                        break
                    part = new[start : start + height]
                    ranks = self._ranks(base.sums + self._changes(part))
                    best = np.argsort(ranks, kind="stable")[:WIDTH]
                    found += [(float(ranks[k]), base, part[k]) for k in best]
        found.sort(key=lambda entry: entry[0])
        best_sets = [(b.neurons | {i}, b.sums + self._changes([i])[0]) for _, b, i in found[:WIDTH]]
        if not best_sets:
            return []
        margins = self._margins(np.stack([sums for _, sums in best_sets]))
        made = [WrongSigns(*entry, float(m)) for entry, m in zip(best_sets, margins, strict=True)]
        return sorted(made, key=lambda entry: entry.margin)

    def _changes(self, neurons: list[int]) -> Float32Array:
        """Return the changes of the sums by other signs of some neurons."""
        rows = self._steps[neurons]
        return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())

    def _margins(self, sums: Float32Array) -> FloatArray:
        """Return the least margin for each row of sums of the next layer."""
        limit = self._network.layers[self._above].threshold(np.float32)
        signs = np.where(sums >= limit, np.float32(1), np.float32(-1))
        return self._least(signs_from(self._network, self._above, signs)[-1].astype(np.float64))

    def _ranks(self, sums: Float32Array) -> FloatArray:
        """Return the numbers by which sets are compared, the smallest being the best."""
        if self._above + 1 < self._network.depth:
            return self._margins(sums)
        limit = self._network.layers[self._above].threshold(np.float32)
        return self._least(np.tanh((sums - limit) / np.float32(WIDTH_OF_SIGN)))

    def _least(self, signs: npt.NDArray[Any]) -> FloatArray:
        """Return the least margin for each row of signs of the last layer."""
        output, kind = self._network.output, signs.dtype
        scores = signs @ output.weights.T.astype(kind) + output.bias.astype(kind)
        return np.asarray((scores[:, [self._label]] - scores[:, self._rivals]).min(axis=1))
