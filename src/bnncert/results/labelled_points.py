"""Points with their true classes, from files or a folder of images, in the units of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError, InputError
from bnncert.model.formats.images import is_image, read_image
from bnncert.model.formats.inputs import (
    as_pixels,
    checked_labels,
    count_points,
    folder_labels,
    idx_labels,
    label_name,
    list_images,
    listed_names,
    point_names,
    read_array,
    read_labels,
    read_names,
    split_key,
)
from bnncert.model.network import Network
from bnncert.regions.radii import WHITE, PixelScale

#: Instead of a file of labels: the network's own answers, even if the data has labels.
OWN = "own"


@dataclass(frozen=True, eq=False)
class Data:
    """Points as stored in a file, and their true classes if known.

    `where` and `labels_where` name the two in messages.  `names` are the files of a folder, one
    for each point, and `notes` lines for the user about what was converted.
    """

    array: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None
    where: str
    labels_where: str = ""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one image, (H, W) or (H, W, 3); empty if the points are not image files."""
        if self.names:
            return self.array.shape[1:]
        return self.array.shape if is_image(self.where) else ()

    def count(self, network: Network) -> int:
        """Return how many points there are."""
        return len(self.names) or count_points(self.array, network.inputs)

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


@dataclass(frozen=True)
class Selection:
    """The chosen points of the data."""

    #: `count` points (default: all that follow) from number `first` on.
    first: int = 0
    count: int | None = None
    #: The numbers of the points instead, from which `first` and `count` choose.
    indices: Sequence[int] | None = None

    def at_most(self, count: int) -> Selection:
        """Choose the first `count` of these points, if there are more."""
        known = self.count if self.indices is None else len(self.indices)
        return replace(self, count=min(count, known or count))

    def numbers(self, data: Data, network: Network) -> Sequence[int]:
        """Return the numbers of the points, or raise if the data do not have them."""
        where, total = data.where, data.count(network)
        for index in self.indices or ():
            if not 0 <= index < total:
                raise InputError(f"{where}: index {index}; it holds points 0 to {total - 1}")
        all_: Sequence[int] = range(total) if self.indices is None else self.indices
        if not 0 <= self.first < len(all_):
            last = len(all_) - 1
            raise InputError(f"{where}: index {self.first}; it holds points 0 to {last}")
        left = len(all_) - self.first
        count = left if self.count is None else self.count
        if not 1 <= count <= left:
            raise InputError(f"{where}: count is {count}; from {self.first} on it holds {left}")
        return all_[self.first : self.first + count]


def read_data(text: str, labels: str | None = None, network: Network | None = None) -> Data:
    """Read points, and their labels from an array in the same file or from the file `labels`.

    `FILE.npz` needs no key if it has one array besides the labels; `labels` "own" means none.
    Images get as many channels as the network has; a folder of images needs the network.
    """
    if network is not None and Path(text).is_dir():
        return _read_folder(Path(text), labels, network)
    path, key = split_key(text)
    names = read_names(path) if path.endswith(".npz") else []
    if names and key is None:
        points = point_names(names)
        if len(points) != 1:
            raise FormatError(f"{path}: holds {listed_names(names)}; name the points as {path}:KEY")
        (key,) = points
    notes: tuple[str, ...] = ()
    if network is not None and is_image(path):
        array, converted = read_image(Path(path)).fitted(network.input_shape)
        notes = (f"{path}: {converted}",) if converted else ()
    else:
        array = read_array(f"{path}:{key}" if names else text)
    if labels == OWN:
        return Data(array, None, text, notes=notes)
    if labels is not None:
        return Data(array, read_labels(labels), text, labels, notes=notes)
    beside = None if names else idx_labels(Path(path))
    if beside is not None:
        return Data(array, read_labels(str(beside)), text, str(beside), notes=notes)
    name = None if key is None else label_name(names, key, path)
    if name is None:
        return Data(array, None, text, notes=notes)
    where = f"{path}:{name}"
    return Data(array, checked_labels(read_array(where), where), text, where)


