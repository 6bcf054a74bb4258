"""PyTorch models in memory: a ``torch.nn.Sequential`` of supported layers.

A module is recognised by its exact class.  A subclass may have a different forward pass (a
binarising ``Linear`` has one), so the user states its role and the quantiser of its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.description.model import ModelDescription, SignZero
from bnncert.errors import InputError, MissingExtraError
from bnncert.formats.layer_chain import FileLayer
from bnncert.formats.limits import DEFAULT_LIMITS, too_many
from bnncert.formats.torch.layers import (
    AS_STORED,
    LAYER_TYPES,
    TorchLayer,
    describe_layers,
    quantised,
)

#: The name of a model in memory in messages.
SOURCE = "<torch model>"

#: Classes of modules, by their full names, and the type of layer that they are.
_TYPES = {
    "Linear": "linear",
    "Conv2d": "conv2d",
    "BatchNorm1d": "batchnorm",
    "BatchNorm2d": "batchnorm",
    "Hardtanh": "hardtanh",
    "MaxPool2d": "maxpool2d",
    "Flatten": "flatten",
    "Identity": "identity",
    "Dropout": "dropout",
    "Dropout1d": "dropout",
    "Dropout2d": "dropout",
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
}

#: Names of classes that are signs; their results are checked as well.
SIGN_CLASSES = (
    "Sign",
    "SignSTE",
    "STESign",
    "SteSign",
    "SignActivation",
    "Binarize",
    "BinarizeSTE",
    "BinaryActivation",
)

#: Roles of other classes; the results of these roles can be checked.
ROLES = ("sign", "linear", "conv2d")

#: Points other than zero at which the result of a sign module is checked.
_PROBES = (-3.0, -1.0, -0.5, -1e-6, 1e-6, 0.5, 1.0, 3.0)


def describe_torch(
    model: Any,
    input_shape: tuple[int, ...],
    *,
    roles: Mapping[Any, str] | None = None,
    weights: str | Mapping[str, str] | None = None,
    sign_zero: SignZero | None = None,
    input_lo: FloatArray | None = None,
    input_hi: FloatArray | None = None,
) -> ModelDescription:
    """Describe a ``torch.nn.Sequential`` as it computes in evaluation mode.

    The parameters are those of :func:`bnncert.from_torch`.
    """
    torch = import_torch("models in memory")
    if type(model) is not torch.nn.Sequential:
        raise InputError(
            f"{SOURCE}: {type(model).__name__}; expected a torch.nn.Sequential, whose layers are "
            "applied one after the other"
        )
    _check_hooks(model, FileLayer(SOURCE, "model", "Sequential"))
    chosen = dict(roles or {})
    for kind in chosen.values():
        if kind not in ROLES:
            raise InputError(f"{SOURCE}: role {kind!r}; expected {', '.join(ROLES)}")
    layers = []
    names = set()
    for name, module in _modules(torch, model, ""):
        names.add(name)
        layer = _layer(torch, name, module, chosen)
        options, arrays = _content(module, layer)
        if layer.kind in ("linear", "conv2d"):
            stated = weights if isinstance(weights, str) else (weights or {}).get(name)
            options["quantizer"] = AS_STORED if stated is None else stated
            if type(module) in chosen:
                _check_forward(torch, module, layer, stated, arrays)
        if layer.kind == "sign":
            found = _zero(torch, module, layer)
            options["zero"] = found if sign_zero is None else sign_zero
        layers.append(TorchLayer(layer, options, arrays))
    unknown = set() if isinstance(weights, str) else set(weights or {}) - names
    if unknown:
        raise InputError(f"{SOURCE}: weights for {min(unknown)}, which is not one of the modules")
    return describe_layers(layers, input_shape, SOURCE, input_lo, input_hi)


def import_torch(what: str) -> Any:
    """Return the module torch, which is an optional dependency."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            f"reading PyTorch {what} needs torch: pip install bnncert[train]"
        ) from error
    return torch


