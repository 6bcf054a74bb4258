"""The quantisers of Larq for kernels and activations, by their names in a file.

A file stores latent kernels, so the quantiser is applied here, in float32 as in Larq:

* sign (``ste_sign``, ``approx_sign``, ``swish_sign``): +1 for w >= 0, else -1;
* ternary (``ste_tern``): sign(sign(w + t) + sign(w - t)), so |w| = t counts as non-zero.  With
  ``ternary_weight_networks`` t is 0.7 times the mean of |w|, whose last bits depend on the order in
  which a machine adds; a weight that is so close to t that this matters raises an error.

Numbers below the smallest normal float32 raise an error: TensorFlow may treat them as zero.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.model.formats.layer_chain import FileLayer

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
    """Return the name and the options of an object that Keras has written as JSON."""
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
    """Return what an activation or the quantiser of an input does."""
    name, _ = object_name(entry, layer, what)
    if name not in _ACTIVATIONS:
        raise layer.unsupported(
            f"its {what} is {name}; a binary network has signs (ste_sign, approx_sign, swish_sign) "
            "or levels (binary, ternary, ternary_tanh, quantized_relu, quantized_bits)"
        )
    return _ACTIVATIONS[name]


def quantised(kernel: npt.NDArray[np.float32], entry: Any, layer: FileLayer, what: str) -> Kernel:
    """Return a kernel as the layer uses it: integers -1, 0, 1, or the stored numbers."""
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
