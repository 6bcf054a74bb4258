"""Small data sets in the forms in which they are published."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array: Array) -> bytes:
    """Return an IDX file, after the format's description."""
    sizes = b"".join(struct.pack(">I", n) for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def digits() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (20, 4, 3)).astype(np.uint8),
        "train-labels-idx1-ubyte": (np.arange(20) % 10).astype(np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (10, 4, 3)).astype(np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(10)[::-1].astype(np.uint8),
    }


def write_idx(folder: Path, *, packed: bool) -> dict[str, Array]:
    arrays = digits()
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        content = idx(array)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return arrays


def colours(count: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072)).astype(np.uint8), rng.integers(0, 10, count)


def cifar_batches(kind: str) -> dict[str, bytes]:
    """Return two training batches and a test batch in CIFAR-10's binary or pickled form."""
    batches = {}
    for seed, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        images, labels = colours(4, seed)
        if kind == "bin":
            records = np.hstack([labels[:, None].astype(np.uint8), images])
            batches[f"{name}.bin"] = records.tobytes()
        else:
            tree = {b"data": images, b"labels": labels.tolist(), b"batch_label": b"one"}
            batches[name] = pickle.dumps(tree, protocol=int(kind))
    return batches


def cifar_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in cifar_batches("bin").items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{member}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def one_line(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text
