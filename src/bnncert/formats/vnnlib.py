"""Read VNN-LIB queries exactly: the numbers stay fractions, the assertions become a DNF.

A query declares the inputs ``X_0, X_1, ...`` and the outputs ``Y_0, Y_1, ...`` of a network and
asserts linear (in)equalities over them, joined by ``and``, ``or`` and ``not``. It is the *negated*
property: a point that satisfies all assertions is a violation.

Two views of the same text leave this module. The disjunctive normal form (`Disjunct`) is what a
verifier works on: input boxes, input polytopes and output constraints. Next to it stays the text
itself as a postfix program, which `Specification.holds` runs without looking at the normal form,
so that a witness is judged by what the file says and not by what was made of it.

The scan over the text uses an explicit stack, never Python recursion. It is that of VNN-LIB 1.0; a
text that starts with ``(vnnlib-version ...)`` goes to `bnncert.formats.vnnlib2`, which fills the
same `Specification` and may add Euclidean balls.
"""

from __future__ import annotations

import enum
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, pairwise
from math import prod
from pathlib import Path
from typing import Final, NamedTuple, cast

from bnncert.errors import FormatError, InputError
from bnncert.rationals import square_root

__all__ = [
    "Disjunct",
    "EuclideanBall",
    "LinearConstraint",
    "NumberFormat",
    "Specification",
    "read_vnnlib",
    "parse_vnnlib",
]

MAX_NESTING: Final = 1_000
MAX_DISJUNCTS: Final = 100_000
MAX_PRODUCT_SIZE: Final = 5_000_000
MAX_BOX_ENTRIES: Final = 20_000_000
MAX_UNPACKED_BYTES: Final = 2**30
MAX_NUMBER_LENGTH: Final = 2_000
MAX_EXPONENT: Final = 2_000

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZERO: Final = Fraction(0)
_ONE: Final = Fraction(1)

# The last alternative is a quote that is never closed; it is reported by the reader.
_TOKEN: Final = re.compile(r'\n|[()]|[^\s()";|]+|;[^\n]*|"[^"]*"|\|[^|]*\||["|]')
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_VARIABLE: Final = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True)
class LinearConstraint:
    """One linear inequality over the inputs or over the outputs.

    It means ``sum_i inputs[i] * X_i + sum_j outputs[j] * Y_j + constant <= 0``, and ``< 0`` when
    `strict`. One of the two sums is empty.

    Attributes
    ----------
    inputs, outputs : tuple of (int, Fraction)
        Index and coefficient, by increasing index, without zero coefficients.
    constant : Fraction
        The term without a variable.
    strict : bool
        Whether equality is excluded.
    line : int
        The line of the file where the comparison starts.
    """

    inputs: tuple[tuple[int, Fraction], ...]
    outputs: tuple[tuple[int, Fraction], ...]
    constant: Fraction
    strict: bool
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
    on a single input enter `lower` and `upper` as non-strict ones, and so does a strict ball: they
    are the closure, which can only add points.

    Attributes
    ----------
    lower, upper : tuple of Fraction
        The tightest bounds per input. Disjuncts with equal boxes share the tuple objects wherever
        the file states the box once.
    input_constraints : tuple of LinearConstraint
        The constraints over two or more inputs.
    output_constraints : tuple of LinearConstraint
        The constraints over outputs; empty when every output violates.
    ball : EuclideanBall or None
        The ball that the inputs lie in, if the query has one (VNN-LIB 2.0); then there are no
        `input_constraints`, and bounds that the query leaves out are those of the ball.
    """

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    input_constraints: tuple[LinearConstraint, ...]
    output_constraints: tuple[LinearConstraint, ...]
    ball: EuclideanBall | None = None


class Step(NamedTuple):
    """One step of an assertion in postfix order.

    ``X`` and ``Y`` push the variable of index `size`, ``number`` pushes `value`; every other
    operation takes the last `size` operands off the stack and pushes its result, except
    ``assert``, which takes one truth value and pushes nothing.
    """

    operation: str
    size: int
    value: Fraction = _ZERO


@dataclass(frozen=True)
class NumberFormat:
    """The finite numbers of a floating-point type: ``m * 2^e`` with ``|m| < 2^digits``.

    Attributes
    ----------
    name : str
        What the query calls it.
    digits : int
        Binary digits of the significand, the implicit one included.
    exponent : int
        The smallest e, that of the subnormal numbers.
    largest : Fraction
        The largest finite number.
    """

    name: str
    digits: int
    exponent: int
    largest: Fraction

    def contains(self, value: Fraction) -> bool:
        """Decide whether the type has this number."""
        if abs(value) > self.largest:
            return False
        whole = value / Fraction(2) ** self.exponent
        if whole.denominator != 1:
            return False
        size = abs(whole.numerator)
        # Trailing zeros belong to the exponent.
        return size == 0 or (size // (size & -size)).bit_length() <= self.digits


@dataclass(frozen=True)
class Specification:
    """A VNN-LIB query, which asks for an input whose output satisfies every assertion.

    Attributes
    ----------
    path : str
        Where the text came from.
    input_count, output_count : int
        How many ``X_i`` and ``Y_j`` are declared.
    disjuncts : tuple of Disjunct
        Their union is the closure (in single inputs) of the asserted set. Disjuncts with an empty
        box are left out, so no disjunct at all means that nothing satisfies the query.
    program : tuple of Step
        The assertions as they were written, in postfix order.
    number_format : NumberFormat or None
        The declared type of the inputs if it is narrower than float32 (VNN-LIB 2.0): `holds` then
        accepts no other numbers. The disjuncts say nothing about it.
    """

    path: str
    input_count: int
    output_count: int
    disjuncts: tuple[Disjunct, ...]
    program: tuple[Step, ...] = field(repr=False)
    number_format: NumberFormat | None = None

    def holds(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
        """Evaluate the assertions as written, in exact arithmetic.

        Parameters
        ----------
        inputs, outputs : sequence of Fraction
            Values of ``X_0, X_1, ...`` and ``Y_0, Y_1, ...``. Integers and floats are taken at
            their exact value.

        Returns
        -------
        bool
            Whether all assertions are true; strict inequalities are strict here.
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


