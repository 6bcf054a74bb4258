"""VNN-LIB 2.0: the package `vnnlib` parses the text, and this module interprets the tree.

A query of version 2.0 declares networks with tensors of any name and shape and asserts polynomial
(in)equalities over their elements. The result is a
:class:`~bnncert.problem.vnnlib.query.Specification`: elements are numbered in row-major order,
those of a later network after those of the earlier ones, numbers are read from their digits and not
from the floats of the parser, and the only polynomial that is not linear is a Euclidean ball of
inputs, ``sum_i (x_i - c_i)^2 <= r^2`` in any arrangement of its terms.

The package trusts its input in places: it recurses on nested parentheses, stops at a NUL byte,
truncates the index 1.5 to 1 and accepts -1 as an index. The text is checked for all of these first.
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
from bnncert.problem.vnnlib.disjunctive_form import (
    MAX_BOX_ENTRIES,
    MAX_PRODUCT_SIZE,
    ZERO,
    Block,
    Cylinder,
    DisjunctiveForm,
    Formula,
    MonomialSum,
    add,
    difference,
    negate,
    product,
    scale,
    subtract,
    variable,
)
from bnncert.problem.vnnlib.query import (
    DeclaredNetwork,
    DeclaredTensor,
    Instruction,
    IntegerFormat,
    NumberFormat,
    Specification,
    error_at,
    shown,
)
from bnncert.problem.vnnlib.version1 import AFFIRMED, MAX_NESTING, MAX_NUMBER_LENGTH

# -- the text -----------------------------------------------------------------------------

# A pair of brackets is one token: its content is checked before the package parses it.
_TOKEN: Final = re.compile(
    r'\n|;[^\n]*|"(?:[^"\\]|\\.)*"|\((?:[a-z][a-z-]*)?|\)|\[[^\]]*\]?'
    r'|[A-Za-z]\w*|-?[0-9][0-9.]*|[^\x00-\x7f]|"',
    re.DOTALL | re.ASCII,
)
_VERSION: Final = re.compile(r"\(vnnlib-version\s*<([0-9]+\.[0-9]+)>")
_SHAPE: Final = re.compile(r"\[\s*(?:[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)*)?\]")
_SYNTAX_ERROR: Final = re.compile(r"at line ([0-9]+), column [0-9]+: '(.*)'\Z", re.DOTALL)


def import_parser(path: str) -> Any:
    """Import the package `vnnlib`; raise if it is missing or too old."""
    advice = "needs the package vnnlib 1.0 or later: pip install 'bnncert[vnnlib]'"
    if importlib.util.find_spec("vnnlib") is None:
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    package = importlib.import_module("vnnlib")
    # Releases before 1.0 are a different package of the same name, for VNN-LIB 1.0.
    if not hasattr(package, "parse_query_string"):
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    return package


class CheckedText:
    """The text that the package parses, and the lines of its declarations.

    `checked` differs from the original text in two respects. The ONNX names of inputs and outputs
    are removed: drafts of the standard have them, the package does not accept them, and they are
    not needed for a single input and output. The type "Real" of the standard is replaced by
    "real", which is its name in the package.
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
                self._open(heads, token[1:])
                words = 0
                version = _VERSION.match(text, match.start())
                if version is not None and version[1] != "2.0":
                    raise error_at(path, self.line, f"version <{version[1]}>", "<2.0>")
            elif first == ")":
                # The package reports a ')' without '('.
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
                self._number(token)
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

    def _open(self, heads: list[str], head: str) -> None:
        heads.append(head)
        if len(heads) > MAX_NESTING:
            found = f"more than {MAX_NESTING} nested parentheses"
            raise error_at(self.path, self.line, found, f"at most {MAX_NESTING}")
        if head.startswith("declare-"):
            self.declared.setdefault(head, []).append(self.line)

    def _number(self, token: str) -> None:
        """Raise if a number does not fit the machine type into which the package reads it."""
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

    def line_of(self, head: str, number: int = 0) -> int:
        """Find the line of a declaration."""
        lines = self.declared.get(head, [])
        return lines[number] if number < len(lines) else 1


