"""Points with their true classes, from one file or two files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.formats.inputs import (
    as_pixels,
    count_points,
    listed_names,
    read_array,
    read_names,
    split_key,
)
from bnncert.formats.labels import checked_labels, label_name, point_names, read_labels
from bnncert.network import Network

#: Instead of a file of labels: the network's own answers, even if the data has labels.
OWN = "own"


@dataclass(frozen=True, eq=False)
class Data:
    """Points as stored in a file, and their true classes if known.

    `where` and `labels_where` name the two in messages.
    """

    array: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None
    where: str
    labels_where: str = ""

    def count(self, network: Network) -> int:
        """Return how many points there are."""
        return count_points(self.array, network.inputs)

    def as_pixels(self) -> Data:
        """Return the same points as pixel values, for use with a chosen scale."""
        return replace(self, array=as_pixels(self.array, self.where))

    def label(self, index: int | None, network: Network) -> int | None:
        """Return the true class of a point, or None if there are no labels.

        Raises FormatError if there is not one label for each point, or it is not a class.
        """
        if self.labels is None:
            return None
        count = self.count(network)
        where = self.labels_where or self.where
        if self.labels.size != count:
            raise FormatError(f"{where}: {self.labels.size} labels for {count} points")
        label = int(self.labels[index or 0])
        if not 0 <= label < network.classes:
            raise FormatError(
                f"{where}: label {index or 0} is {label}; the network has classes 0 to "
                f"{network.classes - 1}"
            )
        return label


def read_data(text: str, labels: str | None = None) -> Data:
    """Read points, and their labels from an array in the same file or from the file `labels`.

    `FILE.npz` needs no key if it has one array besides the labels; `labels` "own" means none.
    """
    path, key = split_key(text)
    names = read_names(path) if path.endswith(".npz") else []
    if names and key is None:
        points = point_names(names)
        if len(points) != 1:
            raise FormatError(f"{path}: holds {listed_names(names)}; name the points as {path}:KEY")
        (key,) = points
    array = read_array(f"{path}:{key}" if names else text)
    if labels == OWN:
        return Data(array, None, text)
    if labels is not None:
        return Data(array, read_labels(labels), text, labels)
    name = None if key is None else label_name(names, key, path)
    if name is None:
        return Data(array, None, text)
    where = f"{path}:{name}"
    return Data(array, checked_labels(read_array(where), where), text, where)
