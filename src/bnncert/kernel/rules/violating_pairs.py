r"""Pairs of inputs of one network that violate a relation, in exact arithmetic.

Where sign(0) may be either, it is +1 or -1 for each neuron on its own, but the same one for both
inputs: a choice c assigns a sign to every neuron, N_c is the network with sign(0) = c_j in neuron
j, and a relation between x and x' holds if it holds in every N_c.  So

    it fails  iff  for some c it is violated by N_c(x) and N_c(x').

For each c the relation is transitive, and x = x' never violates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import SignArray
from bnncert.kernel.rules.relation_products import Relation
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network

#: The signs of the last layer at both inputs.
SignPair: TypeAlias = tuple[SignArray, SignArray]


@dataclass(frozen=True, eq=False)
class Violation:
    """The classes and the exact scores (without their common factor) of two inputs."""

    classes: tuple[int, int]
    scores: tuple[list[Fraction], list[Fraction]]


def paired_signs(
    network: Network, first: Sequence[Fraction], second: Sequence[Fraction]
) -> Iterator[SignPair]:
    """Yield the last signs of both inputs for each choice c, up to MOST_TIE_CHOICES of them.

    There are none if the enclosure of an irrational threshold does not decide a neuron.
    """

    def extend(pair: tuple[Any, Any], depth: int) -> Iterator[SignPair]:
        if depth == network.depth:
            yield pair
            return
        signs = np.array([network.layers[depth].exact_signs(point) for point in pair])
        if np.any(signs == UNDECIDED):
            return
        tied = signs == TIED
        open_ = np.flatnonzero(tied.any(axis=0))
        for choice in product((1, -1), repeat=open_.size):
            own = np.zeros(signs.shape[1], dtype=np.int8)
            own[open_] = choice
            chosen = np.where(tied, own, signs)
            yield from extend((chosen[0], chosen[1]), depth + 1)

    return islice(extend((first, second), 0), MOST_TIE_CHOICES)


def violation(network: Network, relation: Relation, pairs: Iterable[SignPair]) -> Violation | None:
    """Return the first violation with one of these pairs of last signs that is certain."""
    for pair in pairs:
        one, two = (network.output.exactly(signs) for signs in pair)
        found = Violation((_best(one), _best(two)), (one, two))
        if _is_certain(network, relation, found):
            return found
    return None


def _best(scores: list[Fraction]) -> int:
    """Return the first class with the highest score."""
    return max(range(len(scores)), key=lambda k: (scores[k], -k))


def _is_certain(network: Network, relation: Relation, found: Violation) -> bool:
    """Whether the relation is violated for certain; irrational numbers may be unknown."""
    output = network.output
    if relation.score is not None:
        k = relation.score
        gap = found.scores[0][k] - found.scores[1][k]
        # The bias of the score is the same number at both inputs.
        return (-gap if relation.falling else gap) > 2 * Fraction(float(output.weight_error[k]))
    if not relation.is_violated_by(*found.classes):
        return False
    errors = [Fraction(float(e)) for e in output.error]
    for best, values in zip(found.classes, found.scores, strict=True):
        for k, value in enumerate(values):
            doubt = errors[best] + errors[k]
            if k != best and doubt and values[best] - value <= doubt:
                return False
    return True
