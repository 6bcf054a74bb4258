"""Read VNN-LIB 2.0 queries: the package `vnnlib` parses, this module gives the tree its meaning.

A query of version 2.0 declares a network with tensors of any name and shape and asserts polynomial
(in)equalities over their elements. What leaves this module is the `Specification` of
`bnncert.formats.vnnlib.version1`: elements count in row-major order, numbers are taken from their
digits and never from the parser's floats, and the only polynomial that is not linear is a Euclidean
ball of inputs, ``sum_i (x_i - c_i)^2 <= r^2`` in any arrangement of its terms.

The package trusts its input in places: it recurses on nested parentheses, stops at a NUL byte,
cuts the index 1.5 to 1 and takes -1 for an index. The text is checked for all that beforehand.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from bnncert.errors import FormatError, MissingExtraError
from bnncert.formats.vnnlib.disjunctive_form import (
    MAX_BOX_ENTRIES,
    MAX_PRODUCT_SIZE,
    Block,
    Cylinder,
    DisjunctiveForm,
    Formula,
    Linear,
    add,
    error_at,
    negate,
    scale,
    shown,
)
from bnncert.formats.vnnlib.query import Instruction, NumberFormat, Specification
from bnncert.formats.vnnlib.version1 import AFFIRMED, MAX_NESTING, MAX_NUMBER_LENGTH

__all__ = ["parse_vnnlib2"]

MAX_ELEMENTS: Final = MAX_BOX_ENTRIES // 2

_ZERO: Final = Fraction(0)
_ONE: Final = Fraction(1)

# Brackets are one token: what stands between them is checked before the package sees it.
_TOKEN: Final = re.compile(
    r'\n|;[^\n]*|"(?:[^"\\]|\\.)*"|\((?:[a-z][a-z-]*)?|\)|\[[^\]]*\]?'
    r'|[A-Za-z]\w*|-?[0-9][0-9.]*|[^\x00-\x7f]|"',
    re.DOTALL | re.ASCII,
)
_VERSION: Final = re.compile(r"\(vnnlib-version\s*<([0-9]+\.[0-9]+)>")
_SHAPE: Final = re.compile(r"\[\s*(?:[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)*)?\]")
_DECLARATION: Final = re.compile(r"\(declare-(?:input|output)\s+(\w+)\s+(\w+)\s")
_SYNTAX_ERROR: Final = re.compile(r"at line ([0-9]+), column [0-9]+: '(.*)'\Z", re.DOTALL)

# Witnesses are moved to float32 points wherever that is possible, and these types hold those.
_WIDE_TYPES: Final = frozenset({"real", "float32", "float64"})


def _float_type(name: str, digits: int, smallest_normal: int, largest: int) -> NumberFormat:
    return NumberFormat(name, digits, smallest_normal - digits + 1, Fraction(largest))


# Digits, exponent of the smallest normal number and largest number, as ONNX defines the types.
_NARROW_TYPES: Final = {
    made.name: made
    for made in (
        _float_type("float16", 11, -14, 65504),
        _float_type("bfloat16", 8, -126, 255 * 2**120),
        _float_type("float8e4m3fn", 4, -6, 448),
        _float_type("float8e4m3fnuz", 4, -7, 240),
        _float_type("float8e5m2", 3, -14, 57344),
        _float_type("float8e5m2fnuz", 3, -15, 57344),
        _float_type("float4e2m1", 2, 0, 6),
    )
}


def parse_vnnlib2(text: str, path: str = "<string>") -> Specification:
    """Parse the text of a VNN-LIB 2.0 query.

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
        When the text is not a VNN-LIB 2.0 query, or one that is not supported.
    MissingExtraError
        When the package `vnnlib` is not installed.
    """
    package = _package(path)
    lines = _Lines(path, text)
    tree = _parse(package, lines.checked, path)
    return _Reader(package, path, lines).specification(tree)


def _package(path: str) -> Any:
    advice = "needs the package vnnlib 1.0 or later: pip install 'bnncert[vnnlib]'"
    if importlib.util.find_spec("vnnlib") is None:
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    package = importlib.import_module("vnnlib")
    # Versions before 1.0 are another package of the same name, for VNN-LIB 1.0.
    if not hasattr(package, "parse_query_string"):
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    return package


class _Lines:
    """The text as the package may see it, and the lines of its declarations.

    `checked` differs from the text in two places. The ONNX names of inputs and outputs are left
    out: drafts of the standard have them, the package does not, and a single input and output need
    none. And the type that the standard calls "Real" is "real", as the package knows it.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.line = 1
        self.declared: dict[str, list[int]] = {}
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise error_at(path, line, "a NUL byte", "VNN-LIB 2.0 text")
        heads: list[str] = []
        pieces: list[str] = []
        copied = words = 0
        for match in _TOKEN.finditer(text):
            token = match[0]
            first = token[0]
            instead = token
            declaring = bool(heads) and heads[-1] in ("declare-input", "declare-output")
            if first == "(":
                self.open(heads, token[1:])
                words = 0
                version = _VERSION.match(text, match.start())
                if version is not None and version[1] != "2.0":
                    raise error_at(path, self.line, f"version <{version[1]}>", "<2.0>")
            elif first == ")":
                # One ')' too many is the package's to report.
                del heads[-1:]
            elif first == "[":
                if _SHAPE.fullmatch(token) is None:
                    expected = "whole numbers below 10^9 with commas between"
                    raise error_at(path, self.line, f"{shown(token)}", expected)
            elif first == '"':
                if len(token) == 1:
                    raise error_at(path, self.line, 'an opening " without its end', 'a closing "')
                if declaring:
                    instead = "\n" * token.count("\n")
            elif first > "\x7f":
                expected = "ASCII text outside comments"
                raise error_at(path, self.line, f"character {token!r}", expected)
            elif first in "-0123456789":
                self.number(token)
            elif first.isalpha() and declaring:
                words += 1
                # The first word is the name of the tensor, the second its type.
                if words == 2 and token == "Real":
                    instead = "real"
            if instead is not token:
                pieces += text[copied : match.start()], instead
                copied = match.end()
            self.line += token.count("\n")
        self.checked = "".join([*pieces, text[copied:]])

    def open(self, heads: list[str], head: str) -> None:
        heads.append(head)
        if len(heads) > MAX_NESTING:
            found = f"more than {MAX_NESTING} nested parentheses"
            raise error_at(self.path, self.line, found, f"at most {MAX_NESTING}")
        if head.startswith("declare-"):
            self.declared.setdefault(head, []).append(self.line)

    def number(self, token: str) -> None:
        """Refuse what does not fit the machine numbers into which the package reads it."""
        if len(token) < 19:
            return
        fits = len(token) <= MAX_NUMBER_LENGTH and "." in token
        if fits and token.count(".") == 1:
            size = abs(float(token + "0"))
            nothing = not token.strip("-0.")
            fits = nothing or sys.float_info.min <= size < math.inf
        if not fits:
            expected = "whole numbers below 10^18, decimals between 1e-307 and 1e308"
            raise error_at(self.path, self.line, f"number {shown(token)}", expected)

    def of(self, head: str, number: int = 0) -> int:
        """Return the line of a declaration."""
        lines = self.declared.get(head, [])
        return lines[number] if number < len(lines) else 1


