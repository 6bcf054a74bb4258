"""The names of the bundled networks (demo:sparse, ..) and images (demo and demo:INDEX)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import typer

from bnncert.errors import InputError

PREFIX = "demo:"

#: The bundled networks by name.
NETWORKS = {
    "demo:sparse": "mnist_sparse.npz",
    "demo:dense": "mnist_dense.npz",
    "demo:certified": "mnist_certified.npz",
}

#: The bundled images: a file and the name of the array in it.
IMAGES = ("mnist_test_100.npz", "images")

#: The number of the bundled images.
IMAGE_COUNT = 100


#: The names of all bundled images, and of the first of them.
POINTS = ("demo", *(f"{PREFIX}{index}" for index in range(10)))


def model_file(text: str) -> Path:
    """Return the file of a network that a path or one of the names states."""
    if not text.startswith(PREFIX) or Path(text).exists():
        return Path(text)
    if text not in NETWORKS:
        # The parser of an argument states errors in the words of typer.
        raise typer.BadParameter(f"{text}: expected {', '.join(NETWORKS)}, or a file")
    return _file(NETWORKS[text])


def points_source(text: str) -> str:
    """Return the file (and array) of points that a path or the name `demo` states."""
    return f"{_file(IMAGES[0])}:{IMAGES[1]}" if text == PREFIX[:-1] else text


def point_source(text: str, index: int | None) -> tuple[str, int | None]:
    """Return the file and the index of the point that a path or demo:INDEX states."""
    if not text.startswith(PREFIX):
        return points_source(text), index
    number = text.removeprefix(PREFIX)
    if not number.isdecimal() or index is not None:
        raise InputError(f"{text}: expected demo:INDEX, as in demo:0, without --index")
    if int(number) >= IMAGE_COUNT:
        raise InputError(f"{text}: the bundled images are demo:0 to demo:{IMAGE_COUNT - 1}")
    return points_source(PREFIX[:-1]), int(number)


def _file(name: str) -> Path:
    return Path(str(files("bnncert") / "data" / name))
