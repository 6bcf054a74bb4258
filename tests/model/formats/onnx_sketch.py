"""Small ONNX models for tests, built node by node, and their execution in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bnncert.errors import BnncertError
from bnncert.model.formats.onnx.reader import read_onnx
from bnncert.model.network import Network


class Sketch:
    """A chain of nodes: each one reads the last tensor and constants."""

    def __init__(self, *shape: int | str, opset: int = 17) -> None:
        self.shape = shape
        self.opset = opset
        self.current = "x"
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.kind = TensorProto.FLOAT

    def constant(self, array: npt.ArrayLike) -> str:
        given = np.asarray(array)
        stored = given.astype(np.float32) if isinstance(array, float | list) else given
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(stored, order="C"), name))
        return name

    def then(self, op: str, *constants: Any, left: bool = False, **attributes: Any) -> Sketch:
        names = ["" if c is None else self.constant(c) for c in constants]
        inputs = [*names, self.current] if left else [self.current, *names]
        self.current = f"t{len(self.nodes)}"
        domain = attributes.pop("domain", "")
        self.nodes.append(
            helper.make_node(
                op, inputs, [self.current], name=f"n{len(self.nodes)}", domain=domain, **attributes
            )
        )
        return self

    def model(self) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "sketch",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(self.current, self.kind, None)],
            self.tensors,
        )
        return helper.make_model(
            graph, ir_version=8, opset_imports=[helper.make_opsetid("", self.opset)]
        )

    def network(self) -> Network:
        return network_of(self.model())

    def run(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return run(self.model(), points)


def refusal(sketch: Sketch) -> str:
    """Return the line that says why a model is not read."""
    with pytest.raises(BnncertError) as caught:
        sketch.network()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def network_of(model: ModelProto) -> Network:
    return Network.from_description(read_onnx(model.SerializeToString(), "model.onnx"))


def run(model: ModelProto, points: npt.NDArray[Any], batched: bool = False) -> npt.NDArray[Any]:
    """Return what onnxruntime computes, one row per point."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    name = session.get_inputs()[0].name
    inputs = points.astype(np.float32)
    if batched:
        return np.asarray(session.run(None, {name: inputs})[0])
    return np.stack([np.reshape(session.run(None, {name: p[None]})[0], -1) for p in inputs])


def ternary(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return rng.integers(-1, 2, size=shape).astype(np.float32)


def signs(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return (2 * rng.integers(0, 2, size=shape) - 1).astype(np.float32)


def pixels(rng: np.random.Generator, count: int, *shape: int) -> npt.NDArray[np.float32]:
    """Return small integers: every sum of them is exact in float32."""
    return rng.integers(-8, 9, size=(count, *shape)).astype(np.float32)


def normalisation(
    rng: np.random.Generator, channels: int, gamma: str = "mixed"
) -> list[npt.NDArray[np.float32]]:
    """Return scale, bias, mean and variance whose thresholds are nowhere near integers."""
    scale = rng.uniform(0.5, 2.0, channels)
    if gamma == "negative" or gamma == "mixed":
        scale *= -1 if gamma == "negative" else np.sign(rng.uniform(-1, 1, channels))
    mean = rng.integers(-2, 3, channels) + 0.31
    bias = rng.integers(-1, 2, channels) * 0.05
    variance = rng.uniform(0.5, 2.0, channels)
    return [array.astype(np.float32) for array in (scale, bias, mean, variance)]


def agree(sketch: Sketch, points: npt.NDArray[Any], network: Network | None = None) -> Network:
    """Check that the imported network and onnxruntime have the same scores."""
    network = network or sketch.network()
    np.testing.assert_allclose(network.evaluate(points), sketch.run(points), rtol=1e-5, atol=1e-5)
    return network
