"""An ONNX graph that grows node by node, with the shape of the tensor that flows through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Form:
    """One form of one operator: the operator sets that have it, and how it is added to a graph.

    A form for constants gets a shape and returns the name of a float32 tensor of that shape.  A
    form for values changes `current` and `shape` of the builder.
    """

    add: Callable[..., Any]
    first: int = 7
    last: int = 99

    def exists(self, opset: int) -> bool:
        return self.first <= opset <= self.last


@dataclass
class Builder:
    """A graph under construction.

    Attributes
    ----------
    forms
        The names of the forms that it contains.
    exact
        Whether float32 computes every tensor without rounding.
    watched
        Tensors of which a sign is taken, each with the tensor that it is compared with.
    bare
        Tensors in which a 0 is a sign that the file does not define.
    twins
        For operators that onnxruntime does not have: nodes that do the same.
    """

    rng: np.random.Generator
    opset: int
    shape: Shape
    input_shape: Shape = ()
    current: str = "x"
    hidden: bool = False
    wanted: str | None = None
    depth: int = 0
    forms: set[str] = field(default_factory=set)
    nodes: list[Any] = field(default_factory=list)
    twins: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    exact: bool = True
    watched: list[tuple[str, str | None]] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    end: str = "scores"
    output_type: int = TensorProto.FLOAT
    names: int = 0

    def __post_init__(self) -> None:
        self.input_shape = self.shape

    # -- random choices -------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def numbers(self, shape: Shape) -> npt.NDArray[np.float32]:
        """Return small multiples of a quarter: sums and products of them are exact."""
        unit = self.choose([1.0, 1.0, 0.5, 0.25])
        return np.asarray(self.rng.integers(-4, 5, size=shape) * unit, dtype=np.float32)

    # -- parts of the graph ---------------------------------------------------------------

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def tensor(self, array: Array, dtype: Any = None) -> str:
        """Store a constant in the file."""
        name = self.name("c")
        stored = np.array(array, dtype=dtype or array.dtype, order="C")
        self.tensors.append(numpy_helper.from_array(stored, name))
        return name

    def integers(self, *numbers: int) -> str:
        return self.tensor(np.array(numbers, dtype=np.int64))

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = self.name("t")
        given = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(
            kind, list(inputs), [output], name=f"n{output}", domain=domain, **given
        )
        self.nodes.append(node)
        if kind != "BipolarQuant":
            self.twins.append(node)
            return output
        names = [self.name("w") for _ in range(3)]
        zero = numpy_helper.from_array(np.zeros((), np.float32))
        self.twins += [
            helper.make_node("Constant", [], [f"{output}zero"], value=zero),
            helper.make_node("Less", [inputs[0], f"{output}zero"], names[:1]),
            helper.make_node("Neg", [inputs[1]], names[1:2]),
            helper.make_node("Where", [names[0], names[1], inputs[1]], [output]),
        ]
        return output

    def then(self, kind: str, *inputs: str, shape: Shape | None = None, **attributes: Any) -> None:
        """Apply an operator to the current tensor; `inputs` are the ones after it."""
        self.current = self.op(kind, self.current, *inputs, **attributes)
        if shape is not None:
            self.shape = shape

    def shaped(self, name: str, shape: Shape) -> str:
        """Give a constant another shape of the same size."""
        return self.op("Reshape", name, self.integers(*shape))

    def to_floats(self, name: str) -> str:
        return self.op("Cast", name, to=TensorProto.FLOAT)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    # -- the file -------------------------------------------------------------------------

    def model(self, *, twin: bool = False, outputs: Sequence[str] = ()) -> ModelProto:
        """Return the file, or with `twin` the same for onnxruntime, with more outputs."""
        graph = helper.make_graph(
            self.twins if twin else self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *self.input_shape[1:]])],
            [
                helper.make_tensor_value_info(self.current, self.output_type, None),
                *(helper.make_empty_tensor_value_info(name) for name in outputs),
            ],
            self.tensors,
        )
        sets = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in graph.node):
            sets.append(helper.make_opsetid("onnx.brevitas", 1))
        return helper.make_model(graph, ir_version=8, opset_imports=sets)
