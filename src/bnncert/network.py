r"""The normal form of a binary network: threshold layers and a linear output.

    x_i = sign(W_i x_{i-1} + b_i) in {-1,+1}^{n_i},  i = 1..L,      scores = W_{L+1} x_L + b_{L+1}

Only the first layer sees real numbers.  From the second layer on, W_i x_{i-1} is an integer with
the parity of nv = sum |w|, and a neuron is described by one integer p: it *may be* +1 iff
w.y >= p and -1 iff w.y <= q, with q = p - 2 (or q = p for a tie, if sign(0) may be either).
In the first layer the bias is enclosed by two floats (equal unless batch normalisation made it
irrational), and a point between them has no certain sign.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.errors import InputError, UnsupportedModelError
from bnncert.formats import read_description, write_description
from bnncert.formats.description import (
    LARGEST_INTEGER_WEIGHT,
    Convolution,
    FloatArray,
    IntArray,
    ModelDescription,
    OutputTransform,
    Shift,
    SignZero,
    Stage,
    as_sparse,
    take_step,
)
from bnncert.operators import Operator, make_operator
from bnncert.rationals import Interval, float_above
from bnncert.signed_sums import SignedSums
from bnncert.thresholds import (
    affine_coefficients,
    lattice_thresholds,
    real_thresholds,
)

SignArray = npt.NDArray[np.int8]

#: Unit roundoff of float64.
ROUNDOFF = 2.0**-53

#: How many ways to settle ties are tried when sign(0) may be either.
MOST_TIE_CHOICES = 4096

#: Floats in flight at once in a batched evaluation.
BATCH_FLOATS = 2**25


@dataclass(frozen=True, eq=False)
class ThresholdLayer:
    """One layer x = sign(W y + b).

    Attributes
    ----------
    weights
        CSR, rows are neurons; int8 for ternary weights, int32 for other integers, else float64.
    bias
        A float bias that describes the neuron (exactly, for all inputs that can occur, in
        layers with signs as inputs; rounded within [bias_lo, bias_hi] in the first layer).
    on_from, tie
        For layers whose inputs are signs: the smallest lattice value p with F(p) >= 0, and
        whether F(p) = 0.  None in the first layer.
    bias_lo, bias_hi
        For the first layer: floats that enclose the bias.  None elsewhere.
    sign_zero
        What sign(0) is in this layer.
    """

    weights: Any
    bias: FloatArray
    sign_zero: SignZero
    name: str
    on_from: IntArray | None = None
    tie: npt.NDArray[np.bool_] | None = None
    bias_lo: FloatArray | None = None
    bias_hi: FloatArray | None = None
    convolution: Convolution | None = None
    flip: npt.NDArray[np.int8] | None = None
    fixed_sign_zero: bool = False

    @property
    def size(self) -> int:
        """The number of neurons."""
        return int(self.weights.shape[0])

    @property
    def inputs(self) -> int:
        """The number of inputs of the layer."""
        return int(self.weights.shape[1])

    @property
    def is_lattice(self) -> bool:
        """Whether the pre-activations are integers (every layer but the first)."""
        return self.on_from is not None

    @cached_property
    def norm(self) -> FloatArray:
        """The row-wise 1-norm nv of the weights."""
        return np.asarray(abs(self.weights).sum(axis=1), dtype=np.float64).reshape(-1)

    @cached_property
    def plus_from(self) -> IntArray:
        """The smallest lattice value at which x = +1 is allowed."""
        assert self.on_from is not None and self.tie is not None
        return self.on_from + 2 * self.tie if self.sign_zero == "minus" else self.on_from

    @cached_property
    def minus_upto(self) -> IntArray:
        """The largest lattice value at which x = -1 is allowed."""
        assert self.on_from is not None and self.tie is not None
        if self.sign_zero == "either":
            return self.on_from - 2 + 2 * self.tie
        return self.plus_from - 2

    def operator(self, dtype: npt.DTypeLike = np.float64) -> Operator:
        """Return the fast form of the weights (made once for each dtype)."""
        key = np.dtype(dtype).str
        if key not in self._operators:
            self._operators[key] = make_operator(self.weights, self.convolution, self.flip, dtype)
        return self._operators[key]

    @cached_property
    def _operators(self) -> dict[str, Operator]:
        return {}

    def threshold(self, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Return c such that x = +1 iff W y >= c in floating point ("either" counts as plus)."""
        if self.on_from is not None:
            # Half way between two lattice points, where no rounding can matter.
            return (self.plus_from - 1).astype(dtype)
        limit = (-self.bias).astype(dtype)
        # Among floats, being above a number is reaching the next one.
        return np.nextafter(limit, np.inf) if self.sign_zero == "minus" else limit

    def exact_signs(self, point: Sequence[Fraction] | npt.NDArray[Any]) -> SignArray:
        """Return the sign of every neuron at one point, decided in exact arithmetic.

        An entry is 0 where both signs are possible: the threshold's enclosure does not decide
        it, or it is a tie and sign(0) may be either.
        """
        if self.on_from is not None:
            total = self._integer_sums(np.asarray(point, dtype=np.int8))
            plus, minus = total >= self.plus_from, total <= self.minus_upto
            return np.where(plus & minus, 0, np.where(plus, 1, -1)).astype(np.int8)
        assert self.bias_lo is not None and self.bias_hi is not None
        signs = np.zeros(self.size, dtype=np.int8)
        undecided: npt.NDArray[Any] = np.arange(self.size)
        if isinstance(point, np.ndarray):
            # A float evaluation decides every neuron that is farther from its threshold than
            # the rounding error of a dot product can reach; the rest is done in rationals.
            value = self.operator(np.float64).forward(point[None, :])[0]
            terms = np.diff(self.weights.indptr) + 2
            reach = self.norm * np.abs(point).max(initial=0.0) + np.abs(self.bias_hi)
            error = 1.01 * terms * ROUNDOFF * reach + 1e-300
            signs[value + self.bias_lo > error] = 1
            signs[value + self.bias_hi < -error] = -1
            undecided = np.flatnonzero(signs == 0)
        exact = [Fraction(v) for v in point] if undecided.size else []
        for j in undecided:
            start, stop = self.weights.indptr[j], self.weights.indptr[j + 1]
            columns, data = self.weights.indices[start:stop], self.weights.data[start:stop]
            exact_sum = sum(
                (
                    Fraction(w) * exact[i]
                    for i, w in zip(columns.tolist(), data.tolist(), strict=True)
                ),
                Fraction(0),
            )
            signs[j] = self._settle(
                exact_sum + Fraction(float(self.bias_lo[j])),
                exact_sum + Fraction(float(self.bias_hi[j])),
            )
        return signs

    def _integer_sums(self, signs: SignArray) -> npt.NDArray[Any]:
        # Sums of fewer than 2^24 units are exact in float32, whatever the order of summation.
        if float(self.norm.max(initial=0.0)) < 2**24:
            batch = signs[None, :].astype(np.float32)
            return np.asarray(self.operator(np.float32).forward(batch)[0])
        return np.asarray(self.weights.astype(np.int64) @ signs.astype(np.int64))

    def _settle(self, low: Fraction, high: Fraction) -> int:
        if low > 0:
            return 1
        if high < 0:
            return -1
        if low == high == 0:
            return {"plus": 1, "minus": -1, "either": 0}[self.sign_zero]
        return 0


