r"""The value that multipliers of a structured program prove, rounding included.

For all theta, kappa and pi, and for every z whose squares are the diagonal of M, the value of the
program is at least

    sum_j min_k (value_jk - sum_{f >= 1} theta_jf feature_jkf) + sum_i kappa_i
        + min(0, least eigenvalue of T) |z|^2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.solvers.product_matrices import ProductMatrices
from bnncert.engine.solvers.structured_program import StructuredMultipliers, StructuredProgram
from bnncert.model.layers import UNIT


def dual_bound(program: StructuredProgram, multipliers: StructuredMultipliers) -> float:
    """Return a lower bound of the value of the program; -inf for numbers that are not finite."""
    weights = multipliers.signed()
    if not np.all(np.isfinite(weights)):
        return -np.inf
    with np.errstate(all="ignore"):
        parts = np.concatenate([_constants(program, multipliers), multipliers.kappa])
        least = _least_eigenvalue(program, weights)
        rounding = (parts.size + 8) * UNIT * float(np.abs(parts).sum())
        # |z|^2 is the number of its entries.
        value = float(parts.sum()) + program.size * min(0.0, least) * (1 + 8 * UNIT) - rounding
    return value if np.isfinite(least) and np.isfinite(value) else -np.inf


def _constants(program: StructuredProgram, multipliers: StructuredMultipliers) -> FloatArray:
    """Return for every table the minimum over its points, rounded down."""
    found = []
    for tables, theta in zip(program.tables, multipliers.theta, strict=True):
        factors, features = theta[:, None, 1:], tables.features[:, :, 1:]
        rest = tables.values - (factors * features).sum(axis=2)
        size = np.abs(tables.values) + np.abs(factors * features).sum(axis=2)
        rest -= 4 * (tables.links + 4) * UNIT * size + 1e-290
        found.append(rest.min(axis=1, initial=np.inf))
    return np.concatenate([np.zeros(0), *found])


def _least_eigenvalue(program: StructuredProgram, weights: FloatArray) -> float:
    """Return a lower bound of the least eigenvalue of T in exact arithmetic."""
    form = program.base + ProductMatrices(program).combine(weights)
    sizes = replace(
        program,
        linear=np.abs(program.linear),
        rows=np.abs(program.rows),
        pair_sign=np.abs(program.pair_sign),
    )
    size = sizes.base + ProductMatrices(sizes).combine(np.abs(weights))
    if not (np.all(np.isfinite(form)) and np.all(np.isfinite(size))):
        return -np.inf
    # The error of an eigenvalue is at most the largest row sum of the errors, plus LAPACK's.
    error = 2 * (weights.size + 16) * UNIT * float(size.sum(axis=1).max()) + 1e-270
    norm = float(np.abs(form).sum(axis=1).max())
    return float(np.linalg.eigvalsh(form)[0]) - error - 8 * program.size * UNIT * norm
