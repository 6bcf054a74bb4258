"""Random small convolutional networks as ONNX models, and questions that brute force can answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

import bnncert
from tests.exact_onnx import (
    DegenerateError,
    Disc,
    Form,
    Graph,
    Polytope,
    Truth,
    box,
    cross_polytope,
    crossing,
    cut,
    sloped,
    truth,
)
from tests.model.formats.onnx_sketch import Sketch, network_of, ternary

TO_CHANNELS_FIRST, TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]

#: Planes that may cross a region, by its dimension: what a question costs grows with them.
MOST_PLANES = {2: 9, 3: 6, 4: 4}

KINDS = ("box", "linf", "l1", "polytope")


# -- models -------------------------------------------------------------------------------


class Draft:
    """A model that grows layer by layer, in one of the two layouts."""

    def __init__(self, rng: np.random.Generator, small: bool) -> None:
        self.rng = rng
        self.small = small
        self.last = bool(rng.random() < 0.4)
        channels = 1 if small else int(rng.integers(1, 3))
        height, width = (3, 3) if small else rng.integers(3, 6, size=2).tolist()
        #: Channels, height and width of the current image.
        self.image = (channels, height, width)
        #: How odd the numbers are: "grid" makes ties common, "roots" thresholds irrational.
        self.numbers = str(rng.choice(["grid", "roots", "mixed"]))
        shape = (height, width, channels) if self.last else (channels, height, width)
        batch: int | str = "N" if rng.random() < 0.5 else 1
        self.sketch = Sketch(batch, *shape)
        if self.last:
            self.sketch.then("Transpose", perm=TO_CHANNELS_FIRST)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def offsets(self, count: int) -> npt.NDArray[np.float32]:
        """Return biases: halves, or numbers that no sum of pixels can be."""
        if self.numbers == "grid" or (self.numbers == "mixed" and self.chance(0.5)):
            return (self.rng.integers(-3, 4, count) / 2).astype(np.float32)
        return self.rng.uniform(-1.5, 1.5, count).astype(np.float32)

    def factors(self, count: int) -> npt.NDArray[np.float32]:
        """Return factors of either sign, now and then one that is zero."""
        drawn = self.rng.uniform(0.3, 2.0, count) * self.rng.choice([-1, 1], count)
        drawn[self.rng.random(count) < 0.03] = 0
        return np.asarray(drawn, dtype=np.float32)

    def convolution(self) -> None:
        channels, height, width = self.image
        kernel = [int(self.rng.integers(1, min(3, n) + 1)) for n in (height, width)]
        if not self.small and height * width > 9:
            kernel = [max(2, k) for k in kernel]
        pads = [0, 0, 0, 0]
        if self.chance(0.3):
            pads = [1, 1, 1, 1] if self.chance(0.5) else self.rng.integers(0, 2, 4).tolist()
        strides = [int(s) for s in self.rng.choice([1, 2], 2, p=[0.7, 0.3])]
        depthwise = channels > 1 and self.chance(0.3)
        outputs = 1 if self.small else int(self.rng.integers(1, 3))
        outputs = channels * outputs if depthwise else outputs
        weights = ternary(self.rng, outputs, 1 if depthwise else channels, *kernel)
        if self.chance(0.15):
            weights *= self.rng.uniform(0.3, 2.0, (outputs, 1, 1, 1)).astype(np.float32)
        constants = [weights, self.offsets(outputs)] if self.chance(0.5) else [weights]
        self.sketch.then(
            "Conv",
            *constants,
            strides=strides,
            pads=pads,
            group=channels if depthwise else 1,
            kernel_shape=kernel,
        )
        sizes = zip((height, width), kernel, strides, pads[:2], pads[2:], strict=True)
        rows, columns = ((n + a + b - k) // s + 1 for n, k, s, a, b in sizes)
        self.image = (outputs, rows, columns)

    def pool(self) -> None:
        channels, height, width = self.image
        stride = 2 if self.chance(0.6) else 1
        self.sketch.then("MaxPool", kernel_shape=[2, 2], strides=[stride, stride])
        self.image = (channels, (height - 2) // stride + 1, (width - 2) // stride + 1)

    def normalise(self, count: int, axes: int) -> None:
        """Scale and shift every channel, in one of the ways of exporters, or leave it."""
        style = str(self.rng.choice(["norm", "multiply", "none"], p=[0.5, 0.25, 0.25]))
        if style == "norm":
            beta, mean = self.offsets(count), self.offsets(count)
            if self.numbers != "roots":
                # The threshold is then the mean, whatever the root is.
                beta[self.rng.random(count) < 0.4] = 0
            variance = self.rng.uniform(0.3, 3.0, count).astype(np.float32)
            self.sketch.then(
                "BatchNormalization", self.factors(count), beta, mean, variance, epsilon=1e-3
            )
        elif style == "multiply":
            shape = (count, *(1,) * axes)
            self.sketch.then("Mul", self.factors(count).reshape(shape))
            self.sketch.then("Add", self.offsets(count).reshape(shape))

    def binarise(self) -> None:
        style = str(self.rng.choice(["nudge", "bare", "compare"]))
        if style == "nudge":
            self.sketch.then("Sign").then("Add", 0.1).then("Sign")
        elif style == "bare":
            self.sketch.then("Sign")
        else:
            self.sketch.then("GreaterOrEqual", 0.0).then("Where", 1.0, -1.0)

    def block(self, flat_next: bool) -> None:
        """A convolution with all that belongs to it, up to its signs."""
        self.convolution()
        poolable = min(self.image[1:]) >= 2 and self.chance(0.45)
        place = str(self.rng.choice(["before norm", "before sign", "after"])) if poolable else ""
        if place == "before norm":
            self.pool()
        self.normalise(self.image[0], 2)
        if place == "before sign":
            self.pool()
        if self.last:
            self.sketch.then("Transpose", perm=TO_CHANNELS_LAST)
        self.binarise()
        if self.last and (place == "after" or not flat_next):
            self.sketch.then("Transpose", perm=TO_CHANNELS_FIRST)
        if place == "after":
            self.pool()
            if self.last and flat_next:
                self.sketch.then("Transpose", perm=TO_CHANNELS_LAST)

    def flatten(self) -> int:
        size = int(np.prod(self.image))
        if self.chance(0.5):
            self.sketch.then("Flatten")
        else:
            self.sketch.then("Reshape", np.array([1, size] if self.chance(0.5) else [-1, size]))
        return size

    def multiply(self, weights: npt.NDArray[Any]) -> None:
        """Multiply with a matrix of shape (inputs, outputs), perhaps with a bias."""
        if self.chance(0.5):
            self.sketch.then("MatMul", weights)
        else:
            bias = [self.offsets(weights.shape[1])] if self.chance(0.6) else []
            self.sketch.then("Gemm", weights.T, *bias, transB=1)

    def dense(self, inputs: int) -> int:
        outputs = int(self.rng.integers(2, 4 if self.small else 6))
        self.multiply(ternary(self.rng, inputs, outputs))
        self.normalise(outputs, 0)
        self.binarise()
        return outputs

    def output(self, inputs: int) -> None:
        classes = int(self.rng.integers(2, 4))
        weights = ternary(self.rng, inputs, classes)
        if self.chance(0.25):
            weights = self.rng.normal(size=(inputs, classes)).astype(np.float32)
        weights[0, 0] = 1
        self.multiply(weights)
        if self.chance(0.1):
            self.sketch.then("Div", 3.0)
        if self.chance(0.2):
            self.sketch.then("Softmax", axis=1)


def random_model(rng: np.random.Generator, small: bool = False) -> Sketch:
    """Return a network with one to three layers of signs, the first of them convolutional."""
    draft = Draft(rng, small)
    depth = int(rng.integers(1, 3 if small else 4))
    convolutions = 1 if small else int(rng.integers(1, min(depth, 2) + 1))
    for k in range(convolutions):
        draft.block(flat_next=k + 1 == convolutions)
    size = draft.flatten()
    for _ in range(depth - convolutions):
        size = draft.dense(size)
    draft.output(size)
    return draft.sketch


# -- questions ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Question:
    """A network, a region in which only a few pixels are free, and what brute force says."""

    sketch: Sketch
    region: bnncert.Region
    label: int
    truth: Truth

    @cached_property
    def model(self) -> ModelProto:
        return self.sketch.model()

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.model)

    @cached_property
    def network(self) -> bnncert.Network:
        """The network without a file: what is found is replayed in rationals alone."""
        return network_of(self.model)

    @property
    def margins(self) -> dict[int, Fraction]:
        return self.truth.margins(self.label)

    @property
    def rational_margins(self) -> dict[int, Fraction]:
        return self.truth.rational_margins(self.label)

    @property
    def is_robust(self) -> bool:
        return min(self.margins.values()) > 0

    @property
    def can_be_shown(self) -> bool:
        """Whether the answer is "robust", or some rational point is a counterexample."""
        return self.is_robust or min(self.rational_margins.values()) <= 0


@dataclass(frozen=True, eq=False)
class Part:
    """The free pixels of a region, and the region itself in both worlds."""

    region: bnncert.Region
    polytope: Polytope
    disc: Disc | None = None


def _draw_part(
    rng: np.random.Generator,
    kind: str,
    base: npt.NDArray[np.float64],
    free: npt.NDArray[np.int64],
    radius: float,
) -> Part:
    """Pin all pixels of an image but the free ones, and let these move."""
    count = free.size
    center = [Fraction(v) for v in base[free].tolist()]
    if kind in ("box", "polytope"):
        lo, hi = base.copy(), base.copy()
        lo[free] -= radius * rng.integers(0, 3, count) / 2
        hi[free] += radius * rng.integers(1, 3, count) / 2
        body = box(*([Fraction(v) for v in side[free].tolist()] for side in (lo, hi)))
        if kind == "box":
            return Part(bnncert.Box(lo, hi), body)
        rows = int(rng.integers(1, 3))
        matrix = np.zeros((rows, base.size))
        matrix[:, free] = rng.integers(-2, 3, (rows, count))
        matrix[:, free[0]] += matrix[:, free[0]] == 0
        # The base image satisfies the inequalities, so that the polytope is not empty.
        right = matrix @ base + rng.integers(0, 3, rows) * radius / 2
        for k in range(rows):
            slope = tuple(-Fraction(v) for v in matrix[k, free].tolist())
            # Pinned pixels have no weight.
            body = cut(body, Form(slope, Fraction(float(right[k]))), ("row", k))
        return Part(bnncert.Polytope(matrix, right, lo, hi), body)
    clip_lo, clip_hi = base.copy(), base.copy()
    clip_lo[free] -= radius * rng.choice([0.25, 0.5, 2.0], count)
    clip_hi[free] += radius * rng.choice([0.25, 0.5, 2.0], count)
    low, high = ([Fraction(v) for v in side[free].tolist()] for side in (clip_lo, clip_hi))
    reach = Fraction(radius)
    region = bnncert.Ball(kind, base, radius, clip_lo, clip_hi)  # type: ignore[arg-type]
    if kind == "l1":
        body = cross_polytope(center, reach)
        for k in range(count):
            unit = tuple(Fraction(int(i == k)) for i in range(count))
            # Facets of the ball in the plane have names such as (1, 1).
            body = cut(body, Form(unit, -low[k]), ("low", k))
            body = cut(body, Form(tuple(-u for u in unit), high[k]), ("high", k))
        return Part(region, body)
    body = box(
        [max(c - reach, v) for c, v in zip(center, low, strict=True)],
        [min(c + reach, v) for c, v in zip(center, high, strict=True)],
    )
    disc = Disc(tuple(center), reach) if kind == "l2" else None
    return Part(region, body, disc)


def inside(region: bnncert.Region, point: Sequence[Fraction]) -> bool:
    """Decide in rationals whether a region contains a point."""

    def between(lo: npt.NDArray[Any] | None, hi: npt.NDArray[Any] | None) -> bool:
        assert lo is not None and hi is not None
        sides = zip(lo.tolist(), point, hi.tolist(), strict=True)
        return all(low <= v <= high for low, v, high in sides)

    if isinstance(region, bnncert.Ball):
        moves = [abs(v - Fraction(c)) for v, c in zip(point, region.middle.tolist(), strict=True)]
        reach = Fraction(region.radius)
        length = {"linf": max(moves), "l1": sum(moves), "l2": sum(m * m for m in moves)}
        limit = reach**2 if region.norm == "l2" else reach
        return between(region.clip_lo, region.clip_hi) and length[region.norm] <= limit
    if isinstance(region, bnncert.Polytope):
        for row, limit in zip(region.matrix.tolist(), region.right.tolist(), strict=True):
            if sum(Fraction(w) * v for w, v in zip(row, point, strict=True)) > limit:
                return False
    return between(region.lo, region.hi)


def _with_forms(
    shape: tuple[int, ...], base: npt.NDArray[np.float64], free: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Return the image as the oracle's walk begins: free pixels are variables."""
    pixels = np.empty(base.size, dtype=object)
    pixels[:] = [Fraction(v) for v in base.tolist()]
    for k, place in enumerate(free.tolist()):
        pixels[place] = Form(tuple(int(i == k) for i in range(free.size)), 0)
    return pixels.reshape(1, *shape)


