"""Random networks of the shapes that verification meets, and all scores that a region reaches.

Convolutions are unrolled into matrices.  Numbers lie on a coarse grid, as in
`tests.random_questions`, so that ties are common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

import bnncert
from tests.brute_force import (
    TinyNetwork,
    is_inside,
    last_layers_at,
    reachable_first_layers,
    scores_of,
)
from tests.one_input_rows import reachable_patterns, reads_one_input
from tests.random_questions import random_network, random_region

SHAPES = ("dense", "deep", "binarised", "1-D convolution", "2-D convolution")

#: Points of a grid that are evaluated one by one.
MOST_POINTS = 400

#: Channels, height and width.
Image = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ShapedQuestion:
    """A network and a region; in all inputs but `free` the region is one point."""

    net: TinyNetwork
    region: bnncert.Region
    free: np.ndarray
    #: Where the inputs are those on a grid: the region of these, and all of its points.
    on_grid: bnncert.Region | None = None
    points: tuple[tuple[Fraction, ...], ...] = ()

    def scores(self) -> list[list[Fraction]]:
        """Return all scores that the region reaches."""
        if self.on_grid is not None:
            lasts = set().union(*(last_layers_at(self.net, x) for x in self.points))
            return scores_of(self.net, lasts)
        net, region = self._without_fixed_inputs()
        if reads_one_input(net) and not isinstance(region, bnncert.Polytope):
            current = reachable_patterns(net, region)
        else:
            current = set(reachable_first_layers(net, region))
        for w, b in zip(net.weights[1:-1], net.biases[1:-1], strict=True):
            current = _next_layer(current, w, b, net.sign_zero)
        return scores_of(net, current)

    def _without_fixed_inputs(self) -> tuple[TinyNetwork, bnncert.Region]:
        """Return the same question about the free inputs alone."""
        if self.free.size == self.region.size:
            return self.net, self.region
        fixed = np.setdiff1d(np.arange(self.region.size), self.free)
        w, values = self.net.weights[0], self.region.lo[fixed]
        # All of these are multiples of 1/16, so that floats are exact.
        assert np.array_equal(16 * values, np.rint(16 * values))
        bias = self.net.biases[0] + w[:, fixed] @ values
        weights = (w[:, self.free], *self.net.weights[1:])
        net = TinyNetwork(weights, (bias, *self.net.biases[1:]), self.net.sign_zero)
        return net, bnncert.Box(self.region.lo[self.free], self.region.hi[self.free])


def with_grid(rng: np.random.Generator, asked: ShapedQuestion) -> ShapedQuestion:
    """Return the question about the points of a random grid; itself if that is refused or large.

    Of a box, it may be about those of which few inputs differ from a point of it.
    """
    region = asked.region
    step, origin = float(rng.choice([0.25, 0.5, 0.75, 1.0])), float(rng.integers(-4, 5)) / 4
    first, last = np.ceil((region.lo - origin) / step), np.floor((region.hi - origin) / step)
    counts = last - first + 1
    if np.any(counts < 1) or np.prod(counts) > MOST_POINTS:
        return asked
    values = [
        [Fraction(origin) + Fraction(step) * k for k in range(int(a), int(b) + 1)]
        for a, b in zip(first, last, strict=True)
    ]
    points = tuple(x for x in product(*values) if is_inside(region, x))
    if not points:
        return asked
    grid = bnncert.Grid(step, origin)
    try:
        if isinstance(region, bnncert.Box) and rng.random() < 0.5:
            return _with_few_changes(rng, asked, points, grid)
        return replace(asked, on_grid=on_stated_grid(region, grid), points=points)
    except bnncert.InputError:
        # A step that is larger than the data box.
        return asked


def _with_few_changes(
    rng: np.random.Generator,
    asked: ShapedQuestion,
    points: tuple[tuple[Fraction, ...], ...],
    grid: bnncert.Grid,
) -> ShapedQuestion:
    """Return the question about grid points of which few inputs differ from one of them."""
    center = points[int(rng.integers(len(points)))]
    changes = int(rng.integers(1, len(center) + 1))
    box = asked.region.lo, asked.region.hi
    ball = bnncert.L0Ball([float(v) for v in center], changes, *box, grid=grid)
    few = [sum(a != b for a, b in zip(x, center, strict=True)) <= changes for x in points]
    kept = tuple(x for x, is_near in zip(points, few, strict=True) if is_near)
    return replace(asked, on_grid=ball, points=kept)


def on_stated_grid(region: bnncert.Region, grid: bnncert.Grid) -> bnncert.Region:
    """Return the points of a grid in a region."""
    if isinstance(region, bnncert.Ball):
        clip = region.clip_lo, region.clip_hi
        return bnncert.Ball(region.norm, region.middle, region.radius, *clip, grid)
    if isinstance(region, bnncert.Polytope):
        return bnncert.Polytope(region.matrix, region.right, region.lo, region.hi, grid)
    return bnncert.Box(region.lo, region.hi, grid)


def _next_layer(
    current: set[tuple[int, ...]], w: np.ndarray, b: np.ndarray, sign_zero: str
) -> set[tuple[int, ...]]:
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]
    above: set[tuple[int, ...]] = set()
    for y in current:
        # A whole number and a bias: the sign of their float sum is right.
        above.update(product(*(zero if v == 0 else (int(np.sign(v)),) for v in w @ y + b)))
    return above


def random_shaped_question(
    rng: np.random.Generator, shape: str, kind: str, sign_zero: Any
) -> ShapedQuestion:
    """Return a network of a shape and a region of a kind."""
    if shape == "binarised" and kind != "polytope":
        return _binarised(rng, kind, sign_zero)
    if shape == "2-D convolution" or (shape == "1-D convolution" and rng.random() < 0.5):
        return _convolution_in_box(rng, shape, sign_zero)
    if shape == "1-D convolution":
        inputs = 3 if kind == "l2" else int(rng.integers(3, 5))
        image, rows = _first_convolution(rng, (1, 1, inputs))
        net = _with_layers_above(rng, image, rows, sign_zero)
    else:
        inputs = 2 if kind == "l2" or rng.random() < 0.7 else 3
        net = random_network(rng, inputs, sign_zero)
        if shape == "deep":
            count = int(rng.integers(3, 9 if inputs == 2 else 6))
            net = _dense_above(
                rng, _ternary(rng, count, inputs), int(rng.integers(3, 6)), sign_zero
            )
    return ShapedQuestion(net, random_region(rng, kind, inputs), np.arange(inputs))


# -- layers -------------------------------------------------------------------------------


def _ternary(rng: np.random.Generator, *shape: int) -> np.ndarray:
    zeros = float(rng.choice([0.05, 0.3, 0.6]))
    return rng.choice([0.0, 1.0, -1.0], shape, p=[zeros, (1 - zeros) / 2, (1 - zeros) / 2])


def _biases(rng: np.random.Generator, count: int, step: float) -> np.ndarray:
    if rng.random() < 0.2 and step == 1.0:
        return rng.normal(0.0, 1.0, count)
    return np.asarray(rng.integers(-3, 4, count) * step)


def _output(rng: np.random.Generator, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    classes = int(rng.integers(2, 5))
    weights = _ternary(rng, classes, inputs)
    if rng.random() < 0.3:
        # Differences of such weights are exact in floats; values are on a lattice or on none.
        unit = 2.0 ** float(rng.choice([-2, -45]))
        weights = np.rint(rng.normal(size=(classes, inputs)) / unit) * unit
    return weights, np.asarray(rng.integers(-3, 4, classes) * 0.5)


def _dense_above(
    rng: np.random.Generator, first: np.ndarray, depth: int, sign_zero: Any, step: float = 0.5
) -> TinyNetwork:
    """Return a network with `depth` sign layers above and including the first."""
    weights, biases = [first], [_biases(rng, first.shape[0], step)]
    for _ in range(depth - 1):
        weights.append(_ternary(rng, int(rng.integers(2, 7)), weights[-1].shape[0]))
        biases.append(_biases(rng, weights[-1].shape[0], 1.0))
    last = _output(rng, weights[-1].shape[0])
    return TinyNetwork((*weights, last[0]), (*biases, last[1]), sign_zero)


def _first_convolution(rng: np.random.Generator, image: Image) -> tuple[Image, np.ndarray]:
    return convolution(rng, image, outputs=int(rng.integers(1, 3)))


def convolution(rng: np.random.Generator, image: Image, outputs: int) -> tuple[Image, np.ndarray]:
    """Return the matrix of a random convolution, and the image that it makes."""
    channels, height, width = image
    kernel = [1 if n == 1 else int(rng.integers(2, min(3, n) + 1)) for n in (height, width)]
    pads = [0 if n == 1 else int(rng.random() < 0.3) for n in (height, width)]
    steps = [1 if n < 3 else int(rng.choice([1, 2], p=[0.7, 0.3])) for n in (height, width)]
    filters = _ternary(rng, outputs, channels, *kernel)
    rows, columns = (
        (n + 2 * p - k) // s + 1
        for n, p, k, s in zip((height, width), pads, kernel, steps, strict=True)
    )
    matrix = np.zeros((outputs, rows, columns, channels, height, width))
    for y, x, i, j in product(range(rows), range(columns), *map(range, kernel)):
        row, column = y * steps[0] + i - pads[0], x * steps[1] + j - pads[1]
        if 0 <= row < height and 0 <= column < width:
            matrix[:, y, x, :, row, column] = filters[:, :, i, j]
    return (outputs, rows, columns), matrix.reshape(outputs * rows * columns, -1)


def pooling(image: Image) -> tuple[Image, np.ndarray, np.ndarray]:
    """Return the matrix and the biases that take the largest sign of each window of two by two."""
    channels, height, width = image
    tall, wide = min(2, height), min(2, width)
    rows, columns = height // tall, width // wide
    matrix = np.zeros((channels, rows, columns, channels, height, width))
    for c, y, x in product(range(channels), range(rows), range(columns)):
        matrix[c, y, x, c, tall * y : tall * y + tall, wide * x : wide * x + wide] = 1
    flat = matrix.reshape(channels * rows * columns, -1)
    # The sum of k signs is -k if all are -1, and -k + 2 or more otherwise.
    return (channels, rows, columns), flat, flat.sum(axis=1) - 1


def _with_layers_above(
    rng: np.random.Generator, image: Image, first: np.ndarray, sign_zero: Any
) -> TinyNetwork:
    """Return a convolutional network of two or three sign layers, perhaps with pooling."""
    channels = np.repeat(np.arange(image[0]), image[1] * image[2])
    weights, biases = [first], [_biases(rng, image[0], 0.5)[channels]]
    if max(image[1:]) > 1 and rng.random() < 0.3:
        image, matrix, bias = pooling(image)
        weights, biases = [*weights, matrix], [*biases, bias]
    depth = int(rng.integers(2, 4))
    while len(weights) < depth:
        if max(image[1:]) > 1 and rng.random() < 0.6:
            image, matrix = convolution(rng, image, outputs=int(rng.integers(1, 3)))
            bias = np.repeat(_biases(rng, image[0], 1.0), image[1] * image[2])
        else:
            matrix = _ternary(rng, int(rng.integers(2, 6)), weights[-1].shape[0])
            image, bias = (matrix.shape[0], 1, 1), _biases(rng, matrix.shape[0], 1.0)
        weights, biases = [*weights, matrix], [*biases, bias]
    last = _output(rng, weights[-1].shape[0])
    return TinyNetwork((*weights, last[0]), (*biases, last[1]), sign_zero)


# -- questions ----------------------------------------------------------------------------


def _binarised(rng: np.random.Generator, kind: str, sign_zero: Any) -> ShapedQuestion:
    """Return a network that binarises its inputs, and a box or a ball."""
    inputs = int(rng.integers(3, 9))
    first = np.diag(rng.choice([-1.0, 1.0], inputs))
    if rng.random() < 0.3:
        first *= rng.integers(1, 4, inputs)[:, None]
    if rng.random() < 0.3:
        # Some inputs are compared with several thresholds.
        first = np.concatenate([first, first[rng.integers(inputs, size=2)]])
    depth = int(rng.choice([1, 2, 3, 4, 5], p=[0.1, 0.25, 0.25, 0.2, 0.2]))
    net = _dense_above(rng, first, depth, sign_zero, step=0.25)
    center = rng.integers(-6, 7, inputs) / 8
    if kind == "box":
        region: bnncert.Region = bnncert.Box(center - 0.5, center + rng.integers(0, 5, inputs) / 4)
    else:
        radius = float(rng.integers(1, 13)) / 8
        lo, hi = (-1.0, 0.875) if rng.random() < 0.5 else (None, None)
        region = bnncert.Ball(kind, center, radius, lo, hi)  # type: ignore[arg-type]
    return ShapedQuestion(net, region, np.arange(inputs))


def _convolution_in_box(rng: np.random.Generator, shape: str, sign_zero: Any) -> ShapedQuestion:
    """Return a convolutional network and a box, or an L-inf ball, in which some inputs are free."""
    if shape == "1-D convolution":
        image: Image = (1, 1, int(rng.integers(4, 8)))
    else:
        image = (int(rng.integers(1, 3)), int(rng.integers(2, 5)), int(rng.integers(2, 5)))
    size = int(np.prod(image))
    made, rows = _first_convolution(rng, image)
    net = _with_layers_above(rng, made, rows, sign_zero)
    free = np.sort(rng.choice(size, min(size, int(rng.integers(2, 5))), replace=False))
    center = rng.integers(-4, 5, size) / 4
    radius = float(rng.integers(1, 7)) / 4
    lo, hi = center.copy(), center.copy()
    lo[free] -= radius * rng.integers(0, 3, free.size) / 2
    hi[free] += radius * rng.integers(1, 3, free.size) / 2
    if rng.random() < 0.5:
        return ShapedQuestion(net, bnncert.Box(lo, hi), free)
    return ShapedQuestion(net, bnncert.Ball("linf", center, radius, lo, hi), free)
