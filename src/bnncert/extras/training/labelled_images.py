"""Labelled images, how they become inputs of a network, and the files that have them.

The files are IDX (MNIST), .npz, folders of pictures, and the binary or pickled batches of CIFAR-10.
A pickle can call any function.  The reader of pickled batches raises an error for every name except
those with which NumPy arrays and bytes are pickled, and replaces these by classes of this module
that only record their arguments.
"""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, reason
from bnncert.model.formats.file_content import (
    ZIP_MAGIC,
    array_names,
    open_archive,
    read_bytes,
    read_member_array,
)
from bnncert.model.formats.images import is_image, read_image
from bnncert.model.formats.inputs import checked_labels, label_name, natural_order, read_idx

#: In data without a test part, every sixth image of each class is a test image.
TEST_EVERY = 6


@dataclass(frozen=True)
class Scaling:
    """The map from stored images to inputs of a network.

    Bytes p become p / 127.5 - 1, and other numbers are not changed.
    """

    #: The data box, if it is known.
    lo: float | None
    hi: float | None
    #: Input units per pixel level, if it is known.
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


class Dataset(NamedTuple):
    """Images to train on and to test with."""

    train: Split
    test: Split
    #: The shape of an image: (channels, height, width), or (values,) if that is not known.
    input_shape: tuple[int, ...]
    #: The number of classes; labels are 0 to classes - 1.
    classes: int
    scaling: Scaling


def with_test_part(split: Split) -> tuple[Split, Split]:
    """Take every sixth image of each class for testing."""
    if len(split.images) != len(split.labels):
        # The error is reported by the check of the data set.
        return split, split
    test = np.zeros(len(split.labels), dtype=bool)
    for label in np.unique(split.labels):
        test[np.flatnonzero(split.labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    train, held = (Split(split.images[rows], split.labels[rows]) for rows in (~test, test))
    return train, held


# -- IDX files (MNIST) --------------------------------------------------------------------

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
        arrays.append(read_idx(read_bytes(path), str(path)))
    x, y, x_test, y_test = arrays
    return Split(x, y.astype(np.int64)), Split(x_test, y_test.astype(np.int64))


# -- .npz files ---------------------------------------------------------------------------

#: Names of images in a file without a test part.
_SINGLE_NAMES = ("images", "x", "x_train")


def read_npz_images(path: Path) -> tuple[Split, Split, dict[str, Any]]:
    """Return the training and test images of a file, and its statements about them."""
    # The file is read once, so that all arrays are of one version.
    content = read_bytes(path)
    if not content.startswith(ZIP_MAGIC):
        raise FormatError(f"{path}: truncated or not a readable .npz file")
    with open_archive(content, path, ".npz") as archive:
        arrays = {
            name: read_member_array(archive, name, f"{path}: {name}")
            for name in array_names(archive)
        }
    stated = _statements(arrays, path)
    if "x_test" in arrays and "x_train" in arrays:
        train, test = (_npz_split(arrays, f"x_{part}", path) for part in ("train", "test"))
        return train, test, stated
    for images in _SINGLE_NAMES:
        if images in arrays:
            return *with_test_part(_npz_split(arrays, images, path)), stated
    raise FormatError(
        f"{path}: holds {', '.join(sorted(arrays)) or 'nothing'}; expected x_train, y_train, "
        "x_test, y_test, or images and labels"
    )


def _statements(arrays: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the statements of a file about its images: shape, data box and pixel step."""
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


# -- folders of pictures ------------------------------------------------------------------


def read_folders(path: Path) -> tuple[Split, Split]:
    """Read one folder per class, or `train` and `test` with such folders in them."""
    if (path / "train").is_dir() and (path / "test").is_dir():
        classes = _class_folders(path / "train")
        extra = sorted(set(_class_folders(path / "test")) - set(classes))
        if extra:
            raise FormatError(f"{path / 'test'}: class {extra[0]} does not occur in train")
        train, test = (_pictures(path / part, classes) for part in ("train", "test"))
        return train, test
    return with_test_part(_pictures(path, _class_folders(path)))


def _class_folders(path: Path) -> list[str]:
    found = [p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    names = natural_order(found)
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
            if not is_image(file):
                continue
            image = read_image(file).pixels
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


# -- pickled batches ----------------------------------------------------------------------


class _Type:
    """Replaces numpy.dtype; records the type code."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like: only single bytes are used."""


class _Array:
    """Replaces numpy.ndarray; records shape, type and content."""

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_array(self) -> npt.NDArray[np.uint8]:
        """Return the array, which must be of unsigned bytes."""
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Type) or kind.code not in ("u1", "|u1", "uint8"):
            raise ValueError("an array that is not of bytes")
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        flat = np.frombuffer(raw, dtype=np.uint8)
        return flat.reshape(tuple(int(n) for n in shape), order="F" if fortran else "C")


class _Call:
    """A class without instances that replaces a function."""

    def __setstate__(self, state: Any) -> None:
        """Do nothing: a pickle must not be able to change the class."""


class _Reconstruct(_Call):
    """Replaces _reconstruct of NumPy; returns an empty record."""

    def __new__(cls, *_: Any) -> Any:
        """Return a record whose state follows in the pickle."""
        return _Array()


class _FromBuffer(_Call):
    """Replaces _frombuffer of NumPy, with which protocol 5 pickles arrays."""

    def __new__(cls, raw: Any, kind: Any, shape: Any, order: Any, *_: Any) -> Any:
        """Return the record of the array."""
        record = _Array()
        record.state = 1, shape, kind, order == "F", raw
        return record


class _Encode(_Call):
    """Replaces _codecs.encode, with which old protocols pickle bytes."""

    def __new__(cls, text: Any, encoding: Any = "latin1", *_: Any) -> Any:
        """Return the bytes."""
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer,
    ("numpy._core.numeric", "_frombuffer"): _FromBuffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Encode,
}


class _Refused(pickle.UnpicklingError):
    """The pickle uses a name that images do not need."""


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a name; raise if it has none."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_batch(content: bytes, source: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the images [n, 3072] and labels [n] of a pickled batch."""
    try:
        tree = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _Refused as error:
        named = " ".join(str(error).split())[:80]
        raise FormatError(
            f"{source}: the pickle uses {named}, which images do not need; it is not read"
        ) from error
    except Exception as error:
        # A broken pickle can raise many types; no code of the pickle was executed.
        raise FormatError(f"{source}: not a readable CIFAR-10 batch") from error
    try:
        images = _entry(tree, "data").bytes_array()
        labels = np.array(_entry(tree, "labels"))
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise ValueError("labels")
    except Exception as error:
        raise FormatError(
            f"{source}: not a CIFAR-10 batch; expected 'data' (bytes) and 'labels' (integers)"
        ) from error
    return images, labels.astype(np.int64)


def _entry(tree: Any, name: str) -> Any:
    return tree[name.encode()] if name.encode() in tree else tree[name]


# -- CIFAR-10 -----------------------------------------------------------------------------

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
