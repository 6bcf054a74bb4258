"""Forms of operators on constants: each one returns a float32 tensor of a given shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.model.formats.random_onnx.builder import Array, Builder, Form, Shape

FORMS: dict[str, Form] = {}

LARGEST = 2**63 - 1


def form(name: str, first: int = 7, last: int = 99) -> Callable[..., Any]:
    def register(function: Any) -> Any:
        FORMS[name] = Form(function, first, last)
        return function

    return register


def constant(b: Builder, shape: Shape) -> str:
    """Return a tensor that is a random expression: the form that is wanted, or any other."""
    if b.wanted in FORMS:
        chosen, b.wanted = b.wanted, None
    elif b.depth >= 2 or b.chance(0.6):
        return leaf(b, b.numbers(shape))
    else:
        chosen = b.choose([key for key, form in FORMS.items() if form.exists(b.opset)])
    b.depth += 1
    name: str = FORMS[chosen].add(b, shape)
    b.depth -= 1
    b.forms.add(chosen)
    return name


def leaf(b: Builder, array: Array, dtype: Any = None) -> str:
    """Return a constant that is written into the file."""
    stored = np.asarray(array, dtype=dtype or array.dtype)
    if b.chance(0.7):
        return b.tensor(stored)
    b.forms.add("Constant, value")
    return b.op("Constant", value=numpy_helper.from_array(np.array(stored, order="C")))


def part(b: Builder, shape: Shape) -> Shape:
    """Return a shape that broadcasts to `shape`."""
    kept = tuple(n if b.chance(0.6) else 1 for n in shape)
    dropped = b.integer(0, len(shape)) if b.chance(0.4) else 0
    return kept[dropped:]


def powers(b: Builder, shape: Shape, base: float = 2.0) -> Array:
    """Return numbers whose quotients (or roots) are exact, of either sign for base 2."""
    found = base ** b.rng.integers(-2, 3, size=shape)
    if base == 2.0:
        found = found * b.rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(found, dtype=np.float32)


def box(b: Builder, size: int) -> Shape:
    """Return a shape with two or three axes that has so many entries."""
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = b.choose(divisors)
    rest = [n for n in divisors if (size // first) % n == 0]
    second = b.choose(rest)
    return (first, second, size // first // second) if b.chance(0.5) else (first, size // first)


# -- constants themselves -----------------------------------------------------------------


@form("Constant, value_float", 12)
def _value_float(b: Builder, shape: Shape) -> str:
    one = b.op("Constant", value_float=float(b.numbers(())))
    return b.op("Mul", one, leaf(b, b.numbers(shape)))


@form("Constant, value_floats", 12)
def _value_floats(b: Builder, shape: Shape) -> str:
    numbers = b.numbers((math.prod(shape),))
    return b.shaped(b.op("Constant", value_floats=[float(n) for n in numbers]), shape)


@form("Constant, value_int", 12)
def _value_int(b: Builder, shape: Shape) -> str:
    one = b.to_floats(b.op("Constant", value_int=b.integer(-3, 3)))
    return b.op("Add", leaf(b, b.numbers(shape)), one)


@form("Constant, value_ints", 12)
def _value_ints(b: Builder, shape: Shape) -> str:
    numbers = [b.integer(-3, 3) for _ in range(math.prod(shape))]
    return b.shaped(b.to_floats(b.op("Constant", value_ints=numbers)), shape)


@form("ConstantOfShape, default", 9)
def _zeros(b: Builder, shape: Shape) -> str:
    zeros = b.op("ConstantOfShape", b.integers(*shape))
    return b.op("Add", zeros, leaf(b, b.numbers(part(b, shape))))


@form("ConstantOfShape, value", 9)
def _filled(b: Builder, shape: Shape) -> str:
    value = numpy_helper.from_array(np.array([b.integer(-3, 3)], np.float32))
    filled = b.op("ConstantOfShape", b.integers(*shape), value=value)
    return b.op("Mul", filled, leaf(b, b.numbers(part(b, shape))))


# -- one input ----------------------------------------------------------------------------


def _unary(kind: str, numbers: Callable[[Builder, Shape], Array], b: Builder, shape: Shape) -> str:
    return b.op(kind, leaf(b, numbers(b, shape)))


def _quarters(b: Builder, shape: Shape) -> Array:
    return b.numbers(shape)


for _kind, _first in (
    ("Identity", 7),
    ("Neg", 7),
    ("Abs", 7),
    ("Floor", 7),
    ("Ceil", 7),
    ("Relu", 7),
    ("Round", 11),
    ("Sign", 9),
):
    FORMS[f"{_kind}, constant"] = Form(partial(_unary, _kind, _quarters), _first)
FORMS["Sqrt, constant"] = Form(partial(_unary, "Sqrt", partial(powers, base=4.0)))
FORMS["Reciprocal, constant"] = Form(partial(_unary, "Reciprocal", powers))
for _kind in ("Exp", "Tanh", "Sigmoid"):
    FORMS[f"{_kind}, constant"] = Form(
        partial(_unary, _kind, lambda b, shape: np.zeros(shape, np.float32))
    )
FORMS["Log, constant"] = Form(partial(_unary, "Log", lambda b, shape: np.ones(shape, np.float32)))


def _shaped_unary(kind: str, settings: dict[str, float], b: Builder, shape: Shape) -> str:
    result = b.op(kind, leaf(b, b.numbers(shape)), **settings)
    # The defaults are 0.01 and 0.2, whose multiples would be rounded in sums.
    return result if settings else b.op("Ceil", result)


FORMS["LeakyRelu, constant"] = Form(partial(_shaped_unary, "LeakyRelu", {}))
FORMS["HardSigmoid, constant"] = Form(partial(_shaped_unary, "HardSigmoid", {}))


FORMS["LeakyRelu, constant, alpha"] = Form(partial(_shaped_unary, "LeakyRelu", {"alpha": 0.5}))
FORMS["HardSigmoid, constant, alpha and beta"] = Form(
    partial(_shaped_unary, "HardSigmoid", {"alpha": 0.25, "beta": 0.125})
)


def _unary_integers(kind: str, b: Builder, shape: Shape) -> str:
    numbers = b.rng.integers(-5, 6, size=shape)
    return b.to_floats(b.op(kind, leaf(b, numbers, b.choose([np.int32, np.int64]))))


for _kind, _first in (("Neg", 7), ("Abs", 7), ("Sign", 9)):
    FORMS[f"{_kind}, constant integers"] = Form(partial(_unary_integers, _kind), _first)


# -- two inputs and more ------------------------------------------------------------------


def _pair(b: Builder, shape: Shape) -> tuple[Shape, Shape]:
    shapes = [shape, part(b, shape)]
    return (shapes[1], shapes[0]) if b.chance(0.5) else (shapes[0], shapes[1])


def _binary(kind: str, b: Builder, shape: Shape) -> str:
    left, right = _pair(b, shape)
    second = powers(b, right) if kind == "Div" else b.numbers(right)
    return b.op(kind, constant(b, left), leaf(b, second))


def _binary_integers(kind: str, b: Builder, shape: Shape) -> str:
    left, right = _pair(b, shape)
    dtype = b.choose([np.int32, np.int64])
    first = b.rng.integers(-9, 10, size=left)
    second = b.rng.integers(-4, 5, size=right)
    if kind == "Div":
        second = np.where(second == 0, 3, second)
    return b.to_floats(b.op(kind, leaf(b, first, dtype), leaf(b, second, dtype)))


for _kind in ("Add", "Sub", "Mul", "Div"):
    FORMS[f"{_kind}, constants"] = Form(partial(_binary, _kind))
    FORMS[f"{_kind}, constant integers"] = Form(partial(_binary_integers, _kind))


@form("Pow, constants")
def _pow(b: Builder, shape: Shape) -> str:
    left, right = _pair(b, shape)
    exponent = b.rng.integers(0, 3, size=right).astype(np.float32)
    return b.op("Pow", leaf(b, b.numbers(left)), leaf(b, exponent))


@form("Pow, integer exponents", 12)
def _pow_integers(b: Builder, shape: Shape) -> str:
    left, right = _pair(b, shape)
    exponent = b.rng.integers(0, 3, size=right)
    dtype = b.choose([np.int32, np.int64])
    return b.op("Pow", leaf(b, b.numbers(left)), leaf(b, exponent, dtype))


@form("Pow, root")
def _pow_root(b: Builder, shape: Shape) -> str:
    return b.op("Pow", leaf(b, powers(b, shape, 4.0)), b.tensor(np.array(0.5, np.float32)))


@form("Pow, integers", 12)
def _pow_of_integers(b: Builder, shape: Shape) -> str:
    base = leaf(b, b.rng.integers(-3, 4, size=shape), np.int64)
    return b.to_floats(b.op("Pow", base, leaf(b, b.rng.integers(0, 3, size=shape), np.int64)))


def _extreme(kind: str, count: int, dtype: Any, b: Builder, shape: Shape) -> str:
    shapes = [shape] + [part(b, shape) if b.opset >= 8 else shape for _ in range(count - 1)]
    b.rng.shuffle(shapes)
    if dtype is np.float32:
        return b.op(kind, *(leaf(b, b.numbers(s)) for s in shapes))
    names = [leaf(b, b.rng.integers(-5, 6, size=s), dtype) for s in shapes]
    return b.to_floats(b.op(kind, *names))


for _kind in ("Max", "Min"):
    for _count in (1, 2, 3, 4, 6):
        FORMS[f"{_kind}, {_count} inputs"] = Form(partial(_extreme, _kind, _count, np.float32))
    FORMS[f"{_kind}, integers"] = Form(partial(_extreme, _kind, 3, np.int64), 12)


@form("MatMul, constants")
def _matmul(b: Builder, shape: Shape) -> str:
    inner = b.integer(1, 3)
    rows, columns = (1, 1, *shape)[-2:]
    outer = shape[:-2]
    left = leaf(b, b.numbers((*outer, rows, inner)))
    right = leaf(b, b.numbers((*(part(b, outer) if b.chance(0.5) else ()), inner, columns)))
    return b.shaped(b.op("MatMul", left, right), shape)


@form("MatMul, constant vectors")
def _matmul_vectors(b: Builder, shape: Shape) -> str:
    inner, size = b.integer(1, 3), math.prod(shape)
    if b.chance(0.5):
        names = leaf(b, b.numbers((inner,))), leaf(b, b.numbers((inner, size)))
    else:
        names = leaf(b, b.numbers((size, inner))), leaf(b, b.numbers((inner,)))
    return b.shaped(b.op("MatMul", *names), shape)


@form("MatMul, constant integers", 9)
def _matmul_integers(b: Builder, shape: Shape) -> str:
    left = leaf(b, b.rng.integers(-3, 4, size=(math.prod(shape), 2)), np.int64)
    right = leaf(b, b.rng.integers(-3, 4, size=(2, 1)), np.int64)
    return b.shaped(b.to_floats(b.op("MatMul", left, right)), shape)


def _truth(b: Builder, shape: Shape, kind: str) -> str:
    if kind == "Equal":
        names = [leaf(b, b.rng.integers(-1, 2, size=s), np.int64) for s in _pair(b, shape)]
    else:
        names = [leaf(b, b.numbers(s)) for s in _pair(b, shape)]
    return b.op(kind, *names)


def _selected(kind: str, b: Builder, shape: Shape) -> str:
    """Return numbers that depend on a truth value."""
    truth = _truth(b, shape, kind)
    if b.opset < 9 or b.chance(0.5):
        return b.to_floats(truth)
    return b.op("Where", truth, leaf(b, b.numbers(part(b, shape))), leaf(b, b.numbers(shape)))


for _kind, _first in (
    ("Equal", 7),
    ("Greater", 7),
    ("Less", 7),
    ("GreaterOrEqual", 12),
    ("LessOrEqual", 12),
):
    FORMS[f"{_kind}, constants"] = Form(partial(_selected, _kind), _first)


@form("Equal, constant floats", 11)
def _equal_floats(b: Builder, shape: Shape) -> str:
    names = [leaf(b, b.numbers(s)) for s in _pair(b, shape)]
    return b.to_floats(b.op("Equal", *names))


def _logical(kind: str, b: Builder, shape: Shape) -> str:
    names = [_truth(b, s, "Greater") for s in _pair(b, shape)]
    return b.to_floats(b.op(kind, *names))


FORMS["And, constants"] = Form(partial(_logical, "And"))
FORMS["Or, constants"] = Form(partial(_logical, "Or"))
FORMS["Xor, constants"] = Form(partial(_logical, "Xor"))


@form("Not, constant")
def _not(b: Builder, shape: Shape) -> str:
    return b.to_floats(b.op("Not", _truth(b, shape, "Less")))


@form("Where, constants", 9)
def _where(b: Builder, shape: Shape) -> str:
    shapes = [shape, part(b, shape), part(b, shape)]
    b.rng.shuffle(shapes)
    truth = leaf(b, b.rng.integers(0, 2, size=shapes[0]).astype(bool))
    return b.op("Where", truth, constant(b, shapes[1]), leaf(b, b.numbers(shapes[2])))


@form("BipolarQuant, constant", 9)
def _bipolar(b: Builder, shape: Shape) -> str:
    scale = np.array(b.choose([0.25, 0.5, 1.0, 2.0]), np.float32)
    return b.op("BipolarQuant", leaf(b, b.numbers(shape)), b.tensor(scale), domain="onnx.brevitas")


def _cast(target: int, b: Builder, shape: Shape) -> str:
    return b.to_floats(b.op("Cast", leaf(b, b.numbers(shape)), to=target))


for _code in (
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL),
):
    FORMS[f"Cast, constant to {TensorProto.DataType.Name(_code)}"] = Form(partial(_cast, _code))


# -- entries and axes ---------------------------------------------------------------------


@form("Gather, axis")
def _gather(b: Builder, shape: Shape) -> str:
    if not shape:
        return b.op("Gather", leaf(b, b.numbers((4,))), b.tensor(np.array(b.integer(0, 3))))
    axis = b.integer(0, len(shape) - 1)
    low = -5 if b.opset >= 11 else 0
    indices = leaf(b, b.rng.integers(low, 5, size=shape[axis]), b.choose([np.int32, np.int64]))
    source = leaf(b, b.numbers((*shape[:axis], 5, *shape[axis + 1 :])))
    given = axis - len(shape) if b.opset >= 11 and b.chance(0.5) else axis
    return b.op("Gather", source, indices, axis=given)


@form("Gather, no axis, more axes in the indices")
def _gather_table(b: Builder, shape: Shape) -> str:
    indices = leaf(b, b.rng.integers(0, 4, size=shape), np.int64)
    return b.op("Gather", leaf(b, b.numbers((4,))), indices)


def _concat(count: int, b: Builder, shape: Shape) -> str:
    size = math.prod(shape)
    cuts = np.sort(b.rng.integers(0, size + 1, size=count - 1))
    lengths = np.diff(np.concatenate(([0], cuts, [size])))
    axis = b.choose([0, -2] if b.opset >= 11 else [0])
    joined = b.op("Concat", *(leaf(b, b.numbers((int(n), 1))) for n in lengths), axis=axis)
    return b.shaped(joined, shape)


for _count in (1, 2, 3, 5):
    FORMS[f"Concat, {_count} inputs"] = Form(partial(_concat, _count))


@form("Slice, attributes", 7, 9)
def _slice_attributes(b: Builder, shape: Shape) -> str:
    size = math.prod(shape)
    start = b.integer(0, 2)
    source = leaf(b, b.numbers((2, size + start + 1)))
    axes = {"axes": [1, 0]} if b.chance(0.5) else {}
    picks = [(start, start + size), (-1, 100)] if axes else [(-1, 100), (start, -1)]
    cut = b.op("Slice", source, starts=[p[0] for p in picks], ends=[p[1] for p in picks], **axes)
    return b.shaped(cut, shape)


def _slice(kind: str, b: Builder, shape: Shape) -> str:
    size = math.prod(shape)
    dtype = b.choose([np.int32, np.int64])
    last = np.iinfo(dtype).max

    def listed(*numbers: int) -> str:
        return b.tensor(np.array(numbers, dtype=dtype))

    if kind == "starts and ends":
        source = leaf(b, b.numbers((2, size + 1)))
        cut = b.op("Slice", source, listed(-1, 1), listed(last, 100))
    elif kind == "axes":
        source = leaf(b, b.numbers((3, size)))
        cut = b.op("Slice", source, listed(-2), listed(-1), listed(b.choose([0, -2])))
    elif kind == "axes and steps":
        source = leaf(b, b.numbers((2 * size, 3)))
        names = listed(1, 2), listed(last, 3), listed(0, 1), listed(2, 1)
        cut = b.op("Slice", source, *names)
    elif kind == "steps without axes":
        source = leaf(b, b.numbers((2 * size,)))
        cut = b.op("Slice", source, listed(0), listed(last), "", listed(2))
    elif kind == "backwards":
        source = leaf(b, b.numbers((size,)))
        names = listed(b.choose([-1, last])), listed(-last), listed(0), listed(-1)
        cut = b.op("Slice", source, *names)
    else:
        # A start before the axis stands for its first entry, also in backward direction.
        source = leaf(b, b.numbers((3, size)))
        cut = b.op("Slice", source, listed(-7), listed(-9), listed(0), listed(-2))
    return b.shaped(cut, shape)


for _kind in (
    *("starts and ends", "axes", "axes and steps", "steps without axes", "backwards"),
    "backwards from before the axis",
):
    FORMS[f"Slice, {_kind}"] = Form(partial(_slice, _kind), 10)


@form("Transpose, constant, perm")
def _transpose(b: Builder, shape: Shape) -> str:
    if not shape:
        return b.shaped(_transpose(b, (1, 1)), ())
    order = [int(n) for n in b.rng.permutation(len(shape))]
    source = [0] * len(shape)
    for place, axis in enumerate(order):
        source[axis] = shape[place]
    return b.op("Transpose", leaf(b, b.numbers(tuple(source))), perm=order)


@form("Transpose, constant, default")
def _transpose_default(b: Builder, shape: Shape) -> str:
    return b.op("Transpose", leaf(b, b.numbers(tuple(reversed(shape)))))


def _flatten(kind: str, b: Builder, shape: Shape) -> str:
    inner = box(b, math.prod(shape))
    axis = {"default": None, "axis": b.integer(0, len(inner)), "negative": -1}[kind]
    return b.shaped(b.op("Flatten", leaf(b, b.numbers(inner)), axis=axis), shape)


FORMS["Flatten, constant, default"] = Form(partial(_flatten, "default"))
FORMS["Flatten, constant, axis"] = Form(partial(_flatten, "axis"))
FORMS["Flatten, constant, negative axis"] = Form(partial(_flatten, "negative"), 11)


def _reshape(kind: str, b: Builder, shape: Shape) -> str:
    target = list(shape)
    source = box(b, math.prod(shape))
    if kind == "0" and shape:
        # 0 copies the length of the axis.
        axis = b.integer(0, len(shape) - 1)
        source, target[axis] = shape, 0
    elif kind == "-1" and shape:
        target[b.integer(0, len(shape) - 1)] = -1
    allowed = {"allowzero": 1} if kind == "allowzero" else {}
    return b.op("Reshape", leaf(b, b.numbers(source)), b.integers(*target), **allowed)


FORMS["Reshape, constant"] = Form(partial(_reshape, "plain"))
FORMS["Reshape, constant, 0"] = Form(partial(_reshape, "0"))
FORMS["Reshape, constant, -1"] = Form(partial(_reshape, "-1"))
FORMS["Reshape, constant, allowzero"] = Form(partial(_reshape, "allowzero"), 14)


def squeeze_axes(b: Builder, kind: str, name: str, axes: list[int], given: bool = True) -> str:
    """Add Squeeze or Unsqueeze with its axes in the place where the operator set has them."""
    if not given:
        return b.op(kind, name)
    if b.opset < 13:
        return b.op(kind, name, axes=axes)
    return b.op(kind, name, b.integers(*axes))


def _squeeze(kind: str, b: Builder, shape: Shape) -> str:
    wide = list(shape)
    place = b.integer(0, len(shape))
    wide.insert(place, 1)
    source = leaf(b, b.numbers(tuple(wide)))
    if kind == "all":
        return b.shaped(squeeze_axes(b, "Squeeze", source, [], given=False), shape)
    axis = place - len(wide) if kind == "negative" else place
    return squeeze_axes(b, "Squeeze", source, [axis])


def _unsqueeze(kind: str, b: Builder, shape: Shape) -> str:
    axes = [0, len(shape) + 1] if kind != "negative" else [-1, 0]
    wide = squeeze_axes(b, "Unsqueeze", leaf(b, b.numbers(shape)), axes)
    return b.shaped(wide, shape)


FORMS["Squeeze, constant, axes"] = Form(partial(_squeeze, "axes"))
FORMS["Squeeze, constant, all"] = Form(partial(_squeeze, "all"))
FORMS["Squeeze, constant, negative axes"] = Form(partial(_squeeze, "negative"), 11)
FORMS["Unsqueeze, constant, axes"] = Form(partial(_unsqueeze, "axes"))
FORMS["Unsqueeze, constant, negative axes"] = Form(partial(_unsqueeze, "negative"), 11)


@form("Expand, constant", 8)
def _expand(b: Builder, shape: Shape) -> str:
    source, target = part(b, shape), shape
    if b.chance(0.3):
        source, target = shape, part(b, shape)
    return b.op("Expand", leaf(b, b.numbers(source)), b.integers(*target))


def _clip(kind: str, b: Builder, shape: Shape) -> str:
    name = leaf(b, b.numbers(shape))
    low, high = sorted(float(n) for n in b.numbers((2,)))
    if b.opset < 11:
        bounds = {"both": {"min": low, "max": high}, "low": {"min": low}, "high": {"max": high}}
        return b.op("Clip", name, **bounds.get(kind, {}))
    if kind == "crossed":
        low, high = high, low
    names = [b.tensor(np.array(n, np.float32)) for n in (low, high)]
    inputs = {"both": names, "crossed": names, "low": names[:1], "high": ["", names[1]], "none": []}
    return b.op("Clip", name, *inputs[kind])


for _kind in ("both", "low", "high", "none"):
    FORMS[f"Clip, constant, bounds: {_kind}"] = Form(partial(_clip, _kind))
FORMS["Clip, constant, bounds: crossed"] = Form(partial(_clip, "crossed"), 11)


@form("Clip, constant integers", 12)
def _clip_integers(b: Builder, shape: Shape) -> str:
    name = leaf(b, b.rng.integers(-9, 10, size=shape), np.int64)
    bounds = [b.tensor(np.array(n, np.int64)) for n in (-3, b.choose([2, LARGEST]))]
    return b.to_floats(b.op("Clip", name, *bounds))


def reduce_axes(b: Builder, kind: str, name: str, axes: list[int] | None, **more: Any) -> str:
    """Add a reduction with its axes in the place where the operator set has them."""
    if axes is None:
        return b.op(kind, name, **more)
    if b.opset < (13 if kind == "ReduceSum" else 18):
        return b.op(kind, name, axes=axes, **more)
    return b.op(kind, name, b.integers(*axes), **more)


def _reduce(kind: str, how: str, b: Builder, shape: Shape) -> str:
    size = math.prod(shape)
    if how == "all":
        whole = _even_root(b, kind, reduce_axes(b, kind, leaf(b, b.numbers((2, 2))), None))
        return b.op("Add", b.shaped(whole, ()), leaf(b, b.numbers(shape)))
    if how == "noop":
        return reduce_axes(b, kind, leaf(b, b.numbers(shape)), None, noop_with_empty_axes=1)
    axes = [2, 0] if how == "axes" else [-1, -3]
    keep = b.choose([None, 0, 1])
    reduced = reduce_axes(b, kind, leaf(b, b.numbers((2, size, 2))), axes, keepdims=keep)
    return b.shaped(_even_root(b, kind, reduced), shape)


def _even_root(b: Builder, kind: str, name: str) -> str:
    """Round a square root up, because sums of roots would be rounded."""
    return b.op("Ceil", name) if kind == "ReduceL2" else name


REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
)

for _kind in REDUCTIONS:
    FORMS[f"{_kind}, constant, axes"] = Form(partial(_reduce, _kind, "axes"))
    FORMS[f"{_kind}, constant, negative axes"] = Form(partial(_reduce, _kind, "negative"), 11)
    FORMS[f"{_kind}, constant, noop"] = Form(
        partial(_reduce, _kind, "noop"), 13 if _kind == "ReduceSum" else 18
    )


@form("Shape, constant")
def _shape(b: Builder, shape: Shape) -> str:
    sizes = b.op("Shape", leaf(b, b.numbers((3, 1, 2))))
    one = b.op("Gather", b.to_floats(sizes), b.tensor(np.array(b.integer(0, 2))))
    return b.op("Mul", one, leaf(b, b.numbers(shape)))


@form("Shape, constant, start and end", 15)
def _shape_part(b: Builder, shape: Shape) -> str:
    bounds = b.choose([{"start": 1}, {"end": -1}, {"start": -2, "end": 3}, {"end": 100}])
    sizes = b.op("Shape", leaf(b, b.numbers((3, 1, 2, 1))), **bounds)
    one = b.op("Gather", b.to_floats(sizes), b.tensor(np.array(0)))
    return b.op("Mul", one, leaf(b, b.numbers(shape)))


@form("Size, constant")
def _size(b: Builder, shape: Shape) -> str:
    count = b.to_floats(b.op("Size", leaf(b, b.numbers((2, 1, 2)))))
    return b.op("Mul", count, leaf(b, b.numbers(shape)))


@form("Reshape, to the shape of a constant")
def _reshape_like(b: Builder, shape: Shape) -> str:
    like = b.op("Shape", leaf(b, np.zeros(shape, np.float32)))
    return b.op("Reshape", leaf(b, b.numbers((math.prod(shape),))), like)


for _kind in REDUCTIONS:
    FORMS[f"{_kind}, constant, all"] = Form(partial(_reduce, _kind, "all"))
