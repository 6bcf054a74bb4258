"""Few faults that change the class at one point, for every scope.

What is found here is a candidate: the caller replays it on the network with these faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from bnncert.arrays import Float32Array, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.kernel.rules.fault_losses import Gains, knapsack, sign_gains, weight_gains
from bnncert.kernel.rules.fault_questions import FaultScope, PointSigns
from bnncert.kernel.rules.weight_flips import NEVER, Fault, flip_costs, flip_order
from bnncert.model.network import Network
from bnncert.problem import Target
from bnncert.questions.faults.fault_beam import Beam, WrongSigns

#: Sets of each beam that are completed by faults in the last layer.
COMPLETED = 3

#: The largest number of faults that a beam search looks at.
MOST_LEVELS = 100

#: Signs of one layer that are evaluated at once.
CELLS_AT_ONCE = 2**24


class PointAttack:
    """Looks for few faults that change the class at one point.

    Parameters
    ----------
    at
        The point and its signs.
    label
        The class that should change.
    targets
        The adversarial classes, whose objectives are the margins.
    deadline
        When to stop.
    """

    def __init__(
        self,
        at: PointSigns,
        label: int,
        targets: Sequence[Target],
        deadline: Deadline,
    ) -> None:
        self.at, self.label, self.targets = at, label, targets
        self.deadline = deadline
        self._beams: dict[tuple[int, str], Beam] = {}
        #: The flips after which the other sign is certain, by layer, for each of its neurons.
        self._costs: dict[int, IntArray] = {}

    @property
    def network(self) -> Network:
        """The network."""
        return self.at.network

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
        height, found = max(1, CELLS_AT_ONCE // home.size), 0
        for start in range(0, order.size, height):
            if found >= 2 or self.deadline.passed():
                return
            part = order[start : start + height]
            signs = np.repeat(home[None, :], part.size, axis=0)
            signs[np.arange(part.size), part] *= -1
            for j in part[self._margins(number, signs) <= 0][: 2 - found].tolist():
                found += 1
                yield self._faults_of("weights", self.at, number, [j])

    def _margins(self, number: int, signs: Float32Array) -> FloatArray:
        """Return the least margin for rows of signs of a layer, in floats."""
        for layer in self.network.layers[number + 1 :]:
            value = layer.operator(np.float32).forward(signs)
            signs = np.where(value >= layer.threshold(np.float32), np.float32(1), np.float32(-1))
        values = [target.values(signs.astype(np.float64)) for target in self.targets]
        return np.asarray(np.min(np.array(values), axis=0))

    # -- the last layer and the output ----------------------------------------------------

    def _output(self, scope: FaultScope) -> Iterator[list[Fault]]:
        """Yield the flips of output weights with the largest gains, for each class."""
        depth, output, found = self.network.depth, self.network.output, []
        for target, rival, margin in self._margins_at(self.at.signs[-1]):
            rows = weight_gains(output, (self.label, rival), self.at.signs[-1])
            owner = np.repeat([self.label, rival], rows[0].size)
            column = np.tile(np.arange(rows[0].size), 2)
            parts = [np.concatenate(rows)]
            if scope.place == "neuron":
                none = np.zeros_like(rows[0])
                parts = [np.concatenate([rows[0], none]), np.concatenate([none, rows[1]])]
            for gains in parts:
                order = np.argsort(-gains, kind="stable")
                order = order[gains[order] > 0]
                lost = np.concatenate([[0], np.cumsum(gains[order])]).tolist()
                count = self._first_lost(target, margin, lost)
                if count is not None:
                    chosen = order[:count].tolist()
                    found.append([Fault(depth, int(owner[j]), int(column[j])) for j in chosen])
        yield from sorted(found, key=len)[:2]

    def _first_lost(self, target: Target, margin: Fraction, lost: Sequence[int]) -> int | None:
        """Return the least index of a loss that the margin does not survive."""
        unit = self.network.output.integers[1]
        return next(
            (k for k, v in enumerate(lost) if _is_lost(target, margin - Fraction(v, unit))), None
        )

    def _margins_at(self, signs: SignArray) -> list[tuple[Target, int, Fraction]]:
        found = []
        for target in self.targets:
            assert target.rival is not None
            found.append((target, target.rival, target.objectives[0].exactly(signs)))
        return found

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
            gains, all_costs = sign_gains(self.network.output, pair, signs), cost
            places = np.zeros((0, 2), dtype=np.int64)
            if weights:
                rows = weight_gains(self.network.output, pair, signs)
                # A neuron whose other sign has a gain keeps its output weights.
                free = [np.flatnonzero((row > 0) & (gains <= 0)) for row in rows]
                pairs = zip(pair, free, strict=True)
                places = np.concatenate(
                    [np.stack([np.full_like(i, k), i], axis=1) for k, i in pairs]
                )
                gains = np.concatenate([gains, *(r[i] for r, i in zip(rows, free, strict=True))])
                all_costs = np.concatenate([cost, np.ones(places.shape[0], dtype=np.int64)])
            budget = self._least_budget(target, margin, all_costs, gains, most)
            if budget is None:
                continue
            chosen = knapsack(all_costs, gains, budget)[1]
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
        beam = self._beams[key]
        yield from list(beam.levels)
        yield from beam.grow(min(most, MOST_LEVELS), self.deadline)

    def _anywhere(self, scope: FaultScope, most: int) -> Iterator[list[Fault]]:
        """Yield faults in one hidden layer that are completed in the last layer and the output."""
        best: list[Fault] | None = None
        weights = scope.kind == "weights"
        for found in self._last_layer(scope, self.at, [], most, weights=weights):
            if best is None or len(found) < len(best):
                best, most = found, len(found) - 1
        for number in range(self.network.depth - 1):
            if self.deadline.passed():
                break
            for faults, sets in enumerate(self._beam(number, scope.kind, most)):
                if faults > most or self.deadline.passed():
                    break
                for chosen in sets[:COMPLETED]:
                    before = self._faults_of(scope.kind, self.at, number, chosen.neurons)
                    after = self._with_wrong_signs(number, chosen.neurons)
                    rest = most - len(before)
                    for found in self._last_layer(scope, after, before, rest, weights=weights):
                        if best is None or len(found) < len(best):
                            best, most = found, len(found) - 1
        if best is not None:
            yield best

    def _with_wrong_signs(self, number: int, neurons: Iterable[int]) -> PointSigns:
        """Return the signs at the point if neurons of a layer have their other signs."""
        signs = list(self.at.signs[: number + 1])
        signs[number] = signs[number].copy()
        signs[number][list(neurons)] *= -1
        for layer in self.network.layers[number + 1 :]:
            value = layer.operator(np.float32).forward(signs[-1][None, :].astype(np.float32))[0]
            plus = value >= layer.threshold(np.float32)
            signs.append(np.where(plus, 1, -1).astype(np.int8))
        return PointSigns(self.network, self.at.point, tuple(signs))


def _is_lost(target: Target, margin: Fraction) -> bool:
    """Whether a margin certainly violates the property."""
    objective = target.objectives[0]
    value = margin + objective.exact_error
    return value < 0 if objective.tie_is_fine else value <= 0
