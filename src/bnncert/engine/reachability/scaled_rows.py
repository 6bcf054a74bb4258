"""First-layer neurons over the variables of a linear program, scaled to the size of the region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region
from bnncert.regions.highs_ import HighsModel
from bnncert.regions.linear_block import InputBlock, input_block
from bnncert.regions.linear_program import LinearProgram


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """(w_j.x + b_j) / length_j = matrix_j.v + constant_j for the variables v of the region."""

    block: InputBlock
    matrix: Any
    constant: FloatArray
    length: FloatArray

    @classmethod
    def of(cls, layer: ThresholdLayer, neurons: IntArray, region: Region) -> ScaledRows:
        """Return the rows of some neurons; a length is |w_j|_2 times the size of the region."""
        rows = layer.weights[neurons].astype(np.float64)
        block = input_block(region, np.unique(rows.indices).astype(np.int64))
        part = rows[:, block.index]
        norm = np.sqrt(np.asarray((part * part).sum(axis=1)).reshape(-1))
        scale = float(np.abs(block.spread.data).max(initial=0.0)) or 1.0
        # A neuron without weights has the sign of its bias: any positive scale is valid.
        length = np.where(norm > 0, norm, 1.0) * scale
        scaled = sp.diags_array(1.0 / length) @ part
        constant = scaled @ block.base + layer.bias[neurons] / length
        return cls(block, sp.csr_array(scaled @ block.spread), constant, length)

    def program(
        self, matrix: Any, more: Any, row_lower: FloatArray, cost: FloatArray, bounds: FloatArray
    ) -> HighsModel:
        """Return  min cost.e  s.t.  matrix v + more e >= row_lower,  bounds[0] <= e <= bounds[1].

        The variables v are those of the region; `matrix` is that of the rows or a multiple of it.
        """
        block, (count, extra) = self.block, more.shape
        right = block.right.size
        nothing = sp.csr_array((right, extra))
        program = LinearProgram(
            cost=np.concatenate([np.zeros(block.size), cost]),
            matrix=sp.vstack([sp.hstack([matrix, more]), sp.hstack([block.rows, nothing])]).tocsr(),
            row_lower=np.concatenate([row_lower, np.full(right, -np.inf)]),
            row_upper=np.concatenate([np.full(count, np.inf), block.right]),
            lower=np.concatenate([block.lower, bounds[0]]),
            upper=np.concatenate([block.upper, bounds[1]]),
            integer=np.zeros(block.size + extra, dtype=bool),
        )
        return HighsModel(program, {"threads": 1})

    def point(self, values: FloatArray, region: Region) -> FloatArray:
        """Return the input for values of the variables; other inputs are those of the centre."""
        point = np.array(region.center)
        point[self.block.index] = self.block.base + self.block.spread @ values
        return point
