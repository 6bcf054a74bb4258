"""Points to verify around (.npy, .npz as `file.npz:key`, .csv, IDX, images), and their classes.

Classes are in arrays and files of labels, or those of folders of images.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray
from bnncert.errors import FormatError, reason
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    ZIP_MAGIC,
    array_names,
    open_archive,
    parse_json,
    read_bytes,
    read_member_array,
    read_npy,
    read_text,
    too_many,
)
from bnncert.model.formats.images import is_image, read_image

#: The first bytes of .npy files, and of IDX files of bytes (MNIST).
NPY_MAGIC, IDX_MAGIC = b"\x93NUMPY", b"\0\0\x08"


def read_array(text: str) -> npt.NDArray[Any]:
    """Read the array or image that `PATH` or `PATH.npz:KEY` names."""
    file, key = split_key(text)
    path = Path(file)
    if is_image(path):
        return read_image(path).pixels
    content = read_bytes(path)
    if not content.startswith(ZIP_MAGIC):
        if key is not None:
            raise FormatError(f"{path}: not an archive of arrays, but {key!r} was asked for")
        if path.suffix.lower() == ".csv":
            return _checked(_read_table(content, path), str(path))
        if content.startswith(IDX_MAGIC):
            return _checked(read_idx(content, str(path)), str(path))
        if not content.startswith(NPY_MAGIC):
            raise FormatError(f"{path}: no points; expected .npy, .npz, .csv, IDX or an image")
        return _checked(read_npy(content, path), str(path))
    with open_archive(content, path, ".npz") as archive:
        names = array_names(archive)
        if key is None and len(names) != 1:
            raise FormatError(f"{path}: holds {listed_names(names)}; name one as {path}:KEY")
        key = names[0] if key is None else key
        if key not in names:
            raise FormatError(f"{path}: no array {key!r}; it holds {listed_names(names)}")
        where = f"{path}:{key}"
        return _checked(read_member_array(archive, key, where), where)


def read_idx(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Read an IDX file of bytes: images [n, height, width] or labels [n]."""
    dimensions = content[3] if len(content) > 3 else 0
    start = 4 + 4 * dimensions
    if not content.startswith(IDX_MAGIC) or dimensions not in (1, 3) or len(content) < start:
        raise FormatError(f"{where}: not an IDX file of bytes with 1 or 3 dimensions")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    size = math.prod(shape)
    if len(content) - start != size:
        raise FormatError(
            f"{where}: {len(content) - start} bytes of data; its header states {size} {shape}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def idx_labels(path: Path) -> Path | None:
    """Find the labels beside a file of images as MNIST names both."""
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    return beside if beside != path and beside.is_file() else None


def read_names(path: str | Path) -> list[str]:
    """List the names of the arrays in an .npz file."""
    content = read_bytes(path)
    if not content.startswith(ZIP_MAGIC):
        raise FormatError(f"{path}: not a readable .npz file")
    with open_archive(content, path, ".npz") as archive:
        return array_names(archive)


def listed_names(names: Sequence[str]) -> str:
    """List the first few names on one line."""
    shown = ["".join(c if c.isprintable() else "?" for c in name) for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def split_key(text: str, suffixes: Sequence[str] = (".npz",)) -> tuple[str, str | None]:
    """Split `FILE:KEY` into file and key, for files with one of these suffixes."""
    head, colon, key = text.rpartition(":")
    return (head, key) if colon and Path(head).suffix in suffixes else (text, None)


def _read_table(content: bytes, path: Path) -> npt.NDArray[Any]:
    """Read numbers in rows, one point each; a first row of names is left out."""
    lines = [line for line in content.decode("utf-8-sig", "replace").splitlines() if line.strip()]
    delimiter = next((mark for mark in ",;\t" if lines and mark in lines[0]), None)
    if lines and not all(map(_is_number, lines[0].split(delimiter))):
        del lines[0]
    if not lines:
        raise FormatError(f"{path}: a table without numbers; expected a point in each row")
    try:
        return np.loadtxt(lines, delimiter=delimiter, ndmin=2, comments=None)
    except ValueError as error:
        why = reason(error).replace("row", "row of numbers")
        raise FormatError(f"{path}: not a table of numbers ({why})") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _checked(array: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    if array.size == 0:
        raise FormatError(f"{where}: an empty array, of shape {array.shape}; expected points")
    real = np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    if not real:
        raise FormatError(
            f"{where}: array of type {array.dtype} and shape {array.shape}; expected real numbers"
        )
    return array


def pick_point(
    array: npt.NDArray[Any],
    index: int | None,
    shape: tuple[int, ...],
    data_box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None,
    where: str,
) -> npt.NDArray[np.float64]:
    """Take one flat point from a single point or a batch, in the network's input units.

    A batch of several points needs an index.  uint8 values are
    pixels: they are mapped linearly to the data box, which must be known.
    """
    size = math.prod(shape)
    if array.size == size and (array.ndim <= 1 or array.shape[0] != 1 or index is None):
        if index not in (None, 0):
            raise FormatError(f"{where}: holds a single point; index {index} does not exist")
        chosen = array
    elif array.ndim >= 2 and array.size == array.shape[0] * size:
        if index is None and array.shape[0] > 1:
            raise FormatError(
                f"{where}: holds {array.shape[0]} points; choose one with --index (0 to "
                f"{array.shape[0] - 1})"
            )
        number = 0 if index is None else index
        if not 0 <= number < array.shape[0]:
            raise FormatError(f"{where}: index {number}; it holds points 0 to {array.shape[0] - 1}")
        chosen = array[number]
    else:
        raise FormatError(
            f"{where}: shape {array.shape}; expected one point or a batch of points with "
            f"{size} values (shape {shape})"
        )
    chosen = _channels_as(chosen, shape)
    point = chosen.reshape(-1).astype(np.float64)
    if not np.all(np.isfinite(point)):
        bad = int(np.flatnonzero(~np.isfinite(point))[0])
        raise FormatError(f"{where}: value {bad} is {point[bad]}; expected finite numbers")
    if array.dtype == np.uint8 and data_box is None:
        raise FormatError(
            f"{where}: holds pixels (uint8), and the network does not state their scale; "
            "give --scale LO HI (--scale 0 1, or --scale 0 255 for pixels as they are) or "
            "--normalise MEAN STD (in a configuration: scale, or mean and std)"
        )
    if array.dtype == np.uint8 and data_box is not None:
        lo, hi = data_box
        if not (np.all(lo == 0) and np.all(hi == 255)):
            point = lo + (hi - lo) * (point / 255.0)
            point = np.clip(point, lo, hi)
    return point


def as_pixels(array: npt.NDArray[Any], where: str) -> npt.NDArray[np.uint8]:
    """Take whole numbers from 0 to 255 as pixels; a scale is not defined for other numbers.

    Floats that are 0 and 1 alone are rather black and white than the two darkest pixels.
    """
    is_whole = array.dtype.kind in "iu" or (np.all(array == np.round(array)) and array.max() > 1)
    if not is_whole:
        raise FormatError(
            f"{where}: holds {array.dtype} numbers, which enter as they are; leave out --scale or "
            "--normalise (scale, mean, std), which are for pixels, whole numbers from 0 to 255"
        )
    if array.min() < 0 or array.max() > 255:
        raise FormatError(
            f"{where}: holds numbers from {array.min():g} to {array.max():g}; --scale and "
            "--normalise (scale, mean, std) are for pixels from 0 to 255"
        )
    return array.astype(np.uint8)


def count_points(array: npt.NDArray[Any], size: int) -> int:
    """Count the points of `size` values in an array."""
    single = array.ndim == 0 or array.size == size
    return 1 if single else int(array.shape[0])


def _channels_as(image: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Move the channels of a colour image to the axis of the network (H,W,C to C,H,W, or back)."""
    if image.ndim == 4 and image.shape[0] == 1:
        # A batch of one image.
        image = image[0]
    if image.ndim == 3 and len(shape) == 3 and image.shape != shape:
        for moved in (np.moveaxis(image, -1, 0), np.moveaxis(image, 0, -1)):
            if moved.shape == shape:
                return moved
    return image


# -- true classes -------------------------------------------------------------------------

#: Words in the name of an array of classes, and of an array of points.
LABEL_WORDS = frozenset({"y", "label", "labels", "target", "targets"})
POINT_WORDS = frozenset({"x", "image", "images", "point", "points", "pixels", "data", "input"})

#: Arrays that describe the points; see docs/training.md.
ABOUT_POINTS = frozenset({"input_shape", "input_lo", "input_hi", "pixel_step"})

#: Files of labels with several columns or arrays.
KEYED_SUFFIXES = (".npz", ".json", ".csv", ".txt")

_PART = r"(train|test|val|valid|validation)"


def _words(name: str) -> frozenset[str]:
    """Split a name into words: x_test, xTest, Xtest and test-x have the words x and test."""
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [w for w in re.split(r"[^A-Za-z0-9]+", apart.lower()) if w]
    if len(words) == 1 and (joined := re.fullmatch(rf"([xy]){_PART}", words[0])):
        words = [joined[1], joined[2]]
    return frozenset(words)


def _part(name: str) -> frozenset[str]:
    """Find the part of the data that a name denotes: its words except points and labels."""
    return _words(name) - LABEL_WORDS - POINT_WORDS


def is_label_name(name: str) -> bool:
    """Decide by its name whether an array holds classes."""
    return bool(_words(name) & LABEL_WORDS)


def point_names(names: Collection[str]) -> list[str]:
    """List the arrays that may hold points: neither labels nor descriptions of the points."""
    return [n for n in names if not is_label_name(n) and n not in ABOUT_POINTS]


def label_name(names: Collection[str], points: str, where: str) -> str | None:
    """Find the array that holds the classes of the array `points`, or None.

    This is the array of the same part (y_test for x_test), else the only array of labels that
    does not belong to another array of points.  Raises FormatError if there are several.
    """
    known = [n for n in names if is_label_name(n) and n != points]
    same = [n for n in known if _part(n) == _part(points)]
    others = {_part(n) for n in point_names(names) if n != points}
    candidates = same or [n for n in known if _part(n) not in others]
    if len(candidates) > 1:
        raise FormatError(
            f"{where}: {listed_names(candidates)} may be the labels of {points}; choose one with "
            f"--labels {where}:KEY"
        )
    return candidates[0] if candidates else None


def checked_labels(array: npt.NDArray[Any], where: str) -> IntArray:
    """Check that an array holds classes: one whole number for each point."""
    if array.dtype.kind not in "iuf" or not np.array_equal(array, np.rint(array)):
        raise FormatError(f"{where}: labels are not whole numbers")
    if array.ndim == 0 or array.size != array.shape[0]:
        raise FormatError(f"{where}: shape {array.shape}; expected one class for each point")
    if array.size and np.max(np.abs(array.astype(np.float64))) >= 2.0**53:
        raise FormatError(f"{where}: labels are not classes; the largest is {array.max()}")
    return array.reshape(-1).astype(np.int64)


def read_labels(text: str) -> IntArray:
    """Read classes from `FILE` or `FILE:KEY`: .npy, .npz, .csv, .txt, .json or IDX."""
    file, key = split_key(text, KEYED_SUFFIXES)
    path = Path(file)
    if path.suffix == ".npz":
        if key is None:
            key = _only([n for n in read_names(path) if is_label_name(n)], path)
        return checked_labels(read_array(f"{path}:{key}"), f"{path}:{key}")
    if path.suffix == ".npy" or "idx1" in path.name:
        return checked_labels(read_array(str(path)), str(path))
    if path.suffix == ".json":
        return _read_json(path, key)
    if path.suffix in (".csv", ".txt"):
        return _read_csv(path, key)
    raise FormatError(f"{path}: labels are read from .npy, .npz, .csv, .txt, .json and IDX files")


def _only(candidates: Sequence[str], path: Path) -> str:
    if len(candidates) != 1:
        held = listed_names(candidates) or "no array of labels"
        raise FormatError(f"{path}: holds {held}; name one as {path}:KEY")
    return candidates[0]


def _read_json(path: Path, key: str | None) -> IntArray:
    tree = parse_json(read_bytes(path), str(path))
    where = str(path)
    if isinstance(tree, dict):
        if key is None:
            key = _only([n for n in tree if is_label_name(n)], path)
        if key not in tree:
            raise FormatError(f"{path}: no key {key!r}; it holds {listed_names(list(tree))}")
        tree, where = tree[key], f"{path}:{key}"
    elif key is not None:
        raise FormatError(f"{path}: holds a list, which has no key {key!r}")
    if not isinstance(tree, list) or not tree:
        raise FormatError(f"{where}: expected a list of whole numbers")
    for index, value in enumerate(tree):
        if not isinstance(value, int) or isinstance(value, bool):
            raise FormatError(f"{where}: value {index} is {value!r}; expected a whole number")
    return _small(tree, where)


def _read_csv(path: Path, key: str | None) -> IntArray:
    """Read a column: the only one, or the one that `key` or a name for labels names."""
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    try:
        rows = [row for row in csv.reader(text.splitlines()) if any(map(str.strip, row))]
    except csv.Error as error:
        raise FormatError(f"{path}: not a readable table ({error})") from error
    if not rows:
        raise FormatError(f"{path}: empty; expected one class a line")
    head = [cell.strip() for cell in rows[0]]
    column, first = 0, 0
    if not any(_is_number(cell) for cell in head):
        column = head.index(_column(head, key, path))
        first = 1
    elif key is not None:
        raise FormatError(f"{path}: the first line names no columns, but {key!r} was asked for")
    elif len(rows) == 1:
        # All classes in one line.
        rows = [[cell] for cell in head]
    elif len(head) > 1:
        raise FormatError(
            f"{path}: {len(head)} columns; name them in the first line, and one as {path}:NAME"
        )
    values = []
    for number, row in enumerate(rows[first:], first + 1):
        cell = row[column].strip() if column < len(row) else ""
        if re.fullmatch(r"[+-]?[0-9]{1,18}", cell) is None:
            raise FormatError(f"{path}: row {number} has {cell[:20]!r}; expected a whole number")
        values.append(int(cell))
    return _small(values, str(path))


def _column(head: Sequence[str], key: str | None, path: Path) -> str:
    if key is None:
        return head[0] if len(head) == 1 else _only([n for n in head if is_label_name(n)], path)
    if key not in head:
        raise FormatError(f"{path}: no column {key!r}; it has {listed_names(head)}")
    return key


def _small(values: Sequence[int], where: str) -> IntArray:
    if not values or max(map(abs, values)) >= 2**31:
        raise FormatError(f"{where}: expected classes")
    return np.array(values, dtype=np.int64)


# -- folders of images --------------------------------------------------------------------

#: Files inside a folder of images that state the classes.
LABEL_FILES = ("labels.csv", "labels.txt")


@dataclass(frozen=True)
class ImageFolder:
    """The image files of a folder, or of its subfolders if they stand for classes."""

    path: Path
    files: tuple[Path, ...]
    #: The subfolders in the order of the classes; empty if the images are in the folder itself.
    classes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The files as seen from the folder."""
        return tuple(file.relative_to(self.path).as_posix() for file in self.files)


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names with their numbers as numbers: 2.png before 10.png."""

    def key(name: str) -> tuple[list[tuple[int, int | str]], str]:
        parts = re.split(r"([0-9]+)", name)
        return [(0, int(p)) if p.isdecimal() else (1, p) for p in parts if p], name

    return sorted(names, key=key)


def list_images(path: Path) -> ImageFolder:
    """List the images in a folder, or in its subfolders if it has no images itself.

    Files of other kinds and hidden files are left out.
    """
    try:
        entries = [p for p in path.iterdir() if not p.name.startswith(".")]
        own = _ordered(p for p in entries if is_image(p) and p.is_file())
        if own:
            return _limited(ImageFolder(path, own))
        folders = {p.name: p for p in entries if p.is_dir()}
        classes = natural_order(folders)
        inside = [f for c in classes for f in _ordered(map(Path, folders[c].iterdir()))]
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from error
    files = tuple(f for f in inside if is_image(f) and not f.name.startswith("."))
    if not files:
        raise FormatError(f"{path}: no image in this folder or its subfolders")
    return _limited(ImageFolder(path, files, tuple(classes)))


def _ordered(files: Iterable[Path]) -> tuple[Path, ...]:
    known = {file.name: file for file in files}
    return tuple(known[name] for name in natural_order(known))


def _limited(folder: ImageFolder) -> ImageFolder:
    count = len(folder.files)
    if count > DEFAULT_LIMITS.rows:
        raise too_many(folder.path, f"{count} images", DEFAULT_LIMITS.rows, "rows")
    return folder


def folder_labels(
    folder: ImageFolder, labels: str | None, classes: int | None
) -> tuple[IntArray | None, str]:
    """Find the true classes of the images, and where they come from.

    They come from the file `labels`, from a table in the folder, or from the names of the
    subfolders.  A table has either one class for each image in their order, or rows FILE,CLASS.
    `classes` is the number of classes of the network, if it is known.
    """
    if labels is None:
        inside = (folder.path / name for name in LABEL_FILES)
        labels = next((str(file) for file in inside if file.is_file()), "")
    if labels:
        named = _by_name(labels, folder)
        return (read_labels(labels) if named is None else named), labels
    if not folder.classes:
        return None, ""
    numbers = _class_numbers(folder, classes)
    found = [numbers[file.parent.name] for file in folder.files]
    return np.array(found, dtype=np.int64), f"the names of the subfolders of {folder.path}"


def _class_numbers(folder: ImageFolder, classes: int | None) -> dict[str, int]:
    """Find the classes of the subfolders.

    They are counted in their order if there is one for each class, as in training; otherwise
    their names have to be the numbers of the classes.
    """
    names = folder.classes
    if classes is None or len(names) == classes:
        return {name: k for k, name in enumerate(names)}
    other = next((n for n in names if not n.isdecimal()), None)
    if other is not None:
        raise FormatError(
            f"{folder.path}: {len(names)} subfolders for {classes} classes, and {other} is not the "
            "number of a class; give --labels FILE, or --labels own"
        )
    return {name: int(name) for name in names}


def _by_name(labels: str, folder: ImageFolder) -> IntArray | None:
    """Read classes from a table of rows FILE,CLASS; None if the file is not such a table."""
    path = Path(labels)
    if path.suffix.lower() not in (".csv", ".txt"):
        return None
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    rows = [(n, _cells(line)) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows or any(len(cells) != 2 for _, cells in rows):
        return None
    if not is_image(rows[0][1][0]):
        # The first line names the columns.
        rows = rows[1:]
    known: dict[str, int] = {}
    for number, (name, label) in rows:
        if not is_image(name):
            return None
        if not re.fullmatch(r"[0-9]{1,15}", label):
            raise FormatError(f"{path}:{number}: class {label!r} of {name}; expected a number")
        if known.setdefault(name, int(label)) != int(label):
            raise FormatError(f"{path}:{number}: {name} again, with another class")
    alone = Counter(file.name for file in folder.files)
    return np.array([_found(known, name, alone, path) for name in folder.names], dtype=np.int64)


def _found(known: dict[str, int], name: str, alone: Counter[str], path: Path) -> int:
    """Look up the class of a file by its path in the folder, or else by its name alone."""
    if name in known:
        return known[name]
    last = name.rpartition("/")[2]
    if last not in known:
        raise FormatError(f"{path}: no class for {name}")
    if alone[last] > 1:
        raise FormatError(f"{path}: {alone[last]} images are named {last}; expected {name}")
    return known[last]


def _cells(line: str) -> Sequence[str]:
    """Split a row at commas, or else at tabs and spaces."""
    if "," not in line:
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line]))]