def _modules(torch: Any, model: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the modules in order, those of a Sequential inside the model included."""
    for name, module in model.named_children():
        if type(module) is torch.nn.Sequential:
            _check_hooks(module, FileLayer(SOURCE, prefix + name, "Sequential"))
            yield from _modules(torch, module, f"{prefix}{name}.")
        else:
            yield prefix + name, module


def _layer(torch: Any, name: str, module: Any, roles: Mapping[Any, str]) -> FileLayer:
    kind = roles.get(type(module))
    class_name = type(module).__name__
    if kind is None and getattr(torch.nn, class_name, None) is type(module):
        kind = _TYPES.get(class_name)
    if kind is None and class_name in SIGN_CLASSES:
        kind = "sign"
    if kind is None:
        raise FileLayer(SOURCE, name, class_name).unsupported(
            "this module is not supported in a binary network; if it is a sign, state it "
            "with roles={" + class_name + ': "sign"}'
        )
    layer = FileLayer(SOURCE, name, kind)
    _check_hooks(module, layer)
    return layer


def _check_hooks(module: Any, layer: FileLayer) -> None:
    if module._forward_hooks or module._forward_pre_hooks:
        raise layer.unsupported("it has hooks, which may change what it computes")


def _content(module: Any, layer: FileLayer) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    known, needed, optional = LAYER_TYPES[layer.kind]
    options = {
        key: getattr(module, key)
        for key in known
        if key not in ("quantizer", "zero") and hasattr(module, key)
    }
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise layer.unsupported(f"padding mode {module.padding_mode}; expected zeros")
    if getattr(module, "return_indices", False):
        raise layer.unsupported("it returns indices")
    if layer.kind == "flatten" and (module.start_dim, module.end_dim) != (1, -1):
        raise layer.unsupported("it flattens some axes only")
    if layer.kind == "softmax" and module.dim not in (1, -1):
        raise layer.unsupported(f"dim {module.dim}; expected 1")
    arrays = {}
    for key in (*needed, *optional):
        tensor = getattr(module, key, None)
        if tensor is not None:
            arrays[key] = tensor_array(tensor, layer, key)
        elif key in needed:
            raise layer.unsupported(f"it has no {key}")
    return options, arrays


def tensor_array(tensor: Any, layer: FileLayer, what: str) -> npt.NDArray[Any]:
    """Return a tensor as an array of its own type, which must be exact in float64."""
    try:
        array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError, AttributeError) as error:
        raise layer.unsupported(f"its {what} is not a plain tensor of numbers") from error
    # With strides of 0 a few bytes can represent any number of entries.
    if array.size > DEFAULT_LIMITS.matrix:
        limit = DEFAULT_LIMITS.matrix
        raise too_many(layer.place, f"its {what} has {array.size} entries", limit, "matrix")
    if array.dtype not in (np.float32, np.float64) and array.dtype.kind not in "iu":
        raise layer.unsupported(f"its {what} has type {array.dtype}; expected float32 or float64")
    return array


def _check_forward(
    torch: Any, module: Any, layer: FileLayer, quantizer: str | None, arrays: Mapping[str, Any]
) -> None:
    """Raise if a module with a role does not compute the map that its weights define."""
    name = type(module).__name__
    if quantizer is None:
        raise layer.unsupported(
            f'{name} may quantise its weights: state it with weights={{"{layer.name}": "sign"}} '
            f'(or "ternary:T", "{AS_STORED}")'
        )
    matrix = quantised(arrays["weight"], quantizer, layer).astype(arrays["weight"].dtype)
    weight = torch.from_numpy(matrix)
    bias = torch.from_numpy(arrays["bias"]) if "bias" in arrays else None
    made = torch.Generator().manual_seed(0)
    if layer.kind == "linear":
        points = torch.randn(16, weight.shape[1], generator=made, dtype=weight.dtype)
        expected = torch.nn.functional.linear(points, weight, bias)
    else:
        reach = [d * (k - 1) + 4 for d, k in zip(module.dilation, weight.shape[2:], strict=True)]
        shape = (16, weight.shape[1] * module.groups, *reach)
        points = torch.randn(shape, generator=made, dtype=weight.dtype)
        geometry = (module.stride, module.padding, module.dilation, module.groups)
        expected = torch.nn.functional.conv2d(points, weight, bias, *geometry)
    values = _applied(torch, module, points, layer)
    # A rounding error is much smaller than the effect of one different weight.
    slack = 1e-3 * float(weight.abs().max())
    if values.shape != expected.shape or not torch.allclose(values, expected, 1e-4, slack):
        raise layer.unsupported(
            f'{name} does not compute the map of its weights with the quantiser "{quantizer}"'
        )


def _applied(torch: Any, module: Any, points: Any, layer: FileLayer) -> Any:
    """Return the result of a module in evaluation mode."""
    training = module.training
    try:
        module.eval()
        with torch.no_grad():
            return module(points.to(next(module.parameters(), points).device)).cpu()
    except Exception as error:  # the module may raise any exception
        raise layer.unsupported(
            f"{type(module).__name__} cannot be applied to a tensor ({type(error).__name__})"
        ) from error
    finally:
        module.train(training)


def _zero(torch: Any, module: Any, layer: FileLayer) -> SignZero | None:
    """Return the value of a sign module at zero, after a check that it is a sign."""
    points = torch.tensor([[*_PROBES, 0.0]])
    values = _applied(torch, module, points, layer).reshape(-1).tolist()
    signs = [1.0 if p > 0 else -1.0 for p in _PROBES]
    if values[:-1] != signs or values[-1] not in (1, 0, -1):
        raise layer.unsupported(f"{type(module).__name__} is not the sign of its input")
    # torch.sign(0) is 0, which does not define the sign.
    return "plus" if values[-1] == 1 else "minus" if values[-1] == -1 else None
