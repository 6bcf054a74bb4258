"""The operators of PyTorch that a binary network may call, applied to the exact network."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import helper

from bnncert.model.formats.layer_chain import Arrays, Chain, FileLayer
from bnncert.model.formats.onnx.operators import HANDLERS
from bnncert.model.formats.onnx.value import Operand, Value
from bnncert.model.formats.torch.checkpoint import HANDLERS as LAYER_HANDLERS
from bnncert.model.formats.torch.checkpoint import tensor_array
from bnncert.model.formats.torch.trace import BATCH, SAME, RecordedCalls, is_random, operator_name


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an operator: its arguments by name, of which one depends on the input."""

    torch: Any
    layer: FileLayer
    name: str
    arguments: Mapping[str, Any]
    #: The name of the argument that depends on the input.
    depending: str
    #: The type of its numbers, and the shape and type of the result.
    kind: Any
    result: Any

    def option(self, name: str, default: Any = None) -> Any:
        """Read an argument that is no tensor."""
        value = self.arguments.get(name)
        return default if value is None else value

    def arrays(self, **roles: str) -> Arrays:
        """Take constant arguments as arrays by the names of layers, without absent ones."""
        return {
            role: tensor_array(self.arguments[name], self.layer, role)
            for role, name in roles.items()
            if self.arguments.get(name) is not None
        }

    def expect(self, **expected: Any) -> None:
        """Raise unless these arguments have these values, or are absent."""
        for name, value in expected.items():
            found = self.arguments.get(name, value)
            if found != value:
                raise self.layer.unsupported(f"{self.name} with {name} {found}; expected {value}")

    def on(self, name: str) -> None:
        """Raise unless the argument of this name is the one that depends on the input."""
        if self.depending != name:
            raise self.layer.unsupported(
                f"{self.name}: its {self.depending} depends on the network's input; expected only "
                f"its {name}"
            )


CallHandler: TypeAlias = Callable[[Chain, Call], None]


def read_trace(torch: Any, trace: RecordedCalls, chain: Chain) -> None:
    """Apply the recorded operators to the input of a chain."""
    known: dict[Any, Any] = dict(trace.tensors)
    kind = _numpy_type(trace.input.meta["val"].dtype)
    known[trace.input] = replace(chain.value, dtype=kind)
    readers: dict[Any, Any] = {}

    def resolved(node: Any) -> Any:
        while node in trace.instead:
            node = trace.instead[node]
        return node

    for node in trace.nodes:
        name = operator_name(node)
        used = {resolved(n) for n in node.all_input_nodes}
        values = [n for n in used if isinstance(known.get(n), Value)]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known[resolved(n)])
        if not values or name in _LIKE:
            known[node] = _folded(torch, trace, node, args, kwargs)
            continue
        if len(values) > 1 or values[0] in readers:
            other = "" if len(values) > 1 else f" ({operator_name(readers[values[0]])} as well)"
            raise trace.unsupported(
                node,
                f"{name or node.target} reads a tensor that something else reads{other}; branches "
                "and residual connections are not supported",
            )
        readers[values[0]] = node
        handler = _HANDLERS.get(name)
        if handler is None:
            raise trace.unsupported(
                node,
                f"{name or node.target} is not part of a binary network (its operators are signs, "
                "linear maps, normalisation and pooling)",
            )
        chain.value = known[values[0]]
        layer = trace.layer(node)
        arguments = _named(node, args, kwargs)
        places = [key for key, value in arguments.items() if value is chain.value]
        if len(places) != 1:
            raise trace.unsupported(node, f"{name} reads one tensor twice, or in a list")
        call = Call(
            torch,
            layer,
            name,
            arguments,
            places[0],
            getattr(values[0].meta.get("val"), "dtype", None),
            node.meta.get("val"),
        )
        with layer.reading():
            handler(chain, call)
        known[node] = chain.value
    result = known[resolved(trace.output)]
    if not isinstance(result, Value):
        raise trace.layer(trace.output).unsupported("the output does not depend on the input")
    chain.value = result


def _numpy_type(kind: Any) -> np.dtype[Any]:
    return np.dtype(str(kind).removeprefix("torch."))


def _folded(torch: Any, trace: RecordedCalls, node: Any, args: Any, kwargs: Any) -> Any:
    """Execute an operator whose result does not depend on the numbers of the input."""
    if is_random(node):
        raise trace.unsupported(node, f"{operator_name(node)} is random")

    def shaped(value: Any) -> Any:
        kind = getattr(torch, str(value.dtype))
        return torch.empty(value.shape, dtype=kind)

    args, kwargs = (
        torch.utils._pytree.tree_map_only(Value, shaped, part) for part in (args, kwargs)
    )
    with torch.no_grad():
        return node.target(*args, **kwargs)


