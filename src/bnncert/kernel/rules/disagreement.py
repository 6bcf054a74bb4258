r"""The conditions under which the two networks of a product give different classes.

A network gives class i, the first of those with the highest score, iff

    s_i > s_k for all k < i   and   s_i >= s_k for all k > i.

The first network A gives i and the second one B gives j != i iff these conditions hold for A with i
and for B with j.  They imply a further one, in which the neurons that both networks share cancel:

    (A_i - A_j) + (B_j - B_i) > 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Condition:
    """The condition  sum_k scores_k (score k) < 0, or <= 0 if not `strict`."""

    scores: tuple[tuple[int, int], ...]
    strict: bool


def disagreement(count: int, i: int, j: int) -> tuple[Condition, ...]:
    """Return the conditions for class i of A and class j of B.

    Parameters
    ----------
    count
        The number of classes of each network; score k of B is score ``count + k`` of the product.
    i, j
        The two classes.
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
    """Yield the conditions for all pairs of different classes (i, j).

    Parameters
    ----------
    count
        The number of classes.
    first, second
        The classes that A and B can give; others are left out.
    all_scores
        Whether the conditions compare i and j with all classes.  Else they compare only i and j
        with each other, so they are necessary, but not sufficient for a disagreement.
    """
    for i in range(count):
        for j in range(count):
            if i == j or i not in first or j not in second:
                continue
            both, *single = disagreement(count, i, j)
            if not all_scores:
                single = [c for c in single if {k % count for k, _ in c.scores} == {i, j}]
            yield i, j, (both, *single)
