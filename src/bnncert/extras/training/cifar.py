"""CIFAR-10 as binary or pickled batches, in a folder or in an archive."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bnncert.errors import FormatError, reason
from bnncert.extras.training.batch_pickle import read_batch
from bnncert.extras.training.labelled_images import Split
from bnncert.model.formats.file_content import read_bytes

CIFAR_FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
_CIFAR_BATCH = re.compile(r"(data_batch_\d+|test_batch)(\.bin)?$")

#: A label and 32 x 32 pixels in three channels.
_CIFAR_RECORD = 1 + 3 * 32 * 32


def batch_names(folder: Path) -> list[str]:
    """Return the names of the batches in a folder."""
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if _CIFAR_BATCH.fullmatch(p.name))


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the batches in an archive; nothing is written to disk."""
    batches = {}
    content = read_bytes(path)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and _CIFAR_BATCH.fullmatch(name):
                    file = archive.extractfile(member)
                    assert file is not None
                    batches[name] = file.read()
    except Exception as error:  # tarfile raises many types on broken archives
        raise FormatError(f"{path}: truncated or broken archive ({reason(error)})") from error
    if not batches:
        raise FormatError(f"{path}: no data_batch_* in the archive")
    return batches


def read_batches(batches: dict[str, bytes], path: Path) -> tuple[Split, Split]:
    """Return the training and the test images in batches, which are given by name."""
    parts: dict[bool, list[Split]] = {False: [], True: []}
    for name in sorted(batches):
        binary = name.endswith(".bin")
        where = f"{path}/{name}"
        split = (_binary_batch if binary else _pickled_batch)(batches[name], where)
        parts[name.startswith("test")].append(split)
    for is_test, found in parts.items():
        if not found:
            missing = "test_batch" if is_test else "data_batch_*"
            raise FormatError(f"{path}: {missing} is missing")
    return _joined(parts[False]), _joined(parts[True])


def _binary_batch(content: bytes, where: str) -> Split:
    if len(content) % _CIFAR_RECORD or not content:
        raise FormatError(
            f"{where}: {len(content)} bytes; expected a multiple of {_CIFAR_RECORD} "
            "(a label and an image)"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def _pickled_batch(content: bytes, where: str) -> Split:
    images, labels = read_batch(content, where)
    if images.ndim != 2 or images.shape[1] != _CIFAR_RECORD - 1:
        raise FormatError(f"{where}: images of shape {images.shape}; expected (n, 3072)")
    if len(images) != len(labels):
        raise FormatError(f"{where}: {len(images)} images for {len(labels)} labels")
    return Split(images.reshape(-1, 3, 32, 32), labels)


def _joined(parts: Sequence[Split]) -> Split:
    return Split(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
