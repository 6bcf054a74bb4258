"""Random questions about patches, shifts, brightness and contrast, beside brute force.

Where a shape is finitely many images, all of them are looked at in a loop; a patch of real values
and a path are those of `tests.questions.shapes.oracle`, which decides them in rationals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from tests.guarded import Guarded, wanted
from tests.plain_network import TIES, PlainNetwork, quarters, random_plain
from tests.questions.shapes.oracle import PathQuestion, UnionBruteForce, boxes, layout

#: Shapes of images, and the data box in quarters.
SHAPES, LOW, HIGH = ((2, 2), (2, 3), (1, 2, 2), (3, 2)), -6, 6

KINDS = ("patch", "patch of a value", "patch on a grid", "shift", "shift of a value")
KINDS = (*KINDS, "brightness", "contrast", "brightness in steps")


def shapes(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask whether a change of some shape can change the class."""
    kind, shape = str(rng.choice(KINDS)), SHAPES[int(rng.integers(len(SHAPES)))]
    size = int(np.prod(shape))
    net = random_plain(rng, size, depth=int(rng.integers(1, 3)))
    step = int(rng.choice([2, 3, 6]))
    image = tuple(int(v) for v in rng.choice(range(LOW, HIGH + 1, step), size))
    region = _region(rng, kind, np.array(image) / 4, shape, step)
    label, ties = min(net.classes_at(image)), str(rng.choice(TIES))
    network = replace(net.build(), input_shape=shape)
    found, path = Guarded(), wanted(rng, folder, "shapes")
    result = bnncert.verify(*(network, region, label), ties=ties, timeout=60, certificate=path)
    about = f"{kind}, {region.describe()}, {net.weights} {net.biases} {net.sign_zero}, {ties}"
    if kind in ("patch", "brightness", "contrast"):
        question = _question(net, region, label, shape)
        expected = question.expected(ties)
        try:
            question.check(result, ties)
        except AssertionError as error:
            found.wrong.append(f"{about}: {error}")
    else:
        points = set(_images(region, image, shape, step))
        expected = "not_robust" if net.is_lost(points, label, ties) else "robust"
        if result.counterexample is not None:
            place = result.counterexample
            point = quarters(place.exact or place.point.tolist())
            found.expect(point in points, f"{about}: {point} is no such image")
            found.expect(net.is_lost([point], label, ties), f"{about}: {point} has the class")
    found.tally.update([result.status, f"{kind}: {result.status}"])
    found.expect(result.status == expected, f"{about}: {result.status} instead of {expected}")
    if result.certificate is not None:
        found.check_certificate(path, network, result.status)
        found.change_certificate(
            rng, path, network, mutants, lambda claim: refuted(net, shape, claim)
        )
    return found


def _region(
    rng: np.random.Generator, kind: str, image: np.ndarray, shape: tuple[int, ...], step: int
) -> Any:
    """Return a shape of a kind around an image."""
    box, height = (LOW / 4, HIGH / 4), min(layout(shape).shape[:2])
    value = float(rng.integers(LOW, HIGH + 1)) / 4 if kind.endswith("value") else None
    if kind.startswith("patch"):
        # Few inputs are free, or have few values.
        side = int(rng.integers(0, 2 if value is None else 1 + height))
        grid = bnncert.Grid(step / 4, LOW / 4) if kind.endswith("grid") else None
        return bnncert.Patch(image, side, shape, *box, value, grid)
    if kind.startswith("shift"):
        return bnncert.ImageShift(image, int(rng.integers(0, height)), shape, *box, value)
    radius = float(rng.integers(0, 9)) / 8
    if kind == "brightness":
        return bnncert.Brightness(image, 2 * radius, *box)
    if kind == "contrast":
        pivot = None if rng.random() < 0.5 else float(rng.integers(LOW, HIGH + 1)) / 4
        return bnncert.Contrast(image, radius, *box, pivot)
    grid = bnncert.Grid(step / 4, LOW / 4)
    return bnncert.BrightnessSteps(image, 2 * radius, *box, grid)


def _question(net: PlainNetwork, region: Any, label: int, shape: tuple[int, ...]) -> Any:
    if isinstance(region, bnncert.Patch | bnncert.ImageShift):
        return UnionBruteForce(net.tiny, region, label, shape)
    return PathQuestion(net.tiny, region, label)


def _images(
    region: Any, image: tuple[int, ...], shape: tuple[int, ...], step: int
) -> Iterator[tuple[Any, ...]]:
    """Yield all images of a shape, in quarters."""
    if isinstance(region, bnncert.BrightnessSteps):
        offset = 0
        while offset <= 4 * Fraction(region.stated_radius):
            for sign in (1, -1):
                yield tuple(min(max(x + sign * offset, LOW), HIGH) for x in image)
            offset += step
        return
    for lo, hi in boxes(region, shape):
        ends = zip(quarters(lo.tolist()), quarters(hi.tolist()), strict=True)
        yield from product(*(range(a, b + 1, step) if a < b else [a] for a, b in ends))  # type: ignore[arg-type]


def refuted(net: PlainNetwork, shape: tuple[int, ...], claim: Section) -> str | None:
    """Return what is wrong with an accepted claim about a shape, or None."""
    details, arrays = claim.fields["details"], claim.arrays
    others = sorted({*range(net.classes)} - {details["label"]})
    if sorted(details["rivals"]) != others:
        return None
    image, box = arrays["center"], (arrays.get("clip_lo"), arrays.get("clip_hi"))
    stated = details["region"]
    radius, norm = float(Fraction(stated["radius"])), stated["region"]
    value = None if stated.get("value") is None else float(Fraction(stated["value"]))
    if norm == "patch":
        region: Any = bnncert.Patch(image, radius, shape, *box, value)
    elif norm == "shift":
        region = bnncert.ImageShift(image, radius, shape, *box, value)
    elif norm == "brightness":
        region = bnncert.Brightness(image, radius, *box)
    else:
        pivot = arrays["pivot"]
        middle = None if np.any(pivot != pivot[0]) else float(pivot[0])
        region = bnncert.Contrast(image, radius, *box, middle)
    if any(Fraction(v).denominator > 4 for v in image.tolist()) and norm in ("patch", "shift"):
        # The oracle adds floats, which is exact for quarters.
        return None
    expected = _question(net, region, details["label"], shape).expected(details["ties"])
    return None if expected == details["verdict"] else f"brute force says {expected}"
