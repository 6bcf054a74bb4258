"""Sparse polynomials, and polynomial optimisation problems.

A monomial is a sorted tuple of variable numbers: () is 1 and (3, 3, 7) is x3^2 x7.  A polynomial
maps monomials to coefficients.  Binary variables satisfy x^2 = 1 (:meth:`Polynomial.reduced`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Monomial: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Polynomial:
    """sum of coefficient * monomial; zero coefficients are not stored.

    Coefficients are floats, or rationals if all coefficients are rationals.

    Attributes
    ----------
    terms
        The coefficients of the monomials, which are sorted tuples of variable numbers.
    """

    terms: Mapping[Monomial, float]

    @staticmethod
    def affine(coefficients: Mapping[int, float], constant: float = 0.0) -> Polynomial:
        """Return constant + sum_i coefficients_i x_i."""
        terms: dict[Monomial, float] = {(i,): float(c) for i, c in coefficients.items() if c}
        if constant:
            terms[()] = float(constant)
        return Polynomial(terms)

    @staticmethod
    def constant(value: float) -> Polynomial:
        """Return a constant."""
        return Polynomial.affine({}, value)

    @property
    def degree(self) -> int:
        """The largest number of factors of a monomial (0 for the zero polynomial)."""
        return max(map(len, self.terms), default=0)

    @property
    def variables(self) -> frozenset[int]:
        """The variables that occur."""
        return frozenset(v for monomial in self.terms for v in monomial)

    def __add__(self, other: Polynomial | float) -> Polynomial:
        terms = dict(self.terms)
        added = other.terms if isinstance(other, Polynomial) else {(): float(other)}
        for monomial, c in added.items():
            total = terms.get(monomial, 0) + c
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Polynomial(terms)

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return Polynomial({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Polynomial | float) -> Polynomial:
        return self + (-other)

    def __rsub__(self, other: float) -> Polynomial:
        return -self + other

    def __mul__(self, other: Polynomial | float) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial({m: c * other for m, c in self.terms.items() if c * other})
        terms: dict[Monomial, float] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted(m + n)) if m and n else m or n
                terms[product] = terms.get(product, 0) + c * d
        return Polynomial({m: c for m, c in terms.items() if c})

    __rmul__ = __mul__

    def reduced(self, binary: AbstractSet[int]) -> Polynomial:
        """Return the polynomial modulo x^2 = 1 for the binary variables."""
        terms: dict[Monomial, float] = {}
        for monomial, c in self.terms.items():
            short = reduce_monomial(monomial, binary)
            terms[short] = terms.get(short, 0) + c
        return Polynomial({m: c for m, c in terms.items() if c})

    def substituted(self, values: Callable[[int], Polynomial]) -> Polynomial:
        """Return the polynomial with every variable replaced by a polynomial."""
        total = Polynomial({})
        for monomial, c in self.terms.items():
            product = Polynomial.constant(c)
            for v in monomial:
                product = product * values(v)
            total = total + product
        return total

    def __call__(self, point: Sequence[float]) -> float:
        """Return the value at a point."""
        total = 0.0
        for monomial, c in self.terms.items():
            for v in monomial:
                c *= point[v]
            total += c
        return total

    def values(self, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values at points, one per row."""
        total = np.zeros(points.shape[0])
        for monomial, c in self.terms.items():
            term = np.full(points.shape[0], float(c))
            for v in monomial:
                term *= points[:, v]
            total += term
        return total

    def text(self, name: Callable[[int], str] = "x{}".format) -> str:
        """Return the polynomial in a readable form."""
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, c in sorted(self.terms.items(), key=lambda item: (len(item[0]), item[0])):
            factors = [
                name(v) if (power := monomial.count(v)) == 1 else f"{name(v)}^{power}"
                for v in sorted(set(monomial))
            ]
            size = f"{abs(c):.6g}"
            body = " ".join(factors if size == "1" and factors else [size, *factors])
            sign = ("-" if c < 0 else "") if not parts else ("- " if c < 0 else "+ ")
            parts.append(sign + body)
        return " ".join(parts)

    def __str__(self) -> str:
        return self.text()


def reduce_monomial(monomial: Monomial, binary: AbstractSet[int]) -> Monomial:
    """Return the monomial modulo x^2 = 1 for the binary variables."""
    if len(monomial) < 2 or len(set(monomial)) == len(monomial):
        return monomial
    kept: list[int] = []
    for v in monomial:
        if kept and kept[-1] == v and v in binary:
            kept.pop()
        else:
            kept.append(v)
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class PolynomialProblem:
    """min objective s.t. every inequality >= 0; layer-0 variables in [-1, 1], others in {-1, 1}.

    `layers` lists the variable numbers of each layer, inputs first.
    """

    layers: tuple[tuple[int, ...], ...]
    objective: Polynomial
    inequalities: tuple[Polynomial, ...]
    slack: float = 0.0

    @property
    def size(self) -> int:
        """The number of variables."""
        return sum(map(len, self.layers))

    @cached_property
    def binary(self) -> frozenset[int]:
        """The variables that are neurons."""
        return frozenset(v for members in self.layers[1:] for v in members)
