"""Comparisons of polynomials, and the disjunctive normal form of what and, or, not make of them.

Polynomials are affine forms ``sum_i a_i X_i + sum_j b_j Y_j + c`` and, in VNN-LIB 2.0, those of
degree two; their coefficients are rational.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, cast

from bnncert.errors import FormatError
from bnncert.model.rationals import square_root
from bnncert.problem.vnnlib.query import Disjunct, EuclideanBall, LinearConstraint, error_at

# -- polynomials --------------------------------------------------------------------------

ZERO: Final = Fraction(0)
ONE: Final = Fraction(1)


#: The numbers of the variables in a product, in ascending order; input ``X_i`` has the number
#: ``i``, output ``Y_j`` the number ``-1 - j``.
Monomial: TypeAlias = tuple[int, ...]


class MonomialSum(NamedTuple):
    """A polynomial; the dictionary is never changed after construction."""

    coefficients: dict[Monomial, Fraction]
    constant: Fraction


def variable(letter: str, index: int) -> MonomialSum:
    """Make the polynomial that is the variable ``X_index`` or ``Y_index``."""
    return MonomialSum({(index if letter == "X" else -1 - index,): ONE}, ZERO)


def add(terms: Sequence[MonomialSum]) -> MonomialSum:
    """Add up several of them; terms that cancel are left out."""
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
    return MonomialSum(total, constant)


def scale(term: MonomialSum, factor: Fraction) -> MonomialSum:
    """Multiply by a number."""
    if not factor:
        return MonomialSum({}, ZERO)
    return MonomialSum(
        {key: coefficient * factor for key, coefficient in term.coefficients.items()},
        term.constant * factor,
    )


def negate(term: MonomialSum) -> MonomialSum:
    """Multiply by -1."""
    return MonomialSum({key: -value for key, value in term.coefficients.items()}, -term.constant)


def difference(terms: Sequence[MonomialSum]) -> MonomialSum:
    """Subtract all others from the first; a single one is negated."""
    rest = [negate(term) for term in terms[1:]]
    return add([terms[0], *rest]) if rest else negate(terms[0])


def subtract(left: MonomialSum, right: MonomialSum) -> MonomialSum:
    """Subtract a polynomial from another."""
    # Nearly all comparisons of a large file are bounds X_i <= c or c <= X_i: the general sum is
    # not needed for them.
    if not right.coefficients and not left.constant:
        return MonomialSum(left.coefficients, -right.constant)
    if not left.coefficients and not right.constant:
        return MonomialSum(negate(right).coefficients, left.constant)
    return add([left, negate(right)])


def product(left: MonomialSum, right: MonomialSum) -> MonomialSum:
    """Multiply two polynomials of degree one."""
    found: dict[Monomial, Fraction] = {}
    for i, a in left.coefficients.items():
        for j, b in right.coefficients.items():
            key = tuple(sorted(i + j))
            found[key] = found.get(key, ZERO) + a * b
    return add(
        [
            MonomialSum({key: value for key, value in found.items() if value}, ZERO),
            scale(MonomialSum(left.coefficients, ZERO), right.constant),
            scale(MonomialSum(right.coefficients, ZERO), left.constant),
            MonomialSum({}, left.constant * right.constant),
        ]
    )


# -- normal form --------------------------------------------------------------------------

MAX_DISJUNCTS: Final = 100_000
MAX_PRODUCT_SIZE: Final = 5_000_000
MAX_BOX_ENTRIES: Final = 20_000_000


class Cylinder(NamedTuple):
    """``sum (X_i - c_i)^2 <= squared_radius`` over the pairs (i, c_i) of `centre`."""

    centre: tuple[tuple[int, Fraction], ...]
    squared_radius: Fraction
    strict: bool
    line: int


@dataclass(slots=True, eq=False)
class Block:
    """A conjunction of literals; blocks are compared by identity, so that boxes can be cached."""

    lower: tuple[tuple[int, Fraction], ...] = ()
    upper: tuple[tuple[int, Fraction], ...] = ()
    inputs: tuple[LinearConstraint, ...] = ()
    outputs: tuple[LinearConstraint, ...] = ()
    cylinders: tuple[Cylinder, ...] = ()


# A formula in disjunctive normal form: a disjunction of conjunctions of blocks. The empty
# disjunction is "false", the empty conjunction is "true".
Formula = list[tuple[Block, ...]]


def _merge(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    made: dict[str, Any] = {
        name: tuple(chain.from_iterable(getattr(block, name) for block in blocks))
        for name in Block.__slots__
    }
    return Block(**made)


class _Box(NamedTuple):
    """Bounds collected so far; ``None`` where there is none yet."""

    lower: tuple[Fraction | None, ...]
    upper: tuple[Fraction | None, ...]
    empty: bool


def _tighter(
    side: tuple[Fraction | None, ...],
    bounds: Iterable[tuple[int, Fraction]],
    pick: Callable[[Fraction, Fraction], Fraction],
) -> tuple[Fraction | None, ...]:
    """Tighten one side of a box by more bounds; an unchanged side keeps its tuple."""
    if not bounds:
        return side
    values = list(side)
    for index, value in bounds:
        known = values[index]
        values[index] = value if known is None else pick(known, value)
    return tuple(values)


def _tighten(box: _Box, block: Block) -> _Box:
    """Intersect a box with the bounds of a block."""
    lower, empty = _tighter(box.lower, block.lower, max), box.empty
    upper = _tighter(box.upper, block.upper, min)
    if not empty:
        for index, _ in chain(block.lower, block.upper):
            low, high = lower[index], upper[index]
            if low is not None and high is not None and low > high:
                empty = True
                break
    return _Box(lower, upper, empty)


def _with_implied_bounds(box: _Box, constraints: Sequence[LinearConstraint]) -> _Box:
    """Add bounds that linear constraints imply for inputs without their own, as X = Z does for Z.

    From ``sum_k a_k X_k + c <= 0`` follows ``a_i X_i <= -c - sum_k min a_k X_k`` over the others.
    """
    lower, upper = list(box.lower), list(box.upper)
    waiting, changed = list(constraints), True
    while waiting and changed:
        changed, later = False, []
        for constraint in waiting:
            least = [(i, a, lower[i] if a > 0 else upper[i]) for i, a in constraint.inputs]
            unknown = [i for i, _, bound in least if bound is None]
            if unknown:
                later.append(constraint)
            if len(unknown) > 1:
                continue
            known = sum((a * bound for _, a, bound in least if bound is not None), ZERO)
            for i, a, bound in least:
                side = upper if a > 0 else lower
                if side[i] is None and unknown in ([], [i]):
                    others = known if bound is None else known - a * bound
                    side[i], changed = (-constraint.constant - others) / a, True
        waiting = later
    empty = any(
        low is not None and high is not None and low > high
        for low, high in zip(lower, upper, strict=True)
    )
    return _Box(tuple(lower), tuple(upper), empty)


_Side: TypeAlias = tuple[Fraction, ...]


class _Shape(NamedTuple):
    """The box and the ball of a disjunct, without its linear constraints."""

    lower: _Side
    upper: _Side
    ball: EuclideanBall | None


def _outside(box: _Box, index: int, value: Fraction) -> Fraction:
    """Measure how far a value lies outside the interval of an input."""
    low, high = box.lower[index], box.upper[index]
    if low is not None and value < low:
        return low - value
    return value - high if high is not None and value > high else ZERO


class DisjunctiveForm:
    """Combines formulas in disjunctive normal form, within limits, and returns the disjuncts.

    `place` returns name and line of the declaration of an input ("X") or output ("Y") by its index.
    """

    def __init__(self, path: str, place: Callable[[str, int], tuple[str, int]]) -> None:
        self.path = path
        self.place = place
        self.product_size = 0

    def error(self, found: str, expected: str, line: int) -> FormatError:
        """Make the error for a line of this text."""
        return error_at(self.path, line, found, expected)

    def literal(self, form: MonomialSum, strict: bool, line: int) -> Formula:
        """Write ``form <= 0`` (``< 0`` when strict) as a formula, for a form of degree one."""
        coefficients, constant = form
        if not coefficients:
            return [()] if constant < 0 or (constant == 0 and not strict) else []
        if len(coefficients) == 1:
            [((key,), coefficient)] = coefficients.items()
            if key >= 0:
                bound = ((key, -constant / coefficient),)
                return [(Block(upper=bound) if coefficient > 0 else Block(lower=bound),)]
        inputs = tuple(sorted((k, c) for (k,), c in coefficients.items() if k >= 0))
        outputs = tuple(sorted((-1 - k, c) for (k,), c in coefficients.items() if k < 0))
        if inputs and outputs:
            names = self.place("X", inputs[0][0])[0], self.place("Y", outputs[0][0])[0]
            found = f"a comparison of input {names[0]} with output {names[1]}"
            expected = "only inputs or only outputs in one comparison (a mixture is unsupported)"
            raise self.error(found, expected, line)
        constraint = (LinearConstraint(inputs, outputs, constant, strict, line),)
        return [(Block(inputs=constraint) if inputs else Block(outputs=constraint),)]

    def join(self, formulas: Sequence[Formula], line: int, *, by_and: bool) -> Formula:
        """Join formulas by ``and`` or by ``or``."""
        if len(formulas) == 1:
            return formulas[0]
        return self.conjoin(formulas, line) if by_and else self.disjoin(formulas, line)

    def disjoin(self, formulas: Iterable[Formula], line: int) -> Formula:
        """Join formulas by ``or``."""
        result = list(chain.from_iterable(formulas))
        self.check_count(len(result), line)
        return result

    def conjoin(self, formulas: Iterable[Formula], line: int) -> Formula:
        """Join formulas by ``and``.

        Formulas without ``or`` are merged to one block, which all products share.
        """
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
        """Raise if a normal form has too many disjuncts, before it is computed."""
        if count > MAX_DISJUNCTS:
            found = f"assertions with at least {count} disjuncts in disjunctive normal form"
            raise self.error(found, f"at most {MAX_DISJUNCTS}", line)

    def disjuncts(self, formula: Formula, input_count: int, line: int) -> tuple[Disjunct, ...]:
        """Give every conjunction its box and ball; equal sequences of blocks share them.

        `line` is the last line of the text, for errors that concern all of it.
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
            # Cylinders are compared by identity: one comparison makes one object.
            name: tuple[object, ...] = (key, *map(id, cylinders))
            if inputs and (None in box.lower or None in box.upper):
                box = _with_implied_bounds(box, inputs)
                name = (*name, inputs)
                if box.empty:
                    continue
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
        """Find the box and the ball of a disjunct, or None if their intersection is empty."""
        if not cylinders:
            self.check_bounded(box, number)
            return _Shape(cast("_Side", box.lower), cast("_Side", box.upper), None)
        first = cylinders[0]
        for other in cylinders[1:]:
            if (other.centre, other.squared_radius) != (first.centre, first.squared_radius):
                found = f"a second Euclidean ball next to that of line {first.line}"
                raise self.error(found, "one ball (more are unsupported)", other.line)
        gap = sum((_outside(box, i, c) ** 2 for i, c in first.centre), ZERO)
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
        return _Shape(cast("_Side", tuple(lower)), cast("_Side", tuple(upper)), ball)

    def check_boxes(self, count: int, input_count: int, line: int) -> None:
        """Raise if the boxes would need too much memory."""
        if 2 * count * input_count > MAX_BOX_ENTRIES:
            found = f"at least {count} different boxes over {input_count} inputs"
            raise self.error(found, f"at most {MAX_BOX_ENTRIES} bounds in all", line)

    def check_bounded(self, box: _Box, number: int) -> None:
        """Raise if a box is unbounded."""
        for side, values in (("lower", box.lower), ("upper", box.upper)):
            for index, value in enumerate(values):
                if value is None:
                    name, line = self.place("X", index)
                    found = f"input {name} without {side} bound in disjunct {number}"
                    raise self.error(found, "a lower and an upper bound", line)
