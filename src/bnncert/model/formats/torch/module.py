"""PyTorch models in memory, read from what they execute.

A class of the user whose operators cannot be read is given a role: "sign", "linear" or "conv2d".
Its results are checked, and the layer that the role names is read in place of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError, reason
from bnncert.model.description import Execution, ModelDescription
from bnncert.model.formats.layer_chain import Chain, FileLayer
from bnncert.model.formats.torch.checkpoint import AS_STORED, import_torch, quantised, tensor_array
from bnncert.model.formats.torch.trace import BATCH, SOURCE, evaluating, failing_layer, record
from bnncert.model.formats.torch.traced_operators import read_trace

#: Roles of classes; the results of these roles can be checked.
ROLES = ("sign", "linear", "conv2d")

#: Points other than zero at which the result of a sign module is checked.
_PROBES = (-3.0, -1.0, -0.5, -1e-6, 1e-6, 0.5, 1.0, 3.0)


def describe_torch(
    model: Any,
    input_shape: tuple[int, ...],
    *,
    roles: Mapping[Any, str] | None = None,
    weights: str | Mapping[str, str] | None = None,
    input_lo: FloatArray | None = None,
    input_hi: FloatArray | None = None,
) -> ModelDescription:
    """Describe a module as it computes in evaluation mode.

    The parameters are those of :func:`bnncert.from_torch`.
    """
    torch = import_torch("models in memory")
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{SOURCE}: {type(model).__name__}; expected a torch.nn.Module")
    chain = Chain(SOURCE, input_shape)
    chosen = dict(roles or {})
    for kind in chosen.values():
        if kind not in ROLES:
            raise InputError(f"{SOURCE}: role {kind!r}; expected {', '.join(ROLES)}")
    names = _names(torch, model, chosen)
    unknown = set() if isinstance(weights, str) else set(weights or {}) - set(names)
    if unknown:
        raise InputError(
            f"{SOURCE}: weights for {min(unknown)}, which is not one of the modules with a role or "
            "of the classes Linear and Conv2d"
        )
    #: Functions in place of modules whose weights the user states, and of those with a role.
    stated: dict[Any, Any] = {}
    given: dict[Any, Any] = {}
    for name, (module, kind) in names.items():
        layer = FileLayer(SOURCE, name, kind)
        quantizer = weights if isinstance(weights, str) else (weights or {}).get(name)
        if kind == "sign":
            given[module] = _sign_forward(torch, _zero(torch, module, layer))
        elif type(module) in chosen:
            weight = _checked_weight(torch, module, layer, quantizer)
            given[module] = _weighted_forward(torch, module, kind, weight)
        elif quantizer is not None:
            array = tensor_array(module.weight, layer, "weight")
            weight = torch.from_numpy(quantised(array, quantizer, layer).astype(array.dtype))
            stated[module] = _weighted_forward(torch, module, kind, weight)
    example = torch.zeros((BATCH, *input_shape), **_type_and_device(torch, model))
    execution = _execution(torch, model, stated, example)
    with evaluating(model, {**stated, **given}):
        trace = record(torch, model, example)
    read_trace(torch, trace, chain)
    return replace(chain.description("torch", input_lo, input_hi), execution=execution)


def _names(torch: Any, model: Any, roles: Mapping[Any, str]) -> dict[str, tuple[Any, str]]:
    """Find the modules with a role, and those whose weights may be stated, by all their names."""
    plain = {torch.nn.Linear: "linear", torch.nn.Conv2d: "conv2d"}
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        layer = FileLayer(SOURCE, name or "model", type(module).__name__)
        if module._forward_hooks or module._forward_pre_hooks:
            raise layer.unsupported("it has hooks, which may change what it computes")
        kind = roles.get(type(module), plain.get(type(module)))
        if kind is not None:
            found[name] = (module, kind)
    return found


def _type_and_device(torch: Any, model: Any) -> dict[str, Any]:
    floats = [p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()]
    first = floats[0] if floats else torch.zeros(1)
    return {"dtype": first.dtype, "device": first.device}


# -- execution ----------------------------------------------------------------------------


def _execution(torch: Any, model: Any, stated: Mapping[Any, Any], example: Any) -> Execution:
    """Let PyTorch execute the model, in double precision if it can."""

    def run(points: Any, kinds: Sequence[Any]) -> tuple[FloatArray, Any]:
        """Execute the model in the first of the types in which it can be; tell the type as well."""
        try:
            with evaluating(model, stated), _in_type(torch, model, kinds[0]), torch.no_grad():
                outputs = model(points.to(kinds[0]))
            if not torch.is_tensor(outputs):
                raise TypeError(f"it returns a {type(outputs).__name__}; expected one tensor")
            return np.asarray(outputs.double().cpu().numpy()), kinds[0]
        except Exception as error:  # the model may raise any exception
            if len(kinds) > 1:
                # Some models convert their inputs to float32.
                return run(points, kinds[1:])
            raise failing_layer(model, error).unsupported(
                f"PyTorch cannot execute it on inputs of shape "
                f"{'x'.join(map(str, points.shape[1:]))} ({reason(error)})"
            ) from error

    _, kind = run(example, (torch.float64, example.dtype))

    def outputs(points: FloatArray) -> FloatArray:
        shaped = torch.from_numpy(points).reshape(-1, *example.shape[1:])
        return run(shaped.to(example.device), (kind,))[0]

    return Execution("PyTorch", outputs, 2.0**-53 if kind == torch.float64 else 2.0**-24)


@contextmanager
def _in_type(torch: Any, model: Any, kind: Any) -> Iterator[None]:
    """Give the parameters and buffers of a model another type, and back.

    ``torch.func.functional_call`` leaves other tensors in a model whose modules are shared.
    """
    stores = [store for m in model.modules() for store in (m._parameters, m._buffers)]
    before = [dict(store) for store in stores]
    default = torch.get_default_dtype()
    try:
        # torch.where(x >= 0, 1.0, -1.0) has the default type.
        torch.set_default_dtype(kind)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None and tensor.is_floating_point():
                    store[name] = tensor.detach().to(kind, copy=True)
        yield
    finally:
        torch.set_default_dtype(default)
        for store, tensors in zip(stores, before, strict=True):
            store.update(tensors)


# -- roles --------------------------------------------------------------------------------


def _sign_forward(torch: Any, zero: int) -> Callable[[Any], Any]:
    def forward(x: Any) -> Any:
        if zero == 0:
            return torch.sign(x)
        one = torch.ones_like(x)
        return torch.where(x >= 0 if zero > 0 else x > 0, one, -one)

    return forward


def _weighted_forward(torch: Any, module: Any, kind: str, weight: Any) -> Callable[[Any], Any]:
    """Make a layer of PyTorch with other weights."""

    def forward(x: Any) -> Any:
        used = weight.to(x.device, x.dtype)
        if kind == "linear":
            return torch.nn.functional.linear(x, used, module.bias)
        geometry = (module.stride, module.padding, module.dilation, module.groups)
        return torch.nn.functional.conv2d(x, used, module.bias, *geometry)

    return forward


def _checked_weight(torch: Any, module: Any, layer: FileLayer, quantizer: str | None) -> Any:
    """Take the weights of a module with a role; raise if it does not compute their map."""
    name = type(module).__name__
    if quantizer is None:
        raise layer.unsupported(
            f'{name} may quantise its weights: state it with weights={{"{layer.name}": "sign"}} '
            f'(or "ternary:T", "{AS_STORED}")'
        )
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise layer.unsupported(f"padding mode {module.padding_mode}; expected zeros")
    array = tensor_array(getattr(module, "weight", None), layer, "weight")
    weight = torch.from_numpy(quantised(array, quantizer, layer).astype(array.dtype))
    made = torch.Generator().manual_seed(0)
    shape: tuple[int, ...] = (16, *weight.shape[1:])
    if layer.kind == "conv2d":
        reach = [d * (k - 1) + 4 for d, k in zip(module.dilation, weight.shape[2:], strict=True)]
        shape = (16, weight.shape[1] * module.groups, *reach)
    points = torch.randn(shape, generator=made, dtype=weight.dtype)
    expected = _weighted_forward(torch, module, layer.kind, weight)(points.to(module.weight.device))
    values = _applied(torch, module, points, layer)
    # A rounding error is much smaller than the effect of one different weight.
    slack = 1e-3 * float(weight.abs().max())
    if values.shape != expected.shape or not torch.allclose(values, expected.cpu(), 1e-4, slack):
        raise layer.unsupported(
            f'{name} does not compute the map of its weights with the quantiser "{quantizer}"'
        )
    return weight


def _applied(torch: Any, module: Any, points: Any, layer: FileLayer) -> Any:
    """Execute a module in evaluation mode."""
    try:
        with evaluating(module, {}), torch.no_grad():
            return module(points.to(next(module.parameters(), points).device)).cpu()
    except Exception as error:  # the module may raise any exception
        raise layer.unsupported(
            f"{type(module).__name__} cannot be applied to a tensor ({type(error).__name__})"
        ) from error


def _zero(torch: Any, module: Any, layer: FileLayer) -> int:
    """Find the value of a sign module at zero, after a check that it is a sign."""
    points = torch.tensor([[*_PROBES, 0.0]])
    values = _applied(torch, module, points, layer).reshape(-1).tolist()
    signs = [1.0 if p > 0 else -1.0 for p in _PROBES]
    if values[:-1] != signs or values[-1] not in (1, 0, -1):
        raise layer.unsupported(f"{type(module).__name__} is not the sign of its input")
    return int(values[-1])
