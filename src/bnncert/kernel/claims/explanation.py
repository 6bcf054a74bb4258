"""Check of an explanation: the kept inputs suffice, and the needed ones have witnesses.

The claim consists of the image c, the domain [l_i, h_i] of each input (on a grid: its values), the
kept inputs K and, for some of them, a witness.  The part proves that the class is the label on

    { x : x_i = c_i for i in K,  x_i in the domain of input i for all others }.

The witness of input i is a point of this region with i also in its domain, and has another class.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.subject import Shown, Subject, details
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.counterexample import check_point
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.grid_values import GRID_ARRAYS
from bnncert.kernel.parts import Parts
from bnncert.kernel.space import read_space
from bnncert.kernel.statement import SIGN_OF_ZERO, TIES
from bnncert.model.network import Network

DETAILS = ("label", "ties", "radius", "grid", "exact")

#: The arrays with one number for each input, and those about the kept inputs and their witnesses.
VECTORS = ("image", "domain_lo", "domain_hi")
LISTS = ("kept", "needed", "targets", "starts", "changed")


def check_explanation(section: Section, parts: Parts, subject: Subject) -> Shown:
    """Check the part and all witnesses; return what they show."""
    network, found = subject.network, details(section, DETAILS)
    claim = _Claim(section, found, network)
    proved = parts.take(network, claim.statement(claim.kept))
    # In this statement all inputs are in their domains; a witness violates it.
    space, _, _ = read_space(claim.statement(claim.kept[:0]), network)
    if space.grid is not None:
        claim.grid_words = f", {space.grid.words(network)}"
    geometry = Geometry(network.layers[0], space)
    for number, needed in enumerate(timed(claim.needed.tolist())):
        witness = iter([claim.witness(number, needed)])
        try:
            check_point(witness, replace(proved, space=space), network, geometry)
        except RejectedError as error:
            raise RejectedError(f"the witness of input {needed}: {error}") from error
    named = ["real arithmetic", SIGN_OF_ZERO[network.sign_zero], TIES[found["ties"]]]
    assumptions = proved.assumptions | {"data_box": f"inputs are {claim.domain_words()}"}
    about = space.named | {"kept": claim.kept.astype(np.float64)}
    return Shown(f"{claim.words()} ({', '.join(named)})", "explanation", assumptions, about)


class _Claim:
    """The numbers of a claim, after a check that they belong together."""

    def __init__(self, section: Section, found: dict[str, Any], network: Network) -> None:
        self._section, self._found, self._network = section, found, network
        size = self._size = network.inputs
        #: The grid of the domain in words.
        self.grid_words = ""
        self._image, self._lo, self._hi = (section.floats(name, size) for name in VECTORS)
        if np.any((self._image < self._lo) | (self._image > self._hi)):
            raise RejectedError("the image is outside of the domain")
        self.kept, self.needed, targets, starts, changed = (section.integers(n) for n in LISTS)
        self._targets, self._starts, self._changed = targets.tolist(), starts, changed
        self._values = section.floats("values", changed.size)
        for numbers in (self.kept, self.needed):
            if not _is_ascending(numbers, size):
                raise RejectedError("the inputs are not in ascending order, or do not exist")
        if type(found["label"]) is not int:
            raise UnreadableError("section claim: the label is not a class")
        exact = found["exact"]
        if not isinstance(exact, dict) or not all(_is_place(k, changed.size) for k in exact):
            raise UnreadableError("section claim: exact numbers of no change")
        if np.setdiff1d(self.needed, self.kept).size:
            raise RejectedError("an input is said to be needed, but is not kept")
        if targets.size != self.needed.size or not _divides(starts, targets.size, changed.size):
            raise UnreadableError("section claim: the witnesses do not belong to the inputs")

    def statement(self, kept: IntArray) -> Section:
        """Return the statement that the class is the label if some inputs are as in the image."""
        found, classes = self._found, range(self._network.classes)
        rivals = [k for k in classes if k != found["label"]]
        is_kept = np.zeros(self._size, dtype=np.bool_)
        is_kept[kept] = True
        fields = {
            "verdict": "robust",
            "arithmetic": "real",
            "region": "linf",
            "radius": found["radius"],
            "property": {
                "kind": "classification",
                "label": found["label"],
                "rivals": rivals,
                "ties": found["ties"],
            },
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "center": self._image,
            "clip_lo": np.where(is_kept, self._image, self._lo),
            "clip_hi": np.where(is_kept, self._image, self._hi),
        }
        if found["grid"] is not None:
            fields["grid"] = found["grid"]
            arrays |= {name: self._section.floats(name, self._size) for name in GRID_ARRAYS}
        return Section("statement", fields, arrays, self._section.budget)

    def witness(self, number: int, needed: int) -> Section:
        """Return a witness, which differs from the image only in free inputs and the needed one."""
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        places = self._changed[start:stop]
        if not _is_ascending(places, self._size):
            raise RejectedError("the changes of a witness are not in ascending order")
        if np.intersect1d(places, self.kept[self.kept != needed]).size:
            raise RejectedError(f"the witness of input {needed} changes another kept input")
        point, exact = [Fraction(v) for v in self._image.tolist()], self._found["exact"]
        for k, i in zip(range(start, stop), places.tolist(), strict=True):
            point[i] = exactly(exact.get(str(k), str(Fraction(float(self._values[k])))))
        fields = {"target": self._targets[number], "exact": [str(v) for v in point]}
        floats = np.array([float(v) for v in point])
        if not np.array_equal(floats[places], self._values[start:stop]):
            raise RejectedError(f"the witness of input {needed} has two different values")
        return Section("point", fields, {"point": floats}, self._section.budget)

    def words(self) -> str:
        """Return the claim in words."""
        kept, needed = self.kept.size, self.needed.size
        free, size = self._size - kept, self._size
        text = f"with {kept} of {size} inputs as in the image and all others {self.domain_words()}"
        if not kept:
            text = f"with all {size} inputs {self.domain_words()}"
        elif not free:
            text = f"with all {size} inputs as in the image"
        text += f", the class is {self._found['label']}"
        if needed < kept or not kept:
            return text + (f"; {needed} of the {kept} are shown to be needed" if kept else "")
        domain = "" if free else f" if it may be {self.domain_words()}"
        which = f"each of the {kept} is needed" if kept > 1 else "this input is needed"
        return f"{text}; {which}{domain}"

    def domain_words(self) -> str:
        """Return the domain of free inputs in words."""
        lo, hi = self._lo, self._hi
        box = f"[{float(lo.min()):.9g}, {float(hi.max()):.9g}]"
        if np.any(lo != lo[0]) or np.any(hi != hi[0]):
            box = f"intervals of their own in {box}, of width at most {float((hi - lo).max()):.9g}"
        radius = exactly(self._found["radius"])
        reach = (
            max(Fraction(c) - Fraction(a), Fraction(b) - Fraction(c))
            for a, c, b in zip(lo.tolist(), self._image.tolist(), hi.tolist(), strict=True)
        )
        near = f"within {float(radius)!r} of the image, " if max(reach) > radius else ""
        return f"anywhere {near}in {box}{self.grid_words}"


def _is_place(name: str, size: int) -> bool:
    """Whether a name is one of the numbers below `size` in decimal digits."""
    digits = name.isascii() and name.isdecimal() and len(name) < 10
    return digits and str(int(name)) == name and int(name) < size


def _is_ascending(numbers: IntArray, size: int) -> bool:
    """Whether the numbers are inputs in strictly ascending order."""
    inside = not numbers.size or bool(numbers[0] >= 0 and numbers[-1] < size)
    return inside and bool(np.all(np.diff(numbers) > 0))


def _divides(starts: IntArray, parts: int, size: int) -> bool:
    """Whether `starts` divides a list into as many parts."""
    if starts.shape != (parts + 1,) or np.any(np.diff(starts) < 0):
        return False
    return bool(starts[0] == 0 and starts[-1] == size)
