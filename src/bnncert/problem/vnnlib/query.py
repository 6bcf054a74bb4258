"""VNN-LIB queries of either version, and the evaluation of a query at a point.

A query is kept in two forms. The disjunctive normal form (`Disjunct`) is what verifiers use: input
boxes, input polytopes, balls and output constraints. The assertions themselves are kept as a
postfix program, which `Specification.holds` evaluates independently of the normal form, so that a
witness is checked against the text of the file and not against what the reader derived from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Final, NamedTuple

from bnncert.errors import FormatError, InputError


def error_at(path: str, line: int, found: str, expected: str) -> FormatError:
    """Make the error for what was found on a line where something else was expected."""
    return FormatError(f"{path}:{line}: found {found}, expected {expected}")


def shown(token: str) -> str:
    """Quote a token of the file in a message: at most 40 characters."""
    return repr(token if len(token) <= 40 else token[:37] + "...")


CONNECTIVES: Final = frozenset({"and", "or", "not"})
COMPARISONS: Final[Mapping[str, Callable[[Fraction, Fraction], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}

_ZERO: Final = Fraction(0)


@dataclass(frozen=True)
class LinearConstraint:
    """One linear inequality over the inputs or over the outputs.

    It states ``sum_i inputs[i] * X_i + sum_j outputs[j] * Y_j + constant <= 0``, and ``< 0`` when
    `strict`. One of the two sums is empty.
    """

    #: Index and coefficient, by increasing index, without zero coefficients.
    inputs: tuple[tuple[int, Fraction], ...]
    outputs: tuple[tuple[int, Fraction], ...]
    #: The term without a variable.
    constant: Fraction
    #: Whether equality is excluded.
    strict: bool
    #: The line of the file where the comparison starts.
    line: int


@dataclass(frozen=True)
class EuclideanBall:
    """The set ``{X : sum_i (X_i - centre_i)^2 <= squared_radius}`` over all inputs, exactly."""

    centre: tuple[Fraction, ...]
    squared_radius: Fraction


@dataclass(frozen=True)
class Disjunct:
    """One conjunction of the disjunctive normal form.

    The set ``{(X, Y) : lower <= X <= upper, X in ball and every constraint holds}``. Strict bounds
    on a single input and strict balls are relaxed to non-strict ones: the set is the closure, which
    can only add points.
    """

    #: The tightest bounds per input. Disjuncts with equal boxes share the tuple objects wherever
    #: the file states the box once.
    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    #: The constraints over two or more inputs.
    input_constraints: tuple[LinearConstraint, ...]
    #: The constraints over outputs; empty when every output is a violation.
    output_constraints: tuple[LinearConstraint, ...]
    #: The ball that contains the inputs, if the query has one (VNN-LIB 2.0); then there are no
    #: `input_constraints`, and bounds that the query leaves out are those of the ball.
    ball: EuclideanBall | None = None


class Instruction(NamedTuple):
    """One instruction of an assertion in postfix order.

    ``X`` and ``Y`` push the variable of index `size`, ``number`` pushes `value`; every other
    operation takes the last `size` operands off the stack and pushes its result, except
    ``assert``, which takes one truth value and pushes nothing.  ``lower`` and ``upper`` are whole
    assertions, ``X_size >= value`` and ``X_size <= value``.
    """

    operation: str
    size: int
    value: Fraction = _ZERO


@dataclass(frozen=True)
class NumberFormat:
    """The finite numbers of a floating-point type: ``m * 2^e`` with ``|m| < 2^digits``."""

    #: The name of the type in the query.
    name: str
    #: Binary digits of the significand, the implicit one included.
    digits: int
    #: The smallest e, that of the subnormal numbers.
    exponent: int
    #: The largest finite number.
    largest: Fraction

    def contains(self, value: Fraction) -> bool:
        """Whether the type contains this number."""
        if abs(value) > self.largest:
            return False
        whole = value / Fraction(2) ** self.exponent
        if whole.denominator != 1:
            return False
        size = abs(whole.numerator)
        # Trailing zero bits belong to the exponent.
        return size == 0 or (size // (size & -size)).bit_length() <= self.digits


@dataclass(frozen=True)
class IntegerFormat:
    """The numbers of an integer type."""

    #: The name of the type in the query.
    name: str
    smallest: int
    largest: int

    def contains(self, value: Fraction) -> bool:
        """Whether the type contains this number."""
        return value.denominator == 1 and self.smallest <= value <= self.largest


@dataclass(frozen=True)
class DeclaredTensor:
    """The input or output of a network as the query declares it."""

    name: str
    element_type: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of its elements."""
        return prod(self.shape)


