"""Forms of operators on what the network computes, by their place in a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.model.formats.random_onnx.builder import Builder, Form, Shape
from tests.model.formats.random_onnx.constants import (
    constant,
    leaf,
    part,
    powers,
    reduce_axes,
    squeeze_axes,
)

#: Reshapes and the like, for any tensor.
MOVERS: dict[str, Form] = {}
#: Elementwise arithmetic with constants.
STEPS: dict[str, Form] = {}
#: Linear maps of a row (1, D).
DENSE: dict[str, Form] = {}
#: Linear maps of an image (1, C, H, W) or (1, C, L).
CONVOLUTIONS: dict[str, Form] = {}
#: Pooling, padding and sums of an image, before a sign or after it.
IMAGES: dict[str, Form] = {}
#: Signs.
SIGNS: dict[str, Form] = {}
#: What may follow the scores.
ENDS: dict[str, Form] = {}

GROUPS = (MOVERS, STEPS, DENSE, CONVOLUTIONS, IMAGES, SIGNS, ENDS)


def apply(b: Builder, group: dict[str, Form], share: float = 1.0) -> None:
    """Add the wanted form if it is of this group; else, with some probability, any of them."""
    if b.wanted in group:
        chosen, b.wanted = b.wanted, None
    elif b.chance(share):
        chosen = b.choose([key for key, form in group.items() if form.exists(b.opset)])
    else:
        return
    group[chosen].add(b)
    b.forms.add(chosen)


def weights(b: Builder, shape: Shape) -> str:
    """Return weights: -s, 0, s behind a sign, else anything."""
    if not b.hidden:
        return constant(b, shape)
    scale = b.choose([1.0, 1.0, 0.5, 3.0])
    return leaf(b, (scale * b.rng.integers(-1, 2, size=shape)).astype(np.float32))


# -- operators that only move entries -----------------------------------------------------


def _reshape(kind: str, b: Builder) -> None:
    size = b.size
    first = b.choose([n for n in range(1, size + 1) if size % n == 0])
    target, listed = (1, first, size // first), [1, first, size // first]
    more: dict[str, Any] = {}
    if kind == "-1":
        listed[b.integer(0, 2)] = -1
    elif kind == "0":
        target, listed = (b.shape[0], size // b.shape[0]), [0, size // b.shape[0]]
    elif kind == "allowzero":
        more = {"allowzero": 1}
    b.then("Reshape", b.integers(*listed), shape=target, **more)


for _kind in ("plain", "-1", "0"):
    MOVERS[f"Reshape, {_kind}"] = Form(partial(_reshape, _kind))
MOVERS["Reshape, allowzero"] = Form(partial(_reshape, "allowzero"), 14)


def _flatten(kind: str, b: Builder) -> None:
    rank = len(b.shape)
    axis = {"default": 1, "axis": b.integer(0, rank), "negative": -b.integer(1, rank)}[kind]
    place = axis + rank if axis < 0 else axis
    shape = (math.prod(b.shape[:place]), math.prod(b.shape[place:]))
    b.then("Flatten", axis=None if kind == "default" else axis, shape=shape)


MOVERS["Flatten, default"] = Form(partial(_flatten, "default"))
MOVERS["Flatten, axis"] = Form(partial(_flatten, "axis"))
MOVERS["Flatten, negative axis"] = Form(partial(_flatten, "negative"), 11)


def _transpose(default: bool, b: Builder) -> None:
    rank = len(b.shape)
    order = list(reversed(range(rank))) if default else [int(n) for n in b.rng.permutation(rank)]
    shape = tuple(b.shape[n] for n in order)
    b.then("Transpose", perm=None if default else order, shape=shape)


MOVERS["Transpose, perm"] = Form(partial(_transpose, False))
MOVERS["Transpose, default"] = Form(partial(_transpose, True))


def _squeeze(kind: str, b: Builder) -> None:
    units = [axis for axis, n in enumerate(b.shape) if n == 1]
    if kind == "all":
        shape = tuple(n for n in b.shape if n != 1)
        b.then("Squeeze", shape=shape)
        return
    if not units:
        b.then("Identity")
        return
    axis = b.choose(units)
    shape = b.shape[:axis] + b.shape[axis + 1 :]
    _with_axes(b, "Squeeze", [axis - len(b.shape) if kind == "negative" else axis], shape)


def _unsqueeze(kind: str, b: Builder) -> None:
    axes = [-1] if kind == "negative" else [len(b.shape) + 1, 1]
    shape = (*b.shape, 1) if kind == "negative" else (b.shape[0], 1, *b.shape[1:], 1)
    _with_axes(b, "Unsqueeze", axes, shape)


def _with_axes(b: Builder, kind: str, axes: list[int], shape: Shape) -> None:
    b.current, b.shape = squeeze_axes(b, kind, b.current, axes), shape


MOVERS["Squeeze, axes"] = Form(partial(_squeeze, "axes"))
MOVERS["Squeeze, negative axes"] = Form(partial(_squeeze, "negative"), 11)
MOVERS["Squeeze, all"] = Form(partial(_squeeze, "all"))
MOVERS["Unsqueeze, axes"] = Form(partial(_unsqueeze, "axes"))
MOVERS["Unsqueeze, negative axes"] = Form(partial(_unsqueeze, "negative"), 11)
MOVERS["Identity"] = Form(lambda b: b.then("Identity"))
MOVERS["Cast to float"] = Form(lambda b: b.then("Cast", to=TensorProto.FLOAT))


def _shaped_by_itself(b: Builder) -> None:
    """Reshape to a shape that the graph computes from the tensor itself."""
    first = b.op("Slice", b.op("Shape", b.current), b.integers(0), b.integers(1))
    rest = b.op("Unsqueeze", b.op("Size", b.current), b.integers(0))
    target = b.op("Concat", first, b.op("Div", rest, first), axis=0)
    b.then("Reshape", target, shape=(b.shape[0], b.size // b.shape[0]))


MOVERS["Shape, Size"] = Form(_shaped_by_itself, 13)


def _shape_part(b: Builder) -> None:
    target = b.op("Shape", b.current, start=0, end=1)
    b.then(
        "Reshape",
        b.op("Concat", target, b.integers(-1), axis=0),
        shape=(b.shape[0], b.size // b.shape[0]),
    )


MOVERS["Shape, start and end"] = Form(_shape_part, 15)


def _dropout(kind: str, b: Builder) -> None:
    ratio = b.tensor(np.array(0.25, np.float32))
    if kind == "ratio attribute":
        b.then("Dropout", ratio=0.5)
    elif kind == "no ratio":
        b.then("Dropout")
    elif kind == "ratio":
        b.then("Dropout", ratio, seed=b.choose([None, 3]))
    else:
        mode = b.tensor(np.array(False))
        b.then("Dropout", b.choose([ratio, ""]), mode)


MOVERS["Dropout, no ratio"] = Form(partial(_dropout, "no ratio"))
MOVERS["Dropout, ratio attribute"] = Form(partial(_dropout, "ratio attribute"), 7, 11)
MOVERS["Dropout, ratio"] = Form(partial(_dropout, "ratio"), 12)
MOVERS["Dropout, training_mode"] = Form(partial(_dropout, "mode"), 12)


# -- elementwise arithmetic ---------------------------------------------------------------


def _operand_shape(b: Builder) -> Shape:
    """Return the shape of a constant; for an image one that all cells of a channel share."""
    if len(b.shape) < 3:
        return part(b, b.shape)
    spatial = (1,) * (len(b.shape) - 2)
    return b.choose([(), (1,), (b.shape[1], *spatial), (1, b.shape[1], *spatial)])


def _arithmetic(kind: str, left: bool, b: Builder) -> None:
    shape = _operand_shape(b)
    other = leaf(b, powers(b, shape)) if kind in ("Mul", "Div") else constant(b, shape)
    inputs = (other, b.current) if left else (b.current, other)
    b.current = b.op(kind, *inputs)


for _kind in ("Add", "Sub", "Mul"):
    STEPS[f"{_kind}, constant second"] = Form(partial(_arithmetic, _kind, False))
    STEPS[f"{_kind}, constant first"] = Form(partial(_arithmetic, _kind, True))
STEPS["Div, constant second"] = Form(partial(_arithmetic, "Div", False))
STEPS["Neg"] = Form(lambda b: b.then("Neg"))


def _normalisation(b: Builder, **attributes: Any) -> None:
    channels = b.shape[1]
    scale = b.rng.uniform(0.5, 2.0, channels) * b.rng.choice([-1, 1], channels)
    arrays = (
        scale,
        b.rng.uniform(-0.5, 0.5, channels),
        b.rng.integers(-2, 3, channels) + 0.31,
        b.rng.uniform(0.5, 2.0, channels),
    )
    names = [leaf(b, array.astype(np.float32)) for array in arrays]
    b.exact = False
    b.then("BatchNormalization", *names, **attributes)


STEPS["BatchNormalization"] = Form(_normalisation)
STEPS["BatchNormalization, epsilon"] = Form(partial(_normalisation, epsilon=0.25))
STEPS["BatchNormalization, momentum"] = Form(partial(_normalisation, momentum=0.5))
STEPS["BatchNormalization, spatial=1"] = Form(partial(_normalisation, spatial=1), 7, 8)
STEPS["BatchNormalization, training_mode=0"] = Form(partial(_normalisation, training_mode=0), 14)


# -- linear maps --------------------------------------------------------------------------


def row(b: Builder) -> None:
    """Make the current tensor a row."""
    if len(b.shape) != 2 or b.shape[0] != 1:
        b.then("Reshape", b.integers(1, -1), shape=(1, b.size))


def _matmul(kind: str, b: Builder) -> None:
    width, outputs = b.size, b.integer(2, 4)
    if kind == "matrix":
        b.then("MatMul", weights(b, (width, outputs)), shape=(1, outputs))
    elif kind == "more axes":
        name = weights(b, (1, 1, width, outputs))
        b.then("MatMul", name, shape=(1, 1, 1, outputs))
    elif kind == "vector":
        b.then("MatMul", weights(b, (width,)), shape=(1,))
    elif kind == "row times matrix":
        b.then("Reshape", b.integers(-1), shape=(width,))
        b.then("MatMul", weights(b, (width, outputs)), shape=(outputs,))
    elif kind == "groups":
        groups = b.choose([n for n in range(1, width + 1) if width % n == 0])
        b.then("Reshape", b.integers(1, groups, -1), shape=(1, groups, width // groups))
        b.then("MatMul", weights(b, (width // groups, outputs)), shape=(1, groups, outputs))
    elif kind == "constant first":
        b.then("Reshape", b.integers(-1, 1), shape=(width, 1))
        b.current = b.op("MatMul", weights(b, (outputs, width)), b.current)
        b.shape = (outputs, 1)
    else:
        b.then("Reshape", b.integers(1, -1, 1), shape=(1, width, 1))
        b.current = b.op("MatMul", weights(b, (width,)), b.current)
        b.shape = (1, 1)


for _kind in (
    *("matrix", "more axes", "vector", "row times matrix", "groups", "constant first"),
    "constant vector first",
):
    DENSE[f"MatMul, {_kind}"] = Form(partial(_matmul, _kind))


def _gemm(b: Builder, *, bias: str = "row", left: bool = False, **attributes: Any) -> None:
    width, outputs = b.size, b.integer(2, 4)
    turned = attributes.get("transB" if left else "transA", 0)
    if bool(turned) != left:
        b.then("Reshape", b.integers(-1, 1), shape=(width, 1))
    shape = (outputs, 1) if left else (1, outputs)
    flipped = attributes.get("transA" if left else "transB", 0)
    name = weights(b, (outputs, width) if left != bool(flipped) else (width, outputs))
    inputs = [name, b.current] if left else [b.current, name]
    if bias == "empty":
        inputs.append("")
    elif bias != "none":
        shapes: dict[str, Shape] = {
            "row": (1,) if left else (outputs,),
            "matrix": shape,
            "one": (1,),
            "scalar": (),
        }
        inputs.append(constant(b, shapes[bias]))
    b.current = b.op("Gemm", *inputs, **attributes)
    b.shape = shape


DENSE["Gemm"] = Form(_gemm)
DENSE["Gemm, transB"] = Form(partial(_gemm, transB=1))
DENSE["Gemm, transA"] = Form(partial(_gemm, transA=1))
DENSE["Gemm, transA, transB"] = Form(partial(_gemm, transA=1, transB=1))
DENSE["Gemm, constant first"] = Form(partial(_gemm, left=True))
DENSE["Gemm, constant first, transA, transB"] = Form(partial(_gemm, left=True, transA=1, transB=1))
DENSE["Gemm, alpha, beta"] = Form(partial(_gemm, alpha=-0.5, beta=2.0))
DENSE["Gemm, beta=0"] = Form(partial(_gemm, beta=0.0))
DENSE["Gemm, no bias"] = Form(partial(_gemm, bias="none"), 11)
DENSE["Gemm, bias without name"] = Form(partial(_gemm, bias="empty"), 11)
for _kind in ("matrix", "one", "scalar"):
    DENSE[f"Gemm, bias: {_kind}"] = Form(partial(_gemm, bias=_kind))


# -- images -------------------------------------------------------------------------------


def _window(b: Builder, kernel: list[int], **attributes: Any) -> tuple[Shape, dict[str, Any]]:
    """Return the spatial axes after a window operator, and its attributes for this rank."""
    rank = len(b.shape) - 2
    cut: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in ("strides", "dilations"):
            cut[key] = value[:rank]
        elif key == "pads":
            cut[key] = [*value[:rank], *value[2 : 2 + rank]]
        else:
            cut[key] = value
    strides = cut.get("strides", [1] * rank)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, cut.get("dilations", [1] * rank), strict=True)]
    pads = cut.get("pads", [0] * 2 * rank)
    out = []
    for axis, n in enumerate(b.shape[2:]):
        if cut.get("auto_pad", "NOTSET").startswith("SAME"):
            out.append(-(-n // strides[axis]))
            continue
        room = n + pads[axis] + pads[rank + axis] - reach[axis]
        out.append(
            (-(-room // strides[axis]) if cut.get("ceil_mode") else room // strides[axis]) + 1
        )
    return tuple(out), cut


def _kernel(b: Builder, *sizes: int) -> list[int]:
    return list(sizes)[: len(b.shape) - 2]


def _conv(
    b: Builder, *, bias: bool = False, group: int = 1, named: bool = False, **more: Any
) -> None:
    kernel = _kernel(b, 2, 3) if b.chance(0.5) else _kernel(b, 2, 2)
    channels = b.shape[1]
    group = channels if group > 1 else 1
    outputs = group * b.integer(1, 2)
    out, attributes = _window(b, kernel, **more)
    if group > 1:
        attributes["group"] = group
    if named:
        attributes["kernel_shape"] = kernel
    inputs = [weights(b, (outputs, channels // group, *kernel))]
    if bias:
        inputs.append(constant(b, (outputs,)))
    b.then("Conv", *inputs, shape=(1, outputs, *out), **attributes)


for _name, _how in {
    "Conv": {},
    "Conv, bias": {"bias": True},
    "Conv, kernel_shape": {"named": True},
    "Conv, strides": {"strides": [2, 1]},
    "Conv, pads": {"pads": [1, 0, 0, 1]},
    "Conv, dilations": {"dilations": [2, 1]},
    "Conv, group": {"group": 2},
    "Conv, auto_pad SAME_UPPER": {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    "Conv, auto_pad SAME_LOWER": {"auto_pad": "SAME_LOWER", "strides": [1, 2]},
    "Conv, auto_pad VALID": {"auto_pad": "VALID"},
    "Conv, auto_pad NOTSET": {"auto_pad": "NOTSET", "pads": [1, 1, 1, 1]},
}.items():
    CONVOLUTIONS[_name] = Form(partial(_conv, **_how))


def _pool(kind: str, b: Builder, *, kernel: tuple[int, int] = (2, 2), **more: Any) -> None:
    sizes = _kernel(b, *kernel)
    out, attributes = _window(b, sizes, **more)
    if min(out) < 1:
        b.then("Identity")
        return
    b.then(kind, kernel_shape=sizes, shape=(*b.shape[:2], *out), **attributes)


for _name, _first, _how in (
    ("", 7, {}),
    (", strides", 7, {"strides": [2, 1]}),
    (", pads", 7, {"pads": [1, 0, 0, 1]}),
    (", auto_pad SAME_UPPER", 7, {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    (", auto_pad SAME_LOWER", 7, {"auto_pad": "SAME_LOWER"}),
    (", auto_pad VALID", 7, {"auto_pad": "VALID"}),
):
    IMAGES[f"MaxPool{_name}"] = Form(partial(_pool, "MaxPool", **_how), _first)
    IMAGES[f"AveragePool{_name}"] = Form(partial(_pool, "AveragePool", **_how), _first)
IMAGES["MaxPool, storage_order"] = Form(partial(_pool, "MaxPool", storage_order=1), 8)
IMAGES["MaxPool, dilations"] = Form(partial(_pool, "MaxPool", dilations=[2, 1]), 10)
IMAGES["MaxPool, ceil_mode"] = Form(
    partial(_pool, "MaxPool", kernel=(2, 2), strides=[2, 2], ceil_mode=1), 10
)
IMAGES["AveragePool, count_include_pad"] = Form(
    partial(_pool, "AveragePool", pads=[1, 0, 0, 1], count_include_pad=1)
)
IMAGES["AveragePool, dilations"] = Form(partial(_pool, "AveragePool", dilations=[2, 1]), 19)


def _global(kind: str, b: Builder) -> None:
    if kind == "GlobalAveragePool":
        _count(b, b.shape[2:])
    b.then(kind, shape=(*b.shape[:2], *(1,) * (len(b.shape) - 2)))


def _count(b: Builder, sizes: Shape) -> None:
    """Note that a mean over so many entries may be rounded."""
    if math.prod(sizes).bit_count() != 1:
        b.exact = False


IMAGES["GlobalMaxPool"] = Form(partial(_global, "GlobalMaxPool"))
IMAGES["GlobalAveragePool"] = Form(partial(_global, "GlobalAveragePool"))


def _reduce(kind: str, how: str, b: Builder) -> None:
    axis = len(b.shape) - 1
    axes = {"axes": [axis], "negative": [-1], "several": [axis, 1], "all": None, "noop": None}[how]
    places = tuple(range(len(b.shape))) if axes is None else tuple(a % len(b.shape) for a in axes)
    keep = None if how != "axes" else b.choose([None, 1])
    more: dict[str, Any] = {"keepdims": keep}
    if how == "noop":
        more["noop_with_empty_axes"], places = 1, ()
    if kind == "ReduceMean":
        _count(b, tuple(b.shape[a] for a in places))
    b.current = reduce_axes(b, kind, b.current, axes, **more)
    b.shape = tuple(1 if a in places else n for a, n in enumerate(b.shape))


def _dropped(kind: str, b: Builder) -> None:
    if kind == "ReduceMean":
        _count(b, b.shape[2:])
    axes = list(range(2, len(b.shape)))
    b.current = reduce_axes(b, kind, b.current, axes, keepdims=0)
    b.shape = b.shape[:2]


for _kind in ("ReduceSum", "ReduceMean"):
    _since = 13 if _kind == "ReduceSum" else 18
    IMAGES[f"{_kind}, axes"] = Form(partial(_reduce, _kind, "axes"))
    IMAGES[f"{_kind}, several axes"] = Form(partial(_reduce, _kind, "several"))
    IMAGES[f"{_kind}, negative axes"] = Form(partial(_reduce, _kind, "negative"), 11)
    IMAGES[f"{_kind}, no axes"] = Form(partial(_reduce, _kind, "all"))
    IMAGES[f"{_kind}, noop"] = Form(partial(_reduce, _kind, "noop"), _since)
    IMAGES[f"{_kind}, keepdims=0"] = Form(partial(_dropped, _kind))


def _pad(kind: str, b: Builder) -> None:
    rank = len(b.shape)
    before = [0, *(b.integer(0, 1) for _ in range(rank - 1))]
    after = [0, *(b.integer(0, 1) for _ in range(rank - 1))]
    value = float(b.numbers(()))
    shape = tuple(n + p + q for n, p, q in zip(b.shape, before, after, strict=True))
    if b.opset < 11:
        given = {"value": value} if kind == "value" else {}
        mode = {"mode": "constant"} if kind == "mode" else {}
        b.then("Pad", pads=[*before, *after], shape=shape, **given, **mode)
        return
    pads = b.integers(*before, *after)
    fill = b.tensor(np.array(value, np.float32))
    if kind == "axes":
        order = list(range(1, rank))
        b.rng.shuffle(order)
        pads = b.integers(*(before[a] for a in order), *(after[a] for a in order))
        listed = b.integers(*(a - rank if b.chance(0.5) else a for a in order))
        b.then("Pad", pads, b.choose(["", fill]), listed, shape=shape)
    elif kind == "value":
        b.then("Pad", pads, fill, shape=shape)
    else:
        b.then("Pad", pads, mode="constant" if kind == "mode" else None, shape=shape)


for _kind in ("zeros", "value", "mode"):
    IMAGES[f"Pad, {_kind}"] = Form(partial(_pad, _kind))
IMAGES["Pad, axes"] = Form(partial(_pad, "axes"), 18)


# -- signs --------------------------------------------------------------------------------


def _bare(b: Builder) -> None:
    b.watched.append((b.current, None))
    b.then("Sign")
    b.bare.append(b.current)


def _settled(kind: str, b: Builder) -> None:
    b.watched.append((b.current, None))
    b.then("Sign")
    b.then(kind, b.tensor(np.array(b.choose([0.25, -0.25]), np.float32)))
    b.then("Sign")


def _clipped(kind: str, b: Builder) -> None:
    b.watched.append((b.current, None))
    low, high = -1.0, 0.5
    if b.opset < 11:
        given = {"both": {"min": low, "max": high}, "low": {"min": low}, "high": {"max": high}}
        b.then("Clip", **given[kind])
    else:
        names = [b.tensor(np.array(n, np.float32)) for n in (low, high)]
        inputs = {"both": names, "low": names[:1], "high": ["", names[1]]}
        b.then("Clip", *inputs[kind])
    b.then("Sign")
    b.bare.append(b.current)


def _bipolar(b: Builder) -> None:
    b.watched.append((b.current, None))
    scale = b.tensor(np.array(b.choose([0.5, 1.0, 2.0]), np.float32))
    b.then("BipolarQuant", scale, domain="onnx.brevitas")


SIGNS["Sign"] = Form(_bare, 9)
SIGNS["Sign, Add, Sign"] = Form(partial(_settled, "Add"), 9)
SIGNS["Sign, Sub, Sign"] = Form(partial(_settled, "Sub"), 9)
SIGNS["BipolarQuant"] = Form(_bipolar, 9)
for _kind in ("both", "low", "high"):
    SIGNS[f"Clip, bounds: {_kind}"] = Form(partial(_clipped, _kind), 9)


def _compared(kind: str, left: bool, into: Callable[[Builder], None], b: Builder) -> None:
    other = constant(b, _operand_shape(b))
    b.watched.append((b.current, other))
    inputs = (other, b.current) if left else (b.current, other)
    b.current = b.op(kind, *inputs)
    into(b)


def _numbers_of(b: Builder, dtype: Any, *pairs: tuple[str, int]) -> None:
    for kind, number in pairs:
        b.then(kind, b.tensor(np.array(number, dtype)))


def _cast_float(b: Builder) -> None:
    b.then("Cast", to=TensorProto.FLOAT)
    _numbers_of(b, np.float32, ("Mul", 2), ("Sub", 1))


def _cast_double(b: Builder) -> None:
    b.then("Cast", to=TensorProto.DOUBLE)
    _numbers_of(b, np.float64, ("Mul", 2), ("Sub", 1))
    b.then("Sign")
    b.then("Cast", to=TensorProto.FLOAT)


def _cast_integer(code: int, dtype: Any, b: Builder) -> None:
    b.then("Cast", to=code)
    _numbers_of(b, dtype, ("Mul", 2), ("Sub", 1))
    b.then("Cast", to=TensorProto.FLOAT)


def _integer_sign(b: Builder) -> None:
    b.then("Cast", to=TensorProto.INT64)
    _numbers_of(b, np.int64, ("Mul", 4), ("Add", -2))
    b.then("Sign")
    _numbers_of(b, np.int64, ("Mul", 3))
    b.then("Cast", to=TensorProto.FLOAT)


def _negated(b: Builder) -> None:
    b.then("Not")
    _cast_float(b)


def _where(kind: str, b: Builder) -> None:
    shape = _operand_shape(b)
    if kind == "floats":
        # Behind these three nodes are signs, or their negatives, which any weights may follow.
        middle, gap = b.numbers(shape), powers(b, shape)
        b.then("Where", leaf(b, middle + gap), leaf(b, middle - gap))
        b.then("Sub", b.tensor(middle))
        b.then("Div", b.tensor(np.abs(gap)))
        return
    dtype = b.choose([np.int32, np.int64])
    b.then("Where", b.tensor(np.array(b.choose([-1, 3]), dtype)), b.tensor(np.array(1, dtype)))
    b.then("Cast", to=TensorProto.FLOAT)


_INTO: dict[str, tuple[int, Callable[[Builder], None]]] = {
    "Cast to float": (7, _cast_float),
    "Cast to double": (13, _cast_double),
    "Cast to int32": (7, partial(_cast_integer, TensorProto.INT32, np.int32)),
    "Cast to int64": (7, partial(_cast_integer, TensorProto.INT64, np.int64)),
    "Sign of integers": (9, _integer_sign),
    "Not": (7, _negated),
    "Where": (9, partial(_where, "floats")),
    "Where of integers": (9, partial(_where, "integers")),
}
for _kind, _first in (("Greater", 7), ("Less", 7), ("GreaterOrEqual", 12), ("LessOrEqual", 12)):
    for _left in (False, True):
        for _name, (_since, _into) in _INTO.items():
            _side = "constant first" if _left else "constant second"
            SIGNS[f"{_kind}, {_side}, {_name}"] = Form(
                partial(_compared, _kind, _left, _into), max(_first, _since)
            )


# -- the end ------------------------------------------------------------------------------


def _softmax(kind: str, axis: int | None, b: Builder) -> None:
    b.then(kind, axis=axis)
    b.end = kind


def _argmax(keep: int | None, axis: int, b: Builder, **more: Any) -> None:
    b.then("ArgMax", axis=axis, keepdims=keep, **more)
    b.end, b.output_type = "ArgMax", TensorProto.INT64


for _kind in ("Softmax", "LogSoftmax"):
    ENDS[f"{_kind}, default"] = Form(partial(_softmax, _kind, None))
    ENDS[f"{_kind}, axis"] = Form(partial(_softmax, _kind, 1))
    ENDS[f"{_kind}, negative axis"] = Form(partial(_softmax, _kind, -1), 11)
ENDS["Softmax over all axes"] = Form(partial(_softmax, "Softmax", 0), 7, 12)
ENDS["ArgMax"] = Form(partial(_argmax, None, 1))
ENDS["ArgMax, keepdims=0"] = Form(partial(_argmax, 0, 1))
ENDS["ArgMax, negative axis"] = Form(partial(_argmax, 1, -1), 11)
ENDS["ArgMax, select_last_index=0"] = Form(partial(_argmax, 1, 1, select_last_index=0), 12)
