"""Data sets by name or by path: MNIST, CIFAR-10, .npz files and folders of pictures.

`load_dataset("mnist")` searches a data folder and downloads missing files from public mirrors;
`load_dataset(PATH)` reads a file or folder.  Images are kept as they are stored; the
`labelled_images.Scaling` defines how they become inputs of a network.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError, InputError
from bnncert.extras.training.cifar import CIFAR_FOLDERS, batch_names, read_archive, read_batches
from bnncert.extras.training.fetching import FetchProgress, RemoteFile, fetch
from bnncert.extras.training.idx import IDX_STEMS, idx_path, read_idx_folder
from bnncert.extras.training.labelled_folders import read_folders
from bnncert.extras.training.labelled_images import BYTES, Dataset, Split
from bnncert.extras.training.npz_images import read_npz_images
from bnncert.model.formats.file_content import read_bytes

#: More classes than any data set here has; a larger label is a broken file.
MOST_CLASSES = 10_000

#: Image shapes of flat rows with these many values: MNIST and CIFAR-10.
FLAT_SHAPES = {784: (1, 28, 28), 3072: (3, 32, 32)}

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

#: In the order of `IDX_STEMS`.
_MNIST_CHECKSUMS = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)

_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"

#: Files that make up a data set, with the SHA-256 of the files as they are published.
REMOTE: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": tuple(
        RemoteFile(f"{stem}.gz", tuple(f"{mirror}{stem}.gz" for mirror in _MNIST_MIRRORS), checksum)
        for stem, checksum in zip(IDX_STEMS, _MNIST_CHECKSUMS, strict=True)
    ),
    "cifar10": (
        RemoteFile(
            _CIFAR_ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{_CIFAR_ARCHIVE}",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
}


def data_folder(given: Path | None = None) -> Path:
    """Return the folder for data sets: the given one, $BNNCERT_DATA, or ~/.cache/bnncert."""
    if given is not None:
        return given
    named = os.environ.get("BNNCERT_DATA")
    return Path(named) if named else Path.home() / ".cache" / "bnncert"


def load_dataset(
    what: str,
    data_dir: Path | None = None,
    *,
    remote: Mapping[str, Sequence[RemoteFile]] = REMOTE,
    progress: FetchProgress | None = None,
) -> Dataset:
    """Return `mnist` or `cifar10`, or the data set in a file or folder.

    Parameters
    ----------
    data_dir
        The folder for data sets by name; missing files are downloaded to it.
    remote
        The files to download.
    """
    if what in remote:
        folder = data_folder(data_dir)
        found = _find(what, folder)
        if found is None:
            for file in remote[what]:
                if not (folder / file.name).is_file():
                    fetch(file, folder, progress=progress)
            found = _find(what, folder) or folder
        return _checked(*_read(found, what))
    path = Path(what)
    if not path.exists():
        known = " or ".join(remote)
        raise InputError(f"{what}: no such file or folder; expected {known}, .npz or a folder")
    return _checked(*_read(path, None))


def _find(name: str, folder: Path) -> Path | None:
    """Return the file or folder below `folder` that holds a data set by name."""
    if name == "mnist":
        for place in (folder, folder / "mnist", folder / "MNIST" / "raw"):
            if all(idx_path(place, stem) is not None for stem in IDX_STEMS):
                return place
    else:
        for place in (folder, folder / "cifar10", *(folder / n for n in CIFAR_FOLDERS)):
            if batch_names(place):
                return place
        for archive in (_CIFAR_ARCHIVE, "cifar-10-python.tar.gz"):
            if (folder / archive).is_file():
                return folder / archive
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def _read(path: Path, name: str | None) -> tuple[Path, Split, Split, dict[str, Any]]:
    """Return the two parts of the data at `path`, and its statements about them."""
    stated: dict[str, Any] = {"classes": 10} if name is not None else {}
    if path.is_dir():
        # Both data sets may be in one folder; a given name decides.
        if name != "cifar10" and any(idx_path(path, stem) for stem in IDX_STEMS):
            return path, *read_idx_folder(path), {"classes": 10}
        members = batch_names(path) if name != "mnist" else []
        if members:
            batches = {member: read_bytes(path / member) for member in members}
            return path, *read_batches(batches, path), {"classes": 10}
        return path, *read_folders(path), stated
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return path, *read_batches(read_archive(path), path), {"classes": 10}
    if path.suffix == ".npz":
        train, test, found = read_npz_images(path)
        return path, train, test, {**found, **stated}
    raise InputError(f"{path}: expected .npz, a CIFAR-10 archive (.tar.gz) or a folder")


def _checked(path: Path, train: Split, test: Split, stated: dict[str, Any]) -> Dataset:
    """Check the parts against each other and bring images to one shape."""
    for part, split in (("training", train), ("test", test)):
        where = f"{path}: {part} images"
        if not len(split.images):
            raise FormatError(f"{where}: there are none")
        if len(split.images) != len(split.labels):
            raise FormatError(f"{where}: {len(split.images)} for {len(split.labels)} labels")
        if split.images.dtype.kind == "f" and not np.all(np.isfinite(split.images)):
            raise FormatError(f"{where}: a value is NaN or infinite")
    if train.images.shape[1:] != test.images.shape[1:] or train.images.dtype != test.images.dtype:
        raise FormatError(
            f"{path}: training images are {train.images.dtype} {train.images.shape[1:]}, test "
            f"images {test.images.dtype} {test.images.shape[1:]}; expected the same"
        )
    classes = stated.get("classes") or int(train.labels.max()) + 1
    for part, split in (("training", train), ("test", test)):
        bad = np.flatnonzero((split.labels < 0) | (split.labels >= min(classes, MOST_CLASSES)))
        if bad.size:
            raise FormatError(
                f"{path}: {part} label {int(bad[0])} is {int(split.labels[bad[0]])}; expected "
                f"0 to {min(classes, MOST_CLASSES) - 1}"
            )
    if classes < 2:
        raise FormatError(f"{path}: all training images have one class; expected at least two")
    shape, arrange = _image_shape(train.images.shape[1:], stated.get("input_shape"), path)
    scaling = stated.get("scaling", BYTES)
    train, test = (Split(arrange(split.images), split.labels) for split in (train, test))
    return Dataset(train, test, shape, classes, scaling)


def _image_shape(
    stored: tuple[int, ...], stated: tuple[int, ...] | None, path: Path
) -> tuple[tuple[int, ...], Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]:
    """Return the input shape, channels first, and a function that brings images to it."""
    size = math.prod(stored)
    shape, moved = stored, False
    if stated is not None:
        if math.prod(stated) != size:
            raise FormatError(f"{path}: input_shape {stated} does not hold {size} values")
        shape = stated
    elif len(stored) == 1:
        shape = FLAT_SHAPES.get(size, stored)
    elif len(stored) == 2:
        shape = (1, *stored)
    elif len(stored) == 3 and stored[0] not in (1, 3) and stored[2] in (1, 3):
        shape, moved = (stored[2], *stored[:2]), True

    def arrange(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        images = np.moveaxis(images, -1, 1) if moved else images
        return np.ascontiguousarray(images.reshape(len(images), *shape))

    return shape, arrange