def _parse(package: Any, text: str, path: str) -> Any:
    try:
        return package.parse_query_string(text)
    except Exception as error:  # the binding turns C++ exceptions into various kinds
        raise _translated(str(error), path) from error


def _translated(message: str, path: str) -> FormatError:
    """Make one line of the package's message: a syntax error or a JSON list of type errors."""
    syntax = _SYNTAX_ERROR.search(message)
    if syntax is not None:
        found = shown(syntax[2]) if syntax[2] else "the end of the file"
        return error_at(path, int(syntax[1]), found, "what the syntax of VNN-LIB 2.0 has there")
    try:
        first = json.loads(message)["errors"][0]
        line, what = int(first["line"]), f"{first['message']} {first['offendingSymbol']!r}"
        hint = str(first["hint"])[:200]
    except (ValueError, LookupError, TypeError):
        line, what, hint = 1, "it cannot be parsed", message or "no reason given"
    return FormatError(" ".join(f"{path}:{line}: {what}: {hint}".splitlines()))


class Quadratic(NamedTuple):
    """A polynomial of degree 2; `squares` has the products, keyed as in `Linear`, smaller first."""

    linear: Linear
    squares: dict[tuple[int, int], Fraction]

    @property
    def is_constant(self) -> bool:
        return not self.linear.coefficients and not self.squares