def parse_tree(package: Any, text: str, path: str) -> Any:
    """Parse a text; what the package raises becomes a FormatError."""
    try:
        return package.parse_query_string(text)
    except Exception as error:  # the binding translates C++ exceptions to various types
        raise _translated(str(error), path) from error


def _translated(message: str, path: str) -> FormatError:
    """Translate a message of the package, a syntax error or a JSON list of type errors."""
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
    return FormatError(f"{path}:{line}: {what}: {hint}")


# -- the tree -----------------------------------------------------------------------------

MAX_ELEMENTS: Final = MAX_BOX_ENTRIES // 2

_DECLARATION: Final = re.compile(r"\(declare-(?:input|output)\s+(\w+)\s+(\w+)\s")

# Witnesses are rounded to float32 points where possible: these types contain all of them.
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

# The integer types of ONNX, which inputs may have; outputs are scores.
_INTEGER_TYPES: Final = {
    f"{prefix}int{bits}": IntegerFormat(f"{prefix}int{bits}", smallest, smallest + 2**bits - 1)
    for bits in (4, 8, 16, 32, 64)
    for prefix, smallest in (("", -(2 ** (bits - 1))), ("u", 0))
}


def parse_version2(text: str, path: str) -> Specification:
    """Parse the text of a VNN-LIB 2.0 query; `path` is its name in error messages."""
    package = import_parser(path)
    lines = CheckedText(path, text)
    tree = parse_tree(package, lines.checked, path)
    return _TreeReader(package, path, lines).specification(tree)


class _Value(NamedTuple):
    """An arithmetic expression and the line on which it starts."""

    polynomial: MonomialSum
    line: int


class _Tensor(NamedTuple):
    """The declared input or output of a network, and the number of its first element."""

    letter: str
    name: str
    shape: tuple[int, ...]
    line: int
    start: int

    @property
    def end(self) -> int:
        """The number after that of the last element."""
        return self.start + math.prod(self.shape)

    def element(self, index: int) -> str:
        """Write the element with this number, for messages."""
        index -= self.start
        indices: list[str] = []
        for size in reversed(self.shape):
            index, rest = divmod(index, size)
            indices.append(str(rest))
        return f"{self.name}[{','.join(reversed(indices))}]" if indices else self.name


