r"""The layers above the first as functions of first-layer signs, with 0 for an open sign.

With u = W x over the known signs and r = |W| [x = 0], the sum of a neuron is between u - r and
u + r; its sign is known if only one is possible there.  A point is *unchanged* if the margin over
every rival is certainly positive (not negative, if ties are robust), and *changed* if the margin
over one of them certainly is not.  All sums are integers, so they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, SignArray
from bnncert.model.layers import ROUNDOFF, TIED, UNDECIDED, ThresholdLayer
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.problem import Target

#: What is known of points.
UNCHANGED, OPEN, CHANGED = -1, 0, 1


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins over all rivals, as functions of the last layer's signs.

    Row k is certainly satisfied from `safe` on (above it, if `strict`), and violated up to `bad`
    (below it, if not `strict`).
    """

    rows: FloatArray
    safe: FloatArray
    bad: FloatArray
    strict: bool

    @staticmethod
    def of(targets: tuple[Target, ...]) -> Margins:
        """Return the margins of targets with one objective each."""
        objectives = [target.objectives[0] for target in targets]
        rows = np.stack([o.coefficients for o in objectives])
        slack = np.array([o.error for o in objectives])
        sizes = np.abs(rows).sum(axis=1)
        is_whole = np.all(rows == np.rint(rows), axis=1) & (sizes < 2**52)
        slack = slack + np.where(is_whole, 0.0, 4 * ROUNDOFF * rows.shape[1] * sizes)
        constant = np.array([o.constant for o in objectives])
        safe, bad = -constant + slack, -constant - slack
        safe = np.where(slack > 0, np.nextafter(safe, np.inf), safe)
        bad = np.where(slack > 0, np.nextafter(bad, -np.inf), bad)
        return Margins(rows, safe, bad, not objectives[0].tie_is_fine)

    def verdicts(self, least: FloatArray, most: FloatArray) -> SignArray:
        """Return what sums between two bounds show, one row for each point."""
        if self.strict:
            unchanged, changed = least > self.safe, most <= self.bad
        else:
            unchanged, changed = least >= self.safe, most < self.bad
        return np.where(
            changed.any(axis=1), CHANGED, np.where(unchanged.all(axis=1), UNCHANGED, OPEN)
        ).astype(np.int8)


@dataclass(frozen=True, eq=False)
class KnownSigns:
    """The signs of all layers on a part of the region, 0 if open, and what they show."""

    signs: tuple[SignArray, ...]
    verdict: int
    #: The least margins over all rivals, without their constants.
    least: FloatArray


