"""Data sets by name or by path: MNIST, CIFAR-10, .npz files and folders of pictures.

`load_dataset("mnist")` searches a data folder and downloads missing files from public mirrors; a
file is kept only if its checksum is the published one.  `load_dataset(PATH)` reads a file or a
folder.  Images are kept as they are stored; the `labelled_images.Scaling` defines how they become
inputs of a network.
"""

from __future__ import annotations

import hashlib
import http.client
import math
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError, InputError
from bnncert.extras.training.labelled_images import (
    BYTES,
    CIFAR_FOLDERS,
    IDX_STEMS,
    Dataset,
    Split,
    batch_names,
    idx_path,
    read_archive,
    read_batches,
    read_folders,
    read_idx_folder,
    read_npz_images,
)
from bnncert.model.formats.atomic import make_folder, replacing
from bnncert.model.formats.file_content import array_names, open_archive, read_bytes

# -- downloads ----------------------------------------------------------------------------

#: Seconds without a response after which the next mirror is tried.
PATIENCE = 30.0

BLOCK = 2**20

#: Called with (file name, bytes so far, bytes in all or None).
FetchProgress: TypeAlias = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file by name, the addresses that offer it, and its SHA-256."""

    name: str
    addresses: tuple[str, ...]
    sha256: str


def fetch(
    remote: RemoteFile,
    folder: Path,
    *,
    progress: FetchProgress | None = None,
    patience: float = PATIENCE,
) -> Path:
    """Download a file to `folder` from the first mirror that has it, and return its path.

    The file is written atomically, after its checksum is verified.
    """
    target = folder / remote.name
    failures = []
    make_folder(folder)
    for address in remote.addresses:
        try:
            with replacing(target) as file:
                _download(address, file, remote, progress, patience)
            return target
        except _MirrorError as error:
            failures.append(f"{address}: {error}")
    raise InputError(
        f"{target}: not there, and could not be fetched ({'; '.join(failures)}); "
        "put the file there, or name a folder that has it in $BNNCERT_DATA"
    )


def _download(
    address: str,
    file: BinaryIO,
    remote: RemoteFile,
    progress: FetchProgress | None,
    patience: float,
) -> None:
    """Download one address; raise a _MirrorError if that fails."""
    digest, done, total = hashlib.sha256(), 0, None
    for block, total in _blocks(address, patience):
        digest.update(block)
        done += len(block)
        file.write(block)
        if progress is not None:
            progress(remote.name, done, total)
    if total is not None and done < total:
        raise _MirrorError(f"{done} of {total} bytes arrived")
    if digest.hexdigest() != remote.sha256:
        raise _MirrorError(
            f"wrong checksum (SHA-256 {digest.hexdigest()[:12]}.., not {remote.sha256[:12]}..)"
        )


def _blocks(address: str, patience: float) -> Iterator[tuple[bytes, int | None]]:
    """Yield the content of an address, each block with the stated size of all, if there is one.

    Errors of writing the blocks do not arise here, so that all errors are those of the mirror.
    """
    try:
        with urllib.request.urlopen(address, timeout=patience) as answer:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while block := answer.read(BLOCK):
                yield block, total
    except urllib.error.HTTPError as error:
        raise _MirrorError(f"HTTP status {error.code}") from error
    except urllib.error.URLError as error:
        raise _MirrorError(f"no connection ({_reason(error.reason)})") from error
    except http.client.HTTPException as error:
        raise _MirrorError(f"broken answer ({type(error).__name__})") from error
    except (OSError, ValueError) as error:
        raise _MirrorError(f"no connection ({_reason(error)})") from error


class _MirrorError(Exception):
    """A download failed."""


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


# -- data sets ----------------------------------------------------------------------------

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

    Missing files of data sets by name, which `remote` lists, are downloaded to `data_dir`.
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


def test_images_for_run(what: str) -> str:
    """Name the test images as the option --data of `run` does, or a file that is still to write."""
    path = _find(what, data_folder()) if what in REMOTE else Path(what)
    if path is not None and path.suffix == ".npz":
        with open_archive(read_bytes(path), path, ".npz") as archive:
            if "x_test" in array_names(archive):
                return f"{path}:x_test"
    if path is not None and (path / "test").is_dir():
        return str(path / "test")
    if path is not None and path.is_dir() and (images := idx_path(path, IDX_STEMS[2])) is not None:
        return str(images)
    return "TEST.npz"


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
