r"""The conditions under which the two networks of a product give different classes.

A network gives class i, the first of those with the highest score, iff

    s_i > s_k for all k < i   and   s_i >= s_k for all k > i.

The first network A gives i and the second one B gives j != i iff these conditions hold for A with i
and for B with j.  They imply a further one, in which the neurons that both networks share cancel:

    (A_i - A_j) + (B_j - B_i) > 0.

The class does not change if all scores are multiplied by a > 0, and if the same function of the
signs is added to all of them.  So the classes of both networks are equal, whatever the signs of the
product's last layer are, if

    B_k - B_0 = a (A_k - A_0)   for all classes k, with one a > 0,

as functions of these signs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import MOST_JSON, RejectedError
from bnncert.kernel.rules.product import Product
from bnncert.model.layers import OutputLayer

#: A condition in JSON has at least its names: "scores", "constant" and "tie_is_fine".
LEAST_JSON = 40


@dataclass(frozen=True)
class Condition:
    """The condition  sum_k scores_k (score k) < 0, or <= 0 if not `strict`."""

    scores: tuple[tuple[int, int], ...]
    strict: bool


def no_violation(targets: Iterable[tuple[Condition, ...]]) -> dict[str, Any]:
    """Return the property that in none of the targets all conditions hold.

    It is part of a statement, in which every condition takes more than LEAST_JSON bytes.
    """
    made, count = [], 0
    for target in timed(targets):
        count += len(target)
        if count * LEAST_JSON > MOST_JSON:
            raise RejectedError("its property has more conditions than a statement can have")
        made.append(
            [
                {
                    "scores": {str(k): str(c) for k, c in condition.scores},
                    "constant": "0",
                    "tie_is_fine": condition.strict,
                }
                for condition in target
            ]
        )
    return {"kind": "targets", "targets": made}


def disagreement(count: int, i: int, j: int) -> tuple[Condition, ...]:
    """Return the conditions for class i of A and class j of B.

    Each network has `count` classes; score k of B is score ``count + k`` of the product.
    """
    together = ((i, -1), (j, 1), (count + i, 1), (count + j, -1))
    return (Condition(together, True), *_class(0, count, i), *_class(count, count, j))


def _class(start: int, count: int, best: int) -> tuple[Condition, ...]:
    """Return the conditions that `best` is the class of the scores that begin with `start`."""
    others = [k for k in range(count) if k != best]
    return tuple(Condition(((start + k, 1), (start + best, -1)), k < best) for k in others)


def disagreements(
    count: int, first: Container[int], second: Container[int], *, all_scores: bool
) -> Iterator[tuple[int, int, tuple[Condition, ...]]]:
    """Yield the conditions for all pairs of different classes (i, j) that A and B can give.

    Without `all_scores` the conditions do not compare i and j with all classes, but only with each
    other, so they are necessary, but not sufficient for a disagreement.
    """
    for i in range(count):
        for j in range(count):
            if i == j or i not in first or j not in second:
                continue
            both, *single = disagreement(count, i, j)
            if not all_scores:
                single = [c for c in single if {k % count for k, _ in c.scores} == {i, j}]
            yield i, j, (both, *single)


# -- equal scores ------------------------------------------------------------------------------


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
