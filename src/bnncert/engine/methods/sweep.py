r"""Exact answers on a path of images: all first-layer sign patterns of the path are evaluated.

The path has finitely many cells with constant first-layer signs
(:mod:`bnncert.engine.reachability.path_signs`), and the layers above it see only these signs.  One
evaluation of every cell is therefore a complete answer, and the smallest margin is known exactly.
If a sign is undecided in a cell (sign(0) may be either, or a bias is known only up to an
enclosure), all its values are evaluated: the property holds there if it holds for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.methods.base import Context
from bnncert.engine.reachability.path_signs import Cell, path_cells
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem import Problem, Target
from bnncert.regions import ImagePath

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
