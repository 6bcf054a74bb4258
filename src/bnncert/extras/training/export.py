"""Export of a trained model to a network file with exactly the same scores.

As ONNX, a convolutional model keeps the layers and float32 parameters of the model: Conv or MatMul,
Add, BatchNormalization, ``Sign -> Add(0.1) -> Sign``, and MaxPool where the model pools; batch
normalisation is not folded, so that nothing is rounded.  Any other file is the normal form.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from bnncert.arrays import FloatArray
from bnncert.engine.exact_classes import exact_classes
from bnncert.errors import BnncertError
from bnncert.extras.training.binary_model import POOL, HiddenLayer, TernaryNet, smaller
from bnncert.extras.training.labelled_images import Scaling, Split
from bnncert.model.description import ModelDescription
from bnncert.model.formats.atomic import replacing
from bnncert.model.formats.onnx.graph import OnnxNode
from bnncert.model.formats.onnx.shapes import Windows, incidence
from bnncert.model.formats.onnx.shapes import convolution_matrix as windows_matrix
from bnncert.model.formats.onnx.writer import OPSET, ModelDraft, data_properties
from bnncert.model.formats.weight_arrays import array_stages
from bnncert.model.loading import load
from bnncert.model.network import Network

# -- ONNX with convolutions ---------------------------------------------------------------


def onnx_bytes(net: TernaryNet, scaling: Scaling) -> bytes:
    """Return the content of the ONNX file."""
    draft = ModelDraft(np.float32)
    current = "input"
    if len(net.input_thresholds) == 1:
        threshold = draft.tensor("threshold", np.array(net.input_thresholds[0]))
        current = draft.node("Sub", [current, threshold], "centred")
        current = draft.signs(current, 0, "plus")
    elif net.input_thresholds:
        # One 1 x 1 convolution copies the channels once for each threshold.
        channels = net.input_shape[0]
        copies = np.tile(np.eye(channels), (len(net.input_thresholds), 1))[:, :, None, None]
        offsets = -np.repeat(net.input_thresholds, channels)
        tensors = [draft.tensor("levels", copies), draft.tensor("thresholds", offsets)]
        current = draft.node("Conv", [current, *tensors], "centred", kernel_shape=[1, 1])
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
            kernel_shape=list(weights.shape[2:]),
            strides=[layer.map.stride] * 2,
            pads=[weights.shape[-1] // 2] * 4,
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


# -- the normal form, and the comparison --------------------------------------------------

#: Images compared at once.
CHUNK = 1000


def to_network(net: TernaryNet, scaling: Scaling) -> Network:
    """Return the trained model in normal form.

    A convolution becomes a sparse matrix, and max-pooling a layer of its own:
    max(y_1, .., y_k) = sign(y_1 + .. + y_k + k - 1).  A binarised input is a first layer with the
    identity as its weights, once for each threshold.
    """
    weights: list[Any] = []
    biases: list[FloatArray] = []
    shape = net.input_shape
    if net.input_thresholds:
        inputs = math.prod(shape)
        once = sp.eye_array(inputs, dtype=np.int8, format="csr")
        weights.append(sp.vstack([once] * len(net.input_thresholds), format="csr"))
        biases.append(-np.repeat(net.input_thresholds, inputs))
    for layer in net.layers:
        folded, bias = _fold(layer)
        if not layer.convolutional:
            weights.append(sp.csr_array(folded))
            biases.append(bias)
            continue
        size = (shape[1], shape[2])
        matrix = convolution_matrix(folded, size, layer.map.stride)
        weights.append(matrix)
        biases.append(np.repeat(bias, matrix.shape[0] // len(bias)))
        if layer.pooled:
            pool = pooling_matrix(len(bias), size)
            weights.append(pool)
            biases.append(np.full(pool.shape[0], POOL * POOL - 1.0))
        shape = (len(bias), *smaller(size, layer.map.stride))
    with torch.no_grad():
        weights.append(sp.csr_array(net.output.weights().to(torch.int8).numpy()))
        biases.append(net.output.bias.double().numpy().copy())
    source = "<training>"
    return Network.from_description(
        ModelDescription(
            array_stages(weights, biases, source, sign_zero="plus"),
            net.input_shape,
            None if scaling.lo is None else np.array(scaling.lo),
            None if scaling.hi is None else np.array(scaling.hi),
            source=source,
            pixel_step=scaling.pixel_step,
        )
    )


def _fold(layer: HiddenLayer) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Fold batch normalisation into weights and bias, in double precision.

    sign(g (W x + a - m) / sqrt(v + e) + c) = sign(f (W x + b)) with f = sign(g) and
    b = a - m + c sqrt(v + e) / g, ties included; where g = 0 it is the constant sign(c).
    """
    norm = layer.norm
    with torch.no_grad():
        weights = layer.map.weights().to(torch.int8).numpy()
        own, gain, offset, mean, variance = (
            tensor.double().numpy()
            for tensor in (
                layer.map.bias,
                norm.weight,
                norm.bias,
                norm.running_mean,
                norm.running_var,
            )
        )
    turn = np.sign(gain)
    divisor = np.where(gain == 0, 1.0, gain)
    bias = turn * (own - mean + offset * np.sqrt(variance + norm.eps) / divisor)
    bias = np.where(gain == 0, np.where(offset >= 0, 1.0, -1.0), bias)
    spread = turn.astype(np.int8).reshape(-1, *(1,) * (weights.ndim - 1))
    return weights * spread, bias


