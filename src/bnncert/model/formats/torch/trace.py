"""What a PyTorch module executes: the operators that it calls, in order.

``torch.export`` runs the module on tensors without numbers and records every operator, also those
inside modules of the user, functional calls and ``autograd.Function``.  A module that is used
twice is recorded twice, and one that is never called not at all.  A decision that depends on the
numbers of the input cannot be recorded, and raises an error.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from bnncert.errors import UnsupportedModelError, reason
from bnncert.model.formats.layer_chain import FileLayer

#: The name of a model in memory in messages.
SOURCE = "<torch model>"

#: The number of inputs of the recorded call; an axis of this length may be the batch axis.
BATCH = 3

#: Operators that return their first argument, as far as numbers are concerned.
SAME = ("alias", "clone", "contiguous", "detach", "detach_", "lift_fresh_copy", "lift_fresh")


@dataclass(frozen=True, eq=False)
class RecordedCalls:
    """The recorded operators.

    A node has its operator as `target`, its arguments as `args` and `kwargs`, which are other
    nodes or constants, and in `meta` the type and shape of its result.
    """

    model: Any
    #: The operators that the output depends on, in order.
    nodes: tuple[Any, ...]
    #: Parameters, buffers and constants by their nodes.
    tensors: dict[Any, Any]
    input: Any
    output: Any
    #: Nodes that are read in place of others.
    instead: dict[Any, Any]

    def layer(self, node: Any) -> FileLayer:
        """Find the module that calls an operator, for messages."""
        path, kind = _module_of(node)
        return FileLayer(SOURCE, path or "model", kind or type(self.model).__name__)

    def unsupported(self, node: Any, why: str) -> UnsupportedModelError:
        """Make the error for an operator, with what to state if its module is a layer."""
        return self.layer(node).unsupported(why + advice(self.model, _module_of(node)[0]))


def record(torch: Any, model: Any, example: Any) -> RecordedCalls:
    """Record what a module in evaluation mode calls for an example, a batch of inputs."""
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(model, (example,), strict=False)
            if not all(_is_pure(node) for node in program.graph.nodes):
                program = program.run_decompositions({})
    except Exception as error:  # the module may raise any exception, and so may torch.export
        layer = failing_layer(model, error)
        raise layer.unsupported(
            f"what it computes cannot be recorded ({_why(error)})"
            + advice(model, "" if layer.name == "model" else layer.name)
        ) from error
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    stored = {**program.state_dict, **program.constants}
    tensors, inputs = {}, []
    nodes = list(program.graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            target = kinds[node.name].target
            if target is None:
                inputs.append(node)
            else:
                tensors[node] = stored[target].detach()
    outputs = program.graph_signature.output_specs
    if any(spec.kind.name != "USER_OUTPUT" for spec in outputs):
        raise UnsupportedModelError(f"{SOURCE}: the model changes its buffers when it is called")
    (results,) = next(node for node in nodes if node.op == "output").args
    if len(results) != 1 or len(inputs) != 1:
        raise UnsupportedModelError(
            f"{SOURCE}: {len(inputs)} inputs and {len(results)} outputs; expected one of each"
        )
    instead = _straight_through(nodes)
    live = _live(nodes, results[0], instead)
    return RecordedCalls(model, live, tensors, inputs[0], results[0], instead)


def advice(model: Any, path: str) -> str:
    """Advise what to pass for a module of the user whose operators cannot be read."""
    module = model.get_submodule(path)
    name = type(module).__name__
    if module is model or type(module).__module__.startswith("torch.nn."):
        return ""
    weight = getattr(module, "weight", None)
    kind = {2: "linear", 4: "conv2d"}.get(getattr(weight, "ndim", 0))
    if kind is None:
        return f'; if it is a sign, pass roles={{{name}: "sign"}}'
    return (
        f'; if it is a {kind} layer, pass roles={{{name}: "{kind}"}} and how it quantises its '
        f'weights, weights={{"{path}": "sign"}} (or "ternary:T", "as stored")'
    )


@contextmanager
def evaluating(model: Any, forwards: Mapping[Any, Any]) -> Iterator[None]:
    """Put a model in evaluation mode, with other functions in place of some modules, and back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)
        for module, training in modes:
            module.training = training