@dataclass(frozen=True, eq=False)
class OutputLayer:
    """scores = gain * (W x + b), row j known to within gain * error_j.

    `gain` is a positive factor that all rows share: it never changes a comparison of scores.
    Rows of one `group` have the same bias exactly, even where it is irrational.
    """

    weights: FloatArray
    bias: FloatArray
    error: FloatArray
    group: IntArray
    gain: float = 1.0
    name: str = "output"

    @property
    def classes(self) -> int:
        """The number of scores."""
        return int(self.weights.shape[0])

    def exactly(self, signs: npt.NDArray[Any]) -> list[Fraction]:
        """Return W x + b at one sign vector, in rationals."""
        sums = self._sums.exactly(signs)
        return [s + Fraction(b) for s, b in zip(sums, self.bias.tolist(), strict=True)]

    @cached_property
    def _sums(self) -> SignedSums:
        return SignedSums(self.weights)


@dataclass(frozen=True, eq=False)
class Network:
    """A binary network in normal form.

    Attributes
    ----------
    layers
        The threshold layers, first to last.
    output
        The linear output.
    input_shape
        The shape that an input has in its file; points are flattened in C order.
    input_lo, input_hi
        The data box, where the file states one.
    notes
        Things a user should know, e.g. thresholds that float32 execution makes ambiguous.
    """

    layers: tuple[ThresholdLayer, ...]
    output: OutputLayer
    input_shape: tuple[int, ...]
    input_lo: FloatArray | None = None
    input_hi: FloatArray | None = None
    output_transform: OutputTransform = "scores"
    source: str = "<memory>"
    kind: str = "memory"
    notes: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)

    # -- construction ---------------------------------------------------------------------

    @staticmethod
    def from_description(description: ModelDescription) -> Network:
        """Bring a described model to normal form, deciding every threshold exactly."""
        return _normal_form(description)

    @staticmethod
    def from_arrays(
        weights: Sequence[npt.ArrayLike],
        biases: Sequence[npt.ArrayLike],
        *,
        sign_zero: SignZero | None = None,
        input_lo: npt.ArrayLike | None = None,
        input_hi: npt.ArrayLike | None = None,
        input_shape: Sequence[int] | None = None,
    ) -> Network:
        """Build a network from W_1, .., W_{L+1} and b_1, .., b_{L+1} (rows are neurons)."""
        from bnncert.formats.arrays import describe_arrays

        return _normal_form(
            describe_arrays(
                [np.asarray(w) for w in weights],
                [np.asarray(b, dtype=np.float64) for b in biases],
                source="<arrays>",
                kind="memory",
                sign_zero=sign_zero,
                input_lo=None if input_lo is None else np.asarray(input_lo, dtype=np.float64),
                input_hi=None if input_hi is None else np.asarray(input_hi, dtype=np.float64),
                input_shape=None if input_shape is None else tuple(int(n) for n in input_shape),
            )
        )

    def with_sign_zero(self, sign_zero: SignZero) -> Network:
        """Return the network with another value of sign(0) in every layer."""
        if sign_zero not in ("plus", "minus", "either"):
            raise InputError(f"sign-zero is {sign_zero!r}; expected plus, minus or either")
        layers = tuple(replace(layer, sign_zero=sign_zero) for layer in self.layers)
        return replace(self, layers=layers)

    # -- reading state --------------------------------------------------------------------

    @property
    def inputs(self) -> int:
        """The number of inputs n_0."""
        return int(np.prod(self.input_shape, dtype=np.int64))

    @property
    def depth(self) -> int:
        """The number of threshold layers L."""
        return len(self.layers)

    @property
    def classes(self) -> int:
        """The number of scores."""
        return self.output.classes

    @property
    def sizes(self) -> tuple[int, ...]:
        """The layer sizes n_0, n_1, .., n_L, n_{L+1}."""
        return (self.inputs, *(layer.size for layer in self.layers), self.classes)

    @property
    def zero_fraction(self) -> float:
        """The weight sparsity of the paper: 1 - (non-zero weights) / (all weights)."""
        nonzero = sum(int(layer.weights.nnz) for layer in self.layers)
        nonzero += int(np.count_nonzero(self.output.weights))
        cells = sum(layer.size * layer.inputs for layer in self.layers) + self.output.weights.size
        return 1.0 - nonzero / max(1, cells)

    @property
    def sign_zero(self) -> str:
        """The value of sign(0), or "mixed" if layers differ."""
        values = {layer.sign_zero for layer in self.layers}
        return values.pop() if len(values) == 1 else "mixed" if values else "plus"

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the normal form: equal for equal networks, whatever file they came from."""
        digest = hashlib.sha256(b"bnncert network 1\n")

        def add(tag: str, array: npt.NDArray[Any]) -> None:
            digest.update(f"{tag} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())

        for layer in self.layers:
            digest.update(f"layer {layer.weights.shape} {layer.sign_zero}\n".encode())
            add("indptr", layer.weights.indptr.astype("<i8"))
            add("indices", layer.weights.indices.astype("<i8"))
            # By value, not by storage type: int8 and float64 files of one network agree.
            add("weights", layer.weights.data.astype("<f8"))
            if layer.on_from is not None and layer.tie is not None:
                add("on_from", layer.on_from.astype("<i8"))
                add("tie", layer.tie.astype("u1"))
            elif layer.bias_lo is not None and layer.bias_hi is not None:
                # Adding zero turns -0.0 into +0.0.
                add("bias_lo", (layer.bias_lo + 0.0).astype("<f8"))
                add("bias_hi", (layer.bias_hi + 0.0).astype("<f8"))
        add("output", (self.output.weights + 0.0).astype("<f8"))
        add("output bias", (self.output.bias + 0.0).astype("<f8"))
        add("output error", self.output.error.astype("<f8"))
        return digest.hexdigest()

    # -- evaluation -----------------------------------------------------------------------

    def flatten(self, points: npt.ArrayLike) -> tuple[FloatArray, bool]:
        """Return points as rows of float64, and whether a single point was given."""
        array = np.asarray(points, dtype=np.float64)
        single = array.shape == self.input_shape or array.ndim <= 1
        if (
            array.size == 0
            or array.size % max(1, self.inputs)
            or (single and array.size != self.inputs)
        ):
            raise InputError(
                f"input of shape {array.shape}; the network takes {self.inputs} values, "
                f"shape {self.input_shape}"
            )
        return array.reshape(-1, self.inputs), single

    def last_signs(
        self, points: npt.NDArray[Any], dtype: npt.DTypeLike = np.float64
    ) -> npt.NDArray[Any]:
        """Return x_L for each row of `points`, in floating point (exact from layer 2 on)."""
        widest = max(
            layer.size
            if layer.convolution is None
            else layer.size
            * layer.convolution.kernel[0].size
            // max(1, layer.convolution.kernel.shape[0])
            for layer in self.layers
        )
        chunk = max(1, BATCH_FLOATS // widest)
        parts = []
        for start in range(0, points.shape[0], chunk):
            signs = points[start : start + chunk].astype(dtype, copy=False)
            # From layer 2 on the sums are small integers, exact in float32.
            for number, layer in enumerate(self.layers):
                kind = dtype if number == 0 else np.float32
                value = layer.operator(kind).forward(signs)
                signs = np.where(value >= layer.threshold(kind), np.float32(1), np.float32(-1))
            parts.append(signs)
        return np.concatenate(parts)

    def evaluate(self, points: npt.ArrayLike) -> FloatArray:
        """Return the scores of one point or of a batch, in floating point."""
        batch, single = self.flatten(points)
        signs = self.last_signs(batch).astype(np.float64)
        scores = self.output.gain * (signs @ self.output.weights.T + self.output.bias)
        return np.asarray(scores[0] if single else scores, dtype=np.float64)

    def classify(self, points: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the class with the highest score (the first, on a tie) of each point."""
        return np.asarray(np.argmax(np.atleast_2d(self.evaluate(points)), axis=1))

    def exact_patterns(
        self, point: Sequence[Fraction] | FloatArray
    ) -> Iterator[tuple[SignArray, ...]]:
        """Yield the signs of all layers at one point, in exact rational arithmetic.

        There is one pattern unless ties may go either way (then up to MOST_TIE_CHOICES), and
        none when the enclosure of an irrational threshold does not decide a neuron.
        """

        def extend(
            current: Sequence[Fraction] | npt.NDArray[Any], depth: int
        ) -> Iterator[tuple[SignArray, ...]]:
            if depth == self.depth:
                yield ()
                return
            layer = self.layers[depth]
            signs = layer.exact_signs(current)
            open_ = np.flatnonzero(signs == 0)
            if open_.size and layer.sign_zero != "either":
                return
            choices = [(1, -1)] * int(open_.size)
            for choice in product(*choices):
                chosen = signs.copy()
                chosen[open_] = choice
                for rest in extend(chosen, depth + 1):
                    yield (chosen, *rest)

        for number, pattern in enumerate(extend(point, 0)):
            if number >= MOST_TIE_CHOICES:
                return
            yield pattern

    def evaluate_exactly(self, point: Sequence[Fraction] | npt.ArrayLike) -> list[Fraction] | None:
        """Return the exact scores at one point, divided by the output's common `gain`.

        None when the network's value is not determined there (see :meth:`exact_patterns`), or
        when an irrational output bias leaves the scores themselves inexact.
        """
        exact: Any = point
        if not (isinstance(point, Sequence) and len(point) and isinstance(point[0], Fraction)):
            exact = self.flatten(np.asarray(point))[0][0]
        patterns = list(self.exact_patterns(exact))
        if len(patterns) != 1 or np.any(self.output.error > 0):
            return None
        return self.output.exactly(patterns[0][-1])

    # -- writing --------------------------------------------------------------------------

    def describe(self) -> ModelDescription:
        """Return a description that writers can save and that reads back as this network."""
        stages = []
        for layer in self.layers:
            if layer.is_lattice:
                # p is written as the bias half way into its gap, or exactly on a tie: readers
                # in any precision then agree on every lattice point.
                assert layer.on_from is not None and layer.tie is not None
                bias = np.where(layer.tie, -layer.on_from, 1 - layer.on_from).astype(np.float64)
            else:
                assert layer.bias_lo is not None and layer.bias_hi is not None
                inexact = np.flatnonzero(layer.bias_lo != layer.bias_hi)
                if inexact.size:
                    raise InputError(
                        f"{layer.name}: neuron {int(inexact[0])} has an irrational bias (batch "
                        "normalisation before real inputs); it cannot be written as a float"
                    )
                bias = layer.bias_lo
            stages.append(
                Stage(
                    weights=layer.weights,
                    steps=(Shift(bias),),
                    name=layer.name,
                    sign_zero=layer.sign_zero,
                    structural=True,
                )
            )
        if np.any(self.output.error > 0):
            raise InputError(f"{self.output.name}: irrational output biases cannot be written")
        stages.append(
            Stage(
                weights=as_sparse(self.output.weights),
                steps=(Shift(self.output.bias),),
                name=self.output.name,
            )
        )
        return ModelDescription(
            stages=tuple(stages),
            input_shape=self.input_shape,
            input_lo=self.input_lo,
            input_hi=self.input_hi,
            output_transform="scores",
            source=self.source,
            kind=self.kind,
            metadata=self.metadata,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network; the suffix chooses the format (.npz, .json, .onnx)."""
        write_description(self.describe(), Path(path))


def load(path: str | os.PathLike[str]) -> Network:
    """Read a network from an .npz, .json or .onnx file (plain or gzipped)."""
    return Network.from_description(read_description(Path(path)))


# -- from a description to the normal form ------------------------------------------------


def _normal_form(description: ModelDescription) -> Network:
    *hidden, last = description.stages
    if not hidden:
        raise UnsupportedModelError(
            f"{description.source}: the model has no sign activation; it is not a binary network"
        )
    notes: list[str] = []
    layers: list[ThresholdLayer] = []
    width = int(np.prod(description.input_shape, dtype=np.int64))
    for stage in hidden:
        _check_stage(stage, width, description.source)
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
    if output.gain != 1.0:
        notes.append(
            f"all scores share the factor {output.gain:.6g}, which is not a float; bounds and "
            "margins are given without it"
        )
    lo, hi = (_data_bound(b, description) for b in (description.input_lo, description.input_hi))
    if lo is not None and hi is not None and bool(np.any(lo > hi)):
        raise UnsupportedModelError(f"{description.source}: input_lo is above input_hi")
    return Network(
        layers=tuple(layers),
        output=output,
        input_shape=description.input_shape,
        input_lo=lo,
        input_hi=hi,
        output_transform=description.output_transform,
        source=description.source,
        kind=description.kind,
        notes=tuple(notes),
        metadata=dict(description.metadata),
    )


def _data_bound(bound: FloatArray | None, description: ModelDescription) -> FloatArray | None:
    if bound is None:
        return None
    count = int(np.prod(description.input_shape, dtype=np.int64))
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


def _check_integer_weights(stage: Stage, source: str) -> Any:
    """Return the weights as integers; only pooling may have made them other than -1, 0, 1."""
    weights = stage.weights
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


def _threshold_layer(stage: Stage, number: int, source: str, notes: list[str]) -> ThresholdLayer:
    where = f"{source}: {stage.name}"
    sign_zero: SignZero = stage.sign_zero or "plus"
    steps = stage.steps
    if stage.pool is not None:
        steps = tuple(take_step(step, _pool_owner(stage, source)) for step in steps)
    weights = stage.weights
    if number == 0:
        if np.all(weights.data == np.rint(weights.data)) and np.all(np.abs(weights.data) <= 127):
            weights = weights.astype(np.int8)
        else:
            weights = weights.astype(np.float64)
        real = real_thresholds(steps, weights.shape[0], where)
        weights = _flip_rows(weights, real.direction)
        middle = real.bias_lo + (real.bias_hi - real.bias_lo) / 2
        return ThresholdLayer(
            weights=weights,
            bias=middle,
            sign_zero=sign_zero,
            name=stage.name,
            bias_lo=real.bias_lo,
            bias_hi=real.bias_hi,
            convolution=stage.convolution,
            flip=_flips(real.direction),
            fixed_sign_zero=stage.sign_zero is not None,
        )
    weights = _check_integer_weights(stage, source)
    norm = np.asarray(abs(weights.astype(np.int64)).sum(axis=1)).reshape(-1)
    lattice = lattice_thresholds(steps, norm, where)
    weights = _flip_rows(weights, lattice.direction)
    doubtful = np.flatnonzero(lattice.ambiguous)
    if doubtful.size:
        notes.append(
            f"{stage.name}: {doubtful.size} of {norm.size} thresholds lie within float32 "
            f"rounding of a lattice point (first: neuron {int(doubtful[0])}); bnncert decides "
            "them exactly, a float32 execution may not"
        )
    return ThresholdLayer(
        weights=weights,
        bias=lattice.bias,
        sign_zero=sign_zero,
        name=stage.name,
        on_from=lattice.on_from,
        tie=lattice.tie,
        convolution=stage.convolution,
        flip=_flips(lattice.direction),
        fixed_sign_zero=stage.sign_zero is not None,
    )


def _flips(direction: npt.NDArray[np.int8]) -> npt.NDArray[np.int8] | None:
    return None if np.all(direction == 1) else direction


def _flip_rows(weights: Any, direction: npt.NDArray[np.int8]) -> Any:
    if np.all(direction == 1):
        return weights
    # Multiplying the data in place of a matrix product keeps the dtype and avoids a copy of
    # the index arrays.
    factor = np.repeat(direction, np.diff(weights.indptr)).astype(weights.data.dtype)
    flipped = sp.csr_array(
        (weights.data * factor, weights.indices, weights.indptr), shape=weights.shape
    )
    if np.any(direction == 0):
        flipped.eliminate_zeros()
    return flipped


def _pool_owner(stage: Stage, source: str) -> IntArray:
    """Return, for each neuron before pooling, a pooling window whose steps apply to it."""
    incidence = stage.pool.tocoo()
    owner = np.full(stage.weights.shape[0], -1, dtype=np.int64)
    owner[incidence.col] = incidence.row
    if np.any(owner < 0):
        raise UnsupportedModelError(f"{source}: {stage.name}: a pooled neuron has no window")
    for step in stage.steps:
        for array in step.__dict__.values():
            if np.any(array[incidence.row] != array[owner[incidence.col]]):
                raise UnsupportedModelError(
                    f"{source}: {stage.name}: overlapping pooling windows with different "
                    "normalisation are not supported"
                )
    return owner


def _pooled(layer: ThresholdLayer, stage: Stage) -> list[ThresholdLayer]:
    r"""Return the layer and the OR (or AND) layer that max-pooling before sign amounts to.

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
            weights=pool,
            bias=(1 - on_from).astype(np.float64),
            sign_zero=layer.sign_zero,
            name=f"{stage.name} (max-pool)",
            on_from=on_from,
            tie=np.zeros(k.size, dtype=bool),
            fixed_sign_zero=layer.fixed_sign_zero,
        ),
    ]


