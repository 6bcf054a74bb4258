"""Files of small random questions, made with NumPy and onnx alone."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array: TypeAlias = npt.NDArray[Any]
Generator: TypeAlias = np.random.Generator


@dataclass(eq=False)
class TinyModel:
    """A random network: x = sign(W y + b) in hidden layers, scores W x + b.

    `image` is the shape (1, height, width) of an input that is an image.
    """

    weights: list[Array]
    biases: list[Array]
    lo: float
    hi: float
    sign_zero: str | None = None
    image: tuple[int, int, int] | None = None
    pixel_step: float | None = None

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return int(self.weights[0].shape[1])

    @property
    def classes(self) -> int:
        """The number of scores."""
        return int(self.weights[-1].shape[0])

    @property
    def tree(self) -> dict[str, Any]:
        """The arrays of the file formats .npz and .json."""
        tree: dict[str, Any] = {"input_lo": self.lo, "input_hi": self.hi}
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            tree[f"W{i}"], tree[f"b{i}"] = w, b
        if self.sign_zero is not None:
            tree["sign_zero"] = self.sign_zero
        if self.image is not None:
            tree["input_shape"] = np.array(self.image)
        if self.pixel_step is not None:
            tree["pixel_step"] = self.pixel_step
        return tree


def random_model(rng: Generator, *, inputs: int = 0, image: bool = False) -> TinyModel:
    """Return a network of two to six neurons in each of one to three layers."""
    shape = None
    if image:
        height, width = int(rng.integers(2, 4)), int(rng.integers(2, 4))
        shape, inputs = (1, height, width), height * width
    inputs = inputs or int(rng.integers(2, 6))
    hidden = [int(n) for n in rng.integers(2, 7, size=rng.integers(1, 4))]
    sizes = [inputs, *hidden, int(rng.integers(2, 5))]
    lo, hi = [(-1.0, 1.0), (0.0, 1.0), (0.0, 255.0)][int(rng.choice(3, p=[0.6, 0.25, 0.15]))]
    weights, biases = [], []
    for number, (m, n) in enumerate(pairwise(sizes)):
        w = rng.choice([-1.0, 0.0, 1.0], size=(n, m), p=[0.4, 0.2, 0.4])
        if number == 0 and rng.random() < 0.3:
            w = rng.integers(-6, 7, size=(n, m)) / 4
        if number == len(sizes) - 2 and rng.random() < 0.5:
            w = rng.integers(-8, 9, size=(n, m)) / 2
        b = rng.integers(-4, 5, size=n) / 2
        if number == 0:
            # Thresholds near the middle of the box, so that signs change inside it.
            b = b * (hi - lo) / 4 - w.sum(axis=1) * (lo + hi) / 2
        weights.append(w)
        biases.append(b)
    zero = [None, None, "plus", "minus", "either"][int(rng.integers(5))]
    step = (hi - lo) / 255 if image or rng.random() < 0.2 else None
    return TinyModel(weights, biases, lo, hi, zero, shape, step)


def changed(rng: Generator, model: TinyModel) -> TinyModel:
    """Return the network with another bias or weight of one neuron."""
    weights, biases = [w.copy() for w in model.weights], [b.copy() for b in model.biases]
    layer = int(rng.integers(len(weights)))
    row = int(rng.integers(weights[layer].shape[0]))
    if rng.random() < 0.5:
        biases[layer][row] += float(rng.choice([-1.0, 1.0, 2.0]))
    else:
        weights[layer][row, int(rng.integers(weights[layer].shape[1]))] *= -1
    return TinyModel(
        weights, biases, model.lo, model.hi, model.sign_zero, model.image, model.pixel_step
    )


@dataclass(eq=False)
class Files:
    """The content of the files of one question, by name."""

    content: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, content: bytes | str) -> str:
        """Add a file and return its name."""
        self.content[name] = content.encode() if isinstance(content, str) else content
        return name

    def array(self, name: str, array: npt.ArrayLike) -> str:
        """Add an .npy file."""
        file = io.BytesIO()
        np.save(file, np.asarray(array))
        return self.add(name, file.getvalue())

    def network(self, rng: Generator, model: TinyModel, stem: str = "net") -> str:
        """Add a network in one of the formats."""
        kind = ["npz", "json", "onnx"][int(rng.choice(3, p=[0.5, 0.25, 0.25]))]
        if kind == "onnx":
            return self.add(f"{stem}.onnx", onnx_bytes(rng, model))
        if kind == "json":
            tree = {k: np.asarray(v).tolist() for k, v in model.tree.items()}
            return self.add(f"{stem}.json", json.dumps(tree))
        file = io.BytesIO()
        np.savez(file, **model.tree)
        return self.add(f"{stem}.npz", file.getvalue())

    def points(self, rng: Generator, model: TinyModel, count: int = 1, stem: str = "x") -> str:
        """Add points of the data box, at multiples of an eighth of its width or of a pixel."""
        return self.array(f"{stem}.npy", random_points(rng, model, count))

    def picture(self, rng: Generator, model: TinyModel, name: str) -> str:
        """Add an 8-bit image of the shape of the input."""
        assert model.image is not None
        return self.add(name, png_bytes(rng.integers(0, 256, size=model.image[1:])))


def random_points(rng: Generator, model: TinyModel, count: int) -> Array:
    """Return points of the data box that lie on a coarse grid, or on that of the pixels."""
    steps = 255 if model.pixel_step is not None else 8
    places = rng.integers(0, steps + 1, size=(count, model.inputs))
    return np.asarray(model.lo + places * (model.hi - model.lo) / steps)


def png_bytes(pixels: Array) -> bytes:
    """Return an 8-bit greyscale PNG file."""
    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.astype(np.uint8)], axis=1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows.tobytes()))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def onnx_bytes(rng: Generator, model: TinyModel) -> bytes:
    """Return the network as an ONNX graph: Gemm or MatMul and Add, some with normalisation."""
    nodes, tensors = [], []

    def tensor(name: str, array: Array) -> str:
        tensors.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    shape = model.image or (model.inputs,)
    current, last = "input", len(model.weights) - 1
    if model.image is not None:
        nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
        current = "flat"
    for i, (w, b) in enumerate(zip(model.weights, model.biases, strict=True)):
        end = "scores" if i == last else f"u{i}"
        if rng.random() < 0.5:
            names = [current, tensor(f"W{i}", w), tensor(f"b{i}", b)]
            nodes.append(helper.make_node("Gemm", names, [end], transB=1))
        else:
            nodes.append(helper.make_node("MatMul", [current, tensor(f"W{i}", w.T)], [f"p{i}"]))
            nodes.append(helper.make_node("Add", [f"p{i}", tensor(f"b{i}", b)], [end]))
        if i == last:
            break
        if rng.random() < 0.3:
            size = b.size
            values = (
                rng.choice([-0.5, 0.5, 1.0, 2.0], size=size),
                rng.integers(-2, 3, size=size) / 4,
                rng.integers(-2, 3, size=size) / 2,
                rng.choice([0.25, 1.0, 2.0], size=size),
            )
            names = [tensor(f"n{i}{k}", v) for k, v in enumerate(values)]
            nodes.append(
                helper.make_node("BatchNormalization", [end, *names], [f"n{i}"], epsilon=1e-3)
            )
            end = f"n{i}"
        nodes.append(helper.make_node("Sign", [end], [f"x{i}"]))
        current = f"x{i}"
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, *shape])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, model.classes])],
        tensors,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString(deterministic=True))


def query_text(rng: Generator, model: TinyModel, point: Array, radius: float) -> str:
    """Return a VNN-LIB query about a box around a point, of version 1.0 or 2.0."""
    label = int(rng.integers(model.classes))
    rivals = [k for k in range(model.classes) if k != label]
    if rng.random() < 0.5:
        x, y = "X_{}", "Y_{}"
        lines = [f"(declare-const {x.format(i)} Real)" for i in range(model.inputs)]
        lines += [f"(declare-const {y.format(k)} Real)" for k in range(model.classes)]
    else:
        x, y = "X[0,{}]", "Y[0,{}]"
        lines = ["(vnnlib-version <2.0>)", "(declare-network f"]
        lines += [f"(declare-input X Real [1,{model.inputs}])"]
        lines += [f"(declare-output Y Real [1,{model.classes}]))"]
    for i, value in enumerate(point.tolist()):
        low, high = max(value - radius, model.lo), min(value + radius, model.hi)
        lines.append(f"(assert (>= {x.format(i)} {low:.6f}))")
        lines.append(f"(assert (<= {x.format(i)} {high:.6f}))")
    if rng.random() < 0.2 and model.inputs > 1:
        lines.append(f"(assert (<= (+ {x.format(0)} {x.format(1)}) {2 * float(point.mean()):.6f}))")
    conditions = [f"(>= {y.format(k)} {y.format(label)})" for k in rivals]
    joined = conditions[0] if len(conditions) == 1 else f"(or {' '.join(conditions)})"
    if rng.random() < 0.2:
        joined = f"(and {' '.join(conditions)})"
    lines.append(f"(assert {joined})")
    return "\n".join(lines) + "\n"
