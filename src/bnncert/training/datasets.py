"""Labelled images: MNIST, CIFAR-10, .npz files and folders of pictures.

`load_dataset("mnist")` looks into a data folder and fetches what is missing from public mirrors;
`load_dataset(PATH)` reads a file or folder.  Images are kept as they are stored; the
:class:`Scaling` says how they enter a network.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, InputError, reason
from bnncert.formats.archive import ZIP_MAGIC, array_names, open_archive, read_member_array
from bnncert.formats.inputs import IMAGE_SUFFIXES, read_array
from bnncert.formats.labels import checked_labels, label_name
from bnncert.formats.reading import read_bytes
from bnncert.training.batch_pickle import read_batch
from bnncert.training.fetching import FetchProgress, RemoteFile, fetch

#: Where files without a test part have every so-many-th image of a class taken for testing.
TEST_EVERY = 6

#: More classes than any data set here has; a larger label is a broken file.
MOST_CLASSES = 10_000

#: Image shapes of flat rows with these many values: MNIST and CIFAR-10.
FLAT_SHAPES = {784: (1, 28, 28), 3072: (3, 32, 32)}

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"

#: Files that make up a data set, with the SHA-256 of the files as they are published.
REMOTE: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": tuple(
        RemoteFile(name, tuple(mirror + name for mirror in _MNIST_MIRRORS), checksum)
        for name, checksum in (
            (
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        )
    ),
    "cifar10": (
        RemoteFile(
            _CIFAR_ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{_CIFAR_ARCHIVE}",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
}


@dataclass(frozen=True)
class Scaling:
    """How stored images become a network's inputs.

    Bytes p enter as p / 127.5 - 1, other numbers as they are.

    Attributes
    ----------
    lo, hi
        The data box, if it is known.
    pixel_step
        Input units per pixel level, if it is known.
    """

    lo: float | None
    hi: float | None
    pixel_step: float | None

    def points(self, images: npt.NDArray[Any]) -> FloatArray:
        """Return images as flat points in input units."""
        flat = images.reshape(len(images), -1)
        if flat.dtype == np.uint8:
            return np.asarray(flat.astype(np.float64) / 127.5 - 1.0)
        return flat.astype(np.float64)


#: The scaling of bytes.
BYTES = Scaling(-1.0, 1.0, 2.0 / 255.0)


@dataclass(frozen=True, eq=False)
class Split:
    """Images [n, ...] and their classes [n]."""

    images: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images to train on and to test with.

    Attributes
    ----------
    input_shape
        Of one image: (channels, height, width), or (values,) where no image shape is known.
    classes
        How many there are; labels run from 0 to classes - 1.
    """

    name: str
    train: Split
    test: Split
    input_shape: tuple[int, ...]
    classes: int
    scaling: Scaling


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
        Where to look for the two by name, and where to put what is fetched.
    remote
        The files to fetch where nothing is found.
    """
    if what in remote:
        folder = data_folder(data_dir)
        found = _find(what, folder)
        if found is None:
            for file in remote[what]:
                if not (folder / file.name).is_file():
                    fetch(file, folder, progress=progress)
            found = _find(what, folder) or folder
        return _checked(what, *_read(found, what))
    path = Path(what)
    if not path.exists():
        known = " or ".join(remote)
        raise InputError(f"{what}: no such file or folder; expected {known}, .npz or a folder")
    return _checked(what, *_read(path, None))


def _find(name: str, folder: Path) -> Path | None:
    """Return the file or folder below `folder` that holds a data set by name."""
    if name == "mnist":
        for place in (folder, folder / "mnist", folder / "MNIST" / "raw"):
            if all(_idx_path(place, stem) is not None for stem in _IDX_STEMS):
                return place
    else:
        for place in (folder, folder / "cifar10", *(folder / n for n in _CIFAR_FOLDERS)):
            if _cifar_members(place):
                return place
        for archive in (_CIFAR_ARCHIVE, "cifar-10-python.tar.gz"):
            if (folder / archive).is_file():
                return folder / archive
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def _read(path: Path, name: str | None) -> tuple[Path, Split, Split, dict[str, Any]]:
    """Return the two parts of what is at `path`, and what it states beyond them."""
    stated: dict[str, Any] = {"classes": 10} if name is not None else {}
    if path.is_dir():
        # Both data sets may lie in one folder: the name decides, where one was given.
        if name != "cifar10" and any(_idx_path(path, stem) for stem in _IDX_STEMS):
            return path, *_read_idx(path), {"classes": 10}
        members = _cifar_members(path) if name != "mnist" else []
        if members:
            batches = {member: read_bytes(path / member) for member in members}
            return path, *_read_cifar(batches, path), {"classes": 10}
        return path, *_read_folders(path), stated
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return path, *_read_cifar(_unpack(path), path), {"classes": 10}
    if path.suffix == ".npz":
        train, test, found = _read_npz(path)
        return path, train, test, {**found, **stated}
    raise InputError(f"{path}: expected .npz, a CIFAR-10 archive (.tar.gz) or a folder")


def _checked(name: str, path: Path, train: Split, test: Split, stated: dict[str, Any]) -> Dataset:
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
    return Dataset(name, train, test, shape, classes, scaling)


def _image_shape(
    stored: tuple[int, ...], stated: tuple[int, ...] | None, path: Path
) -> tuple[tuple[int, ...], Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]:
    """Return the input shape, channels first, and what brings a batch of images to it."""
    size = int(np.prod(stored, dtype=np.int64))
    shape, moved = stored, False
    if stated is not None:
        if int(np.prod(stated, dtype=np.int64)) != size:
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


# -- MNIST as IDX files ------------------------------------------------------------------------

_IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_path(folder: Path, stem: str) -> Path | None:
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    return None


def _read_idx(folder: Path) -> tuple[Split, Split]:
    arrays = []
    for stem in _IDX_STEMS:
        path = _idx_path(folder, stem)
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
    size = int(np.prod([int(n) for n in shape], dtype=object))
    if len(content) - start != size:
        raise FormatError(
            f"{path}: {len(content) - start} bytes of data; its header says {size} {shape}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


# -- CIFAR-10 ----------------------------------------------------------------------------------

_CIFAR_FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
_CIFAR_BATCH = re.compile(r"(data_batch_\d+|test_batch)(\.bin)?$")

#: A label and 32 x 32 pixels in three channels.
_CIFAR_RECORD = 1 + 3 * 32 * 32


def _cifar_members(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if _CIFAR_BATCH.fullmatch(p.name))


def _unpack(path: Path) -> dict[str, bytes]:
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
    except Exception as error:  # tarfile raises nearly anything on broken archives
        raise FormatError(f"{path}: truncated or broken archive ({reason(error)})") from error
    if not batches:
        raise FormatError(f"{path}: no data_batch_* in the archive")
    return batches


def _read_cifar(batches: dict[str, bytes], path: Path) -> tuple[Split, Split]:
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


# -- .npz --------------------------------------------------------------------------------------

#: Names of images in a file without a test part.
_SINGLE_NAMES = ("images", "x", "x_train")


def _read_npz(path: Path) -> tuple[Split, Split, dict[str, Any]]:
    # From memory: a file that is replaced meanwhile is read as one version.
    content = read_bytes(path)
    if not content.startswith(ZIP_MAGIC):
        raise FormatError(f"{path}: truncated or not a readable .npz file")
    with open_archive(content, path, ".npz") as archive:
        arrays = {
            name: read_member_array(archive, name, f"{path}: {name}")
            for name in array_names(archive)
        }
    stated = _stated(arrays, path)
    if "x_test" in arrays and "x_train" in arrays:
        train, test = (_npz_split(arrays, f"x_{part}", path) for part in ("train", "test"))
        return train, test, stated
    for images in _SINGLE_NAMES:
        if images in arrays:
            return *_test_part(_npz_split(arrays, images, path)), stated
    raise FormatError(
        f"{path}: holds {', '.join(sorted(arrays)) or 'nothing'}; expected x_train, y_train, "
        "x_test, y_test, or images and labels"
    )


def _stated(arrays: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what a file may say about its images: shape, data box and pixel step."""
    stated: dict[str, Any] = {}
    if "input_shape" in arrays:
        dims = np.asarray(arrays["input_shape"]).reshape(-1)
        if dims.dtype.kind not in "iu" or dims.size == 0 or dims.min() < 1:
            raise FormatError(f"{path}: input_shape is {dims}; expected sizes >= 1")
        stated["input_shape"] = tuple(int(n) for n in dims)
    images = next((arrays[n] for n in ("x_train", "images", "x") if n in arrays), None)
    if images is not None and getattr(images, "dtype", None) != np.uint8:
        lo, hi, step = (_number(arrays, n, path) for n in ("input_lo", "input_hi", "pixel_step"))
        if (lo is None) != (hi is None) or (lo is not None and hi is not None and lo >= hi):
            raise FormatError(f"{path}: input_lo is {lo}, input_hi {hi}; expected lo < hi")
        if step is not None and step <= 0:
            raise FormatError(f"{path}: pixel_step is {step}; expected a number > 0")
        stated["scaling"] = Scaling(lo, hi, step)
    return stated


