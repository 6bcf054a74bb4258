r"""Binary networks in normal form: evaluation, identity and writing.

    x_i = sign(W_i x_{i-1} + b_i) in {-1,+1}^{n_i},  i = 1..L,      scores = W_{L+1} x_L + b_{L+1}

Only the first layer has real inputs; all layers above it are exact integer arithmetic.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray, optional_floats
from bnncert.errors import InputError
from bnncert.model.description import FileFacts, ModelDescription, Shift, SignZero, Stage
from bnncert.model.formats.model_files import write_description
from bnncert.model.formats.weight_arrays import array_stages
from bnncert.model.layers import TIED, UNDECIDED, OutputLayer, ThresholdLayer
from bnncert.model.matrices import as_sparse
from bnncert.model.normal_form import normal_form
from bnncert.model.text_table import PrintedAsTable, TextTable

#: Layers that a table shows; of more layers the first and the last ones.
MOST_LAYERS = 8

HEADS = ("layer", "kind", "neurons", "inputs", "weights", "zeros", "sign(0)")


def layer_table(
    above: str, layers: Sequence[ThresholdLayer], output: OutputLayer, below: Sequence[str]
) -> TextTable:
    """Tabulate the layers, one row each: neurons, inputs, weights and sign(0)."""
    rows = []
    for number, layer in enumerate(layers, start=1):
        kind = "dense" if layer.convolution is None else "convolution"
        cells = _matrix_cells(layer.size, layer.inputs, layer.rows.data)
        rows.append([str(number), kind, *cells, layer.sign_zero])
    if len(rows) > MOST_LAYERS:
        half = MOST_LAYERS // 2
        rows = [*rows[:half], ["...", *[""] * (len(HEADS) - 1)], *rows[-half:]]
    last = _matrix_cells(output.classes, output.weights.shape[1], output.weights)
    rows.append(["output", "dense", *last, ""])
    return TextTable(above, HEADS, rows, below, left=2)


def _matrix_cells(neurons: int, inputs: int, weights: Any) -> list[str]:
    """Describe a matrix in cells: its size, its values, and the share of zeros."""
    cells = neurons * inputs
    nonzero = weights[weights != 0]
    return [str(neurons), str(inputs), weight_values(nonzero, cells), zero_share(nonzero, cells)]


def weight_values(nonzero: npt.NDArray[Any], cells: int) -> str:
    """Name the weights of a matrix of so many cells, of which these are not zero."""
    if nonzero.size == 0:
        return "0"
    if np.all(np.abs(nonzero) == 1):
        return "-1, 1" if nonzero.size == cells else "-1, 0, 1"
    if np.all(nonzero == np.rint(nonzero)):
        return f"integers up to {int(np.abs(nonzero).max())}"
    return "real"


def zero_share(nonzero: npt.NDArray[Any], cells: int) -> str:
    """Say how many weights of a matrix of so many cells are zero, in percent."""
    return f"{100 * (1.0 - nonzero.size / max(1, cells)):.1f} %"


def _as_in_the_file(layer: ThresholdLayer | OutputLayer, **changes: Any) -> Stage:
    """Take the numbers of the file that a layer was read from."""
    if layer.described is None:
        raise InputError(
            f"{layer.name}: the layer has irrational numbers and does not come from a file; it "
            "cannot be written"
        )
    return replace(layer.described, **changes)


#: The number of ways to decide ties that are tried when sign(0) may be either.
MOST_TIE_CHOICES = 4096

#: The number of floats that a batched evaluation keeps in memory.
BATCH_FLOATS = 2**25


@dataclass(frozen=True, eq=False)
class Network(FileFacts, PrintedAsTable):
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
        The data box, if the file states one.
    output_transform
        What the file applies to the scores, which does not change their order.
    source, kind
        The file that the network was read from, and its format.
    notes
        Remarks for the user, e.g. thresholds that are ambiguous in float32.
    metadata
        Texts that the file has beside the model.
    pixel_step
        Input units per pixel level, if the file states it; not part of `content_hash`.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays(
    ...     [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0], [0, 0]], input_lo=-1, input_hi=1
    ... )
    >>> print(net)
    Network 2-2-2, <arrays>
      layer   kind   neurons  inputs  weights  zeros  sign(0)
      1       dense        2       2    -1, 1  0.0 %     plus
      output  dense        2       2    -1, 1  0.0 %
    inputs of shape 2 in [-1, 1]
    >>> net.classify([[0.5, 0], [-0.5, 0]]).tolist()
    [0, 1]
    """

    layers: tuple[ThresholdLayer, ...]
    output: OutputLayer
    input_shape: tuple[int, ...]
    input_lo: FloatArray | None = None
    input_hi: FloatArray | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Network({'-'.join(map(str, self.sizes))}, {os.path.basename(self.source)})"

    def table(self) -> TextTable:
        """Tabulate the layers, and what the file says about the inputs."""
        inputs = f"inputs of shape {' x '.join(map(str, self.input_shape))}"
        if self.input_lo is not None and self.input_hi is not None:
            inputs += f" in [{self.input_lo.min():g}, {self.input_hi.max():g}]"
        if self.pixel_step is not None:
            inputs += f", one pixel level is {self.pixel_step:.6g}"
        sizes = "-".join(map(str, self.sizes))
        title = f"Network {sizes}, {os.path.basename(self.source)}"
        return layer_table(title, self.layers, self.output, [inputs, *self.notes])

    # -- construction ---------------------------------------------------------------------

    @staticmethod
    def from_description(description: ModelDescription) -> Network:
        """Bring a described model to normal form, deciding every threshold exactly."""
        form = normal_form(description)
        # The fields of the normal form are fields of a network, too.
        return Network(**vars(form), input_shape=description.input_shape, **description.facts())

    @staticmethod
    def from_arrays(
        weights: Sequence[npt.ArrayLike],
        biases: Sequence[npt.ArrayLike],
        *,
        sign_zero: SignZero | None = None,
        input_lo: npt.ArrayLike | None = None,
        input_hi: npt.ArrayLike | None = None,
        input_shape: Sequence[int] | None = None,
        pixel_step: float | None = None,
    ) -> Network:
        """Build a network from W_1, .., W_{L+1} and b_1, .., b_{L+1} (rows are neurons).

        Parameters
        ----------
        weights, biases
            The matrices and vectors of the layers, of which the last one is the output.
        sign_zero
            The value of sign(0): "plus" (the default), "minus" or "either".
        input_lo, input_hi
            The data box: one number for all inputs, or one for each.
        input_shape
            The shape of one input (default: one axis).
        pixel_step
            Input units per pixel level.

        Raises
        ------
        InputError
            If shapes do not fit, or a layer after the first has weights that are not integers.
        """
        source = "<arrays>"
        stages = array_stages(
            [np.asarray(w) for w in weights],
            [np.asarray(b, dtype=np.float64) for b in biases],
            source,
            sign_zero=sign_zero,
        )
        shape = () if input_shape is None else tuple(int(n) for n in input_shape)
        return Network.from_description(
            ModelDescription(
                stages,
                shape or stages[0].weights.shape[1:],
                optional_floats(input_lo),
                optional_floats(input_hi),
                source=source,
                pixel_step=pixel_step,
            )
        )

    def with_sign_zero(self, sign_zero: SignZero | None) -> Network:
        """Replace the value of sign(0) in every layer (None: unchanged)."""
        if sign_zero is None:
            return self
        if sign_zero not in ("plus", "minus", "either"):
            raise InputError(f"sign-zero is {sign_zero!r}; expected plus, minus or either")
        layers = tuple(replace(layer, sign_zero=sign_zero) for layer in self.layers)
        return replace(self, layers=layers)

    # -- reading state --------------------------------------------------------------------

    @property
    def inputs(self) -> int:
        """The number of inputs n_0."""
        return math.prod(self.input_shape)

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
        nonzero = sum(int(layer.rows.nnz) for layer in self.layers)
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
        """SHA-256 of the normal form; it does not depend on the format of the file."""
        digest = hashlib.sha256(b"bnncert network 1\n")

        def add(tag: str, array: npt.NDArray[Any]) -> None:
            digest.update(f"{tag} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())

        for layer in self.layers:
            digest.update(f"layer {layer.rows.shape} {layer.sign_zero}\n".encode())
            add("indptr", layer.rows.indptr.astype("<i8"))
            add("indices", layer.rows.indices.astype("<i8"))
            # Values are hashed in one type: int8 and float64 files give the same hash.
            add("weights", layer.rows.data.astype("<f8"))
            if layer.on_from is not None and layer.tie is not None:
                add("on_from", layer.on_from.astype("<i8"))
                add("tie", layer.tie.astype("u1"))
                if layer.slack is not None:
                    add("slack", layer.slack.astype("<i8"))
            elif layer.bias_lo is not None and layer.bias_hi is not None:
                # Adding zero turns -0.0 into +0.0.
                add("bias_lo", (layer.bias_lo + 0.0).astype("<f8"))
                add("bias_hi", (layer.bias_hi + 0.0).astype("<f8"))
        add("output", (self.output.weights + 0.0).astype("<f8"))
        add("output bias", (self.output.bias + 0.0).astype("<f8"))
        add("output error", (self.output.weight_error + self.output.bias_error).astype("<f8"))
        return digest.hexdigest()

    # -- evaluation -----------------------------------------------------------------------

    def flatten(self, points: npt.ArrayLike) -> tuple[FloatArray, bool]:
        """Flatten points to rows of float64, and tell whether a single one was given."""
        try:
            array = np.asarray(points, dtype=np.float64)
        except (TypeError, ValueError):
            kind = type(points).__name__
            raise InputError(f"expected a point, or rows of points, not a {kind}") from None
        single = array.shape in (self.input_shape, (self.inputs,))
        batch = array.ndim > 1 and array.shape[1:] in (self.input_shape, (self.inputs,))
        if not (single or batch) or array.size == 0:
            raise InputError(
                f"input of shape {array.shape}; the network takes {self.inputs} values, "
                f"shape {self.input_shape}"
            )
        if not np.all(np.isfinite(array)):
            raise InputError("an input value is NaN or infinite; expected finite numbers")
        return array.reshape(-1, self.inputs), single

    def last_signs(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Evaluate x_L for each row of `points`, in floating point (exact from layer 2 on)."""
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
            signs: npt.NDArray[Any] = points[start : start + chunk].astype(np.float64, copy=False)
            # From layer 2 on the sums are small integers, exact in float32.
            for number, layer in enumerate(self.layers):
                kind = np.float64 if number == 0 else np.float32
                value = layer.operator(kind).forward(signs)
                signs = np.where(value >= layer.threshold(kind), np.float32(1), np.float32(-1))
            parts.append(signs)
        return np.concatenate(parts)

    def evaluate(self, points: npt.ArrayLike) -> FloatArray:
        """Evaluate the scores of one point or of a batch, in floating point."""
        batch, single = self.flatten(points)
        signs = self.last_signs(batch).astype(np.float64)
        scores = self.output.gain * (signs @ self.output.weights.T + self.output.bias)
        return np.asarray(scores[0] if single else scores, dtype=np.float64)

    def classify(self, points: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Find the class with the highest score (the first, on a tie) of each point."""
        return np.asarray(np.argmax(np.atleast_2d(self.evaluate(points)), axis=1))

    def exact_patterns(
        self, point: Sequence[Fraction] | FloatArray
    ) -> Iterator[tuple[SignArray, ...]]:
        """Yield the signs of all layers at one point, in exact rational arithmetic.

        There is one pattern unless signs at ties are undetermined (then up to MOST_TIE_CHOICES),
        and none if the enclosure of an irrational threshold does not decide a neuron.
        """

        def extend(
            current: Sequence[Fraction] | npt.NDArray[Any], depth: int
        ) -> Iterator[tuple[SignArray, ...]]:
            if depth == self.depth:
                yield ()
                return
            layer = self.layers[depth]
            signs = layer.exact_signs(current)
            if np.any(signs == UNDECIDED):
                return
            open_ = np.flatnonzero(signs == TIED)
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
        """Evaluate the exact scores at one point, divided by the common `gain` of the output.

        The result is None if signs are undetermined there (see :meth:`exact_patterns`), or if an
        irrational output bias makes the scores inexact.
        """
        exact: Any = point
        if isinstance(point, Sequence) and len(point) and isinstance(point[0], Fraction):
            if len(point) != self.inputs:
                raise InputError(f"point with {len(point)} values; expected {self.inputs}")
        else:
            batch, single = self.flatten(np.asarray(point))
            if not single:
                raise InputError("exact evaluation takes one point at a time")
            exact = batch[0]
        patterns = list(self.exact_patterns(exact))
        if len(patterns) != 1 or np.any(self.output.error > 0):
            return None
        return self.output.exactly(patterns[0][-1])

    # -- writing --------------------------------------------------------------------------

    def describe(self) -> ModelDescription:
        """Describe the network for writers, so that it is read back the same.

        Integer thresholds are stated as such.  Where floats cannot state a bias or a score, the
        layer is described by the numbers of its file, such as those of batch normalisation.
        """
        stages = []
        for layer in self.layers:
            if layer.slack is not None:
                raise InputError(f"{layer.name}: widened thresholds cannot be written")
            if layer.is_lattice:
                # The bias is half way between two lattice points, or exactly at a tie: readers in
                # any precision decide every lattice point in the same way.
                assert layer.on_from is not None and layer.tie is not None
                bias = np.where(layer.tie, -layer.on_from, 1 - layer.on_from).astype(np.float64)
            else:
                bias, bias_hi = layer.enclosure
                if np.any(bias != bias_hi):
                    stages.append(_as_in_the_file(layer, sign_zero=layer.sign_zero))
                    continue
            stages.append(
                Stage(
                    weights=layer.weights,
                    steps=(Shift(bias),),
                    name=layer.name,
                    sign_zero=layer.sign_zero,
                    structural=True,
                )
            )
        output = self.output
        if np.any(output.error > 0):
            stages.append(_as_in_the_file(output))
        else:
            plain = (Shift(output.bias),)
            stages.append(Stage(as_sparse(output.weights), plain, name=output.name))
        description = ModelDescription(
            stages=tuple(stages),
            input_shape=self.input_shape,
            input_lo=self.input_lo,
            input_hi=self.input_hi,
            **{**self.facts(), "output_transform": "scores"},
        )
        from_file = any(stage.bias is None for stage in stages)
        if from_file and Network.from_description(description).content_hash != self.content_hash:
            raise InputError(
                f"{self.source}: a layer with irrational numbers was changed after it was read; "
                "it cannot be written"
            )
        return description

    def save(
        self, path: str | os.PathLike[str], check: Callable[[Path], None] | None = None
    ) -> None:
        """Write the network; the suffix chooses the format (.npz, .json, .onnx).

        `check` is called with the path of the complete file before it replaces `path`; if it
        raises an exception, nothing is written.
        """
        write_description(self.describe(), Path(path), check)
