"""MNIST as IDX files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import Split
from bnncert.model.formats.file_content import read_bytes

IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_path(folder: Path, stem: str) -> Path | None:
    """Return the IDX file of this name in a folder, plain or gzipped, or None."""
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    return None


def read_idx_folder(folder: Path) -> tuple[Split, Split]:
    """Read the training and the test images of a folder."""
    arrays = []
    for stem in IDX_STEMS:
        path = idx_path(folder, stem)
        if path is None:
            raise FormatError(f"{folder}: {stem} (or {stem}.gz) is missing")
        arrays.append(read_idx(path))
    x, y, x_test, y_test = arrays
    return Split(x, y.astype(np.int64)), Split(x_test, y_test.astype(np.int64))


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of bytes: images [n, height, width] or labels [n]."""
    content = read_bytes(path)
    dimensions = 3 if "idx3" in path.name else 1
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < start:
        raise FormatError(f"{path}: not an IDX file of bytes with {dimensions} dimensions")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    size = math.prod(shape)
    if len(content) - start != size:
        raise FormatError(
            f"{path}: {len(content) - start} bytes of data; its header states {size} {shape}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
