"""The graph of an ONNX file: its one input, its one output and the nodes between them.

Only nodes that the output depends on are kept, in topological order.  Stored tensors are converted
to arrays when they are used.

A parsed message of two bytes takes hundreds of bytes, so the parser itself can exhaust the memory.
:func:`check_size` counts the fields before; the numbers of tensors are skipped, because they take
about as much memory as in the file.

``torch.onnx.export`` writes the weights to ``model.onnx.data`` beside ``model.onnx``.  Such a
location is a path relative to the folder of the model; it must not lead out of that folder, neither
by its components nor by symbolic links: otherwise a model from elsewhere could read any file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from bnncert.errors import BnncertError, FormatError, UnsupportedModelError, reason
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    Limits,
    check_regular,
    read_bytes,
    too_large,
    too_many,
)

#: Element types of constants: bool, integers, float16, float32 and float64.
PLAIN_TYPES = frozenset(
    int(onnx.TensorProto.DataType.Value(name))
    for name in (
        *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT16", "FLOAT", "DOUBLE"),
    )
)


# -- the size of a file in memory ---------------------------------------------------------


@dataclass(frozen=True)
class _Message:
    """The fields of a message, by number, that are messages or numbers of tensors."""

    inside: Mapping[int, _Message] = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()
    #: Numbers of variable length: one byte may become eight bytes.
    packed: frozenset[int] = frozenset()


# The field numbers of onnx.proto.
_TENSOR = _Message(numbers=frozenset({4, 9, 10}), packed=frozenset({5, 7, 11}))
_ATTRIBUTE = _Message({5: _TENSOR, 10: _TENSOR}, numbers=frozenset({7}), packed=frozenset({8}))
_NODE = _Message({5: _ATTRIBUTE})
_GRAPH = _Message({1: _NODE, 5: _TENSOR})
_MODEL = _Message({7: _GRAPH})


def check_size(content: bytes, source: str) -> None:
    """Raise for a file whose parsed form would take far more memory than the file."""
    limits = DEFAULT_LIMITS
    fields = opaque = packed = 0
    stack = [(_MODEL, 0, len(content))]
    while stack:
        message, at, end = stack.pop()
        while at < end:
            fields += 1
            if fields > limits.fields:
                raise too_many(source, "an ONNX file of too many fields", limits.fields, "fields")
            tag, at = _varint(content, at, end, source)
            number, kind = tag >> 3, tag & 7
            if kind != 2:
                at = _skipped(content, at, end, kind, source)
                continue
            size, at = _varint(content, at, end, source)
            if at + size > end:
                raise broken(source)
            if number in message.inside:
                stack.append((message.inside[number], at, at + size))
            elif number in message.packed:
                packed += size
            elif number not in message.numbers:
                opaque += size
            at += size
        if packed > limits.matrix:
            raise too_large(source, "holds integers in", limits.matrix, "matrix")
        if opaque > limits.structure:
            raise too_large(source, "has names and descriptions of", limits.structure, "structure")


def broken(source: str) -> FormatError:
    """Make the error of a file that is no ONNX; another suffix may be that of another file."""
    why = "broken or truncated"
    if not source.endswith((".onnx", ".onnx.gz")):
        why = "networks are .onnx, .npz, .json, .pt, .safetensors, .keras or .h5"
    return FormatError(f"{source}: not a readable ONNX file; {why}")


def _varint(content: bytes, at: int, end: int, source: str) -> tuple[int, int]:
    """Read a number of variable length, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise broken(source)


def _skipped(content: bytes, at: int, end: int, kind: int, source: str) -> int:
    if kind == 0:
        return _varint(content, at, end, source)[1]
    width = {1: 8, 5: 4}.get(kind)
    if width is None or at + width > end:
        raise broken(source)
    return at + width


# -- tensors in other files ---------------------------------------------------------------

#: The entries that say where the bytes of a tensor are; runtimes ignore all others.
_ENTRIES = ("location", "offset", "length")


def read_in_one_piece(path: Path) -> bytes:
    """Read an ONNX file with the tensors that it keeps in other files, for runtimes."""
    content = read_bytes(path)
    model = onnx.ModelProto()
    model.ParseFromString(content)
    if not embed_external_data(model, path.parent, str(path), DEFAULT_LIMITS):
        return content
    return bytes(model.SerializeToString())