def _scales_exactly(rows: FloatArray, gain: Interval) -> bool:
    """Whether gain * w is a float for every weight w."""
    if not gain.is_exact:
        return False
    products = (gain.lo * Fraction(w) for w in np.unique(rows).tolist())
    return all(Fraction(float(v)) == v for v in products)


def _output_layer(stage: Stage, source: str) -> OutputLayer:
    rows = np.asarray(stage.weights.toarray(), dtype=np.float64)
    affine = affine_coefficients(stage.steps, rows.shape[0], f"{source}: {stage.name}")
    if any(g.lo <= 0 <= g.hi and not g.is_exact for g in affine.gain):
        raise UnsupportedModelError(f"{source}: {stage.name}: a score has an undecided scale")
    shared = affine.gain[0]
    gain = 1.0
    offset = list(affine.offset)
    common = all(g == shared for g in affine.gain) and shared.lo > 0
    if common and not _scales_exactly(rows, shared):
        # One factor for all rows changes no comparison: keep the weights as they are.
        gain = float(shared.lo)
        offset = [c / shared for c in offset]
        row_gain = [Fraction(1)] * rows.shape[0]
        gain_error = [Fraction(0)] * rows.shape[0]
    else:
        row_gain = [Fraction(float((g.lo + g.hi) / 2)) for g in affine.gain]
        gain_error = [
            max(abs(g.hi - m), abs(m - g.lo)) for g, m in zip(affine.gain, row_gain, strict=True)
        ]
    bias = np.array([float((c.lo + c.hi) / 2) for c in offset])
    error = np.zeros(rows.shape[0])
    for j, c in enumerate(offset):
        middle = Fraction(bias[j])
        doubt = max(abs(c.hi - middle), abs(middle - c.lo))
        if row_gain[j] != 1 or gain_error[j]:
            exact = [Fraction(w) for w in rows[j].tolist()]
            rounded = [float(row_gain[j] * w) for w in exact]
            # |x| = 1, so the errors of the coefficients add up in absolute value.
            doubt += sum(
                (abs(Fraction(r) - row_gain[j] * w) + gain_error[j] * abs(w))
                for r, w in zip(rounded, exact, strict=True)
            )
            rows[j] = rounded
        error[j] = float_above(doubt)
    return OutputLayer(rows, bias, error, affine.group, gain, stage.name)
