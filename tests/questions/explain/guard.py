"""Random explanations, beside a loop over all values of the free inputs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from bnncert.kernel.rules.pixel_blocks import PixelBlocks
from bnncert.questions.explain import free_points as enumeration
from bnncert.questions.explain.explanation_answer import Domain
from tests.guarded import Guarded, how, stated_points, wanted
from tests.kernel.stated_regions import last_layers
from tests.plain_network import TIES, PlainNetwork, is_other, quarters, random_plain

#: How often methods decide instead of an enumeration, and how often the units are blocks.
METHODS, BLOCKS = 0.5, 0.4


class Explained:
    """An image on a grid of quarters and the values of its inputs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.net = net = random_plain(rng)
        self.label, self.ties = int(rng.integers(net.classes)), str(rng.choice(TIES))
        step = int(rng.choice([1, 2, 4]))
        image = [step * int(k) for k in rng.integers(-2, 3, net.inputs)]
        low, high = -2 * step, 2 * step
        reach = step * int(rng.integers(1, 5 if net.inputs < 4 else 3))
        #: The values of each input, in quarters.
        self.axes = [[v for v in range(low, high + 1, step) if abs(v - x) <= reach] for x in image]
        self.image = tuple(image)
        centre = np.array(image) / 4
        self.ball = bnncert.Ball("linf", centre, reach / 4, low / 4, high / 4, grid=step / 4)
        if rng.random() < 0.7:
            self.label = min(net.classes_at(self.image))
        self._known: dict[tuple[int, ...], bool] = {}
        self.blocks: dict[str, Any] | None = None
        if rng.random() < BLOCKS:
            # One row or column of pixels, or pixels of two channels in a row.
            shapes = [[1, 1, net.inputs, 1], [1, net.inputs, 1, 1]]
            shapes += [[2, 1, 2, 1], [1, 1, 2, 2]] if net.inputs == 4 else []
            self.blocks = {
                "side": int(rng.integers(1, 4)),
                "shape": shapes[rng.integers(len(shapes))],
            }
        self.units = units_of(self.blocks, net.inputs)
        self.words = f"{self.ball.describe()}, {net.weights} {net.biases}, class {self.label}"
        self.words += f", blocks {self.blocks}"

    @property
    def domain(self) -> Domain:
        """The values of the inputs as the question takes them."""
        if self.blocks is None:
            return Domain(self.ball)
        blocks = PixelBlocks(self.blocks["side"], tuple(self.blocks["shape"]))
        return Domain(self.ball, blocks=blocks)

    def is_lost(self, point: tuple[int, ...]) -> bool:
        """Whether a point may have another class."""
        if point not in self._known:
            self._known[point] = self.net.is_lost([point], self.label, self.ties)
        return self._known[point]

    def can_change(self, free: set[int]) -> bool:
        """Whether the class can change if these inputs have any of their values."""
        values = [axis if i in free else [self.image[i]] for i, axis in enumerate(self.axes)]
        return any(self.is_lost(p) for p in product(*values))


def units_of(blocks: dict[str, Any] | None, inputs: int) -> list[int]:
    """Return the block of each input, or the input itself, by a loop over the pixels."""
    if blocks is None:
        return list(range(inputs))
    side, (before, height, width, after) = blocks["side"], blocks["shape"]
    assert before * height * width * after == inputs
    corners = list(product(range(0, height, side), range(0, width, side)))
    return [
        corners.index((y - y % side, x - x % side))
        for _, y, x, _ in product(range(before), range(height), range(width), range(after))
    ]


def explain(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask which inputs of an image suffice for its class."""
    asked, found = Explained(rng), Guarded()
    net, network, path = asked.net, asked.net.build(), wanted(rng, folder, "explain")
    way = how(rng)
    most = 0 if rng.random() < METHODS else enumeration.MOST_POINTS
    try:
        with mock.patch.object(enumeration, "MOST_POINTS", most):
            result = bnncert.explain(
                *(network, asked.domain, asked.label),
                ties=asked.ties,
                certificate=path,
                **way,
            )
    except bnncert.InputError as error:
        found.tally["no class"] += 1
        found.expect("the image" in str(error), error)
        found.expect(asked.is_lost(asked.image), f"{asked.words}: {error}")
        return found
    found.tally[f"{len(result.kept)} of {net.inputs} kept"] += 1
    found.tally[f"sign(0) {net.sign_zero}"] += 1
    found.tally["some kept" if result.kept else "none kept"] += 1
    found.tally["inputs" if asked.blocks is None else "blocks"] += 1
    free = set(range(net.inputs)) - set(result.kept)
    inputs = {u: {i for i, v in enumerate(asked.units) if u == v} for u in asked.units}
    whole = set().union(*(inputs[u] for u in result.kept_units))
    found.expect({*result.kept} == whole, f"{asked.words}: {result.kept} are no whole blocks")
    found.expect(not asked.can_change(free), f"{asked.words}: {result.kept} do not suffice")
    decided = way["method"] == "auto"
    for u in result.kept_units if decided else result.witnesses:
        larger = free | inputs[u]
        found.expect(asked.can_change(larger), f"{asked.words}: {u} of {result.kept} is free")
    found.expect(result.minimal or not decided, f"{asked.words}: not shown to be minimal")
    found.tally["minimal" if result.minimal else "undecided"] += 1
    both = {*result.open, *result.witnesses}
    found.expect(both == {*result.kept_units}, f"{asked.words}: {result}")
    for u, witness in result.witnesses.items():
        point = quarters(witness.exact or witness.point.tolist())
        inside = all(
            v in axis if k in free or k in inputs[u] else v == x
            for k, (v, axis, x) in enumerate(zip(point, asked.axes, asked.image, strict=True))
        )
        found.expect(inside, f"{asked.words}: the witness {point} of {u} is elsewhere")
        found.expect(
            net.is_lost([point], asked.label, asked.ties), f"{asked.words}: {point} is no witness"
        )
    words = found.check_certificate(path, network, "explanation")
    if words is not None:
        found.expect(f"the class is {asked.label}" in words, f"{asked.words}: {words}")
    found.change_certificate(rng, path, network, mutants, lambda claim: refuted(net, claim))
    return found


def refuted(net: PlainNetwork, claim: Section) -> str | None:
    """Return what is wrong with an accepted explanation, or None."""
    details, arrays = claim.fields["details"], claim.arrays
    kept, label = set(arrays["kept"].tolist()), details["label"]
    units = units_of(details["blocks"], net.inputs)

    def is_lost(fixed: set[int]) -> bool:
        """Whether the class can change while some inputs are those of the image."""
        is_kept = np.array([unit in fixed for unit in units])
        sides = {k: np.where(is_kept, arrays["center"], arrays[k]) for k in ("clip_lo", "clip_hi")}
        if "grid" in details["region"]:
            return net.is_lost(
                stated_points(details["region"], arrays | sides), label, details["ties"]
            )
        lasts = last_layers(net.tiny, Section("statement", details["region"], arrays | sides))
        return any(is_other(net.sums(net.depth, last), label, details["ties"]) for last in lasts)

    if is_lost(kept):
        return "the kept inputs do not suffice"
    if not all(is_lost(kept - {i}) for i in arrays["needed"].tolist()):
        return "an input is not needed"
    return None
