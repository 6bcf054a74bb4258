r"""The questions without faults from which the tolerance of k faults follows.

A scope says which faults count: flipped weights or stuck thresholds, in one layer, in one neuron of
a layer, or anywhere.  Faults in a hidden neuron matter only if its sign is wrong, and every wrong
sign takes at least one fault.  Three ways to prove that no k faults of a scope change the class:

* "flips", at one point: the signs of a layer and the costs of changing them are known, so the
  layers above are a network of the numbers of flips, in the L1 ball of radius k
  (:func:`bnncert.kernel.rules.weight_flips.flip_network`).
* "wrong signs", on any region: the layer above may be wrong by twice its k largest weights.
* "own flips", on any region: every neuron of the layer has k flips of its own.

Faults in the last layer and in the output lower the margin by at most the largest losses, for which
interval arithmetic says what signs are known on the region (`fault_losses`).
Faults anywhere are divided among the layers, k = k_1 + .. + k_L, and every division is one
question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import comb
from typing import Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.function import Function
from bnncert.kernel.rules import fault_losses
from bnncert.kernel.rules.fault_losses import last_signs_on
from bnncert.kernel.rules.weight_flips import (
    FaultError,
    derived,
    flip_costs,
    flip_network,
    has_input_quantiser,
    refuse_shifted_inputs,
    with_own_flips,
    with_raised_scores,
    with_wrong_signs,
)
from bnncert.model.network import Network

FaultKind: TypeAlias = Literal["weights", "thresholds"]
FaultPlace: TypeAlias = Literal["layer", "neuron", "anywhere"]
FaultProof: TypeAlias = Literal["flips", "wrong signs", "own flips", "computed"]

#: The largest number of divisions of faults among layers.
MOST_DIVISIONS = 2000


@dataclass(frozen=True)
class FaultScope:
    """Which faults count."""

    #: Flipped "weights" or stuck "thresholds".
    kind: FaultKind
    #: In one "layer", in one "neuron" of a layer, or "anywhere".
    place: FaultPlace
    #: The layer, from 0; the output comes after the last hidden layer. None: anywhere.
    layer: int | None = None

    def refuse_missing(self, network: Network) -> None:
        """Raise if the network lacks this scope, or its flipped bits are not flipped weights."""
        last = network.depth - (self.kind == "thresholds")
        known = self.kind in ("weights", "thresholds") and (self.place, self.kind) in SCOPES
        if self.place == "anywhere":
            known = known and self.layer is None
        else:
            known = known and type(self.layer) is int and 0 <= self.layer <= last
        if not known:
            raise FaultError("the network does not have the scope of faults")
        if self.kind == "weights":
            if self.layer == 0 and has_input_quantiser(network):
                raise FaultError("layer 1 quantises the inputs; it has thresholds, and no weights")
            refuse_shifted_inputs(network, self.layer)

    @property
    def number(self) -> int:
        """The layer of a scope that has one."""
        assert self.layer is not None
        return self.layer

    def size(self, network: Network) -> int:
        """Return the number of faults that are possible together."""
        if self.place == "anywhere":
            last = network.depth + (self.kind == "weights")
            layers = range(first_layer(self.kind, network), last)
            return sum(FaultScope(self.kind, "layer", n).size(network) for n in layers)
        if self.kind == "thresholds":
            return network.layers[self.number].size
        counts = np.count_nonzero(network.output.weights, axis=1)
        if self.number < network.depth:
            counts = np.diff(network.layers[self.number].rows.indptr)
        return int(counts.max(initial=0) if self.place == "neuron" else counts.sum())


def first_layer(kind: FaultKind, network: Network) -> int:
    """Find the lowest layer with faults of a kind: an input quantiser has no weights."""
    return int(kind == "weights" and has_input_quantiser(network))


#: The places that each kind of faults has.
SCOPES = {
    ("layer", "weights"),
    ("neuron", "weights"),
    ("anywhere", "weights"),
    ("layer", "thresholds"),
    ("anywhere", "thresholds"),
}


@dataclass(frozen=True, eq=False)
class PointSigns:
    """The signs of all layers at one point, where they are decided."""

    network: Network
    point: FloatArray
    signs: tuple[SignArray, ...]
    #: What `costs` has computed, by layer.
    _costs: dict[int, IntArray] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(network: Network, lo: FloatArray, hi: FloatArray) -> PointSigns | None:
        """Return the signs at the only point of a box; None if it has more or a sign is open."""
        if np.any(lo != hi):
            return None
        found = list(islice(network.exact_patterns(lo), 2))
        return PointSigns(network, lo, found[0]) if len(found) == 1 else None

    def below(self, number: int) -> FloatArray | SignArray:
        """Take the point for the first layer, and for others the signs below."""
        return self.point if number == 0 else self.signs[number - 1]

    def costs(self, number: int) -> IntArray:
        """Return the least number of flips that change the sign of each neuron of a layer."""
        if number not in self._costs:
            layer, home = self.network.layers[number], self.signs[number]
            self._costs[number] = flip_costs(layer, self.below(number), home)
        return self._costs[number]


@dataclass(frozen=True, eq=False)
class FaultQuestion:
    """A network that has to be robust: for all inputs of the region, or at most `flips` flips."""

    network: Network
    flips: int | None = None


@dataclass(frozen=True, eq=False)
class FaultSetting:
    """What all scopes of a question have in common: `lo` and `hi` are a box around the region."""

    network: Network
    label: int
    rivals: Sequence[int]
    lo: FloatArray
    hi: FloatArray

    @cached_property
    def at_point(self) -> PointSigns | None:
        """The signs of all layers, if the region is one point."""
        return PointSigns.of(self.network, self.lo, self.hi)

    def proofs(self, scope: FaultScope) -> tuple[FaultProof, ...]:
        """Return the ways in which a scope can be proved, the best one first."""
        depth, number = self.network.depth, scope.layer
        if number is not None and number >= depth - 1:
            return ("computed",) if self.at_point is not None else ("wrong signs",)
        if self.at_point is not None:
            return ("flips",)
        return ("wrong signs",) if scope.kind == "thresholds" else ("wrong signs", "own flips")

    def questions(
        self, scope: FaultScope, count: int, proof: FaultProof
    ) -> Iterator[FaultQuestion]:
        """Yield the questions whose answers prove that `count` faults are tolerated."""
        if proof not in self.proofs(scope) or proof == "computed":
            raise FaultError(f"the scope of faults has no proof {str(proof)[:20]!r}")
        if count == 0:
            yield FaultQuestion(self.network)
        elif scope.place == "anywhere":
            for parts in timed(self.divisions(count, first_layer(scope.kind, self.network))):
                yield self._divided(scope, parts, proof)
        else:
            yield self._single(scope, count, proof)

    def _single(self, scope: FaultScope, count: int, proof: FaultProof) -> FaultQuestion:
        """Return the question of faults in one layer or in one neuron."""
        number = scope.number
        if number >= self.network.depth - 1:
            return FaultQuestion(self._lowered(scope, count))
        if proof == "flips":
            return self._flips(self.network, scope, count)
        if proof == "own flips":
            return FaultQuestion(with_own_flips(self.network, number, count, self.lo, self.hi))
        wrong = min(count, 1) if scope.place == "neuron" else count
        return FaultQuestion(with_wrong_signs(self.network, number, wrong))

    def is_computed(self, scope: FaultScope, count: int, ties: str) -> bool:
        """Whether all margins at the point exceed their losses by faults of the last layers."""
        assert self.at_point is not None
        signs = self.at_point.signs[-1]
        for rival, loss in self.losses(scope, count).items():
            scores = {self.label: Fraction(1), rival: Fraction(-1)}
            margin = Function.of(self.network, scores, Fraction(0), ties == "robust")
            if not margin.is_positive(margin.at(signs) - loss):
                return False
        return True

    def losses(self, scope: FaultScope, count: int) -> dict[int, Fraction]:
        """Return the largest loss of margin over each class by faults above the layer before last.

        This is exact, for the proof "computed".
        """
        assert self.at_point is not None
        signs, number = self.at_point.signs[-1], self.network.depth - 1
        cost = self.at_point.costs(number) if scope.layer == number else np.ones(signs.size, int)
        return self._losses(scope, count, fault_losses.LastSigns(signs, cost))

    def _losses(
        self, scope: FaultScope, count: int, last: fault_losses.LastSigns
    ) -> dict[int, Fraction]:
        """Return the largest losses by faults in the last layer or the output, but for rounding."""
        output, one, losses = self.network.output, scope.place == "neuron", {}
        priced = replace(last, cost=_priced(scope, last.cost, count))
        weights = scope.kind == "weights" and scope.place == "anywhere"
        for rival in timed(self.rivals):
            pair = (self.label, rival)
            if scope.layer == self.network.depth:
                losses[rival] = fault_losses.largest_output_losses(
                    output, pair, count, last, one_row=one
                )
            else:
                losses[rival] = fault_losses.largest_losses(
                    output, pair, min(count, 1) if one else count, priced, weights=weights
                )
        return losses

    def divisions(self, count: int, first: int) -> list[tuple[int, ...]]:
        """Return how `count` faults can be divided among the layers; the last part is the rest.

        There are no faults below the layer `first`.
        """
        parts = max(self.network.depth - 1, 1) + 1 - first
        if comb(count + parts - 1, parts - 1) > MOST_DIVISIONS:
            raise FaultError(f"{count} faults can be divided among the layers in too many ways")
        return [(*[0] * first, *found) for found in _compositions(count, parts)]

    def _divided(
        self, scope: FaultScope, parts: tuple[int, ...], proof: FaultProof
    ) -> FaultQuestion:
        """Return the question of faults anywhere, parts[l] of which are in layer l."""
        single = self.network.depth == 1
        if single and proof != "flips":
            return FaultQuestion(self._lowered(scope, sum(parts)))
        wide = self.network
        for number, count in enumerate(parts[:-1]):
            wide = wide if single else with_wrong_signs(wide, number, count)
        if single:
            network = self._lowered(FaultScope(scope.kind, "layer", 1), parts[-1])
        else:
            network = self._lowered(scope, parts[-1], wide)
        # The lowest layer with faults; below it all signs are those without faults.
        first = next((n for n, count in enumerate(parts[:-1]) if count), 0)
        for number, count in enumerate(parts[:-1]):
            if number > first or proof == "wrong signs":
                network = with_wrong_signs(network, number, count)
            elif proof == "own flips":
                network = with_own_flips(network, number, count, self.lo, self.hi)
        if proof != "flips" or not parts[first]:
            return FaultQuestion(network)
        return self._flips(network, FaultScope(scope.kind, "layer", first), parts[first])

    def _flips(self, network: Network, scope: FaultScope, count: int) -> FaultQuestion:
        """Return the question of the numbers of flips in the neurons of a layer."""
        assert self.at_point is not None
        home, cost = self.at_point.signs[scope.number], self.at_point.costs(scope.number)
        made = flip_network(network, scope.number, home, _priced(scope, cost, count))
        return FaultQuestion(made, min(count, 1) if scope.place == "neuron" else count)

    def _lowered(self, scope: FaultScope, count: int, wide: Network | None = None) -> Network:
        """Return the network with margins lowered by faults in the last layer or the output.

        `wide` is a network that allows the faults in lower layers; None if there are none.
        """
        output, depth = self.network.output, self.network.depth
        if not count or (scope.kind == "thresholds" and scope.layer == depth):
            return derived(self.network)
        last = last_signs_on(self.network if wide is None else wide, self.lo, self.hi)
        single = scope.place == "neuron" and scope.layer != depth
        losses = {
            rival: loss + fault_losses.doubt(output, (self.label, rival), 1 if single else count)
            for rival, loss in self._losses(scope, count, last).items()
        }
        return with_raised_scores(self.network, losses)


def _priced(scope: FaultScope, cost: IntArray, count: int) -> IntArray:
    """Return the faults that each wrong sign takes; for one neuron, 1 if `count` suffice."""
    if scope.kind == "thresholds":
        return np.ones_like(cost)
    return np.where(cost <= count, 1, 2) if scope.place == "neuron" else cost


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all lists of numbers >= 0 with this sum, the largest first numbers first."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