def read_vnnlib(path: str | os.PathLike[str]) -> Specification:
    """Read a VNN-LIB 1.0 or 2.0 file, plain or gzip-compressed (told apart by the first two bytes).

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    Specification
        The query.

    Raises
    ------
    FormatError
        When the file cannot be read or is not a VNN-LIB query that is supported.
    MissingExtraError
        When the file is VNN-LIB 2.0 and the package that parses it is not installed.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise error_at(name, 1, f"an unreadable file ({reason})", "a readable one") from error
    if data.startswith(_GZIP_MAGIC):
        data = _unpack(data, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise error_at(name, line, found, "UTF-8 text") from error
    return parse_vnnlib(text, name)


def parse_vnnlib(text: str, path: str = "<string>") -> Specification:
    """Parse the text of a VNN-LIB 1.0 or 2.0 query.

    Parameters
    ----------
    text : str
        The query.
    path : str
        What error messages call the text.

    Returns
    -------
    Specification
        The query.

    Raises
    ------
    FormatError
        When the text is not a VNN-LIB query that is supported.
    MissingExtraError
        When the text is VNN-LIB 2.0 and the package that parses it is not installed.
    """
    if _states_version(text):
        # Imported here: it needs this module, and an extra that most queries do without.
        from bnncert.formats.vnnlib2 import parse_vnnlib2

        return parse_vnnlib2(text, path)
    reader = _Reader(path)
    reader.scan(text)
    return reader.specification()


def _states_version(text: str) -> bool:
    """Whether the first command is ``vnnlib-version``, which VNN-LIB 1.0 does not have."""
    tokens = (t[0] for t in _TOKEN.finditer(text) if t[0][0] not in "\n;")
    return next(tokens, "") == "(" and next(tokens, "") == "vnnlib-version"


def error_at(path: str, line: int, found: str, expected: str) -> FormatError:
    message = f"{path}:{line}: found {found}, expected {expected}"
    return FormatError(" ".join(message.splitlines()))


def _unpack(data: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = stream.read(MAX_UNPACKED_BYTES + 1)
    except EOFError as error:
        raise error_at(path, 1, "a truncated gzip stream", "a complete one") from error
    except (OSError, zlib.error) as error:
        raise error_at(path, 1, f"a damaged gzip stream ({error})", "an intact one") from error
    if len(unpacked) > MAX_UNPACKED_BYTES:
        found = f"more than {MAX_UNPACKED_BYTES} bytes after unpacking"
        raise error_at(path, 1, found, "a smaller file")
    return unpacked


def shown(token: str) -> str:
    return repr(token if len(token) <= 40 else token[:37] + "...")


def _run(program: Sequence[Step], x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
    numbers: list[Fraction] = []
    truths: list[bool] = []
    for operation, size, value in program:
        if operation == "X":
            numbers.append(x[size])
        elif operation == "Y":
            numbers.append(y[size])
        elif operation == "number":
            numbers.append(value)
        elif operation == "assert":
            if not truths.pop():
                return False
        elif operation in _COMPARISONS:
            operands = numbers[-size:]
            del numbers[-size:]
            truths.append(all(_compare(operation, a, b) for a, b in pairwise(operands)))
        elif operation in _CONNECTIVES:
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


def _compare(operation: str, a: Fraction, b: Fraction) -> bool:
    if operation == "<=":
        return a <= b
    if operation == ">=":
        return a >= b
    if operation == "<":
        return a < b
    if operation == ">":
        return a > b
    return a == b


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


class Linear(NamedTuple):
    """An affine form; output ``Y_j`` has the key ``-1 - j``. Treated as immutable."""

    coefficients: dict[int, Fraction]
    constant: Fraction


def add(terms: Sequence[Linear]) -> Linear:
    largest = max(range(len(terms)), key=lambda k: len(terms[k].coefficients))
    total = dict(terms[largest].coefficients)
    constant = terms[largest].constant
    for k, term in enumerate(terms):
        if k == largest:
            continue
        if term.constant:
            constant += term.constant
        for key, coefficient in term.coefficients.items():
            value = total[key] + coefficient if key in total else coefficient
            if value:
                total[key] = value
            else:
                del total[key]
    return Linear(total, constant)


def scale(term: Linear, factor: Fraction) -> Linear:
    if not factor:
        return Linear({}, _ZERO)
    return Linear(
        {key: coefficient * factor for key, coefficient in term.coefficients.items()},
        term.constant * factor,
    )


def negate(term: Linear) -> Linear:
    return Linear({key: -value for key, value in term.coefficients.items()}, -term.constant)


def subtract(left: Linear, right: Linear) -> Linear:
    # Bounds X_i <= c and c <= X_i are nearly all of a large file: spare them the general sum.
    if not right.coefficients and not left.constant:
        return Linear(left.coefficients, -right.constant)
    if not left.coefficients and not right.constant:
        return Linear({key: -value for key, value in right.coefficients.items()}, left.constant)
    return add([left, negate(right)])


class Cylinder(NamedTuple):
    """``sum (X_i - c_i)^2 <= squared_radius`` over the pairs (i, c_i) of `centre`."""

    centre: tuple[tuple[int, Fraction], ...]
    squared_radius: Fraction
    strict: bool
    line: int


@dataclass(slots=True, eq=False)
class Block:
    """A conjunction of literals; compared by identity, so that boxes can be cached per block."""

    lower: tuple[tuple[int, Fraction], ...] = ()
    upper: tuple[tuple[int, Fraction], ...] = ()
    inputs: tuple[LinearConstraint, ...] = ()
    outputs: tuple[LinearConstraint, ...] = ()
    cylinders: tuple[Cylinder, ...] = ()


# A formula in disjunctive normal form: a disjunction of conjunctions of blocks. No conjunction at
# all is "false", a conjunction without blocks is "true".
Formula = list[tuple[Block, ...]]


def _merge(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        tuple(chain.from_iterable(block.lower for block in blocks)),
        tuple(chain.from_iterable(block.upper for block in blocks)),
        tuple(chain.from_iterable(block.inputs for block in blocks)),
        tuple(chain.from_iterable(block.outputs for block in blocks)),
        tuple(chain.from_iterable(block.cylinders for block in blocks)),
    )


class _Box(NamedTuple):
    """Bounds collected so far; ``None`` where there is none yet."""

    lower: tuple[Fraction | None, ...]
    upper: tuple[Fraction | None, ...]
    empty: bool


def _tighten(box: _Box, block: Block) -> _Box:
    """Intersect a box with the bounds of a block; a side without news keeps its tuple."""
    lower, upper, empty = box
    if block.lower:
        values = list(lower)
        for index, value in block.lower:
            known = values[index]
            if known is None or value > known:
                values[index] = value
        lower = tuple(values)
    if block.upper:
        values = list(upper)
        for index, value in block.upper:
            known = values[index]
            if known is None or value < known:
                values[index] = value
        upper = tuple(values)
    if not empty:
        for index, _ in chain(block.lower, block.upper):
            low, high = lower[index], upper[index]
            if low is not None and high is not None and low > high:
                empty = True
                break
    return _Box(lower, upper, empty)


class _Shape(NamedTuple):
    """What a disjunct asks of the inputs, its linear constraints left out."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    ball: EuclideanBall | None