def convolution_matrix(kernel: npt.NDArray[np.int8], size: tuple[int, int], stride: int = 1) -> Any:
    """Return the matrix of a convolution, padded with zeros by half of its kernel."""
    height, width = size
    side = kernel.shape[-1]
    out = ((height - 1) // stride + 1, (width - 1) // stride + 1)
    windows = Windows(size, (side,) * 2, (stride,) * 2, (side // 2,) * 4, (1, 1), out)
    inputs = kernel.shape[1] * height * width
    return windows_matrix(kernel, 1, windows, np.arange(inputs), inputs)


def pooling_matrix(channels: int, size: tuple[int, int]) -> Any:
    """Return the 0/1 matrix that sums 2 x 2 windows; an odd edge is left out."""
    out = (size[0] // POOL, size[1] // POOL)
    windows = Windows(size, (POOL,) * 2, (POOL,) * 2, (0,) * 4, (1, 1), out)
    return incidence(
        windows, channels, OnnxNode("<training>", "MaxPool", "", "pool", (), (), {}, OPSET)
    )


def write_network(
    net: TernaryNet, scaling: Scaling, test: Split, path: Path
) -> tuple[Network, float]:
    """Write the network, compare it with the model on all test images; return it and its accuracy.

    Both are evaluated in double precision; their scores must be equal.  If they are not, or in case
    of any other error, no file is written.  The model is in double precision afterwards.

    As ONNX, a convolutional model keeps its convolutions; any other file is the normal form.
    """
    accuracy = 0.0

    def check(written: Path) -> None:
        nonlocal accuracy
        accuracy = _compare(net, load(written), scaling, test, path)

    if path.suffix == ".onnx" and net.layers[0].convolutional:
        content = onnx_bytes(net, scaling)
        with replacing(path) as file:
            file.write(content)
            file.flush()
            check(Path(file.name))
    else:
        to_network(net, scaling).save(path, check)
    return load(path), accuracy


def _compare(net: TernaryNet, network: Network, scaling: Scaling, test: Split, path: Path) -> float:
    """Return the accuracy on the test images; raise if the network and the model differ."""
    model = net.double().eval()
    right, first, differing = 0, None, 0
    for start in range(0, len(test.labels), CHUNK):
        points = scaling.points(test.images[start : start + CHUNK])
        with torch.no_grad():
            wanted = model(torch.from_numpy(points)).numpy()
        scores = network.evaluate(points)
        wrong = np.flatnonzero(np.any(scores != wanted, axis=1))
        differing += int(wrong.size)
        if wrong.size and first is None:
            first = start + int(wrong[0])
        right += int(np.sum(exact_classes(network, points) == test.labels[start : start + CHUNK]))
    if differing:
        raise BnncertError(
            f"{path}: not written; the exported network differs from the trained model on "
            f"{differing} of {len(test.labels)} test images, first on image {first}"
        )
    return right / len(test.labels)
