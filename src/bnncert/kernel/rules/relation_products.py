r"""Two copies of one network as one network: x enters the first copy, x' the second one.

x' differs from x in few inputs, and the copies share all others.  The changed inputs F are given in
one of two ways:

    values    x'_F are further inputs of the product           (n + |F| inputs)
    increase  x'_f = x_f + d for one input f, and d is one     (n + 1 inputs)

With d fixed, every neuron of the second copy has a threshold parallel to that of the first copy, so
that one of the two signs implies the other; no other form of the question is solved as fast.

Where sign(0) may be either, it is +1 or -1 for each neuron on its own, but the same one for both
inputs: a choice c assigns a sign to every neuron, N_c is the network with sign(0) = c_j in neuron
j, and a relation between x and x' holds if it holds in every N_c.  So

    it fails  iff  for some c it is violated by N_c(x) and N_c(x').

For each c the relation is transitive, and x = x' never violates it.  A product over-estimates
failures at d = 0, and where sign(0) is known in layer 1 but not in layer 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, product
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import IntArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.rules.disagreement import Condition, disagreement
from bnncert.kernel.rules.product import Product, product_network
from bnncert.model.layers import TIED, UNDECIDED, ThresholdLayer
from bnncert.model.matrices import as_sparse, csr_matrix
from bnncert.model.network import MOST_TIE_CHOICES, Network


def violation_name(before: int, after: int) -> str:
    """Name a violation by the classes of both inputs."""
    return f"class {before} to {after}"


@dataclass(frozen=True)
class Relation:
    """What must not happen between the classes or scores of x and x'."""

    #: If x is of this class, x' has to be of it (with `falling`: if x' is, x has to be); None if x
    #: and x' have to be of the same class.
    label: int | None = None
    #: The score that has to be at least as large at x' as at x (with `falling`: at x as at x');
    #: None if the relation is about classes.
    score: int | None = None
    #: Whether x and x' have changed parts.
    falling: bool = False

    def violations(self, classes: int) -> Iterator[tuple[str, tuple[Condition, ...]]]:
        """Yield the ways to violate it: names, and conditions on the scores of both copies."""
        if self.score is not None:
            sign = 1 if self.falling else -1
            terms = ((self.score, sign), (classes + self.score, -sign))
            yield f"score {self.score}", (Condition(terms, True),)
            return
        for i, j in product(range(classes), repeat=2):
            if self.is_violated_by(i, j):
                yield violation_name(i, j), disagreement(classes, i, j)

    def is_violated_by(self, before: int, after: int) -> bool:
        """Whether the classes of x and x' violate a relation about classes."""
        if self.label is None:
            return before != after
        if self.falling:
            before, after = after, before
        return before == self.label != after


def values_product(
    network: Network, features: Sequence[int], before: Sequence[float], after: Sequence[float]
) -> Product:
    """Return the product in which the second copy reads its own values of some inputs.

    Input n + k of the product is input ``features[k]`` of the second copy.  The product is valid
    where these inputs have the values `before` in the first copy and `after` in the second one.  A
    first-layer neuron with  sum_k w_k (after_k - before_k) = 0  has the same sum in both copies,
    and is one neuron of the product.
    """
    layer, size = network.layers[0], network.inputs
    steps = [Fraction(b) - Fraction(a) for a, b in zip(before, after, strict=True)]
    changed = np.array(
        [
            sum((Fraction(w) * s for w, s in zip(row, steps, strict=True)), Fraction(0)) != 0
            for row in timed(layer.weights[:, list(features)].toarray().tolist())
        ]
    )
    columns = np.arange(size)
    columns[list(features)] = size + np.arange(len(features))
    rows = layer.weights
    owner = np.repeat(np.arange(layer.size), np.diff(rows.indptr))
    places = np.where(changed[owner], columns[rows.indices], rows.indices)
    shape = (layer.size, size + len(features))
    # Copied, because the columns are sorted in place.
    moved = csr_matrix(rows.data.copy(), places, rows.indptr.copy(), shape)
    return _product(network, moved)


def increase_product(network: Network, feature: int) -> Product:
    """Return the product in which the second copy reads x_f + d; d is input n of the product."""
    from scipy.sparse import hstack

    weights = network.layers[0].weights
    return _product(network, hstack([weights, weights[:, [feature]]], format="csr"))


def any_increase_product(network: Network, feature: int) -> Product:
    r"""Return the product for x' = x + d e_f with any d > 0, which is a further input of it.

    A region cannot exclude d = 0, where the ties of x and x' are those of one input.  For d > 0 and
    w_f > 0 the sum of x' is larger, so the sign of x' is max(sign of x, sign of x') also at ties
    (min for w_f < 0).  If sign(0) may be either, the second copy reads these from a further layer.
    """
    from scipy.sparse import csr_array, eye_array, hstack, vstack

    stepped = increase_product(network, feature)
    layer = network.layers[0]
    if layer.sign_zero != "either":
        return stepped
    own = layer.weights[:, [feature]].toarray().ravel()
    changed, size = np.flatnonzero(own), layer.size
    new = stepped.second.layers[0]
    still = hstack([layer.weights, csr_array((size, 1), dtype=layer.weights.dtype)])
    rows = vstack([still, new.weights[changed]], format="csr")
    both = replace(
        new,
        rows=as_sparse(rows),
        bias=np.concatenate([new.bias, new.bias[changed]]),
        bias_lo=np.concatenate([new.enclosure[0], new.enclosure[0][changed]]),
        bias_hi=np.concatenate([new.enclosure[1], new.enclosure[1][changed]]),
    )
    same = eye_array(size, dtype=np.int8, format="csr")
    starts = np.ones(size, dtype=np.int64)
    # The sum of both signs is at least 0 if one is +1, and 2 if both are.
    starts[changed] = np.where(own[changed] > 0, 0, 2)
    ordered = hstack([same, same[:, changed]], format="csr")
    first, second = (
        replace(net, layers=(below, _signs(matrix, start), *network.layers[1:]))
        for net, below, matrix, start in (
            (network, layer, same, np.ones(size, dtype=np.int64)),
            (stepped.second, both, ordered, starts),
        )
    )
    return product_network(first, second, columns=np.arange(rows.shape[1]), copies=True)


def _signs(rows: Any, start: IntArray) -> ThresholdLayer:
    """Return the layer x = +1 iff W y >= start, whose sums are never 0."""
    return ThresholdLayer(
        rows=as_sparse(rows),
        bias=(1 - start).astype(np.float64),
        sign_zero="plus",
        name="ordered signs",
        on_from=start,
        tie=np.zeros(start.size, dtype=bool),
        fixed_sign_zero=True,
    )


def _product(network: Network, rows: Any) -> Product:
    """Return the product with a copy of the network that has other rows in its first layer."""
    first = network.layers[0]
    weights = as_sparse(rows).astype(first.weights.dtype)
    layer = replace(first, rows=weights, convolution=None, flip=None)
    second = replace(
        network,
        layers=(layer, *network.layers[1:]),
        input_shape=(weights.shape[1],),
        input_lo=None,
        input_hi=None,
    )
    return product_network(network, second, columns=np.arange(weights.shape[1]), copies=True)


# -- pairs of inputs that violate a relation ---------------------------------------------------

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
