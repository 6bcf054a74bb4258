r"""The layers above the first as functions of first-layer signs, with 0 for an open sign.

With u = W x over the known signs and r = |W| [x = 0], the sum of a neuron is between u - r and
u + r; its sign is known if only one is possible there.  A point is *unchanged* if the margin over
every adversarial class is certainly positive (not negative, if ties are robust), and *changed* if
the margin over one of them certainly is not.  All sums are integers, so they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, SignArray
from bnncert.model.layers import ROUNDOFF
from bnncert.model.network import Network
from bnncert.problem import Target

#: What is known of points.
UNCHANGED, OPEN, CHANGED = -1, 0, 1


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins over all adversarial classes, as functions of the last layer's signs.

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
    #: The least margins over all adversarial classes, without their constants.
    least: FloatArray


class LayersAbove:
    """The layers above the first and the margins."""

    def __init__(self, network: Network, targets: tuple[Target, ...]) -> None:
        self.margins = Margins.of(targets)
        self.layers = network.layers[1:]
        self._weights = [layer.weights.astype(np.float64).tocsr() for layer in self.layers]
        self._sizes = [abs(weights) for weights in self._weights]

    def propagate(self, first: SignArray) -> KnownSigns:
        """Return what follows from the signs of the first layer."""
        signs = [first]
        for layer, weights, sizes in zip(self.layers, self._weights, self._sizes, strict=True):
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

    def folded(self, known: KnownSigns) -> FoldedLayers:
        """Return the circuit of the open first-layer signs; all known signs are constants."""
        levels, open_ = [], np.flatnonzero(known.signs[0] == 0)
        below = known.signs[0]
        for layer, weights, signs in zip(self.layers, self._weights, known.signs[1:], strict=True):
            rows = np.flatnonzero(signs == 0)
            fixed = np.asarray(weights[rows] @ below.astype(np.float64))
            # Sums of fewer than 2^24 units are exact in float32.
            kind = np.float32 if layer.norm.max(initial=0.0) < 2**24 else np.float64
            inner = np.asarray(weights[rows][:, open_].toarray(), dtype=kind)
            plus, minus = layer.plus_from[rows] - fixed, layer.minus_upto[rows] - fixed
            levels.append(FoldedLayer(inner, np.abs(inner), plus, minus))
            below, open_ = signs, rows
        fixed = self.margins.rows @ below.astype(np.float64)
        return FoldedLayers(tuple(levels), self.margins.rows[:, open_], fixed, self.margins)


@dataclass(frozen=True, eq=False)
class FoldedLayer:
    """The open neurons of a layer as functions of those below."""

    weights: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    plus: npt.NDArray[Any]
    minus: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class FoldedLayers:
    """The part of the circuit that is open on a part of the region, for many points at once."""

    levels: tuple[FoldedLayer, ...]
    rows: FloatArray
    fixed: FloatArray
    margins: Margins

    def verdicts(self, signs: npt.NDArray[np.float32]) -> SignArray:
        """Return what the open first-layer signs of each row, 0 if undecided, show."""
        x = signs
        for level in self.levels:
            least, most = _bounds(x.astype(level.weights.dtype), level.weights, level.sizes)
            plus = (least > level.minus).astype(np.float32)
            x = plus - (most < level.plus)
        least, most = _bounds(x.astype(np.float64), self.rows, np.abs(self.rows))
        return self.margins.verdicts(least + self.fixed, most + self.fixed)


def _bounds(x: Any, weights: Any, sizes: Any) -> tuple[Any, Any]:
    middle, open_ = x @ weights.T, x == 0
    if not open_.any():
        return middle, middle
    radius = open_.astype(x.dtype) @ sizes.T
    return middle - radius, middle + radius


def _settled(least: FloatArray, most: FloatArray, layer: Any) -> SignArray:
    """Return the signs of sums between two bounds, 0 if both are possible."""
    can_minus: BoolArray = least <= layer.minus_upto
    can_plus: BoolArray = most >= layer.plus_from
    return (can_plus.astype(np.int8) - can_minus).astype(np.int8)
