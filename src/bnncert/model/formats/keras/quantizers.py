"""The quantisers of Larq and QKeras for kernels and activations, by their names in a file.

A file stores latent kernels, so the quantiser is applied here, in float32 as in TensorFlow:

* sign (``ste_sign``, ``approx_sign``, ``swish_sign``): +1 for w >= 0, else -1;
* ternary (``ste_tern``): sign(sign(w + t) + sign(w - t)), so |w| = t counts as non-zero.  With
  ``ternary_weight_networks`` t is 0.7 times the mean of |w|, whose last bits depend on the order in
  which a machine adds; a weight that is so close to t that this matters raises an error;
* those of QKeras, which computes x + (q - x) to have a gradient; in real arithmetic this is q.
  Its layers treat a kernel quantiser without `alpha` as one with ``alpha="auto_po2"``: a power of
  two for each output channel that is computed from the kernel.

Numbers below the smallest normal float32 raise an error: TensorFlow may treat them as zero.  An
activation is a sign or a step function (module `quantisers` of the ONNX reader), also the
activations `binary_tanh` and `ternary_tanh` of hls4ml.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.model.formats.layer_chain import FileLayer

# -- Larq ---------------------------------------------------------------------------------

Kernel: TypeAlias = npt.NDArray[np.int8] | npt.NDArray[np.float32]
Activation: TypeAlias = Literal["linear", "larq sign", "sign", "hard_tanh", "softmax"]

#: The quantisers that are a sign with sign(0) = +1, as classes and as functions.
SIGN_CLASSES = ("SteSign", "ApproxSign", "SwishSign")
SIGNS = (*SIGN_CLASSES, "ste_sign", "approx_sign", "swish_sign")

_TERNARY = ("SteTern", "ste_tern")
_MAGNITUDE = ("MagnitudeAwareSign", "magnitude_aware_sign")
_ACTIVATIONS: dict[str, Activation] = {
    **dict.fromkeys(SIGNS, "larq sign"),
    "linear": "linear",
    "NoOp": "linear",
    "no_op": "linear",
    "sign": "sign",
    # Its value at 0 differs: -1 in the Keras function of this name, +1 in hls4ml.
    "binary_tanh": "sign",
    "hard_tanh": "hard_tanh",
    "softmax": "softmax",
}

#: Packages whose layers and quantisers are known by their names.
_KNOWN_PACKAGES = ("keras", "tf_keras", "tensorflow", "larq", "qkeras", "builtins")

#: Weights closer to a float32 mean than this part of it are not decided: it leaves room for some
#: ten roundings, more than summing in blocks makes in practice (a proof would need the order).
SUMMATION_BAND = 2.0**-20


def object_name(entry: Any, layer: FileLayer, what: str) -> tuple[str, dict[str, Any]]:
    """Read the name and the options of an object that Keras has written as JSON."""
    if entry is None:
        return "linear", {}
    if isinstance(entry, str):
        return _local(entry, layer, what), {}
    if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
        raise layer.broken(f"its {what} is not a name or an object with class_name")
    check_package(entry, layer, what)
    options = entry.get("config")
    if entry["class_name"] == "function" and isinstance(options, str):
        return _local(options, layer, what), {}
    return _local(entry["class_name"], layer, what), options if isinstance(options, dict) else {}


def check_package(entry: dict[str, Any], layer: FileLayer, what: str) -> None:
    """Raise for objects of other packages, whose behaviour is not known."""
    module = entry.get("module")
    if isinstance(module, str) and module.split(".", 1)[0] not in _KNOWN_PACKAGES:
        raise layer.unsupported(
            f"its {what} comes from {module}, which is none of Keras, Larq and QKeras"
        )
    registered = entry.get("registered_name")
    if isinstance(registered, str) and ">" in registered:
        _local(registered, layer, what)


def _local(name: str, layer: FileLayer, what: str) -> str:
    package, _, local = name.rpartition(">")
    if package and package.lower() not in _KNOWN_PACKAGES:
        raise layer.unsupported(f"its {what} is {name}, which is not of Keras, Larq or QKeras")
    return local


def activation_of(entry: Any, layer: FileLayer, what: str) -> Activation:
    """Classify an activation, or the quantiser of an input, by its name."""
    name, _ = object_name(entry, layer, what)
    if name not in _ACTIVATIONS:
        raise layer.unsupported(
            f"its {what} is {name}; a binary network has signs (ste_sign, approx_sign, swish_sign) "
            "or levels (binary, ternary, ternary_tanh, quantized_relu, quantized_bits)"
        )
    return _ACTIVATIONS[name]


def quantised(kernel: npt.NDArray[np.float32], entry: Any, layer: FileLayer, what: str) -> Kernel:
    """Quantise a kernel as the layer does: integers -1, 0, 1, or the stored numbers."""
    name, options = object_name(entry, layer, what)
    if name in ("linear", "NoOp", "no_op"):
        return kernel
    if name in SIGNS:
        check_normal(kernel, layer)
        return np.where(kernel >= 0, 1, -1).astype(np.int8)
    if name in _TERNARY:
        return _ternary(kernel, options, layer, what)
    if name in _MAGNITUDE:
        raise layer.unsupported(
            f"its {what} {name} scales each channel by a float32 mean that depends on the machine; "
            "use ste_sign and batch normalisation"
        )
    raise layer.unsupported(
        f"its {what} is {name}; supported are ste_sign, approx_sign, swish_sign and ste_tern of "
        "Larq, and binary, ternary and quantized_bits of QKeras"
    )


def check_normal(kernel: npt.NDArray[np.float32], layer: FileLayer) -> None:
    """Raise for numbers that TensorFlow may treat as zero."""
    smallest = np.finfo(np.float32).tiny
    doubtful = np.argwhere((kernel != 0) & (np.abs(kernel) < smallest))
    if doubtful.size:
        place = tuple(int(n) for n in doubtful[0])
        raise layer.unsupported(
            f"weight {kernel[place]:.3g} at {place} is so small that TensorFlow may treat it as 0"
        )


def _ternary(
    kernel: npt.NDArray[np.float32], options: dict[str, Any], layer: FileLayer, what: str
) -> Kernel:
    check_normal(kernel, layer)
    if options.get("ternary_weight_networks"):
        threshold = _mean_threshold(kernel, layer, what)
    else:
        stated = options.get("threshold_value", 0.05)
        if isinstance(stated, bool) or not isinstance(stated, (int, float)):
            raise layer.broken(f"its {what} has the threshold {stated!r}; expected a number")
        threshold = np.float32(stated)
        # Below 2^-100 differences of weights and threshold may not be normal numbers.
        if not (threshold == 0 or 2.0**-100 < threshold < 2.0**100):
            raise layer.unsupported(f"its {what} has the threshold {stated!r}")
    signs = np.sign(np.sign(kernel + threshold) + np.sign(kernel - threshold))
    return np.asarray(signs, dtype=np.int8)


def _mean_threshold(kernel: npt.NDArray[np.float32], layer: FileLayer, what: str) -> np.float32:
    magnitude = np.abs(kernel.astype(np.float64)).reshape(-1)
    threshold = 0.7 * math.fsum(magnitude.tolist()) / max(1, magnitude.size)
    near = np.argwhere(np.abs(np.abs(kernel) - threshold) <= SUMMATION_BAND * threshold)
    if near.size and threshold > 0:
        place = tuple(int(n) for n in near[0])
        raise layer.unsupported(
            f"its {what} cuts at 0.7 mean|w| = {threshold:.9g}, and weight {kernel[place]:.9g} at "
            f"{place} is too close to that for float32; save the model in quantized_scope(True)"
        )
    return np.float32(threshold)  # type: ignore[no-any-return]


# -- QKeras -------------------------------------------------------------------------------

#: The parameters of the quantisers, in the order in which a text such as "ternary(1.0)" has them.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "binary": ("use_01", "alpha", "use_stochastic_rounding"),
    "ternary": ("alpha", "threshold", "use_stochastic_rounding", "number_of_unrolls"),
    "quantized_bits": (
        *("bits", "integer", "symmetric", "keep_negative", "alpha", "use_stochastic_rounding"),
        *("scale_axis", "qnoise_factor", "var_name", "use_ste", "use_variables"),
    ),
    "quantized_relu": (
        *("bits", "integer", "use_sigmoid", "negative_slope", "use_stochastic_rounding"),
        *("relu_upper_bound", "is_quantized_clip", "qnoise_factor", "var_name", "use_ste"),
        "use_variables",
    ),
}

#: Options that must have this value, because others change the function or make it random.
_FIXED: dict[str, Any] = {
    **{"use_stochastic_rounding": False, "qnoise_factor": 1.0},
    **{"use_sigmoid": 0, "negative_slope": 0.0, "is_quantized_clip": True, "scale_axis": None},
}

#: The most bits of an activation, and of a kernel: these are exact in float32.
MOST_BITS, MOST_KERNEL_BITS = 8, 16

#: Added to a mean by QKeras before its logarithm is taken, and how close to the middle of two
#: powers of two the mean may be: it is a float32 sum, whose last bits depend on the machine.
_EPSILON, _POWER_BAND = 1e-7, 1e-3


@dataclass(frozen=True)
class Quantiser:
    """A quantiser of QKeras with its options, for one layer."""

    name: str
    options: dict[str, Any]
    layer: FileLayer
    what: str

    def refused(self, why: str) -> Exception:
        """Make the error for this quantiser, which names the layer and what it quantises."""
        return self.layer.unsupported(f"its {self.what} {self.name}: {why}")

    def whole(self, key: str, default: int) -> int:
        """Read an integer option; QKeras also writes 0.0 and False."""
        number = self.options.get(key, default)
        number = default if number is None else number
        if not isinstance(number, int | float) or number != int(number):
            raise self.refused(f"{key} {number!r}; expected an integer")
        return int(number)

    def number(self, key: str, default: float) -> float:
        """Read a positive number, rounded to float32 as in TensorFlow."""
        number = self.options.get(key)
        number = default if number is None else number
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise self.refused(f"{key} {number!r}; expected a number")
        value = float(np.float32(number))
        if not 2.0**-100 < value < 2.0**100:
            raise self.refused(f"{key} {number!r}; expected a positive number")
        return value


class StepFunction(NamedTuple):
    """step * (low + the number of thresholds reached), for an activation."""

    thresholds: tuple[float, ...]
    #: For each threshold whether a value equal to it is below the step.
    strict: tuple[bool, ...]
    low: float
    step: float = 1.0


def quantiser_of(entry: Any, layer: FileLayer, what: str) -> Quantiser | None:
    """Read the quantiser of QKeras that an entry of a file names, None if it is none of them."""
    name, options = object_name(entry, layer, what)
    head, bracket, _ = name.partition("(")
    if head not in _PARAMETERS:
        if head.startswith(("stochastic_", "bernoulli")):
            raise layer.unsupported(
                f"its {what} is {head}, a random quantiser; save the model with binary or ternary"
            )
        return None
    if bracket:
        options = _arguments(head, name, layer, what)
    quantiser = Quantiser(head, options, layer, what)
    for key in options:
        if key not in _PARAMETERS[head]:
            raise quantiser.refused(f"option {key} is not known")
        if key in _FIXED and options[key] != _FIXED[key]:
            raise quantiser.refused(f"{key} {options[key]!r} is not supported")
    if options.get("relu_upper_bound") is not None and "is_quantized_clip" not in options:
        raise quantiser.refused("relu_upper_bound is not supported")
    return quantiser


def _arguments(head: str, text: str, layer: FileLayer, what: str) -> dict[str, Any]:
    """Read the options in a text such as ``quantized_relu(2,0)``; nothing is executed."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or len(call.args) > len(_PARAMETERS[head]):
            raise ValueError("not a call")
        given = dict(zip(_PARAMETERS[head], map(ast.literal_eval, call.args), strict=False))
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in given:
                raise ValueError("not a call")
            given[keyword.arg] = ast.literal_eval(keyword.value)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise layer.broken(f"its {what} {text[:80]!r} is not a name with numbers") from error
    return given


