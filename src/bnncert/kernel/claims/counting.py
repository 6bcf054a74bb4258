"""The claim that at least and at most so many grid points of a region have another class.

The claim has a tree in preorder.  A node splits the alternatives of an item, or drops first-layer
neurons that have one sign and merges items with equal weights; a leaf is decided by propagation or
by evaluation of all its cells, and the checker does both again.  A part is needed only if a proof
for the whole region shows that no point has another class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, StatedRegion, Subject
from bnncert.kernel.claims.count_items import read_items
from bnncert.kernel.claims.count_layers import OTHER, SAME, CountedFirstLayer, CountedNetwork
from bnncert.kernel.claims.count_parts import TOO_MUCH, CountedFrame, CountedPart
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.counterexample import signs_at
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.space import Space
from bnncert.kernel.sparse import Integers
from bnncert.kernel.statement import Statement, classification, read_property
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import Network

FIELDS = ("network", "label", "rivals", "ties", "region", "total", "lower", "upper")

#: The kinds of nodes.
OPEN, UNCHANGED, CHANGED, ENUMERATED, SPLIT, MERGED, PROVED = range(7)

#: Hexadecimal digits of a number, at most.
MOST_DIGITS = 2**18

#: Bytes of the parts of a tree that wait, about, at most.
MOST_HELD = 2**28

#: Numbers up to this one are written out.
MOST_SHOWN = 10**15


class CountClaim:
    """The claim about a number of points."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found, self._network = subject.details(section, FIELDS), subject.network
        self._section, self._found = section, found
        self._total, self._lower, self._upper = (
            _number(found[name]) for name in ("total", "lower", "upper")
        )
        self._region = StatedRegion.read(section, self._network)
        self._property = classification(*(found[k] for k in ("label", "rivals", "ties")))
        targets, _, _ = read_property(self._property, self._network)
        self._counted = CountedNetwork(self._network, targets)

    def parts(self) -> ClaimParts:
        """Check the tree, which may need one part about the whole region."""
        network, space = self._network, self._region.space
        walk = _Walk(self._section, self._counted, _root(space, network))
        whole = ClaimPart(network, self._region.section, self._property)
        least, most = yield from walk.run(whole)
        if "witness" in self._section.arrays:
            witness = self._section.floats("witness", network.inputs).tolist()
            _refuse_same(witness, space, network, self._counted)
            least = max(least, 1)
        if self._total != walk.total:
            raise RejectedError("the region has another number of points")
        if self._lower > least or not most <= self._upper <= self._total:
            raise RejectedError("the tree does not show the numbers of the claim")

    def shown(self) -> Shown:
        """Round long numbers outwards, so that the words stay true."""
        lower, upper = self._lower, self._upper
        numbers = f"at least {_text(lower, -1)} and at most {_text(upper, 1)}"
        if lower == upper:
            numbers = f"exactly {_text(lower)}"
        label, rivals, ties = (self._found[k] for k in ("label", "rivals", "ties"))
        one = lower == upper == 1
        changed = f"{'has' if one else 'have'} another class than {label}"
        if len(rivals) < self._network.classes - 1:
            changed = rival_words(label, rivals, ties, one=one)
        points = f"of the {_text(self._total)} grid points in {self._region.place}"
        return self._region.shown(f"{points}: {numbers} {changed}", "count", self._network, ties)


def rival_words(label: int, rivals: Sequence[int], ties: str, *, one: bool) -> str:
    """Return what points do at which some rivals win, while further classes do not count.

    `one` is whether there is a single point.
    """
    score = "at least the score of" if ties == "violation" else "a higher score than"
    return f"give{'s' * one} class {' or '.join(map(str, rivals))} {score} class {label}"


def _number(text: Any) -> int:
    """Read a number >= 0 in hexadecimal digits, which can be very long."""
    known = isinstance(text, str) and 0 < len(text) <= MOST_DIGITS and text.isascii()
    if not known or not set(text) <= set("0123456789abcdef"):
        raise UnreadableError("section claim: a number of points is not one")
    return int(text, 16)


