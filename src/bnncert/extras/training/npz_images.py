"""Labelled images in .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import Scaling, Split, with_test_part
from bnncert.model.formats.archive import ZIP_MAGIC, array_names, open_archive, read_member_array
from bnncert.model.formats.file_content import read_bytes
from bnncert.model.formats.labels import checked_labels, label_name

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
