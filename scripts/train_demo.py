"""Train a ternary 784-500-500-10 network on MNIST and write it as a small ``.npz`` file.

Weights are in {-1, 0, +1}, hidden activations are signs with ``sign(0) = +1``, and inputs are
scaled from bytes to [-1, 1].  Training keeps real-valued latent weights and passes gradients
straight through the two quantisers.  In every layer the weights of smallest magnitude are zero;
the per-layer threshold follows the quantile that ``--zeros`` asks for.

The hidden layers' batch normalisation is folded into the biases on export, so that the written
network is just ``x1 = sign(W0 x + b0)``, ``x2 = sign(W1 x1 + b1)``, ``scores = W2 x2 + b2``.
The exported arrays are read back and evaluated on the whole test set; the script stops with an
error if any predicted class differs from that of the trained model.

File layout, for each layer ``i`` (the last one is the output layer):

``W{i}_packed``
    uint8; the row-major weights, two bits each: 0 for 0, 1 for +1, 2 for -1.  Weight ``k`` sits
    in bits ``2*(k % 4)`` and ``2*(k % 4) + 1`` of byte ``k // 4``.
``W{i}_shape``
    int64[2]; number of neurons, number of inputs.
``b{i}``
    float64; biases.
``input_lo``, ``input_hi``, ``input_shape``
    Input range (-1.0 and 1.0) and image shape [1, 28, 28].
``pixel_step``
    Input units of one pixel level, 2/255.

Example::

    python scripts/train_demo.py --data mnist.npz --zeros 0.34 --out mnist_sparse.npz
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (784, 500, 500, 10)
INPUT_SHAPE = (1, 28, 28)
BATCH_SIZE = 200
LEARNING_RATE = 1e-3
FINAL_LEARNING_RATE_FRACTION = 0.01
THRESHOLD_INTERVAL = 10
"""Optimiser steps between two updates of the zero thresholds."""

Float64Array = npt.NDArray[np.float64]
Int8Array = npt.NDArray[np.int8]
UInt8Array = npt.NDArray[np.uint8]


class ExportError(RuntimeError):
    """The exported network does not behave like the trained one."""


@dataclass(frozen=True)
class Mnist:
    """MNIST as bytes: images [n, 784] and labels [n]."""

    x_train: UInt8Array
    y_train: UInt8Array
    x_test: UInt8Array
    y_test: UInt8Array

    @classmethod
    def load(cls, path: Path) -> Mnist:
        """Read an ``.npz`` file with the keys x_train, y_train, x_test, y_test."""
        with np.load(path, allow_pickle=False) as data:
            arrays = {key: data[key] for key in ("x_train", "y_train", "x_test", "y_test")}
        for part in ("train", "test"):
            images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
            images = images.reshape(len(images), -1)
            if images.dtype != np.uint8 or images.shape != (len(labels), WIDTHS[0]):
                raise ValueError(
                    f"x_{part}: expected uint8 images of {WIDTHS[0]} pixels, one per label, "
                    f"got {images.dtype} {images.shape} for {len(labels)} labels"
                )
            arrays[f"x_{part}"] = images
        return cls(**arrays)


@dataclass(frozen=True)
class Layer:
    """One exported layer: ternary weights [neurons, inputs] and biases [neurons]."""

    weight: Int8Array
    bias: Float64Array


class _TernarySTE(torch.autograd.Function):
    """Quantise to {-1, 0, +1}; the gradient passes unchanged.

    Latent weights are kept in [-1, 1] by the training loop, so no clipping is needed here.
    """

    @staticmethod
    def forward(ctx: Any, latent: Tensor, threshold: Tensor) -> Tensor:
        return torch.where(latent.abs() > threshold, latent.sign(), torch.zeros_like(latent))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _SignSTE(torch.autograd.Function):
    """Sign with ``sign(0) = +1``; the gradient passes where the argument is in [-1, 1]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * (x.abs() <= 1)