def _text(number: int, way: int = 0) -> str:
    """Return a number in digits; a long one is rounded, down or up if `way` is -1 or 1."""
    if number < MOST_SHOWN:
        return f"{number:,}"
    # Decimal digits before the last four, or one less.
    exponent = max(0, (number.bit_length() - 1) * 30102 // 100000 - 3)
    while number >= 10 ** (exponent + 4):
        exponent += 1
    unit = 10**exponent
    first = {-1: number // unit, 0: (2 * number + unit) // (2 * unit), 1: -(-number // unit)}[way]
    return f"about {first / 1000:.3f}e+{exponent + 3}"


def _root(space: Space, network: Network) -> CountedPart:
    """Begin with all values of all inputs, and with all neurons open."""
    items, shift, budget = read_items(space)
    layer = CountedFirstLayer(network.layers[0], shift)
    neurons = network.layers[0].size
    places = np.arange(neurons), np.arange(network.inputs)
    # How many values the inputs have is limited on its own.
    frame = CountedFrame(layer, *places, items, budget, 0)
    return CountedPart(frame, tuple(items), np.zeros(neurons, dtype=np.int8))


class _Walk:
    """Goes through the tree in preorder."""

    def __init__(self, section: Section, network: CountedNetwork, root: CountedPart) -> None:
        self.section, self.network, self.root = section, network, root
        self.total = root.points
        #: The parts that follow, the next one last, how many of them each frame has, and about the
        #: number of bytes of parts and frames.
        self._stack: list[CountedPart] = []
        self._frames = Counter[CountedFrame]()
        self._held = 0

    def _push(self, part: CountedPart) -> None:
        self._held += part.size + (0 if part.frame in self._frames else part.frame.size)
        if self._held > MOST_HELD:
            raise RejectedError(TOO_MUCH)
        self._frames[part.frame] += 1
        self._stack.append(part)

    def _pop(self) -> CountedPart:
        if not self._stack:
            raise RejectedError("the tree continues after its end")
        part = self._stack.pop()
        self._frames[part.frame] -= 1
        self._held -= part.size
        if not self._frames[part.frame]:
            del self._frames[part.frame]
            self._held -= part.frame.size
        return part

    def run(self, whole: ClaimPart) -> Generator[ClaimPart, Statement, tuple[int, int]]:
        """Check all nodes; return the least and the largest number of points that they show.

        `whole` is the part by which a node shows that the whole region is robust.
        """
        kinds = self.section.integers("kinds")
        splits = iter(_pairs(self.section))
        mergers = self._mergers()
        least = same = 0
        self._push(self.root)
        for kind in timed(kinds.tolist()):
            part = self._pop()
            if kind == SPLIT:
                first, second = part.split(*next(splits, (-1, -1)))
                self._push(second)
                self._push(first)
            elif kind == MERGED:
                found = next(mergers, None)
                if found is None:
                    raise RejectedError("a merger is missing")
                self._push(part.merged(*found, MOST_HELD - self._held))
            elif kind == PROVED:
                if part is not self.root:
                    raise RejectedError("a part is only for the whole region")
                yield whole
                same += part.points
            else:
                new_least, new_same = self._leaf(part, kind)
                least, same = least + new_least, same + new_same
        if self._stack:
            raise RejectedError("the tree does not cover all points")
        if next(splits, None) is not None or next(mergers, None) is not None:
            raise RejectedError("there are numbers that do not belong to a node")
        return least, self.total - same

    def _leaf(self, part: CountedPart, kind: int) -> tuple[int, int]:
        """Return how many points of a leaf have another class, and how many have not."""
        if kind == OPEN or not part.points:
            return 0, 0
        if kind == ENUMERATED:
            return part.enumerated(self.network)
        states = self.network.states(part.first_signs())
        verdict = self.network.verdict(states[-1])
        if kind == UNCHANGED and verdict == SAME:
            return 0, part.points
        if kind == CHANGED and verdict == OTHER:
            return part.points, 0
        raise RejectedError("a leaf is not decided, or of an unknown kind")

    def _mergers(self) -> Iterator[tuple[Integers, Integers]]:
        """Yield the open neurons and the groups of every merger."""
        open_, groups = self.section.integers("open"), self.section.integers("groups")
        sizes, numbers = self.section.integers("open_sizes"), self.section.integers("group_sizes")
        if sizes.size != numbers.size or np.any(sizes < 0) or np.any(numbers < 1):
            raise UnreadableError("section claim: mergers without sizes")
        if sizes.sum() != open_.size or numbers.sum() != groups.size:
            raise UnreadableError("section claim: mergers of another size")
        ends, last = np.cumsum(sizes), np.cumsum(numbers)
        for k in range(sizes.size):
            yield open_[ends[k] - sizes[k] : ends[k]], groups[last[k] - numbers[k] : last[k]]


def _pairs(section: Section) -> list[tuple[int, int]]:
    """Return the item and the number of alternatives of every split."""
    items, places = section.integers("split_items"), section.integers("split_at")
    if items.size != places.size:
        raise UnreadableError("section claim: splits of another size")
    return list(zip(items.tolist(), places.tolist(), strict=True))


def _refuse_same(
    point: list[float], space: Space, network: Network, counted: CountedNetwork
) -> None:
    """Reject a witness that does not have another class."""
    exact = [Fraction(x) for x in point]
    if not space.contains(exact):
        raise RejectedError("the witness lies outside the region")
    common = max(x.denominator for x in exact)
    signs = signs_at(Geometry(network.layers[0], space), exact, common)
    tied = np.flatnonzero(signs == TIED)
    if np.any(signs == UNDECIDED) or counted.decide(signs, tied) != OTHER:
        raise RejectedError("the witness does not have another class")