def _sum(terms: Sequence[Quadratic]) -> Quadratic:
    linear = add([term.linear for term in terms])
    largest = max(range(len(terms)), key=lambda k: len(terms[k].squares))
    total = dict(terms[largest].squares)
    for k, term in enumerate(terms):
        if k != largest:
            for key, coefficient in term.squares.items():
                total[key] = total.get(key, _ZERO) + coefficient
                if not total[key]:
                    del total[key]
    return Quadratic(linear, total)


def _scaled(term: Quadratic, factor: Fraction) -> Quadratic:
    squares = {key: value * factor for key, value in term.squares.items()} if factor else {}
    return Quadratic(scale(term.linear, factor), squares)


def _opposite(term: Quadratic) -> Quadratic:
    return Quadratic(negate(term.linear), {key: -v for key, v in term.squares.items()})


def _product(left: Linear, right: Linear) -> Quadratic:
    squares: dict[tuple[int, int], Fraction] = {}
    for i, a in left.coefficients.items():
        for j, b in right.coefficients.items():
            key = (i, j) if i <= j else (j, i)
            squares[key] = squares.get(key, _ZERO) + a * b
    linear = add(
        [
            scale(Linear(left.coefficients, _ZERO), right.constant),
            scale(Linear(right.coefficients, _ZERO), left.constant),
            Linear({}, left.constant * right.constant),
        ]
    )
    return Quadratic(linear, {key: value for key, value in squares.items() if value})


class _Value(NamedTuple):
    """An arithmetic expression and the line of its first leaf."""

    polynomial: Quadratic
    line: int


class _Tensor(NamedTuple):
    """The declared input or output."""

    name: str
    shape: tuple[int, ...]
    line: int

    def element(self, index: int) -> str:
        """Return how a query writes the element with this flat index."""
        indices: list[str] = []
        for size in reversed(self.shape):
            index, rest = divmod(index, size)
            indices.append(str(rest))
        return f"{self.name}[{','.join(reversed(indices))}]" if indices else self.name


