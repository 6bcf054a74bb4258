"""An independent oracle for small ONNX models: what their nodes say, in exact arithmetic.

It shares no code with the package.  The graph is walked node by node over rationals; some pixels
may be left free, and are then variables.  Up to the first sign everything is affine in them, so
that their region falls into cells on which all first signs are constant.  The cells are found by
cutting polytopes, which are lists of rational vertices, plane by plane; the rest of the graph is
run once for every sign pattern that occurs.

Batch normalisation takes a square root.  A value behind it is known up to its positive deviation,
as a rational plus the root of a rational, and its sign is decided by comparing squares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from operator import add, mul
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, helper, numpy_helper

Rational: TypeAlias = int | Fraction
Point: TypeAlias = tuple[Fraction, ...]
Objects: TypeAlias = npt.NDArray[Any]

#: Bits of the square roots that stand for irrational ones, and one over how near to zero a value
#: may come before they are no longer enough.
BITS = 256
TINY = 2**100

#: Values nearer to zero than this may get another sign from float32.
FLOAT32_DOUBT = 1e-4


class DegenerateError(Exception):
    """Irrational planes meet where planes in general position do not."""


# -- numbers ------------------------------------------------------------------------------


def sign(value: Rational) -> int:
    return (value > 0) - (value < 0)


def exact(number: float) -> Rational:
    """Return a float as the rational that it is, small integers as such because they are faster."""
    return int(number) if number == int(number) else Fraction(number)


def rational_root(square: Fraction) -> Fraction | None:
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    found = Fraction(top, bottom)
    return found if found * found == square else None


@cache
def signed_root(square: Fraction) -> Fraction:
    """Return sgn(s) sqrt |s|, cut off after BITS bits."""
    scaled = abs(square.numerator) * square.denominator << 2 * BITS
    return sign(square) * Fraction(math.isqrt(scaled), square.denominator << BITS)


@dataclass(frozen=True)
class Form:
    """slope.x + constant + sgn(root) sqrt |root|, of the free pixels x."""

    slope: tuple[Rational, ...]
    constant: Rational
    root: Fraction = Fraction(0)

    def __add__(self, other: Form | Rational) -> Form:
        assert not self.root
        if not isinstance(other, Form):
            return replace(self, constant=self.constant + other)
        assert not other.root
        slope = tuple(p + q for p, q in zip(self.slope, other.slope, strict=True))
        return Form(slope, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: Rational) -> Form:
        assert not self.root
        return Form(tuple(factor * p for p in self.slope), factor * self.constant)

    __rmul__ = __mul__

    def at(self, point: Sequence[Fraction]) -> Fraction:
        moved = sum((p * x for p, x in zip(self.slope, point, strict=True)), Fraction(0))
        return moved + self.constant + (signed_root(self.root) if self.root else 0)

    def constant_sign(self) -> int:
        """Return the sign of a form without slope, by comparing squares."""
        assert not any(self.slope)
        if sign(self.constant) * sign(self.root) >= 0:
            return sign(self.constant) or sign(self.root)
        larger = self.constant * self.constant > abs(self.root)
        # A root that is rational was added to the constant, so that the squares differ.
        return sign(self.constant) if larger else sign(self.root)


@dataclass(frozen=True)
class Extreme:
    """The largest of several values, or the lowest, where it is not known yet which one that is."""

    parts: tuple[Form | Rational, ...]
    lowest: bool = False


Value: TypeAlias = "Form | Extreme | Rational"


def apply(value: Value, function: Callable[[Any], Any], falls: bool) -> Value:
    """Apply a monotone function, which `falls` or not."""
    if isinstance(value, Extreme):
        parts = tuple(function(part) for part in value.parts)
        return Extreme(parts, value.lowest != falls)
    return function(value)  # type: ignore[no-any-return]


def normalised(
    value: Value, gamma: Rational, beta: Rational, mean: Rational, square: Rational
) -> Value:
    """Return gamma (u - mean) / s + beta times s, with s the root of `square`."""
    shift = Fraction(beta) * abs(Fraction(beta)) * square
    root = rational_root(abs(shift))

    def one(u: Form | Rational) -> Form:
        centred = (u + -mean) * gamma
        if not isinstance(centred, Form):
            centred = Form((), centred)
        if root is not None:
            return centred + sign(shift) * root
        return replace(centred, root=shift)

    return apply(value, one, gamma < 0)


# -- graphs -------------------------------------------------------------------------------


@dataclass
class Run:
    """One walk through a graph from given pixels.

    Attributes
    ----------
    states
        The sign of every form that has a slope, on the cell that the walk is about.
    rounds
        Whether a float32 execution rounds before a sign, even where all pixels are short numbers.
    bare_zero
        Whether a `Sign` met 0 and nothing behind it says what that shall be (+1 is taken).
    delicate
        Whether a sign hangs on rounding, so that float32 may see another one.
    """

    states: dict[Form, int] = field(default_factory=dict)
    rounds: bool = True
    bare_zero: bool = False
    delicate: bool = False

    def sign_of(self, value: Value) -> int:
        if isinstance(value, Extreme):
            signs = [self.sign_of(part) for part in value.parts]
            return min(signs) if value.lowest else max(signs)
        if isinstance(value, Form):
            if any(value.slope):
                return self.states[value]
            size = float(value.at((Fraction(0),) * len(value.slope)))
            self.delicate |= abs(size) < FLOAT32_DOUBT
            return value.constant_sign()
        # Sums of signs are integers, which no execution rounds.
        doubtful = value != 0 if isinstance(value, int) else self.rounds or value != 0
        self.delicate |= doubtful and abs(float(value)) < FLOAT32_DOUBT
        return sign(value)


class Graph:
    """A chain of nodes, each of which reads what the one before wrote."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.constants: dict[str, Objects] = {}
        for tensor in model.graph.initializer:
            stored = numpy_helper.to_array(tensor)
            values = [exact(v) for v in stored.reshape(-1).tolist()]
            filled = np.empty(len(values), dtype=object)
            filled[:] = values
            self.constants[tensor.name] = filled.reshape(stored.shape)
        signs = [k for k, n in enumerate(self.nodes) if n.op_type in ("Sign", "GreaterOrEqual")]
        self.first_sign = signs[0]
        before = self.nodes[: signs[-1]]
        #: Weights other than integers count as well: their multiples are not exact.
        self.rounds = any(n.op_type in ("BatchNormalization", "Mul") for n in before) or any(
            not all(isinstance(v, int) for v in self.constants[n.input[1]].flat)
            for n in before
            if n.op_type in ("Conv", "MatMul", "Gemm")
        )
        last = [n.op_type for n in self.nodes[-2:]]
        #: What the scores are divided by at the end; margins are given without it.
        self.divisor: Rational = 1
        if "Div" in last:
            self.divisor = self.constants[self.nodes[-2 + last.index("Div")].input[1]].item()

    def before_signs(self, pixels: Objects) -> Objects:
        """Return what the first sign is taken of."""
        return self._walk(pixels, 0, self.first_sign, Run())

    def scores(self, values: Objects, run: Run) -> tuple[Fraction, ...]:
        """Go on to the scores from what the first sign is taken of."""
        out = self._walk(values, self.first_sign, len(self.nodes), run)
        return tuple(Fraction(v) for v in out.reshape(-1).tolist())

    def evaluate(self, pixels: Sequence[Fraction], shape: tuple[int, ...]) -> tuple[Any, Run]:
        """Return the scores at one point, and how safe they are."""
        filled = np.empty(len(pixels), dtype=object)
        filled[:] = list(pixels)
        run = Run(rounds=self.rounds)
        return self.scores(self.before_signs(filled.reshape(1, *shape)), run), run

    def _walk(self, value: Objects, start: int, stop: int, run: Run) -> Objects:
        for number in range(start, stop):
            node = self.nodes[number]
            inputs = [self.constants.get(name) for name in node.input]
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if node.op_type == "Sign":
                follower = self.nodes[number + 1].op_type
                value = _signs(value, run, keep_zero=follower in ("Add", "Sub"))
            elif node.op_type == "GreaterOrEqual":
                assert inputs[1] is not None and not np.any(inputs[1])
                value = _each(value, lambda v: run.sign_of(v) >= 0)
            else:
                value = OPERATORS[node.op_type](value, inputs[1:], attributes)
        return value


