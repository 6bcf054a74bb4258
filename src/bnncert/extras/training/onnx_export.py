"""A trained convolutional model as an ONNX file with the layers and parameters of the model.

Each layer is Conv or MatMul, Add, BatchNormalization, ``Sign -> Add(0.1) -> Sign``, and MaxPool
where the model pools.  All numbers are the float32 parameters of the trained model; batch
normalisation is not folded, so that nothing is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bnncert.extras.training.binary_model import KERNEL, POOL, HiddenLayer, TernaryNet
from bnncert.extras.training.labelled_images import Scaling
from bnncert.model.formats.onnx.drafting import ModelDraft, data_properties


def onnx_bytes(net: TernaryNet, scaling: Scaling) -> bytes:
    """Return the content of the ONNX file."""
    draft = ModelDraft(np.float32)
    current = "input"
    if net.input_threshold is not None:
        threshold = draft.tensor("threshold", np.array(net.input_threshold))
        current = draft.node("Sub", [current, threshold], "centred")
        current = draft.signs(current, 0, "plus")
    flat = False
    for number, layer in enumerate(net.layers, start=1):
        if not layer.convolutional and not flat:
            current, flat = draft.node("Flatten", [current], "flat", axis=1), True
        current = _hidden(draft, layer, current, number)
    if not flat:
        current = draft.node("Flatten", [current], "flat", axis=1)
    weights = draft.tensor("weights", _array(net.output.weights()).T)
    current = draft.node("MatMul", [current, weights], "product")
    current = draft.node("Add", [current, draft.tensor("bias", _array(net.output.bias))], "scores")
    properties = data_properties(scaling.lo, scaling.hi, scaling.pixel_step)
    classes = [net.output.bias.numel()]
    return draft.model(net.input_shape, current, draft.element, classes, properties)


def _hidden(draft: ModelDraft, layer: HiddenLayer, current: str, number: int) -> str:
    weights, bias = _array(layer.map.weights()), _array(layer.map.bias)
    if layer.convolutional:
        current = draft.node(
            "Conv",
            [current, draft.tensor(f"weights{number}", weights)],
            f"product{number}",
            kernel_shape=[KERNEL, KERNEL],
            strides=[layer.map.stride] * 2,
            pads=[KERNEL // 2] * 4,
        )
        bias = bias.reshape(-1, 1, 1)
    else:
        matrix = draft.tensor(f"weights{number}", weights.T)
        current = draft.node("MatMul", [current, matrix], f"product{number}")
    current = draft.node("Add", [current, draft.tensor(f"bias{number}", bias)], f"sum{number}")
    norm = layer.norm
    statistics = {
        "gain": norm.weight,
        "offset": norm.bias,
        "mean": norm.running_mean,
        "variance": norm.running_var,
    }
    names = [draft.tensor(f"{key}{number}", _array(value)) for key, value in statistics.items()]
    current = draft.node(
        "BatchNormalization", [current, *names], f"normalised{number}", epsilon=norm.eps
    )
    current = draft.signs(current, number, "plus")
    if layer.pooled:
        window = {"kernel_shape": [POOL] * 2, "strides": [POOL] * 2}
        current = draft.node("MaxPool", [current], f"pooled{number}", **window)
    return current


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(tensor.float().numpy(), dtype=np.float32)