def _named(node: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Name the arguments of a call as the schema of the operator does."""
    if node.target is operator.getitem:
        return {"self": args[0], "index": args[1]}
    known = node.target._schema.arguments
    named = {
        argument.name: argument.default_value for argument in known if argument.has_default_value()
    }
    named.update(zip((argument.name for argument in known), args, strict=False))
    return {**named, **kwargs}


# -- layers -------------------------------------------------------------------------------


def _as_layer(chain: Chain, call: Call, kind: str, arrays: Arrays, **options: Any) -> None:
    LAYER_HANDLERS[kind](chain, call.layer.having(options, arrays))


def _linear(chain: Chain, call: Call) -> None:
    call.on("input")
    _as_layer(chain, call, "linear", call.arrays(weight="weight", bias="bias"))


def _addmm(chain: Chain, call: Call) -> None:
    call.on("mat1")
    call.expect(alpha=1, beta=1)
    arrays = call.arrays(weight="mat2", bias="self")
    _as_layer(chain, call, "linear", {**arrays, "weight": arrays["weight"].T})


def _matmul(chain: Chain, call: Call) -> None:
    call.on("self")
    other = "mat2" if "mat2" in call.arguments else "other"
    chain.apply(call.layer, "MatMul", call.arrays(weight=other)["weight"])


def _conv2d(chain: Chain, call: Call) -> None:
    call.on("input")
    call.expect(transposed=False)
    padding = call.option("padding", 0)
    options = {name: _pair(call.option(name, 1)) for name in ("stride", "dilation")}
    _as_layer(
        chain,
        call,
        "conv2d",
        call.arrays(weight="weight", bias="bias"),
        padding=padding if isinstance(padding, str) else _pair(padding),
        groups=call.option("groups", 1),
        **options,
    )


def _pair(value: Any) -> Any:
    """Read two sizes, of which PyTorch may state one for both."""
    sizes = [value] if isinstance(value, int) else list(value)
    return tuple(sizes * 2 if len(sizes) == 1 else sizes)


def _batch_norm(chain: Chain, call: Call) -> None:
    call.on("input")
    names = ("weight", "bias", "running_mean", "running_var")
    arrays = call.arrays(**{name: name for name in names})
    for name in ("running_mean", "running_var"):
        if name not in arrays:
            raise call.layer.unsupported(f"it has no {name}")
    call.expect(training=False)
    _as_layer(chain, call, "batchnorm", arrays, eps=call.option("eps"))


def _max_pool2d(chain: Chain, call: Call) -> None:
    options = {
        name: _pair(call.option(name, default))
        for name, default in (("padding", 0), ("dilation", 1))
    }
    kernel = _pair(call.option("kernel_size"))
    stride = call.option("stride") or kernel
    ceil_mode = call.option("ceil_mode", False)
    _as_layer(
        chain,
        call,
        "maxpool2d",
        {},
        kernel_size=kernel,
        stride=_pair(stride),
        ceil_mode=ceil_mode,
        **options,
    )


def _avg_pool2d(chain: Chain, call: Call) -> None:
    call.expect(ceil_mode=False, divisor_override=None)
    kernel = _pair(call.option("kernel_size"))
    chain.apply(
        call.layer,
        "AveragePool",
        kernel_shape=kernel,
        strides=_pair(call.option("stride") or kernel),
        pads=_pair(call.option("padding", 0)) * 2,
        count_include_pad=int(call.option("count_include_pad", True)),
    )


def _global_average(chain: Chain, call: Call) -> None:
    if _pair(call.option("output_size")) != (1, 1):
        raise call.layer.unsupported(f"{call.name} to other sizes than 1 x 1")
    chain.apply(call.layer, "GlobalAveragePool")


def _softmax(chain: Chain, call: Call) -> None:
    dim = call.option("dim", 0)
    if dim not in (1, -1):
        raise call.layer.unsupported(f"dim {dim}; expected 1")
    _as_layer(chain, call, "softmax", {})


# -- elementwise operators ----------------------------------------------------------------


def _constant(chain: Chain, call: Call, other: Any, kind: Any) -> npt.NDArray[Any]:
    """Convert a constant operand to the type in which PyTorch computes."""
    tensor = call.torch.as_tensor(other).detach().to("cpu", kind)
    if tensor.ndim == len(chain.value.shape) and tensor.shape[0] == BATCH:
        if not bool((tensor == tensor[:1]).all()):
            raise call.layer.unsupported(f"{call.name} treats the inputs of a batch differently")
        tensor = tensor[:1]
    return tensor_array(tensor, call.layer, "constant")


def _operands(chain: Chain, call: Call) -> list[Operand]:
    """Take the two operands of a binary operator, in the type in which PyTorch computes."""
    call.expect(alpha=1, rounding_mode=None)
    other = call.arguments["self" if call.depending == "other" else "other"]
    # The other operand decides the type only if it has more than no axes, or is of another kind.
    kind = call.torch.result_type(call.torch.empty(1, dtype=call.kind), other)
    _convert(chain, call, kind)
    constant = _constant(chain, call, other, kind)
    return [chain.value, constant] if call.depending == "self" else [constant, chain.value]


def _convert(chain: Chain, call: Call, kind: Any) -> None:
    wanted = _numpy_type(kind)
    if wanted != chain.value.dtype:
        chain.apply(call.layer, "Cast", to=helper.np_dtype_to_tensor_dtype(wanted))


def _binary(op: str) -> CallHandler:
    def handler(chain: Chain, call: Call) -> None:
        operands = _operands(chain, call)
        if call.name == "rsub":
            operands.reverse()
        chain.value = HANDLERS[op](chain.walk, call.layer.node(op), operands)

    return handler


def _comparison(op: str, other_way: str) -> CallHandler:
    """Handle a comparison; x < c becomes not x >= c, so that the neuron has its own sign."""

    def handler(chain: Chain, call: Call) -> None:
        operands = _operands(chain, call)
        here = other_way if call.depending == "other" else op
        upward = {"Less": "GreaterOrEqual", "LessOrEqual": "Greater"}.get(here, here)
        if call.depending == "other":
            operands.reverse()
        chain.value = HANDLERS[upward](chain.walk, call.layer.node(upward), operands)
        if upward != here:
            chain.apply(call.layer, "Not")

    return handler


def _where(chain: Chain, call: Call) -> None:
    call.on("condition")
    kind = call.result.dtype
    sides = [_constant(chain, call, call.arguments[name], kind) for name in ("self", "other")]
    chain.apply(call.layer, "Where", *sides)


def _clip(chain: Chain, call: Call) -> None:
    low, high = (
        call.option(names[0], call.option(names[1], default))
        for names, default in ((("min", "min_val"), -math.inf), (("max", "max_val"), math.inf))
    )
    low, high = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}.get(call.name, (low, high))
    chain.clip(call.layer, float(low), float(high))


# -- operators that move entries ----------------------------------------------------------


def _reshape(chain: Chain, call: Call) -> None:
    shape = tuple(call.result.shape)
    if not shape or shape[0] != BATCH:
        raise call.layer.unsupported(
            f"{call.name} to shape {shape} mixes the inputs of a batch, or moves the batch axis"
        )
    chain.reshape(call.layer, shape[1:])


def _permute(chain: Chain, call: Call) -> None:
    rank = len(chain.value.shape)
    axes = list(range(rank))
    if call.name == "permute":
        axes = [axis % rank for axis in call.arguments["dims"]]
    else:
        first, second = (call.option(name, k) % rank for k, name in enumerate(("dim0", "dim1")))
        axes[first], axes[second] = second, first
    if axes[0] != 0:
        raise call.layer.unsupported(f"{call.name} moves the batch axis")
    chain.transpose(tuple(axes))


def _dropout(chain: Chain, call: Call) -> None:
    if call.option("train", False):
        raise call.layer.unsupported("dropout in training mode, also when the model is evaluated")


def _first_result(chain: Chain, call: Call) -> None:
    if call.arguments["index"] != 0:
        raise call.layer.unsupported("a second result of an operator")


#: The operators that are supported on tensors that depend on the input.
_HANDLERS: dict[str, CallHandler] = {
    **dict.fromkeys(SAME, lambda chain, call: None),
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("mm", "matmul"), _matmul),
    **dict.fromkeys(("conv2d", "convolution"), _conv2d),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _max_pool2d),
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _global_average,
    **dict.fromkeys(("softmax", "log_softmax", "_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("sign", "sgn"), lambda chain, call: chain.sign(call.layer, None)),
    **dict.fromkeys(("ge", "greater_equal"), _comparison("GreaterOrEqual", "LessOrEqual")),
    **dict.fromkeys(("gt", "greater"), _comparison("Greater", "Less")),
    **dict.fromkeys(("le", "less_equal"), _comparison("LessOrEqual", "GreaterOrEqual")),
    **dict.fromkeys(("lt", "less"), _comparison("Less", "Greater")),
    **dict.fromkeys(
        ("logical_not", "bitwise_not"), lambda chain, call: chain.apply(call.layer, "Not")
    ),
    "where": _where,
    "add": _binary("Add"),
    **dict.fromkeys(("sub", "subtract", "rsub"), _binary("Sub")),
    **dict.fromkeys(("mul", "multiply"), _binary("Mul")),
    **dict.fromkeys(("div", "divide", "true_divide"), _binary("Div")),
    **dict.fromkeys(("neg", "negative"), lambda chain, call: chain.apply(call.layer, "Neg")),
    **dict.fromkeys(
        ("hardtanh", "clamp", "clip", "relu", "relu6", "clamp_min", "clamp_max"), _clip
    ),
    **dict.fromkeys(
        ("to", "_to_copy", "type_as"), lambda chain, call: _convert(chain, call, call.result.dtype)
    ),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"),
        _reshape,
    ),
    **dict.fromkeys(("permute", "transpose", "t"), _permute),
    **dict.fromkeys(("dropout", "feature_dropout"), _dropout),
    "getitem": _first_result,
}

#: Operators of which only the shape of the argument matters.
_LIKE = ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")
