"""The content of a model file, before it is brought to normal form.

Readers return a :class:`ModelDescription`; :mod:`bnncert.model` converts it to threshold layers
and decides every threshold exactly.  Readers do not round: a description holds the numbers of the
file, and the operations on them in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from bnncert.arrays import FloatArray, IntArray

SignZero: TypeAlias = Literal["plus", "minus", "either"]

#: The largest integer weight, also of weights that arise from pooling.
LARGEST_INTEGER_WEIGHT = 2**20


@dataclass(frozen=True, eq=False)
class Scale:
    """v -> factor * v, neuron by neuron."""

    factor: FloatArray


@dataclass(frozen=True, eq=False)
class Shift:
    """v -> v + offset, neuron by neuron."""

    offset: FloatArray


@dataclass(frozen=True, eq=False)
class Divide:
    """v -> v / divisor, neuron by neuron (not a Scale, because 1/3 is not a float)."""

    divisor: FloatArray


@dataclass(frozen=True, eq=False)
class Normalise:
    """v -> gamma * (v - mean) / sqrt(variance + epsilon) + beta, neuron by neuron."""

    gamma: FloatArray
    beta: FloatArray
    mean: FloatArray
    variance: FloatArray
    epsilon: FloatArray


ElementwiseStep: TypeAlias = Scale | Shift | Divide | Normalise

#: The steps by the names that files have for them.
STEP_KINDS: dict[str, type[ElementwiseStep]] = {
    kind.__name__.lower(): kind for kind in (Scale, Shift, Divide, Normalise)
}


def step_arrays(step: ElementwiseStep) -> tuple[FloatArray, ...]:
    """List the parameter arrays of a step, in the order of its fields."""
    return tuple(getattr(step, name.name) for name in fields(step))


def take_step(step: ElementwiseStep, index: IntArray) -> ElementwiseStep:
    """Restrict a step to the neurons `index` (gather)."""
    return type(step)(*(array[index] for array in step_arrays(step)))


@dataclass(frozen=True, eq=False)
class Convolution:
    """A 2-D convolution, stored in addition to its sparse matrix so that batches use dense BLAS.

    The stage's row r is ``flip * conv(x[source].reshape(shape)).ravel()[rows[r]]``.
    """

    kernel: FloatArray
    shape: tuple[int, int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    groups: int
    source: IntArray
    rows: IntArray


#: What a flip of one bit of the file changes: one weight ("own"), several ones ("shared"), or a
#: weight and the constant of its row, because the inputs of the linear map are shifted ("shifted").
WeightBits: TypeAlias = Literal["own", "shared", "shifted"]


@dataclass(frozen=True, eq=False)
class Stage:
    """One linear map and the elementwise steps after it, and a sign, except in the last stage."""

    #: Sparse (rows are neurons).  Integer dtype when exact integers, float64 otherwise.
    weights: Any
    #: Applied in order to ``weights @ x``.
    steps: tuple[ElementwiseStep, ...]
    #: The place of the stage in the file, for messages.
    name: str
    #: The value of sign(0) as the file defines it, or None if it does not define it.
    sign_zero: SignZero | None = None
    #: Sparse 0/1 incidence: the steps apply to the *maximum* over each of its rows.
    pool: Any = None
    #: Whether integer weights other than -1, 0, 1 arise from pooling rather than from the file.
    structural: bool = False
    convolution: Convolution | None = None
    bits: WeightBits = "own"
    #: Whether the file has other terms than weights times inputs, e.g. weights with a factor, which
    #: is one of the steps here: then a sum of floats is rounded even if these weights are integers.
    other_terms: bool = False

    @property
    def bias(self) -> FloatArray | None:
        """The vector b of a stage W x + b, None if other steps follow W x."""
        alone = len(self.steps) == 1 and self.pool is None
        return self.steps[0].offset if alone and isinstance(self.steps[0], Shift) else None


OutputTransform: TypeAlias = Literal["scores", "softmax", "argmax"]


class CannotExecuteError(Exception):
    """The program that a model comes from is not installed, or does not execute this model."""


@dataclass(frozen=True, eq=False)
class Execution:
    """How the program that a model comes from executes it, for a comparison with what was read."""

    #: The name of the program.
    program: str
    #: The output of the model for each row of points; raises :class:`CannotExecuteError`.
    outputs: Callable[[FloatArray], FloatArray]
    #: The unit roundoff of its sums.
    roundoff: float = 2.0**-24
    #: Whether a sign whose value at zero the model does not define is 0 there.
    sign_of_zero_is_zero: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class FileFacts:
    """What a file says about a network besides the function of its scores."""

    output_transform: OutputTransform = "scores"
    source: str = "<memory>"
    kind: str = "memory"
    metadata: dict[str, str] = field(default_factory=dict)
    #: Input units per pixel level, if the file states it; it does not change the function.
    pixel_step: float | None = None

    def facts(self) -> dict[str, Any]:
        """Return these facts by name, for another form of the same network."""
        return {fact.name: getattr(self, fact.name) for fact in fields(FileFacts)}


@dataclass(frozen=True, eq=False)
class ModelDescription(FileFacts):
    """A network as its file describes it: stages, each followed by a sign, then the scores."""

    stages: tuple[Stage, ...]
    input_shape: tuple[int, ...]
    input_lo: FloatArray | None = None
    input_hi: FloatArray | None = None
    #: How its source executes the model; None for the formats of bnncert itself.
    execution: Execution | None = None
