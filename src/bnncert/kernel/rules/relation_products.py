r"""Two copies of one network as one network: x enters the first copy, x' the second one.

x' differs from x in few inputs, and the copies share all others.  The changed inputs F are given in
one of two ways:

    values    x'_F are further inputs of the product           (n + |F| inputs)
    increase  x'_f = x_f + d for one input f, and d is one     (n + 1 inputs)

With d fixed, every neuron of the second copy has a threshold parallel to that of the first copy, so
that one of the two signs implies the other; no other form of the question is solved as fast.

Where sign(0) may be either, it is so for each neuron on its own, but it is the same for x and x'
(:mod:`bnncert.kernel.rules.violating_pairs`).  A product over-estimates that at d = 0, and where
sign(0) is known in layer 1 but not in layer 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from bnncert.arrays import IntArray
from bnncert.kernel.budget import timed
from bnncert.kernel.rules.disagreement import Condition, disagreement
from bnncert.kernel.rules.product import Product, product_network
from bnncert.model.layers import ThresholdLayer
from bnncert.model.matrices import as_sparse, csr_matrix
from bnncert.model.network import Network


def violation_name(before: int, after: int) -> str:
    """Return the name of a change of the class."""
    return f"class {before} to {after}"


@dataclass(frozen=True)
class Relation:
    """What must not happen between the classes or scores of x and x'.

    Attributes
    ----------
    label
        If x is of this class, x' has to be of it (with `falling`: if x' is, x has to be); None if x
        and x' have to be of the same class.
    score
        The score that has to be at least as large at x' as at x (with `falling`: at x as at x');
        None if the relation is about classes.
    falling
        Whether x and x' have changed parts.
    """

    label: int | None = None
    score: int | None = None
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

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.kernel.rules.relation_products import values_product
    >>> net = bnncert.Network.from_arrays([[[1, 1, 1], [1, 1, 0]], [[1, 1], [1, -1]]], [[0, 0]] * 2)
    >>> product = values_product(net, [1, 2], [1, 0], [0, 1])
    >>> product.network.sizes, product.shared
    ((5, 3, 4), (1,))
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
    """Return the product in which the second copy reads x_f + d; d is input n of the product.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.kernel.rules.relation_products import increase_product
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, 0]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> product = increase_product(net, 1)
    >>> product.network.sizes, product.shared
    ((3, 3, 4), (1,))
    >>> product.network.evaluate([1, -2, 2]).tolist()
    [0.0, 0.0, 2.0, -2.0]
    """
    from scipy.sparse import hstack

    weights = network.layers[0].weights
    return _product(network, hstack([weights, weights[:, [feature]]], format="csr"))


def any_increase_product(network: Network, feature: int) -> Product:
    r"""Return the product for x' = x + d e_f with any d > 0, which is a further input of it.

    A region cannot exclude d = 0, where the ties of x and x' are those of one input.  For d > 0 and
    w_f > 0 the sum of x' is larger, so the sign of x' is max(sign of x, sign of x') also at ties
    (min for w_f < 0).  If sign(0) may be either, the second copy reads these from a further layer.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.kernel.rules.relation_products import any_increase_product
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, 0]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> any_increase_product(net, 1).network.sizes
    (3, 3, 4)
    >>> any_increase_product(net.with_sign_zero("either"), 1).network.sizes
    (3, 3, 3, 4)
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
