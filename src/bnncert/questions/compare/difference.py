"""The question whether two networks differ on a region, and inputs at which they do."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.verdict import Counterexample
from bnncert.kernel.rules.disagreement import disagreement, disagreements
from bnncert.kernel.rules.product import Product
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.questions.compare.classes import UNDETERMINED, exact_class
from bnncert.questions.compare.conditions import condition_target
from bnncert.regions import Region


@dataclass(frozen=True, eq=False)
class Difference:
    """An input at which two networks, A and B, give different classes, in exact arithmetic.

    Attributes
    ----------
    point
        The input as floats.
    exact
        The input as rationals where the floats are only near it, else None.
    classes
        The classes that A and B give.
    scores
        The scores of A and of B, in floating point.
    """

    point: FloatArray
    exact: tuple[Fraction, ...] | None
    classes: tuple[int, int]
    scores: tuple[FloatArray, FloatArray]

    def __repr__(self) -> str:
        return f"Difference({self.point.size} inputs, classes {self.classes})"

    def as_counterexample(self, target: str = "") -> Counterexample:
        """Return the input as a counterexample to the claim that the classes are equal."""
        return Counterexample(self.point, self.exact, target, Fraction(0), self.scores[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the decimal numbers convert back to the same floats."""
        tree: dict[str, Any] = {
            "input": self.point.tolist(),
            "classes": list(self.classes),
            "scores": [scores.tolist() for scores in self.scores],
        }
        if self.exact is not None:
            tree["input_exact"] = [str(v) for v in self.exact]
        return tree


def difference_at(
    first: Network,
    second: Network,
    region: Region,
    point: FloatArray,
    exact: tuple[Fraction, ...] | None = None,
) -> Difference | None:
    """Return the difference at a point of the region; None if there is none, or it is not inside.

    Where sign(0) may be either, the classes have to differ however ties are decided.
    """
    place = point if exact is None else exact
    if not region.contains(place):
        return None
    classes = exact_class(first, place), exact_class(second, place)
    if UNDETERMINED in classes or classes[0] == classes[1]:
        return None
    return Difference(point, exact, classes, (first.evaluate(point), second.evaluate(point)))


def settled_difference(
    first: Network, second: Network, region: Region, candidate: FloatArray
) -> Difference | None:
    """Return a difference at a float32 point near the candidate, else at a float64 point."""
    for kind in (np.float32, np.float64):
        point = region.settle(candidate, kind)
        found = None if point is None else difference_at(first, second, region, point)
        if found is not None:
            return found
    return None


def difference_problem(
    product: Product,
    region: Region,
    first: Container[int],
    second: Container[int],
    *,
    all_scores: bool,
) -> Problem:
    """Return the problem that both networks give the same class on the whole region.

    The other parameters are those of :func:`bnncert.kernel.rules.disagreement.disagreements`.
    """
    count = product.first.classes
    targets = tuple(
        condition_target(product.network, _pair_name(i, j), conditions)
        for i, j, conditions in disagreements(count, first, second, all_scores=all_scores)
    )
    return Problem(product.network, region, targets)


def pair_problem(product: Product, region: Region, classes: tuple[int, int]) -> Problem:
    """Return the problem that A does not give one class where B gives the other."""
    conditions = disagreement(product.first.classes, *classes)
    target = condition_target(product.network, _pair_name(*classes), conditions)
    return Problem(product.network, region, (target,))


def _pair_name(i: int, j: int) -> str:
    return f"A {i}, B {j}"