def _read_folder(path: Path, labels: str | None, network: Network) -> Data:
    """Read all images of a folder, with the classes that a table or the subfolders state."""
    folder = list_images(path)
    found, where = None, ""
    if labels != OWN:
        found, where = folder_labels(folder, labels, network.classes)
    images: list[npt.NDArray[np.uint8]] = []
    texts: list[str] = []
    for file in folder.files:
        pixels, converted = read_image(file).fitted(network.input_shape)
        if images and pixels.shape != images[0].shape:
            first = folder.files[0].name
            raise FormatError(
                f"{file}: image of another shape than {first}: {pixels.shape[1]} x "
                f"{pixels.shape[0]} pixels instead of {images[0].shape[1]} x {images[0].shape[0]}"
            )
        images.append(pixels)
        texts.append(converted)
    return Data(
        np.stack(images), found, str(path), where, folder.names, _conversions(texts, str(path))
    )


def _conversions(texts: Iterable[str], where: str) -> tuple[str, ...]:
    """Return a line about the images of a folder that were converted, if there are any."""
    counts = Counter(text for text in texts if text)
    if not counts:
        return ()
    parts = (f"{count} image(s) {text}" for text, count in counts.items())
    return (f"{where}: {'; '.join(parts)}",)


#: The images that come with bnncert.
DEMO_DATA = "demo"


def bundled_index(text: str) -> int | None:
    """Return the number of the bundled image that demo:INDEX names, or None."""
    number = text.removeprefix(f"{DEMO_DATA}:")
    return int(number) if number != text and number.isdecimal() else None


def random_points(
    network: Network, count: int, seed: int, clip: tuple[float, float] | None
) -> npt.NDArray[np.float64]:
    """Return uniform points of the data box ([-1, 1] if the network does not state one)."""
    lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
    if lo is None or hi is None:
        lo, hi = -1.0, 1.0
    generator = np.random.default_rng(seed)
    return np.asarray(generator.uniform(lo, hi, size=(count, network.inputs)))


#: The least number of inputs of what is taken for an image.
IMAGE_INPUTS = 64

#: Numbers that exceed the data box by this factor, up to 255, are taken for pixels.
FAR = 8


def in_network_units(
    network: Network, data: Data, scale: PixelScale | None = None, *, is_clipped: bool = False
) -> tuple[Network, Data]:
    """Give the network the pixel step of 8-bit data, and the data a note if they look wrong.

    8-bit pixels 0 and 255 become the ends of the data box, or of the scale that the user states;
    other numbers enter as they are.

    With a clip the data box of the network does not count, so nothing is compared with it.

    Raises FormatError for pixels in floats, of which hardly any ball meets the data box.
    """
    lo, hi = network.input_lo, network.input_hi
    if scale is not None:
        return scale.on(network), data.as_pixels()
    if lo is None or hi is None or is_clipped:
        return network, data
    if data.array.dtype == np.uint8:
        (*other, width) = set((hi - lo).tolist())
        if network.pixel_step is None and not other and width > 0:
            network = replace(network, pixel_step=width / WHITE)
        return network, data
    notes = _doubts(data, float(lo.min()), float(hi.max()), is_image=network.inputs >= IMAGE_INPUTS)
    return network, replace(data, notes=(*data.notes, *notes))


def _doubts(data: Data, lo: float, hi: float, *, is_image: bool) -> list[str]:
    """Compare the numbers with the data box [lo, hi]."""
    least, most = float(data.array.min()), float(data.array.max())
    held = f"{data.where}: holds {data.array.dtype} numbers from {least:g} to {most:g}"
    box = f"the network's data box is [{lo:g}, {hi:g}]"
    if least >= 0 and FAR * max(abs(lo), abs(hi)) < most <= WHITE + 1:
        way = f"give --scale {lo:g} {hi:g}"
        if not np.all(data.array == np.round(data.array)):
            way = f"round them and give --scale {lo:g} {hi:g}, or map them to the data box"
        raise FormatError(f"{held}, and {box}; if they are pixels, {way}")
    if is_image and least >= 0 and 0.5 < most <= 1 and lo <= -0.5:
        return [f"{held}, and {box}; if 0 is black, give 2 x - 1, or 8-bit pixels"]
    return []
