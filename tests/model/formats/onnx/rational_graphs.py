"""An evaluator of QONNX graphs in rationals, which shares no code with the package.

It follows the definitions of ONNX and QONNX node by node.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, helper, numpy_helper

Objects = npt.NDArray[Any]


def exactly(array: npt.NDArray[Any]) -> Objects:
    """Return an array of rationals."""
    flat = [Fraction(float(v)) for v in np.asarray(array).reshape(-1)]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(np.shape(array))


def _each(function: Any, *arrays: Any) -> Objects:
    """Apply a function of rationals entry by entry, with broadcasting."""
    wide = np.broadcast_arrays(*arrays)
    result = np.empty(wide[0].shape, dtype=object)
    for place in np.ndindex(*wide[0].shape):
        result[place] = function(*(array[place] for array in wide))
    return result


def rounded(value: Fraction, mode: str) -> int:
    """Round as the named mode says; written from its definition in words."""
    below, above = math.floor(value), math.ceil(value)
    away, near_zero = (above, below) if value > 0 else (below, above)
    if mode in ("CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO"):
        return {"CEIL": above, "FLOOR": below, "UP": away}.get(mode, near_zero)
    if value - below != above - value:
        return below if value - below < above - value else above
    if mode in ("ROUND", "HALF_EVEN"):
        return below if below % 2 == 0 else above
    return away if mode == "HALF_UP" else near_zero


def bounds(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def _quant(attributes: dict[str, Any], x: Any, s: Any, z: Any, bits: Any) -> Objects:
    width = int(np.asarray(bits).reshape(-1)[0])
    low, high = bounds(width, bool(attributes["signed"]), bool(attributes["narrow"]))
    mode = attributes.get("rounding_mode", b"ROUND").decode()

    def one(x: Fraction, s: Fraction, z: Fraction) -> Fraction:
        y = x / s + z
        if width == 1 and attributes["signed"]:
            return ((1 if y >= 0 else -1) - z) * s
        return (rounded(min(max(y, Fraction(low)), Fraction(high)), mode) - z) * s

    return _each(one, x, s, z)


def _multi_threshold(attributes: dict[str, Any], x: Any, table: Any) -> Objects:
    axis = 3 if attributes.get("data_layout") == b"NHWC" and x.ndim == 4 else 1
    scale = Fraction(float(attributes.get("out_scale", 1.0)))
    bias = Fraction(float(attributes.get("out_bias", 0.0)))
    result = np.empty(x.shape, dtype=object)
    for place in np.ndindex(*x.shape):
        row = table[place[axis] if len(table) > 1 else 0]
        result[place] = scale * sum(x[place] >= t for t in row) + bias
    return result


def _windows(x: Any, size: int, stride: int) -> Any:
    """Yield the place of each window of (1, C, H, W) and the corner of its content."""
    height, width = ((n - size) // stride + 1 for n in x.shape[2:])
    yield from itertools.product(range(height), range(width))


def _pool(attributes: dict[str, Any], x: Any, function: Any) -> Objects:
    size, stride = attributes["kernel_shape"][0], attributes["strides"][0]
    places = list(_windows(x, size, stride))
    result = np.empty((1, x.shape[1], places[-1][0] + 1, places[-1][1] + 1), dtype=object)
    for (i, j), c in itertools.product(places, range(x.shape[1])):
        cut = x[0, c, i * stride : i * stride + size, j * stride : j * stride + size]
        result[0, c, i, j] = function(cut.reshape(-1).tolist())
    return result


def _conv(attributes: dict[str, Any], x: Any, kernel: Any) -> Objects:
    size = kernel.shape[2]
    places = list(_windows(x, size, 1))
    result = np.empty((1, kernel.shape[0], places[-1][0] + 1, places[-1][1] + 1), dtype=object)
    for (i, j), c in itertools.product(places, range(kernel.shape[0])):
        result[0, c, i, j] = (x[0, :, i : i + size, j : j + size] * kernel[c]).sum()
    return result


def _normalised(attributes: dict[str, Any], x: Any, g: Any, b: Any, m: Any, v: Any) -> Objects:
    epsilon = Fraction(float(attributes["epsilon"]))
    shape = [1, -1, *[1] * (x.ndim - 2)]

    def root(value: Fraction) -> Fraction:
        found = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        assert found * found == value, "the tests use squares"
        return found

    deviation = _each(lambda value: root(value + epsilon), v).reshape(shape)
    return (x - m.reshape(shape)) / deviation * g.reshape(shape) + b.reshape(shape)


def _clip(attributes: dict[str, Any], x: Any, low: Any, high: Any) -> Objects:
    return _each(lambda value, a, b: min(max(value, a), b), x, low, high)


OPERATORS: dict[str, Any] = {
    "Quant": _quant,
    "IntQuant": _quant,
    "MultiThreshold": _multi_threshold,
    "BipolarQuant": lambda a, x, s: _each(lambda x, s: s if x >= 0 else -s, x, s),
    "MatMul": lambda a, x, w: x @ w,
    "Conv": _conv,
    "MaxPool": lambda a, x: _pool(a, x, max),
    "AveragePool": lambda a, x: _pool(a, x, lambda cells: sum(cells) / len(cells)),
    "Relu": lambda a, x: _each(lambda value: max(value, Fraction(0)), x),
    "Clip": _clip,
    "Round": lambda a, x: _each(lambda value: Fraction(rounded(value, "HALF_EVEN")), x),
    "Floor": lambda a, x: _each(lambda value: Fraction(rounded(value, "FLOOR")), x),
    "Ceil": lambda a, x: _each(lambda value: Fraction(rounded(value, "CEIL")), x),
    "Sign": lambda a, x: _each(lambda value: Fraction((value > 0) - (value < 0)), x),
    "Abs": lambda a, x: _each(abs, x),
    "Neg": lambda a, x: -x,
    "BatchNormalization": _normalised,
    "Flatten": lambda a, x: x.reshape(1, -1),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Add": lambda a, x, y: x + y,
    "Mul": lambda a, x, y: x * y,
    "Sub": lambda a, x, y: x - y,
    "Div": lambda a, x, y: x / y,
}


def evaluate(model: ModelProto, point: npt.NDArray[Any]) -> list[Fraction]:
    """Return the scores of a graph at one point, in rationals."""
    known: dict[str, Any] = {
        t.name: exactly(numpy_helper.to_array(t)) for t in model.graph.initializer
    }
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    known[model.graph.input[0].name] = exactly(point).reshape(shape)
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [known[name] for name in node.input]
        known[node.output[0]] = OPERATORS[node.op_type](attributes, *inputs)
    return list(known[model.graph.output[0].name].reshape(-1))
