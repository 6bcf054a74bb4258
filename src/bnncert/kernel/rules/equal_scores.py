r"""Whether the two networks of a product have the same scores, up to what does not change a class.

The class of a network is the first of those with the highest score.  It does not change if all
scores are multiplied by a > 0, and if the same function of the signs is added to all of them.  So
the classes of both networks are equal, whatever the signs of the product's last layer are, if

    B_k - B_0 = a (A_k - A_0)   for all classes k, with one a > 0,

as functions of these signs.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.kernel.rules.product import Product
from bnncert.model.layers import OutputLayer


def scores_agree(product: Product) -> bool:
    """Whether both networks have the same class for all signs of the product's last layer.

    Scores with irrational numbers agree only if they are known as the same floats with the same
    errors.  Networks with one score have no classes: their score has to be the same.
    """
    count = product.first.classes
    if count != product.second.classes:
        return False
    output = product.network.output
    if np.any(output.error > 0) or count == 1:
        return _same_numbers(output, count) and _same_scale(product)
    weights = np.hstack([output.weights, output.bias[:, None]])
    return _is_multiple(_differences(weights[:count]), _differences(weights[count:]))


def _same_numbers(output: OutputLayer, count: int) -> bool:
    """Whether all numbers of the first `count` scores are those of the other scores."""
    arrays = (output.weights, output.bias, output.weight_error, output.bias_error)
    same = all(np.array_equal(a[:count], a[count:]) for a in arrays)
    one, two = (np.equal.outer(g, g) for g in (output.group[:count], output.group[count:]))
    return same and bool(np.array_equal(one, two))


def _same_scale(product: Product) -> bool:
    """Whether the scores of both networks have the same factor, or it does not change a class."""
    one, two = product.first.output, product.second.output
    if product.first.classes > 1:
        return True
    return one.gain_is_one and two.gain_is_one


def _differences(scores: FloatArray) -> npt.NDArray[np.object_]:
    """Return score k - score 0 for k >= 1, exactly."""
    if np.all(scores == np.rint(scores)) and np.abs(scores).max(initial=0.0) < 2.0**52:
        whole = scores.astype(np.int64)
        return np.asarray((whole[1:] - whole[:1]).astype(object))
    exact = np.array([[Fraction(v) for v in row] for row in scores.tolist()], dtype=object)
    return np.asarray(exact[1:] - exact[:1])


def _is_multiple(one: npt.NDArray[np.object_], two: npt.NDArray[np.object_]) -> bool:
    """Whether two = a one for some a > 0."""
    used = np.argwhere(one != 0)
    if not used.size:
        return not np.any(two != 0)
    place = tuple(used[0])
    p, q = Fraction(two[place]), Fraction(one[place])
    # Cross-multiplied, so that integers remain integers.
    above, below = p.numerator * q.denominator, p.denominator * q.numerator
    if above == 0 or (above > 0) != (below > 0):
        return False
    return bool(np.all(two * below == one * above))