class DeclaredNetwork(NamedTuple):
    """A network of a VNN-LIB 2.0 query, which has one input and one output."""

    name: str
    input: DeclaredTensor
    output: DeclaredTensor
    #: The earlier network that is this one as well, and the one of the same architecture.
    equal_to: str | None = None
    isomorphic_to: str | None = None


@dataclass(frozen=True)
class Specification:
    """A VNN-LIB query, which asks for an input whose output satisfies every assertion.

    Attributes
    ----------
    path : str
        The file of the query, for messages.
    input_count, output_count : int
        The number of declared ``X_i`` and ``Y_j``.
    disjuncts : tuple of Disjunct
        Their union is the closure (in single inputs) of the asserted set. Disjuncts with an empty
        box are left out; if there are no disjuncts, no point satisfies the query.
    program : tuple of Instruction
        The assertions of the text, in postfix order.
    number_format : NumberFormat, IntegerFormat or None
        The declared type of the inputs if it is narrower than float32, or an integer type (VNN-LIB
        2.0): `holds` accepts only numbers of this type. The disjuncts do not depend on it.
    networks : tuple of DeclaredNetwork
        The networks that a VNN-LIB 2.0 query declares; none in version 1.0. Inputs and outputs of
        several networks are numbered in the order of their declaration.
    """

    path: str
    input_count: int
    output_count: int
    disjuncts: tuple[Disjunct, ...]
    program: tuple[Instruction, ...] = field(repr=False)
    number_format: NumberFormat | IntegerFormat | None = None
    networks: tuple[DeclaredNetwork, ...] = ()

    def holds(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
        """Evaluate the assertions of the text exactly; strict inequalities are strict here.

        Integers and floats among the values of ``X_0, X_1, ...`` and ``Y_0, Y_1, ...`` are taken at
        their exact value.
        """
        for name, values, count in (
            ("X", inputs, self.input_count),
            ("Y", outputs, self.output_count),
        ):
            if len(values) != count:
                raise InputError(
                    f"{self.path}: found {len(values)} values for {name}, expected {count}"
                )
        x = [Fraction(value) for value in inputs]
        y = [Fraction(value) for value in outputs]
        if self.number_format is not None and not all(map(self.number_format.contains, x)):
            return False
        return _run(self.program, x, y)


def _run(program: Sequence[Instruction], x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    numbers: list[Fraction] = []
    truths: list[bool] = []
    for operation, size, value in program:
        if operation == "upper":
            if x[size] > value:
                return False
        elif operation == "lower":
            if x[size] < value:
                return False
        elif operation == "X":
            numbers.append(x[size])
        elif operation == "Y":
            numbers.append(y[size])
        elif operation == "number":
            numbers.append(value)
        elif operation == "assert":
            if not truths.pop():
                return False
        elif operation in COMPARISONS:
            operands = numbers[-size:]
            del numbers[-size:]
            truths.append(all(COMPARISONS[operation](a, b) for a, b in pairwise(operands)))
        elif operation in CONNECTIVES:
            parts = truths[-size:]
            del truths[-size:]
            if operation == "not":
                truths.append(not parts[0])
            else:
                truths.append(all(parts) if operation == "and" else any(parts))
        else:
            operands = numbers[-size:]
            del numbers[-size:]
            numbers.append(_calculate(operation, operands))
    return True


def _calculate(operation: str, operands: Sequence[Fraction]) -> Fraction:
    first, rest = operands[0], operands[1:]
    if operation == "+":
        return sum(rest, first)
    if operation == "*":
        return prod(rest, start=first)
    if operation == "-":
        return first - sum(rest, _ZERO) if rest else -first
    for divisor in rest:
        first /= divisor
    return first
