"""From values to the stages of a description."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.model.description import Scale, SignZero, Stage
from bnncert.model.formats.onnx.exact import row_values, tidy
from bnncert.model.formats.onnx.value import GraphWalk, Value, positions
from bnncert.model.matrices import csr_matrix, factor_sparse, scale_rows


def rows_of(value: Value) -> Any:
    """Return the rows that `index` selects, for a value without windows."""
    if value.matrix is None:
        one = np.ones(value.size, dtype=np.int8)
        shape = (value.size, value.width)
        return csr_matrix(one, value.index, positions(value.size + 1), shape)
    if np.array_equal(value.index, positions(value.matrix.shape[0])):
        return value.matrix
    return value.matrix[value.index]


def stage_of(value: Value, name: str, sign_zero: SignZero | None, as_written: bool) -> Stage:
    """Return the stage that a sign of this value ends."""
    steps, pool, convolution = value.steps, None, value.convolution
    other_terms = value.other_terms
    if value.pool is None:
        weights = rows_of(value)
        if value.factor is not None:
            steps = (Scale(value.factor[value.index]), *steps)
        used = value.index
    else:
        windows = value.pool[value.index]
        # Positions that are in no window are not computed.
        used, column = np.unique(windows.indices, return_inverse=True)
        pool = tidy(
            csr_matrix(
                windows.data, column.astype(np.int32), windows.indptr, (windows.shape[0], used.size)
            )
        )
        weights = value.matrix
        if used.size != weights.shape[0]:
            weights = weights[used]
    if not as_written and not np.all(np.abs(weights.data) == 1):
        split = factor_sparse(weights)
        if split is not None:
            factor: FloatArray | None = split[1]
            if pool is not None:
                factor = row_values(pool, split[1])
            if factor is not None:
                # A kernel that is described beside its matrix was factored with it.
                weights, convolution, other_terms = split[0], None, True
                steps = (Scale(factor), *steps)
    if convolution is not None:
        convolution = replace(convolution, rows=used.astype(np.int64))
    return Stage(
        weights=weights,
        steps=steps,
        name=name,
        sign_zero=sign_zero,
        pool=pool,
        structural=value.structural or as_written,
        convolution=convolution,
        bits=value.bits,
        other_terms=other_terms,
    )


def output_stage(value: Value) -> Stage:
    """Return the stage of the scores: no sign, and factors multiplied back into the rows."""
    weights = rows_of(value).astype(np.float64)
    if value.factor is not None:
        # A row was split into a factor and -1, 0, 1: multiplying them again is exact.
        weights = scale_rows(weights, value.factor[value.index])
    return Stage(
        weights=weights,
        steps=value.steps,
        name=value.name or "output",
        structural=True,
        bits=value.bits,
        other_terms=value.other_terms,
    )


def add_stage(walk: GraphWalk, value: Value, stage: Stage, open_stages: tuple[int, ...]) -> Value:
    """Add a stage and return its signs in the shape of `value`."""
    walk.stages.append(stage)
    return Value(
        shape=value.shape,
        index=positions(value.size),
        width=value.size,
        signs=True,
        dtype=value.dtype,
        open_stages=open_stages,
    )