def embed_external_data(model: Any, folder: Path, source: str, limits: Limits) -> bool:
    """Read the tensors in other files of the model's folder; return whether there are any.

    Their total size is at most `limits.file`.
    """
    # Two tensors may share bytes, so the files alone do not bound the memory.
    left = limits.file
    found = False
    for tensor in _tensors(model.graph):
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        # Tensors of other types raise an error where they are used.
        if not is_external or tensor.data_type not in PLAIN_TYPES:
            continue
        found = True
        content = _content(tensor, folder, source, limits, left)
        left -= len(content)
        tensor.raw_data = content
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return found


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the constants of a graph, also those in attributes of its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _content(tensor: Any, folder: Path, source: str, limits: Limits, left: int) -> bytes:
    """Read the bytes of one tensor, of which at most `left` may be read."""
    place = f"{source}: tensor {tensor.name}"
    stated: dict[str, str] = {}
    for entry in tensor.external_data:
        if not isinstance(entry.key, str) or not isinstance(entry.value, str):
            raise FormatError(f"{place}: an entry of its external data is not UTF-8")
        if entry.key in _ENTRIES and entry.key in stated:
            raise FormatError(f"{place}: two entries {entry.key} of its external data")
        stated[entry.key] = entry.value
    path = _inside(stated.get("location", ""), folder, place)
    size = check_regular(path, limits)
    begin = _count(stated.get("offset", "0"), "offset", place)
    needed = _needed(tensor, place)
    length = _count(stated.get("length", str(needed)), "length", place)
    if length != needed:
        raise FormatError(
            f"{place}: {length} bytes of external data; its shape and type need {needed}"
        )
    if begin + length > size:
        raise FormatError(
            f"{place}: needs the bytes {begin} to {begin + length} of {path}, which has {size}; "
            "the file is truncated or belongs to another model"
        )
    if length > left:
        raise too_large(source, "has external data of", limits.file, "file")
    try:
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(length)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) != length:
        raise FormatError(f"{path}: became shorter while it was read; try again")
    return content


def _inside(location: str, folder: Path, place: str) -> Path:
    """Find the path of a location; raise if it is not in the folder."""
    forms = (PurePosixPath(location), PureWindowsPath(location))
    if not location or "\0" in location:
        raise FormatError(f"{place}: its external data have no location")
    if any(form.is_absolute() or form.drive or ".." in form.parts for form in forms):
        raise UnsupportedModelError(
            f"{place}: its external data are in {location!r}; only files in the folder of the "
            "model are read"
        )
    path = folder / location
    try:
        resolved, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from error
    if not resolved.is_relative_to(root):
        raise UnsupportedModelError(
            f"{place}: its external data are in {location!r}, a link that leads out of the folder "
            "of the model; copy the file into the folder"
        )
    if not path.exists():
        raise FormatError(
            f"{path}: no such file; it has the weights of {place.partition(': tensor ')[0]}, keep "
            "both files in one folder"
        )
    return path


def _count(text: str, what: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{place}: {what} {text!r} of its external data is not a number of bytes")
    return int(text)


def _needed(tensor: Any, place: str) -> int:
    """Count the bytes that the shape and the type of a tensor take."""
    if any(n < 0 for n in tensor.dims):
        raise FormatError(f"{place}: its shape has a negative size")
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims)) * int(item)


# -- the graph ----------------------------------------------------------------------------

#: Before opset 7 broadcasting had different rules; later opsets than the newest are not known.
OLDEST_OPSET, NEWEST_OPSET = 7, 28

#: Element types of the network's input.
INPUT_TYPES: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
}

#: Names of the standard operator set.
STANDARD_DOMAINS = ("", "ai.onnx")