def random_question(seed: int, kind: str | None = None, small: bool = False) -> Question:
    """Return a question; in most of them the scores change inside the region."""
    rng = np.random.default_rng([seed, len(kind or ""), int(small)])
    for _ in range(1000):
        sketch = random_model(rng, small)
        shape = tuple(int(n) for n in sketch.shape[1:])
        graph = Graph(sketch.model())
        chosen = kind or str(rng.choice(KINDS))
        count = 2 if small or chosen == "l2" else int(rng.choice([2, 3, 4], p=[0.6, 0.3, 0.1]))
        base = rng.integers(-4, 5, int(np.prod(shape))) / 4
        free = np.sort(rng.choice(base.size, count, replace=False))
        values = graph.before_signs(_with_forms(shape, base, free))
        radius = float(rng.choice([0.25, 0.5, 1.0, 1.5, 0.3, 0.7]))
        try:
            part = _draw_part(rng, chosen, base, free, radius)
            while len(crossing(part.polytope, sloped(values))) > MOST_PLANES[count]:
                radius /= 2
                part = _draw_part(rng, chosen, base, free, radius)
            # Most regions that nothing crosses say nothing.
            if not crossing(part.polytope, sloped(values)) and rng.random() < 0.9:
                continue
            found = truth(graph, values, part.polytope, part.disc)
            if rng.random() < {1: 0.85, 2: 0.5}.get(len(found.scores), 0):
                continue
        except DegenerateError:
            continue
        classes = len(next(iter(found.scores)))
        scores, _ = graph.evaluate([Fraction(v) for v in part.region.center.tolist()], shape)
        label = int(np.argmax([float(s) for s in scores]))
        if rng.random() < 0.1:
            label = int(rng.integers(classes))
        return Question(sketch, part.region, label, found)
    raise AssertionError("no question was found")
