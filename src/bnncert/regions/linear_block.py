"""A region as variables of a linear program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.regions.region import Region

#: A factor that covers the rounding of a quotient.
GROW = 1 + 1e-14


@dataclass(frozen=True, eq=False)
class InputBlock:
    """x = base + spread v for the inputs `index`, with lower <= v <= upper and rows v <= right."""

    index: IntArray
    base: FloatArray
    spread: Any
    lower: FloatArray
    upper: FloatArray
    rows: Any
    right: FloatArray

    @property
    def size(self) -> int:
        """The number of variables v."""
        return int(self.lower.size)


@dataclass(frozen=True, eq=False)
class ScaledInputs:
    """x = base + half * u with u in [-1, 1], for the inputs `index`."""

    index: IntArray
    base: FloatArray
    half: FloatArray


def scaled_inputs(region: Region, used: IntArray) -> ScaledInputs:
    """Rescale the inputs `used`, and those of a polytope, to the bounding box [-1, 1]^n."""
    matrix, right = region.inequalities
    if right.size:
        used = np.union1d(used, np.flatnonzero(np.any(matrix != 0, axis=0)))
    lo, hi = region.lo[used], region.hi[used]
    base = lo + (hi - lo) / 2
    # The half width is rounded up, so that base +- half covers the box.
    half = np.where(hi > lo, np.nextafter(np.maximum(hi - base, base - lo), np.inf), 0.0)
    return ScaledInputs(used, base, half)


def input_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the region by variables for the inputs `used` (others stay at the centre)."""
    if region.norm == "l1":
        return _l1_block(region, used)
    if region.norm == "l2":
        return _l2_block(region, used)
    if region.norm == "l0":
        return _l0_block(region, used)
    inputs = scaled_inputs(region, used)
    used, base, half = inputs.index, inputs.base, inputs.half
    rows, right = sp.csr_array((0, used.size)), np.zeros(0)
    matrix, limits = region.inequalities
    if limits.size:
        part = matrix[:, used]
        rows = sp.csr_array(part * half)
        magnitude = np.abs(part) @ (np.abs(base) + half) + np.abs(limits)
        right = limits - part @ base + 1e-14 * (used.size + 8) * magnitude
    ones = np.ones(used.size)
    return InputBlock(used, base, sp.diags_array(half).tocsr(), -ones, ones, rows, right)


def _ball_sides(region: Region, used: IntArray) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Return m, r, and the bounds -down <= (x - m) / r <= up (rounded up, at most 1)."""
    middle, radius = region.middle[used], max(region.radius, 1e-300)
    down = np.minimum((middle - region.lo[used]) / radius * GROW, 1.0)
    up = np.minimum((region.hi[used] - middle) / radius * GROW, 1.0)
    return middle, radius, down, up


def _l1_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the L1 ball: x = m + r (v+ - v-) with v >= 0 and sum v <= 1."""
    n = used.size
    middle, radius, down, up = _ball_sides(region, used)
    eye = sp.identity(n, format="csr") * radius
    return InputBlock(
        used,
        middle,
        sp.csr_array(sp.hstack([eye, -eye])),
        np.zeros(2 * n),
        np.concatenate([up, down]),
        sp.csr_array(np.ones((1, 2 * n))),
        np.array([GROW]),
    )


def _l0_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the hull of the L0 ball: x = m + up v+ - down v- with 0 <= v <= 1, sum v <= k."""
    n, middle = used.size, region.middle[used]
    up, down = region.hi[used] - middle, middle - region.lo[used]
    up, down = (np.where(side > 0, np.nextafter(side, np.inf), 0.0) for side in (up, down))
    return InputBlock(
        used,
        middle,
        sp.csr_array(sp.hstack([sp.diags_array(up), -sp.diags_array(down)])),
        np.zeros(2 * n),
        np.ones(2 * n),
        sp.csr_array(np.ones((1, 2 * n))),
        np.array([region.radius * GROW]),
    )


def _l2_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the box around the L2 ball: x = m + r v with |v_i| <= 1 and the data box."""
    n = used.size
    middle, radius, down, up = _ball_sides(region, used)
    spread = sp.csr_array(sp.identity(n, format="csr") * radius)
    return InputBlock(used, middle, spread, -down, up, sp.csr_array((0, n)), np.zeros(0))