class TernaryLinear(nn.Module):
    """Affine layer whose weights are a thresholded sign of real-valued latent weights."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.empty(outputs, inputs).uniform_(-0.15, 0.15))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.threshold: Tensor
        self.register_buffer("threshold", torch.zeros(()))

    def ternary(self) -> Tensor:
        """Return the weights in {-1, 0, +1}."""
        weight: Tensor = _TernarySTE.apply(self.latent, self.threshold)
        return weight

    @torch.no_grad()
    def set_zero_fraction(self, fraction: float) -> None:
        """Move the threshold to the given quantile of the latent magnitudes."""
        count = round(fraction * self.latent.numel())
        if count == 0:
            self.threshold.zero_()
        else:
            self.threshold.copy_(self.latent.abs().flatten().kthvalue(count).values)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a batch."""
        return functional.linear(x, self.ternary(), self.bias)


class TernaryNet(nn.Module):
    """Ternary layers; batch normalisation and sign follow all but the last one."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(TernaryLinear(m, n) for m, n in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width, eps=1e-3) for width in widths[1:-1])

    def set_zero_fraction(self, fraction: float) -> None:
        """Make the given fraction of every layer's weights zero."""
        for linear in self.linears:
            linear.set_zero_fraction(fraction)

    @torch.no_grad()
    def clip_latent(self) -> None:
        """Keep the latent weights in [-1, 1]."""
        for linear in self.linears:
            linear.latent.clamp_(-1.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch."""
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = _SignSTE.apply(norm(linear(x)))
        scores: Tensor = self.linears[-1](x)
        return scores


def scale(images: UInt8Array) -> Float64Array:
    """Map bytes 0..255 to [-1, 1]."""
    return images.astype(np.float64) / 127.5 - 1.0


def train(data: Mnist, zeros: float, epochs: int, seed: int) -> TernaryNet:
    """Train on the training set and return the network after the last epoch.

    The test set plays no part: the training loss is the only thing reported on the way.
    """
    torch.manual_seed(seed)
    images = torch.from_numpy(scale(data.x_train)).float()
    labels = torch.from_numpy(data.y_train.astype(np.int64))

    net = TernaryNet(WIDTHS)
    net.set_zero_fraction(zeros)
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(
        optimiser, FINAL_LEARNING_RATE_FRACTION ** (1.0 / epochs)
    )
    # Scores are sums of hundreds of signs; this only scales them for the loss.
    temperature = WIDTHS[-2] ** 0.5

    start = time.perf_counter()
    step = 0
    for epoch in range(epochs):
        net.train()
        total = 0.0
        for batch in torch.randperm(len(labels)).split(BATCH_SIZE):
            loss = functional.cross_entropy(net(images[batch]) / temperature, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            net.clip_latent()
            step += 1
            if step % THRESHOLD_INTERVAL == 0:
                net.set_zero_fraction(zeros)
            total += loss.item() * len(batch)
        scheduler.step()
        elapsed = time.perf_counter() - start
        print(f"epoch {epoch + 1}/{epochs}  loss {total / len(labels):.4f}  {elapsed:.0f} s")

    net.set_zero_fraction(zeros)
    recompute_batch_statistics(net, images)
    return net


@torch.no_grad()
def recompute_batch_statistics(net: TernaryNet, images: Tensor) -> None:
    """Replace the running batch statistics by averages over the training set.

    The running ones lag behind the weights, which no longer change at this point.
    """
    for norm in net.norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
    net.train()
    for batch in images.split(1000):
        net(batch)
    net.eval()


@torch.no_grad()
def fold(net: TernaryNet) -> list[Layer]:
    """Fold the batch normalisation into weights and biases, in double precision.

    ``sign(g * (W x + c - mu) / sqrt(v + eps) + beta)`` equals ``sign(f * (W x + b))`` with
    ``b = c - mu + beta * sqrt(v + eps) / g`` and ``f = sign(g)``, ties included.
    """

    def array(tensor: Tensor) -> Float64Array:
        return np.asarray(tensor.double().numpy(), np.float64)

    layers = []
    for index, linear in enumerate(net.linears):
        weight = linear.ternary().to(torch.int8).numpy()
        bias = array(linear.bias)
        if index < len(net.norms):
            norm = net.norms[index]
            gain = array(norm.weight)
            if not gain.all():
                raise ExportError(f"layer {index}: a batch normalisation gain is zero")
            deviation = np.sqrt(array(norm.running_var) + norm.eps)
            bias = (bias - array(norm.running_mean)) + array(norm.bias) * deviation / gain
            flip = np.where(gain < 0, -1, 1)
            weight = weight * flip[:, None].astype(np.int8)
            bias = bias * flip
        layers.append(Layer(weight.astype(np.int8), bias.astype(np.float64)))
    return layers


def pack(weight: Int8Array) -> UInt8Array:
    """Pack ternary weights into two bits each, four to a byte, lowest bits first."""
    codes = np.where(weight < 0, 2, weight).astype(np.uint8).ravel()
    quads = np.pad(codes, (0, -len(codes) % 4)).reshape(-1, 4)
    packed: UInt8Array = np.bitwise_or.reduce(quads << np.array([0, 2, 4, 6], np.uint8), axis=1)
    return packed


def unpack(packed: UInt8Array, shape: Sequence[int]) -> Int8Array:
    """Undo :func:`pack`."""
    codes = (packed[:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    values = np.array([0, 1, -1, 0], np.int8)[codes.ravel()]
    weight: Int8Array = values[: shape[0] * shape[1]].reshape(shape[0], shape[1])
    return weight


def save(path: Path, layers: Sequence[Layer]) -> None:
    """Write the layers in the layout described at the top of this file."""
    arrays: dict[str, Any] = {
        "input_lo": np.float64(-1.0),
        "input_hi": np.float64(1.0),
        "input_shape": np.array(INPUT_SHAPE, np.int64),
        "pixel_step": np.float64(2.0 / 255.0),
    }
    for index, layer in enumerate(layers):
        arrays[f"W{index}_packed"] = pack(layer.weight)
        arrays[f"W{index}_shape"] = np.array(layer.weight.shape, np.int64)
        arrays[f"b{index}"] = layer.bias
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load(path: Path) -> list[Layer]:
    """Read the layers back from a file written by :func:`save`."""
    with np.load(path, allow_pickle=False) as data:
        return [
            Layer(unpack(data[f"W{i}_packed"], data[f"W{i}_shape"].tolist()), data[f"b{i}"])
            for i in range(len(WIDTHS) - 1)
        ]


def predict(layers: Sequence[Layer], images: UInt8Array) -> npt.NDArray[np.int64]:
    """Return the class of every image, computed in double precision."""
    x = scale(images)
    for layer in layers[:-1]:
        x = np.where(x @ layer.weight.T.astype(np.float64) + layer.bias >= 0, 1.0, -1.0)
    last = layers[-1]
    classes: npt.NDArray[np.int64] = np.argmax(
        x @ last.weight.T.astype(np.float64) + last.bias, axis=1
    )
    return classes


@torch.no_grad()
def predict_with_torch(net: TernaryNet, images: UInt8Array) -> npt.NDArray[np.int64]:
    """Return the class of every image by the unfolded model, computed in double precision.

    Converts ``net`` to double precision in place.
    """
    scores = net.double().eval()(torch.from_numpy(scale(images)))
    classes: npt.NDArray[np.int64] = np.argmax(scores.numpy(), axis=1)
    return classes


def zero_fraction(layers: Sequence[Layer]) -> float:
    """Return the fraction of zero weights over all layers."""
    nonzero = sum(int(np.count_nonzero(layer.weight)) for layer in layers)
    return 1.0 - nonzero / sum(layer.weight.size for layer in layers)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a ternary 784-500-500-10 network on MNIST.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help=".npz file with x_train, y_train, x_test, y_test (bytes)",
    )
    parser.add_argument("--zeros", type=float, default=0.34, help="fraction of zero weights")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training set")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--out", type=Path, required=True, help=".npz file to write")
    options = parser.parse_args(arguments)
    if not 0.0 <= options.zeros < 1.0:
        parser.error("--zeros must be in [0, 1)")
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    if not options.out.parent.is_dir():
        parser.error(f"--out: no directory {options.out.parent}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    data = Mnist.load(options.data)
    net = train(data, options.zeros, options.epochs, options.seed)

    partial = options.out.with_name(options.out.name + ".partial")
    save(partial, fold(net))
    layers = load(partial)
    classes = predict(layers, data.x_test)
    differing = int(np.count_nonzero(classes != predict_with_torch(net, data.x_test)))
    if differing:
        partial.unlink()
        raise ExportError(
            f"{differing} of {len(classes)} test images change class on export; nothing written"
        )
    partial.replace(options.out)

    print(f"test accuracy {np.mean(classes == data.y_test):.4f}")
    print(f"zero weights  {zero_fraction(layers):.4f}")
    print(f"wrote {options.out} ({options.out.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
