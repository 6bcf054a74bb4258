"""From a description to threshold layers; every threshold is decided exactly, without rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.errors import UnsupportedModelError
from bnncert.model.description import (
    LARGEST_INTEGER_WEIGHT,
    ElementwiseStep,
    ModelDescription,
    SignZero,
    Stage,
    take_step,
)
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.matrices import csr_matrix, row_norms, scale_rows, without_zeros
from bnncert.model.rationals import Interval, float_above
from bnncert.model.thresholds import affine_coefficients, lattice_thresholds, real_thresholds

#: Larger weights and first-layer biases are refused, because their products overflow.
LARGEST_WEIGHT = 1e100


@dataclass(frozen=True, eq=False)
class NormalForm:
    """The threshold layers, the output, the data box and remarks for the user."""

    layers: tuple[ThresholdLayer, ...]
    output: OutputLayer
    input_lo: FloatArray | None
    input_hi: FloatArray | None
    notes: tuple[str, ...]


def normal_form(description: ModelDescription) -> NormalForm:
    """Bring a described model to normal form."""
    *hidden, last = description.stages
    if not hidden:
        raise UnsupportedModelError(
            f"{description.source}: the model has no sign activation; it is not a binary network"
        )
    notes: list[str] = []
    layers: list[ThresholdLayer] = []
    width = math.prod(description.input_shape)
    for stage in hidden:
        _check_stage(stage, width, description.source)
        stage = _separate_windows(stage)
        layers.append(_threshold_layer(stage, len(layers), description.source, notes))
        if stage.pool is not None:
            layers[-1:] = _pooled(layers[-1], stage)
        width = layers[-1].size
    _check_stage(last, width, description.source)
    if last.pool is not None:
        raise UnsupportedModelError(
            f"{description.source}: {last.name}: max-pooling of scores is not supported"
        )
    output = _output_layer(last, description.source)
    if not output.gain_is_one:
        notes.append(
            f"all scores share the factor {output.gain:.6g}, which is not a float; bounds and "
            "margins are given without it"
        )
    lo, hi = (_data_bound(b, description) for b in (description.input_lo, description.input_hi))
    if lo is not None and hi is not None and bool(np.any(lo > hi)):
        raise UnsupportedModelError(f"{description.source}: input_lo is above input_hi")
    return NormalForm(tuple(layers), output, lo, hi, tuple(notes))


def _data_bound(bound: FloatArray | None, description: ModelDescription) -> FloatArray | None:
    if bound is None:
        return None
    count = math.prod(description.input_shape)
    try:
        array = np.broadcast_to(np.asarray(bound, dtype=np.float64).reshape(-1), (count,)).copy()
    except ValueError as error:
        raise UnsupportedModelError(
            f"{description.source}: input bounds of shape {bound.shape} for {count} inputs"
        ) from error
    if not np.all(np.isfinite(array)):
        raise UnsupportedModelError(f"{description.source}: an input bound is NaN or infinite")
    return np.asarray(array, dtype=np.float64)


def _check_stage(stage: Stage, width: int, source: str) -> None:
    if stage.weights.shape[1] != width:
        raise UnsupportedModelError(
            f"{source}: {stage.name}: weights take {stage.weights.shape[1]} inputs, "
            f"the layer before has {width}"
        )
    if stage.weights.shape[0] == 0:
        raise UnsupportedModelError(f"{source}: {stage.name}: the layer has no neurons")
    if not np.all(np.isfinite(stage.weights.data)):
        raise UnsupportedModelError(f"{source}: {stage.name}: a weight is NaN or infinite")
    if float(np.abs(stage.weights.data).max(initial=0)) > LARGEST_WEIGHT:
        raise UnsupportedModelError(
            f"{source}: {stage.name}: a weight is larger than {LARGEST_WEIGHT:g}"
        )


def _check_integer_weights(stage: Stage, source: str) -> Any:
    """Convert the weights to integers; only weights from pooling may differ from -1, 0, 1."""
    weights = stage.weights
    if weights.dtype == np.int8 and _is_ternary(weights.data):
        return weights
    data = weights.data
    limit = LARGEST_INTEGER_WEIGHT if stage.structural else 1
    bad = np.flatnonzero((data != np.rint(data)) | (np.abs(data) > limit))
    if bad.size:
        row = int(np.searchsorted(weights.indptr, bad[0], side="right")) - 1
        raise UnsupportedModelError(
            f"{source}: {stage.name}: neuron {row} has weight {float(data[bad[0]]):.9g}; hidden "
            "weights must be -1, 0 or 1 (up to one factor per neuron)"
        )
    return weights.astype(np.int8 if np.abs(data).max(initial=0) <= 127 else np.int32)


def _is_ternary(data: npt.NDArray[Any]) -> bool:
    return bool(data.size == 0 or (data.min() >= -1 and data.max() <= 1))


def _threshold_layer(stage: Stage, number: int, source: str, notes: list[str]) -> ThresholdLayer:
    where = f"{source}: {stage.name}"
    sign_zero: SignZero = stage.sign_zero or "plus"
    steps = stage.steps
    if stage.pool is not None:
        steps = tuple(take_step(step, _pool_owner(stage, source)) for step in steps)
    weights = stage.weights
    if number == 0:
        return _first_layer(stage, steps, sign_zero, where)
    weights = _check_integer_weights(stage, source)
    norm = row_norms(weights).astype(np.int64)
    lattice = lattice_thresholds(steps, norm, where)
    weights = _flipped(weights, lattice.direction)
    doubtful = np.flatnonzero(lattice.ambiguous)
    if doubtful.size:
        notes.append(
            f"{stage.name}: {doubtful.size} of {norm.size} thresholds lie within float32 "
            f"rounding of a lattice point (first: neuron {int(doubtful[0])}); bnncert decides "
            "them exactly, a float32 execution may not"
        )
    return ThresholdLayer(
        rows=weights,
        bias=lattice.bias,
        sign_zero=sign_zero,
        name=stage.name,
        on_from=lattice.on_from,
        tie=lattice.tie,
        convolution=stage.convolution,
        flip=_flips(lattice.direction),
        fixed_sign_zero=stage.sign_zero is not None,
        bits=stage.bits,
    )


def _first_layer(
    stage: Stage, steps: tuple[ElementwiseStep, ...], sign_zero: SignZero, where: str
) -> ThresholdLayer:
    """Make the first layer, with small integer weights if possible, else with floats."""
    weights = stage.weights
    if weights.dtype != np.int8:
        whole = np.all(weights.data == np.rint(weights.data))
        small = whole and np.all(np.abs(weights.data) <= 127)
        weights = weights.astype(np.int8 if small else np.float64)
    real = real_thresholds(steps, weights.shape[0], where)
    lo, hi, factor = real.bias_lo, real.bias_hi, real.direction.astype(np.float64)
    if float(np.abs(np.concatenate([lo, hi])).max(initial=0.0)) > LARGEST_WEIGHT:
        raise UnsupportedModelError(f"{where}: a threshold is larger than {LARGEST_WEIGHT:g}")
    described = None
    if np.any(lo != hi):
        # Pooling has a layer of its own above this one.
        described = replace(stage, weights=weights, steps=steps, pool=None)
        lo, hi, factor = _absorb_scales(weights, steps, lo, hi, factor, where)
    if np.any(np.abs(factor) > 1) or np.any(factor != np.rint(factor)):
        weights = weights.astype(np.float64)
    return ThresholdLayer(
        rows=_flipped(weights, factor),
        bias=lo + (hi - lo) / 2,
        sign_zero=sign_zero,
        name=stage.name,
        bias_lo=lo,
        bias_hi=hi,
        convolution=stage.convolution,
        flip=_flips(factor),
        fixed_sign_zero=stage.sign_zero is not None,
        bits=stage.bits,
        described=described,
    )


def _absorb_scales(
    weights: Any,
    steps: tuple[ElementwiseStep, ...],
    lo: FloatArray,
    hi: FloatArray,
    factor: FloatArray,
    where: str,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Keep the scale s of a row in its weights where b / s is not a float but s w and b are."""
    affine = affine_coefficients(steps, weights.shape[0], where)
    lo, hi, factor = lo.copy(), hi.copy(), factor.copy()
    _, first = np.unique(affine.group, return_index=True)
    pairs = [(affine.gain[k], affine.offset[k]) for k in first.tolist()]
    is_exact = np.array([gain.is_exact and offset.is_exact for gain, offset in pairs], dtype=bool)
    for j in np.flatnonzero((lo != hi) & is_exact[affine.group]).tolist():
        gain, offset = affine.gain[j], affine.offset[j]
        row = weights.data[weights.indptr[j] : weights.indptr[j + 1]]
        bias = float(offset.lo)
        if Fraction(bias) == offset.lo and _scales_exactly(row, gain):
            lo[j] = hi[j] = bias
            factor[j] = float(gain.lo)
    return lo, hi, factor


