"""A small certificate of every kind, about one network, and the numbers that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert.kernel import Report, check

#: Class 0 if the sum of all pixels is at least 0; the second neuron has no effect.
NET = bnncert.Network.from_arrays(
    [[[1, 1, 1, 1], [1, 1, 0, 0]], [[1, 0], [-1, 0]]],
    [[0, 1], [0, 0]],
    input_lo=-1,
    input_hi=1,
    input_shape=(2, 2),
)

#: The same with a threshold of -0.125.
NEAR = bnncert.Network.from_arrays(
    [[[1, 1, 1, 1], [1, 1, 0, 0]], [[1, 0], [-1, 0]]], [[0.125, 1], [0, 0]], input_shape=(2, 2)
)

IMAGE = np.array([1.0, 1.0, 0.5, 0.25])
ROW = np.array([[1.0, 0.0, 1.0, 0.0]])


def _proved(region: Any) -> Callable[[Path, Any], object]:
    return lambda path, image: (
        bnncert.verify(NET, region(image), 0, timeout=60, certificate=path).certificate
    )


def _ball(image: Any, **more: Any) -> bnncert.Ball:
    return bnncert.Ball("linf", image, 0.125, -1, 1, **more)


@dataclass(frozen=True)
class Written:
    """How a certificate is written, and what it is about by the name of its hash."""

    write: Callable[[Path, Any], object]
    about: dict[str, Callable[[Any], Any]]
    other: bnncert.Network | None = None

    def report(self, path: Path, image: Any = IMAGE) -> Report:
        """Write the certificate about an image and check it."""
        assert self.write(path, image) is not None
        return check(path, NET, other=self.other)


def _centre(image: Any) -> Any:
    return image


def _corners(image: Any) -> Any:
    return np.concatenate([image - 0.125, image + 0.125])


def _box(image: Any, **more: Any) -> bnncert.Box:
    return bnncert.Box(image - 0.125, image + 0.125, **more)


KINDS: dict[str, Written] = {
    "ball": Written(_proved(_ball), {"centre": _centre}),
    "box": Written(_proved(_box), {"box": _corners}),
    "polytope": Written(
        _proved(
            lambda image: bnncert.Polytope(ROW, [image[0] + image[2]], image - 0.125, image + 0.125)
        ),
        {
            "polytope": lambda image: np.concatenate(
                [image - 0.125, image + 0.125, ROW[0], [image[0] + image[2]]]
            )
        },
    ),
    "count": Written(
        lambda path, image: (
            bnncert.count(
                NET, _ball(image, grid=bnncert.Grid(0.125, -1)), 0, timeout=60, certificate=path
            ).certificate
        ),
        {"centre": _centre},
    ),
    "equivalence": Written(
        lambda path, image: (
            bnncert.compare(NET, NEAR, _box(image), timeout=60, certificate=path).certificate
        ),
        {"box": _corners},
        NEAR,
    ),
    "explanation": Written(
        lambda path, image: bnncert.explain(NET, image, timeout=60, certificate=path).certificate,
        {"centre": _centre, "kept": lambda image: bnncert.explain(NET, image, timeout=60).kept},
    ),
    "faults": Written(
        lambda path, image: (
            bnncert.faults(NET, _ball(image), 0, timeout=60, certificate=path).certificate
        ),
        {"centre": _centre},
    ),
    "path": Written(
        _proved(lambda image: bnncert.Brightness(image, 0.25, -1, 1)), {"centre": _centre}
    ),
    "two copies": Written(
        lambda path, image: (
            bnncert.monotone(
                NET, 0, label=0, region=_box(image), timeout=60, certificate=path
            ).certificate
        ),
        {"box": _corners},
    ),
    "union": Written(
        _proved(lambda image: bnncert.Patch(image, 1, (2, 2), -1, 1)), {"centre": _centre}
    ),
}