def operator_name(node: Any) -> str:
    """Name the operator of a node, "" for anything else."""
    target = getattr(node, "target", None)
    if not hasattr(target, "overloadpacket"):
        return "getitem" if target is operator.getitem else ""
    return str(node.target.overloadpacket.__name__) if node.target.namespace == "aten" else ""


def is_random(node: Any) -> bool:
    """Whether an operator uses random numbers, as dropout may."""
    return any(tag.name == "nondeterministic_seeded" for tag in getattr(node.target, "tags", ()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.export from printing: its messages are about export, not about the model."""
    level = logging.root.manager.disable
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(redirect_stdout(StringIO()))
        stack.enter_context(redirect_stderr(StringIO()))
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def _is_pure(node: Any) -> bool:
    """Whether a node is an operator that changes none of its arguments."""
    if node.op != "call_function" or node.target is operator.getitem:
        return bool(node.op in ("placeholder", "output", "call_function"))
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable


def _module_of(node: Any) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, kind = stack[-1]
    # A second call of a module has a number behind its name.
    name = kind if isinstance(kind, str) else kind.__name__
    return path.partition("@")[0], name.rpartition(".")[2]


def failing_layer(model: Any, error: BaseException) -> FileLayer:
    """Find the innermost module in whose forward pass an exception was raised."""
    names = {id(module): (name, module) for name, module in model.named_modules()}
    found, step = ("", model), error.__traceback__
    while step is not None:
        found = names.get(id(step.tb_frame.f_locals.get("self")), found)
        step = step.tb_next
    return FileLayer(SOURCE, found[0] or "model", type(found[1]).__name__)


def _why(error: BaseException) -> str:
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        return "it decides by the numbers of its input"
    return reason(error)


def _same(node: Any) -> Any:
    while hasattr(node, "args") and operator_name(node) in SAME:
        node = node.args[0]
    return node


def _equal(left: Any, right: Any) -> bool:
    """Whether two arguments are the same node, or the same operator of the same arguments."""
    left, right = _same(left), _same(right)
    if left is right:
        return True
    if not hasattr(left, "op") or not hasattr(right, "op"):
        return bool(type(left) is type(right) and left == right)
    if left.op != "call_function" or left.target is not right.target or not _is_pure(left):
        return False
    if is_random(left):
        return False
    if len(left.args) != len(right.args) or left.kwargs != right.kwargs:
        return False
    return all(map(_equal, left.args, right.args))


def _straight_through(nodes: list[Any]) -> dict[Any, Any]:
    """Find q of each node that is x + (q - x) or x - (x - q), the straight-through estimator.

    In floats the result can differ from q in its last bit.
    """
    found = {}
    for node in nodes:
        name = operator_name(node)
        if name not in ("add", "sub") or node.kwargs or len(node.args) != 2:
            continue
        pairs = [(node.args[1], node.args[0])] + [(node.args[0], node.args[1])] * (name == "add")
        for inner, x in pairs:
            inner = _same(inner)
            if operator_name(inner) == "sub" and not inner.kwargs and len(inner.args) == 2:
                q, other = inner.args if name == "add" else reversed(inner.args)
                same_shape = hasattr(q, "op") and _shape(q) == _shape(node)
                if same_shape and _equal(other, x):
                    found[node] = q
                    break
    return found


def _shape(node: Any) -> Any:
    return getattr(node.meta.get("val"), "shape", None)


def _live(nodes: list[Any], output: Any, instead: Mapping[Any, Any]) -> tuple[Any, ...]:
    wanted, needed = [output], set()
    while wanted:
        node = wanted.pop()
        if node in needed:
            continue
        needed.add(node)
        wanted += [instead[node]] if node in instead else node.all_input_nodes
    return tuple(n for n in nodes if n in needed and n.op == "call_function" and n not in instead)
