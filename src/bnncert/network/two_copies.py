r"""Two copies of one network as one network: x enters the first copy, x' the second one.

x' differs from x in few inputs, and the copies share all others.  The changed inputs F are given in
one of two ways:

    values    x'_F are further inputs of the product           (n + |F| inputs)
    increase  x'_f = x_f + d for one input f, and d is one     (n + 1 inputs)

With d fixed, every neuron of the second copy has a threshold parallel to that of the first copy, so
that one of the two signs implies the other; no other form of the question is solved as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bnncert.description.matrices import as_sparse
from bnncert.network.disagreement import Condition, disagreement
from bnncert.network.layers import ThresholdLayer
from bnncert.network.network import Network
from bnncert.network.product import Product, product_network


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

    def violations(self, classes: int) -> list[tuple[str, tuple[Condition, ...]]]:
        """Return the ways to violate it: names, and conditions on the scores of both copies."""
        if self.score is not None:
            sign = 1 if self.falling else -1
            terms = ((self.score, sign), (classes + self.score, -sign))
            return [(f"score {self.score}", (Condition(terms, True),))]
        return [
            (violation_name(i, j), disagreement(classes, i, j))
            for i, j in product(range(classes), repeat=2)
            if self.is_violated_by(i, j)
        ]

    def is_violated_by(self, before: int, after: int) -> bool:
        """Whether the classes of x and x' violate a relation about classes."""
        if self.label is None:
            return before != after
        if self.falling:
            before, after = after, before
        return before == self.label != after


def values_product(network: Network, features: Sequence[int]) -> Product:
    """Return the product in which the second copy reads its own values of some inputs.

    Input n + k of the product is input ``features[k]`` of the second copy.
    """
    columns = np.arange(network.inputs)
    columns[list(features)] = network.inputs + np.arange(len(features))
    return product_network(network, network, columns=columns)


def increase_product(network: Network, feature: int) -> Product:
    """Return the product in which the second copy reads x_f + d; d is input n of the product.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.network.two_copies import increase_product
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, 0]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> product = increase_product(net, 1)
    >>> product.network.sizes, product.shared
    ((3, 3, 4), (1,))
    >>> product.network.evaluate([1, -2, 2]).tolist()
    [0.0, 0.0, 2.0, -2.0]
    """
    second = replace(
        network,
        layers=(_widened(network.layers[0], feature), *network.layers[1:]),
        input_shape=(network.inputs + 1,),
        input_lo=None,
        input_hi=None,
    )
    return product_network(network, second, columns=np.arange(network.inputs + 1))


def _widened(layer: ThresholdLayer, feature: int) -> ThresholdLayer:
    """Return a first layer that reads one more input with the weights of `feature`."""
    from scipy.sparse import hstack

    weights = layer.weights
    rows = as_sparse(hstack([weights, weights[:, [feature]]], format="csr").astype(weights.dtype))
    return replace(layer, rows=rows, convolution=None, flip=None)