def _outside(box: _Box, index: int, value: Fraction) -> Fraction:
    """Return how far a value is from the bounds of an input."""
    low, high = box.lower[index], box.upper[index]
    if low is not None and value < low:
        return low - value
    return value - high if high is not None and value > high else _ZERO


class NormalForm:
    """Joins formulas in disjunctive normal form, within limits, and makes disjuncts of them.

    Parameters
    ----------
    path : str
        What error messages call the text.
    place : callable
        Name and line of the declaration of an input (``"X"``) or output (``"Y"``) by its index.
    """

    def __init__(self, path: str, place: Callable[[str, int], tuple[str, int]]) -> None:
        self.path = path
        self.place = place
        self.product_size = 0

    def error(self, found: str, expected: str, line: int) -> FormatError:
        return error_at(self.path, line, found, expected)

    def literal(self, form: Linear, strict: bool, line: int) -> Formula:
        """Turn ``form <= 0`` (``< 0`` when strict) into a formula."""
        coefficients, constant = form
        if not coefficients:
            return [()] if constant < 0 or (constant == 0 and not strict) else []
        if len(coefficients) == 1:
            [(key, coefficient)] = coefficients.items()
            if key >= 0:
                bound = ((key, -constant / coefficient),)
                return [(Block(upper=bound) if coefficient > 0 else Block(lower=bound),)]
        inputs = tuple(sorted((k, c) for k, c in coefficients.items() if k >= 0))
        outputs = tuple(sorted((-1 - k, c) for k, c in coefficients.items() if k < 0))
        if inputs and outputs:
            names = self.place("X", inputs[0][0])[0], self.place("Y", outputs[0][0])[0]
            found = f"a comparison of input {names[0]} with output {names[1]}"
            expected = "only inputs or only outputs in one comparison (a mixture is unsupported)"
            raise self.error(found, expected, line)
        constraint = (LinearConstraint(inputs, outputs, constant, strict, line),)
        return [(Block(inputs=constraint) if inputs else Block(outputs=constraint),)]

    def disjoin(self, formulas: Iterable[Formula], line: int) -> Formula:
        result = list(chain.from_iterable(formulas))
        self.check_count(len(result), line)
        return result

    def conjoin(self, formulas: Iterable[Formula], line: int) -> Formula:
        """Distribute: the formulas without ``or`` merge into one block that all products share."""
        plain: list[Block] = []
        branching: list[Formula] = []
        for formula in formulas:
            if not formula:
                return []
            if len(formula) == 1:
                plain.extend(formula[0])
            else:
                branching.append(formula)
        result: Formula = [(_merge(plain),) if plain else ()]
        for formula in branching:
            self.check_count(len(result) * len(formula), line)
            result = [left + right for left in result for right in formula]
            self.product_size += sum(map(len, result))
            if self.product_size > MAX_PRODUCT_SIZE:
                found = "assertions whose disjunctive normal form is too large"
                raise self.error(found, f"at most {MAX_PRODUCT_SIZE} parts", line)
        return result

    def check_count(self, count: int, line: int) -> None:
        if count > MAX_DISJUNCTS:
            found = f"assertions with at least {count} disjuncts in disjunctive normal form"
            raise self.error(found, f"at most {MAX_DISJUNCTS}", line)

    def disjuncts(self, formula: Formula, input_count: int, line: int) -> tuple[Disjunct, ...]:
        """Give every conjunction its box and ball; equal sequences of blocks share them.

        `line` is where the text ends, for what is wrong with all of it.
        """
        nothing = (None,) * input_count
        boxes: dict[tuple[Block, ...], _Box] = {(): _Box(nothing, nothing, False)}
        shapes: dict[tuple[object, ...], _Shape | None] = {}
        result = []
        for number, blocks in enumerate(formula, start=1):
            key: tuple[Block, ...] = ()
            box = boxes[key]
            for block in blocks:
                if block.lower or block.upper:
                    key = (*key, block)
                    if key not in boxes:
                        boxes[key] = _tighten(box, block)
                        self.check_boxes(len(boxes), input_count, line)
                    box = boxes[key]
            if box.empty:
                continue
            cylinders = tuple(chain.from_iterable(block.cylinders for block in blocks))
            inputs = tuple(chain.from_iterable(block.inputs for block in blocks))
            if cylinders and inputs:
                found = "a linear constraint over several inputs next to a Euclidean ball"
                raise self.error(
                    found, "bounds of single inputs (both is unsupported)", inputs[0].line
                )
            # Cylinders are compared by identity: those of one comparison are the same object.
            name = (key, *map(id, cylinders))
            if name not in shapes:
                shapes[name] = self.shape(box, cylinders, number)
                if cylinders:
                    self.check_boxes(len(boxes) + len(shapes), input_count, line)
            shape = shapes[name]
            if shape is not None:
                outputs = tuple(chain.from_iterable(block.outputs for block in blocks))
                result.append(Disjunct(shape.lower, shape.upper, inputs, outputs, shape.ball))
        return tuple(result)

    def shape(self, box: _Box, cylinders: tuple[Cylinder, ...], number: int) -> _Shape | None:
        """Return box and ball of a disjunct, or None if they do not meet."""
        if not cylinders:
            self.check_bounded(box, number)
            return _Shape(
                cast("tuple[Fraction, ...]", box.lower),
                cast("tuple[Fraction, ...]", box.upper),
                None,
            )
        first = cylinders[0]
        for other in cylinders[1:]:
            if (other.centre, other.squared_radius) != (first.centre, first.squared_radius):
                found = f"a second Euclidean ball next to that of line {first.line}"
                raise self.error(found, "one ball (more are unsupported)", other.line)
        gap = sum((_outside(box, i, c) ** 2 for i, c in first.centre), _ZERO)
        strict = any(cylinder.strict for cylinder in cylinders)
        if gap > first.squared_radius or (gap == first.squared_radius and strict):
            return None
        lower, upper = list(box.lower), list(box.upper)
        centre = dict(first.centre)
        reach = square_root(first.squared_radius, 64).hi
        for i, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
            if i not in centre:
                if low is None or low != high:
                    found = f"a Euclidean ball over some inputs, but not {self.place('X', i)[0]}"
                    expected = "all inputs in it, or bounds that fix the others (unsupported)"
                    raise self.error(found, expected, first.line)
                centre[i] = low
            elif low is None or high is None:
                lower[i] = centre[i] - reach if low is None else low
                upper[i] = centre[i] + reach if high is None else high
        ball = EuclideanBall(tuple(centre[i] for i in range(len(lower))), first.squared_radius)
        return _Shape(
            cast("tuple[Fraction, ...]", tuple(lower)),
            cast("tuple[Fraction, ...]", tuple(upper)),
            ball,
        )

    def check_boxes(self, count: int, input_count: int, line: int) -> None:
        if 2 * count * input_count > MAX_BOX_ENTRIES:
            found = f"at least {count} different boxes over {input_count} inputs"
            raise self.error(found, f"at most {MAX_BOX_ENTRIES} bounds in all", line)

    def check_bounded(self, box: _Box, number: int) -> None:
        for side, values in (("lower", box.lower), ("upper", box.upper)):
            for index, value in enumerate(values):
                if value is None:
                    name, line = self.place("X", index)
                    found = f"input {name} without {side} bound in disjunct {number}"
                    raise self.error(found, "a lower and an upper bound", line)


