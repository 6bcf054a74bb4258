r"""The projection of an L2 ball to the space of the first-layer weights.

The unstable neurons depend only on W (x - m).  If the columns of Q are an orthonormal basis of the
rows of W,

    W (x - m) = r W Q v,      v = Q' (x - m) / r,      |v|_2 <= 1,

and every such v belongs to a point of the ball: there is one variable for each unstable neuron
instead of one for each input.  The data box is not represented by v, only by the bounds Lo and U of
the neurons.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.engine.presolve.reduction import UnstableLayer
from bnncert.regions import Region
from bnncert.regions.linear_block import InputBlock, input_block


def ball_block(region: Region, layer: UnstableLayer) -> InputBlock:
    """Describe an L2 ball by few variables v; the solver adds the constraint |v|_2 <= 1."""
    used = layer.inputs
    if layer.size >= used.size:
        # v = (x - m) / r has as few variables and represents the data box, too.
        return input_block(region, used)
    basis = np.linalg.qr(layer.weights.toarray().astype(np.float64).T)[0]
    ones = np.ones(layer.size)
    spread = sp.csr_array(region.radius * basis)
    nothing = sp.csr_array((0, layer.size))
    return InputBlock(used, region.middle[used], spread, -ones, ones, nothing, np.zeros(0))
