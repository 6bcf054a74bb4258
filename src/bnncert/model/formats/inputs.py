"""Points to verify around: .npy, .npz (`file.npz:key`), .csv and image files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError, reason
from bnncert.model.formats.file_content import (
    ZIP_MAGIC,
    array_names,
    open_archive,
    read_bytes,
    read_member_array,
    read_npy,
)
from bnncert.model.formats.images import is_image, read_image

#: The first bytes of .npy files.
NPY_MAGIC = b"\x93NUMPY"


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
        if not content.startswith(NPY_MAGIC):
            raise FormatError(f"{path}: no points; expected .npy, .npz, .csv or an image")
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