class _TreeReader:
    """Interprets the tree in postorder, with explicit stacks instead of recursion."""

    def __init__(self, package: Any, path: str, lines: CheckedText) -> None:
        self.package = package
        self.path = path
        self.lines = lines
        self.disjunctive = DisjunctiveForm(path, self.place)
        self.tensors: dict[str, _Tensor] = {}
        self.leaves: dict[tuple[str, int], tuple[MonomialSum, Instruction]] = {}
        self.program: list[Instruction] = []
        self.values: list[_Value] = []
        self.formulas: list[tuple[Formula, int]] = []
        self.product_size = 0
        #: The type of the inputs if it is an integer type.
        self.integers: IntegerFormat | None = None
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
        tensor = next(t for t in self.of(letter) if index < t.end)
        return tensor.element(index), tensor.line

    def of(self, letter: str) -> list[_Tensor]:
        """List the inputs or outputs of all networks, in the order of their numbers."""
        return [tensor for tensor in self.tensors.values() if tensor.letter == letter]

    def specification(self, query: Any) -> Specification:
        networks = tuple(self.declare(network) for network in query.networks)
        number_format = self.input_format(networks)
        assertions = []
        for assertion in query.assertions:
            self.walk(assertion.expr)
            self.program.append(Instruction("assert", 1))
            assertions.append(self.formulas.pop()[0])
        last = self.lines.line
        inputs, outputs = (self.of(letter)[-1].end for letter in "XY")
        formula = self.disjunctive.conjoin(assertions, last)
        disjuncts = self.disjunctive.disjuncts(formula, inputs, last)
        return Specification(
            self.path, inputs, outputs, disjuncts, tuple(self.program), number_format, networks
        )

    def declare(self, network: Any) -> DeclaredNetwork:
        """Read the declaration of one network."""
        expected = "networks with one input and one output (more is unsupported)"
        if network.hidden:
            raise self.error("declare-hidden", expected, self.lines.line_of("declare-hidden"))
        declared = {}
        for letter, head, definitions in (
            ("X", "declare-input", network.inputs),
            ("Y", "declare-output", network.outputs),
        ):
            before = self.of(letter)
            line = self.lines.line_of(head, len(before))
            if len(definitions) != 1:
                line = self.lines.line_of(head, len(before) + 1)
                raise self.error(f"a second {head}", expected, line)
            (definition,) = definitions
            start = before[-1].end if before else 0
            name, shape = str(definition.name), tuple(definition.shape)
            tensor = _Tensor(letter, name, shape, line, start)
            if not 0 < tensor.end - start <= MAX_ELEMENTS - start:
                found = f"{name} with {tensor.end - start} elements"
                raise self.error(found, f"between 1 and {MAX_ELEMENTS}", line)
            self.tensors[name] = tensor
            kind = self.element_type(definition, letter == "X", line)
            declared[letter] = DeclaredTensor(name, kind, shape)
        return DeclaredNetwork(
            str(network.name),
            declared["X"],
            declared["Y"],
            str(network.equal_to) if network.equal_to else None,
            str(network.isometric_to) if network.isometric_to else None,
        )

    def input_format(
        self, networks: Sequence[DeclaredNetwork]
    ) -> NumberFormat | IntegerFormat | None:
        """Return the type of all inputs if it does not contain float32; it is that of each."""
        kinds = [_INTEGER_TYPES.get(n.input.element_type) for n in networks]
        narrow = [_NARROW_TYPES.get(n.input.element_type) for n in networks]
        for number, pair in enumerate(zip(kinds, narrow, strict=True)):
            if pair != (kinds[0], narrow[0]):
                found = f"inputs of types {networks[0].input.element_type} and "
                found += networks[number].input.element_type
                line = self.of("X")[number].line
                raise self.error(found, "inputs of one type (more is unsupported)", line)
        self.integers = kinds[0]
        return self.integers or narrow[0]

    def element_type(self, definition: Any, is_input: bool, line: int) -> str:
        # The package has one value for all unknown types; the text of the declaration has the name.
        match = _DECLARATION.match(str(definition))
        name = match[2] if match is not None else "?"
        if name not in (*_WIDE_TYPES, *_NARROW_TYPES, *(_INTEGER_TYPES if is_input else ())):
            known = ", ".join(["Real", "float32", "float64", *_NARROW_TYPES])
            known += " or an integer type of ONNX" if is_input else ""
            raise self.error(f"element type {shown(name)}", f"one of {known}", line)
        return name

    def walk(self, root: Any) -> None:
        """Translate one assertion to instructions of the program and one formula."""
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
            polynomial, instruction = self.variable(node)
        else:
            value = Fraction(str(node.lexeme))
            polynomial, instruction = MonomialSum({}, value), Instruction("number", 0, value)
        self.values.append(_Value(polynomial, int(node.line)))
        self.program.append(instruction)

    def variable(self, node: Any) -> tuple[MonomialSum, Instruction]:
        tensor = self.tensors[str(node.name)]
        letter, shape, indices = tensor.letter, tensor.shape, tuple(node.indices)
        if len(indices) != len(shape) or any(
            not 0 <= i < size for i, size in zip(indices, shape, strict=True)
        ):
            raise self.error(f"element {node}", f"one within the shape {list(shape)}", node.line)
        index = 0
        for i, size in zip(indices, shape, strict=True):
            index = index * size + i
        index += tensor.start
        if (letter, index) not in self.leaves:
            self.leaves[letter, index] = variable(letter, index), Instruction(letter, index)
        return self.leaves[letter, index]

    def calculate(self, operation: str, size: int) -> None:
        operands = self.values[-size:]
        del self.values[-size:]
        line = operands[0].line
        terms = [value.polynomial for value in operands]
        if self.integers is not None and any(k[0] >= 0 for t in terms for k in t.coefficients):
            # The standard does not say whether sums of integers wrap around.
            found = f"arithmetic with inputs of type {self.integers.name}"
            raise self.error(found, "comparisons of single inputs", line)
        if operation == "+":
            result = add(terms)
        elif operation == "-":
            result = difference(terms)
        else:
            result = terms[0]
            for term in terms[1:]:
                result = self.multiply(result, term, line)
        self.values.append(_Value(result, line))
        self.program.append(Instruction(operation, size))

    def multiply(self, left: MonomialSum, right: MonomialSum, line: int) -> MonomialSum:
        if not right.coefficients:
            return scale(left, right.constant)
        if not left.coefficients:
            return scale(right, left.constant)
        if any(len(key) > 1 for key in (*left.coefficients, *right.coefficients)):
            raise self.error("a product of three variables", "at most two (unsupported)", line)
        self.product_size += len(left.coefficients) * len(right.coefficients)
        if self.product_size > MAX_PRODUCT_SIZE:
            found = "products of sums that are too large"
            raise self.error(found, f"at most {MAX_PRODUCT_SIZE} terms", line)
        return product(left, right)

    def compare(self, operation: str) -> None:
        left, right = self.values[-2:]
        del self.values[-2:]
        upward = subtract(left.polynomial, right.polynomial)
        line = left.line
        differs = operation == "!="
        # The program has no instruction for x != y: it is written as the negation of x = y.
        self.program.append(Instruction("=" if differs else operation, 2))
        if differs:
            self.program.append(Instruction("not", 1))
        literals = []
        for relation in ("<", ">") if differs else AFFIRMED[operation]:
            form = upward if relation[0] == "<" else negate(upward)
            literals.append(self.literal(form, len(relation) == 1, line))
        self.formulas.append((self.disjunctive.join(literals, line, by_and=not differs), line))

    def literal(self, form: MonomialSum, strict: bool, line: int) -> Formula:
        """Turn ``form <= 0`` (``< 0`` when strict) into a formula."""
        squares = {key: c for key, c in form.coefficients.items() if len(key) == 2}
        if not squares:
            return self.disjunctive.literal(form, strict, line)
        coefficients = {key[0]: c for key, c in form.coefficients.items() if len(key) == 1}
        ball = "a Euclidean ball of inputs or something linear (more is unsupported)"
        for i, j in squares:
            if i < 0:
                name = self.place("Y", -1 - i)[0]
                raise self.error(f"a product with output {name}", ball, line)
            if i != j:
                names = self.place("X", i)[0], self.place("X", j)[0]
                raise self.error(f"a product of {names[0]} and {names[1]}", ball, line)
        factors = set(squares.values())
        if len(factors) > 1:
            raise self.error("squares with different factors", ball, line)
        for key in coefficients:
            if (key, key) not in squares:
                name = self.place("X", key)[0] if key >= 0 else self.place("Y", -1 - key)[0]
                raise self.error(f"squares next to {name} without its square", ball, line)
        # a sum x_i^2 + sum b_i x_i + k = a (sum (x_i - c_i)^2 - r^2) with c_i = -b_i / 2a.
        (factor,) = factors
        centre = tuple(
            (i, -coefficients.get(i, ZERO) / (2 * factor)) for i in sorted(i for i, _ in squares)
        )
        squared_radius = sum((c * c for _, c in centre), -form.constant / factor)
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
        formulas = [formula for formula, _ in parts]
        joined = self.disjunctive.join(formulas, line, by_and=operation == "and")
        self.formulas.append((joined, line))