# -- activations --------------------------------------------------------------------------


def step_function(entry: Any, layer: FileLayer, what: str) -> StepFunction | None:
    """Write an activation of QKeras as a step function; None if it is not one."""
    if object_name(entry, layer, what)[0] == "ternary_tanh":
        return StepFunction((-0.5, 0.5), (True, True), -1.0)
    quantiser = quantiser_of(entry, layer, what)
    if quantiser is None:
        return None
    if quantiser.name == "binary":
        scale = quantiser.number("alpha", 1.0)
        if quantiser.options.get("use_01"):
            return StepFunction((0.0,), (False,), 0.0, scale)
        return StepFunction((0.0,), (False,), -0.5, 2 * scale)
    if quantiser.name == "ternary":
        cut = quantiser.number("threshold", 0.33)
        return StepFunction((-cut, cut), (True, False), -1.0, quantiser.number("alpha", 1.0))
    low, high, unit = _grid(quantiser, MOST_BITS)
    if (low, high) == (-1, 1) and unit == 0:
        return StepFunction((0.0,), (False,), -0.5, 2 * quantiser.number("alpha", 1.0))
    # Halves are rounded to even numbers.
    levels = range(low + 1, high + 1)
    scale = quantiser.number("alpha", 1.0) if quantiser.name == "quantized_bits" else 1.0
    return StepFunction(
        tuple((k - 0.5) * unit for k in levels),
        tuple(k % 2 != 0 for k in levels),
        float(low),
        unit * scale,
    )


