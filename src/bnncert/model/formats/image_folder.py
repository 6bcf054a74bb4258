"""Folders of image files: their order, and the true classes that names or tables state."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bnncert.arrays import IntArray
from bnncert.errors import FormatError
from bnncert.model.formats.file_content import read_text
from bnncert.model.formats.images import is_image
from bnncert.model.formats.labels import read_labels
from bnncert.model.formats.limits import DEFAULT_LIMITS, too_many

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
    """Return names sorted with their numbers as numbers: 2.png before 10.png."""

    def key(name: str) -> tuple[list[tuple[int, int | str]], str]:
        parts = re.split(r"([0-9]+)", name)
        return [(0, int(p)) if p.isdecimal() else (1, p) for p in parts if p], name

    return sorted(names, key=key)


def list_images(path: Path) -> ImageFolder:
    """Return the images in a folder, or in its subfolders if it has no images itself.

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
    """Return the true classes of the images, and where they come from.

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
    """Return the classes of the subfolders.

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
    """Return classes from a table of rows FILE,CLASS; None if the file is not such a table."""
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
    """Return the class of a file by its path in the folder, or else by its name alone."""
    if name in known:
        return known[name]
    last = name.rpartition("/")[2]
    if last not in known:
        raise FormatError(f"{path}: no class for {name}")
    if alone[last] > 1:
        raise FormatError(f"{path}: {alone[last]} images are named {last}; expected {name}")
    return known[last]


def _cells(line: str) -> Sequence[str]:
    """Return the cells of a row, separated by a comma, or else by a tab or spaces."""
    if "," not in line:
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line]))]
