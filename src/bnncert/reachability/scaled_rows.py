"""First-layer neurons over the variables of a linear program, in units of the region's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.network.layers import ThresholdLayer
from bnncert.regions import Region
from bnncert.regions.linear_block import InputBlock, input_block


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """(w_j.x + b_j) / length_j = matrix_j.v + constant_j for the variables v of the region."""

    block: InputBlock
    matrix: Any
    constant: FloatArray
    length: FloatArray

    @classmethod
    def of(cls, layer: ThresholdLayer, neurons: IntArray, region: Region) -> ScaledRows:
        """Return the rows of some neurons; their lengths are |w_j|_2 times the region's size."""
        rows = layer.weights[neurons].astype(np.float64)
        block = input_block(region, np.unique(rows.indices).astype(np.int64))
        part = rows[:, block.index]
        norm = np.sqrt(np.asarray((part * part).sum(axis=1)).reshape(-1))
        scale = float(np.abs(block.spread.data).max(initial=0.0)) or 1.0
        # A neuron without weights has the sign of its bias: any positive scale does.
        length = np.where(norm > 0, norm, 1.0) * scale
        scaled = sp.diags_array(1.0 / length) @ part
        constant = scaled @ block.base + layer.bias[neurons] / length
        return cls(block, sp.csr_array(scaled @ block.spread), constant, length)

    def point(self, values: FloatArray, region: Region) -> FloatArray:
        """Return the input for values of the variables; other inputs stay at the centre."""
        point = np.array(region.center)
        point[self.block.index] = self.block.base + self.block.spread @ values
        return point
