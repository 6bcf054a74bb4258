"""VNN-LIB 1.0: from the text to a :class:`~bnncert.problem.vnnlib.query.Specification`.

A query declares the inputs ``X_0, X_1, ...`` and the outputs ``Y_0, Y_1, ...`` of a network and
asserts linear (in)equalities over them, joined by ``and``, ``or`` and ``not``. It is the *negated*
property: a point that satisfies all assertions is a violation. Numbers are kept as fractions.

The parser keeps an explicit stack instead of recursing, so deeply nested texts cannot exhaust the
Python stack.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final

from bnncert.errors import FormatError
from bnncert.problem.vnnlib.disjunctive_form import (
    Block,
    DisjunctiveForm,
    Formula,
    MonomialSum,
    add,
    difference,
    scale,
    subtract,
    variable,
)
from bnncert.problem.vnnlib.query import (
    COMPARISONS,
    CONNECTIVES,
    Instruction,
    Specification,
    error_at,
    shown,
)

MAX_NESTING: Final = 1_000
MAX_NUMBER_LENGTH: Final = 2_000
MAX_EXPONENT: Final = 2_000

# The last alternative matches a quote that is never closed, which the reader reports.
TOKEN: Final = re.compile(r'\n|[()]|[^\s()";|]+|;[^\n]*|"[^"]*"|\|[^|]*\||["|]')
# Nearly all commands of a large file are declarations and bounds, in this spelling.  They are read
# as wholes, and what does not match is read token by token; both ways give the same result.
_STEP: Final = re.compile(
    r"\(declare-const ([XY]_[0-9]+) Real\)"
    r"|\(assert \(([<>]=) (X_[0-9]+) (-?[0-9]+(?:\.[0-9]+)?)\)\)"
    f"|({TOKEN.pattern})"
)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_VARIABLE: Final = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")


def parse_version1(text: str, path: str) -> Specification:
    """Parse the text of a VNN-LIB 1.0 query; `path` is its name in error messages."""
    reader = _TextReader(path)
    reader.scan(text)
    return reader.specification()


class _Kind(enum.Enum):
    PENDING = enum.auto()
    IGNORED = enum.auto()
    DECLARATION = enum.auto()
    ASSERTION = enum.auto()
    CONNECTIVE = enum.auto()
    COMPARISON = enum.auto()
    ARITHMETIC = enum.auto()


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
    """An open parenthesis and its content so far.

    `positive` is False below an odd number of ``not``.
    """

    line: int
    positive: bool
    kind: _Kind = _Kind.PENDING
    head: str = ""
    words: list[str] = field(default_factory=list)
    terms: list[MonomialSum] = field(default_factory=list)
    formulas: list[Formula] = field(default_factory=list)


class _TextReader:
    """Reads the text in one pass; a closing parenthesis turns its frame into a term or formula.

    The parity of the ``not`` above a comparison is known when its parenthesis opens, so negations
    are applied to the comparisons directly and need no node of their own.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.line = 1
        self.frames: list[_Frame] = []
        self.declared: dict[str, dict[int, int]] = {"X": {}, "Y": {}}
        self.leaves: dict[str, tuple[MonomialSum, Instruction]] = {}
        self.program: list[Instruction] = []
        self.assertions: list[Formula] = []
        self.disjunctive = DisjunctiveForm(path, self.place)

    def error(self, found: str, expected: str, line: int | None = None) -> FormatError:
        return error_at(self.path, self.line if line is None else line, found, expected)

    def place(self, letter: str, index: int) -> tuple[str, int]:
        return f"{letter}_{index}", self.declared[letter][index]

    def scan(self, text: str) -> None:
        """Read all commands of the text."""
        if not text.strip():
            raise self.error("an empty file", "VNN-LIB 1.0 declarations and assertions")
        for name, relation, bounded, number, token in _STEP.findall(text):
            if token == "\n":
                self.line += 1
            elif token:
                self.token(token)
            elif name:
                if self.frames:
                    self.tokens(f"(declare-const {name} Real)")
                else:
                    self.declare(name, self.line)
            elif self.frames or bounded not in self.leaves:
                self.tokens(f"(assert ({relation} {bounded} {number}))")
            else:
                self.bound(bounded, relation, number)
        if self.frames:
            outermost = self.frames[0]
            found = "the end of the file inside the parenthesis opened here"
            raise self.error(found, f"{len(self.frames)} more ')'", outermost.line)

    def tokens(self, text: str) -> None:
        """Read a text of one line token by token."""
        for token in TOKEN.findall(text):
            self.token(token)

    def token(self, token: str) -> None:
        first = token[0]
        if first == "(":
            self.open()
        elif first == ")":
            self.close()
        elif first == ";":
            return
        elif first in '"|':
            if len(token) == 1:
                raise self.error(f"an opening {first} without its end", f"a closing {first}")
            self.word(token)
            self.line += token.count("\n")
        else:
            self.word(token)

    def bound(self, name: str, relation: str, number: str) -> None:
        """Read ``(assert (relation name number))`` with a declared input."""
        leaf = self.leaves.get(number)
        value = (leaf or self.number(number))[0].constant
        index = self.leaves[name][1].size
        upper = relation == "<="
        bound = ((index, value),)
        self.assertions.append([(Block(upper=bound) if upper else Block(lower=bound),)])
        self.program.append(Instruction("upper" if upper else "lower", index, value))

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
        """Read the first word after a parenthesis: a command or an operator."""
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
        elif token in COMPARISONS:
            frame.kind = _Kind.COMPARISON
        elif token in CONNECTIVES:
            frame.kind = _Kind.CONNECTIVE
        else:
            raise self.error(
                f"operator {shown(token)} below {parent.head!r}",
                "one of <= >= < > = and or not there",
            )

    def number(self, token: str) -> tuple[MonomialSum, Instruction]:
        match = _NUMBER.fullmatch(token)
        if match is None:
            what = "undeclared variable" if _VARIABLE.fullmatch(token) else "unknown symbol"
            raise self.error(f"{what} {shown(token)}", "a declared X_i or Y_j, or a number")
        # An exact power of ten grows with the value of the exponent, not with its length.
        exponent = (match[1] or "0").lstrip("+-").lstrip("0") or "0"
        if len(token) > MAX_NUMBER_LENGTH or len(exponent) > 9 or int(exponent) > MAX_EXPONENT:
            raise self.error(
                f"number {shown(token)}",
                f"at most {MAX_NUMBER_LENGTH} characters and an exponent up to {MAX_EXPONENT}",
            )
        value = Fraction(token)
        leaf = MonomialSum({}, value), Instruction("number", 0, value)
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
            if len(frame.words) != 2 or frame.words[1] != "Real":
                found = shown(" ".join(["declare-const", *frame.words]))
                raise self.error(found, "(declare-const NAME Real)", frame.line)
            self.declare(frame.words[0], frame.line)
            return
        if frame.kind is _Kind.ASSERTION:
            if len(frame.formulas) != 1:
                raise self.error(
                    f"assert with {len(frame.formulas)} formulas", "exactly one", frame.line
                )
            self.program.append(Instruction("assert", 1))
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
        self.program.append(Instruction(frame.head, count))

    def declare(self, name: str, line: int) -> None:
        match = _VARIABLE.fullmatch(name)
        if match is None:
            raise self.error(f"variable {shown(name)}", "a name X_i or Y_j", line)
        letter, index = match[1], int(match[2])
        if index in self.declared[letter]:
            first = self.declared[letter][index]
            found = f"a second declaration of {name}"
            raise self.error(found, f"only the one on line {first}", line)
        self.declared[letter][index] = line
        self.leaves[name] = variable(letter, index), Instruction(letter, index)

    def calculate(self, frame: _Frame) -> MonomialSum:
        terms, line = frame.terms, frame.line
        if not terms or (frame.head == "/" and len(terms) == 1):
            raise self.error(f"{frame.head!r} with {len(terms)} operands", "more operands", line)
        if frame.head == "+":
            return add(terms)
        if frame.head == "-":
            return difference(terms)
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
                form = subtract(small, large)
                literals.append(self.disjunctive.literal(form, len(relation) == 1, frame.line))
        return self.disjunctive.join(literals, frame.line, by_and=frame.positive)

    def connect(self, frame: _Frame) -> Formula:
        formulas = frame.formulas
        if not formulas or (frame.head == "not" and len(formulas) > 1):
            expected = "exactly one" if frame.head == "not" else "at least one"
            found = f"{frame.head!r} with {len(formulas)} operands"
            raise self.error(found, expected, frame.line)
        by_and = (frame.head == "and") == frame.positive
        return self.disjunctive.join(formulas, frame.line, by_and=by_and)

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
        formula = self.disjunctive.conjoin(self.assertions, self.line)
        disjuncts = self.disjunctive.disjuncts(formula, input_count, self.line)
        return Specification(self.path, input_count, output_count, disjuncts, tuple(self.program))