#: Entries of the largest constant, and of the largest tensor that depends on the input.
LARGEST_CONSTANT, LARGEST_VALUE = DEFAULT_LIMITS.matrix, DEFAULT_LIMITS.width


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One operator of the graph, with typed access to its attributes."""

    source: str
    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    #: The version of the operator set that defines it.
    opset: int

    @property
    def place(self) -> str:
        """The place of the node in the file, for messages."""
        return f"{self.source}: node {self.name} ({self.op})"

    def unsupported(self, why: str) -> UnsupportedModelError:
        """Make the error for a node that is not part of a binary network."""
        return UnsupportedModelError(f"{self.place}: {why}")

    def broken(self, why: str) -> FormatError:
        """Make the error for a node that the file states incorrectly."""
        return FormatError(f"{self.place}: {why}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert exceptions that malformed attributes or inputs cause to an error about this."""
        try:
            yield
        except BnncertError:
            raise
        except MemoryError as error:
            raise self.unsupported("not enough memory for this layer") from error
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise self.broken(f"malformed ({reason(error)})") from error

    def _value(self, name: str, kind: int, kind_name: str, default: Any) -> Any:
        if name not in self.attributes:
            return default
        attribute = self.attributes[name]
        if attribute.type != kind:
            raise self.broken(f"attribute {name} is not {kind_name}")
        return onnx.helper.get_attribute_value(attribute)

    def integer(self, name: str, default: int) -> int:
        """Read an integer attribute."""
        return int(self._value(name, onnx.AttributeProto.INT, "an integer", default))

    def number(self, name: str, default: float) -> float:
        """Read a float attribute: the exact value of its 32 bits."""
        kind = onnx.AttributeProto.FLOAT
        return float(self._value(name, kind, "a float", np.float32(default)))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Read a list of integers, or None if the attribute is absent."""
        found = self._value(name, onnx.AttributeProto.INTS, "integers", None)
        return None if found is None else tuple(int(n) for n in found)

    def text(self, name: str, default: str) -> str:
        """Read a string attribute."""
        kind = onnx.AttributeProto.STRING
        value: bytes = self._value(name, kind, "a string", default.encode())
        return value.decode("utf-8", "replace")


@dataclass(frozen=True, eq=False)
class Graph:
    """The part of a model that its output depends on.

    `input_shape` starts with a batch axis of 1 unless the rank is 1.
    """

    source: str
    opset: int
    input_name: str
    input_shape: tuple[int, ...]
    input_type: np.dtype[Any]
    output_name: str
    nodes: tuple[OnnxNode, ...]
    tensors: dict[str, Any]
    metadata: dict[str, str]
    #: The bytes of the whole model, with the tensors of other files.
    content: bytes


def type_name(code: int) -> str:
    """Name an element type, for messages."""
    known = {number: name for name, number in onnx.TensorProto.DataType.items()}
    return str(known.get(code, f"number {code}"))


def tensor_array(tensor: Any, place: str) -> npt.NDArray[Any]:
    """Read a stored tensor as an array of its own type."""
    if tensor.data_type not in PLAIN_TYPES:
        raise UnsupportedModelError(
            f"{place}: tensor {tensor.name} has element type {type_name(tensor.data_type)}; "
            "expected numbers of 8 bits or more of a type of NumPy"
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise UnsupportedModelError(
            f"{place}: tensor {tensor.name} is stored in another file; load the model by its path, "
            "or save it in one file"
        )
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise FormatError(f"{place}: tensor {tensor.name} is broken ({reason(error)})") from error
    return array


def parse_graph(
    content: bytes, source: str, folder: Path | None = None, limits: Limits = DEFAULT_LIMITS
) -> Graph:
    """Read the bytes of a model file; tensors in other files are read from `folder`."""
    check_size(content, source)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, TypeError) as error:
        raise broken(source) from error
    graph = model.graph
    if not graph.node:
        raise FormatError(f"{source}: no graph in the file; it is not an ONNX model, or empty")
    _check_names(model, source)
    if folder is not None and embed_external_data(model, folder, source, limits):
        content = bytes(model.SerializeToString())
    opset = _opset(model, source)
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    if len(tensors) != len(graph.initializer):
        raise FormatError(f"{source}: two constants of the graph have the same name")
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = [item for item in graph.input if item.name not in tensors]
    for what, items, expected in (
        ("inputs", inputs, "one that is not a constant"),
        ("outputs", graph.output, "one"),
    ):
        if len(items) != 1:
            names = ", ".join(item.name for item in items) or "none"
            raise UnsupportedModelError(
                f"{source}: {len(items)} graph {what} ({names}); expected {expected}"
            )
    name, output = inputs[0].name, graph.output[0].name
    nodes = [_node(proto, source, number, opset) for number, proto in enumerate(graph.node)]
    shape = _input_shape(inputs[0], source)
    live = _live_nodes(nodes, {name, *tensors}, sparse, output, source)
    own = {(function.domain, function.name) for function in model.functions}
    for node in live:
        if (node.domain, node.op) in own:
            raise node.unsupported("the file defines this operator itself, as a function")
    return Graph(
        source=source,
        opset=opset,
        input_name=name,
        input_shape=shape,
        input_type=INPUT_TYPES[inputs[0].type.tensor_type.elem_type],
        output_name=output,
        nodes=live,
        tensors=tensors,
        metadata={_text(item.key): _text(item.value) for item in model.metadata_props},
        content=content,
    )


def _check_names(model: Any, source: str) -> None:
    """Raise for names that are not UTF-8: protobuf returns them as bytes, not as text."""
    graph = model.graph
    places: list[tuple[str, Iterable[str | bytes]]] = [
        ("an operator set", (item.domain for item in model.opset_import)),
        ("a function", (name for f in model.functions for name in (f.domain, f.name))),
        ("a graph input", (item.name for item in graph.input)),
        ("a graph output", (item.name for item in graph.output)),
        ("a constant", (tensor.name for tensor in graph.initializer)),
        ("a sparse constant", (tensor.values.name for tensor in graph.sparse_initializer)),
    ]
    for number, node in enumerate(graph.node):
        what = f"node number {number}"
        places += [
            (what, (node.name, node.op_type, node.domain)),
            (f"an input of {what}", node.input),
            (f"an output of {what}", node.output),
            (f"an attribute of {what}", (item.name for item in node.attribute)),
        ]
    for what, names in places:
        for name in names:
            if isinstance(name, bytes):
                raise FormatError(f"{source}: the name of {what} is not UTF-8 ({_text(name)})")


def newest_opset() -> int:
    """Find the newest operator set of both the reader and the installed package `onnx`."""
    return min(NEWEST_OPSET, int(onnx.defs.onnx_opset_version()))


def _opset(model: Any, source: str) -> int:
    versions = {int(o.version) for o in model.opset_import if o.domain in STANDARD_DOMAINS}
    if not versions:
        raise FormatError(f"{source}: the file does not state its ONNX operator set")
    if len(versions) > 1:
        listed = ", ".join(str(version) for version in sorted(versions))
        raise FormatError(f"{source}: the file names several ONNX operator sets ({listed})")
    opset = versions.pop()
    newest = newest_opset()
    if not OLDEST_OPSET <= opset <= newest:
        raise UnsupportedModelError(
            f"{source}: ONNX operator set {opset}; supported are {OLDEST_OPSET} to {newest}"
        )
    return opset


def _input_shape(item: Any, source: str) -> tuple[int, ...]:
    place = f"{source}: input {item.name}"
    tensor = item.type.tensor_type
    if not item.type.HasField("tensor_type") or tensor.elem_type not in INPUT_TYPES:
        raise UnsupportedModelError(f"{place}: expected a tensor of floats")
    if not tensor.HasField("shape") or not tensor.shape.dim:
        raise UnsupportedModelError(f"{place}: its shape is not declared")
    sizes = [int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if len(sizes) > 1:
        if sizes[0] not in (None, 0, -1, 1):
            raise UnsupportedModelError(
                f"{place}: its first axis has {sizes[0]} entries; expected a batch axis (1 or "
                "symbolic)"
            )
        sizes[0] = 1
    shape = []
    for axis, size in enumerate(sizes):
        if size is None or size <= 0:
            raise UnsupportedModelError(
                f"{place}: axis {axis} has no fixed size; only a leading batch axis may vary"
            )
        shape.append(size)
    entries = math.prod(shape)
    if entries > LARGEST_VALUE:
        raise UnsupportedModelError(f"{place}: {entries} entries are more than bnncert supports")
    return tuple(shape)


def _text(text: str | bytes) -> str:
    # Protobuf returns a string that is not UTF-8 as bytes.
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text


def _printable(text: str | bytes) -> str:
    """Show a name of a file as one line without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in _text(text))


