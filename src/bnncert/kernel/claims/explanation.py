"""Check of an explanation: the kept inputs suffice, and the needed ones have witnesses.

The region of the claim is the domain of all inputs: a ball around the image c in the data box
[l_i, h_i] (on a grid: its values).  The claim also has the kept inputs K and, for some of them, a
witness.  The part proves that the class is the label on

    { x : x_i = c_i for i in K,  x_i in the domain of input i for all others }.

The witness of input i is a point of this region with i also in its domain, and has another class.

If the claim states blocks of pixels, K and the witnesses are about blocks: all inputs of a kept
block are as in the image, and the witness of a block has all its inputs in their domains.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.arrays import IntArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, StatedRegion, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.counterexample import check_point
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.rules.pixel_blocks import PixelBlocks
from bnncert.kernel.statement import classification

DETAILS = ("label", "ties", "region", "exact", "blocks")

#: The data box, which the region of an explanation has.
BOX = {"clip_lo", "clip_hi"}

#: The arrays about the kept inputs and their witnesses.
LISTS = ("kept", "needed", "targets", "starts", "changed")


class ExplanationClaim:
    """The claim that kept inputs suffice for the class, and that some of them are needed."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found, network = section.details(DETAILS), subject.network
        self._found, self._network = found, network
        self._blocks = _read_blocks(found["blocks"], network.inputs)
        #: What is kept or free as a whole, an input or a block: the one of each input.
        self._unit = np.arange(network.inputs) if self._blocks is None else self._blocks.numbers
        self._name = "input" if self._blocks is None else "block"
        size = self._size
        self._whole = StatedRegion.read(section, network)
        self._arrays = self._whole.section.arrays
        if self._whole.section.fields["region"] != "linf" or not self._arrays.keys() >= BOX:
            raise UnreadableError("section claim: the domain is not a ball in a data box")
        self._image = self._arrays["center"]
        self._lo, self._hi = self._arrays["clip_lo"], self._arrays["clip_hi"]
        if np.any((self._image < self._lo) | (self._image > self._hi)):
            raise RejectedError("the image is outside of the domain")
        self.kept, self.needed, targets, starts, changed = (section.integers(n) for n in LISTS)
        self._targets, self._starts, self._changed = targets.tolist(), starts, changed
        self._values = section.floats("values", changed.size)
        for numbers in (self.kept, self.needed):
            if not _is_ascending(numbers, size):
                raise RejectedError(
                    f"the {self._name}s are not in ascending order, or do not exist"
                )
        if type(found["label"]) is not int:
            raise UnreadableError("section claim: the label is not a class")
        exact = found["exact"]
        if not isinstance(exact, dict) or not all(_is_place(k, changed.size) for k in exact):
            raise UnreadableError("section claim: exact numbers of no change")
        if np.setdiff1d(self.needed, self.kept).size:
            raise RejectedError(f"one {self._name} is said to be needed, but is not kept")
        if targets.size != self.needed.size or not _divides(starts, targets.size, changed.size):
            raise UnreadableError("section claim: the witnesses do not belong to the inputs")

    @property
    def _size(self) -> int:
        """The number of inputs, or of blocks."""
        return self._network.inputs if self._blocks is None else self._blocks.count

    def parts(self) -> ClaimParts:
        """Yield the region in which the kept inputs are those of the image; check all witnesses."""
        proved = yield self._sufficient()
        # The witnesses violate the statement about the whole domain.
        statement = replace(proved, space=self._whole.space)
        geometry = Geometry(self._network.layers[0], self._whole.space)
        for number, needed in enumerate(timed(self.needed.tolist())):
            witness = iter([self._witness(number, needed)])
            try:
                check_point(witness, statement, self._network, geometry)
            except RejectedError as error:
                raise RejectedError(f"the witness of {self._name} {needed}: {error}") from error

    def _sufficient(self) -> ClaimPart:
        """Return the part that the class is the label if the kept inputs are fixed."""
        found, region = self._found, self._whole.section
        rivals = [k for k in range(self._network.classes) if k != found["label"]]
        lo, hi = self._lo.copy(), self._hi.copy()
        kept = np.isin(self._unit, self.kept)
        lo[kept] = hi[kept] = self._image[kept]
        fixed = replace(region, arrays=self._arrays | {"clip_lo": lo, "clip_hi": hi})
        goal = classification(found["label"], rivals, found["ties"])
        return ClaimPart(self._network, fixed, goal)

    def shown(self) -> Shown:
        """Return which inputs suffice and which are needed, in words."""
        kept, needed, size = self.kept.size, self.needed.size, self._size
        free, domain = size - kept, self._domain_words()
        units = "inputs" if self._blocks is None else self._blocks.exact_words
        text = f"with {kept} of {size} {units} as in the image and all others {domain}"
        if not kept:
            text = f"with all {size} {units} {domain}"
        elif not free:
            text = f"with all {size} {units} as in the image"
        text += f", the class is {self._found['label']}"
        if 0 < needed == kept:
            which = f"each of the {kept} is needed" if kept > 1 else f"this {self._name} is needed"
            text += f"; {which}{'' if free else f' if it may be {domain}'}"
        elif kept:
            text += f"; {needed} of the {kept} are shown to be needed"
        region = replace(self._whole, box=f"inputs are {domain}")
        shown = region.shown(text, "explanation", self._network, self._found["ties"])
        return replace(shown, named=shown.named | {"kept": self.kept.astype(np.float64)})

    def _domain_words(self) -> str:
        """Return the domain of free inputs in words."""
        lo, hi, grid = self._lo, self._hi, self._whole.space.grid
        box = f"[{float(lo.min()):.9g}, {float(hi.max()):.9g}]"
        if np.any(lo != lo[0]) or np.any(hi != hi[0]):
            box = f"intervals of their own in {box}, of width at most {float((hi - lo).max()):.9g}"
        radius = exactly(self._whole.section.fields["radius"])
        reach = (
            max(Fraction(c) - Fraction(a), Fraction(b) - Fraction(c))
            for a, c, b in zip(lo.tolist(), self._image.tolist(), hi.tolist(), strict=True)
        )
        near = f"within {float(radius)!r} of the image, " if max(reach) > radius else ""
        return f"anywhere {near}in {box}{'' if grid is None else f', {grid.words(self._network)}'}"

    def _witness(self, number: int, needed: int) -> Section:
        """Return a witness, which differs from the image only in free inputs and the needed one."""
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        places = self._changed[start:stop]
        if not _is_ascending(places, self._image.size):
            raise RejectedError("the changes of a witness are not in ascending order")
        if np.any(np.isin(self._unit[places], self.kept[self.kept != needed])):
            raise RejectedError(
                f"the witness of {self._name} {needed} changes another kept {self._name}"
            )
        point, exact = [Fraction(v) for v in self._image.tolist()], self._found["exact"]
        for k, i in zip(range(start, stop), places.tolist(), strict=True):
            point[i] = exactly(exact.get(str(k), str(Fraction(float(self._values[k])))))
        fields = {"target": self._targets[number], "exact": [str(v) for v in point]}
        floats = np.array([float(v) for v in point])
        if not np.array_equal(floats[places], self._values[start:stop]):
            raise RejectedError(f"the witness of {self._name} {needed} has two different values")
        return Section("point", fields, {"point": floats})