def _number(arrays: dict[str, Any], name: str, path: Path) -> float | None:
    if name not in arrays:
        return None
    array = np.asarray(arrays[name])
    if array.size != 1 or array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)):
        raise FormatError(f"{path}: {name} is {array}; expected one finite number")
    return float(array.reshape(-1)[0])


def _npz_split(arrays: dict[str, Any], images: str, path: Path) -> Split:
    labels = label_name(arrays, images, str(path))
    if labels is None:
        expected = "labels" if images == "images" else images.replace("x", "y")
        raise FormatError(f"{path}: array {expected} is missing beside {images}")
    x, y = arrays[images], arrays[labels]
    if (x.dtype != np.uint8 and x.dtype.kind != "f") or x.ndim < 2:
        raise FormatError(
            f"{path}: {images} has type {x.dtype} and shape {x.shape}; expected pixels (uint8) or "
            "floats, one row or image after the other"
        )
    return Split(x, checked_labels(y, f"{path}:{labels}"))


def _test_part(split: Split) -> tuple[Split, Split]:
    """Take every sixth image of each class for testing."""
    if len(split.images) != len(split.labels):
        # Reported where all parts are checked.
        return split, split
    test = np.zeros(len(split.labels), dtype=bool)
    for label in np.unique(split.labels):
        test[np.flatnonzero(split.labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    train, held = (Split(split.images[rows], split.labels[rows]) for rows in (~test, test))
    return train, held


# -- folders of pictures -----------------------------------------------------------------------


def _read_folders(path: Path) -> tuple[Split, Split]:
    """Read one folder per class, or `train` and `test` with such folders in them."""
    if (path / "train").is_dir() and (path / "test").is_dir():
        classes = _class_folders(path / "train")
        extra = sorted(set(_class_folders(path / "test")) - set(classes))
        if extra:
            raise FormatError(f"{path / 'test'}: class {extra[0]} does not occur in train")
        train, test = (_pictures(path / part, classes) for part in ("train", "test"))
        return train, test
    return _test_part(_pictures(path, _class_folders(path)))


def _class_folders(path: Path) -> list[str]:
    names = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise FormatError(f"{path}: no subfolders; expected one folder of images per class")
    return names


def _pictures(path: Path, classes: Sequence[str]) -> Split:
    images: list[npt.NDArray[Any]] = []
    labels: list[int] = []
    first: Path | None = None
    for label, name in enumerate(classes):
        folder = path / name
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        for file in files:
            if file.suffix.lower() not in IMAGE_SUFFIXES:
                continue
            image = read_array(str(file))
            first = first or file
            if images and image.shape != images[0].shape:
                raise FormatError(
                    f"{file}: image of shape {image.shape}; {first.name} has {images[0].shape}, "
                    "and all must be the same"
                )
            images.append(image)
            labels.append(label)
    if not images:
        raise FormatError(f"{path}: no images in {', '.join(classes[:5])}")
    return Split(np.stack(images), np.array(labels, dtype=np.int64))
