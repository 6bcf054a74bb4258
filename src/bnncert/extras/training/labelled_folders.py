"""Labelled images as folders of pictures, one folder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import Split, with_test_part
from bnncert.model.formats.image_folder import natural_order
from bnncert.model.formats.images import is_image, read_image


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
