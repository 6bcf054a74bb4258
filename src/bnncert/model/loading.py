"""Networks from files and from PyTorch modules, random ones, and those of the package.

A network that was read is compared with its source, which PyTorch, onnxruntime or Keras executes.
A program that computes in floats may decide a neuron differently only if its sum lies within
rounding of the threshold.  If F(u) of a neuron has n terms, M is the sum of their absolute values
and u the unit roundoff, then every order of the operations has an error of at most

    (n u + 16 * 2^-24) M,

where 16 * 2^-24 is for the few operations after the sum and for constants that one side rounds to
float32.  The error is 0 where all terms are multiples of some q with M / q < 2^24: the inputs are
multiples of powers of two, so that sums with weights -1, 0, 1 are exact, and a factor behind such
a sum keeps its sign.  A point counts if no neuron is within its error of zero; scores are compared
up to their errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, optional_floats
from bnncert.errors import UnsupportedModelError
from bnncert.model.description import (
    CannotExecuteError,
    Divide,
    ElementwiseStep,
    Execution,
    ModelDescription,
    Normalise,
    Scale,
    Shift,
    SignZero,
    Stage,
)
from bnncert.model.formats.file_content import DEFAULT_LIMITS, Limits
from bnncert.model.formats.model_files import read_description
from bnncert.model.matrices import as_matrix, make_operator, row_norms
from bnncert.model.network import Network


def load(
    path: str | os.PathLike[str],
    layers: str | os.PathLike[str] | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Network:
    """Read a network from an .npz, .json, .onnx, Keras or PyTorch file (plain or gzipped).

    Parameters
    ----------
    path
        The file; its content, not its suffix, tells the format.
    layers
        The file that describes the layers of a PyTorch checkpoint, or of a Keras file with
        weights only (docs/importing.md).
    limits
        The limits of the file (docs/formats.md); raise them only for trusted files.

    Returns
    -------
    Network
        The network, with every threshold decided exactly.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the exception is also a FormatError.
    FormatError
        If the file is broken, truncated, larger than the limits, or of an unknown kind.
    UnsupportedModelError
        If the model is not a binary network that can be represented exactly, or if the program
        that it comes from computes something else at one of the inputs compared.
    MissingExtraError
        If the format needs a package that is not installed.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     net.save(os.path.join(folder, "net.onnx"))
    ...     again = bnncert.load(os.path.join(folder, "net.onnx"))
    >>> again.sizes, again.content_hash == net.content_hash
    ((2, 1, 2), True)
    """
    described = None if layers is None else Path(layers)
    return _imported(read_description(Path(path), described, limits))


def _imported(description: ModelDescription) -> Network:
    return compared(Network.from_description(description), description)


def from_torch(
    model: Any,
    input_shape: Sequence[int],
    *,
    roles: Mapping[Any, str] | None = None,
    weights: str | Mapping[str, str] | None = None,
    sign_zero: SignZero | None = None,
    input_lo: npt.ArrayLike | None = None,
    input_hi: npt.ArrayLike | None = None,
) -> Network:
    """Convert a module of PyTorch, as it computes in evaluation mode.

    The operators that it executes are read, and the network is compared with the module.

    Parameters
    ----------
    model
        The module, which is not changed.
    input_shape
        The shape of one input, without the batch axis.
    roles
        The types of modules whose operators cannot be read: "sign", "linear" or "conv2d", by their
        classes (``{MySign: "sign"}``).
    weights
        The quantiser of the weights: "sign", "ternary:T" or "as stored", for all layers of the
        classes Linear and Conv2d or by name (``{"0": "sign"}``).  They use their weights as stored
        by default; modules with a role need a quantiser.
    sign_zero
        The value of sign(0): by default, what the module computes there.
    input_lo, input_hi
        The data box.

    Returns
    -------
    Network
        The network, with every threshold decided exactly.

    Raises
    ------
    UnsupportedModelError
        If the module calls an unknown operator, is not a binary network that can be represented
        exactly, or computes something else than the network at one of the inputs compared.
    InputError
        If a role or quantiser is unknown.
    MissingExtraError
        If PyTorch is not installed.

    Examples
    --------
    >>> import bnncert, torch
    >>> class Sign(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.where(x >= 0, 1.0, -1.0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), Sign(), torch.nn.Linear(3, 2))
    >>> net = bnncert.from_torch(model, (4,), weights={"0": "sign"})
    >>> net.sizes, net.sign_zero
    ((4, 3, 2), 'plus')
    """
    from bnncert.model.formats.torch.module import describe_torch

    network = _imported(
        describe_torch(
            model,
            tuple(int(n) for n in input_shape),
            roles=roles,
            weights=weights,
            input_lo=optional_floats(input_lo),
            input_hi=optional_floats(input_hi),
        )
    )
    return network.with_sign_zero(sign_zero)


@dataclass(frozen=True, eq=False)
class DemoData:
    """The first 100 test images of MNIST: pixels 0..255 and labels."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]

    def point(self, index: int) -> npt.NDArray[np.float64]:
        """Scale an image to [-1, 1], as the bundled networks take it."""
        return np.asarray(self.pixels[index].astype(np.float64) / 127.5 - 1.0)


