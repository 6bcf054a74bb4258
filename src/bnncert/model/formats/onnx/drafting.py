"""An ONNX model, node by node, as the writers of bnncert make it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

#: These versions are supported by all runtimes in use.
OPSET, IR_VERSION = 15, 8

#: Added to the result of Sign: it moves 0 to one side and keeps the signs of +1 and -1.
NUDGE = {"plus": 0.1, "minus": -0.1}


class ModelDraft:
    """Nodes and tensors of a model that is being written; floats have type `kind`."""

    def __init__(self, kind: type[np.float32] | type[np.float64]) -> None:
        self._kind = kind
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []

    @property
    def element(self) -> int:
        """The ONNX type of the floats."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self._kind)))

    def tensor(self, name: str, array: npt.NDArray[Any]) -> str:
        """Add a constant and return its name."""
        stored = np.ascontiguousarray(array, dtype=self._kind)
        self._tensors.append(numpy_helper.from_array(stored, name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node and return its output, after which it is named."""
        self._nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def signs(self, current: str, number: int, sign_zero: str | None) -> str:
        """Add ``Sign -> Add(+-0.1) -> Sign``, or one Sign where sign(0) may be either."""
        current = self.node("Sign", [current], f"sign{number}")
        if sign_zero in NUDGE:
            nudge = self.tensor(f"nudge{number}", np.array(NUDGE[sign_zero]))
            current = self.node("Add", [current, nudge], f"nudged{number}")
            current = self.node("Sign", [current], f"settled{number}")
        return current

    def model(
        self,
        input_shape: Sequence[int],
        output: str,
        element: int,
        output_shape: Sequence[int],
        properties: Mapping[str, str],
    ) -> bytes:
        """Return the file of a model with the input `input`; shapes are without the batch axis."""
        shape = ["N", *input_shape]
        graph = helper.make_graph(
            self._nodes,
            "binary network",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, element, ["N", *output_shape])],
            self._tensors,
        )
        model = helper.make_model(
            graph,
            producer_name="bnncert",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(properties))
        return bytes(model.SerializeToString())


def data_properties(
    input_lo: npt.NDArray[Any] | float | None,
    input_hi: npt.NDArray[Any] | float | None,
    pixel_step: float | None,
) -> dict[str, str]:
    """Return the metadata that state the data box and the input units of a pixel level."""
    properties = {}
    for key, bound in (("input_lo", input_lo), ("input_hi", input_hi)):
        if bound is not None:
            numbers = np.asarray(bound, dtype=np.float64).reshape(-1).tolist()
            uniform = len(set(numbers)) == 1
            properties[f"bnncert.{key}"] = json.dumps(numbers[0] if uniform else numbers)
    if pixel_step is not None:
        properties["bnncert.pixel_step"] = json.dumps(pixel_step)
    return properties