class _Kind(enum.Enum):
    PENDING = enum.auto()
    IGNORED = enum.auto()
    DECLARATION = enum.auto()
    ASSERTION = enum.auto()
    CONNECTIVE = enum.auto()
    COMPARISON = enum.auto()
    ARITHMETIC = enum.auto()


_CONNECTIVES: Final = frozenset({"and", "or", "not"})
_COMPARISONS: Final = frozenset({"<=", ">=", "<", ">", "="})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/"})
_COMMANDS: Final = {
    "declare-const": _Kind.DECLARATION,
    "assert": _Kind.ASSERTION,
    **dict.fromkeys(
        ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"), _Kind.IGNORED
    ),
}
_VERSION_2_COMMANDS: Final = frozenset({"vnnlib-version", "declare-network"})

# The inequalities whose conjunction is the comparison, and those whose disjunction negates it.
AFFIRMED: Final = {"<=": ("<=",), ">=": (">=",), "<": ("<",), ">": (">",), "=": ("<=", ">=")}
_NEGATED: Final = {"<=": (">",), ">=": ("<",), "<": (">=",), ">": ("<=",), "=": ("<", ">")}


@dataclass(slots=True, eq=False)
class _Frame:
    """An open parenthesis with what was read since; `positive` is the parity of the ``not``s."""

    line: int
    positive: bool
    kind: _Kind = _Kind.PENDING
    head: str = ""
    words: list[str] = field(default_factory=list)
    terms: list[Linear] = field(default_factory=list)
    formulas: list[Formula] = field(default_factory=list)


