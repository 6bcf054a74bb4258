"""Networks from files and from PyTorch modules, and those that are part of the package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bnncert.arrays import optional_floats
from bnncert.model.description import ModelDescription, SignZero
from bnncert.model.formats.file_content import DEFAULT_LIMITS, Limits
from bnncert.model.formats.model_files import read_description
from bnncert.model.network import Network
from bnncert.model.source_comparison import compared


def load(
    path: str | os.PathLike[str],
    layers: str | os.PathLike[str] | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Network:
    """Read a network from an .npz, .json, .onnx, Keras or PyTorch file (plain or gzipped).

    Parameters
    ----------
    path
        The file; its content, not its suffix, tells the format.
    layers
        The file that describes the layers of a PyTorch checkpoint, or of a Keras file with
        weights only (docs/importing.md).
    limits
        The limits of the file (docs/formats.md); raise them only for trusted files.

    Returns
    -------
    Network
        The network, with every threshold decided exactly.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the exception is also a FormatError.
    FormatError
        If the file is broken, truncated, larger than the limits, or of an unknown kind.
    UnsupportedModelError
        If the model is not a binary network that can be represented exactly, or if the program
        that it comes from computes something else at one of the inputs compared.
    MissingExtraError
        If the format needs a package that is not installed.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     net.save(os.path.join(folder, "net.onnx"))
    ...     again = bnncert.load(os.path.join(folder, "net.onnx"))
    >>> again.sizes, again.content_hash == net.content_hash
    ((2, 1, 2), True)
    """
    described = None if layers is None else Path(layers)
    return _imported(read_description(Path(path), described, limits))


def _imported(description: ModelDescription) -> Network:
    return compared(Network.from_description(description), description)


def from_torch(
    model: Any,
    input_shape: Sequence[int],
    *,
    roles: Mapping[Any, str] | None = None,
    weights: str | Mapping[str, str] | None = None,
    sign_zero: SignZero | None = None,
    input_lo: npt.ArrayLike | None = None,
    input_hi: npt.ArrayLike | None = None,
) -> Network:
    """Convert a module of PyTorch, as it computes in evaluation mode.

    The operators that it executes are read, and the network is compared with the module.

    Parameters
    ----------
    model
        The module, which is not changed.
    input_shape
        The shape of one input, without the batch axis.
    roles
        The types of modules whose operators cannot be read: "sign", "linear" or "conv2d", by their
        classes (``{MySign: "sign"}``).
    weights
        The quantiser of the weights: "sign", "ternary:T" or "as stored", for all layers of the
        classes Linear and Conv2d or by name (``{"0": "sign"}``).  They use their weights as stored
        by default; modules with a role need a quantiser.
    sign_zero
        The value of sign(0): by default, what the module computes there.
    input_lo, input_hi
        The data box.

    Returns
    -------
    Network
        The network, with every threshold decided exactly.

    Raises
    ------
    UnsupportedModelError
        If the module calls an unknown operator, is not a binary network that can be represented
        exactly, or computes something else than the network at one of the inputs compared.
    InputError
        If a role or quantiser is unknown.
    MissingExtraError
        If PyTorch is not installed.

    Examples
    --------
    >>> import bnncert, torch
    >>> class Sign(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.where(x >= 0, 1.0, -1.0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), Sign(), torch.nn.Linear(3, 2))
    >>> net = bnncert.from_torch(model, (4,), weights={"0": "sign"})
    >>> net.sizes, net.sign_zero
    ((4, 3, 2), 'plus')
    """
    from bnncert.model.formats.torch.module import describe_torch

    network = _imported(
        describe_torch(
            model,
            tuple(int(n) for n in input_shape),
            roles=roles,
            weights=weights,
            input_lo=optional_floats(input_lo),
            input_hi=optional_floats(input_hi),
        )
    )
    return network.with_sign_zero(sign_zero)


@dataclass(frozen=True, eq=False)
class DemoData:
    """The first 100 test images of MNIST: pixels 0..255 and labels."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]

    def point(self, index: int) -> npt.NDArray[np.float64]:
        """Scale an image to [-1, 1], as the bundled networks take it."""
        return np.asarray(self.pixels[index].astype(np.float64) / 127.5 - 1.0)


def load_demo_network(which: Literal["sparse", "dense", "certified"] = "sparse") -> Network:
    """Load a bundled network: 784-500-500-10 with 34 % (sparse) or 19 % (dense) zero weights.

    The third one, with a convolution, is trained to be certified on L-inf balls of 25 pixels.
    """
    with as_file(files("bnncert") / "data" / f"mnist_{which}.npz") as path:
        return load(path)


def load_demo_images() -> DemoData:
    """Load the bundled images."""
    with as_file(files("bnncert") / "data" / "mnist_test_100.npz") as path, np.load(path) as data:
        return DemoData(data["images"], data["labels"])