def _grid(quantiser: Quantiser, most: int) -> tuple[int, int, float]:
    """Find the integers low and high and the unit: values are unit * k for low <= k <= high.

    The unit 0 stands for a sign: one bit, which is that of the sign.
    """
    bits, integer = quantiser.whole("bits", 8), quantiser.whole("integer", 0)
    if not 1 <= bits <= most or not -32 <= integer <= 32:
        raise quantiser.refused(f"{bits} bits, {integer} of them before the point")
    if quantiser.name == "quantized_relu":
        return 0, 2**bits - 1, math.ldexp(1.0, integer - bits)
    signed = quantiser.whole("keep_negative", 1)
    symmetric = quantiser.whole("symmetric", 0)
    if signed not in (0, 1) or symmetric not in (0, 1):
        raise quantiser.refused("keep_negative and symmetric are 0 or 1")
    free = bits - signed
    if free == 0:
        return -1, 1, 0.0
    return signed * (symmetric - 2**free), 2**free - 1, math.ldexp(1.0, integer - free)


# -- kernels and biases ------------------------------------------------------------------


def quantised_array(
    array: npt.NDArray[np.float32], quantiser: Quantiser, *, is_kernel: bool
) -> Kernel:
    """Quantise a kernel or a bias as a layer of QKeras does."""
    check_normal(array, quantiser.layer)
    alpha = quantiser.options.get("alpha", "auto_po2" if is_kernel else None)
    alpha = "auto_po2" if alpha is None and is_kernel else alpha
    if isinstance(alpha, str):
        if quantiser.name != "binary" or alpha != "auto_po2":
            raise quantiser.refused(
                f"alpha {alpha!r} scales by float32 means that depend on the machine; use alpha=1"
            )
        if array.ndim < 2:
            # Some versions take the mean of the whole bias, later ones each number by itself.
            raise quantiser.refused(
                "alpha 'auto_po2' of a bias differs between versions of QKeras; use alpha=1"
            )
        scale: Any = _powers_of_two(array, quantiser)
    else:
        scale = np.float32(quantiser.number("alpha", 1.0))
    if quantiser.name == "binary":
        low = 0.0 if quantiser.options.get("use_01") else -1.0
        whole = np.where(array >= 0, 1.0, low)
    elif quantiser.name == "ternary":
        cut = np.float32(quantiser.number("threshold", 0.33))
        whole = np.where(np.abs(array) >= cut, np.sign(array), 0.0)
    elif quantiser.name == "quantized_bits":
        least, most, unit = _grid(quantiser, MOST_KERNEL_BITS)
        if unit == 0:
            whole = np.where(array >= 0, 1.0, -1.0)
        else:
            whole = np.clip(np.rint(array.astype(np.float64) / unit), least, most) * unit
    else:
        raise quantiser.refused("it is not a quantiser of weights")
    is_ternary = bool(np.all((whole == 0) | (np.abs(whole) == 1)))
    if is_ternary and bool(np.all(scale == 1)):
        return whole.astype(np.int8)
    return np.asarray(whole.astype(np.float32) * scale, dtype=np.float32)


def _powers_of_two(kernel: npt.NDArray[np.float32], quantiser: Quantiser) -> Any:
    """Compute 2^round(log2 mean|w|) for each output channel, which is the last axis."""
    if quantiser.options.get("use_01"):
        raise quantiser.refused("use_01 with alpha 'auto_po2' is not supported; use alpha=1")
    axes = tuple(range(kernel.ndim - 1))
    mean = np.abs(kernel.astype(np.float64)).mean(axis=axes, keepdims=True)
    power = np.log2(mean / (1 + _EPSILON) + _EPSILON)
    if np.any(np.abs(power - np.floor(power) - 0.5) < _POWER_BAND):
        raise quantiser.refused(
            "alpha 'auto_po2': a mean of weights is too close to the middle of two powers of two "
            "for float32; use alpha=1"
        )
    return np.exp2(np.rint(power)).astype(np.float32)