class _Reader:
    """One pass over the text: each closing parenthesis turns its frame into a term or formula.

    Whether a comparison stands below an odd number of ``not`` is known when its parenthesis opens,
    so negations are pushed to the comparisons on the way and never stored.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.line = 1
        self.frames: list[_Frame] = []
        self.declared: dict[str, dict[int, int]] = {"X": {}, "Y": {}}
        self.leaves: dict[str, tuple[Linear, Step]] = {}
        self.program: list[Step] = []
        self.assertions: list[Formula] = []
        self.normal_form = NormalForm(path, self.place)

    def error(self, found: str, expected: str, line: int | None = None) -> FormatError:
        return error_at(self.path, self.line if line is None else line, found, expected)

    def place(self, letter: str, index: int) -> tuple[str, int]:
        return f"{letter}_{index}", self.declared[letter][index]

    def scan(self, text: str) -> None:
        """Read all commands of the text."""
        if not text.strip():
            raise self.error("an empty file", "VNN-LIB 1.0 declarations and assertions")
        for token in _TOKEN.findall(text):
            first = token[0]
            if first == "\n":
                self.line += 1
            elif first == "(":
                self.open()
            elif first == ")":
                self.close()
            elif first == ";":
                continue
            elif first in '"|':
                if len(token) == 1:
                    raise self.error(f"an opening {first} without its end", f"a closing {first}")
                self.word(token)
                self.line += token.count("\n")
            else:
                self.word(token)
        if self.frames:
            outermost = self.frames[0]
            found = "the end of the file inside the parenthesis opened here"
            raise self.error(found, f"{len(self.frames)} more ')'", outermost.line)

    def open(self) -> None:
        if len(self.frames) >= MAX_NESTING:
            raise self.error(
                f"more than {MAX_NESTING} nested parentheses", f"at most {MAX_NESTING}"
            )
        if not self.frames:
            self.frames.append(_Frame(self.line, True))
            return
        parent = self.frames[-1]
        if parent.kind is _Kind.IGNORED:
            self.frames.append(_Frame(self.line, True, _Kind.IGNORED))
        elif parent.kind is _Kind.PENDING:
            raise self.error("'('", "a command" if len(self.frames) == 1 else "an operator")
        elif parent.kind is _Kind.DECLARATION:
            raise self.error("'(' in a declaration", "(declare-const NAME Real)")
        else:
            self.frames.append(_Frame(self.line, parent.positive != (parent.head == "not")))

    def word(self, token: str) -> None:
        if not self.frames:
            raise self.error(f"{shown(token)} outside a command", "'('")
        frame = self.frames[-1]
        if frame.kind is _Kind.PENDING:
            self.start(frame, token)
        elif frame.kind is _Kind.COMPARISON or frame.kind is _Kind.ARITHMETIC:
            leaf = self.leaves.get(token)
            if leaf is None:
                leaf = self.number(token)
            frame.terms.append(leaf[0])
            self.program.append(leaf[1])
        elif frame.kind is _Kind.DECLARATION:
            frame.words.append(token)
        elif frame.kind is not _Kind.IGNORED:
            raise self.error(f"{shown(token)} below {frame.head!r}", "a comparison or and, or, not")

    def start(self, frame: _Frame, token: str) -> None:
        """Take the first word of a parenthesis: a command or an operator."""
        frame.head = token
        if len(self.frames) == 1:
            if token in _VERSION_2_COMMANDS:
                raise self.error(
                    f"command {token!r} of VNN-LIB 2.0", "(vnnlib-version <2.0>) as first command"
                )
            if token not in _COMMANDS:
                raise self.error(
                    f"unknown command {shown(token)}", f"one of {', '.join(_COMMANDS)}"
                )
            frame.kind = _COMMANDS[token]
            return
        parent = self.frames[-2]
        if parent.kind is _Kind.COMPARISON or parent.kind is _Kind.ARITHMETIC:
            if token not in _ARITHMETIC:
                raise self.error(
                    f"operator {shown(token)} below {parent.head!r}", "one of + - * / there"
                )
            frame.kind = _Kind.ARITHMETIC
        elif token in _COMPARISONS:
            frame.kind = _Kind.COMPARISON
        elif token in _CONNECTIVES:
            frame.kind = _Kind.CONNECTIVE
        else:
            raise self.error(
                f"operator {shown(token)} below {parent.head!r}",
                "one of <= >= < > = and or not there",
            )

    def number(self, token: str) -> tuple[Linear, Step]:
        match = _NUMBER.fullmatch(token)
        if match is None:
            what = "undeclared variable" if _VARIABLE.fullmatch(token) else "unknown symbol"
            raise self.error(f"{what} {shown(token)}", "a declared X_i or Y_j, or a number")
        # Exact powers of ten grow with the exponent's value, not with its length in the file.
        exponent = (match[1] or "0").lstrip("+-").lstrip("0") or "0"
        if len(token) > MAX_NUMBER_LENGTH or len(exponent) > 9 or int(exponent) > MAX_EXPONENT:
            raise self.error(
                f"number {shown(token)}",
                f"at most {MAX_NUMBER_LENGTH} characters and an exponent up to {MAX_EXPONENT}",
            )
        value = Fraction(token)
        leaf = Linear({}, value), Step("number", 0, value)
        self.leaves[token] = leaf
        return leaf

    def close(self) -> None:
        if not self.frames:
            raise self.error("')' without an open parenthesis", "'('")
        frame = self.frames.pop()
        if frame.kind is _Kind.IGNORED:
            return
        if frame.kind is _Kind.PENDING:
            raise self.error("'()'", "an operator" if self.frames else "a command")
        if frame.kind is _Kind.DECLARATION:
            self.declare(frame)
            return
        if frame.kind is _Kind.ASSERTION:
            if len(frame.formulas) != 1:
                raise self.error(
                    f"assert with {len(frame.formulas)} formulas", "exactly one", frame.line
                )
            self.program.append(Step("assert", 1))
            self.assertions.append(frame.formulas[0])
            return
        parent = self.frames[-1]
        if frame.kind is _Kind.ARITHMETIC:
            parent.terms.append(self.calculate(frame))
            count = len(frame.terms)
        elif frame.kind is _Kind.COMPARISON:
            parent.formulas.append(self.compare(frame))
            count = len(frame.terms)
        else:
            parent.formulas.append(self.connect(frame))
            count = len(frame.formulas)
        self.program.append(Step(frame.head, count))

    def declare(self, frame: _Frame) -> None:
        if len(frame.words) != 2 or frame.words[1] != "Real":
            found = shown(" ".join(["declare-const", *frame.words]))
            raise self.error(found, "(declare-const NAME Real)", frame.line)
        name = frame.words[0]
        match = _VARIABLE.fullmatch(name)
        if match is None:
            raise self.error(f"variable {shown(name)}", "a name X_i or Y_j", frame.line)
        letter, index = match[1], int(match[2])
        if index in self.declared[letter]:
            first = self.declared[letter][index]
            found = f"a second declaration of {name}"
            raise self.error(found, f"only the one on line {first}", frame.line)
        self.declared[letter][index] = frame.line
        key = index if letter == "X" else -1 - index
        self.leaves[name] = Linear({key: _ONE}, _ZERO), Step(letter, index)

    def calculate(self, frame: _Frame) -> Linear:
        terms, line = frame.terms, frame.line
        if not terms or (frame.head == "/" and len(terms) == 1):
            raise self.error(f"{frame.head!r} with {len(terms)} operands", "more operands", line)
        if frame.head == "+":
            return add(terms)
        if frame.head == "-":
            rest = [negate(term) for term in terms[1:]]
            return add([terms[0], *rest]) if rest else negate(terms[0])
        result = terms[0]
        for term in terms[1:]:
            if frame.head == "/":
                if term.coefficients:
                    raise self.error("a division by a variable", "a constant divisor", line)
                if not term.constant:
                    raise self.error("a division by zero", "a divisor other than 0", line)
                result = scale(result, 1 / term.constant)
            elif not term.coefficients:
                result = scale(result, term.constant)
            elif not result.coefficients:
                result = scale(term, result.constant)
            else:
                found = "a product of two variables"
                raise self.error(found, "linear arithmetic: at most one factor with them", line)
        return result

    def compare(self, frame: _Frame) -> Formula:
        if len(frame.terms) < 2:
            found = f"{frame.head!r} with {len(frame.terms)} operands"
            raise self.error(found, "at least two", frame.line)
        relations = (AFFIRMED if frame.positive else _NEGATED)[frame.head]
        literals: list[Formula] = []
        for left, right in pairwise(frame.terms):
            for relation in relations:
                small, large = (left, right) if relation[0] == "<" else (right, left)
                difference = subtract(small, large)
                literals.append(
                    self.normal_form.literal(difference, len(relation) == 1, frame.line)
                )
        if len(literals) == 1:
            return literals[0]
        join = self.normal_form.conjoin if frame.positive else self.normal_form.disjoin
        return join(literals, frame.line)

    def connect(self, frame: _Frame) -> Formula:
        formulas = frame.formulas
        if not formulas or (frame.head == "not" and len(formulas) > 1):
            expected = "exactly one" if frame.head == "not" else "at least one"
            found = f"{frame.head!r} with {len(formulas)} operands"
            raise self.error(found, expected, frame.line)
        if len(formulas) == 1:
            return formulas[0]
        if (frame.head == "and") == frame.positive:
            return self.normal_form.conjoin(formulas, frame.line)
        return self.normal_form.disjoin(formulas, frame.line)

    def count(self, letter: str, role: str) -> int:
        lines = self.declared[letter]
        if not lines:
            raise self.error(f"no declared {role}", f"(declare-const {letter}_0 Real)")
        for index in range(len(lines)):
            if index not in lines:
                last = max(lines)
                found = f"{letter}_{last} declared, but not {letter}_{index}"
                raise self.error(found, f"{role}s numbered 0, 1, ... without gaps", lines[last])
        return len(lines)

    def specification(self) -> Specification:
        input_count = self.count("X", "input")
        output_count = self.count("Y", "output")
        formula = self.normal_form.conjoin(self.assertions, self.line)
        disjuncts = self.normal_form.disjuncts(formula, input_count, self.line)
        return Specification(self.path, input_count, output_count, disjuncts, tuple(self.program))
