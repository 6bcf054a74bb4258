r"""Exact answers on a path of images: all first-layer sign patterns of the path are evaluated.

The path has finitely many cells with constant first-layer signs, and the layers above the first see
only these signs.  One evaluation of every cell is therefore a complete answer, and the smallest
margin is known exactly.  If a sign is undecided in a cell (sign(0) may be either, or a bias is
known only up to an enclosure), all its values are evaluated: the property holds there if it holds
for all of them.

The cells are found in exact arithmetic.  On a path
y(t) = clip(a + t d, lo, hi)  the sum of a neuron is piecewise linear in t,

    s_j(t) = sum_i w_ji y_i(t) + b_j  =  (A_j + t B_j) / scale   between two bends of the path,

where an input bends when it meets the data box.  All numbers of the file are dyadic, so A and B are
vectors of integers that change by columns of W at a bend.  The signs change at the zeros of s_j:
finitely many rational numbers, or intervals on which s_j vanishes.  They divide [first, last] into
*cells*, intervals with constant signs, which are listed completely and in order.

A bias that is known only up to an enclosure has two sums, one for each end; the sign is undecided
where one is negative and the other is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.model.layers import TIED, UNDECIDED, ThresholdLayer
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Problem, Target
from bnncert.regions import ImagePath

#: Arrays of Python integers, which have no largest value.
Integers: TypeAlias = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Cell:
    """An interval of t with constant first-layer signs, and whether its ends belong to it."""

    lo: Fraction
    hi: Fraction
    has_lo: bool
    has_hi: bool
    #: +1, -1, TIED or UNDECIDED for each neuron.
    signs: SignArray

    def point(self) -> Fraction:
        """Return a number inside with few binary digits."""
        return self.lo if self.lo == self.hi else simplest_between(self.lo, self.hi)


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return a number with the fewest binary digits strictly between two numbers."""
    if low < 0 < high:
        return Fraction(0)
    # Between two numbers at a distance above 2^-k there is a multiple of 2^-k.
    bits = 0
    while True:
        scaled = low * 2**bits
        whole = Fraction(scaled.numerator // scaled.denominator + 1, 2**bits)
        if whole < high:
            return whole
        bits += 1


def path_cells(layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> Iterator[Cell]:
    """Yield the cells of a path in ascending order; neighbouring cells have different signs.

    Raises OutOfTimeError after the deadline.
    """
    current: Cell | None = None
    for piece in _pieces(layer, path, deadline):
        if current is not None and np.array_equal(current.signs, piece.signs):
            current = Cell(current.lo, piece.hi, current.has_lo, piece.has_hi, current.signs)
            continue
        if current is not None:
            yield current
        current = piece
    assert current is not None
    yield current


def _pieces(layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> Iterator[Cell]:
    """Yield points and open intervals that cover the path, each with constant signs."""
    sums = _PathSums(layer, path, deadline)
    before = sums.signs_at(path.first)
    yield Cell(path.first, path.first, True, True, sums.settled(before))
    bends = sums.bends()
    for low, high in pairwise([path.first, *sorted(bends), path.last]):
        deadline.check()
        sums.bend(bends.pop(low, ()))
        after = sums.signs_at(high)
        if low < high:
            for piece in _linear_pieces(sums, low, high, before, after):
                deadline.check()
                yield piece
        before = after


def _linear_pieces(
    sums: _PathSums, low: Fraction, high: Fraction, before: SignArray, after: SignArray
) -> Iterator[Cell]:
    """Yield the pieces after `low` up to `high`, between which all sums are linear."""
    # A sum that is zero at `low` has the sign that it has at `high`.
    signs = np.where(before != 0, before, after)
    zeros: dict[Fraction, list[int]] = {}
    for k in np.flatnonzero(before * after < 0).tolist():
        zeros.setdefault(sums.zero(k), []).append(k)
    last = low
    for zero in sorted(zeros):
        yield Cell(last, zero, False, False, sums.settled(signs))
        crossing = zeros[zero]
        signs = signs.copy()
        signs[crossing] = 0
        yield Cell(zero, zero, True, True, sums.settled(signs))
        signs = signs.copy()
        signs[crossing] = after[crossing]
        last = zero
    yield Cell(last, high, False, False, sums.settled(signs))
    yield Cell(high, high, True, True, sums.settled(after))


class _PathSums:
    """The sums A + t B of all neurons on one linear part, with the lower and then the upper bias.

    If all biases are exact, the two are the same and only one is kept.
    """

    def __init__(self, layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> None:
        self._layer, self._path, self._deadline = layer, path, deadline
        self._columns = layer.weights.tocsc()
        low, high = layer.enclosure
        self._is_exact = bool(np.array_equal(low, high))
        self._has_exact_bias = low == high
        self._weights, self._weight_unit = _whole_weights(self._columns.data)
        biases = low if self._is_exact else np.concatenate([low, high])
        #: The state of every input: -1 below the data box, 0 inside, 1 above.
        self._place = [self._state(i, path.first) for i in range(path.size)]
        #: The numbers alpha and beta with y_i = alpha_i + t beta_i.
        parts = [self._part(i) for i in range(path.size)]
        numbers = [v for part in parts for v in part]
        starts, slopes = path.line
        numbers += [*starts, *slopes, *(v for b in path.bounds for v in b if v is not None)]
        numbers += [Fraction(b) / self._weight_unit for b in biases.tolist()]
        self._unit = max(v.denominator for v in numbers)
        self._constant = self._whole([Fraction(b) / self._weight_unit for b in biases.tolist()])
        self._slope = np.array([0] * biases.size, dtype=object)
        for i, part in enumerate(parts):
            self._add(i, part)

    def _whole(self, numbers: list[Fraction]) -> Integers:
        return np.array([int(v * self._unit) for v in numbers], dtype=object)

    def _state(self, i: int, t: Fraction) -> int:
        a, d, lo, hi = self._numbers(i)
        y = a + t * d
        if lo is not None and y < lo:
            return -1
        return 1 if hi is not None and y > hi else 0

    def _numbers(self, i: int) -> tuple[Fraction, Fraction, Fraction | None, Fraction | None]:
        (starts, slopes), (lows, highs) = self._path.line, self._path.bounds
        return starts[i], slopes[i], lows[i], highs[i]

    def _part(self, i: int) -> tuple[Fraction, Fraction]:
        """Return alpha and beta of an input in its current state."""
        a, d, lo, hi = self._numbers(i)
        side = {-1: lo, 0: None, 1: hi}[self._place[i]]
        return (a, d) if side is None else (side, Fraction(0))

    def _add(self, i: int, change: tuple[Fraction, Fraction]) -> None:
        """Add the column of an input to both vectors, times the changes of alpha and beta."""
        self._deadline.check()
        start, stop = self._columns.indptr[i], self._columns.indptr[i + 1]
        rows = self._columns.indices[start:stop]
        weights = self._weights[start:stop]
        if not self._is_exact:
            rows = np.concatenate([rows, rows + self._layer.size])
            weights = np.concatenate([weights, weights])
        for vector, factor in zip((self._constant, self._slope), change, strict=True):
            if factor:
                vector[rows] += weights * int(factor * self._unit)

    def bends(self) -> dict[Fraction, list[tuple[int, int]]]:
        """Return the values of t at which inputs bend, with the inputs and their new states."""
        found: dict[Fraction, list[tuple[int, int]]] = {}
        for i in range(self._path.size):
            a, d, lo, hi = self._numbers(i)
            if d == 0:
                continue
            # A rising input leaves `lo` and then meets `hi`, a falling one the other way round.
            states = ((lo, 0), (hi, 1)) if d > 0 else ((hi, 0), (lo, -1))
            for limit, state in states:
                t = None if limit is None else (limit - a) / d
                if t is not None and self._path.first <= t < self._path.last:
                    found.setdefault(t, []).append((i, state))
        return found

    def bend(self, changes: Any) -> None:
        """Change the states of inputs."""
        for i, state in changes:
            alpha, beta = self._part(i)
            self._place[i] = state
            new_alpha, new_beta = self._part(i)
            self._add(i, (new_alpha - alpha, new_beta - beta))

    def signs_at(self, t: Fraction) -> SignArray:
        """Return the signs -1, 0 or 1 of all sums."""
        values = self._constant * t.denominator + self._slope * t.numerator
        return np.asarray((values > 0).astype(np.int8) - (values < 0).astype(np.int8))

    def zero(self, k: int) -> Fraction:
        """Return the t at which a sum that is not constant is zero."""
        return Fraction(-self._constant[k], self._slope[k])

    def settled(self, signs: SignArray) -> SignArray:
        """Return the signs of the neurons, given those of the sums."""
        size = self._layer.size
        low, high = (signs, signs) if self._is_exact else (signs[:size], signs[size:])
        tie = {"plus": 1, "minus": -1, "either": TIED}[self._layer.sign_zero]
        between = np.where(self._has_exact_bias, tie, UNDECIDED)
        return np.where(low > 0, 1, np.where(high < 0, -1, between)).astype(np.int8)


def _whole_weights(weights: npt.NDArray[Any]) -> tuple[Integers, Fraction]:
    """Return integers and a power of two, at most 1, whose products are the weights."""
    if np.issubdtype(weights.dtype, np.integer):
        return weights.astype(object), Fraction(1)
    exact = [Fraction(w) for w in weights.tolist()]
    scale = max((w.denominator for w in exact), default=1)
    return np.array([int(w * scale) for w in exact], dtype=object), Fraction(1, scale)


#: Cells that are evaluated at once, and the most multiplications for them, for the time limit.
BATCH, MOST_WORK = 512, 2**29

#: The name of the stage in tables.
STAGE = "sweep"


@dataclass(frozen=True, eq=False)
class SweptCell:
    """A cell, and what is known about one target there.

    `is_violated` is None if undecided signs or an inexact score leave it open.  The bounds are
    those of the smallest F in the cell.
    """

    cell: Cell
    is_violated: bool | None
    lower: Fraction | float
    upper: Fraction | float


def sweep(problem: Problem, path: ImagePath, deadline: Deadline) -> Iterator[list[SweptCell]]:
    """Yield for each cell of the path, in ascending order, what is known about all targets."""
    upper = UpperLayers(problem.network)
    work = sum(int(layer.rows.nnz) for layer in problem.network.layers[1:])
    batch = max(1, min(BATCH, MOST_WORK // max(1, work)))
    waiting: list[Cell] = []
    for cell in path_cells(problem.network.layers[0], path, deadline):
        waiting.append(cell)
        if len(waiting) == batch:
            yield from _judged(problem.targets, upper, waiting)
            waiting = []
    yield from _judged(problem.targets, upper, waiting)


def evaluate_points(problem: Problem, points: Iterable[FloatArray]) -> Iterator[list[SweptCell]]:
    """Yield for each point, as a cell of its own, what is known about all targets."""
    upper, first, zero = UpperLayers(problem.network), problem.network.layers[0], Fraction(0)
    for point in points:
        cell = Cell(zero, zero, True, True, first.exact_signs(point))
        yield from _judged(problem.targets, upper, [cell])


def _judged(
    targets: Sequence[Target], upper: UpperLayers, cells: list[Cell]
) -> Iterator[list[SweptCell]]:
    """Yield what the signs of cells imply for all targets."""
    known: dict[tuple[int, bytes], tuple[bool | None, Fraction, Fraction]] = {}
    for cell, lasts in zip(cells, upper.last_signs([c.signs for c in cells]), strict=True):
        found = []
        for k, target in enumerate(targets):
            answers = []
            for last in lasts or ():
                key = k, last.tobytes()
                if key not in known:
                    known[key] = _answer(target, last)
                answers.append(known[key])
            found.append(_combined(cell, answers, complete=lasts is not None))
        yield found


def _answer(target: Target, last: SignArray) -> tuple[bool | None, Fraction, Fraction]:
    """Return whether a target is violated at signs of the last layer, and bounds of F."""
    bounds = [(o.exactly(last), o.exact_error) for o in target.objectives]
    lower = max((v - e for v, e in bounds), default=Fraction(-1))
    return target.is_violated(last), lower, target.exactly(last)


def _combined(
    cell: Cell, answers: list[tuple[bool | None, Fraction, Fraction]], *, complete: bool
) -> SweptCell:
    """Combine the answers for all signs that a cell may have."""
    if not complete:
        return SweptCell(cell, None, -math.inf, math.inf)
    violations = [a[0] for a in answers]
    # An undecided sign has one value, which is not known: every one of them has to violate.
    is_decided = not np.any(cell.signs == UNDECIDED)
    certain = any(v is True for v in violations) if is_decided else False
    certain = certain or all(v is True for v in violations)
    is_violated = True if certain else False if all(v is False for v in violations) else None
    upper = min(a[2] for a in answers) if is_decided else max(a[2] for a in answers)
    return SweptCell(cell, is_violated, min(a[1] for a in answers), upper)


class UpperLayers:
    """The layers above the first, evaluated at first-layer signs in integers."""

    def __init__(self, network: Network) -> None:
        self._layers = network.layers[1:]
        self._network = replace(network, layers=self._layers)

    @cached_property
    def _fits_floats(self) -> bool:
        # Sums of fewer than 2^24 units are exact in float32, in any order of summation.
        return all(float(layer.norm.max(initial=0.0)) < 2**24 for layer in self._layers)

    def last_signs(self, patterns: Sequence[SignArray]) -> list[list[SignArray] | None]:
        """Return the last-layer signs that each pattern allows; None if they are too many."""
        if not patterns:
            return []
        batch = np.stack(patterns)
        plain = ~np.any((batch == TIED) | (batch == UNDECIDED), axis=1)
        found: list[list[SignArray] | None] = [None] * len(patterns)
        chosen = np.flatnonzero(plain) if self._fits_floats else np.zeros(0, dtype=np.int64)
        lasts, is_tied = self._forward(batch[chosen])
        for k, last, tied in zip(chosen.tolist(), lasts, is_tied, strict=True):
            if not tied:
                found[k] = [last]
        for k in range(len(patterns)):
            if found[k] is None:
                found[k] = self._all_choices(batch[k])
        return found

    def _forward(self, batch: SignArray) -> tuple[SignArray, npt.NDArray[np.bool_]]:
        """Return the last-layer signs, and whether a sum of a pattern may have either sign."""
        signs, tied = batch, np.zeros(batch.shape[0], dtype=bool)
        for layer in self._layers:
            total = layer.operator(np.float32).forward(signs.astype(np.float32))
            plus, minus = total >= layer.plus_from, total <= layer.minus_upto
            tied |= np.any(plus & minus, axis=1)
            signs = np.where(plus, 1, -1).astype(np.int8)
        return signs, tied

    def _all_choices(self, pattern: SignArray) -> list[SignArray] | None:
        """Return the last-layer signs of all choices of open signs, each once."""
        open_ = np.flatnonzero((pattern == TIED) | (pattern == UNDECIDED))
        if 2**open_.size > MOST_TIE_CHOICES:
            return None
        found: dict[bytes, SignArray] = {}
        count = 0
        for choice in product((1, -1), repeat=int(open_.size)):
            signs = pattern.copy()
            signs[open_] = choice
            for layers in self._network.exact_patterns(signs):
                last = layers[-1] if layers else signs
                found[last.tobytes()] = last
                count += 1
                if count >= MOST_TIE_CHOICES:
                    # The evaluation may have ended before the last choice.
                    return None
        return list(found.values())


def run_sweep(problem: Problem, path: ImagePath, context: Context) -> tuple[TargetResult, ...]:
    """Decide all targets of a problem about a path by one sweep."""
    since = context.deadline.elapsed()
    count = len(problem.targets)
    lower, upper = [math.inf] * count, [math.inf] * count
    found: list[SweptCell | None] = [None] * count
    is_open = [False] * count
    cells = 0
    for judged in sweep(problem, path, context.deadline):
        cells += 1
        for k, swept in enumerate(judged):
            lower[k] = min(lower[k], _rounded(swept.lower, float_below))
            upper[k] = min(upper[k], _rounded(swept.upper, float_above))
            is_open[k] |= swept.is_violated is None
            if swept.is_violated:
                found[k] = _nearer(path, found[k], swept)
    example = _example(problem, path, context, found)
    return tuple(
        context.result(
            target,
            STAGE,
            since,
            lower=lower[k],
            upper=upper[k],
            counterexample=example if example and example.target == target.name else None,
            proved=not is_open[k] and found[k] is None,
            note="" if found[k] is not None else _open_note(is_open[k]),
            details={"cells": cells},
        )
        for k, target in enumerate(problem.targets)
    )


def _open_note(is_open: bool) -> str:
    return "a rounding error leaves a sign open" if is_open else ""


def _rounded(value: Fraction | float, rounding: object) -> float:
    return value if isinstance(value, float) else rounding(value)  # type: ignore[operator]


def _distance(path: ImagePath, swept: SweptCell | None) -> Fraction:
    """Return the distance of a cell from the image itself."""
    assert swept is not None
    low, high = swept.cell.lo - path.nominal, swept.cell.hi - path.nominal
    return max(low, -high, Fraction(0))


def _nearer(path: ImagePath, before: SweptCell | None, after: SweptCell) -> SweptCell:
    """Return the cell that is nearer to the image itself."""
    closer = before is None or _distance(path, after) < _distance(path, before)
    return after if before is None or closer else before


def _example(
    problem: Problem, path: ImagePath, context: Context, found: Sequence[SweptCell | None]
) -> Counterexample | None:
    """Return the counterexample that is nearest to the image itself, if there is one."""
    violated = [k for k, swept in enumerate(found) if swept is not None]
    for k in sorted(violated, key=lambda k: _distance(path, found[k])):
        swept = found[k]
        assert swept is not None
        example = point_of(context.replayer, path, problem.targets[k], swept.cell.point())
        if example is not None:
            return example
    return None


def point_of(
    replayer: Replayer, path: ImagePath, target: Target, t: Fraction
) -> Counterexample | None:
    """Return the image at t as a counterexample, replayed in exact arithmetic."""
    return replayer.confirm_exactly(target, path.at(t), path.place_text(t))