class LayersAbove:
    """The layers above the first and the margins."""

    def __init__(self, network: Network, targets: tuple[Target, ...]) -> None:
        self.margins, self._targets = Margins.of(targets), targets
        self._network = replace(network, layers=network.layers[1:])
        self._weights = [layer.weights.astype(np.float64).tocsr() for layer in self._network.layers]
        self._sizes = [abs(weights) for weights in self._weights]

    def propagate(self, first: SignArray) -> KnownSigns:
        """Return what follows from the signs of the first layer."""
        signs = [first]
        layers = self._network.layers
        for layer, weights, sizes in zip(layers, self._weights, self._sizes, strict=True):
            x = signs[-1].astype(np.float64)
            middle, radius = weights @ x, sizes @ (x == 0).astype(np.float64)
            signs.append(_settled(middle - radius, middle + radius, layer))
        x, rows = signs[-1].astype(np.float64), self.margins.rows
        middle, radius = rows @ x, np.abs(rows) @ (x == 0)
        verdict = self.margins.verdicts((middle - radius)[None], (middle + radius)[None])
        return KnownSigns(tuple(signs), int(verdict[0]), middle - radius)

    def influence(self, known: KnownSigns) -> FloatArray:
        """Return how much each open first-layer sign can move the least margin, roughly."""
        worst = int(np.argmin(known.least - self.margins.safe))
        weight = np.abs(self.margins.rows[worst]) * (known.signs[-1] == 0)
        for sizes, signs in zip(self._sizes[::-1], known.signs[-2::-1], strict=True):
            # A neuron with many open inputs depends less on each of them.
            share = weight / np.maximum(1.0, sizes @ (signs == 0).astype(np.float64))
            weight = np.asarray(sizes.T @ share) * (signs == 0)
        return np.asarray(weight)

    def work(self, known: KnownSigns) -> int:
        """Return the number of multiplications for a point of a part of the region."""
        sizes = [int(np.count_nonzero(signs == 0)) for signs in known.signs]
        layers = sum(a * b for a, b in pairwise(sizes))
        return layers + sizes[-1] * len(self.margins.rows)

    def folded(self, known: KnownSigns) -> Callable[[Float32Array], SignArray]:
        """Return what is open on a part of the region as a function, for many points at once.

        It takes the open first-layer signs, 0 if undecided, one row for each point, and returns
        what they show; known signs are constants in it.
        """
        levels, open_ = [], np.flatnonzero(known.signs[0] == 0)
        below, layers = known.signs[0], self._network.layers
        for layer, weights, signs in zip(layers, self._weights, known.signs[1:], strict=True):
            rows = np.flatnonzero(signs == 0)
            fixed = np.asarray(weights[rows] @ below.astype(np.float64))
            # Sums of fewer than 2^24 units are exact in float32.
            kind = np.float32 if layer.norm.max(initial=0.0) < 2**24 else np.float64
            inner = np.asarray(weights[rows][:, open_].toarray(), dtype=kind)
            plus, minus = layer.plus_from[rows] - fixed, layer.minus_upto[rows] - fixed
            levels.append((inner, np.abs(inner), plus, minus))
            below, open_ = signs, rows
        margins = self.margins
        last, constant = margins.rows[:, open_], margins.rows @ below.astype(np.float64)

        def verdicts(signs: Float32Array) -> SignArray:
            for weights, sizes, plus, minus in levels:
                least, most = _bounds(signs.astype(weights.dtype), weights, sizes)
                signs = (least > minus).astype(np.float32) - (most < plus)
            least, most = _bounds(signs.astype(np.float64), last, np.abs(last))
            return margins.verdicts(least + constant, most + constant)

        return verdicts

    def break_ties(self, first: SignArray) -> int:
        """Return what is known of a point with these exact first-layer signs, by enumeration.

        The point is changed if some choice of the signs at ties changes its class, and unchanged if
        none does.  It stays open if the enclosure of an irrational threshold does not decide a
        first-layer sign, or if there are more than MOST_TIE_CHOICES choices.
        """
        if np.any(first == UNDECIDED):
            return OPEN
        tried, is_certain = 0, True
        for last in islice(self._last_signs(first), MOST_TIE_CHOICES):
            tried += 1
            answers = [target.is_violated(last) for target in self._targets]
            if any(answer is True for answer in answers):
                return CHANGED
            is_certain = is_certain and not any(answer is None for answer in answers)
        return UNCHANGED if is_certain and tried < MOST_TIE_CHOICES else OPEN

    def _last_signs(self, first: SignArray) -> Iterator[SignArray]:
        """Yield the signs of the last layer for all choices at ties."""
        tied = np.flatnonzero(first == TIED)
        signs = first.copy()
        for choice in product((1, -1), repeat=tied.size):
            signs[tied] = choice
            for pattern in self._network.exact_patterns(signs):
                yield pattern[-1] if pattern else signs


def _bounds(x: Any, weights: Any, sizes: Any) -> tuple[Any, Any]:
    """Return the least and the largest sums for signs of which some are open."""
    middle, open_ = x @ weights.T, x == 0
    if not open_.any():
        return middle, middle
    radius = open_.astype(x.dtype) @ sizes.T
    return middle - radius, middle + radius


def _settled(least: FloatArray, most: FloatArray, layer: ThresholdLayer) -> SignArray:
    """Return the signs of sums between two bounds, 0 if both are possible."""
    can_minus: BoolArray = least <= layer.minus_upto
    can_plus: BoolArray = most >= layer.plus_from
    return (can_plus.astype(np.int8) - can_minus).astype(np.int8)