class _Reader:
    """Walks the tree with explicit stacks; children come before their parent."""

    def __init__(self, package: Any, path: str, lines: _Lines) -> None:
        self.package = package
        self.path = path
        self.lines = lines
        self.disjunctive = DisjunctiveForm(path, self.place)
        self.tensors: dict[str, _Tensor] = {}
        self.letters: dict[str, str] = {}
        self.leaves: dict[tuple[str, int], tuple[Quadratic, Instruction]] = {}
        self.program: list[Instruction] = []
        self.values: list[_Value] = []
        self.formulas: list[tuple[Formula, int]] = []
        self.product_size = 0
        self.arithmetic = {
            package.Plus: "+",
            package.Minus: "-",
            package.Negate: "-",
            package.Multiply: "*",
        }
        self.comparisons = {
            package.LessEqual: "<=",
            package.LessThan: "<",
            package.GreaterEqual: ">=",
            package.GreaterThan: ">",
            package.Equal: "=",
            package.NotEqual: "!=",
        }
        self.connectives = {package.And: "and", package.Or: "or"}

    def error(self, found: str, expected: str, line: int) -> FormatError:
        return error_at(self.path, line, found, expected)

    def place(self, letter: str, index: int) -> tuple[str, int]:
        tensor = self.tensors[letter]
        return tensor.element(index), tensor.line

    def specification(self, query: Any) -> Specification:
        number_format = self.declare(query.networks)
        assertions = []
        for assertion in query.assertions:
            self.walk(assertion.expr)
            self.program.append(Instruction("assert", 1))
            assertions.append(self.formulas.pop()[0])
        last = self.lines.line
        inputs, outputs = (math.prod(self.tensors[letter].shape) for letter in "XY")
        formula = self.disjunctive.conjoin(assertions, last)
        disjuncts = self.disjunctive.disjuncts(formula, inputs, last)
        return Specification(
            self.path, inputs, outputs, disjuncts, tuple(self.program), number_format
        )

    def declare(self, networks: Sequence[Any]) -> NumberFormat | None:
        """Take the declarations; return the type of the inputs if it is a narrow one."""
        expected = "one network with one input and one output (more is unsupported)"
        if len(networks) != 1:
            line = self.lines.of("declare-network", 1)
            raise self.error("a second declare-network", expected, line)
        (network,) = networks
        if network.equal_to or network.isometric_to:
            line = self.lines.of("declare-network")
            raise self.error("a network declared equal or isomorphic to another", expected, line)
        if network.hidden:
            raise self.error("declare-hidden", expected, self.lines.of("declare-hidden"))
        types = {}
        for letter, head, definitions in (
            ("X", "declare-input", network.inputs),
            ("Y", "declare-output", network.outputs),
        ):
            if len(definitions) != 1:
                raise self.error(f"a second {head}", expected, self.lines.of(head, 1))
            (definition,) = definitions
            line = self.lines.of(head)
            tensor = _Tensor(str(definition.name), tuple(definition.shape), line)
            count = math.prod(tensor.shape)
            if not 0 < count <= MAX_ELEMENTS:
                found = f"{tensor.name} with {count} elements"
                raise self.error(found, f"between 1 and {MAX_ELEMENTS}", line)
            self.tensors[letter] = tensor
            self.letters[tensor.name] = letter
            types[letter] = self.element_type(definition, line)
        return _NARROW_TYPES.get(types["X"])

    def element_type(self, definition: Any, line: int) -> str:
        # The package has one value for all types it does not know: the text of the node has more.
        match = _DECLARATION.match(str(definition))
        name = match[2] if match is not None else "?"
        if name not in _WIDE_TYPES and name not in _NARROW_TYPES:
            known = ", ".join(["Real", "float32", "float64", *_NARROW_TYPES])
            raise self.error(f"element type {shown(name)}", f"one of {known}", line)
        return name

    def walk(self, root: Any) -> None:
        """Turn one assertion into steps of the program and one formula."""
        waiting: list[tuple[Any, int]] = [(root, -1)]
        while waiting:
            node, size = waiting.pop()
            if size < 0:
                children = node.children()
                if not children:
                    self.leaf(node)
                    continue
                waiting.append((node, len(children)))
                waiting.extend((child, -1) for child in reversed(children))
            elif type(node) in self.arithmetic:
                self.calculate(self.arithmetic[type(node)], size)
            elif type(node) in self.comparisons:
                self.compare(self.comparisons[type(node)])
            else:
                self.connect(self.connectives[type(node)], size)

    def leaf(self, node: Any) -> None:
        if isinstance(node, self.package.Var):
            polynomial, step = self.variable(node)
        else:
            value = Fraction(str(node.lexeme))
            polynomial, step = Quadratic(Linear({}, value), {}), Instruction("number", 0, value)
        self.values.append(_Value(polynomial, int(node.line)))
        self.program.append(step)

    def variable(self, node: Any) -> tuple[Quadratic, Instruction]:
        letter = self.letters[str(node.name)]
        shape, indices = self.tensors[letter].shape, tuple(node.indices)
        if len(indices) != len(shape) or any(
            not 0 <= i < size for i, size in zip(indices, shape, strict=True)
        ):
            raise self.error(f"element {node}", f"one within the shape {list(shape)}", node.line)
        index = 0
        for i, size in zip(indices, shape, strict=True):
            index = index * size + i
        if (letter, index) not in self.leaves:
            key = index if letter == "X" else -1 - index
            made = Quadratic(Linear({key: _ONE}, _ZERO), {}), Instruction(letter, index)
            self.leaves[letter, index] = made
        return self.leaves[letter, index]

    def calculate(self, operation: str, size: int) -> None:
        operands = self.values[-size:]
        del self.values[-size:]
        line = operands[0].line
        terms = [value.polynomial for value in operands]
        if operation == "+":
            result = _sum(terms)
        elif operation == "-":
            rest = [_opposite(term) for term in terms[1:]]
            result = _sum([terms[0], *rest]) if rest else _opposite(terms[0])
        else:
            result = terms[0]
            for term in terms[1:]:
                result = self.multiply(result, term, line)
        self.values.append(_Value(result, line))
        self.program.append(Instruction(operation, size))

    def multiply(self, left: Quadratic, right: Quadratic, line: int) -> Quadratic:
        if right.is_constant:
            return _scaled(left, right.linear.constant)
        if left.is_constant:
            return _scaled(right, left.linear.constant)
        if left.squares or right.squares:
            raise self.error("a product of three variables", "at most two (unsupported)", line)
        self.product_size += len(left.linear.coefficients) * len(right.linear.coefficients)
        if self.product_size > MAX_PRODUCT_SIZE:
            found = "products of sums that are too large"
            raise self.error(found, f"at most {MAX_PRODUCT_SIZE} terms", line)
        return _product(left.linear, right.linear)

    def compare(self, operation: str) -> None:
        left, right = self.values[-2:]
        del self.values[-2:]
        difference = _sum([left.polynomial, _opposite(right.polynomial)])
        line = left.line
        differs = operation == "!="
        # x != y is what x = y is not, and the program has no step of its own for it.
        self.program.append(Instruction("=" if differs else operation, 2))
        if differs:
            self.program.append(Instruction("not", 1))
        literals = []
        for relation in ("<", ">") if differs else AFFIRMED[operation]:
            form = difference if relation[0] == "<" else _opposite(difference)
            literals.append(self.literal(form, len(relation) == 1, line))
        join = self.disjunctive.disjoin if differs else self.disjunctive.conjoin
        self.formulas.append((literals[0] if len(literals) == 1 else join(literals, line), line))

    def literal(self, form: Quadratic, strict: bool, line: int) -> Formula:
        """Turn ``form <= 0`` (``< 0`` when strict) into a formula."""
        if not form.squares:
            return self.disjunctive.literal(form.linear, strict, line)
        coefficients = form.linear.coefficients
        ball = "a Euclidean ball of inputs or something linear (more is unsupported)"
        for i, j in form.squares:
            if i < 0:
                name = self.place("Y", -1 - i)[0]
                raise self.error(f"a product with output {name}", ball, line)
            if i != j:
                names = self.place("X", i)[0], self.place("X", j)[0]
                raise self.error(f"a product of {names[0]} and {names[1]}", ball, line)
        factors = set(form.squares.values())
        if len(factors) > 1:
            raise self.error("squares with different factors", ball, line)
        for key in coefficients:
            if (key, key) not in form.squares:
                name = self.place("X", key)[0] if key >= 0 else self.place("Y", -1 - key)[0]
                raise self.error(f"squares next to {name} without its square", ball, line)
        # a sum x_i^2 + sum b_i x_i + k = a (sum (x_i - c_i)^2 - r^2) with c_i = -b_i / 2a.
        (factor,) = factors
        centre = tuple(
            (i, -coefficients.get(i, _ZERO) / (2 * factor))
            for i in sorted(i for i, _ in form.squares)
        )
        squared_radius = sum((c * c for _, c in centre), -form.linear.constant / factor)
        if factor < 0:
            if squared_radius < 0 or (squared_radius == 0 and not strict):
                return [()]
            raise self.error("the outside of a Euclidean ball", ball, line)
        if squared_radius < 0 or (squared_radius == 0 and strict):
            return []
        return [(Block(cylinders=(Cylinder(centre, squared_radius, strict, line),)),)]

    def connect(self, operation: str, size: int) -> None:
        parts = self.formulas[-size:]
        del self.formulas[-size:]
        line = parts[0][1]
        self.program.append(Instruction(operation, size))
        join = self.disjunctive.conjoin if operation == "and" else self.disjunctive.disjoin
        formulas = [formula for formula, _ in parts]
        self.formulas.append((formulas[0] if size == 1 else join(formulas, line), line))