def load_demo_network(which: Literal["sparse", "dense", "certified"] = "sparse") -> Network:
    """Load a bundled network: 784-500-500-10 with 34 % (sparse) or 19 % (dense) zero weights.

    The third one, with a convolution, is trained to be certified on L-inf balls of 25 pixels.
    """
    with as_file(files("bnncert") / "data" / f"mnist_{which}.npz") as path:
        return load(path)


def load_demo_images() -> DemoData:
    """Load the bundled images."""
    with as_file(files("bnncert") / "data" / "mnist_test_100.npz") as path, np.load(path) as data:
        return DemoData(data["images"], data["labels"])


@dataclass(frozen=True)
class RandomNetwork:
    """A recipe: sizes with inputs and classes, and how many weights are zero.

    `nonzeros` (of each row, all layers below the output) replaces the share `zeros`.  Every weight
    is -1, 0 or +1; biases are uniform in [-1, 1] times the number of a row's non-zeros, so that
    nearly all neurons of the first layer are unstable on the data box [-1, 1].  The last class has
    no weights: with two classes the margin is a sum of +-1 times the last layer, as in the paper.
    The network is the same for the same seed.
    """

    sizes: tuple[int, ...]
    zeros: float = 0.0
    nonzeros: int | None = None
    seed: int = 0

    @property
    def text(self) -> str:
        """The recipe in one line."""
        share = f"zeros={self.zeros:g}" if self.nonzeros is None else f"nonzeros={self.nonzeros}"
        return f"random:{'-'.join(map(str, self.sizes))} {share} seed={self.seed}"

    def build(self) -> Network:
        """Return the network."""
        generator = np.random.default_rng(self.seed)
        weights, biases = [], []
        for below, above in pairwise(self.sizes[:-1]):
            layer = self._layer(generator, above, below)
            # A row of zeros would make a constant neuron.
            empty = np.flatnonzero(~layer.any(axis=1))
            layer[empty, generator.integers(0, below, empty.size)] = 1
            weights.append(layer)
            count = np.count_nonzero(layer, axis=1)
            biases.append(generator.uniform(-1.0, 1.0, above) * count)
        output = np.zeros((self.sizes[-1], self.sizes[-2]), dtype=np.int8)
        output[:-1] = generator.choice(np.array([-1, 1], dtype=np.int8), size=output[:-1].shape)
        weights.append(output)
        biases.append(np.zeros(self.sizes[-1]))
        return Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)

    def _layer(
        self, generator: np.random.Generator, above: int, below: int
    ) -> npt.NDArray[np.int8]:
        signs = generator.choice(np.array([-1, 1], dtype=np.int8), size=(above, below))
        if self.nonzeros is None:
            signs[generator.random((above, below)) < self.zeros] = 0
        elif self.nonzeros < below:
            kept = np.zeros((above, below), dtype=bool)
            for row in kept:
                row[generator.choice(below, self.nonzeros, replace=False)] = True
            signs[~kept] = 0
        return signs


#: The number of points of a small network, the least number, and the number of products of
#: weights and inputs between them.
MOST_POINTS, LEAST_POINTS, PRODUCTS = 256, 32, 2**30

#: Fewer comparable points than this are mentioned in a note.
FEW = 8

#: The share of M by which float32 constants and the steps after a sum may be wrong.
STEP_ERROR = 16 * 2.0**-24

#: Sums of fewer multiples of a common number than this are exact in float32.
EXACT_BELOW = 2.0**24

#: Inputs are multiples of 2^-BITS of the power of two above their range.
BITS = 8

#: The ranges of inputs that are tried where the model states none.
USUAL_RANGES = ((-1.0, 1.0), (0.0, 1.0), (0.0, 255.0))