def _read_blocks(stated: object, inputs: int) -> PixelBlocks | None:
    """Read the blocks of the claim, None if it is about single inputs."""
    if stated is None:
        return None
    try:
        if not isinstance(stated, dict) or stated.keys() != {"side", "shape"}:
            raise ValueError("other fields")
        blocks = PixelBlocks(stated["side"], tuple(stated["shape"]))
    except (TypeError, ValueError) as error:
        raise UnreadableError("section claim: the blocks are no side and shape") from error
    if blocks.inputs != inputs:
        raise RejectedError("the blocks are those of an image of another size")
    return blocks


def _is_place(name: str, size: int) -> bool:
    """Whether a name is one of the numbers below `size` in decimal digits."""
    digits = name.isascii() and name.isdecimal() and len(name) < 10
    return digits and str(int(name)) == name and int(name) < size


def _is_ascending(numbers: IntArray, size: int) -> bool:
    """Whether the numbers are below `size` and in strictly ascending order."""
    inside = not numbers.size or bool(numbers[0] >= 0 and numbers[-1] < size)
    return inside and bool(np.all(np.diff(numbers) > 0))


def _divides(starts: IntArray, parts: int, size: int) -> bool:
    """Whether `starts` divides a list into as many parts."""
    if starts.shape != (parts + 1,) or np.any(np.diff(starts) < 0):
        return False
    return bool(starts[0] == 0 and starts[-1] == size)