def _each(values: Objects, function: Callable[[Any], Any]) -> Objects:
    out = np.empty(values.size, dtype=object)
    out[:] = [function(v) for v in values.reshape(-1).tolist()]
    return out.reshape(values.shape)


def _signs(values: Objects, run: Run, keep_zero: bool) -> Objects:
    signs = _each(values, run.sign_of)
    if keep_zero:
        return signs
    run.bare_zero |= bool(np.any(signs == 0))
    return _each(signs, lambda s: s or 1)


def _convolution(x: Objects, constants: Sequence[Any], attributes: dict[str, Any]) -> Objects:
    kernel = constants[0]
    bias = constants[1] if len(constants) > 1 else [0] * kernel.shape[0]
    (top, left, bottom, right) = attributes.get("pads", (0, 0, 0, 0))
    down, along = attributes.get("strides", (1, 1))
    outputs, inner, kh, kw = kernel.shape
    share = outputs // attributes.get("group", 1)
    height, width = x.shape[2:]
    rows = (height + top + bottom - kh) // down + 1
    columns = (width + left + right - kw) // along + 1
    out = np.empty((1, outputs, rows, columns), dtype=object)
    for k, i, j in product(range(outputs), range(rows), range(columns)):
        total = bias[k]
        for c, p, q in product(range(inner), range(kh), range(kw)):
            y, z = i * down + p - top, j * along + q - left
            if kernel[k, c, p, q] and 0 <= y < height and 0 <= z < width:
                total = total + kernel[k, c, p, q] * x[0, k // share * inner + c, y, z]
        out[0, k, i, j] = total
    return out


def _max_pool(x: Objects, _: Sequence[Any], attributes: dict[str, Any]) -> Objects:
    kh, kw = attributes["kernel_shape"]
    down, along = attributes.get("strides", (1, 1))
    assert not any(attributes.get("pads", (0,)))
    rows, columns = (x.shape[2] - kh) // down + 1, (x.shape[3] - kw) // along + 1
    out = np.empty((1, x.shape[1], rows, columns), dtype=object)
    for k, i, j in product(range(x.shape[1]), range(rows), range(columns)):
        cells = [x[0, k, i * down + p, j * along + q] for p, q in product(range(kh), range(kw))]
        if any(isinstance(v, Form) for v in cells):
            assert not any(isinstance(v, Extreme) for v in cells)
            out[0, k, i, j] = Extreme(tuple(cells))
        else:
            out[0, k, i, j] = max(cells)
    return out


def _batch_norm(x: Objects, constants: Sequence[Any], attributes: dict[str, Any]) -> Objects:
    gamma, beta, mean, variance = constants
    epsilon = exact(attributes["epsilon"])
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        c = place[1]
        out[place] = normalised(x[place], gamma[c], beta[c], mean[c], variance[c] + epsilon)
    return out


def _elementwise(
    x: Objects, constants: Sequence[Any], function: Callable[[Any, Rational], Any], turns: bool
) -> Objects:
    """Apply a function with a constant, which falls where that is negative if it `turns`."""
    others = np.broadcast_to(constants[0], x.shape)
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        other = others[place]
        falls = turns and other < 0
        out[place] = apply(x[place], lambda v, c=other: function(v, c), falls)  # type: ignore[misc]
    return out


def _dense(x: Objects, matrix: Objects, bias: Sequence[Rational]) -> Objects:
    """Multiply one row with a matrix of shape (inputs, outputs)."""
    out = np.empty((1, matrix.shape[1]), dtype=object)
    for k in range(matrix.shape[1]):
        total: Any = bias[k]
        for i in range(matrix.shape[0]):
            if matrix[i, k]:
                total = total + matrix[i, k] * x[0, i]
        out[0, k] = total
    return out


def _gemm(x: Objects, constants: Sequence[Any], attributes: dict[str, Any]) -> Objects:
    matrix = constants[0].T if attributes.get("transB", 0) else constants[0]
    bias = constants[1] if len(constants) > 1 else [0] * matrix.shape[1]
    return _dense(x, matrix, bias)


OPERATORS: dict[str, Callable[[Objects, Sequence[Any], dict[str, Any]], Objects]] = {
    "Add": lambda x, constants, attributes: _elementwise(x, constants, add, False),
    "BatchNormalization": _batch_norm,
    "Conv": _convolution,
    # Neither changes an order of scores: see Graph.divisor.
    "Div": lambda x, constants, attributes: x,
    "Softmax": lambda x, constants, attributes: x,
    "Flatten": lambda x, constants, attributes: x.reshape(1, -1),
    "Gemm": _gemm,
    "MatMul": lambda x, constants, attributes: _dense(x, constants[0], [0] * constants[0].shape[1]),
    "MaxPool": _max_pool,
    "Mul": lambda x, constants, attributes: _elementwise(x, constants, mul, True),
    "Reshape": lambda x, constants, attributes: x.reshape([int(n) for n in constants[0]]),
    "Transpose": lambda x, constants, attributes: x.transpose(attributes["perm"]),
    "Where": lambda x, constants, attributes: _each(
        x, lambda yes: (constants[0] if yes else constants[1]).item()
    ),
}


# -- polytopes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Vertex:
    """A corner of a polytope, and the facets and cuts that it lies on.

    Its coordinates are integers over one denominator, which comes last: sums of fractions would
    take most of the time.
    """

    scaled: tuple[int, ...]
    tight: frozenset[Any]

    @staticmethod
    def at(point: Sequence[Fraction], tight: Iterable[Any]) -> Vertex:
        bottom = math.lcm(*(v.denominator for v in point))
        return Vertex((*(int(v * bottom) for v in point), bottom), frozenset(tight))

    @property
    def point(self) -> Point:
        *top, bottom = self.scaled
        return tuple(Fraction(v, bottom) for v in top)


Polytope: TypeAlias = tuple[Vertex, ...]


def box(lo: Sequence[Fraction], hi: Sequence[Fraction]) -> Polytope:
    sides = enumerate(zip(lo, hi, strict=True))
    corners = product(*(((low, (k, 0)), (high, (k, 1))) for k, (low, high) in sides))
    return tuple(Vertex.at([v for v, _ in c], (f for _, f in c)) for c in corners)


def cross_polytope(center: Sequence[Fraction], radius: Fraction) -> Polytope:
    """Return the L1 ball."""
    dimension = len(center)
    vertices = []
    for k, s in product(range(dimension), (1, -1)):
        point = [c + (s * radius if i == k else 0) for i, c in enumerate(center)]
        facets = (f for f in product((1, -1), repeat=dimension) if f[k] == s)
        vertices.append(Vertex.at(point, facets))
    return tuple(vertices)


@cache
def integers_of(form: Form) -> tuple[tuple[int, ...], int]:
    """Return slope and constant as integers, and what they were multiplied by."""
    numbers = [*map(Fraction, form.slope), Fraction(form.constant)]
    numbers[-1] += signed_root(form.root) if form.root else 0
    bottom = math.lcm(*(v.denominator for v in numbers))
    return tuple(int(v * bottom) for v in numbers), bottom


def heights(polytope: Polytope, form: Form) -> list[int]:
    """Return the form at every vertex, times positive numbers."""
    coefficients, bottom = integers_of(form)
    found = []
    for vertex in polytope:
        height = sum(map(mul, coefficients, vertex.scaled))
        if height and abs(height) * TINY < bottom * vertex.scaled[-1]:
            raise DegenerateError
        found.append(height)
    return found


def split(polytope: Polytope, form: Form, name: Any) -> dict[int, Polytope]:
    """Return the parts where a form is negative, zero and positive, those that are not empty.

    The first and the last come with their closure: their points off the zeros are strictly
    negative or positive.
    """
    found = heights(polytope, form)
    vertices = list(zip(polytope, found, strict=True))
    plus = [(v, height) for v, height in vertices if height > 0]
    minus = [(v, height) for v, height in vertices if height < 0]
    on = [Vertex(v.scaled, v.tight | {name}) for v, height in vertices if not height]
    for (a, up), (b, down) in product(plus, minus):
        common = a.tight & b.tight
        # The segment is an edge unless a third vertex lies on all facets that the two share.
        if any(common <= c.tight for c in polytope if c is not a and c is not b):
            continue
        scaled = tuple(up * q - down * p for p, q in zip(a.scaled, b.scaled, strict=True))
        shared = math.gcd(*scaled)
        on.append(Vertex(tuple(v // shared for v in scaled), common | {name}))
    parts = {0: tuple(on)} if on else {}
    if plus:
        parts[1] = (*(v for v, _ in plus), *on)
    if minus:
        parts[-1] = (*(v for v, _ in minus), *on)
    return parts


def cut(polytope: Polytope, form: Form, name: Any) -> Polytope:
    """Return the part where a form is >= 0."""
    parts = split(polytope, form, name)
    return parts.get(1, parts.get(0, ()))


@dataclass(frozen=True)
class Plane:
    """The zeros of a form whose first coefficient is 1."""

    form: Form

    @property
    def is_rational(self) -> bool:
        return not self.form.root


def plane_of(form: Form) -> tuple[Plane, int]:
    """Return the plane of a form and on which of its sides the form is positive."""
    lead = Fraction(next(p for p in form.slope if p))
    slope = tuple(p / lead for p in form.slope)
    scaled = Form(slope, form.constant / lead, form.root / (lead * abs(lead)))
    return Plane(scaled), sign(lead)


def crossing(polytope: Polytope, forms: Iterable[Form]) -> list[Plane]:
    """Return the planes that do not have a whole polytope strictly on one side."""
    planes = dict.fromkeys(plane_of(form)[0] for form in forms)
    signs = [{sign(h) for h in heights(polytope, p.form)} for p in planes]
    return [p for p, found in zip(planes, signs, strict=True) if found not in ({1}, {-1})]


def faces(
    polytope: Polytope, planes: Sequence[Plane]
) -> Iterator[tuple[tuple[int, ...], Polytope]]:
    """Yield the side of every plane, and the closure, of all cells and their common faces."""

    def extend(part: Polytope, states: tuple[int, ...]) -> Iterator[Any]:
        if len(states) == len(planes):
            # A closure may lie in a plane although its cell is beside it: then the cell is empty.
            sides = ({sign(h) for h in heights(part, p.form)} - {0} for p in planes)
            if all(side == {state} - {0} for side, state in zip(sides, states, strict=True)):
                yield states, part
            return
        pieces = split(part, planes[len(states)].form, len(states))
        for state, piece in pieces.items():
            yield from extend(piece, (*states, state))

    yield from extend(polytope, ())


# -- questions ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Disc:
    """An L2 ball of two free pixels."""

    center: Point
    radius: Fraction


@dataclass(frozen=True)
class Truth:
    """Every score vector that the region reaches; `safely` those that rational points reach.

    `twins` tells whether two neurons share a plane that is irrational and crosses the region.
    """

    scores: frozenset[tuple[Fraction, ...]]
    safely: frozenset[tuple[Fraction, ...]]
    twins: bool

    def margins(self, label: int) -> dict[int, Fraction]:
        """Return the minimum of score_label - score_k for every rival k."""
        return _margins(self.scores, label)

    def rational_margins(self, label: int) -> dict[int, Fraction]:
        """Return the same over the points that a counterexample can be."""
        return _margins(self.safely, label)


def _margins(scores: frozenset[tuple[Fraction, ...]], label: int) -> dict[int, Fraction]:
    rivals = range(len(next(iter(scores))))
    return {k: min(s[label] - s[k] for s in scores) for k in rivals if k != label}


def _meets(disc: Disc, part: Polytope, planes: Sequence[Plane], states: Sequence[int]) -> bool:
    """Whether a face has a point in the disc (it began as a square around the centre)."""
    if all(sign(p.form.at(disc.center)) == s for p, s in zip(planes, states, strict=True)):
        return True
    ends = [(v.point, v.point) for v in part]
    ends += [(a.point, b.point) for a, b in combinations(part, 2)]
    nearest = min((_nearest(*pair, disc.center) for pair in ends), key=lambda found: found[0])
    excess = nearest[0] - disc.radius**2
    if excess and abs(excess) * TINY < 1:
        raise DegenerateError
    if excess:
        return excess < 0
    # The closure touches the circle: that point counts if it is on the face itself.
    return all(sign(p.form.at(nearest[1])) == s for p, s in zip(planes, states, strict=True))


def _nearest(a: Point, b: Point, center: Point) -> tuple[Fraction, Point]:
    """Return the point of a segment that is nearest to the centre, behind its squared distance."""
    along = [q - p for p, q in zip(a, b, strict=True)]
    length = sum((v * v for v in along), Fraction(0))
    share = Fraction(0)
    if length:
        share = sum(v * (c - p) for v, c, p in zip(along, center, a, strict=True)) / length
        share = min(max(share, Fraction(0)), Fraction(1))
    point = tuple(p + share * v for p, v in zip(a, along, strict=True))
    return sum(((p - c) ** 2 for p, c in zip(point, center, strict=True)), Fraction(0)), point


def truth(graph: Graph, values: Objects, polytope: Polytope, disc: Disc | None = None) -> Truth:
    """Return the scores on a region of free pixels, given what the first sign is taken of."""
    forms = sloped(values)
    planes = crossing(polytope, forms)
    fixed = {}
    inside = polytope[0].point
    for form in forms:
        # Planes that do not cross have the same sign everywhere.
        fixed[form] = sign(form.at(inside))
    sides = [(form, *plane_of(form)) for form in forms]
    number = {plane: k for k, plane in enumerate(planes)}
    moving = [(form, number[plane], side) for form, plane, side in sides if plane in number]
    reached: dict[tuple[int, ...], bool] = {}
    for states, part in faces(polytope, planes):
        if disc is not None and not _meets(disc, part, planes, states):
            continue
        pattern = tuple(side * states[k] for _, k, side in moving)
        rational = all(s or p.is_rational for s, p in zip(states, planes, strict=True))
        reached[pattern] = reached.get(pattern, False) or rational
    scores, safely = set(), set()
    for pattern, rational in reached.items():
        signs = {form: s for (form, _, _), s in zip(moving, pattern, strict=True)}
        found = graph.scores(values, Run({**fixed, **signs}))
        scores.add(found)
        if rational:
            safely.add(found)
    irrational = {plane for plane in planes if not plane.is_rational}
    shared = Counter(plane_of(form)[0] for form in occurrences(values))
    twins = any(shared[plane] > 1 for plane in irrational)
    return Truth(frozenset(scores), frozenset(safely), twins)


def occurrences(values: Objects) -> list[Form]:
    """Return the forms that depend on the free pixels, as often as they occur."""
    parts: list[Any] = []
    for value in values.reshape(-1).tolist():
        parts += value.parts if isinstance(value, Extreme) else [value]
    return [p for p in parts if isinstance(p, Form) and any(p.slope)]


def sloped(values: Objects) -> list[Form]:
    """Return the forms that depend on the free pixels, each once."""
    return list(dict.fromkeys(occurrences(values)))
