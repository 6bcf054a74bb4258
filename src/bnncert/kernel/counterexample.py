"""Check of a counterexample: a rational point of the region that violates the property."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from math import lcm

import numpy as np

from bnncert.arrays import SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.function import Function
from bnncert.kernel.geometry import Geometry, digits, dot
from bnncert.kernel.sparse import Integers
from bnncert.kernel.statement import Statement
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network

#: The common denominator of a counterexample has at most this many bits.
MOST_POINT_BITS = 2**16


def check_point(
    sections: Iterator[Section], statement: Statement, network: Network, geometry: Geometry
) -> Statement:
    """Check that there is one more section, a point that violates the property.

    Returns the statement with this point.
    """
    section = next(sections, Section("end"))
    if section.name != "point":
        raise UnreadableError("the counterexample is missing")
    if next(sections, None) is not None:
        raise RejectedError("there is more than the counterexample")
    exact, size = section.fields.get("exact"), network.inputs
    point = [Fraction(v) for v in section.floats("point", size).tolist()]
    if exact is not None:
        if not isinstance(exact, list) or len(exact) != size:
            raise UnreadableError("section point: the point is not a list of the right length")
        point = [exactly(v) for v in timed(exact)]
    number = section.number("target")
    if number >= len(statement.targets):
        raise RejectedError("the counterexample is for a target that does not exist")
    common = _common_denominator(point)
    if not statement.space.contains(point):
        raise RejectedError("the counterexample lies outside the region")
    if statement.float32 and any(Fraction(float(np.float32(float(x)))) != x for x in point):
        raise RejectedError("the counterexample is not a point of float32 numbers")
    signs = signs_at(geometry, point, common)
    if np.any(signs == UNDECIDED):
        raise RejectedError("rounding may change a sign at the counterexample")
    upper = replace(network, layers=network.layers[1:])
    functions = [objective.of(network) for objective in statement.targets[number]]
    for last in last_signs(upper, signs, np.flatnonzero(signs == TIED)):
        if all(is_violated(f, last) for f in functions):
            return replace(statement, point=point)
    raise RejectedError("the point does not violate the property")


def _common_denominator(point: list[Fraction]) -> int:
    """Find the common denominator; reject a point whose denominator is too large."""
    common = 1
    for x in timed(point):
        common = lcm(common, x.denominator)
        if common.bit_length() > MOST_POINT_BITS:
            raise RejectedError("the counterexample has too many digits")
    return common


def signs_at(geometry: Geometry, point: list[Fraction], common: int) -> SignArray:
    """Decide the signs at a point, TIED if both are allowed and UNDECIDED if unknown."""
    whole = np.array([int(x * common) for x in point], dtype=object)
    sums = dot(geometry.rows, digits(whole))[: geometry.size]
    tie = {"plus": 1, "minus": -1, "either": TIED}[geometry.sign_zero]
    signs = []
    for u, a, b in zip(sums, geometry.low, geometry.high, strict=False):
        whole_sum = u << geometry.point_shift
        low, high = whole_sum + a * common, whole_sum + b * common
        known = tie if low == high == 0 else UNDECIDED
        signs.append(1 if low > 0 else -1 if high < 0 else known)
    return np.array(signs, dtype=np.int8)


def last_signs(upper: Network, first: SignArray, tied: Integers) -> Iterator[SignArray]:
    """Yield the signs of the last layer, up to MOST_TIE_CHOICES of them, for all choices at ties.

    `upper` is the network above its first layer, whose signs are `first` but for those of `tied`.
    """

    def each() -> Iterator[SignArray]:
        signs = first.copy()
        for choice in timed(product((1, -1), repeat=tied.size)):
            signs[tied] = choice
            for pattern in upper.exact_patterns(signs):
                yield pattern[-1] if pattern else signs

    return islice(timed(each()), MOST_TIE_CHOICES)


def is_violated(function: Function, signs: SignArray) -> bool:
    """Whether f <= 0 (f < 0 if ties are fine) is certain at signs of the last layer."""
    value = function.at(signs)
    return value < -function.doubt if function.tie_is_fine else value <= -function.doubt