def compared(network: Network, description: ModelDescription) -> Network:
    """Compare a network with its source; add a note if that was not possible on all points.

    Raises UnsupportedModelError if the network differs from its source at a point.
    """
    execution = description.execution
    if execution is None:
        return network
    products = sum(int(stage.weights.nnz) for stage in description.stages)
    count = max(LEAST_POINTS, min(MOST_POINTS, PRODUCTS // max(1, products)))
    groups = list(_points(network, count))
    points = np.concatenate([group.points for group in groups])
    try:
        outputs = execution.outputs(points)
    except CannotExecuteError as error:
        return _with_note(network, f"not compared with {execution.program}, which {error}")
    known = _follow(description, groups, execution)
    counted = _check(network, description, execution, points, outputs, known)
    if counted < FEW:
        where = f"{counted} of {len(points)}" if counted else f"none of {len(points)}"
        return _with_note(
            network,
            f"compared with {execution.program} at {where} inputs only: the others lie within "
            "rounding of a threshold",
        )
    if count < MOST_POINTS:
        return _with_note(
            network,
            f"compared with {execution.program} at {counted} inputs only, because it is large",
        )
    return network


def _with_note(network: Network, note: str) -> Network:
    return replace(network, notes=(*network.notes, note))


# -- points -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _PointGroup:
    """Points of one range; their values are multiples of `quantum` unless that is 0."""

    points: FloatArray
    #: The largest absolute value of each input.
    reach: FloatArray
    quantum: float


def _points(network: Network, count: int) -> Iterator[_PointGroup]:
    """Yield random points, corners of the data box, and points on both sides of thresholds."""
    rng = np.random.default_rng(0)
    ranges = [(network.input_lo, network.input_hi)]
    if network.input_lo is None or network.input_hi is None:
        ranges = [(np.full(network.inputs, a), np.full(network.inputs, b)) for a, b in USUAL_RANGES]
    for k, (lo, hi) in enumerate(ranges):
        assert lo is not None and hi is not None
        number = count // len(ranges) + (k < count % len(ranges))
        quarter = number // 4
        corners = np.where(rng.random((quarter, network.inputs)) < 0.5, lo, hi)
        corners[: min(2, quarter)] = np.stack([lo, hi])[: min(2, quarter)]
        # Inputs that are rounded to float32 are the same number for both programs.
        yield _group(corners.astype(np.float32).astype(np.float64), lo, hi)
        random = _snapped(_inside(rng, number - 2 * quarter, lo, hi), lo, hi)
        beside = _beside_thresholds(network, _inside(rng, quarter, lo, hi), lo, hi)
        yield _group(np.concatenate([random, beside]), lo, hi)


def _group(points: FloatArray, lo: FloatArray, hi: FloatArray) -> _PointGroup:
    reach = np.maximum(np.abs(lo), np.abs(hi))
    quantum = float(_quanta(reach).min())
    on_grid = bool(np.all(points / quantum == np.rint(points / quantum)))
    return _PointGroup(
        points, np.maximum(reach, np.abs(points).max(axis=0, initial=0)), on_grid * quantum
    )


def _inside(rng: np.random.Generator, count: int, lo: FloatArray, hi: FloatArray) -> FloatArray:
    # Points whose inputs are all independent have nearly the same sums; a common scale and
    # offset makes some of them bright and some dark.
    middle = rng.random((count, 1))
    width = rng.random((count, 1)) * np.minimum(middle, 1 - middle) * 2
    share = middle + (rng.random((count, lo.size)) - 0.5) * width
    share[::2] = rng.random(share[::2].shape)
    return np.asarray(lo + share * (hi - lo))


def _quanta(reach: FloatArray) -> FloatArray:
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(reach > 0, reach, 1.0))) - BITS))


