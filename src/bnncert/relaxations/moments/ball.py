r"""An L2 ball as the first layer sees it.

The open neurons only see W (x - m).  With the columns of Q an orthonormal basis of the rows of W,

    W (x - m) = r W Q v,      v = Q' (x - m) / r,      |v|_2 <= 1,

and every such v belongs to a point of the ball: one variable for each open neuron replaces one for
each input.  A data box has no such short image and is left out; only the bounds Lo and U of each
neuron still know of it.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.presolve.reduction import UnstableLayer
from bnncert.regions import Ball
from bnncert.regions.linear_block import InputBlock, input_block


def ball_block(region: Ball, layer: UnstableLayer) -> InputBlock:
    """Describe an L2 ball by few variables v; that |v|_2 <= 1 is left to the solver."""
    used = layer.inputs
    if layer.size >= used.size:
        # Nothing to gain: v = (x - m) / r keeps the data box.
        return input_block(region, used)
    basis = np.linalg.qr(layer.weights.toarray().astype(np.float64).T)[0]
    ones = np.ones(layer.size)
    spread = sp.csr_array(region.radius * basis)
    nothing = sp.csr_array((0, layer.size))
    return InputBlock(used, region.middle[used], spread, -ones, ones, nothing, np.zeros(0))