def _flips(direction: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    return None if np.all(direction == 1) else direction


def _flipped(weights: Any, direction: npt.NDArray[Any]) -> Any:
    """Multiply each row by its entry of `direction`, in the type that the weights have."""
    if np.all(direction == 1):
        return weights
    flipped = scale_rows(weights, direction)
    return without_zeros(flipped) if np.any(direction == 0) else flipped


def _separate_windows(stage: Stage) -> Stage:
    """Give every pooling window its own neurons, so that overlapping windows are independent.

    Windows may have different thresholds, and if sign(0) may be either, each window decides its
    ties independently.
    """
    if stage.pool is None:
        return stage
    pool = stage.pool.tocsr()
    if np.all(np.bincount(pool.indices, minlength=pool.shape[1]) <= 1):
        return stage
    convolution = stage.convolution
    if convolution is not None:
        convolution = replace(convolution, rows=convolution.rows[pool.indices])
    count = pool.indices.size
    own = csr_matrix(np.ones(count, np.int8), np.arange(count), pool.indptr, (pool.shape[0], count))
    return replace(stage, weights=stage.weights[pool.indices], pool=own, convolution=convolution)


def _pool_owner(stage: Stage, source: str) -> IntArray:
    """Find the pooling window of each neuron before pooling."""
    incidence = stage.pool.tocoo()
    owner = np.full(stage.weights.shape[0], -1, dtype=np.int64)
    owner[incidence.col] = incidence.row
    if np.any(owner < 0):
        raise UnsupportedModelError(f"{source}: {stage.name}: a pooled neuron has no window")
    return owner


def _pooled(layer: ThresholdLayer, stage: Stage) -> list[ThresholdLayer]:
    r"""Add the OR (or AND) layer that is equivalent to max-pooling before sign.

    sign(F(max u)) with F increasing is OR(y_1..y_k) = sign(sum y + k - 1); with F decreasing
    the neurons are flipped already and all of them must be on: AND = sign(sum y - k + 1).
    """
    pool = stage.pool.tocsr().astype(np.int8)
    direction = np.ones(layer.size) if layer.flip is None else layer.flip
    first = pool.indices[pool.indptr[:-1]]
    increasing = direction[first] >= 0
    k = np.diff(pool.indptr).astype(np.int64)
    on_from = np.where(increasing, 2 - k, k)
    return [
        layer,
        ThresholdLayer(
            rows=pool,
            bias=(1 - on_from).astype(np.float64),
            sign_zero=layer.sign_zero,
            name=f"{stage.name} (max-pool)",
            on_from=on_from,
            tie=np.zeros(k.size, dtype=bool),
            fixed_sign_zero=layer.fixed_sign_zero,
        ),
    ]


def _scales_exactly(rows: npt.NDArray[Any], gain: Interval) -> bool:
    """Whether gain * w is a float for every weight w."""
    if not gain.is_exact:
        return False
    products = (gain.lo * Fraction(w) for w in set(rows.ravel().tolist()))
    return all(Fraction(float(v)) == v for v in products)


def _output_layer(stage: Stage, source: str) -> OutputLayer:
    rows = np.asarray(stage.weights.toarray(), dtype=np.float64)
    affine = affine_coefficients(stage.steps, rows.shape[0], f"{source}: {stage.name}")
    if any(g.lo <= 0 <= g.hi and not g.is_exact for g in affine.gain):
        raise UnsupportedModelError(f"{source}: {stage.name}: a score has an undecided scale")
    shared = affine.gain[0]
    gain, gain_is_one = 1.0, True
    offset = list(affine.offset)
    common = all(g == shared for g in affine.gain) and shared.lo > 0
    if common and not _scales_exactly(rows, shared):
        # A common factor of all rows does not change a comparison: the weights are kept.
        gain, gain_is_one = float(shared.lo), False
        offset = [c / shared for c in offset]
        row_gain = [Fraction(1)] * rows.shape[0]
        gain_error = [Fraction(0)] * rows.shape[0]
    else:
        row_gain = [Fraction(float((g.lo + g.hi) / 2)) for g in affine.gain]
        gain_error = [
            max(abs(g.hi - m), abs(m - g.lo)) for g, m in zip(affine.gain, row_gain, strict=True)
        ]
    bias = np.array([float((c.lo + c.hi) / 2) for c in offset])
    weight_error, bias_error = np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
    for j, c in enumerate(offset):
        middle = Fraction(bias[j])
        bias_error[j] = float_above(max(abs(c.hi - middle), abs(middle - c.lo)))
        if row_gain[j] != 1 or gain_error[j]:
            exact = [Fraction(w) for w in rows[j].tolist()]
            rounded = [float(row_gain[j] * w) for w in exact]
            # |x| = 1, so the errors of the coefficients add up in absolute value.
            doubt = sum(
                (
                    abs(Fraction(r) - row_gain[j] * w) + gain_error[j] * abs(w)
                    for r, w in zip(rounded, exact, strict=True)
                ),
                Fraction(0),
            )
            rows[j] = rounded
            weight_error[j] = float_above(doubt)
    is_exact = not np.any(weight_error) and not np.any(bias_error)
    return OutputLayer(
        rows,
        bias,
        weight_error,
        bias_error,
        affine.group,
        gain,
        gain_is_one,
        stage.name,
        stage.bits,
        None if is_exact else stage,
    )
