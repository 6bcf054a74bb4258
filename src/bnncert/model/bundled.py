"""The networks and images that are part of the package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Literal

import numpy as np
import numpy.typing as npt

from bnncert.model.loading import load
from bnncert.model.network import Network


@dataclass(frozen=True, eq=False)
class DemoData:
    """The first 100 test images of MNIST: pixels 0..255 and labels."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]

    def point(self, index: int) -> npt.NDArray[np.float64]:
        """Return an image scaled to [-1, 1]."""
        return np.asarray(self.pixels[index].astype(np.float64) / 127.5 - 1.0)


def load_demo_network(which: Literal["sparse", "dense"] = "sparse") -> Network:
    """Return a bundled 784-500-500-10 network: 34 % (sparse) or 19 % (dense) zero weights."""
    with as_file(files("bnncert") / "data" / f"mnist_{which}.npz") as path:
        return load(path)


def load_demo_images() -> DemoData:
    """Return the bundled images."""
    with as_file(files("bnncert") / "data" / "mnist_test_100.npz") as path, np.load(path) as data:
        return DemoData(data["images"], data["labels"])
