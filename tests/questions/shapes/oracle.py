"""Shapes of change by their definition: the images of a path, and the boxes of a union.

Paths are swept in rationals, and unions box after box, without any code of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

import bnncert
from bnncert.engine.verdict import Result
from bnncert.regions import ImagePath, ImageUnion
from tests.brute_force import (
    TinyNetwork,
    TinyQuestion,
    last_layers_at,
    reachable_last_layers,
    scores_of,
)
from tests.strategies import tiny_networks

SHAPES = ((3, 3), (2, 3), (1, 2, 3), (2, 2, 3), (3, 2, 2))


def layout(shape: tuple[int, ...]) -> np.ndarray:
    """Return the inputs of all pixels as (height, width, channels), written out by hand."""
    numbers = np.arange(int(np.prod(shape)))
    if len(shape) == 2:
        return numbers.reshape(*shape, 1)
    if shape[0] == 1:
        return numbers.reshape(*shape[1:], 1)
    if shape == (3, 2, 2):
        return np.stack([numbers[:4], numbers[4:8], numbers[8:]], axis=1).reshape(2, 2, 3)
    return numbers.reshape(shape)


def boxes(union: ImageUnion, shape: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the corners of all boxes by the definition of the shape."""
    image, pixels = union.middle, layout(shape)
    height, width, _ = pixels.shape
    lowest = np.full(image.size, -np.inf) if union.clip_lo is None else union.clip_lo
    highest = np.full(image.size, np.inf) if union.clip_hi is None else union.clip_hi
    yield image, image
    size = int(union.stated_radius)
    if isinstance(union, bnncert.Patch):
        for row in range(height - size + 1 if size else 0):
            for column in range(width - size + 1):
                lo, hi = image.copy(), image.copy()
                for i in range(row, row + size):
                    for j in range(column, column + size):
                        for k in pixels[i, j]:
                            lo[k] = lowest[k] if union.value is None else union.value
                            hi[k] = highest[k] if union.value is None else union.value
                yield lo, hi
    if isinstance(union, bnncert.ImageShift):
        for down in range(-size, size + 1):
            for right in range(-size, size + 1):
                moved = image.copy()
                for i in range(height):
                    for j in range(width):
                        a, b = i - down, j - right
                        inside = 0 <= a < height and 0 <= b < width
                        source = pixels[min(max(a, 0), height - 1), min(max(b, 0), width - 1)]
                        fill = union.value is not None and not inside
                        moved[pixels[i, j]] = union.value if fill else image[source]
                limits = zip(moved, lowest, highest, strict=True)
                moved = np.array([min(max(v, low), high) for v, low, high in limits])
                yield moved, moved


@dataclass(frozen=True, eq=False)
class UnionBruteForce(TinyQuestion):
    """A question about a union of boxes."""

    shape: tuple[int, ...]

    @cached_property
    def network(self) -> bnncert.Network:
        return replace(self.net.build(), input_shape=self.shape)

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        assert isinstance(self.region, ImageUnion)
        lasts: set[tuple[int, ...]] = set()
        for lo, hi in boxes(self.region, self.shape):
            free = np.flatnonzero(lo < hi)
            # All numbers are multiples of 1/4, so these sums are exact.
            bias = self.net.biases[0] + self.net.weights[0] @ np.where(lo < hi, 0.0, lo)
            weights = (self.net.weights[0][:, free], *self.net.weights[1:])
            small = TinyNetwork(weights, (bias, *self.net.biases[1:]), self.net.sign_zero)
            lasts |= reachable_last_layers(small, bnncert.Box(lo[free], hi[free]))
        return scores_of(self.net, lasts)


@st.composite
def union_questions(draw: st.DrawFn) -> UnionBruteForce:
    shape = draw(st.sampled_from(SHAPES))
    size = int(np.prod(shape))
    net = draw(tiny_networks(inputs=size, max_depth=2))
    quarter = st.integers(-6, 6).map(lambda v: v / 4)
    image = np.array([draw(quarter) for _ in range(size)])
    value = draw(st.none() | quarter)
    most = 1 if size > 9 and value is None else 2
    low, high = np.full(size, -1.5), np.full(size, 1.5)
    if value is None and draw(st.booleans()):
        # A data box of its own for each input, around the image.
        low, high = (np.array([draw(quarter) for _ in range(size)]) for _ in range(2))
        low, high = np.minimum(low, image), np.maximum(high, image)
    if draw(st.booleans()):
        side = draw(st.integers(0, most))
        region: bnncert.Region = bnncert.Patch(image, side, shape, low, high, value)
    else:
        region = bnncert.ImageShift(image, draw(st.integers(0, 1)), shape, low, high, value)
    return UnionBruteForce(net, region, draw(st.integers(0, net.weights[-1].shape[0] - 1)), shape)