def _node(proto: Any, source: str, number: int, opset: int) -> OnnxNode:
    outputs = tuple(proto.output)
    name = proto.name or next((output for output in outputs if output), f"number {number}")
    node = OnnxNode(
        source=source,
        op=_printable(proto.op_type),
        domain=_printable(proto.domain),
        name=_printable(name),
        inputs=tuple(proto.input),
        outputs=outputs,
        attributes={attribute.name: attribute for attribute in proto.attribute},
        opset=opset,
    )
    if len(node.attributes) != len(proto.attribute):
        raise node.broken("an attribute is given twice")
    return node


def _live_nodes(
    nodes: Sequence[OnnxNode], known: set[str], sparse: set[str], output: str, source: str
) -> tuple[OnnxNode, ...]:
    """Order the nodes that `output` depends on topologically."""
    producer: dict[str, OnnxNode] = {}
    for node in nodes:
        for name in node.outputs:
            if name and (name in producer or name in known):
                raise node.broken(f"tensor {name} is defined twice")
            if name:
                producer[name] = node
    if output not in producer:
        raise FormatError(f"{source}: no node computes the graph output {output}")
    order: list[OnnxNode] = []
    state: dict[int, str] = {}
    stack: list[tuple[OnnxNode, bool]] = [(producer[output], False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            state[id(node)] = "done"
            order.append(node)
            continue
        if id(node) in state:
            continue
        state[id(node)] = "open"
        stack.append((node, True))
        for name in node.inputs:
            if not name or name in known:
                continue
            if name in sparse:
                raise node.unsupported(f"sparse tensor {name} is not supported")
            if name not in producer:
                raise node.broken(f"its input {name} is defined nowhere")
            before = producer[name]
            if state.get(id(before)) == "open":
                raise node.broken(f"the graph has a cycle through {name}")
            stack.append((before, False))
    return tuple(order)