def _snapped(points: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Round to the nearest multiples of the quanta inside the box, as far as there are any."""
    quanta = _quanta(np.maximum(np.abs(lo), np.abs(hi)))
    low, high = np.ceil(lo / quanta) * quanta, np.floor(hi / quanta) * quanta
    snapped = np.clip(np.rint(points / quanta) * quanta, low, high)
    return np.asarray(np.where(low <= high, snapped, lo.astype(np.float32)))


def _beside_thresholds(
    network: Network, points: FloatArray, lo: FloatArray, hi: FloatArray
) -> FloatArray:
    """Move pairs of points to both sides of the threshold of a neuron of the first layer.

    A point moves towards the corner at which the sum has the other sign, if there is one.
    """
    layer = network.layers[0]
    rng = np.random.default_rng(1)
    quanta = _quanta(np.maximum(np.abs(lo), np.abs(hi)))
    for k in range(0, len(points), 2):
        j = int(rng.integers(layer.size))
        part = slice(layer.rows.indptr[j], layer.rows.indptr[j + 1])
        columns, weights = layer.rows.indices[part], layer.rows.data[part].astype(np.float64)
        here = points[k, columns]
        value = float(weights @ here + layer.bias[j])
        corner = np.where(weights * value < 0, hi[columns], lo[columns])
        other = float(weights @ corner + layer.bias[j])
        if value * other < 0:
            here = here + value / (value - other) * (corner - here)
        points[k : k + 2] = points[k]
        for row, side in zip(points[k : k + 2], (1, -1), strict=False):
            row[columns] = here + side * np.sign(weights) * quanta[columns]
    return _snapped(points, lo, hi)


# -- evaluation of the description, with its rounding errors ------------------------------


@dataclass(frozen=True, eq=False)
class _Followed:
    """What the description computes: scores, their errors, and what is known of each point."""

    scores: FloatArray
    #: The largest error of each score in the program, the same at all points.
    error: FloatArray
    #: Whether rounding decides no neuron.
    certain: npt.NDArray[np.bool_]
    #: Whether a sign that the model does not define was taken at zero: the network has another
    #: value there than its source.
    tied: npt.NDArray[np.bool_]


def _follow(
    description: ModelDescription, groups: list[_PointGroup], execution: Execution
) -> _Followed:
    count = len(description.stages)
    first, *hidden, last = (
        _RoundedStage(stage, execution, first=k == 0, last=k + 1 == count)
        for k, stage in enumerate(description.stages)
    )
    parts = [first.of(group.points, group.reach, group.quantum) for group in groups]
    value = np.concatenate([part[0] for part in parts])
    error = np.concatenate([np.broadcast_to(e, v.shape) for v, e in parts])
    certain, tied = np.ones(len(value), dtype=bool), np.zeros(len(value), dtype=bool)
    for stage, after in zip((first, *hidden), (*hidden, last), strict=True):
        zero = (value == 0) & (error == 0)
        certain &= np.all((np.abs(value) > error) | zero, axis=1)
        signs = np.where(value >= 0, np.float32(1), np.float32(-1))
        if stage.sign_zero == "minus":
            signs[zero] = -1
        elif stage.sign_zero != "plus" and np.any(zero):
            signs[zero] = 0
            tied |= np.any(zero, axis=1)
            certain &= ~tied | execution.sign_of_zero_is_zero
        # A maximum of signs is computed as a sum of them, which differs if one of them is 0.
        certain &= ~(tied & (after is not last and after.structural))
        value, error = after.of(signs, np.ones(signs.shape[1]), 1.0)
    return _Followed(value, error, certain, tied)


class _RoundedStage:
    """A stage of the description, evaluated together with its rounding errors."""

    def __init__(self, stage: Stage, execution: Execution, *, first: bool, last: bool) -> None:
        weights = as_matrix(stage.weights)
        whole = weights.dtype.kind == "i" or bool(np.all(weights.data == np.rint(weights.data)))
        self._norms = row_norms(weights)
        self._whole = whole and float(self._norms.max(initial=0)) < EXACT_BELOW
        self._is_output = last
        # Sums of signs are exact in float32.
        dtype = np.float32 if self._whole and not first else np.float64
        self._sums = make_operator(weights, stage.convolution, None, dtype)
        self._weights, self._dtype = weights, dtype
        self._stage, self._roundoff = stage, execution.roundoff
        self.sign_zero, self.structural = stage.sign_zero, stage.structural

    def of(
        self, inputs: npt.NDArray[Any], reach: FloatArray, quantum: float
    ) -> tuple[FloatArray, FloatArray]:
        """Evaluate F(u) of every neuron at every point, and its largest error in the program.

        `reach` are the largest absolute values of the inputs, which are multiples of `quantum` if
        that is not 0.
        """
        value = self._sums.forward(inputs.astype(self._dtype, copy=False)).astype(np.float64)
        uniform = bool(np.all(reach == reach[0]))
        size = self._norms * reach[0] if uniform else np.asarray(abs(self._weights) @ reach)
        terms = np.diff(self._weights.indptr).astype(np.float64)
        unit = np.full(size.shape, quantum * self._whole)
        if self._stage.pool is not None:
            pool = self._stage.pool.tocsr()
            value = np.maximum.reduceat(value[:, pool.indices], pool.indptr[:-1], axis=1)
            size, terms = (
                np.maximum.reduceat(array[pool.indices], pool.indptr[:-1])
                for array in (size, terms)
            )
            unit = unit[: size.size]
        rounded = self._stage.other_terms | (size >= EXACT_BELOW * unit)
        scaled = np.zeros(size.shape, dtype=bool)
        for step in self._stage.steps:
            value, size = _applied(step, value), _applied(step, size, of_sizes=True)
            unit, scaled = _unit(step, unit, scaled)
        # A factor that rounds keeps the sign of an exact sum, but not a score.
        unit = np.where(scaled & (self._stage.other_terms or self._is_output), 0.0, unit)
        share = np.where(rounded, terms * self._roundoff, 0.0) + STEP_ERROR
        return value, np.where(size < EXACT_BELOW * unit, 0.0, share * size)


def _unit(
    step: ElementwiseStep, unit: FloatArray, scaled: npt.NDArray[np.bool_]
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Find of what the results of a step are multiples, and whether a factor was rounded.

    The unit is 0 where the results are not multiples of anything known.
    """
    if isinstance(step, Shift):
        moved = np.where(scaled, 0.0, np.minimum(unit, _last_bit(step.offset)))
        return np.where(step.offset == 0, unit, moved), scaled
    if isinstance(step, Normalise):
        factor = np.abs(step.gamma) / np.sqrt(step.variance + step.epsilon)
        factor = np.where((step.mean == 0) & (step.beta == 0), factor, 0.0)
    else:
        factor = np.abs(step.factor if isinstance(step, Scale) else 1 / step.divisor)
    return unit * factor, scaled | (np.frexp(factor)[0] != 0.5)


def _applied(step: ElementwiseStep, value: FloatArray, *, of_sizes: bool = False) -> FloatArray:
    """Apply a step to a value; to sizes, with the absolute values of all terms."""
    a = np.abs if of_sizes else np.positive
    if isinstance(step, Scale):
        return np.asarray(value * a(step.factor))
    if isinstance(step, Divide):
        return np.asarray(value / a(step.divisor))
    if isinstance(step, Normalise):
        gain = a(step.gamma) / np.sqrt(step.variance + step.epsilon)
        return np.asarray((value + a(-step.mean)) * gain + a(step.beta))
    return np.asarray(value + a(step.offset))


def _last_bit(numbers: FloatArray) -> FloatArray:
    """Find the largest power of two of which each number is a multiple."""
    mantissa, exponent = np.frexp(numbers)
    whole = (mantissa * 2.0**53).astype(np.int64)
    return np.asarray(np.ldexp((whole & -whole).astype(np.float64), exponent - 53))


# -- the comparison -----------------------------------------------------------------------


def _check(
    network: Network,
    description: ModelDescription,
    execution: Execution,
    points: FloatArray,
    outputs: FloatArray,
    known: _Followed,
) -> int:
    """Raise at the first point with a difference; return the number of points that count."""
    transform = description.output_transform
    width = 1 if transform == "argmax" else network.classes
    if outputs.reshape(len(points), -1).shape[1] != width:
        raise UnsupportedModelError(
            f"{description.source}: the imported network has {network.classes} scores, "
            f"{execution.program} has {outputs.size // len(points)}"
        )
    outputs = outputs.reshape(len(points), width)
    here = np.where(known.tied[:, None], known.scores, network.evaluate(points))
    margin = np.full(len(points), known.error.max())
    # The network is evaluated in float64, and a softmax rounds.
    margin = margin + 1e-9 * np.abs(here).max(axis=1) + 1e-5 * (transform == "softmax")
    top = np.sort(np.column_stack([here, np.full(len(here), -np.inf)]), axis=1)[:, -2:]
    clear = known.certain & (top[:, 1] - top[:, 0] > 2 * margin)
    own = here.argmax(axis=1)
    other = outputs[:, 0].astype(np.int64) if transform == "argmax" else outputs.argmax(axis=1)
    wrong = clear & (own != other)
    if transform == "scores":
        apart = ~(np.abs(outputs - here) <= margin[:, None])
        wrong |= known.certain & np.any(apart, axis=1)
        clear = known.certain
    if np.any(wrong):
        k = int(np.flatnonzero(wrong)[0])
        shown = ", ".join(f"{v:g}" for v in points[k, :8]) + ", ..." * (points.shape[1] > 8)
        found = f"class {own[k]}", f"class {other[k]}"
        if own[k] == other[k]:
            found = f"scores {_scores(here[k])}", f"{_scores(outputs[k])}"
        raise UnsupportedModelError(
            f"{description.source}: was read as another network than {execution.program} executes: "
            f"at input {k} of the comparison, ({shown}), it has {found[0]} here, {found[1]} in "
            f"{execution.program}"
        )
    return int(np.count_nonzero(clear))


def _scores(row: FloatArray) -> str:
    return "(" + ", ".join(f"{v:.6g}" for v in row[:8]) + ", ..." * (row.size > 8) + ")"