def image_at(path: ImagePath, t: Fraction) -> list[Fraction]:
    """Return the image at t by the definition of the shape."""
    if isinstance(path, bnncert.Brightness):
        values = [Fraction(x) + t for x in path.middle.tolist()]
    else:
        assert isinstance(path, bnncert.Contrast)
        values = [
            m + t * (Fraction(x) - m)
            for x, m in zip(path.middle.tolist(), map(Fraction, path.pivot.tolist()), strict=True)
        ]
    lo, hi = ([None] * path.size if v is None else v.tolist() for v in (path.clip_lo, path.clip_hi))
    values = [v if a is None else max(v, Fraction(a)) for v, a in zip(values, lo, strict=True)]
    return [v if b is None else min(v, Fraction(b)) for v, b in zip(values, hi, strict=True)]


def critical_numbers(net: TinyNetwork, path: ImagePath) -> list[Fraction]:
    """Return numbers t such that all signs are constant between two neighbours."""
    middle = 0 if isinstance(path, bnncert.Brightness) else 1
    first, last = middle - Fraction(path.radius), middle + Fraction(path.radius)
    bends = {first, last}
    for i, x in enumerate(path.middle.tolist()):
        for limit in (path.clip_lo, path.clip_hi):
            if limit is None:
                continue
            if isinstance(path, bnncert.Brightness):
                bends.add(Fraction(float(limit[i])) - Fraction(x))
            elif x != path.pivot[i]:  # type: ignore[attr-defined]
                m = Fraction(float(path.pivot[i]))  # type: ignore[attr-defined]
                bends.add((Fraction(float(limit[i])) - m) / (Fraction(x) - m))
    corners = sorted(t for t in bends if first <= t <= last)
    found = set(corners)
    for row, b in zip(net.weights[0].tolist(), net.biases[0].tolist(), strict=True):

        def total(t: Fraction, row: Sequence[float] = row, b: float = b) -> Fraction:
            return Fraction(b) + sum(
                Fraction(w) * y for w, y in zip(row, image_at(path, t), strict=True)
            )

        for low, high in pairwise(corners):
            u, v = total(low), total(high)
            if u * v < 0:
                found.add(low + (high - low) * u / (u - v))
    return sorted(found)


def all_places(net: TinyNetwork, path: ImagePath) -> list[Fraction]:
    numbers = critical_numbers(net, path)
    return sorted({*numbers, *((a + b) / 2 for a, b in pairwise(numbers))})


@dataclass(frozen=True, eq=False)
class PathQuestion(TinyQuestion):
    """A question about a path of images."""

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        assert isinstance(self.region, ImagePath)
        lasts: set[tuple[int, ...]] = set()
        for t in all_places(self.net, self.region):
            lasts |= last_layers_at(self.net, image_at(self.region, t))
        return scores_of(self.net, lasts)

    def check(self, result: Result, ties: str = "violation") -> None:
        super().check(result, ties)
        if result.counterexample is not None:
            found = result.counterexample
            exact = found.exact or tuple(map(Fraction, found.point.tolist()))
            assert isinstance(self.region, ImagePath)
            assert is_on(self.region, exact) and self.region.contains(exact)


def is_on(path: ImagePath, point: Sequence[Fraction]) -> bool:
    """Whether a point is an image of the path: one of few values of t gives it."""
    corners = critical_numbers(
        TinyNetwork((np.zeros((0, path.size)),), (np.zeros(0),), "plus"), path
    )
    places = set(corners)
    for i, (x, value) in enumerate(zip(path.middle.tolist(), point, strict=True)):
        # An input that is not at a side of the data box is x + t, or m + t (x - m).
        if isinstance(path, bnncert.Brightness):
            places.add(value - Fraction(x))
        elif x != path.pivot[i]:  # type: ignore[attr-defined]
            m = Fraction(float(path.pivot[i]))  # type: ignore[attr-defined]
            places.add((value - m) / (Fraction(x) - m))
    return any(corners[0] <= t <= corners[-1] and image_at(path, t) == list(point) for t in places)


@st.composite
def path_questions(draw: st.DrawFn) -> PathQuestion:
    net = draw(tiny_networks(inputs=3))
    quarter = st.integers(-6, 6).map(lambda v: v / 4)
    center = np.array([draw(quarter) for _ in range(3)])
    if draw(st.booleans()):
        center = center + 0.1
    lo, hi = (None, None) if draw(st.booleans()) else (-1.625, 1.625)
    radius = draw(st.integers(0, 8)) / 8
    if draw(st.booleans()):
        region: bnncert.Region = bnncert.Brightness(center, 4 * radius, lo, hi)
    else:
        value = None if lo is not None and draw(st.booleans()) else draw(quarter)
        region = bnncert.Contrast(center, radius, lo, hi, value)
    return PathQuestion(net, region, draw(st.integers(0, net.weights[-1].shape[0] - 1)))
